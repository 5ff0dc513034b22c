/* manual_clock: replaces codec/monotonic.h in this program. The clock of the server and the
 * clients runs like the real one. A test may advance it to wait out a timeout without delay. A test
 * may also stop it; the clock then advances only on request, however busy the machine is.
 * (libmicrohttpd and libcurl read their own clocks.) */
#ifndef TALLY_TESTS_UNIT_API_MANUAL_CLOCK_H
#define TALLY_TESTS_UNIT_API_MANUAL_CLOCK_H

#include <stdint.h>

#include "codec/monotonic.h"

void manual_clock_advance(int64_t ms);
void manual_clock_stop(void);
/* Undoes manual_clock_stop(). */
void manual_clock_run(void);
/* The real clock, for the time limits of the tests themselves. */
int64_t manual_clock_real_ms(void);

#endif
