#include "api/http/http_line.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "api/http/http_server_internal.h"

/* A line of 64 kbit/s sends this in 8 s. */
enum { MAX_UNSENT_BYTES = 64 * 1024 };

void tally_http_line_attach(struct tally_http_line *line, const struct tally_http_request *request)
{
    struct http_peer *peer = request->peer;
    if (line->peer != peer) {
        tally_http_line_detach(line);
        if (peer->line != NULL) {
            peer->line->peer = NULL;
        }
        peer->line = line;
        line->peer = peer;
        line->seen_bytes = 0;
    }
    line->response_bytes = 0;
}

void tally_http_line_detach(struct tally_http_line *line)
{
    if (line->peer != NULL) {
        line->peer->line = NULL;
        line->peer = NULL;
    }
}

/* Whether a request is being read that has not been passed to the handler. */
static bool is_arriving(const struct http_peer *peer)
{
    return peer->request != NULL && !peer->request->was_handed;
}

/* Whether the peer has not acknowledged the whole response. */
static bool is_leaving(const struct tally_http_line *line)
{
    const struct http_peer *peer = line->peer;
    int n_unsent = 0;
    return line->response_bytes > 0 &&
           ((peer->request != NULL && peer->request->is_answered) ||
            (ioctl(peer->base.fd, SIOCOUTQ, &n_unsent) == 0 && n_unsent > 0));
}

bool tally_http_line_look(struct tally_http_line *line, struct tally_http_motion *ret_motion)
{
    if (line->peer == NULL) {
        return false;
    }
    struct tally_http_motion motion = {.is_upload = is_arriving(line->peer)};
    if (!motion.is_upload && !is_leaving(line)) {
        return false;
    }
    const struct http_transport transport = http_connections_transport(&line->peer->base);
    if (motion.is_upload) {
        motion.n = line->peer->request->n_body_bytes;
        motion.n_whole = line->peer->request->n_announced;
        motion.quiet_ms = transport.received_ago_ms;
    } else {
        motion.n = transport.acked_bytes - line->sent_bytes;
        motion.n_whole = line->response_bytes;
        motion.quiet_ms = transport.acked_ago_ms;
    }
    const uint64_t seen = transport.received_bytes + transport.acked_bytes;
    motion.has_moved = seen != line->seen_bytes;
    line->seen_bytes = seen;
    *ret_motion = motion;
    return true;
}

void http_line_end(struct http_peer *peer)
{
    if (peer->line != NULL) {
        peer->line->peer = NULL;
    }
}

/* Without a limit, the kernel takes megabytes at once. On a slow link MHD would then see no byte
 * move for longer than its idle timeout, and close the connection. */
static void throttle(struct http_peer *peer)
{
    const int most_bytes = MAX_UNSENT_BYTES;
    if (!peer->is_throttled) {
        peer->is_throttled = true;
        (void)setsockopt(peer->base.fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &most_bytes,
                         sizeof most_bytes);
    }
}

void http_line_begin_response(const struct tally_http_request *request, uint64_t n_bytes)
{
    struct tally_http_line *line = request->peer->line;
    if (n_bytes > MAX_UNSENT_BYTES) {
        throttle(request->peer);
    }
    if (line != NULL && n_bytes >= HTTP_LONG_RESPONSE_BYTES) {
        line->sent_bytes = http_connections_transport(&request->peer->base).acked_bytes;
        line->response_bytes = n_bytes;
    }
}
