/* How a request runs through libmicrohttpd (MHD) and this file:
 *
 *   headers are in   handle() makes the request; one that is too long is refused here
 *   body comes       handle() collects it
 *   all is in        handle() calls on_request. Answered: the response is queued. Not answered: the
 *                    request waits. MHD does not read, and calls handle() again whenever it runs
 *   it waits long    the connection is suspended: MHD lets it alone, and its idle time is not
 *                    counted
 *   respond()        keeps the response, and resumes the connection if it was suspended; MHD calls
 *                    handle() again, which queues the response
 *   all is sent, or the peer is gone
 *                    completed() frees the request: the only place that does
 *
 * A stream is a response whose body MHD asks for piece by piece, with read_stream(). When there is
 * nothing to give, the connection is suspended there, and resumed by the next write.
 *
 * MHD does not watch a suspended connection, so the server has an epoll set of its own with the
 * suspended sockets. It asks only for the hang-up: a peer that has closed its side has given up
 * waiting, as a killed worker does. (A client that shuts down its sending side and then waits for a
 * deferred answer is treated the same; nginx does so too.)
 *
 * Wire bytes. In: MHD's size of the header section, from the first letter of the request line to
 * the blank line, and the body. A chunked body counts with its content; chunk sizes and trailers
 * are not counted. Out: MHD does not tell, so response_head_bytes() repeats what
 * build_header_response() of MHD 0.9.75 writes; the unit tests compare it with a socket. With TLS
 * it is the same: what goes in and comes out of the encryption. What the handler never sees (400,
 * 413, 431 and 501 that are answered here or by MHD) is not counted.
 *
 * MHD reads a body in pieces of half the memory of a connection, and that memory is the same for
 * all connections of a daemon. 6 KiB suit thousands of idle ones and make 50 pieces of 300 KB. So
 * there are two daemons: whoever has sent a large body is told to connect again ("Connection:
 * close"), and a connection that begins with a large body gets the large memory, until it has sent
 * nothing but small ones for a while.
 *
 * Connections, their clocks and TLS handshakes are in http_peer.c, the rules of header sections and
 * what MHD would answer to bad ones in http_heads.c. */
#include "api/server/http_server.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "api/server/http_server_internal.h"

enum {
    DEFAULT_MAX_CONNECTIONS = 20000,
    DEFAULT_IDLE_TIMEOUT_S = 60,
    /* Descriptors kept for the store, logs and ourselves when connections are bounded by RLIMIT. */
    RESERVED_DESCRIPTORS = 64,
    /* As much as Linux allows by default (net.core.somaxconn): all workers may come at once. */
    LISTEN_BACKLOG = 4096,
    DEFAULT_REQUEST_TIMEOUT_S = 60,
    DEFAULT_MAX_HEADER_BYTES = 8 * 1024,
    /* Memory of a connection, beside what a request's header section may take: the response's one,
     * and room for a section that is a little too long, so that it is answered here and not by MHD.
     * Only what is used costs memory. */
    CONNECTION_MEMORY_BYTES = 4 * 1024,
    /* The same for those that send large bodies. Twice as much gains nothing. */
    WIDE_MEMORY_BYTES = 64 * 1024,
    LINGER_MS = 10 * 1000,
    /* Requests that are over are used again, and the memory of their bodies. */
    MAX_FREE_REQUESTS = 256,
    KEPT_BODY_BYTES = 64 * 1024,
    /* To suspend a connection and resume it costs as much as the rest of a small request, so those
     * that are answered soon, as after a commit, are not; but MHD looks at them at every turn, and
     * a hang-up goes unnoticed. A look takes 0.4 us: so many make a turn 3 ms longer, while the
     * 20 ms of a burst last. To keep them so many would take 400,000 requests a second. */
    MAX_WAITING = 8192,
    SUSPEND_AFTER_MS = 20,
    /* With requests that wait MHD says that it has work, whether it has or not. If nothing has
     * moved in its last turn it may sleep so long: the worst is a header section in pieces, read
     * later. */
    UNSURE_MS = 1,
    EVENTS_AT_ONCE = 256,
    /* Memory goes back to the system when so many connections are gone, three in four. */
    MANY_CONNECTIONS = 256,
    /* What the kernel may hold for the reader of a stream; by itself it would go up to 4 MiB. */
    STREAM_SOCKET_BYTES = 64 * 1024,
    /* MHD's own buffer of a body that is not chunked. */
    STREAM_BLOCK_BYTES = 4 * 1024,
    /* A drained stream keeps a buffer so large; the memory of a larger one goes back. */
    STREAM_KEPT_BYTES = 4 * 1024
};

static const size_t DEFAULT_MAX_HELD_BYTES = (size_t)512 << 20;

/* TLS 1.2 and 1.3; ephemeral keys and authenticated ciphers only. */
static const char TLS_PRIORITIES[] =
    "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-KX-ALL:+ECDHE-ECDSA:+ECDHE-RSA:-CIPHER-ALL:"
    "+AES-256-GCM:+AES-128-GCM:+CHACHA20-POLY1305:-MAC-ALL:+AEAD:-SIGN-RSA-SHA1:-SIGN-ECDSA-SHA1:"
    "%SERVER_PRECEDENCE";

/* Lives as long as its request. */
struct tally_http_stream {
    struct tally_http_request *request;
    struct tally_http_stream_config config;
    struct tally_buffer buffer;
    size_t n_taken; /* of the buffer: what MHD has already */
    bool has_ended; /* tally_http_stream_end has been called */
};

/* ---- Requests ---- */

/* Whether a comma-separated list holds a token, as MHD compares them. */
static bool has_token(const char *list, const char *token)
{
    size_t n_token = strlen(token);
    for (const char *at = list; *at != '\0';) {
        at += strspn(at, " \t,");
        size_t n = strcspn(at, ",");
        size_t trimmed = n;
        while (trimmed > 0 && (at[trimmed - 1] == ' ' || at[trimmed - 1] == '\t')) {
            trimmed--;
        }
        if (trimmed == n_token && strncasecmp(at, token, n_token) == 0) {
            return true;
        }
        at += n;
    }
    return false;
}

static bool is_name(const struct http_header *header, const char *name, size_t n_name)
{
    return header->n_name == n_name && strncasecmp(header->name, name, n_name) == 0;
}

/* One pass over the headers, since a request is asked for several that it has not got. A value that
 * is there but empty is "", not NULL. */
static enum MHD_Result note_header(void *context, enum MHD_ValueKind kind, const char *name,
                                   size_t n_name, const char *value, size_t n_value)
{
    (void)kind;
    static const char CONNECTION[] = "Connection";
    struct tally_http_request *request = context;
    const struct http_header header = {
        .name = name, .value = value != NULL ? value : "", .n_name = n_name};
    if (request->n_headers < HTTP_KEPT_HEADERS) {
        request->headers[request->n_headers] = header;
    }
    request->n_headers++;
    http_heads_note(&request->head, name, n_name, value, n_value);
    if (is_name(&header, CONNECTION, sizeof CONNECTION - 1)) {
        request->asks_close = request->asks_close || has_token(header.value, "close");
        request->asks_keep_alive =
            request->asks_keep_alive || has_token(header.value, "Keep-Alive");
    }
    return MHD_YES;
}

static struct tally_http_request *request_new(struct http_peer *peer,
                                              struct MHD_Connection *connection, const char *method,
                                              const char *path, const char *version)
{
    struct tally_http_server *server = peer->server;
    struct tally_http_request *request = server->free_requests;
    if (request != NULL) {
        server->free_requests = request->next;
        server->n_free_requests--;
        memset(request, 0, offsetof(struct tally_http_request, headers));
    } else {
        request = calloc(1, sizeof *request);
    }
    if (request != NULL) {
        server->n_requests++;
        request->server = server;
        request->connection = connection;
        request->peer = peer;
        peer->request = request;
        request->method = method;
        request->path = path;
        request->version = version;
        if (server->n_spare_bodies > 0) {
            request->body = server->spare_bodies[--server->n_spare_bodies];
        }
        request->body.limit = server->config.max_body_bytes;
        (void)MHD_get_connection_values_n(connection, MHD_HEADER_KIND, note_header, request);
    }
    return request;
}

/* Its content is not needed any more; its memory goes to the next request if it is not large. */
static void drop_body(struct tally_http_request *request)
{
    struct tally_http_server *server = request->server;
    struct tally_buffer *body = &request->body;
    http_uploads_end(&server->uploads, &request->upload);
    if (body->data == NULL || body->capacity > KEPT_BODY_BYTES ||
        server->n_spare_bodies == HTTP_SPARE_BODIES) {
        tally_buffer_fini(body);
        return;
    }
    server->spare_bodies[server->n_spare_bodies++] =
        (struct tally_buffer){.data = body->data, .capacity = body->capacity};
    *body = (struct tally_buffer){.limit = body->limit};
}

static void request_free(struct tally_http_request *request)
{
    struct tally_http_server *server = request->server;
    server->n_requests--;
    if (request->answer != NULL) {
        http_answers_give_back(&server->answers, request->answer);
    } else if (request->response != NULL) {
        MHD_destroy_response(request->response);
    }
    if (request->stream != NULL) {
        tally_buffer_fini(&request->stream->buffer);
        free(request->stream);
    }
    drop_body(request);
    if (server->n_free_requests == MAX_FREE_REQUESTS) {
        free(request);
        return;
    }
    request->next = server->free_requests;
    server->free_requests = request;
    server->n_free_requests++;
}

const char *tally_http_method(const struct tally_http_request *request)
{
    return strcmp(request->method, MHD_HTTP_METHOD_HEAD) == 0 ? MHD_HTTP_METHOD_GET
                                                              : request->method;
}

const char *tally_http_path(const struct tally_http_request *request)
{
    return request->path;
}

/* Likewise. */
static const char *lookup(const struct tally_http_request *request, enum MHD_ValueKind kind,
                          const char *name)
{
    const char *value = NULL;
    enum MHD_Result found =
        MHD_lookup_connection_value_n(request->connection, kind, name, strlen(name), &value, NULL);
    if (found == MHD_NO) {
        return NULL;
    }
    return value != NULL ? value : "";
}

const char *tally_http_query(const struct tally_http_request *request, const char *name)
{
    return lookup(request, MHD_GET_ARGUMENT_KIND, name);
}

const char *tally_http_header(const struct tally_http_request *request, const char *name)
{
    const size_t n_name = strlen(name);
    for (size_t i = 0; i < request->n_headers && i < HTTP_KEPT_HEADERS; i++) {
        if (is_name(&request->headers[i], name, n_name)) {
            return request->headers[i].value;
        }
    }
    return request->n_headers > HTTP_KEPT_HEADERS ? lookup(request, MHD_HEADER_KIND, name) : NULL;
}

const uint8_t *tally_http_body(const struct tally_http_request *request, size_t *ret_size)
{
    *ret_size = request->body.size;
    return request->body.data;
}

static size_t header_bytes(const struct tally_http_request *request)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    return info != NULL ? info->header_size : 0;
}

uint64_t tally_http_wire_in_bytes(const struct tally_http_request *request)
{
    return header_bytes(request) + request->n_body_bytes;
}

void tally_http_forget_body(struct tally_http_request *request)
{
    drop_body(request);
    (void)http_peer_hold(request->peer, 0, true);
}

void tally_http_take_body(struct tally_http_request *request, struct tally_buffer *ret_body)
{
    *ret_body = request->body;
    ret_body->limit = 0;
    request->body = (struct tally_buffer){.limit = request->body.limit};
    tally_http_forget_body(request);
}

/* Percent-encoded but for the unreserved characters of RFC 3986 and those in `kept`. */
static enum tally_status append_encoded(struct tally_buffer *out, const char *text, size_t n,
                                        const char *kept)
{
    static const char UNRESERVED[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                     "0123456789-._~";
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; status == TALLY_OK && i < n; i++) {
        const bool is_plain = text[i] != '\0' && (strchr(UNRESERVED, text[i]) != NULL ||
                                                  strchr(kept, text[i]) != NULL);
        status = is_plain ? tally_buffer_append(out, &text[i], 1)
                          : tally_buffer_printf(out, "%%%02X", (unsigned char)text[i]);
    }
    return status;
}

struct target {
    struct tally_buffer *out;
    enum tally_status status;
    bool has_query;
};

static enum MHD_Result append_argument(void *context, enum MHD_ValueKind kind, const char *key,
                                       size_t n_key, const char *value, size_t n_value)
{
    (void)kind;
    struct target *target = context;
    target->status = tally_buffer_append_text(target->out, target->has_query ? "&" : "?");
    target->has_query = true;
    if (target->status == TALLY_OK) {
        target->status = append_encoded(target->out, key, n_key, "");
    }
    if (target->status == TALLY_OK && value != NULL) {
        target->status = tally_buffer_append_text(target->out, "=");
    }
    if (target->status == TALLY_OK && value != NULL) {
        target->status = append_encoded(target->out, value, n_value, "");
    }
    return target->status == TALLY_OK ? MHD_YES : MHD_NO;
}

enum tally_status tally_http_target(const struct tally_http_request *request,
                                    struct tally_buffer *out)
{
    struct target target = {.out = out};
    target.status = append_encoded(out, request->path, strlen(request->path), "/");
    if (target.status == TALLY_OK) {
        MHD_get_connection_values_n(request->connection, MHD_GET_ARGUMENT_KIND, append_argument,
                                    &target);
    }
    return target.status;
}

void tally_http_set_user(struct tally_http_request *request, void *user)
{
    request->user = user;
}

void *tally_http_user(const struct tally_http_request *request)
{
    return request->user;
}

/* ---- Requests that wait ---- */

static void begin_waiting(struct tally_http_request *request)
{
    struct tally_http_server *server = request->server;
    request->is_waiting = true;
    request->waits_since_ms = server->now_ms;
    request->next = NULL;
    request->previous = server->last_waiting;
    *(request->previous != NULL ? &request->previous->next : &server->first_waiting) = request;
    server->last_waiting = request;
    server->n_waiting++;
}

static void end_waiting(struct tally_http_request *request)
{
    struct tally_http_server *server = request->server;
    if (!request->is_waiting) {
        return;
    }
    request->is_waiting = false;
    *(request->previous != NULL ? &request->previous->next : &server->first_waiting) =
        request->next;
    *(request->next != NULL ? &request->next->previous : &server->last_waiting) = request->previous;
    server->n_waiting--;
}

/* ---- Suspended connections ---- */

static int connection_fd(const struct tally_http_request *request)
{
    return MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_CONNECTION_FD)
        ->connect_fd;
}

static void suspend(struct tally_http_request *request)
{
    struct tally_http_server *server = request->server;
    end_waiting(request);
    http_peer_enter(request->peer, HTTP_WAITING);
    MHD_suspend_connection(request->connection);
    request->is_suspended = true;
    server->n_suspended++;
    request->previous = NULL;
    request->next = server->suspended;
    if (request->next != NULL) {
        request->next->previous = request;
    }
    server->suspended = request;
    /* Of a body that waits the end may be there already: whoever has sent all and shuts down its
     * side has not left. Should this fail for want of memory, a hang-up is noticed only when the
     * answer is sent. */
    const bool is_upload = request->upload.state == HTTP_UPLOAD_WAITS;
    struct epoll_event event = {.events = is_upload ? 0 : EPOLLRDHUP, .data.ptr = request->peer};
    (void)epoll_ctl(server->watch_fd, EPOLL_CTL_ADD, connection_fd(request), &event);
}

static void resume(struct tally_http_request *request)
{
    struct tally_http_server *server = request->server;
    (void)epoll_ctl(server->watch_fd, EPOLL_CTL_DEL, connection_fd(request), NULL);
    if (request->previous != NULL) {
        request->previous->next = request->next;
    } else {
        server->suspended = request->next;
    }
    if (request->next != NULL) {
        request->next->previous = request->previous;
    }
    request->is_suspended = false;
    server->n_suspended--;
    server->has_resumed = true;
    MHD_resume_connection(request->connection);
}

/* Something is there for the request that MHD has to look at. */
static void wake(struct tally_http_request *request)
{
    if (request->is_suspended) {
        resume(request);
    } else if (request->is_waiting) {
        request->server->has_resumed = true;
    }
}

/* After MHD ran, and not from within: it goes through a list that suspending changes. */
static void suspend_patient(struct tally_http_server *server)
{
    while (server->first_waiting != NULL && !server->first_waiting->is_answered &&
           server->now_ms - server->first_waiting->waits_since_ms >= SUSPEND_AFTER_MS) {
        suspend(server->first_waiting);
    }
}

/* Back to MHD, where finish_request() ends it. */
void http_request_hang_up(struct tally_http_request *request)
{
    if (request->is_suspended) {
        http_uploads_end(&request->server->uploads, &request->upload);
        request->is_gone = true;
        resume(request);
    }
}

/* ---- Responses ---- */

const char *http_date(struct tally_http_server *server)
{
    const time_t now = time(NULL);
    struct tm day;
    if (server->date[0] == '\0' || now != server->date_s) {
        server->date_s = now;
        if (gmtime_r(&now, &day) == NULL ||
            strftime(server->date, sizeof server->date, "%a, %d %b %Y %H:%M:%S GMT", &day) == 0) {
            server->date[0] = '\0';
        }
    }
    return server->date;
}

/* Those that MHD and this file write; a second one would spoil the message and the count. */
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

/* Adds the Date and the caller's headers, and returns their length. */
static uint64_t add_headers(struct tally_http_server *server, struct MHD_Response *made,
                            const struct tally_http_response *response)
{
    uint64_t bytes = 0;
    if (!response->is_brief) {
        bytes += add_header(made, "Date", http_date(server));
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

/* All that MHD sends before the body, without the response's own header lines. */
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

/* The body and the tail, which others send as well. */
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

/* Most answers to workers: short, and without any header but the usual ones. Returns the length of
 * these; 0 if it is another kind of answer. */
static uint64_t take_answer(struct tally_http_request *request,
                            const struct tally_http_response *response)
{
    struct http_answers *answers = &request->server->answers;
    struct tally_buffer *body = response->body;
    if (!response->is_brief || body == NULL || response->tail != NULL ||
        response->headers[0].name != NULL || response->content_type == NULL ||
        strcmp(response->content_type, answers->content_type) != 0) {
        return 0;
    }
    request->answer = http_answers_take(answers, body->data, body->size);
    if (request->answer == NULL) {
        return 0;
    }
    request->response = request->answer->response;
    body->size = 0;
    return header_line_bytes(MHD_HTTP_HEADER_CONTENT_TYPE, answers->content_type);
}

/* What the answer holds of memory: of a tail its share, so that those who read slowly are held to
 * account for tails that nobody else wants any more. */
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
                       connection_line_bytes(request) == 0 && /* it is to stay open */
                       http_peer_should_move(request->peer, request->n_body_bytes);
    uint64_t bytes = moves ? 0 : take_answer(request, response);
    if (bytes == 0) {
        request->response = make_response(response, &n_body);
        if (request->response != NULL) {
            bytes = add_headers(request->server, request->response, response);
        }
    }
    if (moves && request->response != NULL) { /* to the same effect as if it had been asked for */
        request->asks_close =
            MHD_add_response_header(request->response, "Connection", "close") == MHD_YES;
    }
    request->n_held_answer = n_own_bytes(response, n_body);
    drop_body(request);
    if (request->response != NULL) {
        bytes += interim_bytes(request) + response_head_bytes(request, response->status, n_body) +
                 (sends_body(request, response->status) ? n_body : 0);
    }
    wake(request);
    return bytes;
}

/* ---- Streams ---- */

size_t tally_http_stream_pending(const struct tally_http_stream *stream)
{
    return stream->buffer.size - stream->n_taken;
}

/* Moves what has been taken out of the buffer. */
static void compact(struct tally_http_stream *stream)
{
    struct tally_buffer *buffer = &stream->buffer;
    buffer->size -= stream->n_taken;
    if (buffer->size > 0) {
        memmove(buffer->data, buffer->data + stream->n_taken, buffer->size);
    } else if (buffer->capacity > STREAM_KEPT_BYTES) {
        tally_buffer_fini(buffer); /* many streams sleep: 500 buffers of 64 KiB would add up */
    }
    stream->n_taken = 0;
}

enum tally_status tally_http_stream_write(struct tally_http_stream *stream, const void *bytes,
                                          size_t n)
{
    assert(!stream->has_ended);
    if (n > stream->config.max_pending_bytes - tally_http_stream_pending(stream)) {
        return TALLY_TOO_LARGE;
    }
    if (n == 0) {
        return TALLY_OK;
    }
    compact(stream);
    enum tally_status status = tally_buffer_append(&stream->buffer, bytes, n);
    if (status == TALLY_OK) {
        wake(stream->request);
    }
    return status;
}

void tally_http_stream_end(struct tally_http_stream *stream)
{
    stream->has_ended = true;
    wake(stream->request);
}

/* MHD asks for the next bytes of the body. */
static ssize_t read_stream(void *context, uint64_t position, char *out, size_t n_max)
{
    (void)position;
    struct tally_http_stream *stream = context;
    struct tally_http_request *request = stream->request;
    if (request->is_gone || request->server->is_ending) {
        return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    if (tally_http_stream_pending(stream) == 0 && !stream->has_ended &&
        stream->config.on_drained != NULL) {
        stream->config.on_drained(stream->config.context, stream);
    }
    size_t n = tally_http_stream_pending(stream);
    if (n == 0 && stream->has_ended) {
        return MHD_CONTENT_READER_END_OF_STREAM;
    }
    if (n == 0) {
        suspend(request);
        return 0;
    }
    n = n < n_max ? n : n_max;
    request->server->has_moved = true;
    memcpy(out, stream->buffer.data + stream->n_taken, n);
    stream->n_taken += n;
    if (stream->n_taken == stream->buffer.size) {
        compact(stream);
    }
    return (ssize_t)n;
}

/* A reader that stays away must not make the kernel collect megabytes, nor hold the connection for
 * the quarter of an hour that TCP would try. Refusals do no harm. */
static void bound_socket(const struct tally_http_request *request)
{
    const int fd = connection_fd(request);
    const int bytes = STREAM_SOCKET_BYTES;
    const unsigned timeout_ms = request->server->idle_timeout_s * 1000U;
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
}

enum tally_status tally_http_respond_stream(struct tally_http_request *request,
                                            const struct tally_http_response *response,
                                            const struct tally_http_stream_config *config,
                                            struct tally_http_stream **ret_stream)
{
    assert(!request->is_answered && config->max_pending_bytes > 0 && config->on_closed != NULL);
    assert(response->body == NULL && response->n_static_body == 0);
    assert(response->status >= 200 && response->status <= 599 &&
           response->status != MHD_HTTP_NO_CONTENT && response->status != MHD_HTTP_NOT_MODIFIED);
    struct tally_http_stream *stream = calloc(1, sizeof *stream);
    struct MHD_Response *made = stream == NULL
                                    ? NULL
                                    : MHD_create_response_from_callback(
                                          MHD_SIZE_UNKNOWN, STREAM_BLOCK_BYTES, read_stream, stream,
                                          NULL /* the stream goes with its request */);
    if (made == NULL) {
        free(stream);
        return TALLY_NO_MEMORY;
    }
    stream->request = request;
    stream->config = *config;
    (void)add_headers(request->server, made, response);
    if (strcmp(request->method, MHD_HTTP_METHOD_HEAD) == 0) {
        /* Not chunked: MHD would send the end of the body that it leaves out, and a client that
         * keeps the connection takes it for the begin of the next answer. */
        (void)MHD_set_response_options(made, MHD_RF_HTTP_1_0_COMPATIBLE_STRICT, MHD_RO_END);
    }
    request->stream = stream;
    request->response = made;
    request->status = response->status;
    request->is_answered = true;
    bound_socket(request);
    tally_http_forget_body(request); /* a stream may last for ever */
    wake(stream->request);
    *ret_stream = stream;
    return TALLY_OK;
}

/* ---- MHD's callbacks ---- */

/* Hands the kept response to MHD. Without one (memory ran out) the connection is closed. */
static enum MHD_Result queue_response(struct tally_http_request *request)
{
    struct MHD_Response *response = request->response;
    if (response == NULL) {
        return MHD_NO;
    }
    request->response = NULL;
    if (request->stream == NULL) { /* a stream has rules of its own */
        http_peer_enter(request->peer, HTTP_SENDING);
        (void)http_peer_hold(request->peer, request->n_held_answer, true);
    }
    enum MHD_Result queued =
        MHD_queue_response(request->connection, (unsigned)request->status, response);
    if (request->answer == NULL) {
        MHD_destroy_response(response); /* MHD holds its own reference */
    }
    return queued;
}

void http_refused(struct tally_http_server *server, enum tally_http_refusal_reason reason,
                  int status, const struct tally_http_request *request,
                  char ret_id[TALLY_HTTP_REQUEST_ID_CAPACITY])
{
    const struct tally_http_refusal refusal = {
        .reason = reason, .status = status, .request = request};
    ret_id[0] = '\0';
    if (server->config.on_refused != NULL) {
        server->config.on_refused(server->config.context, &refusal, ret_id);
    }
}

void http_problem(struct tally_buffer *body, int status, const char *title, const char *code,
                  const char *detail)
{
    (void)tally_buffer_printf(body,
                              "{\"type\": \"about:blank\", \"title\": \"%s\", \"status\": %d, "
                              "\"detail\": \"%s\", \"code\": \"%s\"}",
                              title, status, detail, code);
}

/* Answers a request that the handler never sees, and ends the connection. */
static enum MHD_Result refuse(struct tally_http_request *request,
                              enum tally_http_refusal_reason reason, int status, const char *title,
                              const char *code, const char *detail)
{
    struct tally_buffer body = {.size = 0};
    char id[TALLY_HTTP_REQUEST_ID_CAPACITY];
    http_refused(request->server, reason, status, request, id);
    http_problem(&body, status, title, code, detail);
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
    return queue_response(request);
}

static const char BODY_TITLE[] = "content too large", BODY_CODE[] = "too_large";

static void print_body_limit(const struct tally_http_request *request, char ret_text[64])
{
    snprintf(ret_text, 64, "body longer than %zu bytes", request->server->config.max_body_bytes);
}

/* The header section is in. MHD has checked that Content-Length is a number. */
static enum MHD_Result start_request(struct tally_http_request *request)
{
    const struct tally_http_server_config *config = &request->server->config;
    char detail[64];
    if (!http_heads_leave_room(request->peer, &request->head, request->n_headers,
                               header_bytes(request))) {
        return MHD_NO;
    }
    if (header_bytes(request) > config->max_header_bytes) {
        snprintf(detail, sizeof detail, "request line and headers longer than %zu bytes",
                 config->max_header_bytes);
        return refuse(request, TALLY_HTTP_REFUSED_HEADERS, MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE,
                      "header fields too large", "too_large", detail);
    }
    if (request->n_headers > HTTP_MAX_HEADERS) {
        snprintf(detail, sizeof detail, "more than %d header fields", HTTP_MAX_HEADERS);
        return refuse(request, TALLY_HTTP_REFUSED_HEADERS, MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE,
                      "header fields too large", "too_large", detail);
    }
    const bool is_1_0 = strcmp(request->version, MHD_HTTP_VERSION_1_0) == 0;
    const char *fault =
        request->peer->has_nul
            ? "%00 in the path or the query"
            : http_heads_fault(&request->head, request->method + header_bytes(request), is_1_0);
    if (fault != NULL) {
        return refuse(request, TALLY_HTTP_REFUSED_MALFORMED, MHD_HTTP_BAD_REQUEST,
                      "malformed input", "malformed", fault);
    }
    const char *encoding = tally_http_header(request, "Transfer-Encoding");
    if (encoding != NULL) {
        request->peer->base.read_bytes = HTTP_READ_UNKNOWN; /* sizes of chunks are not counted */
        /* Anything else MHD would read as a body without an end. */
        return strcasecmp(encoding, "chunked") == 0
                   ? MHD_YES
                   : refuse(request, TALLY_HTTP_REFUSED_UNIMPLEMENTED, MHD_HTTP_NOT_IMPLEMENTED,
                            "not implemented", "unimplemented",
                            "Transfer-Encoding other than chunked");
    }
    const char *length = tally_http_header(request, "Content-Length");
    request->n_announced = length != NULL ? strtoull(length, NULL, 10) : 0;
    if (request->n_announced > config->max_body_bytes) {
        print_body_limit(request, detail);
        return refuse(request, TALLY_HTTP_REFUSED_BODY, MHD_HTTP_CONTENT_TOO_LARGE, BODY_TITLE,
                      BODY_CODE, detail);
    }
    return MHD_YES;
}

/* A chunked body turns out to be too long in its middle, where MHD takes no answer. */
static enum MHD_Result collect_body(struct tally_http_request *request, const char *data, size_t n)
{
    enum tally_status status =
        request->body.limit == 0 ? TALLY_TOO_LARGE : tally_buffer_append(&request->body, data, n);
    if (status == TALLY_TOO_LARGE) {
        char detail[64];
        print_body_limit(request, detail);
        http_peer_answer(request->peer, TALLY_HTTP_REFUSED_BODY, MHD_HTTP_CONTENT_TOO_LARGE,
                         BODY_TITLE, BODY_CODE, detail);
    }
    if (status != TALLY_OK) {
        return MHD_NO;
    }
    request->n_body_bytes += n;
    http_uploads_receive(&request->server->uploads, &request->upload, n, request->server->now_ms);
    return http_peer_hold(request->peer, request->body.size, false) ? MHD_YES : MHD_NO;
}

/* Pages that nothing comes for are not touched. Without memory the body grows as far as it can. */
static void expect_upload(struct tally_http_request *request)
{
    (void)tally_buffer_reserve(&request->body, request->upload.n_bytes);
    http_peer_expect(request->peer, request->upload.n_bytes);
}

/* Whether the body may be read now; else the connection is suspended until it may. */
static bool begin_upload(struct tally_http_request *request)
{
    struct tally_http_server *server = request->server;
    if (request->n_announced < HTTP_UPLOAD_MIN_BYTES ||
        request->upload.state == HTTP_UPLOAD_UNDER_WAY) {
        return true;
    }
    if (http_uploads_begin(&server->uploads, &request->upload, request->n_announced,
                           server->now_ms)) {
        expect_upload(request);
        return true;
    }
    suspend(request);
    return false;
}

/* Those that have waited for it go on with their bodies. */
static void resume_uploads(struct tally_http_server *server, int64_t now_ms)
{
    struct http_upload *upload;
    while ((upload = http_uploads_next(&server->uploads, now_ms)) != NULL) {
        struct tally_http_request *request = (struct tally_http_request *)upload;
        expect_upload(request);
        resume(request);
        http_peer_enter(request->peer, HTTP_RECEIVING);
    }
}

/* The request is complete: the first time it is handed on, later its answer may have come. */
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
        end_waiting(request);
        server->has_moved = true;
        return queue_response(request);
    }
    if (request->is_gone) {
        return MHD_NO;
    }
    if (request->is_waiting) {
        return MHD_YES;
    }
    if (server->n_waiting < MAX_WAITING) {
        begin_waiting(request);
    } else {
        suspend(request);
    }
    return MHD_YES;
}

static enum MHD_Result handle(void *context, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *upload_data,
                              size_t *upload_data_size, void **request_context)
{
    (void)context;
    struct tally_http_request *request = *request_context;
    if (request == NULL) {
        struct http_peer *peer =
            MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
        http_heads_end(peer);
        request = peer->is_refused ? NULL : request_new(peer, connection, method, url, version);
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
    if (*upload_data_size > 0) {
        if (request->is_gone) {
            return MHD_NO;
        }
        if (request->n_body_bytes == 0 && !begin_upload(request)) {
            return MHD_YES;
        }
        size_t n = *upload_data_size;
        *upload_data_size = 0;
        request->server->has_moved = true;
        return collect_body(request, upload_data, n);
    }
    return finish_request(request);
}

static void completed(void *context, struct MHD_Connection *connection, void **request_context,
                      enum MHD_RequestTerminationCode code)
{
    (void)connection;
    struct tally_http_server *server = context;
    struct tally_http_request *request = *request_context;
    *request_context = NULL;
    if (request == NULL) {
        return;
    }
    assert(!request->is_suspended);
    server->has_completed = true;
    end_waiting(request);
    if (request->stream != NULL) {
        request->stream->config.on_closed(request->stream->config.context, request->stream);
    } else if (request->was_handed && !request->is_answered) {
        server->config.on_abandoned(server->config.context, request);
    }
    struct http_peer *peer = request->peer;
    peer->request = NULL;
    peer->has_nul = false;
    (void)http_peer_hold(peer, 0, true);
    http_peer_enter(peer, code == MHD_REQUEST_TERMINATED_COMPLETED_OK ? HTTP_IDLE : HTTP_WAITING);
    request_free(request);
}

/* As MHD does it by itself, but a NUL would cut the text for all who read it. */
static size_t unescape(void *context, struct MHD_Connection *connection, char *text)
{
    const size_t n = MHD_http_unescape(text);
    http_heads_unescaped(context, text);
    if (memchr(text, '\0', n) != NULL) {
        struct http_peer *peer =
            MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
        peer->has_nul = true;
    }
    return n;
}

/* MHD answers some requests by itself. Only its log says so, before it answers. */
static void on_log(void *context, const char *format, va_list arguments)
{
    struct tally_http_server *server = context;
    char id[TALLY_HTTP_REQUEST_ID_CAPACITY];
    if (strstr(format, "HTTP response code is %u") != NULL) {
        va_list copy;
        va_copy(copy, arguments);
        const int status = (int)va_arg(copy, unsigned);
        va_end(copy);
        if (!http_heads_refused(server, status)) {
            http_refused(server, TALLY_HTTP_REFUSED_LIBRARY, status, NULL, id);
        }
    }
}

/* ---- Start ---- */

/* "127.0.0.1:8080" or "[::1]:8080" to a list that freeaddrinfo() takes. */
static bool parse_address(const char *text, struct addrinfo **ret_address)
{
    char host[64];
    const char *colon = strrchr(text, ':');
    size_t n_host = colon != NULL ? (size_t)(colon - text) : 0;
    bool bracketed = n_host >= 2 && text[0] == '[' && text[n_host - 1] == ']';
    if (bracketed) {
        text++;
        n_host -= 2;
    }
    const char *port = colon != NULL ? colon + 1 : "";
    size_t n_port = strlen(port);
    bool is_port = n_port > 0 && n_port <= 5 && strspn(port, "0123456789") == n_port &&
                   strtoul(port, NULL, 10) <= UINT16_MAX;
    bool ok = is_port && n_host > 0 && n_host < sizeof host;
    if (ok) {
        memcpy(host, text, n_host);
        host[n_host] = '\0';
        struct addrinfo hints = {.ai_family = bracketed ? AF_INET6 : AF_INET,
                                 .ai_socktype = SOCK_STREAM,
                                 .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
        ok = getaddrinfo(host, port, &hints, ret_address) == 0;
    }
    return ok;
}

static uint16_t bound_port(int fd)
{
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    char port[8] = "0";
    if (getsockname(fd, (struct sockaddr *)&address, &size) == 0) {
        (void)getnameinfo((struct sockaddr *)&address, size, NULL, 0, port, sizeof port,
                          NI_NUMERICSERV);
    }
    return (uint16_t)strtoul(port, NULL, 10);
}

static enum tally_status listen_on(struct tally_http_server *server, const char *listen_address,
                                   struct tally_error *err)
{
    struct addrinfo *address = NULL;
    if (!parse_address(listen_address, &address)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "listen",
                          "listen \"%s\" is not ADDRESS:PORT, such as 127.0.0.1:8080 or [::1]:8080",
                          listen_address);
    }
    const int on = 1;
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    bool ok = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
              bind(fd, address->ai_addr, address->ai_addrlen) == 0 &&
              listen(fd, LISTEN_BACKLOG) == 0;
    int reason = errno;
    freeaddrinfo(address);
    server->listen_fd = fd;
    if (!ok) {
        return tally_fail(err, TALLY_UNAVAILABLE, "listen", "cannot listen on %s: %s",
                          listen_address, strerror(reason));
    }
    server->port = bound_port(fd);
    return TALLY_OK;
}

/* Raises the soft limit on descriptors as far as allowed, and fits the connections below it. */
static unsigned connection_limit(unsigned wanted)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0) {
        return wanted;
    }
    if (files.rlim_cur < files.rlim_max) {
        struct rlimit raised = {.rlim_cur = files.rlim_max, .rlim_max = files.rlim_max};
        if (setrlimit(RLIMIT_NOFILE, &raised) == 0) {
            files = raised;
        }
    }
    rlim_t room = files.rlim_cur / 2 > RESERVED_DESCRIPTORS ? files.rlim_cur - RESERVED_DESCRIPTORS
                                                            : files.rlim_cur / 2;
    return room < wanted ? (unsigned)room : wanted;
}

static enum tally_status load_identity(struct tally_http_server *server, const char *cert,
                                       const char *key, bool regular_only, struct tally_error *err)
{
    struct tls_identity *identity;
    enum tally_status status =
        tls_identity_load(cert, key, regular_only, (int64_t)time(NULL), &identity, err);
    if (status == TALLY_OK) {
        tls_identity_release(server->identity);
        server->identity = identity;
    }
    return status;
}

/* What the configuration leaves open. */
static void fill_in(struct tally_http_server_config *config)
{
    config->max_connections = connection_limit(
        config->max_connections != 0 ? config->max_connections : (unsigned)DEFAULT_MAX_CONNECTIONS);
    if (config->max_connections_per_address == 0) {
        config->max_connections_per_address = config->max_connections;
    }
    if (config->idle_timeout_s == 0) {
        config->idle_timeout_s = DEFAULT_IDLE_TIMEOUT_S;
    }
    if (config->request_timeout_s == 0) {
        config->request_timeout_s = DEFAULT_REQUEST_TIMEOUT_S;
    }
    if (config->max_header_bytes == 0) {
        config->max_header_bytes = DEFAULT_MAX_HEADER_BYTES;
    }
    if (config->max_held_bytes == 0) {
        config->max_held_bytes = DEFAULT_MAX_HELD_BYTES;
    }
}

static bool watch_fd(const struct tally_http_server *server, int fd, void *which)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = which};
    return epoll_ctl(server->watch_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

/* With so much memory per connection. NULL when it does not start. */
static struct MHD_Daemon *start_daemon(struct tally_http_server *server, size_t memory_bytes)
{
    const struct tally_http_server_config *config = &server->config;
    const bool has_tls = server->identity != NULL;
    struct MHD_Daemon *daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ERROR_LOG |
            MHD_USE_SUPPRESS_DATE_NO_CLOCK | (has_tls ? (unsigned)MHD_USE_TLS : 0U),
        0, NULL, NULL, handle, server, MHD_OPTION_EXTERNAL_LOGGER, on_log, server,
        MHD_OPTION_NOTIFY_COMPLETED, completed, server, MHD_OPTION_NOTIFY_CONNECTION,
        http_peer_notify, server, MHD_OPTION_UNESCAPE_CALLBACK, unescape, server,
        MHD_OPTION_URI_LOG_CALLBACK, http_heads_begin, server,
        /* Never met: http_peer.c counts, and includes those that MHD has let go. */
        MHD_OPTION_CONNECTION_LIMIT, config->max_connections + 1, MHD_OPTION_CONNECTION_TIMEOUT,
        config->idle_timeout_s, MHD_OPTION_CONNECTION_MEMORY_LIMIT, memory_bytes,
        has_tls ? MHD_OPTION_HTTPS_PRIORITIES : MHD_OPTION_END /* of the list */, TLS_PRIORITIES,
        MHD_OPTION_HTTPS_CERT_CALLBACK2, http_peer_retrieve_identity, MHD_OPTION_END);
    if (daemon != NULL) {
        const union MHD_DaemonInfo *info = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_EPOLL_FD);
        if (!watch_fd(server, info->epoll_fd, NULL)) {
            MHD_stop_daemon(daemon);
            daemon = NULL;
        }
    }
    return daemon;
}

static enum tally_status start(struct tally_http_server *server, struct tally_error *err)
{
    const size_t memory_bytes = server->config.max_header_bytes + (size_t)CONNECTION_MEMORY_BYTES;
    server->memory_bytes = memory_bytes;
    server->watch_fd = epoll_create1(EPOLL_CLOEXEC);
    if (server->watch_fd < 0 || !watch_fd(server, server->listen_fd, server)) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "epoll: %s", strerror(errno));
    }
    server->daemon = start_daemon(server, memory_bytes);
    /* A TLS record is 16 KiB at most, and what is to be gained is little beside its decryption. */
    if (server->identity == NULL && memory_bytes < WIDE_MEMORY_BYTES) {
        server->wide_daemon = start_daemon(server, WIDE_MEMORY_BYTES);
    }
    return server->daemon != NULL
               ? TALLY_OK
               : tally_fail(err, TALLY_NO_MEMORY, NULL, "libmicrohttpd does not start");
}

enum tally_status tally_http_server_new(const struct tally_http_server_config *config,
                                        struct tally_http_server **ret_server,
                                        struct tally_error *err)
{
    assert(config->on_request != NULL && config->on_abandoned != NULL);
    struct tally_http_server *server = calloc(1, sizeof *server);
    if (server == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the HTTP server");
    }
    server->config = *config;
    server->listen_fd = -1;
    server->watch_fd = -1;
    server->now_ms = http_now_ms();
    server->answers.content_type = "application/proto";
    fill_in(&server->config);
    server->idle_timeout_s = server->config.idle_timeout_s;
    const int64_t timeout_ms = (int64_t)server->config.request_timeout_s * 1000;
    enum tally_status status = TALLY_OK;
    if (!http_connections_init(&server->connections, server->config.max_connections,
                               server->config.max_connections_per_address, timeout_ms,
                               timeout_ms < LINGER_MS ? timeout_ms : LINGER_MS,
                               server->config.max_held_bytes)) {
        status = tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the HTTP server");
    }
    if (status == TALLY_OK && config->tls_cert != NULL) {
        status = load_identity(server, config->tls_cert, config->tls_key, false, err);
    }
    if (status == TALLY_OK) {
        status = listen_on(server, config->listen, err);
    }
    if (status == TALLY_OK) {
        status = start(server, err);
    }
    if (status != TALLY_OK) {
        tally_http_server_free(server);
        return status;
    }
    *ret_server = server;
    return TALLY_OK;
}

void tally_http_server_free(struct tally_http_server *server)
{
    if (server == NULL) {
        return;
    }
    server->is_ending = true;
    while (server->suspended != NULL) {
        resume(server->suspended); /* MHD does not stop with suspended connections */
    }
    http_peer_give_up(server);
    /* completed() reports what was not answered */
    if (server->daemon != NULL) {
        MHD_stop_daemon(server->daemon);
    }
    if (server->wide_daemon != NULL) {
        MHD_stop_daemon(server->wide_daemon);
    }
    while (server->free_requests != NULL) {
        struct tally_http_request *request = server->free_requests;
        server->free_requests = request->next;
        free(request);
    }
    while (server->n_spare_bodies > 0) {
        tally_buffer_fini(&server->spare_bodies[--server->n_spare_bodies]);
    }
    http_answers_clear(&server->answers);
    http_connections_fini(&server->connections);
    tls_identity_release(server->identity);
    if (server->watch_fd >= 0) {
        close(server->watch_fd);
    }
    if (server->listen_fd >= 0) {
        close(server->listen_fd);
    }
    free(server);
}

/* ---- The loop ---- */

/* Sockets that MHD does not watch, and new connections. */
static void serve_events(struct tally_http_server *server)
{
    struct epoll_event events[EVENTS_AT_ONCE];
    bool has_new = false;
    int n = epoll_wait(server->watch_fd, events, EVENTS_AT_ONCE, 0);
    for (int i = 0; i < n; i++) {
        void *which = events[i].data.ptr;
        if (which == server) {
            has_new = true;
        } else if (which != NULL) { /* else a set of MHD's */
            http_peer_on_event(which, events[i].events);
        }
    }
    if (has_new && server->listen_fd >= 0) {
        http_peer_accept_all(server);
    }
    if (server->accept_again_ms != 0 && server->accept_again_ms <= http_now_ms() &&
        server->listen_fd >= 0) {
        server->accept_again_ms = 0;
        (void)watch_fd(server, server->listen_fd, server);
    }
}

/* The C library keeps what thousands of connections have freed; after a flood it need not. */
static void give_memory_back(struct tally_http_server *server)
{
    if (server->most_connections >= MANY_CONNECTIONS &&
        server->connections.n < server->most_connections / 4) {
        server->most_connections = server->connections.n;
        (void)malloc_trim(0);
    }
}

static int sooner(int timeout_ms, int64_t wanted_ms)
{
    bool is_sooner = timeout_ms < 0 || wanted_ms < timeout_ms;
    return is_sooner ? (int)(wanted_ms < INT_MAX ? wanted_ms : INT_MAX) : timeout_ms;
}

/* Whether MHD, which has been given its turn, may have more to read or to send. */
static bool may_go_on(const struct tally_http_server *server)
{
    const unsigned n_at_rest = server->n_waiting + server->n_suspended;
    return server->n_waiting == 0 || server->has_completed ||
           (server->has_moved && server->n_requests > n_at_rest);
}

static int daemon_timeout(const struct tally_http_server *server, struct MHD_Daemon *daemon,
                          int timeout_ms)
{
    MHD_UNSIGNED_LONG_LONG wanted_ms;
    if (MHD_get_timeout(daemon, &wanted_ms) == MHD_NO) {
        return timeout_ms;
    }
    const int64_t least_ms = may_go_on(server) ? 0 : UNSURE_MS;
    const int64_t most_ms = wanted_ms < INT_MAX ? (int64_t)wanted_ms : INT_MAX;
    return sooner(timeout_ms, most_ms < least_ms ? least_ms : most_ms);
}

static int shorter_timeout(const struct tally_http_server *server, int timeout_ms)
{
    if (server->has_resumed) {
        return 0;
    }
    timeout_ms = daemon_timeout(server, server->daemon, timeout_ms);
    if (server->n_wide > 0) {
        timeout_ms = daemon_timeout(server, server->wide_daemon, timeout_ms);
    }
    const int64_t now_ms = http_now_ms();
    const int64_t upload_ms = http_uploads_wait_ms(&server->uploads, now_ms);
    if (upload_ms >= 0) {
        timeout_ms = sooner(timeout_ms, upload_ms);
    }
    const int64_t clock_ms = http_connections_wait_ms(&server->connections, now_ms);
    if (clock_ms >= 0) {
        timeout_ms = sooner(timeout_ms, clock_ms);
    }
    if (server->accept_again_ms != 0) {
        const int64_t pause_ms = server->accept_again_ms - now_ms;
        timeout_ms = sooner(timeout_ms, pause_ms > 0 ? pause_ms : 0);
    }
    return timeout_ms;
}

enum tally_status tally_http_server_step(struct tally_http_server *server, int timeout_ms,
                                         int wake_fd, struct tally_error *err)
{
    struct pollfd fds[] = {{.fd = server->watch_fd, .events = POLLIN},
                           {.fd = wake_fd, .events = POLLIN}}; /* poll() ignores -1 */
    resume_uploads(server, http_now_ms());
    const int wait_ms = shorter_timeout(server, timeout_ms);
    int ready = 1;
    if (wait_ms != 0) { /* else nobody need say whether there is something */
        ready = poll(fds, 2, wait_ms);
    }
    if (ready < 0 && errno != EINTR) {
        return tally_fail(err, TALLY_INTERNAL, NULL, "poll: %s", strerror(errno));
    }
    server->now_ms = http_now_ms();
    if (ready > 0 || server->accept_again_ms != 0) {
        serve_events(server);
    }
    http_peer_drop_late(server);
    server->has_resumed = false;
    server->has_moved = false;
    server->has_completed = false;
    if (MHD_run(server->daemon) == MHD_NO ||
        (server->n_wide > 0 && MHD_run(server->wide_daemon) == MHD_NO)) {
        return tally_fail(err, TALLY_INTERNAL, NULL, "libmicrohttpd does not run");
    }
    http_peer_park_awake(server);
    suspend_patient(server);
    http_connections_mark(&server->connections);
    give_memory_back(server);
    return TALLY_OK;
}

unsigned tally_http_server_n_requests(const struct tally_http_server *server)
{
    return server->n_requests;
}

void tally_http_server_quiesce(struct tally_http_server *server)
{
    if (server->listen_fd >= 0) {
        close(server->listen_fd); /* epoll lets go of it by itself */
        server->listen_fd = -1;
    }
}

enum tally_status tally_http_server_reload_tls(struct tally_http_server *server, const char *cert,
                                               const char *key, struct tally_error *err)
{
    assert(server->identity != NULL);
    /* A pipe was read at the start; to wait for another writer would hang everybody. */
    return load_identity(server, cert, key, true, err);
}

enum tally_status tally_http_server_check_tls(const char *cert, const char *key,
                                              struct tally_error *err)
{
    struct tls_identity *identity;
    enum tally_status status =
        tls_identity_load(cert, key, false, (int64_t)time(NULL), &identity, err);
    if (status == TALLY_OK) {
        tls_identity_release(identity);
    }
    return status;
}

bool tally_http_server_tls(const struct tally_http_server *server, int64_t *ret_expires_s,
                           bool *ret_key_is_exposed)
{
    if (server->identity == NULL) {
        return false;
    }
    *ret_expires_s = server->identity->expires_s;
    *ret_key_is_exposed = server->identity->key_is_exposed;
    return true;
}

void tally_http_server_load(const struct tally_http_server *server, unsigned *ret_connections,
                            size_t *ret_held_bytes)
{
    *ret_connections = server->connections.n;
    *ret_held_bytes = server->connections.held_bytes;
}

uint16_t tally_http_server_port(const struct tally_http_server *server)
{
    return server->port;
}
