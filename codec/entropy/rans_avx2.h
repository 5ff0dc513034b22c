/* rans_avx2: eight states of rans.h in a vector. AVX2 cannot compress or expand words, so pdep and
 * pext make a permutation for each mask of 8 bits. Internal to codec/entropy and codec/dithered. */
#ifndef TALLY_CODEC_ENTROPY_RANS_AVX2_H
#define TALLY_CODEC_ENTROPY_RANS_AVX2_H

#include <immintrin.h>
#include <stdint.h>

#include "codec/entropy/rans.h"

#define TALLY_RANS_IDENTITY UINT64_C(0x0706050403020100)

/* All ones in the bytes whose bit is set. */
static inline uint64_t tally_rans_bytes_of(unsigned mask)
{
    return _pdep_u64(mask, UINT64_C(0x0101010101010101)) * 0xff;
}

static inline __m256i tally_rans_widened(uint64_t bytes)
{
    return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)bytes));
}

static inline unsigned tally_rans_mask_of(__m256i ones)
{
    return (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(ones));
}

static inline __m256i tally_rans_load_eight(const uint32_t *states)
{
    return _mm256_load_si256((const __m256i *)states);
}

/* Stores the states; those below TALLY_RANS_LOWEST first take a word from `data`. Returns where the
 * next word is. May read 16 bytes. */
static inline const uint8_t *tally_rans_refill_eight(uint32_t *states, __m256i state,
                                                     const uint8_t *data)
{
    const __m256i low = _mm256_cmpgt_epi32(_mm256_set1_epi32(TALLY_RANS_LOWEST), state);
    const unsigned taken = tally_rans_mask_of(low);
    const __m256i index =
        tally_rans_widened(_pdep_u64(TALLY_RANS_IDENTITY, tally_rans_bytes_of(taken)));
    const __m256i words = _mm256_permutevar8x32_epi32(
        _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)data)), index);
    const __m256i longer = _mm256_or_si256(_mm256_slli_epi32(state, 16), words);
    _mm256_store_si256((__m256i *)states, _mm256_blendv_epi8(state, longer, low));
    return data + 2 * (unsigned)_mm_popcnt_u32(taken);
}

#endif
