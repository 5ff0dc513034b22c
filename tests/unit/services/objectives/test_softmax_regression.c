#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "services/objectives/data/sharding.h"
#include "services/objectives/objective.h"
#include "tests/harness.h"
#include "tests/unit/services/local_loss.h"
#include "tests/unit/services/objectives/idx_files.h"

/* 21 points in shards of 6, 5, 5 and 5. */
enum { CLIENTS = 4, FEATURES = 6, CLASSES = 3, PER_CLASS = 7, POINTS = 21, DIM = 18, N = 30 };

static struct idx_files FILES;
static struct tally_idx_set SET; /* the same data, loaded beside the objective */

/* Images whose classes differ, but not enough to be told apart without error. */
static void write_files(void)
{
    static uint8_t bytes[IDX_MAX_BYTES];
    uint8_t pixels[N * FEATURES], labels[N];
    for (uint32_t i = 0; i < N; i++) {
        labels[i] = (uint8_t)(i % CLASSES);
        for (uint32_t f = 0; f < FEATURES; f++) {
            const double v = 128 + 60 * sin(3.1 * i + 1.7 * f) + 60 * (f % CLASSES == labels[i]);
            pixels[i * FEATURES + f] = (uint8_t)fmin(255, v);
        }
    }
    idx_files_write(&FILES, "images", bytes, idx_images(N, 2, 3, pixels, bytes));
    idx_files_write(&FILES, "labels", bytes, idx_labels(N, labels, bytes));
}

static struct tally_objective_spec spec_of(double l2)
{
    return (struct tally_objective_spec){.type = TALLY_SOFTMAX_REGRESSION,
                                         .l2 = l2,
                                         .data = {.type = TALLY_DATA_IDX,
                                                  .idx = {.images = "images",
                                                          .labels = "labels",
                                                          .features = FEATURES,
                                                          .classes = CLASSES,
                                                          .points_per_class = PER_CLASS}}};
}

static struct tally_objective *make(double l2)
{
    idx_files_init(&FILES);
    write_files();
    const struct tally_objective_spec spec = spec_of(l2);
    const struct tally_rng_key key = tally_rng_key(12, 0);
    const struct tally_data_source source = {.dir = FILES.folder};
    struct tally_objective *objective = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_objective_spec_validate(&spec, CLIENTS, &err), TALLY_OK, &err);
    TALLY_ASSERT_STATUS(tally_objective_new(&spec, CLIENTS, key, FILES.folder, &objective, &err),
                        TALLY_OK, &err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(objective);
    CU_ASSERT_EQUAL(tally_idx_load(&spec.data.idx, TALLY_SHARDING_IID, &source, key, &SET, NULL),
                    TALLY_OK);
    CU_ASSERT_EQUAL_FATAL(objective->dim, DIM);
    CU_ASSERT_EQUAL(tally_objective_spec_dim(&spec), DIM);
    return objective;
}

static void unmake(struct tally_objective *objective)
{
    tally_objective_free(objective);
    tally_idx_fini(&SET);
    idx_files_fini(&FILES);
}

static void fill(double *x, double scale, double phase)
{
    for (size_t i = 0; i < DIM; i++) {
        x[i] = scale * sin(phase + 2.3 * (double)i);
    }
}

/* X_i . W_Y + log sum_k exp(-X_i . W_k), as in [1], and p_ik = exp(-X_i . W_k) / sum. */
static double point_loss(uint32_t point, const double *x, double *ret_p)
{
    double logits[CLASSES] = {0}, sum = 0;
    for (size_t k = 0; k < CLASSES; k++) {
        for (size_t f = 0; f < FEATURES; f++) {
            logits[k] += SET.pixels[point * FEATURES + f] / 255.0 * x[f * CLASSES + k];
        }
        sum += exp(-logits[k]);
    }
    for (size_t k = 0; ret_p != NULL && k < CLASSES; k++) {
        ret_p[k] = exp(-logits[k]) / sum;
    }
    return logits[SET.labels[point]] + log(sum);
}

static double local_loss(uint32_t client, double l2, const double *x)
{
    const struct tally_shard shard = tally_shard_of(POINTS, CLIENTS, client);
    double sum = 0, square = 0;
    for (uint32_t i = 0; i < shard.size; i++) {
        sum += point_loss(shard.first + i, x, NULL);
    }
    for (size_t i = 0; i < DIM; i++) {
        square += x[i] * x[i];
    }
    return sum / shard.size + l2 * square;
}

static void test_objectives_softmax_regression__loss_is_the_formula_of_the_paper(void)
{
    struct tally_objective *objective = make(0.25);
    double x[DIM];
    for (int p = 0; p < 5; p++) {
        fill(x, 0.3 * p * p, p);
        for (uint32_t m = 0; m < CLIENTS; m++) {
            const double expected = local_loss(m, 0.25, x);
            CU_ASSERT_DOUBLE_EQUAL(local_loss_of(objective, m, x), expected, 1e-13 * expected);
        }
    }
    unmake(objective);
}

static void test_objectives_softmax_regression__loss_at_zero_is_log_classes(void)
{
    struct tally_objective *objective = make(0.5);
    const double x[DIM] = {0};
    double f = 0;
    for (uint32_t m = 0; m < CLIENTS; m++) {
        CU_ASSERT_DOUBLE_EQUAL(local_loss_of(objective, m, x), log(3), 1e-14);
    }
    tally_objective_losses(objective, x, 1, &f, NULL);
    CU_ASSERT_DOUBLE_EQUAL(f, log(3), 1e-6);
    unmake(objective);
}

/* With weights so large that exp(-z) alone is 0 or infinite, the loss is the gap to the best
 * class. */
static void test_objectives_softmax_regression__large_weights_do_not_overflow(void)
{
    struct tally_objective *objective = make(0);
    double x[DIM];
    for (int sign = -1; sign <= 1; sign += 2) {
        fill(x, sign * 4e4, 1);
        for (uint32_t m = 0; m < CLIENTS; m++) {
            const struct tally_shard shard = tally_shard_of(POINTS, CLIENTS, m);
            double expected = 0;
            for (uint32_t i = shard.first; i < shard.first + shard.size; i++) {
                double z[CLASSES] = {0};
                for (size_t k = 0; k < CLASSES; k++) {
                    for (size_t f = 0; f < FEATURES; f++) {
                        z[k] += SET.pixels[i * FEATURES + f] / 255.0 * x[f * CLASSES + k];
                    }
                }
                expected += z[SET.labels[i]] - fmin(z[0], fmin(z[1], z[2]));
            }
            CU_ASSERT_DOUBLE_EQUAL(local_loss_of(objective, m, x), expected / shard.size,
                                   1e-9 * expected);
        }
    }
    unmake(objective);
}

/* The gradient at point `index` of the client's shard. The first word of the stream is in the
 * middle of the words that below(size) maps to index. */
static void gradient_at(const struct tally_objective *objective, uint32_t client, uint32_t index,
                        const double *x, double *ret_gradient)
{
    const uint32_t size = tally_shard_of(POINTS, CLIENTS, client).size;
    const uint64_t middle = ((uint64_t)index << 32) + (UINT64_C(1) << 31);
    struct tally_rng rng = {.block = {(uint32_t)(middle / size)}};
    tally_objective_local_gradient(objective, client, x, 1, &rng, ret_gradient, NULL);
}

/* The exact gradient of f_m: the mean over the shard. */
static void shard_gradient(const struct tally_objective *objective, uint32_t client,
                           const double *x, double *ret_gradient)
{
    const uint32_t size = tally_shard_of(POINTS, CLIENTS, client).size;
    memset(ret_gradient, 0, DIM * sizeof *ret_gradient);
    for (uint32_t i = 0; i < size; i++) {
        double one[DIM];
        gradient_at(objective, client, i, x, one);
        for (size_t j = 0; j < DIM; j++) {
            ret_gradient[j] += one[j] / size;
        }
    }
}

/* Tolerance: truncation is h^2 / 6 times a third derivative of at most about 1, rounding is
 * 1e-16 / h. */
static void test_objectives_softmax_regression__gradient_is_the_slope_of_the_loss(void)
{
    struct tally_objective *objective = make(0.25);
    double x[DIM], gradient[DIM];
    for (int p = 0; p < 3; p++) {
        fill(x, p, p);
        for (uint32_t m = 0; m < CLIENTS; m++) {
            shard_gradient(objective, m, x, gradient);
            for (size_t j = 0; j < DIM; j++) {
                const double h = 1e-5, middle = x[j];
                x[j] = middle + h;
                const double up = local_loss(m, 0.25, x);
                x[j] = middle - h;
                const double down = local_loss(m, 0.25, x);
                x[j] = middle;
                CU_ASSERT_DOUBLE_EQUAL(gradient[j], (up - down) / (2 * h), 2e-10);
            }
        }
    }
    unmake(objective);
}

/* n draws, one after the other from the stream; 600 draws are three blocks. */
static void test_objectives_softmax_regression__several_draws_are_averaged(void)
{
    struct tally_objective *objective = make(0.25);
    static const int64_t counts[] = {1, 2, 25, 256, 257, 600};
    double x[DIM], gradient[DIM], one[DIM];
    fill(x, 1, 1);
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        struct tally_rng rng, again;
        double mean[DIM] = {0};
        tally_rng_init(&rng, tally_rng_key(3, 0), 2, 1, TALLY_RNG_SAMPLING);
        again = rng;
        tally_objective_local_gradient(objective, 2, x, counts[c], &rng, gradient, NULL);
        for (int64_t i = 0; i < counts[c]; i++) {
            gradient_at(objective, 2, tally_rng_below(&again, 5), x, one);
            for (size_t j = 0; j < DIM; j++) {
                mean[j] += one[j] / (double)counts[c];
            }
        }
        for (size_t j = 0; j < DIM; j++) {
            CU_ASSERT_DOUBLE_EQUAL(gradient[j], mean[j], 1e-13);
        }
        CU_ASSERT_EQUAL(tally_rng_u32(&rng), tally_rng_u32(&again)); /* no further draw */
    }
    unmake(objective);
}

static void test_objectives_softmax_regression__no_number_of_draws_means_every_point_once(void)
{
    struct tally_objective *objective = make(0.25);
    double x[DIM], exact[DIM], all[DIM];
    struct tally_rng rng, before;
    tally_rng_init(&rng, tally_rng_key(3, 0), 2, 1, TALLY_RNG_SAMPLING);
    before = rng;
    fill(x, 1, 1);
    for (uint32_t m = 0; m < CLIENTS; m++) {
        shard_gradient(objective, m, x, exact);
        tally_objective_local_gradient(objective, m, x, 0, &rng, all, NULL);
        for (size_t j = 0; j < DIM; j++) {
            CU_ASSERT_DOUBLE_EQUAL(all[j], exact[j], 1e-13);
        }
    }
    CU_ASSERT_EQUAL(memcmp(&rng, &before, sizeof before), 0); /* nothing was drawn */
    unmake(objective);
}

/* f at many points at once, in float32 (softmax_losses.h): the error is a few roundings of 2^-24
 * times the logits, which are below 10 here. */
static void test_objectives_softmax_regression__losses_are_the_mean_of_local_losses(void)
{
    enum { MOST = 33 };
    struct tally_objective *objective = make(0.25);
    double x[MOST * DIM], f[MOST + 1];
    for (size_t p = 0; p < MOST; p++) {
        fill(x + p * DIM, 0.1 * (double)p, (double)p);
    }
    static const size_t counts[] = {1, 2, 7, MOST};
    for (size_t c = 0; c < 4; c++) {
        f[counts[c]] = 4711;
        tally_objective_losses(objective, x, counts[c], f, NULL);
        for (size_t p = 0; p < counts[c]; p++) {
            double expected = 0;
            for (uint32_t m = 0; m < CLIENTS; m++) {
                expected += local_loss(m, 0.25, x + p * DIM) / CLIENTS;
            }
            CU_ASSERT_DOUBLE_EQUAL(f[p], expected, 1e-6);
        }
        CU_ASSERT_EQUAL(f[counts[c]], 4711);
    }
    unmake(objective);
}

/* Newton's method with the exact Hessian and Gaussian elimination: it shares only the definition
 * with the solver. */
static void newton_system(double l2, const double *x, double *gradient, double hessian[DIM][DIM])
{
    memset(hessian, 0, sizeof(double[DIM][DIM]));
    for (size_t i = 0; i < DIM; i++) {
        gradient[i] = 2 * l2 * x[i];
        hessian[i][i] = 2 * l2;
    }
    for (uint32_t m = 0; m < CLIENTS; m++) {
        const struct tally_shard shard = tally_shard_of(POINTS, CLIENTS, m);
        for (uint32_t i = shard.first; i < shard.first + shard.size; i++) {
            const double weight = 1.0 / (CLIENTS * (double)shard.size);
            const uint8_t *v = SET.pixels + i * FEATURES;
            double p[CLASSES];
            point_loss(i, x, p);
            for (size_t a = 0; a < DIM; a++) {
                const size_t f = a / CLASSES, k = a % CLASSES;
                gradient[a] += weight * v[f] / 255.0 * ((SET.labels[i] == k) - p[k]);
                for (size_t b = 0; b < DIM; b++) {
                    const size_t g = b / CLASSES, l = b % CLASSES;
                    hessian[a][b] +=
                        weight * v[f] / 255.0 * v[g] / 255.0 * (p[k] * (k == l) - p[k] * p[l]);
                }
            }
        }
    }
}

static void eliminate(double a[DIM][DIM], double *b)
{
    for (size_t j = 0; j < DIM; j++) { /* positive definite: no pivoting needed */
        for (size_t i = j + 1; i < DIM; i++) {
            const double factor = a[i][j] / a[j][j];
            for (size_t k = j; k < DIM; k++) {
                a[i][k] -= factor * a[j][k];
            }
            b[i] -= factor * b[j];
        }
    }
    for (size_t j = DIM; j-- > 0;) {
        for (size_t k = j + 1; k < DIM; k++) {
            b[j] -= a[j][k] * b[k];
        }
        b[j] /= a[j][j];
    }
}

static void test_objectives_softmax_regression__minimum_is_newton_s(void)
{
    static const double all[] = {0.5, 0.05, 1e-3, 20};
    for (size_t c = 0; c < sizeof all / sizeof all[0]; c++) {
        struct tally_objective *objective = make(all[c]);
        double x[DIM] = {0}, gradient[DIM], hessian[DIM][DIM], expected = 0, norm = 0;
        for (int iteration = 0; iteration < 30; iteration++) {
            newton_system(all[c], x, gradient, hessian);
            eliminate(hessian, gradient);
            for (size_t i = 0; i < DIM; i++) {
                x[i] -= gradient[i];
            }
        }
        for (uint32_t m = 0; m < CLIENTS; m++) {
            expected += local_loss(m, all[c], x) / CLIENTS;
        }
        double f_star = 0, x_star[DIM];
        struct tally_error err = TALLY_ERROR_INIT;
        TALLY_ASSERT_STATUS(tally_objective_minimum(objective, NULL, NULL, &f_star, x_star, &err),
                            TALLY_OK, &err);
        /* A gradient below 1e-8 implies f within 1e-16 / (4 l2) and x within 1e-8 / (2 l2). */
        CU_ASSERT_DOUBLE_EQUAL(f_star, expected, 1e-13 + 1e-16 / (4 * all[c]));
        newton_system(all[c], x_star, gradient, hessian);
        for (size_t i = 0; i < DIM; i++) {
            CU_ASSERT_DOUBLE_EQUAL(x_star[i], x[i], 1e-8 / (2 * all[c]));
            norm += gradient[i] * gradient[i];
        }
        CU_ASSERT_TRUE(sqrt(norm) < 1e-8 * (1 + 1e-6));
        CU_ASSERT_TRUE(f_star < log(3));
        double again = 0;
        CU_ASSERT_EQUAL(tally_objective_minimum(objective, NULL, NULL, &again, NULL, NULL),
                        TALLY_OK);
        CU_ASSERT_EQUAL(again, f_star);
        unmake(objective);
    }
}

/* Without a ridge, separable data have no minimum. */
static void test_objectives_softmax_regression__no_ridge_no_minimum(void)
{
    struct tally_objective *objective = make(0);
    double f_star = 4711;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_objective_minimum(objective, NULL, NULL, &f_star, NULL, &err),
                        TALLY_FAILED_PRECONDITION, &err);
    TALLY_ASSERT_TEXT(err.field, "reference");
    CU_ASSERT_PTR_NOT_NULL(strstr(err.message, "l2 is 0"));
    CU_ASSERT_EQUAL(f_star, 4711);
    unmake(objective);
    objective = make(1e-8); /* a minimum exists, but is not reached within the iteration limit */
    tally_error_clear(&err);
    TALLY_ASSERT_STATUS(tally_objective_minimum(objective, NULL, NULL, &f_star, NULL, &err),
                        TALLY_FAILED_PRECONDITION, &err);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.message, "is l2 too small?"));
    unmake(objective);
}

static void test_objectives_softmax_regression__solver_stops_when_asked(void)
{
    struct tally_objective *objective = make(0.5);
    const atomic_bool stop = true;
    double f_star = 4711;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_objective_minimum(objective, NULL, &stop, &f_star, NULL, &err),
                        TALLY_CANCELLED, &err);
    CU_ASSERT_EQUAL(f_star, 4711);
    unmake(objective);
}

static void test_objectives_softmax_regression__loading_fails_with_the_file_s_name(void)
{
    idx_files_init(&FILES);
    const struct tally_objective_spec spec = spec_of(0.5);
    struct tally_objective *objective = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(
        tally_objective_new(&spec, CLIENTS, tally_rng_key(1, 0), FILES.folder, &objective, &err),
        TALLY_INVALID_ARGUMENT, &err);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.message, "labels (or .gz) is not in"));
    CU_ASSERT_PTR_NULL(objective);
    idx_files_fini(&FILES);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_objectives_softmax_regression__loss_is_the_formula_of_the_paper),
    TALLY_TEST(test_objectives_softmax_regression__loss_at_zero_is_log_classes),
    TALLY_TEST(test_objectives_softmax_regression__large_weights_do_not_overflow),
    TALLY_TEST(test_objectives_softmax_regression__gradient_is_the_slope_of_the_loss),
    TALLY_TEST(test_objectives_softmax_regression__several_draws_are_averaged),
    TALLY_TEST(test_objectives_softmax_regression__no_number_of_draws_means_every_point_once),
    TALLY_TEST(test_objectives_softmax_regression__losses_are_the_mean_of_local_losses),
    TALLY_TEST(test_objectives_softmax_regression__minimum_is_newton_s),
    TALLY_TEST(test_objectives_softmax_regression__no_ridge_no_minimum),
    TALLY_TEST(test_objectives_softmax_regression__solver_stops_when_asked),
    TALLY_TEST(test_objectives_softmax_regression__loading_fails_with_the_file_s_name),
};
TALLY_SUITE(objectives_softmax_regression, TESTS);
