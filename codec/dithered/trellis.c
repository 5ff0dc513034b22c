#include "codec/dithered/trellis.h"

#include <math.h>

enum { STATES = TALLY_TRELLIS_STATES };

/* Reads the dithers of a vector one after the other, in either direction. */
struct dithers {
    const struct tally_rng *rng;
    uint32_t group; /* in `words`; UINT32_MAX: none */
    uint32_t words[TALLY_RNG_LANES];
};

static int32_t dither_of(struct dithers *dithers, size_t i)
{
    const uint32_t group = (uint32_t)(i / TALLY_RNG_LANES);
    if (group != dithers->group) {
        tally_rng_lanes(dithers->rng, group, dithers->words);
        dithers->group = group;
    }
    return (int32_t)dithers->words[i % TALLY_RNG_LANES];
}

/* y in steps, plus U'. */
static double target_of(const struct tally_vector *vector, size_t i, unsigned state, int32_t dither)
{
    return (double)vector->y[i] / vector->grid->step +
           tally_trellis_dither(state, dither) * 0x1p-32;
}

/* The level next to `target` that leads from a state with this offset along the branch `parity`,
 * and its magnitude at most `top`, which is at least 1. */
static double nearest(double target, unsigned offset, unsigned parity, double top,
                      bool *ret_is_clipped)
{
    const double odd = (offset ^ parity) & 1;
    const double level = 2 * rint((target - odd) / 2) + odd;
    const double most = fmod(top, 2) == odd ? top : top - 1;
    *ret_is_clipped = fabs(level) > most;
    return level > most ? most : level < -most ? -most : level;
}

/* The state before `state` on the branch `parity`. */
static unsigned before(unsigned state, unsigned parity)
{
    const unsigned low = state >> 2 & 1;
    return low | ((state ^ low) & 1) << 1 | ((state >> 1 ^ parity) & 1) << 2;
}

/* Extends the best paths to all states by a coordinate. Bit s of the result: the parity on the best
 * path to state s. */
static unsigned extend(const struct tally_vector *vector, size_t i, int32_t dither,
                       double errors[STATES])
{
    const double top = vector->grid->intervals / 2;
    double more[2][2], best[STATES];
    unsigned parities = 0;
    for (unsigned grid = 0; grid < 2; grid++) {
        const double target = target_of(vector, i, grid, dither);
        for (unsigned parity = 0; parity < 2; parity++) {
            bool is_clipped;
            const double level =
                nearest(target, tally_trellis_offset(grid, dither), parity, top, &is_clipped);
            more[grid][parity] = (level - target) * (level - target);
        }
    }
    for (unsigned state = 0; state < STATES; state++) {
        const unsigned even = before(state, 0), odd = before(state, 1);
        const double by_even = errors[even] + more[even & 1][0];
        const double by_odd = errors[odd] + more[odd & 1][1];
        parities |= (unsigned)(by_odd < by_even) << state;
        best[state] = by_odd < by_even ? by_odd : by_even;
    }
    for (unsigned state = 0; state < STATES; state++) {
        errors[state] = best[state];
    }
    return parities;
}

size_t tally_trellis_round(const struct tally_vector *vector, int32_t *levels, uint64_t *clipped)
{
    struct dithers dithers = {.rng = vector->rng, .group = UINT32_MAX};
    double errors[STATES];
    unsigned state = 0;
    for (unsigned s = 0; s < STATES; s++) {
        errors[s] = s == 0 ? 0 : INFINITY;
    }
    for (size_t i = 0; i < vector->dim; i++) {
        if (!isfinite(vector->y[i])) {
            return i;
        }
        levels[i] = (int32_t)extend(vector, i, dither_of(&dithers, i), errors);
    }
    for (unsigned s = 1; s < STATES; s++) {
        state = errors[s] < errors[state] ? s : state;
    }
    for (size_t i = vector->dim; i-- > 0;) {
        const unsigned parity = (unsigned)levels[i] >> state & 1;
        state = before(state, parity);
        levels[i] = (int32_t)parity;
    }
    const double top = vector->grid->intervals / 2;
    for (size_t i = 0; i < vector->dim; i++) {
        const int32_t dither = dither_of(&dithers, i);
        const unsigned parity = (unsigned)levels[i];
        bool is_clipped;
        levels[i] = (int32_t)nearest(target_of(vector, i, state, dither),
                                     tally_trellis_offset(state, dither), parity, top, &is_clipped);
        *clipped += is_clipped;
        state = tally_trellis_after(state, parity);
    }
    return vector->dim;
}
