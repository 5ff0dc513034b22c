/* cmd_simulate: a run of a job in this process, for other commands. */
#ifndef TALLY_SERVICES_CLI_CMD_SIMULATE_H
#define TALLY_SERVICES_CLI_CMD_SIMULATE_H

#include "services/cli/cli.h"

/* Runs the job once, with a progress line on a terminal, and makes its detail. The command has the
 * options --data-dir and --plugin. Errors: those of tally_plugin_set_objective(), of
 * tally_local_prepare(), of tally_local_initial() and of tally_local_run_on(). */
enum tally_status tally_cli_simulate_spec(const struct tally_options *options,
                                          const struct tally_job_spec *spec,
                                          struct tally_json **ret_detail, struct tally_error *err);

#endif
