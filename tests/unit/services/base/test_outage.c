#include "services/base/outage.h"

#include "tests/harness.h"

static struct tally_error failure(const char *message)
{
    struct tally_error err = TALLY_ERROR_INIT;
    tally_fail(&err, TALLY_UNAVAILABLE, NULL, "%s", message);
    return err;
}

static bool is_news(struct tally_outage *outage, const char *message, int64_t now_ms)
{
    const struct tally_error err = failure(message);
    return tally_outage_is_news(outage, &err, now_ms);
}

static void test_base_outage__a_reason_is_told_once(void)
{
    struct tally_outage outage = {0};
    CU_ASSERT(is_news(&outage, "refused after 9 ms", 0));
    CU_ASSERT_FALSE(is_news(&outage, "refused after 9 ms", 60000));
    CU_ASSERT_FALSE(is_news(&outage, "refused after 10 ms", 120000));
    CU_ASSERT_FALSE(is_news(&outage, "refused after  ms", 180000));
}

static void test_base_outage__another_reason_is_told(void)
{
    struct tally_outage outage = {0};
    CU_ASSERT(is_news(&outage, "refused after 9 ms", 7));
    CU_ASSERT_FALSE(is_news(&outage, "HTML", 5006));
    CU_ASSERT(is_news(&outage, "HTML", 5007));
    CU_ASSERT_FALSE(is_news(&outage, "HTML", 99999));
    CU_ASSERT(is_news(&outage, "HTML from a proxy", 99999));
    CU_ASSERT(is_news(&outage, "HTML", 104999));
    CU_ASSERT_FALSE(is_news(&outage, "refused after 9 ms", 104999));
    CU_ASSERT(is_news(&outage, "refused after 9 ms", 109999));
}

static void test_base_outage__the_next_outage_is_told_at_once(void)
{
    struct tally_outage outage = {0};
    CU_ASSERT(is_news(&outage, "refused", 7));
    outage = (struct tally_outage){0};
    CU_ASSERT(is_news(&outage, "refused", 8));
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_base_outage__a_reason_is_told_once),
    TALLY_TEST(test_base_outage__another_reason_is_told),
    TALLY_TEST(test_base_outage__the_next_outage_is_told_at_once),
};
TALLY_SUITE(base_outage, TESTS);
