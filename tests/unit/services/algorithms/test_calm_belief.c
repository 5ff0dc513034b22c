/* What a CALM job believes about s0 and V, and the lengths of its epochs. */
#include <math.h>
#include <stdlib.h>

#include "codec/dithered/dithered.h"
#include "services/algorithms/calm.h"
#include "tests/harness.h"

enum { DIM = 30, CLIENTS = 10, HORIZON = 2000 };
static const double STEP = 3, GROWTH = 29.0 / 9; /* h = 1/3, one point a query */

struct world {
    union tally_algorithm_params params;
    struct tally_setting setting;
    struct calm_memory *memory;
};

/* A job after its opening round, which found s0 and V. */
static void make_world(struct world *world, double noise, double variance)
{
    static const double X[DIM] = {0};
    world->params = (union tally_algorithm_params){.calm = {.step_size = STEP,
                                                            .noise = noise,
                                                            .noise_growth = GROWTH,
                                                            .client_spread = NAN,
                                                            .curvature_spread = 0.02,
                                                            .initial_variance = variance,
                                                            .local_step_limit = NAN,
                                                            .is_found = true,
                                                            .is_even = true}};
    world->setting = (struct tally_setting){.params = &world->params,
                                            .clients = CLIENTS,
                                            .dim = DIM,
                                            .horizon = HORIZON,
                                            .minibatch = 1,
                                            .has_regret = true};
    world->memory = malloc(calm_memory_bytes(&world->setting));
    calm_memory_begin(&world->setting, X, CALM_FEW_DRAWS + 1, "", world->memory);
    CU_ASSERT_TRUE(calm_has_belief(world->memory));
    CU_ASSERT_TRUE(calm_memory_is_valid(&world->setting, world->memory));
}

/* The clients' messages of `samples` queries at a point of variance `far`, where a query has the
 * noise `one`; 0 samples: those of the opening. `square`: mean square of their mean. Returns
 * control bits. */
static uint64_t see(struct world *world, int64_t samples, double far, double one, double square)
{
    const int64_t repeats = samples > 0 ? 0 : CALM_FEW_DRAWS, n = samples + repeats;
    const struct tally_round_plan plan = {.stage = 1,
                                          .samples = samples,
                                          .grid = {.step = 1, .intervals = 2, .scale = 1},
                                          .facts = {.repeats = repeats}};
    const struct tally_calm_walk walk = {
        .n = n, .repeats = repeats, .start_variance = far, .sum_variance = (double)samples * far};
    int64_t sums[DIM];
    for (int i = 0; i < DIM; i++) {
        sums[i] = llrint(sqrt(square) * CLIENTS * 0x1p32);
    }
    const struct tally_server_task task = {.setting = &world->setting,
                                           .plan = &plan,
                                           .received = CLIENTS,
                                           .sums = sums,
                                           .memory = world->memory};
    return calm_believe(&task, &walk, one * STEP * STEP / (double)n);
}

/* The mean's length decides about V, and its bits are told; what V gains, s0 loses. */
static void test_calm_belief__the_mean_shows_the_distance(void)
{
    struct world world;
    make_world(&world, 0.05, 0.05);
    const double one = 0.05 + GROWTH * 0.05,
                 of_mean = (one * 9 / 4 + tally_dithered_error(DIM)) / CLIENTS;
    CU_ASSERT_EQUAL(see(&world, 0, 0.05, one, of_mean + 0.05), 1); /* as expected */
    CU_ASSERT_EQUAL(world.memory->state.variance, 0.05);
    free(world.memory);

    make_world(&world, 0.05, 0.05);
    const double before = world.memory->belief.share;
    CU_ASSERT_TRUE(see(&world, 0, 0.05, one, of_mean + 0.12) > 2);
    const double v = world.memory->state.variance;
    /* The error of the mean square, as a share of V; then all shares are of the new V. */
    const double r = of_mean / 0.05, error = (2 * r * r + 4 * r * 2.4) / DIM;
    const double after = before * error / (before + error) * (0.05 / v) * (0.05 / v);
    CU_ASSERT_DOUBLE_EQUAL(world.memory->belief.share / after, 1, 1e-6);
    calm_belief_follow(world.memory,
                       0.7); /* of the error 0.3 are left, and V scatters by a quarter */
    CU_ASSERT_DOUBLE_EQUAL(world.memory->belief.share, 0.09 * after + 1.0 / 16, 1e-6);
    CU_ASSERT_TRUE(v > 0.055 && v < 0.12); /* between both */
    CU_ASSERT_EQUAL(world.memory->state.estimate_variance, v);
    CU_ASSERT_DOUBLE_EQUAL(4 * log2(v / 0.05), rint(4 * log2(v / 0.05)), 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(world.memory->noise, fmax(one - GROWTH * v, one / 4096), 0.02);
    free(world.memory);
}

/* While V falls, the spread shows whether s0 is what is left. */
static void test_calm_belief__the_spread_tells_the_noise_from_the_distance(void)
{
    static const double TRUTHS[] = {0.0004, 0.2};
    for (size_t i = 0; i < sizeof TRUTHS / sizeof TRUTHS[0]; i++) {
        struct world world;
        make_world(&world, 0.1, 0.05);
        double v = 0.05;
        for (int k = 1; k < 6; k++) {
            world.memory->epoch = k;
            v /= 3;
            calm_belief_follow(world.memory, 0.7);
            world.memory->state.variance = v;
            see(&world, 10, v, TRUTHS[i] + GROWTH * v, 0);
            v = world.memory->state.variance;
        }
        CU_ASSERT_TRUE(fabs(world.memory->noise / TRUTHS[i] - 1) < 0.5);
        free(world.memory);
    }
}

/* What neither can explain is B. */
static void test_calm_belief__the_rest_is_the_clients_spread(void)
{
    struct world world;
    make_world(&world, 0.1, 0.05);
    world.memory->epoch = 5;
    CU_ASSERT_DOUBLE_EQUAL(world.memory->client_spread, 0.1 * 9 / 200, 1e-12);
    const double one = 0.1 + GROWTH * 0.05, spread = 1;
    see(&world, 50, 0.05, one + spread * 50 / 9, 0);
    CU_ASSERT_TRUE(world.memory->client_spread > 0.5 * spread &&
                   world.memory->client_spread < spread);
    CU_ASSERT_TRUE(world.memory->noise < 2);
    free(world.memory);
}

static int64_t length(struct world *world, int64_t epoch, double noise, double v, int64_t before)
{
    world->memory->epoch = epoch;
    world->memory->noise = noise;
    world->memory->state.variance = v;
    world->memory->state.estimate_variance = v / 1.2;
    return calm_next_length(&world->setting, world->memory, before);
}

static void test_calm_belief__lengths_follow_the_noise(void)
{
    struct world world;
    make_world(&world, 0.5, 0.05);
    /* (2.5 s0 + m V) / (h^2 M V), within bounds */
    CU_ASSERT_EQUAL(length(&world, 1, 0.5, 0.1, 6), 14); /* (1.25 + 0.32) / 0.111 */
    CU_ASSERT_EQUAL(length(&world, 1, 1e-4, 0.1, 6), 3);
    CU_ASSERT_EQUAL(length(&world, 2, 1e-4, 0.1, 6), 9);  /* 1.5 times */
    CU_ASSERT_EQUAL(length(&world, 2, 0.5, 1e-6, 6), 24); /* 4 times */
    /* The first message has the queries of the opening, and few more: V is hardly known. */
    CU_ASSERT_EQUAL(length(&world, 0, 0.5, 0.3, 4), 7);
    CU_ASSERT_EQUAL(length(&world, 0, 0.5, 0.1, 4), 8);
    CU_ASSERT_EQUAL(length(&world, 0, 1e-4, 0.1, 4), 4);
    /* The last of five messages, unless another one is worth it. */
    world.memory->belief.regret = 400;
    CU_ASSERT_EQUAL(length(&world, 4, 0.5, 0.002, 150), 565);
    /* After three messages, one that would hardly lower the regret is not sent. */
    CU_ASSERT_EQUAL(length(&world, 2, 1e-4, 1e-4, 20), 30);
    CU_ASSERT_TRUE(length(&world, 3, 1e-4, 1e-4, 20) > world.memory->state.samples_left);
    CU_ASSERT_EQUAL(length(&world, 3, 1e-4, 0.1, 20), 30);
    CU_ASSERT_TRUE(length(&world, 5, 0.5, 0.002, 150) > world.memory->state.samples_left);
    CU_ASSERT_EQUAL(length(&world, 5, 0.5, 0.03, 30), 45);
    world.memory->state.samples_left = 20;
    CU_ASSERT_TRUE(length(&world, 5, 0.5, 0.03, 30) == 21);
    free(world.memory);
}

/* A growth that the document gives says nothing about the directions. */
static void test_calm_belief__only_the_opening_begins_it(void)
{
    static const double X[DIM] = {0};
    struct world world;
    make_world(&world, 0.5, 0.05);
    world.params.calm.is_even = false;
    calm_memory_begin(&world.setting, X, CALM_FEW_DRAWS + 1, "", world.memory);
    CU_ASSERT_FALSE(calm_has_belief(world.memory));
    CU_ASSERT_EQUAL(world.memory->client_spread, 0);
    free(world.memory);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_calm_belief__the_mean_shows_the_distance),
    TALLY_TEST(test_calm_belief__the_spread_tells_the_noise_from_the_distance),
    TALLY_TEST(test_calm_belief__the_rest_is_the_clients_spread),
    TALLY_TEST(test_calm_belief__lengths_follow_the_noise),
    TALLY_TEST(test_calm_belief__only_the_opening_begins_it),
};
TALLY_SUITE(calm_belief, TESTS);
