/* The rounding of one coordinate, in float32 so that a vector kernel can repeat it bit for bit:
 *
 *     s = |y| * (1/step)             whole = trunc(s)      fraction = s - whole   (exact)
 *     level = sign(y) * (whole + [u < fraction * 2^32])    u: 32 random bits
 *
 * Working on |y| keeps small negative values exact: -1e-10 has whole 0, fraction 1e-10. Rounding
 * the product s to float32 moves y by at most a relative 2^-23, as much as y's own representation.
 */
#include "codec/quantize/quantizer.h"

#include <float.h>
#include <math.h>

#include "codec/quantize/quantizer_kernels.h"

enum tally_status tally_grid_init(double radius, double eps, size_t dim,
                                  struct tally_grid *ret_grid, struct tally_error *err)
{
    if (!(radius > 0 && isfinite(radius))) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "quantizer range %g is not positive",
                          radius);
    }
    if (!(eps > 0 && isfinite(eps)) || dim == 0) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                          "quantizer accuracy %g is not positive", eps);
    }
    double p = ceil(2 * radius * sqrt((double)dim) / eps);
    if (!(p <= TALLY_MAX_INTERVALS)) {
        return tally_fail(err, TALLY_OUT_OF_RANGE, NULL,
                          "quantizer needs %.0f intervals; the limit is %d", p,
                          TALLY_MAX_INTERVALS);
    }
    uint32_t intervals = p < 2 ? 2 : (uint32_t)p + (uint32_t)p % 2;
    struct tally_grid grid = {.step = 2 * radius / intervals, .intervals = intervals};
    if (!tally_grid_is_valid(&grid)) {
        return tally_fail(err, TALLY_OUT_OF_RANGE, NULL,
                          "quantizer step %g is not a normal float32", grid.step);
    }
    *ret_grid = grid;
    return TALLY_OK;
}

bool tally_grid_is_valid(const struct tally_grid *grid)
{
    bool step_ok = grid->step >= (double)FLT_MIN && grid->step <= 1e30 && 1 / grid->step <= 1e30;
    return step_ok && grid->intervals >= 2 && grid->intervals % 2 == 0 &&
           grid->intervals <= TALLY_MAX_INTERVALS;
}

struct tally_rounding tally_rounding_of(const struct tally_grid *grid)
{
    return (struct tally_rounding){.inverse_step = (float)(1 / grid->step),
                                   .radius = (float)(grid->step * 0.5 * grid->intervals),
                                   .top = (int32_t)(grid->intervals / 2)};
}

size_t tally_quantize_ref(const struct tally_rounding *rounding, const struct tally_rng *rng,
                          uint32_t group, const float *y, size_t n, int32_t *levels,
                          uint64_t *clipped)
{
    uint32_t words[TALLY_RNG_LANES];
    for (size_t i = 0; i < n; i++) {
        if (i % TALLY_RNG_LANES == 0) {
            tally_rng_lanes(rng, group++, words);
        }
        const float magnitude = fabsf(y[i]);
        int32_t level = rounding->top;
        if (magnitude <= rounding->radius) {
            const float scaled = magnitude * rounding->inverse_step;
            const int32_t whole = (int32_t)scaled; /* below 2^22: conversion and back are exact */
            const uint32_t threshold = (uint32_t)((scaled - (float)whole) * 0x1p32f);
            level = whole + (words[i % TALLY_RNG_LANES] < threshold);
            level = level < rounding->top ? level : rounding->top; /* the product may round up */
        } else if (isfinite(y[i])) {
            ++*clipped;
        } else {
            return i;
        }
        levels[i] = y[i] < 0 ? -level : level;
    }
    return n;
}

tally_quantize_kernel *tally_quantize_kernel_for(enum tally_cpu cpu)
{
    static tally_quantize_kernel *const kernels[TALLY_N_CPUS] = {
        [TALLY_CPU_PORTABLE] = tally_quantize_ref,
#ifdef TALLY_X86_64
        [TALLY_CPU_AVX2] = tally_quantize_avx2,
        [TALLY_CPU_AVX512] = tally_quantize_avx512,
#endif
    };
    return kernels[cpu];
}

enum tally_status tally_quantize_refuse(const float *y, size_t i, size_t dim,
                                        struct tally_error *err)
{
    return tally_fail(err, TALLY_NOT_FINITE, NULL, "coordinate %zu of %zu is %s", i, dim,
                      isnan(y[i]) ? "NaN" : "infinite");
}

enum tally_status tally_quantize(const struct tally_grid *grid, const float *y, size_t dim,
                                 const struct tally_rng *rng, int32_t *levels,
                                 uint64_t *ret_clipped, struct tally_error *err)
{
    const struct tally_rounding rounding = tally_rounding_of(grid);
    uint64_t clipped = 0;
    const size_t n =
        tally_quantize_kernel_for(tally_cpu_used())(&rounding, rng, 0, y, dim, levels, &clipped);
    if (n < dim) {
        return tally_quantize_refuse(y, n, dim, err);
    }
    *ret_clipped = clipped;
    return TALLY_OK;
}
