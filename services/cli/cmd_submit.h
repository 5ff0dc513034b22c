/* cmd_submit: what other commands use of `tally submit`. */
#ifndef TALLY_SERVICES_CLI_CMD_SUBMIT_H
#define TALLY_SERVICES_CLI_CMD_SUBMIT_H

#include <stdint.h>

#include "services/cli/cli.h"

/* How many slots workers must have before the job of this detail can start:
 * tally_job_spec_slots(). */
int64_t tally_slots_needed(const struct tally_json *detail);

#endif
