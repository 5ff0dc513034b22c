#include "services/coordinator/hosted_job.h"

#include <string.h>

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

static void host_init(struct host *host)
{
    const struct tally_job_spec spec = job_spec();
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

static void host_fini(struct host *host)
{
    hosted_job_free(host->job);
    tally_replica_free(host->replica);
    tally_objective_free(host->objective);
    host->store->ops->close(host->store);
}

/* A round, whose writes are in an open bracket then. Whether a broadcast closed it. */
static bool write_round(struct host *host)
{
    struct tally_job *engine = host->job->engine;
    const struct tally_job_round *round = tally_job_open_round(engine);
    const int64_t iterate = tally_job_progress(engine)->iterate;
    struct tally_job_update update;
    struct tally_bits bits;
    struct tally_job_outcome outcome;
    size_t dim;
    const double *x = tally_job_point(engine, &dim);
    TALLY_ASSERT_STATUS(
        tally_replica_load(host->replica, iterate, (const uint8_t *)x, dim * sizeof *x, &host->err),
        TALLY_OK, &host->err);
    TALLY_ASSERT_STATUS(tally_replica_compute(host->replica, round, 0, &update, &bits, &host->err),
                        TALLY_OK, &host->err);
    TALLY_ASSERT_STATUS(tally_job_receive(engine, &update, &outcome, &host->err), TALLY_OK,
                        &host->err);
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

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_coordinator_hosted_job__goes_on_from_what_is_stored_after_a_rollback),
};

TALLY_SUITE(coordinator_hosted_job_suite, "coordinator_hosted_job", TESTS);
