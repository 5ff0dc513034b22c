#include "tests/bench/latencies.h"

#include <math.h>
#include <stddef.h>

static const double GROWTH = 1.01;

void tally_latencies_add(struct tally_latencies *latencies, int64_t ns)
{
    const double place = ns > 1 ? log((double)ns) / log(GROWTH) : 0;
    const size_t last = TALLY_LATENCY_BUCKETS - 1;
    latencies->counts[place < (double)last ? (size_t)place : last]++;
    latencies->n++;
}

void tally_latencies_merge(struct tally_latencies *latencies, const struct tally_latencies *more)
{
    latencies->n += more->n;
    for (size_t i = 0; i < TALLY_LATENCY_BUCKETS; i++) {
        latencies->counts[i] += more->counts[i];
    }
}

double tally_latencies_quantile_ms(const struct tally_latencies *latencies, double share)
{
    uint64_t below = 0;
    for (size_t i = 0; i < TALLY_LATENCY_BUCKETS; i++) {
        below += latencies->counts[i];
        if (below > 0 && (double)below >= share * (double)latencies->n) {
            return 1e-6 * pow(GROWTH, (double)i + 0.5);
        }
    }
    return 0;
}
