#include "services/base/time.h"

#include "tests/harness.h"

static void expect(int64_t ms, const char *text)
{
    char got[TALLY_TIMESTAMP_CAPACITY];
    tally_timestamp_format(ms, got);
    TALLY_ASSERT_TEXT(got, text);
}

static void test_base_time__timestamps_are_rfc_3339_in_utc(void)
{
    expect(0, "1970-01-01T00:00:00.000Z");
    expect(1795232400123, "2026-11-21T03:40:00.123Z");
    expect(951782399999, "2000-02-28T23:59:59.999Z");
    expect(951782400000, "2000-02-29T00:00:00.000Z");
    expect(253402300799999, "9999-12-31T23:59:59.999Z");
}

static void test_base_time__before_1970_milliseconds_still_count_up(void)
{
    expect(-1, "1969-12-31T23:59:59.999Z");
    expect(-1000, "1969-12-31T23:59:59.000Z");
}

static void test_base_time__a_year_of_five_digits_has_no_timestamp(void)
{
    expect(253402300800000, "");
    expect(INT64_MAX, "");
}

static void test_base_time__reads_what_it_writes(void)
{
    static const int64_t TIMES[] = {
        0, 1, 951782399999, 951782400000, 1795232400123, 253402300799999};
    for (size_t i = 0; i < sizeof TIMES / sizeof TIMES[0]; i++) {
        char text[TALLY_TIMESTAMP_CAPACITY];
        int64_t ms = -1;
        tally_timestamp_format(TIMES[i], text);
        CU_ASSERT_TRUE(tally_timestamp_parse(text, &ms));
        CU_ASSERT_EQUAL(ms, TIMES[i]);
    }
}

static void test_base_time__reads_whole_seconds_and_few_digits(void)
{
    int64_t ms = -1;
    CU_ASSERT_TRUE(tally_timestamp_parse("2026-11-21T03:40:00Z", &ms));
    CU_ASSERT_EQUAL(ms, 1795232400000);
    CU_ASSERT_TRUE(tally_timestamp_parse("2026-11-21T03:40:00.1Z", &ms));
    CU_ASSERT_EQUAL(ms, 1795232400100);
    CU_ASSERT_TRUE(tally_timestamp_parse("2026-11-21T03:40:00.12Z", &ms));
    CU_ASSERT_EQUAL(ms, 1795232400120);
}

static void test_base_time__reads_nothing_else(void)
{
    static const char *const WRONG[] = {"",
                                        "2026",
                                        "2026-11-21",
                                        "2026-11-21T03:40:00",
                                        "2026-11-21T03:40:00.Z",
                                        "2026-11-21T03:40:00.1234Z",
                                        "2026-11-21T03:40:00z",
                                        "2026-11-21t03:40:00Z",
                                        "2026-11-21 03:40:00Z",
                                        "2026-11-21T03:40:00+00:00",
                                        "2026-11-21T03:40:00Z ",
                                        " 2026-11-21T03:40:00Z",
                                        "2026-11-21T03:40:60Z",
                                        "2026-11-21T03:60:00Z",
                                        "2026-11-21T24:00:00Z",
                                        "2026-11-31T03:40:00Z",
                                        "2026-02-29T03:40:00Z",
                                        "2026-00-21T03:40:00Z",
                                        "2026-13-21T03:40:00Z",
                                        "2026-11-00T03:40:00Z",
                                        "1969-12-31T23:59:59Z",
                                        "202a-11-21T03:40:00Z",
                                        "2026-11-21T03:4-:00Z",
                                        "12026-11-21T03:40:00Z"};
    for (size_t i = 0; i < sizeof WRONG / sizeof WRONG[0]; i++) {
        int64_t ms = -7;
        CU_ASSERT_FALSE(tally_timestamp_parse(WRONG[i], &ms));
        CU_ASSERT_EQUAL(ms, -7);
    }
}

static void test_base_time__monotonic_never_goes_back(void)
{
    int64_t last = tally_monotonic_ms();
    for (int i = 0; i < 1000; i++) {
        int64_t now = tally_monotonic_ms();
        CU_ASSERT(now >= last);
        last = now;
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_base_time__timestamps_are_rfc_3339_in_utc),
    TALLY_TEST(test_base_time__before_1970_milliseconds_still_count_up),
    TALLY_TEST(test_base_time__a_year_of_five_digits_has_no_timestamp),
    TALLY_TEST(test_base_time__reads_what_it_writes),
    TALLY_TEST(test_base_time__reads_whole_seconds_and_few_digits),
    TALLY_TEST(test_base_time__reads_nothing_else),
    TALLY_TEST(test_base_time__monotonic_never_goes_back),
};
TALLY_SUITE(base_time, TESTS);
