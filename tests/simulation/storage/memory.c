/* memory: the slots of the reference store (memory.h). Nothing survives the database.
 *
 * Simple rather than fast: look-ups by id are linear, and a transaction copies the jobs that it
 * writes to. */
#include <stdlib.h>
#include <string.h>

#include "tests/simulation/storage/memory_internal.h"

static enum tally_status fail_no_job(int64_t job_key, struct tally_error *err)
{
    return tally_fail(err, TALLY_NOT_FOUND, NULL, "no job with key %lld", (long long)job_key);
}

static enum tally_status fail_no_state(int64_t job_key, struct tally_error *err)
{
    return tally_fail(err, TALLY_NOT_FOUND, NULL, "no state for job key %lld", (long long)job_key);
}

static void memory_close(struct tally_store *store)
{
    if (store == NULL) {
        return;
    }
    struct tally_memory_store *memory = memory_of(store);
    struct tally_memory_store **at = &memory->database->first;
    tally_memory_rollback(store);
    while (*at != memory) {
        at = &(*at)->next;
    }
    *at = memory->next;
    free(memory->drafts);
    tally_lease_set_fini(&memory->held);
    free(memory);
}

/* One above every key in use, including those of open transactions. A rollback frees its key. */
static int64_t next_key(const struct tally_memory_database *database)
{
    const struct tally_memory_store *memory = database->first;
    int64_t last =
        database->n_jobs > 0 ? database->jobs[database->n_jobs - 1]->content->job.key : 0;
    last = database->last_deleted_key > last ? database->last_deleted_key : last;
    for (; memory != NULL; memory = memory->next) {
        if (memory->n_drafts > 0) {
            const int64_t key = memory->drafts[memory->n_drafts - 1]->content->job.key;
            last = key > last ? key : last;
        }
    }
    return last + 1;
}

static enum tally_status memory_job_insert(struct tally_store *store,
                                           const struct tally_store_job *job, const char *document,
                                           size_t n_document, const char *idempotency_key,
                                           uint64_t request_digest, int64_t *ret_key,
                                           struct tally_error *err)
{
    struct tally_memory_store *memory = memory_of(store);
    struct tally_memory_view view;
    enum tally_status status = tally_memory_require_transaction(memory, err);
    if (status != TALLY_OK) {
        return status;
    }
    if (tally_memory_find_id(memory, job->id, &view)) {
        return tally_fail(err, TALLY_ALREADY_EXISTS, NULL, "job \"%s\" exists", job->id);
    }
    if (idempotency_key != NULL &&
        tally_memory_find_idempotency_key(memory, idempotency_key, &view)) {
        return tally_fail(err, TALLY_ALREADY_EXISTS, NULL, "idempotency key \"%s\" was used",
                          idempotency_key);
    }
    struct tally_store_job row = *job;
    row.key = next_key(memory->database);
    struct tally_memory_draft *draft =
        tally_memory_draft_insert(&row, document, n_document, idempotency_key, request_digest);
    if (draft == NULL) {
        return tally_memory_fail(memory, err);
    }
    status = tally_memory_add_draft(memory, draft, err);
    if (status == TALLY_OK) {
        *ret_key = row.key;
    }
    return status;
}

static enum tally_status memory_job_update(struct tally_store *store,
                                           const struct tally_store_job *job,
                                           struct tally_error *err)
{
    struct tally_memory_draft *draft = NULL;
    enum tally_status status = tally_memory_draft(memory_of(store), job->key, &draft, err);
    if (status != TALLY_OK) {
        return status;
    }
    struct tally_store_job *row = &draft->content->job;
    row->status = job->status;
    memcpy(row->reason, job->reason, sizeof row->reason);
    row->started_ms = job->started_ms;
    row->finished_ms = job->finished_ms;
    row->progress = job->progress;
    row->curvature = job->curvature;
    memcpy(row->schedule, job->schedule, sizeof row->schedule);
    row->recovery_bits = job->recovery_bits;
    row->wire_in_bytes = job->wire_in_bytes;
    row->wire_out_bytes = job->wire_out_bytes;
    return TALLY_OK;
}

static enum tally_status memory_state_put(struct tally_store *store, int64_t job_key,
                                          const void *bytes, size_t n, struct tally_error *err)
{
    struct tally_memory_draft *draft = NULL;
    enum tally_status status = tally_memory_draft(memory_of(store), job_key, &draft, err);
    if (status != TALLY_OK) {
        return status;
    }
    status = tally_memory_draft_put_state(draft, bytes, n);
    return status == TALLY_OK ? status : tally_memory_fail(memory_of(store), err);
}

static enum tally_status memory_job_delete(struct tally_store *store, int64_t job_key,
                                           struct tally_error *err)
{
    struct tally_memory_view view;
    struct tally_memory_draft *draft = NULL;
    enum tally_status status = tally_memory_require_transaction(memory_of(store), err);
    if (status == TALLY_OK && (!tally_memory_find(memory_of(store), job_key, &view) ||
                               !tally_job_status_is_terminal(view.content->job.status))) {
        status = fail_no_job(job_key, err);
    }
    if (status == TALLY_OK) {
        status = tally_memory_draft(memory_of(store), job_key, &draft, err);
    }
    if (status == TALLY_OK) {
        draft->is_deleted = true;
    }
    return status;
}

static enum tally_status memory_state_append(struct tally_store *store, int64_t job_key,
                                             int64_t round, const void *bytes, size_t n,
                                             struct tally_error *err)
{
    struct tally_memory_draft *draft = NULL;
    enum tally_status status = tally_memory_draft(memory_of(store), job_key, &draft, err);
    if (status != TALLY_OK) {
        return status;
    }
    if (draft->content->state == NULL) {
        return fail_no_state(job_key, err);
    }
    status = tally_memory_draft_add_change(draft, round, bytes, n);
    if (status == TALLY_ALREADY_EXISTS) {
        return tally_fail(err, status, NULL, "a change of round %lld exists", (long long)round);
    }
    return status == TALLY_OK ? status : tally_memory_fail(memory_of(store), err);
}

static enum tally_status memory_update_insert(struct tally_store *store, int64_t job_key,
                                              const struct tally_store_update *update,
                                              struct tally_error *err)
{
    struct tally_memory_draft *draft = NULL;
    enum tally_status status = tally_memory_draft(memory_of(store), job_key, &draft, err);
    if (status != TALLY_OK) {
        return status;
    }
    status = tally_memory_draft_add_update(draft, update);
    if (status == TALLY_ALREADY_EXISTS) {
        return tally_fail(err, status, NULL, "update of round %lld, client %u exists",
                          (long long)update->round, update->client);
    }
    return status == TALLY_OK ? status : tally_memory_fail(memory_of(store), err);
}

static enum tally_status memory_updates_delete(struct tally_store *store, int64_t job_key,
                                               int64_t first_round, int64_t last_round,
                                               struct tally_error *err)
{
    struct tally_memory_draft *draft = NULL;
    struct tally_error cause = TALLY_ERROR_INIT;
    enum tally_status status = tally_memory_draft(memory_of(store), job_key, &draft, &cause);
    if (status == TALLY_NOT_FOUND) {
        return TALLY_OK;
    }
    if (status != TALLY_OK) {
        return tally_fail(err, status, NULL, "%s", cause.message);
    }
    tally_memory_draft_drop_updates(draft, first_round, last_round);
    return TALLY_OK;
}

static enum tally_status memory_round_insert(struct tally_store *store, int64_t job_key,
                                             const struct tally_round_record *record,
                                             struct tally_error *err)
{
    struct tally_memory_draft *draft = NULL;
    enum tally_status status = tally_memory_draft(memory_of(store), job_key, &draft, err);
    if (status != TALLY_OK) {
        return status;
    }
    status = tally_memory_draft_add_round(draft, record);
    if (status == TALLY_ALREADY_EXISTS) {
        return tally_fail(err, status, NULL, "record of round %lld exists",
                          (long long)record->round);
    }
    return status == TALLY_OK ? status : tally_memory_fail(memory_of(store), err);
}

static enum tally_status memory_round_update(struct tally_store *store, int64_t job_key,
                                             const struct tally_round_record *record,
                                             struct tally_error *err)
{
    struct tally_memory_draft *draft = NULL;
    enum tally_status status = tally_memory_draft(memory_of(store), job_key, &draft, err);
    if (status != TALLY_OK) {
        return status;
    }
    status = tally_memory_draft_update_round(draft, record);
    if (status == TALLY_NOT_FOUND) {
        return tally_fail(err, status, NULL, "no record of round %lld", (long long)record->round);
    }
    return status == TALLY_OK ? status : tally_memory_fail(memory_of(store), err);
}

static enum tally_status memory_model_put(struct tally_store *store, int64_t job_key,
                                          const struct tally_store_model *model, const void *bytes,
                                          struct tally_error *err)
{
    struct tally_memory_draft *draft = NULL;
    enum tally_status status = tally_memory_draft(memory_of(store), job_key, &draft, err);
    if (status != TALLY_OK) {
        return status;
    }
    status = tally_memory_draft_put_model(draft, model, bytes);
    return status == TALLY_OK ? status : tally_memory_fail(memory_of(store), err);
}

static enum tally_status memory_job_get(struct tally_store *store, const char *id,
                                        struct tally_store_job *ret_job, struct tally_error *err)
{
    struct tally_memory_view view;
    if (!tally_memory_find_id(memory_of(store), id, &view)) {
        return tally_fail(err, TALLY_NOT_FOUND, NULL, "no job \"%s\"", id);
    }
    *ret_job = view.content->job;
    return TALLY_OK;
}

static enum tally_status memory_job_by_idempotency_key(struct tally_store *store,
                                                       const char *idempotency_key,
                                                       struct tally_store_job *ret_job,
                                                       uint64_t *ret_request_digest,
                                                       struct tally_error *err)
{
    struct tally_memory_view view;
    if (!tally_memory_find_idempotency_key(memory_of(store), idempotency_key, &view)) {
        return tally_fail(err, TALLY_NOT_FOUND, NULL, "no job with idempotency key \"%s\"",
                          idempotency_key);
    }
    *ret_job = view.content->job;
    *ret_request_digest = view.job->request_digest;
    return TALLY_OK;
}

static enum tally_status memory_request_get(struct tally_store *store, int64_t job_key,
                                            struct tally_buffer *out, bool *ret_has_key,
                                            uint64_t *ret_request_digest, struct tally_error *err)
{
    struct tally_memory_view view;
    if (!tally_memory_find(memory_of(store), job_key, &view)) {
        return fail_no_job(job_key, err);
    }
    const char *key = view.job->idempotency_key;
    enum tally_status status = key != NULL ? tally_buffer_append_text(out, key) : TALLY_OK;
    if (status != TALLY_OK) {
        return tally_fail(err, status, NULL, "cannot copy the idempotency key");
    }
    *ret_has_key = key != NULL;
    *ret_request_digest = view.job->request_digest;
    return TALLY_OK;
}

static enum tally_status memory_job_list(struct tally_store *store, int status, int64_t before_key,
                                         int64_t limit, tally_store_job_fn *each, void *context,
                                         struct tally_error *err)
{
    struct tally_memory_view view;
    int64_t n = 0;
    while (n < limit && tally_memory_find_before(memory_of(store), before_key, &view)) {
        before_key = view.content->job.key;
        if (status < 0 || (int)view.content->job.status == status) {
            enum tally_status stopped = each(context, &view.content->job, err);
            if (stopped != TALLY_OK) {
                return stopped;
            }
            n++;
        }
    }
    return TALLY_OK;
}

static enum tally_status memory_job_list_live(struct tally_store *store, tally_store_job_fn *each,
                                              void *context, struct tally_error *err)
{
    struct tally_memory_view view;
    int64_t key = 0;
    enum tally_status status = TALLY_OK;
    while (status == TALLY_OK && tally_memory_find_after(memory_of(store), key, &view)) {
        key = view.content->job.key;
        if (!tally_job_status_is_terminal(view.content->job.status)) {
            status = each(context, &view.content->job, err);
        }
    }
    return status;
}

static enum tally_status append(struct tally_buffer *out, const struct tally_blob *blob,
                                struct tally_error *err)
{
    enum tally_status status = tally_buffer_append(out, blob->bytes, blob->n);
    return status == TALLY_OK ? status
                              : tally_fail(err, status, NULL, "cannot take %zu bytes", blob->n);
}

static enum tally_status memory_document_get(struct tally_store *store, int64_t job_key,
                                             struct tally_buffer *out, struct tally_error *err)
{
    struct tally_memory_view view;
    return tally_memory_find(memory_of(store), job_key, &view)
               ? append(out, view.job->document, err)
               : fail_no_job(job_key, err);
}

static enum tally_status memory_state_get(struct tally_store *store, int64_t job_key,
                                          struct tally_buffer *out, struct tally_error *err)
{
    struct tally_memory_view view;
    if (!tally_memory_find(memory_of(store), job_key, &view) || view.content->state == NULL) {
        return fail_no_state(job_key, err);
    }
    enum tally_status status = append(out, view.content->state, err);
    for (size_t i = 0; i < view.content->n_changes && status == TALLY_OK; i++) {
        status = append(out, view.content->changes[i].bytes, err);
    }
    return status;
}

static enum tally_status memory_update_list(struct tally_store *store, int64_t job_key,
                                            int64_t round, tally_store_update_fn *each,
                                            void *context, struct tally_error *err)
{
    struct tally_memory_view view;
    enum tally_status status = TALLY_OK;
    if (!tally_memory_find(memory_of(store), job_key, &view)) {
        return TALLY_OK;
    }
    for (size_t i = 0; i < view.content->n_updates && status == TALLY_OK; i++) {
        const struct tally_memory_update *update = &view.content->updates[i];
        if (update->round == round) {
            status = each(context,
                          &(struct tally_store_update){.round = update->round,
                                                       .client = update->client,
                                                       .body = update->body->bytes,
                                                       .n_body = update->body->n},
                          err);
        }
    }
    return status;
}

/* Returns the first record after a round, committed or added by the transaction; NULL = none. */
static const struct tally_round_record *round_after(const struct tally_memory_view *view,
                                                    int64_t round)
{
    const struct tally_round_record *committed =
        tally_memory_round_after(&view->job->rounds, round);
    const struct tally_round_record *added =
        view->draft != NULL ? tally_memory_round_after(&view->draft->rounds, round) : NULL;
    return committed == NULL || (added != NULL && added->round <= committed->round) ? added
                                                                                    : committed;
}

static enum tally_status memory_round_list(struct tally_store *store, int64_t job_key,
                                           int64_t after_round, int64_t limit,
                                           tally_store_round_fn *each, void *context,
                                           struct tally_error *err)
{
    struct tally_memory_view view;
    enum tally_status status = TALLY_OK;
    if (!tally_memory_find(memory_of(store), job_key, &view)) {
        return TALLY_OK;
    }
    for (int64_t n = 0; n < limit && status == TALLY_OK; n++) {
        const struct tally_round_record *record = round_after(&view, after_round);
        if (record == NULL) {
            break;
        }
        after_round = record->round;
        status = each(context, record, err);
    }
    return status;
}

static enum tally_status memory_model_list(struct tally_store *store, int64_t job_key,
                                           tally_store_model_fn *each, void *context,
                                           struct tally_error *err)
{
    struct tally_memory_view view;
    enum tally_status status = TALLY_OK;
    if (!tally_memory_find(memory_of(store), job_key, &view)) {
        return TALLY_OK;
    }
    for (size_t i = 0; i < view.content->n_models && status == TALLY_OK; i++) {
        status = each(context, &view.content->models[i].row, err);
    }
    return status;
}

static enum tally_status memory_model_get(struct tally_store *store, int64_t job_key, int64_t slot,
                                          struct tally_buffer *out, struct tally_error *err)
{
    struct tally_memory_view view;
    const bool has_job = tally_memory_find(memory_of(store), job_key, &view);
    for (size_t i = 0; has_job && i < view.content->n_models; i++) {
        if (view.content->models[i].row.slot == slot) {
            return append(out, view.content->models[i].point, err);
        }
    }
    return tally_fail(err, TALLY_NOT_FOUND, NULL, "no model %lld of job key %lld", (long long)slot,
                      (long long)job_key);
}

static enum tally_status memory_check(struct tally_store *store, struct tally_error *err)
{
    (void)store;
    (void)err;
    return TALLY_OK;
}

static struct tally_store_counters memory_counters(const struct tally_store *store)
{
    return ((const struct tally_memory_store *)store)->counters;
}

static const struct tally_store_ops MEMORY_OPS = {
    .close = memory_close,
    .begin = tally_memory_begin,
    .commit = tally_memory_commit,
    .rollback = tally_memory_rollback,
    .job_insert = memory_job_insert,
    .job_update = memory_job_update,
    .job_delete = memory_job_delete,
    .state_put = memory_state_put,
    .state_append = memory_state_append,
    .update_insert = memory_update_insert,
    .updates_delete = memory_updates_delete,
    .round_insert = memory_round_insert,
    .round_update = memory_round_update,
    .model_put = memory_model_put,
    .job_get = memory_job_get,
    .job_by_idempotency_key = memory_job_by_idempotency_key,
    .request_get = memory_request_get,
    .job_list = memory_job_list,
    .job_list_live = memory_job_list_live,
    .document_get = memory_document_get,
    .state_get = memory_state_get,
    .update_list = memory_update_list,
    .round_list = memory_round_list,
    .model_list = memory_model_list,
    .model_get = memory_model_get,
    .flush = tally_memory_flush,
    .check = memory_check,
    .counters = memory_counters,
};

enum tally_status tally_memory_database_open(struct tally_memory_database *database,
                                             struct tally_store **ret_store,
                                             struct tally_error *err)
{
    struct tally_memory_store *memory = calloc(1, sizeof *memory);
    if (memory == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the in-memory store");
    }
    memory->base.ops = &MEMORY_OPS;
    memory->base.leases = &TALLY_MEMORY_LEASES;
    memory->database = database;
    memory->next = database->first;
    database->first = memory;
    *ret_store = &memory->base;
    return TALLY_OK;
}
