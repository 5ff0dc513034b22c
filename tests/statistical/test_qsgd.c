/* QSGD is unbiased: with v = s |y| / norm and f = v - floor(v), the level is floor(v) + 1 with
 * probability f. Therefore
 *
 *     E[level] = v          Var[level] = f (1 - f)
 *
 * A fixed vector is quantized R times with R streams. z_i is the mean error of a coordinate divided
 * by its standard error, about N(0, 1). Z is the sum of all errors divided by its standard error,
 * once with the errors' own signs, once with errors away from zero counted as positive.
 *
 *     max |z_i| < 6     over at most 1e4 coordinates: 2e-5 by chance
 *     |Z| < 5           6e-7 by chance
 *     sum of squared errors: its expectation within 1 % */
#include "codec/quantize/qsgd.h"

#include <math.h>
#include <stdlib.h>

#include "tests/harness.h"

enum { REPETITIONS = 4000, DIM = 500 };

struct totals {
    double signed_sum, outward_sum, square_sum, variance, largest_z;
};

static void quantize_often(uint32_t s, uint32_t seed, struct totals *totals)
{
    float y[DIM];
    int32_t levels[DIM];
    double mean[DIM] = {0}; /* of the errors, times REPETITIONS */
    struct tally_qsgd qsgd;
    for (size_t i = 0; i < DIM; i++) { /* a few large coordinates, many small ones */
        y[i] = (float)(sin(1 + 2.3 * (double)i + seed) / (double)(1 + i % 50));
    }
    for (uint32_t r = 0; r < REPETITIONS; r++) {
        struct tally_rng rng;
        tally_rng_init(&rng, tally_rng_key(seed, s), r % 10, r, TALLY_RNG_UPLINK);
        CU_ASSERT_EQUAL_FATAL(tally_qsgd_quantize(s, y, DIM, &rng, &qsgd, levels, NULL), TALLY_OK);
        for (size_t i = 0; i < DIM; i++) {
            const double error = levels[i] - s * (double)y[i] / (double)qsgd.norm;
            mean[i] += error;
            totals->square_sum += error * error;
        }
    }
    for (size_t i = 0; i < DIM; i++) {
        const double v = s * fabs((double)y[i]) / (double)qsgd.norm, f = v - floor(v);
        const double variance = REPETITIONS * f * (1 - f);
        totals->variance += variance;
        totals->signed_sum += mean[i];
        totals->outward_sum += y[i] < 0 ? -mean[i] : mean[i];
        if (variance > 25) { /* otherwise far from normal */
            totals->largest_z = fmax(totals->largest_z, fabs(mean[i]) / sqrt(variance));
        }
    }
}

static void test_statistical_qsgd__is_unbiased_with_the_stated_variance(void)
{
    static const uint32_t counts[] = {1, 3, 5, 100, 32767};
    struct totals totals = {0};
    for (uint32_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        quantize_often(counts[c], c + 1, &totals);
    }
    CU_ASSERT_TRUE(totals.largest_z > 1); /* the test is not vacuous */
    CU_ASSERT_TRUE(totals.largest_z < 6);
    CU_ASSERT_TRUE(fabs(totals.signed_sum) < 5 * sqrt(totals.variance));
    CU_ASSERT_TRUE(fabs(totals.outward_sum) < 5 * sqrt(totals.variance));
    CU_ASSERT_DOUBLE_EQUAL(totals.square_sum / totals.variance, 1, 0.01);
}

/* Rare levels: with 7840 coordinates near 1/88 of the norm, nearly all levels are zero, and the
 * number of nonzero ones is binomial. */
static void test_statistical_qsgd__small_coordinates_are_rare_levels(void)
{
    enum { WIDE = 7840, ROUNDS = 200 };
    float *y = malloc(WIDE * sizeof *y);
    int32_t *levels = malloc(WIDE * sizeof *levels);
    CU_ASSERT_PTR_NOT_NULL_FATAL(y);
    CU_ASSERT_PTR_NOT_NULL_FATAL(levels);
    for (size_t i = 0; i < WIDE; i++) {
        y[i] = i % 2 == 0 ? 0.25f : -0.25f;
    }
    double nonzeros = 0;
    for (uint32_t r = 0; r < ROUNDS; r++) {
        struct tally_rng rng;
        struct tally_qsgd qsgd;
        tally_rng_init(&rng, tally_rng_key(9, 0), 3, r, TALLY_RNG_UPLINK);
        CU_ASSERT_EQUAL(tally_qsgd_quantize(5, y, WIDE, &rng, &qsgd, levels, NULL), TALLY_OK);
        for (size_t i = 0; i < WIDE; i++) {
            nonzeros += levels[i] != 0;
        }
    }
    const double p = 5 / sqrt(WIDE), n = (double)WIDE * ROUNDS;
    CU_ASSERT_TRUE(fabs(nonzeros - n * p) < 5 * sqrt(n * p * (1 - p)));
    free(y);
    free(levels);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_statistical_qsgd__is_unbiased_with_the_stated_variance),
    TALLY_TEST(test_statistical_qsgd__small_coordinates_are_rare_levels),
};
TALLY_SUITE(statistical_qsgd, TESTS);
