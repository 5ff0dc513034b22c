#include "services/objectives/solve/domain.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codec/numeric/rng.h"
#include "tests/harness.h"

enum { DIM = 7 };

static struct tally_domain ball(double radius)
{
    return (struct tally_domain){.type = TALLY_DOMAIN_BALL, .radius = radius};
}

static struct tally_domain box(double lower, double upper)
{
    return (struct tally_domain){.type = TALLY_DOMAIN_BOX, .lower = lower, .upper = upper};
}

/* Draws a point of norm `radius`, a different one for each number. */
static void draw(uint32_t number, double radius, double *ret_x, size_t dim)
{
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(99, 0), 0, number, TALLY_RNG_SAMPLING);
    tally_rng_direction(&rng, radius, ret_x, dim);
}

static double distance(const double *a, const double *b, size_t dim)
{
    double square = 0;
    for (size_t i = 0; i < dim; i++) {
        square += (a[i] - b[i]) * (a[i] - b[i]);
    }
    return sqrt(square);
}

static void test_objectives_domain__known_projections(void)
{
    struct tally_domain domain = {0};
    double x[3] = {3, -4, 12};
    tally_domain_project(&domain, x, 3); /* all of R^d */
    CU_ASSERT_TRUE(x[0] == 3 && x[1] == -4 && x[2] == 12);
    domain = box(-1, 5);
    tally_domain_project(&domain, x, 3);
    CU_ASSERT_TRUE(x[0] == 3 && x[1] == -1 && x[2] == 5);
    double y[3] = {3, -4, 12}; /* of norm 13 */
    domain = ball(6.5);
    tally_domain_project(&domain, y, 3);
    CU_ASSERT_TRUE(y[0] == 1.5 && y[1] == -2 && y[2] == 6);
    double z[2] = {7, 9}; /* a box may exclude 0 */
    domain = box(-3, -2);
    tally_domain_project(&domain, z, 2);
    CU_ASSERT_TRUE(z[0] == -2 && z[1] == -2);
}

/* Despite rounding, a projected point is inside, and projecting it again changes nothing. */
static void test_objectives_domain__a_projected_point_is_a_fixed_point(void)
{
    static const size_t dims[] = {1, 2, DIM, 30, 7840};
    double *x = malloc(7840 * sizeof *x), *again = malloc(7840 * sizeof *again);
    CU_ASSERT_FATAL(x != NULL && again != NULL);
    int refused = 0;
    for (uint32_t n = 0; n < 2000; n++) {
        const size_t dim = dims[n % 5];
        const struct tally_domain domain =
            n % 3 == 0 ? box(-0.1, 0.3) : ball(0.1 + 0.37 * (double)(n % 97));
        draw(n, 1e-3 + 100 * (double)(n % 89), x, dim);
        tally_domain_project(&domain, x, dim);
        refused += !tally_domain_is_inside(&domain, x, dim);
        memcpy(again, x, dim * sizeof *x);
        tally_domain_project(&domain, again, dim);
        refused += memcmp(again, x, dim * sizeof *x) != 0;
    }
    CU_ASSERT_EQUAL(refused, 0);
    free(x);
    free(again);
}

static void test_objectives_domain__points_inside_stay_bit_for_bit(void)
{
    const struct tally_domain domains[] = {ball(2), box(-2, 2), {0}};
    for (size_t i = 0; i < 3; i++) {
        double x[DIM], before[DIM];
        draw((uint32_t)i, 1.9, x, DIM);
        memcpy(before, x, sizeof x);
        CU_ASSERT_TRUE(tally_domain_is_inside(&domains[i], x, DIM));
        tally_domain_project(&domains[i], x, DIM);
        CU_ASSERT_EQUAL(memcmp(x, before, sizeof x), 0);
    }
}

/* None of many points inside is nearer. */
static void test_objectives_domain__it_is_the_nearest_point(void)
{
    const struct tally_domain domains[] = {ball(0.8), box(-0.25, 0.5)};
    for (size_t i = 0; i < 2; i++) {
        for (uint32_t n = 0; n < 50; n++) {
            double x[DIM], nearest[DIM];
            draw(n, 3, x, DIM);
            memcpy(nearest, x, sizeof x);
            tally_domain_project(&domains[i], nearest, DIM);
            const double least = distance(x, nearest, DIM);
            bool holds = true;
            for (uint32_t other = 0; other < 200; other++) {
                double y[DIM]; /* near `nearest`, then moved inside */
                draw(1000 + 200 * n + other, 0.001 * (double)(1 + other), y, DIM);
                double square = 0;
                for (size_t k = 0; k < DIM; k++) {
                    y[k] += nearest[k];
                    y[k] = i == 1 ? fmin(fmax(y[k], -0.25), 0.5) : y[k];
                    square += y[k] * y[k];
                }
                const double scale = i == 0 && square > 0.64 ? 0.8 / sqrt(square) : 1;
                for (size_t k = 0; k < DIM; k++) {
                    y[k] *= scale;
                }
                holds = holds && distance(x, y, DIM) >= least - 1e-12;
            }
            CU_ASSERT_TRUE(holds);
        }
    }
}

static void test_objectives_domain__what_diverged_is_not_hidden(void)
{
    struct tally_domain domain = ball(1);
    double x[2] = {NAN, 5};
    tally_domain_project(&domain, x, 2);
    CU_ASSERT_TRUE(isnan(x[0]));
    CU_ASSERT_FALSE(tally_domain_is_inside(&domain, x, 2));
    double y[2] = {1e300, 1e300};
    tally_domain_project(&domain, y, 2);
    CU_ASSERT_TRUE(y[0] == 1e300 && y[1] == 1e300);
    domain = box(0, 1);
    tally_domain_project(&domain, x, 2);
    CU_ASSERT_TRUE(isnan(x[0]) && x[1] == 1);
    CU_ASSERT_FALSE(tally_domain_is_inside(&domain, x, 2));
}

static void test_objectives_domain__an_empty_box_is_refused(void)
{
    struct tally_domain domain = box(1, 1);
    struct tally_error err = TALLY_ERROR_INIT;
    CU_ASSERT_EQUAL(tally_domain_validate(&domain, &err), TALLY_INVALID_ARGUMENT);
    CU_ASSERT_STRING_EQUAL(err.field, "upper");
    CU_ASSERT_STRING_EQUAL(err.message, "upper 1 is not above lower 1");
    domain = box(-1, 1);
    CU_ASSERT_EQUAL(tally_domain_validate(&domain, NULL), TALLY_OK);
    domain = (struct tally_domain){0};
    CU_ASSERT_EQUAL(tally_domain_validate(&domain, NULL), TALLY_OK);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_objectives_domain__known_projections),
    TALLY_TEST(test_objectives_domain__a_projected_point_is_a_fixed_point),
    TALLY_TEST(test_objectives_domain__points_inside_stay_bit_for_bit),
    TALLY_TEST(test_objectives_domain__it_is_the_nearest_point),
    TALLY_TEST(test_objectives_domain__what_diverged_is_not_hidden),
    TALLY_TEST(test_objectives_domain__an_empty_box_is_refused),
};
TALLY_SUITE(objectives_domain, TESTS);
