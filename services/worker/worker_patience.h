/* worker_patience: how long a worker continues without a coordinator, or without work.
 *
 * Two timers run. One is reset by every response of the coordinator, the other by every update that
 * is computed, so a long computation does not count as idle time. When either timer reaches the
 * limit, the worker gives up. Without a limit neither timer is read. */
#ifndef TALLY_SERVICES_WORKER_WORKER_PATIENCE_H
#define TALLY_SERVICES_WORKER_WORKER_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "codec/error.h"

struct patience {
    int64_t limit_ms;      /* 0 = endless */
    int64_t idle_since_ms; /* monotonic; the start, or the last computed update */
    int64_t away_since_ms; /* monotonic; the first failed call since the last response; 0 = none */
};

void patience_init(struct patience *patience, int64_t limit_ms);
/* An update has been computed, or its client has failed. */
void patience_worked(struct patience *patience);
/* The coordinator has responded. */
void patience_reached(struct patience *patience);
/* The coordinator has not responded. */
void patience_missed(struct patience *patience);
/* Time left, 0 or more; INT64_MAX without a limit. */
int64_t patience_left_ms(const struct patience *patience);
/* DEADLINE once the limit is reached, with a message that names the coordinator's `url`. */
enum tally_status patience_check(const struct patience *patience, const char *url,
                                 struct tally_error *err);

#endif
