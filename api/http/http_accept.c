#include "api/http/http_accept.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/http/http_handshake.h"
#include "api/http/http_wide.h"
#include "codec/monotonic.h"

enum {
    ACCEPT_AT_ONCE = 64, /* after that many, it is the turn of the open connections */
    ACCEPT_PAUSE_MS = 100,
    KERNEL_UNSENT_BYTES = 64 * 1024,
    KERNEL_PERIODS = 3,
    DISCARDED_BYTES = 1024 * 1024
};

/* Bounds what the kernel keeps for a peer that does not read, and for how long; its defaults are 4
 * MiB and a quarter of an hour. Fast readers lose nothing: bytes in flight are not counted. Our own
 * clock drops such a peer after two periods at most (http_connections.h) and counts it; the
 * kernel's is for what we have closed. A failure is harmless. */
static void bound_kernel(const struct http_peers *peers, int fd)
{
    const unsigned unsent_bytes = KERNEL_UNSENT_BYTES;
    const unsigned timeout_ms = KERNEL_PERIODS * peers->request_timeout_s * 1000U;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent_bytes, sizeof unsent_bytes);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
}

/* Refuses a connection over a limit. It cannot wait anywhere, so the response is sent in one piece.
 */
static void turn_away(struct http_peers *peers, int fd, enum http_admission admission)
{
    const bool is_full = admission == HTTP_FULL;
    const enum tally_http_refusal_reason reason =
        is_full ? TALLY_HTTP_REFUSED_CONNECTIONS : TALLY_HTTP_REFUSED_ADDRESS;
    if (peers->identity == NULL) {
        char detail[64];
        struct tally_buffer out = {.size = 0};
        snprintf(detail, sizeof detail,
                 is_full ? "all %u connections are taken"
                         : "all %u connections of one address are taken",
                 is_full ? peers->table.max : peers->table.max_per_address);
        http_refusal_write(&peers->refuser, reason, MHD_HTTP_SERVICE_UNAVAILABLE, NULL, detail,
                           &out);
        (void)send(fd, out.data, out.size, MSG_DONTWAIT | MSG_NOSIGNAL);
        (void)shutdown(fd, SHUT_WR);
        (void)recv(fd, NULL, DISCARDED_BYTES, MSG_TRUNC | MSG_DONTWAIT);
        tally_buffer_fini(&out);
    } else {
        char id[TALLY_HTTP_REQUEST_ID_CAPACITY];
        http_refusal_report(&peers->refuser, reason, 0, NULL, id);
    }
    close(fd);
}

/* Gives a connection to MHD. */
static void hand_over(struct http_peer *peer, const struct sockaddr *address, socklen_t n_address)
{
    struct http_peers *peers = peer->peers;
    peers->accepting = peer;
    const bool is_taken =
        MHD_add_connection(http_wide_select(peer), peer->base.fd, address, n_address) == MHD_YES;
    if (!is_taken && peers->accepting != NULL) {
        http_peer_free(peer); /* MHD has closed the descriptor */
    }
    peers->accepting = NULL;
    if (is_taken && peers->identity != NULL) {
        http_handshake_begin(peer);
    }
}

static void take_in(struct http_peers *peers, int fd, const struct sockaddr *address,
                    socklen_t n_address)
{
    struct http_peer *peer = calloc(1, sizeof *peer);
    if (peer == NULL) {
        close(fd);
        return;
    }
    peer->base.read_bytes = peers->identity != NULL ? HTTP_READ_UNKNOWN : 0;
    const bool looks_at_first = peers->identity != NULL || peers->looks_at_first;
    const enum http_admission admission =
        http_connections_add(&peers->table, &peer->base, fd, address,
                             looks_at_first ? HTTP_RECEIVING : HTTP_IDLE, peers->now_ms);
    if (admission != HTTP_ADMITTED) {
        free(peer);
        turn_away(peers, fd, admission);
        return;
    }
    if (peers->table.n > peers->most_connections) {
        peers->most_connections = peers->table.n;
    }
    bound_kernel(peers, fd);
    peer->peers = peers;
    if (looks_at_first) {
        http_peer_watch(peer, EPOLLIN | EPOLLRDHUP | EPOLLET);
    } else {
        hand_over(peer, address, n_address);
    }
}

/* Whether there is a letter in the place of a TLS record's type. */
static bool is_plain_http(const struct http_peer *peer)
{
    unsigned char first = 0;
    return recv(peer->base.fd, &first, 1, MSG_PEEK | MSG_DONTWAIT) == 1 && first >= 'A' &&
           first <= 'Z';
}

static void refuse_plain_http(struct http_peer *peer)
{
    struct tally_buffer out = {.size = 0};
    http_refusal_write(&peer->peers->refuser, TALLY_HTTP_REFUSED_MALFORMED, MHD_HTTP_BAD_REQUEST,
                       NULL, "this port speaks HTTPS", &out);
    (void)send(peer->base.fd, out.data, out.size, MSG_DONTWAIT | MSG_NOSIGNAL);
    tally_buffer_fini(&out);
    http_peer_unwatch(peer);
    http_peer_begin_lingering(peer, peer->base.fd);
}

void http_accept_first_bytes(struct http_peer *peer, uint32_t events)
{
    struct sockaddr_storage address;
    socklen_t n_address = sizeof address;
    const bool is_gone = (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    const bool has_tls = peer->peers->identity != NULL;
    if (has_tls && is_plain_http(peer)) {
        refuse_plain_http(peer);
    } else if (has_tls && !http_handshake_can_begin(peer)) {
        if (is_gone) {
            http_peer_close(peer);
        }
    } else if (getpeername(peer->base.fd, (struct sockaddr *)&address, &n_address) != 0) {
        http_peer_close(peer);
    } else {
        http_peer_unwatch(peer);
        if (!has_tls) {
            http_peer_enter(peer, HTTP_RECEIVING); /* from now */
        }
        hand_over(peer, (struct sockaddr *)&address, n_address);
    }
}

void http_accept_all(struct http_peers *peers)
{
    for (int i = 0; i < ACCEPT_AT_ONCE; i++) {
        struct sockaddr_storage address;
        socklen_t n_address = sizeof address;
        int fd = accept4(peers->listen_fd, (struct sockaddr *)&address, &n_address,
                         SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            take_in(peers, fd, (struct sockaddr *)&address, n_address);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            /* The socket would stay readable, and the loop would spin. */
            (void)epoll_ctl(peers->watch_fd, EPOLL_CTL_DEL, peers->listen_fd, NULL);
            peers->accept_again_ms = tally_monotonic_ms() + ACCEPT_PAUSE_MS;
            return;
        } else if (errno != ECONNABORTED && errno != EINTR && errno != EPROTO) {
            return;
        }
    }
}

void http_accept_again(struct http_peers *peers)
{
    if (peers->accept_again_ms != 0 && peers->accept_again_ms <= tally_monotonic_ms() &&
        peers->listen_fd >= 0) {
        peers->accept_again_ms = 0;
        (void)http_peers_watch(peers, peers->listen_fd, peers);
    }
}

enum {
    /* Linux's default limit (net.core.somaxconn): all workers may connect at once. */
    LISTEN_BACKLOG = 4096,
    /* Descriptors left for the store, logs and the server itself. */
    RESERVED_DESCRIPTORS = 64
};

/* Converts "127.0.0.1:8080" or "[::1]:8080" to a list as from getaddrinfo(). */
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

enum tally_status http_listen(const char *address, int *ret_fd, uint16_t *ret_port,
                              struct tally_error *err)
{
    struct addrinfo *parsed = NULL;
    if (!parse_address(address, &parsed)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "listen",
                          "listen \"%s\" is not ADDRESS:PORT, such as 127.0.0.1:8080 or [::1]:8080",
                          address);
    }
    const int on = 1;
    int fd = socket(parsed->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    bool ok = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
              bind(fd, parsed->ai_addr, parsed->ai_addrlen) == 0 && listen(fd, LISTEN_BACKLOG) == 0;
    int reason = errno;
    freeaddrinfo(parsed);
    if (!ok) {
        if (fd >= 0) {
            close(fd);
        }
        return tally_fail(err, TALLY_UNAVAILABLE, "listen", "cannot listen on %s: %s", address,
                          strerror(reason));
    }
    *ret_fd = fd;
    *ret_port = bound_port(fd);
    return TALLY_OK;
}

unsigned http_listen_max_connections(unsigned wanted)
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
