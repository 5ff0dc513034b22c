/* http_connections: which connections are open, how long a slow peer is tolerated, and what it may
 * cost.
 *
 * The idea (nginx and varnish time out connections in the same way): a slow or silent peer must
 * cost a bounded amount of memory and no processor time. So the table knows the phase of every
 * connection. All connections of a phase have the same period, so a list per phase in order of
 * entry is also in order of expiry: only its first item is ever examined.
 *
 *     phase      clock                 when it expires
 *     RECEIVING  request_timeout_ms    the header section or the TLS handshake is late: drop
 *     UPLOADING  request_timeout_ms    drop, unless HTTP_MIN_BYTES_PER_S have arrived in the
 *                                      meantime. A body may take as long as it needs
 *     IDLE       request_timeout_ms/4  if bytes have arrived, a request has begun: RECEIVING.
 *                                      Otherwise the clock starts again
 *     SENDING    request_timeout_ms    drop, unless the peer has acknowledged
 *                                      HTTP_MIN_BYTES_PER_S in the meantime
 *     LINGERING  linger_ms             close. The response went out before the request was read to
 *                                      its end; what still arrives is discarded, so that the peer
 *                                      sees the response and not a reset
 *     WAITING    none                  the next step is ours
 *
 *     phases[SENDING]:  first -> [due 900] -> [due 940] -> [due 940] <- last
 *                                 ^ the only one to check at 899, and to drop at 900
 *
 * Progress is read from the kernel (TCP_INFO), which counts bytes even if the library asks for
 * none.
 *
 * A connection holds memory while its peer is slow: incomplete bodies and responses that are not
 * read. Past a limit, the connection that began to hold first is dropped.
 *
 * Addresses: IPv4 addresses count whole, IPv6 addresses by their first 64 bits, which are one
 * customer's network. */
#ifndef TALLY_API_HTTP_HTTP_CONNECTIONS_H
#define TALLY_API_HTTP_HTTP_CONNECTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "codec/list.h"

enum http_phase {
    HTTP_RECEIVING,
    HTTP_UPLOADING,
    HTTP_IDLE,
    HTTP_SENDING,
    HTTP_LINGERING,
    HTTP_WAITING,
    N_HTTP_PHASES
};

enum {
    /* Far less than one of a hundred workers gets that share a line of 64 kbit/s. A peer that is
     * even slower is taken to be holding the connection. */
    HTTP_MIN_BYTES_PER_S = 64,
    /* Connections that hold less are spared when memory is short: there may be 20,000 of them. */
    HTTP_HOLDER_BYTES = 16 * 1024
};

#define HTTP_READ_UNKNOWN UINT64_MAX

/* A member of the owner's record of a connection. Zeroed before it is added. */
struct http_connection {
    int fd;
    enum http_phase phase;
    int64_t due_ms;      /* when the phase's clock expires */
    uint64_t mark_bytes; /* received (UPLOADING, IDLE) or acknowledged (SENDING) when the clock was
                          * set */
    unsigned n_marks;    /* calls of http_connections_mark() in this SENDING phase; 3 = marked */
    uint64_t read_bytes; /* of the socket, in whole requests. Kept by the owner, so that the kernel
                          * need not be asked; HTTP_READ_UNKNOWN = ask it */
    size_t held_bytes;
    struct tally_list_node in_phase, in_holders;
    struct http_address *address;
};

struct http_connections {
    unsigned max, max_per_address, n;
    int64_t period_ms[N_HTTP_PHASES]; /* 0 = no clock */
    struct tally_list phases[N_HTTP_PHASES];
    struct tally_list holders; /* of HTTP_HOLDER_BYTES or more, in the order in which they began */
    size_t held_bytes, max_held_bytes;
    struct http_address **addresses; /* hash table */
    uint64_t seed;
};

enum http_admission { HTTP_ADMITTED, HTTP_FULL, HTTP_ADDRESS_FULL, HTTP_NO_MEMORY };

/* Limits are > 0. Returns false if memory ran out. */
bool http_connections_init(struct http_connections *table, unsigned max, unsigned max_per_address,
                           int64_t request_timeout_ms, int64_t linger_ms, size_t max_held_bytes);
/* Precondition: all connections have been removed. */
void http_connections_fini(struct http_connections *table);

/* Adds a connection that has just been accepted, in `phase`. */
enum http_admission http_connections_add(struct http_connections *table,
                                         struct http_connection *connection, int fd,
                                         const struct sockaddr *peer, enum http_phase phase,
                                         int64_t now_ms);
/* Whether one more connection of the same peer would be admitted. */
bool http_connections_has_room(const struct http_connections *table,
                               const struct http_connection *connection);
void http_connections_remove(struct http_connections *table, struct http_connection *connection);

/* What the kernel says about a connection. */
struct http_transport {
    uint64_t received_bytes, acked_bytes;
    int64_t received_ago_ms, acked_ago_ms; /* since the last data, and the last acknowledgement */
};

struct http_transport http_connections_transport(const struct http_connection *connection);

/* Enters a phase and starts its clock, even if the connection is already in that phase. */
void http_connections_enter(struct http_connections *table, struct http_connection *connection,
                            enum http_phase phase, int64_t now_ms);
/* After every turn of the library: reads the progress of connections that were also SENDING in the
 * two turns before. Most responses have been sent by then, without asking the kernel about them. */
void http_connections_mark(struct http_connections *table);
/* Sets how much the connection holds. */
void http_connections_hold(struct http_connections *table, struct http_connection *connection,
                           size_t bytes);

/* The next connection to drop because its clock has expired; NULL = none. It must leave its phase
 * before the next call. */
struct http_connection *http_connections_late(struct http_connections *table, int64_t now_ms);
/* The connection to drop because too much is held, other than `spared`; NULL = none. It must hold
 * nothing before the next call. */
struct http_connection *http_connections_greedy(struct http_connections *table,
                                                const struct http_connection *spared);
/* Milliseconds until the first clock expires; -1 = never. */
int64_t http_connections_wait_ms(const struct http_connections *table, int64_t now_ms);

#endif
