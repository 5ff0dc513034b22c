#include "services/base/rest_client.h"

#include <string.h>

#include "tests/harness.h"

static void expect_path(const char *id, const char *rest, const char *expected)
{
    char path[TALLY_JOB_PATH_CAPACITY];
    tally_job_path(id, rest, path);
    TALLY_ASSERT_TEXT(path, expected);
}

static void test_rest_client_job_path__ids_stand_as_they_are(void)
{
    expect_path("ab12", "", "/v1/jobs/ab12");
    expect_path("A-z_09", "/rounds?after=3", "/v1/jobs/A-z_09/rounds?after=3");
}

static void test_rest_client_job_path__an_id_cannot_leave_its_place(void)
{
    expect_path("../workers", "", "/v1/jobs/%2E%2E%2Fworkers");
    expect_path("a?b#c d", "/model", "/v1/jobs/a%3Fb%23c%20d/model");
    expect_path("\xC3\xA9%", "", "/v1/jobs/%C3%A9%25");
}

static void test_rest_client_job_path__a_long_id_is_cut_before_the_rest(void)
{
    char id[1000];
    memset(id, '/', sizeof id);
    id[999] = '\0';
    char path[TALLY_JOB_PATH_CAPACITY];
    tally_job_path(id, "/rounds?after=9223372036854775807&limit=1000", path);
    CU_ASSERT_PTR_NOT_NULL(strstr(path, "%2F/rounds?after=9223372036854775807&limit=1000"));
    CU_ASSERT(strlen(path) < TALLY_JOB_PATH_CAPACITY);
}

static void test_rest_client_job_path__query_values_are_whole_or_refused(void)
{
    char value[TALLY_QUERY_VALUE_CAPACITY], text[TALLY_QUERY_VALUE_CAPACITY + 1];
    CU_ASSERT_TRUE(tally_query_value("a=b&c", value));
    TALLY_ASSERT_TEXT(value, "a%3Db%26c");
    memset(text, '=', sizeof text);
    text[TALLY_QUERY_VALUE_CAPACITY] = '\0';
    CU_ASSERT_FALSE(tally_query_value(text, value));
    CU_ASSERT(strlen(value) < TALLY_QUERY_VALUE_CAPACITY);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_rest_client_job_path__ids_stand_as_they_are),
    TALLY_TEST(test_rest_client_job_path__an_id_cannot_leave_its_place),
    TALLY_TEST(test_rest_client_job_path__a_long_id_is_cut_before_the_rest),
    TALLY_TEST(test_rest_client_job_path__query_values_are_whole_or_refused),
};
TALLY_SUITE(rest_client_job_path, TESTS);
