#include "services/base/text_table.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/utf8.h"
#include "services/base/text.h"

enum { GAP = 2 };

static const size_t LEFT_OUT = SIZE_MAX; /* width of a column that is not shown */

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

/* Splits a text at each `separator` and adds the parts as cells. */
static void add_cells(struct tally_text_table *table, char *text, const char *separator)
{
    for (char *cell; (cell = strsep(&text, separator)) != NULL;) {
        tally_text_table_add(table, cell);
    }
}

void tally_text_table_printf(struct tally_text_table *table, const char *format, ...)
{
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&text, format, arguments) >= 0) {
        add_cells(table, text, "\t");
        free(text);
    } else {
        table->failed = true;
    }
    va_end(arguments);
}

void tally_text_table_init(struct tally_text_table *table, const char *alignment, const char *heads)
{
    *table = (struct tally_text_table){.alignment = alignment};
    char *text = strdup(heads);
    if (text == NULL) {
        table->failed = true;
    } else if (text[0] != '\0') {
        add_cells(table, text, ",");
    }
    free(text);
}

void tally_text_table_end_row(struct tally_text_table *table)
{
    while (!table->failed && table->n_cells % strlen(table->alignment) != 0) {
        tally_text_table_add(table, "");
    }
}

void tally_text_table_fit(struct tally_text_table *table, int columns, const char *leaves)
{
    table->columns = columns;
    table->leaves = leaves;
}

static size_t width_of(const char *text)
{
    return tally_text_columns(text, strlen(text));
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

/* Writes the words of a cell that begins at column `begin`, over as many lines as needed. */
static enum tally_status put_wrapped(struct tally_buffer *out, const char *cell, size_t begin,
                                     int columns, size_t owed)
{
    enum tally_status status = put_spaces(out, owed);
    size_t at = begin;
    while (*cell != '\0' && status == TALLY_OK) {
        const size_t n_gap = strspn(cell, " "), n_word = strcspn(cell + n_gap, " ");
        const size_t width = n_gap + tally_text_columns(cell + n_gap, n_word);
        if (at > begin && at + width > (size_t)columns) {
            status = tally_buffer_append_text(out, "\n");
            status = status == TALLY_OK ? put_spaces(out, begin) : status;
            at = begin + width - n_gap;
        } else {
            status = put_spaces(out, n_gap);
            at += width;
        }
        status = status == TALLY_OK ? tally_buffer_append(out, cell + n_gap, n_word) : status;
        cell += n_gap + n_word;
    }
    return status;
}

/* Width of the columns before `end`, with the gaps behind them. */
static size_t width_before(const size_t *widths, size_t end)
{
    size_t width = 0;
    for (size_t c = 0; c < end; c++) {
        width += widths[c] != LEFT_OUT ? widths[c] + GAP : 0;
    }
    return width;
}

static void leave_out(const struct tally_text_table *table, size_t *widths, size_t n_columns)
{
    const char *next = table->leaves != NULL ? table->leaves : "";
    while (*next != '\0' && width_before(widths, n_columns) > (size_t)table->columns + GAP) {
        widths[*next++ - 'a'] = LEFT_OUT;
    }
}

static enum tally_status render(const struct tally_text_table *table, const size_t *widths,
                                size_t n_columns, struct tally_buffer *out)
{
    enum tally_status status = TALLY_OK;
    size_t owed = 0;
    for (size_t i = 0; i < table->n_cells && status == TALLY_OK; i++) {
        const size_t c = i % n_columns;
        const char *cell = table->cells[i];
        if (table->alignment[c] == 'w' && table->columns > 0 && cell[0] != '\0') {
            status = put_wrapped(out, cell, width_before(widths, c), table->columns, owed);
        } else if (widths[c] != LEFT_OUT) {
            status = put_cell(out, cell, widths[c], table->alignment[c] == 'r', &owed);
        }
        if (c + 1 == n_columns && status == TALLY_OK) {
            status = tally_buffer_append_text(out, "\n");
            owed = 0;
        }
    }
    return status;
}

enum tally_status tally_text_table_end(struct tally_text_table *table, struct tally_buffer *out)
{
    const size_t n_columns = strlen(table->alignment);
    size_t *widths = calloc(n_columns, sizeof *widths);
    enum tally_status status = widths == NULL || table->failed ? TALLY_NO_MEMORY : TALLY_OK;
    for (size_t c = 0; c < n_columns && status == TALLY_OK; c++) {
        widths[c] = column_width(table, c);
    }
    if (status == TALLY_OK) {
        if (table->columns > 0) {
            leave_out(table, widths, n_columns);
        }
        status = render(table, widths, n_columns, out);
    }
    free(widths);
    for (size_t i = 0; i < table->n_cells; i++) {
        free(table->cells[i]);
    }
    free(table->cells);
    return status;
}
