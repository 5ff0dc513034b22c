#include "tests/contract/support/raw_postgres.h"

#include <libpq-fe.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/harness.h"

/* "struct raw" is libpq's connection. */
static PGconn *connection_of(struct raw *raw)
{
    return (PGconn *)raw;
}

static void ignore_notice(void *context, const PGresult *notice)
{
    (void)context;
    (void)notice;
}

struct raw *raw_open(const char *schema)
{
    char options[96];
    snprintf(options, sizeof options, "-c search_path=%s", schema);
    const char *const keywords[] = {"dbname", "options", NULL};
    const char *const values[] = {getenv("TALLY_POSTGRES"), options, NULL};
    PGconn *connection = PQconnectdbParams(keywords, values, 1);
    if (PQstatus(connection) != CONNECTION_OK) {
        printf("\n    %s", PQerrorMessage(connection));
    }
    CU_ASSERT_EQUAL_FATAL(PQstatus(connection), CONNECTION_OK);
    PQsetNoticeReceiver(connection, ignore_notice, NULL);
    return (struct raw *)connection;
}

void raw_close(struct raw *raw)
{
    PQfinish(connection_of(raw));
}

/* Checks a result, returns its first value and clears it. */
static int64_t value_of(struct raw *raw, PGresult *result)
{
    ExecStatusType status = PQresultStatus(result);
    int64_t value = 0;
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
        printf("\n    %s", PQerrorMessage(connection_of(raw)));
        CU_FAIL("raw SQL");
    } else if (status == PGRES_TUPLES_OK && PQntuples(result) > 0 && PQnfields(result) > 0) {
        value = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
    }
    PQclear(result);
    return value;
}

static int64_t run(struct raw *raw, const char *format, va_list arguments)
{
    char sql[2048];
    int n = vsnprintf(sql, sizeof sql, format, arguments);
    CU_ASSERT_FATAL(n > 0 && n < (int)sizeof sql);
    return value_of(raw, PQexec(connection_of(raw), sql));
}

int64_t raw_run(struct raw *raw, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int64_t value = run(raw, format, arguments);
    va_end(arguments);
    return value;
}

bool raw_succeeds(struct raw *raw, const char *sql)
{
    PGresult *result = PQexec(connection_of(raw), sql);
    ExecStatusType status = PQresultStatus(result);
    PQclear(result);
    return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
}

int64_t raw_ask(const char *schema, const char *format, ...)
{
    struct raw *raw = raw_open(schema);
    va_list arguments;
    va_start(arguments, format);
    int64_t value = run(raw, format, arguments);
    va_end(arguments);
    raw_close(raw);
    return value;
}

void raw_send(struct raw *raw, const char *sql)
{
    CU_ASSERT_EQUAL_FATAL(PQsendQuery(connection_of(raw), sql), 1);
}

void raw_wait(struct raw *raw)
{
    for (PGresult *result = PQgetResult(connection_of(raw)); result != NULL;
         result = PQgetResult(connection_of(raw))) {
        value_of(raw, result);
    }
}

bool raw_is_busy(struct raw *raw)
{
    PQconsumeInput(connection_of(raw));
    return PQisBusy(connection_of(raw)) != 0;
}

void raw_make_schema(char *ret_schema, size_t capacity)
{
    static int n_made;
    snprintf(ret_schema, capacity, "tally_test_%ld_%d", (long)getpid(), ++n_made);
    raw_ask("public", "CREATE SCHEMA %s", ret_schema);
}

void raw_drop_schema(const char *schema)
{
    raw_ask("public", "DROP SCHEMA %s CASCADE", schema);
}

void raw_find_server(char *ret_host, size_t host_capacity, char *ret_port, size_t port_capacity)
{
    struct raw *raw = raw_open("public");
    snprintf(ret_host, host_capacity, "%s", PQhost(connection_of(raw)));
    snprintf(ret_port, port_capacity, "%s", PQport(connection_of(raw)));
    raw_close(raw);
}

void raw_end_connections(const char *schema)
{
    raw_ask("public",
            "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity"
            " WHERE application_name = '%s'",
            schema);
}

int64_t raw_n_rows(const char *schema, const char *table)
{
    return raw_ask(schema, "SELECT count(*) FROM %s", table);
}
