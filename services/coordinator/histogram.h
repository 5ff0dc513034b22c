/* histogram: counts of values by bucket, for the metrics. */
#ifndef TALLY_SERVICES_COORDINATOR_HISTOGRAM_H
#define TALLY_SERVICES_COORDINATOR_HISTOGRAM_H

#include <stdint.h>

/* Invariant: bounds ascend. */
enum { HISTOGRAM_MAX_BOUNDS = 16 };
struct histogram {
    const double *bounds; /* upper ends, inclusive; borrowed forever */
    int n_bounds;
    uint64_t counts[HISTOGRAM_MAX_BOUNDS + 1]; /* not cumulative; the last has no bound */
    double sum;
};
void histogram_observe(struct histogram *histogram, double value);
uint64_t histogram_total(const struct histogram *histogram);

#endif
