/* FedProx against a recomputation, and against FedAvg. */
#include <string.h>

#include "codec/numeric/float32.h"
#include "tests/harness.h"
#include "tests/unit/services/algorithms/baseline_world.h"

static void test_algorithms_fedprox__fields_are_those_of_fedavg_and_mu(void)
{
    static const char *const names[] = {"step_size", "local_steps", "step_decay",
                                        "local_steps_growth", "mu"};
    TALLY_ASSERT_TEXT(TALLY_FEDPROX.name, "fedprox");
    CU_ASSERT_EQUAL_FATAL(TALLY_FEDPROX.n_fields, 5);
    for (size_t f = 0; f < 5; f++) {
        TALLY_ASSERT_TEXT(TALLY_FEDPROX.fields[f].name, names[f]);
        CU_ASSERT_EQUAL(TALLY_FEDPROX.fields[f].required, f < 2 || f == 4);
    }
    CU_ASSERT_EQUAL(TALLY_FEDPROX.fields[4].min, 0);
    CU_ASSERT_FALSE(TALLY_FEDPROX.fields[4].min_exclusive);
    CU_ASSERT_TRUE(TALLY_FEDPROX.moves_locally);
}

static void expect_message(const struct baseline_world *world, const float *expected)
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

/* Also with decaying steps, and on the boundary of a domain. */
static void test_algorithms_fedprox__clients_send_what_the_paper_says(void)
{
    struct baseline_world world;
    baseline_world_init(&world);
    for (int variant = 0; variant < 3; variant++) {
        world.params.baseline.step_decay = variant == 1 ? 0.3 : 0;
        if (variant == 2) {
            world.setting.domain =
                (struct tally_domain){.type = TALLY_DOMAIN_BOX, .lower = -0.4, .upper = 0.5};
            tally_domain_project(&world.setting.domain, world.x, BASELINE_DIM);
        }
        for (uint32_t client = 0; client < BASELINE_CLIENTS; client++) {
            float expected[BASELINE_DIM], without[BASELINE_DIM];
            world.params.baseline.mu = 0;
            baseline_expected_vector(&world, &TALLY_FEDPROX, client, 5, without);
            world.params.baseline.mu = 1.5;
            baseline_expected_vector(&world, &TALLY_FEDPROX, client, 5, expected);
            CU_ASSERT_NOT_EQUAL(memcmp(expected, without, sizeof expected), 0);
            baseline_step_ok(&world, &TALLY_FEDPROX, client, 5, false);
            expect_message(&world, expected);
        }
    }
    baseline_world_fini(&world);
}

/* The regret counts f without the proximal term. */
static void test_algorithms_fedprox__loss_is_f_at_the_own_iterates(void)
{
    struct baseline_world world;
    baseline_world_init(&world);
    double x[BASELINE_DIM], losses[6], sum = 0;
    world.params.baseline.mu = 1.5;
    baseline_walk(&world, 2, 9, x, losses);
    for (int k = 0; k < 6; k++) {
        sum += losses[k];
    }
    baseline_step_ok(&world, &TALLY_FEDPROX, 2, 9, true);
    CU_ASSERT_DOUBLE_EQUAL(world.answer.loss, sum / 6, 1e-12 * sum);
    baseline_world_fini(&world);
}

/* The messages agree even in the signs of zeros: one coordinate of x is -0. */
static void test_algorithms_fedprox__mu_0_is_fedavg_bit_for_bit(void)
{
    struct baseline_world world;
    baseline_world_init(&world);
    world.x[3] = -0.0;
    for (uint32_t client = 0; client < BASELINE_CLIENTS; client++) {
        for (uint32_t round = 1; round < 20; round++) {
            uint8_t before[4 * BASELINE_DIM];
            baseline_step_ok(&world, &TALLY_FEDAVG, client, round, true);
            const double loss = world.answer.loss;
            memcpy(before, world.answer.message.payload.data, sizeof before);
            baseline_step_ok(&world, &TALLY_FEDPROX, client, round, true);
            CU_ASSERT_EQUAL(memcmp(world.answer.message.payload.data, before, sizeof before), 0);
            CU_ASSERT_EQUAL(memcmp(&world.answer.loss, &loss, sizeof loss), 0);
        }
    }
    baseline_world_fini(&world);
}

/* The larger mu is, the closer to the round's point a client ends. */
static void test_algorithms_fedprox__the_term_holds_a_client_back(void)
{
    struct baseline_world world;
    baseline_world_init(&world);
    double before = 1e9;
    for (int i = 0; i < 5; i++) {
        world.params.baseline.mu = 3 * i;
        baseline_step_ok(&world, &TALLY_FEDPROX, 1, 4, false);
        double square = 0;
        for (size_t c = 0; c < BASELINE_DIM; c++) {
            const double moved = world.scratch.local[c] - world.x[c];
            square += moved * moved;
        }
        CU_ASSERT_TRUE(square > 0 && square < before);
        before = square;
    }
    baseline_world_fini(&world);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_algorithms_fedprox__fields_are_those_of_fedavg_and_mu),
    TALLY_TEST(test_algorithms_fedprox__clients_send_what_the_paper_says),
    TALLY_TEST(test_algorithms_fedprox__loss_is_f_at_the_own_iterates),
    TALLY_TEST(test_algorithms_fedprox__mu_0_is_fedavg_bit_for_bit),
    TALLY_TEST(test_algorithms_fedprox__the_term_holds_a_client_back),
};
TALLY_SUITE(algorithms_fedprox, TESTS);
