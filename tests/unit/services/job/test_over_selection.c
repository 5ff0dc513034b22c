/* Rounds that draw more clients than they need answers from: 10 clients, 5 drawn, 3 wanted. */
#include <stdio.h>
#include <string.h>

#include "services/job/job_local.h"
#include "tests/harness.h"
#include "tests/unit/services/job/job_host.h"

enum { CLIENTS = 10, DRAWN = 5, WANTED = 3, ROUNDS = 20 };

static struct job_host HOST;

static struct tally_job_spec over_spec(void)
{
    struct tally_job_spec spec = job_host_fedavg_spec(CLIENTS, WANTED);
    spec.over_selection = 0.4; /* 4.2 */
    spec.policy = TALLY_POLICY_DROP;
    spec.quorum = 1;
    spec.horizon = 3 * ROUNDS + 1; /* and a cut one */
    return spec;
}

static void copy_cohort(uint32_t clients[DRAWN])
{
    uint32_t n;
    const uint32_t *drawn = tally_job_cohort(HOST.job, &n);
    CU_ASSERT_EQUAL_FATAL(n, DRAWN);
    memcpy(clients, drawn, DRAWN * sizeof *clients);
}

static enum tally_status receive(uint32_t client, struct tally_job_outcome *ret_outcome)
{
    return tally_job_receive(HOST.job, &HOST.updates[client], ret_outcome, NULL);
}

static void test_job_over_selection__closes_when_enough_have_answered(void)
{
    const struct tally_job_spec spec = over_spec();
    struct tally_job_outcome outcome;
    uint32_t drawn[DRAWN];
    char missing[TALLY_MISSING_CAPACITY];
    job_host_init(&HOST, &spec);
    job_host_compute(&HOST);
    copy_cohort(drawn);
    job_host_send(&HOST, drawn[4]);
    job_host_send(&HOST, drawn[1]);
    CU_ASSERT_EQUAL(HOST.n_records, 0);
    const double loss =
        HOST.updates[drawn[1]].loss + HOST.updates[drawn[3]].loss + HOST.updates[drawn[4]].loss;
    job_host_send(&HOST, drawn[3]);
    CU_ASSERT_EQUAL_FATAL(HOST.n_records, 1);
    const struct tally_round_record *record = &HOST.records[0];
    const uint64_t bits = 32 * 6;
    CU_ASSERT_EQUAL(record->received, WANTED);
    snprintf(missing, sizeof missing, drawn[2] == drawn[0] + 1 ? "%u-%u" : "%u %u", drawn[0],
             drawn[2]);
    TALLY_ASSERT_TEXT(record->missing, missing);
    CU_ASSERT_EQUAL(record->loss, loss / WANTED);
    CU_ASSERT_EQUAL(record->bits.uplink.payload_bits, WANTED * bits);
    /* All drawn clients receive the point and make their queries. */
    CU_ASSERT_EQUAL(record->bits.delivered_payload_bits, DRAWN * bits);
    CU_ASSERT_EQUAL(record->cumulative_regret, 3 * DRAWN * (record->loss - HOST.f_star));
    /* Later answers do not count. Those that counted are recognized as duplicates. */
    const struct tally_progress before = *tally_job_progress(HOST.job);
    CU_ASSERT_EQUAL(receive(drawn[0], &outcome), TALLY_FAILED_PRECONDITION);
    CU_ASSERT_EQUAL(receive(drawn[2], &outcome), TALLY_FAILED_PRECONDITION);
    CU_ASSERT_EQUAL(receive(drawn[3], &outcome), TALLY_OK);
    CU_ASSERT_TRUE(outcome.duplicate);
    CU_ASSERT_TRUE(job_same_progress(&before, tally_job_progress(HOST.job)));
    job_host_fini(&HOST);
}

/* Absent clients do not delay the round as long as enough others answer. */
static void test_job_over_selection__absent_clients_do_not_matter(void)
{
    const struct tally_job_spec spec = over_spec();
    struct tally_job_outcome outcome;
    uint32_t drawn[DRAWN];
    job_host_init(&HOST, &spec);
    job_host_compute(&HOST);
    copy_cohort(drawn);
    tally_job_set_absent(HOST.job, drawn[0], true, &outcome);
    tally_job_set_absent(HOST.job, drawn[1], true, &outcome);
    job_host_send(&HOST, drawn[2]);
    job_host_send(&HOST, drawn[3]);
    CU_ASSERT_EQUAL(HOST.n_records, 0);
    job_host_send(&HOST, drawn[4]);
    CU_ASSERT_EQUAL_FATAL(HOST.n_records, 1);
    CU_ASSERT_EQUAL(HOST.records[0].received, WANTED);
    job_host_fini(&HOST);
}

/* With too few answers the policy decides, as it does without over-selection. */
static void test_job_over_selection__policy_decides_with_fewer(void)
{
    struct tally_job_spec spec = over_spec();
    struct tally_job_outcome outcome;
    uint32_t drawn[DRAWN];
    spec.quorum = 2;
    for (int i = 0; i < 2; i++) {
        spec.policy = i == 0 ? TALLY_POLICY_DROP : TALLY_POLICY_FAIL;
        job_host_init(&HOST, &spec);
        job_host_compute(&HOST);
        copy_cohort(drawn);
        job_host_send(&HOST, drawn[0]);
        CU_ASSERT_EQUAL(tally_job_overdue(HOST.job, &outcome, NULL), TALLY_OK);
        CU_ASSERT_EQUAL(outcome.n_records, 0);
        CU_ASSERT_EQUAL(tally_job_status(HOST.job), i == 0 ? TALLY_JOB_RUNNING : TALLY_JOB_FAILED);
        if (i == 0) {
            job_host_send(&HOST, drawn[2]);
            CU_ASSERT_EQUAL_FATAL(HOST.n_records, 1);
            CU_ASSERT_EQUAL(HOST.records[0].received, 2);
        } else {
            CU_ASSERT_PTR_NOT_NULL(strstr(tally_job_reason(HOST.job), "1 of 3"));
        }
        job_host_fini(&HOST);
    }
}

struct seen {
    struct tally_round_record records[ROUNDS + 1];
    int n;
};

static bool keep(void *context, const struct tally_job *job,
                 const struct tally_round_record *record)
{
    struct seen *seen = context;
    (void)job;
    CU_ASSERT_FATAL(seen->n <= ROUNDS);
    seen->records[seen->n++] = *record;
    return true;
}

/* A simulation equals an engine whose clients answer in the drawn order. */
static void test_job_over_selection__simulation_answers_in_the_drawn_order(void)
{
    const struct tally_job_spec spec = over_spec();
    struct seen seen = {.n = 0};
    const struct tally_local_observer observer = {.context = &seen, .on_round = keep};
    struct tally_job *job = NULL;
    int n_ascending = 0;
    job_host_init(&HOST, &spec);
    CU_ASSERT_EQUAL_FATAL(
        tally_local_run_on(&spec, HOST.objective, HOST.f_star, &observer, &job, NULL), TALLY_OK);
    while (tally_job_status(HOST.job) == TALLY_JOB_RUNNING) {
        const int before = HOST.n_records;
        uint32_t order[DRAWN];
        job_host_compute(&HOST);
        copy_cohort(order);
        CU_ASSERT_EQUAL(tally_job_order(HOST.job, order, DRAWN, NULL), TALLY_OK);
        n_ascending += order[0] < order[1] && order[1] < order[2];
        for (int i = 0; HOST.n_records == before; i++) {
            job_host_send(&HOST, order[i]);
        }
    }
    CU_ASSERT_TRUE(n_ascending < ROUNDS / 2);
    CU_ASSERT_EQUAL_FATAL(seen.n, HOST.n_records);
    for (int i = 0; i < seen.n; i++) {
        CU_ASSERT_TRUE(job_same_record(&seen.records[i], &HOST.records[i]));
    }
    CU_ASSERT_TRUE(job_same_progress(tally_job_progress(job), tally_job_progress(HOST.job)));
    tally_job_free(job);
    job_host_fini(&HOST);
}

/* A crash while the open round has answers: they are received again, and the next one closes the
 * round. */
static void test_job_over_selection__survives_a_restart(void)
{
    const struct tally_job_spec spec = over_spec();
    struct tally_buffer state = {0};
    uint32_t drawn[DRAWN];
    job_host_init(&HOST, &spec);
    job_host_round(&HOST);
    job_host_compute(&HOST);
    copy_cohort(drawn);
    job_host_send(&HOST, drawn[3]);
    job_host_send(&HOST, drawn[1]);
    CU_ASSERT_EQUAL(tally_job_save_state(HOST.job, &state), TALLY_OK);
    struct tally_job *again = NULL;
    CU_ASSERT_EQUAL_FATAL(tally_job_restore(&spec, TALLY_JOB_RUNNING, tally_job_progress(HOST.job),
                                            state.data, state.size, &again, NULL),
                          TALLY_OK);
    struct tally_job_outcome outcome;
    const int order[] = {3, 1, 4};
    for (int i = 0; i < 3; i++) {
        CU_ASSERT_EQUAL(tally_job_receive(again, &HOST.updates[drawn[order[i]]], &outcome, NULL),
                        TALLY_OK);
        CU_ASSERT_EQUAL(outcome.n_records, i == 2);
    }
    job_host_send(&HOST, drawn[4]);
    CU_ASSERT_TRUE(job_same_record(&outcome.records[0], &HOST.records[HOST.n_records - 1]));
    CU_ASSERT_TRUE(job_same_progress(tally_job_progress(again), tally_job_progress(HOST.job)));
    tally_job_free(again);
    tally_buffer_fini(&state);
    job_host_fini(&HOST);
}

static void expect_drawn(double cohort, double over_selection, int64_t clients, uint32_t answers,
                         uint32_t drawn)
{
    struct tally_job_spec spec = over_spec();
    spec.cohort = cohort;
    spec.over_selection = over_selection;
    spec.clients = clients;
    CU_ASSERT_EQUAL(tally_job_spec_answers(&spec), answers);
    CU_ASSERT_EQUAL(tally_job_spec_cohort(&spec), drawn);
}

static void test_job_over_selection__draws_so_many_more(void)
{
    expect_drawn(3, 0.4, 10, 3, 5);
    expect_drawn(3, 0, 10, 3, 3);
    expect_drawn(3, 1e-6, 10, 3, 4);
    expect_drawn(100, 0.07, 1000, 100, 107); /* 0.07 * 100 > 7 in doubles */
    expect_drawn(100, 0.29, 1000, 100, 129); /* and 0.29 * 100 < 29 */
    expect_drawn(1000, 0.3, 100000, 1000, 1300);
    expect_drawn(0.25, 0.5, 100, 25, 38);
    expect_drawn(8, 0.5, 10, 8, 10); /* no more than exist */
    expect_drawn(9, 10, 10, 9, 10);
}

static void expect_refused(const struct tally_job_spec *spec, const char *field)
{
    struct tally_error err = TALLY_ERROR_INIT;
    CU_ASSERT_EQUAL(tally_job_spec_validate(spec, &err), TALLY_INVALID_ARGUMENT);
    TALLY_ASSERT_TEXT(err.field, field);
}

static void test_job_over_selection__needs_a_cohort_and_a_policy(void)
{
    struct tally_job_spec spec = over_spec();
    CU_ASSERT_EQUAL(tally_job_spec_validate(&spec, NULL), TALLY_OK);
    spec.policy = TALLY_POLICY_WAIT;
    expect_refused(&spec, "over_selection");
    spec = over_spec();
    spec.cohort = 0;
    expect_refused(&spec, "over_selection");
    spec.cohort = CLIENTS;
    expect_refused(&spec, "over_selection");
    spec = over_spec();
    spec.algorithm = 0; /* ceal, even if all are drawn */
    spec.params = TALLY_CEAL.defaults();
    spec.over_selection = 10;
    expect_refused(&spec, "cohort");
    spec = over_spec();
    spec.quorum = WANTED + 1;
    expect_refused(&spec, "quorum");
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_job_over_selection__closes_when_enough_have_answered),
    TALLY_TEST(test_job_over_selection__absent_clients_do_not_matter),
    TALLY_TEST(test_job_over_selection__policy_decides_with_fewer),
    TALLY_TEST(test_job_over_selection__simulation_answers_in_the_drawn_order),
    TALLY_TEST(test_job_over_selection__survives_a_restart),
    TALLY_TEST(test_job_over_selection__draws_so_many_more),
    TALLY_TEST(test_job_over_selection__needs_a_cohort_and_a_policy),
};
TALLY_SUITE(job_over_selection, TESTS);
