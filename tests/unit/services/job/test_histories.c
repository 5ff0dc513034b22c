/* A store that loses commits in a power cut sets a job back. The job's rounds close again, perhaps
 * without some clients. Updates of the lost history must not count in the new one. */
#include <math.h>
#include <string.h>

#include "tests/harness.h"
#include "tests/unit/services/job/job_host.h"

/* The same job in two histories. In the second one, round 1 closes without client 4. */
struct histories {
    struct job_host lost, present;
};

static uint32_t mark_of(const struct job_host *host)
{
    return tally_job_open_round(host->job)->mark;
}

/* Computes updates as the worker does, which repeats the mark of its task. */
static void compute(struct job_host *host)
{
    job_host_compute(host);
    for (uint32_t m = 0; m < host->spec.clients; m++) {
        host->updates[m].mark = mark_of(host);
    }
}

static void run_round_1(struct job_host *host, const struct tally_job_spec *spec, uint32_t clients)
{
    struct tally_job_outcome outcome;
    job_host_init(host, spec);
    compute(host);
    for (uint32_t m = 0; m < clients; m++) {
        job_host_send(host, m);
    }
    tally_job_overdue(host->job, &outcome, NULL);
    CU_ASSERT_EQUAL_FATAL(tally_job_open_round(host->job)->round, 2);
    compute(host);
}

static void part(struct histories *histories, const struct tally_job_spec *spec)
{
    struct tally_job_spec dropping = *spec;
    dropping.policy = TALLY_POLICY_DROP;
    dropping.quorum = 1;
    run_round_1(&histories->lost, &dropping, 5);
    run_round_1(&histories->present, &dropping, 4);
}

static void histories_fini(struct histories *histories)
{
    job_host_fini(&histories->lost);
    job_host_fini(&histories->present);
}

static enum tally_status receive(struct job_host *host, const struct tally_update *update,
                                 struct tally_error *err)
{
    struct tally_job_outcome outcome;
    return tally_job_receive(host->job, update, &outcome, err);
}

/* The update is refused and leaves no trace. */
static void expect_refusal(struct job_host *host, const struct tally_update *update)
{
    struct tally_error err = TALLY_ERROR_INIT;
    struct job_look before = job_look(host->job);
    CU_ASSERT_EQUAL(receive(host, update, &err), TALLY_FAILED_PRECONDITION);
    TALLY_ASSERT_TEXT(err.field, "mark");
    struct job_look after = job_look(host->job);
    CU_ASSERT_TRUE(job_looks_same(&before, &after));
    job_look_fini(&before);
    job_look_fini(&after);
}

static void test_job_histories__update_of_a_lost_one_is_refused(void)
{
    const struct tally_job_spec spec = job_host_spec();
    struct histories histories;
    part(&histories, &spec);
    CU_ASSERT_NOT_EQUAL(mark_of(&histories.lost), mark_of(&histories.present));
    expect_refusal(&histories.present, &histories.lost.updates[1]);
    CU_ASSERT_EQUAL(receive(&histories.present, &histories.present.updates[1], NULL), TALLY_OK);
    /* It is not taken for a duplicate of the acknowledged update either. */
    expect_refusal(&histories.present, &histories.lost.updates[1]);
    histories_fini(&histories);
}

/* A worker need not repeat the mark. */
static void test_job_histories__update_without_a_mark_is_taken(void)
{
    struct job_host host;
    job_host_init_standard(&host);
    compute(&host);
    host.updates[0].mark = 0;
    CU_ASSERT_EQUAL(receive(&host, &host.updates[0], NULL), TALLY_OK);
    host.updates[1].mark = mark_of(&host) + 1;
    expect_refusal(&host, &host.updates[1]);
    job_host_fini(&host);
}

/* The opening round does not move the point, but the grid of the next round follows from its
 * estimates. */
static void test_job_histories__same_point_on_another_grid_has_another_mark(void)
{
    struct tally_job_spec spec = job_host_spec();
    spec.params.ceal.sigma = spec.params.ceal.gradient_bound = NAN;
    struct histories histories;
    part(&histories, &spec);
    CU_ASSERT_EQUAL(tally_job_progress(histories.lost.job)->x_checksum,
                    tally_job_progress(histories.present.job)->x_checksum);
    CU_ASSERT_NOT_EQUAL(mark_of(&histories.lost), mark_of(&histories.present));
    expect_refusal(&histories.present, &histories.lost.updates[0]);
    histories_fini(&histories);
}

/* Rounds that close again in the same way give the same marks, and a restart alone changes
 * nothing. */
static void test_job_histories__mark_is_a_function_of_what_has_happened(void)
{
    const struct tally_job_spec spec = job_host_spec();
    struct job_host one, again;
    struct tally_job *restored;
    struct job_look look;
    run_round_1(&one, &spec, 5);
    run_round_1(&again, &spec, 5);
    CU_ASSERT_EQUAL(mark_of(&one), mark_of(&again));
    look = job_look(one.job);
    CU_ASSERT_EQUAL_FATAL(tally_job_restore(&spec, look.status, &look.progress, look.state.data,
                                            look.state.size, &restored, NULL),
                          TALLY_OK);
    CU_ASSERT_EQUAL(tally_job_open_round(restored)->mark, mark_of(&one));
    tally_job_free(restored);
    job_look_fini(&look);
    job_host_fini(&one);
    job_host_fini(&again);
}

/* Consecutive rounds of one history have different marks. A mark is below 2^28 and never 0, which
 * means none. */
static void test_job_histories__each_round_has_a_mark_of_its_own(void)
{
    struct job_host host;
    uint32_t before = 0;
    job_host_init_standard(&host);
    while (!tally_job_status_is_terminal(tally_job_status(host.job))) {
        const uint32_t mark = mark_of(&host);
        CU_ASSERT_TRUE(mark > 0 && mark < UINT32_C(1) << 28 && mark != before);
        before = mark;
        job_host_round(&host);
    }
    job_host_fini(&host);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_job_histories__update_of_a_lost_one_is_refused),
    TALLY_TEST(test_job_histories__update_without_a_mark_is_taken),
    TALLY_TEST(test_job_histories__same_point_on_another_grid_has_another_mark),
    TALLY_TEST(test_job_histories__mark_is_a_function_of_what_has_happened),
    TALLY_TEST(test_job_histories__each_round_has_a_mark_of_its_own),
};
TALLY_SUITE(job_histories, TESTS);
