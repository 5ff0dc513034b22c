/* Compression both ways: messages, the server's estimate of the deviation, and what a broadcast
 * rounds away. */
#include "services/algorithms/compression.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codec/adaptive/adaptive.h"
#include "codec/adaptive/adaptive_dithers.h"
#include "services/algorithms/weights.h"
#include "tests/harness.h"
#include "tests/unit/services/algorithms/baseline_world.h"

enum { DIM = 2000, CLIENTS = 8 };

/* A server and its clients, each of which wants to move by `wish` plus noise of its own. */
struct world {
    union tally_algorithm_params params;
    struct tally_setting setting;
    struct tally_round_plan plan;
    struct tally_scratch scratch;
    struct tally_message message;
    struct tally_decision decision;
    double x[DIM], wish[DIM];
    int64_t sums[2 * DIM + 8]; /* with the notes */
    struct tally_weights weights;
    double squares;
    void *memory;
};

static void init(struct world *world, double up, double down)
{
    memset(world, 0, sizeof *world);
    world->params = tally_baseline_defaults();
    world->params.baseline.compression =
        (struct tally_compression){TALLY_COMPRESSION_SET, up, down};
    world->setting = (struct tally_setting){.params = &world->params,
                                            .clients = CLIENTS,
                                            .cohort = CLIENTS,
                                            .dim = DIM,
                                            .horizon = 20,
                                            .key = tally_rng_key(7, 0)};
    CU_ASSERT_EQUAL_FATAL(tally_scratch_init(&world->scratch, DIM, TALLY_SCRATCH_CLIENT, NULL),
                          TALLY_OK);
    world->memory = malloc(TALLY_FEDAVG.memory.bytes(&world->setting));
    CU_ASSERT_PTR_NOT_NULL_FATAL(world->memory);
    for (size_t i = 0; i < DIM; i++) {
        world->wish[i] = sin((double)i) / 10;
    }
    TALLY_FEDAVG.memory.begin(&world->setting, world->x, 0, "", world->memory);
}

static void fini(struct world *world)
{
    tally_message_fini(&world->message);
    tally_message_fini(&world->decision.broadcast);
    tally_scratch_fini(&world->scratch);
    free(world->memory);
}

static void begin_round(struct world *world)
{
    CU_ASSERT_EQUAL_FATAL(TALLY_FEDAVG.plan(&world->setting, 0, world->memory, &world->plan, NULL),
                          TALLY_OK);
    memset(world->sums, 0, sizeof world->sums);
    world->weights = (struct tally_weights){0};
    world->squares = 0;
}

/* The difference of a client: the wish, and normal noise of deviation `noise`. */
static void make_difference(struct world *world, uint32_t client, uint32_t round, double noise)
{
    double values[DIM];
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(99, 0), client, round, TALLY_RNG_NOISE);
    tally_rng_normal(&rng, values, DIM);
    for (size_t i = 0; i < DIM; i++) {
        world->scratch.vector[i] = (float)(world->wish[i] + noise * values[i]);
    }
}

static enum tally_status send(struct world *world, uint32_t client, uint32_t round,
                              struct tally_error *err)
{
    const struct tally_client_task task = {.setting = &world->setting,
                                           .plan = &world->plan,
                                           .client = client,
                                           .round = round,
                                           .x = world->x};
    return tally_compression_send(&task, &world->scratch, &world->message, err);
}

static struct tally_message_view view_of(const struct world *world, uint32_t client, uint32_t round)
{
    struct tally_message_view view = tally_message_view(&world->message);
    view.client = client;
    view.number = round;
    view.weight = world->setting.weighs_points ? client + 1 : 1;
    return view;
}

static void receive(struct world *world, uint32_t client, uint32_t round)
{
    struct tally_bits bits;
    struct tally_error err = TALLY_ERROR_INIT;
    const struct tally_message_view view = view_of(world, client, round);
    TALLY_ASSERT_STATUS(TALLY_FEDAVG.receive(&world->setting, &world->plan, &view, &world->scratch,
                                             world->sums, &bits, &err),
                        TALLY_OK, &err);
    CU_ASSERT_EQUAL(bits.payload_bits, world->message.bits.payload_bits);
    CU_ASSERT_EQUAL(bits.formula_bits, world->message.bits.formula_bits);
    world->weights.sum += view.weight;
    world->weights.unit = 1;
    world->squares += world->scratch.square;
}

static void close_round(struct world *world, uint32_t round)
{
    struct tally_error err = TALLY_ERROR_INIT;
    const struct tally_server_task task = {.setting = &world->setting,
                                           .plan = &world->plan,
                                           .sums = world->sums,
                                           .received = CLIENTS,
                                           .weights = world->weights,
                                           .round = round,
                                           .squares = world->squares,
                                           .x = world->x,
                                           .memory = world->memory};
    TALLY_ASSERT_STATUS(TALLY_FEDAVG.decide(&task, &world->scratch, &world->decision, &err),
                        TALLY_OK, &err);
    CU_ASSERT_TRUE(world->decision.passed);
    const struct tally_message_view view = tally_message_view(&world->decision.broadcast);
    double decoded[DIM]; /* as a client has it, which must decode the message */
    memcpy(decoded, world->x, sizeof decoded);
    TALLY_ASSERT_STATUS(TALLY_FEDAVG.apply(&world->setting, &view, &world->scratch, world->x, &err),
                        TALLY_OK, &err);
    TALLY_ASSERT_STATUS(TALLY_FEDAVG.apply(&world->setting, &view, &world->scratch, decoded, &err),
                        TALLY_OK, &err);
    CU_ASSERT_TRUE(memcmp(decoded, world->x, sizeof decoded) == 0);
    CU_ASSERT_TRUE(TALLY_FEDAVG.memory.is_valid(&world->setting, world->memory));
}

static void play_round(struct world *world, uint32_t round, double noise)
{
    struct tally_error err = TALLY_ERROR_INIT;
    begin_round(world);
    for (uint32_t client = 0; client < CLIENTS; client++) {
        make_difference(world, client, round, noise);
        TALLY_ASSERT_STATUS(send(world, client, round, &err), TALLY_OK, &err);
        receive(world, client, round);
    }
    close_round(world, round);
}

static double root_mean_square(const double *a, const double *b, double factor)
{
    double sum = 0;
    for (size_t i = 0; i < DIM; i++) {
        sum += (a[i] - factor * b[i]) * (a[i] - factor * b[i]);
    }
    return sqrt(sum / DIM);
}

/* From the second round on the plan's step is r_u times the deviation, which clients do not
 * state. */
static void test_algorithms_compression__the_server_measures_the_deviation(void)
{
    static const double noises[] = {0.05, 0.01, 1};
    for (size_t i = 0; i < sizeof noises / sizeof *noises; i++) {
        struct world world;
        init(&world, 4, 4);
        begin_round(&world);
        CU_ASSERT_EQUAL(world.plan.grid.step, 0);
        for (uint32_t round = 1; round <= 3; round++) {
            play_round(&world, round, noises[i]);
        }
        begin_round(&world);
        CU_ASSERT_TRUE(fabs(world.plan.grid.step / (4 * noises[i]) - 1) < 0.15);
        fini(&world);
    }
}

/* Without noise of the clients a message of the first round differs from the wish by the rounding
 * of a step that it states. */
static void test_algorithms_compression__the_first_message_states_its_step(void)
{
    struct world world;
    struct tally_error err = TALLY_ERROR_INIT;
    init(&world, 0.5, 1);
    begin_round(&world);
    make_difference(&world, 3, 1, 0);
    TALLY_ASSERT_STATUS(send(&world, 3, 1, &err), TALLY_OK, &err);
    const double wanted = 0.25 * root_mean_square(world.wish, world.wish, 0);
    const double step = ldexp(1, (int)world.message.payload.data[0] - 128);
    CU_ASSERT_TRUE(step > wanted / sqrt(2.001) && step < wanted * sqrt(2.001));
    receive(&world, 3, 1);
    double worst = 0;
    for (size_t i = 0; i < DIM; i++) {
        worst = fmax(worst, fabs((double)world.sums[i] * 0x1p-40 - world.wish[i]));
    }
    CU_ASSERT_TRUE(worst > step / 2 * 0.9 && worst <= step / 2 * (1 + 1e-6));
    fini(&world);
}

/* What the last broadcast states in 12 bits from `bit` on. */
static double stated(const struct world *world, unsigned bit)
{
    const uint8_t *data = world->decision.broadcast.payload.data;
    const unsigned bits = data[0] | (unsigned)data[1] << 8 | (unsigned)data[2] << 16;
    return exp2(((double)(bits >> bit & 4095) - 2048) / 16);
}

static double broadcast_step(const struct world *world)
{
    return stated(world, 0);
}

/* The nearest number that 12 bits can state. */
static double nearest(double value)
{
    return exp2(rint(16 * log2(value)) / 16);
}

/* What a broadcast rounds away is sent later: x follows the sum of the means at the distance of one
 * rounding, however many rounds there are. */
static void test_algorithms_compression__nothing_is_lost(void)
{
    struct world world;
    init(&world, 2, 8);
    double once = 0;
    for (uint32_t round = 1; round <= 12; round++) {
        play_round(&world, round, 0.02);
        once = round == 1 ? root_mean_square(world.x, world.wish, 1) : once;
    }
    const double rounding = broadcast_step(&world);
    /* the noise of twelve means, with that of their rounding, and that of one broadcast */
    const double noise = sqrt(12 * (0.02 * 0.02 * (1 + 4 / 12.0)) / CLIENTS);
    CU_ASSERT_TRUE(root_mean_square(world.x, world.wish, 12) <
                   2 * sqrt(noise * noise + rounding * rounding / 12));
    fini(&world);
}

static double deviation_of_mean(const struct world *world)
{
    const double *s = world->memory, step = world->plan.grid.step;
    return sqrt((*s * *s + step * step / 12) / CLIENTS);
}

/* Resolutions that are set stay, although this world's model moves far in each round. */
static void test_algorithms_compression__set_resolutions_stay(void)
{
    struct world world;
    init(&world, 2, 8);
    for (uint32_t round = 1; round <= 3; round++) {
        play_round(&world, round, 0.05);
    }
    const double *s = world.memory, of_mean = deviation_of_mean(&world);
    CU_ASSERT_DOUBLE_EQUAL(broadcast_step(&world) / nearest(8 * of_mean), 1, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(stated(&world, 12) / *s, 1, 1e-9);
    begin_round(&world);
    CU_ASSERT_DOUBLE_EQUAL(world.plan.grid.step / *s, 2, 1e-9);
    fini(&world);
}

/* A coordinate stays where it is until z is more than 0.6 steps away. */
static void test_algorithms_compression__a_broadcast_leaves_up_to_six_tenths_of_a_step(void)
{
    struct world world;
    init(&world, 2, 8);
    for (uint32_t round = 1; round <= 6; round++) {
        play_round(&world, round, 0.02);
        const double *z = (const double *)world.memory + 1;
        double worst = 0, least = 0;
        for (size_t i = 0; i < DIM; i++) {
            worst = fmax(worst, z[i] - world.x[i]);
            least = fmin(least, z[i] - world.x[i]);
        }
        const double step = broadcast_step(&world);
        CU_ASSERT_TRUE(worst <= 0.6 * step * (1 + 1e-9) && worst > 0.55 * step);
        CU_ASSERT_TRUE(least >= -0.6 * step * (1 + 1e-9) && least < -0.55 * step);
    }
    fini(&world);
}

/* What `auto` does in a world of 2000 coordinates and 8 clients, of which `cohort` are wanted,
 * whose wish is `far` times its usual size. */
static void check_auto(uint32_t cohort, uint32_t horizon, double far, double noise, double up,
                       double down)
{
    struct world world;
    init(&world, 1, 1);
    world.params.baseline.compression = (struct tally_compression){.type = TALLY_COMPRESSION_AUTO};
    world.setting.cohort = cohort;
    world.setting.horizon = horizon;
    for (size_t i = 0; i < DIM; i++) {
        world.wish[i] *= far;
    }
    play_round(&world, 1, noise);
    play_round(&world, 2, noise);
    const double *s = world.memory, of_mean = deviation_of_mean(&world);
    const double ratio = world.decision.norm / sqrt(DIM) / of_mean;
    const double finer = fmax(1, fmin(ratio, down / ratio));
    CU_ASSERT_DOUBLE_EQUAL(broadcast_step(&world) / nearest(of_mean * down / finer), 1, 1e-9);
    CU_ASSERT_TRUE(far == 0 || far == 10 ? finer == 1 : finer > 1.1);
    begin_round(&world);
    CU_ASSERT_DOUBLE_EQUAL(world.plan.grid.step / *s, up, 1e-9);
    fini(&world);
}

/* r_u and r_d of `auto`, the latter while the model stays, moves, and moves farther than a step. */
static void test_algorithms_compression__auto_is_finer_while_the_model_moves(void)
{
    const double size = sqrt(2000 / 20000.0), clients = sqrt(8 / 10.0);
    check_auto(8, 20, 0, 0.1, 10 * size * clients, 6.5 * size);
    check_auto(8, 20, 1, 0.1, 10 * size * clients, 6.5 * size);
    check_auto(8, 20, 10, 0.1, 10 * size * clients, 6.5 * size);
    check_auto(8, 9, 0.5, 0.1, 10 * size * clients, 6.5 * size * sqrt(9 / 12.0));
    check_auto(8, 4, 0, 0.1, 10 * size * clients * sqrt(0.5), 6.5 * size * sqrt(4 / 12.0));
    check_auto(5, 20, 0, 0.1, 10 * size * sqrt(0.5), 6.5 * size);
    check_auto(4, 20, 0, 0.1, 10 * size * sqrt(0.4), 6.5 * size * sqrt(0.8));
}

static void test_algorithms_compression__weights_count(void)
{
    struct world world;
    init(&world, 0.01, 0.01);
    world.setting.weighs_points = true;
    begin_round(&world);
    struct tally_error err = TALLY_ERROR_INIT;
    for (uint32_t client = 0; client < CLIENTS; client++) {
        for (size_t i = 0; i < DIM; i++) {
            world.scratch.vector[i] = (float)client;
        }
        TALLY_ASSERT_STATUS(send(&world, client, 1, &err), TALLY_OK, &err);
        receive(&world, client, 1);
    }
    close_round(&world, 1);
    double mean = 0; /* sum of m (m + 1) over that of m + 1 */
    for (int m = 0; m < CLIENTS; m++) {
        mean += m * (m + 1.0) / (CLIENTS * (CLIENTS + 1) / 2.0);
    }
    CU_ASSERT_TRUE(fabs(world.x[5] - mean) < 0.05);
    fini(&world);
}

/* Receives the message with the weight 1. Returns the squared norm. */
static double receive_alone(const struct tally_setting *setting, bool weighs_points,
                            const struct tally_round_plan *plan,
                            const struct tally_message *message, struct tally_scratch *scratch,
                            int64_t *sums)
{
    struct tally_setting own = *setting;
    struct tally_message_view view = tally_message_view(message);
    struct tally_bits bits;
    struct tally_error err = TALLY_ERROR_INIT;
    own.weighs_points = weighs_points;
    view.number = view.weight = 1;
    tally_sums_clear(&own, sums);
    TALLY_ASSERT_STATUS(tally_compression_receive(&own, plan, &view, scratch, sums, &bits, &err),
                        TALLY_OK, &err);
    return scratch->square;
}

/* Sums that nothing has cleared before. */
static int64_t *make_sums(const struct tally_setting *setting, bool weighs_points)
{
    struct tally_setting own = *setting;
    own.weighs_points = weighs_points;
    int64_t *sums = malloc(tally_sums_bytes(&own));
    CU_ASSERT_PTR_NOT_NULL_FATAL(sums);
    memset(sums, 0xa5, tally_sums_bytes(&own));
    tally_sums_begin(&own, sums);
    return sums;
}

/* A message of one client, in a round with or without a grid. `most` is added to some values. */
static void send_alone(struct world *world, const struct tally_round_plan *plan, double most,
                       struct tally_scratch *scratch)
{
    const struct tally_client_task task = {.setting = &world->setting, .plan = plan, .round = 1};
    struct tally_error err = TALLY_ERROR_INIT;
    for (size_t i = 0; i < world->setting.dim; i++) { /* with levels besides 0 and 1 */
        scratch->vector[i] = (float)(sin((double)i) * (i % 100 == 0 ? 30 : 0.1));
        scratch->vector[i] += (float)(i % 1000 == 3 ? most : 0);
    }
    TALLY_ASSERT_STATUS(tally_compression_send(&task, scratch, &world->message, &err), TALLY_OK,
                        &err);
}

static size_t count_other_weighted(const struct tally_setting *setting,
                                   const struct tally_round_plan *plan, const int64_t *sums,
                                   const int64_t *weighted)
{
    const struct tally_weights weights = {.sum = 1, .unit = 1};
    struct tally_setting own = *setting;
    own.weighs_points = true;
    const struct tally_server_task one = {
        .setting = setting, .plan = plan, .sums = sums, .received = 1, .weights = weights};
    const struct tally_server_task other = {
        .setting = &own, .plan = plan, .sums = weighted, .received = 1, .weights = weights};
    size_t n_differ = 0;
    for (size_t i = 0; i < setting->dim; i++) {
        double mean, of_weighted;
        tally_compression_means(&one, i, 1, &mean);
        tally_compression_means(&other, i, 1, &of_weighted);
        n_differ += mean != of_weighted;
    }
    return n_differ;
}

/* In both forms of a message, the second of which is added while it is read; in rounds with and
 * without a grid, and with sums that do not fit 32 bits. */
static void test_algorithms_compression__equal_weights_change_no_bit(void)
{
    static const size_t DIMS[] = {DIM, (1 << 18) + 100};
    static const double STEPS[] = {0, 0.02, 0.02}, MOST[] = {0, 0, 2000};
    for (size_t k = 0; k < 2 * sizeof STEPS / sizeof STEPS[0]; k++) {
        struct world world;
        init(&world, 0.01, 0.01);
        world.setting.dim = DIMS[k % 2];
        const struct tally_round_plan plan = {
            .samples = 1, .grid = {STEPS[k / 2], STEPS[k / 2] > 0 ? 1 << 21 : 0, 1}};
        struct tally_scratch scratch;
        CU_ASSERT_EQUAL_FATAL(
            tally_scratch_init(&scratch, world.setting.dim, TALLY_SCRATCH_CLIENT, NULL), TALLY_OK);
        int64_t *sums = make_sums(&world.setting, false),
                *weighted = make_sums(&world.setting, true);
        send_alone(&world, &plan, MOST[k / 2], &scratch);
        const double square =
            receive_alone(&world.setting, false, &plan, &world.message, &scratch, sums);
        CU_ASSERT_TRUE(square > 0);
        CU_ASSERT_EQUAL(
            receive_alone(&world.setting, true, &plan, &world.message, &scratch, weighted), square);
        CU_ASSERT_EQUAL(count_other_weighted(&world.setting, &plan, sums, weighted), 0);
        free(sums);
        free(weighted);
        tally_scratch_fini(&scratch);
        fini(&world);
    }
}

/* Rounds whose sums take 32 bits, 64 and are of values, in all orders of two: the later sums are
 * those of a round that comes first. */
static void test_algorithms_compression__a_round_leaves_nothing_in_the_sums(void)
{
    static const double STEPS[] = {0, 0.02, 0.02}, MOST[] = {0, 0, 2000};
    struct world world;
    init(&world, 0.01, 0.01);
    const size_t n_bytes = tally_sums_bytes(&world.setting);
    for (size_t k = 0; k < 9; k++) {
        const size_t first = k / 3, second = k % 3;
        const struct tally_round_plan one = {
            .samples = 1, .grid = {STEPS[first], STEPS[first] > 0 ? 1 << 21 : 0, 1}};
        const struct tally_round_plan other = {
            .samples = 1, .grid = {STEPS[second], STEPS[second] > 0 ? 1 << 21 : 0, 1}};
        int64_t *sums = make_sums(&world.setting, false);
        int64_t *fresh = make_sums(&world.setting, false);
        send_alone(&world, &one, MOST[first], &world.scratch);
        (void)receive_alone(&world.setting, false, &one, &world.message, &world.scratch, sums);
        send_alone(&world, &other, MOST[second], &world.scratch);
        (void)receive_alone(&world.setting, false, &other, &world.message, &world.scratch, sums);
        (void)receive_alone(&world.setting, false, &other, &world.message, &world.scratch, fresh);
        CU_ASSERT_EQUAL(memcmp(sums, fresh, n_bytes), 0);
        free(sums);
        free(fresh);
    }
    fini(&world);
}

/* Half a unit, 2^-17 steps, is missing from each value in the sums, but from no mean. */
static void test_algorithms_compression__means_are_those_of_the_exact_values(void)
{
    struct world world;
    init(&world, 4, 4);
    const double step = 0.5;
    double expected[DIM] = {0}, means[1], difference = 0, largest = 0;
    begin_round(&world);
    world.plan.grid = (struct tally_grid){step, 1 << 21, 1};
    for (uint32_t client = 0; client < CLIENTS; client++) {
        struct tally_rng rng;
        struct tally_level_stats stats;
        int32_t levels[DIM], dithers[TALLY_ADAPTIVE_STEPS];
        struct tally_adaptive_words words;
        make_difference(&world, client, 1, 1);
        CU_ASSERT_EQUAL_FATAL(send(&world, client, 1, NULL), TALLY_OK);
        receive(&world, client, 1);
        tally_rng_init(&rng, world.setting.key, client, 1, TALLY_RNG_UPLINK);
        CU_ASSERT_EQUAL_FATAL(
            tally_adaptive_decode(world.message.payload.data, world.message.payload.size,
                                  world.message.bits.payload_bits, DIM, &rng, levels, &stats, NULL),
            TALLY_OK);
        tally_adaptive_words_init(&words, &rng);
        for (size_t i = 0; i < DIM; i++) {
            if (i % TALLY_ADAPTIVE_STEPS == 0) {
                tally_adaptive_dithers(&words, i / TALLY_ADAPTIVE_STEPS, dithers);
            }
            const int32_t dither = dithers[i % TALLY_ADAPTIVE_STEPS];
            expected[i] += step * (levels[i] - dither * 0x1p-32) / CLIENTS;
        }
    }
    const struct tally_server_task task = {.setting = &world.setting,
                                           .plan = &world.plan,
                                           .sums = world.sums,
                                           .received = CLIENTS,
                                           .weights = world.weights};
    for (size_t i = 0; i < DIM; i++) {
        tally_compression_means(&task, i, 1, means);
        difference += (means[0] - expected[i]) / DIM;
        largest = fmax(largest, fabs(means[0] - expected[i]));
    }
    CU_ASSERT_TRUE(largest < step * 0x1p-40);
    CU_ASSERT_TRUE(fabs(difference) < step * 0x1p-40);
    fini(&world);
}

/* Clients that all stay where they are, and a later round in which they move. */
static void test_algorithms_compression__standing_still_is_no_end(void)
{
    struct world world;
    init(&world, 4, 4);
    double wish[DIM];
    memcpy(wish, world.wish, sizeof wish);
    memset(world.wish, 0, sizeof world.wish);
    play_round(&world, 1, 0);
    play_round(&world, 2, 0);
    CU_ASSERT_EQUAL(root_mean_square(world.x, wish, 0), 0);
    memcpy(world.wish, wish, sizeof wish);
    for (uint32_t round = 3; round <= 8; round++) {
        play_round(&world, round, 0.01);
    }
    CU_ASSERT_TRUE(root_mean_square(world.x, wish, 6) < 0.1);
    fini(&world);
}

/* Broadcasts that are too short, or whose step is 0 or beyond 2^99 or 2^-99. */
static void refuse_broadcasts(struct world *world)
{
    static const uint8_t heads[][4] = {{0}, {0xff, 0x0f}, {0xcf, 0x01}, {0x31, 0x0e}};
    const double x = world->x[0];
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        for (size_t n = 0; n <= 4; n++) {
            const struct tally_message_view view = {
                .payload = heads[i], .n_payload = n, .payload_bits = 8 * n};
            struct tally_error err = TALLY_ERROR_INIT;
            CU_ASSERT_EQUAL(
                TALLY_FEDAVG.apply(&world->setting, &view, &world->scratch, world->x, &err),
                TALLY_MALFORMED);
            CU_ASSERT_PTR_NOT_NULL(strstr(err.message, n < 3 ? "does not begin" : "step 2^"));
        }
    }
    CU_ASSERT_EQUAL(world->x[0], x);
}

static void test_algorithms_compression__junk_is_refused(void)
{
    struct world world;
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_bits bits;
    init(&world, 4, 4);
    begin_round(&world);
    make_difference(&world, 0, 1, 1);
    CU_ASSERT_EQUAL_FATAL(send(&world, 0, 1, NULL), TALLY_OK);
    struct tally_message_view view = view_of(&world, 0, 1);
    view.n_payload = 0;
    view.payload_bits = 0;
    CU_ASSERT_EQUAL(TALLY_FEDAVG.receive(&world.setting, &world.plan, &view, &world.scratch,
                                         world.sums, &bits, &err),
                    TALLY_MALFORMED);
    view = view_of(&world, 0, 1);
    world.message.payload.data[0] = 0;
    CU_ASSERT_EQUAL(TALLY_FEDAVG.receive(&world.setting, &world.plan, &view, &world.scratch,
                                         world.sums, &bits, &err),
                    TALLY_MALFORMED);
    world.message.payload.data[0] = 255; /* levels of 2^127 */
    CU_ASSERT_EQUAL(TALLY_FEDAVG.receive(&world.setting, &world.plan, &view, &world.scratch,
                                         world.sums, &bits, &err),
                    TALLY_MALFORMED);
    CU_ASSERT_TRUE(world.sums[0] == 0 && world.sums[DIM - 1] == 0);
    world.scratch.vector[7] = NAN;
    CU_ASSERT_EQUAL(send(&world, 0, 1, &err), TALLY_NOT_FINITE);
    world.scratch.vector[7] = 1e30F;
    CU_ASSERT_EQUAL(send(&world, 0, 1, &err), TALLY_NOT_FINITE);
    refuse_broadcasts(&world);
    double *memory = world.memory;
    memory[0] = -1;
    CU_ASSERT_FALSE(TALLY_FEDAVG.memory.is_valid(&world.setting, world.memory));
    memory[0] = 0;
    memory[1 + DIM - 1] = NAN;
    CU_ASSERT_FALSE(TALLY_FEDAVG.memory.is_valid(&world.setting, world.memory));
    fini(&world);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_algorithms_compression__the_server_measures_the_deviation),
    TALLY_TEST(test_algorithms_compression__the_first_message_states_its_step),
    TALLY_TEST(test_algorithms_compression__nothing_is_lost),
    TALLY_TEST(test_algorithms_compression__set_resolutions_stay),
    TALLY_TEST(test_algorithms_compression__a_broadcast_leaves_up_to_six_tenths_of_a_step),
    TALLY_TEST(test_algorithms_compression__auto_is_finer_while_the_model_moves),
    TALLY_TEST(test_algorithms_compression__weights_count),
    TALLY_TEST(test_algorithms_compression__equal_weights_change_no_bit),
    TALLY_TEST(test_algorithms_compression__a_round_leaves_nothing_in_the_sums),
    TALLY_TEST(test_algorithms_compression__means_are_those_of_the_exact_values),
    TALLY_TEST(test_algorithms_compression__standing_still_is_no_end),
    TALLY_TEST(test_algorithms_compression__junk_is_refused),
};
TALLY_SUITE(algorithms_compression, TESTS);
