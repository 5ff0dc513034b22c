#include "services/objectives/data/npy.h"

#include <math.h>
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
    [TALLY_NPY_INT8] = {"|i1", 1},    [TALLY_NPY_INT16] = {"<i2", 2},
    [TALLY_NPY_INT32] = {"<i4", 4},   [TALLY_NPY_INT64] = {"<i8", 8},
    [TALLY_NPY_UINT8] = {"|u1", 1},   [TALLY_NPY_UINT16] = {"<u2", 2},
    [TALLY_NPY_UINT32] = {"<u4", 4},  [TALLY_NPY_UINT64] = {"<u8", 8},
    [TALLY_NPY_FLOAT16] = {"<f2", 2}, [TALLY_NPY_FLOAT32] = {"<f4", 4},
    [TALLY_NPY_FLOAT64] = {"<f8", 8},
};

/* A position in the header's text, a Python dictionary. */
struct cursor {
    const char *at, *end;
};

static void skip_blanks(struct cursor *cursor)
{
    while (cursor->at < cursor->end && strchr(" \t\n", *cursor->at) != NULL && *cursor->at != 0) {
        cursor->at++;
    }
}

/* Skips blanks, and then `c` if it is next. Returns whether it was. */
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

size_t tally_npy_type_bytes(enum tally_npy_type type)
{
    return TYPES[type].n_bytes;
}

const char *tally_npy_type_name(enum tally_npy_type type)
{
    return TYPES[type].descr;
}

/* a b, or SIZE_MAX. */
static size_t product(size_t a, size_t b)
{
    return b > 0 && a > SIZE_MAX / b ? SIZE_MAX : a * b;
}

/* Reads a shape such as "(7,)": the first two lengths, how many lengths there are, and their
 * product. */
static bool read_shape(struct cursor *cursor, size_t ret_shape[2], size_t *ret_n,
                       size_t *ret_n_values)
{
    size_t n = 0, n_values = 1;
    if (!skip(cursor, '(')) {
        return false;
    }
    while (!skip(cursor, ')')) {
        size_t length;
        if (!read_count(cursor, &length)) {
            return false;
        }
        if (n < 2) {
            ret_shape[n] = length;
        }
        n++;
        n_values = product(n_values, length);
        if (!skip(cursor, ',') && !(n > 1 && cursor->at < cursor->end && *cursor->at == ')')) {
            return false;
        }
    }
    *ret_n = n;
    *ret_n_values = n_values;
    return true;
}

struct header {
    char descr[16];
    size_t shape[2], n_dims, n_values;
    bool is_fortran;
    bool has_descr, has_order, has_shape;
};

/* Reads one "key: value" pair. A key may appear only once. */
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
        header->is_fortran = skip_word(cursor, "True");
        return header->is_fortran || skip_word(cursor, "False");
    }
    return read_shape(cursor, header->shape, &header->n_dims, &header->n_values);
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

static enum tally_status refuse(struct tally_error *err, const char *what)
{
    return tally_fail(err, TALLY_MALFORMED, NULL, "%s", what);
}

/* Bytes before the text: magic, version and a length of 2 or 4 bytes. */
static size_t prefix_bytes(const uint8_t *bytes)
{
    return MAGIC_BYTES + 2 + (bytes[MAGIC_BYTES] == 1 ? 2 : 4);
}

enum tally_status tally_npy_header_bytes(const uint8_t *bytes, size_t n, size_t *ret_n,
                                         struct tally_error *err)
{
    if (n < MAGIC_BYTES + 2 || memcmp(bytes, MAGIC, MAGIC_BYTES) != 0) {
        return refuse(err, "not a .npy file");
    }
    if (bytes[MAGIC_BYTES] < 1 || bytes[MAGIC_BYTES] > 3 || bytes[MAGIC_BYTES + 1] != 0) {
        return tally_fail(err, TALLY_MALFORMED, NULL,
                          ".npy version %d.%d is not one of 1.0, 2.0, 3.0", bytes[MAGIC_BYTES],
                          bytes[MAGIC_BYTES + 1]);
    }
    const size_t begin = prefix_bytes(bytes);
    if (n < begin) {
        return refuse(err, "the .npy file ends in its header");
    }
    size_t length = 0;
    for (size_t i = begin - MAGIC_BYTES - 2; i > 0; i--) {
        length = length << 8 | bytes[MAGIC_BYTES + 1 + i];
    }
    *ret_n = begin + length;
    return TALLY_OK;
}

enum tally_status tally_npy_header_parse(const uint8_t *bytes, size_t n,
                                         struct tally_npy_header *ret_header,
                                         struct tally_error *err)
{
    const char *text = (const char *)bytes + prefix_bytes(bytes);
    struct cursor cursor = {.at = text, .end = (const char *)bytes + n};
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
        return tally_fail(
            err, TALLY_MALFORMED, NULL,
            "dtype %s is not a little-endian integer or float of 8 to 64 bits (<f8, <f4, "
            "<f2, |i1, <i2, <i4, <i8, |u1, <u2, <u4, <u8); convert it with astype()",
            header.descr);
    }
    *ret_header = (struct tally_npy_header){.type = (enum tally_npy_type)type,
                                            .is_fortran = header.is_fortran,
                                            .n_dims = header.n_dims,
                                            .shape = {header.shape[0], header.shape[1]},
                                            .n_values = header.n_values};
    return TALLY_OK;
}

/* The largest integer below which every integer is a double. */
#define MAX_EXACT (INT64_C(1) << 53)

/* IEEE binary16: a sign, 5 bits of exponent with a bias of 15, and 10 bits of fraction. */
static double half_of(uint64_t bits)
{
    const int exponent = bits >> 10 & 0x1F, fraction = bits & 0x3FF;
    const double size = exponent == 0x1F ? (fraction == 0 ? INFINITY : NAN)
                        : exponent == 0  ? ldexp(fraction, -24)
                                         : ldexp(0x400 + fraction, exponent - 25);
    return bits >> 15 != 0 ? -size : size;
}

bool tally_npy_value(enum tally_npy_type type, const uint8_t *data, size_t i, double *ret_value)
{
    const uint8_t *at = data + i * TYPES[type].n_bytes;
    uint64_t bits = 0;
    memcpy(&bits, at, TYPES[type].n_bytes);
    const bool is_signed = type <= TALLY_NPY_INT64;
    float single;
    switch (type) {
    case TALLY_NPY_FLOAT16:
        *ret_value = half_of(bits);
        return true;
    case TALLY_NPY_FLOAT32:
        memcpy(&single, at, sizeof single);
        *ret_value = (double)single;
        return true;
    case TALLY_NPY_FLOAT64:
        memcpy(ret_value, at, sizeof *ret_value);
        return true;
    case TALLY_NPY_INT8:
    case TALLY_NPY_INT16:
    case TALLY_NPY_INT32:
    case TALLY_NPY_INT64:
    case TALLY_NPY_UINT8:
    case TALLY_NPY_UINT16:
    case TALLY_NPY_UINT32:
    case TALLY_NPY_UINT64:
    case TALLY_NPY_N_TYPES:
        break;
    }
    const unsigned unused = 64 - 8 * (unsigned)TYPES[type].n_bytes;
    if (!is_signed) {
        *ret_value = (double)bits;
        return bits <= (uint64_t)MAX_EXACT;
    }
    /* Arithmetic shift: as gcc and clang define it. */
    const int64_t value = (int64_t)(bits << unused) >> unused;
    *ret_value = (double)value;
    return value <= MAX_EXACT && value >= -MAX_EXACT;
}

enum tally_status tally_npy_parse(const uint8_t *bytes, size_t n, struct tally_npy *ret_npy,
                                  struct tally_error *err)
{
    size_t begin;
    struct tally_npy_header header;
    enum tally_status status = tally_npy_header_bytes(bytes, n, &begin, err);
    if (status == TALLY_OK && begin > n) {
        status = refuse(err, "the .npy file ends in its header");
    }
    if (status == TALLY_OK) {
        status = tally_npy_header_parse(bytes, begin, &header, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    if (header.n_dims != 1) {
        return tally_fail(err, TALLY_MALFORMED, NULL, "an array of %zu dimensions; a vector has 1",
                          header.n_dims);
    }
    const size_t n_data = n - begin, n_value = TYPES[header.type].n_bytes;
    if (header.shape[0] > n_data / n_value || n_data != header.shape[0] * n_value) {
        return tally_fail(err, TALLY_MALFORMED, NULL, "%zu bytes of data for %zu values of %zu",
                          n_data, header.shape[0], n_value);
    }
    *ret_npy =
        (struct tally_npy){.type = header.type, .dim = header.shape[0], .data = bytes + begin};
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
