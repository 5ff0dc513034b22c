#include "codec/monotonic.h"

#include <time.h>

int64_t tally_monotonic_ns(void)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail: every Linux has this clock */
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t tally_monotonic_ms(void)
{
    return tally_monotonic_ns() / 1000000;
}
