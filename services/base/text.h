/* text: text that is written piece by piece. After a failure nothing more is written, so that the
 * status need be checked only once, at the end. */
#ifndef TALLY_SERVICES_BASE_TEXT_H
#define TALLY_SERVICES_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "codec/buffer.h"

struct tally_text {
    struct tally_buffer *out;
    enum tally_status status; /* of the first failure: NO_MEMORY, TOO_LARGE */
};

void tally_text_put(struct tally_text *text, const char *piece);
void tally_text_put_bytes(struct tally_text *text, const char *bytes, size_t n);
void tally_text_printf(struct tally_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- The width of a terminal, and of a text, in columns.
 *
 * A code point takes no column (a combining mark), one, or two (most East Asian characters, emoji),
 * according to wcwidth() in the locale C.UTF-8; the process's own locale does not matter. */

/* Columns of the first n bytes of a UTF-8 text. Control characters and bytes that are not UTF-8
 * take one. */
size_t tally_text_columns(const char *text, size_t n);

/* Columns of the terminal behind the descriptor; 0 if it is not a terminal, so that lines may have
 * any length. */
int tally_terminal_columns(int fd);

/* ---- Words separated by commas, as in the value of an option. */

/* Whether a word of the list is the n bytes at `word`. False for NULL and "". */
bool tally_word_list_has(const char *list, const char *word, size_t n);

/* The word at *list and its length; moves *list past it. NULL = no word is left. */
const char *tally_word_list_next(const char **list, size_t *ret_n);

#endif
