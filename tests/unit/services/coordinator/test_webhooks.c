#include "services/coordinator/webhooks.h"

#include "tests/harness.h"

static void test_coordinator_webhooks__pauses_grow_and_end(void)
{
    int64_t sum_ms = 0, last_ms = 0;
    for (int n = 1; n < WEBHOOK_MOST_ATTEMPTS; n++) {
        const int64_t pause_ms = webhook_pause_ms(n);
        CU_ASSERT_TRUE(pause_ms >= last_ms && pause_ms >= 1000 && pause_ms <= 300000);
        last_ms = pause_ms;
        sum_ms += pause_ms;
    }
    CU_ASSERT_EQUAL(webhook_pause_ms(1), 1000);
    CU_ASSERT_EQUAL(webhook_pause_ms(3), 4000);
    CU_ASSERT_EQUAL(last_ms, 300000);
    CU_ASSERT_EQUAL(sum_ms, (511 + 6 * 300) * 1000); /* 39 minutes, and the exchanges themselves */
    CU_ASSERT_EQUAL(webhook_pause_ms(WEBHOOK_MOST_ATTEMPTS), -1);
    CU_ASSERT_EQUAL(webhook_pause_ms(1000000), -1);
}

static void test_coordinator_webhooks__a_prefix_has_a_host_and_a_path(void)
{
    static const char *const GOOD[] = {"http://a/", "https://a.b:8080/c", "http://[::1]:9/",
                                       "https://a/b/"};
    static const char *const BAD[] = {"",
                                      "http://",
                                      "http:///",
                                      "http://a",
                                      "ftp://a/",
                                      "http://a?b/",
                                      "http://a/?b",
                                      "http://u@a/",
                                      "http://a/..",
                                      "http://a/./b",
                                      "http://a/ b",
                                      "//a/"};
    for (size_t i = 0; i < sizeof GOOD / sizeof *GOOD; i++) {
        struct tally_error err = TALLY_ERROR_INIT;
        TALLY_ASSERT_STATUS(webhook_prefix_check(GOOD[i], &err), TALLY_OK, &err);
    }
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        struct tally_error err = TALLY_ERROR_INIT;
        TALLY_ASSERT_STATUS(webhook_prefix_check(BAD[i], &err), TALLY_INVALID_ARGUMENT, &err);
    }
}

static void test_coordinator_webhooks__a_url_is_below_a_prefix(void)
{
    static const struct webhook_rules RULES = {.prefixes = {"https://a/b", "http://c:1/"}};
    static const char *const GOOD[] = {"",
                                       "https://a/b",
                                       "https://a/b/",
                                       "https://a/b?c",
                                       "https://a/b/c",
                                       "http://c:1/",
                                       "http://c:1/d"};
    static const char *const BAD[] = {
        "https://a/bc",   "https://a/",         "http://a/b",         "http://c:11/",
        "http://c:1",     "http://c:1@d/",      "https://a/b/..",     "https://a/b/%2E",
        "https://a/b\\c", "https://a/b/..%2Fc", "https://a/b/..%5cc", "https://a/b/..;/c"};
    for (size_t i = 0; i < sizeof GOOD / sizeof *GOOD; i++) {
        struct tally_error err = TALLY_ERROR_INIT;
        TALLY_ASSERT_STATUS(webhook_url_check(&RULES, GOOD[i], &err), TALLY_OK, &err);
    }
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        struct tally_error err = TALLY_ERROR_INIT;
        TALLY_ASSERT_STATUS(webhook_url_check(&RULES, BAD[i], &err), TALLY_INVALID_ARGUMENT, &err);
        TALLY_ASSERT_TEXT(err.field, "webhook");
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_coordinator_webhooks__pauses_grow_and_end),
    TALLY_TEST(test_coordinator_webhooks__a_prefix_has_a_host_and_a_path),
    TALLY_TEST(test_coordinator_webhooks__a_url_is_below_a_prefix),
};
TALLY_SUITE(coordinator_webhooks, TESTS);
