#include "tests/unit/services/coordinator/job_in_store.h"

#include <string.h>

#include "services/job/document.h"
#include "storage/backends.h"
#include "tests/harness.h"

struct tally_job_spec job_in_store_spec(void)
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

static void insert_job(struct job_in_store *host, const struct tally_job_spec *spec)
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

struct hosted_job *job_in_store_load(struct job_in_store *host)
{
    struct tally_store_job row;
    struct hosted_job *job = NULL;
    TALLY_ASSERT_STATUS(host->store->ops->job_get(host->store, "j", &row, &host->err), TALLY_OK,
                        &host->err);
    TALLY_ASSERT_STATUS(hosted_job_load(host->store, &row, &job, &host->err), TALLY_OK, &host->err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(job);
    return job;
}

void job_in_store_init(struct job_in_store *host, struct tally_store *store,
                       const struct tally_job_spec *job)
{
    const struct tally_job_spec spec = job != NULL ? *job : job_in_store_spec();
    *host = (struct job_in_store){.store = store, .err = TALLY_ERROR_INIT};
    struct tally_error *err = &host->err;
    if (store == NULL) {
        TALLY_ASSERT_STATUS(tally_store_open("memory:", NULL, &host->store, err), TALLY_OK, err);
    }
    insert_job(host, &spec);
    TALLY_ASSERT_STATUS(tally_objective_new(&spec.objective, (uint32_t)spec.clients,
                                            tally_job_spec_setting(&spec).key, NULL,
                                            &host->objective, err),
                        TALLY_OK, err);
    TALLY_ASSERT_STATUS(tally_model_copy_new(&spec, host->objective, &host->model, err), TALLY_OK,
                        err);
    host->job = job_in_store_load(host);
    TALLY_ASSERT_STATUS(tally_job_start(host->job->engine, 0, "", err), TALLY_OK, err);
    CU_ASSERT_EQUAL_FATAL(err->status, TALLY_OK);
}

void job_in_store_fini(struct job_in_store *host)
{
    hosted_job_free(host->job);
    tally_model_copy_free(host->model);
    tally_objective_free(host->objective);
    host->store->ops->close(host->store);
}

void job_in_store_receive(struct job_in_store *host, uint32_t client,
                          struct tally_job_outcome *ret_outcome)
{
    struct tally_job *engine = host->job->engine;
    const struct tally_job_round *round = tally_job_open_round(engine);
    const int64_t iterate = tally_job_progress(engine)->iterate;
    struct tally_bits bits;
    size_t dim;
    const double *x = tally_job_point(engine, &dim);
    TALLY_ASSERT_STATUS(tally_model_copy_load(host->model, iterate, (const uint8_t *)x,
                                              dim * sizeof *x, &host->err),
                        TALLY_OK, &host->err);
    TALLY_ASSERT_STATUS(
        tally_model_copy_compute(host->model, round, client, &host->last, &bits, &host->err),
        TALLY_OK, &host->err);
    TALLY_ASSERT_STATUS(tally_job_receive(engine, &host->last, ret_outcome, &host->err), TALLY_OK,
                        &host->err);
}

bool job_in_store_write_round(struct job_in_store *host)
{
    struct tally_job_outcome outcome = {0};
    for (uint32_t m = 0; m < host->job->row.clients; m++) {
        job_in_store_receive(host, m, &outcome);
    }
    CU_ASSERT_EQUAL_FATAL(outcome.n_records, 1);
    TALLY_ASSERT_STATUS(host->store->ops->begin(host->store, &host->err), TALLY_OK, &host->err);
    TALLY_ASSERT_STATUS(hosted_job_put_rounds(host->store, host->job, &outcome, 1, &host->err),
                        TALLY_OK, &host->err);
    return outcome.records[0].passed;
}
