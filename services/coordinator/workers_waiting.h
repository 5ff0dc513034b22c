/* workers_waiting: what a live job waits for, in words that say what to do about it. */
#ifndef TALLY_SERVICES_COORDINATOR_WORKERS_WAITING_H
#define TALLY_SERVICES_COORDINATOR_WORKERS_WAITING_H

#include <stdbool.h>
#include <stdint.h>

#include "services/job/job_detail.h"

struct hosted_job;
struct tally_coordinator;

/* A round that has been open for less than this, and whose deadline has not passed, is work in
 * progress, not waiting. */
enum { WAITING_AFTER_MS = 1000 };

/* What the job waits for at monotonic time now_ms; false if it progresses or has ended. */
bool job_waiting(const struct tally_coordinator *coordinator, const struct hosted_job *job,
                 int64_t now_ms, struct tally_waiting *ret_waiting);

#endif
