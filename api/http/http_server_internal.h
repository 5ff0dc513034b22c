/* http_server_internal: the server and its requests, as the files of this room share them. */
#ifndef TALLY_API_HTTP_HTTP_SERVER_INTERNAL_H
#define TALLY_API_HTTP_HTTP_SERVER_INTERNAL_H

#include <microhttpd.h>

#include "api/http/http_heads.h"
#include "api/http/http_line.h"
#include "api/http/http_peer.h"
#include "api/http/http_response_pool.h"
#include "api/http/http_server.h"
#include "api/http/http_stream.h"
#include "api/http/http_uploads.h"

enum {
    HTTP_SPARE_BODIES = 32,
    HTTP_KEPT_HEADERS = 16,
    /* From this length on, a response is watched while it leaves (http_line.h). */
    HTTP_LONG_RESPONSE_BYTES = 8 * 1024
};

struct tally_http_server {
    struct http_peers peers;
    struct tally_http_server_config config; /* its texts are not used after the start */
    uint16_t port;
    struct http_uploads uploads;
    struct tally_list waiting;   /* requests without a response, oldest first */
    struct tally_list suspended; /* those whose connection is suspended */
    unsigned n_waiting, n_suspended;
    struct tally_list free_requests;
    unsigned n_free_requests;
    struct tally_buffer spare_bodies[HTTP_SPARE_BODIES];
    int n_spare_bodies;
    struct http_response_pool pool;
    unsigned n_requests; /* begun, with the last byte of the response not yet sent */
    bool has_moved;      /* in MHD's last turn a request was read from or a response queued */
    bool has_completed;  /* in that turn a request ended: the next may be in the socket already */
};

struct http_header {
    const char *name, *value; /* MHD's */
    size_t n_name;
};

struct tally_http_request {
    struct http_upload upload; /* first, so that an upload can be cast to its request */
    struct tally_http_server *server;
    struct MHD_Connection *connection;
    struct http_peer *peer;
    struct tally_list_node in_list; /* of waiting, suspended or free requests */
    int64_t waits_since_ms;         /* monotonic */
    const char *method, *path, *version;
    struct tally_buffer body;
    size_t n_announced;  /* Content-Length; 0 = there is none, or the body is chunked */
    size_t n_body_bytes; /* length of the body, even after it was forgotten */
    void *user;
    struct MHD_Response *response;       /* to be queued; NULL = none yet, or MHD has it */
    struct http_pooled_response *pooled; /* the same response, if it is one of the pool */
    struct tally_http_stream *stream;    /* NULL = another response, or none yet */
    int status;
    size_t n_held_response;           /* bytes of it that we keep until they are sent */
    int64_t begun_ms;                 /* monotonic; when its header section was complete */
    bool is_known;                    /* on_part needs no further call */
    bool leaves_body;                 /* the body is not read: wants_body() refused it */
    bool was_handed;                  /* on_request has been called */
    bool is_answered;                 /* tally_http_respond has been called */
    bool is_waiting;                  /* in server->waiting */
    bool is_suspended;                /* in server->suspended */
    bool is_gone;                     /* the peer hung up */
    bool asks_close, asks_keep_alive; /* in a Connection header */
    struct http_head head;
    size_t n_headers; /* of the request; those beyond the kept ones are looked up in MHD */
    struct http_header headers[HTTP_KEPT_HEADERS]; /* last, because it is not cleared */
};

/* NULL when memory ran out. */
struct tally_http_request *http_request_new(struct http_peer *peer,
                                            struct MHD_Connection *connection, const char *method,
                                            const char *path, const char *version);
void http_request_free(struct tally_http_request *request);
/* Makes room for a body of n bytes, as far as there is memory. Precondition: it is empty. */
void http_request_reserve_body(struct tally_http_request *request, size_t n);
/* The body is no longer needed; a small buffer is kept for the next request. */
void http_request_drop_body(struct tally_http_request *request);
/* Length of the request line, the headers and the blank line. */
size_t http_request_header_bytes(const struct tally_http_request *request);
/* A response of n_bytes is about to be sent. */
void http_line_begin_response(const struct tally_http_request *request, uint64_t n_bytes);
/* The connection is about to be freed. */
void http_line_end(struct http_peer *peer);
/* Calls on_closed. */
void http_stream_closed(struct tally_http_stream *stream);
/* NULL is allowed. */
void http_stream_free(struct tally_http_stream *stream);
/* Frees the requests and buffers that are kept for reuse. */
void http_requests_clear(struct tally_http_server *server);

#endif
