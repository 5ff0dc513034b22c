/* postgres_connection: where the database is, and exchanges over one connection.
 *
 * The connection is in libpq's pipeline mode and does not block: whatever the server or the network
 * does, only poll() waits, with a time limit. postgres_session.c makes the connection. */
#include <assert.h>
#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "codec/monotonic.h"
#include "storage/postgres/postgres_internal.h"

/* How long both sides may be silent before the connection is dropped: longer than the server waits
 * for a lock (postgres_session.c). While the store is being opened, a migration by this process, or
 * by another that it waits for, may take longer. */
enum { SILENCE_MS = 3000, SILENCE_WHEN_OPENING_MS = 60000 };
/* How often to check whether the number of unacknowledged bytes has changed. */
enum { LOOK_MS = 250 };

/* The value of an option, or libpq's built-in default; "" if neither. */
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

/* "postgres:host:port/dbname", from what the conninfo itself says, or the service that it names. */
static enum tally_status append_label(struct tally_buffer *out, const PQconninfoOption *options)
{
    const char *host = option_value(options, "host"), *port = option_value(options, "port");
    const char *service = option_value(options, "service");
    enum tally_status status =
        service[0] != '\0' && host[0] == '\0'
            ? tally_buffer_printf(out, "postgres:service=%s", service)
            : tally_buffer_printf(out, "postgres:%s%s%s/%s", host, port[0] != '\0' ? ":" : "", port,
                                  option_value(options, "dbname"));
    return status == TALLY_OK ? tally_buffer_append(out, "", 1) : status;
}

/* libpq takes what follows an unescaped '@' or '/' in a password for host or database. */
static bool has_stray_at(const PQconninfoOption *options)
{
    return strchr(option_value(options, "host"), '@') != NULL ||
           strchr(option_value(options, "port"), '@') != NULL ||
           strchr(option_value(options, "dbname"), '@') != NULL;
}

/* Returns NULL if libpq does not understand the conninfo, or understands it differently from what
 * was meant. libpq's message quotes what it does not understand, which may be the password. */
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

enum tally_status tally_pg_label(const char *conninfo, struct tally_buffer *out)
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
    PQfinish(pg->attempt);
    for (int i = 0; i < TALLY_PG_N_HOST_LISTS; i++) {
        free(pg->host_lists[i]);
    }
    free(pg->conninfo);
    free(pg->label);
    free(pg->secret);
}

void tally_pg_drop(struct tally_postgres *pg)
{
    PQfinish(pg->connection);
    pg->connection = NULL;
    pg->is_queue_broken = false;
    pg->transaction.is_broken = true;
    pg->transaction.is_begun = false;
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
        {"42P01", TALLY_DATA_LOSS}, /* our SQL is constant, so what it names must be missing */
        {"42703", TALLY_DATA_LOSS},      {"42883", TALLY_DATA_LOSS}, {"42804", TALLY_DATA_LOSS},
        {"42P07", TALLY_DATA_LOSS}, /* another program's table has the name of one of ours */
        {"54", TALLY_TOO_LARGE},         {"23", TALLY_INTERNAL},     {"22", TALLY_INTERNAL},
        {"42501", TALLY_STORE},                             /* not permitted */
        {"42", TALLY_INTERNAL},          {"", TALLY_STORE}, /* everything else is the medium:
                                                               connection, disk, memory, locks,
                                                               time-outs, shutdown, ... */
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
    return !pg->filling && /* a filling transaction does not keep its writes */
           (strcmp(pg->sqlstate, "40001") == 0 || strcmp(pg->sqlstate, "40P01") == 0);
}

enum tally_status tally_pg_fail_lost(struct tally_postgres *pg, struct tally_error *err)
{
    enum tally_status status = tally_pg_fail(pg, NULL, err);
    tally_pg_drop(pg);
    return status;
}

bool tally_pg_wait(const PGconn *connection, short events, int64_t timeout_ms)
{
    struct pollfd ready = {.fd = PQsocket(connection), .events = events};
    int64_t deadline = tally_monotonic_ms() + timeout_ms;
    for (;;) {
        int64_t left = deadline - tally_monotonic_ms();
        int n = poll(&ready, 1, left > 0 ? (int)left : 0);
        if (n > 0 || (n < 0 && errno != EINTR)) {
            return true; /* libpq finds out what is wrong */
        }
        if (n == 0 && left <= 0) {
            return false;
        }
    }
}

/* Bytes in the kernel that the other machine has not acknowledged; 0 if this is not known. */
static int n_in_flight(const PGconn *connection)
{
    int n = 0;
    return ioctl(PQsocket(connection), SIOCOUTQ, &n) == 0 ? n : 0;
}

/* Waits until the connection is ready for one of `events`. Returns false after `silence_ms` in
 * which nothing was received or acknowledged. */
static bool wait_unless_silent(const PGconn *connection, short events, int silence_ms)
{
    int64_t silent_since = tally_monotonic_ms();
    int n_before = n_in_flight(connection);
    while (!tally_pg_wait(connection, events, LOOK_MS)) {
        int n = n_in_flight(connection);
        if (n != n_before) {
            silent_since = tally_monotonic_ms();
            n_before = n;
        } else if (tally_monotonic_ms() - silent_since >= silence_ms) {
            return false;
        }
    }
    return true;
}

/* Sends what is left and waits for the next result. */
static enum tally_status wait_for_result(struct tally_postgres *pg, struct tally_error *err)
{
    const int silence_ms = pg->is_opening ? SILENCE_WHEN_OPENING_MS : SILENCE_MS;
    for (;;) {
        int left = PQflush(pg->connection);
        if (left < 0) {
            /* The server may have sent its reason for closing the connection. */
            PQconsumeInput(pg->connection);
            return TALLY_OK;
        }
        if (PQisBusy(pg->connection) == 0) {
            return TALLY_OK;
        }
        if (!wait_unless_silent(pg->connection, (short)(left > 0 ? POLLIN | POLLOUT : POLLIN),
                                silence_ms)) {
            tally_pg_drop(pg);
            return tally_fail(err, TALLY_STORE, NULL, "database \"%s\": no answer for %d ms",
                              pg->label, silence_ms);
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
        return tally_pg_fail_lost(pg, err);
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
            enum tally_status lost = tally_pg_fail_lost(pg, err);
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
    if (status == TALLY_OK && PQntuples(result) != 1) {
        status = tally_fail(err, TALLY_DATA_LOSS, NULL, "database \"%s\": %d rows, not 1",
                            pg->label, PQntuples(result));
    }
    if (status == TALLY_OK) {
        struct tally_pg_row row = tally_pg_row(pg, result, 0, err);
        const int64_t value = tally_pg_take_int64(&row);
        status = row.status;
        *ret_value = status == TALLY_OK ? value : *ret_value;
    }
    PQclear(result);
    return status;
}
