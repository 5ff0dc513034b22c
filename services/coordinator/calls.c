#include "services/coordinator/calls.h"
#include "services/base/alloc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api/json/problem.h"
#include "services/coordinator/coordinator.h"

struct calls *calls_new(const struct route *routes)
{
    struct calls *calls = tally_xcalloc(1, sizeof *calls);
    call_counts_init(&calls->counts, routes);
    calls->routes = routes;
    calls->brief.last = &calls->brief.first;
    calls->reads.last = &calls->reads.first;
    calls->in_pieces.last = &calls->in_pieces.first;
    calls->begun.last = &calls->begun.first;
    calls->written.last = &calls->written.first;
    return calls;
}

void call_queue_push(struct call_queue *queue, struct call *call)
{
    call->next = NULL;
    *queue->last = call;
    queue->last = &call->next;
}

void call_queue_push_first(struct call_queue *queue, struct call *call)
{
    call->next = queue->first;
    if (queue->first == NULL) {
        queue->last = &call->next;
    }
    queue->first = call;
}

struct call *call_queue_pop(struct call_queue *queue)
{
    struct call *call = queue->first;
    queue->first = call->next;
    if (queue->first == NULL) {
        queue->last = &queue->first;
    }
    return call;
}

struct call *call_queue_take(struct call_queue *queue)
{
    struct call *first = queue->first;
    *queue = (struct call_queue){.last = &queue->first};
    return first;
}

bool calls_have_reads(const struct calls *calls)
{
    return calls->brief.first != NULL || calls->reads.first != NULL ||
           calls->in_pieces.first != NULL || calls->begun.first != NULL;
}

static void drop_all(struct tally_coordinator *coordinator, struct call_queue *queue)
{
    struct call *call = call_queue_take(queue);
    while (call != NULL) {
        struct call *next = call->next;
        call_free(coordinator, call);
        call = next;
    }
}

void calls_drop_queued(struct tally_coordinator *coordinator)
{
    if (coordinator->calls != NULL) {
        drop_all(coordinator, &coordinator->calls->brief);
        drop_all(coordinator, &coordinator->calls->reads);
        drop_all(coordinator, &coordinator->calls->in_pieces);
        drop_all(coordinator, &coordinator->calls->begun);
        drop_all(coordinator, &coordinator->calls->written);
    }
}

void calls_free(struct calls *calls)
{
    while (calls != NULL && calls->unused != NULL) {
        struct call *call = calls->unused;
        calls->unused = call->next;
        free(call);
    }
    if (calls != NULL) {
        call_counts_fini(&calls->counts);
        free(calls);
    }
}

/* ---- What a handler reads of its request. */

enum tally_status call_read_body(struct call *call, const char *content_type,
                                 const uint8_t **ret_body, size_t *ret_size,
                                 struct tally_error *err)
{
    const char *type = tally_http_header(call->request, "Content-Type");
    size_t n = type != NULL ? strcspn(type, "; \t") : 0;
    if (type == NULL || n != strlen(content_type) || strncasecmp(type, content_type, n) != 0) {
        return tally_fail(err, TALLY_UNSUPPORTED_MEDIA_TYPE, "Content-Type",
                          "Content-Type must be %s", content_type);
    }
    const char *encoding = tally_http_header(call->request, "Content-Encoding");
    if (encoding != NULL && strcasecmp(encoding, "identity") != 0) {
        return tally_fail(err, TALLY_UNSUPPORTED_MEDIA_TYPE, "Content-Encoding",
                          "the body is compressed (%.16s); send it uncompressed", encoding);
    }
    *ret_body = tally_http_body(call->request, ret_size);
    return TALLY_OK;
}

enum tally_status call_read_query_integer(struct call *call, const char *name, int64_t min,
                                          int64_t max, int64_t otherwise, int64_t *ret_value,
                                          struct tally_error *err)
{
    const char *text = tally_http_query(call->request, name);
    if (text == NULL) {
        *ret_value = otherwise;
        return TALLY_OK;
    }
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    /* strtoll() would also take " 5" and "+5". */
    const bool is_plain = (text[0] >= '0' && text[0] <= '9') || text[0] == '-';
    if (!is_plain || end == text || *end != '\0' || errno != 0 || value < min || value > max) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, name, "%s %.64s outside [%lld, %lld]", name,
                          text, (long long)min, (long long)max);
    }
    *ret_value = value;
    return TALLY_OK;
}

bool call_accepts(const char *list, const char *name)
{
    const size_t n_wanted = strlen(name);
    const char *at = list;
    while (*at != '\0') {
        at += strspn(at, ", \t");
        const size_t n = strcspn(at, ",");
        const size_t n_name = strcspn(at, "; \t,");
        const char *q = memmem(at, n, "q=", 2);
        const bool is_refused = q != NULL && strtod(q + 2, NULL) <= 0;
        if (n_name == n_wanted && strncasecmp(at, name, n_wanted) == 0 && !is_refused) {
            return true;
        }
        at += n;
    }
    return false;
}

/* ---- From results and errors to HTTP responses. */

enum { MAX_UNUSED_CALLS = 256 };

enum tally_status call_answer_bytes(struct call *call, enum tally_status made,
                                    const char *content_type, struct tally_error *err)
{
    if (made != TALLY_OK) {
        return tally_fail(err, made, NULL, "no memory for the response");
    }
    call->answered = true;
    call->status = 200;
    call->content_type = content_type;
    return TALLY_OK;
}

enum tally_status call_answer_json(struct call *call, int status, struct tally_json *value,
                                   struct tally_error *err)
{
    enum tally_status made =
        value != NULL ? tally_json_dump(value, 2, &call->body) : TALLY_NO_MEMORY;
    tally_json_free(value);
    made = made == TALLY_OK ? tally_buffer_append_text(&call->body, "\n") : made;
    made = call_answer_bytes(call, made, "application/json", err);
    call->status = made == TALLY_OK ? status : call->status;
    return made;
}

enum tally_status call_append_element(struct tally_buffer *body, bool is_first,
                                      const struct tally_json *element)
{
    const enum tally_status status =
        element != NULL ? tally_buffer_append_text(body, is_first ? "\n    " : ",\n    ")
                        : TALLY_NO_MEMORY;
    return status == TALLY_OK ? tally_json_dump(element, 0, body) : status;
}

enum tally_status call_end_list(struct tally_buffer *body, bool is_empty)
{
    return tally_buffer_append_text(body, is_empty ? "],\n" : "\n  ],\n");
}

void call_answer_error(struct call *call, const struct tally_error *err)
{
    const struct tally_status_info *info = tally_status_info(err->status);
    const bool is_worker = call->route != NULL && call->route->kind == ROUTE_WORKER;
    call->answered = true;
    call->error = *err;
    call->body.size = 0;
    if (is_worker) {
        call->status = info->connect_http_status;
        call->content_type = "application/json";
        tally_connect_error_encode(err, &call->body);
    } else {
        call->status = info->http_status;
        call->content_type = "application/problem+json";
        tally_problem_encode_all(err, call->errors, &call->body);
        tally_buffer_append_text(&call->body, "\n");
    }
    if (err->status == TALLY_UNSUPPORTED_MEDIA_TYPE) {
        call->status = 415; /* for both interfaces: the Connect protocol prescribes it as well */
    }
}

static void drop_forwarded(struct call *call)
{
    if (call->forwarded != NULL) {
        call->forwarded->free(call->forwarded);
        call->forwarded = NULL;
    }
}

bool call_has_forwarded_answer(const struct call *call)
{
    return call->forwarded != NULL && call->forwarded->has_answer;
}

void call_clear_answer(struct call *call)
{
    drop_forwarded(call);
    call->collector = NULL;
    call->answered = false;
    call->content_type = NULL;
    call->error = (struct tally_error)TALLY_ERROR_INIT;
    call->body.size = 0;
}

struct call *call_new(struct tally_coordinator *coordinator)
{
    struct calls *calls = coordinator->calls;
    struct call *call = calls->unused;
    if (call == NULL) {
        return tally_xcalloc(1, sizeof *call);
    }
    calls->unused = call->next;
    calls->n_unused--;
    memset(call, 0, sizeof *call);
    return call;
}

void call_free(struct tally_coordinator *coordinator, struct call *call)
{
    struct calls *calls = coordinator->calls;
    drop_forwarded(call);
    if (call->pieces != NULL) {
        call->pieces->free(call->pieces);
    }
    tally_json_free(call->collected);
    tally_json_free(call->errors);
    tally_buffer_fini(&call->parts);
    tally_buffer_fini(&call->body);
    tally_buffer_fini(&call->document);
    if (calls->n_unused == MAX_UNUSED_CALLS) {
        free(call);
        return;
    }
    call->next = calls->unused;
    calls->unused = call;
    calls->n_unused++;
}

/* Counts an exchange for its job. */
static void charge_job(struct tally_coordinator *coordinator, const struct call *call, uint64_t in,
                       uint64_t out)
{
    if (call->job_id[0] != '\0') {
        coordinator->calls->count_wire(coordinator, call, in, out);
    }
}

static void add_header(struct tally_http_response *response, const char *name, const char *value)
{
    size_t n = 0;
    while (response->headers[n].name != NULL) {
        n++;
    }
    response->headers[n].name = name;
    response->headers[n].value = value;
}

static void add_if_absent(struct tally_http_response *response, const char *name, const char *value)
{
    for (size_t n = 0; response->headers[n].name != NULL; n++) {
        if (strcasecmp(response->headers[n].name, name) == 0) {
            return;
        }
    }
    add_header(response, name, value);
}

bool call_shows_request_id(const struct call *call)
{
    const bool is_worker = call->route != NULL && call->route->kind == ROUTE_WORKER;
    return !is_worker || call->status >= 400 || call->has_own_request_id; /* otherwise wasteful */
}

/* Adds the headers that follow from the status. */
static void add_status_headers(const struct call *call, bool is_worker,
                               struct tally_http_response *response)
{
    if (call->status == 405) {
        add_header(response, "Allow", call->allow);
    }
    if (call->status == 401) {
        add_header(response, "WWW-Authenticate", "Bearer");
    }
    if (call->status == 415 && call->route != NULL) {
        const bool takes_tar = (call->route->flags & ROUTE_TAKES_TAR) != 0;
        add_header(response, "Accept-Post",
                   is_worker   ? "application/proto"
                   : takes_tar ? "application/x-tar"
                               : "application/json");
    }
    if (!is_worker && (call->status == 429 || call->status == 503)) {
        add_header(response, "Retry-After", "1"); /* a commit or a job may have ended by then */
    }
}

/* Adds the handler's headers and those that follow from the status, or the headers of another
 * replica's response. */
static void add_headers(const struct call *call, struct tally_http_response *response)
{
    const bool is_worker = call->route != NULL && call->route->kind == ROUTE_WORKER;
    if (call_has_forwarded_answer(call)) {
        call->forwarded->add_headers(call->forwarded, response);
    } else {
        for (size_t i = 0; i < MAX_CALL_HEADERS && call->headers[i].name != NULL; i++) {
            add_header(response, call->headers[i].name, call->headers[i].value);
        }
        if (call->location[0] != '\0') {
            add_header(response, "Location", call->location);
        }
        add_status_headers(call, is_worker, response);
    }
    if (!is_worker || call->status >= 400) { /* other responses are protobuf, for workers */
        add_if_absent(response, "X-Content-Type-Options", "nosniff");
        add_if_absent(response, "Cache-Control", "no-store");
    }
    if (call_shows_request_id(call)) {
        add_header(response, "X-Request-Id", call->request_id);
    }
}

enum tally_status call_begin_stream(struct tally_coordinator *coordinator, struct call *call,
                                    const struct tally_http_stream_config *config,
                                    struct tally_http_stream **ret_stream, struct tally_error *err)
{
    struct tally_http_response response = {.status = 200, .content_type = call->content_type};
    call->status = response.status;
    request_log_begin(coordinator, call);
    add_headers(call, &response);
    enum tally_status status =
        tally_http_respond_stream(call->request, &response, config, ret_stream);
    if (status != TALLY_OK) {
        return tally_fail(err, status, NULL, "no memory for the stream");
    }
    call->answered = true;
    call->streaming = true;
    return TALLY_OK;
}

/* Sends the response. Returns its length on the wire. */
static uint64_t respond(struct call *call)
{
    struct tally_http_response response = {.status = call->status,
                                           .content_type = call->content_type,
                                           .body = call->static_body == NULL ? &call->body : NULL,
                                           .static_body = call->static_body,
                                           .n_static_body = call->n_static_body,
                                           .is_brief = call->status == 200 && call->route != NULL &&
                                                       call->route->kind == ROUTE_WORKER};
    add_headers(call, &response);
    return tally_http_respond(call->request, &response);
}

void call_hand_over(struct tally_coordinator *coordinator, struct call *call)
{
    request_log_begin(coordinator, call);
    charge_job(coordinator, call, tally_http_wire_in_bytes(call->request), 0);
    request_log_end(coordinator, call);
    call_free(coordinator, call);
}

void call_send(struct tally_coordinator *coordinator, struct call *call)
{
    if (call->request == NULL) {
        call->logged.status = 499; /* the client has disconnected */
        if (call->request_id[0] == '\0') {
            request_id_draw(coordinator, call->request_id);
        }
        charge_job(coordinator, call, 0, 0); /* its updates are durable */
    } else if (!call->streaming) {
        request_log_begin(coordinator, call);
        const uint64_t in = tally_http_wire_in_bytes(call->request);
        call->logged.bytes = respond(call);
        charge_job(coordinator, call, in, call->logged.bytes);
    }
    request_log_end(coordinator, call);
    call_free(coordinator, call);
}

uint64_t call_send_protobuf(struct tally_http_request *request, struct tally_buffer *body,
                            struct tally_shared_bytes *tail)
{
    const struct tally_http_response response = {
        .status = 200,
        .content_type = "application/proto",
        .is_brief = true,
        .headers = {{request_id_given(request) != NULL ? "X-Request-Id" : NULL,
                     request_id_given(request)}},
        .body = body,
        .tail = tail};
    return tally_http_respond(request, &response);
}
