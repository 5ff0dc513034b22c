/* csv: points from comma-separated values (RFC 4180) with a header line.
 *
 * One column, named by the document, is the label; the others are the features, matched by name
 * with those of the job's earlier files (dataset.h). A column without a name is refused.
 * Fields may be quoted; lines end with LF or CRLF, the last one also without; a UTF-8 byte order
 * mark is skipped, and so are empty lines. There are no comments.
 *
 * An error in a value or in the number of columns does not end the reading, so that the errors of a
 * file appear together; what breaks the quoting does. */
#include "services/objectives/data/formats.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/objectives/data/number.h"

enum { FIELD_CAPACITY = TALLY_NUMBER_CAPACITY };

struct reader {
    struct tally_data_file *file;
    const char *label;             /* name of the label's column */
    size_t n_columns, label_index; /* its index; SIZE_MAX = not known yet */
    struct tally_columns own;      /* the features, until they become those of the job */
    const struct tally_columns *features;
    uint32_t *places; /* of the features in the job; NULL = the order of the file */
    double *row;      /* a point in that order */
    const struct tally_table_data *table;
    struct tally_csv_labels *labels; /* to be collected; NULL = they are read */
    bool is_unlabelled;              /* the points are to be predicted */
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
    const char *name =
        index == reader->label_index
            ? reader->label
            : tally_columns_name(reader->features, index - (index > reader->label_index ? 1 : 0));
    if (name != NULL && name[0] != '\0') {
        return name;
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

/* Writes the titles of the columns, as many as fit. */
static void list_columns(const struct reader *reader, char ret_list[120])
{
    char room[32];
    size_t length = 0;
    for (size_t i = 0; i < reader->n_columns && length < 120; i++) {
        const int n = snprintf(ret_list + length, 120 - length, "%s%s", i > 0 ? ", " : "",
                               title_of(reader, i, room));
        length += (size_t)n;
    }
    if (length >= 120) {
        memcpy(ret_list + 116, "...", sizeof "...");
    }
}

/* No column has the label's name. */
static enum tally_status refuse_header(struct reader *reader)
{
    const char *first = tally_columns_name(reader->features, 0);
    if (reader->n_columns == 1 && first != NULL && strpbrk(first, ";\t") != NULL) {
        return tally_data_file_refuse(reader->file,
                                      "one column only; columns must be separated by commas");
    }
    char list[120];
    list_columns(reader, list);
    return tally_data_file_refuse(reader->file, "no column \"%.40s\", only %s", reader->label,
                                  list);
}

static enum tally_status no_memory(const struct reader *reader)
{
    return tally_fail(reader->file->err, TALLY_NO_MEMORY, NULL, "no memory for the header of %s",
                      reader->file->name);
}

/* Reads the names. *ret_unnamed: the number, from 1, of the first column without one; 0 = none. */
static enum tally_status read_names(struct reader *reader, size_t *ret_unnamed)
{
    struct tally_data_file *file = reader->file;
    enum ending ending = ENDS_FIELD;
    *ret_unnamed = 0;
    for (; ending == ENDS_FIELD; reader->n_columns++) {
        ending = read_field(reader);
        if (ending == IS_WRONG) {
            return file->status;
        }
        if (reader->field[0] == '\0' && *ret_unnamed == 0) {
            *ret_unnamed = reader->n_columns + 1;
        }
        if (strcmp(reader->field, reader->label) != 0) {
            if (!tally_columns_add(&reader->own, reader->field)) {
                return no_memory(reader);
            }
        } else if (reader->label_index != SIZE_MAX) {
            return tally_data_file_refuse(file, "two columns \"%.40s\"", reader->label);
        } else {
            reader->label_index = reader->n_columns;
        }
    }
    return TALLY_OK;
}

/* features 0: any number from 1. */
static enum tally_status read_header(struct reader *reader, size_t features, bool may_lack_label)
{
    struct tally_data_file *file = reader->file;
    char list[120];
    size_t unnamed;
    if (tally_data_file_peek(file) == TALLY_DATA_END) {
        return tally_data_file_refuse(file, "the file is empty: there is no header");
    }
    const enum tally_status status = read_names(reader, &unnamed);
    if (status != TALLY_OK) {
        return status;
    }
    if (reader->label_index == SIZE_MAX && !may_lack_label) {
        return refuse_header(reader);
    }
    if (unnamed > 0) {
        list_columns(reader, list);
        return tally_data_file_refuse(
            file,
            "column %zu has no name (the index that pandas writes without "
            "index=False?): %s",
            unnamed, list);
    }
    const size_t n = reader->n_columns - (reader->label_index != SIZE_MAX);
    if (features > 0 && n != features) {
        return tally_data_file_refuse(file,
                                      "%zu columns beside the label \"%.40s\", but features is %zu",
                                      n, reader->label, features);
    }
    if (n == 0 || n > TALLY_DATA_MAX_FEATURES) {
        return tally_data_file_refuse(file, "%zu columns beside the label \"%.40s\", not 1 to %d",
                                      n, reader->label, (int)TALLY_DATA_MAX_FEATURES);
    }
    return TALLY_OK;
}

/* Makes the features those of the job, if this is its first file, or matches them with those. */
static enum tally_status match_columns(struct reader *reader, struct tally_columns *of_job)
{
    struct tally_columns *own = &reader->own;
    char why[200] = "";
    if (of_job->n == 0) {
        memcpy(own->file, reader->file->name, sizeof own->file);
        *of_job = *own;
        *own = (struct tally_columns){.n = 0};
        reader->features = of_job;
        return TALLY_OK;
    }
    switch (tally_columns_match(of_job, own, &reader->places, why)) {
    case TALLY_COLUMNS_EQUAL:
        return TALLY_OK;
    case TALLY_COLUMNS_REORDERED:
        assert(own->n > 1); /* fewer have no other order */
        reader->row = malloc(own->n * sizeof *reader->row);
        return reader->row != NULL ? TALLY_OK : no_memory(reader);
    case TALLY_COLUMNS_DIFFERENT:
        return tally_data_file_refuse(reader->file, "the columns %s", why);
    case TALLY_COLUMNS_NO_MEMORY:
        break;
    }
    return no_memory(reader);
}

/* Points. */

/* Takes the value of feature `i` of the file. */
static enum tally_status take_value(struct reader *reader, struct tally_dataset_builder *builder,
                                    size_t i, double value)
{
    if (reader->places == NULL) {
        return tally_builder_value(builder, reader->file, 0, value);
    }
    reader->row[reader->places[i]] = value;
    return TALLY_OK;
}

/* Ends a point: its values that take_value() has only put in order are still to be appended. */
static enum tally_status end_point(struct reader *reader, struct tally_dataset_builder *builder,
                                   double label)
{
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; reader->places != NULL && status == TALLY_OK && i < reader->own.n; i++) {
        status = tally_builder_value(builder, reader->file, 0, reader->row[i]);
    }
    return status == TALLY_OK ? tally_builder_point(builder, reader->file, label) : status;
}

/* The place of a name in a list of class names; SIZE_MAX = none. */
static size_t find_name(const char *names, const char *name)
{
    size_t i = 0;
    for (const char *at = names; at[0] != '\0'; at += strlen(at) + 1, i++) {
        if (strcmp(at, name) == 0) {
            return i;
        }
    }
    return SIZE_MAX;
}

/* Adds a label to those that were collected, in the order of their bytes. */
static bool collect(struct reader *reader)
{
    struct tally_csv_labels *labels = reader->labels;
    const char *name = reader->field;
    const size_t n_bytes = strlen(name) + 1;
    size_t at = 0;
    while (at < labels->size && strcmp(labels->names + at, name) < 0) {
        at += strlen(labels->names + at) + 1;
    }
    if (at < labels->size && strcmp(labels->names + at, name) == 0) {
        return true;
    }
    if (labels->size + n_bytes + 1 > sizeof labels->names || labels->n == TALLY_CSV_CLASSES_MOST) {
        tally_data_file_refuse(reader->file,
                               "more than %zu different labels in column %.40s; if they are "
                               "numbers, least_squares fits them; otherwise give classes",
                               labels->n, reader->label);
        return false;
    }
    memmove(labels->names + at + n_bytes, labels->names + at, labels->size - at);
    memcpy(labels->names + at, name, n_bytes);
    labels->size += n_bytes;
    labels->names[labels->size] = '\0';
    labels->n++;
    return true;
}

/* What becomes of a point, given one of its fields. */
enum point_state { POINT_IS_KEPT, POINT_IS_DROPPED, POINT_IS_WRONG };

/* Notes what is wrong with the field of column i. */
__attribute__((format(printf, 3, 4))) static enum point_state wrong(struct reader *reader, size_t i,
                                                                    const char *format, ...)
{
    char why[160], room[32];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    tally_data_file_note(reader->file, "column %.40s: \"%.24s\" %s", title_of(reader, i, room),
                         reader->field, why);
    return POINT_IS_WRONG;
}

static const char PREDICT_REMEDY[] =
    "; such a point can only be predicted if the job has \"missing\": \"mean\"";
static const char MISSING_REMEDY[] =
    "; \"missing\": \"mean\" or \"drop\" would accept a missing value";
static const char NAME_REMEDY[] =
    "; if labels are names, \"classes\": \"auto\" finds them, or list them there";

/* Reads the number in column i. may_be_name: it is a label of an objective with classes. */
static enum point_state read_number(struct reader *reader, size_t i, bool may_be_name,
                                    double *ret_value)
{
    const char *why = tally_number_parse(reader->field, ret_value);
    if (why == NULL) {
        return POINT_IS_KEPT;
    }
    const bool is_missing = tally_number_is_missing(reader->field);
    if (is_missing && reader->table->missing == TALLY_MISSING_DROP) {
        return POINT_IS_DROPPED;
    }
    if (is_missing && reader->table->missing == TALLY_MISSING_MEAN) {
        if (i != reader->label_index) {
            *ret_value = NAN;
            return POINT_IS_KEPT;
        }
        return wrong(reader, i, "is a missing label; \"missing\": \"drop\" would drop the point");
    }
    return wrong(reader, i, "%s%s", why,
                 is_missing    ? reader->is_unlabelled ? PREDICT_REMEDY : MISSING_REMEDY
                 : may_be_name ? NAME_REMEDY
                               : "");
}

static enum point_state read_label(struct reader *reader, struct tally_dataset_builder *builder,
                                   double *ret_label)
{
    const char *names = reader->table->class_names;
    const size_t class = find_name(names, reader->field);
    char fault[192];
    if (builder->is_unlabelled) {
        return POINT_IS_KEPT;
    }
    if (names[0] != '\0' && class != SIZE_MAX) {
        *ret_label = (double)class;
        tally_builder_check_label(builder, *ret_label);
        return POINT_IS_KEPT;
    }
    if ((names[0] != '\0' || reader->labels != NULL) && tally_number_is_missing(reader->field)) {
        return reader->table->missing == TALLY_MISSING_DROP
                   ? POINT_IS_DROPPED
                   : wrong(reader, reader->label_index,
                           "is a missing label; \"missing\": \"drop\" would drop the point");
    }
    if (names[0] != '\0') {
        return wrong(reader, reader->label_index, "is none of the %lld classes, %.40s, ...",
                     (long long)reader->table->classes, names);
    }
    if (reader->labels != NULL) {
        return collect(reader) ? POINT_IS_KEPT : POINT_IS_WRONG;
    }
    const enum point_state state =
        read_number(reader, reader->label_index, builder->rule != TALLY_LABELS_REAL, ret_label);
    if (state == POINT_IS_KEPT && tally_builder_label_fault(builder, *ret_label, fault)) {
        tally_data_file_note(reader->file, "%s", fault);
        return POINT_IS_WRONG;
    }
    return state;
}

/* Notes that a line has another number of columns than the header, and reads the rest of it. */
static enum tally_status refuse_line(struct reader *reader, size_t n, enum ending ending)
{
    const bool has_more = n == reader->n_columns;
    while (has_more && ending == ENDS_FIELD) {
        ending = read_field(reader);
    }
    if (ending == IS_WRONG) {
        return reader->file->status;
    }
    const bool goes_on =
        has_more ? tally_data_file_note(reader->file, "more than the header's %zu columns",
                                        reader->n_columns)
                 : tally_data_file_note(reader->file, "%zu columns, not the header's %zu", n,
                                        reader->n_columns);
    return goes_on ? TALLY_OK : reader->file->status;
}

static enum tally_status read_line(struct reader *reader, struct tally_dataset_builder *builder)
{
    struct tally_data_file *file = reader->file;
    enum point_state worst = POINT_IS_KEPT;
    double value = 0, label = builder->is_unlabelled ? NAN : 0;
    size_t n_values = 0;
    const size_t n_before = builder->n_values;
    for (size_t i = 0; i < reader->n_columns; i++) {
        const enum ending ending = read_field(reader);
        if (ending == IS_WRONG) {
            return file->status;
        }
        if (i == 0 && ending != ENDS_FIELD && reader->field[0] == '\0' &&
            (reader->n_columns > 1 || !builder->is_unlabelled)) {
            return TALLY_OK; /* an empty line */
        }
        const bool is_last = i + 1 == reader->n_columns;
        if (is_last != (ending != ENDS_FIELD)) {
            builder->n_values = n_before;
            return refuse_line(reader, i + 1, ending);
        }
        const bool is_label = i == reader->label_index;
        const enum point_state state =
            is_label ? read_label(reader, builder, &label) : read_number(reader, i, false, &value);
        worst = state > worst ? state : worst;
        enum tally_status status = file->status;
        if (status == TALLY_OK && worst == POINT_IS_KEPT && !is_label) {
            status = take_value(reader, builder, n_values++, value);
        }
        if (status == TALLY_OK && worst == POINT_IS_KEPT && is_last) {
            status = end_point(reader, builder, label);
        }
        if (status != TALLY_OK) {
            return status;
        }
    }
    if (worst != POINT_IS_KEPT) {
        builder->n_values = n_before;
    }
    return TALLY_OK;
}

/* Reads the header, and then the points if there is a builder. */
static enum tally_status read_table(struct reader *reader, size_t features,
                                    struct tally_columns *columns,
                                    struct tally_dataset_builder *builder)
{
    struct tally_data_file *file = reader->file;
    reader->is_unlabelled = builder != NULL && builder->is_unlabelled;
    file->place = TALLY_DATA_LINE;
    file->line = 1;
    tally_data_file_skip_mark(file);
    enum tally_status status = read_header(reader, features, reader->is_unlabelled);
    if (status == TALLY_OK && columns != NULL) {
        status = match_columns(reader, columns);
    }
    file->line++;
    while (status == TALLY_OK && builder != NULL && tally_data_file_peek(file) != TALLY_DATA_END) {
        status = read_line(reader, builder);
        file->line += status == TALLY_OK;
    }
    tally_columns_fini(&reader->own);
    free(reader->places);
    free(reader->row);
    return status == TALLY_OK ? tally_data_file_settle(file) : status;
}

enum tally_status tally_csv_read(struct tally_data_file *file, const struct tally_table_data *table,
                                 struct tally_columns *columns,
                                 struct tally_dataset_builder *builder)
{
    struct reader reader = {
        .file = file, .label = table->label, .label_index = SIZE_MAX, .table = table};
    reader.features = &reader.own;
    return read_table(&reader, (size_t)table->features, columns, builder);
}

enum tally_status tally_csv_survey(struct tally_data_file *file,
                                   const struct tally_table_data *table, size_t *ret_features,
                                   struct tally_csv_labels *labels)
{
    struct tally_dataset dataset = {.clients = 1};
    struct tally_dataset_builder builder = {.dataset = &dataset, .is_trial = true};
    struct reader reader = {.file = file,
                            .label = table->label,
                            .label_index = SIZE_MAX,
                            .table = table,
                            .labels = labels};
    reader.features = &reader.own;
    const enum tally_status status =
        read_table(&reader, (size_t)table->features, NULL, labels != NULL ? &builder : NULL);
    if (status == TALLY_OK) {
        *ret_features = reader.n_columns - 1;
    }
    return status;
}
