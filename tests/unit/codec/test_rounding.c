/* The compiler rounds where C requires it, which all arithmetic here relies on. */
#include "tests/harness.h"

enum { N = 7 };

/* Becomes straight-line code when unrolled. Not inlined, or the compiler would know the numbers. */
__attribute__((noinline)) static void round_in_pairs(const double *in, const float *start,
                                                     double *ret_sums, double *ret_rounded)
{
    double thirds[N];
    for (int i = 0; i < N; i++) {
        thirds[i] = in[i] / 3;
        ret_sums[i] += thirds[i] / 4;
    }
    for (int i = 0; i < N; i++) {
        ret_rounded[i] = (double)start[i] + 0.4 * (double)(float)thirds[i];
    }
}

static void test_codec_rounding__floats_are_rounded(void)
{
    float start[N] = {0};
    double in[N], sums[N] = {0}, rounded[N];
    for (int i = 0; i < N; i++) {
        in[i] = 3 * 1.2130030632019042;
    }
    round_in_pairs(in, start, sums, rounded);
    const volatile float third = (float)(in[0] / 3);
    for (int i = 0; i < N; i++) {
        CU_ASSERT_EQUAL(rounded[i], 0.4 * (double)third);
    }
}

__attribute__((noinline)) static double multiply_and_add(double a, double b, double c)
{
    return a * b + c;
}

/* (1 + e)^2 - (1 + 2 e) is e^2 if the operations are fused, and 0 if the product is rounded
 * first. */
static void test_codec_rounding__products_are_rounded_before_they_are_added(void)
{
    const double e = 1.0 / (1 << 30);
    CU_ASSERT_EQUAL(multiply_and_add(1 + e, 1 + e, -(1 + 2 * e)), 0);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_codec_rounding__floats_are_rounded),
    TALLY_TEST(test_codec_rounding__products_are_rounded_before_they_are_added),
};
TALLY_SUITE(codec_rounding, TESTS);
