/* http_peer: one connection, from accept() until its descriptor is closed, and the set of all
 * connections of a server.
 *
 *     accept        http_accept.c    limits; a TLS or large-body connection waits for first bytes
 *     handshake     http_handshake.c
 *     header        http_heads.c     until libmicrohttpd (MHD) has the whole section
 *     request       belongs to the server; only `request` and on_hang_up are known here
 *     end           http_peer.c      by MHD, by a clock, or after lingering
 *
 * The phases and clocks of a connection are those of http_connections.h. */
#ifndef TALLY_API_HTTP_HTTP_PEER_H
#define TALLY_API_HTTP_HTTP_PEER_H

#include <microhttpd.h>
#include <stdbool.h>

#include "api/http/http_connections.h"
#include "api/http/http_refusal.h"
#include "api/http/tls_identity.h"

struct http_peer {
    struct http_connection base;
    struct http_peers *peers;
    struct MHD_Connection *mhd; /* NULL before MHD has it (first bytes), and while it lingers */
    struct tally_http_request *request; /* in progress; NULL = none */
    struct tally_http_line *line;       /* of the party that it serves; NULL = none is known */
    struct tls_identity *identity;      /* used by its handshake */
    struct tally_list_node in_awake;    /* in peers->awake */
    struct tally_list_node in_heads;    /* in peers->heads: its header section is not complete */
    size_t n_lingered_bytes;
    int window_bytes; /* requested; 0 = none */
    int n_wakes;
    unsigned n_small_bodies; /* since the last large one */
    bool is_shaking;         /* its TLS handshake is in progress */
    bool is_parked;          /* suspended until more bytes of the handshake arrive */
    bool is_wide;            /* it belongs to the daemon with the large buffers */
    bool finished_in, finished_out;
    bool has_nul;    /* path or query of the request contain %00 */
    bool is_refused; /* it was answered before the request began */
    bool lingers;    /* it was answered before the request was read to its end */
    bool is_dropped;
    bool is_throttled; /* the kernel holds little of a response that it has not sent */
};

/* All connections of a server. Zeroed before the server fills in the first part. */
struct http_peers {
    struct MHD_Daemon *daemon;
    struct MHD_Daemon *wide_daemon; /* for large bodies; NULL = none, as with TLS */
    int listen_fd;                  /* -1 = closed */
    int watch_fd; /* epoll: MHD's own sets, the listening socket, sockets that MHD does not watch */
    unsigned request_timeout_s;
    size_t max_body_bytes;         /* for the text of refusals */
    size_t memory_bytes;           /* that MHD has for the headers of a request and its response */
    struct tls_identity *identity; /* for new handshakes; NULL = plain HTTP */
    struct http_refuser refuser;
    void (*on_hang_up)(
        struct tally_http_request *request); /* the peer of a suspended request is gone */
    void (*on_end)(struct http_peer *peer);  /* the connection is about to be freed */
    int64_t now_ms;                          /* of this step; monotonic */
    bool is_ending;                          /* nothing may be suspended any more */

    struct http_connections table;
    struct http_peer *accepting; /* the connection that MHD is about to take; NULL = none */
    struct tally_list awake;     /* handshakes for which MHD has new bytes */
    struct tally_list heads;     /* header sections that are not complete, newest first */
    struct http_peer *parsing;   /* the one in `heads` whose query MHD parses; NULL = none */
    const char *parsed_path;     /* path of that request, which MHD unescapes after the query */
    size_t windows_bytes;        /* sum of the windows requested from the kernel */
    unsigned n_wide;             /* connections of wide_daemon */
    unsigned most_connections;   /* since memory was last returned to the system */
    int64_t accept_again_ms;     /* descriptors ran out: no accept() before then; 0 = any time */
    bool has_resumed;    /* a connection, since MHD last ran; MHD_get_timeout() ignores this */
    bool looks_at_first; /* large bodies have been sent: new connections wait for first bytes */
};

/* The connection that MHD passes to a callback. */
struct http_peer *http_peer_of(struct MHD_Connection *connection);
/* Adds an event to peers->watch_fd; epoll returns `which` with it. */
bool http_peers_watch(const struct http_peers *peers, int fd, void *which);
void http_peer_watch(struct http_peer *peer, uint32_t events);
void http_peer_unwatch(struct http_peer *peer);

/* MHD announces the beginning and the end of a connection; `context` is the struct http_peers. */
void http_peer_notify(void *context, struct MHD_Connection *connection, void **socket_context,
                      enum MHD_ConnectionNotificationCode code);
/* A socket that MHD does not watch has events. */
void http_peer_on_event(struct http_peer *peer, uint32_t events);
void http_peer_enter(struct http_peer *peer, enum http_phase phase);
/* Sets how many bytes the connection holds. If all connections together hold too much, drops
 * others, or this one unless `is_spared`. Returns false if this one was dropped. */
bool http_peer_hold(struct http_peer *peer, size_t bytes, bool is_spared);
/* Drops all connections whose clock has expired. */
void http_peers_drop_late(struct http_peers *peers);
/* Drops one connection: MHD finds it broken and cleans up, whatever its state is. */
void http_peer_drop(struct http_peer *peer, enum tally_http_refusal_reason reason);
/* Sends a refusal directly, at a point where MHD accepts no response. Nothing else may be sent
 * after it. */
void http_peer_refuse(struct http_peer *peer, enum tally_http_refusal_reason reason, int status,
                      const char *detail);
/* Ends sending, for MHD too. Bytes that still arrive are discarded. */
void http_peer_end_sending(struct http_peer *peer);
/* Keeps a descriptor outside MHD open until the peer has seen the response. */
void http_peer_begin_lingering(struct http_peer *peer, int fd);
/* Frees a connection whose descriptor is closed. */
void http_peer_free(struct http_peer *peer);
/* Closes a connection outside MHD. */
void http_peer_close(struct http_peer *peer);
/* To be called before the daemons stop: closes the connections outside MHD and resumes the
 * handshakes. */
void http_peers_end(struct http_peers *peers);

#endif
