/* http_accept: new connections.
 *
 * They are accepted here and not by MHD, so that a connection over a limit gets a response. MHD
 * would close it (limit per address) or leave it in the kernel's queue (limit on all connections).
 * With TLS, and once there are large bodies, a connection waits here for its first bytes. */
#ifndef TALLY_API_HTTP_HTTP_ACCEPT_H
#define TALLY_API_HTTP_HTTP_ACCEPT_H

#include <stdint.h>

#include "api/http/http_peer.h"
#include "codec/error.h"

/* Accepts connections from the listening socket. */
void http_accept_all(struct http_peers *peers);
/* Listens again if the pause after a lack of descriptors has ended. */
void http_accept_again(struct http_peers *peers);
/* The first bytes of a connection have arrived, or its peer has left. */
void http_accept_first_bytes(struct http_peer *peer, uint32_t events);

/* ---- The listening socket, and how many connections the process can have. */

/* Listens on "ADDRESS:PORT" or "[ADDRESS]:PORT", numeric; port 0 = any free one. Errors:
 * INVALID_ARGUMENT (address), UNAVAILABLE (port taken). */
enum tally_status http_listen(const char *address, int *ret_fd, uint16_t *ret_port,
                              struct tally_error *err);
/* Raises the soft limit of descriptors as far as allowed, and reduces `wanted` to fit below it. */
unsigned http_listen_max_connections(unsigned wanted);

#endif
