/* http_server: HTTP/1.1 on libmicrohttpd, as a loop that the caller turns.
 *
 * One thread owns a server. tally_http_server_step() waits for the network, reads what has come and
 * calls the handler once per complete request, from within the step. The handler answers with
 * tally_http_respond(), at once or later from the same thread; a request that waits costs a
 * suspended connection and no thread. This is what lets the coordinator collect many updates,
 * commit them in one transaction and only then answer (group commit), and hold thousands of long
 * polls.
 *
 * Every handled request must be answered exactly once, except those reported by `on_abandoned`: its
 * peer has closed the connection, or only its sending side, while the answer was outstanding. */
#ifndef TALLY_API_HTTP_SERVER_H
#define TALLY_API_HTTP_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/base/buffer.h"
#include "codec/base/error.h"

struct tally_http_server;
struct tally_http_request;

struct tally_http_server_config {
    const char *listen;       /* "127.0.0.1:8080", "[::1]:8080"; port 0 = any free one */
    size_t max_body_bytes;    /* a longer body is answered with 413 before it is read */
    unsigned max_connections; /* 0 = 20,000, or what the file descriptor limit allows */
    unsigned idle_timeout_s;  /* a connection that is silent so long is closed; 0 = 60 */
    /* A complete request has come. `request` lives until it is answered or abandoned. */
    void (*on_request)(void *context, struct tally_http_request *request);
    /* The connection of an unanswered request is gone; `request` dies with this call. */
    void (*on_abandoned)(void *context, struct tally_http_request *request);
    void *context;
};

/* Starts listening. Errors: INVALID_ARGUMENT (address), UNAVAILABLE (port taken), NO_MEMORY. */
enum tally_status tally_http_server_new(const struct tally_http_server_config *config,
                                        struct tally_http_server **ret_server,
                                        struct tally_error *err);
/* Stops accepting, abandons unanswered requests, closes all. NULL is allowed. */
void tally_http_server_free(struct tally_http_server *server);

/* One turn of the loop: waits at most timeout_ms (-1 = until something happens) for the network or
 * for wake_fd (-1 = none) to be readable, and serves what is ready. */
enum tally_status tally_http_server_step(struct tally_http_server *server, int timeout_ms,
                                         int wake_fd, struct tally_error *err);
/* Closes the listening socket; open connections go on. For draining. */
void tally_http_server_quiesce(struct tally_http_server *server);
/* The port it listens on. */
uint16_t tally_http_server_port(const struct tally_http_server *server);

/* What came. All pointers live as long as the request. */

/* HEAD is shown as GET; the server itself leaves the body of the answer out. */
const char *tally_http_method(const struct tally_http_request *request);
const char *tally_http_path(const struct tally_http_request *request); /* decoded, without query */
/* Value of a query parameter or header (case-insensitive), or NULL. */
const char *tally_http_query(const struct tally_http_request *request, const char *name);
const char *tally_http_header(const struct tally_http_request *request, const char *name);
const uint8_t *tally_http_body(const struct tally_http_request *request, size_t *ret_size);
/* Length of the request on the wire: request line, headers, blank line and body. Of a chunked body
 * its content is counted, not the chunk sizes. */
uint64_t tally_http_wire_in_bytes(const struct tally_http_request *request);
/* A pointer of the caller's, kept with the request; NULL at first. */
void tally_http_set_user(struct tally_http_request *request, void *user);
void *tally_http_user(const struct tally_http_request *request);

enum { TALLY_HTTP_MAX_EXTRA_HEADERS = 6 };

struct tally_http_response {
    int status;
    const char *content_type; /* NULL = none */
    struct {
        const char *name, *value;
    } headers[TALLY_HTTP_MAX_EXTRA_HEADERS]; /* ended by a NULL name; not Connection,
                                              * Content-Length, Date or Transfer-Encoding */
    struct tally_buffer *body;               /* taken: its bytes are moved out; NULL = empty */
    const char *static_body;                 /* instead of body: lives for ever */
    size_t n_static_body;
};

/* Answers; `request` is gone afterwards. Returns the length of the response on the wire: status
 * line, every header the library adds, blank line and body (and the "100 Continue" before them, if
 * the client asked for it); 0 if memory ran out and the connection is closed instead. `status` lies
 * in [200, 599]. */
uint64_t tally_http_respond(struct tally_http_request *request,
                            const struct tally_http_response *response);

#endif
