#include "services/coordinator/loop_pending.h"
#include "services/base/alloc.h"

#include <stdlib.h>

#include "services/coordinator/hosted_job.h"

enum {
    /* Updates that wait for the commit: a round of 64 clients with 10^6 coordinates. */
    MAX_BYTES = 40 * 1024 * 1024,
    MAX_COPIED_BYTES = 1024 * 1024,
    /* For longer updates, the request's body is taken: the server would not reuse its memory. */
    MAX_COPY_BYTES = 64 * 1024,
    FIRST_ITEMS = 64
};

struct pending_update {
    struct hosted_job *job;           /* NULL if the update is not needed any more */
    struct tally_store_update stored; /* its body is NULL if it is in the copies, .. */
    size_t at;                        /* .. from here on; the buffer may still move */
    struct tally_shared_bytes *taken; /* the request's body, to which `stored` points, or NULL */
};

void pending_fini(struct pending_updates *pending)
{
    pending_clear(pending);
    free(pending->items);
    tally_buffer_fini(&pending->copies);
}

static enum tally_status insert(struct pending_updates *pending, struct tally_store *store,
                                const struct pending_update *item, struct tally_error *err)
{
    struct tally_store_update stored = item->stored;
    if (stored.body == NULL) {
        stored.body = pending->copies.data + item->at;
    }
    item->job->has_stored_updates = true;
    return store->ops->update_insert(store, item->job->row.key, &stored, err);
}

static void reserve_item(struct pending_updates *pending)
{
    if (pending->n == pending->capacity) {
        pending->capacity = pending->capacity == 0 ? FIRST_ITEMS : 2 * pending->capacity;
        pending->items = tally_xrealloc(pending->items, pending->capacity, sizeof *pending->items);
    }
}

static bool lies_in(const struct tally_shared_bytes *body, const uint8_t *at)
{
    return body != NULL && (uintptr_t)at >= (uintptr_t)body->bytes.data &&
           (uintptr_t)at < (uintptr_t)body->bytes.data + body->bytes.size;
}

/* Keeps an update where it lies: takes the body of its request, unless an earlier update of the
 * request has taken it. */
static enum tally_status keep_body(struct pending_updates *pending, struct pending_update *item,
                                   struct tally_http_request *owner)
{
    if (!lies_in(pending->body, item->stored.body)) {
        struct tally_shared_bytes *body = tally_shared_bytes_new(&(struct tally_buffer){0});
        if (body == NULL) {
            return TALLY_NO_MEMORY;
        }
        tally_http_take_body(owner, &body->bytes);
        body->fini = tally_http_free_body;
        tally_shared_bytes_release(pending->body);
        pending->body = body;
    }
    item->taken = tally_shared_bytes_hold(pending->body);
    return TALLY_OK;
}

static enum tally_status keep(struct pending_updates *pending, struct pending_update *item,
                              struct tally_http_request *owner)
{
    const size_t n = item->stored.n_body;
    if (n == 0) { /* of client 0, in a round that the horizon cuts */
        item->stored.body = (const uint8_t *)"";
        return TALLY_OK;
    }
    if (n > MAX_COPY_BYTES || pending->copies.size + n > MAX_COPIED_BYTES) {
        return keep_body(pending, item, owner);
    }
    item->at = pending->copies.size;
    enum tally_status status = tally_buffer_append(&pending->copies, item->stored.body, n);
    item->stored.body = NULL;
    return status;
}

enum tally_status pending_add(struct pending_updates *pending, struct tally_store *store,
                              struct hosted_job *job, const struct tally_update *update,
                              struct tally_http_request *owner, struct tally_error *err)
{
    struct pending_update item = {.job = job,
                                  .stored = {.round = update->round,
                                             .client = update->client,
                                             .body = update->encoded.data,
                                             .n_body = update->encoded.size}};
    if (pending->n_bytes + item.stored.n_body > MAX_BYTES) {
        return insert(pending, store, &item, err);
    }
    reserve_item(pending);
    const enum tally_status status = keep(pending, &item, owner);
    if (status != TALLY_OK) {
        return tally_fail(err, status, NULL, "no memory for an update");
    }
    pending->n_bytes += item.stored.n_body;
    pending->items[pending->n++] = item;
    return TALLY_OK;
}

void pending_leave_body(struct pending_updates *pending)
{
    tally_shared_bytes_release(pending->body);
    pending->body = NULL;
}

static void drop_through(struct pending_updates *pending, const struct hosted_job *job,
                         int64_t round)
{
    for (size_t i = 0; i < pending->n; i++) {
        struct pending_update *item = &pending->items[i];
        if (item->job == job && item->stored.round <= round) {
            item->job = NULL;
            tally_shared_bytes_release(item->taken);
            item->taken = NULL;
        }
    }
}

void pending_drop(struct pending_updates *pending, const struct hosted_job *job)
{
    drop_through(pending, job, hosted_job_last_settled_round(job));
}

void pending_forget(struct pending_updates *pending, const struct hosted_job *job)
{
    drop_through(pending, job, INT64_MAX);
}

enum tally_status pending_store(struct pending_updates *pending, struct tally_store *store,
                                struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; status == TALLY_OK && i < pending->n; i++) {
        if (pending->items[i].job != NULL) {
            status = insert(pending, store, &pending->items[i], err);
        }
    }
    return status;
}

void pending_clear(struct pending_updates *pending)
{
    for (size_t i = 0; i < pending->n; i++) {
        tally_shared_bytes_release(pending->items[i].taken);
    }
    pending_leave_body(pending);
    pending->n = 0;
    pending->n_bytes = 0;
    pending->copies.size = 0;
}
