/* buffer: a byte array that grows. Used for message bodies, rendered JSON and protobuf.
 *
 * Invariant: size <= capacity <= limit. A zeroed struct is an empty buffer with no limit. */
#ifndef TALLY_CODEC_BUFFER_H
#define TALLY_CODEC_BUFFER_H

#include <stddef.h>
#include <stdint.h>

#include "codec/error.h"

struct tally_buffer {
    uint8_t *data; /* heap; NULL while capacity is 0 */
    size_t size;
    size_t capacity;
    size_t limit; /* largest size allowed; 0 = none */
};

void tally_buffer_fini(struct tally_buffer *buffer);

/* Makes room for `n` more bytes. Errors: TOO_LARGE past the limit, NO_MEMORY. */
enum tally_status tally_buffer_reserve(struct tally_buffer *buffer, size_t n);

/* Gives back most of the room that is not used, if it is more than what is used: a message that is
 * kept may have been made in room for a much longer one. */
void tally_buffer_fit(struct tally_buffer *buffer);

/* Append to the buffer. Errors: the same, and INTERNAL for a bad format; the buffer is then
 * unchanged. */
enum tally_status tally_buffer_append(struct tally_buffer *buffer, const void *bytes, size_t n);
enum tally_status tally_buffer_append_text(struct tally_buffer *buffer, const char *text);
enum tally_status tally_buffer_printf(struct tally_buffer *buffer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
