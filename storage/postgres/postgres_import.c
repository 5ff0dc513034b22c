/* postgres_import: import.h for PostgreSQL.
 *
 * The mark is a row of the table import_mark, with the checksum of the source. Whoever fills the
 * database holds an advisory lock for as long as its connection stands, and makes no second one: a
 * process that was cut off cannot come back and write beside its successor. */
#include "storage/import.h"

#include <inttypes.h>
#include <string.h>

#include "storage/postgres/postgres_internal.h"

enum tally_status tally_pg_require_no_import(struct tally_postgres *pg, struct tally_error *err)
{
    int64_t n_marks = 0;
    enum tally_status status = tally_pg_ask(pg, "SELECT count(*) FROM import_mark", &n_marks, err);
    if (status == TALLY_OK && n_marks > 0) {
        status = tally_fail(err, TALLY_FAILED_PRECONDITION, NULL,
                            "database \"%s\" holds only a part of another store: run tally migrate "
                            "again, which completes it",
                            pg->label);
    }
    return status;
}

/* Waits as long as a lock may, in which the session of a killed predecessor ends. */
static enum tally_status take_lock(struct tally_postgres *pg, struct tally_error *err)
{
    static const char *const LOCK[] = {
        "SELECT pg_advisory_lock(hashtextextended('tally_import ' || current_schema(), 0))", NULL};
    static const char LOCK_NOT_AVAILABLE[] = "55P03"; /* lock_timeout */
    struct tally_error why = TALLY_ERROR_INIT;
    enum tally_status status = tally_pg_exec(pg, LOCK, &why);
    if (status == TALLY_OK) {
        return TALLY_OK;
    }
    return strcmp(pg->sqlstate, LOCK_NOT_AVAILABLE) == 0
               ? tally_fail(err, TALLY_FAILED_PRECONDITION, NULL,
                            "database \"%s\": another migration into it is under way", pg->label)
               : tally_fail(err, status, NULL, "%s", why.message);
}

/* By the clock on the wall: a replica that died alone counts as alive for the others for as long as
 * nobody else renews. */
static enum tally_status require_no_replica(struct tally_postgres *pg, struct tally_error *err)
{
    int64_t n_replicas = 0;
    enum tally_status status = tally_pg_ask(
        pg, "SELECT count(*) FROM replicas WHERE is_member AND expires_at >= clock_timestamp()",
        &n_replicas, err);
    if (status == TALLY_OK && n_replicas > 0) {
        status = tally_fail(err, TALLY_FAILED_PRECONDITION, NULL,
                            "database \"%s\": a coordinator uses it; stop it first", pg->label);
    }
    return status;
}

static enum tally_status set_mark(struct tally_postgres *pg, uint64_t source,
                                  struct tally_error *err)
{
    char sql[80];
    /* An integer of the database has a sign: the same bits. */
    snprintf(sql, sizeof sql, "INSERT INTO import_mark VALUES (x'%016" PRIx64 "'::int8)", source);
    const char *const statements[] = {sql, NULL};
    return tally_pg_exec(pg, statements, err);
}

/* In a transaction that keeps replicas from joining. */
static enum tally_status look(struct tally_postgres *pg, uint64_t source,
                              enum tally_import_start *ret_start, struct tally_error *err)
{
    int64_t n_marks = 0;
    int64_t mark = 0;
    int64_t has_jobs = 0;
    enum tally_status status = require_no_replica(pg, err);
    if (status == TALLY_OK) {
        status = tally_pg_ask(pg, "SELECT count(*) FROM import_mark", &n_marks, err);
    }
    if (status == TALLY_OK && n_marks > 0) {
        status = tally_pg_ask(pg, "SELECT source FROM import_mark", &mark, err);
    }
    if (status == TALLY_OK && n_marks > 0 && (uint64_t)mark != source) {
        status = tally_fail(err, TALLY_FAILED_PRECONDITION, NULL,
                            "database \"%s\" holds a part of another store, or of this one at "
                            "another time: empty it, and migrate again",
                            pg->label);
    }
    if (status == TALLY_OK && n_marks > 0) {
        *ret_start = TALLY_IMPORT_RESUMED;
        return TALLY_OK;
    }
    if (status == TALLY_OK) {
        status = tally_pg_ask(pg, "SELECT EXISTS (SELECT FROM jobs)::int::bigint", &has_jobs, err);
    }
    if (status == TALLY_OK && has_jobs == 0) {
        status = set_mark(pg, source, err);
    }
    if (status == TALLY_OK) {
        *ret_start = has_jobs != 0 ? TALLY_IMPORT_OCCUPIED : TALLY_IMPORT_BEGUN;
    }
    return status;
}

static enum tally_status import_begin(struct tally_store *store, uint64_t source,
                                      enum tally_import_start *ret_start, struct tally_error *err)
{
    static const char *const BEGIN[] = {"BEGIN", "SELECT FROM lease_turn FOR UPDATE", NULL};
    static const char *const COMMIT[] = {"COMMIT", NULL};
    static const char *const ROLLBACK[] = {"ROLLBACK", NULL};
    struct tally_postgres *pg = postgres_of(store);
    enum tally_status status = tally_pg_require_connection(pg, err);
    if (status == TALLY_OK) {
        status = take_lock(pg, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    status = tally_pg_exec(pg, BEGIN, err);
    if (status == TALLY_OK) {
        status = look(pg, source, ret_start, err);
    }
    if (status == TALLY_OK) {
        status = tally_pg_exec(pg, COMMIT, err);
    }
    if (status != TALLY_OK && pg->connection != NULL) {
        tally_pg_exec(pg, ROLLBACK, NULL);
    }
    return status;
}

static enum tally_status import_end(struct tally_store *store, struct tally_error *err)
{
    static const char *const END[] = {"DELETE FROM import_mark", NULL};
    struct tally_postgres *pg = postgres_of(store);
    enum tally_status status = tally_pg_require_connection(pg, err);
    return status == TALLY_OK ? tally_pg_exec(pg, END, err) : status;
}

static enum tally_status import_job_insert(struct tally_store *store,
                                           const struct tally_store_job *job, const char *document,
                                           size_t n_document, const char *idempotency_key,
                                           uint64_t request_digest, struct tally_error *err)
{
    struct tally_pg_call call = tally_pg_call(TALLY_PG_JOB_INSERT);
    tally_pg_bind_int64(&call, job->key);
    tally_pg_bind_text(&call, idempotency_key);
    tally_pg_bind_uint64(&call, request_digest);
    tally_pg_bind_bytes(&call, document, n_document);
    tally_pg_bind_null(&call); /* nobody leads it */
    tally_pg_bind_row(&call, &TALLY_JOB_COLUMNS, job, false);
    return tally_pg_transaction_add(postgres_of(store), &call, job->key, err);
}

const struct tally_store_import TALLY_PG_IMPORT = {
    .begin = import_begin,
    .job_insert = import_job_insert,
    .end = import_end,
};
