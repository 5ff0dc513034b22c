/* job_watch: follows a job until it ends, through restarts of the coordinator.
 *
 * The coordinator is polled. If stdout is a terminal, it shows one progress line and finally the
 * result table. Otherwise a plain line is written to it whenever the job has progressed, and the
 * table at the end. With --json, stdout gets only the job's detail, as one line of JSON, each time;
 * the table then goes to stderr. */
#ifndef TALLY_SERVICES_CLI_JOB_WATCH_H
#define TALLY_SERVICES_CLI_JOB_WATCH_H

#include "services/cli/cli.h"

struct tally_job_watch {
    const char *job_id;
    int64_t timeout_ms; /* 0 = none */
    int64_t interval_ms;
    const char *board_folder; /* rounds are also written there (board_run.h); NULL = nowhere */
};

/* Reads --timeout and --interval-ms, which watch and submit have. Errors: INVALID_ARGUMENT,
 * OUT_OF_RANGE. */
enum tally_status tally_job_watch_read_options(const struct tally_options *options,
                                               struct tally_job_watch *ret_watch,
                                               struct tally_error *err);

/* Returns the exit code for how the job ended, or TALLY_EXIT_TIMEOUT. After an error that does not
 * go away by waiting (no such job, no permission) returns TALLY_EXIT_FAILED. */
int tally_job_watch_run(struct tally_cli *cli, const struct tally_job_watch *watch);

/* Pure parts. */

enum { TALLY_WATCH_TEXT_CAPACITY = 1152 };
/* "time step 1200/2000  round 31  regret 412.3  accuracy 0.91  up 598 bit  down 628 bit", preceded
 * by the status unless that is "running". Metrics are means. Bits are formula bits. For a waiting
 * job, says what it waits for, and for how long at Unix time now_ms: "since 12 s: waits for client
 * 3 (w3): round 7 has 9 of 10 answers". */
void tally_job_watch_text(const struct tally_json *detail, int64_t now_ms,
                          char ret_text[TALLY_WATCH_TEXT_CAPACITY]);
/* Text that differs if the job has progressed: status, time step, round, iterate, what it waits
 * for. Omits wire bytes, because watching changes them. */
void tally_job_watch_mark(const struct tally_json *detail,
                          char ret_text[TALLY_WATCH_TEXT_CAPACITY]);
/* time_step / horizon; 1 for a completed job. */
double tally_job_watch_fraction(const struct tally_json *detail);
/* Next pause after a failed poll: doubles from 250 ms to 5 s. */
int64_t tally_job_watch_backoff_ms(int64_t last_ms);

#endif
