/* `entropy`: a message that no encoder writes is refused; any other message is canonical. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/encoding.h"
#include "codec/entropy/arith.h"
#include "codec/entropy/entropy_model.h"
#include "codec/numeric/checksum.h"
#include "codec/numeric/cpu.h"
#include "codec/numeric/rng.h"
#include "tests/harness.h"
#include "tests/unit/codec/entropy_samples.h"

static const struct tally_grid GRID = {.step = 0.1, .intervals = 100}; /* levels to 50 */

/* Decodes from a copy in a block of exactly n bytes, in which the address sanitizer detects any
 * out-of-bounds read. True if the bytes are refused as MALFORMED and leave the sums unchanged, or
 * if they equal the encoding of the decoded levels: no two messages mean the same. */
static bool refused_or_canonical(const uint8_t *bytes, size_t n, uint64_t payload_bits, size_t dim,
                                 const struct tally_grid *grid, size_t *accepted)
{
    uint8_t *data = entropy_allocate(n);
    int32_t *levels = entropy_allocate(dim * sizeof *levels);
    if (n > 0) {
        memcpy(data, bytes, n);
    }
    struct tally_level_stats stats;
    struct tally_error err = TALLY_ERROR_INIT;
    enum tally_status status =
        ENTROPY->decode(data, n, payload_bits, dim, grid, levels, &stats, &err);
    bool good = status == TALLY_MALFORMED && err.message[0] != '\0';
    if (status == TALLY_OK) {
        struct tally_level_stats again;
        size_t n_again;
        uint8_t *encoded = entropy_encode(levels, dim, &n_again, &again);
        good = n_again == n && memcmp(encoded, data, n) == 0 &&
               entropy_same_stats(&again, &stats) && stats.payload_bits == payload_bits;
        *accepted += 1;
        free(encoded);
    }
    good =
        good && entropy_accumulates_alike(data, n, payload_bits, dim, grid, status, levels, &stats);
    free(data);
    free(levels);
    return good;
}

static void expect_malformed(const uint8_t *data, size_t n, uint64_t payload_bits, size_t dim,
                             const char *message)
{
    int32_t *levels = entropy_allocate(dim * sizeof *levels);
    struct tally_level_stats stats;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(ENTROPY->decode(data, n, payload_bits, dim, &GRID, levels, &stats, &err),
                        TALLY_MALFORMED, &err);
    TALLY_ASSERT_TEXT(err.field, "payload");
    TALLY_ASSERT_TEXT(err.message, message);
    free(levels);
}

static void test_codec_entropy_malformed__lengths_that_lie_are_refused(void)
{
    const uint8_t data[3] = {0};
    expect_malformed(NULL, 0, 0, 7, "ends in the block of coordinate 0 of 7, after 0 bits");
    expect_malformed(data, 0, UINT64_MAX, 7,
                     "0 bytes do not frame 18446744073709551615 bits with zero padding");
    expect_malformed(data, 3, UINT64_MAX - 6, 7,
                     "3 bytes do not frame 18446744073709551609 bits with zero padding");
    expect_malformed(data, 1, 6, 30, "6 bits announced, 30 coordinates take 5");
    expect_malformed(data, 1, 4, 30, "4 bits announced, 30 coordinates take 5");
    expect_malformed(data, 3, 24, ENTROPY_LONG,
                     "ends in the block of coordinate 0 of 262144, after 24 bits");
    const uint8_t padded[1] = {0x20};
    expect_malformed(padded, 1, 5, 30, "1 bytes do not frame 5 bits with zero padding");
    const uint8_t scale[2] = {0xff, 0x3f};
    expect_malformed(scale, 2, 14, 30, "scale 78 is above 52");
}

/* One zero, written as the escape and a symbol number: that of zero or that of the escape. */
static void test_codec_entropy_malformed__escapes_that_are_not_needed_are_refused(void)
{
    const uint32_t none[TALLY_ENTROPY_SYMBOLS] = {0}, named[] = {10, TALLY_ENTROPY_ESCAPE};
    struct tally_entropy_table table;
    tally_entropy_table(0, none, &table);
    for (int k = 0; k < 2; k++) {
        uint8_t data[16];
        struct tally_bit_writer writer;
        struct tally_arith_encoder encoder;
        tally_bit_writer_init(&writer, data, sizeof data);
        tally_bit_write(&writer, 0, 4);
        tally_arith_encoder_init(&encoder, &writer);
        tally_arith_encode(&encoder, table.cumulative[TALLY_ENTROPY_ESCAPE],
                           table.frequency[TALLY_ENTROPY_ESCAPE], TALLY_ENTROPY_TOTAL_BITS);
        tally_arith_encode(&encoder, named[k], 1, 5);
        tally_arith_encoder_finish(&encoder);
        const uint64_t bits = tally_bit_writer_tell(&writer);
        expect_malformed(data, tally_bit_writer_finish(&writer), bits, 1,
                         "coordinate 0 escapes from a symbol that has a frequency");
    }
}

/* Levels decoded from an out-of-range state would encode to another state. */
static void test_codec_entropy_malformed__states_out_of_their_range_are_refused(void)
{
    int32_t *levels = calloc(ENTROPY_LONG, sizeof *levels);
    CU_ASSERT_PTR_NOT_NULL_FATAL(levels);
    size_t n;
    struct tally_level_stats stats;
    uint8_t *data = entropy_encode(levels, ENTROPY_LONG, &n, &stats);
    uint8_t kept[4], *first = data + 2, *last = data + 2 + 4 * 63;
    memcpy(kept, first, 4);
    memcpy(first, "\xff\x7f\x00\x00", 4);
    expect_malformed(data, n, 8 * n, ENTROPY_LONG, "state 0 is 32767");
    memcpy(first, kept, 4);
    last[3] |= 0x80;
    char text[64];
    sprintf(text, "state 63 is %lu",
            (unsigned long)last[0] | (unsigned long)last[1] << 8 | (unsigned long)last[2] << 16 |
                (unsigned long)last[3] << 24);
    expect_malformed(data, n, 8 * n, ENTROPY_LONG, text);
    free(data);
    free(levels);
}

static void test_codec_entropy_malformed__levels_above_the_grid_are_refused(void)
{
    const int32_t above[3] = {50, -51, 0};
    size_t n;
    struct tally_level_stats stats;
    uint8_t *data = entropy_encode(above, 3, &n, &stats);
    expect_malformed(data, n, stats.payload_bits, 3, "level of coordinate 1 is above 50");
    free(data);
    int32_t *levels = calloc(ENTROPY_LONG, sizeof *levels);
    CU_ASSERT_PTR_NOT_NULL_FATAL(levels);
    levels[200000] = 51;
    data = entropy_encode(levels, ENTROPY_LONG, &n, &stats);
    expect_malformed(data, n, stats.payload_bits, ENTROPY_LONG,
                     "level of coordinate 200000 is above 50");
    CU_ASSERT_TRUE(entropy_accumulates_alike(data, n, stats.payload_bits, ENTROPY_LONG, &GRID,
                                             TALLY_MALFORMED, NULL, NULL));
    free(data);
    free(levels);
}

/* All messages of up to 13 bits for some dimensions: every string that decodes is the only encoding
 * of its levels. */
static void test_codec_entropy_malformed__all_short_messages_are_refused_or_canonical(void)
{
    static const size_t dims[] = {1, 2, 3, 30, 300};
    const struct tally_grid tiny = {.step = 1, .intervals = 2};
    bool good = true;
    for (size_t k = 0; k < sizeof dims / sizeof dims[0]; k++) {
        size_t accepted = 0;
        for (uint64_t bits = 0; bits <= 13; bits++) {
            for (uint32_t value = 0; value < 1u << bits; value++) {
                const uint8_t data[2] = {(uint8_t)value, (uint8_t)(value >> 8)};
                good = good && refused_or_canonical(data, (size_t)(bits + 7) / 8, bits, dims[k],
                                                    value % 2 == 0 ? &GRID : &tiny, &accepted);
            }
        }
        CU_ASSERT_TRUE(accepted > 0);
    }
    CU_ASSERT_TRUE(good);
}

static void test_codec_entropy_malformed__random_bytes_are_refused_or_canonical(void)
{
    struct tally_rng rng = entropy_stream(45);
    bool good = true;
    size_t accepted = 0;
    for (int k = 0; k < 30000; k++) {
        uint8_t data[24];
        const size_t n = tally_rng_below(&rng, sizeof data + 1);
        for (size_t b = 0; b < n; b++) {
            data[b] = (uint8_t)tally_rng_u32(&rng);
        }
        const uint64_t bits = 8 * n - (n > 0 ? tally_rng_below(&rng, 8) : 0);
        if (n > 0 && bits % 8 != 0) {
            data[n - 1] &= (uint8_t)((1u << bits % 8) - 1);
        }
        good = good && refused_or_canonical(data, n, bits, 1 + tally_rng_below(&rng, 40),
                                            k % 2 == 0 ? &ENTROPY_WIDE : &GRID, &accepted);
    }
    CU_ASSERT_TRUE(good);
    CU_ASSERT_TRUE(accepted > 0);
}

/* Every prefix with zero padding, and every extension by up to 64 zero bits. */
static void test_codec_entropy_malformed__every_truncation_and_extension_is_refused(void)
{
    struct tally_rng rng = entropy_stream(46);
    for (uint32_t k = 0; k < 90; k++) {
        int32_t levels[40], back[40];
        size_t n;
        struct tally_level_stats stats, seen;
        entropy_random_levels(&rng, k % N_SHAPES, k % 2 == 0 ? 50 : ENTROPY_TOP, levels, 40);
        uint8_t *data = entropy_encode(levels, 40, &n, &stats);
        uint8_t *longer = calloc(n + 9, 1);
        CU_ASSERT_PTR_NOT_NULL_FATAL(longer);
        memcpy(longer, data, n);
        bool refused = true;
        for (uint64_t bits = 0; bits <= stats.payload_bits + 64; bits++) {
            const size_t bytes = (size_t)(bits + 7) / 8;
            uint8_t *cut = entropy_allocate(bytes);
            memcpy(cut, longer, bytes);
            if (bits % 8 != 0) {
                cut[bytes - 1] &= (uint8_t)((1u << bits % 8) - 1);
            }
            refused = refused && (bits == stats.payload_bits ||
                                  ENTROPY->decode(cut, bytes, bits, 40, &ENTROPY_WIDE, back, &seen,
                                                  NULL) == TALLY_MALFORMED);
            free(cut);
        }
        CU_ASSERT_TRUE(refused);
        free(longer);
        free(data);
    }
}

static void test_codec_entropy_malformed__every_flipped_bit_is_refused_or_canonical(void)
{
    struct tally_rng rng = entropy_stream(47);
    size_t accepted = 0;
    for (uint32_t k = 0; k < 90; k++) {
        int32_t levels[40];
        size_t n;
        struct tally_level_stats stats;
        const struct tally_grid *grid = k % 2 == 0 ? &GRID : &ENTROPY_WIDE;
        entropy_random_levels(&rng, k % N_SHAPES, (int32_t)grid->intervals / 2, levels, 40);
        uint8_t *data = entropy_encode(levels, 40, &n, &stats);
        bool good = true;
        for (size_t bit = 0; bit < 8 * n; bit++) {
            data[bit / 8] ^= (uint8_t)(1 << bit % 8);
            good = good && refused_or_canonical(data, n, stats.payload_bits, 40, grid, &accepted);
            data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
        CU_ASSERT_TRUE(good);
        free(data);
    }
    CU_ASSERT_TRUE(accepted > 0);
}

/* Flipped bits, truncations and extensions of long messages, most of them near one of the ends. */
static void test_codec_entropy_malformed__damaged_long_messages_are_refused(void)
{
    struct tally_rng rng = entropy_stream(48);
    int32_t *levels = entropy_allocate((ENTROPY_LONG + 7) * sizeof *levels);
    for (uint32_t k = 0; k < N_SHAPES; k++) {
        size_t n, accepted = 0;
        struct tally_level_stats stats;
        const struct tally_grid *grid = k % 2 == 0 ? &GRID : &ENTROPY_WIDE;
        entropy_random_levels(&rng, k, (int32_t)grid->intervals / 2, levels, ENTROPY_LONG + 7);
        uint8_t *data = entropy_encode(levels, ENTROPY_LONG + 7, &n, &stats);
        bool good = true;
        for (size_t try = 0; try < 24; try++) {
            const size_t near = tally_rng_below(&rng, 300) % n;
            const size_t at = try % 3 == 0   ? near
                              : try % 3 == 1 ? n - 1 - near
                                             : tally_rng_below(&rng, (uint32_t)n);
            data[at] ^= (uint8_t)(1 << try % 8);
            good = good && refused_or_canonical(data, n, 8 * n, ENTROPY_LONG + 7, grid, &accepted);
            data[at] ^= (uint8_t)(1 << try % 8);
            const size_t left = n - 1 - near;
            good = good &&
                   refused_or_canonical(data, left, 8 * left, ENTROPY_LONG + 7, grid, &accepted);
        }
        CU_ASSERT_TRUE(good);
        uint8_t *longer = calloc(n + 130, 1);
        CU_ASSERT_PTR_NOT_NULL_FATAL(longer);
        memcpy(longer, data, n);
        for (size_t more = 1; more <= 130; more += 43) {
            good = good && refused_or_canonical(longer, n + more, 8 * (n + more), ENTROPY_LONG + 7,
                                                grid, &accepted);
        }
        CU_ASSERT_TRUE(good);
        free(longer);
        free(data);
    }
    free(levels);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_codec_entropy_malformed__lengths_that_lie_are_refused),
    TALLY_TEST(test_codec_entropy_malformed__escapes_that_are_not_needed_are_refused),
    TALLY_TEST(test_codec_entropy_malformed__states_out_of_their_range_are_refused),
    TALLY_TEST(test_codec_entropy_malformed__levels_above_the_grid_are_refused),
    TALLY_TEST(test_codec_entropy_malformed__all_short_messages_are_refused_or_canonical),
    TALLY_TEST(test_codec_entropy_malformed__random_bytes_are_refused_or_canonical),
    TALLY_TEST(test_codec_entropy_malformed__every_truncation_and_extension_is_refused),
    TALLY_TEST(test_codec_entropy_malformed__every_flipped_bit_is_refused_or_canonical),
    TALLY_TEST(test_codec_entropy_malformed__damaged_long_messages_are_refused),
};
TALLY_SUITE(codec_entropy_malformed, TESTS);
