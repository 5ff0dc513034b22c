/* http_fixture: a server, a record of what its handler has seen, and clients that are non-blocking
 * sockets.
 *
 * The test runs the server's turns itself, in one thread, because it also tests the order of
 * events. */
#ifndef TALLY_TESTS_UNIT_API_HTTP_HTTP_FIXTURE_H
#define TALLY_TESTS_UNIT_API_HTTP_HTTP_FIXTURE_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/http/http_server_internal.h"
#include "tests/harness.h"
#include "tests/unit/api/manual_clock.h"
#include "tests/unit/api/raw_socket.h"

enum { MAX_BODY = 1000, MAX_WAITING = 1024, PATIENCE_MS = 120000, TAIL_BYTES = 1 << 20 };

/* The path selects the response; any other path gets that of /now:
 *   /now       200, text/plain, "hello"
 *   /echo      200, the body
 *   /status/N  N, "words" as static body
 *   /headers   200, extra headers
 *   /large     200, 8 MiB
 *   /brief/N   200, application/proto, N letters, brief
 *   /tail      200, "begin", and 1 MiB that all such responses share
 *   /wait...   sent later by the test */
struct fixture {
    struct tally_http_server *server;
    uint16_t port;
    struct tally_http_request *waiting[MAX_WAITING];
    size_t n_waiting;
    size_t n_requests, n_abandoned;
    uint64_t in_bytes, out_bytes; /* of all requests and responses */
    void *last_abandoned_user;
    char last_method[16], last_path[256], last_query[64], last_header[64];
    bool has_query, has_header;
    unsigned refused[TALLY_N_HTTP_REFUSALS];
    int last_refusal_status;
    struct tally_shared_bytes *tail;
};

/* Opens a server with these limits and fills in the callbacks. */
void fixture_open_config(struct fixture *f, struct tally_http_server_config config);
void fixture_open_with(struct fixture *f, unsigned max_connections, unsigned idle_timeout_s);
void fixture_open(struct fixture *f);
/* Also restarts the clock if the test stopped it. */
void fixture_close(struct fixture *f);

/* Send responses. answer_brief() sends `n` copies of the letter. */
void answer(struct fixture *f, struct tally_http_request *request,
            const struct tally_http_response *response);
void answer_text(struct fixture *f, struct tally_http_request *request, int status,
                 const char *text);
void answer_brief(struct fixture *f, struct tally_http_request *request, size_t n, char letter);

/* Runs one turn of the server, which waits at most timeout_ms. */
void step(struct fixture *f, int timeout_ms);
/* Runs the server for `ms` of real time, whatever happens. */
void step_for(struct fixture *f, long ms);
/* Runs the server until its clock has advanced by `ms`: at five times the real speed or more, or at
 * 4 ms per turn if the clock is stopped. */
void pass_time(struct fixture *f, long ms);
/* If end_ms has not passed, runs one more turn of the server and returns true. */
bool step_before(struct fixture *f, int64_t end_ms);
/* The time limit (real clock) of an operation that begins now. */
int64_t patience_end_ms(void);
/* Run the server until it has seen `n` requests or `n` abandoned ones, or has `n` connections. */
void await_requests(struct fixture *f, size_t n);
void await_abandoned(struct fixture *f, size_t n);
void await_connections(struct fixture *f, unsigned n);

int connected(const struct fixture *f);
/* Opens a connection whose request waits for its response. */
int wait_on_new_connection(struct fixture *f);
/* Sends all of `bytes` while running the server; false if the connection broke. */
bool send_all(struct fixture *f, int fd, const void *bytes, size_t n);
/* Runs the server until `in` holds a whole response or the connection ends. Returns whether the
 * connection is still open. */
bool await_response(struct fixture *f, int fd, struct tally_buffer *in, bool has_body);
void await_end(struct fixture *f, int fd, struct tally_buffer *in);
/* Sends a whole request on a new connection, waits for the response and returns its status. */
int ask(struct fixture *f, const char *request, struct tally_buffer *in);

int status_of(const struct tally_buffer *in);
const char *body_of(const struct tally_buffer *in);
bool holds(const struct tally_buffer *in, const char *text);

#endif
