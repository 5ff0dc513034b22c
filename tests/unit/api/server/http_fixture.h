/* http_fixture: a server, what its handler has seen, and clients that are non-blocking sockets.
 *
 * The test turns the server itself, in one thread: what is tested is also the order of events. */
#ifndef TALLY_TESTS_UNIT_API_SERVER_HTTP_FIXTURE_H
#define TALLY_TESTS_UNIT_API_SERVER_HTTP_FIXTURE_H

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

#include "api/server/http_server_internal.h"
#include "tests/harness.h"
#include "tests/unit/api/manual_clock.h"
#include "tests/unit/api/raw_socket.h"

enum { MAX_BODY = 1000, MAX_WAITING = 1024, PATIENCE_MS = 120000, TAIL_BYTES = 1 << 20 };

/* The path says how to respond:
 *   /now       200, text/plain, "hello"
 *   /echo      200, the body
 *   /status/N  N, "words" as static body
 *   /headers   200, extra headers
 *   /large     200, 8 MiB
 *   /brief/N   200, application/proto, N letters, brief
 *   /tail      200, "begin", and 1 MiB that all such responses share
 *   /wait...   later, by the test */
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

/* Opens a server with these limits; the callbacks are filled in. */
void fixture_open_config(struct fixture *f, struct tally_http_server_config config);
void fixture_open_with(struct fixture *f, unsigned max_connections, unsigned idle_timeout_s);
void fixture_open(struct fixture *f);
/* Starts the clock too, if the test stopped it. */
void fixture_close(struct fixture *f);

/* Responses. `answer_brief` sends `n` times the letter. */
void answer(struct fixture *f, struct tally_http_request *request,
            const struct tally_http_response *response);
void answer_text(struct fixture *f, struct tally_http_request *request, int status,
                 const char *text);
void answer_brief(struct fixture *f, struct tally_http_request *request, size_t n, char letter);

/* One turn of the server, which waits at most so long. */
void step(struct fixture *f, int timeout_ms);
/* Turns the server for so long, whatever happens. */
void step_for(struct fixture *f, long ms);
/* Turns the server while its clock goes forward so far: at five times the real speed or more, or,
 * if the clock stands still, 4 ms a turn. */
void pass_time(struct fixture *f, long ms);
/* Turns the server once more if it is true that patience has not run out. */
bool step_before(struct fixture *f, int64_t end_ms);
/* When patience with what begins now runs out. */
int64_t patience_end_ms(void);
/* Turn the server until it has seen `n` requests or abandoned ones, or has `n` connections. */
void await_requests(struct fixture *f, size_t n);
void await_abandoned(struct fixture *f, size_t n);
void await_connections(struct fixture *f, unsigned n);

int connected(const struct fixture *f);
/* A new connection whose request waits for its response. */
int wait_on_new_connection(struct fixture *f);
/* Sends all of `bytes`, turning the server; false if the connection broke. */
bool send_all(struct fixture *f, int fd, const void *bytes, size_t n);
/* Turns the server until `in` holds a whole response or the connection ends. True while it is open.
 */
bool await_response(struct fixture *f, int fd, struct tally_buffer *in, bool has_body);
void await_end(struct fixture *f, int fd, struct tally_buffer *in);
/* Sends a whole request on a new connection, waits for the response and returns its status. */
int ask(struct fixture *f, const char *request, struct tally_buffer *in);

int status_of(const struct tally_buffer *in);
const char *body_of(const struct tally_buffer *in);
bool holds(const struct tally_buffer *in, const char *text);

#endif
