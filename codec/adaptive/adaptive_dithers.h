/* adaptive_dithers: the dithers of an uplink message. A dither needs no more than 16 bits, so a
 * random word makes two: rows 2 g and 2 g + 1, of 64 coordinates each, take the halves of the words
 * of group g (tally_rng_lanes()). Internal to codec/adaptive. */
#ifndef TALLY_CODEC_ADAPTIVE_ADAPTIVE_DITHERS_H
#define TALLY_CODEC_ADAPTIVE_ADAPTIVE_DITHERS_H

#include "codec/adaptive/adaptive_kernels.h"
#include "codec/dithered/dithered_kernels.h"

/* The words that were drawn last, because the next row may take their other halves. */
struct tally_adaptive_words {
    const struct tally_rng *rng; /* NULL = no dither */
    const struct tally_dithered_kernel *drawing;
    const struct tally_adaptive_kernel *kernel;
    size_t group; /* SIZE_MAX = none has been drawn */
    _Alignas(64) int32_t word[TALLY_ADAPTIVE_STEPS];
};

void tally_adaptive_words_init(struct tally_adaptive_words *words, const struct tally_rng *rng);

/* The dithers of a row; without a generator all are 0. */
void tally_adaptive_dithers(struct tally_adaptive_words *words, size_t row,
                            int32_t dithers[TALLY_ADAPTIVE_STEPS]);

#endif
