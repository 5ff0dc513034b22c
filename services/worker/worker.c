#include "services/worker/worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/base/utf8.h"
#include "codec/encoding.h"
#include "codec/numeric/rng.h"
#include "services/base/log.h"
#include "services/base/time.h"
#include "services/base/tokens/token_file.h"
#include "services/worker/calls.h"
#include "services/worker/job_copy.h"
#include "services/worker/patience.h"

/* Pauses between tries: short enough that a restarted coordinator is found within a second, long
 * enough that thousands of workers do not hammer it. */
enum { MIN_PAUSE_MS = 50, MAX_PAUSE_MS = 1000, TRAVEL_MS = 1000 };

/* Points that come out wrong in a row before the job is given up: one may be a damaged message. */
enum { MAX_LOST_POINTS = 3 };

struct worker {
    const struct worker_config *config;
    struct tally_http_client *client;
    struct call_buffers buffers;
    struct tally_poll_response response; /* of the last poll; large */
    struct tally_buffer poll;            /* encoded, for an update that polls as well ... */
    uint32_t poll_wait_ms;               /* ... and for how long */
    bool has_next;                       /* the last update's answer holds that to its poll: */
    struct tally_bytes next;             /* there, until the next call */
    uint64_t session;                    /* 0 = none */
    uint32_t max_wait_ms;                /* as the coordinator has told; 0 = no limit */
    struct job_copy *jobs;
    struct tally_rng jitter;
    int64_t pause_ms;
    struct patience patience;
    unsigned lost_points;
    struct worker_totals totals;
    char token[TALLY_TOKEN_CAPACITY]; /* "" = none */
};

static bool is_stopping(const struct worker *worker)
{
    return __atomic_load_n(worker->config->stop.flag, __ATOMIC_RELAXED) != 0;
}

/* Waits before the next try: twice as long as the last time, less a random part. */
static void pause_before_retry(struct worker *worker, const struct tally_error *why)
{
    if (worker->pause_ms == 0 && why != NULL) {
        tally_log(TALLY_LOG_WARN, tally_log_event("coordinator not reachable, retrying"),
                  tally_log_problem(why));
    }
    int64_t pause = worker->pause_ms == 0 ? MIN_PAUSE_MS : 2 * worker->pause_ms;
    worker->pause_ms = pause < MAX_PAUSE_MS ? pause : MAX_PAUSE_MS;
    if (why != NULL) {
        patience_missed(&worker->patience);
    }
    const double share = 0.5 + 0.5 * tally_rng_uniform(&worker->jitter);
    const int64_t own_ms = (int64_t)(share * (double)worker->pause_ms);
    const int64_t left_ms = patience_left_ms(&worker->patience);
    const struct worker_stop *stop = &worker->config->stop;
    stop->wait(stop->context, (int)(own_ms < left_ms ? own_ms : left_ms));
}

static void reached(struct worker *worker)
{
    if (worker->pause_ms > MIN_PAUSE_MS) {
        tally_log(TALLY_LOG_INFO, tally_log_event("coordinator reachable again"));
    }
    worker->pause_ms = 0;
    patience_reached(&worker->patience);
}

/* No call takes longer than the patience lasts, and a response needs time to travel. */
static void limit_calls(struct worker *worker)
{
    const int64_t left_ms = patience_left_ms(&worker->patience);
    worker->buffers.limit_ms = left_ms < INT32_MAX ? (long)left_ms + TRAVEL_MS : 0;
}

static enum tally_status check_patience(const struct worker *worker, struct tally_error *err)
{
    return patience_check(&worker->patience, worker->config->coordinator_url, err);
}

/* Whether trying again may help. */
static bool is_passing(enum tally_status status)
{
    return tally_status_info(status)->retryable || status == TALLY_INTERNAL;
}

/* Token. */

static struct tally_http_client_config client_config(const struct worker *worker)
{
    return (struct tally_http_client_config){.base_url = worker->config->coordinator_url,
                                             .bearer_token =
                                                 worker->token[0] != '\0' ? worker->token : NULL,
                                             .tls_ca = worker->config->tls_ca,
                                             .user_agent = "tally-worker",
                                             .cancel = worker->config->stop.flag};
}

static void add_wire_bytes(struct worker *worker)
{
    uint64_t out, in;
    tally_http_client_wire_bytes(worker->client, &out, &in);
    worker->totals.wire_out_bytes += out;
    worker->totals.wire_in_bytes += in;
}

/* Where there are several coordinators, one that says nothing for longer than it may hold a poll is
 * not waited for. */
static void limit_silence(const struct worker *worker)
{
    tally_http_client_set_silence(worker->client, 2L * worker->max_wait_ms);
}

/* A poll: how long it may wait, and what the worker holds; it is of the caller's session. */
static void begin_poll(const struct worker *worker, struct tally_poll_request *ret_request)
{
    const uint32_t own_ms = worker->config->wait_ms, max_ms = worker->max_wait_ms;
    const int64_t left_ms = patience_left_ms(&worker->patience);
    ret_request->wait_ms = max_ms > 0 && max_ms < own_ms ? max_ms : own_ms;
    if (left_ms < ret_request->wait_ms) {
        ret_request->wait_ms = (uint32_t)left_ms;
    }
    ret_request->until_idle = worker->config->exit_when_idle;
    for (const struct job_copy *job = worker->jobs;
         job != NULL && ret_request->n_cursors < TALLY_MAX_CURSORS; job = job->next) {
        struct tally_cursor *cursor = &ret_request->cursors[ret_request->n_cursors++];
        memcpy(cursor->job_id, job->id, sizeof cursor->job_id);
        cursor->iterate = (uint64_t)tally_model_copy_iterate(job->model);
    }
}

/* A token that is refused may have been replaced in its file. True if there is another one now. */
static bool renew_token(struct worker *worker)
{
    char token[TALLY_TOKEN_CAPACITY];
    bool is_exposed, is_new = false;
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_http_client *client;
    const char *path = worker->config->token_file;
    if (path == NULL ||
        tally_token_file_first(path, tally_realtime_ms(), token, &is_exposed, &err) != TALLY_OK) {
        return false;
    }
    if (strcmp(token, worker->token) != 0) {
        memcpy(worker->token, token, strlen(token) + 1);
        const struct tally_http_client_config config = client_config(worker);
        if (tally_http_client_new(&config, &client, &err) == TALLY_OK) {
            add_wire_bytes(worker);
            tally_http_client_free(worker->client);
            worker->client = client;
            limit_silence(worker);
            is_new = true;
            tally_log(TALLY_LOG_INFO, tally_log_event("token reloaded"),
                      tally_log_text("file", path));
        }
    }
    explicit_bzero(token, sizeof token);
    return is_new;
}

/* Jobs. */

static struct job_copy *find_job(const struct worker *worker, const char *id)
{
    struct job_copy *job = worker->jobs;
    while (job != NULL && strcmp(job->id, id) != 0) {
        job = job->next;
    }
    return job;
}

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

/* Session. */

static enum tally_status join_once(struct worker *worker, struct tally_error *err)
{
    struct tally_join_request request = {.slots = worker->config->slots,
                                         .format = TALLY_FORMAT_VERSION};
    snprintf(request.name, sizeof request.name, "%s", worker->config->name);
    if (worker->config->job_id != NULL) {
        snprintf(request.job_id, sizeof request.job_id, "%s", worker->config->job_id);
    }
    request.held = calloc(worker->config->slots, sizeof *request.held);
    if (request.held == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory to join");
    }
    for (const struct job_copy *job = worker->jobs; job != NULL; job = job->next) {
        for (size_t i = 0; i < job->n_clients && request.n_held < worker->config->slots; i++) {
            struct tally_held_client *held = &request.held[request.n_held++];
            memcpy(held->job_id, job->id, sizeof held->job_id);
            held->client = job->clients[i];
        }
    }
    struct tally_join_response response;
    enum tally_status status =
        call_join(worker->client, &worker->buffers, &request, &response, err);
    free(request.held);
    if (status == TALLY_OK) {
        worker->session = response.session; /* to be given back if this is the end */
        worker->max_wait_ms = response.max_wait_ms;
        limit_silence(worker);
        status = tally_join_check_format(TALLY_FORMAT_VERSION, response.format, err);
    }
    if (status == TALLY_OK) {
        tally_log(TALLY_LOG_INFO, tally_log_event("joined"),
                  tally_log_text("worker", worker->config->name),
                  tally_log_integer("slots", worker->config->slots));
    }
    return status;
}

/* Joins, trying again as long as that may help. CANCELLED when asked to stop. */
static enum tally_status join(struct worker *worker, struct tally_error *err)
{
    while (!is_stopping(worker)) {
        struct tally_error why = TALLY_ERROR_INIT;
        limit_calls(worker);
        enum tally_status status = join_once(worker, &why);
        if (status == TALLY_OK) {
            reached(worker);
            return TALLY_OK;
        }
        if (status == TALLY_UNAUTHENTICATED && renew_token(worker)) {
            continue;
        }
        if (!is_passing(status)) {
            return tally_fail(err, status, why.field, "%s", why.message);
        }
        pause_before_retry(worker, &why);
        if (check_patience(worker, err) != TALLY_OK) {
            return TALLY_DEADLINE;
        }
    }
    return tally_fail(err, TALLY_CANCELLED, NULL, "asked to stop");
}

/* Posting. Metrics are telemetry: an update that may be refused for them goes once more without.
 * Returns whether it does. */
static bool after_refusal(struct worker *worker, struct tally_update *update,
                          enum tally_status status, const struct tally_error *why)
{
    const bool is_wrong = status == TALLY_INVALID_ARGUMENT;
    const bool goes_again = is_wrong && update->n_metrics > 0;
    tally_log(is_wrong ? TALLY_LOG_ERROR : TALLY_LOG_INFO, tally_log_event("update refused"),
              tally_log_text("job", update->job_id), tally_log_integer("round", update->round),
              tally_log_integer("client", update->client), tally_log_problem(why));
    if (is_wrong && !goes_again) {
        pause_before_retry(worker, NULL); /* the same would come out again: do not spin */
    }
    update->n_metrics = 0;
    return goes_again;
}

/* Posts until the update is acknowledged or refused for good. A new session replaces one that the
 * coordinator has forgotten. A stop ends it: the round's task is handed out again. */
static enum tally_status post(struct worker *worker, struct tally_update *update,
                              const struct tally_bits *bits, struct tally_error *err)
{
    bool joined_again = false;
    for (;;) {
        struct tally_error why = TALLY_ERROR_INIT;
        struct tally_update_response response;
        update->session = worker->session;
        limit_calls(worker);
        enum tally_status status =
            call_update(worker->client, &worker->buffers, update,
                        update->has_poll ? worker->poll_wait_ms : 0, &response, &why);
        if (status == TALLY_OK) {
            reached(worker);
            worker->has_next = response.has_next;
            worker->next = response.next;
            tally_bits_add(&worker->totals.uplink, bits);
            const bool is_message = update->failure[0] == '\0' && update->refusal[0] == '\0';
            if (is_message && (response.formula_bits != bits->formula_bits ||
                               response.payload_bits != bits->payload_bits)) {
                return tally_fail(err, TALLY_DATA_LOSS, NULL,
                                  "the coordinator counts %llu payload bits, this worker %llu",
                                  (unsigned long long)response.payload_bits,
                                  (unsigned long long)bits->payload_bits);
            }
            return TALLY_OK;
        }
        if (status == TALLY_UNAUTHENTICATED && renew_token(worker)) {
            continue;
        }
        if (status == TALLY_NOT_FOUND && !joined_again) {
            joined_again = true;
            status = join(worker, err);
            if (status != TALLY_OK) {
                return status;
            }
        } else if (!is_passing(status)) {
            if (!after_refusal(worker, update, status, &why)) {
                return TALLY_OK;
            }
        } else if (is_stopping(worker)) {
            return tally_fail(err, TALLY_CANCELLED, NULL, "asked to stop");
        } else {
            pause_before_retry(worker, &why);
            joined_again = false;
            if (check_patience(worker, err) != TALLY_OK) {
                return TALLY_DEADLINE;
            }
        }
    }
}

/* As much of the message as travels, which must be valid UTF-8; it may quote a file. */
static void write_reason(const struct tally_error *why, char ret_reason[TALLY_FAILURE_CAPACITY])
{
    snprintf(ret_reason, TALLY_FAILURE_CAPACITY, "%.*s", TALLY_FAILURE_CAPACITY - 1, why->message);
    ret_reason[tally_utf8_valid_prefix(ret_reason, strlen(ret_reason))] = '\0';
}

/* Leaves a job to other workers that this one cannot make from its document (its data files are not
 * here, or its plug-in is not loaded) or, if it has `tried`, whose plug-in has failed. */
static enum tally_status refuse(struct worker *worker, const struct tally_task *task,
                                uint32_t client, bool tried, const struct tally_error *why,
                                struct tally_error *err)
{
    struct tally_update message = {.round = task->round,
                                   .client = client,
                                   .tried = tried,
                                   .lacks_plugin = !tried && tally_plugin_set_is_absence(why)};
    const struct tally_bits none = {0};
    memcpy(message.job_id, task->job_id, sizeof message.job_id);
    write_reason(why, message.refusal);
    tally_log(TALLY_LOG_ERROR, tally_log_event("job refused"), tally_log_text("job", task->job_id),
              tally_log_problem(why));
    return post(worker, &message, &none, err);
}

/* An update after which the worker has nothing left but to poll does both in one call. */
static enum tally_status add_poll(struct worker *worker, struct tally_update *message,
                                  struct tally_error *err)
{
    struct tally_poll_request request = {.session = 0};
    begin_poll(worker, &request);
    worker->poll.size = 0;
    enum tally_status status = tally_poll_request_encode(&request, &worker->poll);
    if (status != TALLY_OK) {
        return tally_fail(err, status, NULL, "no memory for a poll");
    }
    worker->poll_wait_ms = request.wait_ms;
    message->has_poll = true;
    message->poll = (struct tally_bytes){worker->poll.data, worker->poll.size};
    return TALLY_OK;
}

/* Computes and posts the message of one client, or refuses the job. */
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
                           task->travel_step, task->shift_gain, 0},
                 .max_bits = task->max_bits},
        .evaluate = task->evaluate};
    struct tally_update message = {.round = task->round, .client = client, .mark = task->mark};
    memcpy(message.job_id, task->job_id, sizeof message.job_id);
    struct tally_job_update update;
    struct tally_bits bits = {0};
    struct tally_error why = TALLY_ERROR_INIT;
    enum tally_status status =
        tally_model_copy_compute(job->model, &round, client, &update, &bits, &why);
    if (status == TALLY_OK) {
        message.payload = (struct tally_bytes){update.payload, update.n_payload};
        message.payload_bits = update.payload_bits;
        message.clipped = update.clipped;
        message.has_loss = update.has_loss;
        message.loss = update.loss;
        message.n_metrics = update.n_metrics;
        memcpy(message.metrics, update.metrics, update.n_metrics * sizeof *update.metrics);
    } else if (is_passing(status)) { /* no memory: this machine's trouble, not the job's */
        return tally_fail(err, status, why.field, "%s", why.message);
    } else if (is_stopping(worker)) { /* who was interrupted has not failed */
        return tally_fail(err, TALLY_CANCELLED, NULL, "asked to stop");
    } else if (status == TALLY_FAILED_PRECONDITION) { /* a plug-in's trouble, not the job's */
        *ret_refused = true;
        return refuse(worker, task, client, true, &why, err);
    } else {
        write_reason(&why, message.failure);
        tally_log(TALLY_LOG_ERROR, tally_log_event("client failed"), tally_log_text("job", job->id),
                  tally_log_integer("client", client), tally_log_problem(&why));
    }
    patience_worked(&worker->patience);
    status = is_last ? add_poll(worker, &message, err) : TALLY_OK;
    return status == TALLY_OK ? post(worker, &message, &bits, err) : status;
}

/* Tasks. */

static enum tally_status open_job(struct worker *worker, const struct tally_task *task,
                                  struct job_copy **ret_job, struct tally_error *err)
{
    struct job_copy *job = find_job(worker, task->job_id);
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
    *ret_job = job;
    return TALLY_OK;
}

/* A point that does not fit is thrown away: the next poll shows no cursor and gets it anew. */
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

static enum tally_status do_task(struct worker *worker, const struct tally_task *task,
                                 struct tally_error *err)
{
    struct job_copy *job;
    struct tally_error why = TALLY_ERROR_INIT;
    enum tally_status status = open_job(worker, task, &job, &why);
    if (status != TALLY_OK && is_stopping(worker)) { /* a plug-in that was interrupted, say */
        return tally_fail(err, TALLY_CANCELLED, NULL, "asked to stop");
    }
    if (status != TALLY_OK && !is_passing(status) && task->n_clients > 0) {
        return refuse(worker, task, task->clients[0], false, &why, err);
    }
    if (status != TALLY_OK) {
        return tally_fail(err, status, why.field, "%s", why.message);
    }
    status = job_copy_follow(job, task, &why);
    if (status != TALLY_OK) {
        return lose_point(worker, task, &why, err);
    }
    worker->lost_points = 0;
    bool refused = false;
    for (size_t i = 0; status == TALLY_OK && !refused && i < task->n_clients; i++) {
        const bool is_last = i + 1 == task->n_clients;
        status = answer_client(worker, job, task, task->clients[i], is_last, &refused, err);
    }
    if (refused) {
        forget_job(worker, task->job_id);
    }
    worker->totals.rounds++;
    return status;
}

/* The answer to a poll: what the last update brought, or that of a call. */
static enum tally_status next_response(struct worker *worker, struct tally_poll_response *response,
                                       struct tally_error *err)
{
    if (worker->has_next) {
        worker->has_next = false;
        return tally_poll_response_decode(worker->next.data, worker->next.size, response, err);
    }
    struct tally_poll_request request = {.session = worker->session};
    begin_poll(worker, &request);
    limit_calls(worker);
    return call_poll(worker->client, &worker->buffers, &request, response, err);
}

/* One poll and what follows. Sets *ret_idle if there is nothing to do and nothing coming. */
static enum tally_status poll_once(struct worker *worker, bool *ret_idle, struct tally_error *err)
{
    struct tally_poll_response *response = &worker->response;
    enum tally_status status = next_response(worker, response, err);
    if (status != TALLY_OK) {
        return status;
    }
    reached(worker);
    switch (response->kind) {
    case TALLY_POLL_IDLE:
        *ret_idle = response->jobs_pending == 0;
        break;
    case TALLY_POLL_RELEASED:
        forget_job(worker, response->released_job_id);
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

static enum tally_status work(struct worker *worker, struct tally_error *err)
{
    bool idle = false;
    while (!is_stopping(worker) && !(idle && worker->config->exit_when_idle)) {
        struct tally_error why = TALLY_ERROR_INIT;
        idle = false;
        enum tally_status status = check_patience(worker, err);
        if (status != TALLY_OK) {
            return status;
        }
        if (worker->session == 0) {
            status = join(worker, &why);
        }
        if (status == TALLY_OK) {
            status = poll_once(worker, &idle, &why);
        }
        if (status == TALLY_NOT_FOUND && worker->session != 0) {
            worker->session = 0;              /* forgotten: join again */
            pause_before_retry(worker, NULL); /* another worker of this name may do the same */
        } else if (status == TALLY_CANCELLED) {
            break;
        } else if (status == TALLY_UNAUTHENTICATED && renew_token(worker)) {
            continue;
        } else if (status != TALLY_OK && is_passing(status)) {
            pause_before_retry(worker, &why);
        } else if (status != TALLY_OK) {
            return tally_fail(err, status, why.field, "%s", why.message);
        }
    }
    return TALLY_OK;
}

/* Gives the slots back, on a connection that a stop does not cancel. */
static void leave(const struct worker *worker)
{
    struct tally_http_client_config config = client_config(worker);
    config.cancel = NULL;
    config.connect_timeout_ms = 1000;
    struct tally_http_client *client;
    struct call_buffers buffers = {0};
    if (worker->session != 0 && tally_http_client_new(&config, &client, NULL) == TALLY_OK) {
        call_leave(client, &buffers, worker->session, NULL);
        call_buffers_fini(&buffers);
        tally_http_client_free(client);
    }
}

enum tally_status worker_run(const struct worker_config *config, struct worker_totals *ret_totals,
                             struct tally_error *err)
{
    struct worker worker = {.config = config};
    snprintf(worker.token, sizeof worker.token, "%s", config->token != NULL ? config->token : "");
    const struct tally_http_client_config first = client_config(&worker);
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
    leave(&worker);
    add_wire_bytes(&worker);
    *ret_totals = worker.totals;
    while (worker.jobs != NULL) {
        forget_job(&worker, worker.jobs->id);
    }
    call_buffers_fini(&worker.buffers);
    tally_buffer_fini(&worker.poll);
    tally_http_client_free(worker.client);
    return status;
}
