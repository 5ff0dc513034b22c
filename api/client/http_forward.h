/* http_forward: HTTP/1.1 requests to other servers, many at once, on a loop that must not block.
 *
 * A forwarder is built on libcurl, which keeps connections alive and reuses them. It belongs to one
 * thread, and its calls never block. The owner's loop waits for tally_http_forwarder_fd() to be
 * readable; tally_http_forward_take() then sends and receives, and returns results. A request that
 * waits, such as a long poll, costs a connection.
 *
 * Each request that is submitted and not aborted has exactly one result. A request with a body is
 * sent once: if a kept connection breaks meanwhile, this failure is the result, and the caller
 * decides what to do. A request without a body may be sent a second time if no byte of a response
 * has arrived.
 *
 * Memory is bounded: requests in progress by max_requests, their bodies and those of the responses
 * by max_held_bytes. Proxies named in the environment are not used: peers connect directly. The
 * process must ignore SIGPIPE if it uses https://. */
#ifndef TALLY_API_CLIENT_HTTP_FORWARD_H
#define TALLY_API_CLIENT_HTTP_FORWARD_H

#include <stdbool.h>
#include <stddef.h>

#include "codec/buffer.h"
#include "codec/error.h"

struct tally_http_forwarder;
struct tally_http_forward; /* a request, from its submission until its result is taken */

struct tally_http_forwarder_config {
    const char *tls_ca;      /* PEM file of the authorities to trust for https://, and no
                              * others; NULL = the system's */
    size_t max_requests;     /* submitted, with results not taken yet; 0 = 20,000 */
    size_t max_held_bytes;   /* of their bodies; past it, new requests are refused. 0 = 512 MiB */
    size_t max_answer_bytes; /* of the body of one response; 0 = max_held_bytes */
    unsigned max_idle_connections; /* kept for the next request; 0 = 256 */
    long connect_timeout_ms;       /* 0 = 2,000 */
};

/* Errors: INVALID_ARGUMENT (tls_ca cannot be read), NO_MEMORY, UNAVAILABLE (no file descriptor). */
enum tally_status tally_http_forwarder_new(const struct tally_http_forwarder_config *config,
                                           struct tally_http_forwarder **ret_forwarder,
                                           struct tally_error *err);
/* Aborts the requests in progress. Results that were not taken are lost. NULL is allowed. */
void tally_http_forwarder_free(struct tally_http_forwarder *forwarder);
/* Readable when tally_http_forward_take() has work. */
int tally_http_forwarder_fd(const struct tally_http_forwarder *forwarder);

enum { TALLY_HTTP_FORWARD_MAX_HEADERS = 16 };

struct tally_http_forward_header {
    const char *name, *value;
};

struct tally_http_forward_request {
    const char *method;   /* "GET", "POST", ... */
    const char *base_url; /* http:// or https://, with host and port; a trailing slash is ignored */
    const char *target;   /* path and query, percent-encoded */
    /* Ended by a NULL name. */
    struct tally_http_forward_header headers[TALLY_HTTP_FORWARD_MAX_HEADERS];
    struct tally_buffer *body; /* its bytes are moved out unless the call fails; NULL = none */
    long timeout_ms;           /* of the whole exchange; > 0 */
    void *user;                /* returned with the result */
};

/* Begins a request. *ret_forward is valid until its result is taken or it is aborted. Errors:
 * RESOURCE_EXHAUSTED (a limit), NO_MEMORY, INVALID_ARGUMENT (URL or header with a line end). */
enum tally_status tally_http_forward(struct tally_http_forwarder *forwarder,
                                     const struct tally_http_forward_request *request,
                                     struct tally_http_forward **ret_forward,
                                     struct tally_error *err);
/* Aborts a request: it has no result, and its connection is closed. */
void tally_http_forward_abort(struct tally_http_forward *forward);

struct tally_http_forward_result {
    void *user;
    struct tally_error err; /* status OK: there is a response, with any HTTP status. Else
                             * UNAVAILABLE (no connection, it broke, or it sent no HTTP response),
                             * DEADLINE, TOO_LARGE or RESOURCE_EXHAUSTED (the response), NO_MEMORY,
                             * INVALID_ARGUMENT (the URL) */
    /* The response. */
    int http_status;          /* in [200, 599] */
    const char *content_type; /* NULL = none; belongs to the result, as all texts */
    /* Ended by a NULL name; only the first headers, if they do not all fit. Left out: Content-Type,
     * Date, and headers about the connection or the form of the body. */
    struct tally_http_forward_header headers[TALLY_HTTP_FORWARD_MAX_HEADERS];
    struct tally_buffer body;
    char *text; /* where the texts are */
};
/* Sends and receives what is ready, and takes one result; false if there is none. */
bool tally_http_forward_take(struct tally_http_forwarder *forwarder,
                             struct tally_http_forward_result *ret_result);
void tally_http_forward_result_fini(struct tally_http_forward_result *result);

#endif
