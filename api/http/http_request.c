/* http_request: the life of a request, from its headers to its sent response, and what handlers can
 * read of it. */
#include <malloc.h>
#include <netdb.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "api/http/http_server_internal.h"

enum {
    /* Finished requests are reused, with the memory of their bodies. */
    MAX_FREE_REQUESTS = 256,
    KEPT_BODY_BYTES = 64 * 1024,
    LONG_BODY_BYTES = 8 << 20,
    LONG_BODY_ROOM = 48 << 20
};

/* LONG_BODY_ROOM bytes, kept from one long body for the next; NULL = none. Without it, the C
 * library would give the memory of a long body to short blocks, and then need as much again. Not a
 * member of the server, because a body that was taken may be freed after it. */
static _Atomic(uint8_t *) long_body;

/* ---- Its life ---- */

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

/* Keeps the headers in one pass, because the handler asks for several that are absent. A present
 * but empty value is "", not NULL. */
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

static struct tally_http_request *take_free(struct tally_http_server *server)
{
    struct tally_http_request *request =
        TALLY_LIST_FIRST(struct tally_http_request, in_list, &server->free_requests);
    if (request != NULL) {
        tally_list_remove(&request->in_list);
        server->n_free_requests--;
    }
    return request;
}

struct tally_http_request *http_request_new(struct http_peer *peer,
                                            struct MHD_Connection *connection, const char *method,
                                            const char *path, const char *version)
{
    struct tally_http_server *server =
        (struct tally_http_server *)peer->peers; /* its first member */
    struct tally_http_request *request = take_free(server);
    if (request != NULL) {
        memset(request, 0, offsetof(struct tally_http_request, headers));
    } else {
        request = calloc(1, sizeof *request);
    }
    if (request != NULL) {
        server->n_requests++;
        request->server = server;
        request->connection = connection;
        request->peer = peer;
        request->begun_ms = server->peers.now_ms;
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

void http_request_reserve_body(struct tally_http_request *request, size_t n)
{
    struct tally_buffer *body = &request->body;
    if (n <= LONG_BODY_BYTES || n > LONG_BODY_ROOM) {
        (void)tally_buffer_reserve(body, n);
        return;
    }
    uint8_t *room = atomic_exchange(&long_body, NULL);
    if (room == NULL) {
        room = malloc(LONG_BODY_ROOM);
    }
    if (room != NULL) {
        tally_buffer_fini(body);
        body->data = room;
        body->capacity = LONG_BODY_ROOM;
    }
}

void tally_http_free_body(struct tally_buffer *body)
{
    uint8_t *none = NULL;
    if (body->capacity == LONG_BODY_ROOM &&
        atomic_compare_exchange_strong(&long_body, &none, body->data)) {
        *body = (struct tally_buffer){.limit = body->limit};
    }
    tally_buffer_fini(body);
}

void tally_http_trim(void)
{
    free(atomic_exchange(&long_body, NULL));
    (void)malloc_trim(0);
}

void http_request_drop_body(struct tally_http_request *request)
{
    struct tally_http_server *server = request->server;
    struct tally_buffer *body = &request->body;
    http_uploads_end(&server->uploads, &request->upload);
    if (body->data == NULL || body->capacity > KEPT_BODY_BYTES ||
        server->n_spare_bodies == HTTP_SPARE_BODIES) {
        tally_http_free_body(body);
        return;
    }
    server->spare_bodies[server->n_spare_bodies++] =
        (struct tally_buffer){.data = body->data, .capacity = body->capacity};
    *body = (struct tally_buffer){.limit = body->limit};
}

void http_request_free(struct tally_http_request *request)
{
    struct tally_http_server *server = request->server;
    server->n_requests--;
    if (request->pooled != NULL) {
        http_response_pool_give_back(&server->pool, request->pooled);
    } else if (request->response != NULL) {
        MHD_destroy_response(request->response);
    }
    http_stream_free(request->stream);
    http_request_drop_body(request);
    if (server->n_free_requests == MAX_FREE_REQUESTS) {
        free(request);
        return;
    }
    tally_list_prepend(&server->free_requests, &request->in_list);
    server->n_free_requests++;
}

void http_requests_clear(struct tally_http_server *server)
{
    TALLY_LIST_EACH(node, &server->free_requests)
    {
        free(TALLY_LIST_MEMBER(struct tally_http_request, in_list, node));
    }
    while (server->n_spare_bodies > 0) {
        tally_buffer_fini(&server->spare_bodies[--server->n_spare_bodies]);
    }
    free(atomic_exchange(&long_body, NULL));
}

/* ---- What the handler asks ---- */

const char *tally_http_method(const struct tally_http_request *request)
{
    return strcmp(request->method, MHD_HTTP_METHOD_HEAD) == 0 ? MHD_HTTP_METHOD_GET
                                                              : request->method;
}

const char *tally_http_path(const struct tally_http_request *request)
{
    return request->path;
}

/* A present but empty value is "", not NULL. */
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

/* Counts down to one of several values of a parameter. */
struct nth_value {
    const char *name;
    size_t n_before;
    const char *value; /* NULL = not found yet */
};

static enum MHD_Result find_nth(void *context, enum MHD_ValueKind kind, const char *name,
                                const char *value)
{
    struct nth_value *nth = context;
    (void)kind;
    if (strcmp(name, nth->name) != 0) {
        return MHD_YES;
    }
    if (nth->n_before > 0) {
        nth->n_before--;
        return MHD_YES;
    }
    nth->value = value != NULL ? value : "";
    return MHD_NO;
}

const char *tally_http_query_at(const struct tally_http_request *request, const char *name,
                                size_t index)
{
    struct nth_value nth = {.name = name, .n_before = index};
    MHD_get_connection_values(request->connection, MHD_GET_ARGUMENT_KIND, find_nth, &nth);
    return nth.value;
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

size_t http_request_header_bytes(const struct tally_http_request *request)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    return info != NULL ? info->header_size : 0;
}

void tally_http_address(const struct tally_http_request *request,
                        char ret_address[TALLY_HTTP_ADDRESS_CAPACITY])
{
    struct sockaddr_storage address;
    socklen_t n = sizeof address;
    if (getpeername(request->peer->base.fd, (struct sockaddr *)&address, &n) != 0 ||
        getnameinfo((struct sockaddr *)&address, n, ret_address, TALLY_HTTP_ADDRESS_CAPACITY, NULL,
                    0, NI_NUMERICHOST) != 0) {
        ret_address[0] = '\0';
    }
}

uint64_t tally_http_wire_in_bytes(const struct tally_http_request *request)
{
    return http_request_header_bytes(request) + request->n_body_bytes;
}

void tally_http_forget_body(struct tally_http_request *request)
{
    http_request_drop_body(request);
    (void)http_peer_hold(request->peer, 0, true);
}

void tally_http_take_body(struct tally_http_request *request, struct tally_buffer *ret_body)
{
    *ret_body = request->body;
    ret_body->limit = 0;
    request->body = (struct tally_buffer){.limit = request->body.limit};
    tally_http_forget_body(request);
}

/* Percent-encodes all but the unreserved characters of RFC 3986 and those in `kept`. */
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
