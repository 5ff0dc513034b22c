/* The loops of adaptive_loops.h, 16 lanes at a time: four vectors of states, of densities and of
 * the last symbols stay in registers over a tile. The 192 contexts' shares fill twelve registers,
 * and permutations look up those of 32 lanes at once. */
#include <immintrin.h>

#include "codec/adaptive/adaptive_loops.h"

enum { VECTORS = LANES / 16 };

/* --- shares by context ----------------------------------------------------------------------- */

struct table {
    __m512i row[TALLY_ADAPTIVE_CONTEXTS / 32];
};

static inline struct table load_table(const uint16_t shares[TALLY_ADAPTIVE_CONTEXTS])
{
    struct table table;
    for (size_t i = 0; i < TALLY_ADAPTIVE_CONTEXTS / 32; i++) {
        table.row[i] = _mm512_load_si512(shares + 32 * i);
    }
    return table;
}

/* The entries of 32 contexts of 16 bits each. */
static inline __m512i look_up(const struct table *table, __m512i contexts)
{
    const __mmask32 is_middle = _mm512_test_epi16_mask(contexts, _mm512_set1_epi16(64));
    const __mmask32 is_high = _mm512_test_epi16_mask(contexts, _mm512_set1_epi16(128));
    const __m512i low = _mm512_permutex2var_epi16(table->row[0], contexts, table->row[1]);
    const __m512i middle = _mm512_permutex2var_epi16(table->row[2], contexts, table->row[3]);
    const __m512i high = _mm512_permutex2var_epi16(table->row[4], contexts, table->row[5]);
    return _mm512_mask_mov_epi16(_mm512_mask_mov_epi16(low, is_middle, middle), is_high, high);
}

static inline __m512i low_words(__m512i vector)
{
    return _mm512_and_si512(vector, _mm512_set1_epi32(0xffff));
}

/* The entries of two vectors of contexts. */
static inline void look_up_two(const struct table *table, const __m512i contexts[2],
                               __m512i ret_entries[2])
{
    const __m512i found =
        look_up(table, _mm512_or_si512(contexts[0], _mm512_slli_epi32(contexts[1], 16)));
    ret_entries[0] = low_words(found);
    ret_entries[1] = _mm512_srli_epi32(found, 16);
}

/* --- lanes ----------------------------------------------------------------------------------- */

struct registers {
    __m512i state[VECTORS], density[VECTORS], last[VECTORS];
};

static inline struct registers load_lanes(const struct tally_adaptive_lanes *lanes)
{
    struct registers registers;
    for (size_t v = 0; v < VECTORS; v++) {
        registers.state[v] = _mm512_load_si512(lanes->rans.lane + 16 * v);
        registers.density[v] = _mm512_load_si512(lanes->density + 16 * v);
        registers.last[v] = _mm512_load_si512(lanes->last + 16 * v);
    }
    return registers;
}

static inline void store_lanes(const struct registers *registers,
                               struct tally_adaptive_lanes *lanes)
{
    for (size_t v = 0; v < VECTORS; v++) {
        _mm512_store_si512(lanes->rans.lane + 16 * v, registers->state[v]);
        _mm512_store_si512(lanes->density + 16 * v, registers->density[v]);
        _mm512_store_si512(lanes->last + 16 * v, registers->last[v]);
    }
}

/* 16 times the class of a density: of its number of bits, less 4, and at least 0. */
static inline __m512i density_classes(__m512i density)
{
    const __m512i bits = _mm512_sub_epi32(_mm512_set1_epi32(32 - TALLY_ADAPTIVE_LOWEST_DENSITY),
                                          _mm512_lzcnt_epi32(density));
    return _mm512_slli_epi32(_mm512_max_epi32(bits, _mm512_setzero_si512()), 4);
}

/* The contexts of a step's lanes, which are also stored. */
static inline void make_contexts(const struct registers *registers, bool is_dithered,
                                 const uint8_t classes[LANES], uint8_t contexts[LANES],
                                 __m512i ret_contexts[VECTORS])
{
    for (size_t v = 0; v < VECTORS; v++) {
        const __m512i class =
            is_dithered ? _mm512_cvtepu8_epi32(_mm_load_si128((const void *)(classes + 16 * v)))
                        : registers->last[v];
        ret_contexts[v] = _mm512_or_si512(density_classes(registers->density[v]), class);
        _mm_store_si128((void *)(contexts + 16 * v), _mm512_cvtepi32_epi8(ret_contexts[v]));
    }
}

static inline void pass_symbols(struct registers *registers, size_t v, bool is_dithered,
                                __mmask16 nonzero, __mmask16 special)
{
    __m512i here = _mm512_maskz_set1_epi32(nonzero, TALLY_ADAPTIVE_DENSITY_ONE);
    if (is_dithered) {
        here = _mm512_mask_set1_epi32(here, special, 2 * TALLY_ADAPTIVE_DENSITY_ONE);
    } else {
        const __m512i moved = _mm512_add_epi32(registers->last[v], registers->last[v]);
        registers->last[v] =
            _mm512_and_si512(_mm512_mask_add_epi32(moved, nonzero, moved, _mm512_set1_epi32(1)),
                             _mm512_set1_epi32(3));
    }
    const __m512i change = _mm512_sub_epi32(here, registers->density[v]);
    registers->density[v] = _mm512_add_epi32(
        registers->density[v], _mm512_srai_epi32(change, TALLY_ADAPTIVE_DENSITY_RATE));
}

/* First shares and numbers of shares of 16 symbols. */
static inline void shares_of(__mmask16 nonzero, __mmask16 special, __m512i first_plain,
                             __m512i first_special, __m512i *ret_first, __m512i *ret_number)
{
    const __m512i first =
        _mm512_mask_mov_epi32(_mm512_maskz_mov_epi32(nonzero, first_plain), special, first_special);
    const __m512i next =
        _mm512_mask_mov_epi32(_mm512_mask_mov_epi32(first_plain, nonzero, first_special), special,
                              _mm512_set1_epi32(TOTAL));
    *ret_first = first;
    *ret_number = _mm512_sub_epi32(next, first);
}

/* --- decoder --------------------------------------------------------------------------------- */

/* Takes the next words into the states below 2^15. May read 32 bytes. */
static inline const uint8_t *refill(__m512i *state, const uint8_t *data)
{
    const __mmask16 low = _mm512_cmplt_epu32_mask(*state, _mm512_set1_epi32(TALLY_RANS_LOWEST));
    const __m512i words = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)data));
    const __m512i wanted = _mm512_maskz_expand_epi32(low, words);
    *state = _mm512_mask_or_epi32(*state, low, _mm512_slli_epi32(*state, 16), wanted);
    return data + 2 * (size_t)_mm_popcnt_u32(low);
}

static inline const uint8_t *decode_vector(struct registers *registers, size_t v, bool is_dithered,
                                           __m512i first_plain, __m512i first_special,
                                           const uint8_t *data, uint64_t *nonzeros,
                                           uint64_t *specials)
{
    const __m512i state = registers->state[v];
    const __m512i share = _mm512_and_si512(state, _mm512_set1_epi32(TOTAL - 1));
    const __mmask16 nonzero = _mm512_cmpge_epu32_mask(share, first_plain);
    const __mmask16 special = _mm512_cmpge_epu32_mask(share, first_special);
    __m512i first, number;
    shares_of(nonzero, special, first_plain, first_special, &first, &number);
    registers->state[v] = _mm512_add_epi32(
        _mm512_mullo_epi32(number, _mm512_srli_epi32(state, TALLY_ADAPTIVE_SHARE_BITS)),
        _mm512_sub_epi32(share, first));
    pass_symbols(registers, v, is_dithered, nonzero, special);
    *nonzeros |= (uint64_t)nonzero << 16 * v;
    *specials |= (uint64_t)special << 16 * v;
    return refill(&registers->state[v], data);
}

static inline const uint8_t *decode_tile(const struct tally_adaptive_shares *shares,
                                         bool is_dithered, const uint8_t *data, const uint8_t *end,
                                         struct tally_adaptive_lanes *lanes,
                                         struct tally_adaptive_tile *tile)
{
    const struct table plain = load_table(shares->plain), special = load_table(shares->special);
    struct registers registers = load_lanes(lanes);
    size_t t = 0;
    for (; t < STEPS && end - data >= 2 * LANES; t++) {
        __m512i contexts[VECTORS], first_plain[VECTORS], first_special[VECTORS];
        uint64_t nonzeros = 0, specials = 0;
        make_contexts(&registers, is_dithered, tile->classes[t], tile->contexts[t], contexts);
        for (size_t v = 0; v < VECTORS; v += 2) {
            look_up_two(&plain, contexts + v, first_plain + v);
            look_up_two(&special, contexts + v, first_special + v);
        }
        for (size_t v = 0; v < VECTORS; v++) {
            data = decode_vector(&registers, v, is_dithered, first_plain[v], first_special[v], data,
                                 &nonzeros, &specials);
        }
        tile->nonzero[t] = nonzeros;
        tile->special[t] = specials;
    }
    store_lanes(&registers, lanes);
    for (; data != NULL && t < STEPS; t++) {
        data = plain_decode_step(shares, is_dithered, data, end, lanes, t, tile);
    }
    return data;
}

static const uint8_t *decode(const struct tally_adaptive_shares *shares, bool is_dithered,
                             const uint8_t *data, const uint8_t *end,
                             struct tally_adaptive_lanes *lanes, struct tally_adaptive_tile *tile)
{
    return is_dithered ? decode_tile(shares, true, data, end, lanes, tile)
                       : decode_tile(shares, false, data, end, lanes, tile);
}

/* --- encoder --------------------------------------------------------------------------------- */

static inline void model_tile(const struct tally_adaptive_shares *shares, bool is_dithered,
                              struct tally_adaptive_lanes *lanes, struct tally_adaptive_tile *tile,
                              tally_adaptive_symbol symbols[STEPS][LANES])
{
    const struct table plain = load_table(shares->plain), special = load_table(shares->special);
    struct registers registers = load_lanes(lanes);
    for (size_t t = 0; t < STEPS; t++) {
        __m512i contexts[VECTORS], first_plain[VECTORS], first_special[VECTORS];
        make_contexts(&registers, is_dithered, tile->classes[t], tile->contexts[t], contexts);
        for (size_t v = 0; v < VECTORS; v += 2) {
            look_up_two(&plain, contexts + v, first_plain + v);
            look_up_two(&special, contexts + v, first_special + v);
        }
        for (size_t v = 0; v < VECTORS; v++) {
            const __mmask16 is_nonzero = (__mmask16)(tile->nonzero[t] >> 16 * v);
            const __mmask16 is_special = (__mmask16)(tile->special[t] >> 16 * v);
            __m512i first, number;
            shares_of(is_nonzero, is_special, first_plain[v], first_special[v], &first, &number);
            _mm512_storeu_si512(&symbols[t][16 * v],
                                _mm512_or_si512(first, _mm512_slli_epi32(number, 16)));
            pass_symbols(&registers, v, is_dithered, is_nonzero, is_special);
        }
    }
    store_lanes(&registers, lanes);
}

static void model(const struct tally_adaptive_shares *shares, bool is_dithered,
                  struct tally_adaptive_lanes *lanes, struct tally_adaptive_tile *tile,
                  tally_adaptive_symbol symbols[STEPS][LANES])
{
    if (is_dithered) {
        model_tile(shares, true, lanes, tile, symbols);
    } else {
        model_tile(shares, false, lanes, tile, symbols);
    }
}

/* Moves the low words of the states that are too large in front of `end`. May overwrite 32 bytes
 * before it. */
static inline uint8_t *shrink(__m512i *state, __m512i number, uint8_t *end)
{
    const __mmask16 full = _mm512_cmpge_epu32_mask(
        _mm512_srli_epi32(*state, TALLY_RANS_STATE_BITS - TALLY_ADAPTIVE_SHARE_BITS), number);
    const __m512i words = _mm512_maskz_compress_epi32(full, *state);
    const unsigned n = (unsigned)_mm_popcnt_u32(full);
    end -= 2 * (size_t)n;
    _mm256_mask_storeu_epi16(end, (__mmask16)_bzhi_u32(0xffff, n), _mm512_cvtepi32_epi16(words));
    *state = _mm512_mask_srli_epi32(*state, full, *state, 16);
    return end;
}

/* Encodes symbols into states that are small enough: state / number is below 2^16, and a quotient
 * in float32 of numbers rounded to 2^24 is off by 1 at most. */
static inline __m512i push(__m512i state, __m512i first, __m512i number)
{
    const __m512i one = _mm512_set1_epi32(1);
    __m512i quotient =
        _mm512_cvttps_epi32(_mm512_div_ps(_mm512_cvtepu32_ps(state), _mm512_cvtepu32_ps(number)));
    __m512i rest = _mm512_sub_epi32(state, _mm512_mullo_epi32(quotient, number));
    const __mmask16 is_low = _mm512_movepi32_mask(rest);
    quotient = _mm512_mask_sub_epi32(quotient, is_low, quotient, one);
    rest = _mm512_mask_add_epi32(rest, is_low, rest, number);
    const __mmask16 is_high = _mm512_cmpge_epu32_mask(rest, number);
    quotient = _mm512_mask_add_epi32(quotient, is_high, quotient, one);
    rest = _mm512_mask_sub_epi32(rest, is_high, rest, number);
    return _mm512_add_epi32(_mm512_slli_epi32(quotient, TALLY_ADAPTIVE_SHARE_BITS),
                            _mm512_add_epi32(rest, first));
}

static uint8_t *encode(const tally_adaptive_symbol symbols[STEPS][LANES],
                       struct tally_rans_states *states, uint8_t *end)
{
    __m512i state[VECTORS];
    for (size_t v = 0; v < VECTORS; v++) {
        state[v] = _mm512_load_si512(states->lane + 16 * v);
    }
    for (size_t t = STEPS; t-- > 0;) {
        for (size_t v = VECTORS; v-- > 0;) {
            const __m512i symbol = _mm512_loadu_si512(&symbols[t][16 * v]);
            const __m512i number = _mm512_srli_epi32(symbol, 16);
            end = shrink(&state[v], number, end);
            state[v] = push(state[v], low_words(symbol), number);
        }
    }
    for (size_t v = 0; v < VECTORS; v++) {
        _mm512_store_si512(states->lane + 16 * v, state[v]);
    }
    return end;
}

/* --- rows ------------------------------------------------------------------------------------ */

static void levels_of(uint64_t nonzero, const int32_t dithers[STEPS], int32_t levels[STEPS])
{
    const __m512i one = _mm512_set1_epi32(1);
    for (size_t v = 0; v < VECTORS; v++) {
        const __m512i side =
            _mm512_or_si512(_mm512_srai_epi32(_mm512_loadu_si512(dithers + 16 * v), 31), one);
        _mm512_storeu_si512(levels + 16 * v,
                            _mm512_maskz_mov_epi32((__mmask16)(nonzero >> 16 * v), side));
    }
}

/* The values of 16 levels that are zero or plain. */
static inline __m512i values_of(__mmask16 nonzero, __m512i dithers)
{
    const __m512i sides = _mm512_slli_epi32(_mm512_srai_epi32(dithers, 31), 17); /* 0 or -2 */
    const __m512i levels = _mm512_maskz_or_epi32(nonzero, sides, _mm512_set1_epi32(1 << 16));
    return _mm512_sub_epi32(levels, _mm512_srai_epi32(dithers, 16));
}

/* plain_add(). A square is at most 2^28. */
static void add_row(uint64_t nonzero, const int32_t dithers[STEPS], int32_t sums[STEPS],
                    uint64_t squares[TALLY_FIXED_POINT_LANES])
{
    __m512i quarters[VECTORS];
    for (size_t v = 0; v < VECTORS; v++) {
        const __m512i value =
            values_of((__mmask16)(nonzero >> 16 * v), _mm512_loadu_si512(dithers + 16 * v));
        int32_t *const to = sums + 16 * v;
        _mm512_storeu_si512(to, _mm512_add_epi32(_mm512_loadu_si512(to), value));
        quarters[v] = _mm512_srai_epi32(value, 2);
    }
    const __m512i front = _mm512_packs_epi32(quarters[0], quarters[1]);
    const __m512i back = _mm512_packs_epi32(quarters[2], quarters[3]);
    const __m512i pairs =
        _mm512_add_epi32(_mm512_madd_epi16(front, front), _mm512_madd_epi16(back, back));
    const __m512i both = _mm512_add_epi64(_mm512_srli_epi64(pairs, 32),
                                          _mm512_and_si512(pairs, _mm512_set1_epi64(0xffffffff)));
    _mm512_storeu_si512(squares, _mm512_add_epi64(_mm512_loadu_si512(squares), both));
}

static uint64_t masks_of(const int32_t levels[STEPS], const int32_t dithers[STEPS],
                         uint64_t *ret_nonzero, uint64_t *ret_special)
{
    const __m512i one = _mm512_set1_epi32(1);
    __m512i sum = _mm512_setzero_si512();
    uint64_t nonzero = 0, special = 0;
    for (size_t v = 0; v < VECTORS; v++) {
        const __m512i level = _mm512_loadu_si512(levels + 16 * v);
        const __m512i side =
            _mm512_or_si512(_mm512_srai_epi32(_mm512_loadu_si512(dithers + 16 * v), 31), one);
        const __mmask16 is_nonzero = _mm512_test_epi32_mask(level, level);
        sum = _mm512_add_epi32(sum, _mm512_abs_epi32(level));
        nonzero |= (uint64_t)is_nonzero << 16 * v;
        special |= (uint64_t)_mm512_mask_cmpneq_epi32_mask(is_nonzero, level, side) << 16 * v;
    }
    *ret_nonzero = nonzero;
    *ret_special = special;
    return (uint64_t)_mm512_reduce_add_epi32(sum); /* of 64 magnitudes below 2^21 */
}

/* --- tiles ----------------------------------------------------------------------------------- */

/* Swaps rows and columns of blocks of 2 width x 2 width bytes, each of four quarters. */
static inline void swap_quarters(__m512i rows[64], size_t width)
{
    uint8_t from_low[64], from_high[64]; /* byte j of the two rows' 128 */
    for (size_t j = 0; j < 64; j++) {
        const bool is_right = (j & width) != 0;
        from_low[j] = (uint8_t)(is_right ? 64 + j - width : j);
        from_high[j] = (uint8_t)(is_right ? 64 + j : j + width);
    }
    const __m512i low = _mm512_loadu_si512(from_low), high = _mm512_loadu_si512(from_high);
    for (size_t at = 0; at < 64; at += 2 * width) {
        for (size_t i = at; i < at + width; i++) {
            const __m512i upper = rows[i], lower = rows[i + width];
            rows[i] = _mm512_permutex2var_epi8(upper, low, lower);
            rows[i + width] = _mm512_permutex2var_epi8(upper, high, lower);
        }
    }
}

static void classes_of(const int32_t dithers[LANES][STEPS], uint8_t classes[STEPS][LANES])
{
    __m512i rows[LANES];
    for (size_t l = 0; l < LANES; l++) {
        uint8_t *const row = (uint8_t *)&rows[l];
        for (size_t v = 0; v < STEPS / 16; v++) {
            const __m512i dither = _mm512_loadu_si512(&dithers[l][16 * v]);
            const __m512i size = _mm512_xor_si512(dither, _mm512_srai_epi32(dither, 31));
            _mm_store_si128((void *)(row + 16 * v),
                            _mm512_cvtepi32_epi8(_mm512_srli_epi32(size, 27)));
        }
    }
    for (size_t width = 32; width > 0; width /= 2) {
        swap_quarters(rows, width);
    }
    for (size_t t = 0; t < STEPS; t++) {
        _mm512_store_si512(classes[t], rows[t]);
    }
}

static inline void totals_of(const uint8_t contexts[STEPS][LANES],
                             uint32_t ret_totals[TALLY_ADAPTIVE_DENSITIES])
{
    const __m512i one = _mm512_set1_epi8(1), density = _mm512_set1_epi8((char)0xf0);
    __m512i counts[TALLY_ADAPTIVE_DENSITIES]; /* at most STEPS in each byte */
    for (int a = 0; a < TALLY_ADAPTIVE_DENSITIES; a++) {
        counts[a] = _mm512_setzero_si512();
    }
    for (size_t t = 0; t < STEPS; t++) {
        const __m512i here = _mm512_and_si512(_mm512_load_si512(contexts[t]), density);
        for (int a = 0; a < TALLY_ADAPTIVE_DENSITIES; a++) {
            const __mmask64 is_here =
                _mm512_cmpeq_epi8_mask(here, _mm512_set1_epi8((char)(16 * a)));
            counts[a] = _mm512_mask_add_epi8(counts[a], is_here, counts[a], one);
        }
    }
    for (int a = 0; a < TALLY_ADAPTIVE_DENSITIES; a++) {
        const __m512i sums = _mm512_sad_epu8(counts[a], _mm512_setzero_si512());
        ret_totals[a] = (uint32_t)_mm512_reduce_add_epi64(sums);
    }
}

/* plain_contexts_in(), of which up to 63 more may be written. */
static inline size_t contexts_in(const struct tally_adaptive_tile *tile,
                                 const uint64_t masks[STEPS],
                                 uint8_t contexts[TALLY_ADAPTIVE_TILE + 63])
{
    size_t n = 0;
    for (size_t t = 0; t < STEPS; t++) {
        const __m512i here = _mm512_load_si512(tile->contexts[t]);
        _mm512_storeu_si512(contexts + n, _mm512_maskz_compress_epi8(masks[t], here));
        n += (size_t)_mm_popcnt_u64(masks[t]);
    }
    return n;
}

static void learn(bool is_dithered, const struct tally_adaptive_tile *tile,
                  struct tally_adaptive_counts *counts, struct tally_adaptive_shares *ret_shares)
{
    uint8_t contexts[TALLY_ADAPTIVE_TILE + 63];
    struct occurrences found;
    if (is_dithered) {
        totals_of(tile->contexts, found.by_density);
    } else {
        count_contexts(tile->contexts[0], TALLY_ADAPTIVE_TILE, found.all);
    }
    count_contexts(contexts, contexts_in(tile, tile->nonzero, contexts), found.nonzero);
    count_contexts(contexts, contexts_in(tile, tile->special, contexts), found.special);
    learn_occurrences(is_dithered, &found, counts, ret_shares);
}

const struct tally_adaptive_kernel TALLY_ADAPTIVE_AVX512 = {
    .classes = classes_of,
    .transpose = plain_transpose,
    .levels = levels_of,
    .add = add_row,
    .masks = masks_of,
    .count = plain_count,
    .round_change = plain_round_change,
    .move = plain_move,
    .settle = plain_settle,
    .learn = learn,
    .decode = decode,
    .model = model,
    .encode = encode,
};
