/* memory: what started jobs, and the solving of f(x*), hold together, against --max-job-bytes.
 *
 * Each counts by the estimate of services/job/footprint.h. A queued job holds nothing and waits
 * until its share is free. Jobs that had started before a restart, or at another replica, go on
 * whatever the limit is. */
#ifndef TALLY_SERVICES_COORDINATOR_MEMORY_H
#define TALLY_SERVICES_COORDINATOR_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "codec/base/error.h"
#include "services/job/spec.h"

struct hosted_job;
struct tally_coordinator;

/* Bytes. */
struct memory_use {
    int64_t held; /* by started jobs and by what is being solved */
    int64_t kept; /* of it, by jobs that do not progress: nobody knows for how long */
    int64_t limit;
};
struct memory_use memory_use(const struct tally_coordinator *coordinator);

/* Whether f(x*) of the queued job is still to be solved. */
bool memory_is_unsolved(const struct hosted_job *job);
/* What the queued job needs next: to have f(x*) solved, or to start. */
int64_t memory_needed(const struct hosted_job *job);
/* Whether that is free. */
bool memory_is_free(const struct memory_use *use, const struct hosted_job *job);
/* Whether it will be, once the jobs that progress have ended. */
bool memory_will_be_free(const struct memory_use *use, const struct hosted_job *job);

/* Refuses a job that alone needs more than the limit. Errors: OUT_OF_RANGE, naming the field. */
enum tally_status memory_check(const struct tally_coordinator *coordinator,
                               const struct tally_job_spec *spec, struct tally_error *err);

/* Has f(x*) solved of the oldest queued job that needs it and has the memory, one job at a time. */
void memory_solve_next(struct tally_coordinator *coordinator);

/* A started job has been read from the store: logs if that is more than the limit. */
void memory_note_loaded(const struct tally_coordinator *coordinator, const struct hosted_job *job);

#endif
