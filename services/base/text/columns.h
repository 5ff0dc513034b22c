/* columns: how many columns of a terminal there are, and how many a text takes.
 *
 * A code point takes no column (a combining mark), one, or two (most of East Asia, emoji), as
 * wcwidth() of the locale C.UTF-8 says; the process's own locale does not matter. */
#ifndef TALLY_SERVICES_BASE_TEXT_COLUMNS_H
#define TALLY_SERVICES_BASE_TEXT_COLUMNS_H

#include <stddef.h>

/* Of the first n bytes of a text, which are UTF-8; control characters and bytes that are not UTF-8
 * take one. */
size_t tally_text_columns(const char *text, size_t n);

/* Of the terminal behind the descriptor; 0 if it is none: there lines may be of any length. */
int tally_terminal_columns(int fd);

#endif
