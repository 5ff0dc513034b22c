#include "services/coordinator/replicas_placement.h"

#include "tests/harness.h"

enum { N = 4 };

/* Four live replicas that have no slots and want none; this replica is number 2. */
static struct tally_replica replicas[N];
static struct placement placement;

static void reset(void)
{
    for (int i = 0; i < N; i++) {
        replicas[i] = (struct tally_replica){.number = i + 1, .is_alive = true};
    }
    placement = (struct placement){.replicas = replicas, .n = N, .self = 2};
}

static void set_slots(int number, int64_t slots, int64_t n_free)
{
    replicas[number - 1].slots = slots;
    replicas[number - 1].free_slots = n_free;
}

static void set_want(int number, int64_t key, int64_t slots)
{
    replicas[number - 1].wants_key = key;
    replicas[number - 1].wants_slots = slots;
}

static int64_t number_of(const struct tally_replica *replica)
{
    return replica != NULL ? replica->number : 0;
}

static void test_coordinator_placement__the_oldest_job_that_can_be_filled_is_the_neediest(void)
{
    reset();
    CU_ASSERT_EQUAL(number_of(placement_neediest(&placement, 0)), 0);
    set_slots(2, 6, 0);
    set_slots(4, 4, 0);
    set_want(1, 20, 10);
    set_want(3, 10, 11);
    CU_ASSERT_EQUAL(number_of(placement_neediest(&placement, 0)), 1); /* replica 3 lacks one slot */
    CU_ASSERT_EQUAL(number_of(placement_neediest(&placement, 1)), 3);
    replicas[3].is_alive = false;
    CU_ASSERT_EQUAL(number_of(placement_neediest(&placement, 0)), 0);
    replicas[3].is_alive = true;
    replicas[0].is_alive = false;
    CU_ASSERT_EQUAL(number_of(placement_neediest(&placement, 0)), 0);
}

static void test_coordinator_placement__own_slots_fill_no_own_want(void)
{
    reset();
    set_slots(1, 100, 100); /* its job cannot use them */
    set_want(1, 5, 1);
    CU_ASSERT_EQUAL(number_of(placement_neediest(&placement, 0)), 0);
}

static void test_coordinator_placement__a_worker_joins_where_it_completes_a_job(void)
{
    reset();
    CU_ASSERT_EQUAL(number_of(placement_home(&placement, 5)), 0);
    set_want(3, 7, 5);
    CU_ASSERT_EQUAL(number_of(placement_home(&placement, 4)), 0);
    CU_ASSERT_EQUAL(number_of(placement_home(&placement, 5)), 3);
    set_slots(4, 1, 0);
    CU_ASSERT_EQUAL(number_of(placement_home(&placement, 4)), 3);
    placement.self = 3; /* this replica itself lacks them */
    CU_ASSERT_EQUAL(number_of(placement_home(&placement, 5)), 0);
}

static void test_coordinator_placement__younger_jobs_wait_for_an_older_one_elsewhere(void)
{
    reset();
    set_want(4, 50, 3);
    CU_ASSERT_EQUAL(placement_held_back_key(&placement), 0); /* no replica can fill it */
    set_slots(1, 3, 0);
    CU_ASSERT_EQUAL(placement_held_back_key(&placement), 50);
    placement.self = 4;
    CU_ASSERT_EQUAL(placement_held_back_key(&placement), 0); /* the local list has the order */
}

static void test_coordinator_placement__a_queued_job_goes_where_most_slots_are_free(void)
{
    reset();
    set_slots(1, 9, 4);
    set_slots(2, 90, 90);
    set_slots(3, 8, 8);
    set_slots(4, 8, 8);
    CU_ASSERT_EQUAL(number_of(placement_taker(&placement, 5, 9)), 0);
    CU_ASSERT_EQUAL(number_of(placement_taker(&placement, 5, 8)), 3);
    replicas[2].jobs = 2; /* as many slots, more jobs */
    CU_ASSERT_EQUAL(number_of(placement_taker(&placement, 5, 8)), 4);
    replicas[3].is_alive = false;
    CU_ASSERT_EQUAL(number_of(placement_taker(&placement, 5, 8)), 3);
}

static void test_coordinator_placement__no_job_overtakes_an_older_one(void)
{
    reset();
    set_slots(1, 8, 8);
    set_want(1, 5, 1000); /* no replica can fill it, but it comes first for those slots */
    CU_ASSERT_EQUAL(number_of(placement_taker(&placement, 6, 8)), 0);
    CU_ASSERT_EQUAL(number_of(placement_taker(&placement, 4, 8)), 1);
    reset();
    set_slots(1, 8, 8);
    set_want(3, 5, 8); /* those slots would fill it */
    CU_ASSERT_EQUAL(number_of(placement_taker(&placement, 6, 8)), 0);
    CU_ASSERT_EQUAL(number_of(placement_taker(&placement, 4, 8)), 1);
}

static void test_coordinator_placement__replicas_share_what_is_lacking(void)
{
    reset();
    set_slots(1, 4, 4);
    set_slots(2, 5, 5);
    set_slots(3, 5, 5);
    set_want(4, 9, 8);
    int64_t given = 0;
    for (placement.self = 1; placement.self <= N; placement.self++) {
        given += placement_share(&placement, 0, false);
    }
    CU_ASSERT_EQUAL(given, 8);
    placement.self = 2;
    CU_ASSERT_EQUAL(placement_share(&placement, 0, false), 4);
    CU_ASSERT_EQUAL(placement_share(&placement, 0, true), 5); /* all its slots: 5 < 8 */
    CU_ASSERT_EQUAL(placement_share(&placement, 10, false), 4);
    CU_ASSERT_EQUAL(placement_share(&placement, 8, false), 0); /* an older local job lacks them */
    placement.self = 3;
    CU_ASSERT_EQUAL(placement_share(&placement, 0, false), 0); /* replicas 1 and 2 have enough */
    CU_ASSERT_EQUAL(placement_share(&placement, 0, true), 5);
    placement.self = 4;
    CU_ASSERT_EQUAL(placement_share(&placement, 0, true), 0);
}

static void test_coordinator_placement__nobody_moves_before_it_helps(void)
{
    reset();
    set_slots(1, 4, 4);
    set_slots(2, 6, 3); /* 3 slots are still in use */
    set_want(4, 9, 8);
    CU_ASSERT_EQUAL(number_of(placement_neediest(&placement, 0)), 4);
    CU_ASSERT_EQUAL(placement_share(&placement, 0, false), 0);
    set_slots(2, 6, 4);
    CU_ASSERT_EQUAL(placement_share(&placement, 0, false), 4);
}

static void check_pick(int64_t wanted, const char *expected)
{
    static const int64_t SLOTS[] = {3, 8, 1, 5};
    bool picked[4];
    placement_pick(SLOTS, 4, wanted, picked);
    for (size_t i = 0; i < 4; i++) {
        CU_ASSERT_EQUAL(picked[i], expected[i] == 'x');
    }
}

static void test_coordinator_placement__workers_are_picked_without_much_to_spare(void)
{
    check_pick(0, "----");
    check_pick(-1, "----");
    check_pick(1, "--x-");
    check_pick(2, "x-x-"); /* first 1, then the smallest that fills the rest */
    check_pick(4, "x-x-");
    check_pick(6, "--xx");
    check_pick(8, "-x--");
    check_pick(17, "xxxx");
    check_pick(100, "xxxx");
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_coordinator_placement__the_oldest_job_that_can_be_filled_is_the_neediest),
    TALLY_TEST(test_coordinator_placement__own_slots_fill_no_own_want),
    TALLY_TEST(test_coordinator_placement__a_worker_joins_where_it_completes_a_job),
    TALLY_TEST(test_coordinator_placement__younger_jobs_wait_for_an_older_one_elsewhere),
    TALLY_TEST(test_coordinator_placement__a_queued_job_goes_where_most_slots_are_free),
    TALLY_TEST(test_coordinator_placement__no_job_overtakes_an_older_one),
    TALLY_TEST(test_coordinator_placement__replicas_share_what_is_lacking),
    TALLY_TEST(test_coordinator_placement__nobody_moves_before_it_helps),
    TALLY_TEST(test_coordinator_placement__workers_are_picked_without_much_to_spare),
};
TALLY_SUITE(coordinator_placement, TESTS);
