/* Objectives that are the mean over all points: 21 points in shards of 6, 5, 5 and 5. */
#include <math.h>

#include "services/objectives/objective.h"
#include "tests/harness.h"
#include "tests/unit/services/local_loss.h"
#include "tests/unit/services/objectives/idx_files.h"

enum { N = 21, CLIENTS = 4, CLASSES = 3, FEATURES = 6, MOST_DIM = (FEATURES + 1) * CLASSES };

static struct idx_files FILES;

static const struct kind {
    enum tally_objective_type type;
    bool is_idx, bias;
} KINDS[] = {
    {TALLY_LEAST_SQUARES, false, false},     /* by its quadratic form */
    {TALLY_HUBER_REGRESSION, false, false},  /* by a search */
    {TALLY_SOFTMAX_REGRESSION, true, false}, /* softmax_images.c */
    {TALLY_SOFTMAX_REGRESSION, true, true},  /* softmax_points.c */
};
enum { N_KINDS = sizeof KINDS / sizeof KINDS[0] };

static void write_images(void)
{
    static uint8_t bytes[IDX_MAX_BYTES];
    uint8_t pixels[N * FEATURES], labels[N];
    for (int i = 0; i < N * FEATURES; i++) {
        pixels[i] = (uint8_t)(i * (i % 97) * 37 % 251);
    }
    for (int i = 0; i < N; i++) {
        labels[i] = (uint8_t)(i % CLASSES);
    }
    idx_files_write(&FILES, "images", bytes, idx_images(N, 2, 3, pixels, bytes));
    idx_files_write(&FILES, "labels", bytes, idx_labels(N, labels, bytes));
}

static struct tally_objective *make(const struct kind *kind, uint32_t clients, int weighting)
{
    struct tally_objective_spec spec = tally_objective_spec_default();
    tally_objective_spec_choose(&spec, (int)kind->type);
    spec.bias = kind->bias;
    spec.l2 = 0.1;
    spec.weighting = weighting;
    spec.data.type = kind->is_idx ? TALLY_DATA_IDX : TALLY_DATA_SYNTHETIC_LINEAR;
    spec.data.synthetic_linear = (struct tally_synthetic_linear){
        .dim = FEATURES, .points = N, .frobenius_norm = 5, .noise_std = 1};
    spec.data.idx = (struct tally_idx_data){.images = "images",
                                            .labels = "labels",
                                            .features = FEATURES,
                                            .classes = CLASSES,
                                            .points_per_class = N / CLASSES};
    struct tally_objective *objective = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(
        tally_objective_new(&spec, clients, tally_rng_key(3, 0), FILES.folder, &objective, &err),
        TALLY_OK, &err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(objective);
    return objective;
}

/* sum n_m f_m / sum n_m */
static double mean_over_points(const struct tally_objective *objective, const double *x)
{
    double sum = 0, n = 0;
    for (uint32_t m = 0; m < objective->clients; m++) {
        uint32_t n_m = 0;
        CU_ASSERT_EQUAL(tally_objective_points(objective, m, &n_m, NULL), TALLY_OK);
        sum += n_m * local_loss_of(objective, m, x);
        n += n_m;
    }
    CU_ASSERT_EQUAL(n, N);
    return sum / n;
}

static double f_of(const struct tally_objective *objective, const double *x)
{
    double f = NAN;
    CU_ASSERT_EQUAL(tally_objective_losses(objective, x, 1, &f, NULL), TALLY_OK);
    return f;
}

static void test_objectives_weighting__f_is_the_mean_over_all_points(void)
{
    idx_files_init(&FILES);
    write_images();
    for (size_t k = 0; k < N_KINDS; k++) {
        struct tally_objective *objective = make(&KINDS[k], CLIENTS, TALLY_WEIGHTING_POINTS);
        struct tally_objective *equal = make(&KINDS[k], CLIENTS, TALLY_WEIGHTING_EQUAL);
        double x[MOST_DIM], f_star = NAN, x_star[MOST_DIM];
        for (int i = 0; i < MOST_DIM; i++) {
            x[i] = sin(i + 1);
        }
        /* images have a float32 kernel for this */
        const double f = mean_over_points(objective, x), most = KINDS[k].is_idx ? 1e-7 : 1e-13;
        CU_ASSERT_DOUBLE_EQUAL(f_of(objective, x), f, most * f);
        CU_ASSERT_TRUE(fabs(f_of(equal, x) - f) > 1e-4 * f);
        CU_ASSERT_EQUAL(tally_objective_minimum(objective, NULL, NULL, &f_star, x_star, NULL),
                        TALLY_OK);
        CU_ASSERT_DOUBLE_EQUAL(mean_over_points(objective, x_star), f_star, 1e-12);
        for (size_t i = 0; i < 2 * objective->dim; i++) { /* the minimum up to rounding */
            const double kept = x_star[i / 2];
            x_star[i / 2] += i % 2 == 0 ? 1e-4 : -1e-4;
            CU_ASSERT_TRUE(mean_over_points(objective, x_star) > f_star + 1e-10);
            x_star[i / 2] = kept;
        }
        tally_objective_free(objective);
        tally_objective_free(equal);
    }
    idx_files_fini(&FILES);
}

/* Three shards of seven give the same doubles as without weights. */
static void test_objectives_weighting__equal_shards_change_no_bit(void)
{
    idx_files_init(&FILES);
    write_images();
    for (size_t k = 0; k < N_KINDS; k++) {
        double f[2], f_star[2], x[MOST_DIM] = {0.3, -0.4, 0.25}, x_star[2][MOST_DIM];
        struct tally_curvature curvature[2];
        for (int weighting = 0; weighting < 2; weighting++) {
            struct tally_objective *objective = make(&KINDS[k], 3, weighting);
            f[weighting] = f_of(objective, x);
            CU_ASSERT_EQUAL(tally_objective_minimum(objective, NULL, NULL, &f_star[weighting],
                                                    x_star[weighting], NULL),
                            TALLY_OK);
            CU_ASSERT_EQUAL(tally_objective_curvature(objective, NULL, &curvature[weighting], NULL),
                            TALLY_OK);
            tally_objective_free(objective);
        }
        CU_ASSERT_EQUAL(f[0], f[1]);
        CU_ASSERT_EQUAL(f_star[0], f_star[1]);
        CU_ASSERT_EQUAL(x_star[0][0], x_star[1][0]);
        CU_ASSERT_EQUAL(curvature[0].smoothness, curvature[1].smoothness);
        CU_ASSERT_EQUAL(curvature[0].strong_convexity, curvature[1].strong_convexity);
    }
    idx_files_fini(&FILES);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_objectives_weighting__f_is_the_mean_over_all_points),
    TALLY_TEST(test_objectives_weighting__equal_shards_change_no_bit),
};
TALLY_SUITE(objectives_weighting, TESTS);
