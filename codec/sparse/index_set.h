/* index_set: k of the indices 0 .. d - 1 as a bit string, close to its ideal log2 C(d, k) bits.
 *
 * Idea: the gaps between ascending indices are nearly geometric, so a Golomb-Rice code fits: the
 * quotient of a gap by 2^r as ones and a zero, then its remainder in r bits. The smaller of the set
 * and its complement is written, the set if they are equally large. Both sides know d and k, and
 * hence which one it is, its number of indices n, and r. Only gaps are sent, and each set has
 * exactly one string.
 *
 *     n = min(k, d - k)     r = the smallest with 2^r >= (2 d - n + 1) / (4 (n + 1))
 *
 * where the bound is half of a gap's mean plus a quarter, near the best 2^r for a geometric gap.
 *
 * Example: d = 10, {1, 4, 5}: gaps 1, 2, 0; r = 1:   0 1   1 0 0   0 0   = 7 bits, ideal 6.9
 *
 * At most n (r + 1) + (d - n) / 2^r bits; on average within 0.2 bits per index, plus 2 bits, of the
 * ideal. DESIGN.md compares it with an arithmetic code. */
#ifndef TALLY_CODEC_SPARSE_INDEX_SET_H
#define TALLY_CODEC_SPARSE_INDEX_SET_H

#include <stddef.h>
#include <stdint.h>

#include "codec/error.h"
#include "codec/numeric/bits.h"

/* Upper bound of the bits of a set of k indices. */
uint64_t tally_index_set_bound(size_t dim, size_t k);

/* Writes k <= dim <= 2^31 ascending indices below dim. */
void tally_index_set_write(const uint32_t *indices, size_t k, size_t dim,
                           struct tally_bit_writer *writer);

/* Reads k indices into ret_indices[k], undefined on failure. Errors: MALFORMED (an index of dim or
 * more, or one that leaves no room for the others; the message ends within the set). */
enum tally_status tally_index_set_read(struct tally_bit_reader *reader, size_t dim, size_t k,
                                       uint32_t *ret_indices, struct tally_error *err);

#endif
