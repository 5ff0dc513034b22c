#include <math.h>
#include <stdio.h>
#include <string.h>

#include "services/objectives/solve/domain.h"
#include "tests/harness.h"
#include "tests/unit/services/local_loss.h"
#include "tests/unit/services/objectives/data_files.h"
#include "tests/unit/services/objectives/objective_checks.h"

enum { DIM = 3, CLIENTS = 4 };

static struct idx_files FILES;

static const double A[DIM * DIM] = {4, 1, 0, 1, 3, 0, 0, 0, 2}, B[DIM] = {1, -2, 6};

static enum tally_status load(const double *a, const double *b, double noise_std,
                              struct tally_objective **ret, struct tally_error *err)
{
    struct tally_objective_spec spec = tally_objective_spec_default();
    tally_objective_spec_choose(&spec, TALLY_QUADRATIC);
    spec.parameters[0] = noise_std;
    spec.data.type = TALLY_DATA_MATRIX;
    spec.data.matrix = (struct tally_matrix_data){.matrix = "a.npy", .vector = "b.npy", .dim = DIM};
    idx_files_init(&FILES);
    data_files_npy(&FILES, "a.npy", "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 3), }\n",
                   a, DIM * DIM * sizeof *a);
    data_files_npy(&FILES, "b.npy", "{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }\n",
                   b, DIM * sizeof *b);
    TALLY_ASSERT_STATUS(tally_objective_spec_validate(&spec, CLIENTS, err), TALLY_OK, err);
    CU_ASSERT_EQUAL(tally_objective_spec_dim(&spec), DIM);
    const enum tally_status status =
        tally_objective_new(&spec, CLIENTS, tally_rng_key(3, 0), FILES.folder, ret, err);
    idx_files_fini(&FILES);
    return status;
}

static struct tally_objective *make(const double *a, const double *b, double noise_std)
{
    struct tally_objective *objective = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(load(a, b, noise_std, &objective, &err), TALLY_OK, &err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(objective);
    return objective;
}

static void test_objectives_quadratic__all_clients_have_the_formula(void)
{
    struct tally_objective *objective = make(A, B, 0);
    const double x[DIM] = {1, 2, -1};
    struct tally_rng rng, before;
    tally_rng_init(&rng, tally_rng_key(1, 0), 2, 3, TALLY_RNG_SAMPLING);
    before = rng;
    for (uint32_t m = 0; m < CLIENTS; m++) {
        double gradient[DIM], loss;
        CU_ASSERT_EQUAL(local_loss_of(objective, m, x), 0.5 * (4 + 4 + 12 + 2) - (1 - 4 - 6));
        CU_ASSERT_EQUAL(tally_objective_losses(objective, x, 1, &loss, NULL), TALLY_OK);
        CU_ASSERT_EQUAL(loss, 20);
        tally_objective_local_gradient(objective, m, x, 5, &rng, gradient, NULL);
        CU_ASSERT_EQUAL(gradient[0], 4 + 2 - 1);
        CU_ASSERT_EQUAL(gradient[1], 1 + 6 + 2);
        CU_ASSERT_EQUAL(gradient[2], -2 - 6);
    }
    CU_ASSERT_EQUAL(memcmp(&rng, &before, sizeof rng), 0); /* nothing was drawn */
    tally_objective_free(objective);
}

/* The mean and the deviation of 2000 gradients of n points each lie within 5 deviations. */
static void test_objectives_quadratic__noise_has_its_deviation(void)
{
    enum { DRAWS = 2000 };
    struct tally_objective *objective = make(A, B, 0.7), *exact = make(A, B, 0);
    const double x[DIM] = {1, 2, -1};
    struct tally_rng rng;
    double at_x[DIM];
    tally_rng_init(&rng, tally_rng_key(1, 0), 2, 3, TALLY_RNG_SAMPLING);
    tally_objective_local_gradient(exact, 0, x, 1, &rng, at_x, NULL);
    for (int64_t n = 1; n <= 16; n *= 16) {
        double sum = 0, square = 0;
        for (int i = 0; i < DRAWS; i++) {
            double gradient[DIM];
            tally_objective_local_gradient(objective, 1, x, n, &rng, gradient, NULL);
            for (size_t j = 0; j < DIM; j++) {
                const double noise = (gradient[j] - at_x[j]) * sqrt((double)n) / 0.7;
                sum += noise;
                square += noise * noise;
            }
        }
        CU_ASSERT_DOUBLE_EQUAL(sum / (DRAWS * DIM), 0, 5 / sqrt(DRAWS * DIM));
        CU_ASSERT_DOUBLE_EQUAL(square / (DRAWS * DIM), 1, 5 * sqrt(2.0 / (DRAWS * DIM)));
    }
    double without[DIM];
    tally_objective_local_gradient(objective, 1, x, 0, &rng, without, NULL);
    CU_ASSERT_EQUAL(memcmp(without, at_x, sizeof at_x), 0);
    tally_objective_free(objective);
    tally_objective_free(exact);
}

static void test_objectives_quadratic__minimum_and_curvature(void)
{
    struct tally_objective *objective = make(A, B, 1);
    double f_star = 0, x[DIM];
    struct tally_curvature curvature;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_objective_minimum(objective, NULL, NULL, &f_star, x, &err), TALLY_OK,
                        &err);
    CU_ASSERT_DOUBLE_EQUAL(x[0], 5 / 11.0, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(x[1], -9 / 11.0, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(x[2], 3, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(f_star, -0.5 * (5 / 11.0 + 18 / 11.0 + 18), 1e-12);
    CU_ASSERT_EQUAL(tally_objective_curvature(objective, NULL, &curvature, NULL), TALLY_OK);
    CU_ASSERT_DOUBLE_EQUAL(curvature.smoothness, (7 + sqrt(5)) / 2, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(curvature.strong_convexity, 2, 1e-12);
    const struct tally_domain box = {.type = TALLY_DOMAIN_BOX, .lower = -0.5, .upper = 1};
    TALLY_ASSERT_STATUS(tally_objective_minimum(objective, &box, NULL, &f_star, x, &err), TALLY_OK,
                        &err);
    CU_ASSERT_DOUBLE_EQUAL(x[0], 1.5 / 4, 1e-7); /* the optimum if x1 is at its bound */
    CU_ASSERT_DOUBLE_EQUAL(x[1], -0.5, 1e-15);
    CU_ASSERT_DOUBLE_EQUAL(x[2], 1, 1e-15);
    tally_objective_free(objective);
}

/* Flat along the last coordinate: there is a minimum if b is 0 there, otherwise none. In any
 * bounded domain there is one. */
static void test_objectives_quadratic__singular_matrices(void)
{
    const double a[DIM * DIM] = {4, 1, 0, 1, 3, 0, 0, 0, 0}, flat[DIM] = {1, -2, 0};
    const double zero[DIM * DIM] = {0};
    const struct tally_domain ball = {.type = TALLY_DOMAIN_BALL, .radius = 2};
    double f_star = 42, x[DIM];
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_objective *objective = make(a, flat, 0);
    TALLY_ASSERT_STATUS(tally_objective_minimum(objective, NULL, NULL, &f_star, NULL, &err),
                        TALLY_OK, &err);
    CU_ASSERT_DOUBLE_EQUAL(f_star, -0.5 * (5 / 11.0 + 18 / 11.0), 1e-12);
    struct tally_curvature curvature;
    tally_objective_curvature(objective, NULL, &curvature, NULL);
    CU_ASSERT_EQUAL(curvature.strong_convexity, 0);
    tally_objective_free(objective);
    objective = make(a, B, 0);
    CU_ASSERT_EQUAL(tally_objective_minimum(objective, NULL, NULL, &f_star, NULL, NULL),
                    TALLY_FAILED_PRECONDITION);
    tally_objective_free(objective);
    objective = make(zero, B, 0); /* linear */
    CU_ASSERT_EQUAL(tally_objective_minimum(objective, NULL, NULL, &f_star, NULL, NULL),
                    TALLY_FAILED_PRECONDITION);
    TALLY_ASSERT_STATUS(tally_objective_minimum(objective, &ball, NULL, &f_star, x, &err), TALLY_OK,
                        &err);
    CU_ASSERT_DOUBLE_EQUAL(f_star, -2 * sqrt(1 + 4 + 36), 1e-9);
    tally_objective_free(objective);
}

static void test_objectives_quadratic__what_is_no_convex_quadratic_is_refused(void)
{
    const double skew[DIM * DIM] = {4, 1, 0, 1, 3, 0, 0.5, 0, 2};
    const double saddle[DIM * DIM] = {4, 0, 0, 0, -3, 0, 0, 0, 2};
    struct tally_objective *objective = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(load(skew, B, 0, &objective, &err), TALLY_INVALID_ARGUMENT, &err);
    TALLY_ASSERT_TEXT(err.field, "objective.data.matrix");
    TALLY_ASSERT_TEXT(err.message, "a.npy is not symmetric: [2][0] is 0.5, [0][2] is 0");
    CU_ASSERT_PTR_NULL(objective);
    err = (struct tally_error)TALLY_ERROR_INIT;
    double f_star;
    objective = make(saddle, B, 0);
    TALLY_ASSERT_STATUS(tally_objective_minimum(objective, NULL, NULL, &f_star, NULL, &err),
                        TALLY_FAILED_PRECONDITION, &err);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.message, "eigenvalue of -3: f is not convex"));
    tally_objective_free(objective);
}

/* The minimiser is finite, the minimum -b^2 / (2 a) is not. */
static void test_objectives_quadratic__a_minimum_beyond_a_double_is_refused(void)
{
    const double a[DIM * DIM] = {1e-4, 0, 0, 0, 1e-4, 0, 0, 0, 1e-4}, b[DIM] = {1e153, 0, 0};
    double f_star = 42;
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_objective *objective = make(a, b, 0);
    TALLY_ASSERT_STATUS(tally_objective_minimum(objective, NULL, NULL, &f_star, NULL, &err),
                        TALLY_FAILED_PRECONDITION, &err);
    TALLY_ASSERT_TEXT(err.field, "reference");
    CU_ASSERT_PTR_NOT_NULL(strstr(err.message, "f(x*) is -inf"));
    CU_ASSERT_EQUAL(f_star, 42);
    tally_objective_free(objective);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_objectives_quadratic__all_clients_have_the_formula),
    TALLY_TEST(test_objectives_quadratic__noise_has_its_deviation),
    TALLY_TEST(test_objectives_quadratic__minimum_and_curvature),
    TALLY_TEST(test_objectives_quadratic__singular_matrices),
    TALLY_TEST(test_objectives_quadratic__what_is_no_convex_quadratic_is_refused),
    TALLY_TEST(test_objectives_quadratic__a_minimum_beyond_a_double_is_refused),
};
TALLY_SUITE(objectives_quadratic, TESTS);
