/* client_peers: the peers of the HTTP client tests, which are our own server in a thread and a
 * scripted socket that misbehaves as a test needs; and the client's side of an exchange. */
#ifndef TALLY_TESTS_UNIT_API_CLIENT_CLIENT_PEERS_H
#define TALLY_TESTS_UNIT_API_CLIENT_CLIENT_PEERS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "api/client/http_client.h"

enum { CLIENT_HANG_MS = 60000 }; /* a guard: no operation takes nearly as long */

long client_now_ms(void);

/* Starts a thread that blocks all signals, so that a timer interrupts the client's thread. */
void client_start_thread(pthread_t *thread, void *(*run)(void *), void *context);

/* ---- Our server in a thread ---- */

struct client_host {
    struct tally_http_server *server;
    pthread_t thread;
    int stop_fd;
    char url[64];
    /* owned by the thread until client_host_stop() */
    uint64_t in_bytes, out_bytes;
    size_t n_abandoned;
};

/* idle_timeout_s: idle timeout of connections; 0 = none. */
void client_host_start(struct client_host *host, unsigned idle_timeout_s);
void client_host_stop(struct client_host *host);

/* ---- A scripted peer ---- */

/* For each accepted connection: read one request, send the next line of the script, and keep the
 * connection or close it. */
struct client_line {
    const char *answer; /* NULL ends the script; "" sends nothing */
    bool closes;        /* after the response */
};

struct client_peer {
    const struct client_line *script;
    int drip_ms; /* pause after the head and each byte of the body; 0 = all at once */
    /* sent_ms is the time just before the last piece was sent (at first: when the peer started).
     * longest_ms is the longest time from there to the end of the next send; a preempted peer may
     * send at any moment in between. The head is one piece because libcurl reports only whole
     * header lines. */
    long sent_ms, longest_ms;
    int listen_fd;
    pthread_t thread;
    char url[64];
};

void client_peer_start(struct client_peer *peer, const struct client_line *script);
/* drip_ms: the pause after the head and each byte of the body. */
void client_peer_start_slow(struct client_peer *peer, const struct client_line *script,
                            int drip_ms);
void client_peer_stop(struct client_peer *peer);

/* ---- The client's side ---- */

struct tally_http_client *client_with(const struct tally_http_client_config *config);

/* A client and the data of an exchange. */
struct caller {
    struct tally_http_client *client;
    struct tally_http_exchange exchange; /* the most recent */
    struct tally_buffer out;
    struct tally_error err; /* of the most recent exchange */
};

void caller_start(struct caller *caller, const char *url);
void caller_start_with(struct caller *caller, const struct tally_http_client_config *config);
void caller_stop(struct caller *caller);

enum tally_status caller_perform(struct caller *caller);
enum tally_status caller_get(struct caller *caller, const char *path, long timeout_ms);

/* Requests /hang and returns the status. On a busy machine the limit may pass before anything is
 * sent, which gives TALLY_UNAVAILABLE, not TALLY_DEADLINE; then tries again with twice the time. */
enum tally_status caller_hang(struct caller *caller, long limit_ms);

/* Checks that `out` holds `expected`, then empties it. */
void client_assert_text(struct tally_buffer *out, const char *expected);

#endif
