#include "codec/numeric/rng.h"

#include <math.h>
#include <stdlib.h>

#include "tests/harness.h"

enum { N = 1000000 };

static struct tally_rng stream(uint32_t client, uint32_t round, enum tally_rng_purpose purpose)
{
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(123, 0), client, round, purpose);
    return rng;
}

/* The mean is 1/2 with variance 1/12, the second central moment 1/12 with variance 1/180. Both to 5
 * standard errors. */
static void test_statistical_rng__uniform_has_its_moments(void)
{
    struct tally_rng rng = stream(1, 1, TALLY_RNG_SAMPLING);
    double sum = 0, square = 0;
    for (int i = 0; i < N; i++) {
        double u = tally_rng_uniform(&rng) - 0.5;
        sum += u;
        square += u * u;
    }
    CU_ASSERT_DOUBLE_EQUAL(sum / N, 0, 5 * sqrt(1 / 12.0 / N));
    CU_ASSERT_DOUBLE_EQUAL(square / N, 1 / 12.0, 5 * sqrt(1 / 180.0 / N));
}

/* Moments 1 to 4 of N(0, 1) are 0, 1, 0, 3 with variances 1, 2, 15, 96. Pairs are uncorrelated, and
 * the tails have the right weight: P(|x| > 4) = 6.3e-5. */
static void test_statistical_rng__normal_has_its_moments(void)
{
    static double x[N];
    struct tally_rng rng = stream(1, 1, TALLY_RNG_NOISE);
    tally_rng_normal(&rng, x, N);
    double m1 = 0, m2 = 0, m3 = 0, m4 = 0, within = 0, tail = 0;
    for (int i = 0; i < N; i++) {
        m1 += x[i];
        m2 += x[i] * x[i];
        m3 += x[i] * x[i] * x[i];
        m4 += x[i] * x[i] * x[i] * x[i];
        within += i % 2 == 0 ? x[i] * x[i + 1] : 0;
        tail += fabs(x[i]) > 4;
    }
    CU_ASSERT_DOUBLE_EQUAL(m1 / N, 0, 5 * sqrt(1.0 / N));
    CU_ASSERT_DOUBLE_EQUAL(m2 / N, 1, 5 * sqrt(2.0 / N));
    CU_ASSERT_DOUBLE_EQUAL(m3 / N, 0, 5 * sqrt(15.0 / N));
    CU_ASSERT_DOUBLE_EQUAL(m4 / N, 3, 5 * sqrt(96.0 / N));
    CU_ASSERT_DOUBLE_EQUAL(within / (N / 2), 0, 5 * sqrt(2.0 / N));
    CU_ASSERT_DOUBLE_EQUAL(tail, 6.334e-5 * N, 5 * sqrt(6.334e-5 * N));
}

/* The angle of a direction in two dimensions is uniform over 36 sectors. Chi-square with 35 degrees
 * of freedom is above 66.6 with probability 0.001. */
static void test_statistical_rng__direction_is_uniform(void)
{
    double counts[36] = {0}, chi_square = 0;
    struct tally_rng rng = stream(1, 1, TALLY_RNG_TRUE_POINT);
    for (int i = 0; i < 36000; i++) {
        double v[2];
        tally_rng_direction(&rng, 1, v, 2);
        int sector = (int)((atan2(v[1], v[0]) / 6.283185307179586 + 0.5) * 36);
        counts[sector < 36 ? sector : 35]++;
    }
    for (int i = 0; i < 36; i++) {
        chi_square += (counts[i] - 1000) * (counts[i] - 1000) / 1000;
    }
    CU_ASSERT_TRUE(chi_square < 66.6);
}

/* Chi-square with n - 1 degrees of freedom has mean n - 1 and variance 2 (n - 1). A count that is
 * too even is as suspicious as one that is too uneven. */
static void expect_uniform_below(uint32_t n)
{
    double *counts = calloc(n, sizeof *counts);
    CU_ASSERT_PTR_NOT_NULL_FATAL(counts);
    struct tally_rng rng = stream(n, 2, TALLY_RNG_SAMPLING);
    for (int i = 0; i < N; i++) {
        counts[tally_rng_below(&rng, n)]++;
    }
    const double expected = (double)N / n;
    double chi_square = 0;
    for (uint32_t i = 0; i < n; i++) {
        chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
    const double freedom = n - 1, wide = 5 * sqrt(2 * freedom);
    CU_ASSERT_TRUE(chi_square < freedom + wide);
    CU_ASSERT_TRUE(chi_square > freedom - wide);
    free(counts);
}

static void test_statistical_rng__below_is_uniform(void)
{
    static const uint32_t limits[] = {2, 3, 7, 10, 64, 2000, 5000};
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        expect_uniform_below(limits[i]);
    }
}

/* A bound at which multiply-and-shift alone would be biased: below 3 * 2^30 a third of the results
 * would be twice as likely. Thirds must be equal; the standard error is sqrt(2/9 / N). */
static void test_statistical_rng__below_has_no_modulo_bias(void)
{
    const uint32_t n = 3u << 30;
    double counts[3] = {0};
    struct tally_rng rng = stream(3, 3, TALLY_RNG_SAMPLING);
    for (int i = 0; i < N; i++) {
        counts[tally_rng_below(&rng, n) % 3]++;
    }
    for (int i = 0; i < 3; i++) {
        CU_ASSERT_DOUBLE_EQUAL(counts[i] / N, 1 / 3.0, 5 * sqrt(2 / 9.0 / N));
    }
}

static void test_statistical_rng__every_bit_is_balanced(void)
{
    double ones[32] = {0};
    struct tally_rng rng = stream(4, 4, TALLY_RNG_UPLINK);
    for (int i = 0; i < N; i++) {
        uint32_t word = tally_rng_u32(&rng);
        for (int bit = 0; bit < 32; bit++) {
            ones[bit] += word >> bit & 1;
        }
    }
    for (int bit = 0; bit < 32; bit++) {
        CU_ASSERT_DOUBLE_EQUAL(ones[bit] / N, 0.5, 5 * sqrt(0.25 / N));
    }
}

/* Streams whose names differ in one part, by one or by a lot, are uncorrelated: the product of two
 * independent uniform deviations has variance 1/144. */
static void test_statistical_rng__streams_are_uncorrelated(void)
{
    enum { DRAWS = 100000 };
    static const struct {
        uint32_t client, round;
        enum tally_rng_purpose purpose;
        uint64_t seed;
        uint32_t run;
    } names[] = {
        {1, 1, TALLY_RNG_SAMPLING, 5, 0},        {2, 1, TALLY_RNG_SAMPLING, 5, 0},
        {1, 2, TALLY_RNG_SAMPLING, 5, 0},        {1, 1, TALLY_RNG_UPLINK, 5, 0},
        {1, 1, TALLY_RNG_DOWNLINK, 5, 0},        {TALLY_RNG_SERVER, 1, TALLY_RNG_SAMPLING, 5, 0},
        {1, 1, TALLY_RNG_SAMPLING, 6, 0},        {1, 1, TALLY_RNG_SAMPLING, 5, 1},
        {1, 1u << 31, TALLY_RNG_SAMPLING, 5, 0},
    };
    enum { STREAMS = sizeof names / sizeof names[0] };
    static double draws[STREAMS][DRAWS];
    for (size_t s = 0; s < STREAMS; s++) {
        struct tally_rng rng;
        tally_rng_init(&rng, tally_rng_key(names[s].seed, names[s].run), names[s].client,
                       names[s].round, names[s].purpose);
        for (size_t i = 0; i < DRAWS; i++) {
            draws[s][i] = tally_rng_uniform(&rng) - 0.5;
        }
    }
    for (size_t a = 0; a < STREAMS; a++) {
        for (size_t b = 0; b <= a; b++) {
            for (size_t lag = a == b; lag < 4; lag++) {
                double sum = 0;
                for (size_t i = 0; i + lag < DRAWS; i++) {
                    sum += draws[a][i] * draws[b][i + lag];
                }
                CU_ASSERT_TRUE(fabs(sum) < 5 * sqrt(DRAWS / 144.0));
            }
        }
    }
}

/* The words of the lanes, as one sequence over all groups, are uniform in their top byte, and
 * neighbours are uncorrelated. */
static void test_statistical_rng__lanes_are_uniform(void)
{
    enum { GROUPS = 4000, WORDS = GROUPS * TALLY_RNG_LANES };
    double counts[256] = {0}, chi_square = 0, product = 0, previous = 0;
    struct tally_rng rng = stream(6, 6, TALLY_RNG_UPLINK);
    for (uint32_t group = 0; group < GROUPS; group++) {
        uint32_t words[TALLY_RNG_LANES];
        tally_rng_lanes(&rng, group, words);
        for (size_t i = 0; i < TALLY_RNG_LANES; i++) {
            counts[words[i] >> 24]++;
            double u = words[i] * 0x1p-32 - 0.5;
            product += u * previous;
            previous = u;
        }
    }
    for (int i = 0; i < 256; i++) {
        chi_square += (counts[i] - WORDS / 256) * (counts[i] - WORDS / 256) / (WORDS / 256);
    }
    CU_ASSERT_TRUE(fabs(chi_square - 255) < 5 * sqrt(2 * 255));
    CU_ASSERT_TRUE(fabs(product) < 5 * sqrt(WORDS / 144.0));
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_statistical_rng__uniform_has_its_moments),
    TALLY_TEST(test_statistical_rng__normal_has_its_moments),
    TALLY_TEST(test_statistical_rng__direction_is_uniform),
    TALLY_TEST(test_statistical_rng__below_is_uniform),
    TALLY_TEST(test_statistical_rng__below_has_no_modulo_bias),
    TALLY_TEST(test_statistical_rng__every_bit_is_balanced),
    TALLY_TEST(test_statistical_rng__streams_are_uncorrelated),
    TALLY_TEST(test_statistical_rng__lanes_are_uniform),
};
TALLY_SUITE(statistical_rng, TESTS);
