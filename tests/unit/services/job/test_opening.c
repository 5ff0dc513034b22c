/* Jobs whose sigma and gradient_bound are "auto": the opening round in the engine. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "services/algorithms/ceal.h"
#include "services/job/job_local.h"
#include "tests/harness.h"
#include "tests/unit/services/job/job_host.h"
#include "tests/unit/services/local_run.h"

enum { CLIENTS = 5, SAMPLES = 13 /* ceil(64 / 5) */ };

static struct tally_job_spec automatic(void)
{
    struct tally_job_spec spec = job_host_spec();
    spec.params.ceal.sigma = NAN;
    spec.params.ceal.gradient_bound = NAN;
    return spec;
}

static void expect_same_run(const struct job_host *a, const struct job_host *b)
{
    CU_ASSERT_TRUE(job_same_progress(tally_job_progress(a->job), tally_job_progress(b->job)));
    CU_ASSERT_EQUAL_FATAL(a->n_records, b->n_records);
    for (int i = 0; i < a->n_records; i++) {
        CU_ASSERT_TRUE(job_same_record(&a->records[i], &b->records[i]));
    }
}

static void test_job_opening__is_a_round_of_its_own(void)
{
    const struct tally_job_spec spec = automatic();
    struct job_host host;
    job_host_init(&host, &spec);
    const struct tally_progress *progress = tally_job_progress(host.job);
    const struct tally_job_round *open = tally_job_open_round(host.job);
    CU_ASSERT_EQUAL(progress->stage, 0);
    CU_ASSERT_TRUE(progress->estimates.sigma == 0 && progress->estimates.gradient_bound == 0);
    CU_ASSERT_TRUE(open->plan.stage == 0 && open->plan.samples == SAMPLES && open->evaluate);
    job_host_round(&host);
    const struct tally_round_record *record = &host.records[0];
    CU_ASSERT_TRUE(record->round == 1 && record->time_step == SAMPLES && record->iterate == 1 &&
                   record->stage == 0 && record->samples == SAMPLES && record->received == CLIENTS);
    CU_ASSERT_TRUE(record->norm == 0 && !record->passed && !record->cut);
    const struct tally_ledger *bits = &record->bits;
    CU_ASSERT_TRUE(bits->uplink.formula_bits == 64 * CLIENTS &&
                   bits->uplink.payload_bits == 64 * CLIENTS && bits->uplink.messages == CLIENTS &&
                   bits->uplink.clipped == 0);
    CU_ASSERT_TRUE(bits->downlink.messages == 0 && bits->downlink.payload_bits == 0 &&
                   bits->delivered_payload_bits == 0);
    CU_ASSERT_EQUAL(bits->control_bits, 64);
    CU_ASSERT_DOUBLE_EQUAL(record->cumulative_regret,
                           (double)(CLIENTS * SAMPLES) * (host.loss - host.f_star), 1e-9);
    CU_ASSERT_TRUE(progress->estimates.sigma > 0 && progress->estimates.gradient_bound > 0);
    CU_ASSERT_EQUAL(progress->stage, spec.params.ceal.first_stage);
    CU_ASSERT_FALSE(open->evaluate); /* f is known there */
    /* The next round is planned with the estimates. */
    struct tally_ceal_params found = spec.params.ceal;
    found.sigma = progress->estimates.sigma;
    found.gradient_bound = progress->estimates.gradient_bound;
    const struct tally_ceal_stage stage = tally_ceal_stage(&found, CLIENTS, 6, progress->stage);
    struct tally_grid grid;
    CU_ASSERT_EQUAL(tally_grid_init(stage.client_error + stage.gradient_bound,
                                    stage.uplink_accuracy, 6, &grid, NULL),
                    TALLY_OK);
    CU_ASSERT_EQUAL(open->plan.samples, stage.samples);
    CU_ASSERT_TRUE(open->plan.grid.step == grid.step &&
                   open->plan.grid.intervals == grid.intervals);
    job_host_run(&host);
    CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_COMPLETED);
    CU_ASSERT_TRUE(progress->iterate > 3);
    uint64_t formula = 0, control = 0;
    for (int i = 0; i < host.n_records; i++) {
        formula += host.records[i].bits.uplink.formula_bits;
        control += host.records[i].bits.control_bits;
    }
    CU_ASSERT_EQUAL(progress->bits.uplink.formula_bits, formula);
    CU_ASSERT_EQUAL(progress->bits.control_bits, control);
    job_host_fini(&host);
}

static void test_job_opening__one_of_the_two_costs_half(void)
{
    for (int i = 0; i < 2; i++) {
        struct tally_job_spec spec = automatic();
        *(i == 0 ? &spec.params.ceal.sigma : &spec.params.ceal.gradient_bound) = 1.2;
        struct job_host host;
        job_host_init(&host, &spec);
        job_host_round(&host);
        const struct tally_estimates *estimates = &tally_job_progress(host.job)->estimates;
        CU_ASSERT_EQUAL(estimates->sigma > 0, i == 1);
        CU_ASSERT_EQUAL(estimates->gradient_bound > 0, i == 0);
        CU_ASSERT_EQUAL(host.records[0].bits.uplink.payload_bits, 32 * CLIENTS);
        CU_ASSERT_EQUAL(host.records[0].bits.control_bits, 32);
        job_host_run(&host);
        CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_COMPLETED);
        job_host_fini(&host);
    }
}

static void test_job_opening__order_of_arrival_does_not_matter(void)
{
    const struct tally_job_spec spec = automatic();
    struct job_host forward, backward;
    job_host_init(&forward, &spec);
    job_host_init(&backward, &spec);
    job_host_run(&forward);
    while (!tally_job_status_is_terminal(tally_job_status(backward.job))) {
        job_host_compute(&backward);
        for (uint32_t m = CLIENTS; m-- > 0;) {
            job_host_send(&backward, m);
        }
    }
    expect_same_run(&backward, &forward);
    struct tally_job *alone;
    CU_ASSERT_EQUAL_FATAL(local_run(&spec, NULL, NULL, &alone, NULL), TALLY_OK);
    CU_ASSERT_TRUE(job_same_progress(tally_job_progress(alone), tally_job_progress(forward.job)));
    tally_job_free(alone);
    job_host_fini(&forward);
    job_host_fini(&backward);
}

/* A crash. The new process has the progress, the state, and the updates of the open round. */
static void crash(struct job_host *host, uint32_t n_received)
{
    struct tally_buffer state = {0};
    struct tally_job *again = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    const struct tally_progress progress = *tally_job_progress(host->job);
    CU_ASSERT_EQUAL_FATAL(tally_job_save_state(host->job, &state), TALLY_OK);
    TALLY_ASSERT_STATUS(tally_job_restore(&host->spec, TALLY_JOB_RUNNING, &progress, state.data,
                                          state.size, &again, &err),
                        TALLY_OK, &err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(again);
    tally_job_free(host->job);
    host->job = again;
    for (uint32_t m = 0; m < n_received; m++) {
        job_host_send(host, m);
    }
    size_t dim;
    const double *x = tally_job_point(again, &dim);
    CU_ASSERT_EQUAL(tally_model_copy_load(host->copy, progress.iterate, (const uint8_t *)x,
                                          dim * sizeof *x, NULL),
                    TALLY_OK);
    tally_buffer_fini(&state);
}

static void test_job_opening__a_crash_in_any_round_changes_nothing(void)
{
    const struct tally_job_spec spec = automatic();
    struct job_host expected;
    job_host_init(&expected, &spec);
    job_host_run(&expected);
    CU_ASSERT_TRUE_FATAL(expected.n_records > 5);
    for (int at = 0; at < 5; at++) { /* 0: the opening round */
        struct job_host host;
        job_host_init(&host, &spec);
        for (int i = 0; i < at; i++) {
            job_host_round(&host);
        }
        job_host_compute(&host);
        for (uint32_t m = 0; m < 3; m++) {
            job_host_send(&host, m);
        }
        crash(&host, 3);
        for (uint32_t m = 3; m < CLIENTS; m++) {
            job_host_send(&host, m);
        }
        crash(&host, 0);
        job_host_run(&host);
        expect_same_run(&host, &expected);
        job_host_fini(&host);
    }
    job_host_fini(&expected);
}

static void test_job_opening__estimates_that_cannot_be_are_data_loss(void)
{
    const struct tally_job_spec spec = automatic();
    struct job_host host;
    job_host_init(&host, &spec);
    job_host_round(&host);
    struct tally_buffer state = {0};
    CU_ASSERT_EQUAL_FATAL(tally_job_save_state(host.job, &state), TALLY_OK);
    for (int i = 0; i < 2; i++) {
        struct tally_progress progress = *tally_job_progress(host.job);
        *(i == 0 ? &progress.estimates.sigma : &progress.estimates.gradient_bound) = 0;
        struct tally_job *job = NULL;
        CU_ASSERT_EQUAL(tally_job_restore(&spec, TALLY_JOB_RUNNING, &progress, state.data,
                                          state.size, &job, NULL),
                        TALLY_DATA_LOSS);
        CU_ASSERT_PTR_NULL(job);
    }
    tally_buffer_fini(&state);
    job_host_fini(&host);
}

static void test_job_opening__those_that_answered_decide(void)
{
    struct tally_job_spec spec = automatic();
    spec.policy = TALLY_POLICY_DROP;
    spec.quorum = 2;
    struct job_host host, all;
    job_host_init(&host, &spec);
    job_host_init(&all, &spec);
    job_host_round(&all);
    job_host_compute(&host);
    struct tally_job_outcome outcome;
    struct tally_report reports[CLIENTS];
    int64_t n = 0;
    for (uint32_t m = 0; m < CLIENTS; m++) {
        if (m == 1 || m == 4) {
            tally_job_set_absent(host.job, m, true, &outcome);
            continue;
        }
        const struct tally_setting setting = tally_job_spec_setting(&spec);
        const struct tally_message_view view = {.payload = host.updates[m].payload.data,
                                                .n_payload = host.updates[m].payload.size,
                                                .payload_bits = host.updates[m].payload_bits};
        struct tally_bits bits;
        CU_ASSERT_EQUAL(TALLY_CEAL.opening->receive(&setting, &view, &reports[n++], &bits, NULL),
                        TALLY_OK);
    }
    struct tally_round_plan plan = tally_job_open_round(host.job)->plan;
    job_host_send(&host, 3);
    job_host_send(&host, 0);
    job_host_send(&host, 2);
    CU_ASSERT_EQUAL(tally_job_progress(host.job)->round, 1);
    TALLY_ASSERT_TEXT(host.records[0].missing, "1 4");
    CU_ASSERT_EQUAL(host.records[0].received, 3);
    const struct tally_setting setting = tally_job_spec_setting(&spec);
    struct tally_estimates expected;
    uint64_t control;
    CU_ASSERT_EQUAL(
        TALLY_CEAL.opening->conclude(&setting, &plan, reports, n, &expected, &control, NULL),
        TALLY_OK);
    const struct tally_estimates *estimates = &tally_job_progress(host.job)->estimates;
    CU_ASSERT_EQUAL(estimates->sigma, expected.sigma);
    CU_ASSERT_EQUAL(estimates->gradient_bound, expected.gradient_bound);
    CU_ASSERT_NOT_EQUAL(estimates->sigma, tally_job_progress(all.job)->estimates.sigma);
    job_host_fini(&host);
    job_host_fini(&all);
}

static void test_job_opening__the_horizon_cuts_it_too(void)
{
    struct tally_job_spec spec = automatic();
    for (int64_t horizon = SAMPLES - 3; horizon <= SAMPLES; horizon += 3) {
        spec.horizon = horizon;
        struct job_host host;
        job_host_init(&host, &spec);
        job_host_run(&host);
        const struct tally_progress *progress = tally_job_progress(host.job);
        const bool cut = horizon < SAMPLES;
        CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_COMPLETED);
        CU_ASSERT_EQUAL(progress->time_step, horizon);
        CU_ASSERT_EQUAL(host.n_records, 1);
        CU_ASSERT_EQUAL(host.records[0].cut, cut);
        CU_ASSERT_EQUAL(progress->bits.uplink.messages, cut ? 0 : CLIENTS);
        CU_ASSERT_EQUAL(progress->estimates.sigma > 0, !cut);
        job_host_fini(&host);
    }
}

static void test_job_opening__malformed_reports_change_nothing(void)
{
    const struct tally_job_spec spec = automatic();
    struct job_host host;
    job_host_init(&host, &spec);
    job_host_compute(&host);
    const struct tally_update good = host.updates[2];
    struct tally_update bad = good;
    bad.payload.size = 4;
    bad.payload_bits = 32;
    struct tally_job_outcome outcome;
    struct tally_error err = TALLY_ERROR_INIT;
    struct job_look before = job_look(host.job);
    CU_ASSERT_EQUAL(tally_job_receive(host.job, &bad, &outcome, &err), TALLY_MALFORMED);
    struct job_look after = job_look(host.job);
    CU_ASSERT_TRUE(job_looks_same(&before, &after));
    job_look_fini(&before);
    job_look_fini(&after);
    job_host_run(&host);
    CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_COMPLETED);
    job_host_fini(&host);
}

/* The grids are known only after the opening round: the job fails with a reason instead of
 * continuing. */
static void test_job_opening__what_cannot_be_planned_fails_the_job(void)
{
    struct tally_job_spec spec = automatic();
    spec.params.ceal.gamma0 = 1e-6;
    struct job_host host;
    job_host_init(&host, &spec);
    job_host_round(&host);
    CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_FAILED);
    CU_ASSERT_PTR_NOT_NULL(strstr(tally_job_reason(host.job), "stage 2"));
    job_host_fini(&host);
}

/* [1]'s synthetic problem with the loud noise level, as in deploy/jobs/synthetic-ceal.json: a step
 * size alone against constants tuned by hand. Measured over 20 runs: 1.01 and 1.23 times. */
static void test_job_opening__a_step_size_is_enough(void)
{
    enum { RUNS = 10 };
    static const struct tally_ceal_params BY_HAND = {.sigma = 4.47,
                                                     .delta = 0.1,
                                                     .gamma0 = 2,
                                                     .phi0 = 2,
                                                     .sample_scale = 0.1,
                                                     .first_stage = 3,
                                                     .gradient_bound = 1};
    double regret[2] = {0}, bits[2] = {0};
    for (int i = 0; i < 2; i++) {
        struct tally_job_spec spec = automatic();
        spec.objective.data.synthetic_linear = (struct tally_synthetic_linear){
            .dim = 30, .points = 2000, .frobenius_norm = 100, .noise_std = 1};
        spec.clients = 10;
        spec.horizon = 2000;
        spec.seed = 1;
        spec.initial_point.radius = 1;
        spec.params = i == 0 ? TALLY_CEAL.defaults_beside(&spec.params)
                             : (union tally_algorithm_params){.ceal = BY_HAND};
        spec.params.ceal.step_size = 2;
        for (spec.run = 0; spec.run < RUNS; spec.run++) {
            struct tally_job *job;
            CU_ASSERT_EQUAL_FATAL(local_run(&spec, NULL, NULL, &job, NULL), TALLY_OK);
            const struct tally_progress *progress = tally_job_progress(job);
            regret[i] += progress->cumulative_regret / RUNS;
            bits[i] += (double)(progress->bits.uplink.formula_bits / 10 +
                                progress->bits.downlink.formula_bits) /
                       RUNS;
            tally_job_free(job);
        }
    }
    CU_ASSERT_TRUE(regret[0] < 1.4 * regret[1]);
    CU_ASSERT_TRUE(bits[0] < 1.6 * bits[1]);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_job_opening__is_a_round_of_its_own),
    TALLY_TEST(test_job_opening__one_of_the_two_costs_half),
    TALLY_TEST(test_job_opening__order_of_arrival_does_not_matter),
    TALLY_TEST(test_job_opening__a_crash_in_any_round_changes_nothing),
    TALLY_TEST(test_job_opening__estimates_that_cannot_be_are_data_loss),
    TALLY_TEST(test_job_opening__those_that_answered_decide),
    TALLY_TEST(test_job_opening__the_horizon_cuts_it_too),
    TALLY_TEST(test_job_opening__malformed_reports_change_nothing),
    TALLY_TEST(test_job_opening__what_cannot_be_planned_fails_the_job),
    TALLY_TEST(test_job_opening__a_step_size_is_enough),
};
TALLY_SUITE(job_opening, TESTS);
