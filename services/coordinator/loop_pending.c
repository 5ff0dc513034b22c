#include "services/coordinator/loop_pending.h"

#include <stdlib.h>
#include <string.h>

enum {
    /* Payloads that wait for the commit: a round of 64 clients with 10^6 coordinates. */
    MAX_BYTES = 40 * 1024 * 1024,
    MAX_COPIED_BYTES = 1024 * 1024,
    /* For longer payloads, the request's body is taken: the server would not reuse its memory. */
    MAX_COPY_BYTES = 64 * 1024,
    KEPT_ENCODED_BYTES = 1024 * 1024,
    FIRST_ITEMS = 64
};

/* What the store keeps of an update. */
struct pending_update {
    struct pending_job job; /* row is NULL if the update is not needed any more */
    uint32_t round, client;
    uint64_t payload_bits;
    uint32_t clipped;
    bool has_loss;
    double loss;
    size_t n_payload;
    size_t at;                /* in the copies, unless the body was taken */
    struct tally_buffer body; /* taken */
    const uint8_t *payload;   /* in the body */
    size_t n_metrics;
    size_t metrics_at; /* in the copies */
};

void pending_fini(struct pending_updates *pending)
{
    pending_clear(pending);
    free(pending->items);
    tally_buffer_fini(&pending->copies);
    tally_buffer_fini(&pending->encoded);
}

/* Stores the update without its session, which no reader of the store needs. */
static enum tally_status insert(struct pending_updates *pending, struct tally_store *store,
                                const struct pending_update *item, struct tally_error *err)
{
    const struct tally_store_job *row = item->job.row;
    struct tally_update update = {
        .round = item->round,
        .client = item->client,
        .payload = {item->body.data != NULL ? item->payload : pending->copies.data + item->at,
                    item->n_payload},
        .payload_bits = item->payload_bits,
        .clipped = item->clipped,
        .has_loss = item->has_loss,
        .loss = item->loss};
    memcpy(update.job_id, row->id, sizeof row->id);
    update.n_metrics = item->n_metrics;
    if (item->n_metrics > 0) {
        memcpy(update.metrics, pending->copies.data + item->metrics_at,
               item->n_metrics * sizeof *update.metrics);
    }
    struct tally_buffer *encoded = &pending->encoded;
    encoded->size = 0;
    enum tally_status status = tally_update_encode(&update, encoded);
    if (status != TALLY_OK) {
        return tally_fail(err, status, NULL, "no memory for an update");
    }
    *item->job.has_stored_updates = true;
    status = store->ops->update_insert(store, row->key,
                                       &(struct tally_store_update){.round = item->round,
                                                                    .client = item->client,
                                                                    .body = encoded->data,
                                                                    .n_body = encoded->size},
                                       err);
    if (encoded->capacity > KEPT_ENCODED_BYTES) {
        tally_buffer_fini(encoded);
    }
    return status;
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

/* Keeps a payload outside the copies: takes the body in which it lies, or copies it to a body of
 * its own if others lie there as well. */
static enum tally_status keep_body(struct pending_update *item, struct tally_http_request *request)
{
    if (request != NULL) {
        tally_http_take_body(request, &item->body);
        return TALLY_OK;
    }
    enum tally_status status = tally_buffer_append(&item->body, item->payload, item->n_payload);
    item->payload = item->body.data;
    return status;
}

enum tally_status pending_add(struct pending_updates *pending, struct tally_store *store,
                              struct pending_job job, const struct tally_update *update,
                              struct tally_http_request *request, struct tally_error *err)
{
    struct pending_update item = {.job = job,
                                  .round = update->round,
                                  .client = update->client,
                                  .payload_bits = update->payload_bits,
                                  .clipped = update->clipped,
                                  .has_loss = update->has_loss,
                                  .loss = update->loss,
                                  .payload = update->payload.data,
                                  .n_payload = update->payload.size,
                                  .n_metrics = update->n_metrics,
                                  .metrics_at = pending->copies.size};
    const bool fits = pending->n_bytes + item.n_payload <= MAX_BYTES;
    const bool copies = item.n_payload <= MAX_COPY_BYTES &&
                        pending->copies.size + item.n_payload <= MAX_COPIED_BYTES;
    enum tally_status status = fits ? reserve_item(pending) : TALLY_OK;
    if (status == TALLY_OK) {
        status = tally_buffer_append(&pending->copies, update->metrics,
                                     item.n_metrics * sizeof *update->metrics);
    }
    item.at = pending->copies.size;
    if (status == TALLY_OK && copies) {
        status = tally_buffer_append(&pending->copies, update->payload.data, item.n_payload);
    }
    if (status != TALLY_OK) {
        return tally_fail(err, status, NULL, "no memory for an update");
    }
    if (!copies && keep_body(&item, request) != TALLY_OK) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for an update");
    }
    if (!fits) {
        status = insert(pending, store, &item, err);
        tally_buffer_fini(&item.body);
        return status;
    }
    pending->n_bytes += item.n_payload;
    pending->items[pending->n++] = item;
    return TALLY_OK;
}

static void drop_through(struct pending_updates *pending, const struct tally_store_job *row,
                         int64_t round)
{
    for (size_t i = 0; i < pending->n; i++) {
        struct pending_update *item = &pending->items[i];
        if (item->job.row == row && item->round <= round) {
            item->job.row = NULL;
            tally_buffer_fini(&item->body);
        }
    }
}

void pending_drop(struct pending_updates *pending, const struct tally_store_job *row)
{
    drop_through(pending, row, row->progress.round);
}

void pending_forget(struct pending_updates *pending, const struct tally_store_job *row)
{
    drop_through(pending, row, INT64_MAX);
}

enum tally_status pending_store(struct pending_updates *pending, struct tally_store *store,
                                struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; status == TALLY_OK && i < pending->n; i++) {
        if (pending->items[i].job.row != NULL) {
            status = insert(pending, store, &pending->items[i], err);
        }
    }
    return status;
}

void pending_clear(struct pending_updates *pending)
{
    for (size_t i = 0; i < pending->n; i++) {
        tally_buffer_fini(&pending->items[i].body);
    }
    pending->n = 0;
    pending->n_bytes = 0;
    pending->copies.size = 0;
}
