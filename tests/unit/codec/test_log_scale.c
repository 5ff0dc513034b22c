#include "codec/numeric/log_scale.h"

#include <math.h>

#include "tests/harness.h"

static void test_codec_log_scale__indices_are_the_nearest(void)
{
    bool good = true;
    for (int i = -16000; i <= 16000; i += 7) {
        const double value = tally_log_scale_value(i);
        good = good && fabs(value / exp2(i / 16.0) - 1) < 1e-12;
        good = good && tally_log_scale_index(value) == i;
        good = good && tally_log_scale_index(value * exp2(0.499 / 16)) == i;
        good = good && tally_log_scale_index(value * exp2(-0.499 / 16)) == i;
    }
    CU_ASSERT_TRUE(good);
    CU_ASSERT_EQUAL(tally_log_scale_value(0), 1);
    CU_ASSERT_EQUAL(tally_log_scale_value(-16), 0.5);
    CU_ASSERT_EQUAL(tally_log_scale_index(5e-324), -1074 * 16);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_codec_log_scale__indices_are_the_nearest),
};
TALLY_SUITE(codec_log_scale, TESTS);
