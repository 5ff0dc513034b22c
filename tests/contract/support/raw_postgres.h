/* raw_postgres: PostgreSQL without the store, for tests that prepare, disturb or inspect the
 * store's work.
 *
 * Connections go to the database TALLY_POSTGRES. A failure ends the test. */
#ifndef TALLY_TESTS_CONTRACT_SUPPORT_RAW_POSTGRES_H
#define TALLY_TESTS_CONTRACT_SUPPORT_RAW_POSTGRES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Creates an empty schema with a new name. */
void raw_make_schema(char *ret_schema, size_t capacity);
void raw_drop_schema(const char *schema);

/* A connection that uses a schema. */
struct raw;
struct raw *raw_open(const char *schema);
void raw_close(struct raw *raw);

/* Runs one or several SQL statements. Returns the first column of the last statement's first row,
 * or 0 if there is none. */
int64_t raw_run(struct raw *raw, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Whether SQL succeeds. */
bool raw_succeeds(struct raw *raw, const char *sql);
/* Sends SQL without waiting for the result; raw_wait() waits. */
void raw_send(struct raw *raw, const char *sql);
void raw_wait(struct raw *raw);
bool raw_is_busy(struct raw *raw);

/* As raw_run(), on a new connection. */
int64_t raw_ask(const char *schema, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The number of rows of a table. */
int64_t raw_n_rows(const char *schema, const char *table);

/* Host and port of the server of TALLY_POSTGRES, for getaddrinfo(). */
void raw_find_server(char *ret_host, size_t host_capacity, char *ret_port, size_t port_capacity);

/* Ends the connections of the stores in a schema, as an administrator would, and waits for their
 * end. */
void raw_end_connections(const char *schema);

#endif
