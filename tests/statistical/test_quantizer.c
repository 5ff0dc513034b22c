/* Q is unbiased: for a coordinate y that is a fraction f of a step above its lower level, Q - y is
 * (1 - f) step with probability f and -f step otherwise. Therefore
 *
 *     E[Q - y] = 0          Var[Q] = step^2 f (1 - f)
 *
 * A fixed vector is quantized R times with R streams. z_i is the mean error of a coordinate divided
 * by its standard error, about N(0, 1). Z is the sum of the errors of all coordinates divided by
 * its standard error.
 *
 *     max |z_i| < 6      over at most 1e5 coordinates: 2e-4 by chance. Detects reversed
 *                        probabilities and deterministic rounding, which move single means by a
 *                        good part of a step.
 *     |Z| < 5            6e-7 by chance. Once with the sign of the coordinate, once without:
 *                        detects a bias of either kind above 5 / sqrt(6 d R) of a step, half a
 *                        percent or less here.
 *     sum (Q - y)^2      equals sum R Var[Q] within 1 %: the spread is right too. */
#include "codec/quantize/quantizer.h"

#include <math.h>
#include <stdlib.h>

#include "tests/harness.h"

struct sample {
    struct tally_grid grid;
    double eps;
    size_t dim;
    uint32_t repetitions;
    float *y;          /* float[dim] */
    double *error_sum; /* double[dim]: sum over repetitions of Q - y */
    double square_sum; /* of all errors */
    double worst;      /* largest |y - Q| */
};

static uint32_t n_vectors; /* gives every sample its own streams */

static void take_sample(struct sample *sample)
{
    int32_t *levels = malloc(sample->dim * sizeof *levels);
    CU_ASSERT_PTR_NOT_NULL_FATAL(levels);
    const struct tally_rng_key key = tally_rng_key(2024, n_vectors++);
    uint64_t clipped_sum = 0;
    for (uint32_t r = 0; r < sample->repetitions; r++) {
        struct tally_rng rng;
        uint64_t clipped;
        tally_rng_init(&rng, key, r % 7, r, TALLY_RNG_UPLINK);
        CU_ASSERT_EQUAL_FATAL(
            tally_quantize(&sample->grid, sample->y, sample->dim, &rng, levels, &clipped, NULL),
            TALLY_OK);
        clipped_sum += clipped;
        double square = 0;
        for (size_t i = 0; i < sample->dim; i++) {
            double error = levels[i] * sample->grid.step - (double)sample->y[i];
            sample->error_sum[i] += error;
            square += error * error;
        }
        sample->square_sum += square;
        sample->worst = fmax(sample->worst, sqrt(square));
    }
    CU_ASSERT_EQUAL(clipped_sum, 0);
    free(levels);
}

/* Totals over several samples of one kind. */
struct totals {
    double signed_sum, outward_sum, variance; /* of the sums of errors */
    double square_sum;
    double largest_z;
};

static void evaluate(const struct sample *sample, struct totals *totals)
{
    const double step = sample->grid.step, n = sample->repetitions;
    for (size_t i = 0; i < sample->dim; i++) {
        double scaled = fabs((double)sample->y[i]) / step;
        double f = scaled - floor(scaled);
        double variance = n * step * step * f * (1 - f);
        totals->variance += variance;
        totals->signed_sum += sample->error_sum[i];
        totals->outward_sum += sample->y[i] < 0 ? -sample->error_sum[i] : sample->error_sum[i];
        if (n * f * (1 - f) > 25) { /* otherwise far from normal */
            totals->largest_z =
                fmax(totals->largest_z, fabs(sample->error_sum[i]) / sqrt(variance));
        }
    }
    totals->square_sum += sample->square_sum;
}

/* Fills y with coordinates uniform on [-r, r], or with a direction of length r, like a gradient. */
static void fill(struct sample *sample, double radius, bool direction)
{
    struct tally_rng rng;
    double *v = malloc(sample->dim * sizeof *v);
    CU_ASSERT_PTR_NOT_NULL_FATAL(v);
    tally_rng_init(&rng, tally_rng_key(7, n_vectors), 0, 0, TALLY_RNG_NOISE);
    tally_rng_direction(&rng, 0.999 * radius, v, sample->dim);
    for (size_t i = 0; i < sample->dim; i++) {
        sample->y[i] = (float)(direction ? v[i] : radius * (2 * tally_rng_uniform(&rng) - 1));
    }
    free(v);
}

static void expect_unbiased(double radius_over_eps, size_t dim, uint32_t repetitions, int vectors)
{
    const double radius = 1.7;
    struct totals totals = {0};
    for (int v = 0; v < vectors; v++) {
        struct sample sample = {
            .eps = radius / radius_over_eps, .dim = dim, .repetitions = repetitions};
        sample.y = malloc(dim * sizeof *sample.y);
        sample.error_sum = calloc(dim, sizeof *sample.error_sum);
        CU_ASSERT_FATAL(sample.y != NULL && sample.error_sum != NULL);
        CU_ASSERT_EQUAL_FATAL(tally_grid_init(radius, sample.eps, dim, &sample.grid, NULL),
                              TALLY_OK);
        fill(&sample, radius, v % 2 == 0 && dim > 1);
        take_sample(&sample);
        CU_ASSERT_TRUE(sample.worst <= sample.eps * (1 + 1e-6));
        evaluate(&sample, &totals);
        free(sample.y);
        free(sample.error_sum);
    }
    CU_ASSERT_TRUE(totals.largest_z < 6);
    CU_ASSERT_TRUE(totals.largest_z > 0.5);
    CU_ASSERT_TRUE(fabs(totals.signed_sum) < 5 * sqrt(totals.variance));
    CU_ASSERT_TRUE(fabs(totals.outward_sum) < 5 * sqrt(totals.variance));
    CU_ASSERT_DOUBLE_EQUAL(totals.square_sum / totals.variance, 1, 0.01);
}

static const double RATIOS[] = {0.1, 1, 10, 100};

static void test_statistical_quantizer__unbiased_in_1_dimension(void)
{
    for (size_t i = 0; i < 4; i++) {
        expect_unbiased(RATIOS[i], 1, 4000, 50);
    }
}

static void test_statistical_quantizer__unbiased_in_30_dimensions(void)
{
    for (size_t i = 0; i < 4; i++) {
        expect_unbiased(RATIOS[i], 30, 5000, 6);
    }
}

static void test_statistical_quantizer__unbiased_in_7840_dimensions(void)
{
    for (size_t i = 0; i < 4; i++) {
        expect_unbiased(RATIOS[i], 7840, 150, 2);
    }
}

/* Errors are uncorrelated between neighbours, between coordinates one lane group apart, and between
 * the same coordinate in two streams. Over n products e e', each of variance (step^2 / 4)^2, the
 * mean is within 5 standard errors of 0. */
static void test_statistical_quantizer__errors_are_uncorrelated(void)
{
    enum { DIM = 7840, STREAMS = 12 };
    static const size_t lags[] = {1, 2, 16, 64, 1024};
    static double errors[STREAMS][DIM]; /* in steps */
    static float y[DIM];
    static int32_t levels[DIM];
    const struct tally_grid grid = {.step = 1, .intervals = 16};
    for (size_t i = 0; i < DIM; i++) {
        y[i] = 2.5f; /* the largest variance */
    }
    for (uint32_t s = 0; s < STREAMS; s++) {
        struct tally_rng rng;
        uint64_t clipped;
        /* Neighbouring clients, rounds and purposes. */
        tally_rng_init(&rng, tally_rng_key(5, 0), s % 3, s / 3 % 2,
                       s / 6 ? TALLY_RNG_UPLINK : TALLY_RNG_DOWNLINK);
        CU_ASSERT_EQUAL(tally_quantize(&grid, y, DIM, &rng, levels, &clipped, NULL), TALLY_OK);
        for (size_t i = 0; i < DIM; i++) {
            errors[s][i] = levels[i] - 2.5;
        }
    }
    for (size_t l = 0; l < sizeof lags / sizeof lags[0]; l++) {
        double sum = 0, n = 0;
        for (size_t s = 0; s < STREAMS; s++) {
            for (size_t i = 0; i + lags[l] < DIM; i++) {
                sum += 4 * errors[s][i] * errors[s][i + lags[l]];
                n++;
            }
        }
        CU_ASSERT_TRUE(fabs(sum) < 5 * sqrt(n));
    }
    for (size_t s = 0; s < STREAMS; s++) {
        for (size_t other = 0; other < s; other++) {
            double sum = 0;
            for (size_t i = 0; i < DIM; i++) {
                sum += 4 * errors[s][i] * errors[other][i];
            }
            CU_ASSERT_TRUE(fabs(sum) < 5 * sqrt(DIM));
        }
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_statistical_quantizer__unbiased_in_1_dimension),
    TALLY_TEST(test_statistical_quantizer__unbiased_in_30_dimensions),
    TALLY_TEST(test_statistical_quantizer__unbiased_in_7840_dimensions),
    TALLY_TEST(test_statistical_quantizer__errors_are_uncorrelated),
};
TALLY_SUITE(statistical_quantizer, TESTS);
