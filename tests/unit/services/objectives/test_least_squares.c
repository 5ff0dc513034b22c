#include <math.h>
#include <string.h>

#include "services/objectives/data/sharding.h"
#include "services/objectives/objective.h"
#include "tests/harness.h"
#include "tests/unit/services/local_loss.h"

enum { DIM = 5, POINTS = 47, CLIENTS = 4 }; /* shards of 12, 12, 12 and 11 */

static struct tally_objective *make(const struct tally_synthetic_linear *data, uint32_t clients,
                                    uint64_t seed)
{
    struct tally_objective_spec spec = tally_objective_spec_default();
    spec.data.synthetic_linear = *data;
    struct tally_objective *objective = NULL;
    CU_ASSERT_EQUAL_FATAL(
        tally_objective_new(&spec, clients, tally_rng_key(seed, 0), ".", &objective, NULL),
        TALLY_OK);
    return objective;
}

static struct tally_objective *standard(void)
{
    const struct tally_synthetic_linear data = {
        .dim = DIM, .points = POINTS, .frobenius_norm = 9, .noise_std = 0.7};
    return make(&data, CLIENTS, 8);
}

/* The gradient at point `index` of a shard of `size`. The first word of the stream is in the middle
 * of the words that below(size) maps to index. */
static void gradient_at(const struct tally_objective *objective, uint32_t client, uint32_t size,
                        uint32_t index, const double *x, double *ret_gradient)
{
    const uint64_t middle = ((uint64_t)index << 32) + (UINT64_C(1) << 31);
    struct tally_rng rng = {.block = {(uint32_t)(middle / size)}};
    tally_objective_local_gradient(objective, client, x, 1, &rng, ret_gradient, NULL);
}

/* The exact gradient of f_m: the mean over the shard. */
static void shard_gradient(const struct tally_objective *objective, uint32_t points,
                           uint32_t client, const double *x, double *ret_gradient)
{
    const uint32_t size = tally_shard_of(points, objective->clients, client).size;
    memset(ret_gradient, 0, objective->dim * sizeof *ret_gradient);
    for (uint32_t i = 0; i < size; i++) {
        double one[64];
        gradient_at(objective, client, size, i, x, one);
        for (size_t j = 0; j < objective->dim; j++) {
            ret_gradient[j] += one[j] / size;
        }
    }
}

/* The gradient of f: the mean over clients. */
static void full_gradient(const struct tally_objective *objective, uint32_t points, const double *x,
                          double *ret_gradient)
{
    memset(ret_gradient, 0, objective->dim * sizeof *ret_gradient);
    for (uint32_t m = 0; m < objective->clients; m++) {
        double one[64];
        shard_gradient(objective, points, m, x, one);
        for (size_t j = 0; j < objective->dim; j++) {
            ret_gradient[j] += one[j] / objective->clients;
        }
    }
}

static double full_loss(const struct tally_objective *objective, const double *x)
{
    double sum = 0;
    for (uint32_t m = 0; m < objective->clients; m++) {
        sum += local_loss_of(objective, m, x);
    }
    return sum / objective->clients;
}

static double norm(const double *v, size_t n)
{
    double square = 0;
    for (size_t i = 0; i < n; i++) {
        square += v[i] * v[i];
    }
    return sqrt(square);
}

static void test_objectives_least_squares__gradient_is_the_slope_of_the_loss(void)
{
    struct tally_objective *objective = standard();
    const double x[DIM] = {0.3, -1.2, 0, 2, 0.7};
    for (uint32_t m = 0; m < CLIENTS; m++) {
        double gradient[DIM];
        shard_gradient(objective, POINTS, m, x, gradient);
        for (size_t j = 0; j < DIM; j++) {
            const double h = 1e-3; /* exact for a quadratic, up to rounding */
            double up[DIM], down[DIM];
            memcpy(up, x, sizeof x);
            memcpy(down, x, sizeof x);
            up[j] += h;
            down[j] -= h;
            double slope =
                (local_loss_of(objective, m, up) - local_loss_of(objective, m, down)) / (2 * h);
            CU_ASSERT_DOUBLE_EQUAL(gradient[j], slope, 1e-9);
        }
    }
    tally_objective_free(objective);
}

/* n draws give the mean of the gradients at n points, drawn one after the other from the stream. */
static void test_objectives_least_squares__several_draws_are_averaged(void)
{
    struct tally_objective *objective = standard();
    const double x[DIM] = {1, 1, 1, 1, 1};
    struct tally_rng together, apart;
    tally_rng_init(&together, tally_rng_key(1, 0), 2, 3, TALLY_RNG_SAMPLING);
    apart = together;
    double mean[DIM], sum[DIM] = {0};
    tally_objective_local_gradient(objective, 2, x, 10, &together, mean, NULL);
    for (int i = 0; i < 10; i++) {
        double one[DIM];
        tally_objective_local_gradient(objective, 2, x, 1, &apart, one, NULL);
        for (size_t j = 0; j < DIM; j++) {
            sum[j] += one[j];
        }
    }
    for (size_t j = 0; j < DIM; j++) {
        CU_ASSERT_DOUBLE_EQUAL(mean[j], sum[j] / 10, 1e-14);
    }
    CU_ASSERT_EQUAL(memcmp(&together, &apart, sizeof apart), 0);
    tally_objective_free(objective);
}

/* Recomputes the data from their documented streams: client m holds the points of its part of the
 * permutation, X_i and the noise have one stream per point, theta* has one for all. */
static void test_objectives_least_squares__data_come_from_their_streams(void)
{
    struct tally_objective *objective = standard();
    const struct tally_rng_key key = tally_rng_key(8, 0);
    const double x[DIM] = {0.3, -1.2, 0, 2, 0.7};
    uint32_t order[POINTS];
    struct tally_rng rng;
    double theta[DIM];
    tally_rng_init(&rng, key, TALLY_RNG_SERVER, 0, TALLY_RNG_TRUE_POINT);
    tally_rng_direction(&rng, 1, theta, DIM);
    tally_shard_permutation(key, POINTS, order);
    for (uint32_t m = 0; m < CLIENTS; m++) {
        const struct tally_shard shard = tally_shard_of(POINTS, CLIENTS, m);
        for (uint32_t i = 0; i < shard.size; i++) {
            const uint32_t point = order[shard.first + i];
            double row[DIM], noise, residual = 0, gradient[DIM];
            tally_rng_init(&rng, key, TALLY_RNG_SERVER, point, TALLY_RNG_COVARIATES);
            tally_rng_direction(&rng, 9 / sqrt(POINTS), row, DIM);
            tally_rng_init(&rng, key, TALLY_RNG_SERVER, point, TALLY_RNG_NOISE);
            tally_rng_normal(&rng, &noise, 1);
            for (size_t j = 0; j < DIM; j++) {
                residual += row[j] * (x[j] - theta[j]);
            }
            residual -= 0.7 * noise;
            gradient_at(objective, m, shard.size, i, x, gradient);
            for (size_t j = 0; j < DIM; j++) {
                CU_ASSERT_DOUBLE_EQUAL(gradient[j], 2 * residual * row[j], 1e-12);
            }
        }
    }
    tally_objective_free(objective);
}

/* The norm of each X_i from the gradients at its point: g(e_j) - g(0) = 2 X_j X. */
static void test_objectives_least_squares__rows_have_the_frobenius_share(void)
{
    struct tally_objective *objective = standard();
    for (uint32_t m = 0; m < CLIENTS; m++) {
        const uint32_t size = tally_shard_of(POINTS, CLIENTS, m).size;
        for (uint32_t i = 0; i < size; i++) {
            const double zero[DIM] = {0};
            double at_zero[DIM], square = 0;
            gradient_at(objective, m, size, i, zero, at_zero);
            for (size_t j = 0; j < DIM; j++) {
                double unit[DIM] = {0}, at_unit[DIM];
                unit[j] = 1;
                gradient_at(objective, m, size, i, unit, at_unit);
                square += (at_unit[j] - at_zero[j]) / 2;
            }
            CU_ASSERT_DOUBLE_EQUAL(sqrt(square), 9 / sqrt(POINTS), 1e-12);
        }
    }
    tally_objective_free(objective);
}

static void test_objectives_least_squares__minimum_is_one(void)
{
    struct tally_objective *objective = standard();
    double f_star, x_star[DIM], gradient[DIM];
    CU_ASSERT_EQUAL(tally_objective_minimum(objective, NULL, NULL, &f_star, x_star, NULL),
                    TALLY_OK);
    full_gradient(objective, POINTS, x_star, gradient);
    CU_ASSERT_TRUE(norm(gradient, DIM) < 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(full_loss(objective, x_star), f_star, 1e-14);
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(2, 0), 0, 0, TALLY_RNG_NOISE);
    for (int i = 0; i < 200; i++) {
        double x[DIM];
        tally_rng_direction(&rng, pow(10, -i % 5), x, DIM);
        for (size_t j = 0; j < DIM; j++) {
            x[j] += x_star[j];
        }
        CU_ASSERT_TRUE(full_loss(objective, x) > f_star);
    }
    double again;
    CU_ASSERT_EQUAL(tally_objective_minimum(objective, NULL, NULL, &again, NULL, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(again, f_star);
    tally_objective_free(objective);
}

static void test_objectives_least_squares__gradient_descent_ends_at_the_minimum(void)
{
    struct tally_objective *objective = standard();
    double f_star, x_star[DIM], x[DIM] = {3, -2, 1, 0, 5}, gradient[DIM] = {1};
    CU_ASSERT_EQUAL(tally_objective_minimum(objective, NULL, NULL, &f_star, x_star, NULL),
                    TALLY_OK);
    int steps = 0;
    while (steps < 20000 && norm(gradient, DIM) > 1e-13) {
        full_gradient(objective, POINTS, x, gradient);
        for (size_t j = 0; j < DIM; j++) {
            x[j] -= 0.3 * gradient[j];
        }
        steps++;
    }
    CU_ASSERT_TRUE(steps < 20000);
    for (size_t j = 0; j < DIM; j++) {
        CU_ASSERT_DOUBLE_EQUAL(x[j], x_star[j], 1e-10);
    }
    CU_ASSERT_DOUBLE_EQUAL(full_loss(objective, x), f_star, 1e-12);
    tally_objective_free(objective);
}

/* Clients have equal weight, so the points of the smaller shard weigh more. */
static void test_objectives_least_squares__clients_weigh_alike(void)
{
    const struct tally_synthetic_linear data = {
        .dim = 2, .points = 5, .frobenius_norm = 3, .noise_std = 2};
    struct tally_objective *split = make(&data, 2, 4), *whole = make(&data, 1, 4);
    double f_split, f_whole, x_split[2], x_whole[2], gradient[2];
    CU_ASSERT_EQUAL(tally_objective_minimum(split, NULL, NULL, &f_split, x_split, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(tally_objective_minimum(whole, NULL, NULL, &f_whole, x_whole, NULL), TALLY_OK);
    CU_ASSERT_TRUE(fabs(x_split[0] - x_whole[0]) > 1e-3); /* the minima do differ here */
    full_gradient(split, 5, x_split, gradient);
    CU_ASSERT_TRUE(norm(gradient, 2) < 1e-12);
    CU_ASSERT_TRUE(full_loss(split, x_whole) > f_split);
    CU_ASSERT_TRUE(full_loss(whole, x_split) > f_whole);
    tally_objective_free(split);
    tally_objective_free(whole);
}

/* With shards of equal size f is the mean over all points, however many clients there are. */
static void test_objectives_least_squares__equal_shards_do_not_change_f(void)
{
    const struct tally_synthetic_linear data = {
        .dim = DIM, .points = 60, .frobenius_norm = 9, .noise_std = 0.7};
    const double x[DIM] = {0.3, -1.2, 0, 2, 0.7};
    struct tally_objective *whole = make(&data, 1, 8);
    double f_whole, f;
    CU_ASSERT_EQUAL(tally_objective_minimum(whole, NULL, NULL, &f_whole, NULL, NULL), TALLY_OK);
    const uint32_t clients[] = {2, 3, 10, 60};
    for (size_t i = 0; i < 4; i++) {
        struct tally_objective *split = make(&data, clients[i], 8);
        CU_ASSERT_DOUBLE_EQUAL(full_loss(split, x), full_loss(whole, x), 1e-12);
        CU_ASSERT_EQUAL(tally_objective_minimum(split, NULL, NULL, &f, NULL, NULL), TALLY_OK);
        CU_ASSERT_DOUBLE_EQUAL(f, f_whole, 1e-12);
        tally_objective_free(split);
    }
    tally_objective_free(whole);
}

static void test_objectives_least_squares__same_seed_same_data(void)
{
    struct tally_synthetic_linear data = {
        .dim = DIM, .points = POINTS, .frobenius_norm = 9, .noise_std = 0.7};
    struct tally_objective *a = make(&data, CLIENTS, 8), *b = make(&data, CLIENTS, 8),
                           *other = make(&data, CLIENTS, 9);
    const double x[DIM] = {1, 2, 3, 4, 5};
    for (uint32_t m = 0; m < CLIENTS; m++) {
        double loss = local_loss_of(a, m, x);
        CU_ASSERT_EQUAL(loss, local_loss_of(b, m, x));
        CU_ASSERT_NOT_EQUAL(loss, local_loss_of(other, m, x));
        CU_ASSERT_NOT_EQUAL(loss, local_loss_of(a, (m + 1) % CLIENTS, x));
    }
    tally_objective_free(a);
    tally_objective_free(b);
    tally_objective_free(other);
}

/* Without noise x* is theta*, a unit vector that depends on the seed, and f* is zero. */
static void test_objectives_least_squares__true_point_is_a_unit_vector(void)
{
    const struct tally_synthetic_linear data = {
        .dim = 8, .points = 40, .frobenius_norm = 10, .noise_std = 0};
    double f_star, first[8] = {0}, x_star[8];
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct tally_objective *objective = make(&data, 4, seed);
        CU_ASSERT_EQUAL(tally_objective_minimum(objective, NULL, NULL, &f_star, x_star, NULL),
                        TALLY_OK);
        CU_ASSERT_DOUBLE_EQUAL(norm(x_star, 8), 1, 1e-12);
        CU_ASSERT_TRUE(f_star >= 0 && f_star < 1e-24);
        if (seed == 1) {
            memcpy(first, x_star, sizeof first);
        } else {
            CU_ASSERT_TRUE(fabs(first[0] - x_star[0]) > 1e-6);
        }
        tally_objective_free(objective);
    }
}

/* f* of N points and d coordinates is noise^2 chi-square(N - d) / N: mean noise^2 (1 - d / N),
 * relative deviation sqrt(2 / N). f* changes with the seed, so the noise depends on it. */
static void test_objectives_least_squares__noise_has_its_deviation(void)
{
    struct tally_synthetic_linear data = {
        .dim = 3, .points = 4000, .frobenius_norm = 60, .noise_std = 0.7};
    double previous = 0;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct tally_objective *objective = make(&data, 10, seed);
        double f_star;
        CU_ASSERT_EQUAL(tally_objective_minimum(objective, NULL, NULL, &f_star, NULL, NULL),
                        TALLY_OK);
        CU_ASSERT_DOUBLE_EQUAL(f_star / 0.49, 1 - 3 / 4000.0, 5 * sqrt(2 / 4000.0));
        CU_ASSERT_NOT_EQUAL(f_star, previous);
        previous = f_star;
        tally_objective_free(objective);
    }
}

/* With no more points than coordinates every fit is perfect. */
static void test_objectives_least_squares__rank_deficient_data_have_a_minimum(void)
{
    for (int64_t dim = 5; dim <= 8; dim++) {
        const struct tally_synthetic_linear data = {
            .dim = dim, .points = 5, .frobenius_norm = 3, .noise_std = 1};
        struct tally_objective *objective = make(&data, 2, 4);
        double f_star = 42, x_star[8];
        struct tally_error err = TALLY_ERROR_INIT;
        TALLY_ASSERT_STATUS(tally_objective_minimum(objective, NULL, NULL, &f_star, x_star, &err),
                            TALLY_OK, &err);
        CU_ASSERT_TRUE(f_star >= 0 && f_star < 1e-15);
        CU_ASSERT_DOUBLE_EQUAL(full_loss(objective, x_star), f_star, 1e-15);
        tally_objective_free(objective);
    }
}

/* Above the size limit of the normal equations conjugate gradients are used. */
static void test_objectives_least_squares__large_systems_are_solved(void)
{
    const struct tally_synthetic_linear data = {
        .dim = 4097, .points = 20, .frobenius_norm = 30, .noise_std = 1};
    struct tally_objective *objective = make(&data, 1, 4);
    double f_star = 42;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_objective_minimum(objective, NULL, NULL, &f_star, NULL, &err),
                        TALLY_OK, &err);
    CU_ASSERT_TRUE(f_star >= 0 && f_star < 1e-12);
    tally_objective_free(objective);
}

/* f at several points at once, by the quadratic form x^T A x - 2 b^T x + c where that is cheaper,
 * else point by point. Both equal the direct sum, far from the minimum and near it. */
static void test_objectives_least_squares__losses_are_the_direct_sums(void)
{
    static const struct {
        struct tally_synthetic_linear data;
        uint32_t clients;
    } rows[] = {
        {{.dim = 5, .points = 47, .frobenius_norm = 9, .noise_std = 0.7}, 4},
        {{.dim = 30, .points = 2000, .frobenius_norm = 100, .noise_std = 1}, 10},       /* loud */
        {{.dim = 30, .points = 2000, .frobenius_norm = 100, .noise_std = 0.02236}, 10}, /* quiet */
        {{.dim = 1, .points = 2, .frobenius_norm = 1, .noise_std = 3}, 2},
        {{.dim = 47, .points = 47, .frobenius_norm = 9, .noise_std = 0.7}, 3},    /* no form */
        {{.dim = 257, .points = 300, .frobenius_norm = 30, .noise_std = 0.7}, 3}, /* no form */
    };
    enum { MOST = 6 };
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        struct tally_objective *objective = make(&rows[r].data, rows[r].clients, 5 + r);
        static double x[MOST * 257];
        double f[MOST + 1];
        const size_t dim = objective->dim;
        for (size_t p = 0; p < MOST; p++) {
            const double length = p == 0 ? 0 : pow(10, (double)p - 2) / sqrt((double)dim);
            for (size_t i = 0; i < dim; i++) {
                x[p * dim + i] = length * sin((double)(1 + 7 * p + 3 * i));
            }
        }
        double f_star;
        if (tally_objective_minimum(objective, NULL, NULL, &f_star, x + 5 * dim, NULL) ==
            TALLY_OK) {
            CU_ASSERT_TRUE(f_star > 0);
        }
        for (size_t n = 1; n <= MOST; n++) {
            f[n] = 4711;
            tally_objective_losses(objective, x, n, f, NULL);
            CU_ASSERT_EQUAL(f[n], 4711);
            for (size_t p = 0; p < n; p++) {
                const double expected = full_loss(objective, x + p * dim);
                CU_ASSERT_DOUBLE_EQUAL(f[p], expected, 1e-12 * expected);
            }
        }
        tally_objective_free(objective);
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_objectives_least_squares__gradient_is_the_slope_of_the_loss),
    TALLY_TEST(test_objectives_least_squares__several_draws_are_averaged),
    TALLY_TEST(test_objectives_least_squares__data_come_from_their_streams),
    TALLY_TEST(test_objectives_least_squares__rows_have_the_frobenius_share),
    TALLY_TEST(test_objectives_least_squares__minimum_is_one),
    TALLY_TEST(test_objectives_least_squares__gradient_descent_ends_at_the_minimum),
    TALLY_TEST(test_objectives_least_squares__clients_weigh_alike),
    TALLY_TEST(test_objectives_least_squares__equal_shards_do_not_change_f),
    TALLY_TEST(test_objectives_least_squares__same_seed_same_data),
    TALLY_TEST(test_objectives_least_squares__true_point_is_a_unit_vector),
    TALLY_TEST(test_objectives_least_squares__noise_has_its_deviation),
    TALLY_TEST(test_objectives_least_squares__rank_deficient_data_have_a_minimum),
    TALLY_TEST(test_objectives_least_squares__large_systems_are_solved),
    TALLY_TEST(test_objectives_least_squares__losses_are_the_direct_sums),
};
TALLY_SUITE(objectives_least_squares, TESTS);
