#include "services/program/time.h"

#include <stdio.h>
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

void tally_timestamp_format(int64_t realtime_ms, char ret_text[TALLY_TIMESTAMP_CAPACITY])
{
    int64_t ms = (realtime_ms % 1000 + 1000) % 1000;
    time_t seconds = (time_t)((realtime_ms - ms) / 1000);
    struct tm utc;
    ret_text[0] = '\0';
    if (gmtime_r(&seconds, &utc) == NULL || utc.tm_year < -1900 || utc.tm_year > 9999 - 1900) {
        return;
    }
    snprintf(ret_text, TALLY_TIMESTAMP_CAPACITY, "%04u-%02u-%02uT%02u:%02u:%02u.%03uZ",
             (unsigned)(utc.tm_year + 1900) % 10000, (unsigned)(utc.tm_mon + 1) % 100,
             (unsigned)utc.tm_mday % 100, (unsigned)utc.tm_hour % 100, (unsigned)utc.tm_min % 100,
             (unsigned)utc.tm_sec % 100, (unsigned)ms % 1000);
}
