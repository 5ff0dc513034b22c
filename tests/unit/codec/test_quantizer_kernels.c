/* Every form of the rounding compared with tally_quantize_ref(), bit for bit. */
#include "codec/quantize/quantizer_kernels.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codec/quantize/qsgd_kernels.h"
#include "tests/harness.h"

enum { MAX_DIM = 700, GUARD = 16 };

/* Returns a value that a kernel may get wrong: borders, halves, denormals, values out of range. */
static float awkward(struct tally_rng *rng, const struct tally_rounding *rounding)
{
    const float step = 1 / rounding->inverse_step, r = rounding->radius;
    const float half = step * (0.5f + (float)tally_rng_below(rng, 4));
    const float whole = step * (float)tally_rng_below(rng, (uint32_t)rounding->top + 1);
    const float values[] = {0,
                            -0.0f,
                            FLT_TRUE_MIN,
                            FLT_MIN,
                            r,
                            nextafterf(r, 0),
                            nextafterf(r, INFINITY),
                            2 * r,
                            FLT_MAX,
                            half,
                            whole,
                            nextafterf(whole, 0),
                            nextafterf(whole, INFINITY),
                            step * 0x1p-24f,
                            step * 0x1p-33f,
                            step * (1 - 0x1p-24f)};
    const float v = values[tally_rng_below(rng, sizeof values / sizeof values[0])];
    return tally_rng_below(rng, 2) != 0 ? -v : v;
}

static void fill(struct tally_rng *rng, const struct tally_rounding *rounding, float *y, size_t n)
{
    const double spread = tally_rng_uniform(rng) * 1.2 * (double)rounding->radius;
    const uint32_t rare = 1 + tally_rng_below(rng, 30);
    for (size_t i = 0; i < n; i++) {
        y[i] = tally_rng_below(rng, rare) == 0 ? awkward(rng, rounding)
                                               : (float)(spread * (2 * tally_rng_uniform(rng) - 1));
    }
}

static struct tally_grid random_grid(struct tally_rng *rng)
{
    static const uint32_t intervals[] = {2, 4, 6, 18, 100, 254, 256, 1000, 1 << 16, 1 << 22};
    const double exponent = 90 * (tally_rng_uniform(rng) - 0.5);
    return (struct tally_grid){
        .step = exp2(exponent),
        .intervals = intervals[tally_rng_below(rng, sizeof intervals / sizeof intervals[0])]};
}

/* Copies y to `shift` floats after the start of a block that ends with the copy. The address
 * sanitizer then detects reads past the end, and no kernel can rely on an alignment. */
static float *place(const float *y, size_t n, size_t shift, float **ret_block)
{
    *ret_block = malloc((n + shift) * sizeof *y + (n + shift == 0));
    CU_ASSERT_PTR_NOT_NULL_FATAL(*ret_block);
    memcpy(*ret_block + shift, y, n * sizeof *y);
    return *ret_block + shift;
}

/* Whether the reference and a kernel agree on one random vector. */
static bool same_as_reference(tally_quantize_kernel *kernel, struct tally_rng *rng, size_t n)
{
    const struct tally_grid grid = random_grid(rng);
    const struct tally_rounding rounding = tally_rounding_of(&grid);
    const uint32_t group = tally_rng_below(rng, 3) == 0 ? tally_rng_u32(rng) : 0;
    float y[MAX_DIM];
    int32_t expected[MAX_DIM + GUARD], levels[MAX_DIM + GUARD];
    uint64_t expected_clipped = 5, clipped = 5;
    fill(rng, &rounding, y, n);
    memset(expected, 0x55, sizeof expected);
    memset(levels, 0x55, sizeof levels);
    struct tally_rng stream;
    tally_rng_init(&stream, rng->key, tally_rng_u32(rng), tally_rng_u32(rng), TALLY_RNG_UPLINK);
    float *block;
    const float *moved = place(y, n, tally_rng_below(rng, 16), &block);
    const bool same =
        tally_quantize_ref(&rounding, &stream, group, y, n, expected, &expected_clipped) == n &&
        kernel(&rounding, &stream, group, moved, n, levels, &clipped) == n;
    free(block);
    return same && expected_clipped == clipped && memcmp(expected, levels, sizeof levels) == 0;
}

static void test_codec_quantizer_kernels__equal_the_reference(void)
{
    for (int cpu = 0; cpu <= (int)tally_cpu_best(); cpu++) {
        struct tally_rng rng;
        tally_rng_init(&rng, tally_rng_key(51, 0), 0, 0, TALLY_RNG_NOISE);
        int wrong = 0;
        for (size_t i = 0; i < 3000; i++) {
            const size_t n = i < 200 ? i : tally_rng_below(&rng, MAX_DIM + 1);
            wrong += !same_as_reference(tally_quantize_kernel_for((enum tally_cpu)cpu), &rng, n);
        }
        CU_ASSERT_EQUAL(wrong, 0);
    }
}

/* u < fraction * 2^32 is false if both are equal. The fractions are the words themselves, rounded
 * to float32, so some are equal and the others are close. */
static void test_codec_quantizer_kernels__a_word_equal_to_the_fraction_rounds_down(void)
{
    enum { N_GROUPS = 1000, N = N_GROUPS * TALLY_RNG_LANES };
    const struct tally_grid grid = {.step = 1, .intervals = 4};
    const struct tally_rounding rounding = tally_rounding_of(&grid);
    float *y = calloc(N, sizeof *y);
    int32_t *levels = calloc(N, sizeof *levels);
    CU_ASSERT_FATAL(y != NULL && levels != NULL);
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(53, 0), 0, 0, TALLY_RNG_UPLINK);
    size_t n_equal = 0;
    for (size_t i = 0; i < N; i++) {
        uint32_t words[TALLY_RNG_LANES];
        tally_rng_lanes(&rng, (uint32_t)(i / TALLY_RNG_LANES), words);
        const uint32_t word = words[i % TALLY_RNG_LANES];
        y[i] = (float)word * 0x1p-32f;
        n_equal += word % 256 == 0;
    }
    CU_ASSERT_TRUE(n_equal > 100);
    for (int cpu = 0; cpu <= (int)tally_cpu_best(); cpu++) {
        uint64_t clipped = 0;
        CU_ASSERT_EQUAL(tally_quantize_kernel_for((enum tally_cpu)cpu)(&rounding, &rng, 0, y, N,
                                                                       levels, &clipped),
                        N);
        bool right = true;
        for (size_t i = 0; i < N; i++) {
            uint32_t words[TALLY_RNG_LANES];
            tally_rng_lanes(&rng, (uint32_t)(i / TALLY_RNG_LANES), words);
            const double word = (double)words[i % TALLY_RNG_LANES] * 0x1p-32;
            right = right && levels[i] == (y[i] >= 1 || word < (double)y[i]);
        }
        CU_ASSERT_TRUE(right);
    }
    free(y);
    free(levels);
}

/* A NaN or infinity at every position, among clipped and unclipped coordinates. */
static void test_codec_quantizer_kernels__name_the_first_that_is_not_finite(void)
{
    const struct tally_grid grid = {.step = 1, .intervals = 4};
    const struct tally_rounding rounding = tally_rounding_of(&grid);
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    for (int cpu = 0; cpu <= (int)tally_cpu_best(); cpu++) {
        bool named = true;
        for (size_t n = 1; n < 140; n++) {
            for (size_t at = 0; at < n; at++) {
                float y[140];
                int32_t levels[140];
                uint64_t clipped = 0;
                struct tally_rng rng;
                tally_rng_init(&rng, tally_rng_key(52, 0), 0, 0, TALLY_RNG_UPLINK);
                for (size_t i = 0; i < n; i++) {
                    y[i] = i > at && i % 7 == 0 ? NAN : i % 2 == 0 ? 100.0f : 0.5f;
                }
                y[at] = bad[(n + at) % 4];
                named = named && tally_quantize_kernel_for((enum tally_cpu)cpu)(
                                     &rounding, &rng, 0, y, n, levels, &clipped) == at;
            }
        }
        CU_ASSERT_TRUE(named);
    }
}

/* Levels of QSGD, of values at and around the borders between two levels, with words that just
 * round up or down. */
static void test_codec_quantizer_kernels__qsgd_equals_the_reference(void)
{
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(53, 0), 0, 0, TALLY_RNG_SAMPLING);
    for (int trial = 0; trial < 3000; trial++) {
        const uint32_t s = trial % 3 == 0 ? 32767 : 1 + tally_rng_below(&rng, 200);
        const size_t n = tally_rng_below(&rng, MAX_DIM);
        const double scale = (double)s / (0.1 + tally_rng_uniform(&rng));
        float y[MAX_DIM], *block;
        int32_t words[MAX_DIM + GUARD], expected[MAX_DIM + GUARD], levels[MAX_DIM + GUARD];
        memset(words, 0x55, sizeof words);
        for (size_t i = 0; i < n; i++) {
            const double level = tally_rng_below(&rng, 4) == 0
                                     ? (double)tally_rng_below(&rng, s + 1)
                                     : tally_rng_uniform(&rng) * (double)s;
            const double part = level - floor(level);
            const float value = (float)(level / scale);
            y[i] = tally_rng_below(&rng, 2) == 0 ? value : -value;
            words[i] = (int32_t)(tally_rng_below(&rng, 2) == 0
                                     ? tally_rng_u32(&rng)
                                     : (uint32_t)(part * 0x1p32) + tally_rng_below(&rng, 3) - 1);
        }
        const float *moved = place(y, n, tally_rng_below(&rng, 16), &block);
        memcpy(expected, words, sizeof words);
        tally_qsgd_round_ref(s, scale, y, n, expected);
        for (int cpu = 0; cpu <= (int)tally_cpu_best(); cpu++) {
            memcpy(levels, words, sizeof words);
            tally_qsgd_kernel_for((enum tally_cpu)cpu)(s, scale, moved, n, levels);
            CU_ASSERT_EQUAL(memcmp(levels, expected, sizeof levels), 0);
        }
        free(block);
    }
}

/* Every limit on the instruction set; a limit above the machine's best selects the best. */
static void test_codec_quantizer_kernels__the_limit_selects(void)
{
    CU_ASSERT_EQUAL(tally_cpu_used(), tally_cpu_best());
    for (int cpu = 0; cpu < TALLY_N_CPUS; cpu++) {
        CU_ASSERT_PTR_NOT_NULL(TALLY_CPU_NAMES[cpu]);
        tally_cpu_set_limit((enum tally_cpu)cpu);
        const int used = (int)tally_cpu_used();
        CU_ASSERT_EQUAL(used, cpu < (int)tally_cpu_best() ? cpu : (int)tally_cpu_best());
        CU_ASSERT_PTR_NOT_NULL(tally_quantize_kernel_for((enum tally_cpu)used));
    }
    CU_ASSERT_PTR_NULL(TALLY_CPU_NAMES[TALLY_N_CPUS]);
    tally_cpu_set_limit(TALLY_CPU_AVX512);
    CU_ASSERT_EQUAL(tally_cpu_used(), tally_cpu_best());
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_codec_quantizer_kernels__equal_the_reference),
    TALLY_TEST(test_codec_quantizer_kernels__a_word_equal_to_the_fraction_rounds_down),
    TALLY_TEST(test_codec_quantizer_kernels__name_the_first_that_is_not_finite),
    TALLY_TEST(test_codec_quantizer_kernels__qsgd_equals_the_reference),
    TALLY_TEST(test_codec_quantizer_kernels__the_limit_selects),
};
TALLY_SUITE(codec_quantizer_kernels, TESTS);
