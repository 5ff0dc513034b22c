#include "services/job/job_local.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codec/numeric/checksum.h"
#include "services/algorithms/weights.h"
#include "services/job/job_reasons.h"
#include "services/job/model_copy.h"

static enum tally_status reference(const struct tally_job_spec *spec,
                                   const struct tally_objective *objective, const atomic_bool *stop,
                                   double *ret_f_star, struct tally_error *err)
{
    if (spec->reference.type != TALLY_REFERENCE_SOLVE) {
        *ret_f_star = spec->reference.type == TALLY_REFERENCE_VALUE ? spec->reference.value : NAN;
        return TALLY_OK;
    }
    return tally_objective_minimum(objective, &spec->domain, stop, ret_f_star, NULL, err);
}

enum tally_status tally_local_reference(const struct tally_job_spec *spec,
                                        const struct tally_objective *objective, double *ret_f_star,
                                        struct tally_error *err)
{
    return reference(spec, objective, NULL, ret_f_star, err);
}

void tally_local_schedule(const struct tally_job_spec *spec,
                          char ret_schedule[TALLY_SCHEDULE_CAPACITY])
{
    const struct tally_algorithm *algorithm = tally_job_spec_algorithm(spec);
    const struct tally_setting setting = tally_job_spec_setting(spec);
    ret_schedule[0] = '\0';
    if (algorithm->schedule != NULL) {
        algorithm->schedule(&setting, ret_schedule);
    }
}

enum tally_status tally_local_prepare(const struct tally_job_spec *spec,
                                      const struct tally_objective *objective,
                                      const atomic_bool *stop,
                                      struct tally_local_preparation *ret_preparation,
                                      struct tally_error *err)
{
    struct tally_local_preparation preparation = {.curvature = TALLY_CURVATURE_UNKNOWN};
    enum tally_status status = reference(spec, objective, stop, &preparation.f_star, err);
    if (status == TALLY_OK && spec->reference.type == TALLY_REFERENCE_SOLVE) {
        status = tally_objective_curvature(objective, stop, &preparation.curvature, err);
    }
    if (status == TALLY_OK) {
        tally_local_schedule(spec, preparation.schedule);
        *ret_preparation = preparation;
    }
    return status;
}

/* A new double[dim] with the point that the objective offers. */
static enum tally_status take_offer(const struct tally_objective *objective, double **ret_x,
                                    struct tally_error *err)
{
    const size_t dim = objective->dim;
    float *weights = malloc(dim * sizeof *weights);
    double *x = malloc(dim * sizeof *x);
    enum tally_status status =
        weights != NULL && x != NULL
            ? tally_objective_initial(objective, weights, err)
            : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a point of dim %zu", dim);
    for (size_t i = 0; status == TALLY_OK && i < dim; i++) {
        x[i] = (double)weights[i];
    }
    free(weights);
    if (status != TALLY_OK) {
        free(x);
        return status;
    }
    *ret_x = x;
    return TALLY_OK;
}

enum tally_status tally_local_initial(struct tally_job_spec *spec,
                                      const struct tally_objective *objective,
                                      const struct tally_data_source *files, double **ret_x,
                                      struct tally_error *err)
{
    const size_t dim = tally_objective_spec_dim(&spec->objective);
    double *x = NULL;
    enum tally_status status = TALLY_OK;
    switch ((enum tally_initial_point_type)spec->initial_point.type) {
    case TALLY_INITIAL_ZEROS:
    case TALLY_INITIAL_RANDOM_SPHERE:
        break;
    case TALLY_INITIAL_NPY:
        status = tally_initial_point_read(&spec->initial_point, dim, files, &x, err);
        if (status == TALLY_OK) {
            status = tally_initial_point_match(&spec->initial_point,
                                               tally_checksum64(x, dim * sizeof *x), err);
        }
        break;
    case TALLY_INITIAL_JOB:
        status = tally_fail(err, TALLY_INVALID_ARGUMENT, "initial_point.type",
                            "only a coordinator has earlier jobs; save the model with `tally "
                            "export %s --format npy` and use type npy",
                            spec->initial_point.job);
        break;
    case TALLY_INITIAL_FIRST:
        status = take_offer(objective, &x, err);
        break;
    }
    if (status != TALLY_OK) {
        free(x);
        return status;
    }
    *ret_x = x;
    return TALLY_OK;
}

/* Brings the copy to the engine's point. */
static enum tally_status follow(const struct tally_job *job, struct tally_model_copy *copy,
                                struct tally_error *err)
{
    int64_t iterate = tally_job_progress(job)->iterate;
    if (tally_model_copy_iterate(copy) == iterate) {
        return TALLY_OK;
    }
    struct tally_message_view view = tally_message_view(tally_job_broadcast(job, iterate));
    enum tally_status status = tally_model_copy_apply(copy, iterate, &view, err);
    if (status == TALLY_OK &&
        tally_model_copy_checksum(copy) != tally_job_progress(job)->x_checksum) {
        status = tally_fail(err, TALLY_INTERNAL, NULL, "server and client disagree about x");
    }
    return status;
}

static void show_message(const struct tally_local_observer *observer, const struct tally_job *job,
                         bool is_uplink, const struct tally_message_view *message)
{
    if (observer->on_message != NULL) {
        observer->on_message(observer->context, job, is_uplink, message);
    }
}

/* Whether the round is still open after this outcome. */
static bool is_open(const struct tally_job *job, const struct tally_job_outcome *outcome)
{
    return outcome->n_records == 0 && !outcome->surveyed &&
           tally_job_status(job) == TALLY_JOB_RUNNING;
}

/* The clients of the open round in the order of their answers; free() frees it. */
static enum tally_status make_order(const struct tally_job *job, uint32_t **ret_clients,
                                    uint32_t *ret_n, struct tally_error *err)
{
    const uint32_t *cohort = tally_job_cohort(job, ret_n);
    uint32_t *clients = malloc(*ret_n * sizeof *clients);
    if (clients == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a round of %u clients",
                          *ret_n);
    }
    memcpy(clients, cohort, *ret_n * sizeof *clients);
    const enum tally_status status = tally_job_order(job, clients, *ret_n, err);
    if (status != TALLY_OK) {
        free(clients);
        return status;
    }
    *ret_clients = clients;
    return TALLY_OK;
}

/* Has one client compute, and takes what it sends. */
static enum tally_status ask_client(struct tally_job *job, struct tally_model_copy *copy,
                                    const struct tally_job_round *round, uint32_t client,
                                    const struct tally_local_observer *observer,
                                    struct tally_job_outcome *ret_outcome, struct tally_error *err)
{
    const struct tally_setting setting = tally_job_spec_setting(tally_job_get_spec(job));
    struct tally_error why = TALLY_ERROR_INIT;
    struct tally_update update;
    struct tally_bits bits;
    enum tally_status status = tally_model_copy_compute(copy, round, client, &update, &bits, &why);
    if (status == TALLY_FAILED_PRECONDITION &&
        tally_job_get_spec(job)->objective.type == TALLY_TRAINING) {
        return tally_job_take_setback(job, client, why.message, ret_outcome, err);
    }
    if (status != TALLY_OK) {
        return tally_fail(err, status, why.field, "%s", why.message);
    }
    status = tally_job_receive(job, &update, ret_outcome, err);
    if (status == TALLY_OK && !round->plan.cut && !round->surveys) {
        struct tally_message_view view = {.payload = update.payload.data,
                                          .n_payload = update.payload.size,
                                          .payload_bits = update.payload_bits,
                                          .grid = round->plan.grid,
                                          .client = client};
        tally_weight_take(&setting, &view, NULL); /* the engine has accepted it */
        show_message(observer, job, true, &view);
    }
    return status;
}

/* Runs one round: its cohort's clients compute and send until it closes. *ret_client is the last
 * client that computed. */
static enum tally_status run_round(struct tally_job *job, struct tally_model_copy *copy,
                                   const struct tally_local_observer *observer,
                                   struct tally_job_outcome *ret_outcome, uint32_t *ret_client,
                                   struct tally_error *err)
{
    const struct tally_job_round round = *tally_job_open_round(job);
    uint32_t n, *clients = NULL;
    enum tally_status status = make_order(job, &clients, &n, err);
    if (status == TALLY_OK) {
        status = follow(job, copy, err);
    }
    /* A client that had a setback may be asked again, after the others. */
    for (uint32_t i = 0; status == TALLY_OK && is_open(job, ret_outcome); i++) {
        const uint32_t m = *ret_client = clients[i % n];
        if (tally_job_asks(job, m)) {
            status = ask_client(job, copy, &round, m, observer, ret_outcome, err);
        }
    }
    free(clients);
    return status;
}

/* Shows the outcome of a round to the observer. Returns false if the observer stops the run. */
static bool show_outcome(const struct tally_local_observer *observer, const struct tally_job *job,
                         const struct tally_job_outcome *outcome)
{
    for (int i = 0; i < outcome->n_records; i++) {
        const struct tally_round_record *record = &outcome->records[i];
        if (record->passed) {
            struct tally_message_view view =
                tally_message_view(tally_job_broadcast(job, record->iterate + 1));
            show_message(observer, job, false, &view);
        }
        if (observer->on_round != NULL && !observer->on_round(observer->context, job, record)) {
            return false;
        }
    }
    return true;
}

/* Fails the job as the service does when a worker reports that a client cannot compute its
 * update. */
static void fail_client(struct tally_job *job, uint32_t client, struct tally_error *err)
{
    const struct tally_job_round *round = tally_job_open_round(job);
    char reason[TALLY_REASON_CAPACITY];
    TALLY_REASON_WRITE(reason, CLIENT_FAILED, client, (unsigned)round->round,
                       err != NULL ? err->message : "the local steps diverged");
    tally_job_fail(job, reason, NULL);
    tally_error_clear(err);
}

static enum tally_status run_rounds(struct tally_job *job, struct tally_model_copy *copy,
                                    const struct tally_local_observer *observer,
                                    struct tally_error *err)
{
    while (tally_job_status(job) == TALLY_JOB_RUNNING) {
        struct tally_job_outcome outcome = {0};
        uint32_t client = 0;
        enum tally_status status = run_round(job, copy, observer, &outcome, &client, err);
        if (status == TALLY_NOT_FINITE) {
            fail_client(job, client, err);
            return TALLY_OK;
        }
        if (status != TALLY_OK) {
            return status;
        }
        if (!show_outcome(observer, job, &outcome)) {
            return tally_fail(err, TALLY_CANCELLED, NULL, "stopped at time step %lld",
                              (long long)tally_job_progress(job)->time_step);
        }
    }
    return TALLY_OK;
}

enum tally_status tally_local_run_on(const struct tally_job_spec *spec,
                                     const struct tally_objective *objective, double f_star,
                                     const struct tally_local_observer *observer,
                                     struct tally_job **ret_job, struct tally_error *err)
{
    struct tally_local_preparation preparation = {.f_star = f_star,
                                                  .curvature = TALLY_CURVATURE_UNKNOWN};
    tally_local_schedule(spec, preparation.schedule);
    return tally_local_run_prepared(spec, objective, &preparation, observer, ret_job, err);
}

enum tally_status tally_local_run_prepared(const struct tally_job_spec *spec,
                                           const struct tally_objective *objective,
                                           const struct tally_local_preparation *preparation,
                                           const struct tally_local_observer *observer,
                                           struct tally_job **ret_job, struct tally_error *err)
{
    struct tally_model_copy *copy = NULL;
    struct tally_job *job = NULL;
    enum tally_status status = tally_model_copy_new(spec, objective, &copy, err);
    if (status == TALLY_OK) {
        status = tally_job_new(spec, &job, err);
    }
    if (status == TALLY_OK) {
        status = tally_job_start_from(job, preparation->initial, preparation->f_star,
                                      preparation->schedule, err);
    }
    if (status == TALLY_OK && preparation->initial != NULL) {
        size_t dim;
        const double *x = tally_job_point(job, &dim);
        status = tally_model_copy_load(copy, 1, (const uint8_t *)x, dim * sizeof *x, err);
    }
    if (status == TALLY_OK) {
        status = run_rounds(job, copy, observer, err);
    }
    if (status == TALLY_OK) {
        *ret_job = job;
        job = NULL;
    }
    tally_job_free(job);
    tally_model_copy_free(copy);
    return status;
}
