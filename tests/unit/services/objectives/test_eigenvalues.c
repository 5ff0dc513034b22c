#include "services/objectives/solve/eigenvalues.h"

#include <math.h>
#include <stdlib.h>

#include "codec/numeric/rng.h"
#include "tests/harness.h"

enum { MOST = 40 };

/* Makes Q diag(values) Q^T with a random Q, a product of `dim` reflections. The upper triangle is
 * NaN. */
static void make(const double *values, size_t dim, uint64_t seed, double *a)
{
    double v[MOST], w[MOST];
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(seed, 0), 0, 0, TALLY_RNG_NOISE);
    for (size_t i = 0; i < dim * dim; i++) {
        a[i] = i % (dim + 1) == 0 ? values[i / dim] : 0;
    }
    for (size_t k = 0; k < dim; k++) {
        double inner = 0;
        tally_rng_direction(&rng, 1, v, dim);
        for (size_t i = 0; i < dim; i++) {
            w[i] = 0;
            for (size_t j = 0; j < dim; j++) {
                w[i] += a[i * dim + j] * v[j];
            }
            inner += v[i] * w[i];
        }
        for (size_t i = 0; i < dim; i++) {
            for (size_t j = 0; j < dim; j++) {
                a[i * dim + j] += -2 * v[i] * w[j] - 2 * w[i] * v[j] + 4 * inner * v[i] * v[j];
            }
        }
    }
    for (size_t i = 0; i < dim; i++) {
        for (size_t j = i + 1; j < dim; j++) {
            a[i * dim + j] = NAN;
        }
    }
}

static void expect(const double *values, size_t dim, uint64_t seed)
{
    double a[MOST * MOST], smallest = 0, largest = 0, low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < dim; i++) {
        low = fmin(low, values[i]);
        high = fmax(high, values[i]);
    }
    make(values, dim, seed, a);
    CU_ASSERT_TRUE(tally_eigenvalues_range(a, dim, &smallest, &largest));
    const double tolerance = 1e-13 * fmax(fabs(low), fabs(high));
    CU_ASSERT_DOUBLE_EQUAL(smallest, low, tolerance);
    CU_ASSERT_DOUBLE_EQUAL(largest, high, tolerance);
}

static void test_objectives_eigenvalues__both_ends_are_found(void)
{
    double values[MOST];
    for (size_t dim = 1; dim <= MOST; dim++) {
        for (size_t i = 0; i < dim; i++) {
            values[i] = 10 * sin(1.7 * (double)(i * i + dim));
        }
        expect(values, dim, dim);
        for (size_t i = 0; i < dim; i++) {
            values[i] = pow(10, -(double)i); /* the smallest vanish by rounding */
        }
        expect(values, dim, dim + 100);
        for (size_t i = 0; i < dim; i++) {
            values[i] = i < dim / 2 ? 0 : 3; /* singular, with multiple eigenvalues */
        }
        expect(values, dim, dim + 200);
        for (size_t i = 0; i < dim; i++) {
            values[i] = -1e-9 * (double)(1 + i);
        }
        expect(values, dim, dim + 300);
    }
}

/* Cases without a reflection: diagonal, zero, and 2 by 2 by hand. */
static void test_objectives_eigenvalues__simple_matrices(void)
{
    double smallest, largest;
    double zero[9] = {0}, diagonal[9] = {3, 0, 0, 0, -1, 0, 0, 0, 2};
    double swap[4] = {0, 0, 1, 0}, one[1] = {7};
    tally_eigenvalues_range(zero, 3, &smallest, &largest);
    CU_ASSERT_DOUBLE_EQUAL(smallest, 0, 1e-290);
    CU_ASSERT_DOUBLE_EQUAL(largest, 0, 1e-290);
    tally_eigenvalues_range(diagonal, 3, &smallest, &largest);
    CU_ASSERT_DOUBLE_EQUAL(smallest, -1, 1e-14);
    CU_ASSERT_DOUBLE_EQUAL(largest, 3, 1e-14);
    tally_eigenvalues_range(swap, 2, &smallest, &largest);
    CU_ASSERT_DOUBLE_EQUAL(smallest, -1, 1e-14);
    CU_ASSERT_DOUBLE_EQUAL(largest, 1, 1e-14);
    tally_eigenvalues_range(one, 1, &smallest, &largest);
    CU_ASSERT_DOUBLE_EQUAL(smallest, 7, 1e-14);
    CU_ASSERT_DOUBLE_EQUAL(largest, 7, 1e-14);
}

/* A diagonal operator. */
struct diagonal {
    size_t dim;
    const double *values;
};

static void times(void *context, const double *v, double *ret_product)
{
    const struct diagonal *diagonal = context;
    for (size_t i = 0; i < diagonal->dim; i++) {
        ret_product[i] = diagonal->values[i] * v[i];
    }
}

static void test_objectives_eigenvalues__power_iteration_is_a_little_above(void)
{
    double values[MOST];
    for (size_t dim = 1; dim <= MOST; dim++) {
        double trace = 0;
        for (size_t i = 0; i < dim; i++) {
            values[i] = 5 / (1 + (double)i);
            trace += values[i];
        }
        struct diagonal diagonal = {dim, values};
        const double largest = tally_eigenvalues_largest(dim, trace, times, &diagonal, NULL);
        CU_ASSERT_TRUE(largest >= 5 * (1 - 1e-12));
        CU_ASSERT_TRUE(largest <= 5 * 1.05);
        CU_ASSERT_TRUE(largest <= trace * (1 + 1e-12));
        const atomic_bool stop = true;
        CU_ASSERT_TRUE(isnan(tally_eigenvalues_largest(dim, trace, times, &diagonal, &stop)));
    }
    struct diagonal zero = {3, (const double[]){0, 0, 0}};
    CU_ASSERT_EQUAL(tally_eigenvalues_largest(3, 0, times, &zero, NULL), 0);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_objectives_eigenvalues__both_ends_are_found),
    TALLY_TEST(test_objectives_eigenvalues__simple_matrices),
    TALLY_TEST(test_objectives_eigenvalues__power_iteration_is_a_little_above),
};
TALLY_SUITE(objectives_eigenvalues, TESTS);
