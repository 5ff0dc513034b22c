/* The loops of adaptive_loops.h, 16 lanes at a time: four vectors of states, of densities and of
 * the last symbols stay in registers over a tile. The 192 contexts' shares fill twelve registers,
 * and permutations of bytes look up those of all 64 lanes at once. */
#include <immintrin.h>

#include "codec/adaptive/adaptive_loops.h"

enum { VECTORS = LANES / 16 };

/* --- shares by context ----------------------------------------------------------------------- */

/* Bytes of 64 lanes are in turn: byte 4 i + v is that of lane 16 v + i, so that it lies in dword i
 * like lane i of vector v. */
static inline __m512i in_turn(__m512i in_order)
{
    const __m512i first = _mm512_set1_epi32(0x30201000);
    const __m512i number = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i from =
        _mm512_add_epi8(first, _mm512_mullo_epi32(number, _mm512_set1_epi32(0x01010101)));
    return _mm512_permutexvar_epi8(from, in_order);
}

static inline __m512i in_order(__m512i in_turn)
{
    uint8_t from[LANES];
    for (size_t l = 0; l < LANES; l++) {
        from[l] = (uint8_t)(4 * (l % 16) + l / 16);
    }
    return _mm512_permutexvar_epi8(_mm512_loadu_si512(from), in_turn);
}

/* Four vectors of bytes in 32 bits each. */
static inline __m512i put_in_turn(const __m512i vectors[VECTORS])
{
    const __m512i front = _mm512_or_si512(vectors[0], _mm512_slli_epi32(vectors[1], 8));
    const __m512i rear =
        _mm512_or_si512(_mm512_slli_epi32(vectors[2], 16), _mm512_slli_epi32(vectors[3], 24));
    return _mm512_or_si512(front, rear);
}

/* The low and the high bytes of the shares. */
struct table {
    __m512i low[TALLY_ADAPTIVE_CONTEXTS / 64], high[TALLY_ADAPTIVE_CONTEXTS / 64];
};

static inline struct table load_table(const uint16_t shares[TALLY_ADAPTIVE_CONTEXTS])
{
    struct table table;
    for (size_t i = 0; i < TALLY_ADAPTIVE_CONTEXTS / 64; i++) {
        const __m512i front = _mm512_load_si512(shares + 64 * i),
                      rear = _mm512_load_si512(shares + 64 * i + 32);
        table.low[i] = _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(front)),
                                          _mm512_cvtepi16_epi8(rear), 1);
        table.high[i] = _mm512_inserti64x4(
            _mm512_castsi256_si512(_mm512_cvtepi16_epi8(_mm512_srli_epi16(front, 8))),
            _mm512_cvtepi16_epi8(_mm512_srli_epi16(rear, 8)), 1);
    }
    return table;
}

static inline __m512i look_up_bytes(const __m512i bytes[TALLY_ADAPTIVE_CONTEXTS / 64],
                                    __m512i contexts)
{
    const __mmask64 is_middle = _mm512_test_epi8_mask(contexts, _mm512_set1_epi8(64));
    const __mmask64 is_high = _mm512_movepi8_mask(contexts);
    const __m512i low = _mm512_permutexvar_epi8(contexts, bytes[0]);
    const __m512i middle = _mm512_mask_permutexvar_epi8(low, is_middle, contexts, bytes[1]);
    return _mm512_mask_permutexvar_epi8(middle, is_high, contexts, bytes[2]);
}

static inline __m512i low_words(__m512i vector)
{
    return _mm512_and_si512(vector, _mm512_set1_epi32(0xffff));
}

/* The bits of a where `mask` is 1, and those of b elsewhere. */
static inline __m512i select_bits(__m512i mask, __m512i a, __m512i b)
{
    return _mm512_ternarylogic_epi64(mask, a, b, 0xca);
}

/* The entries of 64 contexts in turn. */
static inline void look_up(const struct table *table, __m512i contexts,
                           __m512i ret_entries[VECTORS])
{
    const __m512i low = look_up_bytes(table->low, contexts);
    const __m512i high = look_up_bytes(table->high, contexts);
    const __m512i low_bytes = _mm512_set1_epi16(0xff);
    const __m512i even = select_bits(low_bytes, low, _mm512_slli_epi16(high, 8));
    const __m512i odd = select_bits(low_bytes, _mm512_srli_epi16(low, 8), high);
    ret_entries[0] = low_words(even);
    ret_entries[1] = low_words(odd);
    ret_entries[2] = _mm512_srli_epi32(even, 16);
    ret_entries[3] = _mm512_srli_epi32(odd, 16);
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

/* The class of a density: its number of bits, less 4, and at least 0. */
static inline __m512i density_classes(__m512i density)
{
    const __m512i bits = _mm512_sub_epi32(_mm512_set1_epi32(32 - TALLY_ADAPTIVE_LOWEST_DENSITY),
                                          _mm512_lzcnt_epi32(density));
    return _mm512_max_epi32(bits, _mm512_setzero_si512());
}

/* The contexts of a step's lanes, in turn; they are also stored, in order. */
static inline __m512i make_contexts(const struct registers *registers, bool is_dithered,
                                    const uint8_t classes[LANES], uint8_t contexts[LANES])
{
    __m512i density[VECTORS];
    for (size_t v = 0; v < VECTORS; v++) {
        density[v] = density_classes(registers->density[v]);
    }
    const __m512i class =
        is_dithered ? in_turn(_mm512_load_si512(classes)) : put_in_turn(registers->last);
    const __m512i here = _mm512_or_si512(_mm512_slli_epi32(put_in_turn(density), 4), class);
    _mm512_store_si512(contexts, in_order(here));
    return here;
}

static inline void pass_symbols(struct registers *registers, size_t v, bool is_dithered,
                                __mmask16 nonzero, __mmask16 special)
{
    const __m512i one = _mm512_set1_epi32(TALLY_ADAPTIVE_DENSITY_ONE);
    __m512i here = _mm512_maskz_mov_epi32(nonzero, one);
    if (is_dithered) {
        here =
            _mm512_mask_mov_epi32(here, special, _mm512_set1_epi32(2 * TALLY_ADAPTIVE_DENSITY_ONE));
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

static inline __attribute__((always_inline)) const uint8_t *
decode_tile(const struct tally_adaptive_shares *shares, bool is_dithered, const uint8_t *data,
            const uint8_t *end, struct tally_adaptive_lanes *lanes,
            struct tally_adaptive_tile *tile)
{
    const struct table plain = load_table(shares->plain), special = load_table(shares->special);
    struct registers registers = load_lanes(lanes);
    size_t t = 0;
    for (; t < STEPS && end - data >= 2 * LANES; t++) {
        __m512i first_plain[VECTORS], first_special[VECTORS];
        uint64_t nonzeros = 0, specials = 0;
        const __m512i contexts =
            make_contexts(&registers, is_dithered, tile->classes[t], tile->contexts[t]);
        look_up(&plain, contexts, first_plain);
        look_up(&special, contexts, first_special);
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

static inline __attribute__((always_inline)) void
model_tile(const struct tally_adaptive_shares *shares, bool is_dithered,
           struct tally_adaptive_lanes *lanes, struct tally_adaptive_tile *tile,
           tally_adaptive_symbol symbols[STEPS][LANES])
{
    const struct table plain = load_table(shares->plain), special = load_table(shares->special);
    struct registers registers = load_lanes(lanes);
    for (size_t t = 0; t < STEPS; t++) {
        __m512i first_plain[VECTORS], first_special[VECTORS];
        const __m512i contexts =
            make_contexts(&registers, is_dithered, tile->classes[t], tile->contexts[t]);
        look_up(&plain, contexts, first_plain);
        look_up(&special, contexts, first_special);
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

/* Swaps the bits of rows that lie `width` < 8 apart, whose partners are in `others`. */
static inline __m512i swap_near(__m512i rows, __m512i others, unsigned width, __m512i low)
{
    const __m512i number = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
    const __mmask8 is_upper = _mm512_test_epi64_mask(number, _mm512_set1_epi64(width));
    const __m512i turn =
        _mm512_mask_set1_epi64(_mm512_set1_epi64(width), is_upper, 64 - (int)width);
    const __m512i own = _mm512_mask_xor_epi64(low, is_upper, low, _mm512_set1_epi64(-1));
    return select_bits(own, rows, _mm512_rolv_epi64(others, turn));
}

/* plain_transpose(), eight rows in a vector. */
static void transpose(uint64_t rows[64])
{
    __m512i here[8];
    __m512i low = _mm512_set1_epi64(0x00000000ffffffff);
    for (size_t k = 0; k < 8; k++) {
        here[k] = _mm512_loadu_si512(rows + 8 * k);
    }
    for (unsigned width = 32; width >= 8; width /= 2) {
        for (size_t k = 0; k < 8; k++) {
            if ((8 * k & width) == 0) {
                const __m512i a = here[k], b = here[k + width / 8];
                here[k] = select_bits(low, a, _mm512_slli_epi64(b, width));
                here[k + width / 8] = select_bits(low, _mm512_srli_epi64(a, width), b);
            }
        }
        low = _mm512_xor_si512(low, _mm512_slli_epi64(low, width / 2));
    }
    for (size_t k = 0; k < 8; k++) {
        const __m512i nibbles = _mm512_set1_epi8(0x0f), pairs = _mm512_set1_epi8(0x33),
                      bits = _mm512_set1_epi8(0x55);
        __m512i at = here[k];
        at = swap_near(at, _mm512_shuffle_i64x2(at, at, 0x4e), 4, nibbles);
        at = swap_near(at, _mm512_permutex_epi64(at, 0x4e), 2, pairs);
        at = swap_near(at, _mm512_shuffle_epi32(at, (_MM_PERM_ENUM)0x4e), 1, bits);
        _mm512_storeu_si512(rows + 8 * k, at);
    }
}

/* Swaps rows and columns of four blocks of 16 x 16 bytes, one in each quarter of the vectors. A
 * pass turns the eight bits of a byte's row and column by one place to the left. */
static inline void swap_blocks(__m512i rows[16])
{
    for (int pass = 0; pass < 4; pass++) {
        __m512i turned[16];
        for (size_t i = 0; i < 8; i++) {
            turned[2 * i] = _mm512_unpacklo_epi8(rows[i], rows[i + 8]);
            turned[2 * i + 1] = _mm512_unpackhi_epi8(rows[i], rows[i + 8]);
        }
        memcpy(rows, turned, sizeof turned);
    }
}

static void classes_of(const int32_t dithers[LANES][STEPS], uint8_t classes[STEPS][LANES])
{
    __m512i rows[LANES / 16][16];
    for (size_t l = 0; l < LANES; l++) {
        uint8_t *const row = (uint8_t *)&rows[l / 16][l % 16];
        for (size_t v = 0; v < STEPS / 16; v++) {
            const __m512i dither = _mm512_loadu_si512(&dithers[l][16 * v]);
            const __m512i size = _mm512_xor_si512(dither, _mm512_srai_epi32(dither, 31));
            _mm_store_si128((void *)(row + 16 * v),
                            _mm512_cvtepi32_epi8(_mm512_srli_epi32(size, 27)));
        }
    }
    for (size_t g = 0; g < LANES / 16; g++) {
        swap_blocks(rows[g]);
    }
    for (size_t j = 0; j < 16; j++) { /* step 16 q + j is quarter q of the four vectors j */
        const __m512i front = _mm512_shuffle_i64x2(rows[0][j], rows[1][j], 0x44);
        const __m512i rear = _mm512_shuffle_i64x2(rows[0][j], rows[1][j], 0xee);
        const __m512i other_front = _mm512_shuffle_i64x2(rows[2][j], rows[3][j], 0x44);
        const __m512i other_rear = _mm512_shuffle_i64x2(rows[2][j], rows[3][j], 0xee);
        _mm512_store_si512(classes[j], _mm512_shuffle_i64x2(front, other_front, 0x88));
        _mm512_store_si512(classes[16 + j], _mm512_shuffle_i64x2(front, other_front, 0xdd));
        _mm512_store_si512(classes[32 + j], _mm512_shuffle_i64x2(rear, other_rear, 0x88));
        _mm512_store_si512(classes[48 + j], _mm512_shuffle_i64x2(rear, other_rear, 0xdd));
    }
}

/* --- what is learnt -------------------------------------------------------------------------- */

/* The least and the greatest class of density in a tile. */
static inline void span_of(const uint8_t contexts[STEPS][LANES], unsigned *ret_least,
                           unsigned *ret_greatest)
{
    __m512i least = _mm512_load_si512(contexts[0]), greatest = least;
    for (size_t t = 1; t < STEPS; t++) {
        const __m512i here = _mm512_load_si512(contexts[t]);
        least = _mm512_min_epu8(least, here);
        greatest = _mm512_max_epu8(greatest, here);
    }
    uint8_t lows[LANES], highs[LANES];
    uint8_t low = UINT8_MAX, high = 0;
    _mm512_storeu_si512(lows, least);
    _mm512_storeu_si512(highs, greatest);
    for (size_t l = 0; l < LANES; l++) {
        low = lows[l] < low ? lows[l] : low;
        high = highs[l] > high ? highs[l] : high;
    }
    *ret_least = low / TALLY_ADAPTIVE_DITHERS;
    *ret_greatest = high / TALLY_ADAPTIVE_DITHERS;
}

/* How many contexts of a tile are at least `bound`. */
static inline uint32_t count_from(const uint8_t contexts[STEPS][LANES], unsigned bound)
{
    const __m512i bounds = _mm512_set1_epi8((char)bound);
    uint64_t n = 0;
    for (size_t t = 0; t < STEPS; t++) {
        n += (uint64_t)_mm_popcnt_u64(
            _mm512_cmpge_epu8_mask(_mm512_load_si512(contexts[t]), bounds));
    }
    return (uint32_t)n;
}

static inline void totals_of(const uint8_t contexts[STEPS][LANES],
                             uint32_t ret_totals[TALLY_ADAPTIVE_DENSITIES])
{
    unsigned least, greatest;
    uint32_t n_from = TALLY_ADAPTIVE_TILE;
    span_of(contexts, &least, &greatest);
    memset(ret_totals, 0, TALLY_ADAPTIVE_DENSITIES * sizeof *ret_totals);
    for (unsigned a = least; a < greatest; a++) {
        const uint32_t n_above = count_from(contexts, TALLY_ADAPTIVE_DITHERS * (a + 1));
        ret_totals[a] = n_from - n_above;
        n_from = n_above;
    }
    ret_totals[greatest] = n_from;
}

/* share_of() of 16 contexts. */
static inline __m512i shares_of_counts(__m512i factor, __m512i part, __m512i whole)
{
    __m256i half[2];
    for (int i = 0; i < 2; i++) {
        const __m256i of =
            i == 0 ? _mm512_castsi512_si256(factor) : _mm512_extracti64x4_epi64(factor, 1);
        const __m256i parts =
            i == 0 ? _mm512_castsi512_si256(part) : _mm512_extracti64x4_epi64(part, 1);
        const __m256i wholes =
            i == 0 ? _mm512_castsi512_si256(whole) : _mm512_extracti64x4_epi64(whole, 1);
        const __m512d product = _mm512_mul_pd(_mm512_cvtepi32_pd(of), _mm512_cvtepi32_pd(parts));
        half[i] = _mm512_cvttpd_epi32(_mm512_div_pd(product, _mm512_cvtepi32_pd(wholes)));
    }
    return _mm512_inserti64x4(_mm512_castsi256_si512(half[0]), half[1], 1);
}

/* halve() */
static inline void halve_counts(__m512i *whole, __m512i *part)
{
    const __mmask16 is_full =
        _mm512_cmpge_epu32_mask(*whole, _mm512_set1_epi32(TALLY_ADAPTIVE_MOST_COUNT));
    *whole = _mm512_mask_srli_epi32(*whole, is_full, *whole, 1);
    *part = _mm512_mask_srli_epi32(*part, is_full, *part, 1);
}

/* learn_occurrences() for one class of density with dither: adds to the 16 counts at `first`, where
 * those of special levels have been added before. */
static inline void learn_class(uint32_t n_in_class, const uint32_t nonzero[TALLY_ADAPTIVE_DITHERS],
                               size_t first, struct tally_adaptive_counts *counts,
                               struct tally_adaptive_shares *ret_shares)
{
    enum { SIXTEENTH = TALLY_ADAPTIVE_COUNT_ONE / TALLY_ADAPTIVE_DITHERS };
    const __m512i more = _mm512_mullo_epi32(_mm512_loadu_si512(nonzero),
                                            _mm512_set1_epi32(TALLY_ADAPTIVE_COUNT_ONE));
    __m512i total = _mm512_add_epi32(_mm512_loadu_si512(counts->total + first),
                                     _mm512_set1_epi32((int)(n_in_class * SIXTEENTH)));
    __m512i nonzeros = _mm512_add_epi32(_mm512_loadu_si512(counts->nonzero + first), more);
    __m512i all = _mm512_add_epi32(_mm512_loadu_si512(counts->all + first), more);
    __m512i special = _mm512_loadu_si512(counts->special + first);
    halve_counts(&total, &nonzeros);
    halve_counts(&all, &special);
    _mm512_storeu_si512(counts->total + first, total);
    _mm512_storeu_si512(counts->nonzero + first, nonzeros);
    _mm512_storeu_si512(counts->all + first, all);
    _mm512_storeu_si512(counts->special + first, special);
    const __m512i ones = _mm512_set1_epi32(1), shares = _mm512_set1_epi32(TOTAL);
    __m512i of_nonzero = shares_of_counts(shares, nonzeros, total);
    of_nonzero = _mm512_min_epu32(_mm512_max_epu32(of_nonzero, _mm512_set1_epi32(2)),
                                  _mm512_sub_epi32(shares, ones));
    __m512i of_special = shares_of_counts(of_nonzero, special, all);
    of_special =
        _mm512_min_epu32(_mm512_max_epu32(of_special, ones), _mm512_sub_epi32(of_nonzero, ones));
    _mm256_storeu_si256((void *)(ret_shares->plain + first),
                        _mm512_cvtepi32_epi16(_mm512_sub_epi32(shares, of_nonzero)));
    _mm256_storeu_si256((void *)(ret_shares->special + first),
                        _mm512_cvtepi32_epi16(_mm512_sub_epi32(shares, of_special)));
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

static void learn_dithered(const struct tally_adaptive_tile *tile,
                           struct tally_adaptive_counts *counts,
                           struct tally_adaptive_shares *ret_shares)
{
    uint8_t contexts[TALLY_ADAPTIVE_TILE + 63];
    uint32_t by_density[TALLY_ADAPTIVE_DENSITIES], nonzero[TALLY_ADAPTIVE_CONTEXTS];
    totals_of(tile->contexts, by_density);
    const size_t n_special = contexts_in(tile, tile->special, contexts); /* few */
    for (size_t i = 0; i < n_special; i++) {
        counts->special[contexts[i]] += TALLY_ADAPTIVE_COUNT_ONE;
    }
    count_contexts(contexts, contexts_in(tile, tile->nonzero, contexts), nonzero);
    for (size_t a = 0; a < TALLY_ADAPTIVE_DENSITIES; a++) {
        const size_t first = TALLY_ADAPTIVE_DITHERS * a;
        if (by_density[a] > 0) {
            learn_class(by_density[a], nonzero + first, first, counts, ret_shares);
        }
    }
}

/* How often each context of a tile occurs. Without dither a class of density has four. */
static inline void count_four(const uint8_t contexts[STEPS][LANES],
                              uint32_t ret_counts[TALLY_ADAPTIVE_CONTEXTS])
{
    unsigned least, greatest;
    uint32_t n_from = TALLY_ADAPTIVE_TILE;
    span_of(contexts, &least, &greatest);
    memset(ret_counts, 0, TALLY_ADAPTIVE_CONTEXTS * sizeof *ret_counts);
    for (unsigned a = least; a <= greatest; a++) {
        for (unsigned x = TALLY_ADAPTIVE_DITHERS * a; x < TALLY_ADAPTIVE_DITHERS * a + 4; x++) {
            const uint32_t n_above = count_from(contexts, x + 1);
            ret_counts[x] = n_from - n_above;
            n_from = n_above;
        }
    }
}

static void learn_undithered(const struct tally_adaptive_tile *tile,
                             struct tally_adaptive_counts *counts,
                             struct tally_adaptive_shares *ret_shares)
{
    uint8_t contexts[TALLY_ADAPTIVE_TILE + 63];
    struct occurrences found;
    count_four(tile->contexts, found.all);
    sum_by_density(found.all, found.by_density);
    count_contexts(contexts, contexts_in(tile, tile->nonzero, contexts), found.nonzero);
    count_contexts(contexts, contexts_in(tile, tile->special, contexts), found.special);
    learn_occurrences(false, &found, counts, ret_shares);
}

static void learn(bool is_dithered, const struct tally_adaptive_tile *tile,
                  struct tally_adaptive_counts *counts, struct tally_adaptive_shares *ret_shares)
{
    if (is_dithered) {
        learn_dithered(tile, counts, ret_shares);
    } else {
        learn_undithered(tile, counts, ret_shares);
    }
}

const struct tally_adaptive_kernel TALLY_ADAPTIVE_AVX512 = {
    .halves = plain_halves,
    .classes = classes_of,
    .transpose = transpose,
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
