/* http_server_internal: what http_server.c (requests and answers) and http_peer.c (connections)
 * share. */
#ifndef TALLY_API_SERVER_HTTP_SERVER_INTERNAL_H
#define TALLY_API_SERVER_HTTP_SERVER_INTERNAL_H

#include <microhttpd.h>

#include "api/server/http_answers.h"
#include "api/server/http_connections.h"
#include "api/server/http_server.h"
#include "api/server/http_uploads.h"
#include "api/tls/tls_identity.h"

/* One connection, from accept() until its descriptor is closed. */
struct http_peer {
    struct http_connection base; /* first: the table's pointers are ours */
    struct tally_http_server *server;
    struct MHD_Connection *mhd;                    /* NULL before TLS begins, and once it lingers */
    struct tally_http_request *request;            /* under way; NULL = none */
    struct tls_identity *identity;                 /* that its handshake used */
    struct http_peer *previous_awake, *next_awake; /* in server->awake */
    struct http_peer *previous_head, *next_head;   /* in server->heads */
    size_t n_lingered_bytes;
    int window_bytes; /* asked for; 0 = never */
    int n_wakes;
    unsigned n_small_bodies; /* since the last large one */
    bool is_shaking;         /* its TLS handshake is not over */
    bool is_parked;          /* suspended until more of the handshake has come */
    bool is_wide;            /* MHD has much memory for it */
    bool finished_in, finished_out;
    bool has_nul;    /* path or query of the request hold a %00 */
    bool is_in_head; /* its request line is in, and handle() has not been called */
    bool is_refused; /* it was answered before handle() was called */
    bool lingers;    /* it was answered before it had been read to the end */
    bool is_dropped;
};

enum {
    HTTP_SPARE_BODIES = 32,
    HTTP_DATE_CAPACITY = 32,
    HTTP_KEPT_HEADERS = 16,
    HTTP_MAX_HEADERS = 100
};

struct tally_http_server {
    struct tally_http_server_config config; /* its texts are not used after the start */
    struct MHD_Daemon *daemon;
    struct MHD_Daemon *wide_daemon; /* for large bodies; NULL = none, as with TLS */
    int listen_fd;                  /* -1 = none any more */
    int watch_fd; /* epoll: MHD's own sets, the listening socket, connections MHD leaves alone */
    uint16_t port;
    unsigned idle_timeout_s;
    size_t memory_bytes; /* that MHD has for the header sections of a request and its response */
    struct http_connections connections;
    struct http_uploads uploads;
    size_t windows_bytes;                 /* that connections have asked the kernel for */
    unsigned most_connections;            /* since memory was given back to the system */
    struct http_peer *accepting;          /* MHD is taking this one over */
    struct http_peer *awake;              /* handshakes that MHD has been given new bytes for */
    struct http_peer *heads;              /* whose header sections are not complete; newest first */
    struct http_peer *parsing;            /* of them, the one whose query MHD parses; NULL = none */
    const char *parsed_path;              /* its path, which MHD unescapes after the query */
    struct tls_identity *identity;        /* for new handshakes; NULL = plain HTTP */
    struct tally_http_request *suspended; /* doubly linked */
    struct tally_http_request *first_waiting, *last_waiting; /* by the time since when they wait */
    unsigned n_waiting, n_suspended;
    unsigned n_wide;                          /* connections of wide_daemon */
    struct tally_http_request *free_requests; /* by next */
    unsigned n_free_requests;
    struct tally_buffer spare_bodies[HTTP_SPARE_BODIES];
    int n_spare_bodies;
    struct http_answers answers;
    int64_t date_s;                /* Unix time of the text */
    char date[HTTP_DATE_CAPACITY]; /* as RFC 9110 has it; "" = none yet */
    unsigned n_requests;           /* that exist: begun, and not yet answered to the last byte */
    int64_t now_ms;                /* http_now_ms() of this step */
    int64_t accept_again_ms;       /* no descriptor was left: not before then; 0 = any time */
    bool has_resumed;    /* since MHD ran last; MHD_get_timeout() does not count that as work */
    bool has_moved;      /* in MHD's last turn a request was read from or answered */
    bool has_completed;  /* likewise, one came to its end: the next may be in the socket already */
    bool looks_at_first; /* there are large bodies: new connections wait for their first bytes */
    bool is_ending;      /* tally_http_server_free() runs: nothing may be suspended any more */
};

struct http_header {
    const char *name, *value; /* MHD's */
    size_t n_name;
};

/* What decides where a request ends, and whether a proxy would agree. */
struct http_head {
    unsigned n_hosts, n_lengths, n_encodings, n_origins, n_sites;
    size_t n_cookie_bytes; /* of the values of Cookie */
    const char *end;       /* of the last line so far, without CRLF; NULL = there was none */
    bool has_bad_name, has_bad_line;
};

struct tally_http_request {
    struct http_upload upload; /* first: the list's pointers are ours */
    struct tally_http_server *server;
    struct MHD_Connection *connection;
    struct http_peer *peer;
    struct tally_http_request *previous, *next; /* while it waits or is suspended */
    int64_t waits_since_ms;                     /* monotonic */
    const char *method, *path, *version;
    struct tally_buffer body;
    size_t n_announced;  /* Content-Length; 0 = there is none, or the body is chunked */
    size_t n_body_bytes; /* of the body, also when it has been forgotten */
    void *user;
    struct MHD_Response *response;    /* waits to be queued */
    struct http_answer *answer;       /* the same one, if it is to be used again */
    struct tally_http_stream *stream; /* NULL = answered otherwise or not yet */
    int status;
    size_t n_held_answer; /* bytes of the answer that are ours to keep until they are sent */
    bool was_handed;      /* on_request has been called */
    bool is_answered;     /* tally_http_respond has been called */
    bool is_waiting;      /* in the server's list of those that wait */
    bool is_suspended;    /* in server->suspended */
    bool is_gone;         /* the peer hung up */
    bool asks_close, asks_keep_alive; /* in a Connection header */
    struct http_head head;
    size_t n_headers; /* of the request; those past the kept ones are MHD's to find */
    struct http_header headers[HTTP_KEPT_HEADERS]; /* last: not cleared */
};

/* Monotonic. */
int64_t http_now_ms(void);
/* http_server.c: the peer of a suspended request hung up. */
void http_request_hang_up(struct tally_http_request *request);

/* The Date header's value, of this second. */
const char *http_date(struct tally_http_server *server);
/* Tells on_refused, and makes the problem document of the answer. `ret_id` may stay "". */
void http_refused(struct tally_http_server *server, enum tally_http_refusal_reason reason,
                  int status, const struct tally_http_request *request,
                  char ret_id[TALLY_HTTP_REQUEST_ID_CAPACITY]);
void http_problem(struct tally_buffer *body, int status, const char *title, const char *code,
                  const char *detail);

/* ---- http_heads.c ---- */

/* MHD's notice of a request line; `uri` is NULL if it has none. Always NULL: handle() makes the
 * request. */
void *http_heads_begin(void *context, const char *uri, struct MHD_Connection *connection);
/* MHD has unescaped a text, of the query or the path. */
void http_heads_unescaped(struct tally_http_server *server, const char *text);
/* The section is complete, or the connection is over. */
void http_heads_end(struct http_peer *peer);
/* MHD is about to answer by itself, with this status. True if this has answered instead. */
bool http_heads_refused(struct tally_http_server *server, int status);
/* Called for each header line, in order. The texts must lie in MHD's own buffer. */
void http_heads_note(struct http_head *head, const char *name, size_t n_name, const char *value,
                     size_t n_value);
/* Whether a section of n_headers fields and n_bytes leaves MHD memory for the response's. If not,
 * this function has answered, because MHD would close the connection without an answer. */
bool http_heads_leave_room(struct http_peer *peer, const struct http_head *head, size_t n_headers,
                           size_t n_bytes);
/* What is wrong with the framing; NULL = nothing. `section_end` is behind the blank line. */
const char *http_heads_fault(const struct http_head *head, const char *section_end, bool is_1_0);

/* ---- http_peer.c ---- */

/* Takes new connections from the listening socket. */
void http_peer_accept_all(struct tally_http_server *server);
/* MHD's notice of a connection's begin and end. */
void http_peer_notify(void *context, struct MHD_Connection *connection, void **socket_context,
                      enum MHD_ConnectionNotificationCode code);
/* Its socket, which MHD does not watch, has events. */
void http_peer_on_event(struct http_peer *peer, uint32_t events);
/* After MHD ran: parks the handshakes that are not over. */
void http_peer_park_awake(struct tally_http_server *server);
/* Drops whoever is late. */
void http_peer_drop_late(struct tally_http_server *server);
/* The peer holds so much now; drops others, or itself, where that is too much in all. False if it
 * was itself. */
bool http_peer_hold(struct http_peer *peer, size_t bytes, bool is_spared);
void http_peer_enter(struct http_peer *peer, enum http_phase phase);
/* A body of so many bytes is about to be read: asks for a window that holds it, if it is large and
 * all windows together are not. One that is smaller is filled and opened in turn, and over loopback
 * the peer's sending is done in our processor time then: an eighth and more of all that an update
 * of 300 KB costs. */
void http_peer_expect(struct http_peer *peer, size_t bytes);
/* Whether the peer, which has sent a body of so many bytes (0 = none), should connect again: for a
 * buffer that takes such bodies in larger pieces, or since it has needed its large one no longer.
 */
bool http_peer_should_move(struct http_peer *peer, size_t bytes);
/* Sends a refusal past MHD, which cannot answer at this point. Nothing else may be sent after. */
void http_peer_answer(struct http_peer *peer, enum tally_http_refusal_reason reason, int status,
                      const char *title, const char *code, const char *detail);
/* Ends sending, also by MHD. Bytes that still arrive are discarded. */
void http_peer_end_sending(struct http_peer *peer);
/* Closes what MHD does not have, and gives the rest back to it, for the end. */
void http_peer_give_up(struct tally_http_server *server);
/* GnuTLS asks for the certificate. */
int http_peer_retrieve_identity(gnutls_session_t session, const struct gnutls_cert_retr_st *info,
                                gnutls_pcert_st **ret_certs, unsigned *ret_n_certs,
                                gnutls_ocsp_data_st **ret_ocsp, unsigned *ret_n_ocsp,
                                gnutls_privkey_t *ret_key, unsigned *ret_flags);

#endif
