/* http_connections: who may connect, and how long a peer may keep us waiting.
 *
 * The table knows every open connection of a server, by what it does at the moment. Each phase but
 * WAITING has a clock, and as all connections of a phase have the same period, those whose time
 * comes first stand first in a list: a look at the clocks costs nothing, however many there are.
 *
 *     RECEIVING  a request or a TLS handshake has begun: all of it must be here within
 *                request_timeout_ms. Late = dropped
 *     IDLE       before the first request and between two. It costs its place alone; the first byte
 *                of a request, noticed within a quarter of the period, makes it RECEIVING
 *     SENDING    an answer goes out: in each request_timeout_ms the peer must acknowledge
 *                HTTP_MIN_READ_BYTES_PER_S, or be done
 *     LINGERING  answered before the request was read to its end: what still comes is thrown away,
 *                so that the peer sees the answer and not a reset. Bounded in bytes and time
 *     WAITING    it is our turn: no clock
 *
 * "Holding" is memory that a peer's slowness costs: bodies that are not complete, answers that are
 * not taken. Past a limit, the connection that has held longest is to be dropped.
 *
 * Addresses: IPv4 counts whole, IPv6 by its first 64 bits, which are one customer's network. */
#ifndef TALLY_API_SERVER_HTTP_CONNECTIONS_H
#define TALLY_API_SERVER_HTTP_CONNECTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum http_phase {
    HTTP_RECEIVING,
    HTTP_IDLE,
    HTTP_SENDING,
    HTTP_LINGERING,
    HTTP_WAITING,
    N_HTTP_PHASES
};

enum {
    /* Below what any line does that is in use: 4 KiB a second. */
    HTTP_MIN_READ_BYTES_PER_S = 4096,
    /* Less than this is not looked at when memory is short: there may be 20,000 of them. */
    HTTP_HOLDER_BYTES = 16 * 1024
};

#define HTTP_READ_UNKNOWN UINT64_MAX

struct http_link {
    struct http_connection *previous, *next;
};

/* Embedded in what the owner keeps for a connection. Zero it before it is added. */
struct http_connection {
    int fd;
    enum http_phase phase;
    int64_t due_ms;      /* of the phase's clock */
    uint64_t mark_bytes; /* received (IDLE) or acknowledged (SENDING) when the clock was set */
    unsigned n_marks;    /* calls of http_connections_mark() that SENDING has lasted; 3 = marked */
    uint64_t read_bytes; /* of the socket, by whole requests, kept by the owner, so that the kernel
                          * need not be asked; HTTP_READ_UNKNOWN = ask it */
    size_t held_bytes;
    struct http_link in_phase, in_holders;
    struct http_address *address;
};

struct http_list {
    struct http_connection *first, *last;
};

struct http_connections {
    unsigned max, max_per_address, n;
    int64_t period_ms[N_HTTP_PHASES]; /* 0 = no clock */
    struct http_list phases[N_HTTP_PHASES];
    struct http_list holders; /* of HTTP_HOLDER_BYTES or more, those first that began first */
    size_t held_bytes, max_held_bytes;
    struct http_address **addresses; /* hash table */
    uint64_t seed;
};

enum http_admission { HTTP_ADMITTED, HTTP_FULL, HTTP_ADDRESS_FULL, HTTP_NO_MEMORY };

/* Limits are > 0. False when memory ran out. */
bool http_connections_init(struct http_connections *table, unsigned max, unsigned max_per_address,
                           int64_t request_timeout_ms, int64_t linger_ms, size_t max_held_bytes);
/* All connections have been removed. */
void http_connections_fini(struct http_connections *table);

/* Adds a connection that has just been accepted; what it sent until now is news. */
enum http_admission http_connections_add(struct http_connections *table,
                                         struct http_connection *connection, int fd,
                                         const struct sockaddr *peer, enum http_phase phase,
                                         int64_t now_ms);
/* Whether the peer could connect once more. */
bool http_connections_has_room(const struct http_connections *table,
                               const struct http_connection *connection);
void http_connections_remove(struct http_connections *table, struct http_connection *connection);

/* Enters a phase and sets its clock, also if it is the present one. */
void http_connections_enter(struct http_connections *table, struct http_connection *connection,
                            enum http_phase phase, int64_t now_ms);
/* After every turn of the library: asks the kernel where those stand that were sending in the two
 * turns before as well. Most are done by then, and nobody has had to ask. */
void http_connections_mark(struct http_connections *table);
/* What the connection holds from now on. */
void http_connections_hold(struct http_connections *table, struct http_connection *connection,
                           size_t bytes);

/* The next connection that is to be dropped as its time is over, or NULL. It must leave its phase
 * before the next call. */
struct http_connection *http_connections_late(struct http_connections *table, int64_t now_ms);
/* The holder to be dropped as too much is held, other than `spared`; or NULL. Likewise. */
struct http_connection *http_connections_greedy(struct http_connections *table,
                                                const struct http_connection *spared);
/* Milliseconds until http_connections_late() is worth a call; -1 = never. */
int64_t http_connections_wait_ms(const struct http_connections *table, int64_t now_ms);

#endif
