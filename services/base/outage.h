/* outage: which failures of a repeated call are worth a line.
 *
 * The first is, and so is one for another reason than the last line gave: while a worker waits for
 * its coordinator, "connection refused" may give way to a proxy's login page. Digits do not make
 * another reason ("after 12 ms"), and a line comes at most every five seconds. */
#ifndef TALLY_SERVICES_BASE_OUTAGE_H
#define TALLY_SERVICES_BASE_OUTAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "codec/error.h"

/* {0} at first, and again when a call has succeeded. */
struct tally_outage {
    struct tally_error last; /* that had a line; OK = none */
    int64_t told_ms;
};

/* Notes a failure. True if it is to be told. `now_ms` is a monotonic time. */
bool tally_outage_is_news(struct tally_outage *outage, const struct tally_error *why,
                          int64_t now_ms);

#endif
