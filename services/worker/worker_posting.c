#include "services/worker/worker_posting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/utf8.h"
#include "services/base/log.h"
#include "services/base/time.h"
#include "services/worker/worker_contact.h"

/* Many times the cost of an exchange: a worker that computes for POST_AFTER_MS would gain nothing
 * by holding its updates back. The time counts from the start of the first computation, because an
 * update that is held waits for the next one, which takes about as long. */
enum { POST_AFTER_MS = 100 };

/* ---- Retries ---- */

/* Whether another program than the coordinator has answered. */
static bool is_foreign(const struct tally_error *why)
{
    return strcmp(why->field, TALLY_HTTP_FOREIGN) == 0;
}

/* Whether it would answer the same again. */
static bool is_foreign_refusal(const struct tally_error *why)
{
    return is_foreign(why) && !tally_status_info(why->status)->retryable;
}

/* Whether the failure may be one of the way to the coordinator: it is away, or a program on the way
 * does not let the message pass. */
static bool is_on_the_way(const struct tally_error *why)
{
    return is_foreign(why) || strcmp(why->field, TALLY_HTTP_UNANSWERED) == 0;
}

/* Whether the update is of no use any more, or the session: the next poll goes on from there. */
static bool is_settled(const struct tally_error *why)
{
    const enum tally_status status = why->status;
    return !is_foreign_refusal(why) &&
           (status == TALLY_FAILED_PRECONDITION || status == TALLY_ALREADY_EXISTS ||
            status == TALLY_PERMISSION_DENIED || status == TALLY_NOT_FOUND ||
            status == TALLY_UNAUTHENTICATED);
}

/* Decides what to do after a failed call. OK: the call is made again, unless *ret_is_refused is
 * set. *joined_again: the session was renewed for this call. */
static enum tally_status after_failure(struct worker *worker, const struct tally_error *why,
                                       bool *joined_again, bool *ret_is_refused,
                                       struct tally_error *err)
{
    const enum tally_status status = why->status;
    const bool is_passing = contact_is_passing(status) && !is_foreign_refusal(why);
    *ret_is_refused =
        is_foreign_refusal(why) || (is_on_the_way(why) && contact_is_at_longest_pause(worker));
    if (*ret_is_refused) {
        return TALLY_OK;
    }
    if ((is_passing || status == TALLY_CANCELLED) && contact_is_stopping(worker)) {
        return tally_fail(err, TALLY_CANCELLED, NULL, "asked to stop");
    }
    if (status == TALLY_UNAUTHENTICATED && contact_renew_token(worker)) {
        return TALLY_OK;
    }
    if (status == TALLY_NOT_FOUND && !*joined_again) {
        *joined_again = true;
        return contact_join(worker, err);
    }
    if (!is_passing) {
        *ret_is_refused = true;
        return TALLY_OK;
    }
    contact_pause(worker, why);
    *joined_again = false;
    return contact_check_patience(worker, err);
}

/* With over-selection every round refuses late updates, which are therefore logged as DEBUG. */
static enum tally_log_level level_of_refusal(const struct worker *worker, const char *job_id,
                                             enum tally_status refusal)
{
    const struct job_copy *job = job_copy_find(worker->jobs, job_id);
    if (refusal == TALLY_INVALID_ARGUMENT) {
        return TALLY_LOG_ERROR;
    }
    return refusal == TALLY_FAILED_PRECONDITION && job != NULL && job->spec.over_selection > 0
               ? TALLY_LOG_DEBUG
               : TALLY_LOG_INFO;
}

/* Leaves the job to other workers for a while (worker_undeliverable.h). */
static void give_up(struct worker *worker, const struct tally_update *update,
                    const struct tally_error *why)
{
    struct tally_error told = TALLY_ERROR_INIT;
    char reason[TALLY_FAILURE_CAPACITY];
    const bool has_method = strncmp(why->message, "PostUpdate: ", 12) == 0;
    tally_fail(&told, why->status, NULL, "client %u cannot post its %s: %s", update->client,
               update->refusal[0] != '\0'   ? "refusal"
               : update->failure[0] != '\0' ? "failure"
                                            : "update",
               why->message + (has_method ? 12 : 0));
    posting_write_reason(&told, reason);
    const bool is_temporary = is_on_the_way(why) && !is_foreign_refusal(why);
    const int64_t pause_ms =
        undeliverables_add(&worker->undeliverables, update->job_id, is_temporary, reason);
    tally_log(TALLY_LOG_WARN, tally_log_event("update cannot be posted, trying again later"),
              tally_log_text("job", update->job_id), tally_log_integer("round", update->round),
              tally_log_integer("pause_ms", pause_ms), tally_log_problem(&told));
}

/* Metrics are telemetry: an update that may have been refused because of them is posted once more
 * without them. Returns whether it is to be posted again. */
static bool after_refusal(struct worker *worker, struct tally_update *update,
                          const struct tally_error *why)
{
    const bool goes_again =
        why->status == TALLY_INVALID_ARGUMENT && !is_foreign_refusal(why) && update->n_metrics > 0;
    update->n_metrics = 0;
    if (!goes_again && !is_settled(why)) {
        give_up(worker, update, why);
        return false;
    }
    tally_log(level_of_refusal(worker, update->job_id, why->status),
              tally_log_event("update refused"), tally_log_text("job", update->job_id),
              tally_log_integer("round", update->round),
              tally_log_integer("client", update->client), tally_log_problem(why));
    return goes_again;
}

/* Counts an acknowledged update, and compares its bits with those that the coordinator counted. */
static enum tally_status count(struct worker *worker, const char *job_id,
                               const struct tally_bits *own, uint64_t formula_bits,
                               uint64_t payload_bits, struct tally_error *err)
{
    if (!undeliverables_has_new(&worker->undeliverables, job_id)) { /* of another client */
        undeliverables_remove(&worker->undeliverables, job_id);
    }
    tally_bits_add(&worker->totals.uplink, own);
    if (formula_bits != own->formula_bits || payload_bits != own->payload_bits) {
        return tally_fail(err, TALLY_DATA_LOSS, NULL,
                          "the coordinator counts %llu payload bits, this worker %llu",
                          (unsigned long long)payload_bits, (unsigned long long)own->payload_bits);
    }
    return TALLY_OK;
}

/* Encodes the poll that a post carries if the worker would only poll after it. `job_id`: the job
 * that the poll need not name because the post does; NULL = none. */
static enum tally_status encode_poll(struct worker *worker, const char *job_id,
                                     struct tally_bytes *ret_poll, struct tally_error *err)
{
    struct tally_poll_request request = {.session = 0};
    contact_begin_poll(worker, &request);
    for (size_t i = 0; job_id != NULL && i < request.n_cursors; i++) {
        if (strcmp(request.cursors[i].job_id, job_id) == 0) {
            request.cursors[i].job_id[0] = '\0';
        }
    }
    worker->poll.size = 0;
    enum tally_status status = tally_poll_request_encode(&request, &worker->poll);
    if (status != TALLY_OK) {
        return tally_fail(err, status, NULL, "no memory for a poll");
    }
    worker->poll_wait_ms = request.wait_ms;
    *ret_poll = (struct tally_bytes){worker->poll.data, worker->poll.size};
    return TALLY_OK;
}

/* ---- One update ---- */

static enum tally_status post(struct worker *worker, struct tally_update *update,
                              const struct tally_bits *bits, struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    bool joined_again = false, is_refused;
    while (status == TALLY_OK) {
        struct tally_error why = TALLY_ERROR_INIT;
        struct tally_update_response response;
        update->session = worker->session;
        worker->has_next = false; /* the call overwrites it */
        contact_limit_calls(worker);
        if (call_update(worker->client, &worker->buffers, update,
                        update->has_poll ? worker->poll_wait_ms : 0, &response, &why) == TALLY_OK) {
            contact_reached(worker);
            if (update->has_poll) {
                undeliverables_answered(&worker->undeliverables);
            }
            worker->has_next = response.has_next;
            worker->next = response.next;
            const bool is_message = update->failure[0] == '\0' && update->refusal[0] == '\0';
            return is_message ? count(worker, update->job_id, bits, response.formula_bits,
                                      response.payload_bits, err)
                              : TALLY_OK;
        }
        status = after_failure(worker, &why, &joined_again, &is_refused, err);
        if (status == TALLY_OK && is_refused && !after_refusal(worker, update, &why)) {
            return TALLY_OK;
        }
    }
    return status;
}

enum tally_status posting_post(struct worker *worker, struct tally_update *update,
                               const struct tally_bits *bits, bool polls, struct tally_error *err)
{
    enum tally_status status = polls ? encode_poll(worker, NULL, &update->poll, err) : TALLY_OK;
    update->has_poll = polls;
    return status == TALLY_OK ? post(worker, update, bits, err) : status;
}

void posting_write_reason(const struct tally_error *why, char ret_reason[TALLY_FAILURE_CAPACITY])
{
    snprintf(ret_reason, TALLY_FAILURE_CAPACITY, "%.*s", TALLY_FAILURE_CAPACITY - 1, why->message);
    ret_reason[tally_utf8_valid_prefix(ret_reason, strlen(ret_reason))] = '\0';
}

enum tally_status posting_refuse(struct worker *worker, const struct tally_task *task,
                                 uint32_t client, bool tried, const struct tally_error *why,
                                 struct tally_error *err)
{
    struct tally_update message = {.round = task->round,
                                   .client = client,
                                   .tried = tried,
                                   .lacks_plugin = !tried && tally_plugin_set_is_absence(why)};
    const struct tally_bits none = {0};
    memcpy(message.job_id, task->job_id, sizeof message.job_id);
    posting_write_reason(why, message.refusal);
    worker->refusal = *why;
    tally_log(TALLY_LOG_ERROR, tally_log_event("job refused"), tally_log_text("job", task->job_id),
              tally_log_problem(why));
    return post(worker, &message, &none, err);
}

/* ---- Several updates ---- */

void posting_begin(struct worker *worker)
{
    worker->batch.n = worker->batch.encoded.size = 0;
    worker->batch.since_ms = tally_monotonic_ms();
}

/* The updates of the batch, to be read by tally_updates_next(). */
static struct tally_updates held_updates(const struct worker *worker)
{
    struct tally_updates held = worker->batch.whole;
    held.rest = (struct tally_bytes){worker->batch.encoded.data, worker->batch.encoded.size};
    return held;
}

/* Posts the updates one by one, for a batch that the coordinator does not accept as a whole. */
static enum tally_status post_each(struct worker *worker, struct tally_error *err)
{
    struct tally_updates held = held_updates(worker);
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; status == TALLY_OK && i < worker->batch.n &&
                       !undeliverables_has_new(&worker->undeliverables, held.job_id);
         i++) {
        struct tally_update update;
        status = tally_updates_next(&held, &update, err);
        if (status == TALLY_OK) {
            status = post(worker, &update, &worker->batch.bits[i], err);
        }
    }
    return status;
}

/* Handles the result of one update: it is acknowledged, refused, or to be posted again, alone. */
static enum tally_status take_result(struct worker *worker, struct tally_update *update,
                                     const struct tally_bits *bits,
                                     const struct tally_update_result *result,
                                     struct tally_error *err)
{
    if (result->code[0] == '\0') {
        return count(worker, update->job_id, bits, result->formula_bits, result->payload_bits, err);
    }
    if (undeliverables_has_new(&worker->undeliverables, update->job_id)) {
        return TALLY_OK; /* the job is left to others, with all its updates */
    }
    struct tally_error why = TALLY_ERROR_INIT;
    tally_fail(&why, tally_status_of_connect_code(result->code), NULL, "%s", result->message);
    return contact_is_passing(why.status) || after_refusal(worker, update, &why)
               ? post(worker, update, bits, err)
               : TALLY_OK;
}

static enum tally_status take_results(struct worker *worker,
                                      struct tally_updates_response *response,
                                      struct tally_error *err)
{
    struct tally_updates held = held_updates(worker);
    enum tally_status status = TALLY_OK;
    if (response->n_results == 0) {
        struct tally_bits sum = {0};
        for (size_t i = 0; i < worker->batch.n; i++) {
            tally_bits_add(&sum, &worker->batch.bits[i]);
        }
        return count(worker, held.job_id, &sum, response->formula_bits, response->payload_bits,
                     err);
    }
    for (size_t i = 0; status == TALLY_OK && i < worker->batch.n; i++) {
        struct tally_update update;
        struct tally_update_result result;
        status = tally_updates_next(&held, &update, err);
        if (status == TALLY_OK) {
            status = tally_updates_response_next(response, &result, err);
        }
        if (status == TALLY_OK) {
            status = take_result(worker, &update, &worker->batch.bits[i], &result, err);
        }
    }
    return status;
}

/* The response is put aside while its results are read, because some updates may be posted again. A
 * response with `next` has no refused update, so no call is made before `next` is read. */
static enum tally_status take_response(struct worker *worker,
                                       struct tally_updates_response *response,
                                       struct tally_error *err)
{
    struct tally_buffer body = worker->buffers.response;
    worker->buffers.response = (struct tally_buffer){0};
    contact_reached(worker);
    if (worker->batch.whole.has_poll) {
        undeliverables_answered(&worker->undeliverables);
    }
    worker->has_next = response->has_next;
    worker->next = response->next;
    enum tally_status status = take_results(worker, response, err);
    if (worker->buffers.response.capacity == 0) {
        worker->buffers.response = body;
    } else { /* a later call has left its own response */
        tally_buffer_fini(&body);
    }
    return status;
}

/* The most bytes that a request takes besides its updates. */
static size_t whole_bytes(const struct worker *worker)
{
    size_t n_cursors = 0;
    for (const struct job_copy *job = worker->jobs; job != NULL && n_cursors < TALLY_MAX_CURSORS;
         job = job->next) {
        n_cursors++;
    }
    const size_t undeliverable_bytes =
        worker->undeliverables.first != NULL ? (size_t)TALLY_UNDELIVERABLE_BYTES : 0;
    return TALLY_UPDATE_WHOLE_BYTES + undeliverable_bytes + n_cursors * TALLY_CURSOR_BYTES;
}

/* Whether n bytes of updates fit into a batch. */
static bool fits(const struct worker *worker, size_t n)
{
    return whole_bytes(worker) + n <= worker->max_batch_bytes;
}

/* A proxy has refused a batch: it may let shorter ones through, or none. */
static void shorten_batches(struct worker *worker, const struct tally_error *why)
{
    if (why->status == TALLY_TOO_LARGE) {
        worker->max_batch_bytes = (uint32_t)(worker->batch.encoded.size / 2);
    } else if (is_foreign_refusal(why)) {
        worker->max_batch_bytes = 0;
    }
}

static enum tally_status post_together(struct worker *worker, struct tally_error *err)
{
    struct batch *batch = &worker->batch;
    bool joined_again = false, is_refused = false;
    enum tally_status status = TALLY_OK;
    /* A new session may be with a coordinator that takes smaller batches, or none. */
    while (status == TALLY_OK && !is_refused && fits(worker, batch->encoded.size)) {
        struct tally_error why = TALLY_ERROR_INIT;
        struct tally_updates_response response;
        batch->whole.session = worker->session;
        batch->whole.n_updates = batch->n;
        contact_limit_calls(worker);
        if (call_updates(worker->client, &worker->buffers, &batch->whole, &batch->encoded,
                         batch->whole.has_poll ? worker->poll_wait_ms : 0, &response,
                         &why) == TALLY_OK) {
            return take_response(worker, &response, err);
        }
        status = after_failure(worker, &why, &joined_again, &is_refused, err);
        shorten_batches(worker, &why);
    }
    return status == TALLY_OK ? post_each(worker, err) : status;
}

enum tally_status posting_flush(struct worker *worker, bool polls, struct tally_error *err)
{
    struct batch *batch = &worker->batch;
    if (batch->n == 0) {
        return TALLY_OK;
    }
    batch->whole.has_poll = polls;
    enum tally_status status =
        polls ? encode_poll(worker, batch->whole.job_id, &batch->whole.poll, err) : TALLY_OK;
    if (status == TALLY_OK) {
        status = post_together(worker, err);
    }
    posting_begin(worker);
    return status;
}

static enum tally_status make_room(struct batch *batch, struct tally_error *err)
{
    if (batch->n == batch->capacity) {
        const size_t capacity = batch->capacity == 0 ? 8 : 2 * batch->capacity;
        struct tally_bits *bits = realloc(batch->bits, capacity * sizeof *bits);
        if (bits == NULL) {
            return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %zu updates", capacity);
        }
        batch->bits = bits;
        batch->capacity = capacity;
    }
    return TALLY_OK;
}

static enum tally_status hold(struct batch *batch, const struct tally_update *update,
                              const struct tally_bits *bits, struct tally_error *err)
{
    enum tally_status status = make_room(batch, err);
    if (status != TALLY_OK) {
        return status;
    }
    if (batch->n == 0) {
        batch->whole = (struct tally_updates){
            .round = update->round, .mark = update->mark, .columns = update->columns};
        memcpy(batch->whole.job_id, update->job_id, sizeof update->job_id);
        uint8_t session[TALLY_SESSION_FIELD_BYTES]; /* call_updates() fills it in */
        tally_session_write_first(0, session);
        status = tally_buffer_append(&batch->encoded, session, sizeof session);
    }
    if (status == TALLY_OK) {
        status = tally_updates_add(update, &batch->encoded);
    }
    if (status != TALLY_OK) {
        return tally_fail(err, status, NULL, "no memory for an update");
    }
    batch->bits[batch->n++] = *bits;
    return TALLY_OK;
}

static bool is_due(const struct batch *batch)
{
    return tally_monotonic_ms() - batch->since_ms >= POST_AFTER_MS;
}

enum tally_status posting_add(struct worker *worker, struct tally_update *update,
                              const struct tally_bits *bits, bool is_last, struct tally_error *err)
{
    struct batch *batch = &worker->batch;
    const size_t n =
        TALLY_UPDATE_OWN_BYTES + TALLY_METRIC_BYTES * update->n_metrics + update->payload.size;
    enum tally_status status = TALLY_OK;
    if (!fits(worker, batch->encoded.size + n) || batch->n == TALLY_MAX_UPDATES) {
        status = posting_flush(worker, false, err);
    }
    if (status == TALLY_OK && batch->n == 0 && (is_last || is_due(batch) || !fits(worker, n))) {
        status = posting_post(worker, update, bits, is_last, err);
        posting_begin(worker);
        return status;
    }
    if (status == TALLY_OK) {
        status = hold(batch, update, bits, err);
    }
    return status == TALLY_OK && (is_last || is_due(batch)) ? posting_flush(worker, is_last, err)
                                                            : status;
}
