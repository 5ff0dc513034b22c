#include <stdio.h>
#include <string.h>
#include <time.h>

#include "services/base/time.h"

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

/* Milliseconds of ".123", ".1" or nothing, followed by the final Z; -1 if malformed. */
static int read_fraction(const char *text)
{
    int ms = 0;
    if (*text == '.') {
        int scale = 100;
        for (text++; *text >= '0' && *text <= '9' && scale > 0; text++, scale /= 10) {
            ms += scale * (*text - '0');
        }
        if (text[-1] == '.') {
            return -1;
        }
    }
    return strcmp(text, "Z") == 0 ? ms : -1;
}

bool tally_timestamp_parse(const char *text, int64_t *ret_realtime_ms)
{
    static const char SHAPE[] = "dddd-dd-ddTdd:dd:dd";
    for (size_t i = 0; SHAPE[i] != '\0'; i++) {
        if (SHAPE[i] == 'd' ? text[i] < '0' || text[i] > '9' : text[i] != SHAPE[i]) {
            return false;
        }
    }
    struct tm utc = {0};
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &utc);
    const int day = utc.tm_mday, ms = end == text + sizeof SHAPE - 1 ? read_fraction(end) : -1;
    if (ms < 0 || utc.tm_year < 70 || utc.tm_sec > 59) {
        return false;
    }
    const time_t seconds = timegm(&utc);
    if (utc.tm_mday != day) { /* the month has no such day */
        return false;
    }
    *ret_realtime_ms = (int64_t)seconds * 1000 + ms;
    return true;
}
