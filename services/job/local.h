/* local: a whole job in one process: the engine, one replica, no network. `tally simulate`. */
#ifndef TALLY_SERVICES_JOB_LOCAL_H
#define TALLY_SERVICES_JOB_LOCAL_H

#include "services/job/job.h"

/* Called after every closed round; returning false stops the run (CANCELLED). */
typedef bool tally_local_round_fn(void *context, const struct tally_job *job,
                                  const struct tally_round_record *record);

/* What a run shows its host; slots may be NULL. */
struct tally_local_observer {
    void *context;
    tally_local_round_fn *on_round;
    /* Every message the engine has taken or made, as it travelled: what a client sent, or a
     * broadcast, which counts once. Borrowed for the call. */
    void (*on_message)(void *context, const struct tally_job *job, bool is_uplink,
                       const struct tally_message_view *message);
};

/* Runs a valid spec to its end, on its objective, borrowed, and its f(x*). On success *ret_job is
 * completed or failed and the caller's to free: a job that diverged is failed, which is no error.
 * Errors: NO_MEMORY, CANCELLED, and FAILED_PRECONDITION of an objective that cannot answer. */
enum tally_status tally_local_run_on(const struct tally_job_spec *spec,
                                     const struct tally_objective *objective, double f_star,
                                     const struct tally_local_observer *observer,
                                     struct tally_job **ret_job, struct tally_error *err);

/* What a host finds out about f before a job starts. */
struct tally_local_preparation {
    double f_star;
    struct tally_curvature curvature; /* unknown unless f(x*) is solved for */
};
/* Gives up once *stop is set, which may be NULL. `objective` is looked at only where f(x*) is
 * solved for. Errors: as tally_objective_minimum_in(). */
enum tally_status tally_local_prepare(const struct tally_job_spec *spec,
                                      const struct tally_objective *objective,
                                      const atomic_bool *stop,
                                      struct tally_local_preparation *ret_preparation,
                                      struct tally_error *err);

/* f(x*) as the spec's reference says, NaN if it is none. `objective` is looked at only to solve it.
 * Errors: as tally_objective_minimum(). */
enum tally_status tally_local_reference(const struct tally_job_spec *spec,
                                        const struct tally_objective *objective, double *ret_f_star,
                                        struct tally_error *err);

#endif
