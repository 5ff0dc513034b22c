#include "codec/quantize/quantizer_avx2.h"

static inline size_t quantize_group(const struct tally_quantize_constants *k,
                                    const struct tally_philox_common *common, uint32_t group,
                                    const float *y, int32_t *levels, uint64_t *clipped)
{
    __m256i magnitudes[N_VECTORS];
    const size_t done = round_group(k, common, group, y, magnitudes, clipped);
    for (int v = 0; v < N_VECTORS; v++) {
        const __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)(y + WIDTH * v));
        const __m256i negative = _mm256_srai_epi32(bits, 31);
        _mm256_storeu_si256((__m256i *)(void *)(levels + WIDTH * v),
                            _mm256_sub_epi32(_mm256_xor_si256(magnitudes[v], negative), negative));
    }
    return done;
}

size_t tally_quantize_avx2(const struct tally_rounding *rounding, const struct tally_rng *rng,
                           uint32_t group, const float *y, size_t n, int32_t *levels,
                           uint64_t *clipped)
{
    const struct tally_quantize_constants k = constants_of(rounding);
    return tally_quantize_groups(quantize_group, &k, rng, group, y, n, levels, clipped);
}
