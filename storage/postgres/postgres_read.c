/* postgres_read: the slots that read.
 *
 * A walk reads a page of rows at a time and has finished with the connection before it calls
 * `each`. So a callback may read, and no result is larger than a page. Outside a transaction the
 * pages of a walk are not one snapshot. */
#include <stdarg.h>
#include <string.h>

#include "storage/postgres/postgres_internal.h"

enum {
    PAGE_ROWS = 1000,
    FIRST_PAGE_BODIES = 8, /* of updates, whose size is not known yet */
    PAGE_BYTES = 8 << 20,  /* target size of a page of updates */
};

/* Runs a statement that reads; takes ownership of the call. The caller clears *ret_result. */
static enum tally_status read_rows(struct tally_postgres *pg, struct tally_pg_call *call,
                                   PGresult **ret_result, struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    if (pg->transaction.is_open) {
        status = tally_pg_flush(&pg->base, err);
    }
    if (status == TALLY_OK && !pg->transaction.is_begun) {
        status = tally_pg_require_connection(pg, err);
    }
    if (status != TALLY_OK) {
        tally_pg_call_fini(call);
        return status;
    }
    status = tally_pg_run(pg, call, ret_result, err);
    if (status != TALLY_OK) {
        pg->transaction.is_broken =
            true; /* the server has aborted its transaction, if there is one */
    }
    return status;
}

/* As read_rows(), and returns the first row. The message of NOT_FOUND is "no WHAT". */
static enum tally_status __attribute__((format(printf, 6, 7)))
read_one(struct tally_postgres *pg, struct tally_pg_call *call, PGresult **ret_result,
         struct tally_pg_row *ret_row, struct tally_error *err, const char *what, ...)
{
    enum tally_status status = read_rows(pg, call, ret_result, err);
    if (status == TALLY_OK && PQntuples(*ret_result) == 0) {
        char text[256];
        va_list arguments;
        va_start(arguments, what);
        vsnprintf(text, sizeof text, what, arguments);
        va_end(arguments);
        status = tally_fail(err, TALLY_NOT_FOUND, NULL, "no %s", text);
    }
    if (status == TALLY_OK) {
        *ret_row = tally_pg_row(pg, *ret_result, 0, err);
    }
    return status;
}

/* Walking a page at a time. */
struct walk {
    struct tally_postgres *pg;
    PGresult *page; /* NULL = none yet */
    int row;        /* the current one */
    int64_t wanted; /* rows of the page */
};

static void close_walk(struct walk *walk)
{
    PQclear(walk->page);
}

static bool next_row(struct walk *walk)
{
    walk->row++;
    return walk->page != NULL && walk->row < PQntuples(walk->page);
}

static bool was_last_page(const struct walk *walk)
{
    return walk->page != NULL && PQntuples(walk->page) < walk->wanted;
}

/* Reads the next page. Takes ownership of the call. */
static enum tally_status read_page(struct walk *walk, struct tally_pg_call *call,
                                   struct tally_error *err)
{
    PQclear(walk->page);
    walk->page = NULL;
    walk->row = -1;
    return read_rows(walk->pg, call, &walk->page, err);
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

enum tally_status tally_pg_job_get(struct tally_store *store, const char *id,
                                   struct tally_store_job *ret_job, struct tally_error *err)
{
    struct tally_postgres *pg = postgres_of(store);
    struct tally_pg_call call = tally_pg_call(TALLY_PG_JOB_GET);
    tally_pg_bind_text(&call, id);
    PGresult *result = NULL;
    struct tally_pg_row row;
    enum tally_status status = read_one(pg, &call, &result, &row, err, "job \"%s\"", id);
    if (status == TALLY_OK) {
        struct tally_store_job job;
        tally_pg_take_job(&row, &job);
        status = row.status;
        *ret_job = status == TALLY_OK ? job : *ret_job;
    }
    PQclear(result);
    return status;
}

enum tally_status tally_pg_job_by_idempotency_key(struct tally_store *store,
                                                  const char *idempotency_key,
                                                  struct tally_store_job *ret_job,
                                                  uint64_t *ret_request_digest,
                                                  struct tally_error *err)
{
    struct tally_postgres *pg = postgres_of(store);
    struct tally_pg_call call = tally_pg_call(TALLY_PG_JOB_BY_IDEMPOTENCY_KEY);
    tally_pg_bind_text(&call, idempotency_key);
    PGresult *result = NULL;
    struct tally_pg_row row;
    enum tally_status status =
        read_one(pg, &call, &result, &row, err, "job with idempotency key \"%s\"", idempotency_key);
    if (status == TALLY_OK) {
        struct tally_store_job job;
        tally_pg_take_job(&row, &job);
        const uint64_t digest = (uint64_t)tally_pg_take_int64(&row);
        status = row.status;
        if (status == TALLY_OK) {
            *ret_job = job;
            *ret_request_digest = digest;
        }
    }
    PQclear(result);
    return status;
}

/* Appends the next value, decoded. */
static enum tally_status append_text(struct tally_pg_row *row, struct tally_buffer *out)
{
    const size_t n_before = out->size;
    const size_t n = (size_t)PQgetlength(row->result, row->row, row->column);
    enum tally_status status = tally_buffer_reserve(out, n + 1);
    if (status != TALLY_OK) {
        return tally_fail(row->err, status, NULL, "cannot take %zu bytes", n);
    }
    char *text = (char *)out->data + n_before; /* not longer than its encoded form */
    tally_pg_take_text(row, text, n + 1);
    if (row->status == TALLY_OK) {
        out->size = n_before + strlen(text);
    }
    return row->status;
}

enum tally_status tally_pg_request_get(struct tally_store *store, int64_t job_key,
                                       struct tally_buffer *out, bool *ret_has_key,
                                       uint64_t *ret_request_digest, struct tally_error *err)
{
    struct tally_postgres *pg = postgres_of(store);
    struct tally_pg_call call = tally_pg_call(TALLY_PG_REQUEST_GET);
    tally_pg_bind_int64(&call, job_key);
    PGresult *result = NULL;
    struct tally_pg_row row;
    enum tally_status status =
        read_one(pg, &call, &result, &row, err, "job with key %lld", (long long)job_key);
    if (status == TALLY_OK) {
        const uint64_t digest = (uint64_t)tally_pg_take_int64(&row);
        const bool has_key = row.status == TALLY_OK && !tally_pg_is_null(&row);
        status = has_key ? append_text(&row, out) : row.status;
        if (status == TALLY_OK) {
            *ret_has_key = has_key;
            *ret_request_digest = digest;
        }
    }
    PQclear(result);
    return status;
}

/* Calls `each` for the jobs of the page, and returns the last key. */
static enum tally_status walk_jobs(struct walk *walk, tally_store_job_fn *each, void *context,
                                   int64_t *ret_last_key, struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    while (status == TALLY_OK && next_row(walk)) {
        struct tally_store_job job;
        struct tally_pg_row row = tally_pg_row(walk->pg, walk->page, walk->row, err);
        tally_pg_take_job(&row, &job);
        status = row.status;
        if (status == TALLY_OK) {
            *ret_last_key = job.key;
            status = each(context, &job, err);
        }
    }
    return status;
}

enum tally_status tally_pg_job_list(struct tally_store *store, int status, int64_t before_key,
                                    int64_t limit, tally_store_job_fn *each, void *context,
                                    struct tally_error *err)
{
    struct walk walk = {.pg = postgres_of(store)};
    enum tally_status result = TALLY_OK;
    while (result == TALLY_OK && limit > 0 && !was_last_page(&walk)) {
        struct tally_pg_call call = tally_pg_call(TALLY_PG_JOB_LIST);
        walk.wanted = smaller(limit, PAGE_ROWS);
        limit -= walk.wanted;
        tally_pg_bind_int64(&call, before_key);
        tally_pg_bind_text(&call, tally_status_filter(status));
        tally_pg_bind_int64(&call, walk.wanted);
        result = read_page(&walk, &call, err);
        if (result == TALLY_OK) {
            result = walk_jobs(&walk, each, context, &before_key, err);
        }
    }
    close_walk(&walk);
    return result;
}

enum tally_status tally_pg_job_list_live(struct tally_store *store, tally_store_job_fn *each,
                                         void *context, struct tally_error *err)
{
    struct walk walk = {.pg = postgres_of(store), .wanted = PAGE_ROWS};
    int64_t after_key = INT64_MIN;
    enum tally_status status = TALLY_OK;
    while (status == TALLY_OK && !was_last_page(&walk)) {
        struct tally_pg_call call = tally_pg_call(TALLY_PG_JOB_LIST_LIVE);
        tally_pg_bind_int64(&call, after_key);
        tally_pg_bind_int64(&call, walk.wanted);
        status = read_page(&walk, &call, err);
        if (status == TALLY_OK) {
            status = walk_jobs(&walk, each, context, &after_key, err);
        }
    }
    close_walk(&walk);
    return status;
}

/* Appends the single value that the call returns for a job. Takes ownership of the call. */
static enum tally_status append_value(struct tally_store *store, struct tally_pg_call *call,
                                      const char *what, int64_t job_key, struct tally_buffer *out,
                                      struct tally_error *err)
{
    PGresult *result = NULL;
    struct tally_pg_row row;
    enum tally_status status = read_one(postgres_of(store), call, &result, &row, err,
                                        "%s of a job with key %lld", what, (long long)job_key);
    if (status == TALLY_OK) {
        size_t n = 0;
        const uint8_t *bytes = tally_pg_take_bytes(&row, &n);
        status = row.status == TALLY_OK ? tally_buffer_append(out, bytes, n) : row.status;
        if (status != TALLY_OK) {
            tally_fail(err, status, NULL, "cannot take %zu bytes", n);
        }
    }
    PQclear(result);
    return status;
}

static enum tally_status append_bytes(struct tally_store *store, enum tally_pg_sql which,
                                      const char *what, int64_t job_key, struct tally_buffer *out,
                                      struct tally_error *err)
{
    struct tally_pg_call call = tally_pg_call(which);
    tally_pg_bind_int64(&call, job_key);
    return append_value(store, &call, what, job_key, out, err);
}

enum tally_status tally_pg_document_get(struct tally_store *store, int64_t job_key,
                                        struct tally_buffer *out, struct tally_error *err)
{
    return append_bytes(store, TALLY_PG_DOCUMENT_GET, "document", job_key, out, err);
}

enum tally_status tally_pg_state_get(struct tally_store *store, int64_t job_key,
                                     struct tally_buffer *out, struct tally_error *err)
{
    return append_bytes(store, TALLY_PG_STATE_GET, "state", job_key, out, err);
}

/* Reads round, client, body; the body is borrowed from the page. */
static enum tally_status read_update(const struct walk *walk, struct tally_store_update *ret_update,
                                     struct tally_error *err)
{
    struct tally_pg_row row = tally_pg_row(walk->pg, walk->page, walk->row, err);
    ret_update->round = tally_pg_take_int64(&row);
    const int64_t client = tally_pg_take_int64(&row);
    ret_update->body = tally_pg_take_bytes(&row, &ret_update->n_body);
    if (row.status == TALLY_OK && (client < 0 || client > UINT32_MAX)) {
        return tally_fail(err, TALLY_DATA_LOSS, NULL, "database \"%s\": updates.client holds %lld",
                          walk->pg->label, (long long)client);
    }
    ret_update->client = (uint32_t)client;
    return row.status;
}

static enum tally_status walk_updates(struct walk *walk, tally_store_update_fn *each, void *context,
                                      int64_t *ret_last_client, size_t *ret_n_bytes,
                                      struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    *ret_n_bytes = 0;
    while (status == TALLY_OK && next_row(walk)) {
        struct tally_store_update update = {0};
        status = read_update(walk, &update, err);
        if (status == TALLY_OK) {
            *ret_last_client = update.client;
            *ret_n_bytes += update.n_body;
            status = each(context, &update, err);
        }
    }
    return status;
}

enum tally_status tally_pg_update_list(struct tally_store *store, int64_t job_key, int64_t round,
                                       tally_store_update_fn *each, void *context,
                                       struct tally_error *err)
{
    struct walk walk = {.pg = postgres_of(store), .wanted = FIRST_PAGE_BODIES};
    int64_t after_client = INT64_MIN;
    enum tally_status status = TALLY_OK;
    for (;;) {
        struct tally_pg_call call = tally_pg_call(TALLY_PG_UPDATE_LIST);
        tally_pg_bind_int64(&call, job_key);
        tally_pg_bind_int64(&call, round);
        tally_pg_bind_int64(&call, after_client);
        tally_pg_bind_int64(&call, walk.wanted);
        size_t n_bytes = 0;
        status = read_page(&walk, &call, err);
        if (status == TALLY_OK) {
            status = walk_updates(&walk, each, context, &after_client, &n_bytes, err);
        }
        if (status != TALLY_OK || was_last_page(&walk)) {
            break;
        }
        /* As many as fit if the next ones are as large as these, but at most 8 times as many. */
        int64_t fit = (int64_t)(PAGE_BYTES / (n_bytes / (size_t)walk.wanted + 1)) + 1;
        walk.wanted = smaller(smaller(fit, 8 * walk.wanted), PAGE_ROWS);
    }
    close_walk(&walk);
    return status;
}

enum tally_status tally_pg_round_list(struct tally_store *store, int64_t job_key,
                                      int64_t after_round, int64_t limit,
                                      tally_store_round_fn *each, void *context,
                                      struct tally_error *err)
{
    struct walk walk = {.pg = postgres_of(store)};
    enum tally_status status = TALLY_OK;
    while (status == TALLY_OK && limit > 0 && !was_last_page(&walk)) {
        struct tally_pg_call call = tally_pg_call(TALLY_PG_ROUND_LIST);
        walk.wanted = smaller(limit, PAGE_ROWS);
        limit -= walk.wanted;
        tally_pg_bind_int64(&call, job_key);
        tally_pg_bind_int64(&call, after_round);
        tally_pg_bind_int64(&call, walk.wanted);
        status = read_page(&walk, &call, err);
        while (status == TALLY_OK && next_row(&walk)) {
            struct tally_round_record record = {0};
            struct tally_pg_row row = tally_pg_row(walk.pg, walk.page, walk.row, err);
            tally_pg_take_columns(&row, &TALLY_ROUND_COLUMNS, &record);
            status = row.status;
            if (status == TALLY_OK) {
                after_round = record.round;
                status = each(context, &record, err);
            }
        }
    }
    close_walk(&walk);
    return status;
}

enum tally_status tally_pg_model_list(struct tally_store *store, int64_t job_key,
                                      tally_store_model_fn *each, void *context,
                                      struct tally_error *err)
{
    struct walk walk = {.pg = postgres_of(store), .wanted = PAGE_ROWS};
    int64_t after_slot = INT64_MIN;
    enum tally_status status = TALLY_OK;
    while (status == TALLY_OK && !was_last_page(&walk)) {
        struct tally_pg_call call = tally_pg_call(TALLY_PG_MODEL_LIST);
        tally_pg_bind_int64(&call, job_key);
        tally_pg_bind_int64(&call, after_slot);
        tally_pg_bind_int64(&call, walk.wanted);
        status = read_page(&walk, &call, err);
        while (status == TALLY_OK && next_row(&walk)) {
            struct tally_store_model model = {0};
            struct tally_pg_row row = tally_pg_row(walk.pg, walk.page, walk.row, err);
            tally_pg_take_columns(&row, &TALLY_MODEL_COLUMNS, &model);
            status = row.status;
            if (status == TALLY_OK) {
                after_slot = model.slot;
                status = each(context, &model, err);
            }
        }
    }
    close_walk(&walk);
    return status;
}

enum tally_status tally_pg_model_get(struct tally_store *store, int64_t job_key, int64_t slot,
                                     struct tally_buffer *out, struct tally_error *err)
{
    struct tally_pg_call call = tally_pg_call(TALLY_PG_MODEL_GET);
    tally_pg_bind_int64(&call, job_key);
    tally_pg_bind_int64(&call, slot);
    return append_value(store, &call, "model", job_key, out, err);
}
