#include "services/coordinator/hosted_job.h"

#include "tests/harness.h"

enum { WHOLE = 8000, MB = 1000 * 1000 };

/* Returns how many changes of n bytes may follow a full snapshot, of at most `most`. */
static int count_most(size_t whole_bytes, size_t n, int most)
{
    struct stored_state stored = {.whole_bytes = whole_bytes, .most_changes = most};
    while (stored.n_changes < 1000 && stored_state_takes(&stored, n)) {
        stored.change_bytes += n;
        stored.n_changes++;
    }
    return stored.n_changes;
}

static int count_taken(size_t whole_bytes, size_t n)
{
    return count_most(whole_bytes, n, STATE_MOST_CHANGES);
}

static void test_coordinator_stored_state__the_whole_is_due_sooner_or_later(void)
{
    CU_ASSERT_EQUAL(count_taken(0, 1), 0); /* the snapshot's length is unknown */
    CU_ASSERT_EQUAL(count_taken(WHOLE, WHOLE / 4 + 1), 0);
    CU_ASSERT_EQUAL(count_taken(WHOLE, WHOLE / 4), 8);
    CU_ASSERT_EQUAL(count_taken(WHOLE, WHOLE / 10), 20);
    CU_ASSERT_EQUAL(count_taken(WHOLE, 1), 64);
    CU_ASSERT_EQUAL(count_most(WHOLE, 1, STATE_MOST_ROUNDS_AGAIN), 32);
}

static void test_coordinator_stored_state__a_long_change_may_be_half_as_long(void)
{
    CU_ASSERT_EQUAL(count_taken(8 * MB, 5 * MB + 1), 0);
    CU_ASSERT_EQUAL(count_taken(8 * MB, 5 * MB), 2);
    CU_ASSERT_EQUAL(count_taken(8 * MB, 4 * MB + 300), 2);
    CU_ASSERT_EQUAL(count_taken((size_t)2 * STATE_LONG_BYTES, STATE_LONG_BYTES), 2);
    CU_ASSERT_EQUAL(count_taken((size_t)2 * STATE_LONG_BYTES, STATE_LONG_BYTES - 1), 0);
}

/* The longest state has 10^8 coordinates. */
static void test_coordinator_stored_state__all_of_it_is_one_value_of_every_store(void)
{
    CU_ASSERT_EQUAL(count_taken((size_t)800 * MB, (size_t)10 * MB), 10);
    CU_ASSERT_EQUAL(count_taken((size_t)600 * MB, (size_t)100 * MB), 3);
    CU_ASSERT_EQUAL(count_taken((size_t)910 * MB, 1), 0);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_coordinator_stored_state__the_whole_is_due_sooner_or_later),
    TALLY_TEST(test_coordinator_stored_state__a_long_change_may_be_half_as_long),
    TALLY_TEST(test_coordinator_stored_state__all_of_it_is_one_value_of_every_store),
};
TALLY_SUITE(coordinator_stored_state, TESTS);
