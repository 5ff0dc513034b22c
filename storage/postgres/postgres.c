/* postgres: the store of several coordinators, a PostgreSQL database. DESIGN.md has the schema, the
 * fence and what a crash leaves. */
#include <stdlib.h>

#include "storage/postgres/postgres.h"
#include "storage/postgres/postgres_internal.h"

static void postgres_close(struct tally_store *store)
{
    if (store != NULL) {
        struct tally_postgres *pg = postgres_of(store);
        tally_pg_rollback(store);
        tally_pg_fini(pg);
        tally_lease_set_fini(&pg->held);
        free(pg);
    }
}

static enum tally_status postgres_job_insert(struct tally_store *store,
                                             const struct tally_store_job *job,
                                             const char *document, size_t n_document,
                                             const char *idempotency_key, uint64_t request_digest,
                                             int64_t *ret_key, struct tally_error *err)
{
    struct tally_postgres *pg = postgres_of(store);
    struct tally_pg_call call = tally_pg_call(TALLY_PG_JOB_INSERT);
    if (pg->filling) {
        tally_pg_bind_int64(&call, job->key);
    } else {
        tally_pg_bind_null(&call);
    }
    tally_pg_bind_text(&call, idempotency_key);
    tally_pg_bind_uint64(&call, request_digest);
    tally_pg_bind_bytes(&call, document, n_document);
    if (pg->number != 0) {
        tally_pg_bind_int64(&call, pg->number);
    } else {
        tally_pg_bind_null(&call);
    }
    tally_pg_bind_row(&call, &TALLY_JOB_COLUMNS, job, false);
    if (!pg->filling) {
        return tally_pg_transaction_insert_job(pg, &call, ret_key, err);
    }
    *ret_key = job->key;
    return tally_pg_transaction_add(pg, &call, job->key, err);
}

static enum tally_status postgres_job_update(struct tally_store *store,
                                             const struct tally_store_job *job,
                                             struct tally_error *err)
{
    struct tally_pg_call call = tally_pg_call(TALLY_PG_JOB_UPDATE);
    tally_pg_bind_int64(&call, job->key);
    tally_pg_bind_row(&call, &TALLY_JOB_COLUMNS, job, true);
    return tally_pg_transaction_add(postgres_of(store), &call, job->key, err);
}

static enum tally_status postgres_state_put(struct tally_store *store, int64_t job_key,
                                            const void *bytes, size_t n, struct tally_error *err)
{
    struct tally_pg_call call = tally_pg_call(TALLY_PG_STATE_PUT);
    tally_pg_bind_int64(&call, job_key);
    tally_pg_bind_bytes(&call, bytes, n);
    return tally_pg_transaction_add(postgres_of(store), &call, job_key, err);
}

static enum tally_status postgres_state_append(struct tally_store *store, int64_t job_key,
                                               int64_t round, const void *bytes, size_t n,
                                               struct tally_error *err)
{
    struct tally_pg_call call = tally_pg_call(TALLY_PG_STATE_APPEND);
    tally_pg_bind_int64(&call, job_key);
    tally_pg_bind_int64(&call, round);
    tally_pg_bind_bytes(&call, bytes, n);
    return tally_pg_transaction_add(postgres_of(store), &call, job_key, err);
}

static enum tally_status postgres_update_insert(struct tally_store *store, int64_t job_key,
                                                const struct tally_store_update *update,
                                                struct tally_error *err)
{
    struct tally_pg_call call = tally_pg_call(TALLY_PG_UPDATE_INSERT);
    tally_pg_bind_int64(&call, job_key);
    tally_pg_bind_int64(&call, update->round);
    tally_pg_bind_int64(&call, update->client);
    tally_pg_bind_bytes(&call, update->body, update->n_body);
    return tally_pg_transaction_add(postgres_of(store), &call, job_key, err);
}

static enum tally_status postgres_updates_delete(struct tally_store *store, int64_t job_key,
                                                 int64_t first_round, int64_t last_round,
                                                 struct tally_error *err)
{
    struct tally_pg_call call = tally_pg_call(TALLY_PG_UPDATES_DELETE);
    tally_pg_bind_int64(&call, job_key);
    tally_pg_bind_int64(&call, first_round);
    tally_pg_bind_int64(&call, last_round);
    return tally_pg_transaction_add(postgres_of(store), &call, job_key, err);
}

static enum tally_status postgres_job_delete(struct tally_store *store, int64_t job_key,
                                             struct tally_error *err)
{
    struct tally_pg_call call = tally_pg_call(TALLY_PG_JOB_DELETE);
    tally_pg_bind_int64(&call, job_key);
    return tally_pg_transaction_add(postgres_of(store), &call, job_key, err);
}

static enum tally_status postgres_round_insert(struct tally_store *store, int64_t job_key,
                                               const struct tally_round_record *record,
                                               struct tally_error *err)
{
    struct tally_pg_call call = tally_pg_call(TALLY_PG_ROUND_INSERT);
    tally_pg_bind_int64(&call, job_key);
    tally_pg_bind_row(&call, &TALLY_ROUND_COLUMNS, record, false);
    return tally_pg_transaction_add(postgres_of(store), &call, job_key, err);
}

static enum tally_status postgres_round_update(struct tally_store *store, int64_t job_key,
                                               const struct tally_round_record *record,
                                               struct tally_error *err)
{
    struct tally_pg_call call = tally_pg_call(TALLY_PG_ROUND_UPDATE);
    tally_pg_bind_int64(&call, job_key);
    tally_pg_bind_int64(&call, record->round);
    tally_pg_bind_row(&call, &TALLY_ROUND_COLUMNS, record, false);
    return tally_pg_transaction_add(postgres_of(store), &call, job_key, err);
}

static enum tally_status postgres_model_put(struct tally_store *store, int64_t job_key,
                                            const struct tally_store_model *model,
                                            const void *bytes, struct tally_error *err)
{
    struct tally_postgres *pg = postgres_of(store);
    struct tally_pg_call call = tally_pg_call(TALLY_PG_MODEL_PUT);
    tally_pg_bind_int64(&call, job_key);
    tally_pg_bind_row(&call, &TALLY_MODEL_COLUMNS, model, false);
    const enum tally_status status = tally_pg_transaction_add(pg, &call, job_key, err);
    if (status != TALLY_OK) {
        return status;
    }
    call = tally_pg_call(TALLY_PG_POINT_PUT);
    tally_pg_bind_int64(&call, job_key);
    tally_pg_bind_int64(&call, model->slot);
    tally_pg_bind_bytes(&call, bytes, (size_t)model->n_bytes);
    return tally_pg_transaction_add(pg, &call, job_key, err);
}

/* Performs a write that reaches the medium. */
static enum tally_status postgres_check(struct tally_store *store, struct tally_error *err)
{
    struct tally_postgres *pg = postgres_of(store);
    if (pg->transaction.is_open) { /* the transaction's commit is the check */
        return TALLY_OK;
    }
    enum tally_status status = tally_pg_require_connection(pg, err);
    if (status != TALLY_OK) {
        return status;
    }
    struct tally_pg_call call = tally_pg_call(TALLY_PG_CHECK);
    return tally_pg_run(pg, &call, NULL, err);
}

static struct tally_store_counters postgres_counters(const struct tally_store *store)
{
    return ((const struct tally_postgres *)store)->counters;
}

static const struct tally_store_ops POSTGRES_OPS = {
    .close = postgres_close,
    .begin = tally_pg_begin,
    .flush = tally_pg_flush,
    .commit = tally_pg_commit,
    .rollback = tally_pg_rollback,
    .job_insert = postgres_job_insert,
    .job_update = postgres_job_update,
    .state_put = postgres_state_put,
    .state_append = postgres_state_append,
    .update_insert = postgres_update_insert,
    .updates_delete = postgres_updates_delete,
    .job_delete = postgres_job_delete,
    .round_insert = postgres_round_insert,
    .round_update = postgres_round_update,
    .model_put = postgres_model_put,
    .job_get = tally_pg_job_get,
    .job_by_idempotency_key = tally_pg_job_by_idempotency_key,
    .request_get = tally_pg_request_get,
    .job_list = tally_pg_job_list,
    .job_list_live = tally_pg_job_list_live,
    .document_get = tally_pg_document_get,
    .state_get = tally_pg_state_get,
    .update_list = tally_pg_update_list,
    .round_list = tally_pg_round_list,
    .model_list = tally_pg_model_list,
    .model_get = tally_pg_model_get,
    .check = postgres_check,
    .counters = postgres_counters,
};

/* One snapshot for the life of the store object. */
static enum tally_status open_snapshot(struct tally_postgres *pg, struct tally_error *err)
{
    static const char *const BEGIN[] = {"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", NULL};
    bool is_empty = false;
    enum tally_status status = tally_pg_identify(pg, &is_empty, err);
    if (status == TALLY_OK && is_empty) {
        return tally_fail(err, TALLY_NOT_FOUND, NULL, "there is no store in database \"%s\"",
                          pg->label);
    }
    return status == TALLY_OK ? tally_pg_exec(pg, BEGIN, err) : status;
}

static enum tally_status init(struct tally_postgres *pg, const char *conninfo,
                              struct tally_error *err)
{
    enum tally_status status = tally_pg_init(pg, conninfo, err);
    if (status == TALLY_OK) {
        status = tally_pg_connect(pg, err);
    }
    if (status == TALLY_OK) {
        status = pg->read_only ? open_snapshot(pg, err) : tally_pg_create(pg, err);
    }
    return status == TALLY_OK ? tally_pg_prepare(pg, err) : status;
}

static enum tally_status postgres_open(const char *conninfo,
                                       const struct tally_store_options *options,
                                       struct tally_store **ret_store, struct tally_error *err)
{
    struct tally_postgres *pg = calloc(1, sizeof *pg);
    if (pg == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a database");
    }
    pg->base.ops = &POSTGRES_OPS;
    pg->base.leases = &TALLY_PG_LEASES;
    pg->read_only = options != NULL && options->read_only;
    pg->filling = options != NULL && options->filling;
    pg->is_opening = true;
    enum tally_status status = init(pg, conninfo, err);
    pg->is_opening = false;
    if (status != TALLY_OK) {
        postgres_close(&pg->base);
        return status;
    }
    *ret_store = &pg->base;
    return TALLY_OK;
}

static const char *const WHOLE_URIS[] = {"postgres://", "postgresql://", NULL};

const struct tally_store_backend TALLY_POSTGRES_BACKEND = {
    .scheme = "postgres:",
    .form = "postgres:CONNINFO",
    .whole_uris = WHOLE_URIS,
    .why_no_file = "a PostgreSQL database has no file of ours; use PostgreSQL's own tools, pg_dump "
                   "and pg_restore",
    .can_be_filled = true,
    .open = postgres_open,
    .label = tally_pg_label,
    .verify = tally_pg_verify,
};
