/* http_accept: new connections.
 *
 * They are accepted here and not by MHD, so that a connection over a limit gets a response. MHD
 * would close it (limit per address) or leave it in the kernel's queue (limit on all connections).
 * With TLS, and once there are large bodies, a connection waits here for its first bytes. */
#ifndef TALLY_API_HTTP_HTTP_ACCEPT_H
#define TALLY_API_HTTP_HTTP_ACCEPT_H

#include "api/http/http_peer.h"

/* Accepts connections from the listening socket. */
void http_accept_all(struct http_peers *peers);
/* Listens again if the pause after a lack of descriptors has ended. */
void http_accept_again(struct http_peers *peers);
/* The first bytes of a connection have arrived, or its peer has left. */
void http_accept_first_bytes(struct http_peer *peer, uint32_t events);

#endif
