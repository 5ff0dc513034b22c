/* jobs_prepare: solves f(x*) of queued jobs, examines the curvature of f and plans their schedules,
 * in a separate thread, so that the loop never waits for it. */
#ifndef TALLY_SERVICES_COORDINATOR_JOBS_PREPARE_H
#define TALLY_SERVICES_COORDINATOR_JOBS_PREPARE_H

#include <stdbool.h>

#include "services/job/job_local.h"
#include "storage/store.h"

struct preparer;

/* Starts the thread, which adds to the eventfd wake_fd when it has a result. data_dir: where the
 * files of job documents are (borrowed); NULL = they have none. */
enum tally_status preparer_new(int wake_fd, const char *data_dir, struct preparer **ret_preparer,
                               struct tally_error *err);
/* Drops all queued jobs. A solve in progress keeps its memory and wake_fd, which must stay open,
 * until it returns. NULL is allowed. */
void preparer_free(struct preparer *preparer);

/* Queues a job. */
void preparer_submit(struct preparer *preparer, const char *job_id,
                     const struct tally_job_spec *spec);

/* Bytes that the queued jobs and the one in progress need, by tally_footprint_solving(). */
int64_t preparer_bytes(struct preparer *preparer);

/* Removes the job's solve from the queue or, if it has begun, makes it stop soon. */
void preparer_forget(struct preparer *preparer, const char *job_id);

struct prepared {
    char job_id[TALLY_JOB_ID_CAPACITY];
    enum tally_status status;
    struct tally_local_preparation preparation; /* if status is OK */
    uint32_t columns;                           /* of the data, if f(x*) was solved; or 0 */
    uint64_t data_digest;                       /* tally_dataset_digest(), likewise */
    struct tally_error err;                     /* otherwise */
};
/* Takes one result; false if there is none. */
bool preparer_take(struct preparer *preparer, struct prepared *ret_result);

#endif
