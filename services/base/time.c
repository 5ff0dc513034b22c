#include "services/base/time.h"

#include <time.h>

static int64_t read_ns(clockid_t id)
{
    struct timespec now = {0};
    clock_gettime(id, &now); /* cannot fail: both clocks exist on every Linux */
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t tally_monotonic_ns(void)
{
    return read_ns(CLOCK_MONOTONIC);
}

int64_t tally_monotonic_ms(void)
{
    return tally_monotonic_ns() / 1000000;
}

int64_t tally_realtime_ms(void)
{
    return read_ns(CLOCK_REALTIME) / 1000000;
}
