/* dithered: the logarithmic scale of the ratio sigma / step, the limits of a grid, and messages in
 * the form that suits their length. */
#include "codec/dithered/dithered.h"

#include <math.h>

#include "codec/dithered/dithered_long.h"
#include "codec/dithered/dithered_message.h"

enum { OCTAVE = TALLY_DITHERED_OCTAVE, LOWEST_OCTAVE = -8 };

/* 2^(j/16), rounded to the nearest. */
static const double POWER[OCTAVE] = {
    0x1.0000000000000p+0, 0x1.0b5586cf9890fp+0, 0x1.172b83c7d517bp+0, 0x1.2387a6e756238p+0,
    0x1.306fe0a31b715p+0, 0x1.3dea64c123422p+0, 0x1.4bfdad5362a27p+0, 0x1.5ab07dd485429p+0,
    0x1.6a09e667f3bcdp+0, 0x1.7a11473eb0187p+0, 0x1.8ace5422aa0dbp+0, 0x1.9c49182a3f090p+0,
    0x1.ae89f995ad3adp+0, 0x1.c199bdd85529cp+0, 0x1.d5818dcfba487p+0, 0x1.ea4afa2a490dap+0};

/* 2^((2 j + 1) / 32): from this ratio on, 2^((j + 1) / 16) is nearer than 2^(j/16). */
static const double HALF_WAY[OCTAVE] = {
    0x1.059b0d3158574p+0, 0x1.11301d0125b51p+0, 0x1.1d4873168b9aap+0, 0x1.29e9df51fdee1p+0,
    0x1.371a7373aa9cbp+0, 0x1.44e086061892dp+0, 0x1.5342b569d4f82p+0, 0x1.6247eb03a5585p+0,
    0x1.71f75e8ec5f74p+0, 0x1.82589994cce13p+0, 0x1.93737b0cdc5e5p+0, 0x1.a5503b23e255dp+0,
    0x1.b7f76f2fb5e47p+0, 0x1.cb720dcef9069p+0, 0x1.dfc97337b9b5fp+0, 0x1.f50765b6e4540p+0};

uint32_t tally_dithered_scale_of(double ratio)
{
    if (!(ratio > 0x1p-8)) {
        return 0;
    }
    if (ratio >= 0x1p16) {
        return TALLY_DITHERED_SCALES - 1;
    }
    int exponent;
    const double fraction = 2 * frexp(ratio, &exponent); /* exact: ratio 2^(1 - exponent) */
    uint32_t j = 0;
    while (j < OCTAVE && fraction >= HALF_WAY[j]) {
        j++;
    }
    return (uint32_t)(exponent - 1 - LOWEST_OCTAVE) * OCTAVE + j;
}

double tally_dithered_ratio(uint32_t scale)
{
    return ldexp(POWER[scale % OCTAVE], (int)(scale / OCTAVE) + LOWEST_OCTAVE);
}

uint32_t tally_dithered_top(uint32_t clients)
{
    const uint32_t top = clients == 0 ? TALLY_DITHERED_MAX_TOP : (1u << 30) / clients;
    return top < 1 ? 1 : top > TALLY_DITHERED_MAX_TOP ? TALLY_DITHERED_MAX_TOP : top;
}

bool tally_dithered_grid_is_valid(const struct tally_grid *grid)
{
    return tally_grid_is_valid(grid) && grid->intervals <= 2 * TALLY_DITHERED_MAX_TOP &&
           grid->scale < TALLY_DITHERED_SCALES;
}

enum tally_status tally_dithered_check_grid(const struct tally_grid *grid, struct tally_error *err)
{
    return tally_dithered_grid_is_valid(grid)
               ? TALLY_OK
               : tally_fail(err, TALLY_MALFORMED, "quantizer_step",
                            "step %g with %u intervals and scale %u is not a valid quantizer",
                            grid->step, grid->intervals, grid->scale);
}

const struct tally_dithered_kernel *tally_dithered_kernel_for(enum tally_cpu cpu)
{
    static const struct tally_dithered_kernel *const kernels[TALLY_N_CPUS] = {
        [TALLY_CPU_PORTABLE] = &TALLY_DITHERED_PORTABLE,
#ifdef TALLY_X86_64
        [TALLY_CPU_AVX2] = &TALLY_DITHERED_AVX2,
        [TALLY_CPU_AVX512] = &TALLY_DITHERED_AVX512,
#endif
    };
    return kernels[tally_cpu_with_vbmi2(cpu)];
}

enum tally_status tally_dithered_encode(const struct tally_vector *vector, int32_t *scratch,
                                        struct tally_buffer *payload,
                                        struct tally_level_stats *ret_stats, uint64_t *ret_clipped,
                                        struct tally_error *err)
{
    return tally_dithered_encode_as(vector->dim >= TALLY_DITHERED_LONG_MESSAGE, vector, scratch,
                                    payload, ret_stats, ret_clipped, err);
}

enum tally_status tally_dithered_decode(const uint8_t *data, size_t n_bytes, uint64_t payload_bits,
                                        size_t dim, const struct tally_grid *grid,
                                        const struct tally_rng *rng, int64_t *values,
                                        struct tally_level_stats *ret_stats,
                                        struct tally_error *err)
{
    const struct tally_dithered_message message = {
        dim >= TALLY_DITHERED_LONG_MESSAGE, data, n_bytes, payload_bits, dim, grid, rng};
    return tally_dithered_decode_as(&message, values, ret_stats, err);
}

enum tally_status
tally_dithered_accumulate(const uint8_t *data, size_t n_bytes, uint64_t payload_bits, size_t dim,
                          const struct tally_grid *grid, const struct tally_rng *rng, int64_t *sums,
                          struct tally_level_stats *ret_stats, struct tally_error *err)
{
    const struct tally_dithered_message message = {
        dim >= TALLY_DITHERED_LONG_MESSAGE, data, n_bytes, payload_bits, dim, grid, rng};
    return tally_dithered_accumulate_as(&message, sums, ret_stats, err);
}
