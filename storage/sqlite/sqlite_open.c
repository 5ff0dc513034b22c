#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "storage/sqlite/sqlite_internal.h"

/* How long a statement waits for a lock of another process. Only an operator's sqlite3 shell can
 * hold one, and a worker's request should not hang longer than its HTTP time-out. */
enum { BUSY_TIMEOUT_MS = 1000 };

/* Pages in the log at which a checkpoint moves them into the file: by then a page of a state has
 * been written to the log several times, and is written to the file once. The maximum is the size
 * limit of the log file (64 MiB). */
enum { MIN_LOG_PAGES = 250, MAX_LOG_PAGES = 4096, LOG_COMMITS = 8 };

/* Largest database that is checked when it is opened, which takes some tenths of a second. */
enum { START_CHECK_BYTES = 32 << 20 };

/* One row per kind of failure; the first that matches, primary codes after extended ones. */
static enum tally_status status_of(int rc)
{
    switch (rc) {
    case SQLITE_CONSTRAINT_UNIQUE:
    case SQLITE_CONSTRAINT_PRIMARYKEY:
    case SQLITE_CONSTRAINT_ROWID:
        return TALLY_ALREADY_EXISTS;
    case SQLITE_CONSTRAINT_FOREIGNKEY:
        return TALLY_NOT_FOUND; /* the only parent is the job */
    default:
        break;
    }
    switch (rc & 0xff) {
    case SQLITE_NOMEM:
        return TALLY_NO_MEMORY;
    case SQLITE_TOOBIG:
        return TALLY_TOO_LARGE;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_FORMAT:
    case SQLITE_ERROR: /* our SQL is constant: what it names is missing from the file */
        return TALLY_DATA_LOSS;
    case SQLITE_CONSTRAINT:
    case SQLITE_MISMATCH:
    case SQLITE_MISUSE:
    case SQLITE_RANGE:
        return TALLY_INTERNAL;
    default:
        return TALLY_STORE; /* FULL, IOERR, READONLY, BUSY, CANTOPEN, ...: the medium */
    }
}

enum tally_status tally_sqlite_fail(const struct tally_sqlite *sqlite, int rc,
                                    struct tally_error *err)
{
    int primary = rc & 0xff;
    int cause = primary == SQLITE_CANTOPEN || primary == SQLITE_IOERR || primary == SQLITE_FULL
                    ? sqlite3_system_errno(sqlite->db)
                    : 0;
    /* A failed open may leave the handle without the text of its own code. */
    const char *text = sqlite3_extended_errcode(sqlite->db) == rc ? sqlite3_errmsg(sqlite->db)
                                                                  : sqlite3_errstr(rc);
    return tally_fail(err, status_of(rc), NULL, "database \"%s\": %s%s%s", sqlite->path, text,
                      cause != 0 ? ": " : "", cause != 0 ? strerror(cause) : "");
}

enum tally_status tally_sqlite_fill(const struct tally_sqlite *sqlite, const char *table,
                                    const char *column, int64_t rowid, const void *bytes, size_t n,
                                    struct tally_error *err)
{
    if (!tally_sql_is_long(n)) {
        return TALLY_OK;
    }
    sqlite3_blob *blob = NULL;
    int rc = sqlite3_blob_open(sqlite->db, "main", table, column, rowid, 1, &blob);
    if (rc == SQLITE_OK) {
        rc = sqlite3_blob_write(blob, bytes, (int)n, 0);
    }
    const enum tally_status status =
        rc == SQLITE_OK ? TALLY_OK : tally_sqlite_fail(sqlite, rc, err);
    sqlite3_blob_close(blob);
    return status;
}

enum tally_status tally_sqlite_exec(const struct tally_sqlite *sqlite, const char *sql,
                                    struct tally_error *err)
{
    int rc = sqlite3_exec(sqlite->db, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK ? TALLY_OK : tally_sqlite_fail(sqlite, rc, err);
}

enum tally_status tally_sqlite_query(const struct tally_sqlite *sqlite, const char *sql,
                                     int64_t *ret_value, struct tally_error *err)
{
    sqlite3_stmt *statement = NULL;
    int rc = sqlite3_prepare_v2(sqlite->db, sql, -1, &statement, NULL);
    if (rc == SQLITE_OK) {
        rc = sqlite3_step(statement);
    }
    enum tally_status status = TALLY_OK;
    if (rc == SQLITE_ROW) {
        *ret_value = sqlite3_column_int64(statement, 0);
    } else {
        status = tally_sqlite_fail(sqlite, rc, err);
    }
    sqlite3_finalize(statement);
    return status;
}

static enum tally_status refuse_names(const char *path, nlink_t n_names, struct tally_error *err)
{
    return tally_fail(err, TALLY_STORE, NULL,
                      "\"%s\" has %lu names (hard links), and its log is beside one of them: "
                      "remove the others",
                      path, (unsigned long)n_names);
}

/* The lock lies beside the file that is really opened, so that a symbolic link to it does not make
 * a second database. SQLite has taken no lock yet that tally_lock_file_hold() could drop. */
static enum tally_status take_lock(struct tally_sqlite *sqlite, struct tally_error *err)
{
    const char *file = sqlite3_db_filename(sqlite->db, "main");
    char *name = sqlite3_mprintf("%s-lock", file);
    if (name == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a lock file name");
    }
    enum tally_status status = tally_lock_file_open(&sqlite->lock, name, err);
    sqlite3_free(name);
    if (status == TALLY_OK) {
        status = tally_lock_file_hold(&sqlite->lock, file, err);
    }
    struct stat found;
    if (status == TALLY_OK && stat(file, &found) == 0 && found.st_nlink > 1) {
        status = refuse_names(file, found.st_nlink, err);
    }
    if (status != TALLY_OK) {
        tally_error_wrap(err, "database \"%s\"", sqlite->path);
    }
    return status;
}

static enum tally_status open_name(struct tally_sqlite *sqlite, const char *name, int flags,
                                   struct tally_error *err)
{
    /* NOMUTEX: a store belongs to one thread at a time, see store.h. */
    int rc = sqlite3_open_v2(name, &sqlite->db, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE,
                             NULL);
    return rc == SQLITE_OK ? TALLY_OK : tally_sqlite_fail(sqlite, rc, err);
}

/* SQLite gives a special meaning to "", ":memory:" and "file:..."; "./" in front makes any name a
 * path. */
static enum tally_status open_database(struct tally_sqlite *sqlite, int flags,
                                       struct tally_error *err)
{
    char *name = sqlite3_mprintf("%s%s", sqlite->path[0] == '/' ? "" : "./", sqlite->path);
    if (name == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a database path");
    }
    enum tally_status status = open_name(sqlite, name, flags, err);
    sqlite3_free(name);
    return status;
}

static enum tally_status require_writable(const struct tally_sqlite *sqlite,
                                          struct tally_error *err)
{
    return sqlite3_db_readonly(sqlite->db, "main") != 0
               ? tally_fail(err, TALLY_STORE, NULL, "database \"%s\" is read-only", sqlite->path)
               : TALLY_OK;
}

/* Settings of the connection only; harmless to a database that is not ours. */
static enum tally_status configure_connection(struct tally_sqlite *sqlite, struct tally_error *err)
{
    int rc = tally_sqlite_add_checksum(sqlite->db);
    if (rc != SQLITE_OK) {
        return tally_sqlite_fail(sqlite, rc, err);
    }
    sqlite3_busy_timeout(sqlite->db, BUSY_TIMEOUT_MS);
    sqlite3_db_config(sqlite->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    return tally_sqlite_exec(sqlite,
                             "PRAGMA trusted_schema = OFF;"
                             "PRAGMA cell_size_check = ON;"
                             "PRAGMA foreign_keys = ON;",
                             err);
}

enum tally_status tally_sqlite_open_file(struct tally_sqlite *sqlite, int flags,
                                         struct tally_error *err)
{
    enum tally_status status = open_database(sqlite, flags, err);
    return status == TALLY_OK ? configure_connection(sqlite, err) : status;
}

static bool has_log(const struct tally_sqlite *sqlite)
{
    struct stat log;
    const char *name = sqlite3_filename_wal(sqlite3_db_filename(sqlite->db, "main"));
    return stat(name, &log) == 0 && log.st_size > 0;
}

/* Otherwise the last connection that closes would move the log into the file. */
static void keep_log(const struct tally_sqlite *sqlite)
{
    if (has_log(sqlite)) {
        sqlite3_db_config(sqlite->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    }
}

/* Whether the database has a write-ahead log. Read from the file, because a statement would create
 * an empty log. */
static bool uses_log(const struct tally_sqlite *sqlite)
{
    enum { READ_VERSION = 19, WITH_LOG = 2 }; /* "Database File Format", 1.3 */
    sqlite3_file *file = NULL;
    unsigned char version = 0;
    return sqlite3_file_control(sqlite->db, "main", SQLITE_FCNTL_FILE_POINTER, &file) ==
               SQLITE_OK &&
           file->pMethods != NULL &&
           file->pMethods->xRead(file, &version, 1, READ_VERSION) == SQLITE_OK &&
           version == WITH_LOG;
}

/* The log of a database with several names lies beside one of them: if not beside this one, what is
 * read here may be old. Copies have no log. */
static enum tally_status refuse_other_names(const struct tally_sqlite *sqlite, nlink_t n_names,
                                            struct tally_error *err)
{
    return n_names > 1 && uses_log(sqlite) && !has_log(sqlite)
               ? refuse_names(sqlite->path, n_names, err)
               : TALLY_OK;
}

enum tally_status tally_sqlite_init_reader(struct tally_sqlite *sqlite, bool exclusive,
                                           struct tally_error *err)
{
    bool is_empty = false;
    struct stat file = {.st_nlink = 1};
    if (stat(sqlite->path, &file) != 0 && errno == ENOENT) {
        return tally_fail(err, TALLY_NOT_FOUND, NULL, "there is no database \"%s\"", sqlite->path);
    }
    /* Writable, because reading beside a log needs shared memory; query_only prevents writes. */
    enum tally_status status = tally_sqlite_open_file(sqlite, SQLITE_OPEN_READWRITE, err);
    if (status == TALLY_OK) {
        status = refuse_other_names(sqlite, file.st_nlink, err);
    }
    if (status == TALLY_OK && exclusive) {
        keep_log(sqlite);
        status = take_lock(sqlite, err);
    }
    if (status == TALLY_OK) {
        status = tally_sqlite_exec(sqlite, "PRAGMA query_only = ON", err);
    }
    if (status == TALLY_OK) {
        status = tally_sqlite_identify(sqlite, &is_empty, err);
    }
    if (status == TALLY_OK && is_empty) {
        status = tally_fail(err, TALLY_NOT_FOUND, NULL, "database \"%s\" is empty", sqlite->path);
    }
    return status == TALLY_OK ? tally_sqlite_prepare(sqlite, err) : status;
}

struct tally_sqlite *tally_sqlite_new(const char *path)
{
    struct tally_sqlite *sqlite = calloc(1, sizeof *sqlite);
    char *copy = strdup(path);
    if (sqlite == NULL || copy == NULL) {
        free(sqlite);
        free(copy);
        return NULL;
    }
    sqlite->path = copy;
    sqlite->lock = (struct tally_lock_file)TALLY_LOCK_FILE_INIT;
    return sqlite;
}

enum tally_status tally_sqlite_open_reader(const char *path, struct tally_sqlite **ret_sqlite,
                                           struct tally_error *err)
{
    struct tally_sqlite *sqlite = tally_sqlite_new(path);
    if (sqlite == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a database");
    }
    enum tally_status status = tally_sqlite_init_reader(sqlite, false, err);
    if (status != TALLY_OK) {
        tally_sqlite_close_reader(sqlite);
        return status;
    }
    *ret_sqlite = sqlite;
    return TALLY_OK;
}

void tally_sqlite_close_reader(struct tally_sqlite *sqlite)
{
    if (sqlite != NULL) {
        tally_sqlite_fini(sqlite);
        free(sqlite);
    }
}

/* Called after every commit that has written, with the number of pages in the log. */
static int look_after_log(void *context, sqlite3 *db, const char *name, int n_pages)
{
    struct tally_sqlite *sqlite = context;
    const int n_before = n_pages > sqlite->n_log_pages ? sqlite->n_log_pages : 0; /* restarted */
    const int64_t several = (int64_t)LOG_COMMITS * (n_pages - n_before);
    sqlite->n_log_pages = n_pages;
    if (n_pages >= MAX_LOG_PAGES || (n_pages >= MIN_LOG_PAGES && n_pages >= several)) {
        sqlite3_wal_checkpoint_v2(db, name, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    }
    return SQLITE_OK; /* the commit has succeeded; the next one tries again */
}

/* How writes reach the medium; DESIGN.md says why. */
static enum tally_status configure_journal(struct tally_sqlite *sqlite, bool power_loss_safe,
                                           struct tally_error *err)
{
    enum tally_status status = tally_sqlite_exec(sqlite,
                                                 "PRAGMA page_size = 16384;" /* of a new file */
                                                 "PRAGMA journal_mode = WAL;"
                                                 "PRAGMA journal_size_limit = 67108864;"
                                                 "PRAGMA secure_delete = FAST;"
                                                 "PRAGMA cache_size = -16384;",
                                                 err);
    sqlite3_wal_hook(sqlite->db, look_after_log, sqlite);
    if (status == TALLY_OK) {
        status = tally_sqlite_exec(
            sqlite, power_loss_safe ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL",
            err);
    }
    return status;
}

/* If WAL is impossible, the pragma above keeps the old mode and does not fail. */
static enum tally_status require_wal(const struct tally_sqlite *sqlite, struct tally_error *err)
{
    sqlite3_stmt *statement = NULL;
    int rc = sqlite3_prepare_v2(sqlite->db, "PRAGMA journal_mode", -1, &statement, NULL);
    if (rc == SQLITE_OK) {
        rc = sqlite3_step(statement);
    }
    enum tally_status status = TALLY_OK;
    if (rc != SQLITE_ROW) {
        status = tally_sqlite_fail(sqlite, rc, err);
    } else if (sqlite3_stricmp((const char *)sqlite3_column_text(statement, 0), "wal") != 0) {
        status = tally_fail(err, TALLY_STORE, NULL,
                            "database \"%s\": its file system has no shared memory for a "
                            "write-ahead log; use a local one",
                            sqlite->path);
    }
    sqlite3_finalize(statement);
    return status;
}

static enum tally_status fail_truncated(const struct tally_sqlite *sqlite, int64_t n_bytes,
                                        int64_t n_whole, struct tally_error *err)
{
    return tally_fail(err, TALLY_DATA_LOSS, NULL,
                      "database \"%s\" is truncated: %lld of %lld bytes", sqlite->path,
                      (long long)n_bytes, (long long)n_whole);
}

enum tally_status tally_sqlite_require_header_size(const struct tally_sqlite *sqlite,
                                                   struct tally_error *err)
{
    enum { HEADER_BYTES = 100, PAGE_BYTES_AT = 16, N_PAGES_AT = 28 }; /* big-endian */
    const char *name = sqlite3_db_filename(sqlite->db, "main");
    unsigned char header[HEADER_BYTES];
    struct stat file;
    FILE *stream = name != NULL && name[0] != '\0' ? fopen(name, "rbe") : NULL;
    const bool is_read = stream != NULL && stat(name, &file) == 0 &&
                         fread(header, 1, sizeof header, stream) == sizeof header &&
                         memcmp(header, "SQLite format 3", 16) == 0;
    if (stream != NULL) {
        (void)fclose(stream);
    }
    if (!is_read) {
        return TALLY_OK;
    }
    const int64_t page_bytes = header[PAGE_BYTES_AT] << 8 | header[PAGE_BYTES_AT + 1];
    int64_t n_pages = 0;
    for (int i = 0; i < 4; i++) {
        n_pages = n_pages << 8 | header[N_PAGES_AT + i];
    }
    return file.st_size < page_bytes * n_pages
               ? fail_truncated(sqlite, file.st_size, page_bytes * n_pages, err)
               : TALLY_OK;
}

enum tally_status tally_sqlite_require_size(const struct tally_sqlite *sqlite, int64_t n_bytes,
                                            struct tally_error *err)
{
    int64_t page_bytes = 0;
    int64_t n_pages = 0;
    enum tally_status status = tally_sqlite_query(sqlite, "PRAGMA page_size", &page_bytes, err);
    if (status == TALLY_OK) {
        status = tally_sqlite_query(sqlite, "PRAGMA page_count", &n_pages, err);
    }
    return status == TALLY_OK && n_bytes < page_bytes * n_pages
               ? fail_truncated(sqlite, n_bytes, page_bytes * n_pages, err)
               : status;
}

/* Moves the log into the file, so that nothing of an earlier run lies beside it. Then compares the
 * file's size with its header, because SQLite itself overlooks a truncated last page. Skipped while
 * an operator's shell reads the database, which is not an error. */
static enum tally_status require_whole(const struct tally_sqlite *sqlite, struct tally_error *err)
{
    int rc = sqlite3_wal_checkpoint_v2(sqlite->db, "main", SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    if (rc != SQLITE_OK) {
        return (rc & 0xff) == SQLITE_BUSY ? TALLY_OK : tally_sqlite_fail(sqlite, rc, err);
    }
    struct stat file;
    return stat(sqlite3_db_filename(sqlite->db, "main"), &file) == 0
               ? tally_sqlite_require_size(sqlite, (int64_t)file.st_size, err)
               : TALLY_OK;
}

/* No row's checksum shows damage that hides rows. Looking for it takes time in proportion to the
 * file: too long for a start with a large one, but not for --check. */
static enum tally_status check_if_small(const struct tally_sqlite *sqlite, struct tally_error *err)
{
    struct stat file;
    if (stat(sqlite3_db_filename(sqlite->db, "main"), &file) != 0 ||
        file.st_size > START_CHECK_BYTES) {
        return TALLY_OK;
    }
    return tally_sqlite_check_structure(sqlite, NULL, err);
}

static void remember_log(struct tally_sqlite *sqlite)
{
    struct stat file;
    if (stat(sqlite3_filename_wal(sqlite3_db_filename(sqlite->db, "main")), &file) == 0) {
        sqlite->log.device = file.st_dev;
        sqlite->log.inode = file.st_ino;
    }
}

enum tally_status tally_sqlite_init(struct tally_sqlite *sqlite, bool power_loss_safe,
                                    struct tally_error *err)
{
    bool is_empty = false;
    enum tally_status status =
        open_database(sqlite, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, err);
    if (status == TALLY_OK) {
        status = require_writable(sqlite, err);
    }
    if (status == TALLY_OK) {
        status = take_lock(sqlite, err);
    }
    if (status == TALLY_OK) {
        status = configure_connection(sqlite, err);
    }
    if (status == TALLY_OK) {
        status = tally_sqlite_identify(sqlite, &is_empty, err);
    }
    if (status == TALLY_OK) { /* ours, or empty: from here on the file may be changed */
        status = configure_journal(sqlite, power_loss_safe, err);
    }
    if (status == TALLY_OK) {
        status = require_wal(sqlite, err);
    }
    if (status == TALLY_OK) {
        status = require_whole(sqlite, err);
    }
    if (status == TALLY_OK) {
        status = is_empty ? tally_sqlite_create(sqlite, err) : check_if_small(sqlite, err);
    }
    if (status == TALLY_OK) {
        status = tally_sqlite_prepare(sqlite, err);
    }
    if (status == TALLY_OK) {
        remember_log(sqlite);
    }
    return status;
}

enum tally_status tally_sqlite_init_memory(struct tally_sqlite *sqlite, struct tally_error *err)
{
    enum tally_status status =
        open_name(sqlite, ":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, err);
    if (status == TALLY_OK) {
        status = configure_connection(sqlite, err);
    }
    if (status == TALLY_OK) { /* no page comes from outside, and none is read by others */
        status = tally_sqlite_exec(sqlite,
                                   "PRAGMA page_size = 16384;"
                                   "PRAGMA cell_size_check = OFF;"
                                   "PRAGMA secure_delete = OFF;",
                                   err);
    }
    if (status == TALLY_OK) {
        status = tally_sqlite_create(sqlite, err);
    }
    return status == TALLY_OK ? tally_sqlite_prepare(sqlite, err) : status;
}

void tally_sqlite_fini(struct tally_sqlite *sqlite)
{
    for (int i = 0; i < TALLY_N_SQL; i++) {
        sqlite3_finalize(sqlite->statements[i]);
    }
    int rc = sqlite3_close(sqlite->db); /* also rolls back, checkpoints and drops the log */
    assert(rc == SQLITE_OK);
    (void)rc;
    tally_lock_file_close(&sqlite->lock); /* after the last access to the database */
    free(sqlite->path);
}
