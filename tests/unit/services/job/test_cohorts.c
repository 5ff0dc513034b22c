/* Jobs in which only some of the clients take part in a round. */
#include <stdio.h>
#include <string.h>

#include "services/job/job_local.h"
#include "tests/harness.h"
#include "tests/unit/services/job/job_host.h"

enum { CLIENTS = 10, COHORT = 3 };

static struct job_host HOST;

static struct tally_job_spec cohort_spec(void)
{
    struct tally_job_spec spec = job_host_fedavg_spec(CLIENTS, COHORT);
    spec.horizon = 61; /* 20 rounds and a cut one */
    return spec;
}

static void start(const struct tally_job_spec *spec)
{
    job_host_init(&HOST, spec);
    job_host_compute(&HOST);
}

static const uint32_t *cohort(void)
{
    uint32_t n;
    const uint32_t *drawn = tally_job_cohort(HOST.job, &n);
    CU_ASSERT_EQUAL_FATAL(n, COHORT);
    return drawn;
}

static uint32_t client_outside(void)
{
    uint32_t m = 0;
    while (tally_job_is_drawn(HOST.job, m)) {
        m++;
    }
    return m;
}

static void test_job_cohorts__only_those_drawn_are_heard_and_counted(void)
{
    const struct tally_job_spec spec = cohort_spec();
    struct tally_job_outcome outcome;
    start(&spec);
    const uint32_t outside = client_outside();
    const uint64_t bits = 32 * 6;
    CU_ASSERT_EQUAL(tally_job_receive(HOST.job, &HOST.updates[outside], &outcome, NULL),
                    TALLY_FAILED_PRECONDITION);
    double loss = 0;
    uint32_t drawn[COHORT];
    memcpy(drawn, cohort(), sizeof drawn);
    for (int i = COHORT - 1; i >= 0; i--) { /* in any order */
        CU_ASSERT_EQUAL(HOST.n_records, 0);
        job_host_send(&HOST, drawn[i]);
    }
    for (int i = 0; i < COHORT; i++) {
        loss += HOST.updates[drawn[i]].loss;
    }
    CU_ASSERT_EQUAL_FATAL(HOST.n_records, 1);
    const struct tally_round_record *record = &HOST.records[0];
    CU_ASSERT_EQUAL(record->received, COHORT);
    TALLY_ASSERT_TEXT(record->missing, "");
    CU_ASSERT_EQUAL(record->loss, loss / COHORT);
    CU_ASSERT_EQUAL(record->cumulative_regret, 3 * COHORT * (record->loss - HOST.f_star));
    CU_ASSERT_EQUAL(record->bits.uplink.payload_bits, COHORT * bits);
    CU_ASSERT_EQUAL(record->bits.downlink.payload_bits, bits);
    CU_ASSERT_EQUAL(record->bits.delivered_payload_bits, COHORT * bits);
    job_host_fini(&HOST);
}

static void test_job_cohorts__absence_matters_to_those_drawn_alone(void)
{
    struct tally_job_spec spec = cohort_spec();
    struct tally_job_outcome outcome;
    char text[TALLY_MISSING_CAPACITY];
    spec.policy = TALLY_POLICY_DROP;
    spec.quorum = 2;
    start(&spec);
    const uint32_t *drawn = cohort();
    for (uint32_t m = 0; m < CLIENTS; m++) { /* all that are not drawn become absent */
        if (!tally_job_is_drawn(HOST.job, m)) {
            tally_job_set_absent(HOST.job, m, true, &outcome);
            CU_ASSERT_EQUAL(outcome.n_records, 0);
            CU_ASSERT_FALSE(tally_job_awaits(HOST.job, m));
        }
    }
    job_host_send(&HOST, drawn[0]);
    job_host_send(&HOST, drawn[2]);
    CU_ASSERT_EQUAL(HOST.n_records, 0); /* still waits for the one that is present */
    tally_job_list_awaited(HOST.job, text);
    char expected[16];
    snprintf(expected, sizeof expected, "%u", drawn[1]);
    TALLY_ASSERT_TEXT(text, expected);
    CU_ASSERT_EQUAL(tally_job_overdue(HOST.job, &outcome, NULL), TALLY_OK);
    CU_ASSERT_EQUAL_FATAL(outcome.n_records, 1);
    CU_ASSERT_EQUAL(outcome.records[0].received, 2);
    TALLY_ASSERT_TEXT(outcome.records[0].missing, expected);
    job_host_fini(&HOST);
}

/* Later draws do not depend on which clients answer. */
static void test_job_cohorts__draws_do_not_depend_on_faults(void)
{
    struct tally_job_spec spec = cohort_spec();
    static uint32_t draws[2][20][COHORT];
    spec.policy = TALLY_POLICY_DROP;
    spec.quorum = 1;
    for (int faulty = 0; faulty < 2; faulty++) {
        job_host_init(&HOST, &spec);
        for (int round = 0; round < 20; round++) {
            job_host_compute(&HOST);
            const uint32_t *drawn = cohort();
            memcpy(draws[faulty][round], drawn, sizeof draws[faulty][round]);
            struct tally_job_outcome outcome;
            for (int i = 0; i < (faulty ? 1 + round % 2 : COHORT); i++) {
                job_host_send(&HOST, draws[faulty][round][i]);
            }
            if (faulty) {
                CU_ASSERT_EQUAL(tally_job_overdue(HOST.job, &outcome, NULL), TALLY_OK);
                for (uint32_t m = 0; m < CLIENTS; m++) {
                    tally_job_set_absent(HOST.job, m, false, &outcome);
                }
            }
        }
        job_host_fini(&HOST);
    }
    CU_ASSERT_EQUAL(memcmp(draws[0], draws[1], sizeof draws[0]), 0);
}

struct seen {
    struct tally_round_record records[HOST_MAX_RECORDS];
    int n;
};

static bool on_round(void *context, const struct tally_job *job,
                     const struct tally_round_record *record)
{
    struct seen *seen = context;
    (void)job;
    seen->records[seen->n++] = *record;
    return true;
}

/* A host that receives updates one by one computes the same as `tally simulate`. */
static void test_job_cohorts__every_host_computes_the_same(void)
{
    static struct seen seen;
    const struct tally_local_observer observer = {.context = &seen, .on_round = on_round};
    for (int a = 1; TALLY_ALGORITHMS[a] != NULL; a++) {
        struct tally_job_spec spec = cohort_spec();
        spec.algorithm = a;
        spec.params.baseline.levels = 4;
        spec.params.baseline.mu = 0.1;
        if (!TALLY_ALGORITHMS[a]->takes_cohorts) {
            continue;
        }
        struct tally_job *job;
        job_host_init(&HOST, &spec);
        job_host_run(&HOST);
        seen.n = 0;
        CU_ASSERT_EQUAL_FATAL(
            tally_local_run_on(&spec, HOST.objective, HOST.f_star, &observer, &job, NULL),
            TALLY_OK);
        CU_ASSERT_EQUAL_FATAL(seen.n, HOST.n_records);
        for (int i = 0; i < seen.n; i++) {
            CU_ASSERT_TRUE(job_same_record(&seen.records[i], &HOST.records[i]));
        }
        CU_ASSERT_TRUE(job_same_progress(tally_job_progress(job), tally_job_progress(HOST.job)));
        CU_ASSERT_EQUAL(tally_job_progress(job)->time_step, spec.horizon);
        tally_job_free(job);
        job_host_fini(&HOST);
    }
}

/* A cohort of all clients equals no cohort: the same bits, and the same saved bytes. */
static void test_job_cohorts__a_cohort_of_all_is_the_job_without(void)
{
    struct tally_job_spec spec = cohort_spec();
    spec.cohort = 0;
    job_host_init(&HOST, &spec);
    job_host_run(&HOST);
    struct job_look without = job_look(HOST.job);
    job_host_fini(&HOST);
    spec.cohort = CLIENTS;
    job_host_init(&HOST, &spec);
    job_host_run(&HOST);
    struct job_look with = job_look(HOST.job);
    CU_ASSERT_TRUE(job_looks_same(&without, &with));
    job_look_fini(&without);
    job_look_fini(&with);
    job_host_fini(&HOST);
}

static void expect_size(double cohort_member, int64_t clients, uint32_t expected)
{
    struct tally_job_spec spec = cohort_spec();
    spec.cohort = cohort_member;
    spec.clients = clients;
    CU_ASSERT_EQUAL(tally_job_spec_cohort(&spec), expected);
}

static void test_job_cohorts__a_share_is_rounded_and_never_empty(void)
{
    expect_size(0, 1000, 1000);
    expect_size(100, 1000, 100);
    expect_size(1, 1000, 1);
    expect_size(0.1, 1000, 100);
    expect_size(0.0014, 1000, 1);
    expect_size(0.0016, 1000, 2);
    expect_size(0.0001, 1000, 1);
    expect_size(0.9999, 1000, 1000);
    expect_size(0.3, 7, 2);
}

static void expect_refused(const struct tally_job_spec *spec, const char *field)
{
    struct tally_error err = TALLY_ERROR_INIT;
    CU_ASSERT_EQUAL(tally_job_spec_validate(spec, &err), TALLY_INVALID_ARGUMENT);
    TALLY_ASSERT_TEXT(err.field, field);
}

static void test_job_cohorts__slots_are_those_of_a_round_unless_data_are_local(void)
{
    struct tally_job_spec spec = cohort_spec();
    CU_ASSERT_EQUAL(tally_job_spec_slots(&spec), COHORT);
    spec.over_selection = 0.5;
    CU_ASSERT_EQUAL(tally_job_spec_slots(&spec), COHORT + 2);
    spec.objective.data.sharding = TALLY_SHARDING_LOCAL;
    CU_ASSERT_EQUAL(tally_job_spec_slots(&spec), CLIENTS);
    spec = job_host_fedavg_spec(CLIENTS, 0);
    CU_ASSERT_EQUAL(tally_job_spec_slots(&spec), CLIENTS);
}

static void test_job_cohorts__what_cannot_be_is_refused(void)
{
    struct tally_job_spec spec = cohort_spec();
    CU_ASSERT_EQUAL(tally_job_spec_validate(&spec, NULL), TALLY_OK);
    spec.cohort = CLIENTS + 1;
    expect_refused(&spec, "cohort");
    spec.cohort = 2.5;
    expect_refused(&spec, "cohort");
    spec.cohort = COHORT;
    spec.quorum = COHORT + 1;
    expect_refused(&spec, "quorum");
    spec = job_host_spec(); /* ceal */
    spec.cohort = 4;
    expect_refused(&spec, "cohort");
    spec.cohort = 5;
    CU_ASSERT_EQUAL(tally_job_spec_validate(&spec, NULL), TALLY_OK);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_job_cohorts__only_those_drawn_are_heard_and_counted),
    TALLY_TEST(test_job_cohorts__absence_matters_to_those_drawn_alone),
    TALLY_TEST(test_job_cohorts__draws_do_not_depend_on_faults),
    TALLY_TEST(test_job_cohorts__every_host_computes_the_same),
    TALLY_TEST(test_job_cohorts__a_cohort_of_all_is_the_job_without),
    TALLY_TEST(test_job_cohorts__a_share_is_rounded_and_never_empty),
    TALLY_TEST(test_job_cohorts__slots_are_those_of_a_round_unless_data_are_local),
    TALLY_TEST(test_job_cohorts__what_cannot_be_is_refused),
};
TALLY_SUITE(job_cohorts, TESTS);
