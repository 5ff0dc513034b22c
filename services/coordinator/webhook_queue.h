/* webhook_queue: the changes of a job's status that its webhook has not been told yet.
 *
 * They are stored with the change itself, in the same transaction: one row among the job's updates,
 * under TALLY_STORE_WEBHOOK_ROUND, whose body is the URL and the notifications, oldest first, one
 * line of JSON each. A notification leaves the row when the receiver has accepted it (webhooks.h).
 */
#ifndef TALLY_SERVICES_COORDINATOR_WEBHOOK_QUEUE_H
#define TALLY_SERVICES_COORDINATOR_WEBHOOK_QUEUE_H

#include "storage/store.h"

/* Of one job. If more wait, the oldest are dropped: a job that is paused and resumed all day must
 * not fill the store. */
enum { WEBHOOK_QUEUE_MOST = 32 };

/* Adds the change from `before` to the row's status, in an open transaction in which the row has
 * been written. Errors: those of the store, NO_MEMORY. */
enum tally_status webhook_queue_add(struct tally_store *store, const struct tally_store_job *row,
                                    enum tally_job_status before, const char *url, int64_t now_ms,
                                    struct tally_error *err);

/* The oldest notification of a job. */
struct webhook_notification {
    struct tally_buffer url;  /* NUL-terminated; size is 0 if none waits */
    struct tally_buffer body; /* one line of JSON, without line feed */
};
enum tally_status webhook_queue_first(struct tally_store *store, int64_t job_key,
                                      struct webhook_notification *ret_first,
                                      struct tally_error *err);
void webhook_notification_fini(struct webhook_notification *notification);

/* Removes the oldest notification, if it is `body`, or all of them (body NULL), in an open
 * transaction. *ret_n: how many were removed. Errors: those of the store, NO_MEMORY. */
enum tally_status webhook_queue_remove(struct tally_store *store, int64_t job_key,
                                       const struct tally_buffer *body, size_t *ret_n,
                                       struct tally_error *err);

#endif
