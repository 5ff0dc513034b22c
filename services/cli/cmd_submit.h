/* cmd_submit: */
#ifndef TALLY_SERVICES_CLI_CMD_SUBMIT_H
#define TALLY_SERVICES_CLI_CMD_SUBMIT_H

#include <stdint.h>

#include "services/cli/cli.h"

/* ---- Tells a user who has submitted a job that workers are missing, and how to start
 * one. */

/* How many slots workers must have before the job of this detail can start:
 * tally_job_spec_slots(). */
int64_t tally_slots_needed(const struct tally_json *detail);

/* Asks the coordinator for its slots. If all workers together have fewer than the job needs, prints
 * a hint on stderr, with a command that adds the rest:
 *
 *   no worker is connected, and the job needs 4 clients; start a worker:
 *     tally-worker --clients 4 --plugin FILE
 *
 * Prints nothing if the job has ended or the coordinator does not report its slots. */
void tally_worker_hint(struct tally_cli *cli, const struct tally_json *detail);

#endif
