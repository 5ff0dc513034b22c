/* The loops of entropy_portable.c, 64 coordinates at a time, in the two pairs of vectors of
 * rans_avx512.h. */
#include <immintrin.h>

#include "codec/entropy/entropy_kernels.h"
#include "codec/entropy/rans_avx512.h"

enum { GROUP = TALLY_RANS_LANES };

/* --- encoder --------------------------------------------------------------------------------- */

/* A column of the table: 32 entries in two vectors. */
struct column {
    __m512i low, high;
};

static inline struct column load_column(const uint32_t *entries)
{
    return (struct column){_mm512_load_si512(entries), _mm512_load_si512(entries + 16)};
}

/* Looks at the low 5 bits of each symbol only. */
static inline __m512i look_up(struct column column, __m512i symbols)
{
    return _mm512_permutex2var_epi32(column.low, symbols, column.high);
}

struct columns {
    struct column frequency, bias, reciprocal, shift;
};

static inline __m512i high_product(__m512i a, __m512i b)
{
    const __m512i even = _mm512_mul_epu32(a, b);
    const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), _mm512_srli_epi64(b, 32));
    return _mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd);
}

/* Encodes symbols into states that are small enough. */
static inline __m512i push(const struct columns *columns, __m512i states, __m512i symbols,
                           __m512i frequency)
{
    const __m512i q = _mm512_srlv_epi32(high_product(states, look_up(columns->reciprocal, symbols)),
                                        look_up(columns->shift, symbols));
    const __m512i rest = _mm512_sub_epi32(_mm512_set1_epi32(TALLY_ENTROPY_TOTAL), frequency);
    return _mm512_add_epi32(_mm512_add_epi32(states, look_up(columns->bias, symbols)),
                            _mm512_mullo_epi32(q, rest));
}

static inline uint8_t *encode_pair(const struct columns *columns, const uint8_t *symbols,
                                   struct tally_rans_pair *states, uint8_t *end)
{
    const __m512i even = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)symbols));
    const __m512i odd = _mm512_srli_epi32(even, 16);
    const __m512i even_frequency = look_up(columns->frequency, even);
    const __m512i odd_frequency = look_up(columns->frequency, odd);
    enum { SPARE = TALLY_RANS_STATE_BITS - TALLY_ENTROPY_TOTAL_BITS };
    const __mmask16 even_full =
        _mm512_cmpge_epu32_mask(_mm512_srli_epi32(states->even, SPARE), even_frequency);
    const __mmask16 odd_full =
        _mm512_cmpge_epu32_mask(_mm512_srli_epi32(states->odd, SPARE), odd_frequency);
    end = tally_rans_shrink_pair(states, even_full, odd_full, end);
    states->even = push(columns, states->even, even, even_frequency);
    states->odd = push(columns, states->odd, odd, odd_frequency);
    return end;
}

static uint8_t *encode(const struct tally_rans_encode_table *table, const uint8_t *symbols,
                       size_t n, struct tally_rans_states *states, uint8_t *end,
                       const int32_t *next)
{
    const size_t rest = n % GROUP;
    end = TALLY_ENTROPY_PORTABLE.encode(table, symbols + n - rest, rest, states, end, NULL);
    const struct columns columns = {load_column(table->frequency), load_column(table->bias),
                                    load_column(table->reciprocal), load_column(table->shift)};
    struct tally_rans_pair low = tally_rans_load_pair(states->lane);
    struct tally_rans_pair high = tally_rans_load_pair(states->lane + 32);
    for (size_t i = n - rest; i > 0; i -= GROUP) {
        for (int line = 0; next != NULL && line < GROUP / 16; line++) {
            _mm_prefetch((const char *)(next + i - GROUP + 16 * line), _MM_HINT_T1);
        }
        end = encode_pair(&columns, symbols + i - 32, &high, end);
        end = encode_pair(&columns, symbols + i - 64, &low, end);
    }
    tally_rans_store_pair(states->lane, low);
    tally_rans_store_pair(states->lane + 32, high);
    return end;
}

/* --- decoder --------------------------------------------------------------------------------- */

/* Without optimization, GCC's gather is a macro, which takes its mask for a signed number. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"
static inline __m512i entries_at(const struct tally_rans_decode_table *table, __m512i states)
{
    const __m512i share = _mm512_and_si512(states, _mm512_set1_epi32(TALLY_ENTROPY_TOTAL - 1));
    return _mm512_i32gather_epi32(share, table->entries, 4);
}
#pragma GCC diagnostic pop

static inline __m512i pop(__m512i states, __m512i entries)
{
    const __m512i mask = _mm512_set1_epi32(TALLY_ENTROPY_TOTAL - 1);
    const __m512i frequency = _mm512_and_si512(entries, mask);
    const __m512i offset =
        _mm512_and_si512(_mm512_srli_epi32(entries, TALLY_ENTROPY_TOTAL_BITS), mask);
    return _mm512_add_epi32(
        _mm512_mullo_epi32(frequency, _mm512_srli_epi32(states, TALLY_ENTROPY_TOTAL_BITS)), offset);
}

static uint64_t sum_of(__m512i words) /* of 32 bits, unsigned */
{
    const __m512i low = _mm512_and_si512(words, _mm512_set1_epi64(UINT32_MAX));
    return (uint64_t)_mm512_reduce_add_epi64(_mm512_add_epi64(low, _mm512_srli_epi64(words, 32)));
}

/* Statistics of the levels of a block, in lanes of 16 bits. Each lane sees at most 2^14 / 32
 * levels. */
struct narrow_scan {
    __m512i sum, nonzeros, largest;
};

/* Writes 32 symbols, as bytes and as levels. */
static inline void write_levels(__m512i symbol, uint8_t *symbols, int32_t *levels,
                                struct narrow_scan *scan)
{
    const __m512i class = _mm512_set1_epi16(TALLY_ENTROPY_FIRST_CLASS);
    const __m512i direct = _mm512_set1_epi16(TALLY_ENTROPY_DIRECT);
    const __m512i level =
        _mm512_maskz_sub_epi16(_mm512_cmplt_epu16_mask(symbol, class), symbol, direct);
    const __m512i magnitude = _mm512_abs_epi16(level);
    scan->sum = _mm512_add_epi16(scan->sum, magnitude);
    scan->nonzeros =
        _mm512_add_epi16(scan->nonzeros, _mm512_min_epu16(magnitude, _mm512_set1_epi16(1)));
    scan->largest = _mm512_max_epu16(scan->largest, magnitude);
    _mm256_storeu_si256((__m256i *)symbols, _mm512_cvtepi16_epi8(symbol));
    _mm512_storeu_si512(levels, _mm512_cvtepi16_epi32(_mm512_castsi512_si256(level)));
    _mm512_storeu_si512(levels + 16, _mm512_cvtepi16_epi32(_mm512_extracti64x4_epi64(level, 1)));
}

/* May read 64 bytes. */
static inline const uint8_t *decode_pair(const struct tally_rans_decode_table *table,
                                         const uint8_t *data, struct tally_rans_pair *states,
                                         uint8_t *symbols, int32_t *levels,
                                         struct narrow_scan *scan)
{
    const __m512i even_entries = entries_at(table, states->even);
    const __m512i odd_entries = entries_at(table, states->odd);
    *states =
        (struct tally_rans_pair){pop(states->even, even_entries), pop(states->odd, odd_entries)};
    data = tally_rans_refill_pair(states, data);
    const __m512i both = _mm512_mask_blend_epi16(
        TALLY_RANS_ODD, _mm512_srli_epi32(even_entries, 24), _mm512_srli_epi32(odd_entries, 8));
    write_levels(both, symbols, levels, scan);
    return data;
}

static uint64_t sum_of_16(__m512i lanes)
{
    return sum_of(_mm512_madd_epi16(lanes, _mm512_set1_epi16(1)));
}

static const uint8_t *decode(const struct tally_rans_decode_table *table, const uint8_t *data,
                             const uint8_t *end, size_t n, struct tally_rans_states *states,
                             uint8_t *symbols, int32_t *levels, struct tally_entropy_scan *ret_scan)
{
    struct tally_rans_pair low = tally_rans_load_pair(states->lane);
    struct tally_rans_pair high = tally_rans_load_pair(states->lane + 32);
    struct narrow_scan narrow = {_mm512_setzero_si512(), _mm512_setzero_si512(),
                                 _mm512_setzero_si512()};
    size_t i = 0;
    for (; n - i >= GROUP && end - data >= 2 * GROUP; i += GROUP) {
        data = decode_pair(table, data, &low, symbols + i, levels + i, &narrow);
        data = decode_pair(table, data, &high, symbols + i + 32, levels + i + 32, &narrow);
    }
    tally_rans_store_pair(states->lane, low);
    tally_rans_store_pair(states->lane + 32, high);
    data = TALLY_ENTROPY_PORTABLE.decode(table, data, end, n - i, states, symbols + i, levels + i,
                                         ret_scan);
    if (data != NULL) {
        const struct tally_entropy_scan scan = {
            .sum = sum_of_16(narrow.sum),
            .nonzeros = sum_of_16(narrow.nonzeros),
            .largest = _mm512_reduce_max_epu32(
                _mm512_max_epu16(_mm512_and_si512(narrow.largest, _mm512_set1_epi32(0xffff)),
                                 _mm512_srli_epi32(narrow.largest, 16)))};
        tally_entropy_scan_merge(ret_scan, &scan);
    }
    return data;
}

/* --- levels and symbols ---------------------------------------------------------------------- */

struct shifting {
    __m512i half;
    __m128i by;
};

static inline struct shifting shifting(unsigned shift)
{
    return (struct shifting){_mm512_set1_epi32((int)((1u << shift) >> 1)),
                             _mm_cvtsi32_si128((int)shift)};
}

static inline __m512i high_of(struct shifting shift, __m512i levels)
{
    return _mm512_sra_epi32(_mm512_add_epi32(levels, shift.half), shift.by);
}

/* Saturated, so that a level that is far away does not become one with a symbol. */
static inline __m128i byte_highs(struct shifting shift, const int32_t *levels)
{
    return _mm512_cvtsepi32_epi8(high_of(shift, _mm512_loadu_si512(levels)));
}

/* 64 levels as their symbols, or bytes above 20. */
static inline __m512i symbols_of(struct shifting shift, const int32_t *levels)
{
    __m512i bytes = _mm512_castsi128_si512(byte_highs(shift, levels));
    bytes = _mm512_inserti32x4(bytes, byte_highs(shift, levels + 16), 1);
    bytes = _mm512_inserti32x4(bytes, byte_highs(shift, levels + 32), 2);
    bytes = _mm512_inserti32x4(bytes, byte_highs(shift, levels + 48), 3);
    return _mm512_add_epi8(bytes, _mm512_set1_epi8(TALLY_ENTROPY_DIRECT));
}

static void count(const int32_t *levels, size_t n, unsigned shift,
                  uint32_t counts[TALLY_ENTROPY_SYMBOLS])
{
    _Static_assert(TALLY_ENTROPY_WINDOW / 64 <= UINT8_MAX, "a byte counts one in each 64");
    __m512i seen[TALLY_ENTROPY_FIRST_CLASS]; /* in registers, all of them */
    const __m512i one = _mm512_set1_epi8(1);
    size_t i = 0;
    for (int s = 0; s < TALLY_ENTROPY_FIRST_CLASS; s++) {
        seen[s] = _mm512_setzero_si512();
    }
    for (; n - i >= 64; i += 64) {
        __m512i left = symbols_of(shifting(shift), levels + i);
        __mmask64 far = _mm512_cmpgt_epu8_mask(left, _mm512_set1_epi8(2 * TALLY_ENTROPY_DIRECT));
        for (; far != 0; far = _blsr_u64(far)) {
            tally_entropy_count(levels + i + _tzcnt_u64(far), 1, shift, counts);
        }
#pragma GCC unroll 21
        for (int s = 0; s < TALLY_ENTROPY_FIRST_CLASS; s++) {
            seen[s] =
                _mm512_mask_add_epi8(seen[s], _mm512_testn_epi8_mask(left, left), seen[s], one);
            left = _mm512_sub_epi8(left, one);
        }
    }
    for (int s = 0; s < TALLY_ENTROPY_FIRST_CLASS; s++) {
        counts[s] +=
            (uint32_t)_mm512_reduce_add_epi64(_mm512_sad_epu8(seen[s], _mm512_setzero_si512()));
    }
    tally_entropy_count(levels + i, n - i, shift, counts);
}

static void symbols(const int32_t *levels, size_t n, unsigned shift, uint8_t *symbols,
                    struct tally_entropy_scan *ret_scan)
{
    /* A lane sees at most 2^14 / 16 magnitudes, each below 2^22: their sum may need 32 bits. */
    __m512i sum = _mm512_setzero_si512(), nonzeros = sum, largest = sum;
    const __m512i one = _mm512_set1_epi32(1);
    const __m128i direct = _mm_set1_epi8(TALLY_ENTROPY_DIRECT);
    const __m128i class = _mm_set1_epi8(TALLY_ENTROPY_FIRST_CLASS);
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        const __m512i level = _mm512_loadu_si512(levels + i);
        const __m512i magnitude = _mm512_abs_epi32(level);
        sum = _mm512_add_epi32(sum, magnitude);
        nonzeros =
            _mm512_mask_add_epi32(nonzeros, _mm512_test_epi32_mask(level, level), nonzeros, one);
        largest = _mm512_max_epu32(largest, magnitude);
        /* As unsigned bytes, values below 0 are far above 20. */
        const __m128i symbol = _mm_add_epi8(byte_highs(shifting(shift), levels + i), direct);
        _mm_storeu_si128((__m128i *)(symbols + i), _mm_min_epu8(symbol, class));
    }
    TALLY_ENTROPY_PORTABLE.symbols(levels + i, n - i, shift, symbols + i, ret_scan);
    const struct tally_entropy_scan scan = {.sum = sum_of(sum),
                                            .nonzeros = sum_of(nonzeros),
                                            .largest = _mm512_reduce_max_epu32(largest)};
    tally_entropy_scan_merge(ret_scan, &scan);
}

static size_t find(const uint8_t *symbols, size_t n, uint32_t set, uint16_t *indices)
{
    /* Byte s of the table: whether s is in the set; symbols are below 32, the table has 64. */
    const __m512i table = _mm512_maskz_set1_epi8(set, 1);
    size_t found = 0, i = 0;
    for (; n - i >= 64; i += 64) {
        const __m512i in = _mm512_permutexvar_epi8(_mm512_loadu_si512(symbols + i), table);
        for (uint64_t hits = _mm512_test_epi8_mask(in, in); hits != 0; hits = _blsr_u64(hits)) {
            indices[found++] = (uint16_t)(i + _tzcnt_u64(hits));
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
    const size_t whole = n - n % 8;
    for (size_t i = 0; i < whole; i += 8) {
        const __m512i level =
            _mm512_cvtepi32_epi64(_mm256_loadu_si256((const __m256i *)(levels + i)));
        _mm512_storeu_si512(sums + i, _mm512_add_epi64(_mm512_loadu_si512(sums + i), level));
    }
    TALLY_ENTROPY_PORTABLE.add(levels + whole, n - whole, sums + whole);
}

const struct tally_entropy_kernel TALLY_ENTROPY_AVX512 = {
    .count = count,
    .symbols = symbols,
    .find = find,
    .encode = encode,
    .decode = decode,
    .add = add,
};
