#include "codec/quantize/quantizer_avx512.h"

static inline size_t quantize_group(const struct tally_quantize_constants *k,
                                    const struct tally_philox_common *common, uint32_t group,
                                    const float *y, int32_t *levels, uint64_t *clipped)
{
    __m512i magnitudes[4];
    const size_t done = round_group(k, common, group, y, magnitudes, clipped);
    for (int v = 0; v < 4; v++) {
        const __mmask16 negative = _mm512_movepi32_mask(_mm512_loadu_si512(y + 16 * v));
        _mm512_storeu_si512(
            levels + 16 * v,
            _mm512_mask_sub_epi32(magnitudes[v], negative, _mm512_setzero_si512(), magnitudes[v]));
    }
    return done;
}

size_t tally_quantize_avx512(const struct tally_rounding *rounding, const struct tally_rng *rng,
                             uint32_t group, const float *y, size_t n, int32_t *levels,
                             uint64_t *clipped)
{
    const struct tally_quantize_constants k = constants_of(rounding);
    return tally_quantize_groups(quantize_group, &k, rng, group, y, n, levels, clipped);
}
