#include "codec/adaptive/adaptive_dithers.h"

#include <string.h>

void tally_adaptive_words_init(struct tally_adaptive_words *words, const struct tally_rng *rng)
{
    words->rng = rng;
    words->drawing = tally_dithered_kernel_for(tally_cpu_used());
    words->kernel = tally_adaptive_kernel_for(tally_cpu_used());
    words->group = SIZE_MAX;
}

void tally_adaptive_dithers(struct tally_adaptive_words *words, size_t row,
                            int32_t dithers[TALLY_ADAPTIVE_STEPS])
{
    if (words->rng == NULL) {
        memset(dithers, 0, TALLY_ADAPTIVE_STEPS * sizeof *dithers);
        return;
    }
    if (words->group != row / 2) {
        words->group = row / 2;
        words->drawing->dithers(words->rng, (uint32_t)words->group, TALLY_ADAPTIVE_STEPS,
                                words->word);
    }
    words->kernel->halves(words->word, row % 2 != 0, dithers);
}
