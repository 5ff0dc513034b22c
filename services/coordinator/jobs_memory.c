#include "services/coordinator/jobs_memory.h"

#include "services/base/log.h"
#include "services/base/time.h"
#include "services/coordinator/coordinator.h"
#include "services/coordinator/jobs_live.h"
#include "services/coordinator/jobs_prepare.h"
#include "services/job/job_footprint.h"

static bool is_queued(const struct hosted_job *job)
{
    return tally_job_status(job->engine) == TALLY_JOB_QUEUED && !job->needs_reload;
}

struct jobs_memory_use jobs_memory_use(const struct tally_coordinator *coordinator)
{
    struct jobs_memory_use use = {.held = preparer_bytes(coordinator->jobs->preparer),
                                  .limit = coordinator->config.max_job_bytes};
    TALLY_LIST_EACH(node, &coordinator->jobs->marks.active)
    {
        const struct hosted_job *job = TALLY_LIST_MEMBER(struct hosted_job, in_active, node);
        if (!is_queued(job)) {
            use.held += job->started_bytes;
            use.kept += hosted_job_is_progressing(job) ? 0 : job->started_bytes;
        }
    }
    return use;
}

int64_t jobs_memory_needed(const struct hosted_job *job)
{
    return job->prepared ? job->started_bytes : job->solving_bytes;
}

bool jobs_memory_is_free(const struct jobs_memory_use *use, const struct hosted_job *job)
{
    return jobs_memory_needed(job) <= use->limit - use->held;
}

bool jobs_memory_will_be_free(const struct jobs_memory_use *use, const struct hosted_job *job)
{
    return jobs_memory_needed(job) <= use->limit - use->kept;
}

static enum tally_status check_bytes(int64_t bytes, int64_t limit, const char *field,
                                     const char *what, struct tally_error *err)
{
    return bytes <= limit ? TALLY_OK
                          : tally_fail(err, TALLY_OUT_OF_RANGE, field,
                                       "%s needs about %lld bytes of memory, more than this "
                                       "coordinator's --max-job-bytes %lld",
                                       what, (long long)bytes, (long long)limit);
}

enum tally_status jobs_memory_check_started(const struct tally_coordinator *coordinator,
                                            const struct tally_job_spec *spec,
                                            struct tally_error *err)
{
    return check_bytes(tally_footprint_started(spec), coordinator->config.max_job_bytes,
                       tally_footprint_started_field(spec), "the job", err);
}

enum tally_status jobs_memory_check_solving(const struct tally_coordinator *coordinator,
                                            const struct tally_job_spec *spec,
                                            struct tally_error *err)
{
    return check_bytes(tally_footprint_solving(spec), coordinator->config.max_job_bytes,
                       tally_footprint_solving_field(spec), "solving f(x*) of the job", err);
}

enum tally_status jobs_memory_check(const struct tally_coordinator *coordinator,
                                    const struct tally_job_spec *spec, struct tally_error *err)
{
    enum tally_status status = jobs_memory_check_started(coordinator, spec, err);
    return status == TALLY_OK ? jobs_memory_check_solving(coordinator, spec, err) : status;
}

bool jobs_memory_is_unsolved(const struct hosted_job *job)
{
    return is_queued(job) && !job->prepared && job->prepare_began_ms == 0;
}

static void solve(struct tally_coordinator *coordinator, struct hosted_job *job)
{
    job->prepare_began_ms = tally_monotonic_ms();
    preparer_submit(coordinator->jobs->preparer, job->row.id, &job->spec);
}

void jobs_memory_solve_next(struct tally_coordinator *coordinator)
{
    struct live_jobs *jobs = coordinator->jobs;
    if (preparer_bytes(jobs->preparer) > 0) {
        return;
    }
    while (jobs->unsolved != NULL &&
           (jobs->unsolved->prepared || jobs->unsolved->prepare_began_ms != 0 ||
            jobs->unsolved->row.status != TALLY_JOB_QUEUED)) {
        jobs->unsolved = jobs->unsolved->next;
    }
    if (jobs->unsolved == NULL) {
        return;
    }
    jobs_prune_active(jobs);
    const struct jobs_memory_use use = jobs_memory_use(coordinator);
    for (struct hosted_job *job = jobs->unsolved; job != NULL; job = job->next) {
        if (!jobs_memory_is_unsolved(job)) {
            continue;
        }
        if (jobs_memory_is_free(&use, job)) {
            solve(coordinator, job);
            return;
        }
        jobs->lacks_memory = true;
        if (jobs_memory_will_be_free(&use, job)) {
            return;
        }
    }
}

void jobs_memory_note_loaded(const struct tally_coordinator *coordinator,
                             const struct hosted_job *job)
{
    const struct jobs_memory_use use = jobs_memory_use(coordinator);
    struct tally_error err = TALLY_ERROR_INIT;
    if (job->row.status == TALLY_JOB_QUEUED) {
        if (jobs_memory_check(coordinator, &job->spec, &err) != TALLY_OK) {
            tally_log(TALLY_LOG_WARN, tally_log_event("queued job cannot start: memory limit"),
                      tally_log_text("job", job->row.id), tally_log_problem(&err));
        }
    } else if (use.held > use.limit) {
        tally_log(TALLY_LOG_WARN,
                  tally_log_event("job continues although jobs need more than --max-job-bytes"),
                  tally_log_text("job", job->row.id), tally_log_integer("bytes", use.held),
                  tally_log_integer("max_job_bytes", use.limit));
    }
}
