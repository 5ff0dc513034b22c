#include "codec/dithered/dithered_model.h"

#include <stdlib.h>

#include "codec/dithered/dithered.h"

enum {
    OCTAVE = TALLY_DITHERED_OCTAVE,
    LOWEST_OCTAVE = -8, /* of the ratio sigma / step */
    WIDE_OCTAVE = 2,    /* from a ratio of 2^2 on levels have low bits */
    TABLE_BITS = 4,     /* table entries per standard deviation: 2^4 */
    TABLE_SIZE = 89,
    FRACTION_BITS = 12, /* between two entries */
    SATURATED = 1 << 29,
    WEIGHT_BITS = 24,
    FIXED_WEIGHT = 42 << 16, /* initial weight of the fixed state, 7/8 of the total */
    STATE_WEIGHT = 1 << 16,  /* initial weight of each of the six other states */
    DRIFT_BITS = 6,          /* 2^-6 of a weight moves to each neighbour */
    JUMP_BITS = 8,           /* 2^-8 of a weight is shared by all states */
};

/* 2^24 times the probability that a standard normal variable is above k / 16, rounded to the
 * nearest integer. */
static const uint32_t ABOVE[TABLE_SIZE] = {
    8388608, 7970559, 7554139, 7140959, 6732591, 6330552, 5936286, 5551151, 5176401, 4813177,
    4462497, 4125246, 3802176, 3493895, 3200874, 2923442, 2661793, 2415993, 2185979, 1971578,
    1772509, 1588395, 1418777, 1263123, 1120839, 991284,  873779,  767618,  672081,  586439,
    509966,  441948,  381684,  328499,  281745,  240804,  205093,  174065,  147211,  124061,
    104181,  87176,   72686,   60389,   49992,   41237,   33892,   27755,   22648,   18413,
    14915,   12038,   9681,    7757,    6192,    4925,    3903,    3081,    2424,    1900,
    1483,    1154,    894,     691,     531,     407,     311,     237,     179,     135,
    102,     76,      57,      42,      31,      23,      17,      13,      9,       7,
    5,       3,       2,       2,       1,       1,       1,       0,       0};

/* 2^32 2^(-j/16), rounded to the nearest. */
static const uint64_t INVERSE[OCTAVE] = {
    4294967296, 4112874773, 3938502376, 3771522796, 3611622603, 3458501653, 3311872529, 3171459999,
    3037000500, 2908241642, 2784941738, 2666869345, 2553802834, 2445529972, 2341847524, 2242560872};

/* 2^24 times the probability above `size` 2^-32 steps. `deviations`, in 2^-16 standard deviations,
 * is size 2^-32 2^16 / 2^(scale/16 - 8). */
static uint32_t probability_above(uint32_t scale, uint64_t size)
{
    const uint64_t reduced = size >> (scale / OCTAVE);
    if (reduced >= SATURATED) {
        return 0;
    }
    const uint64_t deviations = reduced * INVERSE[scale % OCTAVE] >> (32 - LOWEST_OCTAVE);
    const size_t entry = (size_t)(deviations >> FRACTION_BITS);
    if (entry >= TABLE_SIZE - 1) {
        return 0;
    }
    const uint32_t fraction = (uint32_t)deviations & ((1u << FRACTION_BITS) - 1);
    const uint64_t fall = (uint64_t)(ABOVE[entry] - ABOVE[entry + 1]) * fraction;
    return ABOVE[entry] - (uint32_t)(fall >> FRACTION_BITS);
}

uint32_t tally_dithered_normal(uint32_t scale, int64_t boundary)
{
    const uint32_t one = 1u << TALLY_DITHERED_NORMAL_BITS;
    return boundary < 0 ? probability_above(scale, (uint64_t)-boundary)
                        : one - probability_above(scale, (uint64_t)boundary);
}

/* The index of the scale that is `octaves` octaves above or below, clamped to the range. */
static uint32_t moved(uint32_t scale, int octaves, uint32_t least)
{
    const int to = (int)scale + octaves * OCTAVE;
    return to < (int)least              ? least
           : to < TALLY_DITHERED_SCALES ? (uint32_t)to
                                        : TALLY_DITHERED_SCALES - 1;
}

struct tally_dithered_model tally_dithered_model(uint32_t scale, uint32_t least)
{
    const int octave = (int)(scale / OCTAVE) + LOWEST_OCTAVE;
    const int shift = octave < WIDE_OCTAVE ? 0 : octave - WIDE_OCTAVE + 1;
    const int log_reach = octave - shift + 3; /* a deviation is below 2^(octave + 1) */
    struct tally_dithered_model model = {.shift = (unsigned)shift,
                                         .reach = log_reach < 0 ? 1 : 1 << log_reach,
                                         .scales = {moved(scale, 0, least)},
                                         .weights = {FIXED_WEIGHT}};
    for (int k = 0; k < TALLY_DITHERED_STATES; k++) {
        model.scales[1 + k] = moved(scale, 1 - k, least);
        model.weights[1 + k] = STATE_WEIGHT;
    }
    return model;
}

int32_t tally_dithered_high(const struct tally_dithered_model *model, int32_t level)
{
    const int32_t half = (int32_t)((1u << model->shift) >> 1);
    return (level + half) >> model->shift; /* an arithmetic shift, in all our compilers */
}

int64_t tally_dithered_boundary(const struct tally_dithered_model *model, int32_t high,
                                int32_t dither)
{
    const int64_t half = (int64_t)((1u << model->shift) >> 1);
    const int64_t level = (int64_t)high * (INT64_C(1) << model->shift) - half;
    return (2 * level - 1) * (INT64_C(1) << 31) - dither;
}

/* Makes the bound at the upper tail's upper end, or at the lower tail's lower end. */
static void set_end(uint32_t shares, uint32_t below, struct tally_dithered_bound *ret_bound)
{
    ret_bound->shares = shares;
    for (int h = 0; h < TALLY_DITHERED_HYPOTHESES; h++) {
        ret_bound->below[h] = below;
    }
}

void tally_dithered_bound(const struct tally_dithered_model *model, int32_t high, int32_t dither,
                          struct tally_dithered_bound *ret_bound)
{
    const uint32_t total = 1u << TALLY_DITHERED_TOTAL_BITS;
    if (high < -model->reach) {
        set_end(0, 0, ret_bound);
        return;
    }
    if (high > model->reach + 1) {
        set_end(total, 1u << TALLY_DITHERED_NORMAL_BITS, ret_bound);
        return;
    }
    const int64_t boundary = tally_dithered_boundary(model, high, dither);
    uint64_t sum = 0, weight = 0;
    for (int h = 0; h < TALLY_DITHERED_HYPOTHESES; h++) {
        ret_bound->below[h] = tally_dithered_normal(model->scales[h], boundary);
        sum += (uint64_t)model->weights[h] * ret_bound->below[h];
        weight += model->weights[h];
    }
    const uint32_t n_below = (uint32_t)(high + model->reach + 1); /* symbols, lower tail included */
    const uint32_t left = total - (uint32_t)(2 * model->reach + 3);
    ret_bound->shares = n_below + (uint32_t)(sum / weight * left >> TALLY_DITHERED_NORMAL_BITS);
}

/* Moves a part of each state's weight to its neighbours, and a part to all states. */
static void drift(uint32_t states[TALLY_DITHERED_STATES])
{
    uint32_t before[TALLY_DITHERED_STATES], sum = 0;
    for (int k = 0; k < TALLY_DITHERED_STATES; k++) {
        before[k] = states[k];
        sum += states[k];
    }
    const uint32_t jump = (sum >> JUMP_BITS) / TALLY_DITHERED_STATES;
    for (int k = 0; k < TALLY_DITHERED_STATES; k++) {
        const uint32_t out = before[k] >> DRIFT_BITS;
        states[k] += jump + 1 - (before[k] >> JUMP_BITS);
        if (k > 0) {
            states[k] += (before[k - 1] >> DRIFT_BITS) - out;
        }
        if (k < TALLY_DITHERED_STATES - 1) {
            states[k] += (before[k + 1] >> DRIFT_BITS) - out;
        }
    }
}

void tally_dithered_learn(struct tally_dithered_model *model,
                          const struct tally_dithered_bound *first,
                          const struct tally_dithered_bound *end)
{
    uint64_t products[TALLY_DITHERED_HYPOTHESES], sum = 0;
    for (int h = 0; h < TALLY_DITHERED_HYPOTHESES; h++) {
        products[h] = (uint64_t)model->weights[h] * (end->below[h] - first->below[h] + 1);
        sum += products[h];
    }
    const int bits = 64 - __builtin_clzll(sum); /* sum > 0, because each factor is */
    const unsigned shift = bits > WEIGHT_BITS ? (unsigned)(bits - WEIGHT_BITS) : 0;
    for (int h = 0; h < TALLY_DITHERED_HYPOTHESES; h++) {
        model->weights[h] = (uint32_t)(products[h] >> shift) + 1;
    }
    drift(model->weights + 1);
}
