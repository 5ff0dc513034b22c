#include "tests/unit/services/coordinator/fake_http.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

#include "tests/harness.h"

void fake_request_fini(struct tally_http_request *request)
{
    if (request->stream.is_open) {
        request->stream.is_open = false;
        request->stream.config.on_closed(request->stream.config.context, &request->stream);
    }
    tally_buffer_fini(&request->body);
    tally_buffer_fini(&request->response);
}

const char *fake_response_text(struct tally_http_request *request)
{
    CU_ASSERT_EQUAL_FATAL(tally_buffer_append(&request->response, "", 1), TALLY_OK);
    request->response.size--;
    return (const char *)request->response.data;
}

const char *tally_http_method(const struct tally_http_request *request)
{
    return request->method;
}

const char *tally_http_path(const struct tally_http_request *request)
{
    return request->path;
}

const char *tally_http_query(const struct tally_http_request *request, const char *name)
{
    return request->query_name != NULL && strcmp(request->query_name, name) == 0
               ? request->query_value
               : NULL;
}

const char *tally_http_query_at(const struct tally_http_request *request, const char *name,
                                size_t index)
{
    return index == 0 ? tally_http_query(request, name) : NULL;
}

const char *tally_http_header(const struct tally_http_request *request, const char *name)
{
    return strcasecmp(name, "Content-Type") == 0 ? request->content_type
           : strcasecmp(name, "Accept") == 0     ? request->accept
           : strcasecmp(name, "Host") == 0       ? "localhost"
                                                 : NULL;
}

const uint8_t *tally_http_body(const struct tally_http_request *request, size_t *ret_size)
{
    *ret_size = request->body.size;
    return request->body.data;
}

void tally_http_forget_body(struct tally_http_request *request)
{
    tally_buffer_fini(&request->body);
}

void tally_http_take_body(struct tally_http_request *request, struct tally_buffer *ret_body)
{
    *ret_body = request->body;
    request->body = (struct tally_buffer){0};
}

void tally_http_free_body(struct tally_buffer *body)
{
    tally_buffer_fini(body);
}

void tally_http_trim(void)
{
}

enum tally_status tally_http_target(const struct tally_http_request *request,
                                    struct tally_buffer *out)
{
    return tally_buffer_append_text(out, request->path);
}

void tally_http_address(const struct tally_http_request *request,
                        char ret_address[TALLY_HTTP_ADDRESS_CAPACITY])
{
    (void)request;
    ret_address[0] = '\0';
}

uint64_t tally_http_wire_in_bytes(const struct tally_http_request *request)
{
    return request->body.size;
}

void tally_http_set_user(struct tally_http_request *request, void *user)
{
    request->user = user;
}

void *tally_http_user(const struct tally_http_request *request)
{
    return request->user;
}

uint64_t tally_http_respond(struct tally_http_request *request,
                            const struct tally_http_response *response)
{
    CU_ASSERT_EQUAL(request->status, 0); /* one response to each request */
    request->status = response->status;
    if (response->body != NULL) {
        CU_ASSERT_EQUAL_FATAL(
            tally_buffer_append(&request->response, response->body->data, response->body->size),
            TALLY_OK);
        response->body->size = 0;
    }
    if (response->tail != NULL) {
        const struct tally_buffer *tail = &response->tail->bytes;
        CU_ASSERT_EQUAL_FATAL(tally_buffer_append(&request->response, tail->data, tail->size),
                              TALLY_OK);
    }
    return request->response.size;
}

enum tally_status tally_http_respond_stream(struct tally_http_request *request,
                                            const struct tally_http_response *response,
                                            const struct tally_http_stream_config *config,
                                            struct tally_http_stream **ret_stream)
{
    request->status = response->status;
    request->stream = (struct tally_http_stream){.config = *config, .is_open = true};
    *ret_stream = &request->stream;
    return TALLY_OK;
}

static struct tally_http_request *request_of(struct tally_http_stream *stream)
{
    return (struct tally_http_request *)((char *)stream -
                                         offsetof(struct tally_http_request, stream));
}

enum tally_status tally_http_stream_write(struct tally_http_stream *stream, const void *bytes,
                                          size_t n)
{
    return tally_buffer_append(&request_of(stream)->response, bytes, n);
}

size_t tally_http_stream_pending(const struct tally_http_stream *stream)
{
    (void)stream;
    return 0; /* the reader takes everything at once */
}

void tally_http_stream_end(struct tally_http_stream *stream)
{
    stream->ended = true;
}

void tally_http_line_attach(struct tally_http_line *line, const struct tally_http_request *request)
{
    (void)line, (void)request;
}

void tally_http_line_detach(struct tally_http_line *line)
{
    (void)line;
}

bool tally_http_line_look(struct tally_http_line *line, struct tally_http_motion *ret_motion)
{
    if (line->peer == NULL) {
        return false;
    }
    *ret_motion = *(const struct tally_http_motion *)line->peer;
    return true;
}
