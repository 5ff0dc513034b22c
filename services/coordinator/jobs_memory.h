/* jobs_memory: the memory of started jobs and of solving f(x*), limited by --max-job-bytes.
 *
 * Memory is estimated by services/job/job_footprint.h. A queued job counts as 0 and waits until the
 * memory that it needs is free. Jobs that started before a restart, or at another replica, continue
 * even above the limit.
 *
 * A job that alone needs more than the limit is refused when it is submitted. A job that was
 * queued under a higher limit stays queued, and its `waiting` says so: it was accepted, the
 * operator may raise the limit again, and it can be cancelled. */
#ifndef TALLY_SERVICES_COORDINATOR_JOBS_MEMORY_H
#define TALLY_SERVICES_COORDINATOR_JOBS_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "codec/error.h"
#include "services/job/job_spec.h"

struct hosted_job;
struct tally_coordinator;

/* Bytes. */
struct jobs_memory_use {
    int64_t held; /* by started jobs and by the f(x*) that is being solved */
    int64_t kept; /* the part of `held` that jobs without progress hold and may never free */
    int64_t limit;
};
struct jobs_memory_use jobs_memory_use(const struct tally_coordinator *coordinator);

/* Whether the job is queued and the solving of its f(x*) has not begun. */
bool jobs_memory_is_unsolved(const struct hosted_job *job);
/* Bytes that the queued job needs for its next step: solving f(x*), or starting. */
int64_t jobs_memory_needed(const struct hosted_job *job);
/* Whether jobs_memory_needed() is free now. */
bool jobs_memory_is_free(const struct jobs_memory_use *use, const struct hosted_job *job);
/* Whether jobs_memory_needed() will be free once the jobs that progress have ended. */
bool jobs_memory_will_be_free(const struct jobs_memory_use *use, const struct hosted_job *job);

/* Refuse a job that alone needs more than the limit once it has started, or while f(x*) is solved.
 * Errors: OUT_OF_RANGE, naming the field. */
enum tally_status jobs_memory_check_started(const struct tally_coordinator *coordinator,
                                            const struct tally_job_spec *spec,
                                            struct tally_error *err);
enum tally_status jobs_memory_check_solving(const struct tally_coordinator *coordinator,
                                            const struct tally_job_spec *spec,
                                            struct tally_error *err);

/* Both checks. */
enum tally_status jobs_memory_check(const struct tally_coordinator *coordinator,
                                    const struct tally_job_spec *spec, struct tally_error *err);

/* Begins solving f(x*) of the oldest queued job that needs it and has the memory for it. One job is
 * solved at a time. */
void jobs_memory_solve_next(struct tally_coordinator *coordinator);

/* To be called after a job was read from the store: logs if started jobs hold more than the limit,
 * or if a queued job can never start under it. */
void jobs_memory_note_loaded(const struct tally_coordinator *coordinator,
                             const struct hosted_job *job);

#endif
