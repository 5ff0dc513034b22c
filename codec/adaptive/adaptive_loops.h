/* adaptive_loops: the loops of adaptive_kernels.h, in plain C. Every kernel file includes them, so
 * that they are compiled for its instruction set. */
#ifndef TALLY_CODEC_ADAPTIVE_ADAPTIVE_LOOPS_H
#define TALLY_CODEC_ADAPTIVE_ADAPTIVE_LOOPS_H

#include <math.h>
#include <string.h>

#include "codec/adaptive/adaptive_kernels.h"
#include "codec/numeric/fetch.h"

enum {
    LANES = TALLY_ADAPTIVE_LANES,
    STEPS = TALLY_ADAPTIVE_STEPS,
    TOTAL = TALLY_ADAPTIVE_SHARES,
};

static inline uint64_t bit_of(bool is_set, size_t i)
{
    return (uint64_t)is_set << i;
}

static inline void plain_halves(const int32_t words[STEPS], bool high, int32_t dithers[STEPS])
{
    const unsigned by = high ? 0 : 16;
    for (size_t j = 0; j < STEPS; j++) {
        dithers[j] = (int32_t)(((uint32_t)words[j] << by & 0xffff0000) | 0x8000);
    }
}

static inline void plain_classes(const int32_t dithers[LANES][STEPS], uint8_t classes[STEPS][LANES])
{
    uint8_t rows[LANES][STEPS];
    for (size_t l = 0; l < LANES; l++) {
        for (size_t t = 0; t < STEPS; t++) {
            rows[l][t] = (uint8_t)tally_adaptive_dither_class(dithers[l][t]);
        }
    }
    for (size_t l = 0; l < LANES; l++) {
        for (size_t t = 0; t < STEPS; t++) {
            classes[t][l] = rows[l][t];
        }
    }
}

/* Swaps blocks of 32 x 32 bits, then of 16 x 16, and so on. */
static inline void plain_transpose(uint64_t rows[64])
{
    uint64_t low = 0x00000000ffffffff;
    for (unsigned width = 32; width > 0; width /= 2, low ^= low << width) {
        for (size_t at = 0; at < 64; at += (size_t)2 * width) {
            for (size_t i = at; i < at + width; i++) {
                const uint64_t swapped = (rows[i] >> width ^ rows[i + width]) & low;
                rows[i] ^= swapped << width;
                rows[i + width] ^= swapped;
            }
        }
    }
}

static inline void plain_levels(uint64_t nonzero, const int32_t dithers[STEPS],
                                int32_t levels[STEPS])
{
    for (size_t j = 0; j < STEPS; j++) {
        levels[j] = -(int32_t)(nonzero >> j & 1) & (dithers[j] >> 31 | 1);
    }
}

static inline void plain_add(uint64_t nonzero, const int32_t dithers[STEPS], int32_t sums[STEPS],
                             uint64_t squares[TALLY_FIXED_POINT_LANES])
{
    int32_t levels[STEPS];
    plain_levels(nonzero, dithers, levels);
    for (size_t i = 0; i < STEPS; i += TALLY_FIXED_POINT_LANES) {
        uint32_t square = 0; /* at most 8 times 2^28 */
        for (size_t j = i; j < i + TALLY_FIXED_POINT_LANES; j++) {
            const int32_t value = tally_adaptive_value(levels[j], dithers[j]);
            sums[j] += value;
            square += (uint32_t)((value >> 2) * (value >> 2));
        }
        squares[0] += square;
    }
}

static inline uint32_t plain_count(const uint64_t words[64])
{
    uint32_t n = 0;
    for (size_t i = 0; i < 64; i++) {
        n += (uint32_t)__builtin_popcountll(words[i]);
    }
    return n;
}

static inline uint64_t plain_masks(const int32_t levels[STEPS], const int32_t dithers[STEPS],
                                   uint64_t *ret_nonzero, uint64_t *ret_special)
{
    uint64_t nonzero = 0, special = 0, sum = 0;
    for (size_t j = 0; j < STEPS; j++) {
        const bool is_nonzero = levels[j] != 0;
        sum += tally_magnitude(levels[j]);
        nonzero |= bit_of(is_nonzero, j);
        special |= bit_of(is_nonzero && levels[j] != (dithers[j] >> 31 | 1), j);
    }
    *ret_nonzero = nonzero;
    *ret_special = special;
    return sum;
}

/* --- broadcasts ------------------------------------------------------------------------------ */

/* The level nearest to a ratio whose magnitude is lowered, ties to even. Beside 1.5 * 2^52 all
 * doubles are the integers, and the bits of the sum are those of that number plus the level. */
static inline int32_t lowered_level(double ratio, double by)
{
    static const double SHIFT = 0x1.8p52, TOP = TALLY_ADAPTIVE_MAX_LEVEL;
    const double low = ratio < -TOP ? -TOP : ratio, bounded = low > TOP ? TOP : low;
    const double lowered = fabs(bounded) - by;
    const double shifted = (bounded < 0 ? -lowered : lowered) + SHIFT;
    int64_t bits, origin;
    memcpy(&bits, &shifted, sizeof bits);
    memcpy(&origin, &SHIFT, sizeof origin);
    return (int32_t)(bits - origin);
}

static inline void plain_round_change(const double *to, const double *from, size_t n,
                                      double inverse, double threshold, int32_t *levels)
{
    const double by = threshold - 0.5;
    for (size_t at = 0, m; at < n; at += m) {
        m = n - at < TALLY_ADAPTIVE_BLOCK ? n - at : TALLY_ADAPTIVE_BLOCK;
        tally_fetch_ahead(to + at, m * sizeof *to);
        tally_fetch_ahead(from + at, m * sizeof *from);
        tally_fetch_ahead(levels + at, m * sizeof *levels);
        for (size_t i = at; i < at + m; i++) {
            levels[i] = lowered_level((to[i] - from[i]) * inverse, by);
        }
    }
}

static inline void plain_move(const int32_t *levels, size_t n, double step, double *x)
{
    for (size_t at = 0, m; at < n; at += m) {
        m = n - at < TALLY_ADAPTIVE_BLOCK ? n - at : TALLY_ADAPTIVE_BLOCK;
        tally_fetch_ahead(levels + at, m * sizeof *levels);
        tally_fetch_ahead(x + at, m * sizeof *x);
        for (size_t i = at; i < at + m; i++) {
            x[i] += step * levels[i];
        }
    }
}

/* --- what is learnt -------------------------------------------------------------------------- */

/* How often each context occurs in contexts[n]. Equal ones often follow each other, and a count can
 * not be raised again at once: hence two. */
static inline void count_contexts(const uint8_t *contexts, size_t n,
                                  uint32_t ret_counts[TALLY_ADAPTIVE_CONTEXTS])
{
    uint32_t others[TALLY_ADAPTIVE_CONTEXTS] = {0};
    size_t i = 0;
    memset(ret_counts, 0, TALLY_ADAPTIVE_CONTEXTS * sizeof *ret_counts);
    for (; i + 2 <= n; i += 2) {
        ret_counts[contexts[i]]++;
        others[contexts[i + 1]]++;
    }
    if (i < n) {
        ret_counts[contexts[i]]++;
    }
    for (size_t x = 0; x < TALLY_ADAPTIVE_CONTEXTS; x++) {
        ret_counts[x] += others[x];
    }
}

/* The totals of density classes, from those of contexts. */
static inline void sum_by_density(const uint32_t totals[TALLY_ADAPTIVE_CONTEXTS],
                                  uint32_t ret_totals[TALLY_ADAPTIVE_DENSITIES])
{
    for (size_t a = 0; a < TALLY_ADAPTIVE_DENSITIES; a++) {
        ret_totals[a] = 0;
        for (size_t b = 0; b < TALLY_ADAPTIVE_DITHERS; b++) {
            ret_totals[a] += totals[TALLY_ADAPTIVE_DITHERS * a + b];
        }
    }
}

/* Contexts are learnt a density class at a time, because a tile has few of these classes. */
static inline void halve(uint32_t *whole, uint32_t *part)
{
    for (size_t b = 0; b < TALLY_ADAPTIVE_DITHERS; b++) {
        const uint32_t most = TALLY_ADAPTIVE_MOST_COUNT - 1;
        const uint32_t halved = whole[b] / 2, half_part = part[b] / 2;
        part[b] = whole[b] > most ? half_part : part[b];
        whole[b] = whole[b] > most ? halved : whole[b];
    }
}

static inline uint32_t bounded(uint32_t value, uint32_t least, uint32_t most)
{
    return value < least ? least : value > most ? most : value;
}

/* floor(factor * part / whole): the product has less than 2^38, so its quotient as a double is not
 * rounded up to an integer. Unlike an integer division it has a vector form. */
static inline uint32_t share_of(uint32_t factor, uint32_t part, uint32_t whole)
{
    return (uint32_t)(int32_t)((double)(int32_t)factor * (double)(int32_t)part /
                               (double)(int32_t)whole);
}

/* Makes shares of the counts of contexts x .. x + 15. */
static inline void settle_class(const struct tally_adaptive_counts *counts, size_t first,
                                struct tally_adaptive_shares *ret_shares)
{
    for (size_t x = first; x < first + TALLY_ADAPTIVE_DITHERS; x++) {
        const uint32_t nonzero =
            bounded(share_of(TOTAL, counts->nonzero[x], counts->total[x]), 2, TOTAL - 1);
        const uint32_t special =
            bounded(share_of(nonzero, counts->special[x], counts->all[x]), 1, nonzero - 1);
        ret_shares->plain[x] = (uint16_t)(TOTAL - nonzero);
        ret_shares->special[x] = (uint16_t)(TOTAL - special);
    }
}

static inline void plain_settle(const struct tally_adaptive_counts *counts,
                                struct tally_adaptive_shares *ret_shares)
{
    for (size_t x = 0; x < TALLY_ADAPTIVE_CONTEXTS; x += TALLY_ADAPTIVE_DITHERS) {
        settle_class(counts, x, ret_shares);
    }
}

/* How often the contexts of a tile occur: those of the nonzero and of the special levels, each
 * density class, and, without dither, each context. */
struct occurrences {
    uint32_t by_density[TALLY_ADAPTIVE_DENSITIES];
    uint32_t all[TALLY_ADAPTIVE_CONTEXTS];
    uint32_t nonzero[TALLY_ADAPTIVE_CONTEXTS], special[TALLY_ADAPTIVE_CONTEXTS];
};

/* With dither, its class is independent of all else: each has a sixteenth of the coordinates. */
static inline void learn_occurrences(bool is_dithered, const struct occurrences *found,
                                     struct tally_adaptive_counts *counts,
                                     struct tally_adaptive_shares *ret_shares)
{
    enum { ONE = TALLY_ADAPTIVE_COUNT_ONE, SIXTEENTH = ONE / TALLY_ADAPTIVE_DITHERS };
    for (size_t a = 0; a < TALLY_ADAPTIVE_DENSITIES; a++) {
        const size_t first = TALLY_ADAPTIVE_DITHERS * a;
        if (found->by_density[a] == 0) {
            continue; /* nothing changes */
        }
        for (size_t x = first; x < first + TALLY_ADAPTIVE_DITHERS; x++) {
            counts->total[x] +=
                is_dithered ? found->by_density[a] * SIXTEENTH : found->all[x] * ONE;
            counts->nonzero[x] += found->nonzero[x] * ONE;
            counts->all[x] += found->nonzero[x] * ONE;
            counts->special[x] += found->special[x] * ONE;
        }
        halve(counts->total + first, counts->nonzero + first);
        halve(counts->all + first, counts->special + first);
        settle_class(counts, first, ret_shares);
    }
}

/* The contexts of the coordinates in the masks; returns how many they are. */
static inline size_t plain_contexts_in(const struct tally_adaptive_tile *tile,
                                       const uint64_t masks[STEPS],
                                       uint8_t contexts[TALLY_ADAPTIVE_TILE])
{
    size_t n = 0;
    for (size_t t = 0; t < STEPS; t++) {
        for (uint64_t left = masks[t]; left != 0; left &= left - 1) {
            contexts[n++] = tile->contexts[t][__builtin_ctzll(left)];
        }
    }
    return n;
}

static inline void plain_learn(bool is_dithered, const struct tally_adaptive_tile *tile,
                               struct tally_adaptive_counts *counts,
                               struct tally_adaptive_shares *ret_shares)
{
    uint8_t contexts[TALLY_ADAPTIVE_TILE];
    struct occurrences found;
    count_contexts(tile->contexts[0], TALLY_ADAPTIVE_TILE, found.all);
    sum_by_density(found.all, found.by_density);
    count_contexts(contexts, plain_contexts_in(tile, tile->nonzero, contexts), found.nonzero);
    count_contexts(contexts, plain_contexts_in(tile, tile->special, contexts), found.special);
    learn_occurrences(is_dithered, &found, counts, ret_shares);
}

/* --- the coder ------------------------------------------------------------------------------- */

/* The context of the next coordinate of a lane. */
static inline uint8_t plain_context(const struct tally_adaptive_lanes *lanes, size_t l,
                                    bool is_dithered, uint8_t class_of_dither)
{
    return (uint8_t)(TALLY_ADAPTIVE_DITHERS * tally_adaptive_density_class(lanes->density[l]) +
                     (is_dithered ? class_of_dither : lanes->last[l]));
}

static inline void plain_pass(struct tally_adaptive_lanes *lanes, size_t l, bool is_dithered,
                              bool is_nonzero, bool is_special)
{
    const int32_t here = (is_nonzero + (is_dithered && is_special)) * TALLY_ADAPTIVE_DENSITY_ONE;
    lanes->density[l] += (here - lanes->density[l]) >> TALLY_ADAPTIVE_DENSITY_RATE;
    lanes->last[l] = (lanes->last[l] << 1 | is_nonzero) & 3;
}

/* Decodes step t of a tile. */
static inline const uint8_t *plain_decode_step(const struct tally_adaptive_shares *shares,
                                               bool is_dithered, const uint8_t *data,
                                               const uint8_t *end,
                                               struct tally_adaptive_lanes *lanes, size_t t,
                                               struct tally_adaptive_tile *tile)
{
    uint64_t nonzero = 0, special = 0;
    for (size_t l = 0; l < LANES; l++) {
        const uint8_t context = plain_context(lanes, l, is_dithered, tile->classes[t][l]);
        const uint32_t first_plain = shares->plain[context],
                       first_special = shares->special[context];
        uint32_t state = lanes->rans.lane[l];
        const uint32_t share = state % TOTAL;
        const bool is_nonzero = share >= first_plain, is_special = share >= first_special;
        const uint32_t first = is_special ? first_special : is_nonzero ? first_plain : 0;
        const uint32_t next = is_special ? TOTAL : is_nonzero ? first_special : first_plain;
        state = (next - first) * (state / TOTAL) + share - first;
        if (!tally_rans_refill(&state, &data, end)) {
            return NULL;
        }
        lanes->rans.lane[l] = state;
        plain_pass(lanes, l, is_dithered, is_nonzero, is_special);
        tile->contexts[t][l] = context;
        nonzero |= bit_of(is_nonzero, l);
        special |= bit_of(is_special, l);
    }
    tile->nonzero[t] = nonzero;
    tile->special[t] = special;
    return data;
}

static inline const uint8_t *plain_decode(const struct tally_adaptive_shares *shares,
                                          bool is_dithered, const uint8_t *data, const uint8_t *end,
                                          struct tally_adaptive_lanes *lanes,
                                          struct tally_adaptive_tile *tile)
{
    for (size_t t = 0; data != NULL && t < STEPS; t++) {
        data = plain_decode_step(shares, is_dithered, data, end, lanes, t, tile);
    }
    return data;
}

static inline void plain_model(const struct tally_adaptive_shares *shares, bool is_dithered,
                               struct tally_adaptive_lanes *lanes, struct tally_adaptive_tile *tile,
                               tally_adaptive_symbol symbols[STEPS][LANES])
{
    for (size_t t = 0; t < STEPS; t++) {
        for (size_t l = 0; l < LANES; l++) {
            const bool is_nonzero = tile->nonzero[t] >> l & 1,
                       is_special = tile->special[t] >> l & 1;
            const uint8_t context = plain_context(lanes, l, is_dithered, tile->classes[t][l]);
            const uint32_t first_plain = shares->plain[context];
            const uint32_t first_special = shares->special[context];
            const uint32_t first = is_special ? first_special : is_nonzero ? first_plain : 0;
            const uint32_t next = is_special ? TOTAL : is_nonzero ? first_special : first_plain;
            tile->contexts[t][l] = context;
            symbols[t][l] = first | (next - first) << 16;
            plain_pass(lanes, l, is_dithered, is_nonzero, is_special);
        }
    }
}

static inline uint8_t *plain_encode(const tally_adaptive_symbol symbols[STEPS][LANES],
                                    struct tally_rans_states *states, uint8_t *end)
{
    for (size_t t = STEPS; t-- > 0;) {
        for (size_t l = LANES; l-- > 0;) {
            const uint32_t first = symbols[t][l] & 0xffff, number = symbols[t][l] >> 16;
            const uint32_t state =
                tally_rans_shrink(states->lane[l], number, TALLY_ADAPTIVE_SHARE_BITS, &end);
            states->lane[l] = state / number * TOTAL + state % number + first;
        }
    }
    return end;
}

#define PLAIN_KERNEL                                                                               \
    {                                                                                              \
        .halves = plain_halves, .classes = plain_classes, .transpose = plain_transpose,            \
        .levels = plain_levels, .add = plain_add, .masks = plain_masks, .count = plain_count,      \
        .round_change = plain_round_change, .move = plain_move, .settle = plain_settle,            \
        .learn = plain_learn, .decode = plain_decode, .model = plain_model, .encode = plain_encode \
    }

#endif
