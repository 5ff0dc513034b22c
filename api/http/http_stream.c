#include "api/http/http_stream.h"

#include <assert.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "api/http/http_response.h"
#include "api/http/http_wait.h"

enum {
    /* What the kernel may hold for the reader of a stream; by default up to 4 MiB. */
    SOCKET_BYTES = 64 * 1024,
    /* MHD's own buffer of a body that is not chunked. */
    BLOCK_BYTES = 4 * 1024,
    /* A drained stream keeps a buffer of this size; a larger one is freed. */
    KEPT_BYTES = 4 * 1024
};

/* Lives as long as its request. */
struct tally_http_stream {
    struct tally_http_request *request;
    struct tally_http_stream_config config;
    struct tally_buffer buffer;
    size_t n_taken; /* bytes of the buffer that MHD already has */
    bool has_ended; /* tally_http_stream_end has been called */
};

void http_stream_closed(struct tally_http_stream *stream)
{
    stream->config.on_closed(stream->config.context, stream);
}

void http_stream_free(struct tally_http_stream *stream)
{
    if (stream != NULL) {
        tally_buffer_fini(&stream->buffer);
        free(stream);
    }
}

size_t tally_http_stream_pending(const struct tally_http_stream *stream)
{
    return stream->buffer.size - stream->n_taken;
}

/* Removes from the buffer what MHD has taken. */
static void compact(struct tally_http_stream *stream)
{
    struct tally_buffer *buffer = &stream->buffer;
    buffer->size -= stream->n_taken;
    if (buffer->size > 0) {
        memmove(buffer->data, buffer->data + stream->n_taken, buffer->size);
    } else if (buffer->capacity > KEPT_BYTES) {
        tally_buffer_fini(buffer); /* many streams are idle: 500 buffers of 64 KiB would add up */
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
        http_wait_wake(stream->request);
    }
    return status;
}

void tally_http_stream_end(struct tally_http_stream *stream)
{
    stream->has_ended = true;
    http_wait_wake(stream->request);
}

/* MHD asks for the next bytes of the body. */
static ssize_t read_stream(void *context, uint64_t position, char *out, size_t n_max)
{
    (void)position;
    struct tally_http_stream *stream = context;
    struct tally_http_request *request = stream->request;
    if (request->is_gone || request->server->peers.is_ending) {
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
        http_wait_suspend(request);
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

/* For a peer that does not read, the kernel would collect megabytes and TCP would retry for a
 * quarter of an hour. A failure is harmless. */
static void bound_socket(const struct tally_http_request *request)
{
    const int fd = request->peer->base.fd;
    const int bytes = SOCKET_BYTES;
    const unsigned timeout_ms = request->server->config.idle_timeout_s * 1000U;
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
    struct MHD_Response *made =
        stream == NULL
            ? NULL
            : MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, read_stream, stream,
                                                NULL /* the request frees the stream */);
    if (made == NULL) {
        free(stream);
        return TALLY_NO_MEMORY;
    }
    stream->request = request;
    stream->config = *config;
    (void)http_response_add_headers(request->server, made, response);
    if (strcmp(request->method, MHD_HTTP_METHOD_HEAD) == 0) {
        /* Not chunked: MHD would send the end of the body that it leaves out, and a client that
         * keeps the connection would take it for the beginning of the next response. */
        (void)MHD_set_response_options(made, MHD_RF_HTTP_1_0_COMPATIBLE_STRICT, MHD_RO_END);
    }
    request->stream = stream;
    request->response = made;
    request->status = response->status;
    request->is_answered = true;
    bound_socket(request);
    tally_http_forget_body(request); /* a stream may never end */
    http_wait_wake(stream->request);
    *ret_stream = stream;
    return TALLY_OK;
}
