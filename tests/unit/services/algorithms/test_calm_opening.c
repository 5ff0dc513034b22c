/* The values of CALM's opening round, as encoded in its reports and its conclusion. */
#include <math.h>
#include <stdlib.h>

#include "codec/numeric/bits.h"
#include "services/algorithms/calm.h"
#include "tests/harness.h"

static const union tally_algorithm_params PARAMS = {
    .calm = {.step_size = 1, .noise = NAN, .initial_variance = 0x1p-900}};
static const struct tally_setting SETTING = {
    .params = &PARAMS, .clients = 1, .dim = 1, .horizon = 100};

/* Receives a report of two codes, which costs 20 bits. */
static enum tally_status receive(uint64_t variance, uint64_t norm, struct tally_report *ret_report)
{
    uint8_t bytes[8] = {0};
    struct tally_bit_writer writer;
    tally_bit_writer_init(&writer, bytes, sizeof bytes);
    tally_bit_write(&writer, variance, 10);
    tally_bit_write(&writer, norm, 10);
    const struct tally_message_view message = {
        .payload = bytes, .n_payload = tally_bit_writer_finish(&writer), .payload_bits = 20};
    struct tally_bits bits;
    enum tally_status status = CALM_OPENING.receive(&SETTING, &message, ret_report, &bits, NULL);
    CU_ASSERT_TRUE(bits.payload_bits == 20 && bits.formula_bits == 20 && bits.messages == 1);
    return status;
}

static void test_calm_opening__values_lie_an_eighth_of_an_octave_apart(void)
{
    struct tally_report report;
    double before = 0;
    for (uint64_t code = 0; code < 1024; code++) {
        CU_ASSERT_EQUAL_FATAL(receive(code, 1023 - code, &report), TALLY_OK);
        const double expected = exp2(((double)code - 512) / 8);
        CU_ASSERT_TRUE(fabs(report.variance / expected - 1) < 1e-13);
        CU_ASSERT_TRUE(fabs(report.norm * expected * exp2(1.0 / 8) - 1) < 1e-13);
        CU_ASSERT_TRUE(report.variance > before);
        before = report.variance;
    }
    receive(512, 0, &report);
    CU_ASSERT_EQUAL(report.variance, 1);
    CU_ASSERT_EQUAL(report.norm, 0x1p-64);
}

/* The noise that a job adopts after two reports whose mean variance is `variance`. */
static double noise_from(double variance)
{
    const struct tally_round_plan plan = {.samples = 6};
    const struct tally_report reports[] = {{.variance = variance / 2, .norm = 1},
                                           {.variance = variance * 3 / 2, .norm = 1}};
    struct tally_estimates estimates;
    uint64_t control = 0;
    union tally_algorithm_params params = PARAMS;
    CU_ASSERT_EQUAL(CALM_OPENING.conclude(&SETTING, &plan, reports, 2, &estimates, &control, NULL),
                    TALLY_OK);
    CU_ASSERT_EQUAL(control, 10);
    CU_ASSERT_TRUE(CALM_OPENING.adopt(&SETTING, &estimates, &params));
    CU_ASSERT_EQUAL(params.calm.initial_variance, PARAMS.calm.initial_variance);
    return params.calm.noise;
}

static void test_calm_opening__noise_is_the_nearest_value(void)
{
    for (int code = 0; code < 1023; code++) {
        const double below = exp2((code - 512) / 8.0), above = exp2((code - 511) / 8.0);
        CU_ASSERT_TRUE(fabs(noise_from(below) / below - 1) < 1e-12);
        CU_ASSERT_TRUE(fabs(noise_from(below * exp2(0.0624)) / below - 1) < 1e-12);
        CU_ASSERT_TRUE(fabs(noise_from(below * exp2(0.0626)) / above - 1) < 1e-12);
    }
    CU_ASSERT_DOUBLE_EQUAL(noise_from(0) / 0x1p-64, 1, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(noise_from(1e-200) / 0x1p-64, 1, 1e-12);
    const double most = exp2(511 / 8.0);
    CU_ASSERT_DOUBLE_EQUAL(noise_from(0x1p64) / most, 1, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(noise_from(1e200) / most, 1, 1e-12);
}

static void test_calm_opening__malformed_reports_are_refused(void)
{
    uint8_t bytes[4] = {0};
    const struct {
        size_t n;
        uint64_t bits;
    } bad[] = {{2, 20}, {4, 20}, {3, 19}, {3, 21}, {3, 24}, {0, 0}, {2, 16}, {4, 32}};
    struct tally_report report;
    struct tally_bits bits;
    struct tally_message_view message = {.payload = bytes, .n_payload = 3, .payload_bits = 20};
    CU_ASSERT_EQUAL(CALM_OPENING.receive(&SETTING, &message, &report, &bits, NULL), TALLY_OK);
    for (int bit = 0; bit < 24; bit++) { /* half of the last byte is padding */
        bytes[bit / 8] = (uint8_t)(1 << bit % 8);
        const enum tally_status status =
            CALM_OPENING.receive(&SETTING, &message, &report, &bits, NULL);
        CU_ASSERT_EQUAL(status, bit >= 20 ? TALLY_MALFORMED : TALLY_OK);
        bytes[bit / 8] = 0;
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        message.n_payload = bad[i].n;
        message.payload_bits = bad[i].bits;
        CU_ASSERT_EQUAL(CALM_OPENING.receive(&SETTING, &message, &report, &bits, NULL),
                        TALLY_MALFORMED);
    }
}

/* The uplink resolution in a job whose opening round has just ended. */
static double resolution(uint32_t clients, size_t dim, bool has_regret, double client_spread)
{
    const union tally_algorithm_params params = {.calm = {.step_size = 1,
                                                          .noise = 1,
                                                          .initial_variance = 1,
                                                          .client_spread = client_spread,
                                                          .local_step_limit = NAN}};
    const struct tally_setting setting = {.params = &params,
                                          .clients = clients,
                                          .dim = dim,
                                          .horizon = 100,
                                          .has_regret = has_regret};
    struct calm_memory *memory = malloc(calm_memory_bytes(&setting));
    double *x = calloc(dim, sizeof *x);
    CU_ASSERT_TRUE_FATAL(memory != NULL && x != NULL);
    calm_memory_begin(&setting, x, 6, "", memory);
    const double uplink = memory->schedule.epochs[0].uplink_resolution;
    free(x);
    free(memory);
    return uplink;
}

/* How much coarser the grids are if a job is judged by its final model. */
static double coarser(uint32_t clients, size_t dim)
{
    return resolution(clients, dim, false, NAN) / resolution(clients, dim, true, NAN);
}

static void test_calm_opening__grids_are_coarser_where_only_the_final_model_counts(void)
{
    CU_ASSERT_DOUBLE_EQUAL(resolution(10, 30, true, NAN), 1.3, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(resolution(10, 30000, true, NAN), 1.3 * pow(1000, 0.2), 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(coarser(10, 30), 1, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(coarser(10, 3000), pow(100, 0.1), 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(coarser(20, 60000), 1.7, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(coarser(4, 60000), sqrt(1.12), 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(coarser(2, 60000), 1, 1e-12);
    /* A job that never travels has one grid, however it is judged. */
    CU_ASSERT_EQUAL(resolution(10, 30000, false, 1), resolution(10, 30000, true, 1));
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_calm_opening__values_lie_an_eighth_of_an_octave_apart),
    TALLY_TEST(test_calm_opening__noise_is_the_nearest_value),
    TALLY_TEST(test_calm_opening__malformed_reports_are_refused),
    TALLY_TEST(test_calm_opening__grids_are_coarser_where_only_the_final_model_counts),
};
TALLY_SUITE(calm_opening, TESTS);
