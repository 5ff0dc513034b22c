/* adaptive_kernels: the loops over vectors, and over a tile of a long message, once per instruction
 * set. Internal to codec/adaptive and its tests.
 *
 * A tile is 64 steps of 64 lanes. A lane reads a stretch of consecutive coordinates, so that each
 * follows the density of its own neighbourhood, and vector instructions code a step of 16 lanes at
 * a time:
 *
 *     step 0    first of stretch 0    first of stretch 1    ...  first of stretch 63
 *     step 1    second of stretch 0   second of stretch 1   ...
 *
 * The coder is rANS (codec/entropy/rans.h) with shares of 2^15. A symbol says whether a level is
 * zero, plain or special; the shares of a coordinate depend on its context, a byte that is 16 times
 * the class of the density plus the class of the dither, or, without dither, plus the last two
 * symbols of the lane, a bit each: whether the level was not zero. */
#ifndef TALLY_CODEC_ADAPTIVE_ADAPTIVE_KERNELS_H
#define TALLY_CODEC_ADAPTIVE_ADAPTIVE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/adaptive/adaptive_model.h"
#include "codec/entropy/rans.h"
#include "codec/numeric/cpu.h"
#include "codec/numeric/fixed_point.h"

enum {
    TALLY_ADAPTIVE_LANES = TALLY_RANS_LANES,
    TALLY_ADAPTIVE_STEPS = 64, /* of a tile */
    TALLY_ADAPTIVE_TILE = TALLY_ADAPTIVE_LANES * TALLY_ADAPTIVE_STEPS,
    TALLY_ADAPTIVE_CONTEXTS = TALLY_ADAPTIVE_DENSITIES * TALLY_ADAPTIVE_DITHERS,
    TALLY_ADAPTIVE_SHARE_BITS = 15,
    TALLY_ADAPTIVE_SHARES = 1 << TALLY_ADAPTIVE_SHARE_BITS,
    TALLY_ADAPTIVE_COUNT_ONE = 256,      /* a coordinate in the counts */
    TALLY_ADAPTIVE_MOST_COUNT = 1 << 20, /* of a context; from here on its counts are halved */
};

/* Of 2^15 shares, zero owns 0 .. plain - 1, plain owns plain .. special - 1, special the others. */
struct tally_adaptive_shares {
    _Alignas(64) uint16_t plain[TALLY_ADAPTIVE_CONTEXTS], special[TALLY_ADAPTIVE_CONTEXTS];
};

/* How often a context had which symbol, in 1/256 coordinates. */
struct tally_adaptive_counts {
    uint32_t total[TALLY_ADAPTIVE_CONTEXTS], nonzero[TALLY_ADAPTIVE_CONTEXTS];
    uint32_t all[TALLY_ADAPTIVE_CONTEXTS], special[TALLY_ADAPTIVE_CONTEXTS]; /* of the nonzero */
};

struct tally_adaptive_lanes {
    struct tally_rans_states rans;
    _Alignas(64) int32_t density[TALLY_ADAPTIVE_LANES];
    _Alignas(64) uint32_t last[TALLY_ADAPTIVE_LANES]; /* without dither: the last two symbols */
};

/* Bit l of a step's word stands for lane l. */
struct tally_adaptive_tile {
    _Alignas(64) uint8_t classes[TALLY_ADAPTIVE_STEPS][TALLY_ADAPTIVE_LANES]; /* of the dithers */
    _Alignas(64) uint8_t contexts[TALLY_ADAPTIVE_STEPS][TALLY_ADAPTIVE_LANES];
    uint64_t nonzero[TALLY_ADAPTIVE_STEPS], special[TALLY_ADAPTIVE_STEPS];
};

/* A symbol to be encoded: its first share, and 2^16 times the number of its shares. */
typedef uint32_t tally_adaptive_symbol;

/* All kernels give equal results. */
struct tally_adaptive_kernel {
    /* The dithers of a row, from the low or the high halves of random words. */
    void (*halves)(const int32_t words[TALLY_ADAPTIVE_STEPS], bool high,
                   int32_t dithers[TALLY_ADAPTIVE_STEPS]);

    /* The classes of dithers[lane][step], by step. */
    void (*classes)(const int32_t dithers[TALLY_ADAPTIVE_LANES][TALLY_ADAPTIVE_STEPS],
                    uint8_t classes[TALLY_ADAPTIVE_STEPS][TALLY_ADAPTIVE_LANES]);

    /* Swaps rows and columns of 64 x 64 bits. */
    void (*transpose)(uint64_t rows[64]);

    /* The number of ones in 64 words. */
    uint32_t (*count)(const uint64_t words[64]);

    /* levels[j] <- 0 if bit j of `nonzero` is 0, else the plain level: 1, or -1 if dithers[j] is
     * negative. */
    void (*levels)(uint64_t nonzero, const int32_t dithers[TALLY_ADAPTIVE_STEPS],
                   int32_t levels[TALLY_ADAPTIVE_STEPS]);

    /* Adds these levels to narrow sums and to squares, as struct tally_adaptive_units says. */
    void (*add)(uint64_t nonzero, const int32_t dithers[TALLY_ADAPTIVE_STEPS],
                int32_t sums[TALLY_ADAPTIVE_STEPS], uint64_t squares[TALLY_FIXED_POINT_LANES]);

    /* Bit j of *ret_nonzero: whether levels[j] is not 0. Bit j of *ret_special: whether it is
     * neither 0 nor the plain level. Returns the sum of the magnitudes. */
    uint64_t (*masks)(const int32_t levels[TALLY_ADAPTIVE_STEPS],
                      const int32_t dithers[TALLY_ADAPTIVE_STEPS], uint64_t *ret_nonzero,
                      uint64_t *ret_special);

    /* tally_adaptive_round_change() and tally_adaptive_move(). */
    void (*round_change)(const double *to, const double *from, size_t n, double inverse,
                         double threshold, int32_t *levels);
    void (*move)(const int32_t *levels, size_t n, double step, double *x);

    /* Makes shares of the counts. */
    void (*settle)(const struct tally_adaptive_counts *counts,
                   struct tally_adaptive_shares *ret_shares);
    /* Counts the symbols of a tile, and makes shares of the counts. */
    void (*learn)(bool is_dithered, const struct tally_adaptive_tile *tile,
                  struct tally_adaptive_counts *counts, struct tally_adaptive_shares *ret_shares);

    /* Decodes a tile from the words at `data`: sets contexts and symbols. Returns where the words
     * end, or NULL if `end` comes first. Never reads at or past `end`. */
    const uint8_t *(*decode)(const struct tally_adaptive_shares *shares, bool is_dithered,
                             const uint8_t *data, const uint8_t *end,
                             struct tally_adaptive_lanes *lanes, struct tally_adaptive_tile *tile);

    /* Sets the contexts of a tile whose symbols are known, and what to encode. */
    void (*model)(const struct tally_adaptive_shares *shares, bool is_dithered,
                  struct tally_adaptive_lanes *lanes, struct tally_adaptive_tile *tile,
                  tally_adaptive_symbol symbols[TALLY_ADAPTIVE_STEPS][TALLY_ADAPTIVE_LANES]);

    /* Encodes a tile backwards into the words before `end`; returns where they begin. At least
     * 2 TALLY_ADAPTIVE_TILE + 64 bytes precede `end`; unused ones may be overwritten. */
    uint8_t *(*encode)(
        const tally_adaptive_symbol symbols[TALLY_ADAPTIVE_STEPS][TALLY_ADAPTIVE_LANES],
        struct tally_rans_states *states, uint8_t *end);
};

extern const struct tally_adaptive_kernel TALLY_ADAPTIVE_PORTABLE, TALLY_ADAPTIVE_AVX2,
    TALLY_ADAPTIVE_AVX512;

/* The kernel for an instruction set that this machine has. TALLY_CPU_AVX512 without VBMI2, as on
 * Skylake, gets the AVX2 kernel. */
const struct tally_adaptive_kernel *tally_adaptive_kernel_for(enum tally_cpu cpu);

#endif
