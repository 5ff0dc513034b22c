/* http_wide: connections that carry large bodies.
 *
 * MHD reads a body in pieces of half the memory of a connection, and all connections of a daemon
 * have the same memory: 6 KiB suit thousands of idle connections, but cut 300 KB into 50 pieces. So
 * there are two daemons. A client that has sent a large body is asked to connect again
 * ("Connection: close"), and a connection that begins with a large body goes to the daemon with the
 * large buffers, until it has sent only small bodies for a while. */
#ifndef TALLY_API_HTTP_HTTP_WIDE_H
#define TALLY_API_HTTP_HTTP_WIDE_H

#include "api/http/http_peer.h"

/* Selects the daemon for a new connection, according to the header section in its socket. */
struct MHD_Daemon *http_wide_select(struct http_peer *peer);
/* To be called when a body of `bytes` is about to be read. If it is large and the windows of all
 * connections are within a limit, requests a TCP window that holds it. A smaller window fills and
 * opens again and again. Over loopback, the peer's sending then runs on our processor time: an
 * eighth or more of the cost of an update of 300 KB. */
void http_wide_expect(struct http_peer *peer, size_t bytes);
/* Whether the peer, which has sent a body of `bytes` (0 = none), should connect again: to get the
 * large buffers, or because it no longer needs them. */
bool http_wide_should_move(struct http_peer *peer, size_t bytes);

#endif
