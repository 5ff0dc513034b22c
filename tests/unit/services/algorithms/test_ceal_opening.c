/* The opening round of CEAL: the clients' reports, and the server's conclusion from them. */
#include "services/algorithms/ceal.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codec/numeric/float32.h"
#include "tests/harness.h"

enum { DIM = 9, CLIENTS = 4, SAMPLES = 16 };

struct world {
    union tally_algorithm_params params;
    struct tally_setting setting;
    struct tally_round_plan plan;
    struct tally_objective *objective;
    struct tally_scratch scratch;
    struct tally_client_answer answer;
    double x[DIM];
};

static void init(struct world *world)
{
    *world = (struct world){
        .params = TALLY_CEAL.defaults(),
        .setting = {.clients = CLIENTS,
                    .dim = DIM,
                    .minibatch = 3,
                    .key = tally_rng_key(17, 0),
                    .encoding = &TALLY_ENCODING_UNARY},
        .answer.loss = -1,
        .x = {0.5, -1.25, 0.3, 2, -0.1, 0, 1.7, 1, -2},
    };
    world->params.ceal.step_size = 1;
    world->params.ceal.sigma = NAN;
    world->params.ceal.gradient_bound = NAN;
    world->setting.params = &world->params;
    struct tally_objective_spec spec = tally_objective_spec_default();
    spec.data.synthetic_linear = (struct tally_synthetic_linear){
        .dim = DIM, .points = 42, .frobenius_norm = 9, .noise_std = 0.5};
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(
        tally_objective_new(&spec, CLIENTS, world->setting.key, ".", &world->objective, &err),
        TALLY_OK, &err);
    TALLY_ASSERT_STATUS(tally_scratch_init(&world->scratch, DIM, TALLY_SCRATCH_CLIENT, &err),
                        TALLY_OK, &err);
    CU_ASSERT_EQUAL_FATAL(TALLY_CEAL.first_stage(&world->params), 0);
    TALLY_ASSERT_STATUS(TALLY_CEAL.plan(&world->setting, 0, NULL, &world->plan, &err), TALLY_OK,
                        &err);
}

static void fini(struct world *world)
{
    tally_message_fini(&world->answer.message);
    tally_scratch_fini(&world->scratch);
    tally_objective_free(world->objective);
}

static void step(struct world *world, uint32_t client)
{
    struct tally_error err = TALLY_ERROR_INIT;
    const struct tally_client_task task = {
        &world->setting, &world->plan, world->objective, client, 1, world->x, true, NULL};
    TALLY_ASSERT_STATUS(TALLY_CEAL.client_step(&task, &world->scratch, &world->answer, &err),
                        TALLY_OK, &err);
}

static enum tally_status receive(struct world *world, const struct tally_message_view *view,
                                 struct tally_report *ret_report, struct tally_bits *ret_bits,
                                 struct tally_error *err)
{
    return TALLY_CEAL.opening->receive(&world->setting, view, ret_report, ret_bits, err);
}

/* 64 queries in total, but at least 8 per client. */
static void test_algorithms_ceal_opening__samples(void)
{
    static const struct {
        uint32_t clients;
        int64_t samples;
    } rows[] = {{1, 64}, {2, 32}, {3, 22}, {7, 10}, {8, 8}, {9, 8}, {10, 8}, {100000, 8}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CU_ASSERT_EQUAL(tally_ceal_opening_samples(rows[i].clients), rows[i].samples);
    }
    struct world world;
    init(&world);
    CU_ASSERT_EQUAL(world.plan.samples, SAMPLES);
    CU_ASSERT_EQUAL(world.plan.stage, 0);
    CU_ASSERT_EQUAL(world.plan.grid.intervals, 0);
    fini(&world);
}

/* Mean and variance by their definitions, in two passes, in long double. */
static void recompute(const struct world *world, uint32_t client, double *ret_variance,
                      double *ret_norm)
{
    static double gradients[SAMPLES][DIM];
    struct tally_rng rng;
    tally_rng_init(&rng, world->setting.key, client, 1, TALLY_RNG_SAMPLING);
    for (int q = 0; q < SAMPLES; q++) {
        tally_objective_local_gradient(world->objective, client, world->x, 3, &rng, gradients[q],
                                       NULL);
    }
    long double squares = 0, square = 0;
    for (int i = 0; i < DIM; i++) {
        long double mean = 0;
        for (int q = 0; q < SAMPLES; q++) {
            mean += gradients[q][i];
        }
        mean /= SAMPLES;
        square += mean * mean;
        for (int q = 0; q < SAMPLES; q++) {
            squares += (gradients[q][i] - mean) * (gradients[q][i] - mean);
        }
    }
    *ret_variance = (double)(squares / (SAMPLES - 1));
    *ret_norm = sqrt((double)square);
}

static void test_algorithms_ceal_opening__clients_report_variance_and_norm(void)
{
    for (int known = 0; known < 3; known++) { /* none, sigma, the bound */
        struct world world;
        init(&world);
        world.params.ceal.sigma = known == 1 ? 3 : NAN;
        world.params.ceal.gradient_bound = known == 2 ? 3 : NAN;
        CU_ASSERT_TRUE(tally_ceal_opens(&world.params));
        const uint64_t bits = known == 0 ? 64 : 32;
        for (uint32_t m = 0; m < CLIENTS; m++) {
            double variance, norm;
            recompute(&world, m, &variance, &norm);
            CU_ASSERT_TRUE(variance > 0 && norm > 0);
            step(&world, m);
            const struct tally_bits *cost = &world.answer.message.bits;
            CU_ASSERT_TRUE(cost->formula_bits == bits && cost->payload_bits == bits &&
                           cost->messages == 1 && cost->clipped == 0);
            CU_ASSERT_TRUE(world.answer.loss > 0); /* as in any round */
            struct tally_report report;
            struct tally_bits counted;
            struct tally_error err = TALLY_ERROR_INIT;
            const struct tally_message_view view = tally_message_view(&world.answer.message);
            TALLY_ASSERT_STATUS(receive(&world, &view, &report, &counted, &err), TALLY_OK, &err);
            CU_ASSERT_TRUE(counted.formula_bits == bits && counted.payload_bits == bits &&
                           counted.messages == 1);
            CU_ASSERT_DOUBLE_EQUAL(report.variance, known == 1 ? 0 : variance, 1e-7 * variance);
            CU_ASSERT_DOUBLE_EQUAL(report.norm, known == 2 ? 0 : norm, 1e-7 * norm);
        }
        fini(&world);
    }
}

static void test_algorithms_ceal_opening__malformed_reports_are_refused(void)
{
    struct world world;
    init(&world);
    const float good[3] = {1, 2, 3}, negative[2] = {1, -0.5F};
    uint8_t bytes[12], below[8];
    uint64_t bits;
    tally_float32_encode(good, 3, bytes, sizeof bytes, &bits, NULL);
    tally_float32_encode(negative, 2, below, sizeof below, &bits, NULL);
    const uint8_t infinite[8] = {0, 0, 0x80, 0x3f, 0, 0, 0x80, 0x7f};
    const struct tally_message_view rows[] = {
        {.payload = bytes, .n_payload = 0, .payload_bits = 0},
        {.payload = bytes, .n_payload = 4, .payload_bits = 32},
        {.payload = bytes, .n_payload = 12, .payload_bits = 96},
        {.payload = bytes, .n_payload = 8, .payload_bits = 63},
        {.payload = below, .n_payload = 8, .payload_bits = 64},
        {.payload = infinite, .n_payload = 8, .payload_bits = 64},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tally_report report;
        struct tally_bits counted;
        struct tally_error err = TALLY_ERROR_INIT;
        const enum tally_status status = receive(&world, &rows[i], &report, &counted, &err);
        CU_ASSERT_TRUE(status == TALLY_MALFORMED || status == TALLY_NOT_FINITE);
    }
    fini(&world);
}

/* The header's formulas, evaluated by hand: s_0 = 16, d = 9. */
static void test_algorithms_ceal_opening__server_concludes_as_the_header_says(void)
{
    struct world world;
    init(&world);
    const struct tally_report reports[] = {
        {.variance = 2, .norm = 1.5}, {.variance = 3, .norm = 0.5}, {.variance = 4, .norm = 1}};
    struct tally_estimates estimates;
    uint64_t control;
    CU_ASSERT_EQUAL(TALLY_CEAL.opening->conclude(&world.setting, &world.plan, reports, 3,
                                                 &estimates, &control, NULL),
                    TALLY_OK);
    const double u = 3.5 / 3 - 3.0 / 16;
    const double e = sqrt((4 * u * 3 / (9 * 16) + 2 * 9.0 / (9 * 16 * 15)) / 3);
    CU_ASSERT_DOUBLE_EQUAL(estimates.sigma, sqrt(3), 1e-7);
    CU_ASSERT_DOUBLE_EQUAL(estimates.gradient_bound, 2 * sqrt(u + 2 * e), 1e-6);
    CU_ASSERT_EQUAL(estimates.sigma, (double)(float)sqrt(3)); /* rounded to float32 */
    CU_ASSERT_EQUAL(control, 64);
    union tally_algorithm_params params = world.params;
    CU_ASSERT_TRUE(TALLY_CEAL.opening->adopt(&world.setting, &estimates, &params));
    CU_ASSERT_EQUAL(params.ceal.sigma, estimates.sigma);
    CU_ASSERT_EQUAL(params.ceal.gradient_bound, estimates.gradient_bound);
    CU_ASSERT_FALSE(tally_ceal_opens(&params));
    CU_ASSERT_EQUAL(TALLY_CEAL.first_stage(&params), params.ceal.first_stage);

    world.params.ceal.sigma = sqrt(3); /* with sigma given: the same bound, half the bits */
    struct tally_estimates bound;
    CU_ASSERT_EQUAL(TALLY_CEAL.opening->conclude(&world.setting, &world.plan, reports, 3, &bound,
                                                 &control, NULL),
                    TALLY_OK);
    CU_ASSERT_EQUAL(bound.sigma, 0);
    CU_ASSERT_DOUBLE_EQUAL(bound.gradient_bound, estimates.gradient_bound, 1e-6);
    CU_ASSERT_EQUAL(control, 32);
    world.params.ceal.sigma = NAN;
    world.params.ceal.gradient_bound = 5;
    CU_ASSERT_EQUAL(TALLY_CEAL.opening->conclude(&world.setting, &world.plan, reports, 3,
                                                 &estimates, &control, NULL),
                    TALLY_OK);
    CU_ASSERT_EQUAL(estimates.gradient_bound, 0);
    CU_ASSERT_DOUBLE_EQUAL(estimates.sigma, sqrt(3), 1e-7);
    fini(&world);
}

/* Reports without noise or without a gradient still give a plan. Estimates that are not finite are
 * an error. */
static void test_algorithms_ceal_opening__no_noise_and_no_gradient(void)
{
    static const struct {
        struct tally_report report;
        double sigma, bound;
    } rows[] = {
        {{.norm = 3}, 6.0 / 64, 6}, /* no noise: a floor, or messages would be endless */
        {{.variance = 1e-30, .norm = 3}, 6.0 / 64, 6},
        {{.norm = 0}, 1.0 / 64, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct world world;
        init(&world);
        struct tally_estimates estimates;
        uint64_t control;
        CU_ASSERT_EQUAL(TALLY_CEAL.opening->conclude(&world.setting, &world.plan, &rows[i].report,
                                                     1, &estimates, &control, NULL),
                        TALLY_OK);
        CU_ASSERT_EQUAL(estimates.sigma, rows[i].sigma);
        CU_ASSERT_EQUAL(estimates.gradient_bound, rows[i].bound);
        CU_ASSERT_TRUE(TALLY_CEAL.opening->adopt(&world.setting, &estimates, &world.params));
        for (int64_t stage = 1; stage <= 20; stage++) {
            struct tally_round_plan plan;
            CU_ASSERT_EQUAL(TALLY_CEAL.plan(&world.setting, stage, NULL, &plan, NULL), TALLY_OK);
        }
        fini(&world);
    }
    struct world world;
    init(&world);
    const struct tally_report huge = {.variance = (double)FLT_MAX, .norm = (double)FLT_MAX};
    struct tally_estimates estimates;
    uint64_t control;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(TALLY_CEAL.opening->conclude(&world.setting, &world.plan, &huge, 1,
                                                     &estimates, &control, &err),
                        TALLY_NOT_FINITE, &err);
    fini(&world);
}

static void test_algorithms_ceal_opening__estimates_that_are_none_are_not_adopted(void)
{
    static const double values[] = {0, -1, INFINITY, NAN};
    for (size_t i = 0; i < 4; i++) {
        union tally_algorithm_params params = TALLY_CEAL.defaults();
        params.ceal.sigma = NAN;
        params.ceal.gradient_bound = NAN;
        union tally_algorithm_params other = params;
        CU_ASSERT_FALSE(TALLY_CEAL.opening->adopt(
            NULL, &(struct tally_estimates){.sigma = values[i], .gradient_bound = 1}, &params));
        CU_ASSERT_FALSE(TALLY_CEAL.opening->adopt(
            NULL, &(struct tally_estimates){.sigma = 1, .gradient_bound = values[i]}, &other));
    }
}

/* Over many seeds, sigma^2 is an unbiased estimate of the variance of a query over the shards.
 * L / 2 nearly always exceeds the gradient norm at x^(1), but not by far. */
static void test_algorithms_ceal_opening__estimates_hold(void)
{
    enum { SEEDS = 300 };
    struct world world;
    init(&world);
    double true_variance = 0, gradient[DIM], full[DIM] = {0}, norm = 0;
    for (uint32_t m = 0; m < CLIENTS; m++) { /* by brute force, to 1 % */
        struct tally_rng rng;
        double mean[DIM] = {0}, square = 0;
        tally_rng_init(&rng, tally_rng_key(5, 5), m, 1, TALLY_RNG_SAMPLING);
        for (int q = 0; q < 40000; q++) {
            tally_objective_local_gradient(world.objective, m, world.x, 3, &rng, gradient, NULL);
            for (int i = 0; i < DIM; i++) {
                mean[i] += gradient[i] / 40000;
                square += gradient[i] * gradient[i] / 40000;
            }
        }
        for (int i = 0; i < DIM; i++) {
            square -= mean[i] * mean[i];
            full[i] += mean[i] / CLIENTS;
        }
        true_variance += square / CLIENTS;
    }
    for (int i = 0; i < DIM; i++) {
        norm += full[i] * full[i];
    }
    norm = sqrt(norm);
    double sum = 0;
    int n_above = 0, n_far = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct tally_report reports[CLIENTS];
        world.setting.key = tally_rng_key(1000 + seed, 0);
        for (uint32_t m = 0; m < CLIENTS; m++) {
            step(&world, m);
            const struct tally_message_view view = tally_message_view(&world.answer.message);
            struct tally_bits bits;
            receive(&world, &view, &reports[m], &bits, NULL);
        }
        struct tally_estimates estimates;
        uint64_t control;
        TALLY_CEAL.opening->conclude(&world.setting, &world.plan, reports, CLIENTS, &estimates,
                                     &control, NULL);
        sum += estimates.sigma * estimates.sigma;
        n_above += estimates.gradient_bound / 2 >= norm;
        n_far += estimates.gradient_bound / 2 > 2.5 * norm;
    }
    CU_ASSERT_DOUBLE_EQUAL(sum / SEEDS / true_variance, 1, 0.05);
    CU_ASSERT_TRUE(n_above >= 0.9 * SEEDS);
    CU_ASSERT_TRUE(n_far <= 0.05 * SEEDS);
    fini(&world);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_algorithms_ceal_opening__samples),
    TALLY_TEST(test_algorithms_ceal_opening__clients_report_variance_and_norm),
    TALLY_TEST(test_algorithms_ceal_opening__malformed_reports_are_refused),
    TALLY_TEST(test_algorithms_ceal_opening__server_concludes_as_the_header_says),
    TALLY_TEST(test_algorithms_ceal_opening__no_noise_and_no_gradient),
    TALLY_TEST(test_algorithms_ceal_opening__estimates_that_are_none_are_not_adopted),
    TALLY_TEST(test_algorithms_ceal_opening__estimates_hold),
};
TALLY_SUITE(algorithms_ceal_opening, TESTS);
