/* dithered_model: how probable a level is, given the dither; FORMAT.md section 7.
 *
 * A level is modelled in units of 2^shift, so that the standard deviation is below 4 units:
 *
 *     q = high 2^shift + low - half       half = 2^shift / 2; shift is 0 up to sigma = 4 steps
 *     |high| <= reach     its own shares of 2^16, from the normal distribution
 *     |high| >  reach     one of the two tails, then |high| - reach in an Elias gamma code
 *     low                 shift bits as they are
 *
 *     share  0      1 + ...                                     65536
 *            | tail | -reach | ... | -1 | 0 | 1 | ... | reach | tail |
 *
 * The shares below a boundary are the normal distribution function there, from an integer table,
 * plus one for each symbol below it: no symbol is without a share. No rounding of a machine decides
 * a bit. */
#ifndef TALLY_CODEC_DITHERED_DITHERED_MODEL_H
#define TALLY_CODEC_DITHERED_DITHERED_MODEL_H

#include <stdint.h>

enum {
    TALLY_DITHERED_TOTAL_BITS = 16,  /* shares: 2^16 */
    TALLY_DITHERED_NORMAL_BITS = 24, /* probabilities in 2^-24 */
};

/* 2^24 times the probability that a normal variable whose ratio to the step is that of `scale` lies
 * below boundary 2^-32 steps. |boundary| <= 2^60. */
uint32_t tally_dithered_normal(uint32_t scale, int64_t boundary);

struct tally_dithered_model {
    uint32_t scale;
    unsigned shift; /* 0 .. 15 */
    int32_t reach;  /* 1 .. 16: at least 4 standard deviations */
};

struct tally_dithered_model tally_dithered_model(uint32_t scale);

/* The unit that a level lies in: (level + half) / 2^shift, rounded down. */
int32_t tally_dithered_high(const struct tally_dithered_model *model, int32_t level);

/* Shares of 2^16 below symbol `high`, -reach .. reach + 1, for this dither: at least 1 and
 * ascending, at most 2^16 - 1. */
uint32_t tally_dithered_shares(const struct tally_dithered_model *model, int32_t high,
                               int32_t dither);

#endif
