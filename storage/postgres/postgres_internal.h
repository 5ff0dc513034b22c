/* postgres_internal: what the postgres*.c files share. */
#ifndef TALLY_STORAGE_POSTGRES_POSTGRES_INTERNAL_H
#define TALLY_STORAGE_POSTGRES_POSTGRES_INTERNAL_H

#include <libpq-fe.h>

#include "storage/backend.h"
#include "storage/lease_set.h"
#include "storage/leases.h"
#include "storage/round_columns.h"
#include "storage/store.h"

/* The prepared statements; postgres_sql.c has their text. */
enum tally_pg_sql {
    TALLY_PG_BEGIN,
    TALLY_PG_COMMIT,
    TALLY_PG_ROLLBACK,
    TALLY_PG_FENCE,
    TALLY_PG_JOB_INSERT,
    TALLY_PG_JOB_UPDATE,
    TALLY_PG_STATE_PUT,
    TALLY_PG_STATE_APPEND,
    TALLY_PG_UPDATE_INSERT,
    TALLY_PG_UPDATES_DELETE,
    TALLY_PG_JOB_DELETE,
    TALLY_PG_ROUND_INSERT,
    TALLY_PG_ROUND_UPDATE,
    TALLY_PG_MODEL_PUT,
    TALLY_PG_POINT_PUT,
    TALLY_PG_JOB_GET,
    TALLY_PG_JOB_BY_IDEMPOTENCY_KEY,
    TALLY_PG_REQUEST_GET,
    TALLY_PG_JOB_LIST,
    TALLY_PG_JOB_LIST_LIVE,
    TALLY_PG_DOCUMENT_GET,
    TALLY_PG_STATE_GET,
    TALLY_PG_UPDATE_LIST,
    TALLY_PG_ROUND_LIST,
    TALLY_PG_MODEL_LIST,
    TALLY_PG_MODEL_GET,
    TALLY_PG_CHECK,
    TALLY_PG_BEGIN_RENEWAL, /* from here on: postgres_leases.c */
    TALLY_PG_RETURN_TIME,
    TALLY_PG_TICK,
    TALLY_PG_RENEW,
    TALLY_PG_MY_LEASES,
    TALLY_PG_REPLICAS,
    TALLY_PG_TURN,
    TALLY_PG_PREPARE_TAKE,
    TALLY_PG_TAKE,
    TALLY_PG_TAKEN_JOBS,
    TALLY_PG_GIVE,
    TALLY_PG_LEADER_OF,
    TALLY_PG_END_NAMESAKE,
    TALLY_PG_FORGET_LEADERS,
    TALLY_PG_FORGET_REPLICAS,
    TALLY_PG_JOIN,
    TALLY_PG_DISOWN,
    TALLY_PG_END_FORMER,
    TALLY_PG_REANNOUNCE,
    TALLY_PG_RENEW_TOKENS,
    TALLY_PG_LEAVE_JOBS,
    TALLY_PG_LEAVE,
    TALLY_PG_N_SQL
};

/* A statement with its parameters, in their order: each is an int32 length (-1 for NULL), followed
 * by that many bytes in PostgreSQL's binary format. */
struct tally_pg_call {
    enum tally_pg_sql which;
    int n_parameters;
    struct tally_buffer parameters;
    enum tally_status status; /* of building it */
};

enum tally_pg_write_state {
    TALLY_PG_WRITE_PENDING, /* to be sent */
    TALLY_PG_WRITE_DONE,    /* in the server's transaction */
    TALLY_PG_WRITE_REFUSED, /* NOT_FOUND or ALREADY_EXISTS: omitted from a rerun */
};

struct tally_pg_write {
    struct tally_pg_call call;
    int64_t job_key;
    int64_t token; /* of the job when the write was collected, or TALLY_NO_TOKEN */
    enum tally_pg_write_state state;
    bool was_sent;
    bool is_told; /* the caller has been told that it succeeded */
};

struct tally_pg_transaction {
    bool is_open;   /* between begin() and its end */
    bool is_begun;  /* the server has a transaction for it */
    bool is_broken; /* a write failed; it can only be rolled back */
    bool is_fenced; /* as is_broken: another replica leads one of its jobs */
    struct tally_pg_write *writes;
    size_t n_writes, capacity;
    struct tally_lease_set fenced;   /* locked by FENCE in the server's transaction */
    struct tally_lease_set inserted; /* jobs of this transaction; held once it is committed */
};

/* Number of lists in a conninfo: names, addresses and ports of hosts. */
enum { TALLY_PG_N_HOST_LISTS = 3 };

struct tally_postgres {
    struct tally_store base;
    struct tally_store_counters counters;
    PGconn *connection;                      /* NULL = there is none */
    PGconn *attempt;                         /* to reconnect; NULL = none is in progress */
    PostgresPollingStatusType attempt_wants; /* the readiness of its socket that it waits for */
    int64_t address_limit_ms;                /* how long an address may be silent during it */
    char *host_lists[TALLY_PG_N_HOST_LISTS]; /* replace the conninfo's; NULL = do not */
    bool is_address_silent;                  /* an address was silent in this attempt */
    int64_t silent_at_ms; /* when the current address counts as silent; monotonic */
    char *conninfo;       /* for libpq; never printed */
    char *label;          /* for messages: location without password */
    char *secret;         /* the password, to hide in libpq's messages; NULL = none */
    bool read_only;
    bool filling;         /* for tally migrate */
    bool is_opening;      /* the store is being opened, so no request waits */
    bool is_queue_broken; /* libpq did not accept a statement: the connection is unusable */
    char sqlstate[6];     /* of the server's last error; "" = the connection was lost */
    int64_t retry_at_ms;  /* no attempt to reconnect before this time; monotonic */
    int64_t backoff_ms;
    struct tally_pg_transaction transaction;
    struct tally_lease_set held;
    int64_t number;      /* of this replica; 0 = has not joined */
    int64_t incarnation; /* tells apart successive processes that join with the same id */
    int64_t lease_ms;
};

static inline struct tally_postgres *postgres_of(struct tally_store *store)
{
    return (struct tally_postgres *)store;
}

/* Connection (postgres_connection.c). */

/* Reads `conninfo`. Errors: INVALID_ARGUMENT, NO_MEMORY; messages do not quote it. */
enum tally_status tally_pg_init(struct tally_postgres *pg, const char *conninfo,
                                struct tally_error *err);
void tally_pg_fini(struct tally_postgres *pg);
/* Slot of backend.h. */
enum tally_status tally_pg_label(const char *conninfo, struct tally_buffer *out);
/* Closes the connection; an open transaction becomes broken. */
void tally_pg_drop(struct tally_postgres *pg);

/* Waits until the connection's socket is ready for one of poll()'s `events`, or the connection is
 * broken. False if that takes longer than timeout_ms. */
bool tally_pg_wait(const PGconn *connection, short events, int64_t timeout_ms);

/* Reports a server error or, if `result` is NULL, a connection error, with libpq's text but without
 * secrets. */
enum tally_status tally_pg_fail(struct tally_postgres *pg, const PGresult *result,
                                struct tally_error *err);
/* As tally_pg_fail(), for a lost connection, which it drops. */
enum tally_status tally_pg_fail_lost(struct tally_postgres *pg, struct tally_error *err);
/* Whether the last error of the server was a conflict with another transaction, so that a retry may
 * succeed. */
bool tally_pg_met_conflict(const struct tally_postgres *pg);

/* Exchanges. Queued statements are sent and answered together, in one round trip. */

/* Called with the result of statement `i` of the exchange, in order, for those that succeeded. It
 * may keep the result by setting *result to NULL. */
typedef void tally_pg_result_fn(void *context, int i, PGresult **result);

/* Queues a call; the parameters are copied. */
void tally_pg_queue(struct tally_postgres *pg, const struct tally_pg_call *call);
/* Sends the queued statements and reads their results. Returns the first error; statements after a
 * failed one were not run. A connection that is lost meanwhile is dropped. */
enum tally_status tally_pg_exchange(struct tally_postgres *pg, tally_pg_result_fn *each,
                                    void *context, struct tally_error *err);
/* The same for constant SQL. exec() runs the statements up to a NULL and ignores their rows; ask()
 * returns the one integer that a statement gives. */
void tally_pg_queue_sql(struct tally_postgres *pg, const char *sql);
enum tally_status tally_pg_exec(struct tally_postgres *pg, const char *const *sql,
                                struct tally_error *err);
enum tally_status tally_pg_ask(struct tally_postgres *pg, const char *sql, int64_t *ret_value,
                               struct tally_error *err);
/* Runs one call and frees its parameters. The caller clears *ret_result; ret_result may be NULL. */
enum tally_status tally_pg_run(struct tally_postgres *pg, struct tally_pg_call *call,
                               PGresult **ret_result, struct tally_error *err);

/* Session (postgres_session.c). */

/* Connects, waits until connected, and sets the session up, except for the prepared statements. */
enum tally_status tally_pg_connect(struct tally_postgres *pg, struct tally_error *err);
/* Ensures a connection that works, as far as can be told without asking the server. A lost
 * connection is re-established, no more often than the backoff allows, and without waiting for the
 * network for more than an instant: until it is established, each call makes the next step and
 * fails with STORE. Precondition: the server has no transaction of ours. */
enum tally_status tally_pg_require_connection(struct tally_postgres *pg, struct tally_error *err);

/* Schema (postgres_schema.c). */

/* Finds out what the database holds: nothing of ours, or our tables. Errors: those of
 * tally_schema_require(). */
enum tally_status tally_pg_identify(struct tally_postgres *pg, bool *ret_is_empty,
                                    struct tally_error *err);
/* Makes the tables if there are none, all in one transaction, one process at a time. Errors: also
 * those of identify. */
enum tally_status tally_pg_create(struct tally_postgres *pg, struct tally_error *err);

/* Statements (postgres_sql.c, postgres_values.c). */

enum tally_status tally_pg_prepare(struct tally_postgres *pg, struct tally_error *err);

struct tally_pg_call tally_pg_call(enum tally_pg_sql which);
void tally_pg_call_fini(struct tally_pg_call *call);
void tally_pg_bind_int64(struct tally_pg_call *call, int64_t value);
void tally_pg_bind_uint64(struct tally_pg_call *call, uint64_t value);
void tally_pg_bind_null(struct tally_pg_call *call);
/* A NULL text binds NULL. */
void tally_pg_bind_text(struct tally_pg_call *call, const char *text);
void tally_pg_bind_bytes(struct tally_pg_call *call, const void *bytes, size_t n);
/* The keys, or the tokens, of the jobs that have not ended, as bigint[]. */
void tally_pg_bind_keys(struct tally_pg_call *call, const struct tally_lease_set *leases);
void tally_pg_bind_tokens(struct tally_pg_call *call, const struct tally_lease_set *leases);
/* All columns of a row, or only those that are not fixed. */
void tally_pg_bind_row(struct tally_pg_call *call, const struct tally_columns *columns,
                       const void *row, bool moving_only);

/* A row of a result, read column after column. Errors: DATA_LOSS if a value is of a different type
 * or NULL; the first one stays in `status`, and what is read after it is 0, false or unset. */
struct tally_pg_row {
    struct tally_postgres *pg;
    const PGresult *result;
    int row;
    int column; /* the next one */
    enum tally_status status;
    struct tally_error *err;
};

struct tally_pg_row tally_pg_row(struct tally_postgres *pg, const PGresult *result, int row,
                                 struct tally_error *err);
/* Whether the next value is NULL. Does not take it. */
bool tally_pg_is_null(const struct tally_pg_row *row);
int64_t tally_pg_take_int64(struct tally_pg_row *row);
bool tally_pg_take_bool(struct tally_pg_row *row);
void tally_pg_take_text(struct tally_pg_row *row, char *ret_text, size_t capacity);
/* Borrowed from the result; NULL after a failure. */
const uint8_t *tally_pg_take_bytes(struct tally_pg_row *row, size_t *ret_n);
/* Fills in the member of each column. */
void tally_pg_take_columns(struct tally_pg_row *row, const struct tally_columns *columns,
                           void *ret_struct);
/* job_key and the columns of a job. */
void tally_pg_take_job(struct tally_pg_row *row, struct tally_store_job *ret_job);

/* Texts (postgres_text.c): PostgreSQL's are always valid UTF-8, ours are any bytes. */

/* Appends the stored form of a text. Errors: NO_MEMORY. */
enum tally_status tally_pg_text_encode(struct tally_buffer *out, const char *text);
/* Converts the stored form back, with a NUL at the end; false if it needs more than `capacity`. */
bool tally_pg_text_decode(const char *stored, size_t n, char *ret_text, size_t capacity);

/* Transactions (postgres_transaction.c): slots of store.h, and the collecting of writes. */

enum tally_status tally_pg_begin(struct tally_store *store, struct tally_error *err);
enum tally_status tally_pg_commit(struct tally_store *store, struct tally_error *err);
void tally_pg_rollback(struct tally_store *store);
/* Collects a write to a job; takes ownership of the call. */
enum tally_status tally_pg_transaction_add(struct tally_postgres *pg, struct tally_pg_call *call,
                                           int64_t job_key, struct tally_error *err);
/* Runs JOB_INSERT at once, because the caller needs its key; takes ownership of the call, whose
 * first parameter is NULL. */
enum tally_status tally_pg_transaction_insert_job(struct tally_postgres *pg,
                                                  struct tally_pg_call *call, int64_t *ret_key,
                                                  struct tally_error *err);
/* Sends the collected writes, so that a read sees them. */
enum tally_status tally_pg_flush(struct tally_store *store, struct tally_error *err);

/* Reads (postgres_read.c): slots of store.h. */
enum tally_status tally_pg_job_get(struct tally_store *store, const char *id,
                                   struct tally_store_job *ret_job, struct tally_error *err);
enum tally_status tally_pg_job_by_idempotency_key(struct tally_store *store,
                                                  const char *idempotency_key,
                                                  struct tally_store_job *ret_job,
                                                  uint64_t *ret_request_digest,
                                                  struct tally_error *err);
enum tally_status tally_pg_request_get(struct tally_store *store, int64_t job_key,
                                       struct tally_buffer *out, bool *ret_has_key,
                                       uint64_t *ret_request_digest, struct tally_error *err);
enum tally_status tally_pg_job_list(struct tally_store *store, int status, int64_t before_key,
                                    int64_t limit, tally_store_job_fn *each, void *context,
                                    struct tally_error *err);
enum tally_status tally_pg_job_list_live(struct tally_store *store, tally_store_job_fn *each,
                                         void *context, struct tally_error *err);
enum tally_status tally_pg_document_get(struct tally_store *store, int64_t job_key,
                                        struct tally_buffer *out, struct tally_error *err);
enum tally_status tally_pg_state_get(struct tally_store *store, int64_t job_key,
                                     struct tally_buffer *out, struct tally_error *err);
enum tally_status tally_pg_update_list(struct tally_store *store, int64_t job_key, int64_t round,
                                       tally_store_update_fn *each, void *context,
                                       struct tally_error *err);
enum tally_status tally_pg_round_list(struct tally_store *store, int64_t job_key,
                                      int64_t after_round, int64_t limit,
                                      tally_store_round_fn *each, void *context,
                                      struct tally_error *err);
enum tally_status tally_pg_model_list(struct tally_store *store, int64_t job_key,
                                      tally_store_model_fn *each, void *context,
                                      struct tally_error *err);
enum tally_status tally_pg_model_get(struct tally_store *store, int64_t job_key, int64_t slot,
                                     struct tally_buffer *out, struct tally_error *err);

/* Slot of backend.h (postgres_verify.c). */
enum tally_status tally_pg_verify(const char *conninfo, const struct tally_store_progress *progress,
                                  struct tally_store_report *ret_report, struct tally_error *err);

/* Leases (postgres_leases.c). */

extern const struct tally_store_leases TALLY_PG_LEASES;
/* After a reconnection: gets new tokens for the held leases. */
enum tally_status tally_pg_renew_tokens(struct tally_postgres *pg, struct tally_error *err);

/* Filling the database, for tally migrate (postgres_fill.c). */

/* Begins the server's transaction for the open one. The caller ends it, also on failure. */
enum tally_status tally_pg_begin_filling(struct tally_postgres *pg, struct tally_error *err);

#endif
