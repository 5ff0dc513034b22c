/* postgres_read: the slots that read.
 *
 * A walk takes a page of rows at a time and lets go of the connection before it calls anybody, so
 * that a callback may read, and so that no result is larger than a page. Outside of a transaction
 * the pages of a walk are not of one instant. */
#include <string.h>

#include "storage/postgres/postgres_internal.h"

enum {
    PAGE_ROWS = 1000,
    FIRST_PAGE_BODIES = 8, /* of updates, whose size is not known */
    PAGE_BYTES = 8 << 20,  /* that a page of updates is meant to have */
};

/* Runs a statement that reads; takes the call over. *ret_result is to be cleared. */
static enum tally_status read_rows(struct tally_postgres *pg, struct tally_pg_call *call,
                                   PGresult **ret_result, struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    if (pg->transaction.is_open) {
        status = tally_pg_transaction_flush(pg, err);
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

/* Walking a page at a time. */
struct walk {
    struct tally_postgres *pg;
    PGresult *page; /* NULL = none yet */
    int row;        /* the present one */
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

/* Takes the call over. */
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

/* The job in the first row, if there is one. */
static enum tally_status read_one_job(struct tally_postgres *pg, const PGresult *result,
                                      struct tally_store_job *ret_job, bool *ret_is_there,
                                      struct tally_error *err)
{
    *ret_is_there = PQntuples(result) > 0;
    return *ret_is_there ? tally_pg_read_job(pg, result, 0, ret_job, err) : TALLY_OK;
}

enum tally_status tally_pg_job_get(struct tally_store *store, const char *id,
                                   struct tally_store_job *ret_job, struct tally_error *err)
{
    struct tally_postgres *pg = postgres_of(store);
    struct tally_pg_call call = tally_pg_call(TALLY_PG_JOB_GET);
    tally_pg_bind_text(&call, id);
    PGresult *result = NULL;
    bool is_there = false;
    enum tally_status status = read_rows(pg, &call, &result, err);
    if (status == TALLY_OK) {
        status = read_one_job(pg, result, ret_job, &is_there, err);
    }
    if (status == TALLY_OK && !is_there) {
        status = tally_fail(err, TALLY_NOT_FOUND, NULL, "no job \"%s\"", id);
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
    bool is_there = false;
    int64_t digest = 0;
    struct tally_store_job job;
    enum tally_status status = read_rows(pg, &call, &result, err);
    if (status == TALLY_OK) {
        status = read_one_job(pg, result, &job, &is_there, err);
    }
    if (status == TALLY_OK && !is_there) {
        status = tally_fail(err, TALLY_NOT_FOUND, NULL, "no job with idempotency key \"%s\"",
                            idempotency_key);
    }
    if (status == TALLY_OK) {
        status = tally_pg_read_int64(pg, result, 0, 1 + TALLY_JOB_COLUMNS.n_columns, &digest, err);
    }
    if (status == TALLY_OK) {
        *ret_job = job;
        memcpy(ret_request_digest, &digest, sizeof digest); /* the same bits */
    }
    PQclear(result);
    return status;
}

/* Appends what is stored in the first column, as it was before it was encoded. */
static enum tally_status append_text(struct tally_postgres *pg, const PGresult *result,
                                     struct tally_buffer *out, struct tally_error *err)
{
    const size_t n = (size_t)PQgetlength(result, 0, 0);
    const size_t n_before = out->size;
    enum tally_status status = tally_buffer_reserve(out, n + 1);
    if (status != TALLY_OK) {
        return tally_fail(err, status, NULL, "cannot take %zu bytes", n);
    }
    char *text = (char *)out->data + n_before; /* not longer than its encoded form */
    if (!tally_pg_text_decode(PQgetvalue(result, 0, 0), n, text, n + 1)) {
        return tally_fail(err, TALLY_DATA_LOSS, NULL,
                          "database \"%s\": an idempotency key cannot be read", pg->label);
    }
    out->size = n_before + strlen(text);
    return status;
}

enum tally_status tally_pg_request_get(struct tally_store *store, int64_t job_key,
                                       struct tally_buffer *out, bool *ret_has_key,
                                       uint64_t *ret_request_digest, struct tally_error *err)
{
    struct tally_postgres *pg = postgres_of(store);
    struct tally_pg_call call = tally_pg_call(TALLY_PG_REQUEST_GET);
    tally_pg_bind_int64(&call, job_key);
    PGresult *result = NULL;
    int64_t digest = 0;
    enum tally_status status = read_rows(pg, &call, &result, err);
    if (status == TALLY_OK && PQntuples(result) == 0) {
        status = tally_fail(err, TALLY_NOT_FOUND, NULL, "no job with key %lld", (long long)job_key);
    }
    if (status == TALLY_OK) {
        status = tally_pg_read_int64(pg, result, 0, 1, &digest, err);
    }
    const bool has_key = status == TALLY_OK && PQgetisnull(result, 0, 0) == 0;
    if (has_key) {
        status = append_text(pg, result, out, err);
    }
    if (status == TALLY_OK) {
        *ret_has_key = has_key;
        memcpy(ret_request_digest, &digest, sizeof digest); /* the same bits */
    }
    PQclear(result);
    return status;
}

/* Calls `each` for the jobs of the page, and says which key was the last. */
static enum tally_status walk_jobs(struct walk *walk, tally_store_job_fn *each, void *context,
                                   int64_t *ret_last_key, struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    while (status == TALLY_OK && next_row(walk)) {
        struct tally_store_job job;
        status = tally_pg_read_job(walk->pg, walk->page, walk->row, &job, err);
        if (status == TALLY_OK) {
            *ret_last_key = job.key;
            status = each(context, &job, err);
        }
    }
    return status;
}

/* What to compare the status column with: NULL for any, "" for a number that is no status. */
static const char *status_filter(int status)
{
    if (status < 0) {
        return NULL;
    }
    return status < TALLY_N_JOB_STATUS ? tally_job_status_name((enum tally_job_status)status) : "";
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
        tally_pg_bind_text(&call, status_filter(status));
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

/* Appends the one value that `which` gives for a job. */
static enum tally_status append_bytes(struct tally_store *store, enum tally_pg_sql which,
                                      const char *what, int64_t job_key, struct tally_buffer *out,
                                      struct tally_error *err)
{
    struct tally_postgres *pg = postgres_of(store);
    struct tally_pg_call call = tally_pg_call(which);
    tally_pg_bind_int64(&call, job_key);
    PGresult *result = NULL;
    const uint8_t *bytes = NULL;
    size_t n = 0;
    enum tally_status status = read_rows(pg, &call, &result, err);
    if (status == TALLY_OK && PQntuples(result) == 0) {
        status = tally_fail(err, TALLY_NOT_FOUND, NULL, "no %s of a job with key %lld", what,
                            (long long)job_key);
    }
    if (status == TALLY_OK) {
        status = tally_pg_read_bytes(pg, result, 0, 0, &bytes, &n, err);
    }
    if (status == TALLY_OK) {
        status = tally_buffer_append(out, bytes, n);
        if (status != TALLY_OK) {
            tally_fail(err, status, NULL, "cannot take %zu bytes", n);
        }
    }
    PQclear(result);
    return status;
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
    int64_t client = 0;
    enum tally_status status =
        tally_pg_read_int64(walk->pg, walk->page, walk->row, 0, &ret_update->round, err);
    if (status == TALLY_OK) {
        status = tally_pg_read_int64(walk->pg, walk->page, walk->row, 1, &client, err);
    }
    if (status == TALLY_OK && (client < 0 || client > UINT32_MAX)) {
        status =
            tally_fail(err, TALLY_DATA_LOSS, NULL, "database \"%s\": updates.client holds %lld",
                       walk->pg->label, (long long)client);
    }
    if (status == TALLY_OK) {
        ret_update->client = (uint32_t)client;
        status = tally_pg_read_bytes(walk->pg, walk->page, walk->row, 2, &ret_update->body,
                                     &ret_update->n_body, err);
    }
    return status;
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
        /* As many as fit if the next are as large as these, but no sudden jump. */
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
            status = tally_pg_read_row(walk.pg, walk.page, walk.row, 0, &TALLY_ROUND_COLUMNS,
                                       &record, err);
            if (status == TALLY_OK) {
                after_round = record.round;
                status = each(context, &record, err);
            }
        }
    }
    close_walk(&walk);
    return status;
}
