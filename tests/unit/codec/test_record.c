#include "codec/base/record.h"

#include <math.h>

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

/* 0 rounds: what the engine's memory holds is no loss. */
static void test_codec_record__a_loss_needs_a_closed_round(void)
{
    struct tally_progress progress = {.round = 0, .loss = 0.5};
    CU_ASSERT_TRUE(isnan(tally_progress_loss(&progress)));
    progress.round = 1;
    CU_ASSERT_EQUAL(tally_progress_loss(&progress), 0.5);
    progress.loss = (double)NAN;
    CU_ASSERT_TRUE(isnan(tally_progress_loss(&progress)));
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_codec_record__status_names_lead_back),
    TALLY_TEST(test_codec_record__no_other_name_is_a_status),
    TALLY_TEST(test_codec_record__three_statuses_are_final),
    TALLY_TEST(test_codec_record__a_loss_needs_a_closed_round),
};
TALLY_SUITE(codec_record, TESTS);
