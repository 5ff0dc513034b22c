/* job_action: cancel, pause and resume: one POST without a body. */
#ifndef TALLY_SERVICES_CLI_COMMANDS_JOB_ACTION_H
#define TALLY_SERVICES_CLI_COMMANDS_JOB_ACTION_H

#include "services/cli/cli.h"

/* POST /v1/jobs/{id}/`action` for the first argument; prints "ID STATUS", or the detail with
 * --json. Returns the exit code. */
int tally_job_action(struct tally_cli *cli, const char *action);

#endif
