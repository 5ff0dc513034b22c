/* The vector of unary_x86.h in AVX2: two registers, with masks made from their sign bits. */
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "codec/quantize/quantizer_avx2.h"

struct bytes {
    __m256i low, high;
};

static inline __m256i load(const void *at)
{
    return _mm256_loadu_si256((const __m256i *)at);
}

static inline struct bytes bytes_zero(void)
{
    return (struct bytes){_mm256_setzero_si256(), _mm256_setzero_si256()};
}

/* 32 x int32 to int8, saturated. Packing works within 128 bits; the permutation puts the groups of
 * four in order. */
static inline __m256i pack(const __m256i words[4])
{
    const __m256i a = _mm256_packs_epi32(words[0], words[1]);
    const __m256i b = _mm256_packs_epi32(words[2], words[3]);
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b),
                                       _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

static inline struct bytes pack_from(const void *at)
{
    __m256i words[8];
    memcpy(words, at, sizeof words);
    return (struct bytes){pack(words), pack(words + 4)};
}

static inline struct bytes bytes_of_levels(const int32_t *levels)
{
    return pack_from(levels);
}

static inline struct bytes bytes_magnitude(struct bytes x)
{
    const __m256i most = _mm256_set1_epi8(127);
    return (struct bytes){_mm256_min_epu8(_mm256_abs_epi8(x.low), most),
                          _mm256_min_epu8(_mm256_abs_epi8(x.high), most)};
}

static inline uint64_t mask_of(__m256i low, __m256i high)
{
    return (uint32_t)_mm256_movemask_epi8(low) | (uint64_t)(uint32_t)_mm256_movemask_epi8(high)
                                                     << 32;
}

static inline uint64_t bytes_above(struct bytes x, int k)
{
    const __m256i limit = _mm256_set1_epi8((char)k);
    return mask_of(_mm256_cmpgt_epi8(x.low, limit), _mm256_cmpgt_epi8(x.high, limit));
}

static inline uint64_t bytes_negative(struct bytes x)
{
    return mask_of(x.low, x.high);
}

static inline bool bytes_of_group(const struct tally_quantize_constants *constants,
                                  const struct tally_philox_common *common, uint32_t group,
                                  const float *y, struct bytes *ret_magnitude,
                                  uint64_t *ret_negative, uint64_t *clipped)
{
    __m256i m[N_VECTORS];
    if (round_group(constants, common, group, y, m, clipped) != TALLY_RNG_LANES) {
        return false;
    }
    *ret_magnitude = (struct bytes){pack(m), pack(m + 4)};
    *ret_negative = bytes_negative(pack_from(y)); /* saturation keeps the sign */
    return true;
}

/* Bytes of -1 where the mask has ones: byte i gets the byte with bit i, and keeps that bit. */
static inline __m256i spread(uint32_t mask)
{
    const __m256i source =
        _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201u);
    const __m256i each = _mm256_shuffle_epi8(_mm256_set1_epi32((int)mask), source);
    return _mm256_cmpeq_epi8(_mm256_and_si256(each, bit), bit);
}

static inline struct bytes bytes_increment(struct bytes x, uint64_t mask)
{
    return (struct bytes){_mm256_sub_epi8(x.low, spread((uint32_t)mask)),
                          _mm256_sub_epi8(x.high, spread((uint32_t)(mask >> 32)))};
}

static inline __m256i negate(__m256i x, __m256i where)
{
    return _mm256_sub_epi8(_mm256_xor_si256(x, where), where);
}

static inline struct bytes bytes_negate(struct bytes x, uint64_t mask)
{
    return (struct bytes){negate(x.low, spread((uint32_t)mask)),
                          negate(x.high, spread((uint32_t)(mask >> 32)))};
}

static inline void store_bytes(struct bytes x, int8_t each[64])
{
    _mm256_storeu_si256((__m256i *)(void *)each, x.low);
    _mm256_storeu_si256((__m256i *)(void *)(each + 32), x.high);
}

static inline void bytes_store(struct bytes x, int32_t *levels)
{
    int8_t each[64];
    store_bytes(x, each);
    for (int i = 0; i < 64; i += 8) {
        const __m128i part = _mm_loadl_epi64((const __m128i *)(const void *)(each + i));
        _mm256_storeu_si256((__m256i *)(void *)(levels + i), _mm256_cvtepi8_epi32(part));
    }
}

static inline void bytes_add(struct bytes x, int64_t *sums)
{
    int8_t each[64];
    store_bytes(x, each);
    for (int i = 0; i < 64; i += 4) {
        int32_t four;
        memcpy(&four, each + i, sizeof four);
        const __m256i part = _mm256_cvtepi8_epi64(_mm_cvtsi32_si128(four));
        _mm256_storeu_si256((__m256i *)(void *)(sums + i), _mm256_add_epi64(load(sums + i), part));
    }
}

#include "codec/unary/unary_x86.h"

const struct tally_unary_kernel TALLY_UNARY_AVX2 = {
    .encode = encode_blocks,
    .quantize_encode = quantize_encode_blocks,
    .decode = decode_blocks,
    .accumulate = accumulate_blocks,
    .decode_last = decode_last,
    .count = tally_unary_count,
};
