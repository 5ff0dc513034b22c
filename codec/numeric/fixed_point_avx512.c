#include <immintrin.h>

#include "codec/numeric/fixed_point_loops.h"

/* fixed_point_add_dithered() in one pass, eight values at a time. The conversion rounds as llrint()
 * does, and level - dither / 2^32 is exact in either form. */
static void add_dithered(const int32_t *levels, const int32_t *dithers, size_t n, double step,
                         int64_t *sums, double squares[TALLY_FIXED_POINT_LANES])
{
    const __m512d unit = _mm512_set1_pd(0x1p-32), one = _mm512_set1_pd(0x1p40);
    const __m512d factor = _mm512_set1_pd(step);
    __m512d square = _mm512_loadu_pd(squares);
    size_t i = 0;
    for (; n - i >= TALLY_FIXED_POINT_LANES; i += TALLY_FIXED_POINT_LANES) {
        const __m512d level = _mm512_cvtepi32_pd(_mm256_loadu_si256((const void *)(levels + i)));
        const __m512d dither = _mm512_cvtepi32_pd(_mm256_loadu_si256((const void *)(dithers + i)));
        const __m512d value = _mm512_mul_pd(factor, _mm512_fnmadd_pd(dither, unit, level));
        const __m512i addend = _mm512_cvtpd_epi64(_mm512_mul_pd(value, one));
        _mm512_storeu_si512(sums + i, _mm512_add_epi64(_mm512_loadu_si512(sums + i), addend));
        square = _mm512_add_pd(square, _mm512_mul_pd(value, value));
    }
    _mm512_storeu_pd(squares, square);
    fixed_point_add_dithered(levels + i, dithers + i, n - i, step, sums + i, squares);
}

const struct tally_fixed_point_kernel TALLY_FIXED_POINT_AVX512 = {
    .add_float32 = fixed_point_add_float32,
    .count_faults = fixed_point_count_faults,
    .add_codes = fixed_point_add_codes,
    .add_dithered = add_dithered,
    .means = fixed_point_means,
};
