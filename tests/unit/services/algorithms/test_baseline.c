/* The messages and losses of the clients of the four baselines, against a recomputation. */
#include "services/algorithms/baseline.h"

#include <string.h>

#include "codec/numeric/float32.h"
#include "codec/quantize/qsgd.h"
#include "tests/harness.h"
#include "tests/unit/services/algorithms/baseline_world.h"
#include "tests/unit/services/local_loss.h"

static void test_algorithms_baseline__fields_are_those_of_the_documents(void)
{
    static const char *const names[] = {"minibatch_sgd", "fedavg", "fedpaq", "fedcom"};
    static const char *const constant[] = {"step_size", "local_steps", "levels",
                                           "server_step_size"};
    static const char *const scheduled[] = {"step_size", "local_steps", "step_decay",
                                            "local_steps_growth", "levels"};
    static const size_t n_fields[] = {2, 4, 5, 4};
    for (size_t a = 0; a < N_BASELINES; a++) {
        CU_ASSERT_PTR_EQUAL(TALLY_ALGORITHMS[a + 1], BASELINES[a]);
        TALLY_ASSERT_TEXT(BASELINES[a]->name, names[a]);
        TALLY_ASSERT_TEXT(TALLY_ALGORITHM_NAMES[a + 1], names[a]);
        CU_ASSERT_EQUAL(BASELINES[a]->n_fields, n_fields[a]);
        const bool is_scheduled = a == 1 || a == 2;
        const char *const *fields = is_scheduled ? scheduled : constant;
        for (size_t f = 0; f < BASELINES[a]->n_fields; f++) {
            TALLY_ASSERT_TEXT(BASELINES[a]->fields[f].name, fields[f]);
            CU_ASSERT_EQUAL(BASELINES[a]->fields[f].required,
                            is_scheduled ? f < 2 || f == 4 : f < 3);
        }
        CU_ASSERT_EQUAL(BASELINES[a]->moves_locally, a > 0);
        CU_ASSERT_EQUAL(BASELINES[a]->defaults().baseline.server_step_size, 1);
    }
    CU_ASSERT_FALSE(TALLY_CEAL.moves_locally);
}

static void test_algorithms_baseline__table_and_files_agree(void)
{
    size_t a = 0;
    for (; TALLY_ALGORITHMS[a] != NULL; a++) {
        TALLY_ASSERT_TEXT(TALLY_ALGORITHM_NAMES[a], TALLY_ALGORITHMS[a]->name);
    }
    CU_ASSERT_PTR_NULL(TALLY_ALGORITHM_NAMES[a]);
}

static void test_algorithms_baseline__every_plan_is_local_steps_without_a_grid(void)
{
    struct baseline_world world;
    baseline_world_init(&world);
    for (size_t a = 0; a < N_BASELINES; a++) {
        struct tally_round_plan plan = {.cut = true};
        const int64_t stage = BASELINES[a]->first_stage(&world.params);
        CU_ASSERT_EQUAL(stage, 0);
        CU_ASSERT_EQUAL(BASELINES[a]->plan(&world.setting, stage, NULL, &plan, NULL), TALLY_OK);
        CU_ASSERT_EQUAL(plan.samples, 6);
        CU_ASSERT_EQUAL(plan.stage, 0);
        CU_ASSERT_EQUAL(plan.grid.step, 0);
        CU_ASSERT_EQUAL(plan.grid.intervals, 0);
        CU_ASSERT_FALSE(plan.cut);
    }
    baseline_world_fini(&world);
}

/* A round has 6 + 0.4 t samples after t queries: 6, 8, 11, 16 and so on. */
static void test_algorithms_baseline__rounds_grow_with_the_queries_before(void)
{
    static const int64_t stages[] = {0, 6, 14, 25, 41, INT32_MAX};
    static const int64_t samples[] = {6, 8, 11, 16, 22, 858993464};
    struct baseline_world world;
    baseline_world_init(&world);
    world.params.baseline.local_steps_growth = 0.4;
    for (size_t i = 0; i < sizeof stages / sizeof stages[0]; i++) {
        struct tally_round_plan plan;
        CU_ASSERT_EQUAL(TALLY_FEDPAQ.plan(&world.setting, stages[i], NULL, &plan, NULL), TALLY_OK);
        CU_ASSERT_EQUAL(plan.samples, samples[i]);
        CU_ASSERT_EQUAL(plan.stage, stages[i]);
    }
    baseline_world_fini(&world);
}

static void expect_float32(const struct baseline_world *world, const float *expected)
{
    const struct tally_message *message = &world->answer.message;
    uint8_t bytes[4 * BASELINE_DIM];
    uint64_t bits;
    CU_ASSERT_EQUAL(tally_float32_encode(expected, BASELINE_DIM, bytes, sizeof bytes, &bits, NULL),
                    TALLY_OK);
    CU_ASSERT_EQUAL_FATAL(message->payload.size, sizeof bytes);
    CU_ASSERT_EQUAL(memcmp(message->payload.data, bytes, sizeof bytes), 0);
    CU_ASSERT_EQUAL(message->bits.formula_bits, 32 * BASELINE_DIM);
    CU_ASSERT_EQUAL(message->bits.payload_bits, 32 * BASELINE_DIM);
}

/* Expects the levels of Q(expected) with the client's uplink stream. */
static void expect_qsgd(const struct baseline_world *world, const float *expected, uint32_t client,
                        uint32_t round)
{
    const struct tally_message *message = &world->answer.message;
    struct tally_rng rng;
    struct tally_qsgd want, got;
    int32_t want_levels[BASELINE_DIM], got_levels[BASELINE_DIM];
    tally_rng_init(&rng, world->setting.key, client, round, TALLY_RNG_UPLINK);
    CU_ASSERT_EQUAL(tally_qsgd_quantize(5, expected, BASELINE_DIM, &rng, &want, want_levels, NULL),
                    TALLY_OK);
    CU_ASSERT_EQUAL_FATAL(tally_qsgd_decode(message->payload.data, message->payload.size,
                                            message->bits.payload_bits, 5, BASELINE_DIM, &got,
                                            got_levels, NULL),
                          TALLY_OK);
    CU_ASSERT_EQUAL(got.norm, want.norm);
    CU_ASSERT_TRUE(got.norm > 0);
    CU_ASSERT_EQUAL(memcmp(got_levels, want_levels, sizeof got_levels), 0);
    CU_ASSERT_EQUAL(message->bits.formula_bits, 32 + BASELINE_DIM * 4);
    CU_ASSERT_EQUAL(message->bits.payload_bits, 32 + BASELINE_DIM * 4);
}

/* The step size decays with the queries of the whole job, not only those of the open round. */
static void test_algorithms_baseline__steps_decay_over_the_whole_job(void)
{
    struct baseline_world world;
    baseline_world_init(&world);
    float expected[BASELINE_DIM], first[BASELINE_DIM];
    world.params.baseline.step_decay = 0.3;
    baseline_expected_vector(&world, &TALLY_FEDAVG, 2, 4, first);
    world.plan.stage = 14;
    baseline_expected_vector(&world, &TALLY_FEDAVG, 2, 4, expected);
    CU_ASSERT_NOT_EQUAL(memcmp(expected, first, sizeof first), 0);
    baseline_step_ok(&world, &TALLY_FEDAVG, 2, 4, false);
    expect_float32(&world, expected);
    baseline_step_ok(&world, &TALLY_FEDPAQ, 2, 4, false);
    expect_qsgd(&world, expected, 2, 4);
    baseline_world_fini(&world);
}

static void test_algorithms_baseline__clients_send_what_their_papers_say(void)
{
    struct baseline_world world;
    baseline_world_init(&world);
    for (size_t a = 0; a < N_BASELINES; a++) {
        for (uint32_t client = 0; client < BASELINE_CLIENTS; client++) {
            const uint32_t round = 5 + client;
            float expected[BASELINE_DIM];
            baseline_expected_vector(&world, BASELINES[a], client, round, expected);
            baseline_step_ok(&world, BASELINES[a], client, round, false);
            if (baseline_is_qsgd(BASELINES[a])) {
                expect_qsgd(&world, expected, client, round);
            } else {
                expect_float32(&world, expected);
            }
            CU_ASSERT_EQUAL(world.answer.message.bits.messages, 1);
            CU_ASSERT_EQUAL(world.answer.message.bits.clipped, 0);
            CU_ASSERT_EQUAL(world.answer.message.grid.intervals, 0);
            CU_ASSERT_EQUAL(world.answer.loss, -1); /* no loss was requested */
        }
    }
    baseline_world_fini(&world);
}

/* FedCOM's vector is the sum of the gradients along the way, and FedAvg's follows from it. */
static void test_algorithms_baseline__differences_are_sums_of_gradients(void)
{
    struct baseline_world world;
    baseline_world_init(&world);
    struct tally_rng rng;
    double x[BASELINE_DIM], sum[BASELINE_DIM] = {0}, gradient[BASELINE_DIM];
    float avg[BASELINE_DIM], com[BASELINE_DIM];
    baseline_expected_vector(&world, &TALLY_FEDAVG, 2, 1, avg);
    baseline_expected_vector(&world, &TALLY_FEDCOM, 2, 1, com);
    memcpy(x, world.x, sizeof x);
    tally_rng_init(&rng, world.setting.key, 2, 1, TALLY_RNG_SAMPLING);
    for (int k = 0; k < 6; k++) {
        tally_objective_local_gradient(world.objective, 2, x, 2, &rng, gradient, NULL);
        for (size_t i = 0; i < BASELINE_DIM; i++) {
            sum[i] += gradient[i];
            x[i] -= 0.05 * gradient[i];
        }
    }
    for (size_t i = 0; i < BASELINE_DIM; i++) {
        CU_ASSERT_DOUBLE_EQUAL((double)avg[i], -0.05 * sum[i], 1e-6);
        CU_ASSERT_DOUBLE_EQUAL((double)com[i], sum[i], 1e-5);
    }
    baseline_world_fini(&world);
}

/* If all queries are at one point, the loss is the local loss there. With local steps it is the
 * mean of f at the client's own iterates. */
static void test_algorithms_baseline__loss_is_of_the_own_iterates(void)
{
    struct baseline_world world;
    baseline_world_init(&world);
    double x[BASELINE_DIM], losses[6];
    for (size_t a = 0; a < N_BASELINES; a++) {
        for (uint32_t client = 0; client < BASELINE_CLIENTS; client++) {
            baseline_walk(&world, client, 9, x, losses);
            double expected = 0;
            for (int k = 0; k < 6; k++) {
                expected += losses[k] / 6;
            }
            if (a == 0) {
                expected = local_loss_of(world.objective, client, world.x);
            }
            baseline_step_ok(&world, BASELINES[a], client, 9, true);
            CU_ASSERT_DOUBLE_EQUAL(world.answer.loss, expected, 1e-12 * expected);
        }
    }
    baseline_world_fini(&world);
}

/* The definition of evaluate_every: f at every n-th step and the last, linear in between. */
static double interpolated(const double *losses, int64_t samples, int64_t every)
{
    double sum = 0;
    for (int64_t k = 0; k < samples; k++) {
        const int64_t before = k / every * every;
        int64_t after = before + every;
        after = after < samples - 1 ? after : samples - 1;
        const double share = after > before ? (double)(k - before) / (double)(after - before) : 0;
        sum += (1 - share) * losses[before] + share * losses[after];
    }
    return sum / (double)samples;
}

static void test_algorithms_baseline__loss_is_linear_between_evaluations(void)
{
    struct baseline_world world;
    baseline_world_init(&world);
    static double losses[1300];
    /* More than 512 evaluations take more than one batch. */
    static const int64_t samples[] = {1, 2, 5, 6, 10, 11, 21, 513, 514, 1025, 1300};
    static const int64_t every[] = {1, 2, 3, 5, 10, 20, 511, 2000, INT32_MAX};
    double x[BASELINE_DIM];
    world.params.baseline.step_size = 0.02;
    for (size_t s = 0; s < sizeof samples / sizeof samples[0]; s++) {
        world.plan.samples = samples[s];
        baseline_walk(&world, 1, 4, x, losses);
        for (size_t e = 0; e < sizeof every / sizeof every[0]; e++) {
            world.setting.evaluate_every = every[e];
            const double expected = interpolated(losses, samples[s], every[e]);
            for (size_t a = 1; a < N_BASELINES; a++) {
                baseline_step_ok(&world, BASELINES[a], 1, 4, true);
                CU_ASSERT_DOUBLE_EQUAL(world.answer.loss, expected, 1e-12 * expected);
            }
        }
    }
    baseline_world_fini(&world);
}

/* The losses are 1.5e308 each, so their sum is infinite. The step size is not to blame. */
static void test_algorithms_baseline__mean_of_large_losses_is_finite(void)
{
    struct baseline_world world;
    baseline_world_init(&world);
    memset(world.x, 0, sizeof world.x);
    world.x[0] = 1e150;
    world.x[0] *= sqrt(1.5e308 / baseline_loss_at(&world, world.x));
    world.params.baseline.step_size = 1e-200;
    for (world.setting.evaluate_every = 1; world.setting.evaluate_every < 9;
         world.setting.evaluate_every++) {
        baseline_step_ok(&world, &TALLY_FEDAVG, 1, 4, true);
        CU_ASSERT_DOUBLE_EQUAL(world.answer.loss / 1.5e308, 1, 1e-9);
    }
    baseline_world_fini(&world);
}

/* An evaluation does not change the message. */
static void test_algorithms_baseline__evaluation_leaves_the_message_alone(void)
{
    struct baseline_world world;
    baseline_world_init(&world);
    for (size_t a = 0; a < N_BASELINES; a++) {
        uint8_t before[4 * BASELINE_DIM];
        baseline_step_ok(&world, BASELINES[a], 3, 2, false);
        const size_t n = world.answer.message.payload.size;
        CU_ASSERT_FATAL(n <= sizeof before);
        memcpy(before, world.answer.message.payload.data, n);
        for (world.setting.evaluate_every = 1; world.setting.evaluate_every < 9;
             world.setting.evaluate_every++) {
            baseline_step_ok(&world, BASELINES[a], 3, 2, true);
            CU_ASSERT_EQUAL(world.answer.message.payload.size, n);
            CU_ASSERT_EQUAL(memcmp(world.answer.message.payload.data, before, n), 0);
        }
    }
    baseline_world_fini(&world);
}

/* Local steps are projected too: the local iterate and the loss are those of a projected walk. */
static void test_algorithms_baseline__own_steps_stay_in_the_domain(void)
{
    struct baseline_world world;
    baseline_world_init(&world);
    double free_end[BASELINE_DIM], end[BASELINE_DIM], losses[6];
    baseline_walk(&world, 1, 4, free_end, NULL);
    world.setting.domain =
        (struct tally_domain){.type = TALLY_DOMAIN_BOX, .lower = -0.4, .upper = 0.5};
    tally_domain_project(&world.setting.domain, world.x, BASELINE_DIM);
    baseline_walk(&world, 1, 4, end, losses);
    CU_ASSERT_TRUE(tally_domain_is_inside(&world.setting.domain, end, BASELINE_DIM));
    CU_ASSERT_NOT_EQUAL(memcmp(end, free_end, sizeof end), 0);
    double sum = 0;
    for (int k = 0; k < 6; k++) {
        sum += losses[k];
    }
    for (size_t a = 1; a < N_BASELINES; a++) {
        baseline_step_ok(&world, BASELINES[a], 1, 4, true);
        CU_ASSERT_EQUAL(memcmp(world.scratch.local, end, sizeof end), 0);
        CU_ASSERT_DOUBLE_EQUAL(world.answer.loss, sum / 6, 1e-12);
    }
    baseline_world_fini(&world);
}

/* In a cut round a client makes its steps and reports the loss, but sends no message. */
static void test_algorithms_baseline__cut_rounds_send_nothing(void)
{
    struct baseline_world world;
    baseline_world_init(&world);
    double x[BASELINE_DIM], losses[4];
    world.plan.samples = 4;
    world.plan.cut = true;
    baseline_walk(&world, 0, 3, x, losses);
    const double mean = (losses[0] + losses[1] + losses[2] + losses[3]) / 4;
    for (size_t a = 0; a < N_BASELINES; a++) {
        const double expected = a == 0 ? local_loss_of(world.objective, 0, world.x) : mean;
        world.answer.loss = -1;
        baseline_step_ok(&world, BASELINES[a], 0, 3, true);
        CU_ASSERT_DOUBLE_EQUAL(world.answer.loss, expected, 1e-12 * expected);
        CU_ASSERT_EQUAL(world.answer.message.payload.size, 0);
        CU_ASSERT_EQUAL(world.answer.message.bits.messages, 0);
    }
    baseline_world_fini(&world);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_algorithms_baseline__fields_are_those_of_the_documents),
    TALLY_TEST(test_algorithms_baseline__table_and_files_agree),
    TALLY_TEST(test_algorithms_baseline__every_plan_is_local_steps_without_a_grid),
    TALLY_TEST(test_algorithms_baseline__rounds_grow_with_the_queries_before),
    TALLY_TEST(test_algorithms_baseline__steps_decay_over_the_whole_job),
    TALLY_TEST(test_algorithms_baseline__clients_send_what_their_papers_say),
    TALLY_TEST(test_algorithms_baseline__differences_are_sums_of_gradients),
    TALLY_TEST(test_algorithms_baseline__loss_is_of_the_own_iterates),
    TALLY_TEST(test_algorithms_baseline__loss_is_linear_between_evaluations),
    TALLY_TEST(test_algorithms_baseline__mean_of_large_losses_is_finite),
    TALLY_TEST(test_algorithms_baseline__evaluation_leaves_the_message_alone),
    TALLY_TEST(test_algorithms_baseline__own_steps_stay_in_the_domain),
    TALLY_TEST(test_algorithms_baseline__cut_rounds_send_nothing),
};
TALLY_SUITE(algorithms_baseline, TESTS);
