/* entropy_model: which symbol stands for a level, and how probable it is; FORMAT.md section 6.
 *
 * Idea: both sides count the levels that they have seen and use the counts as probabilities for the
 * next block. Until there are enough levels, a prior decides: the message names one of 15 bell
 * shapes by its scale, which is a statistic of the levels, not a choice of the encoder.
 *
 * A level is a symbol and, in rare cases or on wide grids, some bits with no structure worth
 * modelling:
 *
 *     level + half = 2^shift * high + low          half = 2^shift / 2; shift > 0 only on wide data
 *     |high| <= 10      symbol high + 10
 *     |high| >= 11      symbol 21 + c for classes of 4^(c + 2) magnitudes; sign and offset are bits
 *     a symbol without a frequency is written as the escape, its number as bits
 *
 * Coordinates come in blocks of 32, 32, 64, 128 and so on, doubling up to 256 in a short message
 * and 16384 in a long one. The frequencies of a block come from what both sides know before it: the
 * prior, which weighs as much as 128 levels, and the window of up to 4096 levels before the block.
 *
 *     coordinate  0        32       64             128
 *                 | prior  | prior + levels 0..31  | prior + levels 0..63 | ...
 *
 * Example: levels 0, 1, -1, 2, -3, 0, 4. Their bit lengths 0 1 1 2 2 0 3 have the mean 9/7, which
 * is scale 12: zero has the prior weight 7475 of about 2^15, hence the frequency 939 of 4096, and
 * costs 2.1 bits; a 4 costs 5.9 bits.
 *
 * All arithmetic is on integers, and the priors are constants of the format: no machine's rounding
 * decides a bit. Left out: priors of other shapes, contexts, adaptation by symbol (DESIGN.md has
 * the figures). */
#ifndef TALLY_CODEC_ENTROPY_ENTROPY_MODEL_H
#define TALLY_CODEC_ENTROPY_ENTROPY_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TALLY_ENTROPY_TOTAL_BITS = 12, /* frequencies add up to 2^12 */
    TALLY_ENTROPY_TOTAL = 1 << TALLY_ENTROPY_TOTAL_BITS,
    TALLY_ENTROPY_DIRECT = 10, /* the largest |high| with a symbol of its own */
    TALLY_ENTROPY_FIRST_CLASS = 2 * TALLY_ENTROPY_DIRECT + 1,
    TALLY_ENTROPY_ESCAPE = 31,
    TALLY_ENTROPY_SYMBOLS = 32,
    TALLY_ENTROPY_FIRST_BLOCK = 32,
    TALLY_ENTROPY_SHORT_BLOCK = 256,  /* the longest of a short message */
    TALLY_ENTROPY_LONG_BLOCK = 16384, /* and of a long one */
    TALLY_ENTROPY_WINDOW = 4096,
    TALLY_ENTROPY_SCALES = 53,
    TALLY_ENTROPY_SAMPLE = 4096,
};

/* How wide the levels of a message are, found from a sample of them. */
struct tally_entropy_sample {
    size_t stride;   /* every stride-th coordinate counts, from 0 on */
    uint64_t n, sum; /* coordinates counted; sum of the bit lengths of their |level| */
};

struct tally_entropy_sample tally_entropy_sample(size_t dim);
/* Adds coordinates first .. first + n - 1. Calls may be in any order, but each coordinate once. */
void tally_entropy_sample_add(struct tally_entropy_sample *sample, size_t first,
                              const int32_t *levels, size_t n);
/* The scale of the message, 0 .. TALLY_ENTROPY_SCALES - 1. */
unsigned tally_entropy_sample_scale(const struct tally_entropy_sample *sample);

/* Number of low bits of a level that are not modelled at this scale, 0 .. 19. */
unsigned tally_entropy_shift(unsigned scale);

/* How a level is written. */
struct tally_entropy_code {
    unsigned symbol;  /* the level's own, not the escape */
    unsigned n_extra; /* bits after the symbol, without those of the escape; <= 42 */
    uint64_t extra;
};

/* The modelled part of a level: (level + half) / 2^shift, rounded down. */
int32_t tally_entropy_high(int32_t level, unsigned shift);
struct tally_entropy_code tally_entropy_code(int32_t level, unsigned shift);
/* The bits after this symbol. */
unsigned tally_entropy_n_extra(unsigned symbol, unsigned shift);
int64_t tally_entropy_level(unsigned symbol, uint64_t extra, unsigned shift);

/* The first coordinate of the block after the one that starts at `start`. `longest`: length of the
 * message's longest blocks. */
size_t tally_entropy_block_end(size_t start, size_t longest);
/* The first coordinate of the block before the one that starts at `start` > 0. */
size_t tally_entropy_block_before(size_t start, size_t longest);

/* Symbol s has the shares cumulative[s] .. cumulative[s] + frequency[s] - 1 of 2^12. The escape has
 * at least one share; any other symbol may have none. */
struct tally_entropy_table {
    uint16_t frequency[TALLY_ENTROPY_SYMBOLS];
    uint16_t cumulative[TALLY_ENTROPY_SYMBOLS];
};

/* Adds n levels to the counts of their symbols; the escape has none. */
void tally_entropy_count(const int32_t *levels, size_t n, unsigned shift,
                         uint32_t counts[TALLY_ENTROPY_SYMBOLS]);

/* Moves the window, counted in `counts`, from the start of block[n] to its end. The block starts at
 * coordinate `start`. */
void tally_entropy_slide(const int32_t *block, size_t start, size_t n, unsigned shift,
                         uint32_t counts[TALLY_ENTROPY_SYMBOLS]);

/* The table of a block, from the counts of the levels right before it (at most a window). */
void tally_entropy_table(unsigned scale, const uint32_t counts[TALLY_ENTROPY_SYMBOLS],
                         struct tally_entropy_table *ret_table);

#endif
