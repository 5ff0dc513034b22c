/* dithered_model: how probable a level is, given the dither and the levels before it; FORMAT.md
 * section 7.
 *
 * Idea: coordinates are not always alike. Seven hypotheses compete: that all coordinates have the
 * standard deviation that both sides expect; or that the deviation changes from coordinate to
 * coordinate and is now 2, 1, 1/2, ... 1/16 times the expected one. The probability of a level is
 * the weighted mean of its probabilities under the hypotheses. Each weight is then multiplied by
 * the probability of the level under its hypothesis (Bayes' rule). The weights of the last six also
 * drift to their neighbours and, a little, to all six, so that the coder follows changes. If
 * coordinates are alike, the first hypothesis wins, at a cost of log2(8/7) bits per message.
 *
 *     fixed      7/8 -------------------------------------------------
 *     changing   2     1/48 --+     a part of 1/64 of each weight
 *                1     1/48 --+--+  moves to each neighbour,
 *                1/2   1/48 --+--+  1/256 is shared by all six
 *                ...
 *
 * A level is modelled in units of 2^shift, so that the expected deviation is below 4 units:
 *
 *     q = high 2^shift + low - half       half = 2^shift / 2; shift is 0 up to sigma = 4 steps
 *     |high| <= reach     shares of 2^16 of its own, from the normal distribution
 *     |high| >  reach     one of the two tails, then |high| - reach in an Elias gamma code
 *     low                 shift bits as they are
 *
 *     share  0      1 + ...                                     65536
 *            | tail | -reach | ... | -1 | 0 | 1 | ... | reach | tail |
 *
 * The shares below a boundary are the mean of the normal distribution functions there, from an
 * integer table, plus one for each symbol below it, so that every symbol has a share. All
 * arithmetic is on integers; no machine's rounding decides a bit. Left out: what both sides decoded
 * in earlier messages, and neighbours other than the coordinates right before. */
#ifndef TALLY_CODEC_DITHERED_DITHERED_MODEL_H
#define TALLY_CODEC_DITHERED_DITHERED_MODEL_H

#include <stdint.h>

enum {
    TALLY_DITHERED_TOTAL_BITS = 16,  /* shares: 2^16 */
    TALLY_DITHERED_NORMAL_BITS = 24, /* probabilities in 2^-24 */
    TALLY_DITHERED_STATES = 6,       /* scales that a changing deviation may have */
    TALLY_DITHERED_HYPOTHESES = 1 + TALLY_DITHERED_STATES,
};

/* 2^24 times the probability that a normal variable, whose deviation has the ratio of `scale` to
 * the step, is below boundary 2^-32 steps. |boundary| <= 2^60. */
uint32_t tally_dithered_normal(uint32_t scale, int64_t boundary);

/* The first hypothesis is that of a fixed deviation. */
struct tally_dithered_model {
    unsigned shift;                              /* 0 .. 15 */
    int32_t reach;                               /* 1 .. 16: 4 expected deviations or more */
    uint32_t scales[TALLY_DITHERED_HYPOTHESES];  /* the deviation, as an index of dithered.h */
    uint32_t weights[TALLY_DITHERED_HYPOTHESES]; /* 1 .. 2^24; their sum is below 2^25 */
};

/* The model before the first level. No hypothesis has a scale below `least`. */
struct tally_dithered_model tally_dithered_model(uint32_t scale, uint32_t least);

/* The unit that a level lies in: (level + half) / 2^shift, rounded down. */
int32_t tally_dithered_high(const struct tally_dithered_model *model, int32_t level);

/* The lower end of the cell of `high`, in 2^-32 steps. */
int64_t tally_dithered_boundary(const struct tally_dithered_model *model, int32_t high,
                                int32_t dither);

/* The lower end of a symbol: the shares below it, and 2^24 times the distribution function there
 * under each hypothesis. */
struct tally_dithered_bound {
    uint32_t shares;
    uint32_t below[TALLY_DITHERED_HYPOTHESES];
};

/* The bound of symbol `high`, for this dither. -reach - 1 is the lower tail and has no shares below
 * it, reach + 1 the upper tail, and reach + 2 stands for its upper end. Shares ascend strictly. */
void tally_dithered_bound(const struct tally_dithered_model *model, int32_t high, int32_t dither,
                          struct tally_dithered_bound *ret_bound);

/* Updates the weights after a level whose symbol has these ends. */
void tally_dithered_learn(struct tally_dithered_model *model,
                          const struct tally_dithered_bound *first,
                          const struct tally_dithered_bound *end);

#endif
