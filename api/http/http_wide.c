#include "api/http/http_wide.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
    /* The kernel's default window, and the largest that is requested. */
    KERNEL_WINDOW_BYTES = 64 * 1024,
    MAX_WINDOW_BYTES = 1024 * 1024,
    MAX_WINDOWS_BYTES = 64 * 1024 * 1024, /* of all open connections */
    MAX_WIDE = 256,                       /* with 64 KiB each */
    /* After so many in a row, the large bodies of a wide connection are taken to be over. */
    MANY_SMALL_BODIES = 64,
    PEEKED_BYTES = 2048 /* a header section and more */
};

/* Reads the length in the headers that have arrived. If they arrive in pieces, or the text is part
 * of a body, the guess is wrong and only speed or memory is lost. */
static bool announces_large_body(const struct http_peer *peer)
{
    static const char LENGTH[] = "\r\nContent-Length:";
    char head[PEEKED_BYTES + 1];
    const ssize_t n = recv(peer->base.fd, head, PEEKED_BYTES, MSG_PEEK | MSG_DONTWAIT);
    head[n > 0 ? n : 0] = '\0';
    const char *length = strcasestr(head, LENGTH);
    return length != NULL && strtoull(length + sizeof LENGTH - 1, NULL, 10) > KERNEL_WINDOW_BYTES;
}

struct MHD_Daemon *http_wide_select(struct http_peer *peer)
{
    struct http_peers *peers = peer->peers;
    peer->is_wide = peers->looks_at_first && peers->n_wide < MAX_WIDE && announces_large_body(peer);
    peers->n_wide += peer->is_wide ? 1 : 0;
    return peer->is_wide ? peers->wide_daemon : peers->daemon;
}

void http_wide_expect(struct http_peer *peer, size_t bytes)
{
    /* Doubled, because packets take more room than their bytes. */
    const int room = bytes < MAX_WINDOW_BYTES / 2 ? 2 * (int)bytes : MAX_WINDOW_BYTES;
    const int more = room - peer->window_bytes;
    if (bytes <= KERNEL_WINDOW_BYTES || more <= 0 ||
        (size_t)more > MAX_WINDOWS_BYTES - peer->peers->windows_bytes) {
        return;
    }
    peer->window_bytes = room;
    peer->peers->windows_bytes += (size_t)more;
    /* A low-water mark makes the buffer large enough to reach it and leaves its growth to the
     * kernel, which SO_RCVBUF would end. A failure is harmless. */
    const int none = 1;
    (void)setsockopt(peer->base.fd, SOL_SOCKET, SO_RCVLOWAT, &room, sizeof room);
    (void)setsockopt(peer->base.fd, SOL_SOCKET, SO_RCVLOWAT, &none, sizeof none);
}

bool http_wide_should_move(struct http_peer *peer, size_t bytes)
{
    struct http_peers *peers = peer->peers;
    const bool is_large = bytes > KERNEL_WINDOW_BYTES;
    peer->n_small_bodies = is_large ? 0 : peer->n_small_bodies + 1;
    if (peer->is_wide ? peer->n_small_bodies < MANY_SMALL_BODIES
                      : !is_large || peers->n_wide >= MAX_WIDE) {
        return false;
    }
    peers->looks_at_first = peers->wide_daemon != NULL;
    const bool may_return = peers->listen_fd >= 0 && peers->accept_again_ms == 0 &&
                            http_connections_has_room(&peers->table, &peer->base);
    return peers->wide_daemon != NULL && may_return;
}
