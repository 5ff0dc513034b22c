/* loop_pending: accepted updates of the step that have not been given to the store yet.
 *
 * They are stored when the step commits, byte for byte as they were received. Most never are: a
 * round that closes in the same step makes its updates unnecessary. Small ones are copied to one
 * buffer, whose memory is reused. Large ones stay in their request's body, which is kept. */
#ifndef TALLY_SERVICES_COORDINATOR_LOOP_PENDING_H
#define TALLY_SERVICES_COORDINATOR_LOOP_PENDING_H

#include <stdbool.h>
#include <stddef.h>

#include "api/http/http_server.h"
#include "api/worker/worker_messages.h"
#include "codec/buffer.h"
#include "codec/error.h"
#include "codec/shared_bytes.h"
#include "storage/store.h"

struct hosted_job;
struct pending_update;

struct pending_updates {
    struct pending_update *items; /* [capacity] */
    size_t n, capacity;
    size_t n_bytes;             /* of all updates */
    struct tally_buffer copies; /* of the small ones */
    /* The last body that was taken, or NULL: its request may not be done with it. */
    struct tally_shared_bytes *body;
};

void pending_fini(struct pending_updates *pending);

/* Keeps an accepted update until the commit, or stores it at once if pending updates would take too
 * much memory. A transaction must be open. `job` is borrowed until the update is stored, dropped or
 * cleared. `owner`: the update's request, whose body may be taken; the bytes stay where they are
 * until pending_clear() or until the body of another request is taken. Errors: NO_MEMORY, and those
 * of the store. */
enum tally_status pending_add(struct pending_updates *pending, struct tally_store *store,
                              struct hosted_job *job, const struct tally_update *update,
                              struct tally_http_request *owner, struct tally_error *err);
/* Nothing points to the last body that was taken except updates that are kept: the request has none
 * left. */
void pending_leave_body(struct pending_updates *pending);
/* Drops the updates of the job's settled rounds. */
void pending_drop(struct pending_updates *pending, const struct hosted_job *job);
/* Drops all updates of a deleted job. */
void pending_forget(struct pending_updates *pending, const struct hosted_job *job);
/* Gives the remaining updates to the store. Errors: those of the store. */
enum tally_status pending_store(struct pending_updates *pending, struct tally_store *store,
                                struct tally_error *err);
/* Forgets all updates: the transaction has ended. */
void pending_clear(struct pending_updates *pending);

#endif
