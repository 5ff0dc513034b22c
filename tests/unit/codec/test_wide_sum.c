#include "codec/numeric/wide_sum.h"

#include "tests/harness.h"

static double mean_of(const double *terms, int n, double weight)
{
    struct tally_wide_sum sum = {0};
    for (int i = 0; i < n; i++) {
        tally_wide_sum_add(&sum, weight, terms[i]);
    }
    return tally_wide_sum_mean(&sum, n * weight);
}

/* Every bit of the mean is that of a plain sum, also of terms that the scale would make 0. */
static void test_codec_wide_sum__ordinary_terms_are_summed_plainly(void)
{
    static const double terms[] = {0.1, -3e200, 1e-300, 5e-324, 3e200, 0.7};
    double sum = 0;
    for (int n = 1; n <= 6; n++) {
        sum += 3 * terms[n - 1];
        CU_ASSERT_EQUAL(mean_of(terms, n, 3), sum / (3 * n));
    }
    CU_ASSERT_EQUAL(mean_of(&terms[3], 1, 1), 5e-324);
}

static void test_codec_wide_sum__mean_of_finite_terms_is_finite(void)
{
    static const double large[] = {1.7e308, 1.7e308, -1.7e308, 1.7e308, 0, 1.7e308};
    CU_ASSERT_EQUAL(mean_of(large, 2, 1), 1.7e308);
    CU_ASSERT_EQUAL(mean_of(large, 2, 4e9), 1.7e308);
    CU_ASSERT_DOUBLE_EQUAL(mean_of(large, 6, 1), 0.5 * 1.7e308, 1e293);
    struct tally_wide_sum sum = {0};
    for (int n = 1; n <= 10000; n++) {
        tally_wide_sum_add(&sum, 1, -DBL_MAX);
        CU_ASSERT_DOUBLE_EQUAL(tally_wide_sum_mean(&sum, n) / -DBL_MAX, 1, 1e-12);
    }
    tally_wide_sum_add(&sum, 0x1p62, DBL_MAX); /* nearly as much as fits */
    CU_ASSERT_TRUE(isfinite(sum.scaled));
}

static void test_codec_wide_sum__terms_that_are_not_finite_stay(void)
{
    static const double infinite[] = {1, INFINITY}, opposite[] = {INFINITY, -INFINITY},
                        unknown[] = {1.7e308, 1.7e308, NAN};
    CU_ASSERT_EQUAL(mean_of(infinite, 2, 1), INFINITY);
    CU_ASSERT_TRUE(isnan(mean_of(opposite, 2, 1)));
    CU_ASSERT_TRUE(isnan(mean_of(unknown, 3, 1)));
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_codec_wide_sum__ordinary_terms_are_summed_plainly),
    TALLY_TEST(test_codec_wide_sum__mean_of_finite_terms_is_finite),
    TALLY_TEST(test_codec_wide_sum__terms_that_are_not_finite_stay),
};
TALLY_SUITE(codec_wide_sum, TESTS);
