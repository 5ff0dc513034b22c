/* The schedule of CALM: the host plans it before a job starts, not the engine. */
#include <math.h>
#include <string.h>

#include "services/algorithms/calm.h"
#include "services/job/job_local.h"
#include "tests/harness.h"
#include "tests/unit/services/job/calm/calm_jobs.h"

static struct job_host HOST; /* large: not on the stack */

static struct tally_job_spec with_budget(void)
{
    struct tally_job_spec spec = calm_job_known(30, 3);
    spec.budget = (struct tally_budget){.uplink_bits = 150, .downlink_bits = 200};
    return spec;
}

static void test_calm_schedule__text_keeps_every_bit(void)
{
    const struct tally_job_spec spec = with_budget();
    const struct tally_setting setting = tally_job_spec_setting(&spec);
    struct tally_calm_schedule planned, read;
    char text[TALLY_SCHEDULE_CAPACITY], again[TALLY_SCHEDULE_CAPACITY];
    calm_make_schedule(&setting, &planned);
    calm_schedule(&setting, text);
    CU_ASSERT_TRUE_FATAL(calm_read_schedule(text, &read));
    CU_ASSERT_TRUE(planned.n > 0);
    CU_ASSERT_EQUAL_FATAL(read.n, planned.n);
    for (int k = 0; k < planned.n; k++) {
        const struct tally_calm_epoch *a = &read.epochs[k], *b = &planned.epochs[k];
        CU_ASSERT_EQUAL(a->samples, b->samples);
        CU_ASSERT_EQUAL(a->uplink_resolution, b->uplink_resolution);
        CU_ASSERT_EQUAL(a->downlink_resolution, b->downlink_resolution);
    }
    tally_local_schedule(&spec, again);
    TALLY_ASSERT_TEXT(again, text);
}

static void test_calm_schedule__damaged_text_is_none(void)
{
    static const char *const BAD[] = {"",
                                      "x",
                                      "1",
                                      "-1",
                                      "33",
                                      "1 7 0x1p+0",
                                      "1 0 0x1p+0 0x1p+0",
                                      "1 7 -0x1p+0 0x1p+0",
                                      "1 7 0x1p+0 nan",
                                      "1 7 0x1p+0 0x1p+0 9",
                                      "2 7 0x1p+0 0x1p+0"};
    struct tally_calm_schedule schedule = {.n = -7};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        if (calm_read_schedule(BAD[i], &schedule)) {
            CU_FAIL("a damaged schedule is read");
            fprintf(stderr, "\"%s\" is read\n", BAD[i]);
        }
    }
    CU_ASSERT_EQUAL(schedule.n, -7);
    CU_ASSERT_TRUE(calm_read_schedule("0", &schedule)); /* no message fits the budget */
    CU_ASSERT_EQUAL(schedule.n, 0);
}

/* Jobs without a budget, jobs with constants to estimate, and jobs of other algorithms have no
 * plan. */
static void test_calm_schedule__is_planned_for_known_constants_and_a_budget(void)
{
    char text[TALLY_SCHEDULE_CAPACITY];
    struct tally_job_spec spec = with_budget();
    spec.budget.uplink_bits = 0;
    tally_local_schedule(&spec, text);
    CU_ASSERT_TRUE(strlen(text) > 1);
    spec.budget.downlink_bits = 0;
    tally_local_schedule(&spec, text);
    TALLY_ASSERT_TEXT(text, "");
    spec = with_budget();
    spec.params.calm.noise = NAN;
    tally_local_schedule(&spec, text);
    TALLY_ASSERT_TEXT(text, "");
    spec = job_host_spec();
    tally_local_schedule(&spec, text);
    TALLY_ASSERT_TEXT(text, "");
}

/* An unknown spread of the clients' optima needs no opening round: the plan assumes 0. */
static void test_calm_schedule__unknown_spread_is_taken_for_none(void)
{
    char unknown[TALLY_SCHEDULE_CAPACITY], none[TALLY_SCHEDULE_CAPACITY];
    struct tally_job_spec spec = with_budget();
    spec.params.calm.client_spread = NAN;
    tally_local_schedule(&spec, unknown);
    spec.params.calm.client_spread = 0;
    tally_local_schedule(&spec, none);
    TALLY_ASSERT_TEXT(unknown, none);
    CU_ASSERT_TRUE(strlen(none) > 1);
}

/* The preparation that a host computes before the start contains the plan, beside f(x*). */
static void test_calm_schedule__preparation_has_it(void)
{
    struct tally_job_spec spec = with_budget();
    struct tally_local_preparation preparation;
    struct tally_error err = TALLY_ERROR_INIT;
    char text[TALLY_SCHEDULE_CAPACITY];
    spec.reference = (struct tally_reference){.type = TALLY_REFERENCE_VALUE, .value = 1};
    tally_local_schedule(&spec, text);
    TALLY_ASSERT_STATUS(tally_local_prepare(&spec, NULL, NULL, &preparation, &err), TALLY_OK, &err);
    TALLY_ASSERT_TEXT(preparation.schedule, text);
}

/* Starts HOST's job again, with the given schedule. */
static void start_with(const struct tally_job_spec *spec, const char *schedule)
{
    struct tally_error err = TALLY_ERROR_INIT;
    job_host_init(&HOST, spec);
    tally_job_free(HOST.job);
    TALLY_ASSERT_STATUS(tally_job_new(spec, &HOST.job, &err), TALLY_OK, &err);
    TALLY_ASSERT_STATUS(tally_job_start(HOST.job, HOST.f_star, schedule, &err), TALLY_OK, &err);
}

/* The engine makes no plan of its own, neither when it starts nor when it is restored. */
static void test_calm_schedule__job_follows_what_it_is_given(void)
{
    const struct tally_job_spec spec = with_budget();
    start_with(&spec, "2 7 0x1.2p+1 0x1.3p+1 29 0x1.2p+1 0x1.3p+1");
    CU_ASSERT_EQUAL(tally_job_open_round(HOST.job)->plan.samples, 7);
    calm_job_crash(&HOST);
    CU_ASSERT_EQUAL(tally_job_open_round(HOST.job)->plan.samples, 7);
    job_host_round(&HOST);
    CU_ASSERT_EQUAL(tally_job_open_round(HOST.job)->plan.samples, 29);
    calm_job_crash(&HOST);
    CU_ASSERT_EQUAL(tally_job_open_round(HOST.job)->plan.samples, 29);
    job_host_fini(&HOST);

    start_with(&spec, "");
    CU_ASSERT_EQUAL(tally_job_open_round(HOST.job)->plan.samples, CALM_OPENING_SAMPLES);
    job_host_fini(&HOST);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_calm_schedule__text_keeps_every_bit),
    TALLY_TEST(test_calm_schedule__damaged_text_is_none),
    TALLY_TEST(test_calm_schedule__is_planned_for_known_constants_and_a_budget),
    TALLY_TEST(test_calm_schedule__unknown_spread_is_taken_for_none),
    TALLY_TEST(test_calm_schedule__preparation_has_it),
    TALLY_TEST(test_calm_schedule__job_follows_what_it_is_given),
};
TALLY_SUITE(calm_schedule, TESTS);
