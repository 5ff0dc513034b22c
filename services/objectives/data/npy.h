/* npy: arrays in NumPy's .npy format (NEP 1), versions 1.0 to 3.0.
 *
 * The arrays may hold little-endian integers and floats; an error names any other type. A vector's
 * file must have the length that its header says. npy_data.c reads larger files as a stream. */
#ifndef TALLY_SERVICES_OBJECTIVES_DATA_NPY_H
#define TALLY_SERVICES_OBJECTIVES_DATA_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/buffer.h"
#include "codec/error.h"

enum tally_npy_type {
    TALLY_NPY_INT8,
    TALLY_NPY_INT16,
    TALLY_NPY_INT32,
    TALLY_NPY_INT64,
    TALLY_NPY_UINT8,
    TALLY_NPY_UINT16,
    TALLY_NPY_UINT32,
    TALLY_NPY_UINT64,
    TALLY_NPY_FLOAT16,
    TALLY_NPY_FLOAT32,
    TALLY_NPY_FLOAT64,
    TALLY_NPY_N_TYPES
};

size_t tally_npy_type_bytes(enum tally_npy_type type);
/* As in the header: "<f4". */
const char *tally_npy_type_name(enum tally_npy_type type);

/* The parsed header. */
struct tally_npy_header {
    enum tally_npy_type type;
    bool is_fortran; /* values of a column lie together */
    size_t n_dims;
    size_t shape[2]; /* of the first two */
    size_t n_values; /* of all; SIZE_MAX: more than fit */
};

/* The bytes before a header's text, and the longest text, which is NumPy's own limit. */
enum { TALLY_NPY_PREFIX_BYTES = 12, TALLY_NPY_MAX_TEXT_BYTES = 10000 };

/* The length of a file's header, from its first n bytes; n >= TALLY_NPY_PREFIX_BYTES unless the
 * file is shorter. Errors: MALFORMED. */
enum tally_status tally_npy_header_bytes(const uint8_t *bytes, size_t n, size_t *ret_n,
                                         struct tally_error *err);
/* Parses a header of n bytes, n from tally_npy_header_bytes(). Errors: MALFORMED. */
enum tally_status tally_npy_header_parse(const uint8_t *bytes, size_t n,
                                         struct tally_npy_header *ret_header,
                                         struct tally_error *err);

/* Value i of an array, little-endian at any address. False if no double equals it. */
bool tally_npy_value(enum tally_npy_type type, const uint8_t *data, size_t i, double *ret_value);

struct tally_npy {
    enum tally_npy_type type;
    size_t dim;
    const uint8_t *data; /* dim values, little-endian, at any address; borrowed */
};

/* Parses a whole file that holds a vector. Errors: MALFORMED. */
enum tally_status tally_npy_parse(const uint8_t *bytes, size_t n, struct tally_npy *ret_npy,
                                  struct tally_error *err);

/* Appends a file of dim values. Errors: TOO_LARGE, NO_MEMORY. */
enum tally_status tally_npy_append(enum tally_npy_type type, const void *values, size_t dim,
                                   struct tally_buffer *out);

#endif
