#include "services/base/time.h"

#include <time.h>

int64_t tally_realtime_ms(void)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME, &now); /* cannot fail: every Linux has this clock */
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
