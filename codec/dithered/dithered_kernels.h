/* dithered_kernels: the loops over a block of a long message, once per instruction set. Internal to
 * codec/, its tests and its benchmark.
 *
 * The coder is rANS with 64 lanes, as in codec/entropy/entropy_kernels.h: the same states and
 * words, but the frequencies sum to 2^14, and those of a symbol depend on the dither. A dither
 * falls into one of 32 bins, the bins of a boundary fill one vector register, and a vector
 * permutation looks up the boundary for 32 coordinates at once:
 *
 *     U      -2^31                        0                        2^31
 *     bin    |0|1|2| ... |14|     15      |      16     |17| ... |30|31|
 *
 * Bins are 2^bin_shift wide, except for the two in the middle, which cover the rest. Bins are
 * narrow at the ends because dithers there put a boundary between cells near y = 0, where most
 * coordinates are. */
#ifndef TALLY_CODEC_DITHERED_DITHERED_KERNELS_H
#define TALLY_CODEC_DITHERED_DITHERED_KERNELS_H

#include "codec/dithered/dithered_model.h"
#include "codec/entropy/entropy_kernels.h"
#include "codec/quantize/level_encoding.h"

enum {
    TALLY_DITHERED_BLOCK = 4096, /* coordinates per block, except for the last one */
    TALLY_DITHERED_LONG_BITS = 14,
    TALLY_DITHERED_LONG_TOTAL = 1 << TALLY_DITHERED_LONG_BITS,
    TALLY_DITHERED_BINS = 32,
    TALLY_DITHERED_START_BITS = 5,
    TALLY_DITHERED_STARTS = 1 << (TALLY_DITHERED_LONG_BITS - TALLY_DITHERED_START_BITS),
    TALLY_DITHERED_MOST_SYMBOLS = 35,
    TALLY_DITHERED_ROW_BITS = 6, /* 2^6 is more than the boundaries in a bin */
};

/* In bin b, symbol s owns shares cumulative[s][b] .. cumulative[s + 1][b] - 1 of 2^14. Symbols 0 ..
 * n - 1 are high = s - reach - 1; the first and the last are the tails. */
struct tally_dithered_table {
    _Alignas(64) uint16_t cumulative[TALLY_DITHERED_MOST_SYMBOLS + 1][TALLY_DITHERED_BINS];
    uint16_t of_bin[TALLY_DITHERED_BINS][1 << TALLY_DITHERED_ROW_BITS]; /* transposed */
    /* For decoders, an entry for every 2^5th share: first + 2^16 end + 2^32 s of the symbol s that
     * the share lies in. */
    uint64_t starts[TALLY_DITHERED_BINS][TALLY_DITHERED_STARTS];
    /* For decoders: hardly any share lies outside of the boundaries `likely` .. `likely_end`. */
    unsigned likely, likely_end;
    unsigned n;
    unsigned bin_shift; /* 23 .. 27 */
};

/* The table of a message whose coordinates have the scale of the model's first hypothesis; without
 * the parts that only a decoder needs. */
void tally_dithered_table(const struct tally_dithered_model *model,
                          struct tally_dithered_table *ret_table);
/* Adds the parts that only a decoder needs. */
void tally_dithered_starts(struct tally_dithered_table *table);

/* All kernels give equal results. n <= TALLY_DITHERED_BLOCK. */
struct tally_dithered_kernel {
    /* Writes the dithers of coordinates 64 group .. 64 group + n - 1; `dithers` has room for n
     * rounded up to a multiple of 64. */
    void (*dithers)(const struct tally_rng *rng, uint32_t group, size_t n, int32_t *dithers);

    /* Rounds y[n] to levels[n] and adds the number of levels beyond the top to *clipped. Returns n,
     * or the index of the first coordinate that is not finite; levels and *clipped are unspecified
     * then. */
    size_t (*quantize)(const struct tally_grid *grid, const float *y, const int32_t *dithers,
                       size_t n, int32_t *levels, uint64_t *clipped);

    /* The bins of dithers[n]. */
    void (*bins)(const struct tally_dithered_table *table, const int32_t *dithers, size_t n,
                 uint8_t *bins);

    /* The symbols of levels[n]; returns how many are tails. */
    size_t (*symbols)(const struct tally_dithered_model *model, const int32_t *levels, size_t n,
                      uint8_t *symbols);

    /* Encodes symbols[n] backwards into the words before `end`; returns where they begin. At least
     * 2 n + 64 bytes precede `end`; unused ones may be overwritten. */
    uint8_t *(*encode)(const struct tally_dithered_table *table, const uint8_t *symbols,
                       const uint8_t *bins, size_t n, struct tally_rans_states *states,
                       uint8_t *end);

    /* Decodes n symbols from the words at `data`; returns where the words end, or NULL if `end`
     * comes first. Never reads at or past `end`. */
    const uint8_t *(*decode)(const struct tally_dithered_table *table, const uint8_t *bins,
                             const uint8_t *data, const uint8_t *end, size_t n,
                             struct tally_rans_states *states, uint8_t *symbols);

    /* The levels symbol - reach - 1 of symbols[n]; returns how many are tails. */
    size_t (*levels)(const struct tally_dithered_model *model, const uint8_t *symbols, size_t n,
                     int32_t *levels);

    void (*scan)(const int32_t *levels, size_t n, struct tally_entropy_scan *ret_scan);

    /* Adds level 2^32 - dither, times `sign`, to sums[n]. */
    void (*add)(const int32_t *levels, const int32_t *dithers, size_t n, int sign, int64_t *sums);
};

extern const struct tally_dithered_kernel TALLY_DITHERED_PORTABLE, TALLY_DITHERED_AVX2,
    TALLY_DITHERED_AVX512;

/* The kernel for an instruction set that this machine has. TALLY_CPU_AVX512 without VBMI2, as on
 * Skylake, gets the AVX2 kernel. */
const struct tally_dithered_kernel *tally_dithered_kernel_for(enum tally_cpu cpu);

#endif
