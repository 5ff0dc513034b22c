/* The curvature that a client of CALM measures, and the step size that the server makes of it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codec/dithered/dithered.h"
#include "services/algorithms/calm.h"
#include "tests/harness.h"

enum { DIM = 30, POINTS = 20 };

/* f of the tests: the mean of scale <a, w - x*>^2 / 2 over POINTS normal points a, or scale |w -
 * x*|^2 / 2 if `is_round`, where coordinate 0 may be steeper; a query adds noise that is drawn or,
 * if `forgets`, never the same. */
struct fake {
    struct tally_objective base;
    double scale, noise;
    double first; /* curvature along coordinate 0, as a multiple of the others */
    bool is_round, forgets, saturates;
    double points[POINTS][DIM];
    int n_queries;
    double losses[64], firsts[64]; /* at each query: f, and the first coordinate of the gradient */
};

static double loss_at(const double *w)
{
    double squares = 0;
    for (int j = 0; j < DIM; j++) {
        squares += (w[j] - 1) * (w[j] - 1);
    }
    return squares / 2;
}

static enum tally_status losses(const struct tally_objective *objective, const double *points,
                                size_t n, double *ret_losses, struct tally_error *err)
{
    (void)objective;
    (void)err;
    for (size_t i = 0; i < n; i++) {
        ret_losses[i] = loss_at(points + i * DIM);
    }
    return TALLY_OK;
}

static enum tally_status gradient(const struct tally_objective *objective, uint32_t client,
                                  const double *w, int64_t n, struct tally_rng *rng,
                                  double *ret_gradient, struct tally_error *err)
{
    struct fake *fake = (struct fake *)(uintptr_t)objective;
    const double *a = fake->points[tally_rng_below(rng, POINTS)];
    double product = 0, noise[DIM];
    (void)client;
    (void)n;
    (void)err;
    tally_rng_normal(rng, noise, DIM);
    fake->losses[fake->n_queries++] = loss_at(w);
    for (int j = 0; j < DIM; j++) {
        product += a[j] * (w[j] - 1);
    }
    for (int j = 0; j < DIM; j++) {
        ret_gradient[j] =
            fake->scale * (fake->is_round ? w[j] - 1 : product * a[j]) + fake->noise * noise[j];
        if (j == 0 && fake->first > 0) {
            ret_gradient[j] += fake->scale * (fake->first - 1) * (w[j] - 1);
        }
        if (fake->saturates) {
            ret_gradient[j] = fmax(-1e-3, fmin(1e-3, ret_gradient[j]));
        }
        ret_gradient[j] += fake->forgets ? fake->noise * sin(fake->n_queries * (j + 1)) : 0;
    }
    fake->firsts[fake->n_queries - 1] = ret_gradient[0];
    return TALLY_OK;
}

static const struct tally_objective_ops OPS = {.local_gradient = gradient, .losses = losses},
                                        PROGRAM_OPS = {.local_gradient = gradient,
                                                       .is_program = true};

static struct fake make_fake(double scale, bool is_round)
{
    struct fake fake = {
        .base = {.ops = &OPS, .dim = DIM, .clients = 1}, .scale = scale, .is_round = is_round};
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(5, 0), 0, 0, TALLY_RNG_COVARIATES);
    for (int i = 0; i < POINTS; i++) {
        tally_rng_normal(&rng, fake.points[i], DIM);
    }
    return fake;
}

struct measured {
    enum tally_status status;
    double variance, loss;
    struct calm_curvature curvature;
    struct tally_error err;
};

/* `samples`: of the plan; 0 = those of an opening round. */
static struct measured measure_with(struct fake *fake, uint32_t client, const double *x,
                                    bool is_judged, int64_t samples)
{
    static const union tally_algorithm_params PARAMS = {
        .calm = {.step_size = NAN, .noise = NAN, .initial_variance = NAN}};
    const struct tally_setting setting = {.params = &PARAMS,
                                          .clients = 1,
                                          .dim = DIM,
                                          .horizon = 100,
                                          .minibatch = 1,
                                          .is_program = fake->base.ops->is_program,
                                          .key = tally_rng_key(17, 0)};
    const struct tally_round_plan plan = {.samples = samples != 0 ? samples
                                                                  : calm_opening_samples(&setting)};
    const struct tally_client_task task = {.setting = &setting,
                                           .plan = &plan,
                                           .objective = &fake->base,
                                           .client = client,
                                           .round = 1,
                                           .x = x};
    struct measured measured = {.err = TALLY_ERROR_INIT};
    struct tally_scratch scratch;
    CU_ASSERT_EQUAL_FATAL(tally_scratch_init(&scratch, DIM, TALLY_SCRATCH_CLIENT, NULL), TALLY_OK);
    CU_ASSERT_EQUAL_FATAL(tally_scratch_widen(&scratch, DIM, NULL), TALLY_OK);
    fake->n_queries = 0;
    measured.status = calm_measure(&task, &scratch, &measured.variance, &measured.curvature,
                                   is_judged ? &measured.loss : NULL, &measured.err);
    tally_scratch_fini(&scratch);
    return measured;
}

static struct measured measure(struct fake *fake, uint32_t client, const double *x, bool is_judged)
{
    return measure_with(fake, client, x, is_judged, 0);
}

/* A worker takes the number from the task that a coordinator sends. Each query has room of its own,
 * so no other number may be believed. */
static void test_calm_curvature__refuses_a_number_of_queries(void)
{
    static const int64_t NUMBERS[] = {INT64_MIN,
                                      -1,
                                      1,
                                      CALM_OPENING_SAMPLES,
                                      CALM_OPENING_SAMPLES + 1,
                                      CALM_OPENING_SAMPLES + 3,
                                      CALM_OPENING_SAMPLES + CALM_PROGRAM_PROBES,
                                      60,
                                      (INT64_C(1) << 32) + CALM_OPENING_SAMPLES + 2,
                                      INT64_MAX};
    const double x[DIM] = {0};
    for (size_t i = 0; i < sizeof NUMBERS / sizeof NUMBERS[0]; i++) {
        struct fake fake = make_fake(1, true);
        const struct measured m = measure_with(&fake, 0, x, true, NUMBERS[i]);
        CU_ASSERT_EQUAL(m.status, TALLY_OUT_OF_RANGE);
        CU_ASSERT_STRING_EQUAL(m.err.field, "samples");
        CU_ASSERT_EQUAL(fake.n_queries, 0);
    }
}

/* Whatever the units of x and of f, and with noise a thousand times the gradient. */
static void test_calm_curvature__is_exact_at_every_scale(void)
{
    static const double SCALES[] = {1e-12, 1e-6, 1, 1e6, 1e12}, STARTS[] = {0, 1e-6, 2, 1e6};
    for (size_t i = 0; i < sizeof SCALES / sizeof SCALES[0]; i++) {
        for (size_t k = 0; k < sizeof STARTS / sizeof STARTS[0]; k++) {
            double x[DIM];
            for (int j = 0; j < DIM; j++) {
                x[j] = STARTS[k] * (j % 2 == 0 ? 1 : -1);
            }
            struct fake fake = make_fake(SCALES[i], true);
            fake.noise = SCALES[i] * (k == 2 ? 1000 : 1);
            const struct measured m = measure(&fake, 0, x, false);
            TALLY_ASSERT_STATUS(m.status, TALLY_OK, &m.err);
            CU_ASSERT_EQUAL(fake.n_queries, CALM_OPENING_SAMPLES + 2);
            CU_ASSERT_DOUBLE_EQUAL(m.curvature.along / SCALES[i], 1, 1e-6);
            CU_ASSERT_DOUBLE_EQUAL(m.curvature.steep / SCALES[i], 1, 1e-6);
            CU_ASSERT_DOUBLE_EQUAL(m.curvature.sample / SCALES[i], 1, 1e-6);
        }
    }
}

/* With few points, another draw is often the same point. A direction that contained its gradient
 * would show six times its curvature. */
static void test_calm_curvature__draws_are_independent_of_the_direction(void)
{
    enum { CLIENTS = 500 };
    struct fake fake = make_fake(1, false);
    const double x[DIM] = {0};
    double along = 0, steep = 0, sample = 0, trace = 0;
    for (int i = 0; i < POINTS; i++) {
        for (int j = 0; j < DIM; j++) {
            trace += fake.points[i][j] * fake.points[i][j] / POINTS;
        }
    }
    for (uint32_t m = 0; m < CLIENTS; m++) {
        const struct measured measured = measure(&fake, m, x, false);
        TALLY_ASSERT_STATUS(measured.status, TALLY_OK, &measured.err);
        along += measured.curvature.along / CLIENTS;
        steep += measured.curvature.steep / CLIENTS;
        sample += measured.curvature.sample / CLIENTS;
    }
    CU_ASSERT_DOUBLE_EQUAL(along, 1, 0.15); /* of independent directions, trace / DIM */
    CU_ASSERT_DOUBLE_EQUAL(steep, 1, 0.15);
    CU_ASSERT_DOUBLE_EQUAL(sample / trace, 1, 0.03);
}

/* A gradient may hardly contain the steepest direction. Its change contains it squared. If the
 * change is far from the gradient, that is more likely to be the noise of the sample. A program's f
 * need not be convex, and it never turns. */
static void test_calm_curvature__the_second_query_turns_to_the_steepest_direction(void)
{
    static const struct {
        double first, noise;
        const struct tally_objective_ops *ops;
        bool turns;
    } ROWS[] = {{10, 0, &OPS, true},
                {10, 1e-4, &OPS, true},
                {100, 0, &OPS, true},
                {100, 1e-4, &OPS, false},
                {10, 0, &PROGRAM_OPS, false}};
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        const double h = ROWS[i].first, rest = DIM - 1;
        double x[DIM] = {0};
        x[0] = 1 - 1 / h; /* the gradient is -1 along each coordinate */
        struct fake fake = make_fake(1, true);
        fake.base.ops = ROWS[i].ops;
        fake.first = h;
        fake.noise = ROWS[i].noise;
        const struct measured m = measure(&fake, 0, x, false);
        TALLY_ASSERT_STATUS(m.status, TALLY_OK, &m.err);
        const double along = (h + rest) / DIM, steep = (h * h * h + rest) / (h * h + rest);
        CU_ASSERT_DOUBLE_EQUAL(m.curvature.along / along, 1, 0.01);
        CU_ASSERT_DOUBLE_EQUAL(m.curvature.steep / (ROWS[i].turns ? steep : along), 1, 0.01);
    }
}

/* One query of a client may be lost to a wrong length; no other value comes of it. Nor does one of
 * a program, which makes more, as it makes the first at x: a network's start is 0 in the units of
 * the job, so that the first length is a bad guess. */
static void test_calm_curvature__a_wrong_length_does_not_count(void)
{
    double x[DIM];
    for (int j = 0; j < DIM; j++) {
        x[j] = 1 + (j == 0 ? 1e-4 : 0); /* far nearer to x* than the guess, 1 % of |x| */
    }
    struct fake fake = make_fake(1, true);
    const struct measured m = measure(&fake, 0, x, false);
    TALLY_ASSERT_STATUS(m.status, TALLY_OK, &m.err);
    CU_ASSERT_DOUBLE_EQUAL(m.curvature.along, 1, 1e-6);
    fake.base.ops = &PROGRAM_OPS;
    const struct measured of_program = measure(&fake, 0, x, false);
    TALLY_ASSERT_STATUS(of_program.status, TALLY_OK, &of_program.err);
    CU_ASSERT_DOUBLE_EQUAL(of_program.curvature.along, 1, 1e-6);
    fake.base.ops = &OPS;
    fake.saturates = true; /* as a logistic loss far from its data: the change shows no curvature */
    const struct measured far = measure(&fake, 0, x, false);
    TALLY_ASSERT_STATUS(far.status, TALLY_OK, &far.err);
    CU_ASSERT_TRUE(far.curvature.sample == 0 || fabs(far.curvature.along - 1) < 0.05);
}

/* The mean over six queries at x and two near it. */
static void test_calm_curvature__the_loss_is_that_of_all_queries(void)
{
    double x[DIM] = {0}, expected = 0;
    struct fake fake = make_fake(1, true);
    const struct measured m = measure(&fake, 0, x, true);
    TALLY_ASSERT_STATUS(m.status, TALLY_OK, &m.err);
    for (int i = 0; i < CALM_OPENING_SAMPLES + 2; i++) {
        expected += fake.losses[i] / (CALM_OPENING_SAMPLES + 2);
    }
    CU_ASSERT_DOUBLE_EQUAL(m.loss, expected, 1e-12);
    CU_ASSERT_NOT_EQUAL(fake.losses[7], fake.losses[0]);
}

/* The vector of the message after the opening round: `repeats` of its queries, and `samples` more.
 */
static enum tally_status step_after(struct fake *fake, uint32_t round, int64_t repeats,
                                    int64_t samples, const double *x, double *ret_vector,
                                    struct tally_error *err)
{
    static const union tally_algorithm_params PARAMS = {
        .calm = {.step_size = 1, .noise = 1, .initial_variance = 1, .local_step_limit = NAN}};
    const struct tally_setting setting = {.params = &PARAMS,
                                          .clients = 1,
                                          .dim = DIM,
                                          .horizon = 100,
                                          .minibatch = 1,
                                          .key = tally_rng_key(17, 0)};
    const struct tally_round_plan plan = {
        .stage = 1,
        .samples = samples,
        .grid = {.step = 0.5, .intervals = 2 * tally_dithered_top(1), .scale = 8},
        .facts = {.distance = 1, .noise = 1, .step_size = 1, .repeats = repeats}};
    const struct tally_client_task task = {
        .setting = &setting, .plan = &plan, .objective = &fake->base, .round = round, .x = x};
    struct tally_scratch scratch;
    struct tally_client_answer answer = {.loss = 0};
    CU_ASSERT_EQUAL_FATAL(tally_scratch_init(&scratch, DIM, TALLY_SCRATCH_CLIENT, NULL), TALLY_OK);
    fake->n_queries = 0;
    const enum tally_status status = calm_client_step(&task, &scratch, &answer, err);
    for (int j = 0; j < DIM; j++) {
        ret_vector[j] = scratch.vector[j];
    }
    tally_buffer_fini(&answer.message.payload);
    tally_scratch_fini(&scratch);
    return status;
}

/* The draws are those of the opening; later queries are made where these lead. The message is x* -
 * x less the mean of the noise, wherever that is. */
static void test_calm_curvature__the_message_includes_the_opening(void)
{
    double x[DIM] = {0}, vector[DIM], opening[CALM_OPENING_SAMPLES], noise = 0;
    struct tally_error err = TALLY_ERROR_INIT;
    struct fake fake = make_fake(1, true);
    fake.noise = 0.5;
    (void)measure(&fake, 0, x, false); /* in round 1 */
    memcpy(opening, fake.firsts, sizeof opening);
    TALLY_ASSERT_STATUS(step_after(&fake, 2, CALM_OPENING_SAMPLES, 3, x, vector, &err), TALLY_OK,
                        &err);
    CU_ASSERT_EQUAL(fake.n_queries, CALM_OPENING_SAMPLES + 3);
    CU_ASSERT_EQUAL(memcmp(opening, fake.firsts, sizeof opening), 0);
    CU_ASSERT_EQUAL(fake.losses[CALM_OPENING_SAMPLES - 1], fake.losses[0]);
    CU_ASSERT_TRUE(fake.losses[CALM_OPENING_SAMPLES] < 0.5 * fake.losses[0]);
    fake.noise = 0;
    TALLY_ASSERT_STATUS(step_after(&fake, 2, CALM_OPENING_SAMPLES, 3, x, vector, &err), TALLY_OK,
                        &err);
    CU_ASSERT_DOUBLE_EQUAL(vector[0], 1, 1e-6);
    fake.noise = 0.5; /* the same queries without moves */
    TALLY_ASSERT_STATUS(step_after(&fake, 2, CALM_OPENING_SAMPLES, 0, x, vector, &err), TALLY_OK,
                        &err);
    for (int i = 0; i < CALM_OPENING_SAMPLES; i++) {
        noise -= opening[i] / CALM_OPENING_SAMPLES;
    }
    CU_ASSERT_DOUBLE_EQUAL(vector[0], noise, 1e-6);
}

/* A coordinator of another release, or a hostile one, may ask for what there was not. */
static void test_calm_curvature__refuses_what_the_opening_did_not_have(void)
{
    static const int64_t ROWS[][3] = {{2, 7, 3}, {1, 1, 3}, {2, 1 << 30, 3}, {2, 0, 0}};
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        double x[DIM] = {0}, vector[DIM];
        struct tally_error err = TALLY_ERROR_INIT;
        struct fake fake = make_fake(1, true);
        CU_ASSERT_EQUAL(
            step_after(&fake, (uint32_t)ROWS[i][0], ROWS[i][1], ROWS[i][2], x, vector, &err),
            TALLY_OUT_OF_RANGE);
        TALLY_ASSERT_TEXT(err.field, "repeats");
        CU_ASSERT_EQUAL(fake.n_queries, 0);
    }
}

static void test_calm_curvature__a_program_must_repeat_its_draws(void)
{
    const double x[DIM] = {0};
    struct fake fake = make_fake(1, true);
    fake.base.ops = &PROGRAM_OPS;
    fake.noise = 0.1;
    struct measured m = measure(&fake, 0, x, false);
    TALLY_ASSERT_STATUS(m.status, TALLY_OK, &m.err);
    CU_ASSERT_EQUAL(fake.n_queries, CALM_OPENING_SAMPLES + CALM_PROGRAM_PROBES);
    CU_ASSERT_DOUBLE_EQUAL(m.curvature.along, 1, 1e-6);
    fake.forgets = true;
    m = measure(&fake, 0, x, false);
    CU_ASSERT_EQUAL(m.status, TALLY_FAILED_PRECONDITION);
    TALLY_ASSERT_TEXT(m.err.field, "algorithm.step_size");
    CU_ASSERT_PTR_NOT_NULL(strstr(m.err.message, "does not repeat its draws"));
}

static void test_calm_curvature__without_a_gradient_there_is_none(void)
{
    double x[DIM];
    for (int j = 0; j < DIM; j++) {
        x[j] = 1; /* x* */
    }
    struct fake fake = make_fake(1, true);
    const struct measured m = measure(&fake, 0, x, false);
    TALLY_ASSERT_STATUS(m.status, TALLY_OK, &m.err);
    CU_ASSERT_TRUE(m.curvature.along == 0 && m.curvature.steep == 0 &&
                   m.curvature.sample == 0); /* the client could measure nothing */
}

/* The estimates from reports with these curvatures along gradients, and turned: `steep` times them.
 */
static enum tally_status conclude(const double *curvature, double steep, const double *steepest,
                                  int64_t n, struct tally_estimates *ret_estimates)
{
    static const union tally_algorithm_params PARAMS = {
        .calm = {.step_size = NAN, .noise = NAN, .initial_variance = NAN}};
    const struct tally_setting setting = {
        .params = &PARAMS, .clients = n > 1 ? 4 : 1, .dim = DIM, .horizon = 100, .minibatch = 1};
    const struct tally_round_plan plan = {.samples = 8};
    struct tally_report reports[4];
    uint64_t control = 0;
    for (int64_t m = 0; m < n; m++) {
        reports[m] = (struct tally_report){.variance = 1,
                                           .norm = 1,
                                           .curvature = (float)curvature[m],
                                           .steep = (float)(steep * curvature[m]),
                                           .steepest = steepest[m]};
    }
    struct tally_error err = TALLY_ERROR_INIT;
    const enum tally_status status =
        CALM_OPENING.conclude(&setting, &plan, reports, n, ret_estimates, &control, &err);
    CU_ASSERT_TRUE(status != TALLY_OK || control == 34);
    if (status != TALLY_OK) {
        TALLY_ASSERT_TEXT(err.field, "algorithm.step_size");
    } else { /* what the server adopts fits the bits that it sent */
        union tally_algorithm_params params = PARAMS;
        CU_ASSERT_TRUE(CALM_OPENING.adopt(&setting, ret_estimates, &params));
        CU_ASSERT_EQUAL(params.calm.step_size, ret_estimates->step_size);
        CU_ASSERT_EQUAL(params.calm.is_uneven, ret_estimates->noise_growth == -1);
        CU_ASSERT_EQUAL(params.calm.noise_growth, 0);
        const double v = params.calm.initial_variance / ret_estimates->step_size /
                         ret_estimates->step_size; /* the mean square 1 less the noise */
        CU_ASSERT_DOUBLE_EQUAL(v, 1 - 1.0 / CALM_OPENING_SAMPLES, 0.05);
    }
    return status;
}

/* c up to 4.2 times r / d: all directions are alike, and r is the better measure. */
static void test_calm_curvature__the_server_weighs_both_measures(void)
{
    struct tally_estimates found;
    const double r[] = {DIM, DIM, DIM, DIM}, alike[] = {0.2, 4, 1, 4.7}, steep[] = {8, 12, 8, 12},
                 flat[] = {-1, -1, 1, 1}, none[] = {0, 0, 0, 0}, some[] = {DIM, 0, 0, DIM};
    CU_ASSERT_EQUAL(conclude(alike, 1, r, 4, &found), TALLY_OK);
    CU_ASSERT_EQUAL(found.step_size, 1);
    CU_ASSERT_EQUAL(found.step_size_error, 0);
    CU_ASSERT_EQUAL(found.noise_growth, 0);                      /* this job does not use it */
    CU_ASSERT_EQUAL(conclude(steep, 1, r, 4, &found), TALLY_OK); /* 1 / 10, a 32nd octave */
    CU_ASSERT_DOUBLE_EQUAL(found.step_size * 10, 1, 0.012);
    CU_ASSERT_DOUBLE_EQUAL(found.step_size_error, sqrt(16.0 / 3 / 4) / 10, 1e-12);
    CU_ASSERT_EQUAL(found.noise_growth, -1);
    CU_ASSERT_EQUAL(conclude(steep, 2, r, 4, &found), TALLY_OK); /* 20, and a margin of sqrt(2) */
    CU_ASSERT_DOUBLE_EQUAL(found.step_size * 20 * sqrt(2), 1, 0.012);
    CU_ASSERT_EQUAL(conclude(steep, 0.5, r, 4, &found),
                    TALLY_OK); /* no less than along gradients */
    CU_ASSERT_DOUBLE_EQUAL(found.step_size * 10, 1, 0.012);
    CU_ASSERT_EQUAL(conclude(steep, 9, r, 4, &found), TALLY_OK); /* a margin of at most 2 */
    CU_ASSERT_DOUBLE_EQUAL(found.step_size * 180, 1, 0.012);
    CU_ASSERT_EQUAL(conclude(steep, 1, r, 1, &found), TALLY_OK);
    CU_ASSERT_EQUAL(found.step_size_error, 0);
    CU_ASSERT_EQUAL(found.noise_growth, 0); /* one client does not travel at once */
    CU_ASSERT_EQUAL(conclude(flat, 1, r, 4, &found), TALLY_FAILED_PRECONDITION);
    CU_ASSERT_EQUAL(conclude(none, 1, r, 4, &found), TALLY_FAILED_PRECONDITION);
    CU_ASSERT_EQUAL(conclude(alike, 1, none, 4, &found), TALLY_FAILED_PRECONDITION);
    CU_ASSERT_EQUAL(conclude((double[]){1, 99, 99, 1}, 1, some, 4, &found), TALLY_OK);
    CU_ASSERT_EQUAL(found.step_size, 1); /* of those that measured */
    CU_ASSERT_EQUAL(conclude((double[]){1e-12}, 1, (double[]){1e-12}, 1, &found),
                    TALLY_FAILED_PRECONDITION);
    CU_ASSERT_EQUAL(conclude((double[]){0x1p65}, 1, (double[]){0x1p64}, 1, &found),
                    TALLY_FAILED_PRECONDITION); /* 1 / h would be sent as 0 */
}

/* If points are of very different lengths, r / d is not the mean eigenvalue, and c is taken. */
static void test_calm_curvature__lengths_that_scatter_show_no_trace(void)
{
    struct tally_estimates found;
    const double c[] = {2, 2, 2, 2}, close[] = {20, 30, 30, 40}, apart[] = {5, 10, 15, 90};
    CU_ASSERT_EQUAL(conclude(c, 1, close, 4, &found), TALLY_OK);
    CU_ASSERT_DOUBLE_EQUAL(found.step_size, 1, 0.012);
    CU_ASSERT_EQUAL(conclude(c, 1, apart, 4, &found), TALLY_OK);
    CU_ASSERT_DOUBLE_EQUAL(found.step_size, 0.5, 0.012);
    CU_ASSERT_EQUAL(found.noise_growth, 0); /* nor does it show that some are flatter */
}

/* f = g + mu |x|^2 has no curvature below 2 mu. If that is more than a fourth of the measured one,
 * 1 / h is the best constant step of a gradient descent. */
static void test_calm_curvature__a_ridge_bounds_the_curvature(void)
{
    static const union tally_algorithm_params PARAMS = {
        .calm = {.step_size = NAN, .noise = NAN, .initial_variance = NAN}};
    static const double ROWS[][2] = {{0, 2}, {0.49, 2}, {0.51, 1.255}, {1, 1.5}};
    const struct tally_report report = {
        .variance = 1, .norm = 1, .curvature = 2, .steep = 2, .steepest = 3};
    const struct tally_report reports[] = {report, report, report, report};
    const struct tally_round_plan plan = {.samples = 8};
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        const struct tally_setting setting = {.params = &PARAMS,
                                              .clients = 4,
                                              .dim = DIM,
                                              .horizon = 100,
                                              .minibatch = 1,
                                              .convexity = ROWS[i][0]};
        struct tally_estimates found;
        uint64_t control = 0;
        CU_ASSERT_EQUAL(CALM_OPENING.conclude(&setting, &plan, reports, 4, &found, &control, NULL),
                        TALLY_OK);
        CU_ASSERT_DOUBLE_EQUAL(found.step_size * ROWS[i][1], 1, 0.03);
    }
}

/* If all is unknown and all directions are alike, one gradient's variance is s0 + m V. */
static void test_calm_curvature__noise_is_what_the_distance_leaves(void)
{
    static const union tally_algorithm_params PARAMS = {.calm = {.step_size = NAN,
                                                                 .noise = NAN,
                                                                 .client_spread = NAN,
                                                                 .initial_variance = NAN,
                                                                 .local_step_limit = NAN}};
    const double growth = DIM - 1; /* of h = 1 and one point a query */
    for (int i = 0; i < 3; i++) {
        /* As the sum of both; with a V that would make more noise than there is; not alike. */
        const double v = i == 1 ? 8 : 0.25, s = 2 + growth * 0.25;
        const float along = i == 2 ? 20 : 1;
        const struct tally_report report = {.variance = s,
                                            .norm = v + s / CALM_OPENING_SAMPLES,
                                            .curvature = along,
                                            .steep = along,
                                            .steepest = DIM};
        const struct tally_report reports[] = {report, report, report, report};
        const struct tally_setting setting = {
            .params = &PARAMS, .clients = 4, .dim = DIM, .horizon = 100, .minibatch = 1};
        const struct tally_round_plan plan = {.samples = 8};
        struct tally_estimates found;
        union tally_algorithm_params params = PARAMS;
        uint64_t control = 0;
        CU_ASSERT_EQUAL(CALM_OPENING.conclude(&setting, &plan, reports, 4, &found, &control, NULL),
                        TALLY_OK);
        CU_ASSERT_TRUE(CALM_OPENING.adopt(&setting, &found, &params));
        CU_ASSERT_DOUBLE_EQUAL(found.noise_growth, i == 2 ? -1 : growth, 1e-9);
        CU_ASSERT_EQUAL(params.calm.noise_growth, i == 2 ? 0 : found.noise_growth);
        CU_ASSERT_EQUAL(params.calm.is_uneven, i == 2);
        CU_ASSERT_EQUAL(params.calm.is_even, i < 2);
        if (i < 2) { /* to the precision of the codes */
            const double expected_v = i == 0 ? v : s / growth;
            CU_ASSERT_DOUBLE_EQUAL(params.calm.initial_variance / expected_v, 1, 0.05);
            CU_ASSERT_DOUBLE_EQUAL(params.calm.noise,
                                   fmax(s - growth * params.calm.initial_variance, 0), 0.15);
        } else {
            CU_ASSERT_DOUBLE_EQUAL(params.calm.noise / s, 1, 0.05);
        }
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_calm_curvature__is_exact_at_every_scale),
    TALLY_TEST(test_calm_curvature__draws_are_independent_of_the_direction),
    TALLY_TEST(test_calm_curvature__the_second_query_turns_to_the_steepest_direction),
    TALLY_TEST(test_calm_curvature__lengths_that_scatter_show_no_trace),
    TALLY_TEST(test_calm_curvature__a_wrong_length_does_not_count),
    TALLY_TEST(test_calm_curvature__refuses_a_number_of_queries),
    TALLY_TEST(test_calm_curvature__the_loss_is_that_of_all_queries),
    TALLY_TEST(test_calm_curvature__the_message_includes_the_opening),
    TALLY_TEST(test_calm_curvature__refuses_what_the_opening_did_not_have),
    TALLY_TEST(test_calm_curvature__a_program_must_repeat_its_draws),
    TALLY_TEST(test_calm_curvature__without_a_gradient_there_is_none),
    TALLY_TEST(test_calm_curvature__the_server_weighs_both_measures),
    TALLY_TEST(test_calm_curvature__a_ridge_bounds_the_curvature),
    TALLY_TEST(test_calm_curvature__noise_is_what_the_distance_leaves),
};
TALLY_SUITE(calm_curvature, TESTS);
