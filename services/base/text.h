/* text: text that is written piece by piece. After a failure nothing more is written, so that the
 * status need be checked only once, at the end. */
#ifndef TALLY_SERVICES_BASE_TEXT_H
#define TALLY_SERVICES_BASE_TEXT_H

#include "codec/buffer.h"

struct tally_text {
    struct tally_buffer *out;
    enum tally_status status; /* of the first failure: NO_MEMORY, TOO_LARGE */
};

void tally_text_put(struct tally_text *text, const char *piece);
void tally_text_put_bytes(struct tally_text *text, const char *bytes, size_t n);
void tally_text_printf(struct tally_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
