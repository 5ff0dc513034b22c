/* sqlite: the default store, one file or, for tests and trials, memory. DESIGN.md has the schema
 * and what a crash leaves.
 *
 * Every slot is: take the prepared statement, bind, run or walk. */
#include <assert.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "storage/sqlite/sqlite.h"
#include "storage/sqlite/sqlite_internal.h"

static bool log_has_moved(const struct tally_sqlite *sqlite)
{
    struct stat file;
    return sqlite->log.inode != 0 &&
           (stat(sqlite3_filename_wal(sqlite3_db_filename(sqlite->db, "main")), &file) != 0 ||
            file.st_dev != sqlite->log.device || file.st_ino != sqlite->log.inode);
}

/* SQLite would continue with files that have lost their names, and all writes would be lost when
 * the process ends. A removed lock file keeps no other process out. The checks cost three stat()
 * per transaction. */
static enum tally_status require_file(const struct tally_sqlite *sqlite, struct tally_error *err)
{
    int has_moved = 0;
    sqlite3_file_control(sqlite->db, "main", SQLITE_FCNTL_HAS_MOVED, &has_moved);
    if (has_moved != 0) {
        return tally_fail(err, TALLY_STORE, NULL, "database \"%s\" was removed or replaced",
                          sqlite->path);
    }
    if (log_has_moved(sqlite)) {
        /* Its content can still be read and is saved; nothing more is written to the database. */
        sqlite3_wal_checkpoint_v2(sqlite->db, "main", SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
        return tally_fail(err, TALLY_STORE, NULL,
                          "the log of database \"%s\" was removed or replaced: start again",
                          sqlite->path);
    }
    return sqlite->lock.fd < 0 || tally_lock_file_is_in_place(&sqlite->lock)
               ? TALLY_OK
               : tally_fail(err, TALLY_STORE, NULL,
                            "the lock file \"%s\" was removed or replaced: start again",
                            sqlite->lock.path);
}

static enum tally_status sqlite_begin(struct tally_store *store, struct tally_error *err)
{
    struct tally_sqlite *sqlite = sqlite_of(store);
    assert(!sqlite->in_transaction);
    enum tally_status found = require_file(sqlite, err);
    if (found != TALLY_OK) {
        return found;
    }
    struct tally_sql_call call = tally_sql_call(sqlite, TALLY_SQL_BEGIN);
    enum tally_status status = tally_sql_run(&call, err);
    sqlite->in_transaction = status == TALLY_OK;
    sqlite->is_broken = false;
    return status;
}

static void sqlite_rollback(struct tally_store *store)
{
    struct tally_sqlite *sqlite = sqlite_of(store);
    /* After a full disk or an I/O error SQLite may have rolled back by itself. */
    if (sqlite->in_transaction && sqlite3_get_autocommit(sqlite->db) == 0) {
        struct tally_sql_call call = tally_sql_call(sqlite, TALLY_SQL_ROLLBACK);
        tally_sql_run(&call, NULL);
    }
    sqlite->in_transaction = false;
}

/* Every write and commit calls this. Without it, a write after a rollback by SQLite itself would be
 * a transaction of its own. */
static enum tally_status require_transaction(const struct tally_sqlite *sqlite,
                                             struct tally_error *err)
{
    assert(sqlite->in_transaction);
    return sqlite->is_broken
               ? tally_fail(
                     err, TALLY_STORE, NULL,
                     "database \"%s\": an earlier write of this transaction failed; roll back",
                     sqlite->path)
               : TALLY_OK;
}

/* A commit that failed in its last step, fsync, has left a whole transaction in the log, which the
 * next process would take for committed. The next write overwrites it. This is such a write; it
 * changes nothing, and breaks the old frames' chain of checksums even if its own fsync fails. */
static void bury_failed_commit(struct tally_sqlite *sqlite)
{
    tally_sqlite_touch(sqlite, NULL);
}

static enum tally_status sqlite_commit(struct tally_store *store, struct tally_error *err)
{
    struct tally_sqlite *sqlite = sqlite_of(store);
    enum tally_status status = require_transaction(sqlite, err);
    if (status != TALLY_OK) {
        sqlite_rollback(store);
        return status;
    }
    struct tally_sql_call call = tally_sql_call(sqlite, TALLY_SQL_COMMIT);
    status = tally_sql_run(&call, err);
    if (status != TALLY_OK) {
        sqlite_rollback(store);
        bury_failed_commit(sqlite);
    }
    sqlite->in_transaction = false;
    return status;
}

static void sqlite_close(struct tally_store *store)
{
    if (store != NULL) {
        tally_sqlite_fini(sqlite_of(store));
        free(store);
    }
}

enum tally_status tally_sqlite_fail_no_job(int64_t job_key, struct tally_error *err)
{
    return tally_fail(err, TALLY_NOT_FOUND, NULL, "no job with key %lld", (long long)job_key);
}

/* Runs a write to a job. The two expected errors undo the statement and leave the transaction
 * usable; NOT_FOUND is the foreign key on job_key. */
static enum tally_status run_write(struct tally_sql_call *call, int64_t job_key,
                                   struct tally_error *err)
{
    struct tally_sqlite *sqlite = call->sqlite;
    enum tally_status status = require_transaction(sqlite, err);
    if (status != TALLY_OK) {
        tally_sql_end(call);
        return status;
    }
    struct tally_error cause = TALLY_ERROR_INIT;
    status = tally_sql_run(call, &cause);
    if (status == TALLY_NOT_FOUND) {
        return tally_sqlite_fail_no_job(job_key, err);
    }
    if (status != TALLY_OK && status != TALLY_ALREADY_EXISTS) {
        sqlite->is_broken = true;
    }
    return status == TALLY_OK ? status : tally_fail(err, status, NULL, "%s", cause.message);
}

/* tally_sqlite_fill() in a transaction. */
static enum tally_status fill(struct tally_sqlite *sqlite, const char *table, const char *column,
                              int64_t rowid, const void *bytes, size_t n, struct tally_error *err)
{
    const enum tally_status status = tally_sqlite_fill(sqlite, table, column, rowid, bytes, n, err);
    sqlite->is_broken = sqlite->is_broken || status != TALLY_OK;
    return status;
}

/* For the row that was inserted last. */
static enum tally_status fill_last(struct tally_sqlite *sqlite, const char *table,
                                   const char *column, const void *bytes, size_t n,
                                   struct tally_error *err)
{
    return fill(sqlite, table, column, sqlite3_last_insert_rowid(sqlite->db), bytes, n, err);
}

/* The key is chosen here, not by SQLite, because the row's checksum covers it. */
static enum tally_status next_key(struct tally_sqlite *sqlite, int64_t *ret_key,
                                  struct tally_error *err)
{
    enum tally_status status = require_transaction(sqlite, err);
    if (status != TALLY_OK) {
        return status;
    }
    struct tally_sql_call call = tally_sql_call(sqlite, TALLY_SQL_JOB_NEXT_KEY);
    struct tally_sql_row row = tally_sql_row(&call, err);
    int64_t key = tally_sql_walk(&call, &row.status, err) ? tally_sql_take_int64(&row) : 0;
    if (key <= sqlite->last_deleted_key) {
        key = sqlite->last_deleted_key + 1;
    }
    *ret_key = row.status == TALLY_OK ? key : *ret_key;
    sqlite->is_broken = sqlite->is_broken || row.status != TALLY_OK;
    tally_sql_end(&call);
    return row.status;
}

static enum tally_status sqlite_job_insert(struct tally_store *store,
                                           const struct tally_store_job *job, const char *document,
                                           size_t n_document, const char *idempotency_key,
                                           uint64_t request_digest, int64_t *ret_key,
                                           struct tally_error *err)
{
    struct tally_sqlite *sqlite = sqlite_of(store);
    int64_t key = 0;
    enum tally_status status = next_key(sqlite, &key, err);
    if (status != TALLY_OK) {
        return status;
    }
    struct tally_sql_call call = tally_sql_call(sqlite, TALLY_SQL_JOB_INSERT);
    tally_sql_bind_int64(&call, 1, key);
    tally_sql_bind_text(&call, 2, idempotency_key);
    tally_sql_bind_uint64(&call, 3, request_digest);
    tally_sql_bind_row(&call, &TALLY_JOB_COLUMNS, job);
    status = run_write(&call, 0, err);
    if (status != TALLY_OK) {
        return status;
    }
    call = tally_sql_call(sqlite, TALLY_SQL_DOCUMENT_INSERT);
    tally_sql_bind_int64(&call, 1, key);
    tally_sql_bind_json(&call, 2, document, n_document);
    status = run_write(&call, key, err);
    if (status == TALLY_OK) {
        *ret_key = key;
    }
    return status;
}

static enum tally_status sqlite_job_update(struct tally_store *store,
                                           const struct tally_store_job *job,
                                           struct tally_error *err)
{
    struct tally_sqlite *sqlite = sqlite_of(store);
    struct tally_sql_call call = tally_sql_call(sqlite, TALLY_SQL_JOB_UPDATE);
    tally_sql_bind_int64(&call, 1, job->key);
    tally_sql_bind_row(&call, &TALLY_JOB_COLUMNS, job);
    enum tally_status status = run_write(&call, job->key, err);
    if (status == TALLY_OK && sqlite3_changes(sqlite->db) == 0) {
        return tally_sqlite_fail_no_job(job->key, err);
    }
    return status;
}

static enum tally_status write_state(struct tally_sqlite *sqlite, enum tally_sql which,
                                     int64_t job_key, const void *bytes, size_t n,
                                     struct tally_error *err)
{
    struct tally_sql_call call = tally_sql_call(sqlite, which);
    tally_sql_bind_int64(&call, 1, job_key);
    tally_sql_bind_content(&call, 2, bytes, n);
    return run_write(&call, job_key, err);
}

static enum tally_status sqlite_state_put(struct tally_store *store, int64_t job_key,
                                          const void *bytes, size_t n, struct tally_error *err)
{
    struct tally_sqlite *sqlite = sqlite_of(store);
    enum tally_status status = write_state(sqlite, TALLY_SQL_STATE_UPDATE, job_key, bytes, n, err);
    if (status != TALLY_OK) {
        return status;
    }
    if (sqlite3_changes(sqlite->db) == 0) {
        status = write_state(sqlite, TALLY_SQL_STATE_INSERT, job_key, bytes, n, err);
    } else {
        struct tally_sql_call call = tally_sql_call(sqlite, TALLY_SQL_CHANGES_DELETE);
        tally_sql_bind_int64(&call, 1, job_key);
        status = run_write(&call, job_key, err);
    }
    return status == TALLY_OK ? fill(sqlite, "job_states", "state", job_key, bytes, n, err)
                              : status;
}

static enum tally_status sqlite_state_append(struct tally_store *store, int64_t job_key,
                                             int64_t round, const void *bytes, size_t n,
                                             struct tally_error *err)
{
    struct tally_sqlite *sqlite = sqlite_of(store);
    struct tally_sql_call call = tally_sql_call(sqlite, TALLY_SQL_STATE_APPEND);
    tally_sql_bind_int64(&call, 1, job_key);
    tally_sql_bind_int64(&call, 2, round);
    tally_sql_bind_content(&call, 3, bytes, n);
    const enum tally_status status = run_write(&call, job_key, err);
    return status == TALLY_OK ? fill_last(sqlite, "job_state_changes", "change", bytes, n, err)
                              : status;
}

static enum tally_status sqlite_job_delete(struct tally_store *store, int64_t job_key,
                                           struct tally_error *err)
{
    struct tally_sqlite *sqlite = sqlite_of(store);
    struct tally_sql_call call = tally_sql_call(sqlite, TALLY_SQL_JOB_DELETE);
    tally_sql_bind_int64(&call, 1, job_key);
    const enum tally_status status = run_write(&call, job_key, err);
    if (status != TALLY_OK) {
        return status;
    }
    if (sqlite3_changes(sqlite->db) == 0) {
        return tally_sqlite_fail_no_job(job_key, err);
    }
    if (job_key > sqlite->last_deleted_key) {
        sqlite->last_deleted_key = job_key;
    }
    return TALLY_OK;
}

static enum tally_status sqlite_update_insert(struct tally_store *store, int64_t job_key,
                                              const struct tally_store_update *update,
                                              struct tally_error *err)
{
    struct tally_sqlite *sqlite = sqlite_of(store);
    struct tally_sql_call call = tally_sql_call(sqlite, TALLY_SQL_UPDATE_INSERT);
    tally_sql_bind_int64(&call, 1, job_key);
    tally_sql_bind_int64(&call, 2, update->round);
    tally_sql_bind_int64(&call, 3, update->client);
    tally_sql_bind_content(&call, 4, update->body, update->n_body);
    const enum tally_status status = run_write(&call, job_key, err);
    return status == TALLY_OK
               ? fill_last(sqlite, "updates", "body", update->body, update->n_body, err)
               : status;
}

static enum tally_status sqlite_updates_delete(struct tally_store *store, int64_t job_key,
                                               int64_t first_round, int64_t last_round,
                                               struct tally_error *err)
{
    struct tally_sql_call call = tally_sql_call(sqlite_of(store), TALLY_SQL_UPDATES_DELETE);
    tally_sql_bind_int64(&call, 1, job_key);
    tally_sql_bind_int64(&call, 2, first_round);
    tally_sql_bind_int64(&call, 3, last_round);
    return run_write(&call, job_key, err);
}

static enum tally_status sqlite_round_insert(struct tally_store *store, int64_t job_key,
                                             const struct tally_round_record *record,
                                             struct tally_error *err)
{
    struct tally_sql_call call = tally_sql_call(sqlite_of(store), TALLY_SQL_ROUND_INSERT);
    tally_sql_bind_int64(&call, 1, job_key);
    tally_sql_bind_row(&call, &TALLY_ROUND_COLUMNS, record);
    return run_write(&call, job_key, err);
}

static enum tally_status sqlite_round_update(struct tally_store *store, int64_t job_key,
                                             const struct tally_round_record *record,
                                             struct tally_error *err)
{
    struct tally_sqlite *sqlite = sqlite_of(store);
    struct tally_sql_call call = tally_sql_call(sqlite, TALLY_SQL_ROUND_UPDATE);
    tally_sql_bind_int64(&call, 1, job_key);
    tally_sql_bind_int64(&call, 2, record->round);
    tally_sql_bind_row(&call, &TALLY_ROUND_COLUMNS, record);
    enum tally_status status = run_write(&call, job_key, err);
    return status == TALLY_OK && sqlite3_changes(sqlite->db) == 0
               ? tally_fail(err, TALLY_NOT_FOUND, NULL, "no record of round %lld of job key %lld",
                            (long long)record->round, (long long)job_key)
               : status;
}

static enum tally_status sqlite_model_put(struct tally_store *store, int64_t job_key,
                                          const struct tally_store_model *model, const void *bytes,
                                          struct tally_error *err)
{
    struct tally_sqlite *sqlite = sqlite_of(store);
    struct tally_sql_call call = tally_sql_call(sqlite, TALLY_SQL_MODEL_PUT);
    tally_sql_bind_int64(&call, 1, job_key);
    tally_sql_bind_row(&call, &TALLY_MODEL_COLUMNS, model);
    enum tally_status status = run_write(&call, job_key, err);
    if (status != TALLY_OK) {
        return status;
    }
    const size_t n = (size_t)model->n_bytes;
    call = tally_sql_call(sqlite, TALLY_SQL_POINT_PUT);
    tally_sql_bind_int64(&call, 1, job_key);
    tally_sql_bind_int64(&call, 2, model->slot);
    tally_sql_bind_content(&call, 3, bytes, n);
    status = run_write(&call, job_key, err);
    return status == TALLY_OK ? fill_last(sqlite, "model_points", "point", bytes, n, err) : status;
}

/* Every write has already reported its result. */
static enum tally_status sqlite_flush(struct tally_store *store, struct tally_error *err)
{
    (void)store;
    (void)err;
    return TALLY_OK;
}

static enum tally_status sqlite_check(struct tally_store *store, struct tally_error *err)
{
    struct tally_sqlite *sqlite = sqlite_of(store);
    enum tally_status status = require_file(sqlite, err);
    if (status != TALLY_OK) {
        return status;
    }
    /* Inside a transaction a write of its own is impossible, and the transaction's commit is the
     * check. */
    return sqlite->in_transaction ? TALLY_OK : tally_sqlite_touch(sqlite, err);
}

static const struct tally_store_ops SQLITE_OPS = {
    .close = sqlite_close,
    .begin = sqlite_begin,
    .commit = sqlite_commit,
    .rollback = sqlite_rollback,
    .job_insert = sqlite_job_insert,
    .job_update = sqlite_job_update,
    .job_delete = sqlite_job_delete,
    .state_put = sqlite_state_put,
    .state_append = sqlite_state_append,
    .update_insert = sqlite_update_insert,
    .updates_delete = sqlite_updates_delete,
    .round_insert = sqlite_round_insert,
    .round_update = sqlite_round_update,
    .model_put = sqlite_model_put,
    .job_get = tally_sqlite_job_get,
    .job_by_idempotency_key = tally_sqlite_job_by_idempotency_key,
    .request_get = tally_sqlite_request_get,
    .job_list = tally_sqlite_job_list,
    .job_list_live = tally_sqlite_job_list_live,
    .document_get = tally_sqlite_document_get,
    .state_get = tally_sqlite_state_get,
    .update_list = tally_sqlite_update_list,
    .round_list = tally_sqlite_round_list,
    .model_list = tally_sqlite_model_list,
    .model_get = tally_sqlite_model_get,
    .flush = sqlite_flush,
    .check = sqlite_check,
};

static enum tally_status init_snapshot(struct tally_sqlite *sqlite, bool exclusive,
                                       struct tally_error *err)
{
    enum tally_status status = tally_sqlite_init_reader(sqlite, exclusive, err);
    return status == TALLY_OK ? tally_sqlite_exec(sqlite, "BEGIN", err) : status;
}

/* A store that is not open yet. */
static enum tally_status make(const char *path, struct tally_sqlite **ret_sqlite,
                              struct tally_error *err)
{
    struct tally_sqlite *sqlite = tally_sqlite_new(path);
    if (sqlite == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a database");
    }
    sqlite->base.ops = &SQLITE_OPS;
    *ret_sqlite = sqlite;
    return TALLY_OK;
}

/* Gives the store to the caller, if it could be opened. */
static enum tally_status conclude(struct tally_sqlite *sqlite, enum tally_status status,
                                  struct tally_store **ret_store)
{
    if (status == TALLY_OK) {
        *ret_store = &sqlite->base;
    } else {
        sqlite_close(&sqlite->base);
    }
    return status;
}

static enum tally_status sqlite_open(const char *path, const struct tally_store_options *options,
                                     struct tally_store **ret_store, struct tally_error *err)
{
    struct tally_sqlite *sqlite = NULL;
    if (path[0] == '\0') {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "store \"sqlite:\" needs a path");
    }
    enum tally_status status = make(path, &sqlite, err);
    if (status != TALLY_OK) {
        return status;
    }
    status = options != NULL && options->read_only
                 ? init_snapshot(sqlite, options->exclusive, err)
                 : tally_sqlite_init(sqlite, options != NULL && options->power_loss_safe, err);
    return conclude(sqlite, status, ret_store);
}

static enum tally_status memory_open(const char *location,
                                     const struct tally_store_options *options,
                                     struct tally_store **ret_store, struct tally_error *err)
{
    struct tally_sqlite *sqlite = NULL;
    (void)options;
    if (location[0] != '\0') {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                          "store \"memory:%s\": nothing may follow \"memory:\"", location);
    }
    enum tally_status status = make("memory:", &sqlite, err);
    return status == TALLY_OK ? conclude(sqlite, tally_sqlite_init_memory(sqlite, err), ret_store)
                              : status;
}

const struct tally_store_backend TALLY_SQLITE_BACKEND = {
    .scheme = "sqlite:",
    .form = "sqlite:PATH",
    .can_be_migrated = true,
    .open = sqlite_open,
    .verify = tally_sqlite_verify,
    .backup = tally_sqlite_backup,
    .restore = tally_sqlite_restore,
    .owner = tally_sqlite_owner,
};

const struct tally_store_backend TALLY_MEMORY_BACKEND = {
    .scheme = "memory:",
    .form = "memory:",
    .open = memory_open,
};
