#include "codec/quantize/quantizer.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "tests/harness.h"

static struct tally_rng stream(uint32_t round)
{
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(21, 0), 3, round, TALLY_RNG_UPLINK);
    return rng;
}

static struct tally_grid grid_of(double radius, double eps, size_t dim)
{
    struct tally_grid grid = {0};
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_grid_init(radius, eps, dim, &grid, &err), TALLY_OK, &err);
    return grid;
}

/* p = ceil(2 r sqrt(d) / eps), rounded up to an even number; computed by hand. */
static void test_codec_quantizer__grid_follows_the_formula(void)
{
    static const struct {
        double radius, eps;
        size_t dim;
        uint32_t intervals;
    } rows[] = {
        {1, 1, 1, 2},       /* 2 exactly */
        {1, 1, 4, 4},       /* 4 exactly */
        {1, 1, 2, 4},       /* 2.83 -> 3 -> 4 */
        {1, 0.4, 1, 6},     /* 5 -> 6 */
        {3, 2, 30, 18},     /* 16.43 -> 17 -> 18 */
        {1, 10, 7840, 18},  /* 17.7 -> 18 */
        {1, 1e9, 1, 2},     /* never below 2 */
        {2, 1e-3, 1, 4000}, /* a large p */
        {0.5, 0x1p-22, 1, 1 << 22},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tally_grid grid = grid_of(rows[i].radius, rows[i].eps, rows[i].dim);
        CU_ASSERT_EQUAL(grid.intervals, rows[i].intervals);
        CU_ASSERT_DOUBLE_EQUAL(grid.step, 2 * rows[i].radius / rows[i].intervals,
                               1e-15 * grid.step);
        CU_ASSERT_TRUE(grid.step <= rows[i].eps / sqrt((double)rows[i].dim) * (1 + 1e-15));
        CU_ASSERT_TRUE(tally_grid_is_valid(&grid));
    }
}

static void test_codec_quantizer__intervals_are_even_for_any_radius(void)
{
    bool even = true;
    for (int i = 1; i < 5000; i++) {
        struct tally_grid grid = grid_of(i * 0.137, 0.9, (size_t)i % 40 + 1);
        even = even && grid.intervals % 2 == 0;
    }
    CU_ASSERT_TRUE(even);
}

static void test_codec_quantizer__impossible_grids_are_refused(void)
{
    static const struct {
        double radius, eps;
        size_t dim;
        enum tally_status status;
    } rows[] = {
        {0, 1, 1, TALLY_INVALID_ARGUMENT},
        {-1, 1, 1, TALLY_INVALID_ARGUMENT},
        {(double)NAN, 1, 1, TALLY_INVALID_ARGUMENT},
        {(double)INFINITY, 1, 1, TALLY_INVALID_ARGUMENT},
        {1, 0, 1, TALLY_INVALID_ARGUMENT},
        {1, -1, 1, TALLY_INVALID_ARGUMENT},
        {1, (double)NAN, 1, TALLY_INVALID_ARGUMENT},
        {1, (double)INFINITY, 1, TALLY_INVALID_ARGUMENT},
        {1, 1, 0, TALLY_INVALID_ARGUMENT},
        {0.5, 0x1p-23, 1, TALLY_OUT_OF_RANGE},        /* 2^23 intervals */
        {0.5, 0x1.fffffep-23, 1, TALLY_OUT_OF_RANGE}, /* 2^22 + 1 */
        {1e300, 1e-300, 1, TALLY_OUT_OF_RANGE},
        {DBL_MAX, DBL_MAX, 1, TALLY_OUT_OF_RANGE}, /* 2 r overflows */
        {1e-40, 1e-40, 1, TALLY_OUT_OF_RANGE},     /* no normal float32 */
        {1e35, 1e35, 1, TALLY_OUT_OF_RANGE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tally_grid grid = {.step = 42, .intervals = 7};
        struct tally_error err = TALLY_ERROR_INIT;
        TALLY_ASSERT_STATUS(tally_grid_init(rows[i].radius, rows[i].eps, rows[i].dim, &grid, &err),
                            rows[i].status, &err);
        CU_ASSERT_NOT_EQUAL(err.message[0], '\0');
        CU_ASSERT_EQUAL(grid.step, 42); /* written only on success */
        CU_ASSERT_EQUAL(grid.intervals, 7);
    }
}

static void test_codec_quantizer__grids_from_outside_are_checked(void)
{
    static const struct {
        struct tally_grid grid;
        bool valid;
    } rows[] = {
        {{.step = 1, .intervals = 2}, true},
        {{.step = 1, .intervals = TALLY_MAX_INTERVALS}, true},
        {{.step = (double)FLT_MIN, .intervals = 2}, false}, /* its inverse is above 1e30 */
        {{.step = 1e-29, .intervals = 2}, true},
        {{.step = 1e30, .intervals = 2}, true},
        {{.step = 1, .intervals = 0}, false},
        {{.step = 1, .intervals = 3}, false},
        {{.step = 1, .intervals = TALLY_MAX_INTERVALS + 2}, false},
        {{.step = 1, .intervals = UINT32_MAX - 1}, false},
        {{.step = 0, .intervals = 2}, false},
        {{.step = -1, .intervals = 2}, false},
        {{.step = 2e30, .intervals = 2}, false},
        {{.step = (double)NAN, .intervals = 2}, false},
        {{.step = (double)INFINITY, .intervals = 2}, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CU_ASSERT_EQUAL(tally_grid_is_valid(&rows[i].grid), rows[i].valid);
    }
}

/* The step is a power of two, so the grid is exact in float32. */
static void test_codec_quantizer__points_of_the_grid_stay(void)
{
    const struct tally_grid grid = {.step = 0.25, .intervals = 64};
    float y[65];
    int32_t levels[65];
    for (int i = 0; i <= 64; i++) {
        y[i] = 0.25f * (float)(i - 32);
    }
    for (uint32_t round = 0; round < 50; round++) {
        struct tally_rng rng = stream(round);
        uint64_t clipped = 99;
        CU_ASSERT_EQUAL(tally_quantize(&grid, y, 65, &rng, levels, &clipped, NULL), TALLY_OK);
        CU_ASSERT_EQUAL(clipped, 0);
        for (int i = 0; i <= 64; i++) {
            CU_ASSERT_EQUAL(levels[i], i - 32);
        }
    }
}

static void test_codec_quantizer__zeros_and_denormals_are_zero(void)
{
    const struct tally_grid grid = {.step = 0.1, .intervals = 20};
    const float y[] = {0.0f, -0.0f, FLT_TRUE_MIN, -FLT_TRUE_MIN, FLT_MIN, -FLT_MIN, -1e-20f};
    enum { N = sizeof y / sizeof y[0] };
    for (uint32_t round = 0; round < 200; round++) {
        struct tally_rng rng = stream(round);
        int32_t levels[N];
        uint64_t clipped;
        CU_ASSERT_EQUAL(tally_quantize(&grid, y, N, &rng, levels, &clipped, NULL), TALLY_OK);
        for (size_t i = 0; i < N; i++) {
            CU_ASSERT_EQUAL(levels[i], 0);
        }
        CU_ASSERT_EQUAL(clipped, 0);
    }
}

/* -r, r, and values just inside and outside, on a grid that is not exact in float32. */
static void test_codec_quantizer__outside_is_clipped_and_counted(void)
{
    const struct tally_grid grid = grid_of(0.7, 0.01, 10);
    const int32_t top = (int32_t)(grid.intervals / 2);
    const float r = 0.7f;
    const float y[] = {
        r,   -r, nextafterf(r, 1), nextafterf(-r, -1), 1e30f, -1e30f, FLT_MAX, 0, nextafterf(r, 0),
        0.1f};
    enum { N = sizeof y / sizeof y[0] };
    for (uint32_t round = 0; round < 200; round++) {
        struct tally_rng rng = stream(round);
        int32_t levels[N];
        uint64_t clipped = 0;
        CU_ASSERT_EQUAL(tally_quantize(&grid, y, N, &rng, levels, &clipped, NULL), TALLY_OK);
        CU_ASSERT_EQUAL(clipped, 5);
        CU_ASSERT_EQUAL(levels[2], top);
        CU_ASSERT_EQUAL(levels[3], -top);
        CU_ASSERT_EQUAL(levels[4], top);
        CU_ASSERT_EQUAL(levels[5], -top);
        CU_ASSERT_EQUAL(levels[6], top);
        CU_ASSERT_TRUE(levels[0] >= top - 1 && levels[0] <= top);
        CU_ASSERT_TRUE(levels[1] <= 1 - top && levels[1] >= -top);
        CU_ASSERT_TRUE(levels[8] >= top - 1 && levels[8] <= top);
    }
}

static void test_codec_quantizer__top_level_is_never_exceeded(void)
{
    bool inside = true;
    for (int i = 1; i < 3000; i++) {
        const struct tally_grid grid = grid_of(0.001 * i * sqrt(2), 0.37 / i, 3);
        const int32_t top = (int32_t)(grid.intervals / 2);
        const float r = (float)(grid.step * top);
        const float y[] = {r, -r, nextafterf(r, 0), nextafterf(-r, 0), 0.999f * r};
        struct tally_rng rng = stream((uint32_t)i);
        int32_t levels[5];
        uint64_t clipped = 1;
        CU_ASSERT_EQUAL(tally_quantize(&grid, y, 5, &rng, levels, &clipped, NULL), TALLY_OK);
        for (int j = 0; j < 5; j++) {
            inside = inside && levels[j] >= -top && levels[j] <= top;
        }
        inside = inside && clipped == 0;
    }
    CU_ASSERT_TRUE(inside);
}

static void test_codec_quantizer__not_finite_is_refused_by_coordinate(void)
{
    const struct tally_grid grid = {.step = 1, .intervals = 4};
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t b = 0; b < 3; b++) {
        float y[100] = {0};
        y[70] = bad[b];
        y[71] = NAN;
        struct tally_rng rng = stream(0);
        int32_t levels[100];
        uint64_t clipped = 42;
        struct tally_error err = TALLY_ERROR_INIT;
        TALLY_ASSERT_STATUS(tally_quantize(&grid, y, 100, &rng, levels, &clipped, &err),
                            TALLY_NOT_FINITE, &err);
        TALLY_ASSERT_TEXT(err.message, b == 0 ? "coordinate 70 of 100 is NaN"
                                              : "coordinate 70 of 100 is infinite");
        CU_ASSERT_EQUAL(clipped, 42);
    }
}

/* The rounding rule of the quantizer's file comment, recomputed from the lanes, bit for bit. */
static void test_codec_quantizer__rounds_up_where_the_word_is_below_the_fraction(void)
{
    enum { DIM = 200 };
    const struct tally_grid grid = grid_of(2, 0.3, DIM);
    float y[DIM];
    double normal[DIM];
    struct tally_rng rng = stream(1);
    tally_rng_normal(&rng, normal, DIM);
    for (size_t i = 0; i < DIM; i++) {
        y[i] = (float)(0.5 * normal[i]);
    }
    rng = stream(2);
    int32_t levels[DIM];
    uint64_t clipped;
    CU_ASSERT_EQUAL(tally_quantize(&grid, y, DIM, &rng, levels, &clipped, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(clipped, 0);
    int up = 0;
    bool same = true;
    for (uint32_t i = 0; i < DIM; i++) {
        uint32_t words[TALLY_RNG_LANES];
        tally_rng_lanes(&rng, i / 64, words);
        float s = fabsf(y[i]) * (float)(1 / grid.step);
        double fraction = (double)s - floor((double)s);
        bool is_up = (double)words[i % 64] * 0x1p-32 < fraction;
        int32_t level = (int32_t)floorf(s) + is_up;
        up += is_up;
        same = same && levels[i] == (y[i] < 0 ? -level : level);
        same = same && fabs(levels[i] * grid.step - (double)y[i]) <= grid.step * (1 + 1e-6);
    }
    CU_ASSERT_TRUE(same);
    CU_ASSERT_TRUE(up > 50 && up < 150); /* both neighbours occur */
}

static void test_codec_quantizer__stream_decides_and_prefixes_agree(void)
{
    enum { DIM = 130 };
    const struct tally_grid grid = grid_of(1, 0.5, DIM);
    float y[DIM];
    for (size_t i = 0; i < DIM; i++) {
        y[i] = (float)(sin((double)i) * 0.9);
    }
    int32_t a[DIM], b[DIM], c[DIM], part[DIM];
    uint64_t clipped;
    struct tally_rng rng = stream(5), other = stream(6);
    tally_quantize(&grid, y, DIM, &rng, a, &clipped, NULL);
    tally_quantize(&grid, y, DIM, &rng, b, &clipped, NULL);
    tally_quantize(&grid, y, DIM, &other, c, &clipped, NULL);
    tally_quantize(&grid, y, 65, &rng, part, &clipped, NULL);
    CU_ASSERT_EQUAL(memcmp(a, b, sizeof a), 0);
    CU_ASSERT_NOT_EQUAL(memcmp(a, c, sizeof a), 0);
    CU_ASSERT_EQUAL(memcmp(a, part, 65 * sizeof a[0]), 0);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_codec_quantizer__grid_follows_the_formula),
    TALLY_TEST(test_codec_quantizer__intervals_are_even_for_any_radius),
    TALLY_TEST(test_codec_quantizer__impossible_grids_are_refused),
    TALLY_TEST(test_codec_quantizer__grids_from_outside_are_checked),
    TALLY_TEST(test_codec_quantizer__points_of_the_grid_stay),
    TALLY_TEST(test_codec_quantizer__zeros_and_denormals_are_zero),
    TALLY_TEST(test_codec_quantizer__outside_is_clipped_and_counted),
    TALLY_TEST(test_codec_quantizer__top_level_is_never_exceeded),
    TALLY_TEST(test_codec_quantizer__not_finite_is_refused_by_coordinate),
    TALLY_TEST(test_codec_quantizer__rounds_up_where_the_word_is_below_the_fraction),
    TALLY_TEST(test_codec_quantizer__stream_decides_and_prefixes_agree),
};
TALLY_SUITE(codec_quantizer, TESTS);
