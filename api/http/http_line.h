/* http_line: the connection over which one party is served, and what is moving on it.
 *
 * A long request or response takes a while on a slow link, and its party says nothing else in the
 * meantime. A line lets the owner of the server see that bytes are arriving, or that bytes of the
 * last response are being acknowledged. The kernel counts them (TCP_INFO), so a line costs nothing
 * until it is looked at.
 *
 * A line has at most one connection, and a connection at most one line: a proxy may carry the
 * requests of several parties over one connection, one after the other. */
#ifndef TALLY_API_HTTP_HTTP_LINE_H
#define TALLY_API_HTTP_HTTP_LINE_H

#include <stdbool.h>
#include <stdint.h>

struct http_peer;
struct tally_http_request;

/* Zeroed by the owner at first. It must stay where it is while it has a connection. */
struct tally_http_line {
    struct http_peer *peer;  /* NULL = none, or it was closed */
    uint64_t sent_bytes;     /* acknowledged on the connection before the last response ... */
    uint64_t response_bytes; /* ... of this length; 0 = short, so nobody waits for it */
    uint64_t seen_bytes;     /* moved by the time of the last tally_http_line_look() */
};

struct tally_http_motion {
    bool is_upload;      /* a request is arriving; otherwise a response is leaving */
    bool has_moved;      /* bytes have moved since the last look */
    int64_t quiet_ms;    /* since bytes last moved in that direction */
    uint64_t n, n_whole; /* bytes of the body that have moved, of how many; 0 = unknown */
};

/* The request belongs to the party: from now on its connection is that of the line. */
void tally_http_line_attach(struct tally_http_line *line, const struct tally_http_request *request);
/* To be called before the line is freed. */
void tally_http_line_detach(struct tally_http_line *line);
/* Whether a body is under way between the server and the party. If so, fills in *ret_motion. */
bool tally_http_line_look(struct tally_http_line *line, struct tally_http_motion *ret_motion);

#endif
