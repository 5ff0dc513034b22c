/* One table of tests that every kind of objective over points must pass. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "services/objectives/data/sharding.h"
#include "services/objectives/solve/domain.h"
#include "tests/harness.h"
#include "tests/unit/services/local_loss.h"
#include "tests/unit/services/objectives/idx_files.h"
#include "tests/unit/services/objectives/objective_checks.h"

/* 41 points in shards of 14, 14 and 13; 3 classes for softmax. */
enum { CLIENTS = 3, POINTS = 41, FEATURES = 6, CLASSES = 3, IDX_POINTS = 21, IDX_PER_CLASS = 7 };

struct kind {
    const char *label;
    enum tally_objective_type type;
    enum tally_data_type data;
    double l2;
    bool bias;
    bool is_strongly_convex;
};
static const struct kind KINDS[] = {
    {"synthetic", TALLY_LEAST_SQUARES, TALLY_DATA_SYNTHETIC_LINEAR, 0, false, true},
    {"synthetic ridge", TALLY_LEAST_SQUARES, TALLY_DATA_SYNTHETIC_LINEAR, 0.3, true, true},
    {"synthetic huber", TALLY_HUBER_REGRESSION, TALLY_DATA_SYNTHETIC_LINEAR, 0, true, false},
    {"least squares", TALLY_LEAST_SQUARES, TALLY_DATA_LIBSVM, 0, false, true},
    {"ridge", TALLY_LEAST_SQUARES, TALLY_DATA_LIBSVM, 0.2, true, true},
    {"logistic", TALLY_LOGISTIC_REGRESSION, TALLY_DATA_LIBSVM, 0, true, false},
    {"logistic ridge", TALLY_LOGISTIC_REGRESSION, TALLY_DATA_LIBSVM, 0.05, false, true},
    {"huber", TALLY_HUBER_REGRESSION, TALLY_DATA_LIBSVM, 0, true, false},
    {"huber ridge", TALLY_HUBER_REGRESSION, TALLY_DATA_LIBSVM, 0.1, false, true},
    {"softmax", TALLY_SOFTMAX_REGRESSION, TALLY_DATA_LIBSVM, 0, true, false},
    {"softmax ridge", TALLY_SOFTMAX_REGRESSION, TALLY_DATA_LIBSVM, 0.1, false, true},
    {"images", TALLY_SOFTMAX_REGRESSION, TALLY_DATA_IDX, 0.1, false, true},
    {"images with bias", TALLY_SOFTMAX_REGRESSION, TALLY_DATA_IDX, 0.1, true, true},
    {"images, least squares", TALLY_LEAST_SQUARES, TALLY_DATA_IDX, 0.01, true, true},
};
enum { N_KINDS = sizeof KINDS / sizeof KINDS[0] };

static struct idx_files FILES;

/* Feature f of point i. A third of the values are zero, and the columns have very different
 * norms. */
static double value_of(uint32_t i, uint32_t f)
{
    return (i + 2 * f) % 3 == 0 ? 0 : sin(3.1 * i + 1.7 * f * f) * pow(2, f - 2.0);
}

/* Labels that depend only partly on the features, so that no classes are separable. */
static double label_of(enum tally_objective_type type, uint32_t i)
{
    const double v = value_of(i, 0) + value_of(i, 1) - value_of(i, 3) + 4 * sin(7.7 * i);
    if (type == TALLY_LOGISTIC_REGRESSION) {
        return v > 0 ? 1 : -1;
    }
    if (type == TALLY_SOFTMAX_REGRESSION) {
        return v > 1 ? 2 : v > -1;
    }
    return i % 10 == 0 ? 20 * v : v; /* some outliers */
}

static void write_libsvm(enum tally_objective_type type)
{
    static char text[1 << 16];
    int n = 0;
    for (uint32_t i = 0; i < POINTS; i++) {
        n += sprintf(text + n, "%.17g", label_of(type, i));
        for (uint32_t f = 0; f < FEATURES; f++) {
            if (value_of(i, f) != 0) {
                n += sprintf(text + n, " %u:%.17g", f + 1, value_of(i, f));
            }
        }
        n += sprintf(text + n, "\n");
    }
    idx_files_write(&FILES, "points", (const uint8_t *)text, (size_t)n);
}

static void write_images(void)
{
    static uint8_t bytes[IDX_MAX_BYTES];
    uint8_t pixels[IDX_POINTS * FEATURES], labels[IDX_POINTS];
    for (uint32_t i = 0; i < IDX_POINTS; i++) {
        labels[i] = (uint8_t)(i % CLASSES);
        for (uint32_t f = 0; f < FEATURES; f++) {
            pixels[i * FEATURES + f] = (uint8_t)(100 + 90 * sin(2.1 * i + 1.3 * f * f));
        }
    }
    idx_files_write(&FILES, "images", bytes, idx_images(IDX_POINTS, 2, 3, pixels, bytes));
    idx_files_write(&FILES, "labels", bytes, idx_labels(IDX_POINTS, labels, bytes));
}

static struct tally_objective_spec spec_of(const struct kind *kind)
{
    struct tally_objective_spec spec = tally_objective_spec_default();
    tally_objective_spec_choose(&spec, (int)kind->type);
    spec.l2 = kind->l2;
    spec.bias = kind->bias;
    spec.data.type = (int)kind->data;
    if (kind->data == TALLY_DATA_SYNTHETIC_LINEAR) {
        spec.data.synthetic_linear = (struct tally_synthetic_linear){
            .dim = FEATURES, .points = POINTS, .frobenius_norm = 9, .noise_std = 2};
    } else if (kind->data == TALLY_DATA_IDX) {
        spec.data.idx = (struct tally_idx_data){.images = "images",
                                                .labels = "labels",
                                                .features = FEATURES,
                                                .classes = CLASSES,
                                                .points_per_class = IDX_PER_CLASS};
    } else {
        snprintf(spec.data.table.file, sizeof spec.data.table.file, "points");
        spec.data.table.features = FEATURES;
        spec.data.table.classes = kind->type == TALLY_SOFTMAX_REGRESSION ? CLASSES : 0;
    }
    return spec;
}

static uint32_t points_of(const struct kind *kind)
{
    return kind->data == TALLY_DATA_IDX ? IDX_POINTS : POINTS;
}

static struct tally_objective *make(const struct kind *kind)
{
    const struct tally_objective_spec spec = spec_of(kind);
    idx_files_init(&FILES);
    write_libsvm(kind->type);
    write_images();
    struct tally_objective *objective = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_objective_spec_validate(&spec, CLIENTS, &err), TALLY_OK, &err);
    TALLY_ASSERT_STATUS(
        tally_objective_new(&spec, CLIENTS, tally_rng_key(5, 0), FILES.folder, &objective, &err),
        TALLY_OK, &err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(objective);
    CU_ASSERT_EQUAL(tally_objective_spec_dim(&spec), objective->dim);
    CU_ASSERT_TRUE_FATAL(objective->dim <= CHECKS_MOST_DIM);
    return objective;
}

static void unmake(struct tally_objective *objective)
{
    tally_objective_free(objective);
    idx_files_fini(&FILES);
}

static void fill(double *x, size_t dim, double scale, double phase)
{
    for (size_t i = 0; i < dim; i++) {
        x[i] = scale * sin(phase + 2.3 * (double)i);
    }
}

static void test_objectives_kinds__gradient_is_the_slope_of_the_loss(void)
{
    for (size_t k = 0; k < N_KINDS; k++) {
        struct tally_objective *objective = make(&KINDS[k]);
        const size_t dim = objective->dim;
        for (uint32_t m = 0; m < CLIENTS; m++) {
            double x[CHECKS_MOST_DIM], gradient[CHECKS_MOST_DIM];
            fill(x, dim, 0.4, m);
            checks_shard_gradient(objective, points_of(&KINDS[k]), m, x, gradient);
            for (size_t j = 0; j < dim; j++) {
                const double h = 1e-5, at = x[j];
                x[j] = at + h;
                const double up = local_loss_of(objective, m, x);
                x[j] = at - h;
                const double down = local_loss_of(objective, m, x);
                x[j] = at;
                CU_ASSERT_DOUBLE_EQUAL(gradient[j], (up - down) / (2 * h),
                                       1e-7 * (1 + fabs(gradient[j])));
            }
        }
        unmake(objective);
    }
}

static void test_objectives_kinds__several_draws_are_averaged(void)
{
    for (size_t k = 0; k < N_KINDS; k++) {
        struct tally_objective *objective = make(&KINDS[k]);
        const size_t dim = objective->dim;
        double x[CHECKS_MOST_DIM], mean[CHECKS_MOST_DIM], sum[CHECKS_MOST_DIM] = {0};
        struct tally_rng together, apart;
        fill(x, dim, 0.4, 1);
        tally_rng_init(&together, tally_rng_key(1, 0), 2, 3, TALLY_RNG_SAMPLING);
        apart = together;
        tally_objective_local_gradient(objective, 2, x, 10, &together, mean, NULL);
        for (int i = 0; i < 10; i++) {
            double one[CHECKS_MOST_DIM];
            tally_objective_local_gradient(objective, 2, x, 1, &apart, one, NULL);
            for (size_t j = 0; j < dim; j++) {
                sum[j] += one[j];
            }
        }
        CU_ASSERT_EQUAL(memcmp(&together, &apart, sizeof apart), 0);
        for (size_t j = 0; j < dim; j++) {
            CU_ASSERT_DOUBLE_EQUAL(mean[j], sum[j] / 10, 1e-12 * (1 + fabs(mean[j])));
        }
        unmake(objective);
    }
}

static void test_objectives_kinds__no_number_of_draws_means_every_point_once(void)
{
    for (size_t k = 0; k < N_KINDS; k++) {
        struct tally_objective *objective = make(&KINDS[k]);
        const size_t dim = objective->dim;
        double x[CHECKS_MOST_DIM], exact[CHECKS_MOST_DIM], all[CHECKS_MOST_DIM];
        struct tally_rng rng, before;
        tally_rng_init(&rng, tally_rng_key(1, 0), 2, 3, TALLY_RNG_SAMPLING);
        before = rng;
        for (uint32_t m = 0; m < CLIENTS; m++) {
            fill(x, dim, 0.4, m);
            checks_shard_gradient(objective, points_of(&KINDS[k]), m, x, exact);
            tally_objective_local_gradient(objective, m, x, 0, &rng, all, NULL);
            for (size_t j = 0; j < dim; j++) {
                CU_ASSERT_DOUBLE_EQUAL(all[j], exact[j], 1e-12 * (1 + fabs(exact[j])));
            }
        }
        CU_ASSERT_EQUAL(memcmp(&rng, &before, sizeof before), 0); /* nothing was drawn */
        unmake(objective);
    }
}

static void test_objectives_kinds__losses_are_the_mean_of_local_losses(void)
{
    for (size_t k = 0; k < N_KINDS; k++) {
        struct tally_objective *objective = make(&KINDS[k]);
        const size_t dim = objective->dim;
        double x[3 * CHECKS_MOST_DIM], f[4] = {0, 0, 0, 4711};
        for (size_t p = 0; p < 3; p++) {
            fill(x + p * dim, dim, (double)p, (double)p);
        }
        CU_ASSERT_EQUAL(tally_objective_losses(objective, x, 3, f, NULL), TALLY_OK);
        for (size_t p = 0; p < 3; p++) {
            const double expected = checks_full_loss(objective, x + p * dim);
            /* images have a float32 kernel for this (softmax_losses.h) */
            CU_ASSERT_DOUBLE_EQUAL(f[p], expected, 1e-6 * (1 + expected));
        }
        CU_ASSERT_EQUAL(f[3], 4711);
        unmake(objective);
    }
}

/* At the minimum the gradient vanishes and f is larger elsewhere. This suffices, since f is
 * convex. */
static void test_objectives_kinds__minimum_is_one(void)
{
    for (size_t k = 0; k < N_KINDS; k++) {
        struct tally_objective *objective = make(&KINDS[k]);
        const size_t dim = objective->dim;
        double f_star = NAN, x[CHECKS_MOST_DIM], x_star[CHECKS_MOST_DIM], at_zero[CHECKS_MOST_DIM],
               gradient[CHECKS_MOST_DIM];
        struct tally_error err = TALLY_ERROR_INIT;
        TALLY_ASSERT_STATUS(tally_objective_minimum(objective, NULL, NULL, &f_star, x_star, &err),
                            TALLY_OK, &err);
        fill(x, dim, 0, 0);
        checks_full_gradient(objective, points_of(&KINDS[k]), x, at_zero);
        checks_full_gradient(objective, points_of(&KINDS[k]), x_star, gradient);
        CU_ASSERT_TRUE(checks_norm(at_zero, dim) > 0.01);
        CU_ASSERT_TRUE(checks_norm(gradient, dim) < 1e-7 * checks_norm(at_zero, dim));
        CU_ASSERT_DOUBLE_EQUAL(checks_full_loss(objective, x_star), f_star, 1e-12 * f_star);
        for (int i = 0; i < 50; i++) {
            fill(x, dim, pow(10, -i % 4), i);
            for (size_t j = 0; j < dim; j++) {
                x[j] += x_star[j];
            }
            CU_ASSERT_TRUE(checks_full_loss(objective, x) >= f_star);
        }
        unmake(objective);
    }
}

/* Classes separated by a plane: without a ridge f decreases forever, towards 0, or towards another
 * value if other points lie on the plane itself. */
static void test_objectives_kinds__separable_classes_have_no_minimum(void)
{
    static const char *const files[] = {"1 1:2 2:1\n1 1:3\n0 1:-1 2:0.5\n0 1:-2 2:-3\n",
                                        "1 1:2 2:1\n1 2:1\n0 1:-1 2:0.5\n0 2:1\n"};
    const double infima[] = {0, 0.5 * log(2)};
    for (size_t f = 0; f < 2; f++) {
        for (size_t k = 0; k < 2; k++) {
            struct tally_objective_spec spec = tally_objective_spec_default();
            struct tally_objective *objective = NULL;
            struct tally_error err = TALLY_ERROR_INIT;
            double f_star = 42;
            spec.type = k == 0 ? TALLY_LOGISTIC_REGRESSION : TALLY_SOFTMAX_REGRESSION;
            spec.data.type = TALLY_DATA_LIBSVM;
            spec.data.table = (struct tally_table_data){
                .file = "points", .features = 2, .classes = k == 0 ? 0 : 2};
            idx_files_init(&FILES);
            idx_files_write(&FILES, "points", (const uint8_t *)files[f], strlen(files[f]));
            TALLY_ASSERT_STATUS(
                tally_objective_new(&spec, 2, tally_rng_key(5, 0), FILES.folder, &objective, &err),
                TALLY_OK, &err);
            TALLY_ASSERT_STATUS(tally_objective_minimum(objective, NULL, NULL, &f_star, NULL, &err),
                                TALLY_FAILED_PRECONDITION, &err);
            TALLY_ASSERT_TEXT(err.field, "reference");
            CU_ASSERT_PTR_NOT_NULL(strstr(err.message, "f(x) has no minimum"));
            CU_ASSERT_EQUAL(f_star, 42);
            /* In a domain there is a minimum. */
            const struct tally_domain ball = {.type = TALLY_DOMAIN_BALL, .radius = 10};
            double x_star[4];
            struct tally_error none = TALLY_ERROR_INIT;
            TALLY_ASSERT_STATUS(
                tally_objective_minimum(objective, &ball, NULL, &f_star, x_star, &none), TALLY_OK,
                &none);
            CU_ASSERT_DOUBLE_EQUAL(checks_norm(x_star, objective->dim), 10, 1e-9);
            CU_ASSERT_TRUE(f_star > infima[f] && f_star < infima[f] + 0.01);
            unmake(objective);
        }
    }
}

/* The solver stops on request. */
static void test_objectives_kinds__solver_stops_when_asked(void)
{
    const atomic_bool stop = true;
    for (size_t k = 0; k < N_KINDS; k++) {
        struct tally_objective *objective = make(&KINDS[k]);
        const struct tally_domain ball = {.type = TALLY_DOMAIN_BALL, .radius = 0.01};
        double f_star = 42;
        CU_ASSERT_EQUAL(tally_objective_minimum(objective, NULL, &stop, &f_star, NULL, NULL),
                        TALLY_CANCELLED);
        CU_ASSERT_EQUAL(tally_objective_minimum(objective, &ball, &stop, &f_star, NULL, NULL),
                        TALLY_CANCELLED);
        CU_ASSERT_EQUAL(f_star, 42);
        unmake(objective);
    }
}

/* A bias is a feature that is 1 everywhere. */
static void test_objectives_kinds__bias_is_a_feature_of_ones(void)
{
    static const enum tally_objective_type types[] = {
        TALLY_LEAST_SQUARES, TALLY_LOGISTIC_REGRESSION, TALLY_HUBER_REGRESSION,
        TALLY_SOFTMAX_REGRESSION};
    for (size_t t = 0; t < 4; t++) {
        const struct kind kind = {.type = types[t], .data = TALLY_DATA_LIBSVM, .l2 = 0.1};
        struct tally_objective *objectives[2] = {NULL, NULL};
        char text[1 << 14];
        for (int i = 0; i < 2; i++) {
            struct tally_objective_spec spec = spec_of(&kind);
            int n = 0;
            spec.bias = i == 0;
            spec.data.table.features = i == 0 ? 2 : 3;
            for (uint32_t p = 0; p < 10; p++) {
                n += sprintf(text + n, "%.17g 1:%.17g 2:%.17g%s\n", label_of(types[t], p),
                             cos(1.1 * p), sin(2.3 * p), i == 0 ? "" : " 3:1");
            }
            idx_files_init(&FILES);
            idx_files_write(&FILES, "points", (const uint8_t *)text, (size_t)n);
            CU_ASSERT_EQUAL_FATAL(tally_objective_new(&spec, CLIENTS, tally_rng_key(5, 0),
                                                      FILES.folder, &objectives[i], NULL),
                                  TALLY_OK);
            idx_files_fini(&FILES);
        }
        const size_t dim = objectives[0]->dim;
        CU_ASSERT_EQUAL_FATAL(dim, objectives[1]->dim);
        double x[CHECKS_MOST_DIM], f[2], gradients[2][CHECKS_MOST_DIM];
        struct tally_curvature curvature[2];
        fill(x, dim, 0.7, 2);
        for (int i = 0; i < 2; i++) {
            checks_full_gradient(objectives[i], 10, x, gradients[i]);
            CU_ASSERT_EQUAL(tally_objective_minimum(objectives[i], NULL, NULL, &f[i], NULL, NULL),
                            TALLY_OK);
            tally_objective_curvature(objectives[i], NULL, &curvature[i], NULL);
        }
        CU_ASSERT_TRUE(checks_distance(gradients[0], gradients[1], dim) < 1e-14);
        CU_ASSERT_DOUBLE_EQUAL(f[0], f[1], 1e-12 * f[1]);
        CU_ASSERT_DOUBLE_EQUAL(curvature[0].smoothness, curvature[1].smoothness, 1e-4);
        tally_objective_free(objectives[0]);
        tally_objective_free(objectives[1]);
    }
}

/* In a domain that excludes x*, a step along -gradient from the minimum is projected back to it. */
static void test_objectives_kinds__minimum_in_a_domain_is_one(void)
{
    for (size_t k = 0; k < 2 * N_KINDS; k++) {
        const struct kind *kind = &KINDS[k / 2];
        struct tally_objective *objective = make(kind);
        const size_t dim = objective->dim;
        double f_free = NAN, f_star = NAN, x[CHECKS_MOST_DIM], x_free[CHECKS_MOST_DIM],
               x_star[CHECKS_MOST_DIM], gradient[CHECKS_MOST_DIM], at_zero[CHECKS_MOST_DIM];
        struct tally_error err = TALLY_ERROR_INIT;
        tally_objective_minimum(objective, NULL, NULL, &f_free, x_free, NULL);
        const double radius = checks_norm(x_free, dim) / 2;
        const struct tally_domain domain = {.type =
                                                k % 2 == 0 ? TALLY_DOMAIN_BALL : TALLY_DOMAIN_BOX,
                                            .radius = radius,
                                            .lower = -radius / sqrt((double)dim),
                                            .upper = radius / sqrt((double)dim) / 3};
        TALLY_ASSERT_STATUS(
            tally_objective_minimum(objective, &domain, NULL, &f_star, x_star, &err), TALLY_OK,
            &err);
        CU_ASSERT_TRUE(tally_domain_is_inside(&domain, x_star, dim));
        CU_ASSERT_TRUE(f_star > f_free);
        CU_ASSERT_DOUBLE_EQUAL(checks_full_loss(objective, x_star), f_star, 1e-12 * f_star);
        checks_full_gradient(objective, points_of(kind), x_star, gradient);
        for (size_t j = 0; j < dim; j++) {
            x[j] = x_star[j] - 0.01 * gradient[j];
        }
        tally_domain_project(&domain, x, dim);
        fill(x_free, dim, 0, 0);
        checks_full_gradient(objective, points_of(kind), x_free, at_zero);
        struct tally_curvature curvature = TALLY_CURVATURE_UNKNOWN;
        tally_objective_curvature(objective, NULL, &curvature, NULL);
        const double tolerance = 1e-7 * checks_norm(at_zero, dim);
        CU_ASSERT_TRUE(checks_norm(gradient, dim) > 100 * tolerance);
        CU_ASSERT_TRUE(checks_distance(x, x_star, dim) <
                       tolerance / fmin(100, curvature.smoothness));
        /* A domain that contains x* changes nothing. */
        const struct tally_domain wide = {.type = TALLY_DOMAIN_BALL, .radius = 5 * radius};
        TALLY_ASSERT_STATUS(tally_objective_minimum(objective, &wide, NULL, &f_star, NULL, &err),
                            TALLY_OK, &err);
        CU_ASSERT_DOUBLE_EQUAL(f_star, f_free, 1e-10 * f_free);
        unmake(objective);
    }
}

/* The difference of the gradients at two points is at most `smoothness` times their distance. Its
 * component along the line between them is at least `strong_convexity` times the distance. */
static void test_objectives_kinds__curvature_bounds_the_gradients(void)
{
    for (size_t k = 0; k < N_KINDS; k++) {
        struct tally_objective *objective = make(&KINDS[k]);
        const size_t dim = objective->dim;
        struct tally_curvature curvature = TALLY_CURVATURE_UNKNOWN;
        CU_ASSERT_EQUAL(tally_objective_curvature(objective, NULL, &curvature, NULL), TALLY_OK);
        CU_ASSERT_EQUAL(curvature.strong_convexity > 0, KINDS[k].is_strongly_convex);
        double a[CHECKS_MOST_DIM], b[CHECKS_MOST_DIM], at_a[CHECKS_MOST_DIM], at_b[CHECKS_MOST_DIM];
        for (int i = 0; i < 60; i++) {
            fill(a, dim, pow(4, i % 4 - 2), i);
            fill(b, dim, pow(4, i % 3 - 2), 1.7 * i + 1);
            checks_full_gradient(objective, points_of(&KINDS[k]), a, at_a);
            checks_full_gradient(objective, points_of(&KINDS[k]), b, at_b);
            const double distance = checks_distance(a, b, dim);
            double along = 0;
            for (size_t j = 0; j < dim; j++) {
                along += (at_a[j] - at_b[j]) * (a[j] - b[j]) / distance / distance;
            }
            CU_ASSERT_TRUE(checks_distance(at_a, at_b, dim) <= curvature.smoothness * distance);
            CU_ASSERT_TRUE(along >= curvature.strong_convexity * (1 - 1e-9) - 1e-12);
        }
        unmake(objective);
    }
}

/* Computes the eigenvalues of h, double[dim][dim], by Jacobi rotations: they end up on the
 * diagonal. */
static void diagonalise(double *h, size_t dim)
{
    for (int sweep = 0; sweep < 30; sweep++) {
        for (size_t p = 0; p < dim; p++) {
            for (size_t q = p + 1; q < dim; q++) {
                const double angle =
                    0.5 * atan2(2 * h[p * dim + q], h[q * dim + q] - h[p * dim + p]);
                const double c = cos(angle), s = sin(angle);
                for (size_t i = 0; i < dim; i++) {
                    const double a = h[i * dim + p], b = h[i * dim + q];
                    h[i * dim + p] = c * a - s * b;
                    h[i * dim + q] = s * a + c * b;
                }
                for (size_t i = 0; i < dim; i++) {
                    const double a = h[p * dim + i], b = h[q * dim + i];
                    h[p * dim + i] = c * a - s * b;
                    h[q * dim + i] = s * a + c * b;
                }
            }
        }
    }
}

/* The Hessian of least squares is constant: differences of gradients are its columns. */
static void test_objectives_kinds__curvature_of_least_squares_is_exact(void)
{
    for (size_t k = 0; k < N_KINDS; k++) {
        if (KINDS[k].type != TALLY_LEAST_SQUARES) {
            continue;
        }
        struct tally_objective *objective = make(&KINDS[k]);
        const size_t dim = objective->dim;
        double h[CHECKS_MOST_DIM * CHECKS_MOST_DIM],
            x[CHECKS_MOST_DIM] = {0}, at_zero[CHECKS_MOST_DIM], smallest = INFINITY, largest = 0;
        checks_full_gradient(objective, points_of(&KINDS[k]), x, at_zero);
        for (size_t j = 0; j < dim; j++) {
            x[j] = 1;
            checks_full_gradient(objective, points_of(&KINDS[k]), x, h + j * dim);
            x[j] = 0;
            for (size_t i = 0; i < dim; i++) {
                h[j * dim + i] -= at_zero[i];
            }
        }
        diagonalise(h, dim);
        for (size_t j = 0; j < dim; j++) {
            smallest = fmin(smallest, h[j * dim + j]);
            largest = fmax(largest, h[j * dim + j]);
        }
        struct tally_curvature curvature = TALLY_CURVATURE_UNKNOWN;
        CU_ASSERT_EQUAL(tally_objective_curvature(objective, NULL, &curvature, NULL), TALLY_OK);
        CU_ASSERT_DOUBLE_EQUAL(curvature.smoothness, largest, 1e-10 * largest);
        CU_ASSERT_DOUBLE_EQUAL(curvature.strong_convexity, smallest, 1e-10 * largest);
        unmake(objective);
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_objectives_kinds__gradient_is_the_slope_of_the_loss),
    TALLY_TEST(test_objectives_kinds__several_draws_are_averaged),
    TALLY_TEST(test_objectives_kinds__no_number_of_draws_means_every_point_once),
    TALLY_TEST(test_objectives_kinds__losses_are_the_mean_of_local_losses),
    TALLY_TEST(test_objectives_kinds__minimum_is_one),
    TALLY_TEST(test_objectives_kinds__separable_classes_have_no_minimum),
    TALLY_TEST(test_objectives_kinds__solver_stops_when_asked),
    TALLY_TEST(test_objectives_kinds__bias_is_a_feature_of_ones),
    TALLY_TEST(test_objectives_kinds__minimum_in_a_domain_is_one),
    TALLY_TEST(test_objectives_kinds__curvature_bounds_the_gradients),
    TALLY_TEST(test_objectives_kinds__curvature_of_least_squares_is_exact),
};
TALLY_SUITE(objectives_kinds, TESTS);
