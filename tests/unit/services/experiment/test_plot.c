#include "services/experiment/plot.h"

#include <math.h>
#include <string.h>

#include "tests/harness.h"

/* FedAvg at two step sizes, a diverged FedPAQ, and CEAL's presets paper and paper_bits. */
enum { N_ROWS = 5, N_SEEDS = 2 };
static struct tally_run_point curve[] = {{0, 0}, {2000, 100}};
static struct tally_run runs[N_ROWS][N_SEEDS];
static struct tally_campaign_row rows[N_ROWS];

static struct tally_campaign make_campaign(void)
{
    static const struct {
        const struct tally_algorithm *algorithm;
        const char *preset;
    } shown[N_ROWS] = {{&TALLY_FEDAVG, "paper"},
                       {&TALLY_FEDAVG, "paper"},
                       {&TALLY_FEDPAQ, "paper"},
                       {&TALLY_CEAL, "paper"},
                       {&TALLY_CEAL, "paper_bits"}};
    for (size_t i = 0; i < N_ROWS; i++) {
        for (size_t seed = 0; seed < N_SEEDS; seed++) {
            runs[i][seed] = (struct tally_run){
                .regret = 100.0 - (double)i, .curve = curve, .n_points = i == 2 ? 1 : 2};
        }
        rows[i] = (struct tally_campaign_row){
            tally_preset_get(TALLY_PROBLEM_LOUD, shown[i].algorithm, shown[i].preset), 0.5, i == 1,
            runs[i], 0};
    }
    runs[2][0].diverged = true;
    runs[2][0].regret = HUGE_VAL;
    return (struct tally_campaign){
        .config = {.runner = {.kind = TALLY_PROBLEM_LOUD, .first_seed = 1, .n_seeds = N_SEEDS},
                   .problem = {TALLY_PROBLEM_LOUD, 2}},
        .rows = rows,
        .n_rows = N_ROWS};
}

static void test_experiment_plot__shows_best_baselines_and_chosen_presets(void)
{
    const struct tally_campaign campaign = make_campaign();
    CU_ASSERT_FALSE(tally_plot_shows(&campaign, 0));
    CU_ASSERT_TRUE(tally_plot_shows(&campaign, 1));
    CU_ASSERT_FALSE(tally_plot_shows(&campaign, 2));
    CU_ASSERT_FALSE(tally_plot_shows(&campaign, 3));
    CU_ASSERT_TRUE(tally_plot_shows(&campaign, 4));
    CU_ASSERT_TRUE(tally_plot_shows(
        &(struct tally_campaign){.config = campaign.config, .rows = rows + 3, .n_rows = 1}, 0));
}

static void test_experiment_plot__curves_are_a_table_over_time(void)
{
    const struct tally_campaign campaign = make_campaign();
    struct tally_buffer text = {0};
    TALLY_ASSERT_STATUS(tally_plot_curves_csv(&campaign, &text), TALLY_OK, NULL);
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
    const struct tally_campaign campaign = make_campaign();
    struct tally_buffer text = {0};
    TALLY_ASSERT_STATUS(tally_plot_regret_script(&campaign, &text), TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(tally_plot_bits_script(&campaign, &text), TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(tally_buffer_append(&text, "", 1), TALLY_OK, NULL);
    static const char *const parts[] = {
        "set output \"regret.svg\"\n", "set output \"regret.png\"\n", "set output \"bits.svg\"\n",
        "set output \"bits.png\"\n",   "using 1:4 with lines",        "using 1:($4-$5):($4+$5)",
        "title \"FedAvg, step 0.5\"",  "title \"CEAL paper_bits\""};
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
