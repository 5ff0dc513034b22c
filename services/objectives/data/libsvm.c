/* libsvm: points in the text format of LIBSVM and SVMlight.
 *
 *     LABEL INDEX:VALUE INDEX:VALUE ...  # comment
 *
 * Indices count from 1 and ascend within a line; a feature without an entry is 0. Lines that are
 * empty or only a comment are skipped, and so is a UTF-8 byte order mark. `qid:` (ranking) is
 * refused. */
#include "services/objectives/data/formats.h"

#include <string.h>

#include "services/objectives/data/number.h"

static bool is_blank(int c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static bool ends_line(int c)
{
    return c == '\n' || c == TALLY_DATA_END;
}

static void skip_blanks(struct tally_data_file *file)
{
    while (is_blank(tally_data_file_peek(file))) {
        tally_data_file_next(file);
    }
}

/* Skips blanks and a comment. Returns whether the line ends there. */
static bool is_line_done(struct tally_data_file *file)
{
    skip_blanks(file);
    if (tally_data_file_peek(file) == '#') {
        while (!ends_line(tally_data_file_peek(file))) {
            tally_data_file_next(file);
        }
    }
    return ends_line(tally_data_file_peek(file));
}

/* Reads up to a blank, '#', the line's end or a colon. */
static enum tally_status read_word(struct tally_data_file *file, const char *what,
                                   char ret_word[TALLY_NUMBER_CAPACITY])
{
    size_t n = 0;
    for (;;) {
        const int c = tally_data_file_peek(file);
        if (ends_line(c) || is_blank(c) || c == '#' || c == ':') {
            break;
        }
        if (n == TALLY_NUMBER_CAPACITY - 1 || c == '\0') {
            return tally_data_file_refuse(file, "%s \"%.24s%s\" %s", what, ret_word,
                                          n > 24 ? "..." : "",
                                          c == '\0' ? "has a NUL byte" : "is too long");
        }
        ret_word[n++] = (char)tally_data_file_next(file);
        ret_word[n] = '\0';
    }
    ret_word[n] = '\0';
    return file->status;
}

static enum tally_status read_label(struct tally_data_file *file, double *ret_label)
{
    char word[TALLY_NUMBER_CAPACITY] = "";
    const enum tally_status status = read_word(file, "label", word);
    if (status != TALLY_OK) {
        return status;
    }
    if (tally_data_file_peek(file) == ':') {
        return tally_data_file_refuse(file, "the line has no label before \"%.24s:\"", word);
    }
    const char *why = tally_number_parse(word, ret_label);
    return why == NULL ? TALLY_OK : tally_data_file_refuse(file, "label \"%.24s\" %s", word, why);
}

static enum tally_status read_index(struct tally_data_file *file, size_t features, uint64_t before,
                                    uint64_t *ret_index)
{
    char word[TALLY_NUMBER_CAPACITY] = "";
    const enum tally_status status = read_word(file, "index", word);
    if (status != TALLY_OK) {
        return status;
    }
    if (strcmp(word, "qid") == 0) {
        return tally_data_file_refuse(file, "qid: is for ranking, which no objective does; "
                                            "remove it");
    }
    if (tally_data_file_peek(file) != ':') {
        return tally_data_file_refuse(file, "\"%.24s\" is not INDEX:VALUE", word);
    }
    tally_data_file_next(file);
    const size_t n_digits = strspn(word, "0123456789");
    if (n_digits == 0 || word[n_digits] != '\0') {
        return tally_data_file_refuse(file, "index \"%.24s\" is not an integer", word);
    }
    uint64_t index = 0;
    for (size_t i = 0; i < n_digits && index <= features; i++) {
        index = 10 * index + (uint64_t)(word[i] - '0');
    }
    if (index > features) {
        return tally_data_file_refuse(file, "index %.24s is above features %zu", word, features);
    }
    if (index == 0) {
        return tally_data_file_refuse(file, "index 0: indices count from 1");
    }
    if (index <= before) {
        return tally_data_file_refuse(file, "index %llu does not ascend after %llu",
                                      (unsigned long long)index, (unsigned long long)before);
    }
    *ret_index = index;
    return TALLY_OK;
}

static enum tally_status read_value(struct tally_data_file *file, uint64_t index, double *ret_value)
{
    char word[TALLY_NUMBER_CAPACITY] = "";
    const enum tally_status status = read_word(file, "value", word);
    if (status != TALLY_OK) {
        return status;
    }
    const char *why = tally_data_file_peek(file) == ':' ? "is followed by another colon"
                                                        : tally_number_parse(word, ret_value);
    return why == NULL ? TALLY_OK
                       : tally_data_file_refuse(file, "value \"%.24s\" of index %llu %s", word,
                                                (unsigned long long)index, why);
}

/* Reads a line that holds a point, beginning with its label. */
static enum tally_status read_point(struct tally_data_file *file, size_t features,
                                    struct tally_dataset_builder *builder)
{
    double label = 0;
    uint64_t index = 0;
    enum tally_status status = read_label(file, &label);
    while (status == TALLY_OK && !is_line_done(file)) {
        double value = 0;
        status = read_index(file, features, index, &index);
        if (status == TALLY_OK) {
            status = read_value(file, index, &value);
        }
        if (status == TALLY_OK && value != 0) {
            status = tally_builder_value(builder, file, (uint32_t)(index - 1), value);
        }
    }
    return status == TALLY_OK ? tally_builder_point(builder, file, label) : status;
}

enum tally_status tally_libsvm_read(struct tally_data_file *file, size_t features,
                                    struct tally_dataset_builder *builder)
{
    enum tally_status status = TALLY_OK;
    file->place = TALLY_DATA_LINE;
    tally_data_file_skip_mark(file);
    for (file->line = 1; status == TALLY_OK; file->line++) {
        if (!is_line_done(file)) {
            status = read_point(file, features, builder);
        }
        if (status != TALLY_OK || tally_data_file_next(file) == TALLY_DATA_END) {
            break;
        }
    }
    return status == TALLY_OK ? file->status : status;
}
