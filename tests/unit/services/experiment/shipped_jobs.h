/* shipped_jobs: job documents of deploy/jobs and rows of deploy/experiments, for tests. */
#ifndef TALLY_TESTS_UNIT_SERVICES_EXPERIMENT_SHIPPED_JOBS_H
#define TALLY_TESTS_UNIT_SERVICES_EXPERIMENT_SHIPPED_JOBS_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/experiment/reproduction.h"
#include "services/experiment/shipped.h"
#include "services/job/document.h"
#include "tests/harness.h"

/* The job of a document with another seed and, unless it is NaN, another step size. Frees the
 * document. */
static inline struct tally_job_spec job_of(struct tally_json *document, double step_size,
                                           int64_t seed)
{
    struct tally_job_spec spec = tally_job_spec_default();
    struct tally_buffer text = {0};
    struct tally_error err = TALLY_ERROR_INIT;
    CU_ASSERT_PTR_NOT_NULL_FATAL(document);
    CU_ASSERT_TRUE(tally_json_set_integer(document, "seed", seed));
    if (!isnan(step_size)) {
        TALLY_ASSERT_STATUS(
            tally_json_set_path(document, "algorithm.step_size", tally_json_real(step_size), &err),
            TALLY_OK, &err);
    }
    TALLY_ASSERT_STATUS(tally_json_dump(document, 0, &text), TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(tally_document_parse((const char *)text.data, text.size, &spec, &err),
                        TALLY_OK, &err);
    tally_buffer_fini(&text);
    tally_json_free(document);
    return spec;
}

static inline struct tally_job_spec spec_of(const struct tally_sweep_trial *trial)
{
    struct tally_job_spec *spec = tally_sweep_trial_spec(trial);
    CU_ASSERT_PTR_NOT_NULL_FATAL(spec);
    const struct tally_job_spec copy = *spec;
    free(spec);
    return copy;
}

/* Runs a job on its objective and f(x*), and records everything. */
static inline enum tally_status run_job(const struct tally_job_spec *spec,
                                        const struct tally_objective *objective, double f_star,
                                        const atomic_bool *stop, struct tally_run *ret_run,
                                        struct tally_error *err)
{
    struct tally_local_preparation preparation = {.f_star = f_star,
                                                  .curvature = TALLY_CURVATURE_UNKNOWN};
    const struct tally_run_record record = {0};
    tally_local_schedule(spec, preparation.schedule);
    return tally_run_prepared(spec, objective, &preparation, &record, stop, ret_run, err);
}

/* A trial with n runs of a document, which it frees. */
static inline struct tally_sweep_trial trial_of(struct tally_json *document, struct tally_run *runs,
                                                size_t n)
{
    struct tally_sweep_trial trial = {.runs = runs, .n_runs = n};
    struct tally_buffer text = {0};
    TALLY_ASSERT_STATUS(tally_json_dump(document, 0, &text), TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(tally_buffer_append(&text, "", 1), TALLY_OK, NULL);
    trial.document = (char *)text.data;
    const struct tally_job_spec spec = spec_of(&trial);
    trial.algorithm = tally_job_spec_algorithm(&spec);
    trial.is_compressed = tally_run_is_compressed(&spec);
    trial.seed = spec.seed;
    trial.horizon = spec.horizon;
    tally_json_free(document);
    return trial;
}

/* The document deploy/jobs/NAME.json. */
static inline struct tally_json *shipped_document(const char *name)
{
    char path[160];
    struct tally_json *document = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    snprintf(path, sizeof path, "jobs/%s.json", name);
    const char *text = tally_shipped_get(path);
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    TALLY_ASSERT_STATUS(tally_json_parse(text, strlen(text), &document, &err), TALLY_OK, &err);
    return document;
}

/* Its job, as job_of() makes it. */
static inline struct tally_job_spec shipped_job(const char *name, double step_size, int64_t seed)
{
    return job_of(shipped_document(name), step_size, seed);
}

/* The sweep of an experiment with n seeds from the first; `only` as in its config. */
static inline struct tally_sweep shipped_sweep(const char *document, const char *only,
                                               bool with_grid, int64_t first_seed, size_t n_seeds)
{
    const struct tally_reproduction_config config = {.document = document,
                                                     .only = only,
                                                     .with_grid = with_grid,
                                                     .radius = NAN,
                                                     .first_seed = first_seed,
                                                     .n_seeds = n_seeds};
    struct tally_sweep sweep = {.n_rows = 0};
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_reproduction_read(&config, &sweep, &err), TALLY_OK, &err);
    return sweep;
}

static inline void run_shipped(struct tally_sweep *sweep, unsigned threads)
{
    const struct tally_sweep_config config = {
        .threads = threads, .data_dir = ".", .curve_points = SIZE_MAX, .with_entropy = true};
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_sweep_run(sweep, &config, &err), TALLY_OK, &err);
}

#endif
