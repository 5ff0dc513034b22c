/* qsgd: s-level stochastic quantization relative to the vector's norm (Alistarh, Grubic, Li,
 * Tomioka, Vojnovic, "QSGD", NeurIPS 2017), and its fixed-width bit string.
 *
 * Idea: a coordinate is rounded at random to one of s + 1 shares of the norm, so that its mean is
 * exact. Unlike CEAL's quantizer it needs no range known beforehand: the message carries the norm.
 *
 *     v_i  ->  norm * sign(v_i) * level_i / s,   level_i in {0, ..., s}, E = v_i
 *
 *     | norm: float32 | sign, level: 1 + w bits | sign, level | ...     w = ceil(log2(s + 1))
 *
 * so that payload = formula = 32 + d (1 + w) for every vector, even a zero vector. The norm is
 * rounded up to float32; therefore |v_i| <= norm and the top level cannot overflow.
 *
 * Example: s = 3 (w = 2), norm 2.5, levels (0, 1, -2, 3, -3): 32 + 5 * 3 = 47 bits, in bytes
 * 00 00 20 40 50 7d (FORMAT.md, section 5). A coordinate of 1.0 is 1.2 levels: level 1 with
 * probability 0.8, level 2 with probability 0.2.
 *
 * Left out: the Elias code of the paper. Its length depends on the vector, and [1] counts fixed
 * widths. */
#ifndef TALLY_CODEC_QUANTIZE_QSGD_H
#define TALLY_CODEC_QUANTIZE_QSGD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/error.h"
#include "codec/numeric/rng.h"

enum { TALLY_QSGD_MAX_LEVELS = 32767 };

/* A quantized vector without its levels. */
struct tally_qsgd {
    uint32_t levels; /* s, 1 .. TALLY_QSGD_MAX_LEVELS */
    float norm;      /* >= 0, finite */
};

/* Quantizes y (float[dim]) to signed levels (int32[dim]), |level| <= s; coordinate i takes the word
 * that tally_rng_lanes() gives it. Errors: NOT_FINITE (a coordinate, or a norm above float32); the
 * levels are unspecified then. */
enum tally_status tally_qsgd_quantize(uint32_t s, const float *y, size_t dim,
                                      const struct tally_rng *rng, struct tally_qsgd *ret_qsgd,
                                      int32_t *levels, struct tally_error *err);

/* 32 + dim (1 + ceil(log2(s + 1))). */
uint64_t tally_qsgd_bits(uint32_t s, size_t dim);

/* Writes tally_qsgd_bits() bits. Errors: OUT_OF_RANGE (capacity too small). */
enum tally_status tally_qsgd_encode(const struct tally_qsgd *qsgd, const int32_t *levels,
                                    size_t dim, uint8_t *data, size_t capacity);

/* Adds the values of a message of s levels to fixed-point sums, int64[dim] (fixed_point.h), without
 * levels between. False, with the sums as they were, if tally_qsgd_decode() would fail or the norm
 * is above `bound`, that of the sums; also if s is above TALLY_QSGD_MAX_ADDED. */
enum { TALLY_QSGD_MAX_ADDED = 127 }; /* codes of up to a byte */
bool tally_qsgd_add(const uint8_t *data, size_t n_bytes, uint64_t payload_bits, uint32_t s,
                    size_t dim, double bound, int64_t *sums);

/* Reads a message of s levels into levels (int32[dim]), undefined on failure. Errors: MALFORMED
 * (wrong length, a level above s, a negative zero, a norm that is negative or not finite, a zero
 * norm with a nonzero level). */
enum tally_status tally_qsgd_decode(const uint8_t *data, size_t n_bytes, uint64_t payload_bits,
                                    uint32_t s, size_t dim, struct tally_qsgd *ret_qsgd,
                                    int32_t *levels, struct tally_error *err);

#endif
