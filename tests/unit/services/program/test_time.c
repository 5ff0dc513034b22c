#include "services/program/time.h"

#include "tests/unit/services/program/suites.h"

static void expect(int64_t ms, const char *text)
{
    char got[TALLY_TIMESTAMP_CAPACITY];
    tally_timestamp_format(ms, got);
    TALLY_ASSERT_TEXT(got, text);
}

static void test_program_time__timestamps_are_rfc_3339_in_utc(void)
{
    expect(0, "1970-01-01T00:00:00.000Z");
    expect(1795232400123, "2026-11-21T03:40:00.123Z");
    expect(951782399999, "2000-02-28T23:59:59.999Z");
    expect(951782400000, "2000-02-29T00:00:00.000Z");
    expect(253402300799999, "9999-12-31T23:59:59.999Z");
}

static void test_program_time__before_1970_milliseconds_still_count_up(void)
{
    expect(-1, "1969-12-31T23:59:59.999Z");
    expect(-1000, "1969-12-31T23:59:59.000Z");
}

static void test_program_time__a_year_of_five_digits_has_no_timestamp(void)
{
    expect(253402300800000, "");
    expect(INT64_MAX, "");
}

static void test_program_time__monotonic_never_goes_back(void)
{
    int64_t last = tally_monotonic_ms();
    for (int i = 0; i < 1000; i++) {
        int64_t now = tally_monotonic_ms();
        CU_ASSERT(now >= last);
        last = now;
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_program_time__timestamps_are_rfc_3339_in_utc),
    TALLY_TEST(test_program_time__before_1970_milliseconds_still_count_up),
    TALLY_TEST(test_program_time__a_year_of_five_digits_has_no_timestamp),
    TALLY_TEST(test_program_time__monotonic_never_goes_back),
};
TALLY_SUITE(program_time_suite, "program_time", TESTS);
