/* The start, the loop and the end of a server. http_reading.h shows how a request runs through the
 * room. */
#include "api/http/http_server.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "api/http/http_accept.h"
#include "api/http/http_handshake.h"
#include "api/http/http_reading.h"
#include "api/http/http_wait.h"
#include "codec/monotonic.h"

enum {
    DEFAULT_MAX_CONNECTIONS = 20000,
    DEFAULT_IDLE_TIMEOUT_S = 60,
    DEFAULT_REQUEST_TIMEOUT_S = 60,
    DEFAULT_MAX_HEADER_BYTES = 8 * 1024,
    /* Memory of a connection, besides that for the header section of a request: for the headers of
     * the response, and for a section that is a little too long, so that it is refused here and not
     * by MHD. Only the used part costs memory. */
    CONNECTION_MEMORY_BYTES = 4 * 1024,
    /* The same for large bodies (http_wide.h). Twice as much gains nothing. */
    WIDE_MEMORY_BYTES = 64 * 1024,
    LINGER_MS = 10 * 1000,
    /* While requests wait, MHD always reports that it has work. If nothing happened in its last
     * turn, it may sleep this long. At worst, a header section that arrives in pieces is read
     * later. */
    UNSURE_MS = 1,
    EVENTS_AT_ONCE = 256,
    /* Once there were this many connections, memory returns to the system when three in four are
     * gone. */
    MANY_CONNECTIONS = 256
};

static const size_t DEFAULT_MAX_HELD_BYTES = (size_t)512 << 20;

/* ---- Start and end ---- */

/* Sets the limits that the configuration leaves open. */
static void fill_in(struct tally_http_server_config *config)
{
    config->max_connections = http_listen_max_connections(
        config->max_connections != 0 ? config->max_connections : (unsigned)DEFAULT_MAX_CONNECTIONS);
    if (config->max_connections_per_address == 0) {
        config->max_connections_per_address = config->max_connections;
    }
    if (config->idle_timeout_s == 0) {
        config->idle_timeout_s = DEFAULT_IDLE_TIMEOUT_S;
    }
    if (config->request_timeout_s == 0) {
        config->request_timeout_s = DEFAULT_REQUEST_TIMEOUT_S;
    }
    if (config->max_header_bytes == 0) {
        config->max_header_bytes = DEFAULT_MAX_HEADER_BYTES;
    }
    if (config->max_held_bytes == 0) {
        config->max_held_bytes = DEFAULT_MAX_HELD_BYTES;
    }
}

/* A daemon with memory_bytes per connection; NULL when it does not start. */
static struct MHD_Daemon *start_daemon(struct tally_http_server *server, size_t memory_bytes)
{
    const struct tally_http_server_config *config = &server->config;
    const bool has_tls = server->peers.identity != NULL;
    struct MHD_Daemon *daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ERROR_LOG |
            MHD_USE_SUPPRESS_DATE_NO_CLOCK | (has_tls ? (unsigned)MHD_USE_TLS : 0U),
        0, NULL, NULL, http_reading_on_data, server, MHD_OPTION_EXTERNAL_LOGGER, http_heads_on_log,
        &server->peers, MHD_OPTION_NOTIFY_COMPLETED, http_reading_on_completed, server,
        MHD_OPTION_NOTIFY_CONNECTION, http_peer_notify, &server->peers,
        MHD_OPTION_UNESCAPE_CALLBACK, http_heads_unescape, &server->peers,
        MHD_OPTION_URI_LOG_CALLBACK, http_heads_begin, &server->peers,
        /* Never reached: http_accept.c counts, and includes connections that MHD has closed. */
        MHD_OPTION_CONNECTION_LIMIT, config->max_connections + 1, MHD_OPTION_CONNECTION_TIMEOUT,
        config->idle_timeout_s, MHD_OPTION_CONNECTION_MEMORY_LIMIT, memory_bytes,
        has_tls ? MHD_OPTION_HTTPS_PRIORITIES : MHD_OPTION_END /* of the list */,
        HTTP_TLS_PRIORITIES, MHD_OPTION_HTTPS_CERT_CALLBACK2, http_handshake_retrieve,
        MHD_OPTION_END);
    if (daemon != NULL) {
        const union MHD_DaemonInfo *info = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_EPOLL_FD);
        if (!http_peers_watch(&server->peers, info->epoll_fd, NULL)) {
            MHD_stop_daemon(daemon);
            daemon = NULL;
        }
    }
    return daemon;
}

static enum tally_status start_daemons(struct tally_http_server *server, struct tally_error *err)
{
    struct http_peers *peers = &server->peers;
    peers->memory_bytes = server->config.max_header_bytes + (size_t)CONNECTION_MEMORY_BYTES;
    peers->watch_fd = epoll_create1(EPOLL_CLOEXEC);
    if (peers->watch_fd < 0 || !http_peers_watch(peers, peers->listen_fd, peers)) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "epoll: %s", strerror(errno));
    }
    peers->daemon = start_daemon(server, peers->memory_bytes);
    /* A TLS record is 16 KiB at most, and decryption costs more than large buffers would save. */
    if (peers->identity == NULL && peers->memory_bytes < WIDE_MEMORY_BYTES) {
        peers->wide_daemon = start_daemon(server, WIDE_MEMORY_BYTES);
    }
    return peers->daemon != NULL
               ? TALLY_OK
               : tally_fail(err, TALLY_NO_MEMORY, NULL, "libmicrohttpd does not start");
}

/* Fills in the part of server->peers that does not need the network. */
static bool init_peers(struct tally_http_server *server)
{
    const struct tally_http_server_config *config = &server->config;
    struct http_peers *peers = &server->peers;
    const int64_t timeout_ms = (int64_t)config->request_timeout_s * 1000;
    tally_list_init(&peers->awake);
    tally_list_init(&peers->heads);
    peers->now_ms = tally_monotonic_ms();
    peers->request_timeout_s = config->request_timeout_s;
    peers->max_body_bytes = config->max_body_bytes;
    peers->refuser.on_refused = config->on_refused;
    peers->refuser.context = config->context;
    peers->on_hang_up = http_wait_hang_up;
    peers->on_end = http_line_end;
    return http_connections_init(
        &peers->table, config->max_connections, config->max_connections_per_address, timeout_ms,
        timeout_ms < LINGER_MS ? timeout_ms : LINGER_MS, config->max_held_bytes);
}

enum tally_status tally_http_server_new(const struct tally_http_server_config *config,
                                        struct tally_http_server **ret_server,
                                        struct tally_error *err)
{
    assert(config->on_request != NULL && config->on_abandoned != NULL);
    struct tally_http_server *server = calloc(1, sizeof *server);
    if (server == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the HTTP server");
    }
    struct http_peers *peers = &server->peers;
    server->config = *config;
    peers->listen_fd = -1;
    peers->watch_fd = -1;
    tally_list_init(&server->waiting);
    tally_list_init(&server->suspended);
    tally_list_init(&server->free_requests);
    http_uploads_init(&server->uploads);
    server->pool.content_type = "application/proto";
    fill_in(&server->config);
    enum tally_status status = init_peers(server) ? TALLY_OK
                                                  : tally_fail(err, TALLY_NO_MEMORY, NULL,
                                                               "no memory for the HTTP server");
    if (status == TALLY_OK && config->tls_cert != NULL) {
        status = http_handshake_load(peers, config->tls_cert, config->tls_key, false, err);
    }
    if (status == TALLY_OK) {
        status = http_listen(config->listen, &peers->listen_fd, &server->port, err);
    }
    if (status == TALLY_OK) {
        status = start_daemons(server, err);
    }
    if (status != TALLY_OK) {
        tally_http_server_free(server);
        return status;
    }
    *ret_server = server;
    return TALLY_OK;
}

void tally_http_server_free(struct tally_http_server *server)
{
    if (server == NULL) {
        return;
    }
    struct http_peers *peers = &server->peers;
    peers->is_ending = true;
    http_wait_resume_all(server);
    http_peers_end(peers);
    /* http_reading_on_completed() reports the requests without a response. */
    if (peers->daemon != NULL) {
        MHD_stop_daemon(peers->daemon);
    }
    if (peers->wide_daemon != NULL) {
        MHD_stop_daemon(peers->wide_daemon);
    }
    http_requests_clear(server);
    http_response_pool_clear(&server->pool);
    http_connections_fini(&peers->table);
    tls_identity_release(peers->identity);
    if (peers->watch_fd >= 0) {
        close(peers->watch_fd);
    }
    if (peers->listen_fd >= 0) {
        close(peers->listen_fd);
    }
    free(server);
}

/* ---- The loop ---- */

/* New connections, and sockets that MHD does not watch. */
static void serve_events(struct http_peers *peers)
{
    struct epoll_event events[EVENTS_AT_ONCE];
    bool has_new = false;
    int n = epoll_wait(peers->watch_fd, events, EVENTS_AT_ONCE, 0);
    for (int i = 0; i < n; i++) {
        void *which = events[i].data.ptr;
        if (which == peers) {
            has_new = true;
        } else if (which != NULL) { /* otherwise it is one of MHD's sets */
            http_peer_on_event(which, events[i].events);
        }
    }
    if (has_new && peers->listen_fd >= 0) {
        http_accept_all(peers);
    }
    http_accept_again(peers);
}

/* Returns memory to the system after a flood of connections: the C library would keep it. */
static void give_memory_back(struct http_peers *peers)
{
    if (peers->most_connections >= MANY_CONNECTIONS &&
        peers->table.n < peers->most_connections / 4) {
        peers->most_connections = peers->table.n;
        tally_http_trim();
    }
}

static int sooner(int timeout_ms, int64_t wanted_ms)
{
    bool is_sooner = timeout_ms < 0 || wanted_ms < timeout_ms;
    return is_sooner ? (int)(wanted_ms < INT_MAX ? wanted_ms : INT_MAX) : timeout_ms;
}

/* Whether MHD, after its turn, may have more to read or to send. */
static bool may_have_more(const struct tally_http_server *server)
{
    const unsigned n_at_rest = server->n_waiting + server->n_suspended;
    return server->n_waiting == 0 || server->has_completed ||
           (server->has_moved && server->n_requests > n_at_rest);
}

static int daemon_timeout(const struct tally_http_server *server, struct MHD_Daemon *daemon,
                          int timeout_ms)
{
    MHD_UNSIGNED_LONG_LONG wanted_ms;
    if (MHD_get_timeout(daemon, &wanted_ms) == MHD_NO) {
        return timeout_ms;
    }
    const int64_t least_ms = may_have_more(server) ? 0 : UNSURE_MS;
    const int64_t most_ms = wanted_ms < INT_MAX ? (int64_t)wanted_ms : INT_MAX;
    return sooner(timeout_ms, most_ms < least_ms ? least_ms : most_ms);
}

static int shorter_timeout(const struct tally_http_server *server, int timeout_ms)
{
    const struct http_peers *peers = &server->peers;
    if (peers->has_resumed) {
        return 0;
    }
    timeout_ms = daemon_timeout(server, peers->daemon, timeout_ms);
    if (peers->n_wide > 0) {
        timeout_ms = daemon_timeout(server, peers->wide_daemon, timeout_ms);
    }
    const int64_t now_ms = tally_monotonic_ms();
    const int64_t upload_ms = http_uploads_wait_ms(&server->uploads, now_ms);
    if (upload_ms >= 0) {
        timeout_ms = sooner(timeout_ms, upload_ms);
    }
    const int64_t clock_ms = http_connections_wait_ms(&peers->table, now_ms);
    if (clock_ms >= 0) {
        timeout_ms = sooner(timeout_ms, clock_ms);
    }
    if (peers->accept_again_ms != 0) {
        const int64_t pause_ms = peers->accept_again_ms - now_ms;
        timeout_ms = sooner(timeout_ms, pause_ms > 0 ? pause_ms : 0);
    }
    return timeout_ms;
}

enum tally_status tally_http_server_step(struct tally_http_server *server, int timeout_ms,
                                         int wake_fd, struct tally_error *err)
{
    struct http_peers *peers = &server->peers;
    struct pollfd fds[] = {{.fd = peers->watch_fd, .events = POLLIN},
                           {.fd = wake_fd, .events = POLLIN}}; /* poll() ignores -1 */
    http_reading_resume(server, tally_monotonic_ms());
    const int wait_ms = shorter_timeout(server, timeout_ms);
    const int ready = wait_ms != 0 ? poll(fds, 2, wait_ms) : 1;
    if (ready < 0 && errno != EINTR) {
        return tally_fail(err, TALLY_INTERNAL, NULL, "poll: %s", strerror(errno));
    }
    peers->now_ms = tally_monotonic_ms();
    if (ready > 0 || peers->accept_again_ms != 0) {
        serve_events(peers);
    }
    http_peers_drop_late(peers);
    peers->has_resumed = false;
    server->has_moved = false;
    server->has_completed = false;
    if (MHD_run(peers->daemon) == MHD_NO ||
        (peers->n_wide > 0 && MHD_run(peers->wide_daemon) == MHD_NO)) {
        return tally_fail(err, TALLY_INTERNAL, NULL, "libmicrohttpd does not run");
    }
    http_handshake_park_awake(peers);
    http_wait_suspend_old(server);
    http_connections_mark(&peers->table);
    give_memory_back(peers);
    return TALLY_OK;
}

/* ---- What the owner asks ---- */

unsigned tally_http_server_n_requests(const struct tally_http_server *server)
{
    return server->n_requests;
}

void tally_http_server_quiesce(struct tally_http_server *server)
{
    if (server->peers.listen_fd >= 0) {
        close(server->peers.listen_fd); /* this also removes it from the epoll set */
        server->peers.listen_fd = -1;
    }
}

enum tally_status tally_http_server_reload_tls(struct tally_http_server *server, const char *cert,
                                               const char *key, struct tally_error *err)
{
    assert(server->peers.identity != NULL);
    /* Opening a pipe again would wait for another writer, and all connections would wait, too. */
    return http_handshake_load(&server->peers, cert, key, true, err);
}

enum tally_status tally_http_server_check_tls(const char *cert, const char *key,
                                              struct tally_error *err)
{
    struct tls_identity *identity;
    enum tally_status status =
        tls_identity_load(cert, key, false, (int64_t)time(NULL), &identity, err);
    if (status == TALLY_OK) {
        tls_identity_release(identity);
    }
    return status;
}

bool tally_http_server_tls(const struct tally_http_server *server, int64_t *ret_expires_s,
                           bool *ret_key_is_exposed)
{
    if (server->peers.identity == NULL) {
        return false;
    }
    *ret_expires_s = server->peers.identity->expires_s;
    *ret_key_is_exposed = server->peers.identity->key_is_exposed;
    return true;
}

void tally_http_server_load(const struct tally_http_server *server, unsigned *ret_connections,
                            size_t *ret_held_bytes)
{
    *ret_connections = server->peers.table.n;
    *ret_held_bytes = server->peers.table.held_bytes;
}

uint16_t tally_http_server_port(const struct tally_http_server *server)
{
    return server->port;
}
