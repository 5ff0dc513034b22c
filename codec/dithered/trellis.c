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

/* The largest magnitudes of even and odd levels. */
struct limits {
    double most[2];
};

static struct limits limits_of(const struct tally_grid *grid)
{
    const uint32_t top = grid->intervals / 2;
    return (struct limits){.most = {top - top % 2, top - (top + 1) % 2}};
}

/* Rounds to the nearest integer, halves to even. Beyond 2^51, gives another number beyond it. */
static double round_to_even(double value)
{
    return value + 0x1.8p52 - 0x1.8p52;
}

/* The even or odd level next to `target`, however large. */
static double nearest(double target, unsigned odd)
{
    return 2 * round_to_even((target - odd) / 2) + odd;
}

static double limited(double level, double most)
{
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
static unsigned extend(const struct tally_vector *vector, const struct limits *limits, size_t i,
                       int32_t dither, double errors[STATES])
{
    double more[2][2], best[STATES];
    unsigned parities = 0;
    for (unsigned grid = 0; grid < 2; grid++) {
        const double target = target_of(vector, i, grid, dither);
        for (unsigned parity = 0; parity < 2; parity++) {
            const unsigned odd = (tally_trellis_offset(grid, dither) ^ parity) & 1;
            const double level = limited(nearest(target, odd), limits->most[odd]);
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
    double least = best[0];
    for (unsigned state = 1; state < STATES; state++) {
        least = best[state] < least ? best[state] : least;
    }
    for (unsigned state = 0; state < STATES; state++) {
        errors[state] = best[state] - least; /* so that a clipped coordinate drowns no others */
    }
    return parities;
}

size_t tally_trellis_round(const struct tally_vector *vector, int32_t *levels, uint64_t *clipped)
{
    const struct limits limits = limits_of(vector->grid);
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
        levels[i] = (int32_t)extend(vector, &limits, i, dither_of(&dithers, i), errors);
    }
    for (unsigned s = 1; s < STATES; s++) {
        state = errors[s] < errors[state] ? s : state;
    }
    for (size_t i = vector->dim; i-- > 0;) {
        const unsigned parity = (unsigned)levels[i] >> state & 1;
        state = before(state, parity);
        levels[i] = (int32_t)parity;
    }
    for (size_t i = 0; i < vector->dim; i++) {
        const int32_t dither = dither_of(&dithers, i);
        const unsigned parity = (unsigned)levels[i];
        const unsigned odd = (tally_trellis_offset(state, dither) ^ parity) & 1;
        const double level = nearest(target_of(vector, i, state, dither), odd);
        levels[i] = (int32_t)limited(level, limits.most[odd]);
        *clipped += fabs(level) > limits.most[odd];
        state = tally_trellis_after(state, parity);
    }
    return vector->dim;
}
