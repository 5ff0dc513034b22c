/* trellis: which points a coordinate of a short message may be rounded to; FORMAT.md section 7.
 *
 * Idea (trellis-coded quantization, Marcellin and Fischer 1990): two grids take turns, the second
 * of them half a step beside the first, and the parities of the levels so far decide which of them
 * is next. The encoder looks for the sequence of levels with the least squared error (Viterbi's
 * algorithm). By the parities it chooses among points that lie half a step apart, although each
 * level costs the bits of points that lie a step apart.
 *
 *     grid 0         0       1       2       3         level, with its parity b
 *                ----o-------o-------o-------o----
 *     grid 1             0       1       2       3
 *                --------o-------o-------o-------o
 *
 *     grid of coordinate i:  lowest bit of its state s
 *     next state:            (s >> 1) xor 5 (s & 1) xor 2 b
 *
 * That is Ungerboeck's code of eight states. With a dither that is uniform over two steps (its
 * lowest bit says which of them), the error does not depend on the vector, as without a trellis. It
 * has mean 0, is at most a step, and has a mean square of about 0.78 / 12 squared steps, in place
 * of 1 / 12. */
#ifndef TALLY_CODEC_DITHERED_TRELLIS_H
#define TALLY_CODEC_DITHERED_TRELLIS_H

#include "codec/quantize/level_encoding.h"

enum {
    TALLY_TRELLIS_STATES = 8,
    /* Errors above half a step happen to coordinates of any size, so a coder should not take a
     * deviation to be less than 2^-3.5 steps (as an index of dithered.h). */
    TALLY_TRELLIS_LEAST_SCALE = 72,
};

/* The dither U' of a coordinate in this state: on grid 1, half a step more, modulo a step. */
static inline int32_t tally_trellis_dither(unsigned state, int32_t dither)
{
    return (int32_t)((uint32_t)dither ^ (uint32_t)(state & 1) << 31);
}

/* The parity b of level 0, U + o in FORMAT.md: the lowest bit of U, flipped if U' has lost a step.
 */
static inline unsigned tally_trellis_offset(unsigned state, int32_t dither)
{
    return ((unsigned)dither ^ (state & (dither >= 0))) & 1;
}

static inline unsigned tally_trellis_after(unsigned state, unsigned parity)
{
    return state >> 1 ^ 5 * (state & 1) ^ parity << 1;
}

/* The state after a level; `dither` is U, not U'. */
static inline unsigned tally_trellis_next(unsigned state, int32_t dither, int64_t level)
{
    return tally_trellis_after(state, ((unsigned)level ^ tally_trellis_offset(state, dither)) & 1);
}

/* Rounds y to levels (int32[dim]) of magnitude <= intervals / 2; adds the number of those that
 * would be larger to *clipped. Returns dim, or the index of the first coordinate that is not
 * finite. */
size_t tally_trellis_round(const struct tally_vector *vector, int32_t *levels, uint64_t *clipped);

#endif
