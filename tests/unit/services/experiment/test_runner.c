#include "services/experiment/runner.h"

#include <string.h>

#include "tests/harness.h"

enum { N_SEEDS = 3, N_ITEMS = 6 };

static const struct tally_problem LOUD = {TALLY_PROBLEM_LOUD, 2};

static struct tally_runner_config config_of(unsigned threads)
{
    return (struct tally_runner_config){.kind = TALLY_PROBLEM_LOUD,
                                        .first_seed = 5,
                                        .n_seeds = N_SEEDS,
                                        .data_dir = ".",
                                        .threads = threads};
}

/* Runs two presets on all seeds, with the items in another order than the seeds. */
static void run_all(unsigned threads, struct tally_run runs[N_ITEMS])
{
    const struct tally_runner_config config = config_of(threads);
    struct tally_runner_item items[N_ITEMS];
    struct tally_runner *runner = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    for (size_t i = 0; i < N_ITEMS; i++) {
        const struct tally_preset *preset =
            tally_preset_get(LOUD.kind, i < N_SEEDS ? &TALLY_MINIBATCH_SGD : &TALLY_CEAL, "paper");
        items[i] = (struct tally_runner_item){preset, &LOUD, tally_preset_step_size(preset),
                                              (2 * i) % N_SEEDS, &runs[i]};
    }
    TALLY_ASSERT_STATUS(tally_runner_new(&config, 1, &runner, &err), TALLY_OK, &err);
    TALLY_ASSERT_STATUS(tally_runner_run(runner, items, N_ITEMS, "test", &err), TALLY_OK, &err);
    tally_runner_free(runner);
}

static void test_experiment_runner__results_do_not_depend_on_threads(void)
{
    struct tally_run one[N_ITEMS] = {{0}}, many[N_ITEMS] = {{0}};
    run_all(1, one);
    run_all(4, many);
    for (size_t i = 0; i < N_ITEMS; i++) {
        CU_ASSERT_DOUBLE_EQUAL(one[i].regret, many[i].regret, 0);
        CU_ASSERT_DOUBLE_EQUAL(one[i].uplink.formula, many[i].uplink.formula, 0);
        CU_ASSERT_DOUBLE_EQUAL(one[i].downlink.entropy_payload, many[i].downlink.entropy_payload,
                               0);
        CU_ASSERT_EQUAL(one[i].n_points, many[i].n_points);
        tally_run_fini(&one[i]);
        tally_run_fini(&many[i]);
    }
}

static void test_experiment_runner__seeds_have_data_of_their_own(void)
{
    struct tally_run runs[N_ITEMS] = {{0}};
    run_all(2, runs);
    CU_ASSERT_NOT_EQUAL(runs[0].regret, runs[1].regret);
    CU_ASSERT_NOT_EQUAL(runs[1].regret, runs[2].regret);
    for (size_t i = 0; i < N_ITEMS; i++) {
        tally_run_fini(&runs[i]);
    }
}

static void test_experiment_runner__missing_files_name_who_gets_them(void)
{
    struct tally_runner_config config = config_of(1);
    struct tally_runner *runner = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    config.kind = TALLY_PROBLEM_MNIST;
    config.data_dir = "/nonexistent";
    TALLY_ASSERT_STATUS(tally_runner_new(&config, 1, &runner, &err), TALLY_INVALID_ARGUMENT, &err);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.message, "deploy/fetch-mnist"));
    CU_ASSERT_PTR_NOT_NULL(strstr(err.message, "/nonexistent"));
    TALLY_ASSERT_TEXT(err.field, "data-dir");
}

static void test_experiment_runner__names_the_run_that_is_not_possible(void)
{
    const struct tally_runner_config config = config_of(1);
    struct tally_preset preset = *tally_preset_get(LOUD.kind, &TALLY_CEAL, "paper");
    preset.params.ceal.gamma0 = 1e-12; /* a grid too fine for 31 bits */
    struct tally_run run = {0};
    struct tally_runner_item item = {&preset, &LOUD, 2, 0, &run};
    struct tally_runner *runner = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_runner_new(&config, 1, &runner, &err), TALLY_OK, &err);
    TALLY_ASSERT_STATUS(tally_runner_run(runner, &item, 1, "test", &err), TALLY_OUT_OF_RANGE, &err);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.message, "synthetic-ceal-paper"));
    tally_runner_free(runner);
}

static bool stop_at_once(void *context, double fraction, const char *what)
{
    (void)context;
    CU_ASSERT_TRUE(fraction >= 0);
    CU_ASSERT_PTR_NOT_NULL(what);
    return false;
}

static void test_experiment_runner__watcher_can_stop_it(void)
{
    struct tally_runner_config config = config_of(1);
    struct tally_runner *runner = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    config.n_seeds = 5000;
    config.watch = stop_at_once;
    TALLY_ASSERT_STATUS(tally_runner_new(&config, 1, &runner, &err), TALLY_CANCELLED, &err);
    CU_ASSERT_PTR_NULL(runner);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_experiment_runner__results_do_not_depend_on_threads),
    TALLY_TEST(test_experiment_runner__seeds_have_data_of_their_own),
    TALLY_TEST(test_experiment_runner__missing_files_name_who_gets_them),
    TALLY_TEST(test_experiment_runner__names_the_run_that_is_not_possible),
    TALLY_TEST(test_experiment_runner__watcher_can_stop_it),
};
TALLY_SUITE(experiment_runner, TESTS);
