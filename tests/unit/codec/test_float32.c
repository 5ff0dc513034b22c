#include "codec/numeric/float32.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness.h"

/* FORMAT.md, section float32. */
static void test_codec_float32__example_of_format_md(void)
{
    const float values[3] = {1, -2.5f, 0};
    const uint8_t expected[12] = {0x00, 0x00, 0x80, 0x3f, 0x00, 0x00, 0x20, 0xc0};
    uint8_t data[12];
    uint64_t bits = 0;
    CU_ASSERT_EQUAL(tally_float32_encode(values, 3, data, sizeof data, &bits, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(bits, 96);
    CU_ASSERT_EQUAL(memcmp(data, expected, sizeof data), 0);
}

static void test_codec_float32__every_bit_survives(void)
{
    const float values[] = {0.0f, -0.0f, 1.1f, -FLT_MAX, FLT_TRUE_MIN, FLT_MIN, -1e-41f};
    enum { N = sizeof values / sizeof values[0] };
    uint8_t *data = malloc(4 * N);
    CU_ASSERT_PTR_NOT_NULL_FATAL(data);
    float back[N];
    uint64_t bits = 0;
    CU_ASSERT_EQUAL(tally_float32_bound(N), 4 * N);
    CU_ASSERT_EQUAL(tally_float32_encode(values, N, data, 4 * N, &bits, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(tally_float32_decode(data, 4 * N, bits, N, back, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(memcmp(values, back, sizeof back), 0);
    free(data);
}

static void test_codec_float32__capacity_is_checked_first(void)
{
    const float values[2] = {1, 2};
    uint8_t data[8];
    uint64_t bits = 5;
    for (size_t capacity = 0; capacity < 8; capacity++) {
        CU_ASSERT_EQUAL(tally_float32_encode(values, 2, data, capacity, &bits, NULL),
                        TALLY_OUT_OF_RANGE);
    }
    CU_ASSERT_EQUAL(bits, 5);
}

static void test_codec_float32__not_finite_is_refused_by_coordinate(void)
{
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t b = 0; b < 3; b++) {
        const float values[3] = {1, bad[b], NAN};
        uint8_t data[12];
        float back[3];
        uint64_t bits;
        struct tally_error err = TALLY_ERROR_INIT;
        TALLY_ASSERT_STATUS(tally_float32_encode(values, 3, data, 12, &bits, &err),
                            TALLY_NOT_FINITE, &err);
        TALLY_ASSERT_TEXT(err.message, "coordinate 1 is not finite");
        memcpy(data, values, 12);
        tally_error_clear(&err);
        TALLY_ASSERT_STATUS(tally_float32_decode(data, 12, 96, 3, back, &err), TALLY_NOT_FINITE,
                            &err);
        TALLY_ASSERT_TEXT(err.message, "coordinate 1 is not finite");
        TALLY_ASSERT_TEXT(err.field, "payload");
    }
}

/* Every truncation and extension, each in a block of exact size, and wrong announced lengths. */
static void test_codec_float32__other_lengths_are_malformed(void)
{
    float back[3];
    for (size_t n = 0; n <= 30; n++) {
        uint8_t *data = calloc(n + (n == 0), 1);
        CU_ASSERT_PTR_NOT_NULL_FATAL(data);
        struct tally_error err = TALLY_ERROR_INIT;
        TALLY_ASSERT_STATUS(tally_float32_decode(data, n, 96, 3, back, &err),
                            n == 12 ? TALLY_OK : TALLY_MALFORMED, &err);
        CU_ASSERT_EQUAL(tally_float32_decode(data, n, 8 * n, 3, back, NULL),
                        n == 12 ? TALLY_OK : TALLY_MALFORMED);
        free(data);
    }
    const uint8_t data[12] = {0};
    const uint64_t lies[] = {0, 95, 97, 192, UINT64_MAX, 96 + (UINT64_C(1) << 32)};
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        CU_ASSERT_EQUAL(tally_float32_decode(data, 12, lies[i], 3, back, NULL), TALLY_MALFORMED);
    }
}

/* A message with one flipped bit is refused, or re-encoding its values gives the same bytes. */
static void test_codec_float32__every_flipped_bit_is_refused_or_canonical(void)
{
    const float values[3] = {1, -2.5f, 3e38f};
    uint8_t data[12], again[12];
    uint64_t bits;
    CU_ASSERT_EQUAL(tally_float32_encode(values, 3, data, 12, &bits, NULL), TALLY_OK);
    int refused = 0;
    for (size_t bit = 0; bit < 96; bit++) {
        float back[3];
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        enum tally_status status = tally_float32_decode(data, 12, bits, 3, back, NULL);
        if (status == TALLY_OK) {
            CU_ASSERT_EQUAL(tally_float32_encode(back, 3, again, 12, &bits, NULL), TALLY_OK);
            CU_ASSERT_EQUAL(memcmp(data, again, 12), 0);
        } else {
            CU_ASSERT_EQUAL(status, TALLY_NOT_FINITE);
            refused++;
        }
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    CU_ASSERT_TRUE(refused >= 1); /* the exponent of 3e38 is one bit short of infinity's */
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_codec_float32__example_of_format_md),
    TALLY_TEST(test_codec_float32__every_bit_survives),
    TALLY_TEST(test_codec_float32__capacity_is_checked_first),
    TALLY_TEST(test_codec_float32__not_finite_is_refused_by_coordinate),
    TALLY_TEST(test_codec_float32__other_lengths_are_malformed),
    TALLY_TEST(test_codec_float32__every_flipped_bit_is_refused_or_canonical),
};
TALLY_SUITE(codec_float32, TESTS);
