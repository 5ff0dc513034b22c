#include "services/worker/worker.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/base/log.h"
#include "services/worker/worker_contact.h"
#include "services/worker/worker_origin.h"
#include "services/worker/worker_posting.h"
#include "services/worker/worker_state.h"

/* Wrong points in a row that the worker tolerates: one may be due to a damaged message. */
enum { MAX_LOST_POINTS = 3 };

/* Jobs. */

static void forget_job(struct worker *worker, const char *id)
{
    for (struct job_copy **at = &worker->jobs; *at != NULL; at = &(*at)->next) {
        if (strcmp((*at)->id, id) == 0) {
            struct job_copy *gone = *at;
            *at = gone->next;
            job_copy_free(gone);
            return;
        }
    }
}

/* Reports why a client has no update: the client cannot continue, its training failed (`trains`),
 * or this worker cannot serve the job. The held updates of its other clients are posted first. */
static enum tally_status tell_failure(struct worker *worker, const struct tally_task *task,
                                      uint32_t client, bool trains, bool is_last, bool *ret_refused,
                                      const struct tally_error *why, struct tally_error *err)
{
    enum tally_status status = posting_flush(worker, false, err);
    if (status != TALLY_OK) {
        return status;
    }
    if (contact_is_passing(why->status)) { /* no memory: this machine's problem, not the job's */
        return tally_fail(err, why->status, why->field, "%s", why->message);
    }
    const bool may_retry = why->status == TALLY_FAILED_PRECONDITION && trains;
    if (why->status == TALLY_FAILED_PRECONDITION && !trains) { /* the plug-in's, not the job's */
        *ret_refused = true;
        return posting_refuse(worker, client, true, why, err);
    }
    struct tally_update failure = {.client = client, .may_retry = may_retry};
    if (may_retry) { /* another number than that of any other worker, almost surely, and not 0 */
        failure.attempt =
            (uint32_t)(worker->session ^ worker->session >> 32) + ++worker->n_setbacks;
        failure.attempt += failure.attempt == 0;
    }
    posting_write_reason(why, failure.failure);
    tally_log(TALLY_LOG_ERROR,
              tally_log_event(may_retry ? "client cannot train this time" : "client failed"),
              tally_log_text("job", task->job_id), tally_log_integer("client", client),
              tally_log_problem(why));
    patience_worked(&worker->patience);
    return posting_post(worker, &failure, &(struct tally_bits){0}, is_last, err);
}

/* Drops metrics of an update that are not finite. Returns how many are left. */
static size_t drop_not_finite(struct job_copy *job, const struct tally_update *update,
                              struct tally_metric *metrics, size_t n_metrics)
{
    size_t n = 0;
    for (size_t i = 0; i < n_metrics; i++) {
        const struct tally_metric *metric = &metrics[i];
        if (isfinite(metric->value)) {
            metrics[n++] = *metric;
        } else if (job_copy_note_dropped(job, metric->name)) {
            tally_log(TALLY_LOG_WARN, tally_log_event("metric dropped: it is not finite"),
                      tally_log_text("job", job->id), tally_log_text("metric", metric->name),
                      tally_log_integer("round", update->round),
                      tally_log_integer("client", update->client));
        }
    }
    return n;
}

static void check_metrics(struct job_copy *job, struct tally_update *update)
{
    update->n_metrics = drop_not_finite(job, update, update->metrics, update->n_metrics);
    update->n_evaluation = drop_not_finite(job, update, update->evaluation, update->n_evaluation);
    if (update->evaluation_failure[0] != '\0') {
        tally_log(TALLY_LOG_WARN, tally_log_event("evaluation failed"),
                  tally_log_text("job", job->id), tally_log_integer("round", update->round),
                  tally_log_text("reason", update->evaluation_failure));
    }
}

/* Computes the update of one client and hands it over to be posted, or reports why there is
 * none. */
static enum tally_status answer_client(struct worker *worker, struct job_copy *job,
                                       const struct tally_task *task, uint32_t client, bool is_last,
                                       bool *ret_refused, struct tally_error *err)
{
    const struct tally_job_round round = {
        .round = task->round,
        .iterate = (int64_t)task->iterate,
        .plan = {.stage = task->stage,
                 .samples = (int64_t)task->samples,
                 .grid = {task->quantizer_step, task->quantizer_intervals, task->quantizer_scale},
                 .cut = task->cut,
                 .facts = {task->distance, task->client_spread, task->noise, task->noise_growth,
                           task->travel_step, task->shift_gain, task->step_size, 0, task->repeats},
                 .max_bits = task->max_bits},
        .evaluate = task->evaluate,
        .evaluate_model = task->evaluate_model,
        .evaluator = task->evaluator,
        .mark = task->mark,
        .surveys = task->wants_survey,
        .scaling = task->scaling_digest};
    struct tally_update update;
    struct tally_bits bits = {0};
    struct tally_error why = TALLY_ERROR_INIT;
    enum tally_status status =
        tally_model_copy_compute(job->model, &round, client, &update, &bits, &why);
    if (status != TALLY_OK && contact_is_stopping(worker)) { /* an interruption is not a failure */
        return tally_fail(err, TALLY_CANCELLED, NULL, "asked to stop");
    }
    if (status != TALLY_OK) {
        return tell_failure(worker, task, client, job->spec.objective.type == TALLY_TRAINING,
                            is_last, ret_refused, &why, err);
    }
    check_metrics(job, &update);
    patience_worked(&worker->patience);
    return posting_add(worker, &update, &bits, is_last, err);
}

/* Tasks. */

/* Makes or finds the copy of the task's job, with its features scaled as the task says. */
static enum tally_status open_job(struct worker *worker, const struct tally_task *task,
                                  struct job_copy **ret_job, struct tally_error *err)
{
    struct job_copy *job = job_copy_find(worker->jobs, task->job_id);
    if (job == NULL) {
        enum tally_status status =
            job_copy_new(task->job_id, &task->job_document, worker->config->data_dir,
                         worker->config->plugins, worker->config->stop.flag, &job, err);
        if (status != TALLY_OK) {
            return status;
        }
        job->next = worker->jobs;
        worker->jobs = job;
    }
    const enum tally_status status =
        job_copy_scale(job, task, worker->config->data_dir, worker->config->plugins,
                       worker->config->stop.flag, err);
    if (status != TALLY_OK) {
        forget_job(worker, task->job_id);
        return status;
    }
    *ret_job = job;
    return TALLY_OK;
}

/* Discards a point that does not match. The next poll has no cursor of the job, and fetches the
 * point again. */
static enum tally_status lose_point(struct worker *worker, const struct tally_task *task,
                                    const struct tally_error *why, struct tally_error *err)
{
    tally_log(TALLY_LOG_ERROR, tally_log_event("point lost, fetching it again"),
              tally_log_text("job", task->job_id), tally_log_problem(why));
    forget_job(worker, task->job_id);
    if (++worker->lost_points > MAX_LOST_POINTS) {
        return tally_fail(err, TALLY_DATA_LOSS, why->field, "%s", why->message);
    }
    return TALLY_OK;
}

/* Posts the point from which the job, which has not started, is to start; or refuses the job. */
static enum tally_status offer_start(struct worker *worker, struct job_copy *job,
                                     const struct tally_task *task, struct tally_error *err)
{
    const size_t dim = job->objective->dim;
    float *weights = malloc(dim * sizeof *weights);
    struct tally_error why = TALLY_ERROR_INIT;
    enum tally_status status =
        weights != NULL
            ? tally_objective_initial(job->objective, weights, &why)
            : tally_fail(&why, TALLY_NO_MEMORY, NULL, "no memory for a point of dim %zu", dim);
    posting_begin(worker, task, 0);
    if (status != TALLY_OK && contact_is_stopping(worker)) {
        status = tally_fail(err, TALLY_CANCELLED, NULL, "asked to stop");
    } else if (status != TALLY_OK && contact_is_passing(status)) {
        status = tally_fail(err, status, why.field, "%s", why.message);
    } else if (status != TALLY_OK) {
        status = posting_refuse(worker, 0, true, &why, err);
        forget_job(worker, task->job_id);
    } else {
        struct tally_update update = {.payload = {(const uint8_t *)weights, dim * sizeof *weights},
                                      .payload_bits = 8 * (uint64_t)(dim * sizeof *weights)};
        tally_model_copy_start_at(job->model, weights);
        status = posting_post(worker, &update, &(struct tally_bits){0}, true, err);
    }
    free(weights);
    return status;
}

static enum tally_status do_task(struct worker *worker, const struct tally_task *task,
                                 struct tally_error *err)
{
    struct job_copy *job;
    struct tally_error why = TALLY_ERROR_INIT;
    if (undeliverables_repeat(&worker->undeliverables, task->job_id)) {
        return TALLY_OK;
    }
    enum tally_status status = open_job(worker, task, &job, &why);
    if (status != TALLY_OK &&
        contact_is_stopping(worker)) { /* for example, an interrupted plug-in */
        return tally_fail(err, TALLY_CANCELLED, NULL, "asked to stop");
    }
    if (status == TALLY_DATA_LOSS) { /* the next poll has no cursor of the job */
        return lose_point(worker, task, &why, err);
    }
    if (status != TALLY_OK && !contact_is_passing(status) &&
        (task->n_clients > 0 || task->wants_start)) {
        posting_begin(worker, task, 0);
        return posting_refuse(worker, task->wants_start ? 0 : task->clients[0], false, &why, err);
    }
    if (status != TALLY_OK) {
        return tally_fail(err, status, why.field, "%s", why.message);
    }
    if (task->wants_start) {
        return offer_start(worker, job, task, err);
    }
    status = job_copy_follow(job, task, &why);
    if (status != TALLY_OK) {
        return lose_point(worker, task, &why, err);
    }
    worker->lost_points = 0;
    origin_tell(worker, job);
    bool refused = false;
    posting_begin(worker, task, job->objective->columns);
    for (size_t i = 0; status == TALLY_OK && !refused && i < task->n_clients &&
                       !undeliverables_has_new(&worker->undeliverables, task->job_id);
         i++) {
        const bool is_last = i + 1 == task->n_clients;
        if (contact_is_stopping(worker)) {
            return tally_fail(err, TALLY_CANCELLED, NULL, "asked to stop");
        }
        status = answer_client(worker, job, task, task->clients[i], is_last, &refused, err);
    }
    if (refused) {
        forget_job(worker, task->job_id);
    }
    worker->totals.rounds++;
    return status;
}

/* The response to a poll: the one in the last update's response, or that of a new call. */
static enum tally_status next_response(struct worker *worker, struct tally_poll_response *response,
                                       struct tally_error *err)
{
    if (worker->has_next) {
        worker->has_next = false;
        return tally_poll_response_decode(worker->next.data, worker->next.size, response, err);
    }
    struct tally_poll_request request = {.session = worker->session};
    contact_begin_poll(worker, &request);
    contact_limit_calls(worker, INT64_MAX);
    enum tally_status status = call_poll(worker->client, &worker->buffers, &request, response, err);
    if (status == TALLY_OK) {
        undeliverables_answered(&worker->undeliverables);
    }
    return status;
}

/* Polls once and handles the response. Sets *ret_idle if there is no task and no job is pending, or
 * the worker's only job has ended. */
static enum tally_status poll_once(struct worker *worker, bool *ret_idle, struct tally_error *err)
{
    struct tally_poll_response *response = &worker->response;
    enum tally_status status = next_response(worker, response, err);
    if (status != TALLY_OK) {
        return status;
    }
    contact_reached(worker);
    switch (response->kind) {
    case TALLY_POLL_IDLE:
        *ret_idle = response->jobs_pending == 0;
        break;
    case TALLY_POLL_RELEASED:
        forget_job(worker, response->released_job_id);
        undeliverables_remove(&worker->undeliverables, response->released_job_id);
        *ret_idle = worker->config->job_id != NULL &&
                    strcmp(worker->config->job_id, response->released_job_id) == 0;
        break;
    case TALLY_POLL_TASK: {
        /* The task borrows from the response buffer, which posting would overwrite. */
        struct tally_buffer body = worker->buffers.response;
        worker->buffers.response = (struct tally_buffer){0};
        status = do_task(worker, &response->task, err);
        tally_buffer_fini(&body);
        break;
    }
    }
    tally_poll_response_fini(response);
    return status;
}

/* Whether the worker's only job may be over: the coordinator has said that it serves no job now. */
static bool may_be_over(const struct worker *worker, bool idle)
{
    return idle && worker->config->job_id != NULL && worker->undeliverables.first == NULL;
}

/* Joins if there is no session, or to learn whether the worker's only job is over: with several
 * coordinators it may have moved to another. Sets *ret_is_over. */
static enum tally_status enter(struct worker *worker, bool idle, bool *ret_is_over,
                               struct tally_error *err)
{
    const char *job_id = worker->config->job_id;
    *ret_is_over = false;
    if (may_be_over(worker, idle) && worker->refusal.status != TALLY_OK) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, "job",
                          "this worker cannot serve job %s: %s", job_id, worker->refusal.message);
    }
    if (worker->session != 0 && !may_be_over(worker, idle)) {
        return TALLY_OK;
    }
    const bool had_joined = worker->joined_ms != 0;
    struct tally_error why = TALLY_ERROR_INIT;
    const enum tally_status status = contact_join(worker, &why);
    /* A job that was deleted is as unknown as one that never was. */
    *ret_is_over =
        worker->has_ended || (status == TALLY_NOT_FOUND && had_joined && job_id != NULL &&
                              strcmp(why.field, TALLY_HTTP_FOREIGN) != 0);
    if (*ret_is_over) {
        tally_log(TALLY_LOG_INFO, tally_log_event("no job left to serve"), tally_log_problem(&why));
        return TALLY_OK;
    }
    return status == TALLY_OK ? status : tally_fail(err, status, why.field, "%s", why.message);
}

static enum tally_status work(struct worker *worker, struct tally_error *err)
{
    bool idle = false, is_over;
    while (!contact_is_stopping(worker) && !(idle && worker->config->exit_when_idle)) {
        struct tally_error why = TALLY_ERROR_INIT;
        enum tally_status status = contact_check_patience(worker, err);
        if (status != TALLY_OK) {
            return status;
        }
        status = enter(worker, idle, &is_over, &why);
        if (is_over) {
            return TALLY_OK;
        }
        idle = false;
        if (status == TALLY_OK) {
            status = poll_once(worker, &idle, &why);
        }
        if (status == TALLY_NOT_FOUND && worker->session != 0) {
            worker->session = 0; /* forgotten: join again */
            contact_pause(worker, NULL);
        } else if (status == TALLY_CANCELLED) {
            break;
        } else if (status == TALLY_UNAUTHENTICATED && contact_renew_token(worker)) {
            continue;
        } else if (status != TALLY_OK && contact_is_passing(status)) {
            undeliverables_forget_temporary(&worker->undeliverables);
            contact_pause(worker, &why);
        } else if (status != TALLY_OK) {
            return tally_fail(err, status, why.field, "%s", why.message);
        }
    }
    return TALLY_OK;
}

enum tally_status worker_run(const struct worker_config *config, struct worker_totals *ret_totals,
                             struct tally_error *err)
{
    struct worker worker = {.config = config};
    snprintf(worker.token, sizeof worker.token, "%s", config->token != NULL ? config->token : "");
    const struct tally_http_client_config first = contact_client_config(&worker);
    enum tally_status status = tally_http_client_new(&first, &worker.client, err);
    if (status != TALLY_OK) {
        return status;
    }
    patience_init(&worker.patience, config->give_up_after_ms);
    /* Jitter only has to differ from worker to worker. */
    uint64_t seed = 0;
    for (const char *c = config->name; *c != '\0'; c++) {
        seed = seed * 31 + (unsigned char)*c;
    }
    tally_rng_init(&worker.jitter, tally_rng_key(seed, 0), 0, 0, TALLY_RNG_SAMPLING);
    status = work(&worker, err);
    contact_leave(&worker);
    contact_add_wire_bytes(&worker);
    *ret_totals = worker.totals;
    while (worker.jobs != NULL) {
        forget_job(&worker, worker.jobs->id);
    }
    undeliverables_fini(&worker.undeliverables);
    call_buffers_fini(&worker.buffers);
    tally_buffer_fini(&worker.poll);
    tally_buffer_fini(&worker.batch.encoded);
    tally_buffer_fini(&worker.alone);
    free(worker.batch.bits);
    tally_http_client_free(worker.client);
    return status;
}
