/* utf8: one code point at a time, as RFC 3629 allows it. */
#ifndef TALLY_SERVICES_PROGRAM_UTF8_H
#define TALLY_SERVICES_PROGRAM_UTF8_H

#include <stddef.h>
#include <stdint.h>

enum { TALLY_UTF8_INVALID = 0xFFFD };

/* Reads the code point at the start of the NUL-terminated `text` and returns its length in bytes; 0
 * at the end. A byte that begins no valid sequence (overlong, surrogate, past U+10FFFF, cut short)
 * has length 1 and is TALLY_UTF8_INVALID. */
size_t tally_utf8_next(const char *text, uint32_t *ret_code_point);

#endif
