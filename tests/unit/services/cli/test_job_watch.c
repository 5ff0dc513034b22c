#include "services/cli/job_watch.h"

#include <string.h>

#include "tests/harness.h"

static struct tally_json *parse(const char *text)
{
    struct tally_json *value = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_json_parse(text, strlen(text), &value, &err), TALLY_OK, &err);
    return value;
}

static void expect_text(const char *json, const char *expected)
{
    struct tally_json *detail = parse(json);
    char text[TALLY_WATCH_TEXT_CAPACITY];
    tally_job_watch_text(detail, 1795232412900, text);
    TALLY_ASSERT_TEXT(text, expected);
    tally_json_free(detail);
}

static void test_cli_job_watch__text_tells_progress_regret_and_bits(void)
{
    expect_text("{\"status\":\"running\",\"time_step\":1200,\"horizon\":2000,\"round\":31,"
                "\"cumulative_regret\":412.3,\"bits\":{\"uplink\":{\"formula\":598,\"payload\":1},"
                "\"downlink\":{\"formula\":628}}}",
                "time step 1200/2000  round 31  regret 412.3  up 598 bit  down 628 bit");
    expect_text("{\"status\":\"running\",\"cumulative_regret\":412.3,\"loss\":0.4312345678}",
                "time step 0/0  round 0  regret 412.3  loss 0.431235  up 0 bit  down 0 bit");
    expect_text("{\"status\":\"running\",\"cumulative_regret\":null,\"loss\":0.43}",
                "time step 0/0  round 0  loss 0.43  up 0 bit  down 0 bit");
    expect_text("{\"status\":\"running\",\"cumulative_regret\":412.3,\"loss\":null}",
                "time step 0/0  round 0  regret 412.3  up 0 bit  down 0 bit");
    expect_text("{\"status\":\"running\",\"cumulative_regret\":412.3,\"loss\":0.43,\"metrics\":"
                "{\"accuracy\":{\"mean\":0.91234567,\"min\":0.5,\"max\":1},"
                "\"seconds\":{\"mean\":2,\"min\":1,\"max\":3}}}",
                "time step 0/0  round 0  regret 412.3  loss 0.43  accuracy 0.912346  seconds 2"
                "  up 0 bit  down 0 bit");
    expect_text("{\"status\":\"queued\",\"horizon\":10}",
                "queued  time step 0/10  round 0  regret unknown  up 0 bit  down 0 bit");
    expect_text("{\"status\":\"running\",\"time_step\":1,\"horizon\":2,\"waiting\":null}",
                "time step 1/2  round 0  regret unknown  up 0 bit  down 0 bit");
    expect_text("{}", "  time step 0/0  round 0  regret unknown  up 0 bit  down 0 bit");
    expect_text("{\"cumulative_regret\":null}",
                "  time step 0/0  round 0  regret unknown  up 0 bit  down 0 bit");
    expect_text("{\"cumulative_regret\":0.0}",
                "  time step 0/0  round 0  regret 0.0  up 0 bit  down 0 bit");
}

static void test_cli_job_watch__text_tells_what_a_job_waits_for(void)
{
    expect_text(
        "{\"status\":\"running\",\"waiting\":{\"for\":\"clients\",\"since_ms\":1795232400123,"
        "\"text\":\"waits for client 3 (w3): round 7 has 9 of 10 answers\"}}",
        "since 12 s: waits for client 3 (w3): round 7 has 9 of 10 answers");
    /* The local clock is behind the coordinator's. */
    expect_text("{\"waiting\":{\"since_ms\":1795232999999,\"text\":\"waits\"}}",
                "since 0 s: waits");
}

static bool is_same_mark(const char *a, const char *b)
{
    char mark_a[TALLY_WATCH_TEXT_CAPACITY], mark_b[TALLY_WATCH_TEXT_CAPACITY];
    struct tally_json *detail_a = parse(a), *detail_b = parse(b);
    tally_job_watch_mark(detail_a, mark_a);
    tally_job_watch_mark(detail_b, mark_b);
    tally_json_free(detail_a);
    tally_json_free(detail_b);
    return strcmp(mark_a, mark_b) == 0;
}

static void test_cli_job_watch__only_the_jobs_course_is_a_change(void)
{
    const char *base = "{\"status\":\"running\",\"time_step\":1,\"round\":1,\"iterate\":1,"
                       "\"bits\":{\"wire_bytes\":{\"in\":1}}}";
    CU_ASSERT_TRUE(is_same_mark(base, "{\"status\":\"running\",\"time_step\":1,\"round\":1,"
                                      "\"iterate\":1,\"bits\":{\"wire_bytes\":{\"in\":99}}}"));
    CU_ASSERT_FALSE(is_same_mark(base, "{\"status\":\"paused\",\"time_step\":1,\"round\":1,"
                                       "\"iterate\":1}"));
    CU_ASSERT_FALSE(is_same_mark(base, "{\"status\":\"running\",\"time_step\":2,\"round\":1,"
                                       "\"iterate\":1}"));
    CU_ASSERT_FALSE(is_same_mark(base, "{\"status\":\"running\",\"time_step\":1,\"round\":2,"
                                       "\"iterate\":1}"));
    CU_ASSERT_FALSE(is_same_mark(base, "{\"status\":\"running\",\"time_step\":1,\"round\":1,"
                                       "\"iterate\":2}"));
    const char *waits = "{\"status\":\"running\",\"time_step\":1,\"round\":1,\"iterate\":1,"
                        "\"waiting\":{\"since_ms\":5,\"text\":\"waits for client 1\"}}";
    CU_ASSERT_FALSE(is_same_mark(base, waits));
    CU_ASSERT_TRUE(is_same_mark(waits, waits));
    CU_ASSERT_FALSE(
        is_same_mark(waits, "{\"status\":\"running\",\"time_step\":1,\"round\":1,\"iterate\":1,"
                            "\"waiting\":{\"since_ms\":5,\"text\":\"waits for client 2\"}}"));
}

static double fraction_of(const char *json)
{
    struct tally_json *detail = parse(json);
    double fraction = tally_job_watch_fraction(detail);
    tally_json_free(detail);
    return fraction;
}

static void test_cli_job_watch__fraction_is_time_over_horizon(void)
{
    CU_ASSERT_EQUAL(fraction_of("{\"time_step\":500,\"horizon\":2000}"), 0.25);
    CU_ASSERT_EQUAL(fraction_of("{\"time_step\":500}"), 0);
    CU_ASSERT_EQUAL(fraction_of("{\"status\":\"completed\",\"time_step\":5,\"horizon\":9}"), 1);
}

static void test_cli_job_watch__backoff_doubles_up_to_five_seconds(void)
{
    static const int64_t EXPECTED[] = {250, 500, 1000, 2000, 4000, 5000, 5000};
    int64_t pause = 0;
    for (size_t i = 0; i < sizeof EXPECTED / sizeof EXPECTED[0]; i++) {
        pause = tally_job_watch_backoff_ms(pause);
        CU_ASSERT_EQUAL(pause, EXPECTED[i]);
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_cli_job_watch__text_tells_progress_regret_and_bits),
    TALLY_TEST(test_cli_job_watch__text_tells_what_a_job_waits_for),
    TALLY_TEST(test_cli_job_watch__only_the_jobs_course_is_a_change),
    TALLY_TEST(test_cli_job_watch__fraction_is_time_over_horizon),
    TALLY_TEST(test_cli_job_watch__backoff_doubles_up_to_five_seconds),
};
TALLY_SUITE(cli_job_watch, TESTS);
