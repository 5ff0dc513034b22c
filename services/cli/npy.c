#include "services/cli/npy.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "values are written as they are");

enum { MAGIC_BYTES = 6, ALIGNMENT = 64 };
static const uint8_t MAGIC[MAGIC_BYTES] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

static const struct {
    const char *descr;
    size_t n_bytes;
} TYPES[TALLY_NPY_N_TYPES] = {
    [TALLY_NPY_INT8] = {"|i1", 1},
    [TALLY_NPY_INT32] = {"<i4", 4},
    [TALLY_NPY_FLOAT32] = {"<f4", 4},
    [TALLY_NPY_FLOAT64] = {"<f8", 8},
};

/* The header's text, a Python dictionary; `at` moves on. */
struct cursor {
    const char *at, *end;
};

static void skip_blanks(struct cursor *cursor)
{
    while (cursor->at < cursor->end && strchr(" \t\n", *cursor->at) != NULL && *cursor->at != 0) {
        cursor->at++;
    }
}

/* Skips blanks and then `c`, if it is next. */
static bool skip(struct cursor *cursor, char c)
{
    skip_blanks(cursor);
    if (cursor->at == cursor->end || *cursor->at != c) {
        return false;
    }
    cursor->at++;
    return true;
}

static bool skip_word(struct cursor *cursor, const char *word)
{
    const size_t n = strlen(word);
    skip_blanks(cursor);
    if ((size_t)(cursor->end - cursor->at) < n || memcmp(cursor->at, word, n) != 0) {
        return false;
    }
    cursor->at += n;
    return true;
}

/* A text in single or double quotes, without escapes. */
static bool read_text(struct cursor *cursor, char *ret_text, size_t capacity)
{
    const char quote = skip(cursor, '\'') ? '\'' : '"';
    if (quote == '"' && !skip(cursor, '"')) {
        return false;
    }
    size_t n = 0;
    for (; cursor->at < cursor->end && *cursor->at != quote; cursor->at++) {
        if (n + 1 == capacity || *cursor->at < ' ' || *cursor->at == '\\') {
            return false;
        }
        ret_text[n++] = *cursor->at;
    }
    ret_text[n] = '\0';
    return skip(cursor, quote);
}

static bool read_count(struct cursor *cursor, size_t *ret_count)
{
    size_t count = 0, n_digits = 0;
    skip_blanks(cursor);
    for (; cursor->at < cursor->end && *cursor->at >= '0' && *cursor->at <= '9'; n_digits++) {
        const size_t digit = (size_t)(*cursor->at++ - '0');
        if (count > (SIZE_MAX - digit) / 10) {
            return false;
        }
        count = 10 * count + digit;
    }
    *ret_count = count;
    return n_digits > 0;
}

/* "(7,)"; the product is of no use, so the first length and their number. */
static bool read_shape(struct cursor *cursor, size_t *ret_first, size_t *ret_n)
{
    size_t n = 0;
    if (!skip(cursor, '(')) {
        return false;
    }
    while (!skip(cursor, ')')) {
        size_t length;
        if (!read_count(cursor, &length)) {
            return false;
        }
        *ret_first = n == 0 ? length : *ret_first;
        n++;
        if (!skip(cursor, ',') && !(n > 1 && cursor->at < cursor->end && *cursor->at == ')')) {
            return false;
        }
    }
    *ret_n = n;
    return true;
}

struct header {
    char descr[16];
    size_t first, n_dims;
    bool has_descr, has_order, has_shape;
};

/* One "key: value" of the dictionary; each key once. */
static bool read_entry(struct cursor *cursor, struct header *header)
{
    char key[16];
    if (!read_text(cursor, key, sizeof key) || !skip(cursor, ':')) {
        return false;
    }
    bool *seen = strcmp(key, "descr") == 0           ? &header->has_descr
                 : strcmp(key, "fortran_order") == 0 ? &header->has_order
                 : strcmp(key, "shape") == 0         ? &header->has_shape
                                                     : NULL;
    if (seen == NULL || *seen) {
        return false;
    }
    *seen = true;
    if (seen == &header->has_descr) {
        return read_text(cursor, header->descr, sizeof header->descr);
    }
    if (seen == &header->has_order) {
        return skip_word(cursor, "False") || skip_word(cursor, "True"); /* a vector has no order */
    }
    return read_shape(cursor, &header->first, &header->n_dims);
}

static bool read_header(struct cursor *cursor, struct header *header)
{
    if (!skip(cursor, '{')) {
        return false;
    }
    while (!skip(cursor, '}')) {
        if (!read_entry(cursor, header)) {
            return false;
        }
        if (!skip(cursor, ',')) {
            skip_blanks(cursor);
            if (cursor->at == cursor->end || *cursor->at != '}') {
                return false;
            }
        }
    }
    skip_blanks(cursor);
    return cursor->at == cursor->end && header->has_descr && header->has_order && header->has_shape;
}

/* Where the header's text begins, and its length; false if the bytes end before. */
static bool find_header(const uint8_t *bytes, size_t n, size_t *ret_begin, size_t *ret_length)
{
    const size_t n_length = n > MAGIC_BYTES && bytes[MAGIC_BYTES] == 1 ? 2 : 4;
    const size_t begin = MAGIC_BYTES + 2 + n_length;
    if (n < begin) {
        return false;
    }
    size_t length = 0;
    for (size_t i = n_length; i > 0; i--) {
        length = length << 8 | bytes[MAGIC_BYTES + 1 + i];
    }
    *ret_begin = begin;
    *ret_length = length;
    return length <= n - begin;
}

static enum tally_status refuse(struct tally_error *err, const char *what)
{
    return tally_fail(err, TALLY_MALFORMED, NULL, "%s", what);
}

enum tally_status tally_npy_parse(const uint8_t *bytes, size_t n, struct tally_npy *ret_npy,
                                  struct tally_error *err)
{
    size_t begin, length;
    if (n < MAGIC_BYTES + 2 || memcmp(bytes, MAGIC, MAGIC_BYTES) != 0) {
        return refuse(err, "not a .npy file");
    }
    if (bytes[MAGIC_BYTES] < 1 || bytes[MAGIC_BYTES] > 3 || bytes[MAGIC_BYTES + 1] != 0) {
        return tally_fail(err, TALLY_MALFORMED, NULL, ".npy version %d.%d is none of 1.0, 2.0, 3.0",
                          bytes[MAGIC_BYTES], bytes[MAGIC_BYTES + 1]);
    }
    if (!find_header(bytes, n, &begin, &length)) {
        return refuse(err, "the .npy file ends in its header");
    }
    const char *text = (const char *)bytes + begin;
    struct cursor cursor = {.at = text, .end = text + length};
    struct header header = {.n_dims = 0};
    if (!read_header(&cursor, &header)) {
        return tally_fail(err, TALLY_MALFORMED, NULL,
                          "the .npy header is not one of NumPy's, at its byte %zu",
                          (size_t)(cursor.at - text));
    }
    int type = 0;
    while (type < TALLY_NPY_N_TYPES && strcmp(header.descr, TYPES[type].descr) != 0) {
        type++;
    }
    if (type == TALLY_NPY_N_TYPES) {
        return tally_fail(err, TALLY_MALFORMED, NULL,
                          "dtype %s is none of int8 (|i1), int32 (<i4), float32 (<f4), float64 "
                          "(<f8)",
                          header.descr);
    }
    if (header.n_dims != 1) {
        return tally_fail(err, TALLY_MALFORMED, NULL, "an array of %zu dimensions; a vector has 1",
                          header.n_dims);
    }
    const size_t n_data = n - begin - length;
    if (header.first > n_data / TYPES[type].n_bytes ||
        n_data != header.first * TYPES[type].n_bytes) {
        return tally_fail(err, TALLY_MALFORMED, NULL, "%zu bytes of data for %zu values of %zu",
                          n_data, header.first, TYPES[type].n_bytes);
    }
    *ret_npy = (struct tally_npy){
        .type = (enum tally_npy_type)type, .dim = header.first, .data = bytes + begin + length};
    return TALLY_OK;
}

enum tally_status tally_npy_append(enum tally_npy_type type, const void *values, size_t dim,
                                   struct tally_buffer *out)
{
    /* Magic, version 1.0, length, then text padded with blanks so that the data are aligned. */
    char header[2 * ALIGNMENT];
    const size_t begin = MAGIC_BYTES + 4;
    memset(header, ' ', sizeof header);
    memcpy(header, MAGIC, MAGIC_BYTES);
    memcpy(header + MAGIC_BYTES, "\x01\x00\x76\x00", 4); /* 118 = 128 - 10 */
    const int length = snprintf(header + begin, sizeof header - begin,
                                "{'descr': '%s', 'fortran_order': False, 'shape': (%zu,), }",
                                TYPES[type].descr, dim);
    header[begin + (size_t)length] = ' ';
    header[sizeof header - 1] = '\n';
    enum tally_status status = tally_buffer_append(out, header, sizeof header);
    return status == TALLY_OK ? tally_buffer_append(out, values, dim * TYPES[type].n_bytes)
                              : status;
}
