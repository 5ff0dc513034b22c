/* The long form of `dithered` at all lengths: every instruction set gives the same results. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codec/dithered/dithered.h"
#include "codec/dithered/dithered_kernels.h"
#include "codec/dithered/dithered_long.h"
#include "codec/dithered/dithered_message.h"
#include "tests/harness.h"
#include "tests/unit/codec/dithered_sample.h"

static struct tally_rng stream(uint32_t round)
{
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(13, 0), 5, round, TALLY_RNG_DOWNLINK);
    return rng;
}

static void sample_init(struct dithered_sample *sample, size_t dim, double ratio, uint32_t top,
                        uint32_t round)
{
    const struct tally_grid grid = {
        .step = 0.3, .intervals = 2 * top, .scale = tally_dithered_scale_of(ratio)};
    dithered_sample_init(sample, dim, grid);
    sample->is_long = true;
    sample->rng = stream(round);
}

static void encode(struct dithered_sample *sample, enum tally_cpu cpu)
{
    tally_cpu_set_limit(cpu);
    CU_ASSERT_EQUAL_FATAL(dithered_sample_encode(sample), TALLY_OK);
    tally_cpu_set_limit(TALLY_CPU_AVX512);
}

static bool decodes(struct dithered_sample *sample, const uint8_t *bytes, size_t n,
                    uint64_t payload_bits, enum tally_cpu cpu, enum tally_status *ret_status,
                    struct tally_level_stats *ret_stats)
{
    tally_cpu_set_limit(cpu);
    const bool good =
        dithered_sample_decodes(sample, bytes, n, payload_bits, ret_status, ret_stats);
    tally_cpu_set_limit(TALLY_CPU_AVX512);
    return good;
}

static bool means_levels(const struct dithered_sample *sample)
{
    bool good = true;
    for (size_t i = 0; i < sample->dim; i++) {
        good = good &&
               sample->values[i] == sample->levels[i] * (INT64_C(1) << 32) - sample->dithers[i];
    }
    return good;
}

/* Whether an instruction set writes the same message as plain C and reads it back. */
static bool is_like_plain(struct dithered_sample *sample, enum tally_cpu cpu)
{
    encode(sample, TALLY_CPU_PORTABLE);
    const struct tally_level_stats stats = sample->stats;
    const uint64_t clipped = sample->clipped;
    const size_t n = sample->payload.size;
    uint8_t *plain = dithered_allocate(n);
    memcpy(plain, sample->payload.data, n);
    encode(sample, cpu);
    bool good = sample->payload.size == n && memcmp(sample->payload.data, plain, n) == 0 &&
                dithered_same_stats(&sample->stats, &stats) && sample->clipped == clipped;
    struct tally_level_stats seen;
    enum tally_status status;
    good = decodes(sample, plain, n, stats.payload_bits, cpu, &status, &seen) && good;
    good = good && status == TALLY_OK && dithered_same_stats(&seen, &stats) && means_levels(sample);
    free(plain);
    return good;
}

static void test_codec_dithered_kernels__all_forms_give_the_same(void)
{
    for (enum tally_cpu cpu = TALLY_CPU_PORTABLE; cpu <= tally_cpu_best(); cpu++) {
        struct tally_rng rng = stream(1);
        bool good = true;
        for (uint32_t k = 0; k < 250 && good; k++) {
            const double ratio = exp2(26 * tally_rng_uniform(&rng) - 9);
            const double wrong = k % 3 == 0 ? exp2(12 * tally_rng_uniform(&rng) - 6) : 1;
            const uint32_t top = 1 + (tally_rng_u32(&rng) >> (12 + tally_rng_below(&rng, 20)));
            struct dithered_sample sample;
            sample_init(&sample, 1 + tally_rng_below(&rng, k % 8 == 0 ? 20000 : 300), ratio, top,
                        k);
            dithered_fill_normal(&rng, 0.3 * ratio * wrong, sample.y, sample.dim);
            for (size_t i = 0; i < sample.dim; i += 7) { /* midway between two levels */
                sample.y[i] = (float)(0.15 * (2 * (double)tally_rng_below(&rng, 9) - 9));
            }
            good = is_like_plain(&sample, cpu);
            dithered_sample_fini(&sample);
        }
        CU_ASSERT_TRUE(good);
    }
}

/* Sums of quotient and dither that lie exactly midway between two levels, or next to the midpoint.
 * The quotients by 49 are exact, but not all products with 1/49 are. The vector forms multiply, yet
 * must give the same levels. */
static void test_codec_dithered_kernels__middles_round_as_plain_c_does(void)
{
    enum { N = 4096 };
    const struct tally_grid grid = {.step = 49, .intervals = 2 * TALLY_DITHERED_MAX_TOP};
    float *y = dithered_allocate(N * sizeof *y);
    int32_t *dithers = dithered_allocate(N * sizeof *dithers);
    int32_t *plain = dithered_allocate(N * sizeof *plain),
            *levels = dithered_allocate(N * sizeof *levels);
    struct tally_rng rng = stream(2);
    for (size_t i = 0; i < N; i++) {
        /* The second half is small enough for the forms in float32. */
        const double quotient = (double)tally_rng_below(&rng, i < N / 2 ? 1 << 18 : 1 << 11) / 64;
        const double to_middle = floor(quotient) + 0.5 - quotient; /* in (-1/2, 1/2] */
        const double dither =
            to_middle * 0x1p32 + (i % 2 == 0 ? 0 : tally_rng_below(&rng, 3) - 1.0);
        y[i] = (float)(49 * quotient);
        dithers[i] = dither < 0x1p31 ? (int32_t)dither : INT32_MIN;
    }
    for (enum tally_cpu cpu = TALLY_CPU_PORTABLE; cpu <= tally_cpu_best(); cpu++) {
        uint64_t clipped = 0;
        CU_ASSERT_EQUAL(TALLY_DITHERED_PORTABLE.quantize(&grid, y, dithers, N, plain, &clipped), N);
        CU_ASSERT_EQUAL(
            tally_dithered_kernel_for(cpu)->quantize(&grid, y, dithers, N, levels, &clipped), N);
        CU_ASSERT_EQUAL(memcmp(plain, levels, N * sizeof *plain), 0);
    }
    free(y);
    free(dithers);
    free(plain);
    free(levels);
}

/* The largest level is accepted on a grid that has it and refused on the next smaller grid. */
static void test_codec_dithered_kernels__a_level_above_the_top_is_refused(void)
{
    struct dithered_sample sample;
    sample_init(&sample, 100, 1, TALLY_DITHERED_MAX_TOP, 4);
    memset(sample.y, 0, sample.dim * sizeof *sample.y);
    sample.y[70] = -0.3f * 1000;
    encode(&sample, TALLY_CPU_PORTABLE);
    const uint32_t largest = (uint32_t)-sample.levels[70];
    struct tally_level_stats stats;
    enum tally_status status;
    for (uint32_t missing = 0; missing < 2; missing++) {
        sample.grid.intervals = 2 * (largest - missing);
        CU_ASSERT_TRUE(decodes(&sample, sample.payload.data, sample.payload.size,
                               sample.stats.payload_bits, TALLY_CPU_AVX512, &status, &stats));
        CU_ASSERT_EQUAL(status, missing == 0 ? TALLY_OK : TALLY_MALFORMED);
    }
    dithered_sample_fini(&sample);
}

static void test_codec_dithered_kernels__what_is_not_finite_is_found(void)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (enum tally_cpu cpu = TALLY_CPU_PORTABLE; cpu <= tally_cpu_best(); cpu++) {
        for (size_t at = 0; at < 100; at++) {
            float y[100] = {0};
            int32_t dithers[100] = {0}, levels[100];
            uint64_t clipped = 0;
            const struct tally_grid grid = {.step = 1, .intervals = 2};
            y[at] = bad[at % 3];
            CU_ASSERT_EQUAL(
                tally_dithered_kernel_for(cpu)->quantize(&grid, y, dithers, 100, levels, &clipped),
                at);
        }
    }
}

/* Blocks are encoded from last to first, but the refusal names the first bad coordinate. */
static void test_codec_dithered_kernels__a_refusal_names_the_first_coordinate(void)
{
    enum { DIM = 3 * TALLY_DITHERED_BLOCK };
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_level_stats stats;
    struct tally_buffer payload = {0};
    uint64_t clipped;
    float *y = dithered_allocate(DIM * sizeof *y);
    const struct tally_grid grid = {.step = 1, .intervals = 2, .scale = 128};
    const struct tally_rng rng = stream(2);
    const struct tally_vector vector = {.y = y, .dim = DIM, .grid = &grid, .rng = &rng};
    memset(y, 0, DIM * sizeof *y);
    y[DIM - 1] = INFINITY;
    y[5000] = NAN;
    CU_ASSERT_EQUAL(tally_dithered_encode_as(true, &vector, NULL, &payload, &stats, &clipped, &err),
                    TALLY_NOT_FINITE);
    TALLY_ASSERT_TEXT(err.message, "coordinate 5000 of 12288 is NaN");
    CU_ASSERT_EQUAL(payload.size, 0);
    tally_buffer_fini(&payload);
    free(y);
}

/* Whether each start holds the symbol whose range contains its first share, and that symbol's
 * bounds. */
static bool are_right_starts(const struct tally_dithered_table *table, unsigned bin)
{
    unsigned s = 0;
    bool good = true;
    for (unsigned k = 0; k < TALLY_DITHERED_STARTS; k++) {
        const unsigned share = k << TALLY_DITHERED_START_BITS;
        while (share >= table->cumulative[s + 1][bin]) {
            s++;
        }
        good = good && table->starts[bin][k] ==
                           (table->cumulative[s][bin] |
                            (uint64_t)table->cumulative[s + 1][bin] << 16 | (uint64_t)s << 32);
    }
    return good;
}

/* In every bin, the cumulative shares ascend to the total, and the table of starts matches them. */
static void test_codec_dithered_kernels__tables_are_complete(void)
{
    bool good = true;
    for (uint32_t scale = 0; scale < TALLY_DITHERED_SCALES; scale++) {
        const struct tally_dithered_model model = tally_dithered_model(scale, 0);
        struct tally_dithered_table table;
        tally_dithered_table(&model, &table);
        tally_dithered_starts(&table);
        good = good && table.n <= TALLY_DITHERED_MOST_SYMBOLS && table.bin_shift >= 23;
        for (unsigned b = 0; b < TALLY_DITHERED_BINS; b++) {
            good = good && table.cumulative[0][b] == 0 && table.cumulative[table.n][b] == 1 << 14;
            for (unsigned s = 0; s < table.n; s++) {
                good = good && table.cumulative[s][b] < table.cumulative[s + 1][b];
            }
            good = good && are_right_starts(&table, b);
        }
    }
    CU_ASSERT_TRUE(good);
}

/* FORMAT.md: bins are counted from both ends. */
static void test_codec_dithered_kernels__bins(void)
{
    static const int32_t dithers[] = {
        INT32_MIN, INT32_MIN + (1 << 27) - 1, INT32_MIN + (1 << 27),     -1,
        0,         INT32_MAX - (1 << 27),     INT32_MAX - (1 << 27) + 1, INT32_MAX};
    static const uint8_t wide[] = {0, 0, 1, 15, 16, 30, 31, 31};
    static const uint8_t narrow[] = {0, 15, 15, 15, 16, 16, 16, 31};
    for (enum tally_cpu cpu = TALLY_CPU_PORTABLE; cpu <= tally_cpu_best(); cpu++) {
        uint8_t bins[8];
        struct tally_dithered_table table = {.bin_shift = 27};
        tally_dithered_kernel_for(cpu)->bins(&table, dithers, 8, bins);
        CU_ASSERT_EQUAL(memcmp(bins, wide, sizeof wide), 0);
        table.bin_shift = 23;
        tally_dithered_kernel_for(cpu)->bins(&table, dithers, 8, bins);
        CU_ASSERT_EQUAL(memcmp(bins, narrow, sizeof narrow), 0);
    }
}

/* A damaged message is refused or equals the encoding of the decoded levels. */
static void test_codec_dithered_kernels__a_message_is_refused_or_canonical(void)
{
    struct tally_rng rng = stream(3);
    size_t n_accepted = 0;
    bool good = true;
    for (uint32_t k = 0; k < 3000; k++) {
        const double ratio = exp2(14 * tally_rng_uniform(&rng) - 5);
        const enum tally_cpu cpu = (enum tally_cpu)(k % ((uint32_t)tally_cpu_best() + 1));
        struct dithered_sample sample;
        sample_init(&sample, 1 + tally_rng_below(&rng, 200), ratio, 2 + (uint32_t)(3 * ratio), k);
        dithered_fill_normal(&rng, 0.3 * ratio, sample.y, sample.dim);
        encode(&sample, cpu);
        size_t n = sample.payload.size;
        uint8_t *bytes = dithered_allocate(n + 8);
        memcpy(bytes, sample.payload.data, n);
        memset(bytes + n, 0, 8);
        uint64_t n_bits = sample.stats.payload_bits;
        const uint32_t damage = tally_rng_below(&rng, 4), amount = tally_rng_below(&rng, 5);
        if (damage == 0) {
            const uint32_t at = tally_rng_below(&rng, (uint32_t)n_bits);
            bytes[at / 8] = (uint8_t)(bytes[at / 8] ^ 1 << at % 8);
        } else if (damage == 1) {
            n -= amount;
            n_bits = 8 * n;
        } else if (damage == 2) {
            n += amount;
            n_bits = 8 * n;
        } else {
            n_bits -= amount;
        }
        enum tally_status status;
        struct tally_level_stats stats;
        good = good && decodes(&sample, bytes, n, n_bits, cpu, &status, &stats);
        if (good && status == TALLY_OK) {
            n_accepted++;
            for (size_t i = 0; i < sample.dim; i++) {
                sample.y[i] = (float)((double)sample.values[i] * 0x1p-32 * 0.3);
            }
            encode(&sample, TALLY_CPU_PORTABLE);
            good = sample.stats.payload_bits == n_bits && sample.payload.size == n &&
                   memcmp(sample.payload.data, bytes, n) == 0;
        }
        free(bytes);
        dithered_sample_fini(&sample);
    }
    CU_ASSERT_TRUE(good);
    CU_ASSERT_TRUE(n_accepted > 200);
}

/* From 2^18 coordinates on, messages use the long form. Their length is within 0.6 % of the ideal
 * plus 1600 bits, mainly for the states. */
static void test_codec_dithered_kernels__long_vectors_are_near_the_ideal(void)
{
    static const double coarseness[] = {0.35, 1, 2, 4};
    for (size_t k = 0; k < sizeof coarseness / sizeof coarseness[0]; k++) {
        struct tally_rng rng = stream(4);
        struct dithered_sample sample;
        sample_init(&sample, TALLY_DITHERED_LONG_MESSAGE, 1 / coarseness[k], TALLY_DITHERED_MAX_TOP,
                    9);
        const double sigma = 0.3 / coarseness[k];
        dithered_fill_normal(&rng, sigma, sample.y, sample.dim);
        sample.is_long = false; /* the length selects the form */
        CU_ASSERT_EQUAL_FATAL(dithered_sample_encode(&sample), TALLY_OK);
        CU_ASSERT_EQUAL(sample.stats.payload_bits % 16, 0);
        const double ideal = dithered_sample_ideal_bits(&sample, sigma);
        CU_ASSERT_TRUE((double)sample.stats.payload_bits < ideal * 1.006 + 1600);
        CU_ASSERT_TRUE((double)sample.stats.payload_bits > ideal * 0.999);
        dithered_sample_fini(&sample);
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_codec_dithered_kernels__all_forms_give_the_same),
    TALLY_TEST(test_codec_dithered_kernels__middles_round_as_plain_c_does),
    TALLY_TEST(test_codec_dithered_kernels__a_level_above_the_top_is_refused),
    TALLY_TEST(test_codec_dithered_kernels__what_is_not_finite_is_found),
    TALLY_TEST(test_codec_dithered_kernels__a_refusal_names_the_first_coordinate),
    TALLY_TEST(test_codec_dithered_kernels__tables_are_complete),
    TALLY_TEST(test_codec_dithered_kernels__bins),
    TALLY_TEST(test_codec_dithered_kernels__a_message_is_refused_or_canonical),
    TALLY_TEST(test_codec_dithered_kernels__long_vectors_are_near_the_ideal),
};
TALLY_SUITE(codec_dithered_kernels, TESTS);
