/* run: one job in this process, on data that exist already, and its cost. */
#ifndef TALLY_SERVICES_EXPERIMENT_RUN_H
#define TALLY_SERVICES_EXPERIMENT_RUN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/error.h"
#include "services/algorithms/algorithm.h"
#include "services/job/job_local.h"
#include "services/job/job_spec.h"

/* Bits of a whole job: per client up, each broadcast once down. */
struct tally_run_bits {
    double formula, payload;
    double entropy_payload; /* an estimate (below); for messages without one, the payload; NaN = it
                             * was not computed */
    double control; /* besides messages: up, of clients that decline; down, all others; NaN = only
                     * the sum of both is known */
};

/* The end of a round. */
struct tally_run_point {
    double time_step;
    double regret;
};

/* The same, for the gap f(x) - f(x*) of the server's point. */
struct tally_run_gap {
    int64_t round;
    double uplink, downlink; /* bits so far; down with control bits */
    double gap;
};

struct tally_run {
    bool diverged; /* or failed; then regret is infinite, and so is the curve past its last point */
    double regret; /* R(T); NaN = the job has none */
    double loss;   /* of the last round; NaN = it has none, infinite = it diverged */
    double rounds;
    double planned_regret; /* the forecast of CALM's plan; NaN = the job is not planned */
    double control_bits;   /* of the whole job, all clients, both ways */
    struct tally_run_bits uplink, downlink;
    struct tally_run_point *curve; /* heap; from (0, 0) on, time steps strictly growing */
    size_t n_points;
    struct tally_run_gap *gaps; /* heap; NULL = not recorded */
    size_t n_gaps;
    char *metrics; /* heap; summaries (record.h) of the last rounds that had them; NULL = none */
};
void tally_run_fini(struct tally_run *run);

/* What a run records besides its result. */
struct tally_run_record {
    size_t max_points; /* of the curve, which is thinned out to about half of them; 0 = all */
    bool no_entropy;   /* entropy_payload is NaN: coding each message again takes time */
    bool with_gaps;    /* at most 272 points, which are further and further apart, and the last */
};

/* Runs a prepared job (services/job/job_local.h). A run that diverges is a result, not an error.
 * Stops at the next round once *stop is set. Errors: NO_MEMORY, CANCELLED. */
enum tally_status tally_run_prepared(const struct tally_job_spec *spec,
                                     const struct tally_objective *objective,
                                     const struct tally_local_preparation *preparation,
                                     const struct tally_run_record *record, const atomic_bool *stop,
                                     struct tally_run *ret_run, struct tally_error *err);

/* R at a time step, interpolated linearly between the ends of rounds. This is exact if clients do
 * not move locally. */
double tally_run_regret_at(const struct tally_run *run, double time_step);

/* f(x) as the mean of the local losses. NaN if it cannot be evaluated. */
double tally_run_loss_at(const struct tally_objective *objective, uint32_t clients,
                         const double *x);

/* The approximate cost of a run, to compare runs: its arithmetic operations / 10^9. */
double tally_run_cost(const struct tally_job_spec *spec);
/* The same of solving for f(x*); 0 if that is not done. */
double tally_run_solve_cost(const struct tally_job_spec *spec);

/* ---- Parses a range of seeds: "101-110", or "7" for one seed. */

enum { TALLY_MAX_SEEDS = 10000 };

/* Errors: INVALID_ARGUMENT (not a range), OUT_OF_RANGE (a seed above 2^53 - 1, the end before the
 * start, more than TALLY_MAX_SEEDS). */
enum tally_status tally_seeds_parse(const char *text, int64_t *ret_first, size_t *ret_n,
                                    struct tally_error *err);

/* ---- Mean and standard deviation over runs. */

struct tally_summary {
    double mean;
    double std; /* of the sample, with divisor n - 1; 0 for one value, NaN if one is infinite */
};

struct tally_summary tally_summary_of(const double *values, size_t n);

/* The summary of R(T) over runs; infinite if one diverged. */
struct tally_summary tally_summary_of_regret(const struct tally_run *runs, size_t n);
/* The same for R(time_step). */
struct tally_summary tally_summary_of_regret_at(const struct tally_run *runs, size_t n,
                                                double time_step);

/* Mean bits over runs, both directions. */
struct tally_mean_bits {
    struct tally_run_bits uplink, downlink;
};
struct tally_mean_bits tally_summary_of_bits(const struct tally_run *runs, size_t n);

/* The bits that a job is judged by: formula bits, as [1] counts. For CALM and for compressed
 * messages, which [1] does not have, the bits actually sent: payload and control. */
struct tally_bit_pair {
    double uplink, downlink;
};
/* Whether a job's messages are compressed both ways (services/algorithms/COMPRESSION.md). */
bool tally_run_is_compressed(const struct tally_job_spec *spec);
struct tally_bit_pair tally_summary_counted_bits(const struct tally_algorithm *algorithm,
                                                 bool is_compressed,
                                                 const struct tally_mean_bits *bits);

/* ---- What a message would cost with a lossless coder that knows its histogram of levels.
 *
 *     H = sum over the levels v that occur of n_v log2(d / n_v)      zeroth order, per message
 *
 * An estimate, for tables that compare algorithms as if each had the best coder: it ignores the
 * cost of sending the histogram, and what an adaptive coder gains on correlated levels. QSGD adds
 * the 32 bits of its norm. A float32 message has no levels and is counted as it is. */

/* H of levels[n], in bits; sorts them. */
double tally_levels_entropy(int32_t *levels, size_t n);

/* The estimate for one message of a job; levels is int32[dim] of scratch. Errors: MALFORMED. */
enum tally_status tally_message_entropy(const struct tally_job_spec *spec, bool is_uplink,
                                        const struct tally_message_view *message, int32_t *levels,
                                        double *ret_bits, struct tally_error *err);

#endif
