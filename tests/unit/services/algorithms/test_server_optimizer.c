/* The effect of server optimizers on the clients' mean step, against the equations of their
 * papers. */
#include "services/algorithms/server_optimizer.h"

#include <math.h>
#include <string.h>

#include "codec/numeric/fixed_point.h"
#include "codec/numeric/float32.h"
#include "tests/harness.h"
#include "tests/unit/services/algorithms/baseline_world.h"

enum { N_ROUNDS = 6, N_TYPES = 4 };

static const struct tally_algorithm *const FEDERATED[] = {&TALLY_FEDAVG, &TALLY_FEDPAQ,
                                                          &TALLY_FEDCOM, &TALLY_FEDPROX};

/* Sums of the clients' messages in a round: steps of both signs, large, small and zero. */
static void make_sums(int round, int64_t *sums)
{
    for (int i = 0; i < BASELINE_DIM; i++) {
        const double value = (i % 3 - 1) * pow(0.4, round) * (1 + i) + 0.01 * (round % 2 - 0.5);
        sums[i] = tally_fixed_point_of(i == 3 ? 0 : value);
    }
}

static struct tally_server_optimizer optimizer_of(int type)
{
    return (struct tally_server_optimizer){
        .type = type, .step_size = 0.7, .beta1 = 0.8, .beta2 = 0.95, .tau = 0.03};
}

static double sign(double value)
{
    return value > 0 ? 1 : value < 0 ? -1 : 0;
}

/* The equations as printed in [Reddi et al., Algorithm 2] and [Hsu et al.]. */
static double paper_step(const struct tally_server_optimizer *own, double *m, double *v, double d)
{
    switch (own->type) {
    case TALLY_SERVER_SGD:
        return own->step_size * d;
    case TALLY_FEDAVGM:
        *m = own->beta1 * *m + d;
        return own->step_size * *m;
    case TALLY_FEDADAM:
        *v = own->beta2 * *v + (1 - own->beta2) * (d * d);
        break;
    default:
        *v = *v - (1 - own->beta2) * (d * d) * sign(*v - d * d);
    }
    *m = own->beta1 * *m + (1 - own->beta1) * d;
    return own->step_size * *m / (sqrt(*v) + own->tau);
}

static void decide(struct baseline_world *world, const struct tally_algorithm *algorithm,
                   const int64_t *sums, void *memory, float *ret_point)
{
    struct tally_error err = TALLY_ERROR_INIT;
    const struct tally_server_task task = {.setting = &world->setting,
                                           .plan = &world->plan,
                                           .sums = sums,
                                           .received = BASELINE_CLIENTS,
                                           .round = 8,
                                           .x = world->x,
                                           .memory = memory};
    TALLY_ASSERT_STATUS(algorithm->decide(&task, &world->scratch, &world->decision, &err), TALLY_OK,
                        &err);
    const struct tally_message *sent = &world->decision.broadcast;
    CU_ASSERT_EQUAL(sent->bits.payload_bits, 32 * BASELINE_DIM);
    CU_ASSERT_EQUAL(sent->bits.formula_bits, 32 * BASELINE_DIM);
    CU_ASSERT_EQUAL(tally_float32_decode(sent->payload.data, sent->payload.size,
                                         sent->bits.payload_bits, BASELINE_DIM, ret_point, NULL),
                    TALLY_OK);
}

/* Runs several rounds, so that the memory matters. */
static void follow(const struct tally_algorithm *algorithm, int type)
{
    struct baseline_world world;
    double memory[2 * BASELINE_DIM], m[BASELINE_DIM] = {0}, v[BASELINE_DIM];
    baseline_world_init(&world);
    world.params.baseline.server_optimizer = optimizer_of(type);
    const struct tally_server_optimizer *own = &world.params.baseline.server_optimizer;
    const double scale = algorithm == &TALLY_FEDCOM ? -0.05 * 3 : 1;
    for (size_t i = 0; i < BASELINE_DIM; i++) {
        v[i] = 0.03 * 0.03;
    }
    algorithm->memory.begin(&world.setting, world.x, 0, "", memory);
    for (int round = 0; round < N_ROUNDS; round++) {
        int64_t sums[BASELINE_DIM];
        float point[BASELINE_DIM];
        make_sums(round, sums);
        decide(&world, algorithm, sums, memory, point);
        for (size_t i = 0; i < BASELINE_DIM; i++) {
            const double d = scale * (tally_fixed_point_value(sums[i]) / BASELINE_CLIENTS);
            const double step = paper_step(own, &m[i], &v[i], d);
            CU_ASSERT_EQUAL(point[i], (float)(world.x[i] + step));
            world.x[i] = (double)point[i];
        }
        CU_ASSERT_TRUE(algorithm->memory.is_valid(&world.setting, memory));
    }
    baseline_world_fini(&world);
}

static void test_algorithms_server_optimizer__moves_as_the_papers_say(void)
{
    for (size_t a = 0; a < 4; a++) {
        for (int type = 0; type < N_TYPES; type++) {
            follow(FEDERATED[a], type);
        }
    }
}

/* The server optimizer sgd with step size 1 equals a job without an optimizer, bit for bit. */
static void test_algorithms_server_optimizer__sgd_of_step_1_is_none(void)
{
    struct baseline_world world;
    baseline_world_init(&world);
    for (size_t a = 0; a < 4; a++) {
        int64_t sums[BASELINE_DIM];
        float none[BASELINE_DIM], sgd[BASELINE_DIM];
        make_sums(2, sums);
        world.params.baseline.server_optimizer = (struct tally_server_optimizer){0};
        decide(&world, FEDERATED[a], sums, NULL, none);
        world.params.baseline.server_optimizer.step_size = 1;
        decide(&world, FEDERATED[a], sums, NULL, sgd);
        CU_ASSERT_EQUAL(memcmp(none, sgd, sizeof none), 0);
    }
    baseline_world_fini(&world);
}

static void test_algorithms_server_optimizer__memory_is_m_and_v(void)
{
    static const size_t vectors[N_TYPES] = {0, 1, 2, 2};
    struct baseline_world world;
    baseline_world_init(&world);
    for (size_t a = 0; a < 4; a++) {
        world.params.baseline.server_optimizer = (struct tally_server_optimizer){0};
        CU_ASSERT_TRUE(FEDERATED[a]->takes_server_optimizer);
        CU_ASSERT_EQUAL(FEDERATED[a]->memory.bytes(&world.setting), 0);
        for (int type = 0; type < N_TYPES; type++) {
            world.params.baseline.server_optimizer = optimizer_of(type);
            CU_ASSERT_EQUAL(FEDERATED[a]->memory.bytes(&world.setting),
                            vectors[type] * BASELINE_DIM * sizeof(double));
        }
    }
    CU_ASSERT_FALSE(TALLY_MINIBATCH_SGD.takes_server_optimizer);
    CU_ASSERT_FALSE(TALLY_CEAL.takes_server_optimizer);
    CU_ASSERT_FALSE(TALLY_CALM.takes_server_optimizer);
    baseline_world_fini(&world);
}

static void test_algorithms_server_optimizer__other_memories_are_not_valid(void)
{
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    struct baseline_world world;
    double memory[2 * BASELINE_DIM];
    baseline_world_init(&world);
    for (int type = TALLY_FEDAVGM; type < N_TYPES; type++) {
        world.params.baseline.server_optimizer = optimizer_of(type);
        const size_t n = TALLY_FEDPAQ.memory.bytes(&world.setting) / sizeof *memory;
        for (size_t i = 0; i < n; i++) {
            TALLY_FEDPAQ.memory.begin(&world.setting, world.x, 0, "", memory);
            CU_ASSERT_TRUE(TALLY_FEDPAQ.memory.is_valid(&world.setting, memory));
            for (size_t b = 0; b < 3; b++) {
                memory[i] = bad[b];
                CU_ASSERT_FALSE(TALLY_FEDPAQ.memory.is_valid(&world.setting, memory));
            }
            memory[i] = -1e-9; /* m may be negative, v not */
            CU_ASSERT_EQUAL(TALLY_FEDPAQ.memory.is_valid(&world.setting, memory), i < BASELINE_DIM);
        }
    }
    baseline_world_fini(&world);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_algorithms_server_optimizer__moves_as_the_papers_say),
    TALLY_TEST(test_algorithms_server_optimizer__sgd_of_step_1_is_none),
    TALLY_TEST(test_algorithms_server_optimizer__memory_is_m_and_v),
    TALLY_TEST(test_algorithms_server_optimizer__other_memories_are_not_valid),
};
TALLY_SUITE(algorithms_server_optimizer, TESTS);
