/* The rounding of quantizer.c, sixteen coordinates at a time, a group of 64 in one go. */
#include <immintrin.h>

#include "codec/quantizer_x86.h"

enum { ROUNDS = 7, GROUP = TALLY_RNG_LANES };

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
    return _mm512_mask_blend_epi32(0xAAAA, even, _mm512_slli_epi64(odd, 32));
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
    __m512 inverse_step, radius;
    __m512i top;
};

/* Sixteen levels; the lanes outside the range, NaN among them, come back in *ret_outside. */
static inline __m512i round_lanes(const struct tally_quantize_constants *k, __m512 y, __m512i words,
                                  __mmask16 *ret_outside)
{
    const __m512 magnitude = _mm512_abs_ps(y);
    *ret_outside = _mm512_cmp_ps_mask(magnitude, k->radius, _CMP_NLE_UQ);
    const __m512 scaled = _mm512_mul_ps(magnitude, k->inverse_step);
    const __m512i whole = _mm512_cvttps_epi32(scaled);
    const __m512 fraction = _mm512_sub_ps(scaled, _mm512_cvtepi32_ps(whole));
    const __m512i threshold = _mm512_cvttps_epu32(_mm512_mul_ps(fraction, _mm512_set1_ps(0x1p32f)));
    const __mmask16 is_up = _mm512_cmplt_epu32_mask(words, threshold);
    const __m512i level = _mm512_mask_sub_epi32(whole, is_up, whole, _mm512_set1_epi32(-1));
    return _mm512_min_epi32(level, k->top);
}

static inline __m512i with_sign_of(__m512 y, __m512i level)
{
    const __mmask16 negative = _mm512_movepi32_mask(_mm512_castps_si512(y));
    return _mm512_mask_sub_epi32(level, negative, _mm512_setzero_si512(), level);
}

static inline size_t quantize_group(const struct tally_quantize_constants *k,
                                    const struct tally_philox_common *common, uint32_t group,
                                    const float *y, int32_t *levels, uint64_t *clipped)
{
    __m512i words[4], rounded[4];
    __m512 input[4];
    __mmask16 outside[4];
    lanes(common, group, words);
    for (int v = 0; v < 4; v++) {
        input[v] = _mm512_loadu_ps(y + 16 * v);
        rounded[v] = round_lanes(k, input[v], words[v], &outside[v]);
    }
    if (__builtin_expect((outside[0] | outside[1] | outside[2] | outside[3]) != 0, 0)) {
        const size_t bad = tally_find_not_finite(y);
        if (bad < GROUP) {
            return bad;
        }
        for (int v = 0; v < 4; v++) {
            rounded[v] = _mm512_mask_mov_epi32(rounded[v], outside[v], k->top);
            *clipped += (uint64_t)__builtin_popcount(outside[v]);
        }
    }
    for (int v = 0; v < 4; v++) {
        _mm512_storeu_si512(levels + 16 * v, with_sign_of(input[v], rounded[v]));
    }
    return GROUP;
}

size_t tally_quantize_avx512(const struct tally_rounding *rounding, const struct tally_rng *rng,
                             uint32_t group, const float *y, size_t n, int32_t *levels,
                             uint64_t *clipped)
{
    const struct tally_quantize_constants k = {.inverse_step =
                                                   _mm512_set1_ps(rounding->inverse_step),
                                               .radius = _mm512_set1_ps(rounding->radius),
                                               .top = _mm512_set1_epi32(rounding->top)};
    return tally_quantize_groups(quantize_group, &k, rng, group, y, n, levels, clipped);
}
