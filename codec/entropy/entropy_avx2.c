/* The loops of entropy_portable.c, 8 states at a time. */
#include <immintrin.h>
#include <string.h>

#include "codec/entropy/entropy_kernels.h"
#include "codec/entropy/rans_avx2.h"

enum { LANES = 8, VECTORS = TALLY_RANS_LANES / LANES, GROUP = TALLY_RANS_LANES };

static inline __m256i gather(const uint32_t *entries, __m256i index)
{
    return _mm256_i32gather_epi32((const int *)entries, index, 4);
}

/* --- encoder --------------------------------------------------------------------------------- */

static inline __m256i high_product(__m256i a, __m256i b)
{
    const __m256i even = _mm256_mul_epu32(a, b);
    const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), _mm256_srli_epi64(b, 32));
    return _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
}

/* Writes the low words of the states in `mask` right before `end`, and other bytes before those. */
static inline uint8_t *write_words(__m256i states, unsigned mask, uint8_t *end)
{
    const unsigned n = (unsigned)_mm_popcnt_u32(mask);
    const uint64_t chosen = _pext_u64(TALLY_RANS_IDENTITY, tally_rans_bytes_of(mask));
    const uint64_t index = n == 0 ? 0 : chosen << (8 * (LANES - n)); /* to the top */
    const __m256i words = _mm256_and_si256(
        _mm256_permutevar8x32_epi32(states, tally_rans_widened(index)), _mm256_set1_epi32(0xffff));
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(words, words), 0x08);
    _mm_storeu_si128((__m128i *)(end - 16), _mm256_castsi256_si128(packed));
    return end - 2 * n;
}

static inline uint8_t *encode_vector(const struct tally_rans_encode_table *table,
                                     const uint8_t *symbols, uint32_t *states, uint8_t *end)
{
    enum { SPARE = TALLY_RANS_STATE_BITS - TALLY_ENTROPY_TOTAL_BITS };
    const __m256i symbol = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)symbols));
    const __m256i frequency = gather(table->frequency, symbol);
    __m256i state = tally_rans_load_eight(states);
    /* Neither side reaches 2^31, so a signed comparison is enough. */
    const __m256i small = _mm256_cmpgt_epi32(frequency, _mm256_srli_epi32(state, SPARE));
    end = write_words(state, ~tally_rans_mask_of(small) & 0xff, end);
    state = _mm256_blendv_epi8(_mm256_srli_epi32(state, 16), state, small);
    const __m256i q = _mm256_srlv_epi32(high_product(state, gather(table->reciprocal, symbol)),
                                        gather(table->shift, symbol));
    const __m256i rest = _mm256_sub_epi32(_mm256_set1_epi32(TALLY_ENTROPY_TOTAL), frequency);
    state = _mm256_add_epi32(_mm256_add_epi32(state, gather(table->bias, symbol)),
                             _mm256_mullo_epi32(q, rest));
    _mm256_store_si256((__m256i *)states, state);
    return end;
}

static uint8_t *encode(const struct tally_rans_encode_table *table, const uint8_t *symbols,
                       size_t n, struct tally_rans_states *states, uint8_t *end,
                       const int32_t *next)
{
    const size_t rest = n % GROUP;
    end = TALLY_ENTROPY_PORTABLE.encode(table, symbols + n - rest, rest, states, end, NULL);
    for (size_t i = n - rest; i > 0; i -= GROUP) {
        for (int line = 0; next != NULL && line < GROUP / 16; line++) {
            _mm_prefetch((const char *)(next + i - GROUP + 16 * line), _MM_HINT_T1);
        }
        for (size_t v = VECTORS; v-- > 0;) {
            end = encode_vector(table, symbols + i - GROUP + LANES * v, states->lane + LANES * v,
                                end);
        }
    }
    return end;
}

/* --- decoder --------------------------------------------------------------------------------- */

/* May read 16 bytes. */
static inline const uint8_t *decode_vector(const struct tally_rans_decode_table *table,
                                           const uint8_t *data, uint32_t *states, uint8_t *symbols)
{
    const __m256i mask = _mm256_set1_epi32(TALLY_ENTROPY_TOTAL - 1);
    const __m256i before = tally_rans_load_eight(states);
    const __m256i entry = gather(table->entries, _mm256_and_si256(before, mask));
    const __m256i offset =
        _mm256_and_si256(_mm256_srli_epi32(entry, TALLY_ENTROPY_TOTAL_BITS), mask);
    const __m256i state =
        _mm256_add_epi32(_mm256_mullo_epi32(_mm256_and_si256(entry, mask),
                                            _mm256_srli_epi32(before, TALLY_ENTROPY_TOTAL_BITS)),
                         offset);
    data = tally_rans_refill_eight(states, state, data);
    /* Byte 3 of each entry. */
    const __m256i bytes = _mm256_shuffle_epi8(
        entry, _mm256_setr_epi8(3, 7, 11, 15, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 3, 7,
                                11, 15, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1));
    _mm_storel_epi64((__m128i *)symbols, _mm_unpacklo_epi32(_mm256_castsi256_si128(bytes),
                                                            _mm256_extracti128_si256(bytes, 1)));
    return data;
}

/* --- levels and symbols ---------------------------------------------------------------------- */

/* Sums, counts and maxima of 8 lanes. */
struct lanes {
    __m256i sum, nonzeros, largest;
};

static inline void scan_vector(struct lanes *lanes, __m256i level)
{
    const __m256i magnitude = _mm256_abs_epi32(level), zero = _mm256_setzero_si256();
    lanes->sum = _mm256_add_epi32(lanes->sum, magnitude);
    lanes->nonzeros = _mm256_sub_epi32(lanes->nonzeros, _mm256_cmpgt_epi32(magnitude, zero));
    lanes->largest = _mm256_max_epu32(lanes->largest, magnitude);
}

static void add_lanes(struct tally_entropy_scan *scan, const struct lanes *lanes)
{
    uint32_t sum[LANES], nonzeros[LANES], largest[LANES];
    memcpy(sum, &lanes->sum, sizeof sum);
    memcpy(nonzeros, &lanes->nonzeros, sizeof nonzeros);
    memcpy(largest, &lanes->largest, sizeof largest);
    for (int i = 0; i < LANES; i++) {
        const struct tally_entropy_scan lane = {sum[i], nonzeros[i], largest[i]};
        tally_entropy_scan_merge(scan, &lane);
    }
}

/* Levels whose magnitudes, at most 2^21 each, add up in lanes of 32 bits without overflow. */
enum { PIECE = 1024 * LANES };

static inline __m256i high_of(__m256i levels, unsigned shift)
{
    const __m256i half = _mm256_set1_epi32((int)((1u << shift) >> 1));
    return _mm256_sra_epi32(_mm256_add_epi32(levels, half), _mm_cvtsi32_si128((int)shift));
}

static void symbols_of_piece(const int32_t *levels, size_t n, unsigned shift, uint8_t *symbols,
                             struct tally_entropy_scan *scan)
{
    const __m256i direct = _mm256_set1_epi32(TALLY_ENTROPY_DIRECT);
    const __m256i class = _mm256_set1_epi32(TALLY_ENTROPY_FIRST_CLASS);
    const __m256i low_bytes =
        _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 4, 8, 12,
                         -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
    struct lanes lanes = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
    for (size_t i = 0; i < n; i += LANES) {
        const __m256i level = _mm256_loadu_si256((const __m256i *)(levels + i));
        scan_vector(&lanes, level);
        const __m256i high = high_of(level, shift);
        const __m256i far = _mm256_cmpgt_epi32(_mm256_abs_epi32(high), direct);
        const __m256i symbol = _mm256_blendv_epi8(_mm256_add_epi32(high, direct), class, far);
        const __m256i bytes = _mm256_shuffle_epi8(symbol, low_bytes);
        _mm_storel_epi64(
            (__m128i *)(symbols + i),
            _mm_unpacklo_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1)));
    }
    add_lanes(scan, &lanes);
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void symbols(const int32_t *levels, size_t n, unsigned shift, uint8_t *symbols,
                    struct tally_entropy_scan *ret_scan)
{
    const size_t whole = n - n % LANES;
    TALLY_ENTROPY_PORTABLE.symbols(levels + whole, n - whole, shift, symbols + whole, ret_scan);
    for (size_t i = 0; i < whole; i += PIECE) {
        symbols_of_piece(levels + i, smaller(whole - i, PIECE), shift, symbols + i, ret_scan);
    }
}

/* n % LANES = 0. */
static void levels_of(const uint8_t *symbols, size_t n, int32_t *levels,
                      struct tally_entropy_scan *scan)
{
    const __m256i direct = _mm256_set1_epi32(TALLY_ENTROPY_DIRECT);
    const __m256i class = _mm256_set1_epi32(TALLY_ENTROPY_FIRST_CLASS);
    struct lanes lanes = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
    for (size_t i = 0; i < n; i += LANES) {
        const __m256i symbol =
            _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(symbols + i)));
        const __m256i level =
            _mm256_and_si256(_mm256_cmpgt_epi32(class, symbol), _mm256_sub_epi32(symbol, direct));
        scan_vector(&lanes, level);
        _mm256_storeu_si256((__m256i *)(levels + i), level);
    }
    add_lanes(scan, &lanes);
}

static const uint8_t *decode(const struct tally_rans_decode_table *table, const uint8_t *data,
                             const uint8_t *end, size_t n, struct tally_rans_states *states,
                             uint8_t *symbols, int32_t *levels, struct tally_entropy_scan *ret_scan)
{
    size_t i = 0;
    for (; n - i >= GROUP && end - data >= 2 * GROUP; i += GROUP) {
        for (size_t v = 0; v < VECTORS; v++) {
            data = decode_vector(table, data, states->lane + LANES * v, symbols + i + LANES * v);
        }
    }
    data = TALLY_ENTROPY_PORTABLE.decode(table, data, end, n - i, states, symbols + i, levels + i,
                                         ret_scan);
    if (data != NULL) {
        levels_of(symbols, i, levels, ret_scan);
    }
    return data;
}

/* Packs 32 levels into bytes, in any order: the symbol of a level, or a byte that is no symbol. */
static inline __m256i bytes_of_levels(const int32_t *levels, unsigned shift)
{
    const __m256i *from = (const __m256i *)levels;
    const __m256i low = _mm256_packs_epi32(high_of(_mm256_loadu_si256(from), shift),
                                           high_of(_mm256_loadu_si256(from + 1), shift));
    const __m256i high = _mm256_packs_epi32(high_of(_mm256_loadu_si256(from + 2), shift),
                                            high_of(_mm256_loadu_si256(from + 3), shift));
    return _mm256_add_epi8(_mm256_packs_epi16(low, high), _mm256_set1_epi8(TALLY_ENTROPY_DIRECT));
}

static void count(const int32_t *levels, size_t n, unsigned shift,
                  uint32_t counts[TALLY_ENTROPY_SYMBOLS])
{
    _Static_assert(TALLY_ENTROPY_WINDOW / 32 <= UINT8_MAX, "a byte counts one in each 32");
    __m256i seen[TALLY_ENTROPY_FIRST_CLASS];
    memset(seen, 0, sizeof seen);
    size_t i = 0;
    for (; n - i >= 32; i += 32) {
        const __m256i symbol = bytes_of_levels(levels + i, shift);
        __m256i any = _mm256_setzero_si256();
        for (int s = 0; s < TALLY_ENTROPY_FIRST_CLASS; s++) {
            const __m256i is = _mm256_cmpeq_epi8(symbol, _mm256_set1_epi8((char)s));
            seen[s] = _mm256_sub_epi8(seen[s], is);
            any = _mm256_or_si256(any, is);
        }
        if (_mm256_movemask_epi8(any) != -1) {
            for (size_t k = i; k < i + 32; k++) {
                const int32_t high = tally_entropy_high(levels[k], shift);
                const bool far = high > TALLY_ENTROPY_DIRECT || high < -TALLY_ENTROPY_DIRECT;
                tally_entropy_count(levels + k, far, shift, counts);
            }
        }
    }
    for (int s = 0; s < TALLY_ENTROPY_FIRST_CLASS; s++) {
        uint64_t sums[4];
        const __m256i quads = _mm256_sad_epu8(seen[s], _mm256_setzero_si256());
        memcpy(sums, &quads, sizeof sums);
        counts[s] += (uint32_t)(sums[0] + sums[1] + sums[2] + sums[3]);
    }
    tally_entropy_count(levels + i, n - i, shift, counts);
}

static size_t find(const uint8_t *symbols, size_t n, uint32_t set, uint16_t *indices)
{
    /* Bit b of byte a of the tables: whether symbol 8 a + b is in the set. */
    const __m256i rows = _mm256_set1_epi32((int)set);
    const __m256i bits = _mm256_set1_epi64x((int64_t)UINT64_C(0x8040201008040201));
    size_t found = 0, i = 0;
    for (; n - i >= 32; i += 32) {
        const __m256i symbol = _mm256_loadu_si256((const __m256i *)(symbols + i));
        const __m256i row = _mm256_and_si256(_mm256_srli_epi16(symbol, 3), _mm256_set1_epi8(3));
        const __m256i bit =
            _mm256_shuffle_epi8(bits, _mm256_and_si256(symbol, _mm256_set1_epi8(7)));
        const __m256i in = _mm256_and_si256(_mm256_shuffle_epi8(rows, row), bit);
        uint32_t hits =
            (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(in, bit)); /* bit is never 0 */
        for (; hits != 0; hits = _blsr_u32(hits)) {
            indices[found++] = (uint16_t)(i + _tzcnt_u32(hits));
        }
    }
    const size_t rest = TALLY_ENTROPY_PORTABLE.find(symbols + i, n - i, set, indices + found);
    for (size_t k = 0; k < rest; k++) {
        indices[found + k] = (uint16_t)(indices[found + k] + i);
    }
    return found + rest;
}

static void add(const int32_t *levels, size_t n, int64_t *sums)
{
    const size_t whole = n - n % 4;
    for (size_t i = 0; i < whole; i += 4) {
        __m256i *sum = (__m256i *)(sums + i);
        const __m256i level = _mm256_cvtepi32_epi64(_mm_loadu_si128((const __m128i *)(levels + i)));
        _mm256_storeu_si256(sum, _mm256_add_epi64(_mm256_loadu_si256(sum), level));
    }
    TALLY_ENTROPY_PORTABLE.add(levels + whole, n - whole, sums + whole);
}

const struct tally_entropy_kernel TALLY_ENTROPY_AVX2 = {
    .count = count,
    .symbols = symbols,
    .find = find,
    .encode = encode,
    .decode = decode,
    .add = add,
};
