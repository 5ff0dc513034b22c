#include "services/experiment/search.h"

#include <math.h>

#include "tests/harness.h"

static const struct tally_problem QUIET = {TALLY_PROBLEM_QUIET, 1};

static void expect_best(const double *regrets, size_t n, size_t best, enum tally_grid_edge edge)
{
    struct tally_trial trials[8];
    for (size_t i = 0; i < n; i++) {
        trials[i] = (struct tally_trial){(int)i, (double)i + 1, {regrets[i], 0}};
    }
    enum tally_grid_edge got = TALLY_EDGE_NONE;
    CU_ASSERT_EQUAL(tally_search_best(trials, n, &got), best);
    CU_ASSERT_EQUAL(got, edge);
}

static void test_experiment_search__best_is_the_minimum_and_knows_edges(void)
{
    expect_best((const double[]){5, 3, 4}, 3, 1, TALLY_EDGE_NONE);
    expect_best((const double[]){2, 3, 4}, 3, 0, TALLY_EDGE_LOW);
    expect_best((const double[]){5, 3, 2}, 3, 2, TALLY_EDGE_HIGH);
    expect_best((const double[]){5, 3, 3, 4}, 4, 1, TALLY_EDGE_NONE);
    expect_best((const double[]){9, 3, INFINITY}, 3, 1, TALLY_EDGE_NONE);
    /* All diverged, so the search must go on to smaller steps. */
    expect_best((const double[]){INFINITY, INFINITY}, 2, 0, TALLY_EDGE_LOW);
}

static struct tally_search search_of(struct tally_step_range range)
{
    static struct tally_preset preset;
    const struct tally_preset *presets[] = {&preset};
    const struct tally_runner_config config = {
        .kind = QUIET.kind, .first_seed = 1, .n_seeds = 2, .data_dir = ".", .threads = 2};
    struct tally_runner *runner = NULL;
    struct tally_search search = {0};
    struct tally_error err = TALLY_ERROR_INIT;
    preset = *tally_preset_get(QUIET.kind, &TALLY_MINIBATCH_SGD, "paper"); /* best near 2.4 */
    preset.grid = range;
    TALLY_ASSERT_STATUS(tally_runner_new(&config, 1, &runner, &err), TALLY_OK, &err);
    TALLY_ASSERT_STATUS(tally_search_run(runner, &QUIET, presets, 1, 2, &search, &err), TALLY_OK,
                        &err);
    tally_runner_free(runner);
    return search;
}

static void expect_sorted_interior_optimum(const struct tally_search *search)
{
    CU_ASSERT_EQUAL(search->edge, TALLY_EDGE_NONE);
    CU_ASSERT_TRUE(search->trials[search->best].step_size > 1.9 &&
                   search->trials[search->best].step_size < 3.1);
    for (size_t i = 1; i < search->n_trials; i++) {
        CU_ASSERT_EQUAL(search->trials[i].exponent, search->trials[i - 1].exponent + 1);
        CU_ASSERT_TRUE(search->trials[i].regret.mean >= search->trials[search->best].regret.mean);
    }
}

static void test_experiment_search__grid_that_holds_the_optimum_stays(void)
{
    struct tally_search search = search_of((struct tally_step_range){1.25, 0, 8});
    expect_sorted_interior_optimum(&search);
    CU_ASSERT_EQUAL(search.n_trials, 9);
    CU_ASSERT_FALSE(search.widened_low || search.widened_high);
    tally_search_fini(&search);
}

static void test_experiment_search__grid_grows_towards_the_optimum(void)
{
    struct tally_search low = search_of((struct tally_step_range){1.25, -2, 0});
    expect_sorted_interior_optimum(&low);
    CU_ASSERT_TRUE(low.widened_high && !low.widened_low);
    tally_search_fini(&low);
    /* All of these diverge. */
    struct tally_search high = search_of((struct tally_step_range){1.25, 10, 11});
    expect_sorted_interior_optimum(&high);
    CU_ASSERT_TRUE(high.widened_low && !high.widened_high);
    CU_ASSERT_TRUE(isinf(high.trials[high.n_trials - 1].regret.mean));
    tally_search_fini(&high);
}

static void test_experiment_search__steps_are_the_papers_times_powers(void)
{
    const struct tally_preset *preset = tally_preset_get(QUIET.kind, &TALLY_FEDAVG, "paper");
    CU_ASSERT_DOUBLE_EQUAL(tally_search_step_size(preset, 0), 0.1, 0);
    CU_ASSERT_DOUBLE_EQUAL(tally_search_step_size(preset, 2), 0.1 * 1.25 * 1.25, 1e-15);
    CU_ASSERT_DOUBLE_EQUAL(tally_search_step_size(preset, -1), 0.08, 1e-15);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_experiment_search__best_is_the_minimum_and_knows_edges),
    TALLY_TEST(test_experiment_search__grid_that_holds_the_optimum_stays),
    TALLY_TEST(test_experiment_search__grid_grows_towards_the_optimum),
    TALLY_TEST(test_experiment_search__steps_are_the_papers_times_powers),
};
TALLY_SUITE(experiment_search, TESTS);
