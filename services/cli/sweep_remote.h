/* sweep_remote: the jobs of a sweep on a coordinator.
 *
 * Every job has the label sweep=DIGEST, where DIGEST is a checksum of the whole sweep, and is
 * submitted with an idempotency key that is a checksum of its document. The coordinator therefore
 * has all state: whatever is killed, the same command finds the jobs again that it has submitted,
 * running or ended, and submits only the others. */
#ifndef TALLY_SERVICES_CLI_SWEEP_REMOTE_H
#define TALLY_SERVICES_CLI_SWEEP_REMOTE_H

#include "services/cli/cli.h"
#include "services/experiment/sweep.h"

struct tally_sweep_remote {
    struct tally_cli *cli;
    uint64_t digest;
    int64_t parallel;    /* jobs that are live at once, at least 1 */
    int64_t interval_ms; /* between two polls */
    size_t n_planned;    /* jobs in all, for the progress */
    size_t n_done;
    bool (*watch)(void *context, double fraction, const char *what);
    /* Called once when a call begins to be repeated, with the reason. */
    void (*note)(void *context, const char *message);
    void *context;
};

/* Submits n jobs, at most `parallel` at once, and waits until all have ended. Waits for a
 * coordinator that is away. A job that diverged is a result. A job of this sweep that was cancelled
 * before is deleted and submitted again. Errors: CANCELLED (a stop signal; the jobs go on),
 * FAILED_PRECONDITION (a job was cancelled, or failed without diverging), those of the coordinator.
 */
enum tally_status tally_sweep_remote_run(struct tally_sweep_remote *remote,
                                         const struct tally_sweep_job *jobs, size_t n,
                                         struct tally_error *err);

/* Cancels all live jobs of the sweep. Errors: those of the coordinator. */
enum tally_status tally_sweep_remote_cancel(struct tally_sweep_remote *remote, size_t *ret_n,
                                            struct tally_error *err);

#endif
