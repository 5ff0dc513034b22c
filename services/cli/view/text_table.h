/* text_table: cells in aligned columns, for terminals. */
#ifndef TALLY_SERVICES_CLI_VIEW_TEXT_TABLE_H
#define TALLY_SERVICES_CLI_VIEW_TEXT_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "codec/base/buffer.h"

struct tally_text_table {
    const char *alignment; /* one letter per column, 'l' or 'r': "lrr" has three */
    char **cells;          /* row by row; heap */
    size_t n_cells, capacity;
    bool failed; /* memory ran out once: render says so */
};

void tally_text_table_init(struct tally_text_table *table, const char *alignment);
void tally_text_table_fini(struct tally_text_table *table);

/* Adds the next cell, left to right. Control characters and bytes that are not UTF-8 are shown as
 * '?': a job's name must not move anybody's cursor. */
void tally_text_table_add(struct tally_text_table *table, const char *text);
/* Fills up the row with empty cells. */
void tally_text_table_end_row(struct tally_text_table *table);

/* Appends the rows, columns two blanks apart, no blanks at line ends. Errors: NO_MEMORY. */
enum tally_status tally_text_table_render(const struct tally_text_table *table,
                                          struct tally_buffer *out);

#endif
