/* http_refusal: requests and connections refused or dropped without calling the handler.
 *
 * Every refusal is reported to the owner of the server. Most are answered with a problem document
 * (RFC 9457), and the connection is closed. */
#ifndef TALLY_API_HTTP_HTTP_REFUSAL_H
#define TALLY_API_HTTP_HTTP_REFUSAL_H

#include <stdint.h>

#include "codec/buffer.h"

struct tally_http_request;

/* Symbol, label of metrics and logs, and the status of the response. 0 = the connection was closed
 * without one. */
#define TALLY_HTTP_REFUSAL_TABLE(X)                                                                \
    X(BODY, "body")                       /* 413: longer than max_body_bytes */                    \
    X(HEADERS, "headers")                 /* 431: longer than max_header_bytes */                  \
    X(MALFORMED, "malformed")             /* 400 */                                                \
    X(UNIMPLEMENTED, "unimplemented")     /* 501: Transfer-Encoding other than chunked */          \
    X(LIBRARY, "library")                 /* any: libmicrohttpd's own response, without id */      \
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
    int status; /* of the response; 0 = the connection was closed without one */
    const struct tally_http_request *request; /* NULL if its headers are not complete */
};

enum { TALLY_HTTP_REQUEST_ID_CAPACITY = 65 };

/* Reports a refusal. Sets the X-Request-Id of the response; "" = none. */
typedef void tally_http_refusal_fn(void *context, const struct tally_http_refusal *refusal,
                                   char ret_request_id[TALLY_HTTP_REQUEST_ID_CAPACITY]);

/* ---- For the server itself ---- */

enum { HTTP_DATE_CAPACITY = 32 };

/* Where refusals are reported, and the clock of their Date header. Zeroed except for the callback.
 */
struct http_refuser {
    tally_http_refusal_fn *on_refused; /* NULL = not wanted */
    void *context;
    int64_t date_s;                /* Unix time of `date` */
    char date[HTTP_DATE_CAPACITY]; /* "" = none yet */
};

/* The current value of the Date header (RFC 9110). */
const char *http_date(struct http_refuser *refuser);
/* Calls on_refused. */
void http_refusal_report(const struct http_refuser *refuser, enum tally_http_refusal_reason reason,
                         int status, const struct tally_http_request *request,
                         char ret_id[TALLY_HTTP_REQUEST_ID_CAPACITY]);
/* Appends the problem document of a refusal with this status; `detail` needs no escaping. It is
 * truncated if memory runs out. */
void http_refusal_problem(struct tally_buffer *out, int status, const char *detail);
/* Reports a refusal and appends a whole HTTP response that ends the connection. */
void http_refusal_write(struct http_refuser *refuser, enum tally_http_refusal_reason reason,
                        int status, const struct tally_http_request *request, const char *detail,
                        struct tally_buffer *out);

#endif
