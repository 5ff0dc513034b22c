/* The rounding of one coordinate, in float32 so that a vector kernel can repeat it bit for bit:
 *
 *     s = |y| * (1/step)             whole = trunc(s)      fraction = s - whole   (exact)
 *     level = sign(y) * (whole + [u < fraction * 2^32])    u: 32 random bits
 *
 * Working on |y| keeps small negative values exact: -1e-10 has whole 0, fraction 1e-10. Rounding
 * the product s to float32 moves y by at most a relative 2^-23, as much as y's own representation.
 */
#include "codec/quantizer.h"

#include <float.h>
#include <math.h>

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
                          "quantizer needs %.0f intervals, the limit is %d", p,
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

enum tally_status tally_quantize(const struct tally_grid *grid, const float *y, size_t dim,
                                 const struct tally_rng *rng, int32_t *levels,
                                 uint64_t *ret_clipped, struct tally_error *err)
{
    const float inverse_step = (float)(1 / grid->step);
    const float radius = (float)(grid->step * 0.5 * grid->intervals);
    const int32_t top = (int32_t)(grid->intervals / 2);
    uint64_t clipped = 0;
    uint32_t words[TALLY_RNG_LANES];
    for (size_t i = 0; i < dim; i++) {
        if (i % TALLY_RNG_LANES == 0) {
            tally_rng_lanes(rng, (uint32_t)(i / TALLY_RNG_LANES), words);
        }
        if (!isfinite(y[i])) {
            return tally_fail(err, TALLY_NOT_FINITE, NULL, "coordinate %zu of %zu is %s", i, dim,
                              isnan(y[i]) ? "NaN" : "infinite");
        }
        float magnitude = fabsf(y[i]);
        int32_t level = top;
        if (magnitude > radius) {
            clipped++;
        } else {
            float scaled = magnitude * inverse_step;
            float whole = truncf(scaled);
            uint32_t threshold = (uint32_t)((scaled - whole) * 0x1p32f);
            level = (int32_t)whole + (words[i % TALLY_RNG_LANES] < threshold);
            level = level < top ? level : top; /* the product may round past the last interval */
        }
        levels[i] = y[i] < 0 ? -level : level;
    }
    *ret_clipped = clipped;
    return TALLY_OK;
}
