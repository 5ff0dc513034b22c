#include "services/experiment/campaign.h"

#include <math.h>
#include <string.h>

#include "tests/harness.h"

/* Two artificial runs of FedAvg, one of which may have diverged. */
static struct tally_run runs[2];
static struct tally_campaign_row row;
static double planned_regret = 12.5;
static struct tally_trial trials[2] = {{-1, 0.08, {30, 1}}, {0, 0.1, {20, 2}}};
static struct tally_search search;

static struct tally_campaign campaign_of(double second_regret)
{
    runs[0] = (struct tally_run){
        .regret = 10, .uplink = {19200, 19200, 19200, 0}, .downlink = {19200, 19200, 19200, 0}};
    runs[1] = runs[0];
    runs[1].regret = second_regret;
    runs[1].diverged = isinf(second_regret);
    const struct tally_preset *fedavg =
        tally_preset_get(TALLY_PROBLEM_QUIET, &TALLY_FEDAVG, "paper");
    row = (struct tally_campaign_row){fedavg, 0.125, true, runs, planned_regret};
    search = (struct tally_search){.preset = fedavg, .trials = trials, .n_trials = 2, .best = 1};
    return (struct tally_campaign){
        .config = {.runner = {.kind = TALLY_PROBLEM_QUIET, .first_seed = 101, .n_seeds = 2},
                   .problem = {TALLY_PROBLEM_QUIET, 1}},
        .rows = &row,
        .n_rows = 1,
        .searches = &search,
        .n_searches = 1};
}

static void test_experiment_report__json_has_the_schema(void)
{
    const struct tally_campaign campaign = campaign_of(14);
    struct tally_json *json = tally_report_json(&campaign);
    struct tally_buffer text = {0};
    TALLY_ASSERT_STATUS(tally_json_dump(json, 0, &text), TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(tally_buffer_append(&text, "", 1), TALLY_OK, NULL);
    TALLY_ASSERT_TEXT(
        (const char *)text.data,
        "{\"experiment\": \"synthetic\", \"seeds\": [101, 102], \"rows\": [{\"algorithm\": "
        "\"fedavg\", "
        "\"preset\": \"tuned\", \"step_size\": 0.125, \"tuned\": true, "
        "\"regret\": {\"mean\": 12.0, \"std\": 2.8284271247461903}, \"planned_regret\": 12.5, "
        "\"uplink\": {\"formula\": 19200.0, \"payload\": 19200.0, \"control\": 0.0, "
        "\"entropy_payload\": 19200.0}, "
        "\"downlink\": {\"formula\": 19200.0, \"payload\": 19200.0, \"control\": 0.0, "
        "\"entropy_payload\": 19200.0}, "
        "\"paper\": {\"uplink\": 19200.0, \"downlink\": 19200.0}}]}");
    tally_buffer_fini(&text);
    tally_json_free(json);
}

static void test_experiment_report__diverged_regret_is_null(void)
{
    const struct tally_campaign campaign = campaign_of(INFINITY);
    struct tally_json *json = tally_report_json(&campaign);
    const struct tally_json *regret =
        tally_json_get(tally_json_at(tally_json_get(json, "rows"), 0), "regret");
    CU_ASSERT_PTR_NOT_NULL(tally_json_get(regret, "mean"));
    CU_ASSERT_DOUBLE_EQUAL(tally_json_get_real(regret, "mean", -1), -1, 0);
    tally_json_free(json);
}

static void test_experiment_report__a_regret_without_a_plan_is_null(void)
{
    planned_regret = NAN;
    const struct tally_campaign campaign = campaign_of(14);
    planned_regret = 12.5;
    struct tally_json *json = tally_report_json(&campaign);
    const struct tally_json *row_json = tally_json_at(tally_json_get(json, "rows"), 0);
    CU_ASSERT_PTR_NOT_NULL(tally_json_get(row_json, "planned_regret"));
    CU_ASSERT_DOUBLE_EQUAL(tally_json_get_real(row_json, "planned_regret", -1), -1, 0);
    tally_json_free(json);
    struct tally_buffer text = {0};
    TALLY_ASSERT_STATUS(tally_report_rows_csv(&campaign, &text), TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(tally_buffer_append(&text, "", 1), TALLY_OK, NULL);
    CU_ASSERT_PTR_NOT_NULL(strstr((const char *)text.data, ",0,0,19200,19200,\n"));
    tally_buffer_fini(&text);
}

static void test_experiment_report__csv_has_a_line_per_row(void)
{
    const struct tally_campaign campaign = campaign_of(14);
    struct tally_buffer text = {0};
    TALLY_ASSERT_STATUS(tally_report_rows_csv(&campaign, &text), TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(tally_report_grids_csv(&campaign, &text), TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(tally_buffer_append(&text, "", 1), TALLY_OK, NULL);
    TALLY_ASSERT_TEXT((const char *)text.data,
                      "algorithm,preset,step_size,tuned,regret_mean,regret_std,uplink_formula,"
                      "uplink_payload,uplink_entropy_payload,downlink_formula,downlink_payload,"
                      "downlink_entropy_payload,paper_uplink,paper_downlink,uplink_control,"
                      "downlink_control,uplink_bits,downlink_bits,planned_regret\n"
                      "fedavg,tuned,0.125,1,12,2.82842712475,19200,19200,19200,19200,19200,19200,"
                      "19200,19200,0,0,19200,19200,12.5\n"
                      "algorithm,step_size,regret_mean,regret_std,best\n"
                      "fedavg,0.08,30,1,0\n"
                      "fedavg,0.1,20,2,1\n");
    tally_buffer_fini(&text);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_experiment_report__json_has_the_schema),
    TALLY_TEST(test_experiment_report__diverged_regret_is_null),
    TALLY_TEST(test_experiment_report__a_regret_without_a_plan_is_null),
    TALLY_TEST(test_experiment_report__csv_has_a_line_per_row),
};
TALLY_SUITE(experiment_report, TESTS);
