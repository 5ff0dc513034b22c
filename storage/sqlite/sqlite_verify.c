/* sqlite_verify: checks that a database is as it was written: its structure by SQLite's own check,
 * its rows by their checksums. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "storage/sqlite/sqlite_internal.h"

/* Instructions of SQLite's virtual machine, and rows, between two progress reports. */
enum { STEPS_PER_TELL = 1000000, ROWS_PER_TELL = 4096 };

static bool tell(const struct tally_store_progress *progress, const char *what, int64_t done,
                 int64_t total)
{
    return progress == NULL || progress->tell(progress->context, what, done, total);
}

static int on_steps(void *progress)
{
    return tell(progress, "structure", 0, 0) ? 0 : 1;
}

static enum tally_status fail_cancelled(const struct tally_sqlite *sqlite, struct tally_error *err)
{
    return tally_fail(err, TALLY_CANCELLED, NULL, "database \"%s\": the check was stopped",
                      sqlite->path);
}

/* Runs a pragma whose rows are faults, except the text "ok". */
static enum tally_status run_pragma(const struct tally_sqlite *sqlite, const char *sql, int column,
                                    const char *what, struct tally_error *err)
{
    sqlite3_stmt *statement = NULL;
    int rc = sqlite3_prepare_v2(sqlite->db, sql, -1, &statement, NULL);
    if (rc == SQLITE_OK) {
        rc = sqlite3_step(statement);
    }
    enum tally_status status = TALLY_OK;
    if (rc == SQLITE_ROW) {
        const char *text = (const char *)sqlite3_column_text(statement, column);
        if (text == NULL || strcmp(text, "ok") != 0) {
            int n = text != NULL ? (int)strcspn(text, "\n") : 0;
            /* "*** in database main ***" leads a list of faults; the first is on the next line. */
            const char *fault = text != NULL && strncmp(text, "***", 3) == 0 && text[n] == '\n'
                                    ? text + n + 1
                                    : text;
            status = tally_fail(err, TALLY_DATA_LOSS, NULL, "database \"%s\" is damaged: %s%.*s",
                                sqlite->path, what, fault != NULL ? (int)strcspn(fault, "\n") : 0,
                                fault != NULL ? fault : "");
        }
    } else if (rc == SQLITE_INTERRUPT) {
        status = fail_cancelled(sqlite, err);
    } else if (rc != SQLITE_DONE) {
        status = tally_sqlite_fail(sqlite, rc, err);
    }
    sqlite3_finalize(statement);
    return status;
}

enum tally_status tally_sqlite_check_structure(const struct tally_sqlite *sqlite,
                                               const struct tally_store_progress *progress,
                                               struct tally_error *err)
{
    if (progress != NULL) {
        sqlite3_progress_handler(sqlite->db, STEPS_PER_TELL, on_steps, (void *)(uintptr_t)progress);
    }
    enum tally_status status = run_pragma(sqlite, "PRAGMA integrity_check(1)", 0, "", err);
    if (status == TALLY_OK) {
        status = run_pragma(sqlite, "PRAGMA foreign_key_check", 0,
                            "a row without its job in the table ", err);
    }
    sqlite3_progress_handler(sqlite->db, 0, NULL, NULL);
    return status;
}

/* Counts the damaged rows of one table; `err` gets the first. */
static enum tally_status verify_rows(struct tally_sqlite *sqlite, enum tally_sql which,
                                     const char *what, int64_t total,
                                     const struct tally_store_progress *progress,
                                     int64_t *n_damaged, struct tally_error *err)
{
    struct tally_sql_call call = tally_sql_call(sqlite, which);
    enum tally_status status = TALLY_OK;
    for (int64_t n = 0; status == TALLY_OK; n++) {
        if (n % ROWS_PER_TELL == 0 && !tell(progress, what, n, total)) {
            status = fail_cancelled(sqlite, err);
            break;
        }
        if (tally_sql_walk(&call, &status, err)) {
            continue;
        }
        if (status != TALLY_DATA_LOSS || !sqlite3_stmt_busy(call.statement)) {
            break; /* the end, or nothing more can be read */
        }
        ++*n_damaged;
        status = TALLY_OK;
    }
    tally_sql_end(&call);
    return status;
}

static enum tally_status count_rows(const struct tally_sqlite *sqlite,
                                    struct tally_store_report *report, struct tally_error *err)
{
    const struct {
        const char *sql;
        int64_t *value;
    } counts[] = {
        {"SELECT count(*) FROM jobs", &report->n_jobs},
        {TALLY_SQL_COUNT_LIVE_JOBS, &report->n_live_jobs},
        {"SELECT count(*) FROM rounds", &report->n_rounds},
        {"SELECT count(*) FROM updates", &report->n_updates},
        {"SELECT count(*) FROM models", &report->n_models},
        {"SELECT count(*) FROM updates WHERE round < 1", &report->n_client_rows},
    };
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0] && status == TALLY_OK; i++) {
        status = tally_sqlite_query(sqlite, counts[i].sql, counts[i].value, err);
    }
    return status;
}

static int64_t file_size(const char *path)
{
    struct stat file;
    return stat(path, &file) == 0 ? (int64_t)file.st_size : 0;
}

/* SQLite overlooks a truncated last page. While there is a log, the file may lack pages. */
static enum tally_status require_whole_file(const struct tally_sqlite *sqlite,
                                            struct tally_store_report *report,
                                            struct tally_error *err)
{
    const char *name = sqlite3_db_filename(sqlite->db, "main");
    const int64_t n_file = file_size(name);
    const int64_t n_log = file_size(sqlite3_filename_wal(name));
    report->n_bytes = n_file + n_log;
    return n_log == 0 ? tally_sqlite_require_size(sqlite, n_file, err) : TALLY_OK;
}

static enum tally_status verify_all_rows(struct tally_sqlite *sqlite,
                                         const struct tally_store_report *report,
                                         const struct tally_store_progress *progress,
                                         struct tally_error *err)
{
    const struct {
        enum tally_sql which;
        const char *what;
        int64_t total;
    } tables[] = {
        {TALLY_SQL_VERIFY_JOBS, "jobs", report->n_jobs},
        {TALLY_SQL_VERIFY_DOCUMENTS, "job documents", report->n_jobs},
        {TALLY_SQL_VERIFY_STATES, "job states", report->n_jobs},
        {TALLY_SQL_VERIFY_CHANGES, "changes of job states", report->n_rounds},
        {TALLY_SQL_VERIFY_UPDATES, "updates", report->n_updates},
        {TALLY_SQL_VERIFY_ROUNDS, "rounds", report->n_rounds},
        {TALLY_SQL_VERIFY_MODELS, "models", report->n_models},
        {TALLY_SQL_VERIFY_POINTS, "points of models", report->n_models},
    };
    int64_t n_damaged = 0;
    struct tally_error first = TALLY_ERROR_INIT;
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; i < sizeof tables / sizeof tables[0] && status == TALLY_OK; i++) {
        status = verify_rows(sqlite, tables[i].which, tables[i].what, tables[i].total, progress,
                             &n_damaged, &first);
    }
    if (n_damaged > 0 && (status == TALLY_OK || status == TALLY_DATA_LOSS)) {
        return tally_fail(err, TALLY_DATA_LOSS, NULL, "%s; damaged rows in all: %lld",
                          first.message, (long long)n_damaged);
    }
    return status == TALLY_OK ? status : tally_fail(err, status, NULL, "%s", first.message);
}

enum tally_status tally_sqlite_verify_open(struct tally_sqlite *sqlite,
                                           const struct tally_store_progress *progress,
                                           struct tally_store_report *ret_report,
                                           struct tally_error *err)
{
    ret_report->schema_version = TALLY_SCHEMA_VERSION;
    enum tally_status status = tally_sqlite_exec(sqlite, "BEGIN", err); /* one snapshot */
    if (status != TALLY_OK) {
        return status;
    }
    status = require_whole_file(sqlite, ret_report, err);
    if (status == TALLY_OK) {
        status = tally_sqlite_check_structure(sqlite, progress, err);
    }
    if (status == TALLY_OK) {
        status = count_rows(sqlite, ret_report, err);
    }
    if (status == TALLY_OK) {
        status = verify_all_rows(sqlite, ret_report, progress, err);
    }
    tally_sqlite_exec(sqlite, "ROLLBACK", NULL);
    return status;
}

enum tally_status tally_sqlite_verify(const char *path, const struct tally_store_progress *progress,
                                      struct tally_store_report *ret_report,
                                      struct tally_error *err)
{
    struct tally_sqlite *sqlite = NULL;
    *ret_report = (struct tally_store_report){0};
    enum tally_status status = tally_sqlite_open_reader(path, &sqlite, err);
    if (status == TALLY_OK) {
        status = tally_sqlite_verify_open(sqlite, progress, ret_report, err);
    }
    tally_sqlite_close_reader(sqlite);
    return status;
}
