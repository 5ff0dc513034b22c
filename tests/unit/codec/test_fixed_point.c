#include "codec/numeric/fixed_point.h"

#include <math.h>
#include <stdlib.h>

#include "tests/harness.h"

__extension__ typedef __int128 wide;

static void test_codec_fixed_point__multiples_of_the_unit_are_exact(void)
{
    const double all[] = {0, 1, -1, 0.5, -2.5, 0x1p-40, -0x1p-40, 0x1p22, -0x1p22, 0x1.8p21, 12345};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        CU_ASSERT_EQUAL(tally_fixed_point_value(tally_fixed_point_of(all[i])), all[i]);
    }
    CU_ASSERT_EQUAL(tally_fixed_point_of(1), INT64_C(1) << 40);
    CU_ASSERT_EQUAL(tally_fixed_point_of(-0x1p22), -(INT64_C(1) << 62));
}

/* Rounds to nearest, ties to even; the error is at most 2^-41. */
static void test_codec_fixed_point__rounds_to_the_nearest(void)
{
    CU_ASSERT_EQUAL(tally_fixed_point_of(0x1.8p-41), 1);
    CU_ASSERT_EQUAL(tally_fixed_point_of(-0x1.8p-41), -1);
    CU_ASSERT_EQUAL(tally_fixed_point_of(0x1p-42), 0);
    CU_ASSERT_EQUAL(tally_fixed_point_of(0x1p-41), 0);
    CU_ASSERT_EQUAL(tally_fixed_point_of(3 * 0x1p-41), 2);
    for (int i = -1000; i <= 1000; i++) {
        const double v = i * 0.7310585786300049;
        CU_ASSERT_TRUE(fabs(tally_fixed_point_value(tally_fixed_point_of(v)) - v) <= 0x1p-41);
    }
}

/* float32 values of magnitude at least 2^-17 are exact. */
static void test_codec_fixed_point__float32_values_are_exact_from_2_to_the_minus_17(void)
{
    for (int exponent = -17; exponent <= 18; exponent++) {
        const double v = (double)ldexpf(0x1.fffffep0f, exponent);
        CU_ASSERT_EQUAL(tally_fixed_point_value(tally_fixed_point_of(v)), v);
        CU_ASSERT_EQUAL(tally_fixed_point_value(tally_fixed_point_of(-v)), -v);
    }
    const double below = (double)ldexpf(0x1.fffffep0f, -18);
    CU_ASSERT_NOT_EQUAL(tally_fixed_point_value(tally_fixed_point_of(below)), below);
}

/* The full number of addends at the bound does not overflow, with either sign. */
static void test_codec_fixed_point__bound_leaves_room_for_all_addends(void)
{
    const uint32_t all[] = {1, 2, 3, 7, 10, 1000, 99999, 100000};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const double bound = tally_fixed_point_bound(all[i]);
        CU_ASSERT_EQUAL(bound, 4194304.0 / all[i]);
        int64_t up = 0, down = 0;
        for (uint32_t m = 0; m < all[i]; m++) {
            CU_ASSERT_FATAL(!__builtin_add_overflow(up, tally_fixed_point_of(bound), &up) &&
                            !__builtin_add_overflow(down, tally_fixed_point_of(-bound), &down));
        }
        CU_ASSERT_TRUE(up <= (INT64_C(1) << 62) + (INT64_C(1) << 30));
        CU_ASSERT_EQUAL(down, -up);
        CU_ASSERT_DOUBLE_EQUAL(tally_fixed_point_value(up), 0x1p22, 1e-6);
    }
}

/* The sum is the same in every order, unlike that of plain doubles. */
static void test_codec_fixed_point__order_does_not_matter(void)
{
    enum { N = 500 };
    double values[N], plain_up = 0, plain_down = 0;
    int64_t up = 0, down = 0;
    for (int i = 0; i < N; i++) {
        values[i] = ldexp(sin(i), i % 30 - 20);
    }
    for (int i = 0; i < N; i++) {
        up += tally_fixed_point_of(values[i]);
        down += tally_fixed_point_of(values[N - 1 - i]);
        plain_up += values[i];
        plain_down += values[N - 1 - i];
    }
    CU_ASSERT_EQUAL(up, down);
    CU_ASSERT_NOT_EQUAL(plain_up, plain_down);
    CU_ASSERT_DOUBLE_EQUAL(tally_fixed_point_value(up), plain_up, N * 0x1p-41);
}

/* The full number of addends at the bound, weighted with the greatest weight or one less, compared
 * with a 128-bit sum: no word overflows (the sanitizer would detect it), and the sum is exact. */
static void test_codec_fixed_point__weighted_sums_do_not_overflow(void)
{
    const uint32_t all[] = {1, 2, 3, 10, 99999, 100000};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        for (int sign = -1; sign <= 1; sign += 2) {
            const int64_t addend = tally_fixed_point_of(sign * tally_fixed_point_bound(all[i]));
            const uint32_t weight = UINT32_C(1) << 31;
            int64_t sum[2] = {0, 0};
            wide exact = 0;
            for (uint32_t m = 0; m < all[i]; m++) {
                tally_fixed_point_add_weighted(sum, addend, weight - m % 2);
                exact += (wide)addend * (weight - m % 2);
            }
            CU_ASSERT_TRUE(sum[1] >= 0 && sum[1] < INT64_C(1) << 32);
            CU_ASSERT_TRUE((wide)sum[0] * (INT64_C(1) << 32) + sum[1] == exact);
            CU_ASSERT_TRUE(llabs(sum[0]) < INT64_C(1) << 62);
        }
    }
}

/* Equal weights give exactly the same double as the sum without weights. */
static void test_codec_fixed_point__equal_weights_change_no_bit(void)
{
    const uint32_t weights[] = {1, 2, 7, 1000003, UINT32_C(1) << 25, UINT32_C(1) << 31};
    for (size_t i = 0; i < sizeof weights / sizeof weights[0]; i++) {
        int64_t plain = 0, sum[2] = {0, 0};
        for (int k = 1; k <= 300; k++) {
            const int64_t addend = tally_fixed_point_of(ldexp(sin(k), k % 55 - 40));
            plain += addend;
            tally_fixed_point_add_weighted(sum, addend, weights[i]);
            CU_ASSERT_EQUAL(tally_fixed_point_weighted_value(sum, weights[i]),
                            tally_fixed_point_value(plain));
        }
    }
}

/* 3 * 2 + 5 * (-1.5) + 4 * 0.25 = -0.5, and a mean whose last digit is lost in a sum of doubles. */
static void test_codec_fixed_point__weighted_values(void)
{
    int64_t sum[2] = {0, 0};
    tally_fixed_point_add_weighted(sum, tally_fixed_point_of(2), 3);
    tally_fixed_point_add_weighted(sum, tally_fixed_point_of(-1.5), 5);
    tally_fixed_point_add_weighted(sum, tally_fixed_point_of(0.25), 4);
    CU_ASSERT_EQUAL(tally_fixed_point_weighted_value(sum, 1), -0.5);
    int64_t small[2] = {0, 0};
    tally_fixed_point_add_weighted(small, tally_fixed_point_of(0x1p21), 1 << 25);
    tally_fixed_point_add_weighted(small, tally_fixed_point_of(0x1p-40), 1 << 25);
    tally_fixed_point_add_weighted(small, tally_fixed_point_of(-0x1p21), 1 << 25);
    CU_ASSERT_EQUAL(tally_fixed_point_weighted_value(small, 1 << 25), 0x1p-40);
}

/* The vector form of a whole block depends on its largest value, so small and large ones are mixed:
 * exact values, ties, and magnitudes on both sides of every limit. */
static void test_codec_fixed_point__vectors_get_the_bits_of_single_values(void)
{
    enum { N = 777 };
    static float values[N];
    static int32_t levels[N];
    static int64_t addends[N];
    for (int largest = -45; largest <= 22; largest++) {
        for (int i = 0; i < N; i++) {
            const double tie = (i % 9 - 4) * 0x1p-41;
            const double v = i % 3 == 0 ? tie : ldexp(sin(i), largest - i % 7);
            values[i] = (float)(i == 400 || i == 70 ? ldexp(i == 70 ? -1 : 1, largest) : v);
        }
        values[5] = -0.0f;
        tally_fixed_point_of_floats(values + largest % 2 + 1, N - 2, addends);
        for (int i = 0; i < N - 2; i++) {
            CU_ASSERT_EQUAL(addends[i], tally_fixed_point_of((double)values[i + largest % 2 + 1]));
        }
    }
    static const double norms[] = {0,        0x1p-41, 0x1.8p-41, 1e-9,     0.3,   1023.9,
                                   0x1.8p10, 1024,    1024.1,    0x1.5p21, 0x1p22};
    static const int32_t tops[] = {1, 2, 7, 100, 32767};
    for (size_t a = 0; a < sizeof norms / sizeof norms[0]; a++) {
        for (size_t b = 0; b < sizeof tops / sizeof tops[0]; b++) {
            for (int i = 0; i < N; i++) {
                levels[i] = i * 7919 % (2 * tops[b] + 1) - tops[b];
            }
            const double scale = norms[a] / tops[b];
            tally_fixed_point_of_levels(levels, scale, N, addends);
            for (int i = 0; i < N; i++) {
                CU_ASSERT_EQUAL(addends[i], tally_fixed_point_of(scale * levels[i]));
            }
        }
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_codec_fixed_point__multiples_of_the_unit_are_exact),
    TALLY_TEST(test_codec_fixed_point__rounds_to_the_nearest),
    TALLY_TEST(test_codec_fixed_point__float32_values_are_exact_from_2_to_the_minus_17),
    TALLY_TEST(test_codec_fixed_point__bound_leaves_room_for_all_addends),
    TALLY_TEST(test_codec_fixed_point__order_does_not_matter),
    TALLY_TEST(test_codec_fixed_point__weighted_sums_do_not_overflow),
    TALLY_TEST(test_codec_fixed_point__equal_weights_change_no_bit),
    TALLY_TEST(test_codec_fixed_point__weighted_values),
    TALLY_TEST(test_codec_fixed_point__vectors_get_the_bits_of_single_values),
};
TALLY_SUITE(codec_fixed_point, TESTS);
