#include "tests/unit/api/manual_clock.h"

#include <stdatomic.h>
#include <time.h>

static atomic_int_least64_t advanced_ms;

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

int64_t manual_clock_real_ms(void)
{
    return real_ns() / 1000000;
}

int64_t tally_monotonic_ns(void)
{
    return real_ns() + atomic_load(&advanced_ms) * 1000000;
}

int64_t tally_monotonic_ms(void)
{
    return tally_monotonic_ns() / 1000000;
}
