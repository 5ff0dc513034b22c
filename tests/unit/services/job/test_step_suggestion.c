#include "services/job/step_suggestion.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "services/algorithms/server_optimizer.h"
#include "services/job/job_local.h"
#include "tests/harness.h"

/* Linear regression of [1], in its two readings: the step sizes are the best of grids of factor
 * 1.25 on seeds 1 to 10 (deploy/jobs). */
enum reading { LOUD, QUIET };

static struct tally_job_spec job(const struct tally_algorithm *algorithm, enum reading reading)
{
    struct tally_job_spec spec = tally_job_spec_default();
    tally_objective_spec_choose(&spec.objective, TALLY_LEAST_SQUARES);
    spec.objective.data = (struct tally_data_spec){
        .type = TALLY_DATA_SYNTHETIC_LINEAR,
        .synthetic_linear = {.dim = 30,
                             .points = 2000,
                             .frobenius_norm = 100,
                             .noise_std = reading == LOUD ? 1 : sqrt(0.0005)}};
    while (TALLY_ALGORITHMS[spec.algorithm] != algorithm) {
        spec.algorithm++;
    }
    spec.params = algorithm->defaults();
    spec.params.baseline.local_steps = 100;
    spec.clients = 10;
    spec.horizon = 2000;
    spec.minibatch = 1;
    spec.seed = 101;
    spec.initial_point = (struct tally_initial_point){.type = TALLY_INITIAL_RANDOM_SPHERE,
                                                      .radius = reading == LOUD ? 2 : 1};
    return spec;
}

static struct tally_suggestion suggest(const struct tally_job_spec *spec)
{
    struct tally_suggestion suggestion;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_suggest_from(spec, ".", NULL, &suggestion, &err), TALLY_OK, &err);
    CU_ASSERT_EQUAL(isnan(suggestion.step_size), suggestion.reason[0] != '\0');
    return suggestion;
}

static void expect_step(const struct tally_job_spec *spec, double best)
{
    const double step_size = suggest(spec).step_size;
    CU_ASSERT_TRUE(step_size > best / 1.5 && step_size < best * 1.5);
}

static void test_job_step_suggestion__is_near_the_best_of_a_grid(void)
{
    static const double fedavg[] = {0.0134, 0.1}, minibatch[] = {1.25, 2.44},
                        fedcom[] = {0.0016, 0.00313}, ceal[] = {2, 2};
    for (int i = LOUD; i <= QUIET; i++) {
        struct tally_job_spec spec = job(&TALLY_FEDAVG, (enum reading)i);
        expect_step(&spec, fedavg[i]);
        spec = job(&TALLY_FEDPAQ, (enum reading)i);
        spec.params.baseline.levels = 3;
        expect_step(&spec, fedavg[i]);
        spec = job(&TALLY_FEDCOM, (enum reading)i);
        spec.params.baseline.levels = 3;
        spec.params.baseline.server_step_size = 10;
        expect_step(&spec, fedcom[i]);
        spec = job(&TALLY_MINIBATCH_SGD, (enum reading)i);
        spec.params.baseline.local_steps = 50;
        expect_step(&spec, minibatch[i]);
        spec = job(&TALLY_CEAL, (enum reading)i);
        spec.params.ceal.sigma = spec.params.ceal.gradient_bound = NAN;
        spec.params.ceal.sample_scale = 0.06;
        spec.params.ceal.log_factor = false;
        spec.params.ceal.first_stage = 4;
        spec.params.ceal.phi0 = 2;
        expect_step(&spec, ceal[i]);
    }
}

static void test_job_step_suggestion__schedules_begin_with_longer_steps(void)
{
    struct tally_job_spec spec = job(&TALLY_FEDAVG, LOUD);
    spec.params.baseline.local_steps = 2;
    spec.params.baseline.step_decay = 0.13;
    spec.params.baseline.local_steps_growth = 0.35;
    expect_step(&spec, 0.291);
}

/* With points s times as long, x is as many times shorter, and a step s^2 times. */
static void test_job_step_suggestion__has_the_scale_of_the_data(void)
{
    static const double scales[] = {1e-3, 1e3};
    struct tally_job_spec spec = job(&TALLY_MINIBATCH_SGD, LOUD);
    spec.initial_point.type = TALLY_INITIAL_ZEROS;
    const double step_size = suggest(&spec).step_size;
    for (size_t i = 0; i < 2; i++) {
        struct tally_job_spec other = spec;
        struct tally_synthetic_linear *data = &other.objective.data.synthetic_linear;
        const double square = scales[i] * scales[i];
        data->frobenius_norm *= scales[i];
        data->noise_std *= scales[i]; /* y is s times as large, and so x is the same */
        CU_ASSERT_DOUBLE_EQUAL(suggest(&other).step_size * square, step_size, 0.2 * step_size);
    }
}

static void test_job_step_suggestion__is_always_the_same(void)
{
    const struct tally_job_spec spec = job(&TALLY_FEDAVG, LOUD);
    CU_ASSERT_DOUBLE_EQUAL(suggest(&spec).step_size, suggest(&spec).step_size, 0);
}

/* The objective of a synthetic job, which the caller frees, and what the probe measures of it. */
static struct tally_objective *probed(const struct tally_job_spec *spec,
                                      struct tally_probe *ret_probe)
{
    struct tally_objective *objective = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    double x[30];
    TALLY_ASSERT_STATUS(tally_objective_new(&spec->objective, 10, tally_job_spec_setting(spec).key,
                                            ".", &objective, &err),
                        TALLY_OK, &err);
    tally_job_spec_initial_point(spec, x);
    TALLY_ASSERT_STATUS(tally_probe_measure(spec, objective, x, NULL, ret_probe, &err), TALLY_OK,
                        &err);
    return objective;
}

/* The forecast is that of the mean over draws; one job is within a quarter of it. */
static void test_job_step_suggestion__forecast_is_near_the_regret(void)
{
    for (int i = LOUD; i <= QUIET; i++) {
        struct tally_job_spec spec = job(&TALLY_FEDAVG, (enum reading)i);
        struct tally_probe probe;
        struct tally_job *run = NULL;
        struct tally_error err = TALLY_ERROR_INIT;
        const struct tally_local_observer observer = {.on_round = NULL};
        double f_star;
        spec.params.baseline.step_size = i == LOUD ? 0.0134 : 0.1;
        struct tally_objective *objective = probed(&spec, &probe);
        TALLY_ASSERT_STATUS(tally_local_reference(&spec, objective, &f_star, &err), TALLY_OK, &err);
        TALLY_ASSERT_STATUS(tally_local_run_on(&spec, objective, f_star, &observer, &run, &err),
                            TALLY_OK, &err);
        const double regret = tally_job_progress(run)->cumulative_regret;
        const double expected =
            10 * tally_forecast_regret(&spec, &probe, spec.params.baseline.step_size);
        CU_ASSERT_DOUBLE_EQUAL(expected, regret, 0.25 * regret);
        tally_job_free(run);
        tally_objective_free(objective);
    }
}

/* A long horizon is forecast with several steps at once, and the optimum moves towards shorter
 * steps. */
static void test_job_step_suggestion__long_jobs_take_shorter_steps(void)
{
    struct tally_job_spec spec = job(&TALLY_FEDAVG, LOUD);
    double last = suggest(&spec).step_size;
    for (int64_t horizon = 20000; horizon <= 2000000; horizon *= 10) {
        spec.horizon = horizon;
        const double step_size = suggest(&spec).step_size;
        CU_ASSERT_TRUE(step_size < last && step_size > last / 10);
        last = step_size;
    }
}

/* A probe of two modes, with noise in both. */
static struct tally_probe probe_of(double spread)
{
    struct tally_probe probe = {
        .n = 2, .smoothness = 1, .noise = 0.1, .growth = 0.3, .spread = spread};
    for (size_t i = 0; i < 2; i++) {
        probe.modes[i].curvature = i == 0 ? 1 : 0.1;
        probe.modes[i].square = probe.modes[i].share = probe.modes[i].even = 0.5;
    }
    return probe;
}

/* Several steps at once have the same regret as one by one. */
static void test_job_step_suggestion__steps_can_be_taken_at_once(void)
{
    static const double steps[] = {0.0003, 0.01, 0.1, 1};
    const struct tally_probe probe = probe_of(0.2);
    struct tally_job_spec spec = job(&TALLY_FEDAVG, LOUD);
    spec.params.baseline.local_steps = 1000;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        spec.horizon = 9999; /* one by one; from 10,000 on two at once */
        const double one = tally_forecast_regret(&spec, &probe, steps[i]);
        spec.horizon = 10001;
        const double two = tally_forecast_regret(&spec, &probe, steps[i]);
        CU_ASSERT_TRUE(isfinite(one));
        CU_ASSERT_DOUBLE_EQUAL(two, one, 0.01 * one);
    }
}

/* One step of one client, by hand. */
static void test_job_step_suggestion__a_step_is_what_the_recursion_says(void)
{
    const struct tally_probe probe = probe_of(0);
    struct tally_job_spec spec = job(&TALLY_FEDAVG, LOUD);
    spec.params.baseline.local_steps = 1;
    spec.clients = 4;
    spec.horizon = 2;
    const double eta = 0.5, q = eta * eta * (0.1 + 0.3 * 1) / 2 / 4;
    const double first = (0.5 * 1 + 0.5 * 0.1) / 2;
    const double second = (0.25 * 0.5 + q + 0.1 * (0.95 * 0.95 * 0.5 + q)) / 2;
    CU_ASSERT_DOUBLE_EQUAL(tally_forecast_regret(&spec, &probe, eta), first + second, 1e-12);
    spec.params = TALLY_MINIBATCH_SGD.defaults();
    while (TALLY_ALGORITHMS[spec.algorithm] != &TALLY_MINIBATCH_SGD) {
        spec.algorithm = (spec.algorithm + 1) % 10;
    }
    CU_ASSERT_DOUBLE_EQUAL(tally_forecast_regret(&spec, &probe, eta), first + second, 1e-12);
    CU_ASSERT_TRUE(isinf(tally_forecast_regret(&spec, &probe, 1e6)));
    spec = job(&TALLY_FEDAVG, LOUD); /* rounds of 1 and of 1 + 1 queries, with shorter steps */
    spec.clients = 1;
    spec.horizon = 3;
    spec.params.baseline.local_steps = 1;
    spec.params.baseline.local_steps_growth = 1;
    spec.params.baseline.step_decay = 1;
    struct tally_probe quiet = probe_of(0);
    quiet.noise = quiet.growth = 0;
    const double steep = 0.5 * (1 + pow(1 - eta, 2) * (1 + pow(1 - eta / 2, 2)));
    const double flat = 0.05 * (1 + pow(1 - 0.1 * eta, 2) * (1 + pow(1 - 0.05 * eta, 2)));
    CU_ASSERT_DOUBLE_EQUAL(tally_forecast_regret(&spec, &quiet, eta), (steep + flat) / 2, 1e-12);
    /* A second round of two queries at one point. */
    spec.algorithm = job(&TALLY_MINIBATCH_SGD, LOUD).algorithm;
    const double once = (0.5 * pow(1 - eta, 2) + 0.05 * pow(1 - 0.1 * eta, 2)) / 2;
    CU_ASSERT_DOUBLE_EQUAL(tally_forecast_regret(&spec, &quiet, eta), first + 2 * once, 1e-12);
}

/* Own optima of the clients cost regret, which SCAFFOLD avoids. */
static void test_job_step_suggestion__unlike_clients_take_shorter_steps(void)
{
    const struct tally_probe alike = probe_of(0), unlike = probe_of(1);
    struct tally_job_spec spec = job(&TALLY_FEDAVG, LOUD);
    CU_ASSERT_TRUE(tally_forecast_regret(&spec, &unlike, 0.1) >
                   1.5 * tally_forecast_regret(&spec, &alike, 0.1));
    spec = job(&TALLY_SCAFFOLD, LOUD);
    CU_ASSERT_DOUBLE_EQUAL(tally_forecast_regret(&spec, &unlike, 0.1),
                           tally_forecast_regret(&spec, &alike, 0.1), 0);
}

/* Clients with points of one label have optima of their own, and the same points do not. */
static void test_job_step_suggestion__measures_what_clients_have_of_their_own(void)
{
    struct tally_job_spec spec = job(&TALLY_FEDAVG, LOUD);
    double spreads[2];
    for (int i = 0; i < 2; i++) {
        struct tally_probe probe;
        spec.objective.data.synthetic_linear.points = i == 0 ? 200000 : 200;
        struct tally_objective *objective = probed(&spec, &probe);
        /* The mean of n of N points of a client, beside that of all 10 N, has the variance of a
         * point times 0.9 / N. */
        const double n = (double)spec.objective.data.synthetic_linear.points / 10;
        CU_ASSERT_DOUBLE_EQUAL(probe.spread, 0.9 * probe.noise / n, 0.5 * probe.noise / n);
        spreads[i] = probe.spread;
        tally_objective_free(objective);
    }
    CU_ASSERT_TRUE(spreads[1] > 100 * spreads[0]);
}

static void test_job_step_suggestion__says_why_there_is_none(void)
{
    struct tally_job_spec spec = job(&TALLY_CALM, LOUD);
    TALLY_ASSERT_TEXT(suggest(&spec).reason, "a calm job without a step_size estimates it");
    CU_ASSERT_FALSE(tally_suggestion_is_possible(&spec));
    spec = job(&TALLY_FEDAVG, LOUD);
    CU_ASSERT_TRUE(tally_suggestion_is_possible(&spec));
    spec.params.baseline.server_optimizer =
        (struct tally_server_optimizer){.type = TALLY_FEDADAM, .step_size = 1};
    TALLY_ASSERT_TEXT(suggest(&spec).reason, "the server has an optimizer of its own");
    spec = job(&TALLY_FEDAVG, LOUD);
    spec.initial_point.type = TALLY_INITIAL_JOB;
    TALLY_ASSERT_TEXT(suggest(&spec).reason, "the initial point is given");
    spec = job(&TALLY_FEDAVG, LOUD);
    spec.objective.data.synthetic_linear.points = 1000000;
    TALLY_ASSERT_TEXT(suggest(&spec).reason, "the data are too many to look at");
    spec = job(&TALLY_FEDAVG, LOUD);
    spec.objective.type = TALLY_PLUGIN;
    TALLY_ASSERT_TEXT(suggest(&spec).reason, "the gradients are computed by a user's program");
    spec = job(&TALLY_FEDAVG, LOUD);
    spec.objective.data = (struct tally_data_spec){
        .type = TALLY_DATA_CSV, .table = {.file = "absent.csv", .label = "y", .features = 3}};
    CU_ASSERT_PTR_NOT_NULL(strstr(suggest(&spec).reason, "absent.csv"));
    spec.objective.data.sharding = TALLY_SHARDING_LOCAL;
    TALLY_ASSERT_TEXT(suggest(&spec).reason, "each worker has data of its own");
    spec.objective.data.table.features = 200000;
    TALLY_ASSERT_TEXT(suggest(&spec).reason, "the objective has more than 100000 coordinates");
}

/* Of more rounds than the recursion takes, the last one stands for those that are left: the noise
 * of each step q = eta^2 s / n leaves a gap of lambda q / (1 - (1 - eta lambda)^2) / 2. */
static void test_job_step_suggestion__all_rounds_count(void)
{
    static const struct tally_algorithm *const ALGORITHMS[] = {&TALLY_FEDAVG, &TALLY_MINIBATCH_SGD};
    const struct tally_probe probe = {
        .n = 1,
        .modes[0] = {.curvature = 1, .square = 1, .share = 1},
        .smoothness = 1,
        .noise = 0.1,
    };
    const double eta = 0.1, gap = eta * eta * 0.1 / 10 / (1 - pow(1 - eta, 2)) / 2;
    for (size_t i = 0; i < sizeof ALGORITHMS / sizeof ALGORITHMS[0]; i++) {
        struct tally_job_spec spec = job(ALGORITHMS[i], LOUD);
        spec.params.baseline.local_steps = 1;
        spec.horizon = 9000;
        const double before = tally_forecast_regret(&spec, &probe, eta);
        spec.horizon = 1000000;
        CU_ASSERT_DOUBLE_EQUAL((tally_forecast_regret(&spec, &probe, eta) - before) / 991000, gap,
                               1e-3 * gap);
    }
}

/* Of one query, the regret is the same whatever the step. */
static void test_job_step_suggestion__there_is_none_if_no_step_matters(void)
{
    struct tally_job_spec spec = job(&TALLY_FEDAVG, LOUD);
    spec.horizon = 1;
    TALLY_ASSERT_TEXT(suggest(&spec).reason, "no step makes the expected regret less");
    spec = job(&TALLY_MINIBATCH_SGD, LOUD); /* the same in its only round */
    spec.horizon = 100;
    TALLY_ASSERT_TEXT(suggest(&spec).reason, "no step makes the expected regret less");
    spec.horizon = 101;
    CU_ASSERT_TRUE(suggest(&spec).step_size > 0);
}

static void test_job_step_suggestion__a_document_may_state_it(void)
{
    struct tally_job_spec spec = job(&TALLY_FEDAVG, QUIET);
    spec.objective.data.synthetic_linear.frobenius_norm = 1e-9;
    spec.objective.data.synthetic_linear.noise_std = 0;
    CU_ASSERT_EQUAL(suggest(&spec).step_size, 1e9);
}

/* f = |x - 1|^2 / 2, as a matrix of any size. */
struct large {
    struct tally_objective base;
    int n_points, n_gradients;
};

static enum tally_status large_gradient(const struct tally_objective *objective, uint32_t client,
                                        const double *x, int64_t n, struct tally_rng *rng,
                                        double *ret_gradient, struct tally_error *err)
{
    struct large *large = (struct large *)(uintptr_t)objective;
    (void)client, (void)err;
    large->n_points += n == 1;
    large->n_gradients++;
    memset(ret_gradient, 0, objective->dim * sizeof *ret_gradient);
    if (n > 0) {
        tally_rng_normal(rng, ret_gradient, objective->dim);
    }
    for (size_t i = 0; i < objective->dim; i++) {
        ret_gradient[i] += x[i] - 1;
    }
    return TALLY_OK;
}

/* Each query of a matrix takes all its numbers, so that hundreds of them would take long. */
static void test_job_step_suggestion__looks_at_few_queries_of_a_large_matrix(void)
{
    static const struct tally_objective_ops OPS = {.local_gradient = large_gradient};
    static const struct {
        uint32_t clients;
        int64_t dim;
    } CASES[] = {{1, 2896}, {1, 1500}, {4, 1448}, {10, 900}, {64, 362}, {1, 30}};
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct tally_job_spec spec = job(&TALLY_FEDAVG, LOUD);
        tally_objective_spec_choose(&spec.objective, TALLY_QUADRATIC);
        spec.objective.data =
            (struct tally_data_spec){.type = TALLY_DATA_MATRIX, .matrix.dim = CASES[i].dim};
        spec.clients = CASES[i].clients;
        struct large large = {
            .base = {.ops = &OPS, .dim = (size_t)CASES[i].dim, .clients = CASES[i].clients}};
        double *x = calloc(large.base.dim, sizeof *x);
        struct tally_probe probe;
        struct tally_error err = TALLY_ERROR_INIT;
        CU_ASSERT_PTR_NOT_NULL_FATAL(x);
        TALLY_ASSERT_STATUS(tally_probe_measure(&spec, &large.base, x, NULL, &probe, &err),
                            TALLY_OK, &err);
        free(x);
        const double numbers = (double)large.base.dim * (double)large.base.dim;
        CU_ASSERT_TRUE(large.n_gradients * numbers <= 1e9);
        CU_ASSERT_TRUE(large.n_points >= 8);
        CU_ASSERT_DOUBLE_EQUAL(probe.noise, (double)large.base.dim, 0.1 * (double)large.base.dim);
    }
}

static void test_job_step_suggestion__stops(void)
{
    const struct tally_job_spec spec = job(&TALLY_FEDAVG, LOUD);
    const atomic_bool stop = true;
    struct tally_suggestion suggestion;
    CU_ASSERT_EQUAL(tally_suggest_from(&spec, ".", &stop, &suggestion, NULL), TALLY_CANCELLED);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_job_step_suggestion__is_near_the_best_of_a_grid),
    TALLY_TEST(test_job_step_suggestion__schedules_begin_with_longer_steps),
    TALLY_TEST(test_job_step_suggestion__has_the_scale_of_the_data),
    TALLY_TEST(test_job_step_suggestion__is_always_the_same),
    TALLY_TEST(test_job_step_suggestion__forecast_is_near_the_regret),
    TALLY_TEST(test_job_step_suggestion__long_jobs_take_shorter_steps),
    TALLY_TEST(test_job_step_suggestion__steps_can_be_taken_at_once),
    TALLY_TEST(test_job_step_suggestion__a_step_is_what_the_recursion_says),
    TALLY_TEST(test_job_step_suggestion__unlike_clients_take_shorter_steps),
    TALLY_TEST(test_job_step_suggestion__measures_what_clients_have_of_their_own),
    TALLY_TEST(test_job_step_suggestion__says_why_there_is_none),
    TALLY_TEST(test_job_step_suggestion__all_rounds_count),
    TALLY_TEST(test_job_step_suggestion__there_is_none_if_no_step_matters),
    TALLY_TEST(test_job_step_suggestion__a_document_may_state_it),
    TALLY_TEST(test_job_step_suggestion__looks_at_few_queries_of_a_large_matrix),
    TALLY_TEST(test_job_step_suggestion__stops),
};
TALLY_SUITE(job_step_suggestion, TESTS);
