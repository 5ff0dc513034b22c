/* Dithers and states eight at a time, and the loops of dithered_passes.h. The decoder gathers the
 * symbol of the last start at or below the share, with its boundaries, and seldom has to advance to
 * the next symbol. The encoder is the plain C one. */
#include "codec/dithered/dithered_kernels.h"
#include "codec/dithered/dithered_passes.h"
#include "codec/entropy/rans_avx2.h"
#include "codec/quantize/quantizer_avx2.h"

static void make_dithers(const struct tally_rng *rng, uint32_t group, size_t n, int32_t *dithers)
{
    const struct tally_philox_common common = tally_philox_common_of(rng);
    for (size_t i = 0; i < n; i += TALLY_RNG_LANES) {
        __m256i words[N_VECTORS];
        lanes(&common, group++, words);
        for (int v = 0; v < N_VECTORS; v++) {
            _mm256_storeu_si256((__m256i *)(void *)(dithers + i + WIDTH * v), words[v]);
        }
    }
}

/* Rounds four coordinates. The comparison treats a level that is NaN as beyond the top. */
static inline __m128i round_four(__m128 y, __m128i dithers, __m256d step, __m256d top,
                                 int *ret_beyond)
{
    const __m256d dither = _mm256_mul_pd(_mm256_cvtepi32_pd(dithers), _mm256_set1_pd(0x1p-32));
    const __m256d exact = _mm256_add_pd(_mm256_div_pd(_mm256_cvtps_pd(y), step), dither);
    const __m256d level = _mm256_round_pd(exact, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m256d size = _mm256_andnot_pd(_mm256_set1_pd(-0.0), level);
    *ret_beyond = _mm256_movemask_pd(_mm256_cmp_pd(size, top, _CMP_NLE_UQ));
    return _mm256_cvtpd_epi32(level);
}

static size_t quantize(const struct tally_grid *grid, const float *y, const int32_t *dithers,
                       size_t n, int32_t *levels, uint64_t *clipped)
{
    const __m256d step = _mm256_set1_pd(grid->step);
    const uint32_t largest = grid->intervals / 2;
    const __m256d top = _mm256_set1_pd(largest);
    size_t i = 0;
    for (; n - i >= 4; i += 4) {
        int beyond;
        const __m128i found =
            round_four(_mm_loadu_ps(y + i), _mm_loadu_si128((const __m128i *)(dithers + i)), step,
                       top, &beyond);
        if (__builtin_expect(beyond != 0, 0)) {
            const size_t done =
                TALLY_DITHERED_PORTABLE.quantize(grid, y + i, dithers + i, 4, levels + i, clipped);
            if (done < 4) {
                return i + done;
            }
        } else {
            _mm_storeu_si128((__m128i *)(levels + i), found);
        }
    }
    return i +
           TALLY_DITHERED_PORTABLE.quantize(grid, y + i, dithers + i, n - i, levels + i, clipped);
}

static uint8_t *encode(const struct tally_dithered_table *table, const uint8_t *symbols,
                       const uint8_t *bins, size_t n, struct tally_rans_states *states,
                       uint8_t *end)
{
    return TALLY_DITHERED_PORTABLE.encode(table, symbols, bins, n, states, end);
}

/* The symbols that these shares lie in, and in *ret_boundaries first + 2^16 end of each. */
static inline __m256i symbols_around(const struct tally_dithered_table *table, __m256i share,
                                     __m256i bin, __m256i *ret_boundaries)
{
    const __m256i start = _mm256_add_epi32(
        _mm256_slli_epi32(bin, TALLY_DITHERED_LONG_BITS - TALLY_DITHERED_START_BITS),
        _mm256_srli_epi32(share, TALLY_DITHERED_START_BITS));
    /* Lanes 0 1 4 5 and 2 3 6 7, which the two shuffles bring into order. */
    const __m256i order = _mm256_permute4x64_epi64(start, 0xd8);
    const long long *starts = (const long long *)(const void *)table->starts;
    const __m256 some =
        _mm256_castsi256_ps(_mm256_i32gather_epi64(starts, _mm256_castsi256_si128(order), 8));
    const __m256 others =
        _mm256_castsi256_ps(_mm256_i32gather_epi64(starts, _mm256_extracti128_si256(order, 1), 8));
    __m256i pair = _mm256_castps_si256(_mm256_shuffle_ps(some, others, 0x88));
    __m256i symbol = _mm256_castps_si256(_mm256_shuffle_ps(some, others, 0xdd));
    __m256i is_below = _mm256_cmpgt_epi32(_mm256_srli_epi32(pair, 16), share);
    while (__builtin_expect(_mm256_movemask_epi8(is_below) != -1, 0)) {
        symbol = _mm256_add_epi32(symbol, _mm256_andnot_si256(is_below, _mm256_set1_epi32(1)));
        const __m256i row = _mm256_slli_epi32(bin, TALLY_DITHERED_ROW_BITS);
        pair = _mm256_i32gather_epi32((const int *)(const void *)table->of_bin,
                                      _mm256_add_epi32(row, symbol), 2);
        is_below = _mm256_cmpgt_epi32(_mm256_srli_epi32(pair, 16), share);
    }
    *ret_boundaries = pair;
    return symbol;
}

/* May read 16 bytes. */
static inline const uint8_t *decode_eight(const struct tally_dithered_table *table,
                                          const uint8_t *bins, const uint8_t *data,
                                          uint32_t *states, uint8_t *symbols)
{
    __m256i boundaries;
    const __m256i before = tally_rans_load_eight(states);
    const __m256i share =
        _mm256_and_si256(before, _mm256_set1_epi32(TALLY_DITHERED_LONG_TOTAL - 1));
    const __m256i bin = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)bins));
    const __m256i symbol = symbols_around(table, share, bin, &boundaries);
    const __m256i first = _mm256_and_si256(boundaries, _mm256_set1_epi32(0xffff));
    const __m256i frequency = _mm256_sub_epi32(_mm256_srli_epi32(boundaries, 16), first);
    const __m256i quotient = _mm256_srli_epi32(before, TALLY_DITHERED_LONG_BITS);
    const __m256i state =
        _mm256_add_epi32(_mm256_mullo_epi32(frequency, quotient), _mm256_sub_epi32(share, first));
    data = tally_rans_refill_eight(states, state, data);
    const __m128i half =
        _mm_packus_epi32(_mm256_castsi256_si128(symbol), _mm256_extracti128_si256(symbol, 1));
    _mm_storel_epi64((__m128i *)(void *)symbols, _mm_packus_epi16(half, half));
    return data;
}

static const uint8_t *decode(const struct tally_dithered_table *table, const uint8_t *bins,
                             const uint8_t *data, const uint8_t *end, size_t n,
                             struct tally_rans_states *states, uint8_t *symbols)
{
    size_t i = 0;
    for (; n - i >= TALLY_RANS_LANES && end - data >= 2 * TALLY_RANS_LANES; i += TALLY_RANS_LANES) {
        for (size_t v = 0; v < TALLY_RANS_LANES; v += 8) {
            data = decode_eight(table, bins + i + v, data, states->lane + v, symbols + i + v);
        }
    }
    return TALLY_DITHERED_PORTABLE.decode(table, bins + i, data, end, n - i, states, symbols + i);
}

const struct tally_dithered_kernel TALLY_DITHERED_AVX2 = {
    .dithers = make_dithers,
    .quantize = quantize,
    .bins = pass_bins,
    .symbols = pass_symbols,
    .encode = encode,
    .decode = decode,
    .levels = pass_levels,
    .scan = pass_scan,
    .add = pass_add,
};
