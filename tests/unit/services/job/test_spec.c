#include "services/job/job_spec.h"

#include <math.h>
#include <string.h>

#include "tests/harness.h"
#include "tests/unit/services/job/job_host.h"

static void expect(const struct tally_job_spec *spec, enum tally_status status, const char *field)
{
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_job_spec_validate(spec, &err), status, &err);
    TALLY_ASSERT_TEXT(err.field, field);
}

static void test_job_spec__quorum_is_at_most_all(void)
{
    struct tally_job_spec spec = job_host_spec();
    expect(&spec, TALLY_OK, "");
    spec.quorum = 5;
    expect(&spec, TALLY_OK, "");
    spec.quorum = 4;
    expect(&spec, TALLY_OK, "");
    spec.quorum = 6;
    expect(&spec, TALLY_INVALID_ARGUMENT, "quorum");
}

static void test_job_spec__policies_but_wait_need_a_deadline(void)
{
    struct tally_job_spec spec = job_host_spec();
    spec.round_deadline_ms = 0;
    expect(&spec, TALLY_OK, "");
    spec.policy = TALLY_POLICY_DROP;
    expect(&spec, TALLY_INVALID_ARGUMENT, "round_deadline_ms");
    spec.policy = TALLY_POLICY_FAIL;
    expect(&spec, TALLY_INVALID_ARGUMENT, "round_deadline_ms");
    spec.round_deadline_ms = 1;
    expect(&spec, TALLY_OK, "");
}

static void test_job_spec__every_client_needs_a_point(void)
{
    struct tally_job_spec spec = job_host_spec();
    spec.clients = 63;
    expect(&spec, TALLY_OK, "");
    spec.clients = 64;
    expect(&spec, TALLY_INVALID_ARGUMENT, "objective.data.points");
}

static void test_job_spec__data_must_fit_in_memory(void)
{
    struct tally_job_spec spec = job_host_spec();
    spec.objective.data.synthetic_linear.points = 1 << 24;
    spec.objective.data.synthetic_linear.dim = 8;
    expect(&spec, TALLY_OK, "");
    spec.objective.data.synthetic_linear.dim = 9;
    expect(&spec, TALLY_INVALID_ARGUMENT, "objective.data.points");
}

/* A grid too fine for either direction is detected before the job starts, also at a later stage. */
static void test_job_spec__grids_of_all_stages_must_exist(void)
{
    struct tally_job_spec spec = job_host_spec();
    spec.params.ceal.gamma0 = 1e-6;
    expect(&spec, TALLY_OUT_OF_RANGE, "algorithm");
    spec = job_host_spec();
    spec.params.ceal.phi0 = 1e-6;
    expect(&spec, TALLY_OUT_OF_RANGE, "algorithm");
    /* Downlink p = 2 (B + tau) sqrt(6) / (phi0 tau): 1.1e6 at stage 1, 3.1e6 at 3, 5.4e6 at 4. */
    spec = job_host_spec();
    spec.params.ceal.first_stage = 1;
    spec.params.ceal.phi0 = 1e-5;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_job_spec_validate(&spec, &err), TALLY_OUT_OF_RANGE, &err);
    CU_ASSERT_EQUAL(strncmp(err.message, "stage 4: quantizer needs ", 25), 0);
    spec.params.ceal.sigma = 12;
    spec.horizon = 5; /* s_1 = 6: no later stage is reached */
    expect(&spec, TALLY_OK, "");
}

static void test_job_spec__initial_point_has_its_radius(void)
{
    struct tally_job_spec spec = job_host_spec();
    double x[6] = {1, 1, 1, 1, 1, 1}, other[6], square = 0;
    tally_job_spec_initial_point(&spec, x);
    for (size_t i = 0; i < 6; i++) {
        square += x[i] * x[i];
    }
    CU_ASSERT_DOUBLE_EQUAL(sqrt(square), 12, 1e-12);
    spec.seed++;
    tally_job_spec_initial_point(&spec, other);
    CU_ASSERT_NOT_EQUAL(memcmp(x, other, sizeof x), 0);
    spec.seed--;
    spec.run++;
    tally_job_spec_initial_point(&spec, other);
    CU_ASSERT_NOT_EQUAL(memcmp(x, other, sizeof x), 0);
    spec.initial_point.type = TALLY_INITIAL_ZEROS;
    tally_job_spec_initial_point(&spec, x);
    for (size_t i = 0; i < 6; i++) {
        CU_ASSERT_EQUAL(x[i], 0);
    }
}

static void test_job_spec__setting_takes_over_the_numbers(void)
{
    struct tally_job_spec spec = job_host_spec();
    spec.minibatch = 3;
    struct tally_setting setting = tally_job_spec_setting(&spec);
    struct tally_rng_key key = tally_rng_key(42, 0);
    CU_ASSERT_EQUAL(setting.clients, 5);
    CU_ASSERT_EQUAL(setting.dim, 6);
    CU_ASSERT_EQUAL(setting.minibatch, 3);
    CU_ASSERT_EQUAL(memcmp(&setting.key, &key, sizeof key), 0);
    CU_ASSERT_PTR_EQUAL(setting.params, &spec.params);
    CU_ASSERT_PTR_EQUAL(setting.encoding, &TALLY_ENCODING_UNARY);
    CU_ASSERT_PTR_EQUAL(tally_job_spec_algorithm(&spec), &TALLY_CEAL);
}

/* The error gives the reason in words for people without the source code at hand. */
static void expect_reason(const struct tally_job_spec *spec, size_t rule, const char *field,
                          const char *reason)
{
    struct tally_error err = TALLY_ERROR_INIT;
    CU_ASSERT_PTR_NOT_NULL_FATAL(reason);
    TALLY_ASSERT_STATUS(tally_job_spec_check(spec, rule, &err), TALLY_INVALID_ARGUMENT, &err);
    TALLY_ASSERT_TEXT(err.field, field);
    const char *end = strstr(err.message, reason);
    CU_ASSERT_PTR_NOT_NULL_FATAL(end);
    TALLY_ASSERT_TEXT(end, reason);
    CU_ASSERT_PTR_NULL(strstr(err.message, "README"));
}

static void test_job_spec__who_takes_no_cohorts_or_weights_says_why(void)
{
    enum { COHORT_RULE = 0, WEIGHTING_RULE = 2 };
    int n_reasons = 0;
    for (int a = 0; TALLY_ALGORITHMS[a] != NULL; a++) {
        const struct tally_algorithm *algorithm = TALLY_ALGORITHMS[a];
        struct tally_job_spec spec = job_host_spec();
        spec.algorithm = a;
        spec.cohort = 4;
        spec.objective.weighting = TALLY_WEIGHTING_POINTS;
        CU_ASSERT_EQUAL(algorithm->takes_cohorts, algorithm->no_cohorts_reason == NULL);
        CU_ASSERT_EQUAL(algorithm->takes_weights, algorithm->no_weights_reason == NULL);
        if (!algorithm->takes_cohorts) {
            expect_reason(&spec, COHORT_RULE, "cohort", algorithm->no_cohorts_reason);
            n_reasons++;
        }
        if (!algorithm->takes_weights) {
            expect_reason(&spec, WEIGHTING_RULE, "weighting", algorithm->no_weights_reason);
            n_reasons++;
        }
    }
    CU_ASSERT_EQUAL(n_reasons, 10);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_job_spec__quorum_is_at_most_all),
    TALLY_TEST(test_job_spec__policies_but_wait_need_a_deadline),
    TALLY_TEST(test_job_spec__every_client_needs_a_point),
    TALLY_TEST(test_job_spec__data_must_fit_in_memory),
    TALLY_TEST(test_job_spec__grids_of_all_stages_must_exist),
    TALLY_TEST(test_job_spec__initial_point_has_its_radius),
    TALLY_TEST(test_job_spec__setting_takes_over_the_numbers),
    TALLY_TEST(test_job_spec__who_takes_no_cohorts_or_weights_says_why),
};
TALLY_SUITE(job_spec, TESTS);
