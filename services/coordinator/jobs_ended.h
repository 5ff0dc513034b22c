/* jobs_ended: receipts of jobs that have ended: the digest of each client's last message.
 *
 * A worker that has lost the response to its last update sends the update again, even after the job
 * has ended, and learns that it was received. Any session can send such an update, so it must be
 * cheap: it is compared with the job's row first, then with the receipts, 32 bytes per client. The
 * job itself, whose state grows with its dimension, is loaded only if its receipts are not in
 * memory: it ended before this process started, or its receipts were forgotten. */
#ifndef TALLY_SERVICES_COORDINATOR_JOBS_ENDED_H
#define TALLY_SERVICES_COORDINATOR_JOBS_ENDED_H

#include <stddef.h>

#include "codec/list.h"
#include "services/coordinator/hosted_job.h"
#include "services/job/job.h"
#include "storage/store.h"

enum { ENDED_BUCKETS = 256 }; /* of keys, which ascend; a power of two */

struct ended_job;

struct ended_jobs {
    struct ended_job *buckets[ENDED_BUCKETS];
    struct tally_list jobs; /* by their last use, newest first; the last one is forgotten first */
    size_t n_bytes;
};

void ended_init(struct ended_jobs *ended);
void ended_fini(struct ended_jobs *ended);

/* Remembers a job that has just ended, unless the engine has receipts that the store lacks: those
 * of the open round are not stored with a cancelled job. Remembers nothing if memory runs out. */
void ended_remember(struct ended_jobs *ended, const struct hosted_job *job);

/* Forgets a job that is deleted. */
void ended_forget(struct ended_jobs *ended, int64_t key);

/* Receives an update for a job that has ended; `row` is as stored. OK: the update is a duplicate,
 * described by ret_outcome. Errors: OUT_OF_RANGE (client), FAILED_PRECONDITION (it was not received
 * before the job ended), ALREADY_EXISTS (a different message was), STORE, DATA_LOSS, NO_MEMORY. */
enum tally_status ended_receive(struct ended_jobs *ended, struct tally_store *store,
                                const struct tally_store_job *row,
                                const struct tally_update *update,
                                struct tally_job_outcome *ret_outcome, struct tally_error *err);

#endif
