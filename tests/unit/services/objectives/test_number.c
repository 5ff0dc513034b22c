#include "services/objectives/data/number.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/numeric/rng.h"
#include "tests/harness.h"

static void test_objectives_number__reads_numbers_exactly(void)
{
    static const struct {
        const char *text;
        double value;
    } rows[] = {
        {"0", 0},
        {"-0", 0},
        {"+1", 1},
        {"1.", 1},
        {".5", 0.5},
        {"00012", 12},
        {"0.1", 0.1},
        {"1e3", 1000},
        {"1E+3", 1000},
        {"25e-2", 0.25},
        {"1.7976931348623157e308", DBL_MAX},
        {"4.9e-324", 4.9406564584124654e-324},
        {"1e-400", 0},
        {"9007199254740993", 9007199254740992.0}, /* ties to even */
        {"0.1000000000000000055511151231257827021181583404541015625", 0.1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double value = NAN;
        CU_ASSERT_PTR_NULL(tally_number_parse(rows[i].text, &value));
        CU_ASSERT_EQUAL(value, rows[i].value);
    }
    double zero = 1;
    CU_ASSERT_PTR_NULL(tally_number_parse("-0", &zero));
    CU_ASSERT_TRUE(signbit(zero));
}

/* Every double is restored exactly from its 17 digits. */
static void test_objectives_number__round_trips(void)
{
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(5, 0), 0, 0, TALLY_RNG_SAMPLING);
    for (int i = 0; i < 2000; i++) {
        const uint64_t bits = (uint64_t)tally_rng_u32(&rng) << 32 | tally_rng_u32(&rng);
        double expected, value = 0;
        char text[40];
        memcpy(&expected, &bits, sizeof expected);
        if (isfinite(expected)) {
            snprintf(text, sizeof text, "%.17g", expected);
            CU_ASSERT_PTR_NULL(tally_number_parse(text, &value));
            CU_ASSERT_EQUAL(value, expected);
        }
    }
}

static void test_objectives_number__refuses_the_rest(void)
{
    static const struct {
        const char *text, *why;
    } rows[] = {
        {"", "is empty"},
        {"nan", "is not finite"},
        {"-NaN", "is not finite"},
        {"inf", "is not finite"},
        {"Infinity", "is not finite"},
        {"NA", "is not finite"},
        {"1e309", "is too large for a double"},
        {"-1e999999999999", "is too large for a double"},
        {"abc", "is not a number"},
        {"1,5", "is not a number"},
        {"0x10", "is not a number"},
        {"1e", "is not a number"},
        {"1e+", "is not a number"},
        {"e5", "is not a number"},
        {".", "is not a number"},
        {"-", "is not a number"},
        {"+-1", "is not a number"},
        {"1 ", "is not a number"},
        {" 1", "is not a number"},
        {"1.2.3", "is not a number"},
        {"1f", "is not a number"},
        {"1e5.0", "is not a number"},
        {"1_000", "is not a number"},
        {"\xc2\xa0"
         "1",
         "is not a number"},
        {"nan(1)", "is not a number"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double value = 42;
        const char *why = tally_number_parse(rows[i].text, &value);
        TALLY_ASSERT_TEXT(why != NULL ? why : "(read)", rows[i].why);
        CU_ASSERT_EQUAL(value, 42);
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_objectives_number__reads_numbers_exactly),
    TALLY_TEST(test_objectives_number__round_trips),
    TALLY_TEST(test_objectives_number__refuses_the_rest),
};
TALLY_SUITE(objectives_number, TESTS);
