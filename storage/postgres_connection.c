/* postgres_connection: one connection, made again when it is lost, and exchanges over it.
 *
 * The connection is in libpq's pipeline mode and does not block: whatever the server or the network
 * does, poll() waits, and not for ever. */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "storage/postgres_internal.h"

/* Connecting to one address takes no longer; libpq knows whole seconds from 2 on. */
#define CONNECT_TIMEOUT_S "2"
/* What has been sent and not been confirmed by the other machine for this long is lost. */
#define TCP_USER_TIMEOUT_MS "3000"
/* How long the server works on a statement, waiting for locks included; and how long neither side
 * says anything before the connection is given up. The first must be the shorter one. */
#define LIMIT_STATEMENTS "SET statement_timeout = 5000"
enum { SILENCE_MS = 7000 };
/* How long a process that was stopped between two exchanges of a bracket keeps its locks. */
#define LIMIT_IDLE_TRANSACTIONS "SET idle_in_transaction_session_timeout = 2000"
/* Waits between attempts to connect; the first attempt is made at once. */
enum { FIRST_BACKOFF_MS = 50, MAX_BACKOFF_MS = 1000 };

/* What was committed must be on the medium, also where the cluster's default is another. */
static const char DURABLE_COMMITS[] = "SELECT set_config('synchronous_commit', 'on', false)"
                                      " WHERE current_setting('synchronous_commit') = 'off'";

/* Settings of every session. */
static const char *const SESSION_SETTINGS[] = {
    LIMIT_STATEMENTS,
    "SET default_transaction_isolation = 'read committed'",
    "SET client_min_messages = 'error'",
    DURABLE_COMMITS,
    NULL,
};
static const char *const WRITER_SETTINGS[] = {
    /* A client that is cut off is noticed by the server, too, and its locks go. */
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

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* The value that an option has, or the one that libpq fills in; "" if neither. */
static const char *option_value(const PQconninfoOption *options, const char *keyword)
{
    for (const PQconninfoOption *option = options; option->keyword != NULL; option++) {
        if (strcmp(option->keyword, keyword) == 0) {
            const char *value = option->val != NULL ? option->val : option->compiled;
            return value != NULL ? value : "";
        }
    }
    return "";
}

/* "postgres:host:port/dbname", of what the conninfo itself says. */
static enum tally_status append_label(struct tally_buffer *out, const PQconninfoOption *options)
{
    const char *port = option_value(options, "port");
    enum tally_status status =
        tally_buffer_printf(out, "postgres:%s%s%s/%s", option_value(options, "host"),
                            port[0] != '\0' ? ":" : "", port, option_value(options, "dbname"));
    return status == TALLY_OK ? tally_buffer_append(out, "", 1) : status;
}

/* A password with an unescaped '@' or '/' has the rest of it taken for host or database. */
static bool has_stray_at(const PQconninfoOption *options)
{
    return strchr(option_value(options, "host"), '@') != NULL ||
           strchr(option_value(options, "port"), '@') != NULL ||
           strchr(option_value(options, "dbname"), '@') != NULL;
}

/* NULL if libpq does not understand it, or something else than was meant. Its message quotes what
 * it does not understand, which may be the password. */
static PQconninfoOption *parse(const char *conninfo)
{
    char *message = NULL;
    PQconninfoOption *options = PQconninfoParse(conninfo, &message);
    PQfreemem(message);
    if (options != NULL && has_stray_at(options)) {
        PQconninfoFree(options);
        return NULL;
    }
    return options;
}

enum tally_status tally_store_postgres_label(const char *conninfo, struct tally_buffer *out)
{
    PQconninfoOption *options = parse(conninfo);
    enum tally_status status = options != NULL
                                   ? append_label(out, options)
                                   : tally_buffer_append(out, "postgres:", sizeof "postgres:");
    PQconninfoFree(options);
    return status;
}

enum tally_status tally_pg_init(struct tally_postgres *pg, const char *conninfo,
                                struct tally_error *err)
{
    PQconninfoOption *options = parse(conninfo);
    if (options == NULL) {
        return tally_fail(
            err, TALLY_INVALID_ARGUMENT, NULL,
            "what follows \"postgres:\" is neither //USER@HOST/DATABASE, with %%40 and "
            "%%2F for @ and / in a password, nor \"host=HOST dbname=DATABASE ...\"; "
            "it is not shown, as it may hold a password");
    }
    struct tally_buffer label = {0};
    const char *secret = option_value(options, "password");
    enum tally_status status = append_label(&label, options);
    pg->label = (char *)label.data;
    pg->secret = secret[0] != '\0' ? strdup(secret) : NULL;
    pg->conninfo = strdup(conninfo);
    if (status != TALLY_OK || pg->conninfo == NULL || (secret[0] != '\0' && pg->secret == NULL)) {
        status = tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a database");
    }
    PQconninfoFree(options);
    return status;
}

void tally_pg_fini(struct tally_postgres *pg)
{
    tally_pg_drop(pg);
    free(pg->conninfo);
    free(pg->label);
    free(pg->secret);
}

void tally_pg_drop(struct tally_postgres *pg)
{
    PQfinish(pg->connection);
    pg->connection = NULL;
    pg->is_queue_broken = false;
    pg->bracket.is_broken = true;
    pg->bracket.is_begun = false;
}

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

/* The status for an SQLSTATE. */
static enum tally_status status_of(const char *state)
{
    static const struct {
        const char *start;
        enum tally_status status;
    } TABLE[] = {
        {"23505", TALLY_ALREADY_EXISTS}, {"XX001", TALLY_DATA_LOSS}, /* damaged page, wrong checksum
                                                                      */
        {"XX002", TALLY_DATA_LOSS},                                  /* damaged index */
        {"42P01", TALLY_DATA_LOSS}, /* our SQL is constant: what it names is missing */
        {"42703", TALLY_DATA_LOSS},      {"42883", TALLY_DATA_LOSS}, {"42804", TALLY_DATA_LOSS},
        {"42P07", TALLY_DATA_LOSS}, /* another program's table has the name of one of ours */
        {"54", TALLY_TOO_LARGE},         {"23", TALLY_INTERNAL},     {"22", TALLY_INTERNAL},
        {"42501", TALLY_STORE},                             /* not permitted */
        {"42", TALLY_INTERNAL},          {"", TALLY_STORE}, /* connection, disk, memory, locks,
                                                               time-outs, shutdown, ...: the medium
                                                             */
    };
    size_t i = 0;
    while (!starts_with(state, TABLE[i].start)) {
        i++;
    }
    return TABLE[i].status;
}

/* Copies libpq's text as one line, with the password hidden. */
static void copy_message(char *out, size_t capacity, const char *text, const char *secret)
{
    size_t n = 0;
    size_t n_secret = secret != NULL ? strlen(secret) : 0;
    while (text[0] != '\0' && n + 4 < capacity) {
        if (n_secret > 0 && starts_with(text, secret)) {
            memcpy(out + n, "***", 3);
            n += 3;
            text += n_secret;
        } else {
            out[n++] = text[0] == '\n' || text[0] == '\t' ? ' ' : text[0];
            text++;
        }
    }
    while (n > 0 && out[n - 1] == ' ') {
        n--;
    }
    out[n] = '\0';
}

enum tally_status tally_pg_fail(struct tally_postgres *pg, const PGresult *result,
                                struct tally_error *err)
{
    const char *state = result != NULL ? PQresultErrorField(result, PG_DIAG_SQLSTATE) : NULL;
    const char *text = state != NULL ? PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY) : NULL;
    if (text == NULL) {
        text = pg->connection != NULL ? PQerrorMessage(pg->connection) : "";
    }
    char message[256];
    copy_message(message, sizeof message, text, pg->secret);
    snprintf(pg->sqlstate, sizeof pg->sqlstate, "%s", state != NULL ? state : "");
    return tally_fail(err, status_of(pg->sqlstate), NULL, "database \"%s\": %s%s%s%s", pg->label,
                      message[0] != '\0' ? message : "the connection was lost",
                      state != NULL ? " (SQLSTATE " : "", state != NULL ? state : "",
                      state != NULL ? ")" : "");
}

bool tally_pg_met_conflict(const struct tally_postgres *pg)
{
    return strcmp(pg->sqlstate, "40001") == 0 || strcmp(pg->sqlstate, "40P01") == 0;
}

static enum tally_status fail_lost(struct tally_postgres *pg, struct tally_error *err)
{
    enum tally_status status = tally_pg_fail(pg, NULL, err);
    tally_pg_drop(pg);
    return status;
}

/* Waits until the connection can be read, or also written. False when time is up. */
static bool wait_for(const struct tally_postgres *pg, bool for_writing, int timeout_ms)
{
    struct pollfd ready = {.fd = PQsocket(pg->connection),
                           .events = (short)(POLLIN | (for_writing ? POLLOUT : 0))};
    int64_t deadline = now_ms() + timeout_ms;
    for (;;) {
        int64_t left = deadline - now_ms();
        int n = poll(&ready, 1, left > 0 ? (int)left : 0);
        if (n > 0 || (n < 0 && errno != EINTR)) {
            return true; /* libpq finds out what is wrong */
        }
        if (n == 0) {
            return false;
        }
    }
}

/* Sends what is left and waits until the next result is there. */
static enum tally_status wait_for_result(struct tally_postgres *pg, struct tally_error *err)
{
    for (;;) {
        int left = PQflush(pg->connection);
        if (left < 0) {
            /* The server may have said why it hung up. */
            PQconsumeInput(pg->connection);
            return TALLY_OK;
        }
        if (PQisBusy(pg->connection) == 0) {
            return TALLY_OK;
        }
        if (!wait_for(pg, left > 0, SILENCE_MS)) {
            tally_pg_drop(pg);
            return tally_fail(err, TALLY_STORE, NULL, "database \"%s\": no answer for %d ms",
                              pg->label, (int)SILENCE_MS);
        }
        if (PQconsumeInput(pg->connection) != 1) {
            return TALLY_OK;
        }
    }
}

enum tally_status tally_pg_exchange(struct tally_postgres *pg, tally_pg_result_fn *each,
                                    void *context, struct tally_error *err)
{
    if (pg->connection == NULL || pg->is_queue_broken || PQpipelineSync(pg->connection) != 1) {
        return fail_lost(pg, err);
    }
    enum tally_status status = TALLY_OK;
    for (int i = 0;; i++) {
        enum tally_status waited = wait_for_result(pg, err);
        if (waited != TALLY_OK) {
            return status == TALLY_OK ? waited : status;
        }
        PGresult *result = PQgetResult(pg->connection);
        ExecStatusType type = PQresultStatus(result);
        if (type == PGRES_PIPELINE_SYNC) {
            PQclear(result);
            return status;
        }
        if (type == PGRES_COMMAND_OK || type == PGRES_TUPLES_OK) {
            if (each != NULL && status == TALLY_OK) {
                each(context, i, &result);
            }
        } else if (type != PGRES_PIPELINE_ABORTED && status == TALLY_OK) {
            status = tally_pg_fail(pg, result, err);
        }
        PQclear(result);
        if (PQstatus(pg->connection) == CONNECTION_BAD) {
            enum tally_status lost = fail_lost(pg, err);
            return status == TALLY_OK ? lost : status;
        }
        waited = wait_for_result(pg, err);
        if (waited != TALLY_OK) {
            return status == TALLY_OK ? waited : status;
        }
        PGresult *end = PQgetResult(pg->connection); /* NULL after each statement */
        assert(end == NULL);
        (void)end;
    }
}

static void keep_result(void *context, int i, PGresult **result)
{
    PGresult **kept = context;
    (void)i;
    PQclear(*kept);
    *kept = *result;
    *result = NULL;
}

enum tally_status tally_pg_run(struct tally_postgres *pg, struct tally_pg_call *call,
                               PGresult **ret_result, struct tally_error *err)
{
    enum tally_status status = call->status;
    PGresult *result = NULL;
    if (status != TALLY_OK) {
        tally_fail(err, status, NULL, "no memory for a statement of a database");
    } else {
        tally_pg_queue(pg, call);
        status = tally_pg_exchange(pg, keep_result, &result, err);
    }
    tally_pg_call_fini(call);
    if (status == TALLY_OK && ret_result != NULL) {
        *ret_result = result;
    } else {
        PQclear(result);
    }
    return status;
}

void tally_pg_queue_sql(struct tally_postgres *pg, const char *sql)
{
    if (PQsendQueryParams(pg->connection, sql, 0, NULL, NULL, NULL, NULL, 1) != 1) {
        pg->is_queue_broken = true;
    }
}

enum tally_status tally_pg_exec(struct tally_postgres *pg, const char *const *sql,
                                struct tally_error *err)
{
    for (; *sql != NULL; sql++) {
        tally_pg_queue_sql(pg, *sql);
    }
    return tally_pg_exchange(pg, NULL, NULL, err);
}

enum tally_status tally_pg_ask(struct tally_postgres *pg, const char *sql, int64_t *ret_value,
                               struct tally_error *err)
{
    PGresult *result = NULL;
    tally_pg_queue_sql(pg, sql);
    enum tally_status status = tally_pg_exchange(pg, keep_result, &result, err);
    if (status == TALLY_OK) {
        status = PQntuples(result) == 1
                     ? tally_pg_read_int64(pg, result, 0, 0, ret_value, err)
                     : tally_fail(err, TALLY_DATA_LOSS, NULL, "database \"%s\": %d rows, not 1",
                                  pg->label, PQntuples(result));
    }
    PQclear(result);
    return status;
}

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
                            "database \"%s\" has the encoding %s; it must be made with UTF8",
                            pg->label, encoding != NULL ? encoding : "?");
}

enum tally_status tally_pg_connect(struct tally_postgres *pg, struct tally_error *err)
{
    /* What stands before dbname can be overruled by the conninfo in it; what follows cannot. */
    const char *const keywords[] = {"fallback_application_name",
                                    "connect_timeout",
                                    "tcp_user_timeout",
                                    "keepalives_idle",
                                    "keepalives_interval",
                                    "keepalives_count",
                                    "dbname",
                                    "client_encoding",
                                    NULL};
    const char *const values[] = {
        "tally", CONNECT_TIMEOUT_S, TCP_USER_TIMEOUT_MS, "2", "1", "3", pg->conninfo, "UTF8", NULL};
    tally_pg_drop(pg);
    pg->connection = PQconnectdbParams(keywords, values, 1);
    if (PQstatus(pg->connection) != CONNECTION_OK) {
        return fail_lost(pg, err);
    }
    PQsetNoticeReceiver(pg->connection, ignore_notice, NULL);
    if (PQsetnonblocking(pg->connection, 1) != 0 || PQenterPipelineMode(pg->connection) != 1) {
        return fail_lost(pg, err);
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

static enum tally_status reconnect(struct tally_postgres *pg, struct tally_error *err)
{
    enum tally_status status = tally_pg_connect(pg, err);
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

/* Whether a connection that nobody uses was ended by the other side. Its last words come before its
 * end, each in a read of its own. */
static bool is_lost(struct tally_postgres *pg)
{
    enum { MAX_READS = 8 };
    for (int i = 0; i < MAX_READS && pg->connection != NULL && wait_for(pg, false, 0); i++) {
        if (PQconsumeInput(pg->connection) != 1) {
            return true;
        }
        (void)PQisBusy(pg->connection); /* takes in what was read */
    }
    return PQstatus(pg->connection) != CONNECTION_OK;
}

enum tally_status tally_pg_require_connection(struct tally_postgres *pg, struct tally_error *err)
{
    assert(!pg->bracket.is_begun);
    if (!is_lost(pg)) {
        return TALLY_OK;
    }
    tally_pg_drop(pg);
    if (pg->read_only) {
        return tally_fail(err, TALLY_STORE, NULL,
                          "database \"%s\": the connection was lost, and with it the snapshot",
                          pg->label);
    }
    int64_t now = now_ms();
    if (now < pg->retry_at_ms) {
        return tally_fail(err, TALLY_STORE, NULL,
                          "database \"%s\": the connection was lost, next attempt in %lld ms",
                          pg->label, (long long)(pg->retry_at_ms - now));
    }
    enum tally_status status = reconnect(pg, err);
    if (status == TALLY_OK) {
        pg->counters.reconnects++;
        pg->backoff_ms = 0;
        pg->retry_at_ms = 0;
        return TALLY_OK;
    }
    pg->backoff_ms = pg->backoff_ms == 0 ? FIRST_BACKOFF_MS : 2 * pg->backoff_ms;
    pg->backoff_ms = pg->backoff_ms > MAX_BACKOFF_MS ? MAX_BACKOFF_MS : pg->backoff_ms;
    pg->retry_at_ms = now_ms() + pg->backoff_ms;
    return status;
}
