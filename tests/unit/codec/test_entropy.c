/* `entropy`: round trips of both forms, the examples of FORMAT.md, and the length of messages. */
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

static bool round_trips(const int32_t *levels, size_t dim, const struct tally_grid *grid)
{
    struct tally_level_stats sent, seen;
    size_t n;
    uint8_t *data = entropy_encode(levels, dim, &n, &sent);
    uint8_t *copy = entropy_allocate(n);
    int32_t *back = entropy_allocate(dim * sizeof *back);
    memcpy(copy, data, n);
    struct tally_level_stats wanted = {.formula_bits = dim, .payload_bits = sent.payload_bits};
    for (size_t i = 0; i < dim; i++) {
        wanted.formula_bits += (uint64_t)abs(levels[i]);
        wanted.nonzeros += levels[i] != 0;
    }
    struct tally_error err = TALLY_ERROR_INIT;
    bool good =
        ENTROPY->decode(copy, n, sent.payload_bits, dim, grid, back, &seen, &err) == TALLY_OK;
    good = good && memcmp(back, levels, dim * sizeof *back) == 0;
    good = good && entropy_same_stats(&sent, &wanted) && entropy_same_stats(&seen, &wanted);
    good = good &&
           entropy_accumulates_alike(copy, n, sent.payload_bits, dim, grid, TALLY_OK, back, &seen);
    if (!good) {
        printf("%zu coordinates, the first %d: %s\n", dim, levels[0], err.message);
    }
    free(data);
    free(copy);
    free(back);
    return good;
}

/* --- round trips ----------------------------------------------------------------------------- */

/* Encoder and decoder agree on the number of bits, which matches the number of bytes. */
static void test_codec_entropy__hundred_thousand_random_messages_round_trip(void)
{
    struct tally_rng rng = entropy_stream(41);
    bool good = true;
    for (uint32_t k = 0; k < 100000; k++) {
        int32_t levels[100];
        const size_t dim = 1 + tally_rng_below(&rng, k % 16 == 0 ? 100 : 20);
        const bool wide = k / N_SHAPES % 2 != 0;
        entropy_random_levels(&rng, k % N_SHAPES, wide ? ENTROPY_TOP : 50, levels, dim);
        good = good && round_trips(levels, dim, wide ? &ENTROPY_WIDE : &GRID);
    }
    CU_ASSERT_TRUE(good);
}

/* Dimensions around block boundaries and around the switch to the other coder. */
static void test_codec_entropy__all_shapes_round_trip_at_every_block_boundary(void)
{
    static const size_t dims[] = {255,
                                  256,
                                  257,
                                  511,
                                  512,
                                  513,
                                  1024,
                                  4095,
                                  4096,
                                  4097,
                                  4098,
                                  8192,
                                  16383,
                                  16384,
                                  16385,
                                  32768,
                                  32769,
                                  49152,
                                  65537,
                                  ENTROPY_LONG - 1,
                                  ENTROPY_LONG,
                                  ENTROPY_LONG + 1,
                                  ENTROPY_LONG + 63,
                                  ENTROPY_LONG + 64,
                                  ENTROPY_LONG + 16384,
                                  300001};
    struct tally_rng rng = entropy_stream(42);
    for (size_t k = 0; k < sizeof dims / sizeof dims[0]; k++) {
        int32_t *levels = entropy_allocate(dims[k] * sizeof *levels);
        for (enum shape shape = 0; shape < N_SHAPES; shape++) {
            entropy_random_levels(&rng, shape, ENTROPY_TOP, levels, dims[k]);
            CU_ASSERT_TRUE(round_trips(levels, dims[k], &ENTROPY_WIDE));
        }
        free(levels);
    }
}

/* Both extremes of the largest grid, next to each other and to small levels; and every level of a
 * small grid. */
static void test_codec_entropy__extreme_levels_round_trip(void)
{
    const int32_t extremes[] = {
        ENTROPY_TOP, -ENTROPY_TOP, 0,  1, -ENTROPY_TOP, ENTROPY_TOP - 1, 1 - ENTROPY_TOP, 10, -10,
        11,          -11,          26, 27};
    CU_ASSERT_TRUE(round_trips(extremes, sizeof extremes / sizeof extremes[0], &ENTROPY_WIDE));
    for (int32_t level = -50; level <= 50; level++) {
        CU_ASSERT_TRUE(round_trips(&level, 1, &GRID));
    }
    for (uint32_t magnitude = 1; magnitude <= ENTROPY_TOP; magnitude *= 2) {
        const int32_t around[] = {(int32_t)magnitude, -(int32_t)magnitude, (int32_t)magnitude - 1,
                                  1 - (int32_t)magnitude};
        CU_ASSERT_TRUE(round_trips(around, 4, &ENTROPY_WIDE));
        CU_ASSERT_TRUE(round_trips(around, 1, &ENTROPY_WIDE));
    }
}

/* All kernels write the same bytes. */
static void test_codec_entropy__every_instruction_set_writes_the_same_bytes(void)
{
    struct tally_rng rng = entropy_stream(43);
    const size_t dim = ENTROPY_LONG + 100;
    int32_t *levels = entropy_allocate(dim * sizeof *levels);
    for (enum shape shape = 0; shape < N_SHAPES; shape++) {
        entropy_random_levels(&rng, shape, ENTROPY_TOP, levels, dim);
        tally_cpu_set_limit(TALLY_CPU_PORTABLE);
        size_t n, n_again;
        struct tally_level_stats stats, again;
        uint8_t *plain = entropy_encode(levels, dim, &n, &stats);
        for (enum tally_cpu cpu = TALLY_CPU_AVX2; cpu <= tally_cpu_best(); cpu++) {
            tally_cpu_set_limit(cpu);
            uint8_t *data = entropy_encode(levels, dim, &n_again, &again);
            CU_ASSERT_EQUAL_FATAL(n_again, n);
            CU_ASSERT_EQUAL(memcmp(data, plain, n), 0);
            CU_ASSERT_TRUE(round_trips(levels, dim, &ENTROPY_WIDE));
            free(data);
        }
        free(plain);
    }
    tally_cpu_set_limit(TALLY_CPU_AVX512);
    free(levels);
}

/* --- examples of FORMAT.md ------------------------------------------------------------------- */

static void expect_example(const int32_t *levels, size_t dim, const char *hex, uint64_t bits)
{
    size_t n;
    struct tally_level_stats stats;
    uint8_t *data = entropy_encode(levels, dim, &n, &stats);
    char text[3 * 64] = "";
    for (size_t i = 0; i < n && i < 63; i++) {
        sprintf(text + 3 * i, "%02x ", data[i]);
    }
    TALLY_ASSERT_TEXT(text, hex);
    CU_ASSERT_EQUAL(stats.payload_bits, bits);
    CU_ASSERT_TRUE(round_trips(levels, dim, &ENTROPY_WIDE));
    free(data);
}

static void test_codec_entropy__examples_of_format_md(void)
{
    const int32_t zeros[30] = {0}, mixed[7] = {0, 1, -1, 2, -3, 0, 4};
    const int32_t far[3] = {0, 0, 100}, wide[3] = {1000, -3, -777};
    expect_example(zeros, 30, "00 ", 5);
    expect_example(mixed, 7, "1c e5 fb 0f ", 28);
    expect_example(far, 3, "0f c4 d0 1b d5 01 ", 41);
    expect_example(wide, 3, "bf fc df 37 be cf ae 25 37 01 ", 73);
}

static void expect_checksum(const int32_t *levels, size_t dim, const char *expected)
{
    size_t n;
    struct tally_level_stats stats;
    uint8_t *data = entropy_encode(levels, dim, &n, &stats);
    char text[64];
    sprintf(text, "%llu bits, %016llx", (unsigned long long)stats.payload_bits,
            (unsigned long long)tally_checksum64(data, n));
    TALLY_ASSERT_TEXT(text, expected);
    free(data);
}

static void test_codec_entropy__long_examples_of_format_md(void)
{
    int32_t *levels = entropy_allocate(ENTROPY_LONG * sizeof *levels);
    for (int32_t i = 0; i < 7840; i++) {
        levels[i] = i / 2000 * (i % 3 - 1);
    }
    expect_checksum(levels, 7840, "18690 bits, 02313a050e792710");
    for (int32_t i = 0; i < ENTROPY_LONG; i++) {
        levels[i] = i % 10001 == 10000 ? -20 : i % 1000 == 999 ? 1 : 0;
    }
    expect_checksum(levels, ENTROPY_LONG, "5584 bits, 3b3d83d5f7442f65");
    for (int32_t i = 0; i < ENTROPY_LONG; i++) {
        levels[i] = (i % 101 - 50) * 37;
    }
    expect_checksum(levels, ENTROPY_LONG, "3141648 bits, c9769427c5018097");
    free(levels);
}

/* --- cost ------------------------------------------------------------------------------------ */

static uint64_t bits_of(const int32_t *levels, size_t dim)
{
    size_t n;
    struct tally_level_stats stats;
    free(entropy_encode(levels, dim, &n, &stats));
    return stats.payload_bits;
}

static void test_codec_entropy__a_zero_vector_costs_a_few_bits(void)
{
    const int32_t levels[1000] = {0};
    for (size_t dim = 1; dim <= 1000; dim++) {
        CU_ASSERT_TRUE(bits_of(levels, dim) <= 6 + dim / 300);
    }
}

/* No levels cost much more than plain numbers of log2(p + 1) bits each, plus the head. */
static void test_codec_entropy__no_shape_explodes(void)
{
    static const size_t dims[] = {1, 2, 10, 100, 1000, 10000, 300000};
    static const int32_t tops[] = {1, 7, 50, 1000, 65536, ENTROPY_TOP};
    struct tally_rng rng = entropy_stream(44);
    for (size_t k = 0; k < sizeof dims / sizeof dims[0]; k++) {
        int32_t *levels = entropy_allocate(dims[k] * sizeof *levels);
        for (size_t t = 0; t < sizeof tops / sizeof tops[0]; t++) {
            double raw = 1;
            while ((1 << (int)raw) < 2 * tops[t] + 1) {
                raw++;
            }
            for (enum shape shape = 0; shape < N_SHAPES; shape++) {
                entropy_random_levels(&rng, shape, tops[t], levels, dims[k]);
                const double bits = (double)bits_of(levels, dims[k]);
                const double most =
                    1.35 * raw * (double)dims[k] + 40 + (dims[k] >= ENTROPY_LONG ? 2064 : 0);
                CU_ASSERT_TRUE(bits <= most);
                if (bits > most) {
                    printf("dim %zu top %d shape %d: %.0f bits, raw %.0f\n", dims[k], tops[t],
                           (int)shape, bits, raw * (double)dims[k]);
                }
            }
        }
        free(levels);
    }
}

static void test_codec_entropy__small_capacity_is_refused(void)
{
    const int32_t levels[5] = {3, -4, 0, 50, 7};
    const size_t need = ENTROPY->bound(levels, 5);
    for (size_t capacity = 0; capacity < need; capacity++) {
        uint8_t *data = entropy_allocate(capacity);
        struct tally_level_stats stats = {.payload_bits = 77};
        CU_ASSERT_EQUAL(ENTROPY->encode(levels, 5, &GRID, data, capacity, &stats),
                        TALLY_OUT_OF_RANGE);
        CU_ASSERT_EQUAL(stats.payload_bits, 77);
        free(data);
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_codec_entropy__hundred_thousand_random_messages_round_trip),
    TALLY_TEST(test_codec_entropy__all_shapes_round_trip_at_every_block_boundary),
    TALLY_TEST(test_codec_entropy__extreme_levels_round_trip),
    TALLY_TEST(test_codec_entropy__every_instruction_set_writes_the_same_bytes),
    TALLY_TEST(test_codec_entropy__examples_of_format_md),
    TALLY_TEST(test_codec_entropy__long_examples_of_format_md),
    TALLY_TEST(test_codec_entropy__a_zero_vector_costs_a_few_bits),
    TALLY_TEST(test_codec_entropy__no_shape_explodes),
    TALLY_TEST(test_codec_entropy__small_capacity_is_refused),
};
TALLY_SUITE(codec_entropy, TESTS);
