/* Every form of the sums of messages compared with sums of single values, bit for bit. */
#include "codec/numeric/fixed_point_kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codec/numeric/rng.h"
#include "tests/harness.h"

enum { MAX_DIM = 1300, GUARD = 8 };

/* Numbers on both sides of what vectors can round, and ties. */
static double awkward(struct tally_rng *rng, int largest)
{
    const double all[] = {0,
                          -0.0,
                          0x1p-41,
                          0x1.8p-41,
                          3 * 0x1p-41,
                          1024,
                          1024.0001220703125,
                          1023.9999,
                          ldexp(1, largest),
                          ldexp(tally_rng_uniform(rng), largest)};
    const double v = all[tally_rng_below(rng, sizeof all / sizeof all[0])];
    return tally_rng_below(rng, 2) != 0 ? -v : v;
}

static void fill_sums(struct tally_rng *rng, int64_t *sums)
{
    for (size_t i = 0; i < MAX_DIM + GUARD; i++) {
        sums[i] = (int64_t)tally_rng_u32(rng) << tally_rng_below(rng, 20);
    }
}

/* Copies n bytes to the end of a block, to any alignment: the address sanitizer detects reads past
 * the end. */
static uint8_t *place(const void *bytes, size_t n, size_t shift, uint8_t **ret_block)
{
    *ret_block = malloc(n + shift + 1);
    CU_ASSERT_PTR_NOT_NULL_FATAL(*ret_block);
    memcpy(*ret_block + shift, bytes, n);
    return *ret_block + shift;
}

static bool is_float32_right(const struct tally_fixed_point_kernel *kernel, struct tally_rng *rng,
                             size_t n, uint32_t addends)
{
    const double bound = tally_fixed_point_bound(addends);
    const int largest = -45 + (int)tally_rng_below(rng, 60);
    float values[MAX_DIM];
    int64_t expected[MAX_DIM + GUARD], sums[MAX_DIM + GUARD];
    fill_sums(rng, sums);
    memcpy(expected, sums, sizeof sums);
    for (size_t i = 0; i < n; i++) {
        const double v = tally_rng_below(rng, 9) == 0
                             ? awkward(rng, largest)
                             : ldexp(tally_rng_uniform(rng) - 0.5, largest);
        values[i] = (float)fmin(fmax(v, -bound), bound);
        values[i] = fabs((double)values[i]) <= bound ? values[i] : 0;
        expected[i] += tally_fixed_point_of((double)values[i]);
    }
    uint8_t *block;
    uint8_t *data = place(values, n * sizeof *values, tally_rng_below(rng, 9), &block);
    bool ok =
        kernel->add_float32(data, n, bound, sums) == n && memcmp(sums, expected, sizeof sums) == 0;
    const float bad[] = {NAN, INFINITY, -INFINITY, nextafterf((float)bound, INFINITY)};
    for (size_t b = 0; n > 0 && b < sizeof bad / sizeof bad[0]; b++) {
        const size_t at = tally_rng_below(rng, (uint32_t)n);
        const bool is_above = !(fabs((double)bad[b]) <= bound);
        memcpy(data + at * sizeof *values, &bad[b], sizeof bad[b]);
        ok = ok && is_above && kernel->add_float32(data, n, bound, sums) < n &&
             memcmp(sums, expected, sizeof sums) == 0;
        memcpy(data + at * sizeof *values, &values[at], sizeof values[at]);
    }
    free(block);
    return ok;
}

static void test_codec_fixed_point_kernels__float32_sums_equal_those_of_single_values(void)
{
    static const uint32_t addends[] = {1, 2, 3, 10, 4096, 5000, 99999, 100000};
    for (int cpu = 0; cpu <= (int)tally_cpu_best(); cpu++) {
        struct tally_rng rng;
        tally_rng_init(&rng, tally_rng_key(61, 0), 0, 0, TALLY_RNG_NOISE);
        int wrong = 0;
        for (size_t i = 0; i < 2000; i++) {
            const size_t n = i < 300 ? i : tally_rng_below(&rng, MAX_DIM + 1);
            wrong += !is_float32_right(tally_fixed_point_kernel_for((enum tally_cpu)cpu), &rng, n,
                                       addends[i % (sizeof addends / sizeof addends[0])]);
        }
        CU_ASSERT_EQUAL(wrong, 0);
    }
}

static void test_codec_fixed_point_kernels__codes(void)
{
    enum { ROOM = 8 };
    static uint8_t data[MAX_DIM + ROOM];
    static int64_t expected[MAX_DIM + GUARD], sums[MAX_DIM + GUARD];
    static const double scales[] = {0, 0x1p-41, 1e-9, 0.3, 8, 16, 0x1p10, 0x1.5p14};
    for (int cpu = 0; cpu <= (int)tally_cpu_best(); cpu++) {
        const struct tally_fixed_point_kernel *kernel =
            tally_fixed_point_kernel_for((enum tally_cpu)cpu);
        struct tally_rng rng;
        tally_rng_init(&rng, tally_rng_key(62, 0), 0, 0, TALLY_RNG_NOISE);
        int wrong = 0;
        for (size_t trial = 0; trial < 1000; trial++) {
            const unsigned width = 2 + tally_rng_below(&rng, 7);
            const size_t n = 8 * (size_t)tally_rng_below(&rng, MAX_DIM / 8 + 1);
            const double scale = scales[trial % (sizeof scales / sizeof scales[0])];
            const int32_t top = (int32_t)tally_rng_below(&rng, 1u << (width - 1));
            size_t n_faults = 0;
            for (size_t i = 0; i < sizeof data; i++) {
                data[i] = (uint8_t)tally_rng_u32(&rng);
            }
            fill_sums(&rng, sums);
            memcpy(expected, sums, sizeof sums);
            for (size_t i = 0; i < n; i++) {
                uint32_t code = 0;
                for (unsigned b = 0; b < width; b++) {
                    const size_t bit = i * width + b;
                    code |= (data[bit / 8] >> bit % 8 & 1u) << b;
                }
                const int32_t magnitude = (int32_t)(code >> 1);
                n_faults += magnitude > top || code == 1;
                expected[i] +=
                    tally_fixed_point_of(scale * ((code & 1) != 0 ? -magnitude : magnitude));
            }
            wrong += kernel->count_faults(data, n, width, top) != n_faults;
            kernel->add_codes(data, n, width, scale, sums);
            wrong += memcmp(sums, expected, sizeof sums) != 0;
        }
        CU_ASSERT_EQUAL(wrong, 0);
    }
}

static void test_codec_fixed_point_kernels__levels_with_dither(void)
{
    enum { BLOCK = 256, LANES = TALLY_FIXED_POINT_LANES };
    static int32_t levels[MAX_DIM], dithers[MAX_DIM];
    static int64_t expected[MAX_DIM + GUARD], sums[MAX_DIM + GUARD];
    static const double steps[] = {0x1p-99, 1e-9, 0.3, 8, 0x1p10};
    for (int cpu = 0; cpu <= (int)tally_cpu_best(); cpu++) {
        struct tally_rng rng;
        tally_rng_init(&rng, tally_rng_key(63, 0), 0, 0, TALLY_RNG_NOISE);
        int wrong = 0;
        for (size_t trial = 0; trial < 1000; trial++) {
            const size_t n = trial < 300 ? trial : tally_rng_below(&rng, MAX_DIM + 1);
            const double step = steps[trial % (sizeof steps / sizeof steps[0])];
            const uint32_t most = 1 + tally_rng_below(&rng, step < 1000 ? 200 : 3);
            double squares[LANES] = {1}, wanted[LANES] = {1};
            fill_sums(&rng, sums);
            memcpy(expected, sums, sizeof sums);
            for (size_t i = 0; i < n; i++) {
                levels[i] = (int32_t)tally_rng_below(&rng, 2 * most + 1) - (int32_t)most;
                dithers[i] = (int32_t)tally_rng_u32(&rng);
                const double value = step * (levels[i] - dithers[i] * 0x1p-32);
                const size_t in_block = i % BLOCK, n_block = n - i + in_block;
                const size_t whole = (n_block < BLOCK ? n_block : BLOCK) / LANES * LANES;
                wanted[in_block < whole ? in_block % LANES : 0] += value * value;
                expected[i] += tally_fixed_point_of(value);
            }
            tally_fixed_point_kernel_for((enum tally_cpu)cpu)
                ->add_dithered(levels, dithers, n, step, sums, squares);
            wrong += memcmp(sums, expected, sizeof sums) != 0 ||
                     memcmp(squares, wanted, sizeof squares) != 0;
        }
        CU_ASSERT_EQUAL(wrong, 0);
    }
}

static void test_codec_fixed_point_kernels__means(void)
{
    static const int64_t edges[] = {0,
                                    1,
                                    -1,
                                    INT64_MAX,
                                    INT64_MIN,
                                    1LL << 52,
                                    1LL << 53,
                                    (1LL << 53) + 1,
                                    -(1LL << 53) - 1,
                                    1LL << 32,
                                    -(1LL << 32),
                                    (1LL << 32) - 1};
    static const double divisors[] = {1, 3, 10, 100000};
    int64_t sums[MAX_DIM];
    double means[MAX_DIM];
    for (int cpu = 0; cpu <= (int)tally_cpu_best(); cpu++) {
        struct tally_rng rng;
        tally_rng_init(&rng, tally_rng_key(64, 0), 0, 0, TALLY_RNG_NOISE);
        int wrong = 0;
        for (size_t trial = 0; trial < 500; trial++) {
            const size_t n = trial < 300 ? trial : tally_rng_below(&rng, MAX_DIM + 1);
            const double divisor = divisors[trial % (sizeof divisors / sizeof divisors[0])];
            for (size_t i = 0; i < n; i++) {
                const uint64_t word =
                    (uint64_t)tally_rng_u32(&rng) << 32 | (uint64_t)tally_rng_u32(&rng);
                const unsigned shift = tally_rng_below(&rng, 64);
                const size_t edge = tally_rng_below(&rng, 100);
                sums[i] = edge < sizeof edges / sizeof edges[0]
                              ? edges[edge]
                              : (int64_t)word / (1LL << shift % 63);
            }
            tally_fixed_point_kernel_for((enum tally_cpu)cpu)->means(sums, n, divisor, means);
            for (size_t i = 0; i < n; i++) {
                wrong += means[i] != tally_fixed_point_value(sums[i]) / divisor;
            }
        }
        CU_ASSERT_EQUAL(wrong, 0);
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_codec_fixed_point_kernels__float32_sums_equal_those_of_single_values),
    TALLY_TEST(test_codec_fixed_point_kernels__codes),
    TALLY_TEST(test_codec_fixed_point_kernels__levels_with_dither),
    TALLY_TEST(test_codec_fixed_point_kernels__means),
};
TALLY_SUITE(codec_fixed_point_kernels, TESTS);
