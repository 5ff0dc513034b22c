/* host_entropy: what a message would cost with a lossless coder that knows its histogram of levels.
 *
 *     H = sum over the levels v that occur of n_v log2(d / n_v)      zeroth order, per message
 *
 * An estimate, for tables that compare algorithms as if each had the best coder: it ignores the
 * cost of sending the histogram, and what an adaptive coder gains on correlated levels. QSGD adds
 * the 32 bits of its norm. A float32 message has no levels and is counted as it is. */
#ifndef TALLY_SERVICES_EXPERIMENT_HOST_ENTROPY_H
#define TALLY_SERVICES_EXPERIMENT_HOST_ENTROPY_H

#include <stdbool.h>

#include "services/algorithms/algorithm.h"
#include "services/job/job_spec.h"

/* H of levels[n], in bits; sorts them. */
double tally_levels_entropy(int32_t *levels, size_t n);

/* The estimate for one message of a job; levels is int32[dim] of scratch. Errors: MALFORMED. */
enum tally_status tally_message_entropy(const struct tally_job_spec *spec, bool is_uplink,
                                        const struct tally_message_view *message, int32_t *levels,
                                        double *ret_bits, struct tally_error *err);

#endif
