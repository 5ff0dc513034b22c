/* Dithers eight at a time, and the loops of dithered_passes.h. The coder is that of plain C: AVX2
 * cannot look up 32 entries in a register. */
#include "codec/dithered/dithered_kernels.h"
#include "codec/dithered/dithered_passes.h"
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

/* Four coordinates. Of a level that is no number the comparison says that it is beyond the top. */
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

static const uint8_t *decode(const struct tally_dithered_table *table, const uint8_t *bins,
                             const uint8_t *data, const uint8_t *end, size_t n,
                             struct tally_rans_states *states, uint8_t *symbols)
{
    return TALLY_DITHERED_PORTABLE.decode(table, bins, data, end, n, states, symbols);
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
