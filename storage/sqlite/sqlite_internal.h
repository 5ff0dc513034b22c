/* sqlite_internal: what the sqlite*.c files share. */
#ifndef TALLY_STORAGE_SQLITE_SQLITE_INTERNAL_H
#define TALLY_STORAGE_SQLITE_SQLITE_INTERNAL_H

#include <sqlite3.h>
#include <sys/types.h>

#include "storage/backend.h"
#include "storage/round_columns.h"
#include "storage/sqlite/lock_file.h"
#include "storage/store.h"

/* The prepared statements; sqlite_statement.c has their text. */
enum tally_sql {
    TALLY_SQL_BEGIN,
    TALLY_SQL_COMMIT,
    TALLY_SQL_ROLLBACK,
    TALLY_SQL_JOB_NEXT_KEY,
    TALLY_SQL_JOB_INSERT,
    TALLY_SQL_DOCUMENT_INSERT,
    TALLY_SQL_JOB_UPDATE,
    TALLY_SQL_JOB_DELETE,
    TALLY_SQL_STATE_UPDATE,
    TALLY_SQL_STATE_INSERT,
    TALLY_SQL_STATE_APPEND,
    TALLY_SQL_CHANGES_DELETE,
    TALLY_SQL_UPDATE_INSERT,
    TALLY_SQL_UPDATES_DELETE,
    TALLY_SQL_ROUND_INSERT,
    TALLY_SQL_ROUND_UPDATE,
    TALLY_SQL_MODEL_PUT,
    TALLY_SQL_POINT_PUT,
    TALLY_SQL_JOB_GET,
    TALLY_SQL_JOB_BY_IDEMPOTENCY_KEY,
    TALLY_SQL_REQUEST_GET,
    TALLY_SQL_JOB_LIST,
    TALLY_SQL_JOB_LIST_LIVE,
    TALLY_SQL_DOCUMENT_GET,
    TALLY_SQL_STATE_GET,
    TALLY_SQL_CHANGES_GET,
    TALLY_SQL_UPDATE_LIST,
    TALLY_SQL_ROUND_LIST,
    TALLY_SQL_MODEL_LIST,
    TALLY_SQL_POINT_GET,
    TALLY_SQL_VERIFY_JOBS, /* from here on: sqlite_verify.c */
    TALLY_SQL_VERIFY_DOCUMENTS,
    TALLY_SQL_VERIFY_STATES,
    TALLY_SQL_VERIFY_CHANGES,
    TALLY_SQL_VERIFY_UPDATES,
    TALLY_SQL_VERIFY_ROUNDS,
    TALLY_SQL_VERIFY_MODELS,
    TALLY_SQL_VERIFY_POINTS,
    TALLY_N_SQL
};

struct tally_sqlite {
    struct tally_store base;
    sqlite3 *db;
    char *path; /* as the operator wrote it, for messages */
    struct tally_lock_file lock;
    struct {
        dev_t device;
        ino_t inode; /* 0 = not known, and not checked */
    } log;
    int n_log_pages;          /* after the last commit */
    int64_t last_deleted_key; /* the greatest; 0 = none since the database was opened */
    sqlite3_stmt *statements[TALLY_N_SQL];
    bool in_transaction;
    bool is_broken; /* a write failed; the transaction can only be rolled back */
};

static inline struct tally_sqlite *sqlite_of(struct tally_store *store)
{
    return (struct tally_sqlite *)store;
}

/* Errors (sqlite_open.c). */

/* Reports the result code `rc` of the last call on the database, with its path and SQLite's text.
 */
enum tally_status tally_sqlite_fail(const struct tally_sqlite *sqlite, int rc,
                                    struct tally_error *err);

/* Runs constant SQL without parameters; rows that it returns are ignored. */
enum tally_status tally_sqlite_exec(const struct tally_sqlite *sqlite, const char *sql,
                                    struct tally_error *err);

/* Runs constant SQL that returns one integer. */
enum tally_status tally_sqlite_query(const struct tally_sqlite *sqlite, const char *sql,
                                     int64_t *ret_value, struct tally_error *err);

/* DATA_LOSS if the file, of `n_bytes`, is shorter than its header says, which SQLite overlooks. */
enum tally_status tally_sqlite_require_size(const struct tally_sqlite *sqlite, int64_t n_bytes,
                                            struct tally_error *err);

/* The same for a file whose schema cannot be read, by the bytes of its header. OK also if these
 * cannot be read. */
enum tally_status tally_sqlite_require_header_size(const struct tally_sqlite *sqlite,
                                                   struct tally_error *err);

/* An object that is not open yet, zeroed except for its path; NULL = no memory. */
struct tally_sqlite *tally_sqlite_new(const char *path);

/* Opens the file `sqlite->path` with SQLITE_OPEN_ flags, sets up the connection, and nothing more.
 * The caller closes sqlite->db, even on failure. */
enum tally_status tally_sqlite_open_file(struct tally_sqlite *sqlite, int flags,
                                         struct tally_error *err);

/* Opens a connection that takes no lock and changes nothing, whether or not a coordinator runs.
 * Errors: NOT_FOUND (no file, or an empty one), those of identify, STORE. */
enum tally_status tally_sqlite_open_reader(const char *path, struct tally_sqlite **ret_sqlite,
                                           struct tally_error *err);
void tally_sqlite_close_reader(struct tally_sqlite *sqlite); /* NULL is allowed */
/* The same for a `sqlite` that is zeroed except for base, path and lock. `exclusive` takes the
 * coordinator's lock nevertheless, and leaves even the log as it is. On failure the caller still
 * calls fini. */
enum tally_status tally_sqlite_init_reader(struct tally_sqlite *sqlite, bool exclusive,
                                           struct tally_error *err);

/* Opens, locks, checks, creates and prepares; `sqlite` is zeroed except for base and path. On
 * failure the caller still calls fini. */
enum tally_status tally_sqlite_init(struct tally_sqlite *sqlite, bool power_loss_safe,
                                    struct tally_error *err);
/* The same for a database in memory, which no other connection can open. */
enum tally_status tally_sqlite_init_memory(struct tally_sqlite *sqlite, struct tally_error *err);
void tally_sqlite_fini(struct tally_sqlite *sqlite);

/* Row checksums (sqlite_checksum.c). */

/* Adds the SQL function tally_checksum(value, ...) to the connection. */
int tally_sqlite_add_checksum(sqlite3 *db);

/* Schema (sqlite_schema.c). */

/* Whose database it is: empty, or ours. Errors: DATA_LOSS (not a database, another program's),
 * FAILED_PRECONDITION (another version of the schema). */
enum tally_status tally_sqlite_identify(const struct tally_sqlite *sqlite, bool *ret_is_empty,
                                        struct tally_error *err);
/* Makes the tables of an empty database. */
enum tally_status tally_sqlite_create(const struct tally_sqlite *sqlite, struct tally_error *err);
/* Rewrites the stored version: the smallest write that reaches the medium. */
enum tally_status tally_sqlite_touch(const struct tally_sqlite *sqlite, struct tally_error *err);

/* Verifying (sqlite_verify.c) and copying (sqlite_copy.c): slots of backend.h, and their parts. */

enum tally_status tally_sqlite_verify(const char *path, const struct tally_store_progress *progress,
                                      struct tally_store_report *ret_report,
                                      struct tally_error *err);
enum tally_status tally_sqlite_backup(const char *from, const char *to, bool replace,
                                      const struct tally_store_progress *progress,
                                      struct tally_error *err);
enum tally_status tally_sqlite_restore(const char *to, const char *from, bool replace,
                                       const struct tally_store_progress *progress,
                                       struct tally_error *err);
enum tally_status tally_sqlite_owner(const char *path, int64_t *ret_process,
                                     struct tally_error *err);

/* SQLite's own check of its pages, indexes and references. */
enum tally_status tally_sqlite_check_structure(const struct tally_sqlite *sqlite,
                                               const struct tally_store_progress *progress,
                                               struct tally_error *err);
enum tally_status tally_sqlite_verify_open(struct tally_sqlite *sqlite,
                                           const struct tally_store_progress *progress,
                                           struct tally_store_report *ret_report,
                                           struct tally_error *err);
/* Statements (sqlite_statement.c). */

/* Counts the jobs that are not in a terminal status. */
extern const char TALLY_SQL_COUNT_LIVE_JOBS[];

/* Prepares the statements. */
enum tally_status tally_sqlite_prepare(struct tally_sqlite *sqlite, struct tally_error *err);

/* One use of a prepared statement: bind, then run, or walk and end. The first failed bind is
 * remembered and reported then. */
struct tally_sql_call {
    struct tally_sqlite *sqlite;
    sqlite3_stmt *statement;
    int rc;
};

/* Precondition: the statement is not in use, that is, it has no walk in progress. */
struct tally_sql_call tally_sql_call(struct tally_sqlite *sqlite, enum tally_sql which);

/* Bound memory is borrowed until the call has ended. A NULL text binds SQL NULL. */
void tally_sql_bind_int64(struct tally_sql_call *call, int parameter, int64_t value);
void tally_sql_bind_uint64(struct tally_sql_call *call, int parameter, uint64_t value);
void tally_sql_bind_text(struct tally_sql_call *call, int parameter, const char *text);
void tally_sql_bind_bytes(struct tally_sql_call *call, int parameter, const void *bytes, size_t n);
void tally_sql_bind_json(struct tally_sql_call *call, int parameter, const char *json, size_t n);
/* Binds content twice, as what is stored and, in the next parameter, as what is summed. SQLite
 * copies a row before it writes it, so long content is stored as zeros, to be written over with
 * tally_sqlite_fill() in the same transaction. It has to be the last column of its table: zeros
 * before other columns would be copied, too. */
void tally_sql_bind_content(struct tally_sql_call *call, int parameter, const void *bytes,
                            size_t n);
enum { TALLY_SQL_LONG_BYTES = 1 << 20 };
static inline bool tally_sql_is_long(size_t n)
{
    return n >= TALLY_SQL_LONG_BYTES;
}
/* Writes content that is long into the row, otherwise does nothing. */
enum tally_status tally_sqlite_fill(const struct tally_sqlite *sqlite, const char *table,
                                    const char *column, int64_t rowid, const void *bytes, size_t n,
                                    struct tally_error *err);
/* Parameters 1 to TALLY_SQL_N_RESERVED are the statement's own; a row's columns follow. */
enum { TALLY_SQL_N_RESERVED = 3 };
void tally_sql_bind_row(struct tally_sql_call *call, const struct tally_columns *columns,
                        const void *row);

/* Runs a statement that returns no rows, and ends the call. */
enum tally_status tally_sql_run(struct tally_sql_call *call, struct tally_error *err);
/* Steps to the next row; false after the last row, after a failure, and if *status already is a
 * failure: `while (tally_sql_walk(&call, &status, err)) { status = ...; }`. The caller ends the
 * call. */
bool tally_sql_walk(struct tally_sql_call *call, enum tally_status *status,
                    struct tally_error *err);
/* Makes the statement ready for its next use. */
void tally_sql_end(struct tally_sql_call *call);

/* The current row of a walk, read column after column. Errors: DATA_LOSS if a value is of a
 * different type; the first one stays in `status`, and what is read after it is 0 or unset. */
struct tally_sql_row {
    const struct tally_sql_call *call;
    int column; /* the next one */
    enum tally_status status;
    struct tally_error *err;
};

struct tally_sql_row tally_sql_row(const struct tally_sql_call *call, struct tally_error *err);
int64_t tally_sql_take_int64(struct tally_sql_row *row);
/* Borrowed until the next step; never NULL. */
const void *tally_sql_take_bytes(struct tally_sql_row *row, size_t *ret_n);
/* Fills in the member of each column. */
void tally_sql_take_columns(struct tally_sql_row *row, const struct tally_columns *columns,
                            void *ret_struct);

/* Slots of store.h (sqlite_read.c). */

enum tally_status tally_sqlite_fail_no_job(int64_t job_key, struct tally_error *err); /* sqlite.c */
enum tally_status tally_sqlite_job_get(struct tally_store *store, const char *id,
                                       struct tally_store_job *ret_job, struct tally_error *err);
enum tally_status tally_sqlite_job_by_idempotency_key(struct tally_store *store,
                                                      const char *idempotency_key,
                                                      struct tally_store_job *ret_job,
                                                      uint64_t *ret_request_digest,
                                                      struct tally_error *err);
enum tally_status tally_sqlite_request_get(struct tally_store *store, int64_t job_key,
                                           struct tally_buffer *out, bool *ret_has_key,
                                           uint64_t *ret_request_digest, struct tally_error *err);
enum tally_status tally_sqlite_job_list(struct tally_store *store, int status, int64_t before_key,
                                        int64_t limit, tally_store_job_fn *each, void *context,
                                        struct tally_error *err);
enum tally_status tally_sqlite_job_list_live(struct tally_store *store, tally_store_job_fn *each,
                                             void *context, struct tally_error *err);
enum tally_status tally_sqlite_document_get(struct tally_store *store, int64_t job_key,
                                            struct tally_buffer *out, struct tally_error *err);
enum tally_status tally_sqlite_state_get(struct tally_store *store, int64_t job_key,
                                         struct tally_buffer *out, struct tally_error *err);
enum tally_status tally_sqlite_update_list(struct tally_store *store, int64_t job_key,
                                           int64_t round, tally_store_update_fn *each,
                                           void *context, struct tally_error *err);
enum tally_status tally_sqlite_round_list(struct tally_store *store, int64_t job_key,
                                          int64_t after_round, int64_t limit,
                                          tally_store_round_fn *each, void *context,
                                          struct tally_error *err);
enum tally_status tally_sqlite_model_list(struct tally_store *store, int64_t job_key,
                                          tally_store_model_fn *each, void *context,
                                          struct tally_error *err);
enum tally_status tally_sqlite_model_get(struct tally_store *store, int64_t job_key, int64_t slot,
                                         struct tally_buffer *out, struct tally_error *err);

#endif
