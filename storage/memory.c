/* memory: the reference store. Nothing survives close().
 *
 * Simple rather than fast: look-ups are linear, and a bracket copies the jobs that it writes to.
 *
 *     commit   = commit every job
 *     rollback = drop the jobs past n_jobs_before, roll every other back (memory_job.h). */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "storage/memory_job.h"

struct memory_store {
    struct tally_store base;
    struct tally_memory_job **jobs; /* job i has key i + 1 */
    size_t n_jobs;
    size_t n_jobs_before; /* when the bracket was opened */
    bool in_bracket;
    bool is_broken; /* a write failed; the bracket can only be rolled back */
};

static struct memory_store *memory_of(struct tally_store *store)
{
    return (struct memory_store *)store;
}

static enum tally_status fail_no_memory(struct memory_store *memory, struct tally_error *err)
{
    memory->is_broken = true;
    return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the in-memory store");
}

static enum tally_status fail_no_job(int64_t job_key, struct tally_error *err)
{
    return tally_fail(err, TALLY_NOT_FOUND, NULL, "no job with key %lld", (long long)job_key);
}

static enum tally_status fail_no_state(int64_t job_key, struct tally_error *err)
{
    return tally_fail(err, TALLY_NOT_FOUND, NULL, "no state of a job with key %lld",
                      (long long)job_key);
}

/* Every write starts here. */
static enum tally_status require_bracket(const struct memory_store *memory, struct tally_error *err)
{
    assert(memory->in_bracket);
    return memory->is_broken ? tally_fail(err, TALLY_STORE, NULL,
                                          "an earlier write of this bracket failed; roll back")
                             : TALLY_OK;
}

/* The job with that key, or NULL. */
static struct tally_memory_job *find_key(const struct memory_store *memory, int64_t job_key)
{
    return job_key >= 1 && (uint64_t)job_key <= memory->n_jobs ? memory->jobs[job_key - 1] : NULL;
}

static struct tally_memory_job *find_id(const struct memory_store *memory, const char *id)
{
    for (size_t i = 0; i < memory->n_jobs; i++) {
        if (strcmp(memory->jobs[i]->now->job.id, id) == 0) {
            return memory->jobs[i];
        }
    }
    return NULL;
}

static struct tally_memory_job *find_idempotency_key(const struct memory_store *memory,
                                                     const char *key)
{
    for (size_t i = 0; i < memory->n_jobs; i++) {
        const char *have = memory->jobs[i]->idempotency_key;
        if (have != NULL && strcmp(have, key) == 0) {
            return memory->jobs[i];
        }
    }
    return NULL;
}

/* The job that a write is about, touched. Errors: NOT_FOUND, NO_MEMORY. */
static enum tally_status open_job(struct memory_store *memory, int64_t job_key,
                                  struct tally_memory_job **ret_job, struct tally_error *err)
{
    enum tally_status status = require_bracket(memory, err);
    if (status != TALLY_OK) {
        return status;
    }
    struct tally_memory_job *job = find_key(memory, job_key);
    if (job == NULL) {
        return fail_no_job(job_key, err);
    }
    if (tally_memory_job_touch(job) != TALLY_OK) {
        return fail_no_memory(memory, err);
    }
    *ret_job = job;
    return TALLY_OK;
}

static enum tally_status memory_begin(struct tally_store *store, struct tally_error *err)
{
    (void)err;
    struct memory_store *memory = memory_of(store);
    assert(!memory->in_bracket);
    memory->in_bracket = true;
    memory->is_broken = false;
    memory->n_jobs_before = memory->n_jobs;
    return TALLY_OK;
}

static void memory_rollback(struct tally_store *store)
{
    struct memory_store *memory = memory_of(store);
    if (!memory->in_bracket) {
        return;
    }
    while (memory->n_jobs > memory->n_jobs_before) {
        tally_memory_job_free(memory->jobs[--memory->n_jobs]);
    }
    for (size_t i = 0; i < memory->n_jobs; i++) {
        tally_memory_job_rollback(memory->jobs[i]);
    }
    memory->in_bracket = false;
}

static enum tally_status memory_commit(struct tally_store *store, struct tally_error *err)
{
    struct memory_store *memory = memory_of(store);
    enum tally_status status = require_bracket(memory, err);
    if (status != TALLY_OK) {
        memory_rollback(store);
        return status;
    }
    for (size_t i = 0; i < memory->n_jobs; i++) {
        tally_memory_job_commit(memory->jobs[i]);
    }
    memory->in_bracket = false;
    return TALLY_OK;
}

static void memory_close(struct tally_store *store)
{
    if (store == NULL) {
        return;
    }
    struct memory_store *memory = memory_of(store);
    for (size_t i = 0; i < memory->n_jobs; i++) {
        tally_memory_job_free(memory->jobs[i]);
    }
    free(memory->jobs);
    free(memory);
}

static enum tally_status memory_job_insert(struct tally_store *store,
                                           const struct tally_store_job *job, const char *document,
                                           size_t n_document, const char *idempotency_key,
                                           uint64_t request_digest, int64_t *ret_key,
                                           struct tally_error *err)
{
    struct memory_store *memory = memory_of(store);
    enum tally_status status = require_bracket(memory, err);
    if (status != TALLY_OK) {
        return status;
    }
    if (find_id(memory, job->id) != NULL) {
        return tally_fail(err, TALLY_ALREADY_EXISTS, NULL, "job \"%s\" exists", job->id);
    }
    if (idempotency_key != NULL && find_idempotency_key(memory, idempotency_key) != NULL) {
        return tally_fail(err, TALLY_ALREADY_EXISTS, NULL, "idempotency key \"%s\" was used",
                          idempotency_key);
    }
    struct tally_memory_job **jobs =
        realloc(memory->jobs, (memory->n_jobs + 1) * sizeof(struct tally_memory_job *));
    if (jobs == NULL) {
        return fail_no_memory(memory, err);
    }
    memory->jobs = jobs;
    struct tally_memory_job *added =
        tally_memory_job_new(job, document, n_document, idempotency_key, request_digest);
    if (added == NULL) {
        return fail_no_memory(memory, err);
    }
    memory->jobs[memory->n_jobs++] = added;
    added->now->job.key = (int64_t)memory->n_jobs;
    *ret_key = added->now->job.key;
    return TALLY_OK;
}

static enum tally_status memory_job_update(struct tally_store *store,
                                           const struct tally_store_job *job,
                                           struct tally_error *err)
{
    struct tally_memory_job *kept = NULL;
    enum tally_status status = open_job(memory_of(store), job->key, &kept, err);
    if (status != TALLY_OK) {
        return status;
    }
    struct tally_store_job *row = &kept->now->job;
    row->status = job->status;
    memcpy(row->reason, job->reason, sizeof row->reason);
    row->started_ms = job->started_ms;
    row->finished_ms = job->finished_ms;
    row->progress = job->progress;
    row->curvature = job->curvature;
    row->recovery_bits = job->recovery_bits;
    row->wire_in_bytes = job->wire_in_bytes;
    row->wire_out_bytes = job->wire_out_bytes;
    return TALLY_OK;
}

static enum tally_status memory_state_put(struct tally_store *store, int64_t job_key,
                                          const void *bytes, size_t n, struct tally_error *err)
{
    struct tally_memory_job *job = NULL;
    enum tally_status status = open_job(memory_of(store), job_key, &job, err);
    if (status != TALLY_OK) {
        return status;
    }
    status = tally_memory_job_put_state(job, bytes, n);
    return status == TALLY_OK ? status : fail_no_memory(memory_of(store), err);
}

static enum tally_status memory_state_append(struct tally_store *store, int64_t job_key,
                                             int64_t round, const void *bytes, size_t n,
                                             struct tally_error *err)
{
    struct tally_memory_job *job = NULL;
    enum tally_status status = open_job(memory_of(store), job_key, &job, err);
    if (status != TALLY_OK) {
        return status;
    }
    if (job->now->state == NULL) {
        return fail_no_state(job_key, err);
    }
    status = tally_memory_job_add_change(job, round, bytes, n);
    if (status == TALLY_ALREADY_EXISTS) {
        return tally_fail(err, status, NULL, "what round %lld changed is there", (long long)round);
    }
    return status == TALLY_OK ? status : fail_no_memory(memory_of(store), err);
}

static enum tally_status memory_update_insert(struct tally_store *store, int64_t job_key,
                                              const struct tally_store_update *update,
                                              struct tally_error *err)
{
    struct tally_memory_job *job = NULL;
    enum tally_status status = open_job(memory_of(store), job_key, &job, err);
    if (status != TALLY_OK) {
        return status;
    }
    status = tally_memory_job_add_update(job, update);
    if (status == TALLY_ALREADY_EXISTS) {
        return tally_fail(err, status, NULL, "update of round %lld, client %u exists",
                          (long long)update->round, update->client);
    }
    return status == TALLY_OK ? status : fail_no_memory(memory_of(store), err);
}

static enum tally_status memory_updates_delete(struct tally_store *store, int64_t job_key,
                                               int64_t through_round, struct tally_error *err)
{
    struct memory_store *memory = memory_of(store);
    enum tally_status status = require_bracket(memory, err);
    if (status != TALLY_OK || find_key(memory, job_key) == NULL) {
        return status;
    }
    struct tally_memory_job *job = NULL;
    status = open_job(memory, job_key, &job, err);
    if (status == TALLY_OK) {
        tally_memory_job_drop_updates(job, through_round);
    }
    return status;
}

static enum tally_status memory_round_insert(struct tally_store *store, int64_t job_key,
                                             const struct tally_round_record *record,
                                             struct tally_error *err)
{
    struct tally_memory_job *job = NULL;
    enum tally_status status = open_job(memory_of(store), job_key, &job, err);
    if (status != TALLY_OK) {
        return status;
    }
    status = tally_memory_job_add_round(job, record);
    if (status == TALLY_ALREADY_EXISTS) {
        return tally_fail(err, status, NULL, "record of round %lld exists",
                          (long long)record->round);
    }
    return status == TALLY_OK ? status : fail_no_memory(memory_of(store), err);
}

static enum tally_status memory_job_get(struct tally_store *store, const char *id,
                                        struct tally_store_job *ret_job, struct tally_error *err)
{
    const struct tally_memory_job *job = find_id(memory_of(store), id);
    if (job == NULL) {
        return tally_fail(err, TALLY_NOT_FOUND, NULL, "no job \"%s\"", id);
    }
    *ret_job = job->now->job;
    return TALLY_OK;
}

static enum tally_status memory_job_by_idempotency_key(struct tally_store *store,
                                                       const char *idempotency_key,
                                                       struct tally_store_job *ret_job,
                                                       uint64_t *ret_request_digest,
                                                       struct tally_error *err)
{
    const struct tally_memory_job *job = find_idempotency_key(memory_of(store), idempotency_key);
    if (job == NULL) {
        return tally_fail(err, TALLY_NOT_FOUND, NULL, "no job with idempotency key \"%s\"",
                          idempotency_key);
    }
    *ret_job = job->now->job;
    *ret_request_digest = job->request_digest;
    return TALLY_OK;
}

static enum tally_status memory_request_get(struct tally_store *store, int64_t job_key,
                                            struct tally_buffer *out, bool *ret_has_key,
                                            uint64_t *ret_request_digest, struct tally_error *err)
{
    const struct tally_memory_job *job = find_key(memory_of(store), job_key);
    if (job == NULL) {
        return fail_no_job(job_key, err);
    }
    const char *key = job->idempotency_key;
    enum tally_status status = key != NULL ? tally_buffer_append_text(out, key) : TALLY_OK;
    if (status != TALLY_OK) {
        return tally_fail(err, status, NULL, "cannot take an idempotency key");
    }
    *ret_has_key = key != NULL;
    *ret_request_digest = job->request_digest;
    return TALLY_OK;
}

static enum tally_status memory_job_list(struct tally_store *store, int status, int64_t before_key,
                                         int64_t limit, tally_store_job_fn *each, void *context,
                                         struct tally_error *err)
{
    const struct memory_store *memory = memory_of(store);
    int64_t n = 0;
    for (size_t i = memory->n_jobs; i-- > 0 && n < limit;) {
        const struct tally_store_job *job = &memory->jobs[i]->now->job;
        if (job->key < before_key && (status < 0 || (int)job->status == status)) {
            enum tally_status stopped = each(context, job, err);
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
    const struct memory_store *memory = memory_of(store);
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; i < memory->n_jobs && status == TALLY_OK; i++) {
        const struct tally_store_job *job = &memory->jobs[i]->now->job;
        if (!tally_job_status_is_terminal(job->status)) {
            status = each(context, job, err);
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
    const struct tally_memory_job *job = find_key(memory_of(store), job_key);
    return job != NULL ? append(out, job->document, err) : fail_no_job(job_key, err);
}

static enum tally_status memory_state_get(struct tally_store *store, int64_t job_key,
                                          struct tally_buffer *out, struct tally_error *err)
{
    const struct tally_memory_job *job = find_key(memory_of(store), job_key);
    if (job == NULL || job->now->state == NULL) {
        return fail_no_state(job_key, err);
    }
    enum tally_status status = append(out, job->now->state, err);
    for (size_t i = 0; i < job->now->n_changes && status == TALLY_OK; i++) {
        status = append(out, job->now->changes[i].bytes, err);
    }
    return status;
}

static enum tally_status memory_update_list(struct tally_store *store, int64_t job_key,
                                            int64_t round, tally_store_update_fn *each,
                                            void *context, struct tally_error *err)
{
    const struct tally_memory_job *job = find_key(memory_of(store), job_key);
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; job != NULL && i < job->now->n_updates && status == TALLY_OK; i++) {
        const struct tally_memory_update *update = &job->now->updates[i];
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

static enum tally_status memory_round_list(struct tally_store *store, int64_t job_key,
                                           int64_t after_round, int64_t limit,
                                           tally_store_round_fn *each, void *context,
                                           struct tally_error *err)
{
    const struct tally_memory_job *job = find_key(memory_of(store), job_key);
    int64_t n = 0;
    for (size_t i = 0; job != NULL && i < job->n_rounds && n < limit; i++) {
        if (job->rounds[i].record.round > after_round) {
            enum tally_status status = each(context, &job->rounds[i].record, err);
            if (status != TALLY_OK) {
                return status;
            }
            n++;
        }
    }
    return TALLY_OK;
}

/* Every write has told at once. */
static enum tally_status memory_flush(struct tally_store *store, struct tally_error *err)
{
    (void)store;
    (void)err;
    return TALLY_OK;
}

static enum tally_status memory_check(struct tally_store *store, struct tally_error *err)
{
    (void)store;
    (void)err;
    return TALLY_OK;
}

static const struct tally_store_ops MEMORY_OPS = {
    .name = "memory",
    .close = memory_close,
    .begin = memory_begin,
    .commit = memory_commit,
    .rollback = memory_rollback,
    .job_insert = memory_job_insert,
    .job_update = memory_job_update,
    .state_put = memory_state_put,
    .state_append = memory_state_append,
    .update_insert = memory_update_insert,
    .updates_delete = memory_updates_delete,
    .round_insert = memory_round_insert,
    .job_get = memory_job_get,
    .job_by_idempotency_key = memory_job_by_idempotency_key,
    .request_get = memory_request_get,
    .job_list = memory_job_list,
    .job_list_live = memory_job_list_live,
    .document_get = memory_document_get,
    .state_get = memory_state_get,
    .update_list = memory_update_list,
    .round_list = memory_round_list,
    .flush = memory_flush,
    .check = memory_check,
};

enum tally_status tally_store_memory_open(struct tally_store **ret_store, struct tally_error *err)
{
    struct memory_store *memory = calloc(1, sizeof *memory);
    if (memory == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the in-memory store");
    }
    memory->base.ops = &MEMORY_OPS;
    *ret_store = &memory->base;
    return TALLY_OK;
}
