/* BFGS on functions whose minimum is known. */
#include "services/algorithms/calm/descent.h"

#include <math.h>

#include "tests/harness.h"

/* (1 - x)^2 + 100 (y - x^2)^2: a curved valley with its minimum at (1, 1). */
static double rosenbrock(const void *context, const double *x, double *ret_gradient)
{
    (*(int *)context)++;
    const double bend = x[1] - x[0] * x[0];
    if (ret_gradient != NULL) {
        ret_gradient[0] = -2 * (1 - x[0]) - 400 * x[0] * bend;
        ret_gradient[1] = 200 * bend;
    }
    return (1 - x[0]) * (1 - x[0]) + 100 * bend * bend;
}

static void test_algorithms_descent__finds_the_end_of_a_curved_valley(void)
{
    int n_calls = 0;
    double x[2] = {-1.2, 1};
    const struct tally_descent descent = {rosenbrock, &n_calls, 2, 200, 1e-12};
    CU_ASSERT_TRUE(tally_descent_run(&descent, x) < 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(x[0], 1, 1e-4);
    CU_ASSERT_DOUBLE_EQUAL(x[1], 1, 1e-4);
    CU_ASSERT_TRUE(n_calls < 150); /* steepest descent needs thousands */
}

static void test_algorithms_descent__stops_after_the_most_steps(void)
{
    int n_calls = 0;
    double x[2] = {-1.2, 1};
    const struct tally_descent descent = {rosenbrock, &n_calls, 2, 3, 0};
    const double value = tally_descent_run(&descent, x);
    CU_ASSERT_TRUE(value > 1 && value < 24.2);
    CU_ASSERT_EQUAL(value, rosenbrock(&n_calls, x, NULL));
}

/* sum_i (i + 1) (x_i - i)^2 / 2; x_0 above 20 is outside its domain. */
static double bowl(const void *context, const double *x, double *ret_gradient)
{
    double sum = 0;
    for (int i = 0; i < *(const int *)context; i++) {
        sum += (i + 1) * (x[i] - i) * (x[i] - i) / 2;
        if (ret_gradient != NULL) {
            ret_gradient[i] = (i + 1) * (x[i] - i);
        }
    }
    return x[0] > 20 ? INFINITY : sum;
}

static void test_algorithms_descent__many_variables(void)
{
    const int n = TALLY_DESCENT_MAX_VARIABLES;
    double x[TALLY_DESCENT_MAX_VARIABLES] = {19.5};
    const struct tally_descent descent = {bowl, &n, n, 500, 1e-13};
    CU_ASSERT_TRUE(tally_descent_run(&descent, x) < 1e-9);
    for (int i = 0; i < n; i++) {
        CU_ASSERT_DOUBLE_EQUAL(x[i], i, 1e-4);
    }
}

/* -x, with INFINITY above 20: a descent never ends outside its domain. */
static double cliff(const void *context, const double *x, double *ret_gradient)
{
    (void)context;
    if (ret_gradient != NULL) {
        ret_gradient[0] = -1;
    }
    return x[0] > 20 ? INFINITY : -x[0];
}

static void test_algorithms_descent__stays_inside_of_the_domain(void)
{
    double x[1] = {0.3};
    const struct tally_descent descent = {cliff, NULL, 1, 500, 1e-9};
    CU_ASSERT_DOUBLE_EQUAL(tally_descent_run(&descent, x), -20, 1e-3);
    CU_ASSERT_TRUE(x[0] <= 20);
}

/* (x - 50)^2. It records the largest distance between an evaluation and the last gradient before
 * it. */
struct parabola {
    double last, farthest;
};

static double parabola(const void *context, const double *x, double *ret_gradient)
{
    struct parabola *seen = (struct parabola *)context;
    seen->farthest = fmax(seen->farthest, fabs(x[0] - seen->last));
    if (ret_gradient != NULL) {
        seen->last = x[0];
        ret_gradient[0] = 2 * (x[0] - 50);
    }
    return (x[0] - 50) * (x[0] - 50);
}

static void test_algorithms_descent__moves_by_one_at_most(void)
{
    struct parabola seen = {0, 0};
    double x[1] = {0};
    const struct tally_descent descent = {parabola, &seen, 1, 500, 1e-9};
    CU_ASSERT_DOUBLE_EQUAL(tally_descent_run(&descent, x), 0, 1e-6);
    CU_ASSERT_DOUBLE_EQUAL(seen.farthest, 1, 1e-12);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_algorithms_descent__finds_the_end_of_a_curved_valley),
    TALLY_TEST(test_algorithms_descent__stops_after_the_most_steps),
    TALLY_TEST(test_algorithms_descent__many_variables),
    TALLY_TEST(test_algorithms_descent__stays_inside_of_the_domain),
    TALLY_TEST(test_algorithms_descent__moves_by_one_at_most),
};
TALLY_SUITE(algorithms_descent, TESTS);
