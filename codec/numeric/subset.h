/* subset: n of `total` numbers, drawn without replacement.
 *
 * Every subset of n numbers has the same probability. The draw is a function of the stream alone,
 * so both sides of a wire know the subset at no cost in bits.
 *
 *     Floyd's algorithm (Bentley, Floyd, "A Sample of Brilliance", CACM 30(9), 1987):
 *     for j = total - n .. total - 1:   t uniform on {0 .. j};  take t, or j if t is taken
 *
 * Time O(n log n), because of the sort; memory O(n). With n = total all are taken and nothing is
 * drawn. */
#ifndef TALLY_CODEC_NUMERIC_SUBSET_H
#define TALLY_CODEC_NUMERIC_SUBSET_H

#include <stddef.h>
#include <stdint.h>

#include "codec/numeric/rng.h"

/* Number of table entries that a draw of n numbers needs: a power of two, at least 2 n. n <=
 * 2^30. */
size_t tally_subset_room(uint32_t n);

/* Draws n <= total numbers of 0 .. total - 1 into ret_drawn, uint32[n], ascending. `taken`,
 * uint32[tally_subset_room(n)], is a working table; it may be NULL if n = total. total <= 2^31. */
void tally_subset_draw(struct tally_rng *rng, uint32_t total, uint32_t n, uint32_t *taken,
                       uint32_t *ret_drawn);

#endif
