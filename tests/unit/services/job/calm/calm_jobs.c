#include "tests/unit/services/job/calm/calm_jobs.h"

#include <math.h>

#include "tests/harness.h"

static int calm_index(void)
{
    int i = 0;
    while (TALLY_ALGORITHMS[i] != &TALLY_CALM) {
        i++;
    }
    return i;
}

struct tally_job_spec calm_job_auto(uint32_t dim, int64_t clients)
{
    enum { POINTS = 200 };
    struct tally_job_spec spec = job_host_spec();
    spec.algorithm = calm_index();
    spec.encoding = TALLY_ENCODING_INDEX_DITHERED;
    spec.params = TALLY_CALM.defaults();
    spec.params.calm.step_size = 3;
    spec.params.calm.local_step_limit = 1.0 / (1 + dim);
    spec.objective.data.synthetic_linear = (struct tally_synthetic_linear){
        .dim = dim, .points = POINTS, .frobenius_norm = sqrt(POINTS * dim / 6.0), .noise_std = 1};
    spec.clients = clients;
    spec.initial_point.radius = 2;
    return spec;
}

struct tally_job_spec calm_job_known(uint32_t dim, int64_t clients)
{
    struct tally_job_spec spec = calm_job_auto(dim, clients);
    spec.params.calm.noise = 2.0 / 3;
    spec.params.calm.noise_growth = 10.0 / 3;
    spec.params.calm.client_spread = 0.03;
    spec.params.calm.initial_variance = 5.0 / dim;
    return spec;
}

struct tally_job_spec calm_job_travelling(uint32_t dim, int64_t clients)
{
    struct tally_job_spec spec = calm_job_auto(dim, clients);
    spec.params.calm.local_step_limit = NAN;
    spec.params.calm.step_size = 0.3;
    spec.minibatch = 8;
    spec.objective.data.synthetic_linear.noise_std = 0.05;
    return spec;
}

void calm_job_restore(struct job_host *host, const struct tally_progress *progress,
                      const struct tally_buffer *state)
{
    struct tally_job *again = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_job_restore(&host->spec, TALLY_JOB_RUNNING, progress, state->data,
                                          state->size, &again, &err),
                        TALLY_OK, &err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(again);
    tally_job_free(host->job);
    host->job = again;
    size_t dim; /* a new process has no broadcasts: its copy loads the point */
    const double *x = tally_job_point(host->job, &dim);
    CU_ASSERT_EQUAL(tally_model_copy_load(host->copy, progress->iterate, (const uint8_t *)x,
                                          dim * sizeof *x, NULL),
                    TALLY_OK);
}

void calm_job_crash(struct job_host *host)
{
    struct tally_buffer state = {0};
    const struct tally_progress progress = *tally_job_progress(host->job);
    CU_ASSERT_EQUAL_FATAL(tally_job_save_state(host->job, &state), TALLY_OK);
    calm_job_restore(host, &progress, &state);
    tally_buffer_fini(&state);
}

void calm_job_expect_same(const struct job_host *a, const struct job_host *b)
{
    struct job_look left = job_look(a->job), right = job_look(b->job);
    CU_ASSERT_TRUE(job_looks_same(&left, &right));
    job_look_fini(&left);
    job_look_fini(&right);
    CU_ASSERT_EQUAL_FATAL(a->n_records, b->n_records);
    for (int i = 0; i < a->n_records; i++) {
        CU_ASSERT_TRUE(job_same_record(&a->records[i], &b->records[i]));
    }
}
