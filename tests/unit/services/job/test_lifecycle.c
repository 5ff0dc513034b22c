#include "services/job/job_status_moves.h"

#include <stdio.h>

#include "tests/harness.h"

#define Q TALLY_JOB_QUEUED
#define R TALLY_JOB_RUNNING
#define P TALLY_JOB_PAUSED
#define C TALLY_JOB_COMPLETED
#define F TALLY_JOB_FAILED
#define X TALLY_JOB_CANCELLED
enum { NO = -1 };

/* The status to which each event leads from each status, as in the diagram in job.h. */
static const int EXPECTED[TALLY_N_JOB_STATUS][TALLY_N_JOB_EVENTS] = {
    /*        start pause resume complete fail cancel */
    [Q] = {R, NO, NO, NO, F, X},    [R] = {NO, P, NO, C, F, X},     [P] = {NO, NO, R, C, F, X},
    [C] = {NO, NO, NO, NO, NO, NO}, [F] = {NO, NO, NO, NO, NO, NO}, [X] = {NO, NO, NO, NO, NO, NO},
};

static void test_job_lifecycle__every_event_from_every_status(void)
{
    for (int from = 0; from < TALLY_N_JOB_STATUS; from++) {
        for (int event = 0; event < TALLY_N_JOB_EVENTS; event++) {
            enum tally_job_status status = (enum tally_job_status)from;
            struct tally_error err = TALLY_ERROR_INIT;
            int expected = EXPECTED[from][event];
            TALLY_ASSERT_STATUS(tally_job_move(&status, (enum tally_job_event)event, &err),
                                expected == NO ? TALLY_FAILED_PRECONDITION : TALLY_OK, &err);
            CU_ASSERT_EQUAL((int)status, expected == NO ? from : expected);
        }
    }
}

static void test_job_lifecycle__refusal_names_event_and_status(void)
{
    static const char *const events[] = {"start", "pause", "resume", "complete", "fail", "cancel"};
    for (int event = 0; event < TALLY_N_JOB_EVENTS; event++) {
        enum tally_job_status status = TALLY_JOB_COMPLETED;
        struct tally_error err = TALLY_ERROR_INIT;
        char message[80];
        snprintf(message, sizeof message, "cannot %s a job that is completed", events[event]);
        tally_job_move(&status, (enum tally_job_event)event, &err);
        TALLY_ASSERT_TEXT(err.message, message);
    }
}

static void test_job_lifecycle__final_statuses_are_those_without_a_way_out(void)
{
    for (int from = 0; from < TALLY_N_JOB_STATUS; from++) {
        bool stuck = true;
        for (int event = 0; event < TALLY_N_JOB_EVENTS; event++) {
            enum tally_job_status status = (enum tally_job_status)from;
            stuck = stuck && tally_job_move(&status, (enum tally_job_event)event, NULL) != TALLY_OK;
        }
        CU_ASSERT_EQUAL(stuck, tally_job_status_is_terminal((enum tally_job_status)from));
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_job_lifecycle__every_event_from_every_status),
    TALLY_TEST(test_job_lifecycle__refusal_names_event_and_status),
    TALLY_TEST(test_job_lifecycle__final_statuses_are_those_without_a_way_out),
};
TALLY_SUITE(job_lifecycle, TESTS);
