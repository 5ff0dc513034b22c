/* dithered: the logarithmic scale of the ratio sigma / step, the limits of a grid, and messages in
 * the form that suits their length. */
#include "codec/dithered/dithered.h"

#include "codec/dithered/dithered_long.h"
#include "codec/dithered/dithered_message.h"
#include "codec/numeric/log_scale.h"

enum { LOWEST = -8 * TALLY_DITHERED_OCTAVE };

uint32_t tally_dithered_scale_of(double ratio)
{
    if (!(ratio > 0x1p-8)) {
        return 0;
    }
    if (ratio >= 0x1p16) {
        return TALLY_DITHERED_SCALES - 1;
    }
    return (uint32_t)(tally_log_scale_index(ratio) - LOWEST);
}

double tally_dithered_ratio(uint32_t scale)
{
    return tally_log_scale_value((int)scale + LOWEST);
}

uint32_t tally_dithered_top(uint32_t clients)
{
    const uint32_t top = clients == 0 ? TALLY_DITHERED_MAX_TOP : (1u << 30) / clients;
    return top < 1 ? 1 : top > TALLY_DITHERED_MAX_TOP ? TALLY_DITHERED_MAX_TOP : top;
}

double tally_dithered_error(size_t dim)
{
    const double n = (double)dim;
    const double of_plain = dim < TALLY_DITHERED_LONG_MESSAGE ? 0.779 + 1.32 / (n + 2) : 1;
    return (of_plain < 1 ? of_plain : 1) / 12;
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
