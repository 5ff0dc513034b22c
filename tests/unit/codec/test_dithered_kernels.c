/* The long form of `dithered`, at all lengths: every instruction set gives the same. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codec/dithered/dithered.h"
#include "codec/dithered/dithered_kernels.h"
#include "codec/dithered/dithered_long.h"
#include "codec/dithered/dithered_message.h"
#include "tests/harness.h"

static void *allocate(size_t n)
{
    void *block = malloc(n + (n == 0));
    CU_ASSERT_PTR_NOT_NULL_FATAL(block);
    return block;
}

static struct tally_rng stream(uint32_t round)
{
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(13, 0), 5, round, TALLY_RNG_DOWNLINK);
    return rng;
}

/* A vector and its message. */
struct sample {
    size_t dim;
    float *y;
    int32_t *levels;
    int64_t *values;
    struct tally_grid grid;
    struct tally_rng rng;
    struct tally_buffer payload;
    struct tally_level_stats stats;
    uint64_t clipped;
};

static void sample_init(struct sample *sample, size_t dim, double ratio, uint32_t top,
                        uint32_t round)
{
    *sample = (struct sample){
        .dim = dim,
        .y = allocate(dim * sizeof *sample->y),
        .levels = allocate(dim * sizeof *sample->levels),
        .values = allocate(dim * sizeof *sample->values),
        .grid = {.step = 0.3, .intervals = 2 * top, .scale = tally_dithered_scale_of(ratio)},
        .rng = stream(round)};
}

static void sample_fini(struct sample *sample)
{
    free(sample->y);
    free(sample->levels);
    free(sample->values);
    tally_buffer_fini(&sample->payload);
}

static void fill_normal(struct tally_rng *rng, double sigma, float *y, size_t dim)
{
    double *normal = allocate(dim * sizeof *normal);
    tally_rng_normal(rng, normal, dim);
    for (size_t i = 0; i < dim; i++) {
        y[i] = (float)(sigma * normal[i]);
    }
    free(normal);
}

static void encode(struct sample *sample, enum tally_cpu cpu)
{
    const struct tally_vector vector = {
        .y = sample->y, .dim = sample->dim, .grid = &sample->grid, .rng = &sample->rng};
    tally_cpu_set_limit(cpu);
    CU_ASSERT_EQUAL_FATAL(tally_dithered_encode_as(true, &vector, sample->levels, &sample->payload,
                                                   &sample->stats, &sample->clipped, NULL),
                          TALLY_OK);
    tally_cpu_set_limit(TALLY_CPU_AVX512);
}

static bool same_stats(const struct tally_level_stats *a, const struct tally_level_stats *b)
{
    return a->formula_bits == b->formula_bits && a->payload_bits == b->payload_bits &&
           a->nonzeros == b->nonzeros;
}

/* Decodes a copy of exactly n bytes into sample->values, and accumulates it. True if both agree. */
static bool decodes(struct sample *sample, const uint8_t *bytes, size_t n, uint64_t payload_bits,
                    enum tally_cpu cpu, enum tally_status *ret_status,
                    struct tally_level_stats *ret_stats)
{
    uint8_t *data = allocate(n);
    if (n > 0) {
        memcpy(data, bytes, n);
    }
    const struct tally_dithered_message message = {
        true, data, n, payload_bits, sample->dim, &sample->grid, &sample->rng};
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_level_stats again;
    int64_t *sums = allocate(sample->dim * sizeof *sums);
    for (size_t i = 0; i < sample->dim; i++) {
        sums[i] = (int64_t)i * 1000003 - 500;
    }
    tally_cpu_set_limit(cpu);
    *ret_status = tally_dithered_decode_as(&message, sample->values, ret_stats, &err);
    bool good = *ret_status == TALLY_OK || (*ret_status == TALLY_MALFORMED && err.message[0] != 0);
    good = good && tally_dithered_accumulate_as(&message, sums, &again, NULL) == *ret_status;
    tally_cpu_set_limit(TALLY_CPU_AVX512);
    for (size_t i = 0; i < sample->dim; i++) {
        const int64_t added = *ret_status == TALLY_OK ? sample->values[i] : 0;
        good = good && sums[i] == (int64_t)i * 1000003 - 500 + added;
    }
    good = good && (*ret_status != TALLY_OK || same_stats(ret_stats, &again));
    free(sums);
    free(data);
    return good;
}

static bool means_levels(const struct sample *sample)
{
    uint32_t words[TALLY_RNG_LANES];
    bool good = true;
    for (size_t i = 0; i < sample->dim; i++) {
        if (i % TALLY_RNG_LANES == 0) {
            tally_rng_lanes(&sample->rng, (uint32_t)(i / TALLY_RNG_LANES), words);
        }
        good = good && sample->values[i] == sample->levels[i] * (INT64_C(1) << 32) -
                                                (int32_t)words[i % TALLY_RNG_LANES];
    }
    return good;
}

/* Whether an instruction set writes the same message as plain C and reads it back. */
static bool is_like_plain(struct sample *sample, enum tally_cpu cpu)
{
    encode(sample, TALLY_CPU_PORTABLE);
    const struct tally_level_stats stats = sample->stats;
    const uint64_t clipped = sample->clipped;
    const size_t n = sample->payload.size;
    uint8_t *plain = allocate(n);
    memcpy(plain, sample->payload.data, n);
    encode(sample, cpu);
    bool good = sample->payload.size == n && memcmp(sample->payload.data, plain, n) == 0 &&
                same_stats(&sample->stats, &stats) && sample->clipped == clipped;
    struct tally_level_stats seen;
    enum tally_status status;
    good = decodes(sample, plain, n, stats.payload_bits, cpu, &status, &seen) && good;
    good = good && status == TALLY_OK && same_stats(&seen, &stats) && means_levels(sample);
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
            struct sample sample;
            sample_init(&sample, 1 + tally_rng_below(&rng, k % 8 == 0 ? 20000 : 300), ratio, top,
                        k);
            fill_normal(&rng, 0.3 * ratio * wrong, sample.y, sample.dim);
            for (size_t i = 0; i < sample.dim; i += 7) { /* on the middle between two levels */
                sample.y[i] = (float)(0.15 * (2 * (double)tally_rng_below(&rng, 9) - 9));
            }
            good = is_like_plain(&sample, cpu);
            sample_fini(&sample);
        }
        CU_ASSERT_TRUE(good);
    }
}

/* Sums of quotient and dither that lie exactly on the middle between two levels, and next to it.
 * The quotients by 49 are exact, but not all products with 1/49 are: the vector forms, which
 * multiply, must not show it. */
static void test_codec_dithered_kernels__middles_round_as_plain_c_does(void)
{
    enum { N = 4096 };
    const struct tally_grid grid = {.step = 49, .intervals = 2 * TALLY_DITHERED_MAX_TOP};
    float *y = allocate(N * sizeof *y);
    int32_t *dithers = allocate(N * sizeof *dithers);
    int32_t *plain = allocate(N * sizeof *plain), *levels = allocate(N * sizeof *levels);
    struct tally_rng rng = stream(2);
    for (size_t i = 0; i < N; i++) {
        const double quotient = (double)tally_rng_below(&rng, 1 << 18) / 64;
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

/* The largest level is accepted on a grid that has it, and refused on the next smaller one. */
static void test_codec_dithered_kernels__a_level_above_the_top_is_refused(void)
{
    struct sample sample;
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
    sample_fini(&sample);
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

/* Every bin's shares ascend, and each dither is in the bin that the table was made for. */
static void test_codec_dithered_kernels__tables_are_complete(void)
{
    bool good = true;
    for (uint32_t scale = 0; scale < TALLY_DITHERED_SCALES; scale++) {
        const struct tally_dithered_model model = tally_dithered_model(scale);
        struct tally_dithered_table table;
        tally_dithered_table(&model, &table);
        good = good && table.n <= TALLY_DITHERED_MOST_SYMBOLS && table.bin_shift >= 23;
        for (unsigned b = 0; b < TALLY_DITHERED_BINS; b++) {
            good = good && table.cumulative[0][b] == 0 && table.cumulative[table.n][b] == 1 << 14;
            for (unsigned s = 0; s < table.n; s++) {
                good = good && table.cumulative[s][b] < table.cumulative[s + 1][b];
            }
        }
    }
    CU_ASSERT_TRUE(good);
}

/* FORMAT.md: bins from the ends. */
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

/* Damaged messages: refused, or exactly what the decoded levels encode to. */
static void test_codec_dithered_kernels__a_message_is_refused_or_canonical(void)
{
    struct tally_rng rng = stream(3);
    size_t n_accepted = 0;
    bool good = true;
    for (uint32_t k = 0; k < 3000; k++) {
        const double ratio = exp2(14 * tally_rng_uniform(&rng) - 5);
        const enum tally_cpu cpu = (enum tally_cpu)(k % ((uint32_t)tally_cpu_best() + 1));
        struct sample sample;
        sample_init(&sample, 1 + tally_rng_below(&rng, 200), ratio, 2 + (uint32_t)(3 * ratio), k);
        fill_normal(&rng, 0.3 * ratio, sample.y, sample.dim);
        encode(&sample, cpu);
        size_t n = sample.payload.size;
        uint8_t *bytes = allocate(n + 8);
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
        sample_fini(&sample);
    }
    CU_ASSERT_TRUE(good);
    CU_ASSERT_TRUE(n_accepted > 200);
}

/* The shorter form below 2^18 coordinates, the longer one from there on; within 0.6 % of the ideal
 * length there, with 1500 bits of states. */
static void test_codec_dithered_kernels__long_vectors_are_near_the_ideal(void)
{
    static const double coarseness[] = {0.35, 1, 2, 4};
    for (size_t k = 0; k < sizeof coarseness / sizeof coarseness[0]; k++) {
        struct tally_rng rng = stream(4);
        struct sample sample;
        sample_init(&sample, TALLY_DITHERED_LONG_MESSAGE, 1 / coarseness[k], TALLY_DITHERED_MAX_TOP,
                    9);
        const double sigma = 0.3 / coarseness[k], to_z = coarseness[k] / sqrt(2);
        fill_normal(&rng, sigma, sample.y, sample.dim);
        const struct tally_vector vector = {
            .y = sample.y, .dim = sample.dim, .grid = &sample.grid, .rng = &sample.rng};
        CU_ASSERT_EQUAL_FATAL(tally_dithered_encode(&vector, sample.levels, &sample.payload,
                                                    &sample.stats, &sample.clipped, NULL),
                              TALLY_OK);
        CU_ASSERT_EQUAL(sample.stats.payload_bits % 16, 0);
        double ideal = 0;
        uint32_t words[TALLY_RNG_LANES];
        for (size_t i = 0; i < sample.dim; i++) {
            if (i % TALLY_RNG_LANES == 0) {
                tally_rng_lanes(&sample.rng, (uint32_t)(i / TALLY_RNG_LANES), words);
            }
            const double middle = sample.levels[i] - (int32_t)words[i % TALLY_RNG_LANES] * 0x1p-32;
            const double low = (fabs(middle) - 0.5) * to_z, high = (fabs(middle) + 0.5) * to_z;
            ideal -= log2((erfc(low) - erfc(high)) / 2);
        }
        CU_ASSERT_TRUE((double)sample.stats.payload_bits < ideal * 1.006 + 1600);
        CU_ASSERT_TRUE((double)sample.stats.payload_bits > ideal * 0.999);
        sample_fini(&sample);
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_codec_dithered_kernels__all_forms_give_the_same),
    TALLY_TEST(test_codec_dithered_kernels__middles_round_as_plain_c_does),
    TALLY_TEST(test_codec_dithered_kernels__a_level_above_the_top_is_refused),
    TALLY_TEST(test_codec_dithered_kernels__what_is_not_finite_is_found),
    TALLY_TEST(test_codec_dithered_kernels__tables_are_complete),
    TALLY_TEST(test_codec_dithered_kernels__bins),
    TALLY_TEST(test_codec_dithered_kernels__a_message_is_refused_or_canonical),
    TALLY_TEST(test_codec_dithered_kernels__long_vectors_are_near_the_ideal),
};
TALLY_SUITE(codec_dithered_kernels, TESTS);
