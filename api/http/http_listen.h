/* http_listen: the listening socket, and how many connections the process can have. */
#ifndef TALLY_API_HTTP_HTTP_LISTEN_H
#define TALLY_API_HTTP_HTTP_LISTEN_H

#include <stdint.h>

#include "codec/error.h"

/* Listens on "ADDRESS:PORT" or "[ADDRESS]:PORT", numeric; port 0 = any free one. Errors:
 * INVALID_ARGUMENT (address), UNAVAILABLE (port taken). */
enum tally_status http_listen(const char *address, int *ret_fd, uint16_t *ret_port,
                              struct tally_error *err);
/* Raises the soft limit of descriptors as far as allowed, and reduces `wanted` to fit below it. */
unsigned http_listen_max_connections(unsigned wanted);

#endif
