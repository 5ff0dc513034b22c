/* DIANA against a recomputation: messages, the shifts on both sides, and the server's step. */
#include <math.h>
#include <string.h>

#include "codec/quantize/qsgd.h"
#include "services/algorithms/client_shifts.h"
#include "tests/harness.h"
#include "tests/unit/services/algorithms/baseline_world.h"

enum { DIM = BASELINE_DIM, CLIENTS = BASELINE_CLIENTS };
static const double ALPHA = 0.4;

/* A server and its clients, each with a copy of the shifts. */
struct two_sides {
    struct baseline_world world;
    union {
        uint64_t aligned;
        char bytes[CLIENTS * (sizeof(struct tally_shift) + 2 * DIM * sizeof(float))];
    } server, clients;
    int64_t sums[DIM];
    int64_t received;
};

static void begin(struct two_sides *sides)
{
    baseline_world_init(&sides->world);
    sides->world.params.baseline.alpha = ALPHA;
    const struct tally_setting *setting = &sides->world.setting;
    CU_ASSERT_EQUAL_FATAL(TALLY_DIANA.memory.bytes(setting), sizeof sides->server.bytes);
    CU_ASSERT_EQUAL(TALLY_DIANA.shift_start(setting), TALLY_SHIFT_ZERO);
    TALLY_DIANA.memory.begin(setting, sides->world.x, 0, "", sides->server.bytes);
    TALLY_DIANA.memory.begin(setting, sides->world.x, 0, "", sides->clients.bytes);
    TALLY_ASSERT_STATUS(TALLY_DIANA.plan(setting, 0, NULL, &sides->world.plan, NULL), TALLY_OK,
                        NULL);
    CU_ASSERT_EQUAL(sides->world.plan.facts.shift_gain, ALPHA);
}

static struct tally_shift *shift_of(struct two_sides *sides, bool is_server, uint32_t client)
{
    return TALLY_DIANA.memory.shift(&sides->world.setting,
                                    is_server ? sides->server.bytes : sides->clients.bytes, client);
}

static void compute(struct two_sides *sides, uint32_t client, uint32_t round)
{
    struct baseline_world *world = &sides->world;
    const struct tally_client_task task = {&world->setting,
                                           &world->plan,
                                           world->objective,
                                           client,
                                           round,
                                           world->x,
                                           false,
                                           shift_of(sides, false, client)};
    CU_ASSERT_EQUAL_FATAL(TALLY_DIANA.client_step(&task, &world->scratch, &world->answer, NULL),
                          TALLY_OK);
}

static void send(struct two_sides *sides, uint32_t client, uint32_t round)
{
    struct baseline_world *world = &sides->world;
    struct tally_message_view view = tally_message_view(&world->answer.message);
    struct tally_bits bits;
    view.client = client;
    view.number = round;
    view.shift = shift_of(sides, true, client);
    CU_ASSERT_EQUAL_FATAL(TALLY_DIANA.receive(&world->setting, &world->plan, &view, &world->scratch,
                                              sides->sums, &bits, NULL),
                          TALLY_OK);
    CU_ASSERT_EQUAL(bits.payload_bits, 32 + DIM * 4);
    CU_ASSERT_EQUAL(bits.formula_bits, bits.payload_bits);
    sides->received++;
}

/* Recomputes a message from the gradient and the shift, and decodes it. */
static void expected(struct two_sides *sides, uint32_t client, uint32_t round, float *ret_decoded,
                     uint8_t *ret_bytes, size_t capacity)
{
    const struct baseline_world *world = &sides->world;
    struct tally_rng rng;
    double gradient[DIM];
    float difference[DIM];
    int32_t levels[DIM];
    struct tally_qsgd qsgd;
    const float *shift = tally_shift_in(shift_of(sides, true, client), round, DIM, NULL);
    tally_rng_init(&rng, world->setting.key, client, round, TALLY_RNG_SAMPLING);
    tally_objective_local_gradient(world->objective, client, world->x, 6 * 2, &rng, gradient, NULL);
    for (size_t i = 0; i < DIM; i++) {
        difference[i] = (float)(gradient[i] - (double)shift[i]);
    }
    tally_rng_init(&rng, world->setting.key, client, round, TALLY_RNG_UPLINK);
    CU_ASSERT_EQUAL(tally_qsgd_quantize(5, difference, DIM, &rng, &qsgd, levels, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(tally_qsgd_encode(&qsgd, levels, DIM, ret_bytes, capacity), TALLY_OK);
    for (size_t i = 0; i < DIM; i++) {
        ret_decoded[i] = (float)((double)qsgd.norm / 5 * levels[i]);
    }
}

/* Two rounds, the second without the last client, whose shift is unchanged but still counts. */
static void test_algorithms_diana__follows_the_paper(void)
{
    struct two_sides sides = {.received = 0};
    begin(&sides);
    struct baseline_world *world = &sides.world;
    for (uint32_t round = 1; round <= 2; round++) {
        double mean_shift[DIM] = {0}, mean_message[DIM] = {0}, square = 0;
        const uint32_t n = round == 1 ? CLIENTS : CLIENTS - 1;
        memset(sides.sums, 0, sizeof sides.sums);
        sides.received = 0;
        for (uint32_t m = 0; m < CLIENTS; m++) {
            const float *shift = tally_shift_now(shift_of(&sides, true, m));
            float decoded[DIM], after[DIM];
            uint8_t bytes[4 + DIM];
            expected(&sides, m, round, decoded, bytes, sizeof bytes);
            for (size_t i = 0; i < DIM; i++) {
                mean_shift[i] += (double)shift[i] / CLIENTS;
                mean_message[i] += m < n ? (double)decoded[i] / n : 0;
                after[i] = (float)((double)shift[i] + ALPHA * (double)decoded[i]);
            }
            if (m == n) {
                continue;
            }
            compute(&sides, m, round);
            compute(&sides, m, round); /* repeated, its shift includes the message: same result */
            CU_ASSERT_EQUAL(memcmp(world->answer.message.payload.data, bytes,
                                   world->answer.message.payload.size),
                            0);
            send(&sides, m, round);
            for (int side = 0; side < 2; side++) {
                const float *kept = tally_shift_now(shift_of(&sides, side, m));
                CU_ASSERT_EQUAL(memcmp(kept, after, sizeof after), 0);
            }
        }
        const struct tally_server_task task = {.setting = &world->setting,
                                               .plan = &world->plan,
                                               .sums = sides.sums,
                                               .received = sides.received,
                                               .round = round,
                                               .iterate = round,
                                               .x = world->x,
                                               .memory = sides.server.bytes};
        CU_ASSERT_EQUAL_FATAL(TALLY_DIANA.decide(&task, &world->scratch, &world->decision, NULL),
                              TALLY_OK);
        CU_ASSERT_TRUE(world->decision.passed);
        CU_ASSERT_EQUAL(world->decision.control_bits, 1);
        const struct tally_message_view view = tally_message_view(&world->decision.broadcast);
        double x[DIM];
        memcpy(x, world->x, sizeof x);
        CU_ASSERT_EQUAL(TALLY_DIANA.apply(&world->setting, &view, &world->scratch, x, NULL),
                        TALLY_OK);
        for (size_t i = 0; i < DIM; i++) {
            const double gradient = mean_shift[i] + mean_message[i];
            square += gradient * gradient;
            CU_ASSERT_DOUBLE_EQUAL(x[i], world->x[i] - 0.05 * gradient, 1e-6);
            world->x[i] = x[i];
        }
        CU_ASSERT_DOUBLE_EQUAL(world->decision.norm, sqrt(square), 1e-6);
        CU_ASSERT_NOT_EQUAL(mean_shift[0] != 0, round == 1);
    }
    CU_ASSERT_TRUE(TALLY_DIANA.memory.is_valid(&world->setting, sides.server.bytes));
    shift_of(&sides, true, CLIENTS - 1)->vectors[DIM - 1] = NAN;
    CU_ASSERT_FALSE(TALLY_DIANA.memory.is_valid(&world->setting, sides.server.bytes));
    baseline_world_fini(world);
}

/* A refused message moves nothing. */
static void test_algorithms_diana__refused_message_leaves_the_shift(void)
{
    struct two_sides sides = {.received = 0};
    begin(&sides);
    struct baseline_world *world = &sides.world;
    compute(&sides, 1, 1);
    struct tally_message_view view = tally_message_view(&world->answer.message);
    struct tally_bits bits;
    view.client = view.number = 1;
    view.shift = shift_of(&sides, true, 1);
    view.payload_bits--;
    CU_ASSERT_EQUAL(TALLY_DIANA.receive(&world->setting, &world->plan, &view, &world->scratch,
                                        sides.sums, &bits, NULL),
                    TALLY_MALFORMED);
    for (size_t i = 0; i < DIM; i++) {
        CU_ASSERT_EQUAL(tally_shift_now(view.shift)[i], 0);
        CU_ASSERT_EQUAL(sides.sums[i], 0);
    }
    CU_ASSERT_EQUAL(view.shift->round, 0);
    baseline_world_fini(world);
}

/* alpha = 1 / (1 + min(d / s^2, sqrt(d) / s)), by hand. */
static void test_algorithms_diana__alpha_is_the_theorys(void)
{
    static const struct {
        size_t dim;
        int64_t levels;
        double alpha;
    } rows[] = {{16, 2, 1.0 / 3}, {16, 1, 1.0 / 5}, {16, 8, 1 / 1.25}, {1, 1, 0.5}};
    struct baseline_world world;
    baseline_world_init(&world);
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        struct tally_round_plan plan;
        world.params = TALLY_DIANA.defaults();
        world.params.baseline.levels = rows[r].levels;
        world.params.baseline.local_steps = 3;
        world.setting.dim = rows[r].dim;
        CU_ASSERT_EQUAL(TALLY_DIANA.plan(&world.setting, 0, NULL, &plan, NULL), TALLY_OK);
        CU_ASSERT_DOUBLE_EQUAL(plan.facts.shift_gain, rows[r].alpha, 1e-15);
        CU_ASSERT_EQUAL(plan.samples, 3);
    }
    world.setting.dim = DIM;
    baseline_world_fini(&world);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_algorithms_diana__follows_the_paper),
    TALLY_TEST(test_algorithms_diana__refused_message_leaves_the_shift),
    TALLY_TEST(test_algorithms_diana__alpha_is_the_theorys),
};
TALLY_SUITE(algorithms_diana, TESTS);
