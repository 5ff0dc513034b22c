/* jobs_preparation: f(x*), the curvature of f and the schedule, which a queued job needs to start
 * (jobs_prepare.h). */
#include <string.h>
#include <unistd.h>

#include "services/base/log.h"
#include "services/base/time.h"
#include "services/coordinator/jobs_lifecycle.h"
#include "services/coordinator/jobs_prepare.h"
#include "services/coordinator/jobs_rounds.h"
#include "services/coordinator/loop.h"
#include "services/coordinator/loop_transaction.h"
#include "services/coordinator/rooms.h"
#include "services/job/job_advice.h"
#include "services/job/job_reasons.h"

enum tally_status prepare_job(struct tally_coordinator *coordinator, struct hosted_job *job,
                              struct tally_error *err)
{
    if (job->prepared || job->row.status != TALLY_JOB_QUEUED) {
        return TALLY_OK;
    }
    if (job->solving_bytes > 0) {
        memory_solve_next(coordinator);
        return TALLY_OK;
    }
    job->prepare_began_ms = tally_monotonic_ms();
    return preparer_submit(coordinator->jobs->preparer, job->row.id, &job->spec, err);
}

/* Fails the job if it cannot be prepared. */
static void fail_if_unprepared(struct tally_coordinator *coordinator, struct hosted_job *job)
{
    if (job->prepare_error.status == TALLY_OK || job->row.status != TALLY_JOB_QUEUED) {
        return;
    }
    coordinator->jobs->has_unprepared = true; /* until its failure is stored */
    if (!job->needs_reload && tally_job_status(job->engine) == TALLY_JOB_QUEUED) {
        struct tally_error err = TALLY_ERROR_INIT;
        char reason[TALLY_REASON_CAPACITY];
        TALLY_REASON_WRITE(reason, PREPARATION_FAILED, job->prepare_error.message);
        fail_job(coordinator, job, reason, &err);
    }
}

void fail_unprepared(struct tally_coordinator *coordinator)
{
    if (!coordinator->jobs->has_unprepared) {
        return;
    }
    coordinator->jobs->has_unprepared = false;
    for (struct hosted_job *job = coordinator->jobs->first; job != NULL; job = job->next) {
        fail_if_unprepared(coordinator, job);
    }
}

/* Takes what is known about f. Curvature and schedule are stored at once, to be shown while the job
 * waits for workers. */
static void take_preparation(struct tally_coordinator *coordinator, struct hosted_job *job,
                             const struct tally_local_preparation *preparation)
{
    job->prepared = true;
    job->prepare_took_ms = tally_monotonic_ms() - job->prepare_began_ms;
    job->f_star = preparation->f_star;
    job->curvature = preparation->curvature;
    memcpy(job->schedule, preparation->schedule, sizeof job->schedule);
    restart_clock(job);
    if (!(job->curvature.smoothness > 0) && job->schedule[0] == '\0') {
        return;
    }
    struct tally_error err = TALLY_ERROR_INIT;
    enum tally_status status = transaction_begin_write(coordinator->transaction, &err);
    if (status == TALLY_OK) { /* on failure, the row is written again at the start */
        status = hosted_job_put_row(coordinator->store, job, tally_realtime_ms(), &err);
        transaction_check(coordinator->transaction, status, &err);
    }
    const struct tally_advice advice = tally_advise(&job->spec, &job->curvature);
    for (int i = 0; i < advice.n; i++) {
        tally_log(TALLY_LOG_WARN, tally_log_event("job has questionable parameters"),
                  tally_log_text("job", job->row.id), tally_log_text("warning", advice.texts[i]));
    }
}

void take_prepared(struct tally_coordinator *coordinator)
{
    uint64_t count;
    ssize_t n = read(coordinator->turn->wake_fd, &count, sizeof count);
    (void)n; /* EAGAIN: nothing woke us */
    struct prepared result;
    while (preparer_take(coordinator->jobs->preparer, &result)) {
        struct live_jobs *jobs = coordinator->jobs;
        struct hosted_job *job = find_job(coordinator, result.job_id);
        /* Jobs that wait for memory may get some now. */
        jobs->match_due |= jobs->lacks_memory || job == NULL;
        if (job != NULL && !tally_list_has(&job->in_prepared)) {
            tally_list_append(&jobs->prepared, &job->in_prepared);
        }
        if (job == NULL || job->row.status != TALLY_JOB_QUEUED) {
            continue; /* cancelled meanwhile */
        }
        if (result.status == TALLY_OK) {
            job->columns = (struct known_columns){.digest = result.columns};
            take_preparation(coordinator, job, &result.preparation);
        } else {
            job->prepare_error = result.err;
            job->prepare_error.status = result.status;
            fail_if_unprepared(coordinator, job);
        }
    }
}
