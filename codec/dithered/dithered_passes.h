/* dithered_passes: the loops of dithered_kernels.h that compilers vectorize on their own. Every
 * kernel file includes them, so that they are compiled for its instruction set. */
#ifndef TALLY_CODEC_DITHERED_DITHERED_PASSES_H
#define TALLY_CODEC_DITHERED_DITHERED_PASSES_H

#include "codec/dithered/dithered_kernels.h"

static void pass_bins(const struct tally_dithered_table *table, const int32_t *dithers, size_t n,
                      uint8_t *bins)
{
    const uint32_t shift = table->bin_shift;
    for (size_t i = 0; i < n; i++) {
        const uint32_t sign = (uint32_t)(dithers[i] >> 31);
        const uint32_t from_end = (uint32_t)INT32_MAX - ((uint32_t)dithers[i] ^ sign);
        const uint32_t bin = from_end >> shift < 15 ? from_end >> shift : 15;
        bins[i] = (uint8_t)(bin ^ (~sign & 31));
    }
}

static size_t pass_symbols(const struct tally_dithered_model *model, const int32_t *levels,
                           size_t n, uint8_t *symbols)
{
    const int32_t last = model->reach + 1, half = (int32_t)((1u << model->shift) >> 1);
    const int shift = (int)model->shift;
    uint32_t n_tails = 0;
    for (size_t i = 0; i < n; i++) {
        const int32_t high = (levels[i] + half) >> shift;
        const int32_t symbol = high > last ? last : high < -last ? -last : high;
        symbols[i] = (uint8_t)(symbol + last);
        n_tails += (uint32_t)(symbol == last) + (uint32_t)(symbol == -last);
    }
    return n_tails;
}

static size_t pass_levels(const struct tally_dithered_model *model, const uint8_t *symbols,
                          size_t n, int32_t *levels)
{
    const int32_t last = model->reach + 1;
    uint32_t n_tails = 0;
    for (size_t i = 0; i < n; i++) {
        levels[i] = symbols[i] - last;
        n_tails += (uint32_t)(levels[i] == last) + (uint32_t)(levels[i] == -last);
    }
    return n_tails;
}

static void pass_scan(const int32_t *levels, size_t n, struct tally_entropy_scan *ret_scan)
{
    uint64_t sum = 0;
    uint32_t nonzeros = 0, largest = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t magnitude = (uint32_t)(levels[i] < 0 ? -levels[i] : levels[i]);
        sum += magnitude;
        nonzeros += magnitude != 0;
        largest = magnitude > largest ? magnitude : largest;
    }
    *ret_scan = (struct tally_entropy_scan){.sum = sum, .nonzeros = nonzeros, .largest = largest};
}

static void pass_add(const int32_t *levels, const int32_t *dithers, size_t n, int sign,
                     int64_t *sums)
{
    if (sign > 0) {
        for (size_t i = 0; i < n; i++) {
            sums[i] += levels[i] * (INT64_C(1) << 32) - dithers[i];
        }
    } else {
        for (size_t i = 0; i < n; i++) {
            sums[i] -= levels[i] * (INT64_C(1) << 32) - dithers[i];
        }
    }
}

#endif
