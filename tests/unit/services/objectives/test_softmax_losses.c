#include "services/objectives/losses/softmax_losses.h"

#include <math.h>

#include "codec/numeric/rng.h"
#include "tests/harness.h"

enum { FEATURES = 49, CLASSES = 10, DIM = FEATURES * CLASSES, MAX_POINTS = 40, MAX_IMAGES = 2000 };

static uint8_t pixels[MAX_IMAGES * FEATURES], labels[MAX_IMAGES];
static double points[MAX_POINTS * DIM];

/* Images that are mostly black, with random labels. */
static struct tally_idx_set images(uint32_t n)
{
    struct tally_rng rng;
    struct tally_idx_set set = {n, FEATURES, pixels, labels};
    tally_rng_init(&rng, tally_rng_key(7, 0), 0, 0, TALLY_RNG_COVARIATES);
    for (size_t i = 0; i < n * (size_t)FEATURES; i++) {
        const bool is_black = tally_rng_below(&rng, 5) != 0;
        set.pixels[i] = is_black ? (uint8_t)0 : (uint8_t)tally_rng_below(&rng, 256);
    }
    for (size_t i = 0; i < n; i++) {
        set.labels[i] = (uint8_t)tally_rng_below(&rng, CLASSES);
    }
    return set;
}

static void make_points(size_t n, double scale)
{
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(8, 0), 0, 0, TALLY_RNG_NOISE);
    tally_rng_normal(&rng, points, n * DIM);
    for (size_t i = 0; i < n * DIM; i++) {
        points[i] *= scale;
    }
}

/* Returns the largest relative difference to the plain C version over n points. */
static double worst_error(uint32_t n_images, uint32_t clients, size_t n, double scale)
{
    const struct tally_idx_set set = images(n_images);
    make_points(n, scale);
    double fast[MAX_POINTS], plain[MAX_POINTS], worst = 0;
    CU_ASSERT_TRUE(tally_softmax_losses(&set, CLASSES, clients, points, n, fast));
    CU_ASSERT_TRUE(tally_softmax_losses_ref(&set, CLASSES, clients, points, n, plain));
    for (size_t p = 0; p < n; p++) {
        CU_ASSERT_TRUE(plain[p] > 0.1);
        worst = fmax(worst, fabs(fast[p] / plain[p] - 1));
        CU_ASSERT_FALSE(isnan(fast[p]));
    }
    return worst;
}

static void test_objectives_softmax_losses__agree_with_plain_double(void)
{
    CU_ASSERT_TRUE(worst_error(2000, 10, 40, 0.1) < 1e-8);
    CU_ASSERT_TRUE(worst_error(2000, 10, 40, 1) < 1e-8);
}

static void test_objectives_softmax_losses__every_block_and_shard_counts_once(void)
{
    static const uint32_t n_images[] = {4, 255, 256, 257, 511, 512, 513, 1025};
    static const uint32_t n_clients[] = {1, 2, 3, 4};
    for (size_t i = 0; i < sizeof n_images / sizeof n_images[0]; i++) {
        for (size_t c = 0; c < sizeof n_clients / sizeof n_clients[0]; c++) {
            CU_ASSERT_TRUE(worst_error(n_images[i], n_clients[c], 1, 0.3) < 1e-6);
            CU_ASSERT_TRUE(worst_error(n_images[i], n_clients[c], 9, 0.3) < 1e-6);
        }
    }
}

/* Logits so far apart that exponentials underflow, and so close that all classes are equal. */
static void test_objectives_softmax_losses__large_weights_stay_finite(void)
{
    CU_ASSERT_TRUE(worst_error(1500, 1, 3, 100) < 1e-3);
    CU_ASSERT_TRUE(worst_error(1500, 1, 3, 1e-9) < 1e-6);
}

/* At equal weights every sum of exponentials is the number of classes. The product over a block of
 * 256 rows, up to 256^256 = 10^616, must therefore be split. */
static void test_objectives_softmax_losses__many_classes_do_not_overflow_the_product(void)
{
    static uint8_t black[300 * 2], classes_of[300];
    static const double zeros[2 * 256];
    static const size_t n_classes[] = {2, 10, 16, 17, 100, 256};
    const struct tally_idx_set set = {300, 2, black, classes_of};
    for (size_t c = 0; c < sizeof n_classes / sizeof n_classes[0]; c++) {
        double loss = 0;
        CU_ASSERT_TRUE(tally_softmax_losses(&set, n_classes[c], 1, zeros, 1, &loss));
        CU_ASSERT_DOUBLE_EQUAL(loss, log((double)n_classes[c]), 1e-12);
    }
}

/* A point's loss does not depend on the other points, except for the summation order, which varies
 * with the shape of the product. */
static void test_objectives_softmax_losses__points_do_not_disturb_each_other(void)
{
    const struct tally_idx_set set = images(700);
    make_points(3, 0.3);
    double together[3], alone;
    CU_ASSERT_TRUE(tally_softmax_losses(&set, CLASSES, 4, points, 3, together));
    for (size_t p = 0; p < 3; p++) {
        CU_ASSERT_TRUE(tally_softmax_losses(&set, CLASSES, 4, points + p * DIM, 1, &alone));
        CU_ASSERT_DOUBLE_EQUAL(alone, together[p], 1e-7);
    }
}

static void test_objectives_softmax_losses__exponentials_are_right_to_a_rounding(void)
{
    enum { STEPS = 200000 };
    static float values[STEPS + 1];
    for (int i = 0; i <= STEPS; i++) {
        values[i] = -87.0f * (float)i / STEPS;
    }
    tally_exp_of_negatives(values, STEPS + 1);
    double worst = 0, bias = 0;
    for (int i = 0; i <= STEPS; i++) {
        const double error = (double)values[i] / exp((double)(-87.0f * (float)i / STEPS)) - 1;
        worst = fmax(worst, fabs(error));
        bias += error / STEPS;
    }
    CU_ASSERT_TRUE(worst <= 1.5e-7);
    CU_ASSERT_TRUE(fabs(bias) <= 1e-8); /* this part does not average out over many images */
    CU_ASSERT_EQUAL(values[0], 1);
    float ends[] = {0.0f, -0.0f, -1e-30f, -87.0f, -1e30f, -INFINITY, NAN};
    tally_exp_of_negatives(ends, sizeof ends / sizeof ends[0]);
    CU_ASSERT_TRUE(ends[0] == 1 && ends[1] == 1 && ends[2] == 1);
    CU_ASSERT_TRUE(ends[3] == values[STEPS] && ends[4] == ends[3] && ends[5] == ends[3]);
    CU_ASSERT_TRUE(isnan(ends[6]));
}

/* The vector loop and its remainder loop agree. */
static void test_objectives_softmax_losses__exponentials_do_not_depend_on_their_place(void)
{
    float many[67];
    for (int i = 0; i < 67; i++) {
        many[i] = -0.37f * (float)i;
    }
    tally_exp_of_negatives(many, 67);
    for (int i = 0; i < 67; i++) {
        float one = -0.37f * (float)i;
        tally_exp_of_negatives(&one, 1);
        CU_ASSERT_EQUAL(one, many[i]);
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_objectives_softmax_losses__agree_with_plain_double),
    TALLY_TEST(test_objectives_softmax_losses__every_block_and_shard_counts_once),
    TALLY_TEST(test_objectives_softmax_losses__large_weights_stay_finite),
    TALLY_TEST(test_objectives_softmax_losses__many_classes_do_not_overflow_the_product),
    TALLY_TEST(test_objectives_softmax_losses__points_do_not_disturb_each_other),
    TALLY_TEST(test_objectives_softmax_losses__exponentials_are_right_to_a_rounding),
    TALLY_TEST(test_objectives_softmax_losses__exponentials_do_not_depend_on_their_place),
};
TALLY_SUITE(objectives_softmax_losses, TESTS);
