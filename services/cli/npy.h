/* npy: vectors in NumPy's .npy format (NEP 1), versions 1.0 to 3.0.
 *
 * Read are one-dimensional arrays of int8, int32, float32 and float64, little-endian; everything
 * else is refused by name, as is a file that is longer or shorter than its header says. */
#ifndef TALLY_SERVICES_CLI_NPY_H
#define TALLY_SERVICES_CLI_NPY_H

#include <stddef.h>
#include <stdint.h>

#include "codec/base/buffer.h"
#include "codec/base/error.h"

enum tally_npy_type {
    TALLY_NPY_INT8,
    TALLY_NPY_INT32,
    TALLY_NPY_FLOAT32,
    TALLY_NPY_FLOAT64,
    TALLY_NPY_N_TYPES
};

struct tally_npy {
    enum tally_npy_type type;
    size_t dim;
    const uint8_t *data; /* dim values, little-endian, at any address; borrowed */
};

/* Errors: MALFORMED. */
enum tally_status tally_npy_parse(const uint8_t *bytes, size_t n, struct tally_npy *ret_npy,
                                  struct tally_error *err);

/* Appends a file of dim values. Errors: TOO_LARGE, NO_MEMORY. */
enum tally_status tally_npy_append(enum tally_npy_type type, const void *values, size_t dim,
                                   struct tally_buffer *out);

#endif
