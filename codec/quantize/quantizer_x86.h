/* quantizer_x86: what the vector forms of tally_quantize() have in common. The file that includes
 * it defines struct tally_quantize_constants and one function for a group of 64.
 *
 * Random words: sixteen Philox blocks differ only in their first counter word, so half of rounds 1
 * and 2 is the same for all of them and is computed once per message, here:
 *
 *     round 1   p0 = m0 * c0 differs;   p1 = m1 * c2 is common, and so are the new c0 and c1
 *     round 2   p1 = m1 * c2 differs;   p0 = m0 * c0 is common, and so is the new c3
 *
 * Blocks are in 64-bit lanes. The multiplier reads only the low halves; the high halves do not
 * matter and are cut off at the end. */
#ifndef TALLY_CODEC_QUANTIZE_QUANTIZER_X86_H
#define TALLY_CODEC_QUANTIZE_QUANTIZER_X86_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "codec/numeric/rng.h"
#include "codec/quantize/quantizer_kernels.h"

#define TALLY_PHILOX_M0 0xD2511F53u
#define TALLY_PHILOX_M1 0xCD9E8D57u

struct tally_philox_common {
    uint32_t k0[7], k1[7]; /* key of each round */
    uint32_t c2_round1;    /* round 1: c2 = hi(p0) ^ this, c3 = lo(p0) */
    uint32_t c0_round2;    /* round 2: c0 = hi(p1) ^ this, c1 = lo(p1) */
    uint32_t c2_round2;    /* round 2: c2 = c3 ^ this */
    uint32_t c3_round2;    /* round 2: c3 = this */
};

static inline struct tally_philox_common tally_philox_common_of(const struct tally_rng *rng)
{
    struct tally_philox_common common;
    for (uint32_t i = 0; i < 7; i++) {
        common.k0[i] = rng->key.word[0] + i * 0x9E3779B9u;
        common.k1[i] = rng->key.word[1] + i * 0xBB67AE85u;
    }
    const uint32_t *c = rng->counter;
    const uint64_t p1 = (uint64_t)TALLY_PHILOX_M1 * c[2];
    const uint32_t c0 = (uint32_t)(p1 >> 32) ^ c[1] ^ common.k0[0], c1 = (uint32_t)p1;
    const uint64_t p0 = (uint64_t)TALLY_PHILOX_M0 * c0;
    common.c2_round1 = c[3] ^ common.k1[0];
    common.c0_round2 = c1 ^ common.k0[1];
    common.c2_round2 = (uint32_t)(p0 >> 32) ^ common.k1[1];
    common.c3_round2 = (uint32_t)p0;
    return common;
}

/* Scaled magnitudes below this are certainly in the range and cannot round above p/2: the radius,
 * 1/step and the product are each off by at most a relative 2^-24. Only larger ones, which are
 * rare, need the exact comparison. */
static inline float tally_near_top(const struct tally_rounding *rounding)
{
    return (float)rounding->top * (1 - 0x1p-20f);
}

/* The first coordinate of a group that is not finite, or TALLY_RNG_LANES. */
static inline size_t tally_find_not_finite(const float *y)
{
    size_t i = 0;
    while (i < TALLY_RNG_LANES && __builtin_isfinite(y[i])) {
        i++;
    }
    return i;
}

/* Parameters of the grid, as vectors of the instruction set. */
struct tally_quantize_constants;

/* Rounds y[64] to levels[64] and adds to *clipped. Returns 64, or the index of the first coordinate
 * that is not finite. */
typedef size_t tally_quantize_group(const struct tally_quantize_constants *constants,
                                    const struct tally_philox_common *common, uint32_t group,
                                    const float *y, int32_t *levels, uint64_t *clipped);

/* A tally_quantize_kernel made of `quantize`. A last, partial group is done in a padded copy. */
static inline __attribute__((always_inline)) size_t
tally_quantize_groups(tally_quantize_group *quantize,
                      const struct tally_quantize_constants *constants, const struct tally_rng *rng,
                      uint32_t group, const float *y, size_t n, int32_t *levels, uint64_t *clipped)
{
    const struct tally_philox_common common = tally_philox_common_of(rng);
    size_t i = 0;
    for (; n - i >= TALLY_RNG_LANES; i += TALLY_RNG_LANES) {
        const size_t done = quantize(constants, &common, group++, y + i, levels + i, clipped);
        if (done < TALLY_RNG_LANES) {
            return i + done;
        }
    }
    if (i < n) {
        float last[TALLY_RNG_LANES] = {0};
        int32_t rounded[TALLY_RNG_LANES];
        memcpy(last, y + i, (n - i) * sizeof *y);
        const size_t done = quantize(constants, &common, group, last, rounded, clipped);
        if (done < TALLY_RNG_LANES) {
            return i + done;
        }
        memcpy(levels + i, rounded, (n - i) * sizeof *levels);
    }
    return n;
}

#endif
