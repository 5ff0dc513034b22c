/* unary_kernels: converts blocks of 64 coordinates to bits of the `unary` encoding and back.
 * Internal to codec/, its tests and its benchmark.
 *
 * A block of n <= 64 coordinates (FORMAT.md, section 3) is made of planes:
 *
 *     plane 1       n bits, one per coordinate                          is |level| > 0?
 *     plane k + 1   one bit per coordinate with a one in plane k        is |level| > k?
 *                   ... until a plane has no ones (or no bits)
 *     signs         one bit per coordinate with level != 0              1 = negative
 *
 * so that a coordinate has |level| ones, a zero and, unless it is 0, a sign, as in plain unary
 * code, but a block takes a few operations on words of 64 bits: a plane is the mask of the
 * coordinates, compressed by the mask before it (pext), or expanded (pdep). */
#ifndef TALLY_CODEC_UNARY_UNARY_KERNELS_H
#define TALLY_CODEC_UNARY_UNARY_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "codec/error.h"
#include "codec/numeric/bits.h"
#include "codec/numeric/cpu.h"
#include "codec/quantize/quantizer_kernels.h"

enum { TALLY_UNARY_BLOCK = 64 };

/* Plain forms, for any block of 1 to 64 coordinates. They add to *nonzeros. */

void tally_unary_encode_block_ref(const int32_t *levels, size_t n, struct tally_bit_writer *writer,
                                  uint64_t *nonzeros);

/* Errors: MALFORMED (the message ends too early, a level above `top`); the error text counts from
 * coordinate `first` of `dim`. The reader's position and `levels` are then undefined. */
enum tally_status tally_unary_decode_block_ref(struct tally_bit_reader *reader, size_t first,
                                               size_t n, size_t dim, uint32_t top, int32_t *levels,
                                               uint64_t *nonzeros, struct tally_error *err);

/* Vector forms, for whole blocks in the middle of a message. They process up to n_blocks, stop at a
 * block that is not ordinary, and return the number done. The plain form takes the next block and
 * reports what is wrong with it, if anything. Not ordinary: a level of 127 or more, the last few
 * bytes of the buffer, a NaN or infinity, anything that a decoder refuses. All but count may be
 * NULL, which means 0 blocks. */
struct tally_unary_kernel {
    size_t (*encode)(const int32_t *levels, size_t n_blocks, struct tally_bit_writer *writer,
                     uint64_t *nonzeros);
    /* Quantizes and encodes, with the random words of groups `group`, ...; adds to *clipped. */
    size_t (*quantize_encode)(const struct tally_rounding *rounding, const struct tally_rng *rng,
                              uint32_t group, const float *y, size_t n_blocks,
                              struct tally_bit_writer *writer, uint64_t *nonzeros,
                              uint64_t *clipped);
    size_t (*decode)(struct tally_bit_reader *reader, size_t n_blocks, uint32_t top,
                     int32_t *levels, uint64_t *nonzeros);
    /* Adds the levels to sums[64 * n_blocks]. */
    size_t (*accumulate)(struct tally_bit_reader *reader, size_t n_blocks, uint32_t top,
                         int64_t *sums, uint64_t *nonzeros);
    /* Decodes one block of n <= 64 coordinates, wherever it ends, into levels[64]. False leaves it
     * to the plain form. For blocks that the two above leave: shorter ones, and the last few
     * bytes. */
    bool (*decode_last)(struct tally_bit_reader *reader, size_t n, uint32_t top, int32_t *levels,
                        uint64_t *nonzeros);
    /* Returns the sum of |level| over levels[n], any n; *ret_nonzeros: how many are not 0. */
    uint64_t (*count)(const int32_t *levels, size_t n, uint64_t *ret_nonzeros);
};

/* The plain form of count, which each file compiles for its instruction set. */
static inline uint64_t tally_unary_count(const int32_t *levels, size_t n, uint64_t *ret_nonzeros)
{
    uint64_t sum = 0, nonzeros = 0;
    for (size_t i = 0; i < n; i++) {
        sum += (uint64_t)abs(levels[i]);
        nonzeros += levels[i] != 0;
    }
    *ret_nonzeros = nonzeros;
    return sum;
}

extern const struct tally_unary_kernel TALLY_UNARY_PORTABLE, TALLY_UNARY_AVX2, TALLY_UNARY_AVX512;

/* The kernel for an instruction set that this machine has. */
const struct tally_unary_kernel *tally_unary_kernel_for(enum tally_cpu cpu);

#endif
