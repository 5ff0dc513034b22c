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

/* `n` digits as a number within limits, or -1. */
static int read_digits(const char *text, int n, int min, int max)
{
    int value = 0;
    for (int i = 0; i < n; i++) {
        value = 10 * value + (text[i] - '0');
    }
    return value >= min && value <= max ? value : -1;
}

/* ".123", ".1" or nothing, up to the Z that ends it all; -1 if it is not so. */
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
    struct tm utc = {.tm_year = read_digits(text, 4, 1970, 9999) - 1900,
                     .tm_mon = read_digits(text + 5, 2, 1, 12) - 1,
                     .tm_mday = read_digits(text + 8, 2, 1, 31),
                     .tm_hour = read_digits(text + 11, 2, 0, 23),
                     .tm_min = read_digits(text + 14, 2, 0, 59),
                     .tm_sec = read_digits(text + 17, 2, 0, 59)};
    const int day = utc.tm_mday, ms = read_fraction(text + sizeof SHAPE - 1);
    if (utc.tm_year < 70 || utc.tm_mon < 0 || day < 0 || utc.tm_hour < 0 || utc.tm_min < 0 ||
        utc.tm_sec < 0 || ms < 0) {
        return false;
    }
    const time_t seconds = timegm(&utc);
    if (utc.tm_mday != day) { /* the month has no such day */
        return false;
    }
    *ret_realtime_ms = (int64_t)seconds * 1000 + ms;
    return true;
}
