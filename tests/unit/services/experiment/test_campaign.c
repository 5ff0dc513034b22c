#include "services/experiment/campaign.h"

#include <math.h>
#include <string.h>

#include "tests/harness.h"

static struct tally_campaign_config config_of(unsigned threads, bool with_grid, const char *only)
{
    return (struct tally_campaign_config){.runner = {.kind = TALLY_PROBLEM_LOUD,
                                                     .first_seed = 1,
                                                     .n_seeds = 2,
                                                     .data_dir = ".",
                                                     .threads = threads},
                                          .problem = {TALLY_PROBLEM_LOUD, 2},
                                          .with_grid = with_grid,
                                          .only = only};
}

static struct tally_campaign campaign_of(unsigned threads, bool with_grid, const char *only)
{
    const struct tally_campaign_config config = config_of(threads, with_grid, only);
    struct tally_campaign campaign = {0};
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_campaign_run(&config, &campaign, &err), TALLY_OK, &err);
    return campaign;
}

static void expect_threads_do_not_matter(bool with_grid, size_t n_rows)
{
    struct tally_campaign one = campaign_of(1, with_grid, NULL);
    struct tally_campaign two = campaign_of(2, with_grid, NULL);
    CU_ASSERT_EQUAL(one.n_rows, n_rows);
    CU_ASSERT_EQUAL_FATAL(one.n_rows, two.n_rows);
    for (size_t i = 0; i < one.n_rows; i++) {
        CU_ASSERT_PTR_EQUAL(one.rows[i].preset, two.rows[i].preset);
        CU_ASSERT_DOUBLE_EQUAL(one.rows[i].step_size, two.rows[i].step_size, 0);
        for (size_t seed = 0; seed < 2; seed++) {
            CU_ASSERT_DOUBLE_EQUAL(one.rows[i].runs[seed].regret, two.rows[i].runs[seed].regret, 0);
            CU_ASSERT_DOUBLE_EQUAL(one.rows[i].runs[seed].uplink.payload,
                                   two.rows[i].runs[seed].uplink.payload, 0);
        }
    }
    tally_campaign_fini(&one);
    tally_campaign_fini(&two);
}

/* 4 baselines, 2 schedules, 2 compressed rows, 3 presets of CEAL and 4 of CALM. */
static void test_experiment_campaign__does_not_depend_on_threads(void)
{
    expect_threads_do_not_matter(false, 15);
}

/* The same, plus the 4 baselines and CEAL tuned. */
static void test_experiment_grids__do_not_depend_on_threads(void)
{
    expect_threads_do_not_matter(true, 20);
}

static void test_experiment_grids__tuned_rows_are_no_worse(void)
{
    struct tally_campaign campaign = campaign_of(2, true, "paper,tuned");
    CU_ASSERT_EQUAL_FATAL(campaign.n_rows, 10);
    CU_ASSERT_EQUAL(campaign.n_searches, 5);
    for (size_t i = 0; i < campaign.n_rows; i += 2) {
        const struct tally_campaign_row *own = &campaign.rows[i], *tuned = own + 1;
        CU_ASSERT_FALSE(own->tuned);
        CU_ASSERT_TRUE(tuned->tuned);
        TALLY_ASSERT_TEXT(tally_campaign_row_name(own), "paper");
        TALLY_ASSERT_TEXT(tally_campaign_row_name(tuned), "tuned");
        CU_ASSERT_PTR_EQUAL(own->preset, tuned->preset);
        CU_ASSERT_TRUE(tally_summary_of_regret(tuned->runs, 2).mean <=
                       tally_summary_of_regret(own->runs, 2).mean);
    }
    tally_campaign_fini(&campaign);
}

static void test_experiment_campaign__runs_the_presets_asked_for(void)
{
    struct tally_campaign campaign = campaign_of(1, false, "paper_bits,low_regret");
    CU_ASSERT_EQUAL_FATAL(campaign.n_rows, 4); /* CEAL's, then CALM's */
    CU_ASSERT_EQUAL(campaign.n_searches, 0);
    for (size_t i = 0; i < 4; i++) {
        TALLY_ASSERT_TEXT(tally_campaign_row_name(&campaign.rows[i]),
                          i % 2 == 0 ? "paper_bits" : "low_regret");
        CU_ASSERT_PTR_EQUAL(campaign.rows[i].preset->algorithm, i < 2 ? &TALLY_CEAL : &TALLY_CALM);
        CU_ASSERT_EQUAL(isnan(campaign.rows[i].planned_regret), i < 2);
    }
    tally_campaign_fini(&campaign);
}

static void test_experiment_campaign__refuses_unknown_presets(void)
{
    static const char *const wrong[] = {"best", "paper,best", "pape", "paper_bits2", ",paper"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const struct tally_campaign_config config = config_of(1, true, wrong[i]);
        struct tally_campaign campaign;
        struct tally_error err = TALLY_ERROR_INIT;
        TALLY_ASSERT_STATUS(tally_campaign_run(&config, &campaign, &err), TALLY_INVALID_ARGUMENT,
                            &err);
        TALLY_ASSERT_TEXT(err.field, "preset");
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_experiment_campaign__does_not_depend_on_threads),
    TALLY_TEST(test_experiment_campaign__runs_the_presets_asked_for),
    TALLY_TEST(test_experiment_campaign__refuses_unknown_presets),
};
TALLY_SUITE(experiment_campaign, TESTS);

/* A suite of its own: with the threads of the suite above it takes minutes under TSan. */
static const struct tally_test GRID_TESTS[] = {
    TALLY_TEST(test_experiment_grids__do_not_depend_on_threads),
    TALLY_TEST(test_experiment_grids__tuned_rows_are_no_worse),
};
TALLY_SUITE(experiment_grids, GRID_TESTS);
