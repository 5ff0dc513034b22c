#include "services/experiment/run.h"

#include <math.h>

#include "tests/harness.h"
#include "tests/unit/services/experiment/shipped_jobs.h"

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

/* CALM and compression are judged by what they send, the others by the formula of [1]. */
static void test_experiment_summary__what_counts_depends_on_the_job(void)
{
    static const struct {
        const char *job;
        bool sends;
    } jobs[] = {{"synthetic-calm-auto", true},
                {"synthetic-fedavg-compressed", true},
                {"synthetic-fedavg", false},
                {"synthetic-ceal", false}};
    const struct tally_mean_bits bits = {{1, 20, 300, 4000}, {5, 60, 700, 8000}};
    for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++) {
        const struct tally_job_spec spec = shipped_job(jobs[i].job, NAN, 1);
        const struct tally_bit_pair counted = tally_summary_counted_bits(
            tally_job_spec_algorithm(&spec), tally_run_is_compressed(&spec), &bits);
        CU_ASSERT_DOUBLE_EQUAL(counted.uplink, jobs[i].sends ? 4020 : 1, 0);
        CU_ASSERT_DOUBLE_EQUAL(counted.downlink, jobs[i].sends ? 8060 : 5, 0);
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_experiment_summary__mean_and_sample_deviation),
    TALLY_TEST(test_experiment_summary__one_diverged_run_makes_it_infinite),
    TALLY_TEST(test_experiment_summary__equal_integers_stay_exact),
    TALLY_TEST(test_experiment_summary__what_counts_depends_on_the_job),
};
TALLY_SUITE(experiment_summary, TESTS);
