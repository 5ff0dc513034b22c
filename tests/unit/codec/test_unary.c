#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/encoding.h"
#include "codec/numeric/rng.h"
#include "tests/harness.h"

static const struct tally_encoding *const UNARY = &TALLY_ENCODING_UNARY;
static const struct tally_grid GRID = {.step = 0.1, .intervals = 100}; /* levels to 50 */

/* Encodes into a heap block of exactly bound() bytes; the caller frees it. */
static uint8_t *encode(const int32_t *levels, size_t dim, size_t *ret_n,
                       struct tally_level_stats *ret_stats)
{
    size_t n = UNARY->bound(levels, dim);
    uint8_t *data = malloc(n + (n == 0));
    CU_ASSERT_PTR_NOT_NULL_FATAL(data);
    CU_ASSERT_EQUAL_FATAL(UNARY->encode(levels, dim, &GRID, data, n, ret_stats), TALLY_OK);
    *ret_n = n;
    return data;
}

/* Decodes from a copy in a block of exactly n bytes, in which the address sanitizer detects any
 * out-of-bounds read. True if the bytes are refused as MALFORMED, or if they equal the encoding of
 * the decoded levels: no two messages mean the same. */
static bool refused_or_canonical(const uint8_t *bytes, size_t n, uint64_t payload_bits, size_t dim)
{
    uint8_t *data = malloc(n + (n == 0));
    int32_t *levels = malloc(dim * sizeof *levels);
    CU_ASSERT_FATAL(data != NULL && levels != NULL);
    memcpy(data, bytes, n);
    struct tally_level_stats stats;
    struct tally_error err = TALLY_ERROR_INIT;
    enum tally_status status =
        UNARY->decode(data, n, payload_bits, dim, &GRID, levels, &stats, &err);
    bool good = status == TALLY_MALFORMED && err.message[0] != '\0';
    if (status == TALLY_OK) {
        struct tally_level_stats again;
        size_t n_again;
        uint8_t *encoded = encode(levels, dim, &n_again, &again);
        good = n_again == n && memcmp(encoded, data, n) == 0 &&
               again.payload_bits == payload_bits && stats.payload_bits == payload_bits &&
               stats.formula_bits == again.formula_bits && stats.nonzeros == again.nonzeros;
        free(encoded);
    }
    free(data);
    free(levels);
    return good;
}

static void expect_malformed(const uint8_t *data, size_t n, uint64_t payload_bits, size_t dim,
                             const char *message)
{
    int32_t levels[80];
    struct tally_level_stats stats;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(UNARY->decode(data, n, payload_bits, dim, &GRID, levels, &stats, &err),
                        TALLY_MALFORMED, &err);
    TALLY_ASSERT_TEXT(err.field, "payload");
    TALLY_ASSERT_TEXT(err.message, message);
}

static void expect_bits(int32_t level, const char *pattern)
{
    size_t n;
    struct tally_level_stats stats;
    uint8_t *data = encode(&level, 1, &n, &stats);
    char text[65] = "";
    for (uint64_t i = 0; i < stats.payload_bits && i < 64; i++) {
        text[i] = (data[i / 8] >> i % 8 & 1) != 0 ? '1' : '0';
        text[i + 1] = '\0';
    }
    TALLY_ASSERT_TEXT(text, pattern);
    free(data);
}

static void test_codec_unary__patterns_of_the_file_comment(void)
{
    expect_bits(0, "0");
    expect_bits(1, "100");
    expect_bits(-1, "101");
    expect_bits(2, "1100");
    expect_bits(-3, "11101");
    expect_bits(4, "111100");
}

static void test_codec_unary__zero_costs_one_bit(void)
{
    const int32_t levels[64] = {0};
    size_t n;
    struct tally_level_stats stats;
    uint8_t *data = encode(levels, 64, &n, &stats);
    CU_ASSERT_EQUAL(n, 8);
    CU_ASSERT_EQUAL(stats.payload_bits, 64);
    CU_ASSERT_EQUAL(stats.formula_bits, 64);
    CU_ASSERT_EQUAL(stats.nonzeros, 0);
    free(data);
}

static void expect_message(const int32_t *levels, size_t dim, const uint8_t *expected, size_t n,
                           const struct tally_level_stats *costs)
{
    size_t n_encoded;
    struct tally_level_stats stats;
    uint8_t *data = encode(levels, dim, &n_encoded, &stats);
    CU_ASSERT_EQUAL_FATAL(n_encoded, n);
    CU_ASSERT_EQUAL(memcmp(data, expected, n), 0);
    CU_ASSERT_EQUAL(stats.formula_bits, costs->formula_bits);
    CU_ASSERT_EQUAL(stats.nonzeros, costs->nonzeros);
    CU_ASSERT_EQUAL(stats.payload_bits, costs->payload_bits);
    free(data);
    int32_t *back = malloc(dim * sizeof *back);
    CU_ASSERT_PTR_NOT_NULL_FATAL(back);
    CU_ASSERT_EQUAL(UNARY->decode(expected, n, costs->payload_bits, dim, &GRID, back, &stats, NULL),
                    TALLY_OK);
    CU_ASSERT_EQUAL(memcmp(back, levels, dim * sizeof *back), 0);
    free(back);
}

/* FORMAT.md, section 3, both examples. */
static void test_codec_unary__examples_of_format_md(void)
{
    const int32_t levels[7] = {0, 1, -1, 2, -3, 0, 4};
    const uint8_t expected[3] = {0x5e, 0x6e, 0x29};
    expect_message(
        levels, 7, expected, 3,
        &(struct tally_level_stats){.formula_bits = 18, .nonzeros = 5, .payload_bits = 23});
    int32_t two_blocks[66] = {[63] = 1, [64] = -2};
    const uint8_t expected_blocks[9] = {[7] = 0x80, [8] = 0x54};
    expect_message(
        two_blocks, 66, expected_blocks, 9,
        &(struct tally_level_stats){.formula_bits = 69, .nonzeros = 2, .payload_bits = 71});
}

/* Fills `levels` with large (kind 0), small (1) or mostly zero (2) levels. */
static void random_levels(struct tally_rng *rng, uint32_t kind, int32_t *levels, size_t dim)
{
    for (size_t i = 0; i < dim; i++) {
        uint32_t range = kind == 0 ? 101 : kind == 1 ? 3 : 13;
        bool zero = kind == 2 && tally_rng_below(rng, 10) != 0;
        levels[i] = zero ? 0 : (int32_t)tally_rng_below(rng, range) - (int32_t)(range / 2);
    }
}

static void test_codec_unary__ten_thousand_random_messages_round_trip(void)
{
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(31, 0), 0, 0, TALLY_RNG_NOISE);
    bool same = true;
    for (uint32_t i = 0; i < 10000; i++) {
        int32_t levels[80], back[80];
        size_t n, dim = 1 + tally_rng_below(&rng, 80);
        random_levels(&rng, i % 3, levels, dim);
        uint64_t sum = 0, nonzeros = 0;
        for (size_t c = 0; c < dim; c++) {
            sum += (uint64_t)abs(levels[c]);
            nonzeros += levels[c] != 0;
        }
        struct tally_level_stats sent, seen;
        uint8_t *data = encode(levels, dim, &n, &sent);
        same = same &&
               UNARY->decode(data, n, sent.payload_bits, dim, &GRID, back, &seen, NULL) == TALLY_OK;
        same = same && memcmp(back, levels, dim * sizeof back[0]) == 0;
        same = same && sent.formula_bits == dim + sum && sent.nonzeros == nonzeros &&
               sent.payload_bits == sent.formula_bits + nonzeros;
        same = same && seen.formula_bits == sent.formula_bits &&
               seen.payload_bits == sent.payload_bits && seen.nonzeros == sent.nonzeros;
        same = same && n == (sent.payload_bits + 7) / 8;
        free(data);
    }
    CU_ASSERT_TRUE(same);
}

/* Levels around the sizes of the pieces that encoder and reader process: 56 to 64 and 120 bits. */
static void test_codec_unary__long_runs_at_every_offset(void)
{
    const struct tally_grid wide = {.step = 1, .intervals = TALLY_MAX_INTERVALS};
    bool same = true;
    for (int32_t offset = 0; offset < 9; offset++) {
        for (int32_t level = 50; level < 260; level++) {
            const int32_t levels[4] = {offset, level, -level, 1};
            int32_t back[4] = {0};
            uint8_t data[120];
            struct tally_level_stats stats;
            size_t n = UNARY->bound(levels, 4);
            same = same && UNARY->encode(levels, 4, &wide, data, n, &stats) == TALLY_OK;
            same = same && UNARY->decode(data, n, stats.payload_bits, 4, &wide, back, &stats,
                                         NULL) == TALLY_OK;
            same = same && memcmp(levels, back, sizeof back) == 0;
        }
    }
    CU_ASSERT_TRUE(same);
    const int32_t extreme[2] = {TALLY_MAX_INTERVALS / 2, -TALLY_MAX_INTERVALS / 2};
    int32_t back[2];
    size_t n;
    struct tally_level_stats stats;
    uint8_t *data = encode(extreme, 2, &n, &stats);
    CU_ASSERT_EQUAL(stats.payload_bits, 4 + TALLY_MAX_INTERVALS);
    CU_ASSERT_EQUAL(UNARY->decode(data, n, stats.payload_bits, 2, &wide, back, &stats, NULL),
                    TALLY_OK);
    CU_ASSERT_EQUAL(memcmp(extreme, back, sizeof back), 0);
    free(data);
}

static void test_codec_unary__small_capacity_is_refused(void)
{
    const int32_t levels[5] = {3, -4, 0, 50, 7};
    size_t need = UNARY->bound(levels, 5);
    for (size_t capacity = 0; capacity < need; capacity++) {
        uint8_t *data = malloc(capacity + (capacity == 0));
        CU_ASSERT_PTR_NOT_NULL_FATAL(data);
        struct tally_level_stats stats = {.payload_bits = 77};
        CU_ASSERT_EQUAL(UNARY->encode(levels, 5, &GRID, data, capacity, &stats),
                        TALLY_OUT_OF_RANGE);
        CU_ASSERT_EQUAL(stats.payload_bits, 77);
        free(data);
    }
}

static void test_codec_unary__levels_above_the_grid_are_refused(void)
{
    const int32_t top[3] = {50, -50, 0}, above[3] = {50, -51, 0};
    size_t n;
    struct tally_level_stats stats;
    int32_t back[3];
    uint8_t *data = encode(top, 3, &n, &stats);
    CU_ASSERT_EQUAL(UNARY->decode(data, n, stats.payload_bits, 3, &GRID, back, &stats, NULL),
                    TALLY_OK);
    free(data);
    data = encode(above, 3, &n, &stats);
    expect_malformed(data, n, stats.payload_bits, 3, "level of coordinate 1 is above 50");
    free(data);
}

static void test_codec_unary__lengths_that_lie_are_refused(void)
{
    const uint8_t data[3] = {0x5e, 0x6e, 0x29}; /* the example: 7 coordinates in 23 bits */
    expect_malformed(NULL, 0, 0, 7, "ends in coordinates 0 to 6 of 7, after 0 bits");
    expect_malformed(data, 0, 0, 1, "ends in coordinates 0 to 0 of 1, after 0 bits");
    expect_malformed(data, 3, UINT64_MAX, 7,
                     "3 bytes do not frame 18446744073709551615 bits with zero padding");
    expect_malformed(data, 0, UINT64_MAX, 7,
                     "0 bytes do not frame 18446744073709551615 bits with zero padding");
    expect_malformed(data, 3, UINT64_MAX - 6, 7,
                     "3 bytes do not frame 18446744073709551609 bits with zero padding");
    expect_malformed(data, 3, 25, 7, "3 bytes do not frame 25 bits with zero padding");
    expect_malformed(data, 3, 16, 7, "3 bytes do not frame 16 bits with zero padding");
    expect_malformed(data, 3, 20, 7, "3 bytes do not frame 20 bits with zero padding");
    expect_malformed(data, 3, 24, 7, "24 bits announced, 7 coordinates take 23");
    expect_malformed(data, 3, 22, 7, "ends in coordinates 0 to 6 of 7, after 22 bits");
    expect_malformed(data, 3, 23, 6, "23 bits announced, 6 coordinates take 20");
    expect_malformed(data, 3, 23, 8, "ends in coordinates 0 to 7 of 8, after 23 bits");
    const uint8_t blocks[9] = {[7] = 0x80, [8] = 0x54}; /* the other: 66 coordinates in 71 bits */
    expect_malformed(blocks, 9, 70, 66, "9 bytes do not frame 70 bits with zero padding");
    expect_malformed(blocks, 8, 64, 64, "ends in coordinates 0 to 63 of 64, after 64 bits");
    const uint8_t ones[2] = {0xff, 0xff};
    expect_malformed(ones, 2, 16, 1, "ends in coordinates 0 to 0 of 1, after 16 bits");
}

/* All prefixes, by bits and by bytes, of messages long enough to have every kind of tail. */
static void test_codec_unary__every_truncation_is_refused(void)
{
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(32, 0), 0, 0, TALLY_RNG_NOISE);
    for (uint32_t i = 0; i < 30; i++) {
        int32_t levels[20], back[20];
        size_t n;
        struct tally_level_stats stats;
        random_levels(&rng, i % 3, levels, 20);
        uint8_t *data = encode(levels, 20, &n, &stats);
        bool refused = true;
        for (uint64_t bits = 0; bits < stats.payload_bits; bits++) {
            size_t bytes = (size_t)(bits + 7) / 8;
            uint8_t *cut = malloc(bytes + (bytes == 0));
            CU_ASSERT_PTR_NOT_NULL_FATAL(cut);
            memcpy(cut, data, bytes);
            if (bits % 8 != 0) { /* zero padding: only the length is wrong */
                cut[bytes - 1] &= (uint8_t)((1u << bits % 8) - 1);
            }
            struct tally_level_stats seen;
            refused = refused && UNARY->decode(cut, bytes, bits, 20, &GRID, back, &seen, NULL) ==
                                     TALLY_MALFORMED;
            /* Bytes are lost, but the original length is still announced. */
            refused =
                refused && (bytes == n || UNARY->decode(cut, bytes, stats.payload_bits, 20, &GRID,
                                                        back, &seen, NULL) == TALLY_MALFORMED);
            free(cut);
        }
        CU_ASSERT_TRUE(refused);
        free(data);
    }
}

static void test_codec_unary__every_extension_is_refused(void)
{
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(33, 0), 0, 0, TALLY_RNG_NOISE);
    for (uint32_t i = 0; i < 30; i++) {
        int32_t levels[20], back[20];
        size_t n;
        struct tally_level_stats stats, seen;
        random_levels(&rng, i % 3, levels, 20);
        uint8_t *data = encode(levels, 20, &n, &stats);
        uint8_t *longer = calloc(n + 9, 1);
        CU_ASSERT_PTR_NOT_NULL_FATAL(longer);
        memcpy(longer, data, n);
        bool refused = true;
        for (uint64_t bits = stats.payload_bits + 1; bits <= stats.payload_bits + 64; bits++) {
            refused = refused && UNARY->decode(longer, (size_t)(bits + 7) / 8, bits, 20, &GRID,
                                               back, &seen, NULL) == TALLY_MALFORMED;
        }
        for (size_t more = 1; more <= 9; more++) {
            refused = refused && UNARY->decode(longer, n + more, stats.payload_bits, 20, &GRID,
                                               back, &seen, NULL) == TALLY_MALFORMED;
        }
        CU_ASSERT_TRUE(refused);
        free(longer);
        free(data);
    }
}

static void test_codec_unary__every_flipped_bit_is_refused_or_canonical(void)
{
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(34, 0), 0, 0, TALLY_RNG_NOISE);
    for (uint32_t i = 0; i < 60; i++) {
        int32_t levels[20];
        size_t n;
        struct tally_level_stats stats;
        random_levels(&rng, i % 3, levels, 20);
        uint8_t *data = encode(levels, 20, &n, &stats);
        bool good = true;
        for (size_t bit = 0; bit < 8 * n; bit++) {
            data[bit / 8] ^= (uint8_t)(1 << bit % 8);
            for (uint64_t bits = 8 * n - 7; bits <= 8 * n; bits++) {
                good = good && refused_or_canonical(data, n, bits, 20);
            }
            data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
        CU_ASSERT_TRUE(good);
        free(data);
    }
}

static void test_codec_unary__random_bytes_are_refused_or_canonical(void)
{
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(35, 0), 0, 0, TALLY_RNG_NOISE);
    bool good = true;
    for (int i = 0; i < 20000; i++) {
        uint8_t data[16];
        size_t n = tally_rng_below(&rng, sizeof data + 1);
        for (size_t b = 0; b < n; b++) {
            data[b] = (uint8_t)tally_rng_u32(&rng);
        }
        uint64_t bits = 8 * n - (n > 0 ? tally_rng_below(&rng, 8) : 0);
        if (n > 0 && bits % 8 != 0) {
            data[n - 1] &= (uint8_t)((1u << bits % 8) - 1);
        }
        good = good && refused_or_canonical(data, n, bits, 1 + tally_rng_below(&rng, 40));
    }
    CU_ASSERT_TRUE(good);
}

/* All messages of up to 13 bits for 1 to 4 coordinates: each string decodes in at most one way and,
 * together with its length, is the only encoding of its levels. */
static void test_codec_unary__all_short_messages_are_refused_or_canonical(void)
{
    bool good = true;
    for (size_t dim = 1; dim <= 4; dim++) {
        for (uint64_t bits = 0; bits <= 13; bits++) {
            for (uint32_t value = 0; value < 1u << bits; value++) {
                const uint8_t data[2] = {(uint8_t)value, (uint8_t)(value >> 8)};
                good = good && refused_or_canonical(data, (size_t)(bits + 7) / 8, bits, dim);
            }
        }
    }
    CU_ASSERT_TRUE(good);
}

static void test_codec_unary__is_listed_under_its_name(void)
{
    size_t i = 0;
    bool found = false;
    for (; TALLY_ENCODINGS[i] != NULL; i++) {
        TALLY_ASSERT_TEXT(TALLY_ENCODING_NAMES[i], TALLY_ENCODINGS[i]->name);
        found = found || TALLY_ENCODINGS[i] == UNARY;
    }
    CU_ASSERT_PTR_NULL(TALLY_ENCODING_NAMES[i]);
    CU_ASSERT_TRUE(found);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_codec_unary__patterns_of_the_file_comment),
    TALLY_TEST(test_codec_unary__zero_costs_one_bit),
    TALLY_TEST(test_codec_unary__examples_of_format_md),
    TALLY_TEST(test_codec_unary__ten_thousand_random_messages_round_trip),
    TALLY_TEST(test_codec_unary__long_runs_at_every_offset),
    TALLY_TEST(test_codec_unary__small_capacity_is_refused),
    TALLY_TEST(test_codec_unary__levels_above_the_grid_are_refused),
    TALLY_TEST(test_codec_unary__lengths_that_lie_are_refused),
    TALLY_TEST(test_codec_unary__every_truncation_is_refused),
    TALLY_TEST(test_codec_unary__every_extension_is_refused),
    TALLY_TEST(test_codec_unary__every_flipped_bit_is_refused_or_canonical),
    TALLY_TEST(test_codec_unary__random_bytes_are_refused_or_canonical),
    TALLY_TEST(test_codec_unary__all_short_messages_are_refused_or_canonical),
    TALLY_TEST(test_codec_unary__is_listed_under_its_name),
};
TALLY_SUITE(codec_unary, TESTS);
