/* board_run: the rounds of a job as a run of TensorBoard: the folder DIR/NAME-ID with one event
 * file (event_file.h), whose steps are the rounds and whose wall times are those at which they
 * closed. Step 0 is the job document as a text.
 *
 * The file itself says how far it goes. So rounds may be added again and again, by `tally export`
 * or by `tally watch`, and no round is written twice. */
#ifndef TALLY_SERVICES_CLI_BOARD_RUN_H
#define TALLY_SERVICES_CLI_BOARD_RUN_H

#include "services/cli/job_rounds.h"

struct tally_board_run;

/* Opens the run of cli->job below the folder, both of which are created if need be. Errors: those
 * of tally_event_file_open(), and of reading the job. */
enum tally_status tally_board_run_open(struct tally_cli *cli, const char *folder,
                                       const struct tally_json *detail,
                                       struct tally_board_run **ret_run, struct tally_error *err);
void tally_board_run_close(struct tally_board_run *run); /* NULL is allowed */

/* Adds the rounds that have closed. As the metrics of a model that a round made are known only when
 * the next round has closed, the latest round is added once there is another, or once the job has
 * ended (`is_ended`, before this call). Errors: those of tally_job_rounds_read() and of
 * tally_event_file_flush(); a later call continues where this one failed. */
enum tally_status tally_board_run_follow(struct tally_board_run *run, bool is_ended,
                                         struct tally_error *err);
const char *tally_board_run_path(const struct tally_board_run *run); /* of the event file */
/* The last round in the file; 0 = none. */
int64_t tally_board_run_last_round(const struct tally_board_run *run);

#endif
