/* adaptive_units: struct tally_adaptive_units, a coordinate at a time. Internal to codec/adaptive.
 */
#ifndef TALLY_CODEC_ADAPTIVE_ADAPTIVE_UNITS_H
#define TALLY_CODEC_ADAPTIVE_ADAPTIVE_UNITS_H

#include <stdbool.h>

#include "codec/adaptive/adaptive.h"

static inline bool tally_adaptive_is_wide(const struct tally_adaptive_units *units)
{
    return units->reach > TALLY_ADAPTIVE_NARROW_REACH;
}

static inline void tally_adaptive_units_add(struct tally_adaptive_units *units, size_t i,
                                            int64_t value)
{
    if (tally_adaptive_is_wide(units)) {
        ((int64_t *)units->sums)[i] += value;
    } else {
        ((int32_t *)units->sums)[i] += (int32_t)value;
    }
}

/* tally_adaptive_levels(), with the dithers. */
void tally_adaptive_levels_and_dithers(const struct tally_adaptive_message *message, size_t first,
                                       size_t n, int32_t levels[TALLY_ADAPTIVE_BLOCK],
                                       int32_t dithers[TALLY_ADAPTIVE_BLOCK]);

/* Widens the sums if one more message, whose levels are at most `largest`, might not fit. */
void tally_adaptive_units_reserve(struct tally_adaptive_units *units, size_t dim, uint32_t largest);
/* The same, and adds such a message to `reach`. */
void tally_adaptive_units_reach(struct tally_adaptive_units *units, size_t dim, uint32_t largest);

/* Replaces the plain value that was counted for a level that is neither zero nor plain. */
void tally_adaptive_units_replace(struct tally_adaptive_units *units, size_t i, int32_t level,
                                  int32_t dither);

#endif
