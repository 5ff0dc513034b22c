/* The four baselines against a recomputation from the public parts: gradients from the documented
 * streams, the codec, and sums in long double. */
#include "services/algorithms/baseline.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "codec/numeric/fixed_point.h"
#include "codec/numeric/float32.h"
#include "codec/quantize/qsgd.h"
#include "tests/harness.h"
#include "tests/unit/services/local_loss.h"

enum { DIM = 7, CLIENTS = 4, N_BASELINES = 4 };

static const struct tally_algorithm *const BASELINES[N_BASELINES] = {
    &TALLY_MINIBATCH_SGD, &TALLY_FEDAVG, &TALLY_FEDPAQ, &TALLY_FEDCOM};

static bool is_qsgd(const struct tally_algorithm *algorithm)
{
    return algorithm == &TALLY_FEDPAQ || algorithm == &TALLY_FEDCOM;
}

/* Shards of 11 and 10 points, 6 local steps of 2 points each. */
struct world {
    union tally_algorithm_params params;
    struct tally_setting setting;
    struct tally_round_plan plan;
    struct tally_objective *objective;
    struct tally_scratch scratch;
    struct tally_client_answer answer;
    struct tally_decision decision;
    double x[DIM];
};

static void init(struct world *world)
{
    *world = (struct world){
        .params.baseline = {.step_size = 0.05,
                            .local_steps = 6,
                            .levels = 5,
                            .server_step_size = 3},
        .setting = {.clients = CLIENTS,
                    .dim = DIM,
                    .minibatch = 2,
                    .evaluate_every = 1,
                    .key = tally_rng_key(31, 0),
                    .encoding = &TALLY_ENCODING_UNARY},
        .plan = {.samples = 6},
        .answer.loss = -1,
        .x = {0.5, -1.25, 0.3, 2, -0.1, 0, 1.7},
    };
    struct tally_objective_spec spec = tally_objective_spec_default();
    spec.data.synthetic_linear = (struct tally_synthetic_linear){
        .dim = DIM, .points = 42, .frobenius_norm = 9, .noise_std = 0.5};
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(
        tally_objective_new(&spec, CLIENTS, world->setting.key, ".", &world->objective, &err),
        TALLY_OK, &err);
    TALLY_ASSERT_STATUS(tally_scratch_init(&world->scratch, DIM, TALLY_SCRATCH_CLIENT, &err),
                        TALLY_OK, &err);
    CU_ASSERT_EQUAL_FATAL(err.status, TALLY_OK);
    world->setting.params = &world->params;
}

static void fini(struct world *world)
{
    tally_message_fini(&world->answer.message);
    tally_message_fini(&world->decision.broadcast);
    tally_scratch_fini(&world->scratch);
    tally_objective_free(world->objective);
}

static enum tally_status step(struct world *world, const struct tally_algorithm *algorithm,
                              uint32_t client, uint32_t round, bool evaluate,
                              struct tally_error *err)
{
    const struct tally_client_task task = {&world->setting, &world->plan, world->objective, client,
                                           round,           world->x,     evaluate};
    return algorithm->client_step(&task, &world->scratch, &world->answer, err);
}

static void step_ok(struct world *world, const struct tally_algorithm *algorithm, uint32_t client,
                    uint32_t round, bool evaluate)
{
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(step(world, algorithm, client, round, evaluate, &err), TALLY_OK, &err);
    CU_ASSERT_EQUAL_FATAL(err.status, TALLY_OK);
}

/* f from its definition: the mean of the local losses. */
static double loss_at(const struct world *world, const double *x)
{
    double sum = 0;
    for (uint32_t m = 0; m < CLIENTS; m++) {
        sum += local_loss_of(world->objective, m, x);
    }
    return sum / CLIENTS;
}

/* The client's own iterates x_0 .. x_K and f at the first K of them. */
static void walk(const struct world *world, uint32_t client, uint32_t round, double *x,
                 double *losses)
{
    struct tally_rng rng;
    double gradient[DIM];
    memcpy(x, world->x, sizeof world->x);
    tally_rng_init(&rng, world->setting.key, client, round, TALLY_RNG_SAMPLING);
    for (int64_t k = 0; k < world->plan.samples; k++) {
        if (losses != NULL) {
            losses[k] = loss_at(world, x);
        }
        tally_objective_local_gradient(world->objective, client, x, world->setting.minibatch, &rng,
                                       gradient, NULL);
        for (size_t i = 0; i < DIM; i++) {
            x[i] -= world->params.baseline.step_size * gradient[i];
        }
        tally_domain_project(&world->setting.domain, x, DIM);
    }
}

/* What the client's message stands for, before it is quantized. */
static void expected_vector(const struct world *world, const struct tally_algorithm *algorithm,
                            uint32_t client, uint32_t round, float *ret_vector)
{
    double end[DIM], mean[DIM];
    struct tally_rng rng;
    walk(world, client, round, end, NULL);
    tally_rng_init(&rng, world->setting.key, client, round, TALLY_RNG_SAMPLING);
    tally_objective_local_gradient(world->objective, client, world->x,
                                   world->plan.samples * world->setting.minibatch, &rng, mean,
                                   NULL);
    const double eta = world->params.baseline.step_size;
    for (size_t i = 0; i < DIM; i++) {
        const double step_taken = end[i] - world->x[i];
        const double value = algorithm == &TALLY_MINIBATCH_SGD ? mean[i]
                             : algorithm == &TALLY_FEDCOM      ? -1 / eta * step_taken
                                                               : step_taken;
        ret_vector[i] = (float)value;
    }
}

static void test_algorithms_baseline__fields_are_those_of_the_documents(void)
{
    static const char *const names[] = {"minibatch_sgd", "fedavg", "fedpaq", "fedcom"};
    static const char *const fields[] = {"step_size", "local_steps", "levels", "server_step_size"};
    static const size_t n_fields[] = {2, 2, 3, 4};
    for (size_t a = 0; a < N_BASELINES; a++) {
        CU_ASSERT_PTR_EQUAL(TALLY_ALGORITHMS[a + 1], BASELINES[a]);
        TALLY_ASSERT_TEXT(BASELINES[a]->name, names[a]);
        TALLY_ASSERT_TEXT(TALLY_ALGORITHM_NAMES[a + 1], names[a]);
        CU_ASSERT_EQUAL(BASELINES[a]->n_fields, n_fields[a]);
        for (size_t f = 0; f < BASELINES[a]->n_fields; f++) {
            TALLY_ASSERT_TEXT(BASELINES[a]->fields[f].name, fields[f]);
            CU_ASSERT_EQUAL(BASELINES[a]->fields[f].required, f < 3);
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
    struct world world;
    init(&world);
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
    fini(&world);
}

static void expect_float32(const struct world *world, const float *expected)
{
    const struct tally_message *message = &world->answer.message;
    uint8_t bytes[4 * DIM];
    uint64_t bits;
    CU_ASSERT_EQUAL(tally_float32_encode(expected, DIM, bytes, sizeof bytes, &bits, NULL),
                    TALLY_OK);
    CU_ASSERT_EQUAL_FATAL(message->payload.size, sizeof bytes);
    CU_ASSERT_EQUAL(memcmp(message->payload.data, bytes, sizeof bytes), 0);
    CU_ASSERT_EQUAL(message->bits.formula_bits, 32 * DIM);
    CU_ASSERT_EQUAL(message->bits.payload_bits, 32 * DIM);
}

/* The levels of Q(expected) with the client's uplink stream. */
static void expect_qsgd(const struct world *world, const float *expected, uint32_t client,
                        uint32_t round)
{
    const struct tally_message *message = &world->answer.message;
    struct tally_rng rng;
    struct tally_qsgd want, got;
    int32_t want_levels[DIM], got_levels[DIM];
    tally_rng_init(&rng, world->setting.key, client, round, TALLY_RNG_UPLINK);
    CU_ASSERT_EQUAL(tally_qsgd_quantize(5, expected, DIM, &rng, &want, want_levels, NULL),
                    TALLY_OK);
    CU_ASSERT_EQUAL_FATAL(tally_qsgd_decode(message->payload.data, message->payload.size,
                                            message->bits.payload_bits, 5, DIM, &got, got_levels,
                                            NULL),
                          TALLY_OK);
    CU_ASSERT_EQUAL(got.norm, want.norm);
    CU_ASSERT_TRUE(got.norm > 0);
    CU_ASSERT_EQUAL(memcmp(got_levels, want_levels, sizeof got_levels), 0);
    CU_ASSERT_EQUAL(message->bits.formula_bits, 32 + DIM * 4);
    CU_ASSERT_EQUAL(message->bits.payload_bits, 32 + DIM * 4);
}

static void test_algorithms_baseline__clients_send_what_their_papers_say(void)
{
    struct world world;
    init(&world);
    for (size_t a = 0; a < N_BASELINES; a++) {
        for (uint32_t client = 0; client < CLIENTS; client++) {
            const uint32_t round = 5 + client;
            float expected[DIM];
            expected_vector(&world, BASELINES[a], client, round, expected);
            step_ok(&world, BASELINES[a], client, round, false);
            if (is_qsgd(BASELINES[a])) {
                expect_qsgd(&world, expected, client, round);
            } else {
                expect_float32(&world, expected);
            }
            CU_ASSERT_EQUAL(world.answer.message.bits.messages, 1);
            CU_ASSERT_EQUAL(world.answer.message.bits.clipped, 0);
            CU_ASSERT_EQUAL(world.answer.message.grid.intervals, 0);
            CU_ASSERT_EQUAL(world.answer.loss, -1); /* nobody asked */
        }
    }
    fini(&world);
}

/* FedCOM's vector is the sum of the gradients along the way; the others' follow from it. */
static void test_algorithms_baseline__differences_are_sums_of_gradients(void)
{
    struct world world;
    init(&world);
    struct tally_rng rng;
    double x[DIM], sum[DIM] = {0}, gradient[DIM];
    float avg[DIM], com[DIM];
    expected_vector(&world, &TALLY_FEDAVG, 2, 1, avg);
    expected_vector(&world, &TALLY_FEDCOM, 2, 1, com);
    memcpy(x, world.x, sizeof x);
    tally_rng_init(&rng, world.setting.key, 2, 1, TALLY_RNG_SAMPLING);
    for (int k = 0; k < 6; k++) {
        tally_objective_local_gradient(world.objective, 2, x, 2, &rng, gradient, NULL);
        for (size_t i = 0; i < DIM; i++) {
            sum[i] += gradient[i];
            x[i] -= 0.05 * gradient[i];
        }
    }
    for (size_t i = 0; i < DIM; i++) {
        CU_ASSERT_DOUBLE_EQUAL((double)avg[i], -0.05 * sum[i], 1e-6);
        CU_ASSERT_DOUBLE_EQUAL((double)com[i], sum[i], 1e-5);
    }
    fini(&world);
}

/* All at one point: the local loss there. Local steps: f at the client's own iterates. */
static void test_algorithms_baseline__loss_is_of_the_own_iterates(void)
{
    struct world world;
    init(&world);
    double x[DIM], losses[6];
    for (size_t a = 0; a < N_BASELINES; a++) {
        for (uint32_t client = 0; client < CLIENTS; client++) {
            walk(&world, client, 9, x, losses);
            double expected = 0;
            for (int k = 0; k < 6; k++) {
                expected += losses[k] / 6;
            }
            if (a == 0) {
                expected = local_loss_of(world.objective, client, world.x);
            }
            step_ok(&world, BASELINES[a], client, 9, true);
            CU_ASSERT_DOUBLE_EQUAL(world.answer.loss, expected, 1e-12 * expected);
        }
    }
    fini(&world);
}

/* What evaluate_every promises: f at every n-th step and the last, linear in between. */
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
    struct world world;
    init(&world);
    static double losses[1300];
    /* Over 512 evaluations take more than one batch of them. */
    static const int64_t samples[] = {1, 2, 5, 6, 10, 11, 21, 513, 514, 1025, 1300};
    static const int64_t every[] = {1, 2, 3, 5, 10, 20, 511, 2000, INT32_MAX};
    double x[DIM];
    world.params.baseline.step_size = 0.02;
    for (size_t s = 0; s < sizeof samples / sizeof samples[0]; s++) {
        world.plan.samples = samples[s];
        walk(&world, 1, 4, x, losses);
        for (size_t e = 0; e < sizeof every / sizeof every[0]; e++) {
            world.setting.evaluate_every = every[e];
            const double expected = interpolated(losses, samples[s], every[e]);
            for (size_t a = 1; a < N_BASELINES; a++) {
                step_ok(&world, BASELINES[a], 1, 4, true);
                CU_ASSERT_DOUBLE_EQUAL(world.answer.loss, expected, 1e-12 * expected);
            }
        }
    }
    fini(&world);
}

/* Looking does not change what is sent. */
static void test_algorithms_baseline__evaluation_leaves_the_message_alone(void)
{
    struct world world;
    init(&world);
    for (size_t a = 0; a < N_BASELINES; a++) {
        uint8_t before[4 * DIM];
        step_ok(&world, BASELINES[a], 3, 2, false);
        const size_t n = world.answer.message.payload.size;
        CU_ASSERT_FATAL(n <= sizeof before);
        memcpy(before, world.answer.message.payload.data, n);
        for (world.setting.evaluate_every = 1; world.setting.evaluate_every < 9;
             world.setting.evaluate_every++) {
            step_ok(&world, BASELINES[a], 3, 2, true);
            CU_ASSERT_EQUAL(world.answer.message.payload.size, n);
            CU_ASSERT_EQUAL(memcmp(world.answer.message.payload.data, before, n), 0);
        }
    }
    fini(&world);
}

/* A cut round makes its steps and tells the loss, no more. */
/* The steps between two rounds too: message and loss are those of a walk that is projected. */
static void test_algorithms_baseline__own_steps_stay_in_the_domain(void)
{
    struct world world;
    init(&world);
    double free_end[DIM], end[DIM], losses[6];
    walk(&world, 1, 4, free_end, NULL);
    world.setting.domain =
        (struct tally_domain){.type = TALLY_DOMAIN_BOX, .lower = -0.4, .upper = 0.5};
    tally_domain_project(&world.setting.domain, world.x, DIM);
    walk(&world, 1, 4, end, losses);
    CU_ASSERT_TRUE(tally_domain_is_inside(&world.setting.domain, end, DIM));
    CU_ASSERT_NOT_EQUAL(memcmp(end, free_end, sizeof end), 0);
    double sum = 0;
    for (int k = 0; k < 6; k++) {
        sum += losses[k];
    }
    for (size_t a = 1; a < N_BASELINES; a++) {
        step_ok(&world, BASELINES[a], 1, 4, true);
        CU_ASSERT_EQUAL(memcmp(world.scratch.local, end, sizeof end), 0);
        CU_ASSERT_DOUBLE_EQUAL(world.answer.loss, sum / 6, 1e-12);
    }
    fini(&world);
}

static void test_algorithms_baseline__cut_rounds_send_nothing(void)
{
    struct world world;
    init(&world);
    double x[DIM], losses[4];
    world.plan.samples = 4;
    world.plan.cut = true;
    walk(&world, 0, 3, x, losses);
    const double mean = (losses[0] + losses[1] + losses[2] + losses[3]) / 4;
    for (size_t a = 0; a < N_BASELINES; a++) {
        const double expected = a == 0 ? local_loss_of(world.objective, 0, world.x) : mean;
        world.answer.loss = -1;
        step_ok(&world, BASELINES[a], 0, 3, true);
        CU_ASSERT_DOUBLE_EQUAL(world.answer.loss, expected, 1e-12 * expected);
        CU_ASSERT_EQUAL(world.answer.message.payload.size, 0);
        CU_ASSERT_EQUAL(world.answer.message.bits.messages, 0);
    }
    fini(&world);
}

/* The messages of all clients in one round. */
struct round {
    struct tally_message_view views[CLIENTS];
    uint8_t bytes[CLIENTS][4 * DIM];
};

static void compute_round(struct world *world, const struct tally_algorithm *algorithm,
                          struct round *round)
{
    for (uint32_t m = 0; m < CLIENTS; m++) {
        step_ok(world, algorithm, m, 8, false);
        round->views[m] = tally_message_view(&world->answer.message);
        CU_ASSERT_FATAL(round->views[m].n_payload <= sizeof round->bytes[m]);
        memcpy(round->bytes[m], round->views[m].payload, round->views[m].n_payload);
        round->views[m].payload = round->bytes[m];
    }
}

static enum tally_status receive(struct world *world, const struct tally_algorithm *algorithm,
                                 const struct tally_message_view *view, int64_t *sums,
                                 struct tally_bits *ret_bits, struct tally_error *err)
{
    return algorithm->receive(&world->setting, &world->plan, view, &world->scratch, sums, ret_bits,
                              err);
}

/* The values that a message stands for, by the codec. */
static void values_of(const struct tally_algorithm *algorithm,
                      const struct tally_message_view *view, double *ret_values)
{
    float values[DIM] = {0};
    int32_t levels[DIM] = {0};
    struct tally_qsgd qsgd = {.norm = 0};
    enum tally_status status =
        is_qsgd(algorithm) ? tally_qsgd_decode(view->payload, view->n_payload, view->payload_bits,
                                               5, DIM, &qsgd, levels, NULL)
                           : tally_float32_decode(view->payload, view->n_payload,
                                                  view->payload_bits, DIM, values, NULL);
    CU_ASSERT_EQUAL_FATAL(status, TALLY_OK);
    for (size_t i = 0; i < DIM; i++) {
        ret_values[i] = is_qsgd(algorithm) ? (double)qsgd.norm / 5 * levels[i] : (double)values[i];
    }
}

static void test_algorithms_baseline__sums_do_not_depend_on_the_order(void)
{
    struct world world;
    init(&world);
    for (size_t a = 0; a < N_BASELINES; a++) {
        struct round round;
        compute_round(&world, BASELINES[a], &round);
        int64_t expected[DIM] = {0};
        for (size_t m = 0; m < CLIENTS; m++) {
            double values[DIM];
            values_of(BASELINES[a], &round.views[m], values);
            for (size_t i = 0; i < DIM; i++) {
                expected[i] += llrint(values[i] * 0x1p40);
            }
        }
        int orders = 0;
        for (size_t code = 0; code < 256; code++) { /* all 24 permutations among them */
            const size_t order[4] = {code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6};
            if ((1u << order[0] | 1u << order[1] | 1u << order[2] | 1u << order[3]) != 15) {
                continue;
            }
            int64_t sums[DIM] = {0};
            for (size_t m = 0; m < CLIENTS; m++) {
                struct tally_bits bits = {.clipped = 7};
                CU_ASSERT_EQUAL(
                    receive(&world, BASELINES[a], &round.views[order[m]], sums, &bits, NULL),
                    TALLY_OK);
                CU_ASSERT_EQUAL(bits.messages, 1);
                CU_ASSERT_EQUAL(bits.clipped, 0);
                CU_ASSERT_EQUAL(bits.formula_bits, is_qsgd(BASELINES[a]) ? 60 : 224);
                CU_ASSERT_EQUAL(bits.payload_bits, bits.formula_bits);
            }
            CU_ASSERT_EQUAL(memcmp(sums, expected, sizeof sums), 0);
            orders++;
        }
        CU_ASSERT_EQUAL(orders, 24);
    }
    fini(&world);
}

static void expect_nothing_added(struct world *world, const struct tally_algorithm *algorithm,
                                 const struct tally_message_view *view, enum tally_status status)
{
    int64_t sums[DIM] = {11, -22, 33};
    struct tally_bits bits;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(receive(world, algorithm, view, sums, &bits, &err), status, &err);
    TALLY_ASSERT_TEXT(err.field, "payload");
    CU_ASSERT_TRUE(sums[0] == 11 && sums[1] == -22 && sums[2] == 33);
    for (size_t i = 3; i < DIM; i++) {
        CU_ASSERT_EQUAL(sums[i], 0);
    }
}

static void test_algorithms_baseline__malformed_messages_add_nothing(void)
{
    struct world world;
    init(&world);
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
        /* The other kind of message, well formed. */
        struct round other;
        compute_round(&world, BASELINES[(a + 2) % 4], &other);
        expect_nothing_added(&world, BASELINES[a], &other.views[0], TALLY_MALFORMED);
        /* The last four bytes of the float32 and the norm of qsgd: infinity. */
        const size_t at = is_qsgd(BASELINES[a]) ? 0 : 4 * (DIM - 1);
        memcpy(round.bytes[0] + at, (const uint8_t[4]){0x00, 0x00, 0x80, 0x7f}, 4);
        expect_nothing_added(&world, BASELINES[a], &round.views[0],
                             is_qsgd(BASELINES[a]) ? TALLY_MALFORMED : TALLY_NOT_FINITE);
    }
    fini(&world);
}

/* 2^22 / 4 can be added up for 4 clients; the next float32 is refused. */
static void test_algorithms_baseline__messages_above_the_sum_s_range_are_refused(void)
{
    struct world world;
    init(&world);
    const float bound = 0x1p20f;
    for (size_t a = 0; a < N_BASELINES; a++) {
        for (int above = 0; above < 2; above++) {
            const float value = above ? nextafterf(bound, INFINITY) : bound;
            uint8_t bytes[4 * DIM] = {0};
            struct tally_message_view view = {.payload = bytes, .n_payload = sizeof bytes};
            if (is_qsgd(BASELINES[a])) {
                const struct tally_qsgd qsgd = {.levels = 5, .norm = value};
                const int32_t levels[DIM] = {-5, 5, 5, -5, 5, 5, 5};
                view.payload_bits = tally_qsgd_bits(5, DIM);
                view.n_payload = (size_t)(view.payload_bits + 7) / 8;
                CU_ASSERT_EQUAL(tally_qsgd_encode(&qsgd, levels, DIM, bytes, view.n_payload),
                                TALLY_OK);
            } else {
                const float values[DIM] = {1, 1, 1, 1, 1, 1, -value};
                CU_ASSERT_EQUAL(tally_float32_encode(values, DIM, bytes, sizeof bytes,
                                                     &view.payload_bits, NULL),
                                TALLY_OK);
            }
            if (above) {
                expect_nothing_added(&world, BASELINES[a], &view, TALLY_MALFORMED);
                continue;
            }
            int64_t sums[DIM] = {0};
            struct tally_bits bits;
            for (int m = 0; m < CLIENTS; m++) { /* -fsanitize=undefined would see an overflow */
                CU_ASSERT_EQUAL(receive(&world, BASELINES[a], &view, sums, &bits, NULL), TALLY_OK);
            }
            CU_ASSERT_EQUAL(sums[is_qsgd(BASELINES[a]) ? 0 : DIM - 1], -(INT64_C(1) << 62));
        }
    }
    fini(&world);
}

/* x + scale * mean, rounded to float32; scale is -eta, 1, 1 and -eta * server_step_size. */
static void test_algorithms_baseline__server_moves_as_the_papers_say(void)
{
    struct world world;
    init(&world);
    const double scales[N_BASELINES] = {-0.05, 1, 1, -0.05 * 3};
    for (size_t a = 0; a < N_BASELINES; a++) {
        for (int64_t received = 1; received <= CLIENTS; received++) {
            struct round round;
            compute_round(&world, BASELINES[a], &round);
            int64_t sums[DIM] = {0};
            long double mean[DIM] = {0}, square = 0;
            for (int64_t m = 0; m < received; m++) {
                double values[DIM];
                struct tally_bits bits;
                values_of(BASELINES[a], &round.views[m], values);
                CU_ASSERT_EQUAL(receive(&world, BASELINES[a], &round.views[m], sums, &bits, NULL),
                                TALLY_OK);
                for (size_t i = 0; i < DIM; i++) {
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
            CU_ASSERT_EQUAL(broadcast->bits.formula_bits, 32 * DIM);
            CU_ASSERT_EQUAL(broadcast->bits.payload_bits, 32 * DIM);
            CU_ASSERT_EQUAL(broadcast->bits.messages, 1);
            CU_ASSERT_EQUAL(broadcast->bits.clipped, 0);
            struct tally_message_view view = tally_message_view(broadcast);
            double x[DIM];
            memcpy(x, world.x, sizeof x);
            CU_ASSERT_EQUAL(BASELINES[a]->apply(&world.setting, &view, &world.scratch, x, NULL),
                            TALLY_OK);
            for (size_t i = 0; i < DIM; i++) {
                square += mean[i] * mean[i];
                const double expected = (double)(world.x[i] + scales[a] * mean[i]);
                CU_ASSERT_EQUAL(x[i], (double)(float)x[i]); /* float32, on both sides */
                CU_ASSERT_DOUBLE_EQUAL(x[i], expected, 1e-7 * (1 + fabs(expected)));
            }
            CU_ASSERT_DOUBLE_EQUAL(world.decision.norm, (double)sqrtl(square), 1e-11);
            CU_ASSERT_TRUE(world.decision.norm > 1e-3);
        }
    }
    fini(&world);
}

static void test_algorithms_baseline__malformed_broadcasts_move_nothing(void)
{
    struct world world;
    init(&world);
    const float values[DIM] = {1, 2, 3, 4, 5, 6, 7};
    uint8_t bytes[4 * DIM];
    uint64_t bits;
    CU_ASSERT_EQUAL(tally_float32_encode(values, DIM, bytes, sizeof bytes, &bits, NULL), TALLY_OK);
    for (size_t a = 0; a < N_BASELINES; a++) {
        struct tally_message_view bad[3];
        for (size_t i = 0; i < 3; i++) {
            bad[i] = (struct tally_message_view){
                .payload = bytes, .n_payload = sizeof bytes, .payload_bits = bits};
        }
        uint8_t nan[4 * DIM];
        memcpy(nan, bytes, sizeof nan);
        nan[4 * DIM - 2] = nan[4 * DIM - 1] = 0xff;
        bad[0].payload_bits++;
        bad[1].n_payload -= 4;
        bad[2].payload = nan;
        double x[DIM];
        memcpy(x, world.x, sizeof x);
        for (size_t i = 0; i < 3; i++) {
            struct tally_error err = TALLY_ERROR_INIT;
            TALLY_ASSERT_STATUS(
                BASELINES[a]->apply(&world.setting, &bad[i], &world.scratch, x, &err),
                i == 2 ? TALLY_NOT_FINITE : TALLY_MALFORMED, &err);
            CU_ASSERT_EQUAL(memcmp(x, world.x, sizeof x), 0);
        }
    }
    fini(&world);
}

/* From a wild point on, whatever comes out first: infinity, NaN, or a number that is finite but
 * above what the server can add up. The same reason for all, naming client and step size. */
static void test_algorithms_baseline__divergence_is_not_finite_and_names_the_step_size(void)
{
    static const struct {
        double step_size, x0;
        int64_t samples;
    } rows[] = {
        {0.05, 1e160, 6}, /* f overflows though the point does not */
        {0.05, 1e300, 6}, /* float32 overflows at once */
        {1e9, 0.5, 400},  /* a double overflows on the way */
        {1e9, 0.5, 6},    /* above float32 */
        {1e3, 2e7, 1},    /* finite, but too large to add up */
        {1e-9, 1e17, 6},  /* the same for gradients alone */
    };
    struct world world;
    init(&world);
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        world.params.baseline.step_size = rows[r].step_size;
        world.plan.samples = rows[r].samples;
        world.x[0] = rows[r].x0;
        for (size_t a = 0; a < N_BASELINES; a++) {
            const bool stays = a == 0 && rows[r].x0 < 1; /* gradients at a tame point */
            struct tally_error err = TALLY_ERROR_INIT;
            TALLY_ASSERT_STATUS(step(&world, BASELINES[a], 3, 2, false, &err),
                                stays ? TALLY_OK : TALLY_NOT_FINITE, &err);
            char expected[100];
            snprintf(expected, sizeof expected,
                     "the steps of client 3 diverged; step_size %g is too large",
                     rows[r].step_size);
            TALLY_ASSERT_TEXT(err.message, stays ? "" : expected);
            CU_ASSERT_EQUAL(step(&world, BASELINES[a], 3, 2, true, NULL),
                            stays ? TALLY_OK : TALLY_NOT_FINITE);
        }
    }
    fini(&world);
}

/* The server may overflow where no client did. */
static void test_algorithms_baseline__new_point_above_float32_is_not_finite(void)
{
    struct world world;
    init(&world);
    world.x[DIM - 1] = 3.5e38;
    const int64_t sums[DIM] = {0};
    for (size_t a = 0; a < N_BASELINES; a++) {
        struct tally_error err = TALLY_ERROR_INIT;
        const struct tally_server_task task = {.setting = &world.setting,
                                               .plan = &world.plan,
                                               .sums = sums,
                                               .received = CLIENTS,
                                               .round = 8,
                                               .x = world.x};
        TALLY_ASSERT_STATUS(BASELINES[a]->decide(&task, &world.scratch, &world.decision, &err),
                            TALLY_NOT_FINITE, &err);
        TALLY_ASSERT_TEXT(err.message, "the new point: coordinate 6 is not finite");
    }
    fini(&world);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_algorithms_baseline__fields_are_those_of_the_documents),
    TALLY_TEST(test_algorithms_baseline__table_and_files_agree),
    TALLY_TEST(test_algorithms_baseline__every_plan_is_local_steps_without_a_grid),
    TALLY_TEST(test_algorithms_baseline__clients_send_what_their_papers_say),
    TALLY_TEST(test_algorithms_baseline__differences_are_sums_of_gradients),
    TALLY_TEST(test_algorithms_baseline__loss_is_of_the_own_iterates),
    TALLY_TEST(test_algorithms_baseline__loss_is_linear_between_evaluations),
    TALLY_TEST(test_algorithms_baseline__evaluation_leaves_the_message_alone),
    TALLY_TEST(test_algorithms_baseline__own_steps_stay_in_the_domain),
    TALLY_TEST(test_algorithms_baseline__cut_rounds_send_nothing),
    TALLY_TEST(test_algorithms_baseline__sums_do_not_depend_on_the_order),
    TALLY_TEST(test_algorithms_baseline__malformed_messages_add_nothing),
    TALLY_TEST(test_algorithms_baseline__messages_above_the_sum_s_range_are_refused),
    TALLY_TEST(test_algorithms_baseline__server_moves_as_the_papers_say),
    TALLY_TEST(test_algorithms_baseline__malformed_broadcasts_move_nothing),
    TALLY_TEST(test_algorithms_baseline__divergence_is_not_finite_and_names_the_step_size),
    TALLY_TEST(test_algorithms_baseline__new_point_above_float32_is_not_finite),
};
TALLY_SUITE(algorithms_baseline, TESTS);
