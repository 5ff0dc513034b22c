/* EF21: the compressed differences, and the estimates that both sides keep. */
#include <stdlib.h>
#include <string.h>

#include "services/algorithms/client_shifts.h"
#include "tests/harness.h"
#include "tests/unit/services/algorithms/baseline_world.h"

enum { DIM = BASELINE_DIM, CLIENTS = BASELINE_CLIENTS, TOP_K = 0, RAND_K = 1 };

/* The world, the server's memory, and the clients' own copies of their shifts. */
struct ef21_world {
    struct baseline_world base;
    void *memory;
    struct tally_shift *shifts[CLIENTS];
};

static void *allocate(size_t n)
{
    void *block = malloc(n);
    CU_ASSERT_PTR_NOT_NULL_FATAL(block);
    return block;
}

static void ef21_init(struct ef21_world *world, int compressor, int64_t k)
{
    struct baseline_world *base = &world->base;
    baseline_world_init(base);
    base->params.baseline.compressor = compressor;
    base->params.baseline.k = k;
    base->plan.facts.shift_gain = 1;
    world->memory = allocate(TALLY_EF21.memory.bytes(&base->setting));
    TALLY_EF21.memory.begin(&base->setting, base->x, 0, "", world->memory);
    for (uint32_t m = 0; m < CLIENTS; m++) {
        world->shifts[m] = allocate(tally_shift_bytes(DIM));
        tally_shift_begin(world->shifts[m], NULL, DIM);
    }
}

static void ef21_fini(struct ef21_world *world)
{
    for (uint32_t m = 0; m < CLIENTS; m++) {
        free(world->shifts[m]);
    }
    free(world->memory);
    baseline_world_fini(&world->base);
}

static struct tally_shift *server_shift(struct ef21_world *world, uint32_t client)
{
    return TALLY_EF21.memory.shift(&world->base.setting, world->memory, client);
}

/* Computes the client's message of a round into world->base.answer. */
static void step(struct ef21_world *world, uint32_t client, uint32_t round)
{
    struct baseline_world *base = &world->base;
    struct tally_error err = TALLY_ERROR_INIT;
    const struct tally_client_task task = {.setting = &base->setting,
                                           .plan = &base->plan,
                                           .objective = base->objective,
                                           .client = client,
                                           .round = round,
                                           .x = base->x,
                                           .shift = world->shifts[client]};
    TALLY_ASSERT_STATUS(TALLY_EF21.client_step(&task, &base->scratch, &base->answer, &err),
                        TALLY_OK, &err);
}

static enum tally_status receive(struct ef21_world *world, uint32_t client, uint32_t round,
                                 struct tally_bits *ret_bits, struct tally_error *err)
{
    struct baseline_world *base = &world->base;
    int64_t sums[DIM] = {0};
    struct tally_message_view view = tally_message_view(&base->answer.message);
    view.client = client;
    view.number = round;
    view.shift = server_shift(world, client);
    return TALLY_EF21.receive(&base->setting, &base->plan, &view, &base->scratch, sums, ret_bits,
                              err);
}

static void receive_ok(struct ef21_world *world, uint32_t client, uint32_t round)
{
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_bits bits;
    TALLY_ASSERT_STATUS(receive(world, client, round, &bits, &err), TALLY_OK, &err);
    const struct tally_bits *sent = &world->base.answer.message.bits;
    CU_ASSERT_EQUAL(bits.formula_bits, sent->formula_bits);
    CU_ASSERT_EQUAL(bits.payload_bits, sent->payload_bits);
    CU_ASSERT_EQUAL(bits.messages, 1);
}

/* Moves the point and checks it against the mean of the server's shifts. */
static void decide(struct ef21_world *world, uint32_t round, int64_t received)
{
    struct baseline_world *base = &world->base;
    const int64_t sums[DIM] = {0};
    struct tally_error err = TALLY_ERROR_INIT;
    const struct tally_server_task task = {.setting = &base->setting,
                                           .plan = &base->plan,
                                           .sums = sums,
                                           .received = received,
                                           .round = round,
                                           .x = base->x,
                                           .memory = world->memory};
    TALLY_ASSERT_STATUS(TALLY_EF21.decide(&task, &base->scratch, &base->decision, &err), TALLY_OK,
                        &err);
    CU_ASSERT_TRUE(base->decision.passed);
    CU_ASSERT_EQUAL(base->decision.control_bits, 1);
    CU_ASSERT_EQUAL(base->decision.broadcast.bits.payload_bits, 32 * DIM);
    double expected[DIM];
    for (size_t i = 0; i < DIM; i++) {
        double sum = 0;
        for (uint32_t m = 0; m < CLIENTS; m++) {
            sum += (double)tally_shift_now(server_shift(world, m))[i];
        }
        expected[i] = (float)(base->x[i] - 0.05 * (sum / CLIENTS));
    }
    const struct tally_message_view view = tally_message_view(&base->decision.broadcast);
    TALLY_ASSERT_STATUS(TALLY_EF21.apply(&base->setting, &view, &base->scratch, base->x, &err),
                        TALLY_OK, &err);
    CU_ASSERT_EQUAL(memcmp(base->x, expected, sizeof expected), 0);
}

static bool copies_are_equal(struct ef21_world *world, uint32_t client)
{
    return memcmp(tally_shift_now(world->shifts[client]),
                  tally_shift_now(server_shift(world, client)), DIM * sizeof(float)) == 0;
}

static void test_algorithms_ef21__fields(void)
{
    static const char *const names[] = {"step_size", "local_steps", "k", "compressor"};
    TALLY_ASSERT_TEXT(TALLY_EF21.name, "ef21");
    CU_ASSERT_EQUAL_FATAL(TALLY_EF21.n_fields, 4);
    for (size_t f = 0; f < 4; f++) {
        TALLY_ASSERT_TEXT(TALLY_EF21.fields[f].name, names[f]);
        CU_ASSERT_EQUAL(TALLY_EF21.fields[f].required, f < 3);
    }
    CU_ASSERT_EQUAL(TALLY_EF21.defaults().baseline.compressor, TOP_K);
    CU_ASSERT_FALSE(TALLY_EF21.moves_locally);
    CU_ASSERT_FALSE(TALLY_EF21.takes_cohorts);
}

/* Client and server update the same estimate with the same message, and the point follows the
 * mean. */
static void test_algorithms_ef21__both_sides_keep_the_same_estimates(void)
{
    for (int compressor = TOP_K; compressor <= RAND_K; compressor++) {
        struct ef21_world world;
        ef21_init(&world, compressor, 3);
        for (uint32_t round = 1; round <= 6; round++) {
            for (uint32_t m = 0; m < CLIENTS; m++) {
                float before[DIM];
                memcpy(before, tally_shift_now(world.shifts[m]), sizeof before);
                step(&world, m, round);
                receive_ok(&world, m, round);
                CU_ASSERT_TRUE(copies_are_equal(&world, m));
                size_t n_moved = 0;
                for (size_t i = 0; i < DIM; i++) {
                    n_moved += before[i] != tally_shift_now(world.shifts[m])[i];
                }
                CU_ASSERT_EQUAL(n_moved, 3);
            }
            decide(&world, round, CLIENTS);
        }
        ef21_fini(&world);
    }
}

static void test_algorithms_ef21__bits_are_those_of_the_formula(void)
{
    struct ef21_world world;
    ef21_init(&world, TOP_K, 3);
    step(&world, 1, 1);
    const struct tally_bits *bits = &world.base.answer.message.bits;
    CU_ASSERT_EQUAL(bits->formula_bits, 3 * (32 + 3));
    CU_ASSERT_TRUE(bits->payload_bits > 96 && bits->payload_bits <= 96 + 7);
    CU_ASSERT_EQUAL(world.base.answer.message.payload.size, 13);
    const struct tally_message_bits bound = TALLY_EF21.message_bits(&world.base.setting);
    CU_ASSERT_TRUE(bound.is_bound && bound.uplink >= bits->payload_bits);
    CU_ASSERT_EQUAL(bound.downlink, 32 * DIM);
    world.base.params.baseline.compressor = RAND_K;
    step(&world, 2, 1);
    CU_ASSERT_EQUAL(bits->formula_bits, 96);
    CU_ASSERT_EQUAL(bits->payload_bits, 96);
    CU_ASSERT_EQUAL(TALLY_EF21.message_bits(&world.base.setting).uplink, 96);
    CU_ASSERT_FALSE(TALLY_EF21.message_bits(&world.base.setting).is_bound);
    ef21_fini(&world);
}

/* With k = d nothing is left out: the estimates are the gradients, and the point follows their
 * mean. */
static void test_algorithms_ef21__all_coordinates_are_minibatch_sgd(void)
{
    for (int compressor = TOP_K; compressor <= RAND_K; compressor++) {
        struct ef21_world world;
        ef21_init(&world, compressor, DIM);
        for (uint32_t round = 1; round <= 3; round++) {
            for (uint32_t m = 0; m < CLIENTS; m++) {
                float gradient[DIM];
                baseline_expected_vector(&world.base, &TALLY_MINIBATCH_SGD, m, round, gradient);
                step(&world, m, round);
                CU_ASSERT_EQUAL(world.base.answer.message.bits.payload_bits, 32 * DIM);
                receive_ok(&world, m, round);
                for (size_t i = 0; i < DIM; i++) {
                    CU_ASSERT_DOUBLE_EQUAL(tally_shift_now(world.shifts[m])[i], gradient[i], 1e-5);
                }
            }
            decide(&world, round, CLIENTS);
        }
        ef21_fini(&world);
    }
}

/* The estimate of a missing client is unchanged on both sides, and still counts. */
static void test_algorithms_ef21__who_does_not_come_counts_as_before(void)
{
    struct ef21_world world;
    ef21_init(&world, TOP_K, 2);
    for (uint32_t round = 1; round <= 5; round++) {
        const uint32_t missing = round % CLIENTS;
        float before[DIM];
        memcpy(before, tally_shift_now(server_shift(&world, missing)), sizeof before);
        for (uint32_t m = 0; m < CLIENTS; m++) {
            step(&world, m, round);
            if (m != missing) {
                receive_ok(&world, m, round);
            }
        }
        decide(&world, round, CLIENTS - 1);
        CU_ASSERT_EQUAL(
            memcmp(before, tally_shift_now(server_shift(&world, missing)), sizeof before), 0);
        /* The next task names the last message that counted. */
        uint64_t counted;
        tally_shift_in(server_shift(&world, missing), round + 1, DIM, &counted);
        CU_ASSERT_TRUE(tally_shift_return(world.shifts[missing], counted, DIM));
        CU_ASSERT_TRUE(copies_are_equal(&world, missing));
    }
    ef21_fini(&world);
}

/* A message that arrives twice, as after a crash, counts once. */
static void test_algorithms_ef21__a_message_again_changes_nothing(void)
{
    struct ef21_world world;
    ef21_init(&world, RAND_K, 2);
    step(&world, 0, 1);
    receive_ok(&world, 0, 1);
    receive_ok(&world, 0, 1);
    CU_ASSERT_TRUE(copies_are_equal(&world, 0));
    const struct tally_message first = world.base.answer.message;
    uint8_t bytes[8];
    CU_ASSERT_EQUAL_FATAL(first.payload.size, sizeof bytes);
    memcpy(bytes, first.payload.data, sizeof bytes);
    step(&world, 0, 1); /* computed again */
    CU_ASSERT_EQUAL(memcmp(world.base.answer.message.payload.data, bytes, sizeof bytes), 0);
    CU_ASSERT_TRUE(copies_are_equal(&world, 0));
    ef21_fini(&world);
}

static void expect_refused(struct ef21_world *world, enum tally_status expected,
                           const char *message)
{
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_bits bits;
    TALLY_ASSERT_STATUS(receive(world, 0, 1, &bits, &err), expected, &err);
    TALLY_ASSERT_TEXT(err.message, message);
    for (size_t i = 0; i < DIM; i++) {
        CU_ASSERT_EQUAL(tally_shift_now(server_shift(world, 0))[i], 0);
    }
}

static void test_algorithms_ef21__refused_messages_move_nothing(void)
{
    const float infinite = 1.0f / 0.0f, large = 4e6f;
    for (int compressor = TOP_K; compressor <= RAND_K; compressor++) {
        struct ef21_world world;
        ef21_init(&world, compressor, 2);
        step(&world, 0, 1);
        uint8_t *second = world.base.answer.message.payload.data + 4;
        memcpy(second, &large, 4);
        expect_refused(&world, TALLY_MALFORMED, "value 4e+06 outside [-1.04858e+06, 1.04858e+06]");
        memcpy(second, &infinite, 4);
        expect_refused(&world, TALLY_NOT_FINITE, "coordinate 1 is not finite");
        world.base.answer.message.payload.size = 4;
        world.base.answer.message.bits.payload_bits = 32;
        expect_refused(&world, TALLY_MALFORMED,
                       compressor == TOP_K ? "ends in the 2 values, after 32 bits"
                                           : "4 bytes with 32 bits; expected 2 float32 values");
        ef21_fini(&world);
    }
}

static void test_algorithms_ef21__k_is_at_most_the_dimension(void)
{
    struct ef21_world world;
    ef21_init(&world, TOP_K, DIM);
    struct tally_round_plan plan;
    struct tally_error err = TALLY_ERROR_INIT;
    CU_ASSERT_EQUAL(TALLY_EF21.plan(&world.base.setting, 0, NULL, &plan, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(plan.facts.shift_gain, 1);
    CU_ASSERT_EQUAL(plan.samples, 6);
    world.base.params.baseline.k = DIM + 1;
    TALLY_ASSERT_STATUS(TALLY_EF21.plan(&world.base.setting, 0, NULL, &plan, &err),
                        TALLY_INVALID_ARGUMENT, &err);
    TALLY_ASSERT_TEXT(err.field, "k");
    TALLY_ASSERT_TEXT(err.message, "k 8 is above the dimension 7");
    ef21_fini(&world);
}

static void test_algorithms_ef21__divergence_is_the_clients(void)
{
    struct ef21_world world;
    ef21_init(&world, TOP_K, 1);
    world.base.x[2] = 1e9;
    const struct tally_client_task task = {.setting = &world.base.setting,
                                           .plan = &world.base.plan,
                                           .objective = world.base.objective,
                                           .client = 1,
                                           .round = 1,
                                           .x = world.base.x,
                                           .shift = world.shifts[1]};
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(
        TALLY_EF21.client_step(&task, &world.base.scratch, &world.base.answer, &err),
        TALLY_NOT_FINITE, &err);
    TALLY_ASSERT_TEXT(err.message, "the steps of client 1 diverged; step_size 0.05 is too large");
    ef21_fini(&world);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_algorithms_ef21__fields),
    TALLY_TEST(test_algorithms_ef21__both_sides_keep_the_same_estimates),
    TALLY_TEST(test_algorithms_ef21__bits_are_those_of_the_formula),
    TALLY_TEST(test_algorithms_ef21__all_coordinates_are_minibatch_sgd),
    TALLY_TEST(test_algorithms_ef21__who_does_not_come_counts_as_before),
    TALLY_TEST(test_algorithms_ef21__a_message_again_changes_nothing),
    TALLY_TEST(test_algorithms_ef21__refused_messages_move_nothing),
    TALLY_TEST(test_algorithms_ef21__k_is_at_most_the_dimension),
    TALLY_TEST(test_algorithms_ef21__divergence_is_the_clients),
};
TALLY_SUITE(algorithms_ef21, TESTS);
