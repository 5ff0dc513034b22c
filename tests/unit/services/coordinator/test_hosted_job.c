#include "services/coordinator/hosted_job.h"

#include <string.h>

#include "services/coordinator/jobs_ended.h"
#include "tests/harness.h"
#include "tests/unit/services/coordinator/job_in_store.h"

/* Checks that the stored job equals the job in memory. */
static void expect_stored(struct job_in_store *host)
{
    struct hosted_job *again = job_in_store_load(host);
    struct tally_buffer a = {0}, b = {0};
    CU_ASSERT_EQUAL(tally_job_save_state(host->job->engine, &a), TALLY_OK);
    CU_ASSERT_EQUAL(tally_job_save_state(again->engine, &b), TALLY_OK);
    CU_ASSERT_TRUE(a.size == b.size && memcmp(a.data, b.data, a.size) == 0);
    tally_buffer_fini(&a);
    tally_buffer_fini(&b);
    hosted_job_free(again);
}

/* Every other round is rolled back once, whether it wrote a full snapshot or a change. */
static void test_coordinator_hosted_job__goes_on_from_what_is_stored_after_a_rollback(void)
{
    struct job_in_store host;
    int n_changes = 0, n_lost = 0;
    job_in_store_init(&host, NULL, NULL);
    for (int i = 0; i < 40; i++) {
        const int before = host.job->stored_state.n_changes;
        const bool has_passed = job_in_store_write_round(&host);
        const bool is_change = host.job->stored_state.n_changes > before;
        if (i > 0 && i % 2 == 0) {
            host.store->ops->rollback(host.store);
            TALLY_ASSERT_STATUS(hosted_job_reload(host.store, host.job, &host.err), TALLY_OK,
                                &host.err);
            n_lost += has_passed && is_change;
        } else {
            TALLY_ASSERT_STATUS(host.store->ops->commit(host.store, &host.err), TALLY_OK,
                                &host.err);
            n_changes += is_change;
        }
        expect_stored(&host);
    }
    CU_ASSERT_TRUE(n_changes > 0);
    CU_ASSERT_TRUE(n_lost > 0);
    job_in_store_fini(&host);
}

/* ---- Updates for a job that has ended ---- */

static int n_states_read;
static const struct tally_store_ops *counted_ops;

static enum tally_status count_state_get(struct tally_store *store, int64_t job_key,
                                         struct tally_buffer *out, struct tally_error *err)
{
    n_states_read++;
    return counted_ops->state_get(store, job_key, out, err);
}

/* A job of two clients that was cancelled after some rounds. The store counts its reads of a
 * state. */
struct end {
    struct job_in_store host;
    struct ended_jobs ended;
    struct tally_store_ops ops;
    struct tally_store_job row;
    struct tally_job_outcome outcome;
};

static void end_init(struct end *end, bool in_open_round)
{
    struct tally_job_spec spec = job_in_store_spec();
    struct job_in_store *host = &end->host;
    memset(end, 0, sizeof *end);
    ended_init(&end->ended);
    spec.clients = spec.quorum = 2;
    job_in_store_init(host, NULL, &spec);
    for (int i = 0; i < 3; i++) {
        job_in_store_write_round(host);
        TALLY_ASSERT_STATUS(host->store->ops->commit(host->store, &host->err), TALLY_OK,
                            &host->err);
    }
    if (in_open_round) {
        job_in_store_receive(host, 0, &end->outcome);
    }
    TALLY_ASSERT_STATUS(tally_job_cancel(host->job->engine, &host->err), TALLY_OK, &host->err);
    TALLY_ASSERT_STATUS(host->store->ops->begin(host->store, &host->err), TALLY_OK, &host->err);
    TALLY_ASSERT_STATUS(hosted_job_put_row(host->store, host->job, 1, &host->err), TALLY_OK,
                        &host->err);
    TALLY_ASSERT_STATUS(host->store->ops->commit(host->store, &host->err), TALLY_OK, &host->err);
    TALLY_ASSERT_STATUS(host->store->ops->job_get(host->store, "j", &end->row, &host->err),
                        TALLY_OK, &host->err);
    n_states_read = 0;
    counted_ops = host->store->ops;
    end->ops = *counted_ops;
    end->ops.state_get = count_state_get;
    host->store->ops = &end->ops;
}

static void end_fini(struct end *end)
{
    ended_fini(&end->ended);
    job_in_store_fini(&end->host);
}

static enum tally_status post(struct end *end, const struct tally_update *update)
{
    struct tally_error err = TALLY_ERROR_INIT;
    return ended_receive(&end->ended, end->host.store, &end->row, update, &end->outcome, &err);
}

/* Passes the update to the fully loaded job and returns its response. */
static enum tally_status ask_job(struct end *end, const struct tally_update *update,
                                 struct tally_job_outcome *ret_outcome)
{
    struct tally_error err = TALLY_ERROR_INIT;
    struct hosted_job *again = job_in_store_load(&end->host);
    const enum tally_status status = tally_job_receive(again->engine, update, ret_outcome, &err);
    hosted_job_free(again);
    n_states_read--;
    return status;
}

static void expect_answer_of_job(struct end *end, const struct tally_update *update)
{
    struct tally_job_outcome outcome = {0};
    const enum tally_status status = ask_job(end, update, &outcome);
    end->outcome = (struct tally_job_outcome){0};
    CU_ASSERT_EQUAL(post(end, update), status);
    CU_ASSERT_EQUAL(end->outcome.duplicate, outcome.duplicate);
    CU_ASSERT_EQUAL(end->outcome.bits.formula_bits, outcome.bits.formula_bits);
    CU_ASSERT_EQUAL(end->outcome.bits.payload_bits, outcome.bits.payload_bits);
}

static void test_coordinator_ended__what_cannot_be_a_repetition_reads_no_job(void)
{
    struct end end;
    end_init(&end, false);
    const struct tally_update right = end.host.last;
    const uint64_t all_bits = end.row.progress.bits.uplink.payload_bits;
    struct tally_update wrong[6] = {right, right, right, right, right, right};
    wrong[0].client = 2;
    wrong[1].round = 0;
    wrong[2].round = right.round + 2;
    wrong[3].payload.size--;
    wrong[4].payload_bits += 8;
    wrong[5].payload_bits = all_bits + 1;
    wrong[5].payload.size = all_bits / 8 + 1;
    CU_ASSERT_EQUAL(post(&end, &wrong[0]), TALLY_OUT_OF_RANGE);
    for (int i = 1; i < 6; i++) {
        CU_ASSERT_EQUAL(post(&end, &wrong[i]), TALLY_FAILED_PRECONDITION);
    }
    CU_ASSERT_EQUAL(n_states_read, 0);
    end_fini(&end);
}

/* The job has no round, so no update can be a repetition. */
static void test_coordinator_ended__a_job_cancelled_in_the_queue_is_not_read(void)
{
    struct end end;
    end_init(&end, false);
    struct tally_update update = end.host.last;
    end.row.started_ms = 0;
    end.row.progress = (struct tally_progress){.round = 0};
    update.round = 1;
    CU_ASSERT_EQUAL(post(&end, &update), TALLY_FAILED_PRECONDITION);
    CU_ASSERT_EQUAL(n_states_read, 0);
    end_fini(&end);
}

/* Variants of the last message: the same one, other bytes, the round before, the open round. */
static void post_all(struct end *end)
{
    const struct tally_update right = end->host.last;
    struct tally_update other = right, early = right, late = right;
    other.clipped++;
    early.round--;
    late.round = (uint32_t)end->row.progress.round + 1;
    expect_answer_of_job(end, &right);
    expect_answer_of_job(end, &other);
    expect_answer_of_job(end, &early);
    expect_answer_of_job(end, &late);
}

static void test_coordinator_ended__a_job_is_read_once_and_answers_as_before(void)
{
    struct end end;
    end_init(&end, false);
    CU_ASSERT_EQUAL(post(&end, &end.host.last), TALLY_OK);
    CU_ASSERT_TRUE(end.outcome.duplicate);
    CU_ASSERT_EQUAL(n_states_read, 1);
    post_all(&end);
    CU_ASSERT_EQUAL(n_states_read, 1);
    end_fini(&end);
}

static void test_coordinator_ended__a_job_that_ended_here_is_not_read(void)
{
    struct end end;
    end_init(&end, false);
    ended_remember(&end.ended, end.host.job);
    post_all(&end);
    CU_ASSERT_EQUAL(n_states_read, 0);
    end_fini(&end);
}

/* Updates of the open round are not stored with the job. */
static void test_coordinator_ended__a_job_that_ended_in_a_round_is_read(void)
{
    struct end end;
    end_init(&end, true);
    ended_remember(&end.ended, end.host.job);
    post_all(&end);
    CU_ASSERT_EQUAL(n_states_read, 1);
    end_fini(&end);
}

/* Another replica led the job meanwhile: its counts are kept, except where ours are larger. */
static void test_coordinator_hosted_job__counters_never_go_back_when_it_is_read_again(void)
{
    struct job_in_store host;
    struct tally_store_job row;
    job_in_store_init(&host, NULL, NULL);
    const struct tally_store_ops *ops = host.store->ops;
    (void)job_in_store_write_round(&host);
    TALLY_ASSERT_STATUS(ops->job_get(host.store, "j", &row, &host.err), TALLY_OK, &host.err);
    row.recovery_bits = 640;
    row.wire_in_bytes = 437;
    row.wire_out_bytes = 1;
    TALLY_ASSERT_STATUS(ops->job_update(host.store, &row, &host.err), TALLY_OK, &host.err);
    TALLY_ASSERT_STATUS(ops->commit(host.store, &host.err), TALLY_OK, &host.err);
    host.job->wire_out_bytes = 2; /* counted here, not stored yet */
    TALLY_ASSERT_STATUS(hosted_job_reload(host.store, host.job, &host.err), TALLY_OK, &host.err);
    CU_ASSERT_EQUAL(host.job->recovery_bits, 640);
    CU_ASSERT_EQUAL(host.job->wire_in_bytes, 437);
    CU_ASSERT_EQUAL(host.job->wire_out_bytes, 2);
    job_in_store_fini(&host);
}

/* The plan of a job is in its row, and a replica that does not know the plan keeps it there. */
static void test_coordinator_hosted_job__schedule_stays_stored(void)
{
    static const char SCHEDULE[] = "1 7 0x1.2p+1 0x1.3p+1";
    struct job_in_store host;
    job_in_store_init(&host, NULL, NULL);
    memcpy(host.job->schedule, SCHEDULE, sizeof SCHEDULE);
    for (int i = 0; i < 2; i++) {
        (void)job_in_store_write_round(&host);
        TALLY_ASSERT_STATUS(host.store->ops->commit(host.store, &host.err), TALLY_OK, &host.err);
        struct hosted_job *again = job_in_store_load(&host);
        TALLY_ASSERT_TEXT(again->row.schedule, SCHEDULE);
        TALLY_ASSERT_TEXT(again->schedule, SCHEDULE);
        hosted_job_free(again);
        host.job->schedule[0] = '\0';
    }
    job_in_store_fini(&host);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_coordinator_ended__what_cannot_be_a_repetition_reads_no_job),
    TALLY_TEST(test_coordinator_ended__a_job_cancelled_in_the_queue_is_not_read),
    TALLY_TEST(test_coordinator_ended__a_job_is_read_once_and_answers_as_before),
    TALLY_TEST(test_coordinator_ended__a_job_that_ended_here_is_not_read),
    TALLY_TEST(test_coordinator_ended__a_job_that_ended_in_a_round_is_read),
    TALLY_TEST(test_coordinator_hosted_job__goes_on_from_what_is_stored_after_a_rollback),
    TALLY_TEST(test_coordinator_hosted_job__counters_never_go_back_when_it_is_read_again),
    TALLY_TEST(test_coordinator_hosted_job__schedule_stays_stored),
};

TALLY_SUITE(coordinator_hosted_job, TESTS);
