#include "services/experiment/plot.h"

#include <math.h>
#include <string.h>

#include "tests/unit/services/experiment/shipped_jobs.h"

/* FedAvg at two step sizes, a diverged FedPAQ, and CEAL's presets paper and paper_bits. */
enum { N_ROWS = 5, N_SEEDS = 2 };
static struct tally_run_point curve[] = {{0, 0}, {2000, 100}};
static struct tally_run runs[N_ROWS][N_SEEDS];
static struct tally_sweep_trial trials[N_ROWS];
static struct tally_sweep_row sweep_rows[N_ROWS];
static struct tally_reproduction_row rows[N_ROWS];
static struct tally_sweep sweep;

static struct tally_reproduction make_table(void)
{
    static const struct {
        const char *job, *preset;
    } shown[N_ROWS] = {{"synthetic-fedavg-paper", "paper"},
                       {"synthetic-fedavg", "tuned"},
                       {"synthetic-fedpaq-paper", "paper"},
                       {"synthetic-ceal-paper", "paper"},
                       {"synthetic-ceal-paper-bits", "paper_bits"}};
    for (size_t i = 0; i < N_ROWS; i++) {
        for (size_t seed = 0; seed < N_SEEDS; seed++) {
            runs[i][seed] = (struct tally_run){.regret = i == 2 ? HUGE_VAL : 100.0 - (double)i,
                                               .curve = curve,
                                               .n_points = i == 2 ? 1 : 2};
        }
        free(trials[i].document);
        trials[i] = trial_of(shipped_document(shown[i].job), runs[i], N_SEEDS);
        sweep_rows[i] = (struct tally_sweep_row){.trials = &trials[i], .n_trials = 1};
        rows[i] = (struct tally_reproduction_row){.trial = &trials[i],
                                                  .algorithm = trials[i].algorithm,
                                                  .preset = shown[i].preset,
                                                  .tuned = i == 1,
                                                  .step_size = 0.5,
                                                  .regret = {runs[i][0].regret, 0}};
    }
    sweep = (struct tally_sweep){.name = "synthetic, loud reading",
                                 .first_seed = 1,
                                 .n_seeds = N_SEEDS,
                                 .rows = sweep_rows,
                                 .n_rows = N_ROWS};
    return (struct tally_reproduction){&sweep, rows};
}

static void test_experiment_plot__shows_best_baselines_and_chosen_presets(void)
{
    const struct tally_reproduction table = make_table();
    CU_ASSERT_FALSE(tally_plot_shows(&table, 0));
    CU_ASSERT_TRUE(tally_plot_shows(&table, 1));
    CU_ASSERT_FALSE(tally_plot_shows(&table, 2));
    CU_ASSERT_FALSE(tally_plot_shows(&table, 3));
    CU_ASSERT_TRUE(tally_plot_shows(&table, 4));
    const struct tally_sweep only = {.rows = sweep_rows + 3, .n_rows = 1};
    const struct tally_reproduction alone = {&only, rows + 3};
    CU_ASSERT_TRUE(tally_plot_shows(&alone, 0));
}

static void test_experiment_plot__curves_are_a_table_over_time(void)
{
    const struct tally_reproduction table = make_table();
    struct tally_buffer text = {0};
    TALLY_ASSERT_STATUS(tally_plot_curves_csv(&table, &text), TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(tally_buffer_append(&text, "", 1), TALLY_OK, NULL);
    const char *csv = (const char *)text.data;
    CU_ASSERT_PTR_EQUAL(strstr(csv, "time_step,fedavg paper mean,fedavg paper std,fedavg tuned "
                                    "mean,fedavg tuned std,fedpaq paper mean,"),
                        csv);
    CU_ASSERT_PTR_NOT_NULL(strstr(csv, "\n0,0,0,0,0,0,0,0,0,0,0\n"));
    CU_ASSERT_PTR_NOT_NULL(strstr(csv, "\n1000,50,0,50,0,,,50,0,50,0\n"));
    CU_ASSERT_PTR_NOT_NULL(strstr(csv, "\n2000,100,0,100,0,,,100,0,100,0\n"));
    tally_buffer_fini(&text);
}

static void test_experiment_plot__scripts_draw_svg_and_png(void)
{
    const struct tally_reproduction table = make_table();
    struct tally_buffer text = {0};
    TALLY_ASSERT_STATUS(tally_plot_regret_script(&table, &text), TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(tally_plot_bits_script(&table, &text), TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(tally_buffer_append(&text, "", 1), TALLY_OK, NULL);
    static const char *const parts[] = {
        "set output \"regret.svg\"\n",
        "set output \"regret.png\"\n",
        "set output \"bits.svg\"\n",
        "set output \"bits.png\"\n",
        "using 1:4 with lines",
        "using 1:($4-$5):($4+$5)",
        "title \"FedAvg, step 0.5\"",
        "title \"CEAL paper_bits\"",
        "set title \"synthetic, loud reading, start radius 2, seeds 1 to 2\""};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        CU_ASSERT_PTR_NOT_NULL(strstr((const char *)text.data, parts[i]));
    }
    CU_ASSERT_PTR_NULL(strstr((const char *)text.data, "FedPAQ"));
    tally_buffer_fini(&text);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_experiment_plot__shows_best_baselines_and_chosen_presets),
    TALLY_TEST(test_experiment_plot__curves_are_a_table_over_time),
    TALLY_TEST(test_experiment_plot__scripts_draw_svg_and_png),
};
TALLY_SUITE(experiment_plot, TESTS);
