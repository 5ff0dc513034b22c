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
 * peer has closed the connection, or only its sending side, while the answer was outstanding.
 *
 * Limits. A peer that is slow, or many, costs a bounded amount of memory and nothing else: see
 * http_connections.h for the clocks. What is refused before on_request is told to `on_refused`.
 *
 * With a certificate the server speaks HTTPS and nothing else: TLS 1.2 and 1.3, forward secret
 * AEAD ciphers alone. Bytes on the wire are always those of HTTP, before they are encrypted.
 *
 * An answer may also be a stream, whose body its owner makes piece by piece for as long as it likes
 * (tally_http_respond_stream). One that has nothing to send sleeps like a request that waits. */
#ifndef TALLY_API_SERVER_HTTP_SERVER_H
#define TALLY_API_SERVER_HTTP_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/base/buffer.h"
#include "codec/base/error.h"
#include "codec/base/shared_bytes.h"

struct tally_http_server;
struct tally_http_request;

/* What is refused, or given up, without the handler: symbol, label of metrics and logs. */
#define TALLY_HTTP_REFUSAL_TABLE(X)                                                                \
    X(BODY, "body")                       /* 413: longer than max_body_bytes */                    \
    X(HEADERS, "headers")                 /* 431: longer than max_header_bytes */                  \
    X(MALFORMED, "malformed")             /* 400 */                                                \
    X(UNIMPLEMENTED, "unimplemented")     /* 501: Transfer-Encoding other than chunked */          \
    X(LIBRARY, "library")                 /* any status: libmicrohttpd's own answer, without id */ \
    X(CONNECTIONS, "connections")         /* 503: max_connections are open */                      \
    X(ADDRESS, "connections_per_address") /* 503 */                                                \
    X(REQUEST_TIMEOUT, "request_timeout") /* 408, or 0 in a TLS handshake */                       \
    X(SLOW_READER, "slow_reader")         /* 0 */                                                  \
    X(MEMORY, "memory")                   /* 0: held most for longest when max_held_bytes was met */

enum tally_http_refusal_reason {
#define TALLY_HTTP_REFUSAL_ENUM(symbol, label) TALLY_HTTP_REFUSED_##symbol,
    TALLY_HTTP_REFUSAL_TABLE(TALLY_HTTP_REFUSAL_ENUM)
#undef TALLY_HTTP_REFUSAL_ENUM
        TALLY_N_HTTP_REFUSALS
};

struct tally_http_refusal {
    enum tally_http_refusal_reason reason;
    int status; /* of the answer; 0 = the connection was just closed */
    const struct tally_http_request *request; /* NULL if there are no whole headers */
};

enum { TALLY_HTTP_REQUEST_ID_CAPACITY = 65 };

struct tally_http_server_config {
    const char *listen;      /* "127.0.0.1:8080", "[::1]:8080"; port 0 = any free one */
    size_t max_body_bytes;   /* a longer body is answered with 413 before it is read */
    size_t max_header_bytes; /* of request line and headers; more is answered with 431. 0 = 8,192 */
    unsigned max_connections;             /* 0 = 20,000, or what the file descriptor limit allows */
    unsigned max_connections_per_address; /* of them; 0 = no limit of its own */
    unsigned idle_timeout_s;    /* a connection that is silent so long, or takes nothing of what is
                                 * to be sent, is closed; 0 = 60. Before its first byte it is
                                 * request_timeout_s with TLS, and once there are large bodies */
    unsigned request_timeout_s; /* a request, begun, must be complete within it, a TLS handshake as
                                 * well; a reader must take 4 KiB a second on average. 0 = 60 */
    size_t max_held_bytes;      /* of bodies that are not complete and answers that are not taken;
                                 * past it the oldest of them is dropped. 0 = 512 MiB */
    const char *tls_cert, *tls_key; /* PEM files; NULL = plain HTTP */
    /* Something was refused. Sets the answer's X-Request-Id, or "" for none. NULL = not wanted. */
    void (*on_refused)(void *context, const struct tally_http_refusal *refusal,
                       char ret_request_id[TALLY_HTTP_REQUEST_ID_CAPACITY]);
    /* A complete request has come. `request` lives until it is answered or abandoned. */
    void (*on_request)(void *context, struct tally_http_request *request);
    /* The connection of an unanswered request is gone; `request` dies with this call. */
    void (*on_abandoned)(void *context, struct tally_http_request *request);
    void *context;
};

/* Starts listening. Errors: INVALID_ARGUMENT (address, certificate or key), UNAVAILABLE (port
 * taken), NO_MEMORY. */
enum tally_status tally_http_server_new(const struct tally_http_server_config *config,
                                        struct tally_http_server **ret_server,
                                        struct tally_error *err);
/* Stops accepting, abandons unanswered requests, closes all. NULL is allowed. */
void tally_http_server_free(struct tally_http_server *server);

/* One turn of the loop: waits at most timeout_ms (-1 = until something happens) for the network or
 * for wake_fd (-1 = none) to be readable, and serves what is ready. */
enum tally_status tally_http_server_step(struct tally_http_server *server, int timeout_ms,
                                         int wake_fd, struct tally_error *err);
/* Requests of which the headers have come, and whose answers are not all with the kernel; streams
 * among them. */
unsigned tally_http_server_n_requests(const struct tally_http_server *server);
/* Reads certificate and key again, from these files; handshakes that begin later use them, open
 * connections go on. On failure all stays as it is. Errors: INVALID_ARGUMENT (also for what is not
 * a regular file: reading it could block), NO_MEMORY. Precondition: the server was started with a
 * certificate. */
enum tally_status tally_http_server_reload_tls(struct tally_http_server *server, const char *cert,
                                               const char *key, struct tally_error *err);
/* Whether a server could start with these files. Errors: INVALID_ARGUMENT, NO_MEMORY. */
enum tally_status tally_http_server_check_tls(const char *cert, const char *key,
                                              struct tally_error *err);
/* Of the certificate in use; false if there is none. `ret_expires_s` is Unix time. */
bool tally_http_server_tls(const struct tally_http_server *server, int64_t *ret_expires_s,
                           bool *ret_key_is_exposed);
/* Connections that are open, and bytes held for them (max_held_bytes). */
void tally_http_server_load(const struct tally_http_server *server, unsigned *ret_connections,
                            size_t *ret_held_bytes);
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
/* The body is not needed any more: for whoever lets a request wait for long. */
void tally_http_forget_body(struct tally_http_request *request);
/* The same, but its bytes are moved to *ret_body. */
void tally_http_take_body(struct tally_http_request *request, struct tally_buffer *ret_body);
/* Appends path and query as they may stand in a request line: what came, though perhaps encoded
 * otherwise. Errors: NO_MEMORY, TOO_LARGE. */
enum tally_status tally_http_target(const struct tally_http_request *request,
                                    struct tally_buffer *out);
/* Length of the request on the wire: request line, headers, blank line and body. Of a chunked body
 * its content is counted, not the chunk sizes. */
uint64_t tally_http_wire_in_bytes(const struct tally_http_request *request);
/* A pointer of the caller's, kept with the request; NULL at first. */
void tally_http_set_user(struct tally_http_request *request, void *user);
void *tally_http_user(const struct tally_http_request *request);

enum { TALLY_HTTP_MAX_EXTRA_HEADERS = 16 };

struct tally_http_response {
    int status;
    const char *content_type; /* NULL = none */
    struct {
        const char *name, *value;
    } headers[TALLY_HTTP_MAX_EXTRA_HEADERS]; /* ended by a NULL name; not Connection,
                                              * Content-Length, Date or Transfer-Encoding */
    struct tally_buffer *body;               /* taken: empty afterwards; NULL = empty */
    struct tally_shared_bytes *tail;         /* sent after body, which is not empty; held until it
                                              * is sent. NULL = none */
    const char *static_body;                 /* instead of body: lives for ever */
    size_t n_static_body;
    bool is_brief; /* without a Date header, which is for caches and people */
};

/* Answers; `request` is gone afterwards. Returns the length of the response on the wire: status
 * line, every header the library adds, blank line and body (and the "100 Continue" before them, if
 * the client asked for it); 0 if memory ran out and the connection is closed instead. `status` lies
 * in [200, 599]. */
uint64_t tally_http_respond(struct tally_http_request *request,
                            const struct tally_http_response *response);

/* ---- Streams ----
 *
 * A stream belongs to the server; its owner holds a borrowed pointer from tally_http_respond_stream
 * until `on_closed` returns. That comes exactly once for each stream, from within a step or
 * tally_http_server_free: all has been sent after tally_http_stream_end, the peer is gone (noticed
 * also while the stream sleeps; half-closed is gone), the peer took nothing for idle_timeout_s
 * while bytes waited for it, or the server ends. Nothing else takes the stream from its owner, and
 * the owner cannot free it: it calls tally_http_stream_end and waits.
 *
 * What is written goes to a buffer of at most max_pending_bytes and from there to the socket as the
 * peer takes it, so a slow reader costs that much memory and what the kernel holds (kept small as
 * well). A stream with an empty buffer is a suspended connection: no thread, no polling, and it is
 * not idle in the sense of idle_timeout_s, however long that lasts.
 *
 * The body is chunked for HTTP/1.1 and ends with the connection for HTTP/1.0. HEAD gets the headers
 * alone and is closed at once. */
struct tally_http_stream;

struct tally_http_stream_config {
    size_t max_pending_bytes; /* > 0 */
    /* All that was written is with the kernel, and the stream is about to sleep; it may be written
     * to or ended here. Also called once when the headers are out and nothing was written yet. NULL
     * = not wanted. */
    void (*on_drained)(void *context, struct tally_http_stream *stream);
    /* The stream is over and dies with this call; nothing may be called on it. */
    void (*on_closed)(void *context, struct tally_http_stream *stream);
    void *context;
};

/* Answers with a stream. Of `response` the status (not 204 or 304), the content type and the
 * headers are used; it has no body. Like tally_http_respond it ends the caller's hold on
 * `request`. Errors: NO_MEMORY, and then the request is still to be answered. */
enum tally_status tally_http_respond_stream(struct tally_http_request *request,
                                            const struct tally_http_response *response,
                                            const struct tally_http_stream_config *config,
                                            struct tally_http_stream **ret_stream);
/* Appends `n` bytes, all or none. What is written to a peer that has just gone is lost without an
 * error; on_closed follows. Errors: TOO_LARGE (past max_pending_bytes), NO_MEMORY. Precondition:
 * not ended. */
enum tally_status tally_http_stream_write(struct tally_http_stream *stream, const void *bytes,
                                          size_t n);
/* Bytes written that the kernel has not taken yet. */
size_t tally_http_stream_pending(const struct tally_http_stream *stream);
/* No more will be written: what is pending is sent, then the stream is closed. May be called again.
 */
void tally_http_stream_end(struct tally_http_stream *stream);

#endif
