/* latencies: a histogram of durations in constant memory, with a precision of 1 %. */
#ifndef TALLY_TESTS_BENCH_LATENCIES_H
#define TALLY_TESTS_BENCH_LATENCIES_H

#include <stdint.h>

/* Enough buckets, with limits that grow by 1 % each, for 1 ns to more than 20 minutes. */
enum { TALLY_LATENCY_BUCKETS = 2816 };

struct tally_latencies {
    uint64_t n;
    uint64_t counts[TALLY_LATENCY_BUCKETS];
};

void tally_latencies_add(struct tally_latencies *latencies, int64_t ns);
void tally_latencies_merge(struct tally_latencies *latencies, const struct tally_latencies *more);
/* The milliseconds that a `share` of the durations, in [0, 1], did not exceed; 0 if there are
 * none. */
double tally_latencies_quantile_ms(const struct tally_latencies *latencies, double share);

#endif
