/* ended: what is remembered of jobs that have ended: each client's last message, by its digest.
 *
 * A worker that has not heard the answer to its last update sends it again, also after the job has
 * ended, and is told that it was received. Any session can send such an update. So it costs a
 * comparison: with the job's row first, then with these receipts. Only the first update for a job
 * that ended before this process knew it loads the job, whose state has the length of its
 * dimension; the receipts have 32 bytes for a client. */
#ifndef TALLY_SERVICES_COORDINATOR_ENDED_H
#define TALLY_SERVICES_COORDINATOR_ENDED_H

#include <stddef.h>
#include <stdint.h>

#include "services/coordinator/hosted_job.h"
#include "services/job/job.h"
#include "storage/store.h"

enum { ENDED_BUCKETS = 256 }; /* of keys, which ascend; a power of two */

struct ended_job;

/* Zeroed, it is empty. */
struct ended_jobs {
    struct ended_job *buckets[ENDED_BUCKETS];
    struct ended_job *newest, *oldest; /* by their last use; the oldest is forgotten first */
    size_t n_bytes;
};

void ended_fini(struct ended_jobs *ended);

/* Remembers a job that has just ended, unless the store has other receipts of it than the engine:
 * those of an open round are not stored with a job that was cancelled in it. Without memory it
 * remembers nothing. */
void ended_remember(struct ended_jobs *ended, const struct hosted_job *job);

/* An update for a job that has ended; `row` is as stored. OK: it is a repetition, as ret_outcome
 * tells. Errors: OUT_OF_RANGE (client), FAILED_PRECONDITION (it was not received before the job
 * ended), ALREADY_EXISTS (another message was), STORE, DATA_LOSS, NO_MEMORY. */
enum tally_status ended_receive(struct ended_jobs *ended, struct tally_store *store,
                                const struct tally_store_job *row,
                                const struct tally_job_update *update,
                                struct tally_job_outcome *ret_outcome, struct tally_error *err);

#endif
