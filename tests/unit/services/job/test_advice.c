#include "services/job/job_advice.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/harness.h"
#include "tests/unit/services/job/job_host.h"

static struct tally_job_spec spec_of(const char *algorithm, double step_size)
{
    struct tally_job_spec spec = job_host_spec();
    spec.algorithm = 0;
    while (strcmp(TALLY_ALGORITHM_NAMES[spec.algorithm], algorithm) != 0) {
        spec.algorithm++;
    }
    spec.params = tally_job_spec_algorithm(&spec)->defaults();
    if (strcmp(algorithm, "ceal") == 0) {
        spec.params.ceal.step_size = step_size;
    } else {
        spec.params.baseline.step_size = step_size;
    }
    return spec;
}

static const struct tally_curvature CURVATURE = {.smoothness = 4, .strong_convexity = 1};

/* Each method has its own limit, and a warning begins just above it. */
static void test_job_advice__steps_have_the_limit_of_their_method(void)
{
    static const struct {
        const char *algorithm;
        double server_step_size;
        int64_t local_steps;
        double limit; /* as a multiple of 1 / smoothness */
        double mu;
    } rows[] = {
        {"ceal", 0, 0, 1, 0},        {"minibatch_sgd", 0, 50, 2, 0},
        {"fedavg", 0, 50, 2, 0},     {"fedpaq", 0, 50, 2, 0},
        {"fedcom", 1, 50, 2, 0},     {"fedcom", 2, 50, 1, 0},
        {"fedcom", 10, 1, 0.2, 0},   {"fedcom", 4, 2, 0.2928932188134524, 0},
        {"fedprox", 0, 50, 2, 0},    {"fedprox", 0, 50, 1.6, 1},
        {"diana", 0, 50, 2, 0},      {"scaffold", 1, 50, 2, 0},
        {"scaffold", 10, 1, 0.2, 0}, {"ef21", 0, 50, 2, 0},
    };
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        for (int side = -1; side <= 1; side += 2) {
            struct tally_job_spec spec =
                spec_of(rows[r].algorithm, rows[r].limit / 4 * (1 + side * 1e-9));
            if (rows[r].local_steps > 0) {
                spec.params.baseline.local_steps = rows[r].local_steps;
                spec.params.baseline.server_step_size = rows[r].server_step_size;
                spec.params.baseline.mu = rows[r].mu;
            }
            const struct tally_advice advice = tally_advise(&spec, &CURVATURE);
            CU_ASSERT_EQUAL(advice.n, side > 0);
        }
    }
}

/* fedcom's limit against the effect of a round along an eigenvector: below the limit every
 * component shrinks, above it the largest grows. */
static void test_job_advice__fedcom_holds_up_to_its_limit(void)
{
    for (int r = 0; r < 40; r++) {
        struct tally_job_spec spec = spec_of("fedcom", 1);
        struct tally_baseline_params *params = &spec.params.baseline;
        params->local_steps = 1 + r % 7;
        params->server_step_size = 0.5 + 0.5 * r;
        const struct tally_step_limit step = TALLY_FEDCOM.step_limit(&spec.params, 4);
        for (int i = 1; i <= 400; i++) {
            const double shrunk =
                pow(1 - 0.999 * step.limit * i / 100, (double)params->local_steps);
            CU_ASSERT_TRUE(fabs(1 - params->server_step_size * (1 - shrunk)) < 1);
        }
        if (params->server_step_size > 2) {
            const double shrunk = pow(1 - 1.001 * step.limit * 4, (double)params->local_steps);
            CU_ASSERT_TRUE(fabs(1 - params->server_step_size * (1 - shrunk)) > 1);
        }
    }
}

static void test_job_advice__texts_name_value_and_limit(void)
{
    struct tally_job_spec spec = spec_of("ceal", 0.3);
    struct tally_advice advice = tally_advise(&spec, &CURVATURE);
    CU_ASSERT_EQUAL_FATAL(advice.n, 1);
    TALLY_ASSERT_TEXT(advice.texts[0],
                      "step_size 0.3 is above 0.25 = 1 / smoothness: the iterates may diverge");
    const struct tally_curvature flat = {.smoothness = 4, .strong_convexity = 0};
    advice = tally_advise(&spec, &flat);
    CU_ASSERT_EQUAL_FATAL(advice.n, 2);
    CU_ASSERT_PTR_NOT_NULL(strstr(advice.texts[1], "not known to be strongly convex"));
    spec = spec_of("fedavg", 0.3);
    CU_ASSERT_EQUAL(tally_advise(&spec, &flat).n, 0);
}

static void test_job_advice__unknown_curvature_says_nothing(void)
{
    const struct tally_job_spec spec = spec_of("ceal", 1e6);
    const struct tally_curvature zero = {0, 0};
    CU_ASSERT_EQUAL(tally_advise(&spec, &TALLY_CURVATURE_UNKNOWN).n, 0);
    CU_ASSERT_EQUAL(tally_advise(&spec, &zero).n, 0);
}

/* The levels that a warning recommends are the fewest without one. */
static void test_job_advice__few_levels_in_many_dimensions(void)
{
    static const struct {
        size_t dim;
        int64_t clients, enough;
    } rows[] = {
        {30, 10, 1}, {7840, 10, 3}, {1000000, 10, 25}, {1000000, 1, 250}, {1000000, 1000, 1}};
    static const char *const algorithms[] = {"fedpaq", "fedcom"};
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        for (size_t a = 0; a < 2; a++) {
            struct tally_job_spec spec = spec_of(algorithms[a], 1);
            spec.objective.data.synthetic_linear.dim = (int64_t)rows[r].dim;
            spec.clients = rows[r].clients;
            for (int64_t levels = 1; levels < 300; levels++) {
                spec.params.baseline.levels = levels;
                const struct tally_advice advice = tally_advise(&spec, &TALLY_CURVATURE_UNKNOWN);
                CU_ASSERT_EQUAL(advice.n, levels < rows[r].enough);
            }
        }
    }
    struct tally_job_spec spec = spec_of("fedpaq", 1);
    spec.objective.data.synthetic_linear.dim = 1000000;
    spec.clients = 100;
    spec.cohort = 10;
    spec.params.baseline.levels = 1;
    const struct tally_advice advice = tally_advise(&spec, &TALLY_CURVATURE_UNKNOWN);
    CU_ASSERT_EQUAL_FATAL(advice.n, 1);
    TALLY_ASSERT_TEXT(advice.texts[0],
                      "levels 1: with dim 1000000 and 10 clients a round, the quantization error "
                      "of a step may have 10 times the step's length, and the job may not learn; "
                      "with levels 25 it has at most 2 times");
    spec = spec_of("diana", 1); /* what it quantizes vanishes */
    spec.objective.data.synthetic_linear.dim = 1000000;
    spec.params.baseline.levels = 1;
    CU_ASSERT_EQUAL(tally_advise(&spec, &TALLY_CURVATURE_UNKNOWN).n, 0);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_job_advice__steps_have_the_limit_of_their_method),
    TALLY_TEST(test_job_advice__fedcom_holds_up_to_its_limit),
    TALLY_TEST(test_job_advice__texts_name_value_and_limit),
    TALLY_TEST(test_job_advice__unknown_curvature_says_nothing),
    TALLY_TEST(test_job_advice__few_levels_in_many_dimensions),
};
TALLY_SUITE(job_advice, TESTS);
