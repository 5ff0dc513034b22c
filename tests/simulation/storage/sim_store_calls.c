/* sim_store_calls: writes and reads, each passed on to the in-memory store. */
#include "tests/simulation/storage/sim_store_internal.h"
#include "tests/simulation/world/sim.h"

/* Writes. */

static void note_key(int64_t *keys, int *n, int64_t key)
{
    for (int i = 0; i < *n; i++) {
        if (keys[i] == key) {
            return;
        }
    }
    SIM_REQUIRE(*n < MAX_WRITTEN, "a transaction about more jobs than there are");
    keys[(*n)++] = key;
}

static enum tally_status collect(struct sim_store *store, struct tally_error *err)
{
    return !store->is_broken && sim_replica_pass(store->owner, 0) ? TALLY_OK
                                                                  : sim_store_fail_lost(err);
}

static enum tally_status end_write(struct sim_store *store, enum tally_status status, int64_t key)
{
    if (status == TALLY_OK) {
        note_key(store->written, &store->n_written, key);
    }
    return status;
}

static enum tally_status sim_job_insert(struct tally_store *base, const struct tally_store_job *job,
                                        const char *document, size_t n_document,
                                        const char *idempotency_key, uint64_t request_digest,
                                        int64_t *ret_key, struct tally_error *err)
{
    struct sim_store *store = sim_store_of(base);
    enum tally_status status = sim_store_send(store, err);
    if (status != TALLY_OK) {
        return status;
    }
    status = store->inner->ops->job_insert(store->inner, job, document, n_document, idempotency_key,
                                           request_digest, ret_key, err);
    if (status == TALLY_OK) {
        note_key(store->inserted, &store->n_inserted, *ret_key);
    }
    return sim_store_hear(store, status, err);
}

/* A write is collected and sent with the next call that has a response; it has none of its own. */
#define WRITE(key, call)                                                                           \
    struct sim_store *store = sim_store_of(base);                                                  \
    const enum tally_status status = collect(store, err);                                          \
    return status == TALLY_OK ? end_write(store, store->inner->ops->call, key) : status

static enum tally_status sim_job_update(struct tally_store *base, const struct tally_store_job *job,
                                        struct tally_error *err)
{
    WRITE(job->key, job_update(store->inner, job, err));
}

static enum tally_status sim_state_put(struct tally_store *base, int64_t job_key, const void *bytes,
                                       size_t n, struct tally_error *err)
{
    WRITE(job_key, state_put(store->inner, job_key, bytes, n, err));
}

static enum tally_status sim_state_append(struct tally_store *base, int64_t job_key, int64_t round,
                                          const void *bytes, size_t n, struct tally_error *err)
{
    WRITE(job_key, state_append(store->inner, job_key, round, bytes, n, err));
}

static enum tally_status sim_update_insert(struct tally_store *base, int64_t job_key,
                                           const struct tally_store_update *update,
                                           struct tally_error *err)
{
    WRITE(job_key, update_insert(store->inner, job_key, update, err));
}

static enum tally_status sim_updates_delete(struct tally_store *base, int64_t job_key,
                                            int64_t first_round, int64_t last_round,
                                            struct tally_error *err)
{
    WRITE(job_key, updates_delete(store->inner, job_key, first_round, last_round, err));
}

static enum tally_status sim_job_delete(struct tally_store *base, int64_t job_key,
                                        struct tally_error *err)
{
    WRITE(job_key, job_delete(store->inner, job_key, err));
}

static enum tally_status sim_round_insert(struct tally_store *base, int64_t job_key,
                                          const struct tally_round_record *record,
                                          struct tally_error *err)
{
    WRITE(job_key, round_insert(store->inner, job_key, record, err));
}

static enum tally_status sim_round_update(struct tally_store *base, int64_t job_key,
                                          const struct tally_round_record *record,
                                          struct tally_error *err)
{
    WRITE(job_key, round_update(store->inner, job_key, record, err));
}

static enum tally_status sim_model_put(struct tally_store *base, int64_t job_key,
                                       const struct tally_store_model *model, const void *bytes,
                                       struct tally_error *err)
{
    WRITE(job_key, model_put(store->inner, job_key, model, bytes, err));
}

/* Reads. */

#define READ(call)                                                                                 \
    struct sim_store *store = sim_store_of(base);                                                  \
    enum tally_status status = sim_store_send(store, err);                                         \
    if (status != TALLY_OK) {                                                                      \
        return status;                                                                             \
    }                                                                                              \
    const bool in_walk = store->in_walk;                                                           \
    store->in_walk = true;                                                                         \
    status = store->inner->ops->call;                                                              \
    store->in_walk = in_walk;                                                                      \
    return sim_store_hear(store, status, err)

static enum tally_status sim_job_get(struct tally_store *base, const char *id,
                                     struct tally_store_job *ret_job, struct tally_error *err)
{
    READ(job_get(store->inner, id, ret_job, err));
}

static enum tally_status sim_job_by_idempotency_key(struct tally_store *base, const char *key,
                                                    struct tally_store_job *ret_job,
                                                    uint64_t *ret_request_digest,
                                                    struct tally_error *err)
{
    READ(job_by_idempotency_key(store->inner, key, ret_job, ret_request_digest, err));
}

static enum tally_status sim_request_get(struct tally_store *base, int64_t job_key,
                                         struct tally_buffer *out, bool *ret_has_key,
                                         uint64_t *ret_request_digest, struct tally_error *err)
{
    READ(request_get(store->inner, job_key, out, ret_has_key, ret_request_digest, err));
}

static enum tally_status sim_job_list(struct tally_store *base, int status_of, int64_t before_key,
                                      int64_t limit, tally_store_job_fn *each, void *context,
                                      struct tally_error *err)
{
    READ(job_list(store->inner, status_of, before_key, limit, each, context, err));
}

static enum tally_status sim_job_list_live(struct tally_store *base, tally_store_job_fn *each,
                                           void *context, struct tally_error *err)
{
    READ(job_list_live(store->inner, each, context, err));
}

static enum tally_status sim_document_get(struct tally_store *base, int64_t job_key,
                                          struct tally_buffer *out, struct tally_error *err)
{
    READ(document_get(store->inner, job_key, out, err));
}

static enum tally_status sim_state_get(struct tally_store *base, int64_t job_key,
                                       struct tally_buffer *out, struct tally_error *err)
{
    READ(state_get(store->inner, job_key, out, err));
}

static enum tally_status sim_update_list(struct tally_store *base, int64_t job_key, int64_t round,
                                         tally_store_update_fn *each, void *context,
                                         struct tally_error *err)
{
    READ(update_list(store->inner, job_key, round, each, context, err));
}

static enum tally_status sim_round_list(struct tally_store *base, int64_t job_key,
                                        int64_t after_round, int64_t limit,
                                        tally_store_round_fn *each, void *context,
                                        struct tally_error *err)
{
    READ(round_list(store->inner, job_key, after_round, limit, each, context, err));
}

static enum tally_status sim_model_list(struct tally_store *base, int64_t job_key,
                                        tally_store_model_fn *each, void *context,
                                        struct tally_error *err)
{
    READ(model_list(store->inner, job_key, each, context, err));
}

static enum tally_status sim_model_get(struct tally_store *base, int64_t job_key, int64_t slot,
                                       struct tally_buffer *out, struct tally_error *err)
{
    READ(model_get(store->inner, job_key, slot, out, err));
}

static enum tally_status sim_check(struct tally_store *base, struct tally_error *err)
{
    READ(check(store->inner, err));
}

void sim_store_add_calls(struct tally_store_ops *ops)
{
    ops->job_insert = sim_job_insert;
    ops->job_update = sim_job_update;
    ops->state_put = sim_state_put;
    ops->state_append = sim_state_append;
    ops->update_insert = sim_update_insert;
    ops->updates_delete = sim_updates_delete;
    ops->job_delete = sim_job_delete;
    ops->round_insert = sim_round_insert;
    ops->round_update = sim_round_update;
    ops->model_put = sim_model_put;
    ops->job_get = sim_job_get;
    ops->job_by_idempotency_key = sim_job_by_idempotency_key;
    ops->request_get = sim_request_get;
    ops->job_list = sim_job_list;
    ops->job_list_live = sim_job_list_live;
    ops->document_get = sim_document_get;
    ops->state_get = sim_state_get;
    ops->update_list = sim_update_list;
    ops->round_list = sim_round_list;
    ops->model_list = sim_model_list;
    ops->model_get = sim_model_get;
    ops->check = sim_check;
}
