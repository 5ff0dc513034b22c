/* quantizer_avx2: the rounding of quantizer.c, eight coordinates at a time, a group of 64 in one
 * go. */
#ifndef TALLY_CODEC_QUANTIZE_QUANTIZER_AVX2_H
#define TALLY_CODEC_QUANTIZE_QUANTIZER_AVX2_H

#include <float.h>
#include <immintrin.h>

#include "codec/quantize/quantizer_x86.h"

enum { ROUNDS = 7, WIDTH = 8, N_VECTORS = TALLY_RNG_LANES / WIDTH };

/* Four blocks, one per 64-bit lane; the high halves are arbitrary. */
struct blocks {
    __m256i c0, c1, c2, c3;
};

static inline __m256i set1(uint32_t word)
{
    return _mm256_set1_epi32((int)word);
}

static inline __m256i xor3(__m256i a, __m256i b, __m256i c)
{
    return _mm256_xor_si256(_mm256_xor_si256(a, b), c);
}

static inline struct blocks philox(const struct tally_philox_common *common, __m256i counter)
{
    const __m256i m0 = set1(TALLY_PHILOX_M0), m1 = set1(TALLY_PHILOX_M1);
    const __m256i first = _mm256_mul_epu32(counter, m0);
    const __m256i c2 = _mm256_xor_si256(_mm256_srli_epi64(first, 32), set1(common->c2_round1));
    const __m256i second = _mm256_mul_epu32(c2, m1);
    struct blocks b = {
        .c0 = _mm256_xor_si256(_mm256_srli_epi64(second, 32), set1(common->c0_round2)),
        .c1 = second,
        .c2 = _mm256_xor_si256(first, set1(common->c2_round2)),
        .c3 = set1(common->c3_round2),
    };
    for (int i = 2; i < ROUNDS; i++) {
        const __m256i p0 = _mm256_mul_epu32(b.c0, m0), p1 = _mm256_mul_epu32(b.c2, m1);
        b.c0 = xor3(_mm256_srli_epi64(p1, 32), b.c1, set1(common->k0[i]));
        b.c1 = p1;
        b.c2 = xor3(_mm256_srli_epi64(p0, 32), b.c3, set1(common->k1[i]));
        b.c3 = p0;
    }
    return b;
}

/* Low halves of both: lane 0 of `even`, lane 0 of `odd`, lane 1 of `even`, ... */
static inline __m256i interleave(__m256i even, __m256i odd)
{
    return _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
}

static inline void lanes(const struct tally_philox_common *common, uint32_t group,
                         __m256i words[N_VECTORS])
{
    for (uint32_t half = 0; half < 2; half++) {
        const __m256i counter =
            _mm256_add_epi32(set1(group * 16 + 8 * half), _mm256_set_epi64x(6, 4, 2, 0));
        const struct blocks even = philox(common, counter);
        const struct blocks odd = philox(common, _mm256_add_epi32(counter, set1(1)));
        words[half] = interleave(even.c0, odd.c0);
        words[2 + half] = interleave(even.c1, odd.c1);
        words[4 + half] = interleave(even.c2, odd.c2);
        words[6 + half] = interleave(even.c3, odd.c3);
    }
}

struct tally_quantize_constants {
    __m256 inverse_step, near_top, radius;
    __m256i top;
};

static inline struct tally_quantize_constants constants_of(const struct tally_rounding *rounding)
{
    return (struct tally_quantize_constants){.inverse_step = _mm256_set1_ps(rounding->inverse_step),
                                             .near_top = _mm256_set1_ps(tally_near_top(rounding)),
                                             .radius = _mm256_set1_ps(rounding->radius),
                                             .top = _mm256_set1_epi32(rounding->top)};
}

static inline __m256 magnitude_of(__m256 y)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), y);
}

/* All ones where words < trunc(fraction * 2^32), unsigned. Conversion and comparison are signed:
 * thresholds from 2^31 on are converted less 2^31, and both sides are compared with the top bit
 * flipped. Subtracting 2^31 already flips it. */
static inline __m256i below_fraction(__m256i words, __m256 fraction)
{
    const __m256i top_bit = set1(0x80000000u);
    const __m256 middle = _mm256_set1_ps(0x1p31f);
    const __m256 scaled = _mm256_mul_ps(fraction, _mm256_set1_ps(0x1p32f));
    const __m256 is_high = _mm256_cmp_ps(scaled, middle, _CMP_GE_OQ);
    const __m256i low = _mm256_cvttps_epi32(_mm256_sub_ps(scaled, _mm256_and_ps(is_high, middle)));
    const __m256i flipped =
        _mm256_xor_si256(low, _mm256_andnot_si256(_mm256_castps_si256(is_high), top_bit));
    return _mm256_cmpgt_epi32(flipped, _mm256_xor_si256(words, top_bit));
}

/* Eight |levels|; *ret_high marks the lanes near the top and beyond, including NaN. */
static inline __m256i round_lanes(const struct tally_quantize_constants *k, __m256 y, __m256i words,
                                  __m256 *ret_high)
{
    const __m256 scaled = _mm256_mul_ps(magnitude_of(y), k->inverse_step);
    *ret_high = _mm256_cmp_ps(scaled, k->near_top, _CMP_NLT_UQ);
    const __m256i whole = _mm256_cvttps_epi32(scaled);
    const __m256 fraction = _mm256_sub_ps(scaled, _mm256_cvtepi32_ps(whole));
    return _mm256_sub_epi32(whole, below_fraction(words, fraction));
}

/* Corrects the lanes that round_lanes() leaves wrong. Returns as round_group(). */
static inline size_t mend_group(const struct tally_quantize_constants *k, const float *y,
                                __m256i magnitudes[N_VECTORS], uint64_t *clipped)
{
    for (int v = 0; v < N_VECTORS; v++) {
        const __m256 size = magnitude_of(_mm256_loadu_ps(y + WIDTH * v));
        const __m256 bad = _mm256_cmp_ps(size, _mm256_set1_ps(FLT_MAX), _CMP_NLE_UQ);
        if (_mm256_movemask_ps(bad) != 0) {
            return tally_find_not_finite(y);
        }
        const __m256 outside = _mm256_cmp_ps(size, k->radius, _CMP_GT_OQ);
        /* Values that no int32 can hold were converted to 2^31. */
        const __m256i level = _mm256_min_epu32(magnitudes[v], k->top);
        magnitudes[v] = _mm256_blendv_epi8(level, k->top, _mm256_castps_si256(outside));
        *clipped += (uint64_t)__builtin_popcount((unsigned)_mm256_movemask_ps(outside));
    }
    return TALLY_RNG_LANES;
}

/* The |levels| of y[64]. Returns 64, or the index of the first coordinate that is not finite. */
static inline size_t round_group(const struct tally_quantize_constants *k,
                                 const struct tally_philox_common *common, uint32_t group,
                                 const float *y, __m256i ret_magnitudes[N_VECTORS],
                                 uint64_t *clipped)
{
    __m256i words[N_VECTORS];
    __m256 high[N_VECTORS], any = _mm256_setzero_ps();
    lanes(common, group, words);
    for (int v = 0; v < N_VECTORS; v++) {
        ret_magnitudes[v] = round_lanes(k, _mm256_loadu_ps(y + WIDTH * v), words[v], &high[v]);
        any = _mm256_or_ps(any, high[v]);
    }
    if (__builtin_expect(_mm256_movemask_ps(any) != 0, 0)) {
        return mend_group(k, y, ret_magnitudes, clipped);
    }
    return TALLY_RNG_LANES;
}

#endif
