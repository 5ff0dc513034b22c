#include "services/job/job_cohort.h"

#include <stdlib.h>
#include <string.h>

#include "tests/harness.h"

enum { CLIENTS = 1000, N = 37 };

static struct tally_cohort cohort_of(uint64_t seed, uint32_t clients, uint32_t n)
{
    struct tally_cohort cohort;
    CU_ASSERT_EQUAL_FATAL(tally_cohort_init(&cohort, tally_rng_key(seed, 0), clients, n, NULL),
                          TALLY_OK);
    return cohort;
}

static void expect_set(const struct tally_cohort *cohort)
{
    for (uint32_t i = 0; i < cohort->n; i++) {
        CU_ASSERT_TRUE(cohort->drawn[i] < cohort->clients);
        CU_ASSERT_TRUE(i == 0 || cohort->drawn[i - 1] < cohort->drawn[i]);
    }
}

static void test_tally_cohort__is_a_set_of_n_clients_in_order(void)
{
    static const uint32_t sizes[][2] = {{1, 1},         {2, 1},       {3, 2},
                                        {CLIENTS, 1},   {CLIENTS, N}, {CLIENTS, CLIENTS - 1},
                                        {100000, 1000}, {64, 63}};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        struct tally_cohort cohort = cohort_of(5, sizes[s][0], sizes[s][1]);
        CU_ASSERT_EQUAL(cohort.n, sizes[s][1]);
        for (uint32_t round = 1; round <= 20; round++) {
            tally_cohort_draw(&cohort, round);
            expect_set(&cohort);
        }
        tally_cohort_fini(&cohort);
    }
}

static void test_tally_cohort__all_clients_need_no_draw(void)
{
    struct tally_cohort cohort = cohort_of(5, N, N);
    tally_cohort_draw(&cohort, 3);
    for (uint32_t m = 0; m < N; m++) {
        CU_ASSERT_EQUAL(cohort.drawn[m], m);
    }
    tally_cohort_fini(&cohort);
}

/* A draw does not depend on earlier draws: a restored job draws the same cohorts. */
static void test_tally_cohort__depends_on_seed_and_round_alone(void)
{
    struct tally_cohort a = cohort_of(5, CLIENTS, N), b = cohort_of(5, CLIENTS, N),
                        other = cohort_of(6, CLIENTS, N);
    for (uint32_t round = 1; round <= 9; round++) {
        tally_cohort_draw(&a, round);
    }
    tally_cohort_draw(&b, 9);
    CU_ASSERT_EQUAL(memcmp(a.drawn, b.drawn, N * sizeof *a.drawn), 0);
    tally_cohort_draw(&b, 10);
    CU_ASSERT_NOT_EQUAL(memcmp(a.drawn, b.drawn, N * sizeof *a.drawn), 0);
    tally_cohort_draw(&other, 9);
    CU_ASSERT_NOT_EQUAL(memcmp(a.drawn, other.drawn, N * sizeof *a.drawn), 0);
    tally_cohort_fini(&a);
    tally_cohort_fini(&b);
    tally_cohort_fini(&other);
}

/* These numbers must never change: stored jobs draw their next rounds again. */
static void test_tally_cohort__is_the_same_in_every_release(void)
{
    static const uint32_t expected[] = {20, 40, 55, 76};
    struct tally_cohort cohort = cohort_of(2026, 100, 4);
    tally_cohort_draw(&cohort, 1);
    for (uint32_t i = 0; i < 4; i++) {
        CU_ASSERT_EQUAL(cohort.drawn[i], expected[i]);
    }
    tally_cohort_fini(&cohort);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_tally_cohort__is_a_set_of_n_clients_in_order),
    TALLY_TEST(test_tally_cohort__all_clients_need_no_draw),
    TALLY_TEST(test_tally_cohort__depends_on_seed_and_round_alone),
    TALLY_TEST(test_tally_cohort__is_the_same_in_every_release),
};
TALLY_SUITE(job_cohort, TESTS);
