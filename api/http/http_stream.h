/* http_stream: responses without a known end, such as server-sent events.
 *
 * A stream belongs to the server. Its owner holds a borrowed pointer from tally_http_respond_stream
 * until `on_closed` returns. on_closed is called exactly once for each stream, from within a step
 * or tally_http_server_free, when
 *   - everything has been sent after tally_http_stream_end,
 *   - the peer is gone or has shut down its sending side, also while the stream sleeps,
 *   - the peer took nothing for idle_timeout_s while bytes were pending, or
 *   - the server ends.
 * The owner cannot free a stream: it calls tally_http_stream_end and waits.
 *
 *     write --> buffer, at most max_pending_bytes --> socket (64 KiB) --> peer
 *                  empty: the connection is suspended; the next write resumes it
 *
 * So a slow reader costs that much memory and no more. A sleeping stream costs a suspended
 * connection: no thread and no polling, and idle_timeout_s does not apply to it.
 *
 * The body is chunked for HTTP/1.1 and ends with the connection for HTTP/1.0. HEAD gets the headers
 * only and is closed at once. */
#ifndef TALLY_API_HTTP_HTTP_STREAM_H
#define TALLY_API_HTTP_HTTP_STREAM_H

#include <stddef.h>

#include "codec/error.h"

struct tally_http_request;
struct tally_http_response;
struct tally_http_stream;

struct tally_http_stream_config {
    size_t max_pending_bytes; /* > 0 */
    /* The kernel has taken everything written, and the stream is about to sleep; it may be written
     * to or ended here. Also called once when the headers are out and nothing was written yet. NULL
     * = not wanted. */
    void (*on_drained)(void *context, struct tally_http_stream *stream);
    /* The stream is over and dies with this call; nothing may be called on it. */
    void (*on_closed)(void *context, struct tally_http_stream *stream);
    void *context;
};

/* Responds with a stream. Uses the status (not 204 or 304), the content type and the headers of
 * `response`, which has no body. As with tally_http_respond, `request` is gone afterwards.
 * Errors: NO_MEMORY, and then the request still needs a response. */
enum tally_status tally_http_respond_stream(struct tally_http_request *request,
                                            const struct tally_http_response *response,
                                            const struct tally_http_stream_config *config,
                                            struct tally_http_stream **ret_stream);
/* Appends `n` bytes, all or none. Bytes for a peer that has just gone are lost without an error;
 * on_closed follows. Errors: TOO_LARGE (past max_pending_bytes), NO_MEMORY. Precondition:
 * not ended. */
enum tally_status tally_http_stream_write(struct tally_http_stream *stream, const void *bytes,
                                          size_t n);
/* Bytes written that the kernel has not taken yet. */
size_t tally_http_stream_pending(const struct tally_http_stream *stream);
/* Sends the pending bytes, then closes the stream. May be called again. */
void tally_http_stream_end(struct tally_http_stream *stream);

#endif
