/* text_columns: the width of a terminal, and of a text, in columns.
 *
 * A code point takes no column (a combining mark), one, or two (most East Asian characters, emoji),
 * according to wcwidth() in the locale C.UTF-8; the process's own locale does not matter. */
#ifndef TALLY_SERVICES_BASE_TEXT_COLUMNS_H
#define TALLY_SERVICES_BASE_TEXT_COLUMNS_H

#include <stddef.h>

/* Columns of the first n bytes of a UTF-8 text. Control characters and bytes that are not UTF-8
 * take one. */
size_t tally_text_columns(const char *text, size_t n);

/* Columns of the terminal behind the descriptor; 0 if it is not a terminal, so that lines may have
 * any length. */
int tally_terminal_columns(int fd);

#endif
