/* jobs_lifecycle: creating, preparing, changing and ending a job.
 *
 *     create -> (prepare: f(x*)) -> start -> rounds -> ended -> retire
 *                                    workers_matching.h   jobs_rounds.h
 *
 * Every change is an event of the engine, written to the store in the step's transaction. If that
 * transaction is lost, the engine is ahead of the store and the job is reloaded (jobs_reload). */
#ifndef TALLY_SERVICES_COORDINATOR_JOBS_LIFECYCLE_H
#define TALLY_SERVICES_COORDINATOR_JOBS_LIFECYCLE_H

#include "services/coordinator/jobs_live.h"

/* Whether this coordinator accepts the new job: checks its name, size and memory, and the number of
 * jobs. Errors: INVALID_ARGUMENT, OUT_OF_RANGE, RESOURCE_EXHAUSTED. */
enum tally_status jobs_check_new(const struct tally_coordinator *coordinator,
                                 const struct tally_job_spec *spec, struct tally_error *err);
/* Whether this coordinator accepts a job that ended elsewhere: checks its name, its size, and the
 * memory with which its model is read. Errors: INVALID_ARGUMENT, OUT_OF_RANGE. */
enum tally_status jobs_check_imported(const struct tally_coordinator *coordinator,
                                      const struct tally_job_spec *spec, struct tally_error *err);
/* An array like that of tally_document_faults(): the limits of jobs_check_new() that a valid
 * document exceeds, except the number of jobs. NULL = out of memory. */
struct tally_json *jobs_new_faults(const struct tally_coordinator *coordinator,
                                   const struct tally_job_spec *spec);
/* Stores a new job, adds it to the live ones and begins to prepare it. `key`: the idempotency key,
 * or NULL; `digest`: that of the request. Errors: ALREADY_EXISTS (the key, or the drawn id), STORE,
 * NO_MEMORY. */
enum tally_status jobs_create(struct tally_coordinator *coordinator,
                              const struct tally_job_spec *spec, const char *key, uint64_t digest,
                              struct hosted_job **ret_job, struct tally_error *err);

/* An administrator's event: tally_job_cancel, _pause or _resume. */
typedef enum tally_status change_fn(struct tally_job *engine, struct tally_error *err);
/* Errors: those of the event, STORE. */
enum tally_status jobs_change(struct tally_coordinator *coordinator, struct hosted_job *job,
                              change_fn *change, struct tally_error *err);
/* Deletes a live job; cancels it first if it has not ended. The job leaves the live ones once the
 * deletion is stored. Errors: those of cancelling, STORE. */
enum tally_status jobs_delete_live(struct tally_coordinator *coordinator, struct hosted_job *job,
                                   struct tally_error *err);
/* Deletes a job that has ended; `row` is as stored. Errors: NOT_FOUND (it was deleted meanwhile),
 * STORE. */
enum tally_status jobs_delete_ended(struct tally_coordinator *coordinator,
                                    const struct tally_store_job *row, struct tally_error *err);
/* Deletes ended jobs that are older than --keep-ended-s, or not among the --keep-ended-jobs
 * that were submitted last.
 * To be called each second: examines a page of jobs, newest first, and deletes at most a few. */
void jobs_delete_expired(struct tally_coordinator *coordinator);
/* Whether the text has the form of the ids that jobs get. A job with such an id that is not stored
 * has most likely been deleted. */
bool jobs_may_be_id(const char *id);
/* Fails the job, in the open transaction, with the reason that TALLY_REASON_WRITE wrote. Errors:
 * STORE. */
enum tally_status jobs_fail(struct tally_coordinator *coordinator, struct hosted_job *job,
                            const char *reason, struct tally_error *err);
/* Applies the rule `stop.seconds` (tally_job_stop), in the open transaction. Errors: STORE. */
enum tally_status jobs_stop(struct tally_coordinator *coordinator, struct hosted_job *job,
                            double seconds, struct tally_error *err);

/* Fails a queued job that cannot be prepared; `why` is the text of its reason. Errors: STORE. */
enum tally_status jobs_fail_preparation(struct tally_coordinator *coordinator,
                                        struct hosted_job *job, const char *why);

/* Determines f(x*) and the schedule of the job: at once, or in its turn if f(x*) must be solved
 * (jobs_memory.h). */
void jobs_prepare(struct tally_coordinator *coordinator, struct hosted_job *job);
/* Takes the results of the solver's thread. */
void jobs_take_prepared(struct tally_coordinator *coordinator);
/* Fails the jobs that cannot be prepared. The next call retries those whose failure was not
 * stored. */
void jobs_fail_unprepared(struct tally_coordinator *coordinator);

/* Writes wire counters that have changed, and the traffic of clients if it is due. With is_last,
 * writes the traffic even if it is not due, because the coordinator is shutting down. */
void jobs_flush_wire(struct tally_coordinator *coordinator, bool is_last);
/* Stores the last exchanges of jobs that ended, and removes them. */
void jobs_retire(struct tally_coordinator *coordinator);
/* Marks the jobs that the lost transaction `number` wrote to. */
void jobs_mark_lost(struct tally_coordinator *coordinator, uint64_t number);
/* Reloads the engines that are ahead of the store, if the store can be read. No transaction may be
 * open. */
void jobs_reload(struct tally_coordinator *coordinator);

#endif
