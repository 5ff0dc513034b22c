/* forward_peers: shared parts of the forwarder tests: a peer that runs our server in a thread, a
 * peer of plain sockets, and the forwarder's owner. */
#ifndef TALLY_TESTS_UNIT_API_CLIENT_FORWARD_PEERS_H
#define TALLY_TESTS_UNIT_API_CLIENT_FORWARD_PEERS_H

#include <pthread.h>
#include <stdatomic.h>

#include "api/client/http_forward.h"
#include "api/http/http_server.h"

enum {
    FORWARD_HANG_MS = 60000, /* no test waits this long unless something hangs */
    FORWARD_MAX_HELD = 512,
};

struct forward_host {
    struct tally_http_server *server;
    pthread_t thread;
    int wake_fd;
    char url[64];
    atomic_bool stops, releases;                       /* wake_fd: one of them is set */
    struct tally_http_request *held[FORWARD_MAX_HELD]; /* owned by the thread */
    size_t n_held;
    atomic_size_t n_requests, n_abandoned, n_connections;
};

void forward_host_start(struct forward_host *host);

void forward_host_signal(struct forward_host *host, atomic_bool *flag);

void forward_host_stop(struct forward_host *host);

void forward_wait_until(atomic_size_t *counter, size_t n);

/* ---- A peer of plain sockets ---- */

/* A peer that answers every request, one connection after another, and counts connections and
 * requests. */
struct forward_plain_peer {
    int listen_fd;
    pthread_t thread;
    char url[64];
    _Atomic(const char *) answer; /* closes the connection afterwards unless `keeps` */
    atomic_bool keeps;
    atomic_size_t n_connections, n_requests;
};

int forward_listen(char url[64]);

void forward_plain_peer_start(struct forward_plain_peer *peer, const char *answer, bool keeps);

void forward_plain_peer_stop(struct forward_plain_peer *peer);

/* ---- The forwarder's owner ---- */

struct forward_owner {
    struct tally_http_forwarder *forwarder;
};

void forward_owner_start(struct forward_owner *owner,
                         const struct tally_http_forwarder_config *limits);

void forward_owner_stop(struct forward_owner *owner);

enum tally_status forward_submit(struct forward_owner *owner, const char *url, const char *target,
                                 long timeout_ms, void *user, struct tally_http_forward **ret);

struct tally_http_forward *forward_expect_submit(struct forward_owner *owner, const char *url,
                                                 const char *target, long timeout_ms, void *user);

/* Whether the forwarder's descriptor becomes readable. */
bool forward_has_work(const struct forward_owner *owner, int timeout_ms);

void forward_take(struct forward_owner *owner, struct tally_http_forward_result *ret_result);

/* Runs the forwarder, which must produce no result, until the counter reaches `n`. */
void forward_turn_until(const struct forward_owner *owner, atomic_size_t *counter, size_t n);

/* Takes any result and frees it. */
void forward_take_any(struct forward_owner *owner);

void forward_assert_failure(struct forward_owner *owner, enum tally_status expected);

void forward_assert_body(struct tally_http_forward_result *result, const char *expected);

const char *forward_header(const struct tally_http_forward_result *result, const char *name);

void forward_start_both(struct forward_host *host, struct forward_owner *owner,
                        const struct tally_http_forwarder_config *limits);

void forward_stop_both(struct forward_host *host, struct forward_owner *owner);

#endif
