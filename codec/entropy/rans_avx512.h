/* rans_avx512: the word exchange of rans.h for 32 states at a time. Only files that are compiled
 * for AVX-512 with VBMI2 include this.
 *
 * The states of coordinates 2 i and 2 i + 1 are in lane i of two vectors, `even` and `odd`. Once
 * `odd` is shifted by 16 and blended in, 32 of their 16-bit words are in coordinate order. */
#ifndef TALLY_CODEC_ENTROPY_RANS_AVX512_H
#define TALLY_CODEC_ENTROPY_RANS_AVX512_H

#include <immintrin.h>

#include "codec/entropy/rans.h"

/* The 16-bit lanes that belong to `odd`. */
static const uint32_t TALLY_RANS_ODD = 0xaaaaaaaa;

struct tally_rans_pair {
    __m512i even, odd;
};

/* states[32], in the order of the coordinates. */
static inline struct tally_rans_pair tally_rans_load_pair(const uint32_t *states)
{
    const __m512i low = _mm512_load_si512(states), high = _mm512_load_si512(states + 16);
    const __m512i index =
        _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i next = _mm512_add_epi32(index, _mm512_set1_epi32(1));
    return (struct tally_rans_pair){_mm512_permutex2var_epi32(low, index, high),
                                    _mm512_permutex2var_epi32(low, next, high)};
}

static inline void tally_rans_store_pair(uint32_t *states, struct tally_rans_pair pair)
{
    const __m512i low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    _mm512_store_si512(states, _mm512_permutex2var_epi32(pair.even, low, pair.odd));
    _mm512_store_si512(states + 16, _mm512_permutex2var_epi32(pair.even, high, pair.odd));
}

/* The low words of the lanes, in the order of the coordinates. */
static inline __m512i tally_rans_words(__m512i even, __m512i odd)
{
    return _mm512_mask_blend_epi16(TALLY_RANS_ODD, even, _mm512_slli_epi32(odd, 16));
}

/* tally_rans_shrink() of the states in the masks, which the caller found too large. Returns the new
 * end. */
static inline uint8_t *tally_rans_shrink_pair(struct tally_rans_pair *states, __mmask16 even_full,
                                              __mmask16 odd_full, uint8_t *end)
{
    const __m512i words = tally_rans_words(states->even, states->odd);
    const uint32_t full =
        _pdep_u32(even_full, ~TALLY_RANS_ODD) | _pdep_u32(odd_full, TALLY_RANS_ODD);
    const unsigned n = (unsigned)_mm_popcnt_u32(full);
    end -= 2 * n;
    _mm512_mask_storeu_epi16(end, _bzhi_u32(UINT32_MAX, n),
                             _mm512_maskz_compress_epi16(full, words));
    states->even = _mm512_mask_srli_epi32(states->even, even_full, states->even, 16);
    states->odd = _mm512_mask_srli_epi32(states->odd, odd_full, states->odd, 16);
    return end;
}

/* tally_rans_refill() of all states, after symbols have left them. Returns where the next word is.
 * May read 64 bytes. */
static inline const uint8_t *tally_rans_refill_pair(struct tally_rans_pair *states,
                                                    const uint8_t *data)
{
    const __m512i even = states->even, odd = states->odd;
    const __m512i lowest = _mm512_set1_epi32(TALLY_RANS_LOWEST);
    const __mmask16 even_low = _mm512_cmplt_epu32_mask(even, lowest);
    const __mmask16 odd_low = _mm512_cmplt_epu32_mask(odd, lowest);
    /* Bits 15 to 30 of each state, in the order of the coordinates. */
    const __m512i above = _mm512_mask_blend_epi16(TALLY_RANS_ODD, _mm512_srli_epi32(even, 15),
                                                  _mm512_slli_epi32(odd, 1));
    const __mmask32 low = _mm512_testn_epi16_mask(above, above);
    const __m512i words = _mm512_maskz_expand_epi16(low, _mm512_loadu_si512(data));
    states->even = _mm512_mask_or_epi32(even, even_low, _mm512_slli_epi32(even, 16),
                                        _mm512_and_si512(words, _mm512_set1_epi32(0xffff)));
    states->odd = _mm512_mask_or_epi32(odd, odd_low, _mm512_slli_epi32(odd, 16),
                                       _mm512_srli_epi32(words, 16));
    return data + 2 * (unsigned)_mm_popcnt_u32(low);
}

#endif
