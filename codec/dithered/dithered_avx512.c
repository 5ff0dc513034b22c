/* The loops of dithered_portable.c, 32 coordinates at a time: lanes of 16 bits for symbols, bins
 * and shares, the pairs of vectors of rans_avx512.h for states. A boundary between symbols is one
 * vector of its 32 bins: comparing the shares with one boundary after the other takes no gather and
 * no branch. */
#include <math.h>

#include "codec/dithered/dithered.h"
#include "codec/dithered/dithered_kernels.h"
#include "codec/dithered/dithered_passes.h"
#include "codec/entropy/rans_avx512.h"
#include "codec/quantize/quantizer_avx512.h"

enum {
    GROUP = TALLY_RANS_LANES,
    SPARE = TALLY_RANS_STATE_BITS - TALLY_DITHERED_LONG_BITS,
    TOTAL = TALLY_DITHERED_LONG_TOTAL,
};

static void make_dithers(const struct tally_rng *rng, uint32_t group, size_t n, int32_t *dithers)
{
    const struct tally_philox_common common = tally_philox_common_of(rng);
    for (size_t i = 0; i < n; i += TALLY_RNG_LANES) {
        __m512i words[4];
        lanes(&common, group++, words);
        for (int v = 0; v < 4; v++) {
            _mm512_storeu_si512(dithers + i + 16 * v, words[v]);
        }
    }
}

/* --- quantizer ------------------------------------------------------------------------------- */

/* Rounds eight coordinates, multiplying by 1 / step instead of dividing. The product is off by less
 * than 2^-30 up to the largest top, so the level is right unless the sum is that near to the middle
 * between two levels. *ret_doubtful marks those, and levels beyond the top or not finite. */
static inline __m256i round_eight(__m256 y, __m256i dithers, __m512d inverse_step, __m512d top,
                                  __mmask8 *ret_doubtful)
{
    const __m512d dither = _mm512_mul_pd(_mm512_cvtepi32_pd(dithers), _mm512_set1_pd(0x1p-32));
    const __m512d sum = _mm512_add_pd(_mm512_mul_pd(_mm512_cvtps_pd(y), inverse_step), dither);
    const __m512d level = _mm512_roundscale_pd(sum, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512d distance = _mm512_abs_pd(_mm512_sub_pd(sum, level));
    *ret_doubtful = _mm512_cmp_pd_mask(_mm512_abs_pd(level), top, _CMP_NLE_UQ) |
                    _mm512_cmp_pd_mask(distance, _mm512_set1_pd(0.5 - 0x1p-28), _CMP_NLE_UQ);
    return _mm512_cvtpd_epi32(level);
}

/* The same for sixteen coordinates in float32. The result is off by less than 2^-16 if no level is
 * above MOST_SINGLE. */
static const float MOST_SINGLE = 31;
static inline __m512i round_sixteen(__m512 y, __m512i dithers, __m512 inverse_step, __m512 top,
                                    __mmask16 *ret_doubtful)
{
    const __m512 dither = _mm512_mul_ps(_mm512_cvtepi32_ps(dithers), _mm512_set1_ps(0x1p-32F));
    const __m512 sum = _mm512_add_ps(_mm512_mul_ps(y, inverse_step), dither);
    const __m512 level = _mm512_roundscale_ps(sum, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 distance = _mm512_abs_ps(_mm512_sub_ps(sum, level));
    *ret_doubtful = _mm512_cmp_ps_mask(_mm512_abs_ps(level), top, _CMP_NLE_UQ) |
                    _mm512_cmp_ps_mask(distance, _mm512_set1_ps(0.5F - 0x1p-16F), _CMP_NLE_UQ);
    return _mm512_cvtps_epi32(level);
}

static size_t quantize_eights(const struct tally_grid *grid, const float *y, const int32_t *dithers,
                              size_t n, int32_t *levels, uint64_t *clipped)
{
    const __m512d inverse_step = _mm512_set1_pd(1 / grid->step);
    const uint32_t largest = grid->intervals / 2;
    const __m512d top = _mm512_set1_pd(largest);
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        __mmask8 doubtful;
        const __m256 here = _mm256_loadu_ps(y + i);
        const __m256i found =
            round_eight(here, _mm256_loadu_si256((const __m256i *)(const void *)(dithers + i)),
                        inverse_step, top, &doubtful);
        if (__builtin_expect(doubtful != 0, 0)) {
            const size_t done =
                TALLY_DITHERED_PORTABLE.quantize(grid, y + i, dithers + i, 8, levels + i, clipped);
            if (done < 8) {
                return i + done;
            }
        } else {
            _mm256_storeu_si256((__m256i *)(void *)(levels + i), found);
        }
    }
    return i +
           TALLY_DITHERED_PORTABLE.quantize(grid, y + i, dithers + i, n - i, levels + i, clipped);
}

static size_t quantize(const struct tally_grid *grid, const float *y, const int32_t *dithers,
                       size_t n, int32_t *levels, uint64_t *clipped)
{
    const double expected = tally_dithered_ratio(grid->scale);
    const uint32_t largest = grid->intervals / 2;
    size_t i = 0;
    if (expected > MOST_SINGLE / 8 || grid->step < 0x1p-100 || grid->step > 0x1p100) {
        return quantize_eights(grid, y, dithers, n, levels, clipped);
    }
    const __m512 inverse_step = _mm512_set1_ps((float)(1 / grid->step));
    const __m512 top = _mm512_set1_ps(fminf(MOST_SINGLE, (float)largest));
    for (; n - i >= 16; i += 16) {
        __mmask16 doubtful;
        const __m512i found = round_sixteen(_mm512_loadu_ps(y + i), _mm512_loadu_si512(dithers + i),
                                            inverse_step, top, &doubtful);
        if (__builtin_expect(doubtful != 0, 0)) {
            const size_t done = quantize_eights(grid, y + i, dithers + i, 16, levels + i, clipped);
            if (done < 16) {
                return i + done;
            }
        } else {
            _mm512_storeu_si512(levels + i, found);
        }
    }
    return i + quantize_eights(grid, y + i, dithers + i, n - i, levels + i, clipped);
}

/* --- symbols --------------------------------------------------------------------------------- */

/* 64 levels over 2^shift in lanes of 8 bits, saturated: symbols are far smaller. */
static inline __m512i highs_of(const int32_t *levels, __m512i half, __m128i shift)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i highs[4];
    for (int v = 0; v < 4; v++) {
        const __m512i raised = _mm512_add_epi32(_mm512_loadu_si512(levels + 16 * v), half);
        highs[v] = _mm512_sra_epi32(raised, shift);
    }
    const __m512i packed = _mm512_packs_epi16(_mm512_packs_epi32(highs[0], highs[1]),
                                              _mm512_packs_epi32(highs[2], highs[3]));
    return _mm512_permutexvar_epi32(order, packed);
}

static size_t symbols_of(const struct tally_dithered_model *model, const int32_t *levels, size_t n,
                         uint8_t *symbols)
{
    const __m512i half = _mm512_set1_epi32((int)((1u << model->shift) >> 1));
    const __m512i last = _mm512_set1_epi8((char)(model->reach + 1));
    const __m512i first = _mm512_sub_epi8(_mm512_setzero_si512(), last);
    const __m128i shift = _mm_cvtsi32_si128((int)model->shift);
    size_t i = 0, n_tails = 0;
    for (; n - i >= 64; i += 64) {
        const __m512i high = highs_of(levels + i, half, shift);
        const __m512i symbol = _mm512_max_epi8(_mm512_min_epi8(high, last), first);
        const __mmask64 tails = _mm512_cmpge_epu8_mask(_mm512_abs_epi8(symbol), last);
        n_tails += (size_t)_mm_popcnt_u64(tails);
        _mm512_storeu_si512(symbols + i, _mm512_add_epi8(symbol, last));
    }
    return n_tails + pass_symbols(model, levels + i, n - i, symbols + i);
}

/* --- shares ---------------------------------------------------------------------------------- */

static inline __m512i widened(const uint8_t *bytes)
{
    return _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)bytes));
}

/* The lanes of 16 bits that belong to even coordinates, and those of odd ones. */
static inline __m512i even_of(__m512i words)
{
    return _mm512_and_si512(words, _mm512_set1_epi32(0xffff));
}

static inline __m512i odd_of(__m512i words)
{
    return _mm512_srli_epi32(words, 16);
}

/* The shares of 32 coordinates' symbols: first .. end - 1. */
struct shares {
    __m512i first, end;
};

/* --- encoder --------------------------------------------------------------------------------- */

/* The least and the greatest of n symbols, n a multiple of 64: only the boundaries between them
 * need to be looked at. */
struct span {
    unsigned least, greatest;
};

static struct span span_of(const uint8_t *symbols, size_t n)
{
    __m512i least = _mm512_set1_epi8(-1), greatest = _mm512_setzero_si512();
    for (size_t i = 0; i < n; i += 64) {
        const __m512i here = _mm512_loadu_si512(symbols + i);
        least = _mm512_min_epu8(least, here);
        greatest = _mm512_max_epu8(greatest, here);
    }
    uint8_t lows[64], highs[64];
    _mm512_storeu_si512(lows, least);
    _mm512_storeu_si512(highs, greatest);
    struct span span = {lows[0], highs[0]};
    for (int i = 1; i < 64; i++) {
        span.least = lows[i] < span.least ? lows[i] : span.least;
        span.greatest = highs[i] > span.greatest ? highs[i] : span.greatest;
    }
    return span;
}

static inline __m512i boundary_of(const struct tally_dithered_table *table, unsigned s,
                                  __m512i bins)
{
    return _mm512_permutexvar_epi16(bins, _mm512_load_si512(table->cumulative[s]));
}

static inline struct shares shares_of(const struct tally_dithered_table *table, struct span span,
                                      __m512i symbols, __m512i bins)
{
    struct shares shares = {boundary_of(table, span.least, bins),
                            boundary_of(table, span.greatest + 1, bins)};
    for (unsigned s = span.least + 1; s <= span.greatest; s++) {
        const __m512i boundary = boundary_of(table, s, bins);
        const __mmask32 is_above = _mm512_cmpge_epu16_mask(symbols, _mm512_set1_epi16((short)s));
        shares.first = _mm512_mask_mov_epi16(shares.first, is_above, boundary);
        shares.end = _mm512_mask_min_epu16(shares.end, ~is_above, shares.end, boundary);
    }
    return shares;
}

/* Encodes symbols into states that are small enough: state / frequency is below 2^17, so the
 * quotient in float32 is off by 1 at most. */
static inline __m512i push(__m512i states, __m512i first, __m512i frequency)
{
    const __m512 ratio = _mm512_div_ps(_mm512_cvtepu32_ps(states), _mm512_cvtepu32_ps(frequency));
    const __m512i one = _mm512_set1_epi32(1);
    __m512i q = _mm512_cvttps_epi32(ratio);
    __m512i rest = _mm512_sub_epi32(states, _mm512_mullo_epi32(q, frequency));
    const __mmask16 is_low = _mm512_movepi32_mask(rest);
    q = _mm512_mask_sub_epi32(q, is_low, q, one);
    rest = _mm512_mask_add_epi32(rest, is_low, rest, frequency);
    const __mmask16 is_high = _mm512_cmpge_epu32_mask(rest, frequency);
    q = _mm512_mask_add_epi32(q, is_high, q, one);
    rest = _mm512_mask_sub_epi32(rest, is_high, rest, frequency);
    return _mm512_add_epi32(_mm512_slli_epi32(q, TALLY_DITHERED_LONG_BITS),
                            _mm512_add_epi32(rest, first));
}

static inline uint8_t *encode_pair(const struct tally_dithered_table *table, struct span span,
                                   const uint8_t *symbols, const uint8_t *bins,
                                   struct tally_rans_pair *states, uint8_t *end)
{
    const struct shares shares = shares_of(table, span, widened(symbols), widened(bins));
    const __m512i frequency = _mm512_sub_epi16(shares.end, shares.first);
    const __mmask16 even_full =
        _mm512_cmpge_epu32_mask(_mm512_srli_epi32(states->even, SPARE), even_of(frequency));
    const __mmask16 odd_full =
        _mm512_cmpge_epu32_mask(_mm512_srli_epi32(states->odd, SPARE), odd_of(frequency));
    end = tally_rans_shrink_pair(states, even_full, odd_full, end);
    states->even = push(states->even, even_of(shares.first), even_of(frequency));
    states->odd = push(states->odd, odd_of(shares.first), odd_of(frequency));
    return end;
}

static uint8_t *encode(const struct tally_dithered_table *table, const uint8_t *symbols,
                       const uint8_t *bins, size_t n, struct tally_rans_states *states,
                       uint8_t *end)
{
    const size_t rest = n % GROUP, whole = n - rest;
    end = TALLY_DITHERED_PORTABLE.encode(table, symbols + whole, bins + whole, rest, states, end);
    const struct span span = span_of(symbols, whole);
    struct tally_rans_pair low = tally_rans_load_pair(states->lane);
    struct tally_rans_pair high = tally_rans_load_pair(states->lane + 32);
    for (size_t i = whole; i > 0; i -= GROUP) {
        end = encode_pair(table, span, symbols + i - 32, bins + i - 32, &high, end);
        end = encode_pair(table, span, symbols + i - 64, bins + i - 64, &low, end);
    }
    tally_rans_store_pair(states->lane, low);
    tally_rans_store_pair(states->lane + 32, high);
    return end;
}

/* --- decoder --------------------------------------------------------------------------------- */

/* The symbols that these shares lie in, and the shares of these symbols. Few groups need the outer
 * boundaries. */
static inline struct shares shares_around(const struct tally_dithered_table *table, __m512i share,
                                          __m512i bins, __m512i *ret_symbols)
{
    unsigned first = table->likely, end = table->likely_end;
    struct shares shares = {boundary_of(table, first, bins), boundary_of(table, end, bins)};
    const __m512i one = _mm512_set1_epi16(1);
    if ((_mm512_cmplt_epu16_mask(share, shares.first) |
         _mm512_cmpge_epu16_mask(share, shares.end)) != 0) {
        first = 0;
        end = table->n;
        shares = (struct shares){_mm512_setzero_si512(), _mm512_set1_epi16(TOTAL)};
    }
    __m512i symbols = _mm512_set1_epi16((short)first);
    for (unsigned s = first + 1; s < end; s++) {
        const __m512i boundary = boundary_of(table, s, bins);
        const __mmask32 is_above = _mm512_cmpge_epu16_mask(share, boundary);
        symbols = _mm512_mask_add_epi16(symbols, is_above, symbols, one);
        shares.first = _mm512_mask_mov_epi16(shares.first, is_above, boundary);
        shares.end = _mm512_mask_min_epu16(shares.end, ~is_above, shares.end, boundary);
    }
    *ret_symbols = symbols;
    return shares;
}

static inline __m512i pop(__m512i states, __m512i offset, __m512i frequency)
{
    return _mm512_add_epi32(
        _mm512_mullo_epi32(frequency, _mm512_srli_epi32(states, TALLY_DITHERED_LONG_BITS)), offset);
}

/* May read 64 bytes. */
static inline const uint8_t *decode_pair(const struct tally_dithered_table *table,
                                         const uint8_t *bins, const uint8_t *data,
                                         struct tally_rans_pair *states, uint8_t *symbols)
{
    const __m512i share =
        _mm512_and_si512(tally_rans_words(states->even, states->odd), _mm512_set1_epi16(TOTAL - 1));
    __m512i found;
    const struct shares shares = shares_around(table, share, widened(bins), &found);
    const __m512i frequency = _mm512_sub_epi16(shares.end, shares.first);
    const __m512i offset = _mm512_sub_epi16(share, shares.first);
    states->even = pop(states->even, even_of(offset), even_of(frequency));
    states->odd = pop(states->odd, odd_of(offset), odd_of(frequency));
    _mm256_storeu_si256((__m256i *)(void *)symbols, _mm512_cvtepi16_epi8(found));
    return tally_rans_refill_pair(states, data);
}

static const uint8_t *decode(const struct tally_dithered_table *table, const uint8_t *bins,
                             const uint8_t *data, const uint8_t *end, size_t n,
                             struct tally_rans_states *states, uint8_t *symbols)
{
    struct tally_rans_pair low = tally_rans_load_pair(states->lane);
    struct tally_rans_pair high = tally_rans_load_pair(states->lane + 32);
    size_t i = 0;
    for (; n - i >= GROUP && end - data >= 2 * GROUP; i += GROUP) {
        data = decode_pair(table, bins + i, data, &low, symbols + i);
        data = decode_pair(table, bins + i + 32, data, &high, symbols + i + 32);
    }
    tally_rans_store_pair(states->lane, low);
    tally_rans_store_pair(states->lane + 32, high);
    return TALLY_DITHERED_PORTABLE.decode(table, bins + i, data, end, n - i, states, symbols + i);
}

const struct tally_dithered_kernel TALLY_DITHERED_AVX512 = {
    .dithers = make_dithers,
    .quantize = quantize,
    .bins = pass_bins,
    .symbols = symbols_of,
    .encode = encode,
    .decode = decode,
    .levels = pass_levels,
    .scan = pass_scan,
    .add = pass_add,
};
