#include "api/http/http_response.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/http/http_wait.h"
#include "api/http/http_wide.h"

/* Whether MHD or this file writes the header. A duplicate would make the response malformed and
 * its count of bytes wrong. */
static bool is_automatic_header(const char *name)
{
    static const char *const names[] = {"Connection", "Content-Length", "Date",
                                        "Transfer-Encoding"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcasecmp(names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static uint64_t header_line_bytes(const char *name, const char *value)
{
    return strlen(name) + strlen(": ") + strlen(value) + strlen("\r\n");
}

/* Adds a header line and returns its length; 0 if MHD refuses it (line breaks, empty value). */
static uint64_t add_header(struct MHD_Response *response, const char *name, const char *value)
{
    return MHD_add_response_header(response, name, value) == MHD_NO
               ? 0
               : header_line_bytes(name, value);
}

uint64_t http_response_add_headers(struct tally_http_server *server, struct MHD_Response *made,
                                   const struct tally_http_response *response)
{
    uint64_t bytes = 0;
    if (!response->is_brief) {
        bytes += add_header(made, "Date", http_date(&server->peers.refuser));
    }
    if (response->content_type != NULL) {
        bytes += add_header(made, "Content-Type", response->content_type);
    }
    for (int i = 0; i < TALLY_HTTP_MAX_EXTRA_HEADERS && response->headers[i].name != NULL; i++) {
        if (!is_automatic_header(response->headers[i].name)) {
            bytes += add_header(made, response->headers[i].name, response->headers[i].value);
        }
    }
    return bytes;
}

/* The Connection line that MHD adds by itself. */
static uint64_t connection_line_bytes(const struct tally_http_request *request)
{
    bool is_1_0 = strcmp(request->version, MHD_HTTP_VERSION_1_0) == 0;
    if (request->asks_close || (is_1_0 && !request->asks_keep_alive)) {
        return strlen("Connection: close\r\n");
    }
    return is_1_0 ? strlen("Connection: Keep-Alive\r\n") : 0;
}

/* "HTTP/1.1 100 Continue" goes out before the body of a request that asks for it. */
static uint64_t interim_bytes(const struct tally_http_request *request)
{
    const char *expect = tally_http_header(request, "Expect");
    bool asked = expect != NULL && strcasecmp(expect, "100-continue") == 0 &&
                 strcmp(request->version, MHD_HTTP_VERSION_1_0) != 0;
    return asked ? strlen("HTTP/1.1 100 Continue\r\n\r\n") : 0;
}

static uint64_t decimal_digits(uint64_t number)
{
    uint64_t digits = 1;
    for (; number >= 10; number /= 10) {
        digits++;
    }
    return digits;
}

/* Length of all that MHD sends before the body, without the response's own header lines. */
static uint64_t response_head_bytes(const struct tally_http_request *request, int status,
                                    size_t n_body)
{
    size_t n_reason = MHD_get_reason_phrase_len_for((unsigned)status);
    uint64_t bytes = strlen("HTTP/1.1 200 ") +
                     (n_reason > 0 ? n_reason : strlen("Non-Standard Status")) + strlen("\r\n");
    bytes += connection_line_bytes(request);
    if (status != MHD_HTTP_NO_CONTENT) {
        bytes += strlen("Content-Length: \r\n") + decimal_digits(n_body);
    }
    return bytes + strlen("\r\n");
}

static bool sends_body(const struct tally_http_request *request, int status)
{
    return status != MHD_HTTP_NO_CONTENT && status != MHD_HTTP_NOT_MODIFIED &&
           strcmp(request->method, MHD_HTTP_METHOD_HEAD) != 0;
}

struct parts {
    uint8_t *begin;
    struct tally_shared_bytes *tail;
};

static void free_parts(void *context)
{
    struct parts *parts = context;
    free(parts->begin);
    tally_shared_bytes_release(parts->tail);
    free(parts);
}

/* The body and the tail, which other responses share. */
static struct MHD_Response *join(struct tally_buffer *body, struct tally_shared_bytes *tail)
{
    const struct MHD_IoVec pieces[] = {{body->data, body->size},
                                       {tail->bytes.data, tail->bytes.size}};
    struct MHD_Response *made = NULL;
    struct parts *parts = malloc(sizeof *parts);
    if (parts != NULL) {
        *parts = (struct parts){body->data, tail};
        made = MHD_create_response_from_iovec(pieces, 2, free_parts, parts);
    }
    if (made != NULL) {
        (void)tally_shared_bytes_hold(tail);
    } else {
        free(parts);
    }
    return made;
}

/* MHD frees the bytes of `response->body` when they are sent. NULL when memory ran out. */
static struct MHD_Response *make_response(const struct tally_http_response *response,
                                          size_t *ret_n_body)
{
    struct tally_buffer *body = response->body;
    if (body == NULL || body->data == NULL) {
        *ret_n_body = body == NULL ? response->n_static_body : 0;
        return MHD_create_response_from_buffer(*ret_n_body, (void *)response->static_body,
                                               MHD_RESPMEM_PERSISTENT);
    }
    struct tally_shared_bytes *tail = response->tail;
    *ret_n_body = body->size + (tail != NULL ? tail->bytes.size : 0);
    struct MHD_Response *made =
        tail != NULL
            ? join(body, tail)
            : MHD_create_response_from_buffer_with_free_callback(body->size, body->data, free);
    if (made == NULL) {
        free(body->data);
    }
    *body = (struct tally_buffer){.limit = body->limit};
    return made;
}

/* Most responses to workers are short and have only the usual headers. Takes such a response from
 * the pool and returns the length of these headers; 0 if it is of a different kind. */
static uint64_t take_pooled(struct tally_http_request *request,
                            const struct tally_http_response *response)
{
    struct http_response_pool *pool = &request->server->pool;
    struct tally_buffer *body = response->body;
    if (!response->is_brief || body == NULL || response->tail != NULL ||
        response->headers[0].name != NULL || response->content_type == NULL ||
        strcmp(response->content_type, pool->content_type) != 0) {
        return 0;
    }
    request->pooled = http_response_pool_take(pool, body->data, body->size);
    if (request->pooled == NULL) {
        return 0;
    }
    request->response = request->pooled->response;
    body->size = 0;
    return header_line_bytes(MHD_HTTP_HEADER_CONTENT_TYPE, pool->content_type);
}

/* The memory that the response holds. A shared tail counts in equal parts, so that slow readers are
 * charged for tails that no other response needs any more. */
static size_t n_own_bytes(const struct tally_http_response *response, size_t n_body)
{
    if (response->static_body != NULL) {
        return 0;
    }
    if (response->tail == NULL) {
        return n_body;
    }
    const size_t n_tail = response->tail->bytes.size;
    return n_body - n_tail + n_tail / response->tail->n_holders;
}

uint64_t tally_http_respond(struct tally_http_request *request,
                            const struct tally_http_response *response)
{
    assert(!request->is_answered);
    assert(response->status >= 200 && response->status <= 599);
    request->is_answered = true;
    request->status = response->status;
    size_t n_body = response->body != NULL ? response->body->size : 0;
    const bool moves = response->status < 300 &&
                       connection_line_bytes(request) == 0 && /* the connection stays open */
                       http_wide_should_move(request->peer, request->n_body_bytes);
    uint64_t bytes = moves ? 0 : take_pooled(request, response);
    if (bytes == 0) {
        request->response = make_response(response, &n_body);
        if (request->response != NULL) {
            bytes = http_response_add_headers(request->server, request->response, response);
        }
    }
    if (moves && request->response != NULL) { /* as if the client had asked for that */
        request->asks_close =
            MHD_add_response_header(request->response, "Connection", "close") == MHD_YES;
    }
    request->n_held_response = n_own_bytes(response, n_body);
    http_request_drop_body(request);
    if (request->response != NULL) {
        bytes += interim_bytes(request) + response_head_bytes(request, response->status, n_body) +
                 (sends_body(request, response->status) ? n_body : 0);
    }
    http_line_begin_response(request, bytes);
    http_wait_wake(request);
    return bytes;
}

enum MHD_Result http_response_queue(struct tally_http_request *request)
{
    struct MHD_Response *response = request->response;
    if (response == NULL) {
        return MHD_NO;
    }
    request->response = NULL;
    if (request->stream == NULL) { /* idle_timeout_s bounds a stream */
        http_peer_enter(request->peer, HTTP_SENDING);
        if (request->n_held_response >= HTTP_LONG_RESPONSE_BYTES) { /* our own clock runs */
            MHD_set_connection_option(request->connection, MHD_CONNECTION_OPTION_TIMEOUT, 0U);
        }
        (void)http_peer_hold(request->peer, request->n_held_response, true);
    }
    enum MHD_Result queued =
        MHD_queue_response(request->connection, (unsigned)request->status, response);
    if (request->pooled == NULL) {
        MHD_destroy_response(response); /* MHD holds its own reference */
    }
    return queued;
}

enum MHD_Result http_response_refuse(struct tally_http_request *request,
                                     enum tally_http_refusal_reason reason, int status,
                                     const char *detail)
{
    struct tally_buffer body = {.size = 0};
    char id[TALLY_HTTP_REQUEST_ID_CAPACITY];
    http_refusal_report(&request->server->peers.refuser, reason, status, request, id);
    http_refusal_problem(&body, status, detail);
    struct tally_http_response response = {.status = status,
                                           .content_type = "application/problem+json",
                                           .headers = {{"X-Content-Type-Options", "nosniff"},
                                                       {"Cache-Control", "no-store"},
                                                       {id[0] != '\0' ? "X-Request-Id" : NULL, id}},
                                           .body = &body};
    (void)tally_http_respond(request, &response);
    if (request->response != NULL) {
        MHD_add_response_header(request->response, "Connection", "close");
    }
    tally_buffer_fini(&body);
    request->peer->lingers = true;
    return http_response_queue(request);
}
