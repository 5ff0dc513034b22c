/* run_summary: mean and standard deviation over runs. */
#ifndef TALLY_SERVICES_EXPERIMENT_RUN_SUMMARY_H
#define TALLY_SERVICES_EXPERIMENT_RUN_SUMMARY_H

#include <stddef.h>

#include "services/algorithms/algorithm.h"
#include "services/experiment/run.h"

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

/* The bits that an algorithm is judged by: formula bits, as [1] counts. For CALM, which [1] does
 * not have, the bits actually sent: payload and control. */
struct tally_bit_pair {
    double uplink, downlink;
};
struct tally_bit_pair tally_summary_counted_bits(const struct tally_algorithm *algorithm,
                                                 const struct tally_mean_bits *bits);

#endif
