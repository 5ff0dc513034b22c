#include "services/experiment/run.h"

#include <math.h>

#include "tests/harness.h"

static void test_experiment_summary__mean_and_sample_deviation(void)
{
    const double values[] = {2, 4, 4, 4, 5, 5, 7, 9};
    const struct tally_summary summary = tally_summary_of(values, 8);
    CU_ASSERT_DOUBLE_EQUAL(summary.mean, 5, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(summary.std, sqrt(32.0 / 7), 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(tally_summary_of(values, 1).std, 0, 0);
}

static void test_experiment_summary__one_diverged_run_makes_it_infinite(void)
{
    const struct tally_run runs[] = {{.regret = 1}, {.regret = INFINITY, .diverged = true}};
    CU_ASSERT_TRUE(isinf(tally_summary_of_regret(runs, 2).mean));
    CU_ASSERT_DOUBLE_EQUAL(tally_summary_of_regret(runs, 1).mean, 1, 0);
}

static void test_experiment_summary__equal_integers_stay_exact(void)
{
    struct tally_run runs[7] = {{0}};
    for (size_t i = 0; i < 7; i++) {
        runs[i].uplink = (struct tally_run_bits){5017600, 38400, 1.5, 2.25};
        runs[i].downlink.formula = (double)i;
    }
    const struct tally_mean_bits mean = tally_summary_of_bits(runs, 7);
    CU_ASSERT_DOUBLE_EQUAL(mean.uplink.formula, 5017600, 0);
    CU_ASSERT_DOUBLE_EQUAL(mean.uplink.payload, 38400, 0);
    CU_ASSERT_DOUBLE_EQUAL(mean.uplink.entropy_payload, 1.5, 0);
    CU_ASSERT_DOUBLE_EQUAL(mean.uplink.control, 2.25, 0);
    CU_ASSERT_DOUBLE_EQUAL(mean.downlink.formula, 3, 0);
}

static void test_experiment_summary__calm_counts_what_it_sends(void)
{
    const struct tally_mean_bits bits = {{1, 20, 300, 4000}, {5, 60, 700, 8000}};
    const struct tally_bit_pair calm = tally_summary_counted_bits(&TALLY_CALM, &bits);
    const struct tally_bit_pair ceal = tally_summary_counted_bits(&TALLY_CEAL, &bits);
    CU_ASSERT_DOUBLE_EQUAL(calm.uplink, 4020, 0);
    CU_ASSERT_DOUBLE_EQUAL(calm.downlink, 8060, 0);
    CU_ASSERT_DOUBLE_EQUAL(ceal.uplink, 1, 0);
    CU_ASSERT_DOUBLE_EQUAL(ceal.downlink, 5, 0);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_experiment_summary__mean_and_sample_deviation),
    TALLY_TEST(test_experiment_summary__one_diverged_run_makes_it_infinite),
    TALLY_TEST(test_experiment_summary__equal_integers_stay_exact),
    TALLY_TEST(test_experiment_summary__calm_counts_what_it_sends),
};
TALLY_SUITE(experiment_summary, TESTS);
