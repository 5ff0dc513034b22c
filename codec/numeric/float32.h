/* float32: a vector as dim little-endian IEEE 754 binary32 values; 32 d bits, formula and payload.
 */
#ifndef TALLY_CODEC_NUMERIC_FLOAT32_H
#define TALLY_CODEC_NUMERIC_FLOAT32_H

#include <stddef.h>
#include <stdint.h>

#include "codec/error.h"

/* Bytes that encode() writes. */
size_t tally_float32_bound(size_t dim);

/* Writes values (float[dim]) into data[capacity]. Errors: OUT_OF_RANGE (capacity too small),
 * NOT_FINITE. */
enum tally_status tally_float32_encode(const float *values, size_t dim, uint8_t *data,
                                       size_t capacity, uint64_t *ret_payload_bits,
                                       struct tally_error *err);

/* Reads into values (float[dim]), undefined on failure. Errors: MALFORMED (not exactly 32 d bits),
 * NOT_FINITE (names the coordinate). */
enum tally_status tally_float32_decode(const uint8_t *data, size_t n_bytes, uint64_t payload_bits,
                                       size_t dim, float *values, struct tally_error *err);

#endif
