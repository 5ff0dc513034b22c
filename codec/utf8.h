/* utf8: validates and reads UTF-8, for text that comes from outside.
 *
 * Valid means as in RFC 3629: shortest form, no surrogates, nothing past U+10FFFF. */
#ifndef TALLY_CODEC_UTF8_H
#define TALLY_CODEC_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length of the byte order mark, which some editors put at the start of a text: 3, or 0 if there is
 * none. */
size_t tally_utf8_mark(const void *text, size_t n);

/* Length of the longest valid prefix of text[n] that ends between two characters; n if all is
 * valid. NUL is a valid character here. */
size_t tally_utf8_valid_prefix(const char *text, size_t n);

/* Whether a terminal, a log reader or a browser acts on the code point instead of showing it: the
 * C0 and C1 controls and DEL, the line and paragraph separators U+2028 and U+2029, and the
 * bidirectional embeddings, overrides and isolates (U+202A to U+202E, U+2066 to U+2069), which make
 * a text look different from what it is. */
bool tally_utf8_is_control(uint32_t point);

/* Offset of the first control character in the NUL-terminated `text`; strlen(text) if there is
 * none. */
size_t tally_utf8_find_control(const char *text);

/* Makes the NUL-terminated `text` one valid, printable line, in place and without changing its
 * length: invalid bytes become '?', every byte of a control character a space. */
void tally_utf8_sanitize_line(char *text);

enum { TALLY_UTF8_INVALID = 0xFFFD };

/* Reads the code point at the start of the NUL-terminated `text` and returns its length in bytes; 0
 * at the end. A byte that begins no valid character gives length 1 and TALLY_UTF8_INVALID. */
size_t tally_utf8_next(const char *text, uint32_t *ret_code_point);

#endif
