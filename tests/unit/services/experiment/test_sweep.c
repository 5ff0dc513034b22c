#include "services/experiment/sweep.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness.h"
#include "tests/unit/services/experiment/shipped_jobs.h"

/* A small job that runs in a millisecond. */
#define BASE                                                                                       \
    "\"base\": {\"algorithm\": {\"type\": \"fedavg\", \"step_size\": 0.01, \"local_steps\": 10}, " \
    "\"objective\": {\"type\": \"least_squares\", \"data\": {\"type\": \"synthetic_linear\", "     \
    "\"dim\": 5, \"points\": 40, \"frobenius_norm\": 10}}, \"clients\": 4, \"horizon\": 200, "     \
    "\"seed\": 9}"

static struct tally_sweep sweep_of(const char *text)
{
    struct tally_sweep sweep = {.n_rows = 0};
    struct tally_json *faults = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(
        tally_sweep_read(text, strlen(text), NULL, NULL, NULL, &sweep, &faults, &err), TALLY_OK,
        &err);
    return sweep;
}

static struct tally_sweep run_sweep(const char *text, unsigned threads)
{
    const struct tally_sweep_config config = {.threads = threads, .data_dir = "."};
    struct tally_sweep sweep = sweep_of(text);
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_sweep_run(&sweep, &config, &err), TALLY_OK, &err);
    return sweep;
}

static double number_of(const struct tally_sweep_trial *trial, const char *path)
{
    struct tally_sweep_column column = {.kind = TALLY_SWEEP_MEMBER};
    snprintf(column.name, sizeof column.name, "%s", path);
    return tally_sweep_summary(trial, &column).mean;
}

static double row_number(const struct tally_sweep *sweep, size_t row, const char *path)
{
    return number_of(tally_sweep_trial_of(sweep, row), path);
}

static void test_experiment_sweep__grid_has_every_combination(void)
{
    struct tally_sweep sweep = sweep_of(
        "{" BASE ", \"seeds\": \"3-5\", \"grid\": {\"algorithm.step_size\": [0.1, 0.2], "
        "\"algorithm.local_steps\": {\"from\": 1, \"to\": 100, \"count\": 3, \"scale\": \"log\", "
        "\"integers\": true}}}");
    CU_ASSERT_EQUAL_FATAL(sweep.n_rows, 6);
    static const double steps[] = {0.1, 0.1, 0.1, 0.2, 0.2, 0.2},
                        locals[] = {1, 10, 100, 1, 10, 100};
    for (size_t i = 0; i < 6; i++) {
        CU_ASSERT_DOUBLE_EQUAL(row_number(&sweep, i, "algorithm.step_size"), steps[i], 0);
        CU_ASSERT_DOUBLE_EQUAL(row_number(&sweep, i, "algorithm.local_steps"), locals[i], 0);
        CU_ASSERT_EQUAL(tally_sweep_trial_of(&sweep, i)->seed, 3);
    }
    CU_ASSERT_EQUAL(sweep.n_seeds, 3);
    CU_ASSERT_EQUAL(tally_sweep_count(&sweep), 18);
    tally_sweep_fini(&sweep);
}

static void test_experiment_sweep__rows_have_bases_and_members_of_their_own(void)
{
    struct tally_sweep sweep =
        sweep_of("{" BASE ", \"rows\": [{\"name\": \"a\"}, {\"name\": \"b\", \"set\": "
                 "{\"algorithm\": {\"type\": \"minibatch_sgd\", \"step_size\": 1, \"local_steps\": "
                 "5}, \"clients\": 2}}],"
                 " \"grid\": {\"horizon\": [50, 60]}}");
    CU_ASSERT_EQUAL_FATAL(sweep.n_rows, 4);
    static const double clients[] = {4, 4, 2, 2}, horizons[] = {50, 60, 50, 60};
    for (size_t i = 0; i < 4; i++) {
        TALLY_ASSERT_TEXT(sweep.rows[i].name, i < 2 ? "a" : "b");
        CU_ASSERT_DOUBLE_EQUAL(row_number(&sweep, i, "clients"), clients[i], 0);
        CU_ASSERT_DOUBLE_EQUAL(row_number(&sweep, i, "horizon"), horizons[i], 0);
        CU_ASSERT_EQUAL(tally_sweep_trial_of(&sweep, i)->seed, 9); /* the base's own */
    }
    tally_sweep_fini(&sweep);
}

/* The grid of a row is combined with that of the top level, which changes last. */
static void test_experiment_sweep__rows_have_grids_of_their_own(void)
{
    struct tally_sweep sweep =
        sweep_of("{" BASE ", \"rows\": [{\"name\": \"a\", \"grid\": {\"clients\": [2, 4]}}, "
                 "{\"name\": \"b\", \"set\": {\"name\": \"other\"}}], "
                 "\"grid\": {\"horizon\": [50, 60]}}");
    static const double clients[] = {2, 4, 2, 4, 4, 4}, horizons[] = {50, 50, 60, 60, 50, 60};
    CU_ASSERT_EQUAL_FATAL(sweep.n_rows, 6);
    for (size_t i = 0; i < 6; i++) {
        TALLY_ASSERT_TEXT(sweep.rows[i].name, i < 4 ? "a" : "b");
        TALLY_ASSERT_TEXT(spec_of(&sweep.rows[i].trials[0]).name, i < 4 ? "" : "other");
        CU_ASSERT_DOUBLE_EQUAL(row_number(&sweep, i, "clients"), clients[i], 0);
        CU_ASSERT_DOUBLE_EQUAL(row_number(&sweep, i, "horizon"), horizons[i], 0);
    }
    CU_ASSERT_EQUAL_FATAL(sweep.n_varied, 2); /* the name makes no difference */
    TALLY_ASSERT_TEXT(sweep.varied[0], "horizon");
    TALLY_ASSERT_TEXT(sweep.varied[1], "clients");
    tally_sweep_fini(&sweep);
}

#define DRAWS(count, seed)                                                                         \
    "{" BASE ", \"random\": {\"count\": " count ", \"seed\": " seed                                \
    ", \"members\": {\"algorithm.step_size\": {\"from\": 0.001, \"to\": 1, \"scale\": \"log\"}, "  \
    "\"algorithm.local_steps\": {\"from\": 1, \"to\": 9, \"integers\": true}, "                    \
    "\"minibatch\": [1, 2, 3]}}}"

static void test_experiment_sweep__draws_are_within_their_ranges_and_stay(void)
{
    struct tally_sweep few = sweep_of(DRAWS("20", "1")), many = sweep_of(DRAWS("200", "1"));
    struct tally_sweep other = sweep_of(DRAWS("20", "2"));
    double below = 0;
    CU_ASSERT_EQUAL_FATAL(few.n_rows, 20);
    CU_ASSERT_EQUAL_FATAL(many.n_rows, 200);
    for (size_t i = 0; i < 200; i++) {
        const double step = row_number(&many, i, "algorithm.step_size");
        const double local = row_number(&many, i, "algorithm.local_steps");
        const double minibatch = row_number(&many, i, "minibatch");
        CU_ASSERT_TRUE(step >= 0.001 && step <= 1);
        CU_ASSERT_TRUE(local >= 1 && local <= 9 && local == floor(local));
        CU_ASSERT_TRUE(minibatch >= 1 && minibatch <= 3);
        below += step < 0.0316; /* half of them, on a logarithmic scale */
    }
    CU_ASSERT_TRUE(below > 70 && below < 130); /* four standard deviations: 100 +- 28 */
    size_t n_equal = 0;
    for (size_t i = 0; i < 20; i++) {
        const double step = row_number(&few, i, "algorithm.step_size");
        CU_ASSERT_DOUBLE_EQUAL(step, row_number(&many, i, "algorithm.step_size"), 0);
        n_equal += step == row_number(&other, i, "algorithm.step_size");
    }
    CU_ASSERT_EQUAL(n_equal, 0);
    tally_sweep_fini(&few);
    tally_sweep_fini(&many);
    tally_sweep_fini(&other);
}

/* Every run is that of the document alone, whatever it shares with others. */
static void test_experiment_sweep__runs_are_those_of_single_jobs(void)
{
    struct tally_sweep sweep = run_sweep(
        "{" BASE ", \"seeds\": \"3-4\", \"grid\": {\"algorithm.step_size\": [0.001, 0.01], "
        "\"objective.l2\": [0, 0.5], \"clients\": [2, 4]}}",
        2);
    const atomic_bool stop = false;
    CU_ASSERT_EQUAL(sweep.n_rows, 8);
    for (size_t i = 0; i < sweep.n_rows; i++) {
        const struct tally_sweep_trial *trial = tally_sweep_trial_of(&sweep, i);
        CU_ASSERT_EQUAL_FATAL(trial->n_runs, 2);
        for (size_t seed = 0; seed < 2; seed++) {
            struct tally_job_spec spec = spec_of(trial);
            struct tally_objective *objective = NULL;
            struct tally_run run;
            struct tally_error err = TALLY_ERROR_INIT;
            double f_star;
            spec.seed = 3 + (int64_t)seed;
            TALLY_ASSERT_STATUS(tally_objective_new(&spec.objective, (uint32_t)spec.clients,
                                                    tally_job_spec_setting(&spec).key, ".",
                                                    &objective, &err),
                                TALLY_OK, &err);
            TALLY_ASSERT_STATUS(tally_local_reference(&spec, objective, &f_star, &err), TALLY_OK,
                                &err);
            TALLY_ASSERT_STATUS(run_job(&spec, objective, f_star, &stop, &run, &err), TALLY_OK,
                                &err);
            CU_ASSERT_DOUBLE_EQUAL(trial->runs[seed].regret, run.regret, 0);
            CU_ASSERT_DOUBLE_EQUAL(trial->runs[seed].loss, run.loss, 0);
            CU_ASSERT_DOUBLE_EQUAL(trial->runs[seed].uplink.payload, run.uplink.payload, 0);
            tally_run_fini(&run);
            tally_objective_free(objective);
        }
    }
    tally_sweep_fini(&sweep);
}

static void expect_equal_text(struct tally_buffer *a, struct tally_buffer *b)
{
    CU_ASSERT_EQUAL_FATAL(a->size, b->size);
    CU_ASSERT_EQUAL(memcmp(a->data, b->data, a->size), 0);
    tally_buffer_fini(a);
    tally_buffer_fini(b);
}

static void test_experiment_sweep__threads_do_not_matter(void)
{
    static const char text[] =
        "{" BASE ", \"seeds\": \"1-5\", \"grid\": {\"algorithm.step_size\": [0.001, 0.01, 100]}}";
    struct tally_sweep one = run_sweep(text, 1), many = run_sweep(text, 5);
    struct tally_buffer a = {0}, b = {0};
    CU_ASSERT_EQUAL(tally_sweep_runs_csv(&one, &a), TALLY_OK);
    CU_ASSERT_EQUAL(tally_sweep_runs_csv(&many, &b), TALLY_OK);
    expect_equal_text(&a, &b);
    CU_ASSERT_EQUAL(one.best, 1);
    tally_sweep_fini(&one);
    tally_sweep_fini(&many);
}

static void test_experiment_sweep__diverged_rows_are_the_worst(void)
{
    struct tally_sweep sweep =
        run_sweep("{" BASE ", \"grid\": {\"algorithm.step_size\": [100, 0.000001]}}", 1);
    CU_ASSERT_TRUE(isinf(tally_sweep_summary(tally_sweep_trial_of(&sweep, 0), &sweep.by).mean));
    CU_ASSERT_EQUAL(sweep.best, 1);
    tally_sweep_fini(&sweep);
}

static bool stop_at_once(void *context, double fraction, const char *what)
{
    (void)context;
    CU_ASSERT_TRUE(fraction >= 0);
    CU_ASSERT_PTR_NOT_NULL(what);
    return false;
}

static void test_experiment_sweep__watcher_can_stop_it(void)
{
    const struct tally_sweep_config config = {.threads = 1, .data_dir = ".", .watch = stop_at_once};
    struct tally_sweep sweep = sweep_of("{" BASE ", \"seeds\": \"1-10000\"}");
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_sweep_run(&sweep, &config, &err), TALLY_CANCELLED, &err);
    tally_sweep_fini(&sweep);
}

/* A run that is not possible is named; here its data are missing. */
static void test_experiment_sweep__names_the_run_that_fails(void)
{
    const struct tally_sweep_config config = {.threads = 1, .data_dir = "/nonexistent"};
    struct tally_sweep sweep = sweep_of(
        "{" BASE ", \"rows\": [{}, {\"name\": \"b\", \"set\": {\"objective.data\": {\"type\": "
        "\"csv\", \"file\": \"no.csv\", \"features\": 5, \"label\": \"y\"}}}]}");
    struct tally_error err = TALLY_ERROR_INIT;
    CU_ASSERT_NOT_EQUAL(tally_sweep_run(&sweep, &config, &err), TALLY_OK);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.message, "row 2 b, seed 9: "));
    CU_ASSERT_PTR_NOT_NULL(strstr(err.message, "/nonexistent"));
    tally_sweep_fini(&sweep);
}

/* A job without a regret is ranked by its loss, and has not diverged. */
static void test_experiment_sweep__without_regret_the_loss_decides(void)
{
    struct tally_sweep sweep =
        run_sweep("{" BASE ", \"rows\": [{\"set\": {\"reference\": {\"type\": \"none\"}}}], "
                  "\"grid\": {\"algorithm.step_size\": [0.000001, 0.01]}}",
                  1);
    TALLY_ASSERT_TEXT(sweep.by.name, "loss");
    CU_ASSERT_TRUE(isfinite(tally_sweep_summary(tally_sweep_trial_of(&sweep, 0), &sweep.by).mean));
    CU_ASSERT_EQUAL(sweep.best, 1);
    tally_sweep_fini(&sweep);
}

#define TUNE(first, last)                                                                          \
    "{" BASE ", \"seeds\": \"1-2\", \"rows\": [{\"tune\": {\"algorithm.step_size\": {\"around\": " \
    "0.01, \"factor\": 2, \"first\": " first ", \"last\": " last ", \"widen\": true}}}]}"

/* Where the grid begins does not matter: it grows until the best step size is inside. */
static void test_experiment_sweep__tune_widens_towards_the_best(void)
{
    struct tally_sweep wide = run_sweep(TUNE("-8", "9"), 2);
    struct tally_sweep low = run_sweep(TUNE("-8", "-6"), 2), high = run_sweep(TUNE("9", "10"), 2);
    const double best = row_number(&wide, 0, "algorithm.step_size");
    CU_ASSERT_FALSE(wide.rows[0].widened || wide.rows[0].at_edge);
    CU_ASSERT_TRUE(low.rows[0].widened && high.rows[0].widened);
    CU_ASSERT_FALSE(low.rows[0].at_edge || high.rows[0].at_edge);
    CU_ASSERT_DOUBLE_EQUAL(row_number(&low, 0, "algorithm.step_size"), best, 0);
    CU_ASSERT_DOUBLE_EQUAL(row_number(&high, 0, "algorithm.step_size"), best, 0);
    for (size_t i = 1; i < high.rows[0].n_trials; i++) {
        CU_ASSERT_EQUAL(high.rows[0].trials[i].exponent, high.rows[0].trials[i - 1].exponent + 1);
        CU_ASSERT_DOUBLE_EQUAL(number_of(&high.rows[0].trials[i], "algorithm.step_size"),
                               0.01 * pow(2, high.rows[0].trials[i].exponent), 0);
    }
    tally_sweep_fini(&wide);
    tally_sweep_fini(&low);
    tally_sweep_fini(&high);
}

#define UNIT(first, last)                                                                          \
    "{" BASE                                                                                       \
    ", \"seeds\": \"3-4\", \"rows\": [{\"tune\": {\"algorithm.step_size\": {\"around\": 1, "       \
    "\"factor\": 2, \"first\": " first ", \"last\": " last                                         \
    ", \"widen\": true, \"unit\": \"inverse_smoothness\"}}}]}"

/* The curvature of f on the data of the first seed. */
static double smoothness_of(const struct tally_sweep *sweep)
{
    const struct tally_job_spec spec = spec_of(&sweep->rows[0].trials[0]);
    struct tally_objective *objective = NULL;
    struct tally_curvature curvature = TALLY_CURVATURE_UNKNOWN;
    struct tally_error err = TALLY_ERROR_INIT;
    CU_ASSERT_EQUAL(spec.seed, 3);
    TALLY_ASSERT_STATUS(tally_objective_new(&spec.objective, (uint32_t)spec.clients,
                                            tally_job_spec_setting(&spec).key, ".", &objective,
                                            &err),
                        TALLY_OK, &err);
    TALLY_ASSERT_STATUS(tally_objective_curvature(objective, NULL, &curvature, &err), TALLY_OK,
                        &err);
    tally_objective_free(objective);
    return curvature.smoothness;
}

static enum tally_status run_nowhere(void *context, const struct tally_sweep_job *jobs, size_t n,
                                     struct tally_error *err)
{
    (void)context;
    (void)jobs;
    (void)n;
    return tally_fail(err, TALLY_INTERNAL, NULL, "ran");
}

/* Step sizes may be multiples of 1 / smoothness, also those by which a grid is widened. */
static void test_experiment_sweep__steps_have_the_scale_of_f(void)
{
    struct tally_sweep sweep = run_sweep(UNIT("-12", "-11"), 2);
    const struct tally_sweep_row *row = &sweep.rows[0];
    const double smoothness = smoothness_of(&sweep);
    CU_ASSERT_DOUBLE_EQUAL(row->curvature.smoothness, smoothness, 0);
    CU_ASSERT_TRUE(row->widened && row->n_trials > 2);
    for (size_t i = 0; i < row->n_trials; i++) {
        const struct tally_sweep_trial *trial = &row->trials[i];
        CU_ASSERT_EQUAL(trial->exponent, row->trials[0].exponent + (int)i);
        CU_ASSERT_DOUBLE_EQUAL(number_of(trial, "algorithm.step_size"),
                               ldexp(1 / smoothness, trial->exponent), 0);
        CU_ASSERT_DOUBLE_EQUAL(spec_of(trial).params.baseline.step_size,
                               ldexp(1 / smoothness, trial->exponent), 0);
        CU_ASSERT_EQUAL(trial->n_runs, 2);
    }
    tally_sweep_fini(&sweep);
}

/* A coordinator reports neither the smoothness of f nor what takes time here. */
static void test_experiment_sweep__refuses_elsewhere_what_is_not_known_there(void)
{
    static const char *const wrong[] = {UNIT("-1", "1"), "{" BASE ", \"columns\": [\"gap\"]}",
                                        "{" BASE ", \"best\": {\"by\": \"gap\"}}",
                                        "{" BASE ", \"axes\": {\"y\": \"uplink_entropy_bits\"}}"};
    const struct tally_sweep_config elsewhere = {.execute = run_nowhere};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct tally_sweep sweep = sweep_of(wrong[i]);
        struct tally_error err = TALLY_ERROR_INIT;
        TALLY_ASSERT_STATUS(tally_sweep_run(&sweep, &elsewhere, &err), TALLY_INVALID_ARGUMENT,
                            &err);
        TALLY_ASSERT_TEXT(err.field, i == 0 ? "unit" : "columns");
        tally_sweep_fini(&sweep);
    }
}

/* Diverged trials are the worst; among equals the first wins. */
static void test_experiment_sweep__tune_chooses_the_first_of_the_best(void)
{
    struct tally_sweep sweep =
        run_sweep("{" BASE ", \"rows\": [{\"tune\": {\"algorithm.step_size\": "
                  "[100, 0.01, 0.01, 1000]}}, {\"tune\": {\"algorithm.step_size\": [100, 1000]}}]}",
                  2);
    CU_ASSERT_EQUAL(sweep.rows[0].best, 1);
    CU_ASSERT_FALSE(sweep.rows[0].at_edge);
    CU_ASSERT_EQUAL(sweep.rows[1].best, 0); /* a search goes on to smaller steps */
    CU_ASSERT_TRUE(sweep.rows[1].at_edge);
    tally_sweep_fini(&sweep);
}

/* The grid is searched with the first seeds only; the best then has all. */
static void test_experiment_sweep__tune_seeds_are_the_first(void)
{
    struct tally_sweep sweep =
        run_sweep("{" BASE ", \"seeds\": \"1-6\", \"tune_seeds\": 2, \"rows\": [{}, {\"tune\": "
                  "{\"algorithm.step_size\": [0.000001, 0.01, 0.02]}}]}",
                  2);
    const struct tally_sweep_row *row = &sweep.rows[1];
    CU_ASSERT_EQUAL(tally_sweep_count(&sweep), 6 + 3 * 2 + 4);
    for (size_t i = 0; i < 3; i++) {
        CU_ASSERT_EQUAL(row->trials[i].n_runs, i == row->best ? 6 : 2);
    }
    CU_ASSERT_NOT_EQUAL(row->best, 0);
    CU_ASSERT_EQUAL(tally_sweep_trial_of(&sweep, 0)->n_runs, 6);
    if (row_number(&sweep, 1, "algorithm.step_size") == 0.01) {
        CU_ASSERT_DOUBLE_EQUAL(tally_sweep_trial_of(&sweep, 1)->runs[5].regret,
                               tally_sweep_trial_of(&sweep, 0)->runs[5].regret, 0);
    }
    tally_sweep_fini(&sweep);
}

#define HALVING(by)                                                                                \
    "{" BASE ", \"seeds\": \"1-8\", \"halving\": {\"by\": \"" by "\", \"stages\": 3}, \"grid\": "  \
    "{\"algorithm.step_size\": [0.00001, 0.0001, 0.001, 0.002, 0.003, 0.004, 0.01, 0.02]}}"

/* The rows that reach the last stage have the runs that they have without halving. */
static void expect_halving(const char *text, size_t n_runs, bool by_horizon)
{
    struct tally_sweep halved = run_sweep(text, 2);
    struct tally_sweep all =
        run_sweep("{" BASE ", \"seeds\": \"1-8\", \"grid\": {\"algorithm.step_size\": "
                  "[0.00001, 0.0001, 0.001, 0.002, 0.003, 0.004, 0.01, 0.02]}}",
                  2);
    size_t reached[4] = {0};
    CU_ASSERT_EQUAL(tally_sweep_count(&halved), n_runs);
    for (size_t i = 0; i < 8; i++) {
        const struct tally_sweep_trial *trial = tally_sweep_trial_of(&halved, i);
        CU_ASSERT_TRUE_FATAL(halved.rows[i].stage >= 1 && halved.rows[i].stage <= 3);
        reached[halved.rows[i].stage]++;
        CU_ASSERT_EQUAL(trial->n_runs, by_horizon ? 8 : (size_t)(1 << halved.rows[i].stage));
        for (size_t k = 0; k < trial->n_runs && (!by_horizon || halved.rows[i].stage == 3); k++) {
            CU_ASSERT_DOUBLE_EQUAL(trial->runs[k].regret,
                                   tally_sweep_trial_of(&all, i)->runs[k].regret, 0);
        }
    }
    CU_ASSERT_EQUAL(reached[1], 4);
    CU_ASSERT_EQUAL(reached[2], 2);
    CU_ASSERT_EQUAL(reached[3], 2);
    CU_ASSERT_EQUAL(halved.best, all.best);
    CU_ASSERT_EQUAL(halved.rows[halved.best].stage, 3);
    tally_sweep_fini(&halved);
    tally_sweep_fini(&all);
}

static void test_experiment_sweep__halving_drops_the_worst_rows(void)
{
    expect_halving(HALVING("seeds"), 8 * 2 + 4 * 2 + 2 * 4, false);
    expect_halving(HALVING("horizon"), (8 + 4 + 2) * 8, true);
}

static void test_experiment_sweep__columns_and_rule(void)
{
    struct tally_sweep_column columns[TALLY_SWEEP_COLUMNS_MOST];
    struct tally_sweep sweep = run_sweep(
        "{" BASE ", \"grid\": {\"algorithm.step_size\": [0.000001, 0.01]}, \"columns\": [\"bits\", "
        "\"clients\", \"metrics.accuracy\"], \"best\": {\"by\": \"regret\", \"better\": "
        "\"higher\"}}",
        1);
    CU_ASSERT_EQUAL_FATAL(tally_sweep_columns(&sweep, columns), 3);
    CU_ASSERT_EQUAL(columns[0].kind, TALLY_SWEEP_RESULT);
    CU_ASSERT_EQUAL(columns[1].kind, TALLY_SWEEP_MEMBER);
    CU_ASSERT_EQUAL(columns[2].kind, TALLY_SWEEP_METRIC);
    CU_ASSERT_EQUAL(sweep.best, 0); /* the higher regret */
    struct tally_buffer table = {0};
    CU_ASSERT_EQUAL(tally_sweep_table(&sweep, &table), TALLY_OK);
    CU_ASSERT_EQUAL(tally_buffer_append(&table, "", 1), TALLY_OK);
    CU_ASSERT_PTR_NOT_NULL(strstr((const char *)table.data, "bits  clients  metrics.accuracy"));
    CU_ASSERT_PTR_NOT_NULL(strstr((const char *)table.data, "\n1*"));
    tally_buffer_fini(&table);
    tally_sweep_fini(&sweep);
}

/* The entropy of messages takes time, so it is computed only if something names it. */
static void test_experiment_sweep__entropy_is_computed_on_demand(void)
{
    static const char *const demands[] = {"\"columns\": [\"uplink_entropy_bits\"]",
                                          "\"best\": {\"by\": \"downlink_entropy_bits\"}",
                                          "\"axes\": {\"x\": \"uplink_entropy_bits\"}"};
    struct tally_sweep plain = run_sweep("{" BASE "}", 1);
    CU_ASSERT_TRUE(isnan(plain.rows[0].trials[0].runs[0].uplink.entropy_payload));
    tally_sweep_fini(&plain);
    for (size_t i = 0; i < 3; i++) {
        char text[1024];
        snprintf(text, sizeof text, "{" BASE ", %s}", demands[i]);
        struct tally_sweep sweep = run_sweep(text, 1);
        const struct tally_run *run = &sweep.rows[0].trials[0].runs[0];
        CU_ASSERT_DOUBLE_EQUAL(run->uplink.entropy_payload, run->uplink.payload, 0); /* floats */
        CU_ASSERT_TRUE(run->uplink.payload > 0);
        tally_sweep_fini(&sweep);
    }
}

/* The gap is measured at the server's point, after rounds that are further and further apart. */
static void test_experiment_sweep__gaps_are_recorded_on_demand(void)
{
    struct tally_sweep plain = run_sweep("{" BASE "}", 1);
    CU_ASSERT_PTR_NULL(plain.rows[0].trials[0].runs[0].gaps);
    CU_ASSERT_TRUE(isnan(plain.rows[0].zero_gap));
    tally_sweep_fini(&plain);
    struct tally_sweep sweep = run_sweep(
        "{" BASE ", \"rows\": [{\"set\": {\"algorithm\": {\"type\": \"minibatch_sgd\", "
        "\"step_size\": 0.1, \"local_steps\": 1}, \"minibatch\": 0}}], \"columns\": [\"gap\"]}",
        1);
    const struct tally_run *run = &sweep.rows[0].trials[0].runs[0];
    CU_ASSERT_TRUE_FATAL(run->n_gaps > 50 && run->n_gaps < 200);
    CU_ASSERT_EQUAL(run->gaps[0].round, 1);
    CU_ASSERT_EQUAL(run->gaps[run->n_gaps - 1].round, 200);
    for (size_t i = 0; i < run->n_gaps; i++) { /* 32 bits for each of 5 coordinates */
        const struct tally_run_gap *gap = &run->gaps[i];
        CU_ASSERT_DOUBLE_EQUAL(gap->uplink, 160.0 * (double)gap->round, 0);
        CU_ASSERT_DOUBLE_EQUAL(gap->downlink, 160.0 * (double)gap->round, 0);
        CU_ASSERT_TRUE(gap->gap > -1e-12);
        CU_ASSERT_TRUE(i == 0 || gap->round > run->gaps[i - 1].round);
        CU_ASSERT_TRUE(i == 0 || gap->gap < run->gaps[i - 1].gap + 1e-12);
    }
    CU_ASSERT_TRUE(sweep.rows[0].zero_gap > run->gaps[0].gap);
    CU_ASSERT_DOUBLE_EQUAL(tally_sweep_summary(&sweep.rows[0].trials[0], &sweep.columns[0]).mean,
                           run->gaps[run->n_gaps - 1].gap, 0);
    tally_sweep_fini(&sweep);
}

/* The page shows texts of the document as texts. */
static void test_experiment_sweep__page_escapes_and_has_no_scripts(void)
{
    struct tally_sweep sweep =
        run_sweep("{\"name\": \"<script>alert(1)</script>\", " BASE ", \"rows\": [{\"name\": "
                  "\"<b>&\\\"\"}], \"grid\": {\"algorithm.step_size\": [0.001, 0.01, 100]}, "
                  "\"reference_rows\": [{\"name\": \"<i>\", \"values\": {\"regret\": 5, "
                  "\"algorithm.step_size\": 0.1}}]}",
                  1);
    struct tally_buffer page = {0};
    CU_ASSERT_EQUAL(tally_sweep_page(&sweep, &page), TALLY_OK);
    CU_ASSERT_EQUAL(tally_buffer_append(&page, "", 1), TALLY_OK);
    const char *text = (const char *)page.data;
    static const char *const absent[] = {
        "<script", "<b>", "<i>", "http:", "https:", "nan", "inf\""};
    for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++) {
        CU_ASSERT_PTR_NULL(strstr(text, absent[i]));
    }
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "&lt;b&gt;&amp;&quot;"));
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "<svg"));
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "diverged"));
    tally_buffer_fini(&page);
    tally_sweep_fini(&sweep);
}

static void test_experiment_sweep__best_job_is_the_document_with_its_members(void)
{
    struct tally_sweep sweep = run_sweep(
        "{" BASE ", \"seeds\": \"7-8\", \"grid\": {\"algorithm.step_size\": [0.000001, 0.01]}}", 1);
    struct tally_json *job = tally_sweep_job(&sweep, sweep.best);
    struct tally_buffer text = {0};
    CU_ASSERT_EQUAL(tally_json_dump(job, 0, &text), TALLY_OK);
    CU_ASSERT_EQUAL(tally_buffer_append(&text, "", 1), TALLY_OK);
    TALLY_ASSERT_TEXT(
        (const char *)text.data,
        "{\"algorithm\": {\"type\": \"fedavg\", \"step_size\": 0.01, \"local_steps\": 10}, "
        "\"objective\": {\"type\": \"least_squares\", \"data\": {\"type\": \"synthetic_linear\", "
        "\"dim\": 5, \"points\": 40, \"frobenius_norm\": 10}}, \"clients\": 4, \"horizon\": 200, "
        "\"seed\": 7}");
    tally_buffer_fini(&text);
    tally_json_free(job);
    tally_sweep_fini(&sweep);
}

static void test_experiment_sweep__forecast_counts_every_run(void)
{
    const struct tally_sweep_config config = {.threads = 1, .data_dir = "."};
    struct tally_sweep few = sweep_of("{" BASE ", \"seeds\": \"1-10\"}");
    struct tally_sweep many = sweep_of("{" BASE ", \"seeds\": \"1-10000\"}");
    struct tally_error err = TALLY_ERROR_INIT;
    double a = 0, b = 0;
    TALLY_ASSERT_STATUS(tally_sweep_forecast(&few, &config, &a, &err), TALLY_OK, &err);
    TALLY_ASSERT_STATUS(tally_sweep_forecast(&many, &config, &b, &err), TALLY_OK, &err);
    CU_ASSERT_TRUE(a > 0 && b > 10 * a); /* 1,000 times as many runs, on any machine */
    tally_sweep_fini(&few);
    tally_sweep_fini(&many);
}

/* ---- Errors: the member's path, and what the message says. */

static void test_experiment_sweep__errors_name_member_and_limit(void)
{
    static const struct {
        const char *members, *field, *message;
    } wrong[] = {
        {"\"gird\": {}", "gird", "did you mean grid?"},
        {"\"seeds\": \"9-3\"", "seeds", "outside [1, 10000]"},
        {"\"seeds\": [1, 2]", "seeds", "must be text such as"},
        {"\"seeds\": \"1-99999\"", "seeds", "99999 seeds, outside [1, 10000]"},
        {"\"seeds\": \"1-10000\", \"grid\": {\"horizon\": {\"from\": 1, \"to\": 1000, \"count\": "
         "101, \"integers\": true}}",
         "seeds", "above 1000000 runs"},
        {"\"grid\": {\"algorithm.step_size\": [0.1, -1]}", "algorithm.step_size",
         "row 2 (algorithm.step_size=-1): step_size -1 outside (0, 1e+09]"},
        {"\"grid\": {\"algorithm.stepsize\": [0.1]}", "algorithm.stepsize", "unknown key"},
        {"\"grid\": {\"seed\": [1]}", "grid.seed", "`seeds`"},
        {"\"grid\": {\"horizon\": []}", "grid.horizon", "0 values, outside [1, 1000]"},
        {"\"grid\": {\"horizon\": 5}", "grid.horizon", "must be an array of values"},
        {"\"grid\": {}", "grid", "0 members, outside [1, 16]"},
        {"\"grid\": {\"horizon\": {\"from\": 5, \"to\": 1, \"count\": 3}}", "grid.horizon.to",
         "to 1 is not above from 5"},
        {"\"grid\": {\"horizon\": {\"from\": 0, \"to\": 1, \"count\": 3, \"scale\": \"log\"}}",
         "grid.horizon.from", "outside (0, "},
        {"\"grid\": {\"horizon\": {\"from\": 0, \"to\": 1}}", "grid.horizon.count", "missing"},
        {"\"grid\": {\"horizon\": {\"from\": 1, \"to\": 2, \"count\": 1}}", "grid.horizon.count",
         "count 1 outside [2, 1000]"},
        {"\"grid\": {\"horizon\": {\"around\": 1, \"factor\": 1, \"first\": 0, \"last\": 1}}",
         "grid.horizon.factor", "factor 1 outside (1, 1000]"},
        {"\"grid\": {\"horizon\": {\"around\": 1, \"factor\": 2, \"first\": 0, \"last\": 1, "
         "\"widen\": true}}",
         "grid.horizon.widen", "tune"},
        {"\"grid\": {\"horizon\": {\"from\": 1, \"to\": 9000, \"count\": 999, \"integers\": true}, "
         "\"clients\": [1, 2, 3, 4, 5, 6]}",
         "", "more than 5000 rows"},
        {"\"grid\": {\"horizon\": {\"around\": 1, \"factor\": 2, \"first\": 0, \"last\": 1, "
         "\"unit\": \"inverse_smoothness\"}}",
         "grid.horizon.unit", "tune"},
        {"\"rows\": [{\"tune\": {\"horizon\": {\"around\": 1, \"factor\": 2, \"first\": 0, "
         "\"last\": 1, \"unit\": \"inverse_smoothness\"}, \"clients\": [2]}}]",
         "rows[0].tune.horizon", "only member"},
        {"\"random\": {\"count\": 0, \"members\": {\"horizon\": [1]}}", "random.count",
         "count 0 outside [1, 5000]"},
        {"\"random\": {\"count\": 3}", "random.members", "missing"},
        {"\"random\": {\"count\": 3, \"members\": {\"horizon\": {\"from\": 1, \"to\": 2, "
         "\"count\": 2}}}",
         "random.members.horizon.count", "takes no count"},
        {"\"grid\": {\"horizon\": [1]}, \"random\": {\"count\": 3, \"members\": {\"horizon\": "
         "[1]}}",
         "random", "horizon is set by `grid` and by `random`"},
        {"\"rows\": []", "rows", "outside [1, 5000]"},
        {"\"rows\": [5]", "rows", "rows[0] must be an object"},
        {"\"rows\": [{}, {\"nam\": \"x\"}]", "rows[1].nam", "did you mean name?"},
        {"\"rows\": [{\"set\": {\"clients\": 0}}]", "rows[0].clients",
         "row 1 (clients=0): clients 0"},
        {"\"rows\": [{\"grid\": {\"horizon\": 5}}]", "rows[0].grid.horizon",
         "must be an array of values"},
        {"\"grid\": {\"horizon\": [5]}, \"rows\": [{\"grid\": {\"horizon\": [6]}}]",
         "rows[0].rows.grid", "horizon is set by `grid` and by `rows.grid`"},
        {"\"rows\": [{\"base\": 3}]", "rows[0].base", "job document or the name of its file"},
        {"\"rows\": [{\"base\": \"/nonexistent.json\"}]", "rows[0].base", "/nonexistent.json"},
        {"\"rows\": [{\"tune\": {\"horizon\": [5, 6]}}], \"halving\": {\"stages\": 2}",
         "rows[0].tune", "halving"},
        {"\"tune_seeds\": 0", "tune_seeds", "tune_seeds 0 outside [1, 10000]"},
        {"\"best\": {\"by\": \"regrett\"}", "best.by", "did you mean regret?"},
        {"\"best\": {\"by\": \"clients\"}", "best.by", "not a result"},
        {"\"best\": {\"better\": \"best\"}", "best.better", "is not one of auto, higher, lower"},
        {"\"rows\": [{\"set\": {\"reference\": {\"type\": \"none\"}}}], \"best\": {\"by\": "
         "\"regret\"}",
         "best.by", "row 1 has no regret"},
        {"\"halving\": {\"stages\": 1}", "halving.stages", "stages 1 outside [2, 10]"},
        {"\"halving\": {\"stages\": 2}", "halving.by", "at least two seeds"},
        {"\"columns\": [\"regret\", \"accuracy\"]", "columns", "metrics.NAME"},
        {"\"columns\": [1]", "columns", "columns[0] must be text"},
        {"\"axes\": {\"x\": \"clints\"}", "axes.x", "clints"},
        {"\"axes\": {\"x_scale\": \"cubic\"}", "axes.x_scale", "auto, linear, log"},
        {"\"reference_rows\": [{\"name\": \"a\"}]", "reference_rows[0].values", "missing"},
        {"\"reference_rows\": [{\"name\": \"a\", \"values\": {\"regret\": \"b\"}}]",
         "reference_rows[0].values.regret", "must be a number"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char text[2048];
        struct tally_sweep sweep;
        struct tally_json *faults = NULL;
        struct tally_error err = TALLY_ERROR_INIT;
        snprintf(text, sizeof text, "{" BASE ", %s}", wrong[i].members);
        const enum tally_status status =
            tally_sweep_read(text, strlen(text), NULL, NULL, NULL, &sweep, &faults, &err);
        if ((status != TALLY_INVALID_ARGUMENT && status != TALLY_OUT_OF_RANGE) ||
            strcmp(err.field, wrong[i].field) != 0 ||
            strstr(err.message, wrong[i].message) == NULL) {
            printf("\n%s: %s: %s", wrong[i].members, err.field, err.message);
            CU_FAIL();
        }
        tally_json_free(faults);
    }
}

static void expect_refused(const char *text, enum tally_status wanted)
{
    struct tally_sweep sweep;
    struct tally_json *faults = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(
        tally_sweep_read(text, strlen(text), NULL, NULL, NULL, &sweep, &faults, &err), wanted,
        &err);
    tally_json_free(faults);
}

static void test_experiment_sweep__refuses_what_is_no_document(void)
{
    expect_refused("", TALLY_MALFORMED);
    expect_refused("{", TALLY_MALFORMED);
    expect_refused("[]", TALLY_INVALID_ARGUMENT);
    expect_refused("{}", TALLY_INVALID_ARGUMENT);
    expect_refused("{\"base\": {}}", TALLY_INVALID_ARGUMENT);
    char *deep = calloc(1, 100001);
    memset(deep, '[', 100000);
    expect_refused(deep, TALLY_INVALID_ARGUMENT);
    free(deep);
}

/* The faults of a job document are those of a submission. */
static void test_experiment_sweep__faults_of_a_job_have_suggestions(void)
{
    static const char text[] = "{" BASE ", \"grid\": {\"algorithm.step_sise\": [1]}}";
    struct tally_sweep sweep;
    struct tally_json *faults = NULL;
    CU_ASSERT_NOT_EQUAL(
        tally_sweep_read(text, strlen(text), NULL, NULL, NULL, &sweep, &faults, NULL), TALLY_OK);
    CU_ASSERT_PTR_NOT_NULL_FATAL(faults);
    TALLY_ASSERT_TEXT(tally_json_get_text(tally_json_at(faults, 0), "suggestion"), "step_size");
    tally_json_free(faults);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_experiment_sweep__grid_has_every_combination),
    TALLY_TEST(test_experiment_sweep__rows_have_bases_and_members_of_their_own),
    TALLY_TEST(test_experiment_sweep__rows_have_grids_of_their_own),
    TALLY_TEST(test_experiment_sweep__draws_are_within_their_ranges_and_stay),
    TALLY_TEST(test_experiment_sweep__runs_are_those_of_single_jobs),
    TALLY_TEST(test_experiment_sweep__threads_do_not_matter),
    TALLY_TEST(test_experiment_sweep__diverged_rows_are_the_worst),
    TALLY_TEST(test_experiment_sweep__watcher_can_stop_it),
    TALLY_TEST(test_experiment_sweep__names_the_run_that_fails),
    TALLY_TEST(test_experiment_sweep__without_regret_the_loss_decides),
    TALLY_TEST(test_experiment_sweep__tune_widens_towards_the_best),
    TALLY_TEST(test_experiment_sweep__steps_have_the_scale_of_f),
    TALLY_TEST(test_experiment_sweep__refuses_elsewhere_what_is_not_known_there),
    TALLY_TEST(test_experiment_sweep__tune_chooses_the_first_of_the_best),
    TALLY_TEST(test_experiment_sweep__tune_seeds_are_the_first),
    TALLY_TEST(test_experiment_sweep__halving_drops_the_worst_rows),
    TALLY_TEST(test_experiment_sweep__columns_and_rule),
    TALLY_TEST(test_experiment_sweep__entropy_is_computed_on_demand),
    TALLY_TEST(test_experiment_sweep__gaps_are_recorded_on_demand),
    TALLY_TEST(test_experiment_sweep__page_escapes_and_has_no_scripts),
    TALLY_TEST(test_experiment_sweep__best_job_is_the_document_with_its_members),
    TALLY_TEST(test_experiment_sweep__forecast_counts_every_run),
    TALLY_TEST(test_experiment_sweep__errors_name_member_and_limit),
    TALLY_TEST(test_experiment_sweep__refuses_what_is_no_document),
    TALLY_TEST(test_experiment_sweep__faults_of_a_job_have_suggestions),
};
TALLY_SUITE(experiment_sweep, TESTS);
