/* job_local: a whole job in one process, without a network: the engine and one model copy. */
#ifndef TALLY_SERVICES_JOB_JOB_LOCAL_H
#define TALLY_SERVICES_JOB_JOB_LOCAL_H

#include "services/job/job.h"

/* Called after every closed round. Returning false stops the run (CANCELLED). */
typedef bool tally_local_round_fn(void *context, const struct tally_job *job,
                                  const struct tally_round_record *record);

/* Callbacks of a run; each may be NULL. */
struct tally_local_observer {
    void *context;
    tally_local_round_fn *on_round;
    /* Every encoded message: an accepted update, or a broadcast (once). Borrowed for the call. */
    void (*on_message)(void *context, const struct tally_job *job, bool is_uplink,
                       const struct tally_message_view *message);
};

/* What a host computes before a job starts. */
struct tally_local_preparation {
    double f_star;
    struct tally_curvature curvature;       /* unknown unless f(x*) is solved for */
    char schedule[TALLY_SCHEDULE_CAPACITY]; /* of tally_local_schedule() */
    const double *initial;                  /* double[dim], borrowed; NULL: it is not given */
};
/* Stops once *stop is set; `stop` may be NULL. `objective` is used only to solve for f(x*) and may
 * otherwise be NULL. Errors: those of tally_objective_minimum(). */
enum tally_status tally_local_prepare(const struct tally_job_spec *spec,
                                      const struct tally_objective *objective,
                                      const atomic_bool *stop,
                                      struct tally_local_preparation *ret_preparation,
                                      struct tally_error *err);

/* Makes the initial point of a job in which it is given (initial_point.h): reads the file of type
 * `npy`, whose checksum is checked or set, or asks the objective for its start. *ret_x is a new
 * double[dim], which free() frees, or NULL if the point is not given. Errors: those of
 * tally_initial_point_read(), of tally_initial_point_match() and of tally_objective_initial();
 * INVALID_ARGUMENT (type `job`: there are no earlier jobs here). */
enum tally_status tally_local_initial(struct tally_job_spec *spec,
                                      const struct tally_objective *objective,
                                      const struct tally_data_source *files, double **ret_x,
                                      struct tally_error *err);

/* The schedule that the job's algorithm plans before it starts; "" if it plans none. The same on
 * every call on one machine. May take seconds. */
void tally_local_schedule(const struct tally_job_spec *spec,
                          char ret_schedule[TALLY_SCHEDULE_CAPACITY]);

/* Computes f(x*) alone, as tally_local_prepare() does; NaN with reference `none`. */
enum tally_status tally_local_reference(const struct tally_job_spec *spec,
                                        const struct tally_objective *objective, double *ret_f_star,
                                        struct tally_error *err);

/* Runs the job of a valid spec to its end, with its objective (borrowed) and f(x*). On success
 * *ret_job is completed or failed, and the caller frees it; divergence fails the job and is not an
 * error here. Errors: NO_MEMORY, CANCELLED, FAILED_PRECONDITION (the objective cannot answer). */
enum tally_status tally_local_run_on(const struct tally_job_spec *spec,
                                     const struct tally_objective *objective, double f_star,
                                     const struct tally_local_observer *observer,
                                     struct tally_job **ret_job, struct tally_error *err);
/* The same for a prepared job: nothing is planned again. */
enum tally_status tally_local_run_prepared(const struct tally_job_spec *spec,
                                           const struct tally_objective *objective,
                                           const struct tally_local_preparation *preparation,
                                           const struct tally_local_observer *observer,
                                           struct tally_job **ret_job, struct tally_error *err);

#endif
