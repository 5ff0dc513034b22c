/* postgres_session: makes the connection, reconnects when it is lost, and sets up sessions.
 *
 * Opening the store waits for the connection. Later the coordinator's only thread calls, and a
 * network that drops packets must not block it. So a lost connection is re-established in steps,
 * one at each call that needs it; until it is there, those calls fail at once. Only the first of
 * them waits for a moment, long enough for a server nearby to answer. */
#include <assert.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "codec/monotonic.h"
#include "storage/postgres/postgres_internal.h"

/* How long an address may be silent during an attempt to connect, unless the conninfo has a
 * different limit. libpq, which applies the limit when the store is opened, accepts whole seconds
 * from 2 on. */
#define CONNECT_TIMEOUT_S "2"
enum { CONNECT_TIMEOUT_MS = 2000 };
/* How long the call that begins a new connection waits for it. */
enum { PATIENCE_MS = 20 };
/* How long sent bytes may stay unacknowledged before the connection counts as lost. */
#define TCP_USER_TIMEOUT_MS "3000"
/* How long the server waits for a lock: less than the silence that ends a connection
 * (postgres_connection.c), and more than the limit after which a stopped process loses its
 * locks. */
#define LIMIT_LOCKS "SET lock_timeout = 2500"
/* How long the server works on a statement, which includes sending a large value over a slow
 * network. */
#define LIMIT_STATEMENTS "SET statement_timeout = 30000"
/* How long a process that was stopped between two exchanges of a transaction keeps its locks. */
#define LIMIT_IDLE_TRANSACTIONS "SET idle_in_transaction_session_timeout = 2000"
/* Waits between attempts to connect; the first attempt is made at once. */
enum { FIRST_BACKOFF_MS = 50, MAX_BACKOFF_MS = 1000 };

/* What was committed must be on the medium, even if the cluster's default is different. */
static const char DURABLE_COMMITS[] = "SELECT set_config('synchronous_commit', 'on', false)"
                                      " WHERE current_setting('synchronous_commit') = 'off'";

/* Settings of every session. */
static const char *const SESSION_SETTINGS[] = {
    LIMIT_LOCKS,
    LIMIT_STATEMENTS,
    "SET default_transaction_isolation = 'read committed'",
    "SET client_min_messages = 'error'",
    DURABLE_COMMITS,
    NULL,
};
static const char *const WRITER_SETTINGS[] = {
    /* So that the server notices a client that was cut off, and releases its locks. */
    "SET tcp_keepalives_idle = 5",
    "SET tcp_keepalives_interval = 2",
    "SET tcp_keepalives_count = 3",
    LIMIT_IDLE_TRANSACTIONS,
    "SET default_transaction_read_only = off",
    NULL,
};
static const char *const READER_SETTINGS[] = {
    "SET idle_in_transaction_session_timeout = 0",
    "SET default_transaction_read_only = on",
    NULL,
};

/* Notices would go to stderr. */
static void ignore_notice(void *context, const PGresult *notice)
{
    (void)context;
    (void)notice;
}

/* Our texts are stored as UTF-8; in another encoding some cannot be stored at all. */
static enum tally_status require_utf8(struct tally_postgres *pg, struct tally_error *err)
{
    const char *encoding = PQparameterStatus(pg->connection, "server_encoding");
    return encoding != NULL && strcmp(encoding, "UTF8") == 0
               ? TALLY_OK
               : tally_fail(err, TALLY_STORE, NULL,
                            "database \"%s\" has encoding %s; it must be created with UTF8",
                            pg->label, encoding != NULL ? encoding : "?");
}

/* Options that the conninfo may have as lists, with one entry per host. */
static const char *const HOST_KEYWORDS[TALLY_PG_N_HOST_LISTS] = {"host", "hostaddr", "port"};

/* The parameters for libpq, as two arrays that end with NULL. */
struct parameters {
    const char *keywords[9 + TALLY_PG_N_HOST_LISTS];
    const char *values[9 + TALLY_PG_N_HOST_LISTS];
};

static struct parameters parameters_of(const struct tally_postgres *pg)
{
    enum { N_ALWAYS = 8 };
    /* The conninfo, in dbname, overrides what stands before it, but not what follows it. */
    struct parameters parameters = {
        .keywords = {"fallback_application_name", "connect_timeout", "tcp_user_timeout",
                     "keepalives_idle", "keepalives_interval", "keepalives_count", "dbname",
                     "client_encoding"},
        .values = {"tally", CONNECT_TIMEOUT_S, TCP_USER_TIMEOUT_MS, "2", "1", "3", pg->conninfo,
                   "UTF8"},
    };
    for (int i = 0; i < TALLY_PG_N_HOST_LISTS; i++) { /* libpq ignores a keyword with no value */
        parameters.keywords[N_ALWAYS + i] = HOST_KEYWORDS[i];
        parameters.values[N_ALWAYS + i] = pg->host_lists[i];
    }
    return parameters;
}

/* "b,c,a" for "a,b,c"; NULL = no memory. */
static char *rotated(const char *list)
{
    const char *comma = strchr(list, ',');
    size_t capacity = strlen(list) + 1;
    char *result = malloc(capacity);
    if (result != NULL && comma != NULL) {
        snprintf(result, capacity, "%s,%.*s", comma + 1, (int)(comma - list), list);
    } else if (result != NULL) {
        memcpy(result, list, capacity);
    }
    return result;
}

static int find_host_keyword(const char *keyword)
{
    int i = 0;
    while (i < TALLY_PG_N_HOST_LISTS && strcmp(keyword, HOST_KEYWORDS[i]) != 0) {
        i++;
    }
    return i;
}

/* Makes the next attempt begin with the host after the one that this attempt began with. libpq
 * itself moves on only if it cannot connect, not if it is connected to a host that does not answer.
 * If memory runs out, the next attempt uses the order of the conninfo. */
static void begin_with_next_host(struct tally_postgres *pg)
{
    bool has_all = true;
    PQconninfoOption *options = PQconninfo(pg->attempt);
    for (const PQconninfoOption *each = options; each != NULL && each->keyword != NULL; each++) {
        int i = find_host_keyword(each->keyword);
        if (i < TALLY_PG_N_HOST_LISTS && each->val != NULL) {
            free(pg->host_lists[i]);
            pg->host_lists[i] = rotated(each->val);
            has_all = has_all && pg->host_lists[i] != NULL;
        }
    }
    PQconninfoFree(options);
    for (int i = 0; i < TALLY_PG_N_HOST_LISTS && !has_all; i++) {
        free(pg->host_lists[i]);
        pg->host_lists[i] = NULL;
    }
}

/* Sets a new connection up, except for the prepared statements and the tokens. */
static enum tally_status set_up(struct tally_postgres *pg, struct tally_error *err)
{
    if (PQstatus(pg->connection) != CONNECTION_OK) {
        return tally_pg_fail_lost(pg, err);
    }
    PQsetNoticeReceiver(pg->connection, ignore_notice, NULL);
    if (PQsetnonblocking(pg->connection, 1) != 0 || PQenterPipelineMode(pg->connection) != 1) {
        return tally_pg_fail_lost(pg, err);
    }
    enum tally_status status = require_utf8(pg, err);
    if (status == TALLY_OK) {
        status = tally_pg_exec(pg, SESSION_SETTINGS, err);
    }
    if (status == TALLY_OK) {
        status = tally_pg_exec(pg, pg->read_only ? READER_SETTINGS : WRITER_SETTINGS, err);
    }
    return status;
}

enum tally_status tally_pg_connect(struct tally_postgres *pg, struct tally_error *err)
{
    struct parameters parameters = parameters_of(pg);
    tally_pg_drop(pg);
    pg->connection = PQconnectdbParams(parameters.keywords, parameters.values, 1);
    return set_up(pg, err);
}

/* The limit for an address, which the conninfo may have set. */
static int64_t connect_timeout_ms(const PGconn *connection)
{
    enum { MAX_S = 3600 };
    int64_t ms = CONNECT_TIMEOUT_MS;
    PQconninfoOption *options = PQconninfo((PGconn *)connection);
    for (const PQconninfoOption *each = options; each != NULL && each->keyword != NULL; each++) {
        if (strcmp(each->keyword, "connect_timeout") == 0 && each->val != NULL) {
            long s = strtol(each->val, NULL, 10);
            ms = s * 1000 > ms ? (s < MAX_S ? s : MAX_S) * 1000 : ms;
        }
    }
    PQconninfoFree(options);
    return ms;
}

static void begin_attempt(struct tally_postgres *pg)
{
    struct parameters parameters = parameters_of(pg);
    pg->attempt = PQconnectStartParams(parameters.keywords, parameters.values, 1);
    pg->attempt_wants =
        PQstatus(pg->attempt) != CONNECTION_BAD ? PGRES_POLLING_WRITING : PGRES_POLLING_FAILED;
    pg->is_address_silent = false;
    pg->address_limit_ms = connect_timeout_ms(pg->attempt);
    pg->silent_at_ms = tally_monotonic_ms() + pg->address_limit_ms;
}

/* If nothing at all has answered at this address, makes connect() fail, so that libpq continues
 * with the next address, if there is one. Returns false if something has answered. */
static bool skip_address(struct tally_postgres *pg)
{
    pg->is_address_silent = true;
    if (PQstatus(pg->attempt) != CONNECTION_STARTED) {
        return false;
    }
    (void)shutdown(PQsocket(pg->attempt), SHUT_RDWR);
    return true;
}

/* Whether the attempt, after all steps that can be made within `patience_ms`, is still in
 * progress. */
static bool is_under_way(struct tally_postgres *pg, int patience_ms)
{
    int64_t until = tally_monotonic_ms() + patience_ms;
    while (pg->attempt_wants == PGRES_POLLING_READING ||
           pg->attempt_wants == PGRES_POLLING_WRITING) {
        /* The socket may be a different one after each step. */
        int64_t left = until - tally_monotonic_ms();
        if (!tally_pg_wait(pg->attempt,
                           pg->attempt_wants == PGRES_POLLING_READING ? POLLIN : POLLOUT,
                           left > 0 ? left : 0)) {
            if (tally_monotonic_ms() < pg->silent_at_ms) {
                return true;
            }
            if (!skip_address(pg)) {
                return false;
            }
        }
        pg->attempt_wants = PQconnectPoll(pg->attempt);
        pg->silent_at_ms = tally_monotonic_ms() + pg->address_limit_ms;
    }
    return false;
}

/* Makes the connection of the finished attempt the store's own. */
static enum tally_status conclude_attempt(struct tally_postgres *pg, struct tally_error *err)
{
    bool has_failed = pg->attempt_wants != PGRES_POLLING_OK;
    if (has_failed && pg->is_address_silent) {
        begin_with_next_host(pg);
    }
    pg->connection = pg->attempt;
    pg->attempt = NULL;
    if (has_failed && pg->is_address_silent) {
        tally_pg_drop(pg);
        return tally_fail(err, TALLY_STORE, NULL,
                          "database \"%s\": no answer for %lld ms while connecting", pg->label,
                          (long long)pg->address_limit_ms);
    }
    enum tally_status status = set_up(pg, err);
    if (status == TALLY_OK) {
        status = tally_pg_prepare(pg, err);
    }
    if (status == TALLY_OK) {
        status = tally_pg_renew_tokens(pg, err);
    }
    if (status != TALLY_OK) {
        tally_pg_drop(pg);
    }
    return status;
}

/* Whether the other side has ended an idle connection. Its last messages come before the end, each
 * in a read of its own. */
static bool is_lost(struct tally_postgres *pg)
{
    enum { MAX_READS = 8 };
    for (int i = 0;
         i < MAX_READS && pg->connection != NULL && tally_pg_wait(pg->connection, POLLIN, 0); i++) {
        if (PQconsumeInput(pg->connection) != 1) {
            return true;
        }
        (void)PQisBusy(pg->connection); /* processes what was read */
    }
    return PQstatus(pg->connection) != CONNECTION_OK;
}

/* Reconnects, as far as is possible now. */
static enum tally_status reconnect(struct tally_postgres *pg, struct tally_error *err)
{
    int patience_ms = 0;
    if (pg->attempt == NULL) {
        int64_t left_ms = pg->retry_at_ms - tally_monotonic_ms();
        if (left_ms > 0) {
            return tally_fail(err, TALLY_STORE, NULL,
                              "database \"%s\": the connection was lost, next attempt in %lld ms",
                              pg->label, (long long)left_ms);
        }
        begin_attempt(pg);
        patience_ms = PATIENCE_MS;
    }
    if (is_under_way(pg, patience_ms)) {
        return tally_fail(err, TALLY_STORE, NULL, "database \"%s\" is being connected to",
                          pg->label);
    }
    enum tally_status status = conclude_attempt(pg, err);
    if (status == TALLY_OK) {
        pg->counters.reconnects++;
        pg->backoff_ms = 0;
        pg->retry_at_ms = 0;
        return TALLY_OK;
    }
    pg->backoff_ms = pg->backoff_ms == 0 ? FIRST_BACKOFF_MS : 2 * pg->backoff_ms;
    pg->backoff_ms = pg->backoff_ms > MAX_BACKOFF_MS ? MAX_BACKOFF_MS : pg->backoff_ms;
    pg->retry_at_ms = tally_monotonic_ms() + pg->backoff_ms;
    return status;
}

enum tally_status tally_pg_require_connection(struct tally_postgres *pg, struct tally_error *err)
{
    assert(!pg->transaction.is_begun);
    if (!is_lost(pg)) {
        return TALLY_OK;
    }
    tally_pg_drop(pg);
    if (pg->read_only) {
        return tally_fail(err, TALLY_STORE, NULL,
                          "database \"%s\": the connection was lost, and with it the snapshot",
                          pg->label);
    }
    return reconnect(pg, err);
}
