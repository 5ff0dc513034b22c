#include "services/experiment/run.h"

#include <string.h>

#include "tests/harness.h"

static void expect(const char *text, int64_t first, size_t n)
{
    int64_t got_first = -1;
    size_t got_n = 0;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_seeds_parse(text, &got_first, &got_n, &err), TALLY_OK, &err);
    CU_ASSERT_EQUAL(got_first, first);
    CU_ASSERT_EQUAL(got_n, n);
}

static void refuse(const char *text, enum tally_status expected)
{
    int64_t first = 77;
    size_t n = 78;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_seeds_parse(text, &first, &n, &err), expected, &err);
    TALLY_ASSERT_TEXT(err.field, "seeds");
    CU_ASSERT_EQUAL(first, 77);
    CU_ASSERT_EQUAL(n, 78);
}

static void test_experiment_seeds__reads_ranges_and_single_seeds(void)
{
    expect("1-10", 1, 10);
    expect("101-110", 101, 10);
    expect("7", 7, 1);
    expect("0-0", 0, 1);
    expect("9007199254740991", INT64_C(9007199254740991), 1);
    expect("1-10000", 1, 10000);
}

static void test_experiment_seeds__refuses_what_is_no_range(void)
{
    static const char *const wrong[] = {"", "-", "1-", "-5", "a", "1-2-3", "1 - 2", "1,2", "+1"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        refuse(wrong[i], TALLY_INVALID_ARGUMENT);
    }
    refuse("5-3", TALLY_OUT_OF_RANGE);
    refuse("1-10001", TALLY_OUT_OF_RANGE);
    refuse("9007199254740992", TALLY_OUT_OF_RANGE);
    refuse("1-99999999999999999999999999", TALLY_OUT_OF_RANGE);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_experiment_seeds__reads_ranges_and_single_seeds),
    TALLY_TEST(test_experiment_seeds__refuses_what_is_no_range),
};
TALLY_SUITE(experiment_seeds, TESTS);
