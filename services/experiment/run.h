/* run: one job in this process, on data that exist already, and its cost. */
#ifndef TALLY_SERVICES_EXPERIMENT_RUN_H
#define TALLY_SERVICES_EXPERIMENT_RUN_H

#include <stdatomic.h>
#include <stdbool.h>

#include "services/job/job_spec.h"

/* Bits of a whole job: per client up, each broadcast once down. */
struct tally_run_bits {
    double formula, payload;
    double
        entropy_payload; /* an estimate (host_entropy.h); for messages without one, the payload */
    double control;      /* besides messages: up, of clients that decline; down, all others */
};

/* The end of a round. */
struct tally_run_point {
    double time_step;
    double regret;
};

struct tally_run {
    bool diverged; /* then regret is infinite, and so is the curve past its last point */
    double regret; /* R(T) */
    struct tally_run_bits uplink, downlink;
    struct tally_run_point *curve; /* heap; from (0, 0) on, time steps strictly growing */
    size_t n_points;
};
void tally_run_fini(struct tally_run *run);

/* Runs a valid spec on its objective and f(x*). A run that diverges is a result, not an error.
 * Stops at the next round once *stop is set. Errors: NO_MEMORY, CANCELLED. */
enum tally_status tally_run_job(const struct tally_job_spec *spec,
                                const struct tally_objective *objective, double f_star,
                                const atomic_bool *stop, struct tally_run *ret_run,
                                struct tally_error *err);

/* R at a time step, interpolated linearly between the ends of rounds. This is exact if clients do
 * not move locally. */
double tally_run_regret_at(const struct tally_run *run, double time_step);

/* The approximate cost of a run, to compare runs: its arithmetic operations / 10^9. */
double tally_run_cost(const struct tally_job_spec *spec);

#endif
