#include "services/coordinator/hosted_job.h"

#include <string.h>

#include "services/coordinator/ended.h"
#include "services/document/document.h"
#include "services/job/replica.h"
#include "tests/unit/services/coordinator/suites.h"

/* A job in a store in memory, whose rounds store changes, and its one client. */
struct host {
    struct tally_store *store;
    struct hosted_job *job;
    struct tally_objective *objective;
    struct tally_replica *replica;
    struct tally_error err;
    struct tally_job_update last; /* its payload is the replica's, until the next one */
};

static struct tally_job_spec job_spec(void)
{
    struct tally_job_spec spec = tally_job_spec_default();
    strcpy(spec.name, "test");
    spec.params = TALLY_CEAL.defaults();
    spec.params.ceal.step_size = 0.5;
    spec.params.ceal.sigma = 1;
    spec.params.ceal.sample_scale = 0.05;
    spec.params.ceal.log_factor = false;
    spec.objective.data.synthetic_linear = (struct tally_synthetic_linear){
        .dim = 400, .points = 8, .frobenius_norm = 8, .noise_std = 0.5};
    spec.clients = 1;
    spec.quorum = 1;
    spec.horizon = 100000;
    spec.initial_point.type = TALLY_INITIAL_RANDOM_SPHERE;
    spec.initial_point.radius = 12;
    return spec;
}

static void insert_job(struct host *host, const struct tally_job_spec *spec)
{
    struct tally_store_job row = {.id = "j", .name = "test", .algorithm = "ceal"};
    struct tally_buffer document = {0};
    struct tally_json *json = tally_document_of(spec);
    row.clients = spec->clients;
    row.dim = (int64_t)tally_job_spec_setting(spec).dim;
    row.horizon = spec->horizon;
    CU_ASSERT_EQUAL_FATAL(tally_json_dump(json, 0, &document), TALLY_OK);
    tally_json_free(json);
    const struct tally_store_ops *ops = host->store->ops;
    TALLY_ASSERT_STATUS(ops->begin(host->store, &host->err), TALLY_OK, &host->err);
    TALLY_ASSERT_STATUS(ops->job_insert(host->store, &row, (const char *)document.data,
                                        document.size, NULL, 0, &row.key, &host->err),
                        TALLY_OK, &host->err);
    TALLY_ASSERT_STATUS(ops->commit(host->store, &host->err), TALLY_OK, &host->err);
    tally_buffer_fini(&document);
}

static struct hosted_job *load(struct host *host)
{
    struct tally_store_job row;
    struct hosted_job *job = NULL;
    TALLY_ASSERT_STATUS(host->store->ops->job_get(host->store, "j", &row, &host->err), TALLY_OK,
                        &host->err);
    TALLY_ASSERT_STATUS(hosted_job_load(host->store, &row, &job, &host->err), TALLY_OK, &host->err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(job);
    return job;
}

static void host_init_of(struct host *host, const struct tally_job_spec *job)
{
    const struct tally_job_spec spec = *job;
    *host = (struct host){.err = TALLY_ERROR_INIT};
    struct tally_error *err = &host->err;
    TALLY_ASSERT_STATUS(tally_store_memory_open(&host->store, err), TALLY_OK, err);
    insert_job(host, &spec);
    TALLY_ASSERT_STATUS(tally_objective_new(&spec.objective, (uint32_t)spec.clients,
                                            tally_job_spec_setting(&spec).key, NULL,
                                            &host->objective, err),
                        TALLY_OK, err);
    TALLY_ASSERT_STATUS(tally_replica_new(&spec, host->objective, &host->replica, err), TALLY_OK,
                        err);
    host->job = load(host);
    TALLY_ASSERT_STATUS(tally_job_start(host->job->engine, 0, err), TALLY_OK, err);
    CU_ASSERT_EQUAL_FATAL(err->status, TALLY_OK);
}

static void host_init(struct host *host)
{
    const struct tally_job_spec spec = job_spec();
    host_init_of(host, &spec);
}

static void host_fini(struct host *host)
{
    hosted_job_free(host->job);
    tally_replica_free(host->replica);
    tally_objective_free(host->objective);
    host->store->ops->close(host->store);
}

/* The client's update for the open round. */
static void receive(struct host *host, uint32_t client, struct tally_job_outcome *ret_outcome)
{
    struct tally_job *engine = host->job->engine;
    const struct tally_job_round *round = tally_job_open_round(engine);
    const int64_t iterate = tally_job_progress(engine)->iterate;
    struct tally_bits bits;
    size_t dim;
    const double *x = tally_job_point(engine, &dim);
    TALLY_ASSERT_STATUS(
        tally_replica_load(host->replica, iterate, (const uint8_t *)x, dim * sizeof *x, &host->err),
        TALLY_OK, &host->err);
    TALLY_ASSERT_STATUS(
        tally_replica_compute(host->replica, round, client, &host->last, &bits, &host->err),
        TALLY_OK, &host->err);
    TALLY_ASSERT_STATUS(tally_job_receive(engine, &host->last, ret_outcome, &host->err), TALLY_OK,
                        &host->err);
}

/* A round, whose writes are in an open bracket then. Whether a broadcast closed it. */
static bool write_round(struct host *host)
{
    struct tally_job_outcome outcome = {0};
    for (uint32_t m = 0; m < host->job->row.clients; m++) {
        receive(host, m, &outcome);
    }
    CU_ASSERT_EQUAL_FATAL(outcome.n_records, 1);
    TALLY_ASSERT_STATUS(host->store->ops->begin(host->store, &host->err), TALLY_OK, &host->err);
    TALLY_ASSERT_STATUS(hosted_job_put_rounds(host->store, host->job, &outcome, 1, &host->err),
                        TALLY_OK, &host->err);
    return outcome.records[0].passed;
}

/* What is stored is the job as it is. */
static void expect_stored(struct host *host)
{
    struct hosted_job *again = load(host);
    struct tally_buffer a = {0}, b = {0};
    CU_ASSERT_EQUAL(tally_job_save_state(host->job->engine, &a), TALLY_OK);
    CU_ASSERT_EQUAL(tally_job_save_state(again->engine, &b), TALLY_OK);
    CU_ASSERT_TRUE(a.size == b.size && memcmp(a.data, b.data, a.size) == 0);
    tally_buffer_fini(&a);
    tally_buffer_fini(&b);
    hosted_job_free(again);
}

/* Every other round is rolled back once, whether the whole or a change was written. */
static void test_coordinator_hosted_job__goes_on_from_what_is_stored_after_a_rollback(void)
{
    struct host host;
    int n_changes = 0, n_lost = 0;
    host_init(&host);
    for (int i = 0; i < 40; i++) {
        const int before = host.job->stored_state.n_changes;
        const bool has_passed = write_round(&host);
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
    host_fini(&host);
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

/* A job of two clients with some rounds, which is cancelled; the store counts how often it reads a
 * state. */
struct end {
    struct host host;
    struct ended_jobs ended;
    struct tally_store_ops ops;
    struct tally_store_job row;
    struct tally_job_outcome outcome;
};

static void end_init(struct end *end, bool in_open_round)
{
    struct tally_job_spec spec = job_spec();
    struct host *host = &end->host;
    memset(end, 0, sizeof *end);
    spec.clients = spec.quorum = 2;
    host_init_of(host, &spec);
    for (int i = 0; i < 3; i++) {
        write_round(host);
        TALLY_ASSERT_STATUS(host->store->ops->commit(host->store, &host->err), TALLY_OK,
                            &host->err);
    }
    if (in_open_round) {
        receive(host, 0, &end->outcome);
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
    host_fini(&end->host);
}

static enum tally_status post(struct end *end, const struct tally_job_update *update)
{
    struct tally_error err = TALLY_ERROR_INIT;
    return ended_receive(&end->ended, end->host.store, &end->row, update, &end->outcome, &err);
}

/* What the whole job says of the update. */
static enum tally_status ask_job(struct end *end, const struct tally_job_update *update,
                                 struct tally_job_outcome *ret_outcome)
{
    struct tally_error err = TALLY_ERROR_INIT;
    struct hosted_job *again = load(&end->host);
    const enum tally_status status = tally_job_receive(again->engine, update, ret_outcome, &err);
    hosted_job_free(again);
    n_states_read--;
    return status;
}

static void expect_answer_of_job(struct end *end, const struct tally_job_update *update)
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
    const struct tally_job_update right = end.host.last;
    const uint64_t all_bits = end.row.progress.bits.uplink.payload_bits;
    struct tally_job_update wrong[6] = {right, right, right, right, right, right};
    wrong[0].client = 2;
    wrong[1].round = 0;
    wrong[2].round = right.round + 2;
    wrong[3].n_payload--;
    wrong[4].payload_bits += 8;
    wrong[5].payload_bits = all_bits + 1;
    wrong[5].n_payload = all_bits / 8 + 1;
    CU_ASSERT_EQUAL(post(&end, &wrong[0]), TALLY_OUT_OF_RANGE);
    for (int i = 1; i < 6; i++) {
        CU_ASSERT_EQUAL(post(&end, &wrong[i]), TALLY_FAILED_PRECONDITION);
    }
    CU_ASSERT_EQUAL(n_states_read, 0);
    end_fini(&end);
}

/* Messages like the last: it again, another one, of the round before, of the one that was open. */
static void post_all(struct end *end)
{
    const struct tally_job_update right = end->host.last;
    struct tally_job_update other = right, early = right, late = right;
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

/* What was received in the open round is not stored with the job. */
static void test_coordinator_ended__a_job_that_ended_in_a_round_is_read(void)
{
    struct end end;
    end_init(&end, true);
    ended_remember(&end.ended, end.host.job);
    post_all(&end);
    CU_ASSERT_EQUAL(n_states_read, 1);
    end_fini(&end);
}

/* Another replica has led the job for a while: what it counted stays. */
static void test_coordinator_hosted_job__counters_never_go_back_when_it_is_read_again(void)
{
    struct host host;
    struct tally_store_job row;
    host_init(&host);
    const struct tally_store_ops *ops = host.store->ops;
    (void)write_round(&host);
    TALLY_ASSERT_STATUS(ops->job_get(host.store, "j", &row, &host.err), TALLY_OK, &host.err);
    row.recovery_bits = 640;
    row.wire_in_bytes = 437;
    row.wire_out_bytes = 1;
    TALLY_ASSERT_STATUS(ops->job_update(host.store, &row, &host.err), TALLY_OK, &host.err);
    TALLY_ASSERT_STATUS(ops->commit(host.store, &host.err), TALLY_OK, &host.err);
    host.job->wire_out_bytes = 2; /* here and not stored yet */
    TALLY_ASSERT_STATUS(hosted_job_reload(host.store, host.job, &host.err), TALLY_OK, &host.err);
    CU_ASSERT_EQUAL(host.job->recovery_bits, 640);
    CU_ASSERT_EQUAL(host.job->wire_in_bytes, 437);
    CU_ASSERT_EQUAL(host.job->wire_out_bytes, 2);
    host_fini(&host);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_coordinator_ended__what_cannot_be_a_repetition_reads_no_job),
    TALLY_TEST(test_coordinator_ended__a_job_is_read_once_and_answers_as_before),
    TALLY_TEST(test_coordinator_ended__a_job_that_ended_here_is_not_read),
    TALLY_TEST(test_coordinator_ended__a_job_that_ended_in_a_round_is_read),
    TALLY_TEST(test_coordinator_hosted_job__goes_on_from_what_is_stored_after_a_rollback),
    TALLY_TEST(test_coordinator_hosted_job__counters_never_go_back_when_it_is_read_again),
};

TALLY_SUITE(coordinator_hosted_job_suite, "coordinator_hosted_job", TESTS);
