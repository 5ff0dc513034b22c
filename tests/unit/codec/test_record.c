#include "codec/record.h"

#include <math.h>
#include <string.h>

#include "tests/harness.h"

static void test_codec_record__status_names_lead_back(void)
{
    for (int i = 0; i < TALLY_N_JOB_STATUS; i++) {
        enum tally_job_status back = TALLY_N_JOB_STATUS;
        CU_ASSERT_TRUE(
            tally_job_status_of_name(tally_job_status_name((enum tally_job_status)i), &back));
        CU_ASSERT_EQUAL((int)back, i);
    }
    TALLY_ASSERT_TEXT(tally_job_status_name(TALLY_JOB_QUEUED), "queued");
    TALLY_ASSERT_TEXT(tally_job_status_name(TALLY_JOB_CANCELLED), "cancelled");
}

static void test_codec_record__no_other_name_is_a_status(void)
{
    enum tally_job_status status = TALLY_JOB_PAUSED;
    CU_ASSERT_FALSE(tally_job_status_of_name("", &status));
    CU_ASSERT_FALSE(tally_job_status_of_name("Queued", &status));
    CU_ASSERT_FALSE(tally_job_status_of_name("canceled", &status));
    CU_ASSERT_EQUAL(status, TALLY_JOB_PAUSED);
}

static void test_codec_record__three_statuses_are_final(void)
{
    CU_ASSERT_FALSE(tally_job_status_is_terminal(TALLY_JOB_QUEUED));
    CU_ASSERT_FALSE(tally_job_status_is_terminal(TALLY_JOB_RUNNING));
    CU_ASSERT_FALSE(tally_job_status_is_terminal(TALLY_JOB_PAUSED));
    CU_ASSERT_TRUE(tally_job_status_is_terminal(TALLY_JOB_COMPLETED));
    CU_ASSERT_TRUE(tally_job_status_is_terminal(TALLY_JOB_FAILED));
    CU_ASSERT_TRUE(tally_job_status_is_terminal(TALLY_JOB_CANCELLED));
}

/* Before round 1 has closed, the stored number is not a loss. */
static void test_codec_record__a_loss_needs_a_closed_round(void)
{
    struct tally_progress progress = {.round = 0, .loss = 0.5};
    CU_ASSERT_TRUE(isnan(tally_progress_loss(&progress)));
    progress.round = 1;
    CU_ASSERT_EQUAL(tally_progress_loss(&progress), 0.5);
    progress.loss = (double)NAN;
    CU_ASSERT_TRUE(isnan(tally_progress_loss(&progress)));
}

/* Every double is read back unchanged, and so is a mean that overflowed to infinity. */
static void test_codec_record__metrics_come_back(void)
{
    char text[TALLY_METRICS_CAPACITY] = "";
    const struct tally_metric_summary written[] = {{"a", 0.1 + 0.2, -0.0, 1.7976931348623157e308},
                                                   {"b_2", INFINITY, 5e-324, 1}};
    struct tally_metric_summary read;
    const char *at = text;
    tally_metrics_append(text, &written[0]);
    tally_metrics_append(text, &written[1]);
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_TRUE_FATAL(tally_metrics_next(&at, &read));
        TALLY_ASSERT_TEXT(read.name, written[i].name);
        CU_ASSERT_EQUAL(read.mean, written[i].mean);
        CU_ASSERT_EQUAL(memcmp(&read.min, &written[i].min, sizeof read.min), 0);
        CU_ASSERT_EQUAL(read.max, written[i].max);
    }
    CU_ASSERT_FALSE(tally_metrics_next(&at, &read));
}

/* The summaries of three rounds, and the job's after each of them. */
static void test_codec_record__the_last_of_each_name_stays(void)
{
    static const char *const rounds[][2] = {
        {"b 1 1 1;d 2 2 2;", "b 1 1 1;d 2 2 2;"},
        {"", "b 1 1 1;d 2 2 2;"},
        {"a 3 3 3;d 4 4 4;e 5 5 5;", "a 3 3 3;b 1 1 1;d 4 4 4;e 5 5 5;"}};
    char last[TALLY_METRICS_CAPACITY] = "";
    for (size_t i = 0; i < sizeof rounds / sizeof rounds[0]; i++) {
        tally_metrics_update(last, rounds[i][0]);
        TALLY_ASSERT_TEXT(last, rounds[i][1]);
    }
}

/* Of 33 of the longest names, the one that comes last is left out; known ones are still updated. */
static void test_codec_record__a_job_has_at_most_32_names(void)
{
    char last[TALLY_METRICS_CAPACITY] = "";
    struct tally_metric_summary summary = {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa__",
                                           -1.2345678901234567e-300, -1.2345678901234567e-300,
                                           -1.2345678901234567e-300};
    for (int i = TALLY_JOB_METRICS_MOST; i >= 0; i--) {
        char round[TALLY_METRICS_CAPACITY] = "";
        snprintf(summary.name, sizeof summary.name, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa%02d", i);
        tally_metrics_append(round, &summary);
        tally_metrics_update(last, round);
    }
    const char *at = last;
    for (int i = 1; i <= TALLY_JOB_METRICS_MOST; i++) {
        char name[TALLY_METRIC_NAME_CAPACITY];
        snprintf(name, sizeof name, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa%02d", i);
        CU_ASSERT_TRUE_FATAL(tally_metrics_next(&at, &summary));
        TALLY_ASSERT_TEXT(summary.name, name);
        CU_ASSERT_EQUAL(summary.max, -1.2345678901234567e-300);
    }
    CU_ASSERT_EQUAL(*at, '\0');
    tally_metrics_update(
        last, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa00 1 1 1;aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa01 7 7 7;");
    at = last;
    CU_ASSERT_TRUE_FATAL(tally_metrics_next(&at, &summary));
    CU_ASSERT_EQUAL(summary.mean, 7);
}

static void test_codec_record__damaged_metrics_end_the_list(void)
{
    static const char *const damaged[] = {
        "",        "a",         "a 1 2 3",
        "a 1 2;",  "a 1 2 x;",  "A 1 2 3;",
        " 1 2 3;", "a  1 2 3;", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 1 2 3;"};
    for (size_t i = 0; i < sizeof damaged / sizeof damaged[0]; i++) {
        struct tally_metric_summary read = {.mean = 7};
        const char *at = damaged[i];
        const bool is_read = tally_metrics_next(&at, &read);
        CU_ASSERT_EQUAL(is_read, i == 7); /* spaces do not matter */
        CU_ASSERT_EQUAL(read.mean, is_read ? 1 : 7);
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_codec_record__status_names_lead_back),
    TALLY_TEST(test_codec_record__no_other_name_is_a_status),
    TALLY_TEST(test_codec_record__three_statuses_are_final),
    TALLY_TEST(test_codec_record__a_loss_needs_a_closed_round),
    TALLY_TEST(test_codec_record__metrics_come_back),
    TALLY_TEST(test_codec_record__the_last_of_each_name_stays),
    TALLY_TEST(test_codec_record__a_job_has_at_most_32_names),
    TALLY_TEST(test_codec_record__damaged_metrics_end_the_list),
};
TALLY_SUITE(codec_record, TESTS);
