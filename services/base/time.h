/* time: the two clocks that programs may read. The core gets its time as an argument. */
#ifndef TALLY_SERVICES_BASE_TIME_H
#define TALLY_SERVICES_BASE_TIME_H

#include <stdbool.h>
#include <stdint.h>

#include "codec/monotonic.h"

/* Processor time of the calling thread, in seconds. For benchmarks. */
double tally_thread_cpu_s(void);
/* Since 1970-01-01T00:00:00Z. For people. */
int64_t tally_realtime_ms(void);

enum { TALLY_TIMESTAMP_CAPACITY = 32 };

/* "2026-11-21T03:40:00.123Z"; "" for a year past 9999 or before 0. */
void tally_timestamp_format(int64_t realtime_ms, char ret_text[TALLY_TIMESTAMP_CAPACITY]);
/* Parses such a timestamp, of the years 1970 to 9999, with 0 to 3 digits of milliseconds. False for
 * anything else, including other time zones and leap seconds. */
bool tally_timestamp_parse(const char *text, int64_t *ret_realtime_ms);

#endif
