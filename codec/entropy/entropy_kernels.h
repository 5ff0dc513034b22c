/* entropy_kernels: the loops over the levels of a long message, once per instruction set. Internal
 * to codec/, its tests and its benchmark.
 *
 * The coder is that of rans.h with shares of 2^12. Every kernel gives the same bytes. */
#ifndef TALLY_CODEC_ENTROPY_ENTROPY_KERNELS_H
#define TALLY_CODEC_ENTROPY_ENTROPY_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "codec/entropy/entropy_model.h"
#include "codec/entropy/rans.h"
#include "codec/numeric/cpu.h"

/* A table as the encoder needs it, which multiplies instead of dividing:
 *
 *     q      = (state * reciprocal >> 32) >> shift       state / frequency
 *     state' = state + bias + q * (2^12 - frequency)     2^12 * q + state % frequency + first
 *
 * A symbol without a frequency has the escape's entries. */
struct tally_rans_encode_table {
    _Alignas(64) uint32_t frequency[TALLY_ENTROPY_SYMBOLS];
    _Alignas(64) uint32_t bias[TALLY_ENTROPY_SYMBOLS];
    _Alignas(64) uint32_t reciprocal[TALLY_ENTROPY_SYMBOLS];
    _Alignas(64) uint32_t shift[TALLY_ENTROPY_SYMBOLS];
};

/* For each share: symbol << 24 | (share - first) << 12 | frequency. */
struct tally_rans_decode_table {
    _Alignas(64) uint32_t entries[TALLY_ENTROPY_TOTAL];
};

void tally_rans_encode_table(const struct tally_entropy_table *table,
                             struct tally_rans_encode_table *ret_table);
void tally_rans_decode_table(const struct tally_entropy_table *table,
                             struct tally_rans_decode_table *ret_table);

/* Statistics of a piece of levels. */
struct tally_entropy_scan {
    uint64_t sum; /* of magnitudes */
    uint64_t nonzeros;
    uint32_t largest; /* magnitude */
};

static inline void tally_entropy_scan_merge(struct tally_entropy_scan *scan,
                                            const struct tally_entropy_scan *more)
{
    scan->sum += more->sum;
    scan->nonzeros += more->nonzeros;
    scan->largest = more->largest > scan->largest ? more->largest : scan->largest;
}

static inline struct tally_entropy_scan tally_entropy_scan_of(const int32_t *levels, size_t n)
{
    struct tally_entropy_scan scan = {0};
    for (size_t i = 0; i < n; i++) {
        const uint32_t magnitude = (uint32_t)(levels[i] < 0 ? -levels[i] : levels[i]);
        scan.sum += magnitude;
        scan.nonzeros += magnitude != 0;
        scan.largest = magnitude > scan.largest ? magnitude : scan.largest;
    }
    return scan;
}

/* The inner loops, once per instruction set; all give the same bytes. n <=
 * TALLY_ENTROPY_LONG_BLOCK. */
struct tally_entropy_kernel {
    /* tally_entropy_count() of at most TALLY_ENTROPY_WINDOW levels. */
    void (*count)(const int32_t *levels, size_t n, unsigned shift,
                  uint32_t counts[TALLY_ENTROPY_SYMBOLS]);

    /* Scans the levels and writes high + 10 if |high| <= 10, else the first class. */
    void (*symbols)(const int32_t *levels, size_t n, unsigned shift, uint8_t *symbols,
                    struct tally_entropy_scan *ret_scan);

    /* Writes the indices of the symbols whose bit (1 << symbol) is in the set; returns their
     * number. `indices` has room for n. */
    size_t (*find)(const uint8_t *symbols, size_t n, uint32_t set, uint16_t *indices);

    /* Encodes symbols[n] backwards into the words before `end`; returns where they begin. At least
     * 2 n + 64 bytes precede `end`; unused ones may be overwritten. `next`: n int32 to be
     * prefetched, because they are read next, or NULL. */
    uint8_t *(*encode)(const struct tally_rans_encode_table *table, const uint8_t *symbols,
                       size_t n, struct tally_rans_states *states, uint8_t *end,
                       const int32_t *next);

    /* Decodes n symbols from the words at `data`; returns where the words end, or NULL if `end`
     * comes first. Never reads at or past `end`. Also writes the level of each symbol, symbol - 10,
     * or 0 for a class or the escape, and scans these levels. */
    const uint8_t *(*decode)(const struct tally_rans_decode_table *table, const uint8_t *data,
                             const uint8_t *end, size_t n, struct tally_rans_states *states,
                             uint8_t *symbols, int32_t *levels,
                             struct tally_entropy_scan *ret_scan);

    /* Adds levels[n] to sums[n]. */
    void (*add)(const int32_t *levels, size_t n, int64_t *sums);
};

extern const struct tally_entropy_kernel TALLY_ENTROPY_PORTABLE, TALLY_ENTROPY_AVX2,
    TALLY_ENTROPY_AVX512;

/* The kernel for an instruction set that this machine has. TALLY_CPU_AVX512 without VBMI2, as on
 * Skylake, gets the AVX2 kernel. */
const struct tally_entropy_kernel *tally_entropy_kernel_for(enum tally_cpu cpu);

#endif
