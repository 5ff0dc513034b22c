/* job_watch: follows a job until it ends, through restarts of the coordinator.
 *
 * The coordinator is polled. On a terminal one progress line is painted and the result table ends
 * it, both on stdout. Without one, stdout gets a plain line whenever the job has moved, and the
 * table. With --json it gets the job's detail instead, as one line of JSON, and nothing else; the
 * table then goes to stderr. */
#ifndef TALLY_SERVICES_CLI_VIEW_JOB_WATCH_H
#define TALLY_SERVICES_CLI_VIEW_JOB_WATCH_H

#include "services/cli/view/cli.h"

struct tally_job_watch {
    const char *job_id;
    int64_t timeout_ms; /* 0 = none */
    int64_t interval_ms;
};

/* Reads --timeout and --interval-ms, which watch and submit have. Errors: INVALID_ARGUMENT,
 * OUT_OF_RANGE. */
enum tally_status tally_job_watch_read_options(const struct tally_options *options,
                                               struct tally_job_watch *ret_watch,
                                               struct tally_error *err);

/* Returns the exit code for how the job ended, or TALLY_EXIT_TIMEOUT. An error that waiting cannot
 * mend (no such job, no permission) ends it with TALLY_EXIT_FAILED. */
int tally_job_watch_run(struct tally_cli *cli, const struct tally_job_watch *watch);

/* Pure parts. */

enum { TALLY_WATCH_TEXT_CAPACITY = 1152 };
/* "time step 1200/2000  round 31  regret 412.3  accuracy 0.91  up 598 bit  down 628 bit", the
 * status before it unless that is "running". Metrics are means. Bits are formula bits. For a job
 * that waits, it says for what, and for how long at Unix time now_ms: "since 12 s: waits for client
 * 3 (w3): round 7 has 9 of 10 answers". */
void tally_job_watch_text(const struct tally_json *detail, int64_t now_ms,
                          char ret_text[TALLY_WATCH_TEXT_CAPACITY]);
/* What must differ for the job to have moved: status, time step, round, iterate, what it waits for.
 * Wire bytes do not count, since watching changes them. */
void tally_job_watch_mark(const struct tally_json *detail,
                          char ret_text[TALLY_WATCH_TEXT_CAPACITY]);
/* time_step / horizon; 1 for a completed job. */
double tally_job_watch_fraction(const struct tally_json *detail);
/* Next pause after a failed poll: doubles from 250 ms to 5 s. */
int64_t tally_job_watch_backoff_ms(int64_t last_ms);

#endif
