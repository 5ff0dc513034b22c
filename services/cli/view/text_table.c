#include "services/cli/view/text_table.h"

#include <stdlib.h>
#include <string.h>

#include "codec/base/utf8.h"

enum { GAP = 2 };

void tally_text_table_init(struct tally_text_table *table, const char *alignment)
{
    *table = (struct tally_text_table){.alignment = alignment};
}

void tally_text_table_fini(struct tally_text_table *table)
{
    for (size_t i = 0; i < table->n_cells; i++) {
        free(table->cells[i]);
    }
    free(table->cells);
}

static void make_printable(char *text)
{
    uint32_t point;
    for (size_t n; (n = tally_utf8_next(text, &point)) > 0; text += n) {
        if (tally_utf8_is_control(point) || (n == 1 && point == TALLY_UTF8_INVALID)) {
            memset(text, '?', n);
        }
    }
}

void tally_text_table_add(struct tally_text_table *table, const char *text)
{
    if (table->n_cells == table->capacity) {
        size_t capacity = table->capacity == 0 ? 32 : 2 * table->capacity;
        char **cells = realloc(table->cells, capacity * sizeof *cells);
        if (cells == NULL) {
            table->failed = true;
            return;
        }
        table->cells = cells;
        table->capacity = capacity;
    }
    char *cell = strdup(text);
    if (cell == NULL) {
        table->failed = true;
        return;
    }
    make_printable(cell);
    table->cells[table->n_cells++] = cell;
}

void tally_text_table_end_row(struct tally_text_table *table)
{
    while (!table->failed && table->n_cells % strlen(table->alignment) != 0) {
        tally_text_table_add(table, "");
    }
}

static size_t width_of(const char *text)
{
    size_t width = 0;
    uint32_t point;
    for (size_t n; (n = tally_utf8_next(text, &point)) > 0; text += n) {
        width++;
    }
    return width;
}

static size_t column_width(const struct tally_text_table *table, size_t column)
{
    size_t width = 0, n_columns = strlen(table->alignment);
    for (size_t i = column; i < table->n_cells; i += n_columns) {
        size_t here = width_of(table->cells[i]);
        width = here > width ? here : width;
    }
    return width;
}

static enum tally_status put_spaces(struct tally_buffer *out, size_t n)
{
    return tally_buffer_printf(out, "%*s", (int)n, "");
}

/* `owed` blanks are written only once something follows them. */
static enum tally_status put_cell(struct tally_buffer *out, const char *cell, size_t width,
                                  bool right, size_t *owed)
{
    size_t padding = width - width_of(cell);
    if (right) {
        *owed += padding;
    }
    if (cell[0] != '\0') {
        enum tally_status status = put_spaces(out, *owed);
        if (status == TALLY_OK) {
            status = tally_buffer_append_text(out, cell);
        }
        if (status != TALLY_OK) {
            return status;
        }
        *owed = 0;
    }
    *owed += GAP + (right ? 0 : padding);
    return TALLY_OK;
}

enum tally_status tally_text_table_render(const struct tally_text_table *table,
                                          struct tally_buffer *out)
{
    size_t n_columns = strlen(table->alignment), owed = 0;
    size_t *widths = calloc(n_columns, sizeof *widths);
    enum tally_status status = widths == NULL || table->failed ? TALLY_NO_MEMORY : TALLY_OK;
    for (size_t c = 0; c < n_columns && status == TALLY_OK; c++) {
        widths[c] = column_width(table, c);
    }
    for (size_t i = 0; i < table->n_cells && status == TALLY_OK; i++) {
        size_t c = i % n_columns;
        status = put_cell(out, table->cells[i], widths[c], table->alignment[c] == 'r', &owed);
        if (c + 1 == n_columns && status == TALLY_OK) {
            status = tally_buffer_append_text(out, "\n");
            owed = 0;
        }
    }
    free(widths);
    return status;
}
