#include "api/http/http_peer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/http/http_accept.h"
#include "api/http/http_handshake.h"
#include "api/http/http_heads.h"

enum {
    LINGER_BLOCK_BYTES = 1024 * 1024,
    /* Bytes of a refused body to discard. A client that reads while it sends stops sooner. */
    MAX_LINGERED_BYTES = 128 * 1024 * 1024
};

struct http_peer *http_peer_of(struct MHD_Connection *connection)
{
    return MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

bool http_peers_watch(const struct http_peers *peers, int fd, void *which)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = which};
    return epoll_ctl(peers->watch_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

void http_peer_watch(struct http_peer *peer, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = peer};
    /* If memory runs out, the clock of the connection still ends it. */
    (void)epoll_ctl(peer->peers->watch_fd, EPOLL_CTL_ADD, peer->base.fd, &event);
}

void http_peer_unwatch(struct http_peer *peer)
{
    (void)epoll_ctl(peer->peers->watch_fd, EPOLL_CTL_DEL, peer->base.fd, NULL);
}

void http_peer_enter(struct http_peer *peer, enum http_phase phase)
{
    if (!peer->is_dropped) {
        http_connections_enter(&peer->peers->table, &peer->base, phase, peer->peers->now_ms);
    }
}

/* ---- Responses that do not go through MHD ---- */

/* NULL with plain HTTP. */
static gnutls_session_t session_of(const struct http_peer *peer)
{
    const union MHD_ConnectionInfo *info =
        peer->peers->identity != NULL
            ? MHD_get_connection_info(peer->mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION)
            : NULL;
    return info != NULL ? info->tls_session : NULL;
}

void http_peer_refuse(struct http_peer *peer, enum tally_http_refusal_reason reason, int status,
                      const char *detail)
{
    struct tally_buffer out = {.size = 0};
    http_refusal_write(&peer->peers->refuser, reason, status, peer->request, detail, &out);
    gnutls_session_t session = session_of(peer);
    if (session != NULL) {
        (void)gnutls_record_send(session, out.data, out.size);
    } else {
        (void)send(peer->base.fd, out.data, out.size, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    peer->lingers = true;
    tally_buffer_fini(&out);
}

void http_peer_end_sending(struct http_peer *peer)
{
    gnutls_session_t session = session_of(peer);
    if (session != NULL) {
        (void)gnutls_bye(session, GNUTLS_SHUT_WR);
    }
    (void)shutdown(peer->base.fd, SHUT_WR);
}

/* ---- Lingering ----
 *
 * MHD closes a socket whose input was not read, and the kernel then sends a reset that may overtake
 * the response. A copy of the descriptor keeps the socket open, and what still arrives is
 * discarded. */

void http_peer_free(struct http_peer *peer)
{
    peer->peers->on_end(peer);
    http_connections_remove(&peer->peers->table, &peer->base);
    peer->peers->windows_bytes -= (size_t)peer->window_bytes;
    peer->peers->n_wide -= peer->is_wide ? 1 : 0;
    tls_identity_release(peer->identity);
    free(peer);
}

void http_peer_close(struct http_peer *peer)
{
    http_peer_unwatch(peer);
    close(peer->base.fd);
    http_peer_free(peer);
}

void http_peer_begin_lingering(struct http_peer *peer, int fd)
{
    (void)shutdown(fd, SHUT_WR);
    peer->base.fd = fd;
    peer->mhd = NULL;
    http_peer_enter(peer, HTTP_LINGERING);
    http_peer_watch(peer, EPOLLIN | EPOLLRDHUP);
}

/* Discards what has arrived; with MSG_TRUNC, not even the kernel copies it. */
static void linger_on(struct http_peer *peer)
{
    ssize_t n = recv(peer->base.fd, NULL, LINGER_BLOCK_BYTES, MSG_TRUNC | MSG_DONTWAIT);
    if (n > 0) {
        peer->n_lingered_bytes += (size_t)n;
    }
    const bool is_over = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    if (is_over || peer->n_lingered_bytes > MAX_LINGERED_BYTES) {
        http_peer_close(peer);
    }
}

/* ---- The end of a connection ---- */

void http_peer_notify(void *context, struct MHD_Connection *connection, void **socket_context,
                      enum MHD_ConnectionNotificationCode code)
{
    struct http_peers *peers = context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        peers->accepting->mhd = connection;
        *socket_context = peers->accepting;
        return;
    }
    struct http_peer *peer = *socket_context;
    http_handshake_forget(peer);
    http_heads_end(peer);
    if (peers->accepting == peer) {
        peers->accepting = NULL;
    }
    int n_unread = 0;
    const bool has_unread = ioctl(peer->base.fd, FIONREAD, &n_unread) == 0 && n_unread > 0;
    const bool lingers = (peer->lingers || has_unread) && !peer->is_dropped && !peers->is_ending;
    const int copy = lingers ? fcntl(peer->base.fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (copy >= 0) {
        http_peer_begin_lingering(peer, copy);
    } else {
        http_peer_free(peer);
    }
}

void http_peer_drop(struct http_peer *peer, enum tally_http_refusal_reason reason)
{
    struct http_peers *peers = peer->peers;
    char id[TALLY_HTTP_REQUEST_ID_CAPACITY];
    if (peer->mhd == NULL) {
        http_refusal_report(&peers->refuser, reason, 0, NULL, id);
        http_peer_close(peer);
        return;
    }
    if (reason == TALLY_HTTP_REFUSED_REQUEST_TIMEOUT && !peer->is_shaking) {
        http_peer_refuse(peer, reason, MHD_HTTP_REQUEST_TIMEOUT,
                         "the request did not arrive in time");
    } else {
        http_refusal_report(&peers->refuser, reason, 0, peer->request, id);
    }
    peer->lingers = false;
    http_connections_hold(&peers->table, &peer->base, 0); /* practically freed */
    http_peer_enter(peer, HTTP_WAITING);
    peer->is_dropped = true;
    (void)shutdown(peer->base.fd, SHUT_RDWR);
    http_handshake_resume(peer);
}

void http_peers_drop_late(struct http_peers *peers)
{
    struct http_connection *late;
    while ((late = http_connections_late(&peers->table, peers->now_ms)) != NULL) {
        struct http_peer *peer = (struct http_peer *)late;
        const bool is_silent = peer->mhd == NULL && peers->identity == NULL;
        if (late->phase == HTTP_LINGERING || is_silent) {
            http_peer_close(peer);
        } else {
            http_peer_drop(peer, late->phase == HTTP_SENDING ? TALLY_HTTP_REFUSED_SLOW_READER
                                                             : TALLY_HTTP_REFUSED_REQUEST_TIMEOUT);
        }
    }
}

bool http_peer_hold(struct http_peer *peer, size_t bytes, bool is_spared)
{
    struct http_connections *table = &peer->peers->table;
    struct http_connection *greedy;
    if (peer->is_dropped) {
        return false;
    }
    http_connections_hold(table, &peer->base, bytes);
    while ((greedy = http_connections_greedy(table, is_spared ? &peer->base : NULL)) != NULL) {
        http_peer_drop((struct http_peer *)greedy, TALLY_HTTP_REFUSED_MEMORY);
    }
    return !peer->is_dropped;
}

void http_peers_end(struct http_peers *peers)
{
    for (int phase = 0; phase < N_HTTP_PHASES; phase++) {
        TALLY_LIST_EACH(node, &peers->table.phases[phase])
        {
            struct http_peer *peer =
                (struct http_peer *)TALLY_LIST_MEMBER(struct http_connection, in_phase, node);
            if (peer->mhd == NULL) {
                http_peer_close(peer);
            } else {
                http_handshake_resume(peer);
            }
        }
    }
}

/* ---- Events ---- */

void http_peer_on_event(struct http_peer *peer, uint32_t events)
{
    if (peer->base.phase == HTTP_LINGERING) {
        linger_on(peer);
    } else if (peer->mhd == NULL) {
        http_accept_first_bytes(peer, events);
    } else if (peer->is_parked) {
        http_handshake_on_bytes(peer);
    } else if (peer->request != NULL) {
        peer->peers->on_hang_up(peer->request);
    }
}
