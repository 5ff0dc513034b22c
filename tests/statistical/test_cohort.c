/* The clients of a round: every subset of n has the same probability, independently in every
 * round. */
#include "services/job/job_cohort.h"

#include <math.h>
#include <string.h>

#include "tests/harness.h"

enum { CLIENTS = 50, N = 10, ROUNDS = 40000 };

static struct tally_cohort cohort_of(uint64_t seed, uint32_t clients, uint32_t n)
{
    struct tally_cohort cohort;
    CU_ASSERT_EQUAL_FATAL(tally_cohort_init(&cohort, tally_rng_key(seed, 0), clients, n, NULL),
                          TALLY_OK);
    return cohort;
}

/* 5 standard deviations on either side: too even is as suspicious as too uneven. */
static void expect_chi_square(double chi_square, double freedom)
{
    CU_ASSERT_TRUE(fabs(chi_square - freedom) < 5 * sqrt(2 * freedom));
}

/* The count of one client in R rounds has variance R p (1 - p), p = n / M. Drawing without
 * replacement keeps the sum constant, so the counts are negatively correlated. This leaves M - 1
 * degrees of freedom for (M - 1) / M sum (count - R p)^2 / (R p (1 - p)). */
static void test_statistical_cohort__every_client_is_drawn_equally_often(void)
{
    struct tally_cohort cohort = cohort_of(1, CLIENTS, N);
    double counts[CLIENTS] = {0}, sum = 0;
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        tally_cohort_draw(&cohort, round);
        for (uint32_t i = 0; i < N; i++) {
            counts[cohort.drawn[i]]++;
        }
    }
    const double p = (double)N / CLIENTS;
    for (int m = 0; m < CLIENTS; m++) {
        sum += (counts[m] - ROUNDS * p) * (counts[m] - ROUNDS * p) / (ROUNDS * p * (1 - p));
    }
    expect_chi_square(sum * (CLIENTS - 1) / CLIENTS, CLIENTS - 1);
    tally_cohort_fini(&cohort);
}

/* Every pair of clients has the probability n (n - 1) / (M (M - 1)). This fails for a draw that
 * favours neighbours or only shifts a fixed pattern. */
static void test_statistical_cohort__every_pair_is_drawn_equally_often(void)
{
    enum { M = 12, K = 4, PAIRS = M * (M - 1) / 2 };
    struct tally_cohort cohort = cohort_of(2, M, K);
    static double counts[M][M];
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        tally_cohort_draw(&cohort, round);
        for (uint32_t i = 0; i < K; i++) {
            for (uint32_t j = 0; j < i; j++) {
                counts[cohort.drawn[i]][cohort.drawn[j]]++;
            }
        }
    }
    const double p = (double)(K * (K - 1)) / (M * (M - 1));
    for (int a = 0; a < M; a++) {
        for (int b = 0; b < a; b++) {
            CU_ASSERT_DOUBLE_EQUAL(counts[a][b], ROUNDS * p, 5 * sqrt(ROUNDS * p * (1 - p)));
        }
    }
    tally_cohort_fini(&cohort);
}

/* All subsets of 3 of 6: chi-square with 19 degrees of freedom. */
static void test_statistical_cohort__every_subset_is_drawn_equally_often(void)
{
    struct tally_cohort cohort = cohort_of(3, 6, 3);
    double counts[64] = {0}, sum = 0;
    int n_subsets = 0;
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        tally_cohort_draw(&cohort, round);
        counts[1 << cohort.drawn[0] | 1 << cohort.drawn[1] | 1 << cohort.drawn[2]]++;
    }
    for (int s = 0; s < 64; s++) {
        const double expected = ROUNDS / 20.0;
        n_subsets += counts[s] > 0;
        sum += counts[s] > 0 ? (counts[s] - expected) * (counts[s] - expected) / expected : 0;
    }
    CU_ASSERT_EQUAL(n_subsets, 20);
    expect_chi_square(sum, 19);
    tally_cohort_fini(&cohort);
}

/* The draws of different rounds are independent: the number of clients that two rounds share is
 * hypergeometric, with mean n^2 / M. */
static void test_statistical_cohort__rounds_are_independent(void)
{
    const double mean = (double)N * N / CLIENTS;
    const double variance = mean * (CLIENTS - N) / CLIENTS * (CLIENTS - N) / (CLIENTS - 1);
    struct tally_cohort a = cohort_of(4, CLIENTS, N), b = cohort_of(4, CLIENTS, N);
    for (uint32_t lag = 1; lag <= 3; lag++) {
        double shared = 0;
        for (uint32_t round = 1; round <= ROUNDS; round++) {
            tally_cohort_draw(&a, round);
            tally_cohort_draw(&b, round + lag);
            for (uint32_t i = 0, j = 0; i < N && j < N;) {
                shared += a.drawn[i] == b.drawn[j];
                const bool first_is_less = a.drawn[i] < b.drawn[j];
                i += a.drawn[i] <= b.drawn[j];
                j += !first_is_less;
            }
        }
        CU_ASSERT_DOUBLE_EQUAL(shared / ROUNDS, mean, 5 * sqrt(variance / ROUNDS));
    }
    tally_cohort_fini(&a);
    tally_cohort_fini(&b);
}

/* All 24 orders of four clients, as used for the answers in a simulation with over-selection:
 * chi-square with 23 degrees of freedom. */
static void test_statistical_cohort__every_order_is_as_likely(void)
{
    double counts[256] = {0}, sum = 0;
    int n_orders = 0;
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        uint32_t order[4] = {0, 1, 2, 3};
        CU_ASSERT_EQUAL(tally_cohort_shuffle(tally_rng_key(5, 0), round, order, 4, NULL), TALLY_OK);
        counts[order[0] << 6 | order[1] << 4 | order[2] << 2 | order[3]]++;
    }
    for (int s = 0; s < 256; s++) {
        const double expected = ROUNDS / 24.0;
        n_orders += counts[s] > 0;
        sum += counts[s] > 0 ? (counts[s] - expected) * (counts[s] - expected) / expected : 0;
    }
    CU_ASSERT_EQUAL(n_orders, 24);
    expect_chi_square(sum, 23);
}

/* The first two to answer, of four drawn from six: every pair is equally likely, so their mean is
 * unbiased. Chi-square with 14 degrees of freedom. */
static void test_statistical_cohort__first_answers_are_a_fair_draw(void)
{
    struct tally_cohort cohort = cohort_of(6, 6, 4);
    double counts[64] = {0}, sum = 0;
    int n_pairs = 0;
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        tally_cohort_draw(&cohort, round);
        uint32_t order[4];
        memcpy(order, cohort.drawn, sizeof order);
        CU_ASSERT_EQUAL(tally_cohort_shuffle(cohort.key, round, order, 4, NULL), TALLY_OK);
        counts[1 << order[0] | 1 << order[1]]++;
    }
    for (int s = 0; s < 64; s++) {
        const double expected = ROUNDS / 15.0;
        n_pairs += counts[s] > 0;
        sum += counts[s] > 0 ? (counts[s] - expected) * (counts[s] - expected) / expected : 0;
    }
    CU_ASSERT_EQUAL(n_pairs, 15);
    expect_chi_square(sum, 14);
    tally_cohort_fini(&cohort);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_statistical_cohort__every_client_is_drawn_equally_often),
    TALLY_TEST(test_statistical_cohort__every_pair_is_drawn_equally_often),
    TALLY_TEST(test_statistical_cohort__every_subset_is_drawn_equally_often),
    TALLY_TEST(test_statistical_cohort__rounds_are_independent),
    TALLY_TEST(test_statistical_cohort__every_order_is_as_likely),
    TALLY_TEST(test_statistical_cohort__first_answers_are_a_fair_draw),
};
TALLY_SUITE(statistical_cohort, TESTS);
