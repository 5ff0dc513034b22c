#include <string.h>

#include "tests/harness.h"
#include "tests/unit/services/job/job_host.h"

/* For every horizon from 1 to 120 the steps add up to the horizon, only the last record may be cut,
 * and it covers exactly the steps that were left. All three ways to end occur. */
static void test_job_horizon__every_horizon_is_met_exactly(void)
{
    int fits = 0, cut_at_once = 0, cut_after_evaluation = 0;
    for (int64_t horizon = 1; horizon <= 120; horizon++) {
        struct tally_job_spec spec = job_host_spec();
        spec.horizon = horizon;
        struct job_host host;
        job_host_init(&host, &spec);
        bool evaluate_only = false;
        while (!tally_job_status_is_terminal(tally_job_status(host.job))) {
            const struct tally_round_plan *plan = &tally_job_open_round(host.job)->plan;
            evaluate_only = plan->cut;
            int64_t left = horizon - tally_job_progress(host.job)->time_step;
            CU_ASSERT_TRUE(plan->cut ? plan->samples == left : plan->samples <= left);
            job_host_round(&host);
        }
        int64_t sum = 0;
        bool only_last = true;
        for (int i = 0; i < host.n_records; i++) {
            sum += host.records[i].samples;
            only_last = only_last && (!host.records[i].cut || i == host.n_records - 1);
            CU_ASSERT_EQUAL(host.records[i].round, i + 1);
        }
        CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_COMPLETED);
        CU_ASSERT_EQUAL(sum, horizon);
        CU_ASSERT_EQUAL(tally_job_progress(host.job)->time_step, horizon);
        CU_ASSERT_TRUE(only_last);
        const struct tally_round_record *last = &host.records[host.n_records - 1];
        fits += !last->cut;
        cut_at_once += last->cut && !evaluate_only;
        cut_after_evaluation += last->cut && evaluate_only;
        if (last->cut) {
            CU_ASSERT_EQUAL(last->received, 0);
            CU_ASSERT_EQUAL(last->norm, 0);
            CU_ASSERT_FALSE(last->passed);
            CU_ASSERT_EQUAL(last->bits.uplink.messages, 0);
            CU_ASSERT_EQUAL(last->bits.uplink.formula_bits, 0);
            CU_ASSERT_EQUAL(last->bits.downlink.payload_bits, 0);
            CU_ASSERT_EQUAL(last->bits.control_bits, 0);
            CU_ASSERT_EQUAL(last->bits.telemetry_bits, evaluate_only ? 5 * 64 : 0);
        }
        job_host_fini(&host);
    }
    CU_ASSERT_TRUE(fits > 0);
    CU_ASSERT_TRUE(cut_at_once > 0);
    CU_ASSERT_TRUE(cut_after_evaluation > 0);
}

/* A longer horizon repeats the rounds of a shorter one up to its cut. */
static void test_job_horizon__longer_runs_begin_like_shorter_ones(void)
{
    static struct job_host longer;
    struct tally_job_spec spec = job_host_spec();
    job_host_init(&longer, &spec);
    job_host_run(&longer);
    for (int64_t horizon = 5; horizon < 300; horizon += 37) {
        static struct job_host shorter;
        spec.horizon = horizon;
        job_host_init(&shorter, &spec);
        job_host_run(&shorter);
        bool same = true;
        for (int i = 0; i < shorter.n_records && !shorter.records[i].cut; i++) {
            same = same && job_same_record(&shorter.records[i], &longer.records[i]);
        }
        CU_ASSERT_TRUE(same);
        job_host_fini(&shorter);
    }
    job_host_fini(&longer);
}

static void test_job_horizon__first_round_that_does_not_fit_is_only_evaluated(void)
{
    struct tally_job_spec spec = job_host_spec();
    spec.params.ceal.first_stage = 6; /* more samples than the horizon has */
    for (spec.horizon = 1; spec.horizon < 30; spec.horizon += 13) {
        struct job_host host;
        job_host_init(&host, &spec);
        const struct tally_job_round *open = tally_job_open_round(host.job);
        CU_ASSERT_TRUE(open->plan.cut);
        CU_ASSERT_EQUAL(open->plan.samples, spec.horizon);
        CU_ASSERT_TRUE(open->evaluate);
        job_host_compute(&host);
        CU_ASSERT_EQUAL(host.updates[0].payload.size, 0);
        CU_ASSERT_TRUE(host.updates[0].has_loss);
        for (uint32_t m = 0; m < 5; m++) {
            struct tally_job_outcome outcome = job_host_send(&host, m);
            CU_ASSERT_EQUAL(outcome.bits.messages, 0);
            CU_ASSERT_EQUAL(outcome.n_records, m == 4);
        }
        CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_COMPLETED);
        CU_ASSERT_EQUAL(host.n_records, 1);
        const struct tally_round_record *record = &host.records[0];
        CU_ASSERT_TRUE(record->cut);
        CU_ASSERT_EQUAL(record->samples, spec.horizon);
        CU_ASSERT_EQUAL(record->iterate, 1);
        CU_ASSERT_EQUAL(record->stage, 6);
        const double regret = 5.0 * (double)spec.horizon * (host.loss - host.f_star);
        CU_ASSERT_DOUBLE_EQUAL(record->cumulative_regret, regret, 1e-10 * regret);
        struct tally_job_outcome again;
        CU_ASSERT_EQUAL(tally_job_receive(host.job, &host.updates[0], &again, NULL), TALLY_OK);
        CU_ASSERT_TRUE(again.duplicate);
        CU_ASSERT_EQUAL(again.bits.messages, 0);
        job_host_fini(&host);
    }
}

/* With one sample per round the horizon never cuts a round. */
static void test_job_horizon__single_samples_always_fit(void)
{
    struct tally_job_spec spec = job_host_spec();
    spec.params.ceal.sample_scale = 1e-9;
    spec.horizon = 7;
    struct job_host host;
    job_host_init(&host, &spec);
    job_host_run(&host);
    CU_ASSERT_EQUAL(host.n_records, 7);
    for (int i = 0; i < host.n_records; i++) {
        CU_ASSERT_EQUAL(host.records[i].samples, 1);
        CU_ASSERT_FALSE(host.records[i].cut);
    }
    job_host_fini(&host);
}

/* A stage whose grid does not exist fails the job, with a reason. (Validation refuses such a spec,
 * but the engine must not rely on that.) */
static void test_job_horizon__stage_without_a_grid_fails_the_job(void)
{
    struct tally_job_spec spec = job_host_spec();
    spec.params.ceal.phi0 = 1e-6;
    struct tally_job *job;
    CU_ASSERT_EQUAL(tally_job_spec_validate(&spec, NULL), TALLY_OUT_OF_RANGE);
    CU_ASSERT_EQUAL_FATAL(tally_job_new(&spec, &job, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(tally_job_start(job, 0, "", NULL), TALLY_OK);
    CU_ASSERT_EQUAL(tally_job_status(job), TALLY_JOB_FAILED);
    CU_ASSERT_EQUAL(
        strncmp(tally_job_reason(job), "algorithm_failed: stage 2: quantizer needs ", 43), 0);
    tally_job_free(job);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_job_horizon__every_horizon_is_met_exactly),
    TALLY_TEST(test_job_horizon__longer_runs_begin_like_shorter_ones),
    TALLY_TEST(test_job_horizon__first_round_that_does_not_fit_is_only_evaluated),
    TALLY_TEST(test_job_horizon__single_samples_always_fit),
    TALLY_TEST(test_job_horizon__stage_without_a_grid_fails_the_job),
};
TALLY_SUITE(job_horizon, TESTS);
