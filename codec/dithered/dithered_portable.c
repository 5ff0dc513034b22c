#include <math.h>

#include "codec/dithered/dithered_kernels.h"
#include "codec/dithered/dithered_passes.h"

enum {
    BIN_BITS = 27,   /* 2^32 / 32 */
    FINE_OCTAVE = 4, /* of a scale, counted from the lowest; below it, bins get narrower */
    TOTAL = TALLY_DITHERED_LONG_TOTAL,
};

/* A dither in the middle of a bin. */
static int32_t middle_of(unsigned bin, unsigned shift)
{
    const unsigned from_end = bin < 16 ? bin : 31 - bin;
    const int64_t first = (int64_t)from_end << shift;
    const int64_t end = from_end < 15 ? first + (INT64_C(1) << shift) : INT64_C(1) << 31;
    const int64_t middle = (first + end) / 2 - (INT64_C(1) << 31);
    return (int32_t)(bin < 16 ? middle : -middle);
}

void tally_dithered_table(const struct tally_dithered_model *model,
                          struct tally_dithered_table *ret_table)
{
    const unsigned octave = model->scales[0] / 16;
    const unsigned n = (unsigned)(2 * model->reach + 3);
    ret_table->n = n;
    ret_table->bin_shift = octave < FINE_OCTAVE ? BIN_BITS - FINE_OCTAVE + octave : BIN_BITS;
    for (unsigned b = 0; b < TALLY_DITHERED_BINS; b++) {
        const int32_t dither = middle_of(b, ret_table->bin_shift);
        ret_table->cumulative[0][b] = 0;
        for (unsigned s = 1; s < n; s++) {
            const int64_t boundary =
                tally_dithered_boundary(model, (int32_t)s - model->reach - 1, dither);
            const uint64_t below = tally_dithered_normal(model->scales[0], boundary);
            ret_table->cumulative[s][b] =
                (uint16_t)(s + (below * (TOTAL - n) >> TALLY_DITHERED_NORMAL_BITS));
        }
        ret_table->cumulative[n][b] = TOTAL;
        for (unsigned s = 0; s <= n; s++) {
            ret_table->of_bin[b][s] = ret_table->cumulative[s][b];
        }
    }
}

/* Whether at most 2^-11 of the shares of every bin lie below boundary s, or, if from_end, above it.
 */
static bool is_far_out(const struct tally_dithered_table *table, unsigned s, bool from_end)
{
    const uint32_t n_outside = from_end ? table->n - s : s, most = n_outside + (TOTAL >> 11);
    bool is_far = true;
    for (unsigned b = 0; b < TALLY_DITHERED_BINS; b++) {
        const uint32_t below = table->cumulative[s][b];
        is_far = is_far && (from_end ? TOTAL - below : below) <= most;
    }
    return is_far;
}

static void find_likely(struct tally_dithered_table *table)
{
    table->likely = 0;
    table->likely_end = table->n;
    while (is_far_out(table, table->likely + 1, false)) {
        table->likely++;
    }
    while (is_far_out(table, table->likely_end - 1, true)) {
        table->likely_end--;
    }
}

void tally_dithered_starts(struct tally_dithered_table *table)
{
    find_likely(table);
    for (unsigned b = 0; b < TALLY_DITHERED_BINS; b++) {
        const uint16_t *boundaries = table->of_bin[b];
        unsigned k = 0;
        for (unsigned s = 0; s < table->n; s++) {
            const uint64_t start =
                boundaries[s] | (uint64_t)boundaries[s + 1] << 16 | (uint64_t)s << 32;
            for (; k << TALLY_DITHERED_START_BITS < boundaries[s + 1]; k++) {
                table->starts[b][k] = start;
            }
        }
    }
}

static void dithers_ref(const struct tally_rng *rng, uint32_t group, size_t n, int32_t *dithers)
{
    uint32_t words[TALLY_RNG_LANES];
    for (size_t i = 0; i < n; i++) {
        if (i % TALLY_RNG_LANES == 0) {
            tally_rng_lanes(rng, group++, words);
        }
        dithers[i] = (int32_t)words[i % TALLY_RNG_LANES];
    }
}

static size_t quantize_ref(const struct tally_grid *grid, const float *y, const int32_t *dithers,
                           size_t n, int32_t *levels, uint64_t *clipped)
{
    const int32_t top = (int32_t)(grid->intervals / 2);
    for (size_t i = 0; i < n; i++) {
        const double level = rint((double)y[i] / grid->step + dithers[i] * 0x1p-32);
        if (!isfinite(y[i])) {
            return i;
        }
        *clipped += fabs(level) > top;
        levels[i] = level > top ? top : level < -top ? -top : (int32_t)level;
    }
    return n;
}

static uint8_t *encode_ref(const struct tally_dithered_table *table, const uint8_t *symbols,
                           const uint8_t *bins, size_t n, struct tally_rans_states *states,
                           uint8_t *end)
{
    for (size_t i = n; i-- > 0;) {
        const uint32_t first = table->cumulative[symbols[i]][bins[i]];
        const uint32_t frequency = table->cumulative[symbols[i] + 1][bins[i]] - first;
        const uint32_t state = tally_rans_shrink(states->lane[i % TALLY_RANS_LANES], frequency,
                                                 TALLY_DITHERED_LONG_BITS, &end);
        states->lane[i % TALLY_RANS_LANES] =
            (state / frequency) * TOTAL + state % frequency + first;
    }
    return end;
}

static const uint8_t *decode_ref(const struct tally_dithered_table *table, const uint8_t *bins,
                                 const uint8_t *data, const uint8_t *end, size_t n,
                                 struct tally_rans_states *states, uint8_t *symbols)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t state = states->lane[i % TALLY_RANS_LANES];
        const uint32_t share = state % TOTAL;
        const uint16_t *boundaries = table->of_bin[bins[i]];
        unsigned s = (unsigned)(table->starts[bins[i]][share >> TALLY_DITHERED_START_BITS] >> 32);
        while (share >= boundaries[s + 1]) {
            s++;
        }
        const uint32_t first = boundaries[s];
        const uint32_t frequency = boundaries[s + 1] - first;
        state = frequency * (state / TOTAL) + share - first;
        if (!tally_rans_refill(&state, &data, end)) {
            return NULL;
        }
        states->lane[i % TALLY_RANS_LANES] = state;
        symbols[i] = (uint8_t)s;
    }
    return data;
}

const struct tally_dithered_kernel TALLY_DITHERED_PORTABLE = {
    .dithers = dithers_ref,
    .quantize = quantize_ref,
    .bins = pass_bins,
    .symbols = pass_symbols,
    .encode = encode_ref,
    .decode = decode_ref,
    .levels = pass_levels,
    .scan = pass_scan,
    .add = pass_add,
};
