/* http_server: HTTP/1.1 on libmicrohttpd, as a loop that the caller runs.
 *
 * One thread owns a server. tally_http_server_step() waits for the network, reads what has arrived
 * and calls the handler once per complete request, from within the step. The handler responds with
 * tally_http_respond(), at once or later from the same thread. A request without a response costs a
 * suspended connection and no thread. So the coordinator can collect many updates, commit them in
 * one transaction and only then respond (group commit), and hold thousands of long polls.
 *
 * Every handled request must get exactly one response, except those reported by `on_abandoned`: its
 * peer has closed the connection, or only its sending side, before the response.
 *
 * Limits. Slow peers, however many, cost a bounded amount of memory and nothing else: see
 * http_connections.h for the clocks. Requests that are refused before on_request are reported to
 * `on_refused`.
 *
 * With a certificate the server speaks HTTPS only: TLS 1.2 and 1.3, forward secret AEAD ciphers.
 * Bytes on the wire are always those of HTTP, before encryption.
 *
 * A response may also be a stream, whose body its owner writes piece by piece: http_stream.h. */
#ifndef TALLY_API_HTTP_HTTP_SERVER_H
#define TALLY_API_HTTP_HTTP_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/http/http_refusal.h"
#include "api/http/http_stream.h"
#include "codec/buffer.h"
#include "codec/error.h"
#include "codec/shared_bytes.h"

struct tally_http_server;
struct tally_http_request;

struct tally_http_server_config {
    const char *listen;      /* "127.0.0.1:8080", "[::1]:8080"; port 0 = any free one */
    size_t max_body_bytes;   /* a longer body is answered with 413 before it is read */
    size_t max_header_bytes; /* of request line and headers; more is answered with 431. 0 = 8,192 */
    unsigned max_connections;             /* 0 = 20,000, or what the file descriptor limit allows */
    unsigned max_connections_per_address; /* of them; 0 = no separate limit */
    unsigned idle_timeout_s; /* after which a connection that is silent or reads nothing is closed;
                                0 = 60. Before its first byte the limit is request_timeout_s with
                                TLS, and once there are large bodies */
    unsigned request_timeout_s; /* from the first to the last byte of a header section or TLS
                                 * handshake. Any such time of a body, or of a response that is
                                 * being read, must move 64 bytes a second. 0 = 60 */
    size_t max_held_bytes;      /* of incomplete bodies and responses that are not read; past it the
                                 * connection that has held longest is dropped. 0 = 512 MiB */
    const char *tls_cert, *tls_key;    /* PEM files; NULL = plain HTTP */
    tally_http_refusal_fn *on_refused; /* NULL = not wanted */
    /* The headers of a request with a large body, or one of unknown length, have arrived: whether
     * the body is wanted. If not, on_request follows at once with an empty body, and the connection
     * closes after the response. NULL = always. */
    bool (*wants_body)(void *context, struct tally_http_request *request);
    /* Part of a body has arrived, and not the whole within 100 ms. To return whether the sender is
     * known, or cannot be known from more of the body (tally_http_body()); otherwise it is called
     * again for the next part. NULL = not wanted. */
    bool (*on_part)(void *context, struct tally_http_request *request);
    /* A complete request has arrived. `request` lives until it is answered or abandoned. */
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
/* Stops accepting connections, abandons unanswered requests, closes everything. NULL is allowed. */
void tally_http_server_free(struct tally_http_server *server);

/* One step of the loop: waits at most timeout_ms (-1 = until something happens) for the network or
 * for wake_fd (-1 = none) to be readable, and serves what is ready. */
enum tally_status tally_http_server_step(struct tally_http_server *server, int timeout_ms,
                                         int wake_fd, struct tally_error *err);
/* Requests whose headers have arrived and whose responses have not been passed to the kernel
 * completely, streams included. */
unsigned tally_http_server_n_requests(const struct tally_http_server *server);
/* Loads certificate and key from these files. Later handshakes use them; open connections continue.
 * On failure nothing changes. Errors: INVALID_ARGUMENT (also for anything but a regular file:
 * reading it could block), NO_MEMORY. Precondition: the server was started with a certificate. */
enum tally_status tally_http_server_reload_tls(struct tally_http_server *server, const char *cert,
                                               const char *key, struct tally_error *err);
/* Whether a server could start with these files. Errors: INVALID_ARGUMENT, NO_MEMORY. */
enum tally_status tally_http_server_check_tls(const char *cert, const char *key,
                                              struct tally_error *err);
/* Facts about the certificate in use; false if there is none. `ret_expires_s` is Unix time. */
bool tally_http_server_tls(const struct tally_http_server *server, int64_t *ret_expires_s,
                           bool *ret_key_is_exposed);
/* Open connections, and bytes held for them (max_held_bytes). */
void tally_http_server_load(const struct tally_http_server *server, unsigned *ret_connections,
                            size_t *ret_held_bytes);
/* Closes the listening socket; open connections continue. For draining. */
void tally_http_server_quiesce(struct tally_http_server *server);
/* The port on which it listens. */
uint16_t tally_http_server_port(const struct tally_http_server *server);

/* ---- Requests. All pointers live as long as the request. ---- */

/* HEAD is shown as GET; the server itself leaves out the body of the response. */
const char *tally_http_method(const struct tally_http_request *request);
const char *tally_http_path(const struct tally_http_request *request); /* decoded, without query */
/* Value of a query parameter or header (case-insensitive), or NULL. */
const char *tally_http_query(const struct tally_http_request *request, const char *name);
/* Value number `index` of a query parameter that may be repeated, from 0; NULL past the last. */
const char *tally_http_query_at(const struct tally_http_request *request, const char *name,
                                size_t index);
const char *tally_http_header(const struct tally_http_request *request, const char *name);
const uint8_t *tally_http_body(const struct tally_http_request *request, size_t *ret_size);
/* Frees the body: for a request whose response will take long. */
void tally_http_forget_body(struct tally_http_request *request);
/* The same, but moves the body's bytes to *ret_body, for tally_http_free_body(). */
void tally_http_take_body(struct tally_http_request *request, struct tally_buffer *ret_body);
void tally_http_free_body(struct tally_buffer *body);
/* Returns freed memory to the system: the C library and the servers keep it. */
void tally_http_trim(void);
/* Appends path and query in the form of a request line. They mean the same as in the request, but
 * may be encoded differently. Errors: NO_MEMORY, TOO_LARGE. */
enum tally_status tally_http_target(const struct tally_http_request *request,
                                    struct tally_buffer *out);
/* The peer's IP address; "" = unknown. Of a forwarded request it is the forwarder's. */
enum { TALLY_HTTP_ADDRESS_CAPACITY = 64 };
void tally_http_address(const struct tally_http_request *request,
                        char ret_address[TALLY_HTTP_ADDRESS_CAPACITY]);
/* Length of the request on the wire: request line, headers, blank line and body. Of a chunked body
 * the content counts, not the chunk sizes. */
uint64_t tally_http_wire_in_bytes(const struct tally_http_request *request);
/* A pointer of the caller's, kept with the request; initially NULL. */
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
    const char *static_body;                 /* replaces body; must outlive the server */
    size_t n_static_body;
    bool is_brief; /* without a Date header, which workers do not need */
};

/* Responds; `request` is gone afterwards. Returns the length of the response on the wire: status
 * line, every header the library adds, blank line and body (and the "100 Continue" before them, if
 * the client asked for it); 0 if memory ran out and the connection is closed instead. `status` lies
 * in [200, 599]. */
uint64_t tally_http_respond(struct tally_http_request *request,
                            const struct tally_http_response *response);

#endif
