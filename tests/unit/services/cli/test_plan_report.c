#include "services/cli/cmd_plan.h"

#include <math.h>
#include <string.h>

#include "services/algorithms/calm.h"
#include "services/algorithms/calm/calm_plan.h"
#include "tests/harness.h"
#include "tests/unit/services/algorithms/calm/synthetic_job.h"

static void expect(const struct tally_json *report, const char *expected)
{
    struct tally_buffer text = {0};
    TALLY_ASSERT_STATUS(tally_plan_report_render(report, &text), TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(tally_buffer_append(&text, "", 1), TALLY_OK, NULL);
    TALLY_ASSERT_TEXT((const char *)text.data, expected);
    tally_buffer_fini(&text);
}

static struct tally_json *parsed(const char *json)
{
    struct tally_json *report = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_json_parse(json, strlen(json), &report, &err), TALLY_OK, &err);
    return report;
}

#define EPOCHS                                                                                     \
    "\"epochs\":[{\"samples\":15,\"uplink_resolution\":1.25,\"downlink_resolution\":1.5,"          \
    "\"uplink_bits\":130.0,\"downlink_bits\":144.96,\"regret\":812.25,\"variance\":0.0625},"       \
    "{\"samples\":1985,\"uplink_resolution\":null,\"downlink_resolution\":null,"                   \
    "\"uplink_bits\":0.0,\"downlink_bits\":0.0,\"regret\":120.5,\"variance\":0.0625}]"

static void test_cli_plan_report__shows_the_epochs_of_a_single_plan(void)
{
    struct tally_json *report = parsed(
        "{\"alone_regret\":3676.34,\"shared_regret\":220.0,\"plans\":[{\"regret\":932.75,"
        "\"uplink_bits\":130.0,\"downlink_bits\":144.96,\"ideal_regret\":777.9," EPOCHS "}]}");
    expect(report, "regret alone    3676  no message at all\n"
                   "regret shared  220.0  every query shared at no cost\n"
                   "\n"
                   "bits up  bits down  regret  / shared  ideal rates  queries between messages\n"
                   "  130.0      145.0   932.8      4.24        777.9  15 | 1985\n"
                   "\n"
                   "epoch  queries  bits up  bits down  step up  step down  regret  variance\n"
                   "    1       15    130.0      145.0     1.25       1.50   812.2    0.0625\n"
                   "    2     1985        0          0        -          -   120.5    0.0625\n");
    tally_json_free(report);
}

static void test_cli_plan_report__compares_several_plans(void)
{
    struct tally_json *report = parsed(
        "{\"alone_regret\":3676.34,\"shared_regret\":220.0,\"plans\":[{\"regret\":932.75,"
        "\"uplink_bits\":130.0,\"downlink_bits\":144.96,\"ideal_regret\":777.9," EPOCHS
        "},{\"regret\":9.5,\"uplink_bits\":29000.0,\"downlink_bits\":1e17,\"ideal_regret\":null,"
        "\"epochs\":[{\"samples\":2000}]}]}");
    expect(report, "regret alone    3676  no message at all\n"
                   "regret shared  220.0  every query shared at no cost\n"
                   "\n"
                   "bits up  bits down  regret  / shared  ideal rates  queries between messages\n"
                   "  130.0      145.0   932.8      4.24        777.9  15 | 1985\n"
                   "  29000      1e+17    9.50      0.04            -  2000\n");
    tally_json_free(report);
}

static double member(const struct tally_json *object, const char *key)
{
    return tally_json_get_real(object, key, -1);
}

/* The job LOUD of synthetic_job.h, except for its budget. */
static struct tally_setting loud(union tally_algorithm_params *params)
{
    params->calm = (struct tally_calm_params){.step_size = 1 / LOUD.curvature,
                                              .noise = LOUD.noise,
                                              .noise_growth = LOUD.noise_growth,
                                              .client_spread = LOUD.client_spread,
                                              .curvature_spread = LOUD.curvature_spread,
                                              .initial_variance = LOUD.initial_variance,
                                              .local_step_limit = LOUD.local_step_limit};
    return (struct tally_setting){
        .params = params, .clients = LOUD.clients, .dim = LOUD.dim, .horizon = LOUD.horizon};
}

/* The JSON report agrees with the job's own plan: it has sums over the epochs, limits, and null
 * where there is no budget. */
static void test_cli_plan_report__makes_plans(void)
{
    const struct tally_budget budgets[] = {{.uplink_bits = 263, .downlink_bits = 289},
                                           {.uplink_bits = 130}};
    union tally_algorithm_params params;
    struct tally_setting setting = loud(&params);
    struct tally_calm_schedule own;
    struct tally_json *report = tally_plan_report_make(&setting, budgets, 2);
    CU_ASSERT_PTR_NOT_NULL_FATAL(report);
    setting.budget = budgets[0];
    calm_make_schedule(&setting, &own);
    CU_ASSERT_EQUAL(member(report, "clients"), 10);
    CU_ASSERT_EQUAL(member(report, "dim"), 30);
    CU_ASSERT_EQUAL(member(report, "horizon"), 2000);
    CU_ASSERT_DOUBLE_EQUAL(member(report, "alone_regret"), 3676.3, 0.1);
    CU_ASSERT_DOUBLE_EQUAL(member(report, "shared_regret"), tally_calm_shared_regret(&LOUD), 1e-9);

    const struct tally_json *plan = tally_json_at(tally_json_get(report, "plans"), 0);
    const struct tally_json *epochs = tally_json_get(plan, "epochs");
    double regret = 0, uplink_bits = 0, samples = 0;
    CU_ASSERT_EQUAL_FATAL(tally_json_size(epochs), 5);
    for (size_t k = 0; k < 5; k++) {
        const struct tally_json *epoch = tally_json_at(epochs, k);
        regret += member(epoch, "regret");
        uplink_bits += member(epoch, "uplink_bits");
        samples += member(epoch, "samples");
        CU_ASSERT_EQUAL(member(epoch, "uplink_resolution"),
                        k < 4 ? own.epochs[k].uplink_resolution : -1);
        CU_ASSERT_EQUAL(member(epoch, "downlink_resolution"),
                        k < 4 ? own.epochs[k].downlink_resolution : -1);
    }
    CU_ASSERT_DOUBLE_EQUAL(member(plan, "regret"), regret, 1e-9 * regret);
    CU_ASSERT_DOUBLE_EQUAL(member(plan, "uplink_bits"), uplink_bits, 1e-9 * uplink_bits);
    CU_ASSERT_EQUAL(samples, 2000);
    CU_ASSERT_EQUAL(member(tally_json_get(plan, "budget"), "downlink_bits"), 289);
    CU_ASSERT_TRUE(member(plan, "uplink_bits") < 263);
    const struct tally_calm_budget whole = {.uplink_bits = 263, .downlink_bits = 289};
    CU_ASSERT_DOUBLE_EQUAL(member(plan, "ideal_regret"), tally_calm_ideal_regret(&LOUD, &whole),
                           1e-6);

    plan = tally_json_at(tally_json_get(report, "plans"), 1);
    CU_ASSERT_EQUAL(member(tally_json_get(plan, "budget"), "uplink_bits"), 130);
    CU_ASSERT_EQUAL(member(tally_json_get(plan, "budget"), "downlink_bits"), -1);
    CU_ASSERT_EQUAL(member(plan, "ideal_regret"), -1);
    tally_json_free(report);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_cli_plan_report__shows_the_epochs_of_a_single_plan),
    TALLY_TEST(test_cli_plan_report__compares_several_plans),
    TALLY_TEST(test_cli_plan_report__makes_plans),
};
TALLY_SUITE(cli_plan_report, TESTS);
