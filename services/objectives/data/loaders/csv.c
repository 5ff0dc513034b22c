/* csv: points from comma-separated values (RFC 4180) with a header line.
 *
 * One column, named by the document, is the label; the others are the features, in their order.
 * Fields may be quoted; lines end with LF or CRLF, the last one also without; a UTF-8 byte order
 * mark is skipped, and so are empty lines. There are no comments and no missing values. */
#include "services/objectives/data/loaders/formats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/objectives/data/loaders/number.h"

/* The names of all columns together; further columns have only a number. */
enum { MAX_NAME_BYTES = 1 << 20 };

enum { FIELD_CAPACITY = TALLY_NUMBER_CAPACITY };

/* The column names of the header, one after the other, each with its NUL. */
struct names {
    char *text;
    size_t size, capacity;
};

struct reader {
    struct tally_data_file *file;
    struct names names;
    size_t n_columns, label; /* index of the label's column */
    char field[FIELD_CAPACITY];
};

/* What ends a field. */
enum ending { ENDS_FIELD, ENDS_LINE, ENDS_FILE, IS_WRONG };

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* What messages call column `index`: its name, or its number if it has none. */
static const char *title_of(const struct reader *reader, size_t index, char room[32])
{
    const char *at = reader->names.text, *end = at + reader->names.size;
    for (size_t i = 0; at != NULL && at < end; i++, at += strlen(at) + 1) {
        if (i == index && *at != '\0') {
            return at;
        }
    }
    snprintf(room, 32, "number %zu", index + 1);
    return room;
}

/* Appends a byte to the field. */
static bool put(struct reader *reader, size_t *n, int c)
{
    if (c == '\0') {
        tally_data_file_refuse(reader->file, "a NUL byte: is it a text file?");
        return false;
    }
    if (*n == FIELD_CAPACITY - 1) {
        reader->field[24] = '\0';
        tally_data_file_refuse(reader->file, "a field of more than %d bytes, \"%s...\"",
                               FIELD_CAPACITY - 1, reader->field);
        return false;
    }
    reader->field[(*n)++] = (char)c;
    return true;
}

/* Reads what ends a field: the separator, the end of the line or of the file. */
static enum ending read_ending(struct reader *reader)
{
    struct tally_data_file *file = reader->file;
    int c = tally_data_file_next(file);
    if (c == '\r') {
        c = tally_data_file_next(file);
        if (c != '\n') {
            tally_data_file_refuse(file, "a carriage return without a newline");
            return IS_WRONG;
        }
    }
    switch (c) {
    case ',':
        return ENDS_FIELD;
    case '\n':
        return ENDS_LINE;
    case TALLY_DATA_END:
        return file->status == TALLY_OK ? ENDS_FILE : IS_WRONG;
    default:
        tally_data_file_refuse(file, "text after a closing quote");
        return IS_WRONG;
    }
}

/* Reads the rest of a field after its opening quote. */
static bool read_quoted(struct reader *reader, size_t *n)
{
    struct tally_data_file *file = reader->file;
    for (;;) {
        const int c = tally_data_file_next(file);
        if (c == TALLY_DATA_END) {
            tally_data_file_refuse(file, "the file ends within quotes");
            return false;
        }
        if (c == '"') {
            if (tally_data_file_peek(file) != '"') {
                return true;
            }
            tally_data_file_next(file);
        }
        file->line += c == '\n';
        if (!put(reader, n, c)) {
            return false;
        }
    }
}

static bool read_bare(struct reader *reader, size_t *n)
{
    struct tally_data_file *file = reader->file;
    for (;;) {
        const int c = tally_data_file_peek(file);
        if (c == ',' || c == '\n' || c == '\r' || c == TALLY_DATA_END) {
            return true;
        }
        tally_data_file_next(file);
        if (c == '"') {
            tally_data_file_refuse(file, "a quote within a field that does not begin with one");
            return false;
        }
        /* Blanks around a field are dropped. */
        if ((*n > 0 || !is_blank((char)c)) && !put(reader, n, c)) {
            return false;
        }
    }
}

/* Reads a field and what ends it. */
static enum ending read_field(struct reader *reader)
{
    size_t n = 0;
    const bool is_quoted = tally_data_file_peek(reader->file) == '"';
    if (is_quoted) {
        tally_data_file_next(reader->file);
    }
    if (!(is_quoted ? read_quoted(reader, &n) : read_bare(reader, &n))) {
        return IS_WRONG;
    }
    while (!is_quoted && n > 0 && is_blank(reader->field[n - 1])) {
        n--;
    }
    reader->field[n] = '\0';
    return read_ending(reader);
}

/* Header. */

static bool keep_name(struct reader *reader)
{
    struct names *names = &reader->names;
    const size_t n = strlen(reader->field) + 1;
    if (names->size + n > MAX_NAME_BYTES) {
        return true;
    }
    if (names->size + n > names->capacity) {
        const size_t capacity = 2 * (names->size + n);
        char *text = realloc(names->text, capacity);
        if (text == NULL) {
            return false;
        }
        names->text = text;
        names->capacity = capacity;
    }
    memcpy(names->text + names->size, reader->field, n);
    names->size += n;
    return true;
}

static void skip_byte_order_mark(struct tally_data_file *file)
{
    static const uint8_t mark[3] = {0xEF, 0xBB, 0xBF};
    if (tally_data_file_peek(file) == mark[0] && file->n - file->at >= sizeof mark &&
        memcmp(file->window + file->at, mark, sizeof mark) == 0) {
        file->at += sizeof mark;
    }
}

/* No column has the label's name: the message lists the columns. */
static enum tally_status refuse_header(struct reader *reader, const char *label)
{
    const bool is_other = reader->n_columns == 1 && reader->names.text != NULL &&
                          strpbrk(reader->names.text, ";\t") != NULL;
    if (is_other) {
        return tally_data_file_refuse(reader->file,
                                      "one column only; columns must be separated by commas");
    }
    char list[120], room[32];
    size_t length = 0;
    for (size_t i = 0; i < reader->n_columns && length < sizeof list; i++) {
        const int n = snprintf(list + length, sizeof list - length, "%s%s", i > 0 ? ", " : "",
                               title_of(reader, i, room));
        length += (size_t)n;
    }
    return tally_data_file_refuse(reader->file, "no column \"%.40s\", only %s%s", label, list,
                                  length >= sizeof list ? "..." : "");
}

static enum tally_status read_header(struct reader *reader, const char *label, size_t features)
{
    struct tally_data_file *file = reader->file;
    bool has_label = false;
    enum ending ending = ENDS_FIELD;
    skip_byte_order_mark(file);
    if (tally_data_file_peek(file) == TALLY_DATA_END) {
        return tally_data_file_refuse(file, "the file is empty: there is no header");
    }
    for (; ending == ENDS_FIELD; reader->n_columns++) {
        ending = read_field(reader);
        if (ending == IS_WRONG) {
            return file->status;
        }
        if (strcmp(reader->field, label) == 0) {
            if (has_label) {
                return tally_data_file_refuse(file, "two columns \"%.40s\"", label);
            }
            has_label = true;
            reader->label = reader->n_columns;
        }
        if (!keep_name(reader)) {
            return tally_fail(file->err, TALLY_NO_MEMORY, NULL, "no memory for the header of %s",
                              file->name);
        }
    }
    if (!has_label) {
        return refuse_header(reader, label);
    }
    if (reader->n_columns != features + 1) {
        return tally_data_file_refuse(file,
                                      "%zu columns beside the label \"%.40s\", but features is %zu",
                                      reader->n_columns - 1, label, features);
    }
    file->line++;
    return TALLY_OK;
}

/* Points. */

static enum tally_status read_point(struct reader *reader, struct tally_dataset_builder *builder)
{
    struct tally_data_file *file = reader->file;
    char room[32];
    double value = 0, label = 0;
    for (size_t i = 0; i < reader->n_columns; i++) {
        const enum ending ending = read_field(reader);
        if (ending == IS_WRONG) {
            return file->status;
        }
        if (i == 0 && ending != ENDS_FIELD && reader->field[0] == '\0') {
            break; /* an empty line */
        }
        const bool is_last = i + 1 == reader->n_columns;
        if (is_last != (ending != ENDS_FIELD)) {
            return is_last ? tally_data_file_refuse(file, "more than the header's %zu columns",
                                                    reader->n_columns)
                           : tally_data_file_refuse(file, "%zu columns, not the header's %zu",
                                                    i + 1, reader->n_columns);
        }
        const char *why = tally_number_parse(reader->field, i == reader->label ? &label : &value);
        if (why != NULL) {
            return tally_data_file_refuse(file, "column %.40s: \"%.24s\" %s",
                                          title_of(reader, i, room), reader->field, why);
        }
        enum tally_status status =
            i != reader->label ? tally_builder_value(builder, file, 0, value) : TALLY_OK;
        if (status == TALLY_OK && is_last) {
            status = tally_builder_point(builder, file, label);
        }
        if (status != TALLY_OK) {
            return status;
        }
    }
    file->line++;
    return TALLY_OK;
}

enum tally_status tally_csv_read(struct tally_data_file *file, const char *label, size_t features,
                                 struct tally_dataset_builder *builder)
{
    struct reader reader = {.file = file};
    file->place = TALLY_DATA_LINE;
    file->line = 1;
    enum tally_status status = read_header(&reader, label, features);
    while (status == TALLY_OK && tally_data_file_peek(file) != TALLY_DATA_END) {
        status = read_point(&reader, builder);
    }
    free(reader.names.text);
    return status == TALLY_OK ? file->status : status;
}
