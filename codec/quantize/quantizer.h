/* quantizer: Q(y, eps, r), stochastic rounding of a vector onto a grid ([1] section III-B).
 *
 * Idea: a coordinate between two points of the grid goes to one of them at random, to the nearer
 * one more often, so that the mean is the coordinate itself.
 *
 *     p    = ceil(2 r sqrt(d) / eps), rounded up to even      intervals on [-r, r]
 *     step = 2 r / p                                         so step <= eps / sqrt(d)
 *     Q_i  = level_i * step,  level_i integer in [-p/2, p/2]
 *     E[Q(y)] = y and |y - Q(y)| <= eps inside the range
 *
 *                        y_i
 *     -r      -step      | 0       step     2 step      r
 *      |---...--|--------x-|---------|---------|---...---|
 *     -p/2     -1          0         1         2        p/2        levels
 *
 * Example: d = 4, r = 1, eps = 1 give p = 4, step 0.5 and levels -2 .. 2. y_i = 0.3 is 0.6 steps:
 * it becomes level 1 with probability 0.6 and level 0 with probability 0.4; the mean is 0.3.
 *
 * Departs from [1]: p is made even, because levels are integers and 0 must be on the grid ([1]'s
 * message-size proof uses value = level * 2r/p, which holds only for even p); the grid is finer
 * then, so [1]'s bounds still hold. The rounding probabilities are divided by the interval width,
 * which [1] forgets. Coordinates outside [-r, r] are clipped and counted.
 *
 * Left out: grids with steps of different lengths. [1] proves nothing for them. Subtractive dither,
 * whose receiver repeats the random words, is in codec/dithered. */
#ifndef TALLY_CODEC_QUANTIZE_QUANTIZER_H
#define TALLY_CODEC_QUANTIZE_QUANTIZER_H

#include <stddef.h>
#include <stdint.h>

#include "codec/error.h"
#include "codec/numeric/rng.h"

/* Levels stay below 2^21, where a float32 product still leaves 2 bits for the fraction. */
enum { TALLY_MAX_INTERVALS = 1 << 22 };

struct tally_grid {
    double step;        /* > 0, finite */
    uint32_t intervals; /* p: even, 2 .. TALLY_MAX_INTERVALS */
    uint32_t scale;     /* index of the coordinates' scale in codec/dithered/dithered.h; else 0 */
};

/* Computes the grid. Errors: INVALID_ARGUMENT (radius or eps not finite and positive, dim 0),
 * OUT_OF_RANGE (p too large, or the step is not a normal float32). */
enum tally_status tally_grid_init(double radius, double eps, size_t dim,
                                  struct tally_grid *ret_grid, struct tally_error *err);

/* Whether a grid that came from outside obeys the limits above. */
bool tally_grid_is_valid(const struct tally_grid *grid);

/* Quantizes y (float[dim]) to levels (int32[dim]), |level| <= p/2. `rng` names the stream;
 * coordinate i takes the word that tally_rng_lanes() gives it. ret_clipped counts the coordinates
 * with |y_i| > r. Errors: NOT_FINITE (a NaN or infinity; names the coordinate). */
enum tally_status tally_quantize(const struct tally_grid *grid, const float *y, size_t dim,
                                 const struct tally_rng *rng, int32_t *levels,
                                 uint64_t *ret_clipped, struct tally_error *err);

#endif
