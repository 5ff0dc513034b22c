/* job: creating, starting and ending a job, and reading its state. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "services/job/job_engine.h"

bool job_has_started(const struct tally_job *job)
{
    return job->x != NULL;
}

bool job_is_open(const struct tally_job *job)
{
    return job->status == TALLY_JOB_RUNNING || job->status == TALLY_JOB_PAUSED;
}

bool job_has_regret(const struct tally_job *job)
{
    return job->spec.reference.type != TALLY_REFERENCE_NONE;
}

void job_check_invariants(const struct tally_job *job)
{
    const struct tally_progress *progress = &job->progress;
    assert(progress->time_step >= 0 && progress->time_step <= job->spec.horizon);
    const uint32_t cohort = job->clients.asks_all ? job->clients.n : job->setting.cohort;
    assert(job->open.received >= 0 && job->open.received <= cohort);
    assert(progress->round >= 0 && progress->iterate >= 1);
    assert(job->status != TALLY_JOB_COMPLETED || progress->time_step == job->spec.horizon ||
           progress->stopped.rule[0] != '\0');
    assert(job->clients.n_awaited >= 0 && job->clients.n_awaited <= cohort - job->open.received);
    (void)progress;
    (void)cohort;
}

enum tally_status job_move(struct tally_job *job, enum tally_job_event event,
                           struct tally_error *err)
{
    enum tally_status status = tally_job_move(&job->status, event, err);
    job_check_invariants(job);
    return status;
}

static void drop_vectors(struct tally_job *job)
{
    free(job->x);
    free(job->best_x);
    free(job->sums);
    free(job->memory);
    job_clients_fini(&job->clients);
    job_metrics_fini(&job->metrics);
    job_metrics_fini(&job->evaluation);
    tally_scratch_fini(&job->scratch);
    job->x = NULL;
    job->best_x = NULL;
    job->sums = NULL;
    job->memory = NULL;
}

void tally_job_free(struct tally_job *job)
{
    if (job == NULL) {
        return;
    }
    drop_vectors(job);
    job_survey_fini(&job->survey);
    tally_message_fini(&job->decision.broadcast);
    job_broadcasts_fini(&job->broadcasts);
    job_kept_fini(&job->open_kept);
    job_kept_fini(&job->closed_kept);
    free(job);
}

/* Uninitialised memory for a vector that every update or round reads; free() frees it. Long vectors
 * use huge pages if possible, except for their end, which would not fill one: adding an update to
 * the sums then takes a sixth less time. */
static void *vector_new(size_t n)
{
    enum { HUGE_PAGE_BYTES = 2 << 20, LONG_BYTES = 2 * HUGE_PAGE_BYTES };
    if (n < LONG_BYTES) {
        return malloc(n);
    }
    const size_t whole = (n + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    void *vector = aligned_alloc(HUGE_PAGE_BYTES, whole);
    if (vector != NULL) {
        (void)madvise(vector, n / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES, MADV_HUGEPAGE);
    }
    return vector;
}

enum tally_status job_make_vectors(struct tally_job *job, struct tally_error *err)
{
    const size_t dim = job->setting.dim;
    job->x = vector_new(dim * sizeof *job->x);
    job->sums = vector_new(tally_sums_bytes(&job->setting));
    const size_t memory_bytes = job_memory_bytes(job);
    job->memory = memory_bytes > 0 ? vector_new(memory_bytes) : NULL;
    const bool keeps_best = job->spec.keep.best[0] != '\0';
    job->best_x = keeps_best ? vector_new(dim * sizeof *job->best_x) : NULL;
    if (tally_scratch_init(&job->scratch, dim, TALLY_SCRATCH_SERVER, err) != TALLY_OK ||
        job_clients_init(&job->clients, &job->setting, err) != TALLY_OK ||
        (tally_job_spec_keeps_earlier_weights(&job->spec) &&
         job_clients_keep_earlier(&job->clients, err) != TALLY_OK) ||
        job_survey_make(&job->survey, err) != TALLY_OK ||
        (job->survey.features > 0 && job_clients_need_everyone(&job->clients, err) != TALLY_OK) ||
        job->x == NULL || job->sums == NULL || (memory_bytes > 0 && job->memory == NULL) ||
        (keeps_best && job->best_x == NULL)) {
        drop_vectors(job);
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a job of dim %zu", dim);
    }
    tally_sums_begin(&job->setting, job->sums);
    job->evaluation.is_weighted = tally_job_spec_weighs_evaluations(&job->spec);
    job->clients.keeps_weights = job->evaluation.is_weighted;
    tally_job_spec_initial_point(&job->spec, job->x);
    job->progress.x_checksum = job_sum_point(job);
    return TALLY_OK;
}

void job_begin_memory(struct tally_job *job, int64_t opening_samples, const char *schedule)
{
    if (job->memory != NULL) {
        job->algorithm->memory.begin(&job->setting, job->x, opening_samples, schedule, job->memory);
    }
}

bool tally_job_has_memory(const struct tally_job *job)
{
    return job_memory_bytes(job) > 0;
}

size_t job_memory_bytes(const struct tally_job *job)
{
    return job->algorithm->memory.bytes == NULL ? 0 : job->algorithm->memory.bytes(&job->setting);
}

enum tally_status job_make_queued(const struct tally_job_spec *spec, struct tally_job **ret_job,
                                  struct tally_error *err)
{
    struct tally_job *job = calloc(1, sizeof *job);
    if (job == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a job");
    }
    job->spec = *spec;
    job->params = spec->params;
    job->setting = tally_job_spec_setting(&job->spec);
    job->setting.params = &job->params;
    job->algorithm = tally_job_spec_algorithm(spec);
    job->progress.iterate = 1;
    job->progress.f_star = job_has_regret(job) ? 0 : NAN;
    job->progress.cumulative_regret = job_has_regret(job) ? 0 : NAN;
    job->progress.stage = job->algorithm->first_stage(&spec->params);
    job->clients.n = job->setting.clients;
    job_survey_init(&job->survey, spec);
    job_broadcasts_init(&job->broadcasts, job->progress.iterate);
    *ret_job = job;
    return TALLY_OK;
}

/* The initial point of a job with more coordinates gets its checksum when the job starts: drawing
 * ten million coordinates takes 0.3 s, and a host creates jobs while it serves others. */
enum { SUMMED_DIM = 100000 };

/* Computes the checksum of the initial point, which is freed afterwards. */
static enum tally_status sum_initial_point(struct tally_job *job, struct tally_error *err)
{
    enum tally_status status = tally_job_make_initial_point(&job->spec, &job->x, err);
    if (status == TALLY_OK) {
        job->progress.x_checksum = job_sum_point(job);
    }
    drop_vectors(job);
    return status;
}

enum tally_status tally_job_new(const struct tally_job_spec *spec, struct tally_job **ret_job,
                                struct tally_error *err)
{
    struct tally_job *job = NULL;
    enum tally_status status = job_make_queued(spec, &job, err);
    if (status == TALLY_OK && job->setting.dim <= SUMMED_DIM &&
        !tally_initial_point_is_given(&spec->initial_point)) {
        status = sum_initial_point(job, err);
    }
    if (status != TALLY_OK) {
        tally_job_free(job);
        return status;
    }
    *ret_job = job;
    return TALLY_OK;
}

enum tally_status tally_job_make_initial_point(const struct tally_job_spec *spec, double **ret_x,
                                               struct tally_error *err)
{
    if (tally_initial_point_is_given(&spec->initial_point)) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, "initial_point",
                          "the initial point is of type %s and is not known before the job starts",
                          TALLY_INITIAL_POINT_NAMES[spec->initial_point.type]);
    }
    const size_t dim = tally_objective_spec_dim(&spec->objective);
    double *x = vector_new(dim * sizeof *x);
    if (x == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a point of dim %zu", dim);
    }
    tally_job_spec_initial_point(spec, x);
    *ret_x = x;
    return TALLY_OK;
}

/* Events. */

enum tally_status tally_job_start_from(struct tally_job *job, const double *x, double f_star,
                                       const char *schedule, struct tally_error *err)
{
    assert(tally_initial_point_is_given(&job->spec.initial_point) == (x != NULL));
    enum tally_status status = job->status == TALLY_JOB_QUEUED && !job_has_started(job)
                                   ? job_make_vectors(job, err)
                                   : TALLY_OK;
    if (status == TALLY_OK && x != NULL && job->status == TALLY_JOB_QUEUED) {
        memcpy(job->x, x, job->setting.dim * sizeof *x);
        tally_domain_project(&job->setting.domain, job->x, job->setting.dim);
        job->progress.x_checksum = job_sum_point(job);
    }
    if (status == TALLY_OK) {
        status = job_move(job, TALLY_EVENT_START, err);
    }
    if (status == TALLY_OK) {
        job_begin_memory(job, 0, schedule);
        job->progress.f_star = job_has_regret(job) ? f_star : NAN;
        job->progress.has_f_star = job_has_regret(job);
        job_open_round(job, NULL);
    }
    return status;
}

enum tally_status tally_job_start(struct tally_job *job, double f_star, const char *schedule,
                                  struct tally_error *err)
{
    return tally_job_start_from(job, NULL, f_star, schedule, err);
}

enum tally_status tally_job_pause(struct tally_job *job, struct tally_error *err)
{
    return job_move(job, TALLY_EVENT_PAUSE, err);
}

enum tally_status tally_job_resume(struct tally_job *job, struct tally_error *err)
{
    enum tally_status status = job_move(job, TALLY_EVENT_RESUME, err);
    if (status == TALLY_OK) {
        job->open.overdue = false;
    }
    return status;
}

enum tally_status tally_job_cancel(struct tally_job *job, struct tally_error *err)
{
    return job_move(job, TALLY_EVENT_CANCEL, err);
}

enum tally_status tally_job_fail(struct tally_job *job, const char *reason, struct tally_error *err)
{
    enum tally_status status = job_move(job, TALLY_EVENT_FAIL, err);
    if (status == TALLY_OK) {
        snprintf(job->reason, sizeof job->reason, "%s", reason);
    }
    return status;
}

/* Reading the state. */

enum tally_job_status tally_job_status(const struct tally_job *job)
{
    return job->status;
}

const char *tally_job_reason(const struct tally_job *job)
{
    return job->reason;
}

const struct tally_job_spec *tally_job_get_spec(const struct tally_job *job)
{
    return &job->spec;
}

const struct tally_progress *tally_job_progress(const struct tally_job *job)
{
    return &job->progress;
}

const double *tally_job_point(const struct tally_job *job, size_t *ret_dim)
{
    *ret_dim = job->setting.dim;
    return job->x;
}

const double *tally_job_new_best(const struct tally_job *job)
{
    return job->has_new_best ? job->best_x : NULL;
}

const struct tally_job_round *tally_job_open_round(const struct tally_job *job)
{
    return &job->open;
}

const uint32_t *tally_job_cohort(const struct tally_job *job, uint32_t *ret_n)
{
    const struct tally_cohort *open = job_clients_open(&job->clients);
    *ret_n = job_is_open(job) ? open->n : 0;
    return open->drawn;
}

enum tally_status tally_job_order(const struct tally_job *job, uint32_t *clients, size_t n,
                                  struct tally_error *err)
{
    return job->spec.over_selection > 0
               ? tally_cohort_shuffle(job->setting.key, job->clients.open_round, clients, n, err)
               : TALLY_OK;
}

bool tally_job_is_drawn(const struct tally_job *job, uint32_t client)
{
    return job_clients_is_drawn(&job->clients, client);
}

const struct tally_message *tally_job_broadcast(const struct tally_job *job, int64_t iterate)
{
    return job_broadcasts_get(&job->broadcasts, iterate);
}

const double *tally_job_scaling(const struct tally_job *job, size_t *ret_bytes)
{
    const bool is_known = job->survey.digest != 0;
    *ret_bytes = is_known ? job_survey_scaling_bytes(&job->survey) : 0;
    return is_known ? job->survey.numbers : NULL;
}
