#include "services/coordinator/workers_matching.h"

#include "tests/harness.h"

/* A job of 8 clients that could start if it had enough slots. */
static struct match_job job_with(int64_t n_free, int64_t n_coming)
{
    return (struct match_job){.is_prepared = true,
                              .has_memory = true,
                              .will_have_memory = true,
                              .needed = 8,
                              .n_free = n_free,
                              .n_coming = n_coming};
}

static void test_coordinator_matching__starts_when_the_last_client_can_be_filled(void)
{
    const struct match_job short_of_one = job_with(7, 7), full = job_with(8, 8);
    CU_ASSERT_EQUAL(match_queued(&short_of_one), MATCH_PASS);
    CU_ASSERT_EQUAL(match_queued(&full), MATCH_START);
}

static void test_coordinator_matching__waits_if_slots_will_be_enough(void)
{
    const struct match_job enough = job_with(3, 8), too_few = job_with(3, 7);
    CU_ASSERT_EQUAL(match_queued(&enough), MATCH_WAIT);
    CU_ASSERT_EQUAL(match_queued(&too_few), MATCH_PASS);
}

static void test_coordinator_matching__memory_follows_the_rule_of_slots(void)
{
    struct match_job job = job_with(8, 8);
    job.has_memory = false;
    CU_ASSERT_EQUAL(match_queued(&job), MATCH_WAIT);
    job.will_have_memory = false;
    CU_ASSERT_EQUAL(match_queued(&job), MATCH_PASS);
}

/* A job whose f(x*) is being solved blocks no other job; one that lacks the memory to solve may. */
static void test_coordinator_matching__only_candidates_are_looked_at(void)
{
    struct match_job job = job_with(8, 8);
    CU_ASSERT_TRUE(match_is_candidate(&job));
    job.is_prepared = false;
    CU_ASSERT_FALSE(match_is_candidate(&job));
    job.is_unsolved = true;
    CU_ASSERT_FALSE(
        match_is_candidate(&job)); /* has the memory, so solving begins without a match */
    job.has_memory = false;
    CU_ASSERT_TRUE(match_is_candidate(&job));
    CU_ASSERT_EQUAL(match_queued(&job), MATCH_WAIT);
    job.n_coming = 7;
    CU_ASSERT_EQUAL(match_queued(&job), MATCH_PASS);
}

static void test_coordinator_matching__an_unprepared_job_never_starts(void)
{
    struct match_job job = job_with(8, 8);
    job.is_prepared = false;
    CU_ASSERT_NOT_EQUAL(match_queued(&job), MATCH_START);
}

/* With 5 slots free here and 3 elsewhere, the job can start at once. With 2 elsewhere, it asks for
 * what it will lack once the progressing jobs have released their slots. */
static void test_coordinator_matching__lacking_slots(void)
{
    const struct match_job job = job_with(5, 6), at_ease = job_with(5, 9);
    CU_ASSERT_EQUAL(match_lacking(&job, 3), 3);
    CU_ASSERT_EQUAL(match_lacking(&job, 2), 2);
    CU_ASSERT_EQUAL(match_lacking(&at_ease, 3), 3);
    CU_ASSERT_TRUE(match_lacking(&at_ease, 2) <= 0);
}

static void test_coordinator_matching__borrows_only_what_fills_the_job(void)
{
    CU_ASSERT_TRUE(match_can_borrow(4, 4, 0));
    CU_ASSERT_FALSE(match_can_borrow(4, 3, 0));
    CU_ASSERT_FALSE(match_can_borrow(4, 5, 2));
    CU_ASSERT_TRUE(match_can_borrow(4, 6, 2));
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_coordinator_matching__starts_when_the_last_client_can_be_filled),
    TALLY_TEST(test_coordinator_matching__waits_if_slots_will_be_enough),
    TALLY_TEST(test_coordinator_matching__memory_follows_the_rule_of_slots),
    TALLY_TEST(test_coordinator_matching__only_candidates_are_looked_at),
    TALLY_TEST(test_coordinator_matching__an_unprepared_job_never_starts),
    TALLY_TEST(test_coordinator_matching__lacking_slots),
    TALLY_TEST(test_coordinator_matching__borrows_only_what_fills_the_job),
};
TALLY_SUITE(coordinator_matching, TESTS);
