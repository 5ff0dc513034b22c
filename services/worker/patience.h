/* patience: how long a worker continues without a coordinator, or without work.
 *
 * Two timers run. One is reset by every response of the coordinator, the other by every task that
 * ends; a long task therefore does not count as idle time. When either timer reaches the limit, the
 * worker gives up. Without a limit neither timer is read. */
#ifndef TALLY_SERVICES_WORKER_PATIENCE_H
#define TALLY_SERVICES_WORKER_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "codec/base/error.h"

struct patience {
    int64_t limit_ms;      /* 0 = endless */
    int64_t idle_since_ms; /* monotonic; the start, or the end of the last task */
    int64_t away_since_ms; /* monotonic; first call without a response; 0 = there was one since */
};

void patience_init(struct patience *patience, int64_t limit_ms);
/* A task has ended. */
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
