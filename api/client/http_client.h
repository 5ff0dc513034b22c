/* http_client: one keep-alive HTTP/1.1 connection on libcurl, and Connect unary calls over it.
 *
 * https:// means TLS 1.2 or later, and a certificate issued by a trusted authority for the host of
 * the URL. Only the host can be left unchecked, and only with authorities of one's own.
 *
 * A client belongs to one thread. Calls block; they return CANCELLED soon after *cancel becomes
 * non-zero (checked at least every 200 ms while waiting). */
#ifndef TALLY_API_CLIENT_HTTP_CLIENT_H
#define TALLY_API_CLIENT_HTTP_CLIENT_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/buffer.h"
#include "codec/error.h"

struct tally_http_client;

/* How far an exchange has got. Bytes are those of the bodies, as the server has received or sent
 * them. */
struct tally_http_progress {
    int64_t elapsed_ms;
    uint64_t sent_bytes, to_send_bytes;
    uint64_t received_bytes, to_receive_bytes; /* 0 = none yet, or the length is not known */
    bool has_moved; /* bytes were sent or received since the last call, or in the first second */
};

struct tally_http_client_config {
    const char *base_url;     /* "http://127.0.0.1:8080"; http:// may be omitted, a trailing
                               * slash is ignored */
    const char *bearer_token; /* NULL = none */
    const char *user_agent;   /* NULL = "tally" */
    const char *tls_ca;       /* PEM file of the authorities to trust, and no others;
                               * NULL = the system's */
    bool any_host;            /* certificates that tls_ca vouches for may name any host */
    long connect_timeout_ms;  /* 0 = 5,000 */
    bool is_terse;            /* omit the optional headers of Connect calls: version and time-out */
    const volatile sig_atomic_t *cancel; /* NULL = cannot be cancelled */
    /* Called from within an exchange about once a second; NULL = not wanted. */
    void (*on_progress)(void *context, const struct tally_http_progress *progress);
    void *context;
};

/* Errors: INVALID_ARGUMENT (URL is not http or https; tls_ca cannot be read), NO_MEMORY. */
enum tally_status tally_http_client_new(const struct tally_http_client_config *config,
                                        struct tally_http_client **ret_client,
                                        struct tally_error *err);
void tally_http_client_free(struct tally_http_client *client);

struct tally_http_exchange {
    const char *method;       /* "GET", "POST" */
    const char *path;         /* "/v1/jobs" with query */
    const char *content_type; /* of the body; NULL = none */
    const char *accept;       /* NULL = any */
    const char *extra_header; /* "Name: value"; NULL = none */
    const uint8_t *body;
    size_t n_body;
    long timeout_ms; /* without a byte sent or received: a slow link is no failure. 0 = 30,000 */
    /* results */
    int status;              /* HTTP status */
    char response_type[128]; /* Content-Type of the response */
    char location[256];      /* Location header, "" if none */
    char date[64];           /* Date header, "" if none */
    char server[64];         /* Server header, "" if none */
    bool has_proxy;          /* the request went to a proxy */
};

/* The field of an error that describes a response of another program than a coordinator, such as a
 * proxy. */
#define TALLY_HTTP_FOREIGN "http"

/* The field of an error that says that a request was sent, at least in part, and no whole response
 * came. */
#define TALLY_HTTP_UNANSWERED "connection"

/* Sends and receives; the body of the response is appended to *out (which may have a limit). Any
 * HTTP status is TALLY_OK here. Errors: UNAVAILABLE (no connection: the field is "coordinator",
 * unless it is the proxy that cannot be reached; or it broke), DEADLINE, CANCELLED, TOO_LARGE. */
enum tally_status tally_http_perform(struct tally_http_client *client,
                                     struct tally_http_exchange *exchange, struct tally_buffer *out,
                                     struct tally_error *err);

/* Calls tally.v1.WorkerService/`method` with a protobuf body; the protobuf bytes of the response
 * are appended to *out. A Connect error becomes the status of its code with its message. Any other
 * response becomes the status that belongs to its HTTP status (INTERNAL for a temporary redirect or
 * a page, MISDIRECTED for a permanent redirect), the field TALLY_HTTP_FOREIGN, and a message that
 * says where it came from. Others as above. */
enum tally_status tally_connect_call(struct tally_http_client *client, const char *method,
                                     const uint8_t *body, size_t n_body, long timeout_ms,
                                     struct tally_buffer *out, struct tally_error *err);

/* Declares that the server is one of several at this address and may fail alone. From now on, an
 * exchange in which nothing is sent or received for silence_ms fails as DEADLINE, and a response of
 * 502, 503 or 504 is the last one on its connection, so that the next exchange may reach another
 * server. 0 = there is one server, which is the initial state. */
void tally_http_client_set_silence(struct tally_http_client *client, long silence_ms);

/* Bytes of HTTP messages that this client sent and received in complete exchanges; with TLS before
 * they are encrypted. */
void tally_http_client_wire_bytes(const struct tally_http_client *client, uint64_t *ret_out,
                                  uint64_t *ret_in);

#endif
