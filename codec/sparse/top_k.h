/* top_k: the k coordinates of a vector that are largest in magnitude, as float32 (Alistarh,
 * Hoefler, Johansson, Konstantinov, Khirirat, Renggli, "The Convergence of Sparsified Gradient
 * Methods", NeurIPS 2018).
 *
 *     C(v)_i = v_i where |v_i| is among the k largest, else 0      |C(v) - v|^2 <= (1 - k/d) |v|^2
 *
 *     | k float32 values, in the order of the indices | their indices (index_set.h) |
 *
 * formula = k (32 + ceil(log2 d)), which is what the literature counts; payload is 32 k plus the
 * length of the set's code. Among coordinates of equal magnitude the lowest indices are taken, so
 * each vector has exactly one message.
 *
 * Example: d = 10, k = 3, v = (0, -3, 1, 0, 3, 2, 0, -2, 1, 0): the values -3, 3, 2 and their
 * indices 1, 4, 5 in 96 + 7 bits (FORMAT.md, section 4.1). */
#ifndef TALLY_CODEC_SPARSE_TOP_K_H
#define TALLY_CODEC_SPARSE_TOP_K_H

#include <stddef.h>
#include <stdint.h>

#include "codec/error.h"

/* Selects k coordinates of y (float[dim]) into ret_indices[k], ascending; 1 <= k <= dim <= 2^31.
 * Time O(dim). Errors: NOT_FINITE (names the coordinate). */
enum tally_status tally_top_k_select(const float *y, size_t dim, size_t k, uint32_t *ret_indices,
                                     struct tally_error *err);

/* k (32 + ceil(log2 dim)). */
uint64_t tally_top_k_formula_bits(size_t dim, size_t k);

/* Upper bound of the bytes of a message of k coordinates. */
size_t tally_top_k_bound(size_t dim, size_t k);

/* Writes the values, float[k], and their ascending indices below dim. Errors: OUT_OF_RANGE
 * (capacity below the bound), NOT_FINITE. */
enum tally_status tally_top_k_encode(const float *values, const uint32_t *indices, size_t dim,
                                     size_t k, uint8_t *data, size_t capacity,
                                     uint64_t *ret_payload_bits, struct tally_error *err);

/* Reads values and indices; both are undefined on failure. Errors: MALFORMED (the length, an index
 * that is too large), NOT_FINITE. */
enum tally_status tally_top_k_decode(const uint8_t *data, size_t n_bytes, uint64_t payload_bits,
                                     size_t dim, size_t k, float *values, uint32_t *indices,
                                     struct tally_error *err);

#endif
