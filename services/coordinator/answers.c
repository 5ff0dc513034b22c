/* answers: from results and errors to HTTP responses. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api/problem.h"
#include "services/coordinator/internal.h"

enum tally_status answer_json(struct call *call, int status, struct tally_json *value,
                              struct tally_error *err)
{
    enum tally_status result = TALLY_NO_MEMORY;
    if (value != NULL) {
        result = tally_json_dump(value, 2, &call->body);
        tally_json_free(value);
    }
    if (result == TALLY_OK) {
        result = tally_buffer_append_text(&call->body, "\n");
    }
    if (result != TALLY_OK) {
        return tally_fail(err, result, NULL, "no memory for the answer");
    }
    call->answered = true;
    call->status = status;
    call->content_type = "application/json";
    return TALLY_OK;
}

void answer_error(struct call *call, const struct tally_error *err)
{
    const struct tally_status_info *info = tally_status_info(err->status);
    const bool is_worker = call->route != NULL && call->route->kind == ROUTE_WORKER;
    call->answered = true;
    call->body.size = 0;
    if (is_worker) {
        call->status = info->connect_http_status;
        call->content_type = "application/json";
        tally_connect_error_encode(err, &call->body);
    } else {
        call->status = info->http_status;
        call->content_type = "application/problem+json";
        tally_problem_encode(err, &call->body);
        tally_buffer_append_text(&call->body, "\n");
    }
    if (err->status == TALLY_UNSUPPORTED_MEDIA_TYPE) {
        call->status = 415; /* both interfaces: the Connect protocol asks for it as well */
    }
}

/* Counts the wire bytes of an exchange for its job, if that is still live. */
static void count_wire(struct tally_coordinator *coordinator, const char *job_id, uint64_t in,
                       uint64_t out)
{
    struct hosted_job *job = job_id[0] != '\0' ? find_job(coordinator, job_id) : NULL;
    if (job != NULL) {
        job->wire_in_bytes += in;
        job->wire_out_bytes += out;
    }
}

void send_answer(struct tally_coordinator *coordinator, struct call *call)
{
    if (call->request != NULL) {
        struct tally_http_response response = {
            .status = call->status, .content_type = call->content_type, .body = &call->body};
        size_t n = 0;
        if (call->location[0] != '\0') {
            response.headers[n].name = "Location";
            response.headers[n++].value = call->location;
        }
        if (call->status == 405) {
            response.headers[n].name = "Allow";
            response.headers[n++].value = call->allow;
        }
        if (call->status == 401) {
            response.headers[n].name = "WWW-Authenticate";
            response.headers[n++].value = "Bearer";
        }
        if (call->status == 415 && call->route != NULL) {
            response.headers[n].name = "Accept-Post";
            response.headers[n++].value =
                call->route->kind == ROUTE_WORKER ? "application/proto" : "application/json";
        }
        const uint64_t in = tally_http_wire_in_bytes(call->request);
        const uint64_t out = tally_http_respond(call->request, &response);
        count_wire(coordinator, call->job_id, in, out);
    }
    tally_buffer_fini(&call->body);
    free(call);
}

uint64_t send_protobuf(struct tally_http_request *request, struct tally_buffer *body)
{
    const struct tally_http_response response = {
        .status = 200, .content_type = "application/proto", .body = body};
    return tally_http_respond(request, &response);
}

enum tally_status read_body(struct call *call, const char *content_type, const uint8_t **ret_body,
                            size_t *ret_size, struct tally_error *err)
{
    const char *type = tally_http_header(call->request, "Content-Type");
    size_t n = type != NULL ? strcspn(type, "; \t") : 0;
    if (type == NULL || n != strlen(content_type) || strncasecmp(type, content_type, n) != 0) {
        return tally_fail(err, TALLY_UNSUPPORTED_MEDIA_TYPE, "Content-Type",
                          "Content-Type must be %s", content_type);
    }
    *ret_body = tally_http_body(call->request, ret_size);
    return TALLY_OK;
}

enum tally_status read_query_integer(struct call *call, const char *name, int64_t min, int64_t max,
                                     int64_t otherwise, int64_t *ret_value, struct tally_error *err)
{
    const char *text = tally_http_query(call->request, name);
    if (text == NULL) {
        *ret_value = otherwise;
        return TALLY_OK;
    }
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < min || value > max) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, name, "%s %.64s outside [%lld, %lld]", name,
                          text, (long long)min, (long long)max);
    }
    *ret_value = value;
    return TALLY_OK;
}
