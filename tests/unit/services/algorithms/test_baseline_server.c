/* How the server of the four baselines uses messages, and the clients its broadcasts, against a
 * recomputation. */
#include "services/algorithms/baseline.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "codec/numeric/float32.h"
#include "codec/quantize/qsgd.h"
#include "tests/harness.h"
#include "tests/unit/services/algorithms/baseline_world.h"

/* The messages of all clients in one round. */
struct round {
    struct tally_message_view views[BASELINE_CLIENTS];
    uint8_t bytes[BASELINE_CLIENTS][4 * BASELINE_DIM];
};

static void compute_round(struct baseline_world *world, const struct tally_algorithm *algorithm,
                          struct round *round)
{
    for (uint32_t m = 0; m < BASELINE_CLIENTS; m++) {
        baseline_step_ok(world, algorithm, m, 8, false);
        round->views[m] = tally_message_view(&world->answer.message);
        CU_ASSERT_FATAL(round->views[m].n_payload <= sizeof round->bytes[m]);
        memcpy(round->bytes[m], round->views[m].payload, round->views[m].n_payload);
        round->views[m].payload = round->bytes[m];
    }
}

static enum tally_status receive(struct baseline_world *world,
                                 const struct tally_algorithm *algorithm,
                                 const struct tally_message_view *view, int64_t *sums,
                                 struct tally_bits *ret_bits, struct tally_error *err)
{
    return algorithm->receive(&world->setting, &world->plan, view, &world->scratch, sums, ret_bits,
                              err);
}

/* Decodes the values of a message with the codec. */
static void values_of(const struct tally_algorithm *algorithm,
                      const struct tally_message_view *view, double *ret_values)
{
    float values[BASELINE_DIM] = {0};
    int32_t levels[BASELINE_DIM] = {0};
    struct tally_qsgd qsgd = {.norm = 0};
    enum tally_status status =
        baseline_is_qsgd(algorithm)
            ? tally_qsgd_decode(view->payload, view->n_payload, view->payload_bits, 5, BASELINE_DIM,
                                &qsgd, levels, NULL)
            : tally_float32_decode(view->payload, view->n_payload, view->payload_bits, BASELINE_DIM,
                                   values, NULL);
    CU_ASSERT_EQUAL_FATAL(status, TALLY_OK);
    for (size_t i = 0; i < BASELINE_DIM; i++) {
        ret_values[i] =
            baseline_is_qsgd(algorithm) ? (double)qsgd.norm / 5 * levels[i] : (double)values[i];
    }
}

static void test_algorithms_baseline_server__sums_do_not_depend_on_the_order(void)
{
    struct baseline_world world;
    baseline_world_init(&world);
    for (size_t a = 0; a < N_BASELINES; a++) {
        struct round round;
        compute_round(&world, BASELINES[a], &round);
        int64_t expected[BASELINE_DIM] = {0};
        for (size_t m = 0; m < BASELINE_CLIENTS; m++) {
            double values[BASELINE_DIM];
            values_of(BASELINES[a], &round.views[m], values);
            for (size_t i = 0; i < BASELINE_DIM; i++) {
                expected[i] += llrint(values[i] * 0x1p40);
            }
        }
        int orders = 0;
        for (size_t code = 0; code < 256; code++) { /* includes all 24 permutations */
            const size_t order[4] = {code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6};
            if ((1u << order[0] | 1u << order[1] | 1u << order[2] | 1u << order[3]) != 15) {
                continue;
            }
            int64_t sums[BASELINE_DIM] = {0};
            for (size_t m = 0; m < BASELINE_CLIENTS; m++) {
                struct tally_bits bits = {.clipped = 7};
                CU_ASSERT_EQUAL(
                    receive(&world, BASELINES[a], &round.views[order[m]], sums, &bits, NULL),
                    TALLY_OK);
                CU_ASSERT_EQUAL(bits.messages, 1);
                CU_ASSERT_EQUAL(bits.clipped, 0);
                CU_ASSERT_EQUAL(bits.formula_bits, baseline_is_qsgd(BASELINES[a]) ? 60 : 224);
                CU_ASSERT_EQUAL(bits.payload_bits, bits.formula_bits);
            }
            CU_ASSERT_EQUAL(memcmp(sums, expected, sizeof sums), 0);
            orders++;
        }
        CU_ASSERT_EQUAL(orders, 24);
    }
    baseline_world_fini(&world);
}

static void expect_nothing_added(struct baseline_world *world,
                                 const struct tally_algorithm *algorithm,
                                 const struct tally_message_view *view, enum tally_status status)
{
    int64_t sums[BASELINE_DIM] = {11, -22, 33};
    struct tally_bits bits;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(receive(world, algorithm, view, sums, &bits, &err), status, &err);
    TALLY_ASSERT_TEXT(err.field, "payload");
    CU_ASSERT_TRUE(sums[0] == 11 && sums[1] == -22 && sums[2] == 33);
    for (size_t i = 3; i < BASELINE_DIM; i++) {
        CU_ASSERT_EQUAL(sums[i], 0);
    }
}

static void test_algorithms_baseline_server__malformed_messages_add_nothing(void)
{
    struct baseline_world world;
    baseline_world_init(&world);
    for (size_t a = 0; a < N_BASELINES; a++) {
        struct round round;
        compute_round(&world, BASELINES[a], &round);
        struct tally_message_view bad = round.views[0];
        bad.payload_bits--;
        expect_nothing_added(&world, BASELINES[a], &bad, TALLY_MALFORMED);
        bad = round.views[0];
        bad.n_payload--;
        expect_nothing_added(&world, BASELINES[a], &bad, TALLY_MALFORMED);
        bad = (struct tally_message_view){.payload = round.bytes[0]};
        expect_nothing_added(&world, BASELINES[a], &bad, TALLY_MALFORMED);
        /* A well-formed message of the other kind. */
        struct round other;
        compute_round(&world, BASELINES[(a + 2) % 4], &other);
        expect_nothing_added(&world, BASELINES[a], &other.views[0], TALLY_MALFORMED);
        /* Infinity in the last float32, or in the norm of qsgd. */
        const size_t at = baseline_is_qsgd(BASELINES[a]) ? 0 : 4 * (BASELINE_DIM - 1);
        memcpy(round.bytes[0] + at, (const uint8_t[4]){0x00, 0x00, 0x80, 0x7f}, 4);
        expect_nothing_added(&world, BASELINES[a], &round.views[0],
                             baseline_is_qsgd(BASELINES[a]) ? TALLY_MALFORMED : TALLY_NOT_FINITE);
    }
    baseline_world_fini(&world);
}

/* 2^22 / 4 is the largest value that can be summed over 4 clients; the next float32 is refused. */
static void test_algorithms_baseline_server__messages_above_the_sum_s_range_are_refused(void)
{
    struct baseline_world world;
    baseline_world_init(&world);
    const float bound = 0x1p20f;
    for (size_t a = 0; a < N_BASELINES; a++) {
        for (int above = 0; above < 2; above++) {
            const float value = above ? nextafterf(bound, INFINITY) : bound;
            uint8_t bytes[4 * BASELINE_DIM] = {0};
            struct tally_message_view view = {.payload = bytes, .n_payload = sizeof bytes};
            if (baseline_is_qsgd(BASELINES[a])) {
                const struct tally_qsgd qsgd = {.levels = 5, .norm = value};
                const int32_t levels[BASELINE_DIM] = {-5, 5, 5, -5, 5, 5, 5};
                view.payload_bits = tally_qsgd_bits(5, BASELINE_DIM);
                view.n_payload = (size_t)(view.payload_bits + 7) / 8;
                CU_ASSERT_EQUAL(
                    tally_qsgd_encode(&qsgd, levels, BASELINE_DIM, bytes, view.n_payload),
                    TALLY_OK);
            } else {
                const float values[BASELINE_DIM] = {1, 1, 1, 1, 1, 1, -value};
                CU_ASSERT_EQUAL(tally_float32_encode(values, BASELINE_DIM, bytes, sizeof bytes,
                                                     &view.payload_bits, NULL),
                                TALLY_OK);
            }
            if (above) {
                expect_nothing_added(&world, BASELINES[a], &view, TALLY_MALFORMED);
                continue;
            }
            int64_t sums[BASELINE_DIM] = {0};
            struct tally_bits bits;
            for (int m = 0; m < BASELINE_CLIENTS;
                 m++) { /* -fsanitize=undefined reports an overflow */
                CU_ASSERT_EQUAL(receive(&world, BASELINES[a], &view, sums, &bits, NULL), TALLY_OK);
            }
            CU_ASSERT_EQUAL(sums[baseline_is_qsgd(BASELINES[a]) ? 0 : BASELINE_DIM - 1],
                            -(INT64_C(1) << 62));
        }
    }
    baseline_world_fini(&world);
}

/* The new point is x + scale * mean, rounded to float32; scale is -eta, 1, 1 and
 * -eta * server_step_size. */
static void test_algorithms_baseline_server__server_moves_as_the_papers_say(void)
{
    struct baseline_world world;
    baseline_world_init(&world);
    const double scales[N_BASELINES] = {-0.05, 1, 1, -0.05 * 3};
    for (size_t a = 0; a < N_BASELINES; a++) {
        for (int64_t received = 1; received <= BASELINE_CLIENTS; received++) {
            struct round round;
            compute_round(&world, BASELINES[a], &round);
            int64_t sums[BASELINE_DIM] = {0};
            long double mean[BASELINE_DIM] = {0}, square = 0;
            for (int64_t m = 0; m < received; m++) {
                double values[BASELINE_DIM];
                struct tally_bits bits;
                values_of(BASELINES[a], &round.views[m], values);
                CU_ASSERT_EQUAL(receive(&world, BASELINES[a], &round.views[m], sums, &bits, NULL),
                                TALLY_OK);
                for (size_t i = 0; i < BASELINE_DIM; i++) {
                    mean[i] += (long double)values[i] / received;
                }
            }
            world.plan.stage = 4;
            const struct tally_server_task task = {.setting = &world.setting,
                                                   .plan = &world.plan,
                                                   .sums = sums,
                                                   .received = received,
                                                   .round = 8,
                                                   .x = world.x};
            CU_ASSERT_EQUAL(BASELINES[a]->decide(&task, &world.scratch, &world.decision, NULL),
                            TALLY_OK);
            CU_ASSERT_TRUE(world.decision.passed);
            CU_ASSERT_EQUAL(world.decision.next_stage, 4);
            const struct tally_message *broadcast = &world.decision.broadcast;
            CU_ASSERT_EQUAL(broadcast->bits.formula_bits, 32 * BASELINE_DIM);
            CU_ASSERT_EQUAL(broadcast->bits.payload_bits, 32 * BASELINE_DIM);
            CU_ASSERT_EQUAL(broadcast->bits.messages, 1);
            CU_ASSERT_EQUAL(broadcast->bits.clipped, 0);
            struct tally_message_view view = tally_message_view(broadcast);
            double x[BASELINE_DIM];
            memcpy(x, world.x, sizeof x);
            CU_ASSERT_EQUAL(BASELINES[a]->apply(&world.setting, &view, &world.scratch, x, NULL),
                            TALLY_OK);
            for (size_t i = 0; i < BASELINE_DIM; i++) {
                square += mean[i] * mean[i];
                const double expected = (double)(world.x[i] + scales[a] * mean[i]);
                CU_ASSERT_EQUAL(x[i], (double)(float)x[i]); /* float32 on both sides */
                CU_ASSERT_DOUBLE_EQUAL(x[i], expected, 1e-7 * (1 + fabs(expected)));
            }
            CU_ASSERT_DOUBLE_EQUAL(world.decision.norm, (double)sqrtl(square), 1e-11);
            CU_ASSERT_TRUE(world.decision.norm > 1e-3);
        }
    }
    baseline_world_fini(&world);
}

static void test_algorithms_baseline_server__malformed_broadcasts_move_nothing(void)
{
    struct baseline_world world;
    baseline_world_init(&world);
    const float values[BASELINE_DIM] = {1, 2, 3, 4, 5, 6, 7};
    uint8_t bytes[4 * BASELINE_DIM];
    uint64_t bits;
    CU_ASSERT_EQUAL(tally_float32_encode(values, BASELINE_DIM, bytes, sizeof bytes, &bits, NULL),
                    TALLY_OK);
    for (size_t a = 0; a < N_BASELINES; a++) {
        struct tally_message_view bad[3];
        for (size_t i = 0; i < 3; i++) {
            bad[i] = (struct tally_message_view){
                .payload = bytes, .n_payload = sizeof bytes, .payload_bits = bits};
        }
        uint8_t nan[4 * BASELINE_DIM];
        memcpy(nan, bytes, sizeof nan);
        nan[4 * BASELINE_DIM - 2] = nan[4 * BASELINE_DIM - 1] = 0xff;
        bad[0].payload_bits++;
        bad[1].n_payload -= 4;
        bad[2].payload = nan;
        double x[BASELINE_DIM];
        memcpy(x, world.x, sizeof x);
        for (size_t i = 0; i < 3; i++) {
            struct tally_error err = TALLY_ERROR_INIT;
            TALLY_ASSERT_STATUS(
                BASELINES[a]->apply(&world.setting, &bad[i], &world.scratch, x, &err),
                i == 2 ? TALLY_NOT_FINITE : TALLY_MALFORMED, &err);
            CU_ASSERT_EQUAL(memcmp(x, world.x, sizeof x), 0);
        }
    }
    baseline_world_fini(&world);
}

/* Starting from an extreme point, the first bad value may be infinity, NaN, or a finite number too
 * large for the server's sums. The error is the same for all, and names the client and the step
 * size. */
static void test_algorithms_baseline_server__divergence_is_not_finite_and_names_the_step_size(void)
{
    static const struct {
        double step_size, x0;
        int64_t samples;
    } rows[] = {
        {0.05, 1e160, 6}, /* f overflows, but not the point */
        {0.05, 1e300, 6}, /* float32 overflows at once */
        {1e9, 0.5, 400},  /* a double overflows on the way */
        {1e9, 0.5, 6},    /* overflows float32 */
        {1e3, 2e7, 1},    /* finite, but too large for the sums */
        {1e-9, 1e17, 6},  /* the same for gradients alone */
    };
    struct baseline_world world;
    baseline_world_init(&world);
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        world.params.baseline.step_size = rows[r].step_size;
        world.plan.samples = rows[r].samples;
        world.x[0] = rows[r].x0;
        for (size_t a = 0; a < N_BASELINES; a++) {
            const bool stays = a == 0 && rows[r].x0 < 1; /* gradients at a moderate point */
            struct tally_error err = TALLY_ERROR_INIT;
            TALLY_ASSERT_STATUS(baseline_step(&world, BASELINES[a], 3, 2, false, &err),
                                stays ? TALLY_OK : TALLY_NOT_FINITE, &err);
            char expected[100];
            snprintf(expected, sizeof expected,
                     "the steps of client 3 diverged; step_size %g is too large",
                     rows[r].step_size);
            TALLY_ASSERT_TEXT(err.message, stays ? "" : expected);
            CU_ASSERT_EQUAL(baseline_step(&world, BASELINES[a], 3, 2, true, NULL),
                            stays ? TALLY_OK : TALLY_NOT_FINITE);
        }
    }
    baseline_world_fini(&world);
}

/* The server may overflow although no client did. */
static void test_algorithms_baseline_server__new_point_above_float32_is_not_finite(void)
{
    struct baseline_world world;
    baseline_world_init(&world);
    world.x[BASELINE_DIM - 1] = 3.5e38;
    const int64_t sums[BASELINE_DIM] = {0};
    for (size_t a = 0; a < N_BASELINES; a++) {
        struct tally_error err = TALLY_ERROR_INIT;
        const struct tally_server_task task = {.setting = &world.setting,
                                               .plan = &world.plan,
                                               .sums = sums,
                                               .received = BASELINE_CLIENTS,
                                               .round = 8,
                                               .x = world.x};
        TALLY_ASSERT_STATUS(BASELINES[a]->decide(&task, &world.scratch, &world.decision, &err),
                            TALLY_NOT_FINITE, &err);
        TALLY_ASSERT_TEXT(err.message, "the new point: coordinate 6 is not finite");
    }
    baseline_world_fini(&world);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_algorithms_baseline_server__sums_do_not_depend_on_the_order),
    TALLY_TEST(test_algorithms_baseline_server__malformed_messages_add_nothing),
    TALLY_TEST(test_algorithms_baseline_server__messages_above_the_sum_s_range_are_refused),
    TALLY_TEST(test_algorithms_baseline_server__server_moves_as_the_papers_say),
    TALLY_TEST(test_algorithms_baseline_server__malformed_broadcasts_move_nothing),
    TALLY_TEST(test_algorithms_baseline_server__divergence_is_not_finite_and_names_the_step_size),
    TALLY_TEST(test_algorithms_baseline_server__new_point_above_float32_is_not_finite),
};
TALLY_SUITE(algorithms_baseline_server, TESTS);
