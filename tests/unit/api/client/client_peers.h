/* client_peers: what the tests of the HTTP client talk to, our own server in a thread or a scripted
 * socket that misbehaves as a test needs, and the client's side of an exchange. */
#ifndef TALLY_TESTS_UNIT_API_CLIENT_CLIENT_PEERS_H
#define TALLY_TESTS_UNIT_API_CLIENT_CLIENT_PEERS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "api/client/http_client.h"

enum { CLIENT_HANG_MS = 60000 }; /* a guard, far above what anything takes */

long client_now_ms(void);

/* All threads but the tests' own leave signals alone, so that a timer interrupts the client. */
void client_start_thread(pthread_t *thread, void *(*run)(void *), void *context);

/* ---- Our server in a thread ---- */

struct client_host {
    struct tally_http_server *server;
    pthread_t thread;
    int stop_fd;
    char url[64];
    /* of the thread, until client_host_stop() */
    uint64_t in_bytes, out_bytes;
    size_t n_abandoned;
};

/* idle_timeout_s: of connections; 0 = none. */
void client_host_start(struct client_host *host, unsigned idle_timeout_s);
void client_host_stop(struct client_host *host);

/* ---- A scripted peer ---- */

/* For each accepted connection: read one request, send the next line of the script, and keep the
 * connection or close it. */
struct client_line {
    const char *answer; /* NULL ends the script; "" says nothing */
    bool closes;        /* after the answer */
};

struct client_peer {
    const struct client_line *script;
    int drip_ms; /* pause after the head and each byte of the body; 0 = all at once */
    /* When the last piece was about to be sent (for the first one: when the test began), and the
     * longest time from there to the end of the next send. A preempted peer sends at any moment in
     * between. The head is one piece, because libcurl reports only whole lines of it. */
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

/* A client, and what an exchange needs. */
struct caller {
    struct tally_http_client *client;
    struct tally_http_exchange exchange; /* the last one */
    struct tally_buffer out;
    struct tally_error err; /* of the last one */
};

void caller_start(struct caller *caller, const char *url);
void caller_start_with(struct caller *caller, const struct tally_http_client_config *config);
void caller_stop(struct caller *caller);

enum tally_status caller_perform(struct caller *caller);
enum tally_status caller_get(struct caller *caller, const char *path, long timeout_ms);

/* On a busy machine the limit may pass before anything is sent, which is not a deadline: try again
 * with more time. */
enum tally_status caller_hang(struct caller *caller, long limit_ms);

/* Checks that `out` holds this text, and empties it. */
void client_assert_text(struct tally_buffer *out, const char *expected);

#endif
