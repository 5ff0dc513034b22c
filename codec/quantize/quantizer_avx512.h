/* quantizer_avx512: the rounding of quantizer.c, sixteen coordinates at a time, a group of 64 in
 * one go. */
#ifndef TALLY_CODEC_QUANTIZE_QUANTIZER_AVX512_H
#define TALLY_CODEC_QUANTIZE_QUANTIZER_AVX512_H

#include <float.h>
#include <immintrin.h>

#include "codec/quantize/quantizer_x86.h"

enum { ROUNDS = 7 };

/* Eight blocks, one per 64-bit lane; the high halves are arbitrary. */
struct blocks {
    __m512i c0, c1, c2, c3;
};

static inline __m512i xor3(__m512i a, __m512i b, __m512i c)
{
    return _mm512_ternarylogic_epi32(a, b, c, 0x96);
}

static inline struct blocks philox(const struct tally_philox_common *common, __m512i counter)
{
    const __m512i m0 = _mm512_set1_epi64(TALLY_PHILOX_M0), m1 = _mm512_set1_epi64(TALLY_PHILOX_M1);
    const __m512i first = _mm512_mul_epu32(counter, m0);
    const __m512i c2 =
        _mm512_xor_si512(_mm512_srli_epi64(first, 32), _mm512_set1_epi32((int)common->c2_round1));
    const __m512i second = _mm512_mul_epu32(c2, m1);
    struct blocks b = {
        .c0 = _mm512_xor_si512(_mm512_srli_epi64(second, 32),
                               _mm512_set1_epi32((int)common->c0_round2)),
        .c1 = second,
        .c2 = _mm512_xor_si512(first, _mm512_set1_epi32((int)common->c2_round2)),
        .c3 = _mm512_set1_epi32((int)common->c3_round2),
    };
    for (int i = 2; i < ROUNDS; i++) {
        const __m512i p0 = _mm512_mul_epu32(b.c0, m0), p1 = _mm512_mul_epu32(b.c2, m1);
        b.c0 = xor3(_mm512_srli_epi64(p1, 32), b.c1, _mm512_set1_epi32((int)common->k0[i]));
        b.c1 = p1;
        b.c2 = xor3(_mm512_srli_epi64(p0, 32), b.c3, _mm512_set1_epi32((int)common->k1[i]));
        b.c3 = p0;
    }
    return b;
}

/* Low halves of both: lane 0 of `even`, lane 0 of `odd`, lane 1 of `even`, ... */
static inline __m512i interleave(__m512i even, __m512i odd)
{
    return _mm512_mask_shuffle_epi32(even, 0xAAAA, odd, _MM_PERM_CCAA);
}

static inline void lanes(const struct tally_philox_common *common, uint32_t group, __m512i words[4])
{
    const __m512i counter = _mm512_add_epi32(_mm512_set1_epi32((int)(group * 16)),
                                             _mm512_set_epi64(14, 12, 10, 8, 6, 4, 2, 0));
    const struct blocks even = philox(common, counter);
    const struct blocks odd = philox(common, _mm512_add_epi32(counter, _mm512_set1_epi64(1)));
    words[0] = interleave(even.c0, odd.c0);
    words[1] = interleave(even.c1, odd.c1);
    words[2] = interleave(even.c2, odd.c2);
    words[3] = interleave(even.c3, odd.c3);
}

struct tally_quantize_constants {
    __m512 inverse_step, near_top, radius;
    __m512i top;
};

static inline struct tally_quantize_constants constants_of(const struct tally_rounding *rounding)
{
    return (struct tally_quantize_constants){.inverse_step = _mm512_set1_ps(rounding->inverse_step),
                                             .near_top = _mm512_set1_ps(tally_near_top(rounding)),
                                             .radius = _mm512_set1_ps(rounding->radius),
                                             .top = _mm512_set1_epi32(rounding->top)};
}

/* Sixteen |levels|; *ret_high marks the lanes near the top and beyond, including NaN. */
static inline __m512i round_lanes(const struct tally_quantize_constants *k, __m512 y, __m512i words,
                                  __mmask16 *ret_high)
{
    const __m512 scaled = _mm512_mul_ps(_mm512_abs_ps(y), k->inverse_step);
    *ret_high = _mm512_cmp_ps_mask(scaled, k->near_top, _CMP_NLT_UQ);
    const __m512i whole = _mm512_cvttps_epi32(scaled);
    const __m512 fraction = _mm512_sub_ps(scaled, _mm512_cvtepi32_ps(whole));
    const __m512i threshold = _mm512_cvttps_epu32(_mm512_mul_ps(fraction, _mm512_set1_ps(0x1p32f)));
    const __mmask16 is_up = _mm512_cmplt_epu32_mask(words, threshold);
    return _mm512_mask_sub_epi32(whole, is_up, whole, _mm512_set1_epi32(-1));
}

/* Corrects the lanes that round_lanes() leaves wrong. Returns as round_group(). */
static inline size_t mend_group(const struct tally_quantize_constants *k, const float *y,
                                __m512i magnitudes[4], uint64_t *clipped)
{
    for (int v = 0; v < 4; v++) {
        const __m512 size = _mm512_abs_ps(_mm512_loadu_ps(y + 16 * v));
        if (_mm512_cmp_ps_mask(size, _mm512_set1_ps(FLT_MAX), _CMP_NLE_UQ) != 0) {
            return tally_find_not_finite(y);
        }
        const __mmask16 outside = _mm512_cmp_ps_mask(size, k->radius, _CMP_GT_OQ);
        /* Values that no int32 can hold were converted to 2^31. */
        const __m512i level = _mm512_min_epu32(magnitudes[v], k->top);
        magnitudes[v] = _mm512_mask_mov_epi32(level, outside, k->top);
        *clipped += (uint64_t)__builtin_popcount(outside);
    }
    return TALLY_RNG_LANES;
}

/* The |levels| of y[64]. Returns 64, or the index of the first coordinate that is not finite. */
static inline size_t round_group(const struct tally_quantize_constants *k,
                                 const struct tally_philox_common *common, uint32_t group,
                                 const float *y, __m512i ret_magnitudes[4], uint64_t *clipped)
{
    __m512i words[4];
    __mmask16 high[4];
    lanes(common, group, words);
    for (int v = 0; v < 4; v++) {
        ret_magnitudes[v] = round_lanes(k, _mm512_loadu_ps(y + 16 * v), words[v], &high[v]);
    }
    if (__builtin_expect((high[0] | high[1] | high[2] | high[3]) != 0, 0)) {
        return mend_group(k, y, ret_magnitudes, clipped);
    }
    return TALLY_RNG_LANES;
}

#endif
