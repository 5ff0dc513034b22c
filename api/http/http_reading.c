#include "api/http/http_reading.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/http/http_response.h"
#include "api/http/http_wait.h"
#include "api/http/http_wide.h"

enum { PART_AFTER_MS = 100 };

/* ---- The handler ---- */

/* To be called when the request is complete. The first call passes it to the handler; in later
 * ones, there may be a response. Without a response, MHD must not continue to read: the connection
 * waits, and is suspended if the body is left unread, because MHD would read that next. */
static enum MHD_Result finish_request(struct tally_http_request *request)
{
    struct tally_http_server *server = request->server;
    if (!request->was_handed) {
        request->was_handed = true;
        if (request->peer->base.read_bytes != HTTP_READ_UNKNOWN) {
            request->peer->base.read_bytes += tally_http_wire_in_bytes(request);
        }
        http_peer_enter(request->peer, HTTP_WAITING);
        server->config.on_request(server->config.context, request);
    }
    if (request->is_answered) {
        http_wait_end(request);
        server->has_moved = true;
        return http_response_queue(request);
    }
    if (request->is_gone) {
        return MHD_NO;
    }
    if (request->leaves_body) {
        http_wait_suspend(request);
    } else if (!request->is_waiting) {
        http_wait_begin(request);
    }
    return MHD_YES;
}

/* ---- The headers ---- */

static void print_body_limit(const struct tally_http_request *request, char ret_text[64])
{
    snprintf(ret_text, 64, "body longer than %zu bytes", request->server->config.max_body_bytes);
}

/* Refuses a header section that is too long. */
static enum MHD_Result check_size(struct tally_http_request *request, bool *ret_is_refused)
{
    const size_t n_bytes = http_request_header_bytes(request);
    const size_t max_bytes = request->server->config.max_header_bytes;
    char detail[64];
    *ret_is_refused = true;
    if (!http_heads_leave_room(request->peer, &request->head, request->n_headers, n_bytes)) {
        return MHD_NO;
    }
    if (n_bytes > max_bytes) {
        snprintf(detail, sizeof detail, "request line and headers longer than %zu bytes",
                 max_bytes);
    } else if (request->n_headers > HTTP_MAX_HEADERS) {
        snprintf(detail, sizeof detail, "more than %d header fields", HTTP_MAX_HEADERS);
    } else {
        *ret_is_refused = false;
        return MHD_YES;
    }
    return http_response_refuse(request, TALLY_HTTP_REFUSED_HEADERS,
                                MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE, detail);
}

/* If a request will be refused, its large body is not read, so that a client without permission
 * cannot make the server hold it. A short body is read without calling wants_body(), which would
 * cost more. */
static enum MHD_Result begin_body(struct tally_http_request *request, bool is_chunked)
{
    const struct tally_http_server_config *config = &request->server->config;
    if ((!is_chunked && request->n_announced < HTTP_UPLOAD_MIN_BYTES) ||
        config->wants_body == NULL || config->wants_body(config->context, request)) {
        if (is_chunked || request->n_announced > 0) {
            http_peer_enter(request->peer, HTTP_UPLOADING);
        }
        return MHD_YES;
    }
    request->leaves_body = true;
    request->asks_close = true; /* as MHD does by itself */
    request->peer->lingers = true;
    return finish_request(request);
}

/* The header section is complete. MHD has checked that Content-Length is a number. */
static enum MHD_Result start_request(struct tally_http_request *request)
{
    bool is_refused;
    const enum MHD_Result result = check_size(request, &is_refused);
    if (is_refused) {
        return result;
    }
    const bool is_1_0 = strcmp(request->version, MHD_HTTP_VERSION_1_0) == 0;
    const char *section_end = request->method + http_request_header_bytes(request);
    const char *fault = request->peer->has_nul
                            ? "%00 in the path or the query"
                            : http_heads_fault(&request->head, section_end, is_1_0);
    if (fault != NULL) {
        return http_response_refuse(request, TALLY_HTTP_REFUSED_MALFORMED, MHD_HTTP_BAD_REQUEST,
                                    fault);
    }
    const char *encoding = tally_http_header(request, "Transfer-Encoding");
    if (encoding != NULL) {
        request->peer->base.read_bytes = HTTP_READ_UNKNOWN; /* sizes of chunks are not counted */
        /* Any encoding but chunked is refused: MHD would read such a body without end. */
        return strcasecmp(encoding, "chunked") == 0
                   ? begin_body(request, true)
                   : http_response_refuse(request, TALLY_HTTP_REFUSED_UNIMPLEMENTED,
                                          MHD_HTTP_NOT_IMPLEMENTED,
                                          "Transfer-Encoding other than chunked");
    }
    const char *length = tally_http_header(request, "Content-Length");
    request->n_announced = length != NULL ? strtoull(length, NULL, 10) : 0;
    if (request->n_announced > request->server->config.max_body_bytes) {
        char detail[64];
        print_body_limit(request, detail);
        return http_response_refuse(request, TALLY_HTTP_REFUSED_BODY, MHD_HTTP_CONTENT_TOO_LARGE,
                                    detail);
    }
    return begin_body(request, false);
}

/* ---- The body ---- */

/* Most bodies arrive at once, and nobody needs to know of their parts. */
static void report_part(struct tally_http_request *request)
{
    const struct tally_http_server_config *config = &request->server->config;
    const int64_t age_ms = request->server->peers.now_ms - request->begun_ms;
    if (config->on_part != NULL && !request->is_known && age_ms >= PART_AFTER_MS &&
        request->n_body_bytes != request->n_announced) {
        request->is_known = config->on_part(config->context, request);
    }
}

/* A chunked body may turn out too long in its middle, where MHD accepts no response. */
static enum MHD_Result collect_body(struct tally_http_request *request, const char *data, size_t n)
{
    enum tally_status status =
        request->body.limit == 0 ? TALLY_TOO_LARGE : tally_buffer_append(&request->body, data, n);
    if (status == TALLY_TOO_LARGE) {
        char detail[64];
        print_body_limit(request, detail);
        http_peer_refuse(request->peer, TALLY_HTTP_REFUSED_BODY, MHD_HTTP_CONTENT_TOO_LARGE,
                         detail);
    }
    if (status != TALLY_OK) {
        return MHD_NO;
    }
    request->n_body_bytes += n;
    http_uploads_receive(&request->server->uploads, &request->upload, n,
                         request->server->peers.now_ms);
    report_part(request);
    return http_peer_hold(request->peer, request->body.size, false) ? MHD_YES : MHD_NO;
}

/* Reserves the whole body: pages for which nothing arrives are not touched. If there is no memory,
 * the body grows as far as it can. */
static void expect_upload(struct tally_http_request *request)
{
    http_request_reserve_body(request, request->upload.n_bytes);
    http_wide_expect(request->peer, request->upload.n_bytes);
}

/* Whether the body may be read now. If not, the connection is suspended until it may. */
static bool begin_upload(struct tally_http_request *request)
{
    struct tally_http_server *server = request->server;
    if (request->n_announced < HTTP_UPLOAD_MIN_BYTES ||
        request->upload.state == HTTP_UPLOAD_UNDER_WAY) {
        return true;
    }
    if (http_uploads_begin(&server->uploads, &request->upload, request->n_announced,
                           server->peers.now_ms)) {
        expect_upload(request);
        return true;
    }
    http_wait_suspend(request);
    return false;
}

void http_reading_resume(struct tally_http_server *server, int64_t now_ms)
{
    struct http_upload *upload;
    while ((upload = http_uploads_next(&server->uploads, now_ms)) != NULL) {
        struct tally_http_request *request = (struct tally_http_request *)upload;
        expect_upload(request);
        http_wait_resume(request);
        http_peer_enter(request->peer, HTTP_UPLOADING);
    }
}

/* ---- Callbacks ---- */

enum MHD_Result http_reading_on_data(void *context, struct MHD_Connection *connection,
                                     const char *url, const char *method, const char *version,
                                     const char *data, size_t *n_data, void **request_context)
{
    (void)context;
    struct tally_http_request *request = *request_context;
    if (request == NULL) {
        struct http_peer *peer = http_peer_of(connection);
        http_heads_end(peer);
        request =
            peer->is_refused ? NULL : http_request_new(peer, connection, method, url, version);
        *request_context = request;
        if (request == NULL) {
            return MHD_NO;
        }
        if (request->peer->base.phase == HTTP_IDLE) {
            http_peer_enter(request->peer, HTTP_RECEIVING);
        }
        request->server->has_moved = true;
        return start_request(request);
    }
    if (*n_data > 0) {
        if (request->is_gone) {
            return MHD_NO;
        }
        if (request->n_body_bytes == 0 && !begin_upload(request)) {
            return MHD_YES;
        }
        size_t n = *n_data;
        *n_data = 0;
        request->server->has_moved = true;
        return collect_body(request, data, n);
    }
    return finish_request(request);
}

void http_reading_on_completed(void *context, struct MHD_Connection *connection,
                               void **request_context, enum MHD_RequestTerminationCode code)
{
    struct tally_http_server *server = context;
    struct tally_http_request *request = *request_context;
    *request_context = NULL;
    if (request == NULL) {
        return;
    }
    assert(!request->is_suspended);
    server->has_completed = true;
    http_wait_end(request);
    if (request->stream != NULL) {
        http_stream_closed(request->stream);
    } else if (request->was_handed && !request->is_answered) {
        server->config.on_abandoned(server->config.context, request);
    }
    if (request->n_held_response >= HTTP_LONG_RESPONSE_BYTES) {
        MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT,
                                  server->config.idle_timeout_s);
    }
    struct http_peer *peer = request->peer;
    peer->request = NULL;
    peer->has_nul = false;
    (void)http_peer_hold(peer, 0, true);
    http_peer_enter(peer, code == MHD_REQUEST_TERMINATED_COMPLETED_OK ? HTTP_IDLE : HTTP_WAITING);
    http_request_free(request);
}
