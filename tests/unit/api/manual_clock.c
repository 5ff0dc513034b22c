#include "tests/unit/api/manual_clock.h"

#include <stdatomic.h>
#include <time.h>

static atomic_int_least64_t advanced_ms;
static atomic_int_least64_t stopped_ns; /* 0 = the clock runs */

static int64_t real_ns(void)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void manual_clock_advance(int64_t ms)
{
    atomic_fetch_add(&advanced_ms, ms);
}

void manual_clock_stop(void)
{
    atomic_store(&stopped_ns, real_ns());
}

void manual_clock_run(void)
{
    atomic_store(&stopped_ns, 0);
}

int64_t manual_clock_real_ms(void)
{
    return real_ns() / 1000000;
}

int64_t tally_monotonic_ns(void)
{
    const int64_t stopped = atomic_load(&stopped_ns);
    return (stopped != 0 ? stopped : real_ns()) + atomic_load(&advanced_ms) * 1000000;
}

int64_t tally_monotonic_ms(void)
{
    return tally_monotonic_ns() / 1000000;
}
