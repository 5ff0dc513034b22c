#include "services/experiment/reproduction.h"

#include "tests/unit/services/experiment/shipped_jobs.h"

static void expect_names(const struct tally_sweep *sweep, const char *const *names, size_t n)
{
    CU_ASSERT_EQUAL_FATAL(sweep->n_rows, n);
    for (size_t i = 0; i < n; i++) {
        TALLY_ASSERT_TEXT(sweep->rows[i].name, names[i]);
    }
}

static void test_experiment_reproduction__has_the_rows_asked_for(void)
{
    static const char *const some[] = {"ceal paper_bits", "ceal low_regret", "calm paper_bits",
                                       "calm low_regret"};
    static const char *const grids[] = {"minibatch_sgd tuned", "fedavg tuned", "fedpaq tuned",
                                        "fedcom tuned", "ceal tuned"};
    static const struct {
        const char *document;
        size_t n_rows, n_tuned;
    } all[] = {{"synthetic", 15, 5}, {"synthetic-quiet", 15, 5}, {"mnist", 10, 5}};
    struct tally_sweep sweep = shipped_sweep("synthetic", "paper_bits,low_regret", true, 1, 2);
    expect_names(&sweep, some, 4);
    tally_sweep_fini(&sweep);
    sweep = shipped_sweep("mnist", "tuned", true, 101, 10);
    expect_names(&sweep, grids, 5);
    CU_ASSERT_EQUAL(tally_reproduction_search_seeds(&sweep), 2); /* a run takes seconds */
    tally_sweep_fini(&sweep);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        sweep = shipped_sweep(all[i].document, NULL, false, 1, 1);
        CU_ASSERT_EQUAL(sweep.n_rows, all[i].n_rows);
        tally_sweep_fini(&sweep);
        sweep = shipped_sweep(all[i].document, NULL, true, 1, 1);
        CU_ASSERT_EQUAL(sweep.n_rows, all[i].n_rows + all[i].n_tuned);
        CU_ASSERT_EQUAL(tally_reproduction_search_seeds(&sweep), 1);
        tally_sweep_fini(&sweep);
    }
}

static void test_experiment_reproduction__refuses_unknown_presets(void)
{
    static const char *const wrong[] = {"best", "paper,best", "pape", "paper_bits2", ",paper"};
    struct tally_reproduction_config config = {
        .document = "synthetic", .with_grid = true, .radius = NAN, .first_seed = 1, .n_seeds = 1};
    struct tally_sweep sweep;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct tally_error err = TALLY_ERROR_INIT;
        config.only = wrong[i];
        TALLY_ASSERT_STATUS(tally_reproduction_read(&config, &sweep, &err), TALLY_INVALID_ARGUMENT,
                            &err);
        TALLY_ASSERT_TEXT(err.field, "preset");
    }
    struct tally_error err = TALLY_ERROR_INIT;
    config.only = "tuned"; /* which are not wanted */
    config.with_grid = false;
    TALLY_ASSERT_STATUS(tally_reproduction_read(&config, &sweep, &err), TALLY_INVALID_ARGUMENT,
                        &err);
    TALLY_ASSERT_TEXT(err.message, "no row is left");
}

static void test_experiment_reproduction__calm_knows_how_far_it_starts(void)
{
    const struct tally_reproduction_config config = {.document = "synthetic-quiet",
                                                     .only = "paper_bits,auto",
                                                     .radius = 3,
                                                     .first_seed = 1,
                                                     .n_seeds = 1};
    struct tally_sweep sweep = {.n_rows = 0};
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_reproduction_read(&config, &sweep, &err), TALLY_OK, &err);
    CU_ASSERT_EQUAL_FATAL(sweep.n_rows, 3);
    for (size_t i = 0; i < 3; i++) {
        CU_ASSERT_DOUBLE_EQUAL(spec_of(&sweep.rows[i].trials[0]).initial_point.radius, 3, 0);
    }
    const struct tally_job_spec calm = spec_of(&sweep.rows[1].trials[0]);
    CU_ASSERT_DOUBLE_EQUAL(calm.params.calm.initial_variance, 10.0 / 30, 1e-15);
    CU_ASSERT_EQUAL(calm.budget.uplink_bits, 324);
    CU_ASSERT_EQUAL(calm.budget.downlink_bits, 292);
    CU_ASSERT_TRUE(isnan(spec_of(&sweep.rows[2].trials[0]).params.calm.initial_variance));
    tally_sweep_fini(&sweep);
}

/* ---- Results of two artificial runs of FedAvg, the second of which may have diverged. */

static struct tally_run runs[2][2];
static struct tally_json *tune;
static struct tally_sweep_trial trials[2];
static struct tally_sweep_row sweep_row;
static struct tally_sweep made;
static struct tally_reproduction table;

static void begin(double second_regret, double planned_regret)
{
    static const struct tally_run_bits bits = {19200, 19200, 19200, 0};
    static const char references[] =
        "{\"reference_rows\": [{\"name\": \"Table I, fedavg\", \"values\": "
        "{\"uplink_formula_bits\": 19200, \"downlink_formula_bits\": 9600}}, "
        "{\"name\": \"Table I, ceal\", \"values\": "
        "{\"uplink_formula_bits\": 263.3, \"downlink_formula_bits\": 288.6}}]}";
    for (size_t i = 0; i < 2; i++) {
        struct tally_json *document = shipped_document("synthetic-quiet-fedavg");
        tally_json_set_path(document, "algorithm.step_size", tally_json_real(i == 0 ? 0.08 : 0.125),
                            NULL);
        for (size_t seed = 0; seed < 2; seed++) {
            runs[i][seed] = (struct tally_run){.regret = i == 0 ? 30 : 10,
                                               .planned_regret = planned_regret,
                                               .uplink = bits,
                                               .downlink = bits};
        }
        trials[i] = trial_of(document, runs[i], 2);
    }
    tune = tally_json_object();
    runs[1][1].regret = second_regret;
    runs[1][1].diverged = isinf(second_regret);
    sweep_row = (struct tally_sweep_row){
        .name = "fedavg tuned", .tune = tune, .trials = trials, .n_trials = 2, .best = 1};
    made = (struct tally_sweep){.name = "synthetic, quiet reading",
                                .first_seed = 101,
                                .n_seeds = 2,
                                .rows = &sweep_row,
                                .n_rows = 1};
    TALLY_ASSERT_STATUS(tally_json_parse(references, sizeof references - 1, &made.source, NULL),
                        TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(tally_reproduction_make(&made, &table, NULL), TALLY_OK, NULL);
}

static void end(void)
{
    tally_reproduction_fini(&table);
    tally_json_free(made.source);
    tally_json_free(tune);
    free(trials[0].document);
    free(trials[1].document);
}

static void expect_text(struct tally_buffer *text, const char *expected)
{
    TALLY_ASSERT_STATUS(tally_buffer_append(text, "", 1), TALLY_OK, NULL);
    TALLY_ASSERT_TEXT((const char *)text->data, expected);
    tally_buffer_fini(text);
}

static void test_experiment_reproduction__json_has_the_schema(void)
{
    struct tally_buffer text = {0};
    begin(14, 12.5);
    struct tally_json *json = tally_reproduction_json(&table);
    TALLY_ASSERT_STATUS(tally_json_dump(json, 0, &text), TALLY_OK, NULL);
    expect_text(&text,
                "{\"experiment\": \"synthetic\", \"seeds\": [101, 102], \"rows\": [{\"algorithm\": "
                "\"fedavg\", "
                "\"preset\": \"tuned\", \"step_size\": 0.125, \"tuned\": true, "
                "\"regret\": {\"mean\": 12.0, \"std\": 2.8284271247461903}, "
                "\"planned_regret\": 12.5, "
                "\"uplink\": {\"formula\": 19200.0, \"payload\": 19200.0, \"control\": 0.0, "
                "\"entropy_payload\": 19200.0}, "
                "\"downlink\": {\"formula\": 19200.0, \"payload\": 19200.0, \"control\": 0.0, "
                "\"entropy_payload\": 19200.0}, "
                "\"paper\": {\"uplink\": 19200.0, \"downlink\": 9600.0}}]}");
    tally_json_free(json);
    end();
}

static void test_experiment_reproduction__what_is_not_known_is_null(void)
{
    struct tally_buffer text = {0};
    begin(INFINITY, NAN);
    struct tally_json *json = tally_reproduction_json(&table);
    const struct tally_json *row = tally_json_at(tally_json_get(json, "rows"), 0);
    const struct tally_json *regret = tally_json_get(row, "regret");
    CU_ASSERT_PTR_NOT_NULL(tally_json_get(regret, "mean"));
    CU_ASSERT_DOUBLE_EQUAL(tally_json_get_real(regret, "mean", -1), -1, 0);
    CU_ASSERT_PTR_NOT_NULL(tally_json_get(row, "planned_regret"));
    CU_ASSERT_DOUBLE_EQUAL(tally_json_get_real(row, "planned_regret", -1), -1, 0);
    TALLY_ASSERT_STATUS(tally_reproduction_rows_csv(&table, &text), TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(tally_buffer_append(&text, "", 1), TALLY_OK, NULL);
    CU_ASSERT_PTR_NOT_NULL(strstr((const char *)text.data, ",0,0,19200,19200,\n"));
    tally_buffer_fini(&text);
    tally_json_free(json);
    end();
}

static void test_experiment_reproduction__csv_has_a_line_per_row(void)
{
    struct tally_buffer text = {0};
    begin(14, 12.5);
    TALLY_ASSERT_STATUS(tally_reproduction_rows_csv(&table, &text), TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(tally_reproduction_grids_csv(&table, &text), TALLY_OK, NULL);
    expect_text(&text, "algorithm,preset,step_size,tuned,regret_mean,regret_std,uplink_formula,"
                       "uplink_payload,uplink_entropy_payload,downlink_formula,downlink_payload,"
                       "downlink_entropy_payload,paper_uplink,paper_downlink,uplink_control,"
                       "downlink_control,uplink_bits,downlink_bits,planned_regret\n"
                       "fedavg,tuned,0.125,1,12,2.82842712475,19200,19200,19200,19200,19200,19200,"
                       "19200,9600,0,0,19200,19200,12.5\n"
                       "algorithm,step_size,regret_mean,regret_std,best\n"
                       "fedavg,0.08,30,0,0\n"
                       "fedavg,0.125,12,2.82842712475,1\n");
    end();
}

/* The grids are compared by the seeds that all trials have run. */
static void test_experiment_reproduction__grids_have_the_seeds_of_the_search(void)
{
    struct tally_buffer text = {0};
    begin(14, NAN);
    made.tune_seeds = 1;
    TALLY_ASSERT_STATUS(tally_reproduction_grids_csv(&table, &text), TALLY_OK, NULL);
    expect_text(&text, "algorithm,step_size,regret_mean,regret_std,best\n"
                       "fedavg,0.08,30,0,0\n"
                       "fedavg,0.125,10,0,1\n");
    end();
}

static void test_experiment_reproduction__title_tells_what_ran(void)
{
    char title[128];
    begin(14, NAN);
    tally_reproduction_title(&made, "-", title, sizeof title);
    TALLY_ASSERT_TEXT(title, "synthetic, quiet reading, start radius 1, seeds 101-102");
    end();
    struct tally_sweep sweep = shipped_sweep("mnist", "auto", false, 7, 1);
    tally_reproduction_title(&sweep, " to ", title, sizeof title);
    TALLY_ASSERT_TEXT(title, "mnist, seeds 7 to 7");
    tally_sweep_fini(&sweep);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_experiment_reproduction__has_the_rows_asked_for),
    TALLY_TEST(test_experiment_reproduction__refuses_unknown_presets),
    TALLY_TEST(test_experiment_reproduction__calm_knows_how_far_it_starts),
    TALLY_TEST(test_experiment_reproduction__json_has_the_schema),
    TALLY_TEST(test_experiment_reproduction__what_is_not_known_is_null),
    TALLY_TEST(test_experiment_reproduction__csv_has_a_line_per_row),
    TALLY_TEST(test_experiment_reproduction__grids_have_the_seeds_of_the_search),
    TALLY_TEST(test_experiment_reproduction__title_tells_what_ran),
};
TALLY_SUITE(experiment_reproduction, TESTS);

/* A suite of its own: with several threads it takes minutes under TSan. */
static void test_experiment_grids__tuned_rows_are_no_worse(void)
{
    struct tally_sweep sweep = shipped_sweep("synthetic", "paper,tuned", true, 1, 2);
    struct tally_reproduction rows = {.rows = NULL};
    run_shipped(&sweep, 2);
    TALLY_ASSERT_STATUS(tally_reproduction_make(&sweep, &rows, NULL), TALLY_OK, NULL);
    CU_ASSERT_EQUAL_FATAL(sweep.n_rows, 10);
    for (size_t i = 0; i < sweep.n_rows; i += 2) {
        const struct tally_reproduction_row *own = &rows.rows[i], *tuned = own + 1;
        CU_ASSERT_FALSE(own->tuned);
        CU_ASSERT_TRUE(tuned->tuned);
        TALLY_ASSERT_TEXT(own->preset, "paper");
        TALLY_ASSERT_TEXT(tuned->preset, "tuned");
        CU_ASSERT_PTR_EQUAL(own->algorithm, tuned->algorithm);
        CU_ASSERT_TRUE(tuned->regret.mean <= own->regret.mean);
    }
    tally_reproduction_fini(&rows);
    tally_sweep_fini(&sweep);
}

static const struct tally_test GRID_TESTS[] = {
    TALLY_TEST(test_experiment_grids__tuned_rows_are_no_worse),
};
TALLY_SUITE(experiment_grids, GRID_TESTS);
