#include "services/experiment/run.h"

#include <math.h>

#include "services/job/job_local.h"
#include "tests/harness.h"
#include "tests/unit/services/experiment/shipped_jobs.h"
#include "tests/unit/services/local_run.h"

static struct tally_objective *make_objective(const struct tally_job_spec *spec, double *ret_f_star)
{
    struct tally_objective *objective = NULL;
    CU_ASSERT_EQUAL_FATAL(tally_objective_new(&spec->objective, (uint32_t)spec->clients,
                                              tally_job_spec_setting(spec).key, ".", &objective,
                                              NULL),
                          TALLY_OK);
    CU_ASSERT_EQUAL_FATAL(tally_objective_minimum(objective, NULL, NULL, ret_f_star, NULL, NULL),
                          TALLY_OK);
    return objective;
}

static struct tally_run run_of(const struct tally_job_spec *spec)
{
    double f_star;
    atomic_bool stop = false;
    struct tally_run run = {0};
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_objective *objective = make_objective(spec, &f_star);
    TALLY_ASSERT_STATUS(run_job(spec, objective, f_star, &stop, &run, &err), TALLY_OK, &err);
    tally_objective_free(objective);
    return run;
}

static void test_experiment_run__is_what_simulate_runs(void)
{
    struct tally_sweep sweep = shipped_sweep("synthetic", NULL, false, 3, 1);
    for (size_t i = 0; i < sweep.n_rows; i++) {
        const struct tally_sweep_trial *trial = &sweep.rows[i].trials[0];
        const struct tally_job_spec spec =
            job_of(tally_sweep_trial_complete(trial), 0.1 * tally_reproduction_step_size(trial), 3);
        struct tally_run run = run_of(&spec);
        struct tally_job *job = NULL;
        CU_ASSERT_EQUAL_FATAL(local_run(&spec, NULL, NULL, &job, NULL), TALLY_OK);
        const struct tally_progress *progress = tally_job_progress(job);
        CU_ASSERT_FALSE(run.diverged);
        CU_ASSERT_DOUBLE_EQUAL(run.regret, progress->cumulative_regret, 0);
        CU_ASSERT_DOUBLE_EQUAL(10 * run.uplink.payload, (double)progress->bits.uplink.payload_bits,
                               1e-6);
        CU_ASSERT_DOUBLE_EQUAL(run.downlink.formula, (double)progress->bits.downlink.formula_bits,
                               0);
        CU_ASSERT_TRUE(run.uplink.entropy_payload > 0);
        CU_ASSERT_DOUBLE_EQUAL(run.curve[run.n_points - 1].regret, run.regret, 0);
        CU_ASSERT_DOUBLE_EQUAL(run.curve[run.n_points - 1].time_step, 2000, 0);
        tally_job_free(job);
        tally_run_fini(&run);
    }
    tally_sweep_fini(&sweep);
}

static void test_experiment_run__divergence_is_infinite_regret(void)
{
    /* Minibatch-SGD and FedAvg overflow; FedCOM exceeds the range of the exact sums. */
    static const struct {
        const char *job;
        double step_size;
    } cases[] = {{"synthetic-minibatch-sgd", 50},
                 {"synthetic-fedavg", 5},
                 {"synthetic-fedpaq", 5},
                 {"synthetic-fedcom", 1e6},
                 {"synthetic-ceal-paper", 1e8}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct tally_job_spec spec = shipped_job(cases[i].job, cases[i].step_size, 3);
        struct tally_run run = run_of(&spec);
        CU_ASSERT_TRUE(run.diverged || run.regret > 1e12);
        CU_ASSERT_EQUAL(run.diverged, isinf(run.regret));
        tally_run_fini(&run);
    }
}

static void test_experiment_run__stops_when_asked(void)
{
    const struct tally_job_spec spec = shipped_job("synthetic-minibatch-sgd", 1, 3);
    double f_star;
    atomic_bool stop = true;
    struct tally_run run = {0};
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_objective *objective = make_objective(&spec, &f_star);
    TALLY_ASSERT_STATUS(run_job(&spec, objective, f_star, &stop, &run, &err), TALLY_CANCELLED,
                        &err);
    CU_ASSERT_PTR_NULL(run.curve);
    tally_objective_free(objective);
}

static void test_experiment_run__curve_is_linear_between_rounds(void)
{
    struct tally_run_point curve[] = {{0, 0}, {10, 5}, {30, 45}};
    const struct tally_run run = {.curve = curve, .n_points = 3, .regret = 45};
    CU_ASSERT_DOUBLE_EQUAL(tally_run_regret_at(&run, 0), 0, 0);
    CU_ASSERT_DOUBLE_EQUAL(tally_run_regret_at(&run, 5), 2.5, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(tally_run_regret_at(&run, 10), 5, 0);
    CU_ASSERT_DOUBLE_EQUAL(tally_run_regret_at(&run, 20), 25, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(tally_run_regret_at(&run, 30), 45, 0);
    CU_ASSERT_TRUE(isinf(tally_run_regret_at(&run, 31)));
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_experiment_run__is_what_simulate_runs),
    TALLY_TEST(test_experiment_run__divergence_is_infinite_regret),
    TALLY_TEST(test_experiment_run__stops_when_asked),
    TALLY_TEST(test_experiment_run__curve_is_linear_between_rounds),
};
TALLY_SUITE(experiment_run, TESTS);
