/* sqlite_read: the slots that read. Each takes the prepared statement, binds, and walks its rows.
 */
#include "storage/sqlite/sqlite_internal.h"

/* job_key and the job's columns. */
static void take_job(struct tally_sql_row *row, struct tally_store_job *ret_job)
{
    *ret_job = (struct tally_store_job){.key = tally_sql_take_int64(row)};
    tally_sql_take_columns(row, &TALLY_JOB_COLUMNS, ret_job);
}

enum tally_status tally_sqlite_job_get(struct tally_store *store, const char *id,
                                       struct tally_store_job *ret_job, struct tally_error *err)
{
    struct tally_sql_call call = tally_sql_call(sqlite_of(store), TALLY_SQL_JOB_GET);
    tally_sql_bind_text(&call, 1, id);
    struct tally_sql_row row = tally_sql_row(&call, err);
    struct tally_store_job job;
    if (tally_sql_walk(&call, &row.status, err)) {
        take_job(&row, &job);
    } else if (row.status == TALLY_OK) {
        row.status = tally_fail(err, TALLY_NOT_FOUND, NULL, "no job \"%s\"", id);
    }
    if (row.status == TALLY_OK) {
        *ret_job = job;
    }
    tally_sql_end(&call);
    return row.status;
}

enum tally_status tally_sqlite_job_by_idempotency_key(struct tally_store *store,
                                                      const char *idempotency_key,
                                                      struct tally_store_job *ret_job,
                                                      uint64_t *ret_request_digest,
                                                      struct tally_error *err)
{
    struct tally_sql_call call = tally_sql_call(sqlite_of(store), TALLY_SQL_JOB_BY_IDEMPOTENCY_KEY);
    tally_sql_bind_text(&call, 1, idempotency_key);
    struct tally_sql_row row = tally_sql_row(&call, err);
    struct tally_store_job job;
    uint64_t digest = 0;
    if (tally_sql_walk(&call, &row.status, err)) {
        take_job(&row, &job);
        digest = (uint64_t)tally_sql_take_int64(&row);
    } else if (row.status == TALLY_OK) {
        row.status = tally_fail(err, TALLY_NOT_FOUND, NULL, "no job with idempotency key \"%s\"",
                                idempotency_key);
    }
    if (row.status == TALLY_OK) {
        *ret_job = job;
        *ret_request_digest = digest;
    }
    tally_sql_end(&call);
    return row.status;
}

enum tally_status tally_sqlite_request_get(struct tally_store *store, int64_t job_key,
                                           struct tally_buffer *out, bool *ret_has_key,
                                           uint64_t *ret_request_digest, struct tally_error *err)
{
    struct tally_sql_call call = tally_sql_call(sqlite_of(store), TALLY_SQL_REQUEST_GET);
    tally_sql_bind_int64(&call, 1, job_key);
    struct tally_sql_row row = tally_sql_row(&call, err);
    if (!tally_sql_walk(&call, &row.status, err)) {
        tally_sql_end(&call);
        return row.status == TALLY_OK ? tally_sqlite_fail_no_job(job_key, err) : row.status;
    }
    const bool has_key = sqlite3_column_type(call.statement, 1) != SQLITE_NULL;
    const uint64_t digest = (uint64_t)tally_sql_take_int64(&row);
    size_t n_key = 0;
    const void *key = has_key ? tally_sql_take_bytes(&row, &n_key) : "";
    if (row.status == TALLY_OK && tally_buffer_append(out, key, n_key) != TALLY_OK) {
        row.status = tally_fail(err, TALLY_NO_MEMORY, NULL, "cannot take %zu bytes", n_key);
    }
    if (row.status == TALLY_OK) {
        *ret_has_key = has_key;
        *ret_request_digest = digest;
    }
    tally_sql_end(&call);
    return row.status;
}

static enum tally_status walk_jobs(struct tally_sql_call *call, tally_store_job_fn *each,
                                   void *context, struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    while (tally_sql_walk(call, &status, err)) {
        struct tally_store_job job;
        struct tally_sql_row row = tally_sql_row(call, err);
        take_job(&row, &job);
        status = row.status == TALLY_OK ? each(context, &job, err) : row.status;
    }
    tally_sql_end(call);
    return status;
}

enum tally_status tally_sqlite_job_list(struct tally_store *store, int status, int64_t before_key,
                                        int64_t limit, tally_store_job_fn *each, void *context,
                                        struct tally_error *err)
{
    struct tally_sql_call call = tally_sql_call(sqlite_of(store), TALLY_SQL_JOB_LIST);
    tally_sql_bind_int64(&call, 1, before_key);
    tally_sql_bind_text(&call, 2, tally_status_filter(status));
    tally_sql_bind_int64(&call, 3, limit);
    return walk_jobs(&call, each, context, err);
}

enum tally_status tally_sqlite_job_list_live(struct tally_store *store, tally_store_job_fn *each,
                                             void *context, struct tally_error *err)
{
    struct tally_sql_call call = tally_sql_call(sqlite_of(store), TALLY_SQL_JOB_LIST_LIVE);
    return walk_jobs(&call, each, context, err);
}

/* Appends the values that the call gives, and returns whether there were any. */
static enum tally_status append_values(struct tally_sql_call *call, struct tally_buffer *out,
                                       bool *ret_any, struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    *ret_any = false;
    while (tally_sql_walk(call, &status, err)) {
        size_t n = 0;
        struct tally_sql_row row = tally_sql_row(call, err);
        const void *bytes = tally_sql_take_bytes(&row, &n);
        *ret_any = true;
        status = row.status;
        if (status == TALLY_OK) {
            status = tally_buffer_append(out, bytes, n);
            if (status != TALLY_OK) {
                tally_fail(err, status, NULL, "cannot take %zu bytes", n);
            }
        }
    }
    tally_sql_end(call);
    return status;
}

/* Appends the one value that `which` gives for a job. */
static enum tally_status append_bytes(struct tally_store *store, enum tally_sql which,
                                      const char *what, int64_t job_key, struct tally_buffer *out,
                                      struct tally_error *err)
{
    bool is_there = false;
    struct tally_sql_call call = tally_sql_call(sqlite_of(store), which);
    tally_sql_bind_int64(&call, 1, job_key);
    enum tally_status status = append_values(&call, out, &is_there, err);
    return status == TALLY_OK && !is_there
               ? tally_fail(err, TALLY_NOT_FOUND, NULL, "no %s for job key %lld", what,
                            (long long)job_key)
               : status;
}

enum tally_status tally_sqlite_document_get(struct tally_store *store, int64_t job_key,
                                            struct tally_buffer *out, struct tally_error *err)
{
    return append_bytes(store, TALLY_SQL_DOCUMENT_GET, "document", job_key, out, err);
}

enum tally_status tally_sqlite_state_get(struct tally_store *store, int64_t job_key,
                                         struct tally_buffer *out, struct tally_error *err)
{
    bool has_changes = false;
    enum tally_status status = append_bytes(store, TALLY_SQL_STATE_GET, "state", job_key, out, err);
    if (status != TALLY_OK) {
        return status;
    }
    struct tally_sql_call call = tally_sql_call(sqlite_of(store), TALLY_SQL_CHANGES_GET);
    tally_sql_bind_int64(&call, 1, job_key);
    return append_values(&call, out, &has_changes, err);
}

/* Reads round, client, body; the body is borrowed until the next step. */
static enum tally_status read_update(const struct tally_sql_call *call,
                                     struct tally_store_update *ret_update, struct tally_error *err)
{
    struct tally_sql_row row = tally_sql_row(call, err);
    ret_update->round = tally_sql_take_int64(&row);
    const int64_t client = tally_sql_take_int64(&row);
    ret_update->body = tally_sql_take_bytes(&row, &ret_update->n_body);
    ret_update->client = (uint32_t)client;
    return row.status == TALLY_OK && (client < 0 || client > UINT32_MAX)
               ? tally_fail(err, TALLY_DATA_LOSS, NULL,
                            "database \"%s\": updates.client holds %lld", call->sqlite->path,
                            (long long)client)
               : row.status;
}

enum tally_status tally_sqlite_update_list(struct tally_store *store, int64_t job_key,
                                           int64_t round, tally_store_update_fn *each,
                                           void *context, struct tally_error *err)
{
    struct tally_sql_call call = tally_sql_call(sqlite_of(store), TALLY_SQL_UPDATE_LIST);
    tally_sql_bind_int64(&call, 1, job_key);
    tally_sql_bind_int64(&call, 2, round);
    enum tally_status status = TALLY_OK;
    while (tally_sql_walk(&call, &status, err)) {
        struct tally_store_update update = {0};
        status = read_update(&call, &update, err);
        if (status == TALLY_OK) {
            status = each(context, &update, err);
        }
    }
    tally_sql_end(&call);
    return status;
}

enum tally_status tally_sqlite_round_list(struct tally_store *store, int64_t job_key,
                                          int64_t after_round, int64_t limit,
                                          tally_store_round_fn *each, void *context,
                                          struct tally_error *err)
{
    struct tally_sql_call call = tally_sql_call(sqlite_of(store), TALLY_SQL_ROUND_LIST);
    tally_sql_bind_int64(&call, 1, job_key);
    tally_sql_bind_int64(&call, 2, after_round);
    tally_sql_bind_int64(&call, 3, limit);
    enum tally_status status = TALLY_OK;
    while (tally_sql_walk(&call, &status, err)) {
        struct tally_round_record record = {0};
        struct tally_sql_row row = tally_sql_row(&call, err);
        tally_sql_take_columns(&row, &TALLY_ROUND_COLUMNS, &record);
        status = row.status == TALLY_OK ? each(context, &record, err) : row.status;
    }
    tally_sql_end(&call);
    return status;
}

enum tally_status tally_sqlite_model_list(struct tally_store *store, int64_t job_key,
                                          tally_store_model_fn *each, void *context,
                                          struct tally_error *err)
{
    struct tally_sql_call call = tally_sql_call(sqlite_of(store), TALLY_SQL_MODEL_LIST);
    tally_sql_bind_int64(&call, 1, job_key);
    enum tally_status status = TALLY_OK;
    while (tally_sql_walk(&call, &status, err)) {
        struct tally_store_model model = {0};
        struct tally_sql_row row = tally_sql_row(&call, err);
        tally_sql_take_columns(&row, &TALLY_MODEL_COLUMNS, &model);
        status = row.status == TALLY_OK ? each(context, &model, err) : row.status;
    }
    tally_sql_end(&call);
    return status;
}

enum tally_status tally_sqlite_model_get(struct tally_store *store, int64_t job_key, int64_t slot,
                                         struct tally_buffer *out, struct tally_error *err)
{
    struct tally_sql_call call = tally_sql_call(sqlite_of(store), TALLY_SQL_POINT_GET);
    tally_sql_bind_int64(&call, 1, job_key);
    tally_sql_bind_int64(&call, 2, slot);
    bool is_there = false;
    enum tally_status status = append_values(&call, out, &is_there, err);
    return status == TALLY_OK && !is_there
               ? tally_fail(err, TALLY_NOT_FOUND, NULL, "no model %lld of job key %lld",
                            (long long)slot, (long long)job_key)
               : status;
}
