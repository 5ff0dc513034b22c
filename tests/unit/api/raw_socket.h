/* raw_socket: a client that is a plain socket, which lets tests see every byte on the wire. */
#ifndef TALLY_TESTS_UNIT_API_RAW_SOCKET_H
#define TALLY_TESTS_UNIT_API_RAW_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/buffer.h"

/* Opens a non-blocking connection to the loopback address; -1 on failure. */
int tally_raw_connect(uint16_t port);
/* Sends what the socket accepts at once and returns the number of bytes; -1 if the connection is
 * broken. */
long tally_raw_send(int fd, const void *bytes, size_t n);
/* Appends the received bytes to *in (NUL-terminated past its size); false once the peer has closed.
 */
bool tally_raw_receive(int fd, struct tally_buffer *in);
/* Closes with a reset instead of an orderly shutdown. */
void tally_raw_reset(int fd);

/* Length of the first complete HTTP response in `text`, including any interim responses before it;
 * 0 if it is not complete. `has_body` is false for a response to HEAD. */
size_t tally_raw_response_bytes(const char *text, size_t n, bool has_body);

#endif
