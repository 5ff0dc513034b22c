#include "services/job/job_local.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/harness.h"
#include "tests/unit/services/job/job_host.h"
#include "tests/unit/services/local_run.h"

struct watch {
    int calls;
    int stop_after;
    struct tally_ledger sum;
    int64_t last_round;
};

static bool watch_round(void *context, const struct tally_job *job,
                        const struct tally_round_record *record)
{
    struct watch *watch = context;
    CU_ASSERT_EQUAL(record->round, watch->last_round + 1);
    CU_ASSERT_TRUE(tally_job_progress(job)->round >= record->round);
    watch->last_round = record->round;
    tally_ledger_add(&watch->sum, &record->bits);
    return ++watch->calls != watch->stop_after;
}

static void test_job_local__runs_as_the_engine_does_with_a_host(void)
{
    const struct tally_job_spec spec = job_host_spec();
    static struct job_host host;
    job_host_init(&host, &spec);
    job_host_run(&host);
    struct tally_job *job;
    struct tally_error err = TALLY_ERROR_INIT;
    struct watch watch = {0};
    TALLY_ASSERT_STATUS(local_run(&spec, watch_round, &watch, &job, &err), TALLY_OK, &err);
    struct job_look a = job_look(job), b = job_look(host.job);
    CU_ASSERT_TRUE(job_looks_same(&a, &b));
    CU_ASSERT_EQUAL(watch.calls, host.n_records);
    CU_ASSERT_EQUAL(memcmp(&watch.sum, &tally_job_progress(job)->bits, sizeof watch.sum), 0);
    job_look_fini(&a);
    job_look_fini(&b);
    tally_job_free(job);
    job_host_fini(&host);
}

static void test_job_local__callback_can_stop_it(void)
{
    const struct tally_job_spec spec = job_host_spec();
    struct tally_job *job = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    struct watch watch = {.stop_after = 2};
    TALLY_ASSERT_STATUS(local_run(&spec, watch_round, &watch, &job, &err), TALLY_CANCELLED, &err);
    CU_ASSERT_PTR_NULL(job);
    CU_ASSERT_EQUAL(watch.calls, 2);
}

static void test_job_local__seed_and_run_decide_everything(void)
{
    struct tally_job_spec spec = job_host_spec();
    uint64_t checksums[4];
    for (int i = 0; i < 4; i++) {
        spec.seed = i < 3 ? 42 : 43;
        spec.run = i == 2;
        struct tally_job *job;
        CU_ASSERT_EQUAL_FATAL(local_run(&spec, NULL, NULL, &job, NULL), TALLY_OK);
        checksums[i] = tally_job_progress(job)->x_checksum;
        tally_job_free(job);
    }
    CU_ASSERT_EQUAL(checksums[0], checksums[1]);
    CU_ASSERT_NOT_EQUAL(checksums[0], checksums[2]);
    CU_ASSERT_NOT_EQUAL(checksums[0], checksums[3]);
    CU_ASSERT_NOT_EQUAL(checksums[2], checksums[3]);
}

static void test_job_local__reference_value_shifts_the_regret(void)
{
    struct tally_job_spec spec = job_host_spec();
    struct tally_job *solved, *given;
    CU_ASSERT_EQUAL_FATAL(local_run(&spec, NULL, NULL, &solved, NULL), TALLY_OK);
    spec.reference.type = TALLY_REFERENCE_VALUE;
    spec.reference.value = -3;
    CU_ASSERT_EQUAL_FATAL(local_run(&spec, NULL, NULL, &given, NULL), TALLY_OK);
    const struct tally_progress *a = tally_job_progress(solved), *b = tally_job_progress(given);
    CU_ASSERT_EQUAL(b->f_star, -3);
    CU_ASSERT_EQUAL(a->x_checksum, b->x_checksum);
    CU_ASSERT_DOUBLE_EQUAL(b->cumulative_regret - a->cumulative_regret, 5 * 300 * (a->f_star + 3),
                           1e-8);
    tally_job_free(solved);
    tally_job_free(given);
}

static void test_job_local__what_cannot_be_solved_is_refused(void)
{
    struct tally_job_spec spec = job_host_spec();
    spec.objective.data.synthetic_linear.frobenius_norm = 1e200; /* squares overflow */
    struct tally_job *job = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(local_run(&spec, NULL, NULL, &job, &err), TALLY_FAILED_PRECONDITION, &err);
    TALLY_ASSERT_TEXT(err.field, "reference");
    CU_ASSERT_PTR_NULL(job);
}

/* The curvature is computed only where f(x*) is solved for. */
static void test_job_local__preparation_is_what_the_reference_asks_for(void)
{
    struct tally_job_spec spec = job_host_spec();
    struct tally_objective *objective = NULL;
    struct tally_local_preparation solved, given;
    struct tally_error err = TALLY_ERROR_INIT;
    double f_star;
    CU_ASSERT_EQUAL_FATAL(tally_objective_new(&spec.objective, (uint32_t)spec.clients,
                                              tally_job_spec_setting(&spec).key, ".", &objective,
                                              &err),
                          TALLY_OK);
    TALLY_ASSERT_STATUS(tally_local_prepare(&spec, objective, NULL, &solved, &err), TALLY_OK, &err);
    TALLY_ASSERT_STATUS(tally_local_reference(&spec, objective, &f_star, &err), TALLY_OK, &err);
    CU_ASSERT_EQUAL(solved.f_star, f_star);
    CU_ASSERT_TRUE(solved.curvature.smoothness > solved.curvature.strong_convexity);
    CU_ASSERT_TRUE(solved.curvature.strong_convexity > 0);
    /* In a domain, f(x*) is the minimum inside it. */
    spec.domain = (struct tally_domain){.type = TALLY_DOMAIN_BALL, .radius = 1e-6};
    TALLY_ASSERT_STATUS(tally_local_prepare(&spec, objective, NULL, &given, &err), TALLY_OK, &err);
    CU_ASSERT_TRUE(given.f_star > solved.f_star);
    const atomic_bool stop = true;
    CU_ASSERT_EQUAL(tally_local_prepare(&spec, objective, &stop, &given, NULL), TALLY_CANCELLED);
    tally_objective_free(objective);
    spec.reference = (struct tally_reference){.type = TALLY_REFERENCE_VALUE, .value = -3};
    TALLY_ASSERT_STATUS(tally_local_prepare(&spec, NULL, NULL, &given, &err), TALLY_OK, &err);
    CU_ASSERT_EQUAL(given.f_star, -3);
    CU_ASSERT_TRUE(isnan(given.curvature.smoothness));
    CU_ASSERT_TRUE(isnan(given.curvature.strong_convexity));
}

static void test_job_local__divergence_fails_the_job(void)
{
    struct tally_job_spec spec = job_host_spec();
    spec.objective.data.synthetic_linear.frobenius_norm = 1e12;
    spec.initial_point.radius = 1e9;
    spec.params.ceal.step_size = 1e9;
    spec.params.ceal.sigma = 1e9;
    spec.params.ceal.gradient_bound = 1e9;
    struct tally_job *job;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_job_spec_validate(&spec, &err), TALLY_OK, &err);
    TALLY_ASSERT_STATUS(local_run(&spec, NULL, NULL, &job, &err), TALLY_OK, &err);
    CU_ASSERT_EQUAL(err.status, TALLY_OK);
    CU_ASSERT_EQUAL(tally_job_status(job), TALLY_JOB_FAILED);
    CU_ASSERT_PTR_NOT_NULL(strstr(tally_job_reason(job), "is infinite"));
    tally_job_free(job);
}

/* These numbers must never change: a change means that existing jobs compute something else. The
 * point starts at zero and moves by integer levels times a scale, so a difference in libm's last
 * bit in the data does not show. */
static void test_job_local__golden(void)
{
    struct tally_job_spec spec = job_host_spec();
    spec.initial_point.type = TALLY_INITIAL_ZEROS;
    struct tally_job *job;
    CU_ASSERT_EQUAL_FATAL(local_run(&spec, NULL, NULL, &job, NULL), TALLY_OK);
    const struct tally_progress *progress = tally_job_progress(job);
    char text[200];
    snprintf(text, sizeof text, "rounds %lld iterate %lld up %llu/%llu down %llu/%llu x %016llx",
             (long long)progress->round, (long long)progress->iterate,
             (unsigned long long)progress->bits.uplink.formula_bits,
             (unsigned long long)progress->bits.uplink.payload_bits,
             (unsigned long long)progress->bits.downlink.formula_bits,
             (unsigned long long)progress->bits.downlink.payload_bits,
             (unsigned long long)progress->x_checksum);
    TALLY_ASSERT_TEXT(text, "rounds 9 iterate 4 up 427/569 down 117/134 x 84894e8ebbbf901e");
    tally_job_free(job);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_job_local__runs_as_the_engine_does_with_a_host),
    TALLY_TEST(test_job_local__callback_can_stop_it),
    TALLY_TEST(test_job_local__seed_and_run_decide_everything),
    TALLY_TEST(test_job_local__reference_value_shifts_the_regret),
    TALLY_TEST(test_job_local__what_cannot_be_solved_is_refused),
    TALLY_TEST(test_job_local__preparation_is_what_the_reference_asks_for),
    TALLY_TEST(test_job_local__divergence_fails_the_job),
    TALLY_TEST(test_job_local__golden),
};
TALLY_SUITE(job_local, TESTS);
