/* Clients that do not answer: quorum, deadline and policy. */
#include <string.h>

#include "tests/harness.h"
#include "tests/unit/services/job/job_host.h"

static void start(struct job_host *host, int policy, int64_t quorum)
{
    struct tally_job_spec spec = job_host_spec();
    spec.policy = policy;
    spec.quorum = quorum;
    job_host_init(host, &spec);
    job_host_compute(host);
}

static void keep(struct job_host *host, const struct tally_job_outcome *outcome)
{
    for (int i = 0; i < outcome->n_records; i++) {
        host->records[host->n_records++] = outcome->records[i];
    }
}

static void overdue(struct job_host *host)
{
    struct tally_job_outcome outcome;
    CU_ASSERT_EQUAL_FATAL(tally_job_overdue(host->job, &outcome, NULL), TALLY_OK);
    keep(host, &outcome);
}

static void set_absent(struct job_host *host, uint32_t client, bool absent)
{
    struct tally_job_outcome outcome;
    tally_job_set_absent(host->job, client, absent, &outcome);
    CU_ASSERT_EQUAL(tally_job_is_absent(host->job, client), absent);
    keep(host, &outcome);
}

static void expect_missing(const struct job_host *host, const char *missing)
{
    char text[TALLY_MISSING_CAPACITY];
    tally_job_list_missing(host->job, text);
    TALLY_ASSERT_TEXT(text, missing);
}

static void test_job_stragglers__waiting_knows_no_deadline(void)
{
    struct job_host host;
    start(&host, TALLY_POLICY_WAIT, 1);
    for (uint32_t m = 0; m < 4; m++) {
        job_host_send(&host, m);
    }
    overdue(&host);
    set_absent(&host, 4, true);
    CU_ASSERT_EQUAL(host.n_records, 0);
    CU_ASSERT_TRUE(tally_job_open_round(host.job)->overdue);
    expect_missing(&host, "4");
    job_host_send(&host, 4);
    CU_ASSERT_EQUAL_FATAL(host.n_records, 1);
    CU_ASSERT_EQUAL(host.records[0].received, 5);
    TALLY_ASSERT_TEXT(host.records[0].missing, "");
    CU_ASSERT_FALSE(tally_job_open_round(host.job)->overdue);
    job_host_fini(&host);
}

static void test_job_stragglers__dropping_closes_at_the_deadline_with_the_quorum(void)
{
    struct job_host host;
    start(&host, TALLY_POLICY_DROP, 3);
    job_host_send(&host, 4);
    job_host_send(&host, 1);
    overdue(&host); /* two answers are too few */
    CU_ASSERT_EQUAL(host.n_records, 0);
    CU_ASSERT_TRUE(tally_job_is_absent(host.job, 0));
    job_host_send(&host, 3); /* the third closes the round at once */
    CU_ASSERT_EQUAL_FATAL(host.n_records, 1);
    CU_ASSERT_EQUAL(host.records[0].received, 3);
    CU_ASSERT_EQUAL(host.records[0].bits.uplink.messages, 3);
    TALLY_ASSERT_TEXT(host.records[0].missing, "0 2");
    job_host_fini(&host);
}

static void test_job_stragglers__before_the_deadline_a_quorum_is_not_enough(void)
{
    struct job_host host;
    start(&host, TALLY_POLICY_DROP, 1);
    for (uint32_t m = 0; m < 4; m++) {
        job_host_send(&host, m);
    }
    CU_ASSERT_EQUAL(host.n_records, 0);
    overdue(&host);
    CU_ASSERT_EQUAL(host.n_records, 1);
    job_host_fini(&host);
}

static void test_job_stragglers__absent_clients_are_not_waited_for(void)
{
    struct job_host host;
    start(&host, TALLY_POLICY_DROP, 2);
    set_absent(&host, 0, true);
    set_absent(&host, 2, true);
    job_host_send(&host, 1);
    job_host_send(&host, 3);
    CU_ASSERT_EQUAL(host.n_records, 0);
    job_host_send(&host, 4); /* the last present client */
    CU_ASSERT_EQUAL_FATAL(host.n_records, 1);
    TALLY_ASSERT_TEXT(host.records[0].missing, "0 2");
    job_host_compute(&host);
    job_host_send(&host, 1);
    set_absent(&host, 0, false); /* it is back and awaited again */
    job_host_send(&host, 3);
    job_host_send(&host, 4);
    CU_ASSERT_EQUAL(host.n_records, 1);
    job_host_send(&host, 0);
    CU_ASSERT_EQUAL_FATAL(host.n_records, 2);
    TALLY_ASSERT_TEXT(host.records[1].missing, "2");
    job_host_fini(&host);
}

static void test_job_stragglers__leaving_of_the_last_one_awaited_closes_the_round(void)
{
    struct job_host host;
    start(&host, TALLY_POLICY_DROP, 4);
    for (uint32_t m = 0; m < 4; m++) {
        job_host_send(&host, m);
    }
    set_absent(&host, 4, true);
    CU_ASSERT_EQUAL_FATAL(host.n_records, 1);
    TALLY_ASSERT_TEXT(host.records[0].missing, "4");
    job_host_fini(&host);
}

static void test_job_stragglers__answer_of_an_absent_client_counts(void)
{
    struct job_host host;
    start(&host, TALLY_POLICY_DROP, 1);
    set_absent(&host, 2, true);
    job_host_send(&host, 2);
    CU_ASSERT_TRUE(tally_job_is_absent(host.job, 2));
    for (uint32_t m = 0; m < 5; m++) {
        if (m != 2) {
            CU_ASSERT_EQUAL(host.n_records, 0);
            job_host_send(&host, m);
        }
    }
    CU_ASSERT_EQUAL_FATAL(host.n_records, 1);
    CU_ASSERT_EQUAL(host.records[0].received, 5);
    TALLY_ASSERT_TEXT(host.records[0].missing, "");
    job_host_compute(&host);
    for (uint32_t m = 0; m < 5; m++) {
        if (m != 2) {
            job_host_send(&host, m);
        }
    }
    CU_ASSERT_EQUAL_FATAL(host.n_records, 2); /* it is still absent */
    TALLY_ASSERT_TEXT(host.records[1].missing, "2");
    job_host_fini(&host);
}

static void test_job_stragglers__failing_says_who_is_missing(void)
{
    struct job_host host;
    start(&host, TALLY_POLICY_FAIL, 4);
    job_host_send(&host, 0);
    job_host_send(&host, 4);
    set_absent(&host, 1, true);
    set_absent(&host, 2, true);
    set_absent(&host, 3, true);
    CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_RUNNING); /* until the deadline */
    overdue(&host);
    CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_FAILED);
    TALLY_ASSERT_TEXT(
        tally_job_reason(host.job),
        "quorum_missed: round 1 has 2 of 5 answers after 30000 ms; quorum: 4; missing "
        "clients: 1-3");
    job_host_fini(&host);
}

static void test_job_stragglers__failing_drops_above_the_quorum(void)
{
    struct job_host host;
    start(&host, TALLY_POLICY_FAIL, 4);
    for (uint32_t m = 1; m < 5; m++) {
        job_host_send(&host, m);
    }
    CU_ASSERT_EQUAL(host.n_records, 0);
    overdue(&host);
    CU_ASSERT_EQUAL_FATAL(host.n_records, 1);
    TALLY_ASSERT_TEXT(host.records[0].missing, "0");
    CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_RUNNING);
    job_host_fini(&host);
}

static void test_job_stragglers__late_answer_changes_nothing(void)
{
    struct job_host host;
    start(&host, TALLY_POLICY_DROP, 1);
    for (uint32_t m = 0; m < 4; m++) {
        job_host_send(&host, m);
    }
    overdue(&host);
    struct job_look before = job_look(host.job);
    struct tally_job_outcome outcome;
    CU_ASSERT_EQUAL(tally_job_receive(host.job, &host.updates[4], &outcome, NULL),
                    TALLY_FAILED_PRECONDITION);
    struct job_look after = job_look(host.job);
    CU_ASSERT_TRUE(job_looks_same(&before, &after));
    CU_ASSERT_EQUAL(tally_job_receive(host.job, &host.updates[3], &outcome, NULL), TALLY_OK);
    CU_ASSERT_TRUE(outcome.duplicate);
    job_look_fini(&before);
    job_look_fini(&after);
    job_host_fini(&host);
}

/* The step of a job without client 4 is the mean of the answers received, not of all clients. */
static void test_job_stragglers__average_is_over_those_received(void)
{
    struct job_host host;
    start(&host, TALLY_POLICY_DROP, 1);
    size_t dim;
    double mean[16] = {0};
    double loss = 0;
    const struct tally_grid grid = tally_job_open_round(host.job)->plan.grid;
    for (uint32_t m = 0; m < 4; m++) {
        int32_t levels[16];
        struct tally_level_stats stats;
        const struct tally_update *update = &host.updates[m];
        tally_job_point(host.job, &dim);
        CU_ASSERT_EQUAL_FATAL(
            TALLY_ENCODING_UNARY.decode(update->payload.data, update->payload.size,
                                        update->payload_bits, dim, &grid, levels, &stats, NULL),
            TALLY_OK);
        for (size_t i = 0; i < dim; i++) {
            mean[i] += levels[i] * grid.step / 4;
        }
        loss += update->loss / 4;
        job_host_send(&host, m);
    }
    overdue(&host);
    CU_ASSERT_EQUAL_FATAL(host.n_records, 1);
    double norm = 0;
    for (size_t i = 0; i < dim; i++) {
        norm += mean[i] * mean[i];
    }
    CU_ASSERT_DOUBLE_EQUAL(host.records[0].norm * host.records[0].norm, norm, 1e-12 * norm);
    CU_ASSERT_DOUBLE_EQUAL(host.records[0].loss, loss, 1e-12 * loss);
    CU_ASSERT_DOUBLE_EQUAL(host.records[0].cumulative_regret,
                           5.0 * (double)host.records[0].samples * (loss - host.f_star),
                           1e-9 * loss);
    job_host_fini(&host);
}

static void test_job_stragglers__restored_round_awaits_everybody_again(void)
{
    struct job_host host;
    start(&host, TALLY_POLICY_DROP, 1);
    set_absent(&host, 4, true);
    overdue(&host);
    struct job_look look = job_look(host.job);
    struct tally_job *job;
    CU_ASSERT_EQUAL_FATAL(tally_job_restore(&host.spec, TALLY_JOB_RUNNING, &look.progress,
                                            look.state.data, look.state.size, &job, NULL),
                          TALLY_OK);
    CU_ASSERT_FALSE(tally_job_is_absent(job, 4));
    CU_ASSERT_FALSE(tally_job_open_round(job)->overdue);
    struct tally_job_outcome outcome;
    for (uint32_t m = 0; m < 4; m++) {
        CU_ASSERT_EQUAL(tally_job_receive(job, &host.updates[m], &outcome, NULL), TALLY_OK);
        CU_ASSERT_EQUAL(outcome.n_records, 0);
    }
    tally_job_free(job);
    job_look_fini(&look);
    job_host_fini(&host);
}

static void test_job_stragglers__paused_job_has_no_deadline(void)
{
    struct job_host host;
    start(&host, TALLY_POLICY_FAIL, 5);
    struct tally_job_outcome outcome;
    CU_ASSERT_EQUAL(tally_job_pause(host.job, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(tally_job_overdue(host.job, &outcome, NULL), TALLY_FAILED_PRECONDITION);
    CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_PAUSED);
    job_host_fini(&host);
}

/* All clients but 3 answer. Checks the round's record and returns whether it was cut. */
static bool round_without_3(struct job_host *host)
{
    const struct tally_job_round round = *tally_job_open_round(host->job);
    double loss = 0;
    for (uint32_t m = 0; m < 5; m++) {
        loss += m != 3 ? host->updates[m].loss / 4 : 0;
    }
    const int n_before = host->n_records;
    for (uint32_t m = 0; m < 5; m++) {
        if (m != 3) {
            CU_ASSERT_EQUAL(host->n_records, n_before);
            job_host_send(host, m);
        }
    }
    CU_ASSERT_FATAL(host->n_records > n_before);
    const struct tally_round_record *record = &host->records[n_before];
    CU_ASSERT_EQUAL(record->round, round.round);
    TALLY_ASSERT_TEXT(record->missing, "3");
    if (round.evaluate) {
        CU_ASSERT_DOUBLE_EQUAL(record->loss, loss, 1e-12 * loss);
    }
    if (host->n_records > n_before + 1) { /* the next round was cut and had no task */
        TALLY_ASSERT_TEXT(host->records[n_before + 1].missing, "");
    }
    return record->cut;
}

/* A job in which client 3 answers only the first round completes, and its records add up. */
static bool run_without_3(int64_t horizon)
{
    struct job_host host;
    struct tally_ledger sum = {0};
    struct tally_job_spec spec = job_host_spec();
    bool cut = false;
    spec.policy = TALLY_POLICY_DROP;
    spec.quorum = 4;
    spec.horizon = horizon;
    job_host_init(&host, &spec);
    job_host_round(&host);
    set_absent(&host, 3, true);
    while (!tally_job_status_is_terminal(tally_job_status(host.job))) {
        job_host_compute(&host);
        cut = round_without_3(&host);
    }
    CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_COMPLETED);
    for (int i = 0; i < host.n_records; i++) {
        tally_ledger_add(&sum, &host.records[i].bits);
    }
    const struct tally_progress *progress = tally_job_progress(host.job);
    CU_ASSERT_EQUAL(memcmp(&sum, &progress->bits, sizeof sum), 0);
    CU_ASSERT_EQUAL(progress->time_step, host.spec.horizon);
    job_host_fini(&host);
    return cut;
}

static void test_job_stragglers__resumed_round_has_its_time_again(void)
{
    struct job_host host;
    start(&host, TALLY_POLICY_DROP, 2);
    job_host_send(&host, 0);
    overdue(&host); /* one answer is too few */
    CU_ASSERT_EQUAL(tally_job_pause(host.job, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(tally_job_resume(host.job, NULL), TALLY_OK);
    CU_ASSERT_FALSE(tally_job_open_round(host.job)->overdue);
    set_absent(&host, 2, false); /* its worker has sent something */
    job_host_send(&host, 1);
    CU_ASSERT_EQUAL(host.n_records, 0);
    overdue(&host);
    CU_ASSERT_EQUAL_FATAL(host.n_records, 1);
    TALLY_ASSERT_TEXT(host.records[0].missing, "2-4");
    job_host_fini(&host);
}

/* The horizon may cut a round that would pass or one that would not. */
static void test_job_stragglers__job_without_one_client_completes(void)
{
    int n_cut = 0;
    for (int64_t horizon = 100; horizon <= 300; horizon += 4) {
        n_cut += run_without_3(horizon);
    }
    CU_ASSERT(n_cut > 0 && n_cut < 51);
}

static void test_job_stragglers__long_lists_are_cut(void)
{
    struct job_host host;
    struct tally_job_spec spec = job_host_spec();
    char text[TALLY_MISSING_CAPACITY];
    job_host_init(&host, &spec); /* for its objective and copy: data do not depend on M */
    struct tally_job *job;
    spec.clients = 60;
    CU_ASSERT_EQUAL_FATAL(tally_job_new(&spec, &job, NULL), TALLY_OK);
    CU_ASSERT_EQUAL_FATAL(tally_job_start(job, 0, "", NULL), TALLY_OK);
    tally_job_list_missing(job, text);
    TALLY_ASSERT_TEXT(text, "0-59");
    job_host_compute(&host);
    for (uint32_t m = 1; m < 60; m += 2) {
        struct tally_update update = host.updates[0];
        struct tally_job_outcome outcome;
        update.client = m;
        update.mark = 0; /* its own is that of another job */
        CU_ASSERT_EQUAL(tally_job_receive(job, &update, &outcome, NULL), TALLY_OK);
    }
    tally_job_list_missing(job, text);
    TALLY_ASSERT_TEXT(text, "0 2 4 6 8 10 12 14 16 18 20 22 24 26 28 30 32 34 36 38 40 ...");
    tally_job_free(job);
    job_host_fini(&host);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_job_stragglers__waiting_knows_no_deadline),
    TALLY_TEST(test_job_stragglers__dropping_closes_at_the_deadline_with_the_quorum),
    TALLY_TEST(test_job_stragglers__before_the_deadline_a_quorum_is_not_enough),
    TALLY_TEST(test_job_stragglers__absent_clients_are_not_waited_for),
    TALLY_TEST(test_job_stragglers__leaving_of_the_last_one_awaited_closes_the_round),
    TALLY_TEST(test_job_stragglers__answer_of_an_absent_client_counts),
    TALLY_TEST(test_job_stragglers__failing_says_who_is_missing),
    TALLY_TEST(test_job_stragglers__failing_drops_above_the_quorum),
    TALLY_TEST(test_job_stragglers__late_answer_changes_nothing),
    TALLY_TEST(test_job_stragglers__average_is_over_those_received),
    TALLY_TEST(test_job_stragglers__restored_round_awaits_everybody_again),
    TALLY_TEST(test_job_stragglers__paused_job_has_no_deadline),
    TALLY_TEST(test_job_stragglers__resumed_round_has_its_time_again),
    TALLY_TEST(test_job_stragglers__job_without_one_client_completes),
    TALLY_TEST(test_job_stragglers__long_lists_are_cut),
};
TALLY_SUITE(job_stragglers, TESTS);
