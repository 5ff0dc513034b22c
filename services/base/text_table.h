/* text_table: cells in aligned columns, for terminals.
 *
 * libsmartcols would truncate or wrap cells that do not fit, but a truncated number is wrong. This
 * module leaves out whole columns instead. */
#ifndef TALLY_SERVICES_BASE_TEXT_TABLE_H
#define TALLY_SERVICES_BASE_TEXT_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "codec/buffer.h"

struct tally_text_table {
    const char *alignment; /* one letter per column, 'l' or 'r': "lrr" has three; 'w', for the last
                            * column only, is an 'l' whose words are wrapped at `columns` */
    int columns;           /* maximum width of a line; 0 = any */
    const char *leaves; /* columns that may be left out, in this order; 'a' is the first column */
    char **cells;       /* row by row; heap */
    size_t n_cells, capacity;
    bool failed; /* an allocation failed: tally_text_table_end() reports it */
};

/* `heads` are the first cells, separated by commas: one row of headings or several; "" = none. */
void tally_text_table_init(struct tally_text_table *table, const char *alignment,
                           const char *heads);

/* Adds the next cell of the row. Control characters and bytes that are not UTF-8 are shown as '?',
 * so that a job's name cannot move the cursor. */
void tally_text_table_add(struct tally_text_table *table, const char *text);
/* Adds the cells of a formatted text, which are separated by tabs. */
void tally_text_table_printf(struct tally_text_table *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Fills up the row with empty cells. */
void tally_text_table_end_row(struct tally_text_table *table);

/* Makes lines fit `columns`; 0 = any length. Columns are left out one after the other, in the order
 * of `leaves`, until the lines fit; a column that `leaves` does not name always stays. */
void tally_text_table_fit(struct tally_text_table *table, int columns, const char *leaves);

/* Appends the rows, columns two blanks apart, no blanks at line ends, and frees the table. Errors:
 * NO_MEMORY. */
enum tally_status tally_text_table_end(struct tally_text_table *table, struct tally_buffer *out);

#endif
