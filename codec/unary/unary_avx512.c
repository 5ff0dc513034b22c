/* The vector of unary_x86.h in AVX-512: one register, and the processor's own masks. */
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#include "codec/quantize/quantizer_avx512.h"

struct bytes {
    __m512i v;
};

static inline struct bytes bytes_zero(void)
{
    return (struct bytes){_mm512_setzero_si512()};
}

/* 64 x int32 to int8, saturated. */
static inline __m512i pack(__m512i a, __m512i b, __m512i c, __m512i d)
{
    /* Packing works within 128 bits; this transposes the 4 x 4 groups of four that it leaves. */
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_epi32(
        order, _mm512_packs_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d)));
}

static inline __m512i pack_from(const void *at)
{
    const int32_t *words = at;
    return pack(_mm512_loadu_si512(words), _mm512_loadu_si512(words + 16),
                _mm512_loadu_si512(words + 32), _mm512_loadu_si512(words + 48));
}

static inline struct bytes bytes_of_levels(const int32_t *levels)
{
    return (struct bytes){pack_from(levels)};
}

static inline struct bytes bytes_magnitude(struct bytes x)
{
    return (struct bytes){_mm512_min_epu8(_mm512_abs_epi8(x.v), _mm512_set1_epi8(127))};
}

static inline bool bytes_of_group(const struct tally_quantize_constants *constants,
                                  const struct tally_philox_common *common, uint32_t group,
                                  const float *y, struct bytes *ret_magnitude,
                                  uint64_t *ret_negative, uint64_t *clipped)
{
    __m512i m[4];
    if (round_group(constants, common, group, y, m, clipped) != TALLY_RNG_LANES) {
        return false;
    }
    *ret_magnitude = (struct bytes){pack(m[0], m[1], m[2], m[3])};
    *ret_negative = _mm512_movepi8_mask(pack_from(y)); /* saturation keeps the sign */
    return true;
}

static inline uint64_t bytes_above(struct bytes x, int k)
{
    return _mm512_cmpgt_epi8_mask(x.v, _mm512_set1_epi8((char)k));
}

static inline uint64_t bytes_negative(struct bytes x)
{
    return _mm512_movepi8_mask(x.v);
}

static inline struct bytes bytes_increment(struct bytes x, uint64_t mask)
{
    return (struct bytes){_mm512_mask_sub_epi8(x.v, mask, x.v, _mm512_set1_epi8(-1))};
}

static inline struct bytes bytes_negate(struct bytes x, uint64_t mask)
{
    return (struct bytes){_mm512_mask_sub_epi8(x.v, mask, _mm512_setzero_si512(), x.v)};
}

static inline void bytes_store(struct bytes x, int32_t *levels)
{
    int8_t each[64];
    _mm512_storeu_si512(each, x.v);
    for (int i = 0; i < 64; i += 16) {
        const __m128i part = _mm_loadu_si128((const __m128i *)(const void *)(each + i));
        _mm512_storeu_si512(levels + i, _mm512_cvtepi8_epi32(part));
    }
}

static inline void bytes_add(struct bytes x, int64_t *sums)
{
    int8_t each[64];
    _mm512_storeu_si512(each, x.v);
    for (int i = 0; i < 64; i += 8) {
        const __m512i part =
            _mm512_cvtepi8_epi64(_mm_loadl_epi64((const __m128i *)(const void *)(each + i)));
        _mm512_storeu_si512(sums + i, _mm512_add_epi64(_mm512_loadu_si512(sums + i), part));
    }
}

#include "codec/unary/unary_x86.h"

const struct tally_unary_kernel TALLY_UNARY_AVX512 = {
    .encode = encode_blocks,
    .quantize_encode = quantize_encode_blocks,
    .decode = decode_blocks,
    .accumulate = accumulate_blocks,
    .decode_last = decode_last,
    .count = tally_unary_count,
};
