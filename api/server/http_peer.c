/* Connections, as far as MHD leaves them to us:
 *
 *   accept     here and not in MHD, so that a connection too many is told so instead of being
 *              closed (one address) or kept waiting in the kernel's queue (all)
 *   handshake  MHD 0.9.75 turns its loop without a pause while a TLS handshake waits for the
 *              peer: it does not see that the socket has nothing to read. So a connection is given
 *              to MHD when the peer's first message is complete, and suspended ("parked") while the
 *              rest of the handshake is to come. Few are: MHD looks at all that are suspended
 *              whenever one of them goes on
 *   clocks     http_connections.h says who is late. Dropping is shutdown(): MHD sees a broken
 *              connection, in whatever state it is, and tidies up
 *   first look once there are large bodies, a connection waits here for its first bytes: whether
 *              they announce one decides how much memory MHD gets for it
 *   linger     MHD closes a socket whose input was not read, and the kernel then sends a reset
 *              that may overtake the answer. A copy of the descriptor keeps it open, and what still
 *              comes is thrown away */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "api/server/http_server_internal.h"

enum {
    ACCEPT_AT_ONCE = 64, /* then those who are here already have their turn */
    ACCEPT_PAUSE_MS = 100,
    KERNEL_UNSENT_BYTES = 64 * 1024,
    /* What the kernel offers by itself, and the most that is asked for. */
    KERNEL_WINDOW_BYTES = 64 * 1024,
    MAX_WINDOW_BYTES = 1024 * 1024,
    MAX_WINDOWS_BYTES = 64 * 1024 * 1024, /* of all connections that are open */
    MAX_WIDE = 256,                       /* with 64 KiB each */
    /* In a row, on a wide connection: its large job is over. */
    MANY_SMALL_BODIES = 64,
    PEEKED_BYTES = 2048, /* a header section and more */
    LINGER_BLOCK_BYTES = 1024 * 1024,
    /* Of a body that was refused; a client that reads while it sends has stopped long before. */
    MAX_LINGERED_BYTES = 128 * 1024 * 1024,
    /* What an honest handshake arrives in is two or three pieces, a certificate chain included. */
    MAX_HANDSHAKE_WAKES = 32,
    TLS_RECORD_HEADER_BYTES = 5,
    TLS_HANDSHAKE_RECORD = 22,
    MAX_TLS_RECORD_BYTES = 18 * 1024 /* a little more than any is */
};

int64_t http_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void watch(struct http_peer *peer, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = peer};
    /* Should this fail for want of memory, the peer's clock ends it. */
    (void)epoll_ctl(peer->server->watch_fd, EPOLL_CTL_ADD, peer->base.fd, &event);
}

static void unwatch(struct http_peer *peer)
{
    (void)epoll_ctl(peer->server->watch_fd, EPOLL_CTL_DEL, peer->base.fd, NULL);
}

void http_peer_enter(struct http_peer *peer, enum http_phase phase)
{
    if (!peer->is_dropped) {
        http_connections_enter(&peer->server->connections, &peer->base, phase,
                               peer->server->now_ms);
    }
}

/* ---- Answers that go past MHD ---- */

static void send_bytes(struct http_peer *peer, const void *bytes, size_t n)
{
    const union MHD_ConnectionInfo *info =
        peer->server->identity != NULL
            ? MHD_get_connection_info(peer->mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION)
            : NULL;
    if (info != NULL) {
        (void)gnutls_record_send((gnutls_session_t)info->tls_session, bytes, n);
    } else {
        (void)send(peer->base.fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
}

/* A whole HTTP message that ends the connection. */
static void format_answer(struct tally_buffer *out, const char *date, int status, const char *title,
                          const char *code, const char *detail, const char *request_id)
{
    struct tally_buffer body = {.size = 0};
    http_problem(&body, status, title, code, detail);
    (void)tally_buffer_printf(
        out,
        "HTTP/1.1 %d %s\r\nDate: %s\r\nConnection: close\r\n"
        "Content-Type: application/problem+json\r\nX-Content-Type-Options: nosniff\r\n"
        "Cache-Control: no-store\r\n%s%s%s%sContent-Length: %zu\r\n\r\n",
        status, MHD_get_reason_phrase_for((unsigned)status), date,
        status == MHD_HTTP_SERVICE_UNAVAILABLE ? "Retry-After: 1\r\n" : "",
        request_id[0] != '\0' ? "X-Request-Id: " : "", request_id,
        request_id[0] != '\0' ? "\r\n" : "", body.size);
    (void)tally_buffer_append(out, body.data, body.size);
    tally_buffer_fini(&body);
}

void http_peer_answer(struct http_peer *peer, enum tally_http_refusal_reason reason, int status,
                      const char *title, const char *code, const char *detail)
{
    char id[TALLY_HTTP_REQUEST_ID_CAPACITY];
    struct tally_buffer out = {.size = 0};
    http_refused(peer->server, reason, status, peer->request, id);
    format_answer(&out, http_date(peer->server), status, title, code, detail, id);
    send_bytes(peer, out.data, out.size);
    peer->lingers = true;
    tally_buffer_fini(&out);
}

void http_peer_end_sending(struct http_peer *peer)
{
    const union MHD_ConnectionInfo *info =
        peer->server->identity != NULL
            ? MHD_get_connection_info(peer->mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION)
            : NULL;
    if (info != NULL) {
        (void)gnutls_bye((gnutls_session_t)info->tls_session, GNUTLS_SHUT_WR);
    }
    (void)shutdown(peer->base.fd, SHUT_WR);
}

/* ---- TLS handshakes ---- */

static void park(struct http_peer *peer)
{
    MHD_suspend_connection(peer->mhd);
    peer->is_parked = true;
    watch(peer, EPOLLIN | EPOLLRDHUP | EPOLLET);
}

static void add_awake(struct http_peer *peer)
{
    struct tally_http_server *server = peer->server;
    peer->previous_awake = NULL;
    peer->next_awake = server->awake;
    if (server->awake != NULL) {
        server->awake->previous_awake = peer;
    }
    server->awake = peer;
}

static void unpark(struct http_peer *peer)
{
    struct tally_http_server *server = peer->server;
    if (!peer->is_parked) {
        return;
    }
    unwatch(peer);
    peer->is_parked = false;
    peer->n_wakes++;
    add_awake(peer);
    server->has_resumed = true;
    MHD_resume_connection(peer->mhd);
}

static void forget_awake(struct http_peer *peer)
{
    struct tally_http_server *server = peer->server;
    if (peer->previous_awake != NULL) {
        peer->previous_awake->next_awake = peer->next_awake;
    } else if (server->awake == peer) {
        server->awake = peer->next_awake;
    }
    if (peer->next_awake != NULL) {
        peer->next_awake->previous_awake = peer->previous_awake;
    }
    peer->previous_awake = peer->next_awake = NULL;
}

/* GnuTLS has sent or understood a Finished message: with one each way the handshake is over. */
static int on_finished(gnutls_session_t session, unsigned type, unsigned when, unsigned incoming,
                       const gnutls_datum_t *message)
{
    (void)type;
    (void)when;
    (void)message;
    struct MHD_Connection *connection = gnutls_session_get_ptr(session);
    struct http_peer *peer =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    *(incoming != 0 ? &peer->finished_in : &peer->finished_out) = true;
    if (peer->is_shaking && peer->finished_in && peer->finished_out) {
        peer->is_shaking = false;
        http_peer_enter(peer, HTTP_IDLE);
    }
    return 0;
}

/* MHD has the connection, and its socket has the peer's first message. */
static void begin_handshake(struct http_peer *peer)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(peer->mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    gnutls_handshake_set_hook_function((gnutls_session_t)info->tls_session,
                                       GNUTLS_HANDSHAKE_FINISHED, GNUTLS_HOOK_POST, on_finished);
    peer->is_shaking = true;
    add_awake(peer);
}

int http_peer_retrieve_identity(gnutls_session_t session, const struct gnutls_cert_retr_st *info,
                                gnutls_pcert_st **ret_certs, unsigned *ret_n_certs,
                                gnutls_ocsp_data_st **ret_ocsp, unsigned *ret_n_ocsp,
                                gnutls_privkey_t *ret_key, unsigned *ret_flags)
{
    (void)info;
    struct MHD_Connection *connection = gnutls_session_get_ptr(session);
    struct http_peer *peer =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    struct tls_identity *identity = peer->server->identity;
    identity->n_users++;
    tls_identity_release(peer->identity);
    peer->identity = identity;
    *ret_certs = identity->certs;
    *ret_n_certs = identity->n_certs;
    *ret_ocsp = NULL;
    *ret_n_ocsp = 0;
    *ret_key = identity->key;
    *ret_flags = 0; /* they stay ours */
    return 0;
}

void http_peer_park_awake(struct tally_http_server *server)
{
    while (server->awake != NULL) {
        struct http_peer *peer = server->awake;
        forget_awake(peer);
        if (peer->is_shaking && !peer->is_dropped) {
            park(peer);
        }
    }
}

/* The first TLS record, a whole one; or what can only be refused. */
static bool has_first_message(const struct http_peer *peer)
{
    unsigned char head[TLS_RECORD_HEADER_BYTES];
    int n = 0;
    if (recv(peer->base.fd, head, sizeof head, MSG_PEEK | MSG_DONTWAIT) < (ssize_t)sizeof head) {
        return false;
    }
    const int n_record = head[3] << 8 | head[4];
    return head[0] != TLS_HANDSHAKE_RECORD || n_record > MAX_TLS_RECORD_BYTES ||
           (ioctl(peer->base.fd, FIONREAD, &n) == 0 && n >= n_record + (int)sizeof head);
}

/* Somebody speaks plain HTTP to us: a letter where a TLS record has its type. */
static bool is_plain_http(const struct http_peer *peer)
{
    unsigned char first = 0;
    return recv(peer->base.fd, &first, 1, MSG_PEEK | MSG_DONTWAIT) == 1 && first >= 'A' &&
           first <= 'Z';
}

static void refuse_plain_http(const struct http_peer *peer)
{
    char id[TALLY_HTTP_REQUEST_ID_CAPACITY];
    struct tally_buffer out = {.size = 0};
    http_refused(peer->server, TALLY_HTTP_REFUSED_MALFORMED, MHD_HTTP_BAD_REQUEST, NULL, id);
    format_answer(&out, http_date(peer->server), MHD_HTTP_BAD_REQUEST, "malformed input",
                  "malformed", "this port speaks HTTPS", id);
    (void)send(peer->base.fd, out.data, out.size, MSG_DONTWAIT | MSG_NOSIGNAL);
    tally_buffer_fini(&out);
}

/* ---- Lingering ---- */

static void peer_free(struct http_peer *peer)
{
    http_connections_remove(&peer->server->connections, &peer->base);
    peer->server->windows_bytes -= (size_t)peer->window_bytes;
    peer->server->n_wide -= peer->is_wide ? 1 : 0;
    tls_identity_release(peer->identity);
    free(peer);
}

/* Of one that MHD does not have. */
static void close_own(struct http_peer *peer)
{
    unwatch(peer);
    close(peer->base.fd);
    peer_free(peer);
}

static void begin_lingering(struct http_peer *peer, int fd)
{
    (void)shutdown(fd, SHUT_WR);
    peer->base.fd = fd;
    peer->mhd = NULL;
    http_peer_enter(peer, HTTP_LINGERING);
    watch(peer, EPOLLIN | EPOLLRDHUP);
}

/* Throws away what has come; the kernel does not even copy it. */
static void linger_on(struct http_peer *peer)
{
    ssize_t n = recv(peer->base.fd, NULL, LINGER_BLOCK_BYTES, MSG_TRUNC | MSG_DONTWAIT);
    if (n > 0) {
        peer->n_lingered_bytes += (size_t)n;
    }
    const bool is_over = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    if (is_over || peer->n_lingered_bytes > MAX_LINGERED_BYTES) {
        close_own(peer);
    }
}

void http_peer_give_up(struct tally_http_server *server)
{
    for (int phase = 0; phase < N_HTTP_PHASES; phase++) {
        struct http_connection *at = server->connections.phases[phase].first;
        while (at != NULL) {
            struct http_connection *next = at->in_phase.next;
            struct http_peer *peer = (struct http_peer *)at;
            if (peer->mhd == NULL) {
                close_own(peer);
            } else {
                unpark(peer);
            }
            at = next;
        }
    }
}

/* ---- Dropping ---- */

static void drop(struct http_peer *peer, enum tally_http_refusal_reason reason)
{
    struct tally_http_server *server = peer->server;
    char id[TALLY_HTTP_REQUEST_ID_CAPACITY];
    if (peer->mhd == NULL) {
        http_refused(server, reason, 0, NULL, id);
        close_own(peer);
        return;
    }
    if (reason == TALLY_HTTP_REFUSED_REQUEST_TIMEOUT && !peer->is_shaking) {
        http_peer_answer(peer, reason, MHD_HTTP_REQUEST_TIMEOUT, "deadline exceeded", "deadline",
                         "the request did not come in time");
    } else {
        http_refused(server, reason, 0, peer->request, id);
    }
    peer->lingers = false;
    http_connections_hold(&server->connections, &peer->base, 0); /* as good as freed */
    http_peer_enter(peer, HTTP_WAITING);
    peer->is_dropped = true;
    (void)shutdown(peer->base.fd, SHUT_RDWR);
    unpark(peer);
}

void http_peer_drop_late(struct tally_http_server *server)
{
    const int64_t now_ms = server->now_ms;
    struct http_connection *late;
    while ((late = http_connections_late(&server->connections, now_ms)) != NULL) {
        struct http_peer *peer = (struct http_peer *)late;
        const bool is_silent = peer->mhd == NULL && server->identity == NULL;
        if (late->phase == HTTP_LINGERING || is_silent) {
            close_own(peer);
        } else {
            drop(peer, late->phase == HTTP_SENDING ? TALLY_HTTP_REFUSED_SLOW_READER
                                                   : TALLY_HTTP_REFUSED_REQUEST_TIMEOUT);
        }
    }
}

bool http_peer_hold(struct http_peer *peer, size_t bytes, bool is_spared)
{
    struct http_connections *connections = &peer->server->connections;
    struct http_connection *greedy;
    if (peer->is_dropped) {
        return false;
    }
    http_connections_hold(connections, &peer->base, bytes);
    while ((greedy = http_connections_greedy(connections, is_spared ? &peer->base : NULL)) !=
           NULL) {
        drop((struct http_peer *)greedy, TALLY_HTTP_REFUSED_MEMORY);
    }
    return !peer->is_dropped;
}

/* ---- Begin and end ---- */

void http_peer_notify(void *context, struct MHD_Connection *connection, void **socket_context,
                      enum MHD_ConnectionNotificationCode code)
{
    struct tally_http_server *server = context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        server->accepting->mhd = connection;
        *socket_context = server->accepting;
        return;
    }
    struct http_peer *peer = *socket_context;
    forget_awake(peer);
    http_heads_end(peer);
    if (server->accepting == peer) {
        server->accepting = NULL;
    }
    int n_unread = 0;
    const bool has_unread = ioctl(peer->base.fd, FIONREAD, &n_unread) == 0 && n_unread > 0;
    const bool lingers = (peer->lingers || has_unread) && !peer->is_dropped && !server->is_ending;
    const int copy = lingers ? fcntl(peer->base.fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (copy >= 0) {
        begin_lingering(peer, copy);
    } else {
        peer_free(peer);
    }
}

/* What the kernel may keep for a reader that stays away, and for how long; by itself it would be
 * 4 MiB and a quarter of an hour. Fast readers lose nothing: what is on its way is not counted.
 * Refusals do no harm. */
static void bound_kernel(const struct tally_http_server *server, int fd)
{
    const unsigned unsent_bytes = KERNEL_UNSENT_BYTES;
    const unsigned timeout_ms = server->config.request_timeout_s * 1000U;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent_bytes, sizeof unsent_bytes);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
}

void http_peer_expect(struct http_peer *peer, size_t bytes)
{
    /* Twice, since packets take more room than their bytes. */
    const int room = bytes < MAX_WINDOW_BYTES / 2 ? 2 * (int)bytes : MAX_WINDOW_BYTES;
    const int more = room - peer->window_bytes;
    if (bytes <= KERNEL_WINDOW_BYTES || more <= 0 ||
        (size_t)more > MAX_WINDOWS_BYTES - peer->server->windows_bytes) {
        return;
    }
    peer->window_bytes = room;
    peer->server->windows_bytes += (size_t)more;
    /* A low-water mark makes the buffer large enough to reach it and leaves its growth to the
     * kernel, which SO_RCVBUF would end. Refusals do no harm. */
    const int none = 1;
    (void)setsockopt(peer->base.fd, SOL_SOCKET, SO_RCVLOWAT, &room, sizeof room);
    (void)setsockopt(peer->base.fd, SOL_SOCKET, SO_RCVLOWAT, &none, sizeof none);
}

bool http_peer_should_move(struct http_peer *peer, size_t bytes)
{
    struct tally_http_server *server = peer->server;
    const bool is_large = bytes > KERNEL_WINDOW_BYTES;
    peer->n_small_bodies = is_large ? 0 : peer->n_small_bodies + 1;
    if (peer->is_wide ? peer->n_small_bodies < MANY_SMALL_BODIES
                      : !is_large || server->n_wide >= MAX_WIDE) {
        return false;
    }
    server->looks_at_first = server->wide_daemon != NULL;
    const bool may_return = server->listen_fd >= 0 && server->accept_again_ms == 0 &&
                            http_connections_has_room(&server->connections, &peer->base);
    return server->wide_daemon != NULL && may_return;
}

/* By the length in the headers that are here. Should they come in pieces, or the text stand in a
 * body, nothing but speed or memory is lost. */
static bool announces_large_body(const struct http_peer *peer)
{
    static const char LENGTH[] = "\r\nContent-Length:";
    char head[PEEKED_BYTES + 1];
    const ssize_t n = recv(peer->base.fd, head, PEEKED_BYTES, MSG_PEEK | MSG_DONTWAIT);
    head[n > 0 ? n : 0] = '\0';
    const char *length = strcasestr(head, LENGTH);
    return length != NULL && strtoull(length + sizeof LENGTH - 1, NULL, 10) > KERNEL_WINDOW_BYTES;
}

/* One connection too many: said in one piece, as there is no place where it could wait. */
static void turn_away(struct tally_http_server *server, int fd, enum http_admission admission)
{
    char id[TALLY_HTTP_REQUEST_ID_CAPACITY];
    char detail[64];
    const bool is_full = admission == HTTP_FULL;
    http_refused(server, is_full ? TALLY_HTTP_REFUSED_CONNECTIONS : TALLY_HTTP_REFUSED_ADDRESS,
                 server->identity == NULL ? MHD_HTTP_SERVICE_UNAVAILABLE : 0, NULL, id);
    if (server->identity == NULL) {
        struct tally_buffer out = {.size = 0};
        snprintf(detail, sizeof detail,
                 is_full ? "all %u connections are taken"
                         : "all %u connections of one address are taken",
                 is_full ? server->connections.max : server->connections.max_per_address);
        format_answer(&out, http_date(server), MHD_HTTP_SERVICE_UNAVAILABLE, "unavailable",
                      "unavailable", detail, id);
        (void)send(fd, out.data, out.size, MSG_DONTWAIT | MSG_NOSIGNAL);
        (void)shutdown(fd, SHUT_WR);
        (void)recv(fd, NULL, LINGER_BLOCK_BYTES, MSG_TRUNC | MSG_DONTWAIT);
        tally_buffer_fini(&out);
    }
    close(fd);
}

/* Gives a connection to MHD. */
static void hand_over(struct http_peer *peer, const struct sockaddr *address, socklen_t n_address)
{
    struct tally_http_server *server = peer->server;
    server->accepting = peer;
    peer->is_wide =
        server->looks_at_first && server->n_wide < MAX_WIDE && announces_large_body(peer);
    server->n_wide += peer->is_wide ? 1 : 0;
    const bool is_taken = MHD_add_connection(peer->is_wide ? server->wide_daemon : server->daemon,
                                             peer->base.fd, address, n_address) == MHD_YES;
    if (!is_taken && server->accepting != NULL) {
        peer_free(peer); /* MHD has closed the descriptor */
    }
    server->accepting = NULL;
    if (is_taken && server->identity != NULL) {
        begin_handshake(peer);
    }
}

static void take_in(struct tally_http_server *server, int fd, const struct sockaddr *address,
                    socklen_t n_address)
{
    struct http_peer *peer = calloc(1, sizeof *peer);
    if (peer == NULL) {
        close(fd);
        return;
    }
    peer->base.read_bytes = server->identity != NULL ? HTTP_READ_UNKNOWN : 0;
    const bool looks_at_first = server->identity != NULL || server->looks_at_first;
    const enum http_admission admission =
        http_connections_add(&server->connections, &peer->base, fd, address,
                             looks_at_first ? HTTP_RECEIVING : HTTP_IDLE, server->now_ms);
    if (admission != HTTP_ADMITTED) {
        free(peer);
        turn_away(server, fd, admission);
        return;
    }
    if (server->connections.n > server->most_connections) {
        server->most_connections = server->connections.n;
    }
    bound_kernel(server, fd);
    peer->server = server;
    if (looks_at_first) {
        watch(peer, EPOLLIN | EPOLLRDHUP | EPOLLET);
    } else {
        hand_over(peer, address, n_address);
    }
}

/* The peer says something for the first time, or leaves. */
static void take_first_bytes(struct http_peer *peer, uint32_t events)
{
    struct sockaddr_storage address;
    socklen_t n_address = sizeof address;
    const bool is_gone = (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    const bool has_tls = peer->server->identity != NULL;
    if (has_tls && is_plain_http(peer)) {
        refuse_plain_http(peer);
        unwatch(peer);
        begin_lingering(peer, peer->base.fd);
    } else if (has_tls && !has_first_message(peer)) {
        if (is_gone) {
            close_own(peer);
        }
    } else if (getpeername(peer->base.fd, (struct sockaddr *)&address, &n_address) != 0) {
        close_own(peer);
    } else {
        unwatch(peer);
        if (!has_tls) {
            http_peer_enter(peer, HTTP_RECEIVING); /* from now */
        }
        hand_over(peer, (struct sockaddr *)&address, n_address);
    }
}

void http_peer_accept_all(struct tally_http_server *server)
{
    for (int i = 0; i < ACCEPT_AT_ONCE; i++) {
        struct sockaddr_storage address;
        socklen_t n_address = sizeof address;
        int fd = accept4(server->listen_fd, (struct sockaddr *)&address, &n_address,
                         SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            take_in(server, fd, (struct sockaddr *)&address, n_address);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            /* It would stay readable, and the loop would turn for nothing. */
            (void)epoll_ctl(server->watch_fd, EPOLL_CTL_DEL, server->listen_fd, NULL);
            server->accept_again_ms = http_now_ms() + ACCEPT_PAUSE_MS;
            return;
        } else if (errno != ECONNABORTED && errno != EINTR && errno != EPROTO) {
            return;
        }
    }
}

/* ---- Events ---- */

void http_peer_on_event(struct http_peer *peer, uint32_t events)
{
    if (peer->base.phase == HTTP_LINGERING) {
        linger_on(peer);
    } else if (peer->mhd == NULL) {
        take_first_bytes(peer, events);
    } else if (peer->is_parked) {
        if (peer->n_wakes >= MAX_HANDSHAKE_WAKES) {
            drop(peer, TALLY_HTTP_REFUSED_REQUEST_TIMEOUT);
        } else {
            unpark(peer);
        }
    } else if (peer->request != NULL) {
        http_request_hang_up(peer->request);
    }
}
