/* npy: arrays in NumPy's .npy format (NEP 1), versions 1.0 to 3.0.
 *
 * Read are arrays of little-endian integers and floats; everything else is refused by name, as is a
 * vector whose file is longer or shorter than its header says. Larger files are read as a stream by
 * npy_data.h. */
#ifndef TALLY_SERVICES_OBJECTIVES_DATA_LOADERS_NPY_H
#define TALLY_SERVICES_OBJECTIVES_DATA_LOADERS_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/base/buffer.h"
#include "codec/base/error.h"

enum tally_npy_type {
    TALLY_NPY_INT8,
    TALLY_NPY_INT16,
    TALLY_NPY_INT32,
    TALLY_NPY_INT64,
    TALLY_NPY_UINT8,
    TALLY_NPY_UINT16,
    TALLY_NPY_UINT32,
    TALLY_NPY_UINT64,
    TALLY_NPY_FLOAT32,
    TALLY_NPY_FLOAT64,
    TALLY_NPY_N_TYPES
};

size_t tally_npy_type_bytes(enum tally_npy_type type);

/* What stands before the values. */
struct tally_npy_header {
    enum tally_npy_type type;
    bool is_fortran; /* values of a column lie together */
    size_t n_dims;
    size_t shape[2]; /* of the first two */
};

/* Bytes in front of a header's text, and the most that a text may have: what NumPy itself reads. */
enum { TALLY_NPY_PREFIX_BYTES = 12, TALLY_NPY_MAX_TEXT_BYTES = 10000 };

/* From the first n bytes of a file, n >= TALLY_NPY_PREFIX_BYTES unless the file is shorter: how
 * many bytes its header has in all. Errors: MALFORMED. */
enum tally_status tally_npy_header_bytes(const uint8_t *bytes, size_t n, size_t *ret_n,
                                         struct tally_error *err);
/* Reads a header of n bytes, n as told. Errors: MALFORMED. */
enum tally_status tally_npy_header_parse(const uint8_t *bytes, size_t n,
                                         struct tally_npy_header *ret_header,
                                         struct tally_error *err);

/* Value i of an array, little-endian at any address. False if it is an integer that no double is.
 */
bool tally_npy_value(enum tally_npy_type type, const uint8_t *data, size_t i, double *ret_value);

struct tally_npy {
    enum tally_npy_type type;
    size_t dim;
    const uint8_t *data; /* dim values, little-endian, at any address; borrowed */
};

/* Reads a whole file that is a vector. Errors: MALFORMED. */
enum tally_status tally_npy_parse(const uint8_t *bytes, size_t n, struct tally_npy *ret_npy,
                                  struct tally_error *err);

/* Appends a file of dim values. Errors: TOO_LARGE, NO_MEMORY. */
enum tally_status tally_npy_append(enum tally_npy_type type, const void *values, size_t dim,
                                   struct tally_buffer *out);

#endif
