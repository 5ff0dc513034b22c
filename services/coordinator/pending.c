#include "services/coordinator/pending.h"

#include <stdlib.h>

#include "services/coordinator/hosted_job.h"

enum {
    MAX_BYTES = 1024 * 1024, /* of payloads that wait for the commit */
    FIRST_ITEMS = 64
};

struct pending_update {
    struct hosted_job *job; /* NULL = not needed any more */
    int64_t round;
    uint32_t client;
    size_t at, n; /* in the bytes of all */
};

void pending_fini(struct pending_updates *pending)
{
    free(pending->items);
    tally_buffer_fini(&pending->bytes);
    tally_buffer_fini(&pending->large);
}

static enum tally_status insert(struct tally_store *store, struct hosted_job *job,
                                const struct tally_store_update *update, struct tally_error *err)
{
    job->has_stored_updates = true;
    return store->ops->update_insert(store, job->row.key, update, err);
}

static enum tally_status reserve_item(struct pending_updates *pending)
{
    if (pending->n < pending->capacity) {
        return TALLY_OK;
    }
    const size_t capacity = pending->capacity == 0 ? FIRST_ITEMS : 2 * pending->capacity;
    struct pending_update *items = realloc(pending->items, capacity * sizeof *items);
    if (items == NULL) {
        return TALLY_NO_MEMORY;
    }
    pending->items = items;
    pending->capacity = capacity;
    return TALLY_OK;
}

/* Appends it without its session: whoever can read the store has no use for that, or a bad one. */
static enum tally_status append(struct tally_buffer *bytes, const struct tally_update *update)
{
    struct tally_update stored = *update;
    stored.session = 0;
    stored.has_poll = false;
    return tally_update_encode(&stored, bytes);
}

/* Of an update that is too large to be kept. */
static enum tally_status insert_at_once(struct pending_updates *pending, struct tally_store *store,
                                        struct hosted_job *job, const struct tally_update *update,
                                        struct tally_error *err)
{
    struct tally_buffer *bytes = &pending->large;
    bytes->size = 0;
    enum tally_status status = append(bytes, update);
    if (status == TALLY_OK) {
        const struct tally_store_update stored = {.round = update->round,
                                                  .client = update->client,
                                                  .body = bytes->data,
                                                  .n_body = bytes->size};
        status = insert(store, job, &stored, err);
    }
    if (bytes->capacity > MAX_BYTES) {
        tally_buffer_fini(bytes);
    }
    return status;
}

enum tally_status pending_add(struct pending_updates *pending, struct tally_store *store,
                              struct hosted_job *job, const struct tally_update *update,
                              struct tally_error *err)
{
    const size_t at = pending->bytes.size;
    enum tally_status status = TALLY_OK;
    if (at + update->payload.size > MAX_BYTES) {
        status = insert_at_once(pending, store, job, update, err);
    } else {
        status = reserve_item(pending);
        if (status == TALLY_OK) {
            status = append(&pending->bytes, update);
        }
        if (status == TALLY_OK) {
            pending->items[pending->n++] = (struct pending_update){.job = job,
                                                                   .round = update->round,
                                                                   .client = update->client,
                                                                   .at = at,
                                                                   .n = pending->bytes.size - at};
        }
    }
    return status == TALLY_OK ? status : tally_fail(err, status, NULL, "no memory for an update");
}

void pending_drop(struct pending_updates *pending, const struct hosted_job *job)
{
    for (size_t i = 0; i < pending->n; i++) {
        struct pending_update *item = &pending->items[i];
        if (item->job == job && item->round <= job->row.progress.round) {
            item->job = NULL;
        }
    }
}

enum tally_status pending_store(struct pending_updates *pending, struct tally_store *store,
                                struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; status == TALLY_OK && i < pending->n; i++) {
        const struct pending_update *item = &pending->items[i];
        if (item->job != NULL) {
            status = insert(store, item->job,
                            &(struct tally_store_update){.round = item->round,
                                                         .client = item->client,
                                                         .body = pending->bytes.data + item->at,
                                                         .n_body = item->n},
                            err);
        }
    }
    return status;
}

void pending_clear(struct pending_updates *pending)
{
    pending->n = 0;
    pending->bytes.size = 0;
}
