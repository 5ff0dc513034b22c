#include "services/worker/worker_contact.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/encoding.h"
#include "services/base/log.h"
#include "services/base/time.h"
#include "services/base/token_file.h"

/* Pauses between attempts: short enough that a restarted coordinator is found within a second, long
 * enough that thousands of workers do not overload it. */
enum { MIN_PAUSE_MS = 50, MAX_PAUSE_MS = 1000, TRAVEL_MS = 1000 };

/* A call that takes longer is logged this often. */
enum { PROGRESS_MS = 5000 };

/* It is also told to the coordinator: for the first time after an eighth of the session timeout,
 * and then every quarter. On a full link a small message may wait for seconds behind the large
 * one. */
enum { PROGRESS_FIRST = 8, PROGRESS_EVERY = 4 };
/* While two workers replace each other's session. A session that lasts for long has no rival. */
enum { FIRST_RIVAL_PAUSE_MS = 1000, MAX_RIVAL_PAUSE_MS = 60000, RIVAL_GONE_MS = 300000 };

bool contact_is_stopping(const struct worker *worker)
{
    return __atomic_load_n(worker->config->stop.flag, __ATOMIC_RELAXED) != 0;
}

/* Waits for pause_ms less a random part, or as long as the patience lasts. */
static void wait_about(struct worker *worker, int64_t pause_ms)
{
    const double share = 0.5 + 0.5 * tally_rng_uniform(&worker->jitter);
    const int64_t own_ms = (int64_t)(share * (double)pause_ms);
    const int64_t left_ms = patience_left_ms(&worker->patience);
    const struct worker_stop *stop = &worker->config->stop;
    stop->wait(stop->context, (int)(own_ms < left_ms ? own_ms : left_ms));
}

/* Waits before the next attempt: twice as long as the last time, less a random part. */
void contact_pause(struct worker *worker, const struct tally_error *why)
{
    if (why != NULL && tally_outage_is_news(&worker->outage, why, tally_monotonic_ms())) {
        tally_log(TALLY_LOG_WARN,
                  tally_log_event(why->status == TALLY_RESOURCE_EXHAUSTED
                                      ? "coordinator refused, retrying"
                                      : "coordinator not reachable, retrying"),
                  tally_log_problem(why));
    }
    int64_t pause = worker->pause_ms == 0 ? MIN_PAUSE_MS : 2 * worker->pause_ms;
    worker->pause_ms = pause < MAX_PAUSE_MS ? pause : MAX_PAUSE_MS;
    if (why != NULL) {
        patience_missed(&worker->patience);
    }
    wait_about(worker, worker->pause_ms);
}

bool contact_is_at_longest_pause(const struct worker *worker)
{
    return worker->pause_ms == MAX_PAUSE_MS;
}

void contact_reached(struct worker *worker)
{
    if (worker->pause_ms > MIN_PAUSE_MS) {
        tally_log(TALLY_LOG_INFO, tally_log_event("coordinator reachable again"));
    }
    worker->pause_ms = 0;
    worker->outage = (struct tally_outage){0};
    patience_reached(&worker->patience);
}

/* No call is silent for longer than the patience lasts, plus the time for the response to arrive.
 */
void contact_limit_calls(struct worker *worker, int64_t silence_ms)
{
    const int64_t patience_ms = patience_left_ms(&worker->patience);
    const int64_t left_ms = silence_ms < patience_ms ? silence_ms : patience_ms;
    worker->buffers.limit_ms = left_ms < INT32_MAX ? (long)left_ms + TRAVEL_MS : 0;
}

enum tally_status contact_check_patience(const struct worker *worker, struct tally_error *err)
{
    return patience_check(&worker->patience, worker->config->coordinator_url, err);
}

/* Whether a retry may help. */
bool contact_is_passing(enum tally_status status)
{
    return tally_status_info(status)->retryable || status == TALLY_INTERNAL;
}

/* Token. */

static struct tally_http_client_config plain_config(const struct worker *worker)
{
    return (struct tally_http_client_config){.base_url = worker->config->coordinator_url,
                                             .bearer_token =
                                                 worker->token[0] != '\0' ? worker->token : NULL,
                                             .tls_ca = worker->config->tls_ca,
                                             .user_agent = "tally-worker",
                                             .is_terse = true,
                                             .cancel = worker->config->stop.flag};
}

static void end_progress(struct worker *worker)
{
    tally_http_client_free(worker->progress_client);
    worker->progress_client = NULL;
    call_buffers_fini(&worker->progress_buffers);
}

/* On a connection of its own. */
static enum tally_status send_progress(struct worker *worker,
                                       const struct tally_progress_request *message)
{
    struct tally_http_client_config config = plain_config(worker);
    const long limit_ms = (long)(worker->session_timeout_ms * 3 / 4);
    config.connect_timeout_ms = limit_ms;
    struct tally_error err = TALLY_ERROR_INIT;
    enum tally_status status = TALLY_OK;
    worker->progress_buffers.limit_ms = limit_ms;
    if (worker->progress_client == NULL) {
        status = tally_http_client_new(&config, &worker->progress_client, &err);
    }
    return status == TALLY_OK
               ? call_progress(worker->progress_client, &worker->progress_buffers, message, &err)
               : status;
}

/* A proxy, or another coordinator, may keep the message until it is complete, and the session's
 * coordinator would know nothing of it. Meanwhile the kernel continues to send or to receive the
 * message itself. */
static void tell_progress(struct worker *worker, bool receives, uint64_t n, uint64_t n_whole)
{
    const struct tally_progress_request message = {
        .session = worker->session, .receives = receives, .bytes = n, .of_bytes = n_whole};
    const enum tally_status status =
        worker->session != 0 ? send_progress(worker, &message) : TALLY_OK;
    if (status != TALLY_OK && !contact_is_passing(status)) {
        worker->session_timeout_ms = 0; /* until the worker joins again */
    }
}

bool contact_is_answered(struct worker *worker)
{
    const struct tally_progress_request nothing = {.session = worker->session};
    return !contact_is_passing(send_progress(worker, &nothing));
}

/* A slow link is neither an absent coordinator nor a lack of work, and its users want to know how
 * far it has got. */
static void on_progress(void *context, const struct tally_http_progress *progress)
{
    struct worker *worker = context;
    const bool sends = progress->sent_bytes < progress->to_send_bytes;
    const uint64_t n = sends ? progress->sent_bytes : progress->received_bytes;
    const uint64_t n_whole = sends ? progress->to_send_bytes : progress->to_receive_bytes;
    const int64_t now_ms = tally_monotonic_ms();
    if (n >= n_whole || !progress->has_moved) { /* it waits for a task, or the link is broken */
        return;
    }
    patience_reached(&worker->patience);
    patience_worked(&worker->patience);
    const int64_t every_ms = worker->session_timeout_ms / PROGRESS_EVERY;
    if (every_ms > 0 && progress->elapsed_ms >= worker->session_timeout_ms / PROGRESS_FIRST &&
        now_ms - worker->progress_told_ms >= every_ms) {
        tell_progress(worker, !sends, n, n_whole);
        worker->progress_told_ms = tally_monotonic_ms();
    }
    if (progress->elapsed_ms >= PROGRESS_MS && now_ms - worker->progress_logged_ms >= PROGRESS_MS) {
        worker->progress_logged_ms = now_ms;
        tally_log(TALLY_LOG_INFO, tally_log_event(sends ? "still sending" : "still receiving"),
                  tally_log_integer("percent", (int64_t)(100 * n / n_whole)),
                  tally_log_integer("bytes", (int64_t)n),
                  tally_log_integer("of_bytes", (int64_t)n_whole));
    }
}

struct tally_http_client_config contact_client_config(struct worker *worker)
{
    struct tally_http_client_config config = plain_config(worker);
    config.on_progress = on_progress;
    config.context = worker;
    return config;
}

void contact_add_wire_bytes(struct worker *worker)
{
    uint64_t out, in;
    tally_http_client_wire_bytes(worker->client, &out, &in);
    worker->totals.wire_out_bytes += out;
    worker->totals.wire_in_bytes += in;
}

/* With several coordinators, a call fails if its coordinator is silent for twice as long as it may
 * hold a poll. */
static void limit_silence(const struct worker *worker)
{
    tally_http_client_set_silence(worker->client, 2L * worker->max_wait_ms);
}

/* Fills in how long a poll may wait, what the worker holds, and what it cannot post. The caller
 * sets the session. */
void contact_begin_poll(struct worker *worker, struct tally_poll_request *ret_request)
{
    const uint32_t own_ms = worker->config->wait_ms, max_ms = worker->max_wait_ms;
    const int64_t left_ms = patience_left_ms(&worker->patience);
    ret_request->wait_ms = max_ms > 0 && max_ms < own_ms ? max_ms : own_ms;
    if (left_ms < ret_request->wait_ms) {
        ret_request->wait_ms = (uint32_t)left_ms;
    }
    /* A worker of one job ends with it, but not while it only waits to post again. */
    ret_request->until_idle =
        worker->config->exit_when_idle ||
        (worker->config->job_id != NULL && worker->undeliverables.first == NULL);
    for (const struct job_copy *job = worker->jobs;
         job != NULL && ret_request->n_cursors < TALLY_MAX_CURSORS; job = job->next) {
        struct tally_cursor *cursor = &ret_request->cursors[ret_request->n_cursors++];
        memcpy(cursor->job_id, job->id, sizeof cursor->job_id);
        cursor->iterate = (uint64_t)tally_model_copy_iterate(job->model);
        cursor->scaling = job_copy_scaling(job);
    }
    undeliverables_ask(&worker->undeliverables, ret_request);
}

/* Reads a refused token from its file again, where it may have been replaced. Returns true if the
 * worker has a different token now. */
bool contact_renew_token(struct worker *worker)
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
        const struct tally_http_client_config config = contact_client_config(worker);
        if (tally_http_client_new(&config, &client, &err) == TALLY_OK) {
            contact_add_wire_bytes(worker);
            tally_http_client_free(worker->client);
            worker->client = client;
            end_progress(worker);
            limit_silence(worker);
            is_new = true;
            tally_log(TALLY_LOG_INFO, tally_log_event("token reloaded"),
                      tally_log_text("file", path));
        }
    }
    explicit_bzero(token, sizeof token);
    return is_new;
}

/* Session. */

/* Another worker has joined under this name, and this one has just replaced it. */
static void note_rival(struct worker *worker, const char *address)
{
    const int64_t pause_ms = worker->rival_pause_ms;
    if (address[0] == '\0') {
        worker->rival_pause_ms = 0;
        return;
    }
    worker->rival_pause_ms = pause_ms == 0                       ? FIRST_RIVAL_PAUSE_MS
                             : 2 * pause_ms < MAX_RIVAL_PAUSE_MS ? 2 * pause_ms
                                                                 : MAX_RIVAL_PAUSE_MS;
    tally_log(TALLY_LOG_WARN, tally_log_event("another worker has the same name"),
              tally_log_text("worker", worker->config->name),
              tally_log_text("other_address", address),
              tally_log_text("remedy", "give each worker a --name of its own"));
}

/* The plug-ins that offer a start, with spaces between them; those that do not fit are left out. */
static void list_starts(const struct tally_plugin_set *set, char ret_names[TALLY_STARTS_CAPACITY])
{
    size_t n = 0;
    ret_names[0] = '\0';
    for (const struct tally_plugin_source *source = set != NULL ? set->first : NULL; source != NULL;
         source = source->next) {
        const size_t length = strlen(source->name);
        if (source->has_initial && n + length + 1 < TALLY_STARTS_CAPACITY) {
            n += (size_t)snprintf(ret_names + n, TALLY_STARTS_CAPACITY - n, "%s%s",
                                  n > 0 ? " " : "", source->name);
        }
    }
}

static enum tally_status join_once(struct worker *worker, struct tally_error *err)
{
    struct tally_join_request request = {.slots = worker->config->slots,
                                         .format = TALLY_FORMAT_VERSION};
    snprintf(request.name, sizeof request.name, "%s", worker->config->name);
    list_starts(worker->config->plugins, request.starts);
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
    if (status == TALLY_OK && response.ended[0] != '\0') {
        worker->has_ended = true;
        return tally_fail(err, TALLY_NOT_FOUND, NULL, "job %s has ended: it is %s", request.job_id,
                          response.ended);
    }
    if (status == TALLY_OK) {
        worker->session = response.session; /* contact_leave() returns it if the check below
                                             * fails */
        worker->max_wait_ms = response.max_wait_ms;
        worker->max_batch_bytes = response.max_batch_bytes;
        worker->session_timeout_ms = response.session_timeout_ms;
        limit_silence(worker);
        status = tally_join_check_format(TALLY_FORMAT_VERSION, response.format, err);
    }
    if (status == TALLY_OK) {
        tally_log(TALLY_LOG_INFO, tally_log_event("joined"),
                  tally_log_text("worker", worker->config->name),
                  tally_log_integer("slots", worker->config->slots));
        worker->joined_ms = tally_monotonic_ms();
        note_rival(worker, response.rival);
    }
    return status;
}

/* Joins, and retries as long as that may help. CANCELLED when asked to stop. */
enum tally_status contact_join(struct worker *worker, struct tally_error *err)
{
    if (tally_monotonic_ms() - worker->joined_ms > RIVAL_GONE_MS) {
        worker->rival_pause_ms = 0;
    }
    if (worker->rival_pause_ms > 0) {
        wait_about(worker, worker->rival_pause_ms);
    }
    while (!contact_is_stopping(worker)) {
        struct tally_error why = TALLY_ERROR_INIT;
        contact_limit_calls(worker, INT64_MAX);
        enum tally_status status = join_once(worker, &why);
        if (status == TALLY_OK) {
            contact_reached(worker);
            return TALLY_OK;
        }
        if (status == TALLY_UNAUTHENTICATED && contact_renew_token(worker)) {
            continue;
        }
        if (!contact_is_passing(status)) {
            return tally_fail(err, status, why.field, "%s", why.message);
        }
        contact_pause(worker, &why);
        if (contact_check_patience(worker, err) != TALLY_OK) {
            return TALLY_DEADLINE;
        }
    }
    return tally_fail(err, TALLY_CANCELLED, NULL, "asked to stop");
}

/* Returns the slots, on a connection that a stop does not cancel. */
void contact_leave(struct worker *worker)
{
    end_progress(worker);
    struct tally_http_client_config config = plain_config(worker);
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
