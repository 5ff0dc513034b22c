#include "codec/entropy/entropy_kernels.h"

void tally_rans_encode_table(const struct tally_entropy_table *table,
                             struct tally_rans_encode_table *ret_table)
{
    for (unsigned s = 0; s < TALLY_ENTROPY_SYMBOLS; s++) {
        const unsigned from = table->frequency[s] != 0 ? s : TALLY_ENTROPY_ESCAPE;
        const uint32_t frequency = table->frequency[from];
        ret_table->frequency[s] = frequency;
        if (frequency == 1) { /* q equals state - 1; the bias corrects that */
            ret_table->bias[s] = table->cumulative[from] + TALLY_ENTROPY_TOTAL - 1;
            ret_table->reciprocal[s] = UINT32_MAX;
            ret_table->shift[s] = 0;
            continue;
        }
        /* b: frequency in (2^(b-1), 2^b]. The reciprocal ceil(2^(31+b) / frequency) fits in 32
         * bits. It is too large by less than 1, hence q by less than state / 2^(31+b), which is
         * below 1 / frequency: a state to be divided is below 2^19 * frequency, and frequency <
         * 2^12. */
        const unsigned b = 32 - (unsigned)__builtin_clz(frequency - 1);
        ret_table->bias[s] = table->cumulative[from];
        ret_table->reciprocal[s] =
            (uint32_t)(((UINT64_C(1) << (31 + b)) + frequency - 1) / frequency);
        ret_table->shift[s] = b - 1;
    }
}

void tally_rans_decode_table(const struct tally_entropy_table *table,
                             struct tally_rans_decode_table *ret_table)
{
    for (unsigned s = 0; s < TALLY_ENTROPY_SYMBOLS; s++) {
        const uint32_t frequency = table->frequency[s];
        uint32_t *entries = ret_table->entries + table->cumulative[s];
        for (uint32_t i = 0; i < frequency; i++) {
            entries[i] = s << 24 | i << TALLY_ENTROPY_TOTAL_BITS | frequency;
        }
    }
}

static uint8_t *encode_ref(const struct tally_rans_encode_table *table, const uint8_t *symbols,
                           size_t n, struct tally_rans_states *states, uint8_t *end,
                           const int32_t *next)
{
    (void)next;
    for (size_t i = n; i-- > 0;) {
        const unsigned s = symbols[i];
        const uint32_t state =
            tally_rans_shrink(states->lane[i % TALLY_RANS_LANES], table->frequency[s],
                              TALLY_ENTROPY_TOTAL_BITS, &end);
        const uint32_t q =
            (uint32_t)((uint64_t)state * table->reciprocal[s] >> 32) >> table->shift[s];
        states->lane[i % TALLY_RANS_LANES] =
            state + table->bias[s] + q * (TALLY_ENTROPY_TOTAL - table->frequency[s]);
    }
    return end;
}

static void symbols_ref(const int32_t *levels, size_t n, unsigned shift, uint8_t *symbols,
                        struct tally_entropy_scan *ret_scan)
{
    for (size_t i = 0; i < n; i++) {
        const int32_t high = tally_entropy_high(levels[i], shift);
        const bool is_direct = high <= TALLY_ENTROPY_DIRECT && high >= -TALLY_ENTROPY_DIRECT;
        symbols[i] = (uint8_t)(is_direct ? high + TALLY_ENTROPY_DIRECT : TALLY_ENTROPY_FIRST_CLASS);
    }
    *ret_scan = tally_entropy_scan_of(levels, n);
}

static size_t find_ref(const uint8_t *symbols, size_t n, uint32_t set, uint16_t *indices)
{
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        if ((set >> symbols[i] & 1) != 0) {
            indices[found++] = (uint16_t)i;
        }
    }
    return found;
}

static const uint8_t *decode_symbols(const struct tally_rans_decode_table *table,
                                     const uint8_t *data, const uint8_t *end, size_t n,
                                     struct tally_rans_states *states, uint8_t *symbols)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t state = states->lane[i % TALLY_RANS_LANES];
        const uint32_t entry = table->entries[state % TALLY_ENTROPY_TOTAL];
        state = entry % TALLY_ENTROPY_TOTAL * (state >> TALLY_ENTROPY_TOTAL_BITS) +
                (entry >> TALLY_ENTROPY_TOTAL_BITS) % TALLY_ENTROPY_TOTAL;
        if (!tally_rans_refill(&state, &data, end)) {
            return NULL;
        }
        states->lane[i % TALLY_RANS_LANES] = state;
        symbols[i] = (uint8_t)(entry >> 24);
    }
    return data;
}

static void levels_of(const uint8_t *symbols, size_t n, int32_t *levels,
                      struct tally_entropy_scan *ret_scan)
{
    for (size_t i = 0; i < n; i++) {
        levels[i] = symbols[i] < TALLY_ENTROPY_FIRST_CLASS ? symbols[i] - TALLY_ENTROPY_DIRECT : 0;
    }
    *ret_scan = tally_entropy_scan_of(levels, n);
}

static const uint8_t *decode_ref(const struct tally_rans_decode_table *table, const uint8_t *data,
                                 const uint8_t *end, size_t n, struct tally_rans_states *states,
                                 uint8_t *symbols, int32_t *levels,
                                 struct tally_entropy_scan *ret_scan)
{
    data = decode_symbols(table, data, end, n, states, symbols);
    if (data != NULL) {
        levels_of(symbols, n, levels, ret_scan);
    }
    return data;
}

static void add_ref(const int32_t *levels, size_t n, int64_t *sums)
{
    for (size_t i = 0; i < n; i++) {
        sums[i] += levels[i];
    }
}

const struct tally_entropy_kernel TALLY_ENTROPY_PORTABLE = {
    .count = tally_entropy_count,
    .symbols = symbols_ref,
    .find = find_ref,
    .encode = encode_ref,
    .decode = decode_ref,
    .add = add_ref,
};
