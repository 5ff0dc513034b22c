#include "services/algorithms/ceal.h"

#include <math.h>
#include <string.h>

#include "tests/harness.h"
#include "tests/unit/services/local_loss.h"

/* tally_ceal_stage() for M = 10, d = 30, c = 0.1, sigma = 4.47, delta = 0.1, gamma0 = 2, phi0 = 3.
 * The numbers were computed in Python:
 *
 *     lf  = log(16*M*j**2/delta) if log_factor else 1
 *     s   = max(1, ceil(c*sigma**2*lf*4**j/(M*L**2)))
 *     tau = lambda i: 3*2.0**-(i+1)*L
 *     B   = min(5*tau(j-1), L)
 *     G   = 4*sigma/sqrt(s)*(1+sqrt(log(4*M*j**2/delta)/(2*d)))
 *     (s, tau(j), B, G, gamma0*sigma/sqrt(s), phi0*tau(j))
 */
static void test_algorithms_ceal__sequences_as_computed_in_python(void)
{
    static const struct {
        double gradient_bound;
        bool log_factor;
        int64_t stage;
        struct tally_ceal_stage expected;
    } rows[] = {
        {1.0, true, 1, {6, 0.75, 1.0, 9.60613505937602, 3.6497397167469354, 2.25}},
        {1.0, true, 2, {29, 0.375, 1.0, 4.484506434248559, 1.6601163233028438, 1.125}},
        {1.0, true, 3, {123, 0.1875, 1.0, 2.2077741111679927, 0.8060926533926844, 0.5625}},
        {1.0, true, 4, {520, 0.09375, 0.9375, 1.0837594924478995, 0.39204493463024204, 0.28125}},
        {1.0, true, 5, {2169, 0.046875, 0.46875, 0.5343353990001171, 0.1919586746674476, 0.140625}},
        {1.0,
         true,
         8,
         {151069, 0.005859375, 0.05859375, 0.06492335633005712, 0.02300116543272812, 0.017578125}},
        {1.0, false, 1, {1, 0.75, 1.0, 23.530129295731438, 8.94, 2.25}},
        {1.0, false, 2, {4, 0.375, 1.0, 12.07490311354179, 4.47, 1.125}},
        {1.0, false, 3, {13, 0.1875, 1.0, 6.791027919763327, 2.479509877126774, 0.5625}},
        {1.0, false, 4, {52, 0.09375, 0.9375, 3.427148431963414, 1.239754938563387, 0.28125}},
        {1.0, false, 5, {205, 0.046875, 0.46875, 1.7380681132584528, 0.6243966844180029, 0.140625}},
        {1.0,
         false,
         8,
         {13095, 0.005859375, 0.05859375, 0.22051385885242436, 0.07812405325886837, 0.017578125}},
        {0.5, true, 1, {24, 0.375, 0.5, 4.80306752968801, 1.8248698583734677, 1.125}},
        {0.5, true, 2, {113, 0.1875, 0.5, 2.2718226685237672, 0.8410044563349359, 0.5625}},
        {0.5, true, 3, {490, 0.09375, 0.5, 1.1061375921823238, 0.4038680325986473, 0.28125}},
        {0.5,
         true,
         4,
         {2077, 0.046875, 0.46875, 0.5422709481131116, 0.19616398277139377, 0.140625}},
        {0.5,
         true,
         5,
         {8673, 0.0234375, 0.234375, 0.2672139023018739, 0.09599593557636127, 0.0703125}},
        {0.5,
         true,
         8,
         {604275, 0.0029296875, 0.029296875, 0.03246170502503827, 0.01150059223237743,
          0.0087890625}},
        {0.5, false, 1, {4, 0.375, 0.5, 11.765064647865719, 4.47, 1.125}},
        {0.5, false, 2, {13, 0.1875, 0.5, 6.697951126482262, 2.479509877126774, 0.5625}},
        {0.5, false, 3, {52, 0.09375, 0.5, 3.3955139598816637, 1.239754938563387, 0.28125}},
        {0.5, false, 4, {205, 0.046875, 0.46875, 1.726067024508895, 0.6243966844180029, 0.140625}},
        {0.5,
         false,
         5,
         {819, 0.0234375, 0.234375, 0.8695644406008649, 0.31238888134313164, 0.0703125}},
        {0.5,
         false,
         8,
         {52379, 0.0029296875, 0.029296875, 0.11025798191292617, 0.03906239950635233,
          0.0087890625}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct tally_ceal_params params = {.step_size = 1,
                                                 .sigma = 4.47,
                                                 .delta = 0.1,
                                                 .gamma0 = 2,
                                                 .phi0 = 3,
                                                 .sample_scale = 0.1,
                                                 .log_factor = rows[i].log_factor,
                                                 .first_stage = 1,
                                                 .gradient_bound = rows[i].gradient_bound};
        const struct tally_ceal_stage *expected = &rows[i].expected;
        struct tally_ceal_stage got = tally_ceal_stage(&params, 10, 30, rows[i].stage);
        CU_ASSERT_EQUAL(got.samples, expected->samples);
        CU_ASSERT_EQUAL(got.threshold, expected->threshold);
        CU_ASSERT_EQUAL(got.gradient_bound, expected->gradient_bound);
        CU_ASSERT_DOUBLE_EQUAL(got.client_error, expected->client_error, 1e-14 * got.client_error);
        CU_ASSERT_DOUBLE_EQUAL(got.uplink_accuracy, expected->uplink_accuracy,
                               1e-14 * got.uplink_accuracy);
        CU_ASSERT_DOUBLE_EQUAL(got.downlink_accuracy, expected->downlink_accuracy,
                               1e-14 * got.downlink_accuracy);
    }
}

/* The default constants are those of the theory. s_1 = 2359 exceeds the horizon of [1]'s own
 * experiment. */
static void test_algorithms_ceal__defaults_are_those_of_the_theory(void)
{
    union tally_algorithm_params params = TALLY_CEAL.defaults();
    CU_ASSERT_EQUAL(params.ceal.sample_scale, 40);
    CU_ASSERT_EQUAL(params.ceal.delta, 0.1);
    CU_ASSERT_EQUAL(params.ceal.gamma0, 1);
    CU_ASSERT_EQUAL(params.ceal.phi0, 1);
    CU_ASSERT_EQUAL(params.ceal.first_stage, 1);
    CU_ASSERT_EQUAL(params.ceal.gradient_bound, 1);
    CU_ASSERT_TRUE(params.ceal.log_factor);
    CU_ASSERT_EQUAL(TALLY_CEAL.first_stage(&params), 1);
    params.ceal.sigma = 4.47;
    struct tally_ceal_stage first = tally_ceal_stage(&params.ceal, 10, 30, 1);
    CU_ASSERT_EQUAL(first.samples, 2359);
    CU_ASSERT_DOUBLE_EQUAL(first.client_error, 0.4844626976506427, 1e-15);
    params.ceal.first_stage = 5;
    CU_ASSERT_EQUAL(TALLY_CEAL.first_stage(&params), 5);
}

static void test_algorithms_ceal__samples_stay_in_their_range(void)
{
    union tally_algorithm_params params = TALLY_CEAL.defaults();
    params.ceal.sigma = 1e-200;
    CU_ASSERT_EQUAL(tally_ceal_stage(&params.ceal, 10, 30, 1).samples, 1);
    params.ceal.sigma = 1e9;
    CU_ASSERT_EQUAL(tally_ceal_stage(&params.ceal, 1, 1, 60).samples, INT64_C(1) << 53);
    CU_ASSERT_EQUAL(tally_ceal_stage(&params.ceal, 1, 1, 100000).samples, INT64_C(1) << 53);
}

static void test_algorithms_ceal__fields_are_those_of_the_document(void)
{
    static const char *const names[] = {"step_size",  "sigma",       "delta",
                                        "gamma0",     "phi0",        "sample_scale",
                                        "log_factor", "first_stage", "gradient_bound"};
    enum { N = sizeof names / sizeof names[0] };
    CU_ASSERT_EQUAL_FATAL(TALLY_CEAL.n_fields, N);
    for (size_t i = 0; i < N; i++) {
        TALLY_ASSERT_TEXT(TALLY_CEAL.fields[i].name, names[i]);
        CU_ASSERT_EQUAL(TALLY_CEAL.fields[i].required, i < 2);
        CU_ASSERT_PTR_NOT_NULL(TALLY_CEAL.fields[i].doc);
    }
    TALLY_ASSERT_TEXT(TALLY_CEAL.name, "ceal");
    CU_ASSERT_PTR_EQUAL(TALLY_ALGORITHMS[0], &TALLY_CEAL);
    TALLY_ASSERT_TEXT(TALLY_ALGORITHM_NAMES[0], "ceal");
}

/* What a client and the server need: 3 coordinates, 4 clients. */
struct world {
    union tally_algorithm_params params;
    struct tally_setting setting;
    struct tally_scratch scratch;
    struct tally_round_plan plan; /* stage 3: tau = 0.1875, L = 1 */
    struct tally_decision decision;
};

static void init(struct world *world)
{
    *world = (struct world){.params = TALLY_CEAL.defaults()};
    world->params.ceal.step_size = 0.5;
    world->params.ceal.sigma = 2;
    world->params.ceal.phi0 = 2;
    world->params.ceal.sample_scale = 0.5;
    world->params.ceal.log_factor = false;
    world->setting = (struct tally_setting){.params = &world->params,
                                            .clients = 4,
                                            .dim = 3,
                                            .minibatch = 2,
                                            .key = tally_rng_key(77, 1),
                                            .encoding = &TALLY_ENCODING_UNARY};
    CU_ASSERT_EQUAL_FATAL(tally_scratch_init(&world->scratch, 3, TALLY_SCRATCH_CLIENT, NULL),
                          TALLY_OK);
    CU_ASSERT_EQUAL_FATAL(TALLY_CEAL.plan(&world->setting, 3, NULL, &world->plan, NULL), TALLY_OK);
}

static void fini(struct world *world)
{
    tally_scratch_fini(&world->scratch);
    tally_message_fini(&world->decision.broadcast);
}

static void test_algorithms_ceal__plan_is_samples_and_the_uplink_grid(void)
{
    struct world world;
    init(&world);
    struct tally_ceal_stage stage = tally_ceal_stage(&world.params.ceal, 4, 3, 3);
    struct tally_grid grid;
    CU_ASSERT_EQUAL(stage.samples, 32); /* 0.5 * 4 * 64 / 4 */
    CU_ASSERT_EQUAL(world.plan.samples, 32);
    CU_ASSERT_EQUAL(world.plan.stage, 3);
    CU_ASSERT_EQUAL(tally_grid_init(stage.client_error + stage.gradient_bound,
                                    stage.uplink_accuracy, 3, &grid, NULL),
                    TALLY_OK);
    CU_ASSERT_EQUAL(world.plan.grid.step, grid.step);
    CU_ASSERT_EQUAL(world.plan.grid.intervals, grid.intervals);
    fini(&world);
}

static void test_algorithms_ceal__plan_refuses_grids_of_either_direction(void)
{
    struct world world;
    init(&world);
    struct tally_round_plan plan;
    struct tally_error err = TALLY_ERROR_INIT;
    world.params.ceal.gamma0 = 1e-7;
    TALLY_ASSERT_STATUS(TALLY_CEAL.plan(&world.setting, 3, NULL, &plan, &err), TALLY_OUT_OF_RANGE,
                        &err);
    CU_ASSERT_EQUAL(strncmp(err.message, "stage 3: quantizer needs ", 25), 0);
    tally_error_clear(&err);
    world.params.ceal.gamma0 = 1;
    world.params.ceal.phi0 = 1e-7;
    TALLY_ASSERT_STATUS(TALLY_CEAL.plan(&world.setting, 3, NULL, &plan, &err), TALLY_OUT_OF_RANGE,
                        &err);
    fini(&world);
}

/* The message is Q(mean of samples * minibatch gradients), both from their documented streams. */
static void test_algorithms_ceal__client_sends_its_quantized_mean(void)
{
    struct world world;
    init(&world);
    struct tally_objective_spec spec = tally_objective_spec_default();
    spec.data.synthetic_linear = (struct tally_synthetic_linear){
        .dim = 3, .points = 40, .frobenius_norm = 6, .noise_std = 0.5};
    struct tally_objective *objective;
    CU_ASSERT_EQUAL_FATAL(tally_objective_new(&spec, 4, world.setting.key, ".", &objective, NULL),
                          TALLY_OK);
    const double points[2][3] = {{0.5, -1, 0.25}, {50, 50, -50}};
    struct tally_client_answer answer = {.loss = -1};
    const struct tally_message *message = &answer.message;
    for (size_t p = 0; p < 2; p++) {
        for (uint32_t client = 0; client < 4; client++) {
            const double *x = points[p];
            const struct tally_client_task task = {
                &world.setting, &world.plan, objective, client, 11, x, p == 1, NULL};
            CU_ASSERT_EQUAL(TALLY_CEAL.client_step(&task, &world.scratch, &answer, NULL), TALLY_OK);
            struct tally_rng rng;
            double gradient[3];
            float y[3];
            int32_t expected[3], got[3];
            uint64_t clipped;
            tally_rng_init(&rng, world.setting.key, client, 11, TALLY_RNG_SAMPLING);
            tally_objective_local_gradient(objective, client, x, 32 * 2, &rng, gradient, NULL);
            for (size_t i = 0; i < 3; i++) {
                y[i] = (float)gradient[i];
            }
            tally_rng_init(&rng, world.setting.key, client, 11, TALLY_RNG_UPLINK);
            CU_ASSERT_EQUAL(tally_quantize(&world.plan.grid, y, 3, &rng, expected, &clipped, NULL),
                            TALLY_OK);
            struct tally_level_stats stats;
            CU_ASSERT_EQUAL(TALLY_ENCODING_UNARY.decode(
                                message->payload.data, message->payload.size,
                                message->bits.payload_bits, 3, &world.plan.grid, got, &stats, NULL),
                            TALLY_OK);
            CU_ASSERT_EQUAL(memcmp(got, expected, sizeof got), 0);
            CU_ASSERT_EQUAL(message->bits.clipped, clipped);
            CU_ASSERT_EQUAL(clipped > 0, p == 1);
            CU_ASSERT_EQUAL(message->bits.formula_bits, stats.formula_bits);
            CU_ASSERT_EQUAL(message->bits.messages, 1);
            CU_ASSERT_EQUAL(answer.loss, p == 1 ? local_loss_of(objective, client, x) : -1);
        }
    }
    tally_message_fini(&answer.message);
    tally_objective_free(objective);
    fini(&world);
}

/* Encodes levels into the caller's 200 bytes and returns a view of them. */
static struct tally_message_view encoded(const struct world *world, const int32_t levels[3],
                                         uint8_t *data)
{
    struct tally_level_stats stats;
    size_t n = TALLY_ENCODING_UNARY.bound(levels, 3);
    CU_ASSERT_EQUAL_FATAL(
        TALLY_ENCODING_UNARY.encode(levels, 3, &world->plan.grid, data, n, &stats), TALLY_OK);
    return (struct tally_message_view){.payload = data,
                                       .n_payload = n,
                                       .payload_bits = stats.payload_bits,
                                       .grid = world->plan.grid};
}

static void test_algorithms_ceal__receive_adds_the_levels_exactly(void)
{
    struct world world;
    init(&world);
    const int32_t levels[3] = {3, 0, -2};
    uint8_t data[200];
    struct tally_message_view view = encoded(&world, levels, data);
    int64_t sums[3] = {INT64_C(1) << 60, -5, 2};
    struct tally_bits bits = {.clipped = 9};
    CU_ASSERT_EQUAL(
        TALLY_CEAL.receive(&world.setting, &world.plan, &view, &world.scratch, sums, &bits, NULL),
        TALLY_OK);
    CU_ASSERT_EQUAL(sums[0], (INT64_C(1) << 60) + 3);
    CU_ASSERT_EQUAL(sums[1], -5);
    CU_ASSERT_EQUAL(sums[2], 0);
    CU_ASSERT_EQUAL(bits.formula_bits, 3 + 5);
    CU_ASSERT_EQUAL(bits.payload_bits, 3 + 5 + 2);
    CU_ASSERT_EQUAL(bits.messages, 1);
    CU_ASSERT_EQUAL(bits.clipped, 0);
    fini(&world);
}

static void test_algorithms_ceal__malformed_messages_add_nothing(void)
{
    struct world world;
    init(&world);
    const int32_t top = (int32_t)(world.plan.grid.intervals / 2);
    const int32_t levels[3] = {3, top, -2}, above[3] = {3, 1, top + 1};
    uint8_t data[200], other[200];
    const struct tally_message_view good = encoded(&world, levels, data);
    struct tally_message_view bad[4] = {good, good, encoded(&world, above, other), good};
    bad[0].payload_bits--;
    bad[1].n_payload--;
    bad[3].n_payload = 0;
    bad[3].payload_bits = 0;
    int64_t sums[3] = {10, 20, 30};
    struct tally_bits bits;
    for (size_t i = 0; i < 4; i++) {
        struct tally_error err = TALLY_ERROR_INIT;
        TALLY_ASSERT_STATUS(TALLY_CEAL.receive(&world.setting, &world.plan, &bad[i], &world.scratch,
                                               sums, &bits, &err),
                            TALLY_MALFORMED, &err);
    }
    CU_ASSERT_EQUAL(sums[0], 10);
    CU_ASSERT_EQUAL(sums[1], 20);
    CU_ASSERT_EQUAL(sums[2], 30);
    CU_ASSERT_EQUAL(
        TALLY_CEAL.receive(&world.setting, &world.plan, &good, &world.scratch, sums, &bits, NULL),
        TALLY_OK);
    fini(&world);
}

static void decide_round(struct world *world, const int64_t *sums, int64_t received, uint32_t round)
{
    const double nowhere[3] = {(double)NAN, (double)NAN, (double)NAN}; /* x is not used */
    struct tally_error err = TALLY_ERROR_INIT;
    const struct tally_server_task task = {.setting = &world->setting,
                                           .plan = &world->plan,
                                           .sums = sums,
                                           .received = received,
                                           .round = round,
                                           .x = nowhere};
    TALLY_ASSERT_STATUS(TALLY_CEAL.decide(&task, &world->scratch, &world->decision, &err), TALLY_OK,
                        &err);
}

static void decide(struct world *world, const int64_t *sums, int64_t received)
{
    decide_round(world, sums, received, 12);
}

/* tau_3 = 3/16; |g| = 4 tau passes, the next double below does not. All numbers are exact. */
static void test_algorithms_ceal__norm_test_passes_from_four_tau_on(void)
{
    struct world world;
    init(&world);
    const int64_t sums[3] = {0, 4, 0}; /* 4 messages: |g| is the step */
    world.plan.grid = (struct tally_grid){.step = 0.75, .intervals = 16};
    decide(&world, sums, 4);
    CU_ASSERT_EQUAL(world.decision.norm, 0.75);
    CU_ASSERT_TRUE(world.decision.passed);
    CU_ASSERT_EQUAL(world.decision.next_stage, 3);
    world.plan.grid.step = nextafter(0.75, 0);
    decide(&world, sums, 4);
    CU_ASSERT_EQUAL(world.decision.norm, nextafter(0.75, 0));
    CU_ASSERT_FALSE(world.decision.passed);
    CU_ASSERT_EQUAL(world.decision.next_stage, 4);
    world.plan.grid.step = nextafter(0.75, 1);
    decide(&world, sums, 4);
    CU_ASSERT_TRUE(world.decision.passed);
    const int64_t nothing[3] = {0};
    decide(&world, nothing, 4);
    CU_ASSERT_EQUAL(world.decision.norm, 0);
    CU_ASSERT_FALSE(world.decision.passed);
    fini(&world);
}

static void test_algorithms_ceal__norm_is_of_the_mean_over_messages(void)
{
    struct world world;
    init(&world);
    const int64_t sums[3] = {3 * 6, 0, -4 * 6};
    world.plan.grid = (struct tally_grid){.step = 0.125, .intervals = 16};
    const int64_t received[] = {1, 2, 3, 4, 6};
    for (size_t i = 0; i < 5; i++) {
        decide(&world, sums, received[i]);
        CU_ASSERT_DOUBLE_EQUAL(world.decision.norm, 5 * 0.125 * 6 / (double)received[i], 1e-15);
    }
    fini(&world);
}

/* The broadcast is Q(g, phi_j, B_j + tau_j) with the server's stream, and counts its clipped
 * coordinates. */
static void test_algorithms_ceal__broadcast_is_the_quantized_estimate(void)
{
    struct world world;
    init(&world);
    world.plan.grid = (struct tally_grid){.step = 0.1, .intervals = 64};
    const int64_t all[2][3] = {{40, -13, 2}, {80, -100, 3}}; /* within range 1.1875; outside */
    for (uint32_t round = 0; round < 40; round++) {
        const size_t c = round % 2;
        decide_round(&world, all[c], 4, round);
        CU_ASSERT_TRUE_FATAL(world.decision.passed);
        const struct tally_message *broadcast = &world.decision.broadcast;
        struct tally_grid grid;
        CU_ASSERT_EQUAL(tally_grid_init(1 + 0.1875, 2 * 0.1875, 3, &grid, NULL), TALLY_OK);
        CU_ASSERT_EQUAL(broadcast->grid.step, grid.step);
        CU_ASSERT_EQUAL(broadcast->grid.intervals, grid.intervals);
        float g[3];
        for (size_t i = 0; i < 3; i++) {
            g[i] = (float)(0.1 / 4 * (double)all[c][i]);
        }
        struct tally_rng rng;
        int32_t expected[3], got[3];
        uint64_t clipped;
        struct tally_level_stats stats;
        tally_rng_init(&rng, world.setting.key, TALLY_RNG_SERVER, round, TALLY_RNG_DOWNLINK);
        tally_quantize(&grid, g, 3, &rng, expected, &clipped, NULL);
        CU_ASSERT_EQUAL(
            TALLY_ENCODING_UNARY.decode(broadcast->payload.data, broadcast->payload.size,
                                        broadcast->bits.payload_bits, 3, &grid, got, &stats, NULL),
            TALLY_OK);
        CU_ASSERT_EQUAL(memcmp(got, expected, sizeof got), 0);
        CU_ASSERT_EQUAL(clipped, c == 0 ? 0 : 2);
        CU_ASSERT_EQUAL(broadcast->bits.clipped, clipped);
        CU_ASSERT_EQUAL(broadcast->bits.messages, 1);
        CU_ASSERT_EQUAL(broadcast->bits.formula_bits, stats.formula_bits);
        for (size_t i = 0; c == 0 && i < 3; i++) {
            CU_ASSERT_TRUE(fabs(got[i] * grid.step - (double)g[i]) <= grid.step * (1 + 1e-6));
        }
    }
    fini(&world);
}

static void test_algorithms_ceal__apply_moves_by_step_size_times_value(void)
{
    struct world world;
    init(&world);
    const int32_t levels[3] = {3, 0, -2};
    uint8_t data[200];
    struct tally_message_view view = encoded(&world, levels, data);
    view.grid = (struct tally_grid){.step = 0.25, .intervals = 8};
    double x[3] = {1, 2, 3};
    CU_ASSERT_EQUAL(TALLY_CEAL.apply(&world.setting, &view, &world.scratch, x, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(x[0], 1 - 0.5 * 0.25 * 3);
    CU_ASSERT_EQUAL(x[1], 2);
    CU_ASSERT_EQUAL(x[2], 3 + 0.5 * 0.25 * 2);
    fini(&world);
}

static void test_algorithms_ceal__malformed_broadcasts_move_nothing(void)
{
    struct world world;
    init(&world);
    const int32_t levels[3] = {3, 0, -2};
    uint8_t data[200];
    struct tally_message_view bad[6];
    for (size_t i = 0; i < 6; i++) {
        bad[i] = encoded(&world, levels, data);
        bad[i].grid = (struct tally_grid){.step = 0.25, .intervals = 8};
    }
    bad[0].grid.intervals = 7;
    bad[1].grid.step = (double)NAN;
    bad[2].grid.step = -0.25;
    bad[3].grid.intervals = 4; /* level 3 exceeds 2 */
    bad[4].payload_bits++;
    bad[5].n_payload++;
    double x[3] = {1, 2, 3};
    for (size_t i = 0; i < 6; i++) {
        struct tally_error err = TALLY_ERROR_INIT;
        TALLY_ASSERT_STATUS(TALLY_CEAL.apply(&world.setting, &bad[i], &world.scratch, x, &err),
                            TALLY_MALFORMED, &err);
        TALLY_ASSERT_TEXT(err.field, i < 3 ? "quantizer_step" : "payload");
    }
    CU_ASSERT_TRUE(x[0] == 1 && x[1] == 2 && x[2] == 3);
    fini(&world);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_algorithms_ceal__sequences_as_computed_in_python),
    TALLY_TEST(test_algorithms_ceal__defaults_are_those_of_the_theory),
    TALLY_TEST(test_algorithms_ceal__samples_stay_in_their_range),
    TALLY_TEST(test_algorithms_ceal__fields_are_those_of_the_document),
    TALLY_TEST(test_algorithms_ceal__plan_is_samples_and_the_uplink_grid),
    TALLY_TEST(test_algorithms_ceal__plan_refuses_grids_of_either_direction),
    TALLY_TEST(test_algorithms_ceal__client_sends_its_quantized_mean),
    TALLY_TEST(test_algorithms_ceal__receive_adds_the_levels_exactly),
    TALLY_TEST(test_algorithms_ceal__malformed_messages_add_nothing),
    TALLY_TEST(test_algorithms_ceal__norm_test_passes_from_four_tau_on),
    TALLY_TEST(test_algorithms_ceal__norm_is_of_the_mean_over_messages),
    TALLY_TEST(test_algorithms_ceal__broadcast_is_the_quantized_estimate),
    TALLY_TEST(test_algorithms_ceal__apply_moves_by_step_size_times_value),
    TALLY_TEST(test_algorithms_ceal__malformed_broadcasts_move_nothing),
};
TALLY_SUITE(algorithms_ceal, TESTS);
