#include <stdio.h>
#include <time.h>

#include "services/program/time.h"

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
