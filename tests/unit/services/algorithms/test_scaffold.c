/* SCAFFOLD against the paper's control variates, which this test keeps as in the paper: one per
 * client and one at the server. */
#include <math.h>
#include <string.h>

#include "services/algorithms/client_shifts.h"
#include "tests/harness.h"
#include "tests/unit/services/algorithms/baseline_world.h"

enum { DIM = BASELINE_DIM, CLIENTS = BASELINE_CLIENTS, STEPS = 6, ROUNDS = 5 };

static const double STEP_SIZE = 0.05;

/* The paper's variables, in double. */
struct paper {
    double c_of[CLIENTS][DIM], c[DIM];
    double sent[CLIENTS][DIM];
};

/* Makes K steps of a client from x and returns the difference. */
static void walk(const struct paper *paper, const struct baseline_world *world, uint32_t client,
                 uint32_t round, double *ret_difference)
{
    struct tally_rng rng;
    double y[DIM], gradient[DIM];
    memcpy(y, world->x, sizeof y);
    tally_rng_init(&rng, world->setting.key, client, round, TALLY_RNG_SAMPLING);
    for (int k = 0; k < STEPS; k++) {
        tally_objective_local_gradient(world->objective, client, y, 2, &rng, gradient, NULL);
        for (size_t i = 0; i < DIM; i++) {
            y[i] -= STEP_SIZE * (gradient[i] - paper->c_of[client][i] + paper->c[i]);
        }
    }
    for (size_t i = 0; i < DIM; i++) {
        ret_difference[i] = y[i] - world->x[i];
    }
}

/* Updates the control variates by option II, and makes the server's step. */
static void end_round(struct paper *paper, double server_step_size, double *x)
{
    double c[DIM];
    memcpy(c, paper->c, sizeof c);
    for (uint32_t m = 0; m < CLIENTS; m++) {
        for (size_t i = 0; i < DIM; i++) {
            const double change = -c[i] - paper->sent[m][i] / (STEPS * STEP_SIZE);
            paper->c_of[m][i] += change;
            paper->c[i] += change / CLIENTS;
            x[i] += server_step_size * paper->sent[m][i] / CLIENTS;
        }
    }
}

static void test_algorithms_scaffold__is_the_papers_with_half_the_bits(void)
{
    static const double SERVER_STEPS[] = {1, 0.5, 1.5};
    for (int s = 0; s < 3; s++) {
        struct baseline_world world;
        struct paper paper = {.c = {0}};
        union {
            uint64_t aligned;
            char bytes[CLIENTS * (sizeof(struct tally_shift) + 2 * DIM * sizeof(float))];
        } memory;
        baseline_world_init(&world);
        world.params.baseline.server_step_size = SERVER_STEPS[s];
        CU_ASSERT_EQUAL_FATAL(TALLY_SCAFFOLD.memory.bytes(&world.setting), sizeof memory.bytes);
        CU_ASSERT_EQUAL(TALLY_SCAFFOLD.shift_start(&world.setting), TALLY_SHIFT_POINT);
        TALLY_SCAFFOLD.memory.begin(&world.setting, world.x, 0, "", memory.bytes);
        CU_ASSERT_EQUAL(TALLY_SCAFFOLD.plan(&world.setting, 0, NULL, &world.plan, NULL), TALLY_OK);
        CU_ASSERT_EQUAL(world.plan.facts.shift_gain, SERVER_STEPS[s]);
        double expected[DIM];
        memcpy(expected, world.x, sizeof expected);
        for (uint32_t round = 1; round <= ROUNDS; round++) {
            int64_t sums[DIM] = {0};
            for (uint32_t m = 0; m < CLIENTS; m++) {
                struct tally_shift *shift =
                    TALLY_SCAFFOLD.memory.shift(&world.setting, memory.bytes, m);
                const struct tally_client_task task = {
                    &world.setting, &world.plan, world.objective, m, round, world.x, true, shift};
                walk(&paper, &world, m, round, paper.sent[m]);
                for (int twice = 0; twice < 2; twice++) { /* a lost message is computed again */
                    CU_ASSERT_EQUAL_FATAL(
                        TALLY_SCAFFOLD.client_step(&task, &world.scratch, &world.answer, NULL),
                        TALLY_OK);
                }
                for (size_t i = 0; i < DIM; i++) {
                    CU_ASSERT_DOUBLE_EQUAL(world.scratch.vector[i], paper.sent[m][i], 3e-6);
                }
                struct tally_message_view view = tally_message_view(&world.answer.message);
                struct tally_bits bits;
                view.client = m;
                view.number = round;
                view.shift = shift;
                CU_ASSERT_EQUAL_FATAL(TALLY_SCAFFOLD.receive(&world.setting, &world.plan, &view,
                                                             &world.scratch, sums, &bits, NULL),
                                      TALLY_OK);
                CU_ASSERT_EQUAL(bits.payload_bits, 32 * DIM);
            }
            const struct tally_server_task task = {.setting = &world.setting,
                                                   .plan = &world.plan,
                                                   .sums = sums,
                                                   .received = CLIENTS,
                                                   .round = round,
                                                   .iterate = round,
                                                   .x = world.x,
                                                   .memory = memory.bytes};
            CU_ASSERT_EQUAL_FATAL(
                TALLY_SCAFFOLD.decide(&task, &world.scratch, &world.decision, NULL), TALLY_OK);
            CU_ASSERT_EQUAL(world.decision.control_bits, 0);
            CU_ASSERT_EQUAL(world.decision.broadcast.bits.payload_bits, 32 * DIM);
            const struct tally_message_view view = tally_message_view(&world.decision.broadcast);
            CU_ASSERT_EQUAL(
                TALLY_SCAFFOLD.apply(&world.setting, &view, &world.scratch, world.x, NULL),
                TALLY_OK);
            end_round(&paper, SERVER_STEPS[s], expected);
            for (size_t i = 0; i < DIM; i++) {
                CU_ASSERT_DOUBLE_EQUAL(world.x[i], expected[i], 3e-6);
            }
        }
        baseline_world_fini(&world);
    }
}

/* There is no control variate yet: the first message is FedAvg's, bit for bit, although x is not in
 * float32. */
static void test_algorithms_scaffold__first_message_is_that_of_fedavg(void)
{
    struct baseline_world world;
    baseline_world_init(&world);
    world.params.baseline.server_step_size = 1;
    union {
        uint64_t aligned;
        char bytes[CLIENTS * (sizeof(struct tally_shift) + 2 * DIM * sizeof(float))];
    } memory;
    TALLY_SCAFFOLD.memory.begin(&world.setting, world.x, 0, "", memory.bytes);
    const struct tally_client_task task = {
        &world.setting,
        &world.plan,
        world.objective,
        2,
        1,
        world.x,
        true,
        TALLY_SCAFFOLD.memory.shift(&world.setting, memory.bytes, 2)};
    uint8_t first[4 * DIM];
    baseline_step_ok(&world, &TALLY_FEDAVG, 2, 1, true);
    const double loss = world.answer.loss;
    memcpy(first, world.answer.message.payload.data, sizeof first);
    CU_ASSERT_EQUAL(TALLY_SCAFFOLD.client_step(&task, &world.scratch, &world.answer, NULL),
                    TALLY_OK);
    CU_ASSERT_EQUAL(memcmp(first, world.answer.message.payload.data, sizeof first), 0);
    CU_ASSERT_EQUAL(world.answer.loss, loss);
    baseline_world_fini(&world);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_algorithms_scaffold__is_the_papers_with_half_the_bits),
    TALLY_TEST(test_algorithms_scaffold__first_message_is_that_of_fedavg),
};
TALLY_SUITE(algorithms_scaffold, TESTS);
