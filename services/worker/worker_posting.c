#include "services/worker/worker_posting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/utf8.h"
#include "services/base/log.h"
#include "services/base/time.h"
#include "services/worker/worker_contact.h"

/* As long as the coordinator defers a commit: a round that closes by then stores none of its
 * updates. A worker that computes for longer would gain little by holding them back. The time
 * counts from the start of the first computation, because an update that is held waits for the next
 * one, which takes about as long. */
enum { POST_AFTER_MS = 250 };

/* The longest silence of a post after one that was not answered although a small call was, less a
 * second. Four posts, the first of which may wait for a task as well, take less than a minute. */
enum { SUSPECT_MS = 7000 };

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

/* Whether the update has an obstacle of its own on the way: since some seconds no attempt has got
 * through, the last of them after a small call that did, and another one does now. While the
 * coordinator is away, the update is kept: it may have been accepted already, with only its
 * acknowledgement lost, and to compute it again may take long. *ret_goes_again: it has just become
 * known that small calls get through. */
static bool has_obstacle(struct worker *worker, const struct tally_error *why, bool *ret_goes_again)
{
    const bool is_long = contact_is_at_longest_pause(worker) || why->status == TALLY_DEADLINE;
    const bool was_suspect = worker->way_is_suspect;
    worker->way_is_suspect = is_on_the_way(why) && is_long && contact_is_answered(worker);
    *ret_goes_again = worker->way_is_suspect && !was_suspect;
    return worker->way_is_suspect && was_suspect;
}

/* Decides what to do after a failed call. OK: the call is made again, unless *ret_is_refused is
 * set. *joined_again: the session was renewed for this call. */
static enum tally_status after_failure(struct worker *worker, const struct tally_error *why,
                                       bool *joined_again, bool *ret_is_refused,
                                       struct tally_error *err)
{
    const enum tally_status status = why->status;
    const bool is_passing = contact_is_passing(status) && !is_foreign_refusal(why);
    if ((is_passing || status == TALLY_CANCELLED) && contact_is_stopping(worker)) {
        return tally_fail(err, TALLY_CANCELLED, NULL, "asked to stop");
    }
    bool goes_again = false;
    *ret_is_refused = is_foreign_refusal(why) || has_obstacle(worker, why, &goes_again);
    if (*ret_is_refused || goes_again) {
        return TALLY_OK;
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
    const struct tally_update_request *whole = &worker->batch.whole;
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
        undeliverables_add(&worker->undeliverables, whole->job_id, is_temporary, reason);
    tally_log(TALLY_LOG_WARN, tally_log_event("update cannot be posted, trying again later"),
              tally_log_text("job", whole->job_id), tally_log_integer("round", whole->round),
              tally_log_integer("pause_ms", pause_ms), tally_log_problem(&told));
}

/* Metrics are telemetry: an update that may have been refused because of them is posted once more
 * without them. Returns whether it is to be posted again. */
static bool after_refusal(struct worker *worker, struct tally_update *update,
                          const struct tally_error *why)
{
    const struct tally_update_request *whole = &worker->batch.whole;
    const bool goes_again = why->status == TALLY_INVALID_ARGUMENT && !is_foreign_refusal(why) &&
                            update->n_metrics + update->n_evaluation > 0;
    update->n_metrics = update->n_evaluation = 0;
    if (!goes_again && !is_settled(why)) {
        give_up(worker, update, why);
        return false;
    }
    tally_log(level_of_refusal(worker, whole->job_id, why->status),
              tally_log_event("update refused"), tally_log_text("job", whole->job_id),
              tally_log_integer("round", whole->round), tally_log_integer("client", update->client),
              tally_log_problem(why));
    return goes_again;
}

/* Counts acknowledged updates, and compares their bits with those that the coordinator counted. */
static enum tally_status count(struct worker *worker, const struct tally_bits *own,
                               uint64_t formula_bits, uint64_t payload_bits,
                               struct tally_error *err)
{
    const char *job_id = worker->batch.whole.job_id;
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

/* Adds the poll to a post after which the worker would only poll. It need not name the job that the
 * post names. */
static enum tally_status add_poll(struct worker *worker, struct tally_update_request *whole,
                                  struct tally_error *err)
{
    struct tally_poll_request request = {.session = 0};
    contact_begin_poll(worker, &request);
    for (size_t i = 0; i < request.n_cursors; i++) {
        if (strcmp(request.cursors[i].job_id, whole->job_id) == 0) {
            request.cursors[i].job_id[0] = '\0';
        }
    }
    worker->poll.size = 0;
    enum tally_status status = tally_poll_request_encode(&request, &worker->poll);
    if (status != TALLY_OK) {
        return tally_fail(err, status, NULL, "no memory for a poll");
    }
    worker->poll_wait_ms = request.wait_ms;
    whole->has_poll = true;
    whole->poll = (struct tally_bytes){worker->poll.data, worker->poll.size};
    return TALLY_OK;
}

/* From this size on, a batch that failed is not posted again as a whole: a link that breaks now and
 * then may let its updates through, but never all of them at once. */
enum { LARGE_BATCH_BYTES = 256 * 1024 };

static bool is_large_batch(const struct tally_update_request *whole,
                           const struct tally_buffer *updates)
{
    return whole->n_updates > 1 && updates->size > LARGE_BATCH_BYTES;
}

/* Makes the call until it is answered or finally refused, or has failed and is a large batch;
 * *ret_why is then why. */
static enum tally_status post(struct worker *worker, struct tally_update_request *whole,
                              struct tally_buffer *updates,
                              struct tally_update_response *ret_response,
                              struct tally_error *ret_why, struct tally_error *err)
{
    bool joined_again = false, is_refused = false;
    enum tally_status status = TALLY_OK;
    while (status == TALLY_OK && !is_refused) {
        *ret_why = (struct tally_error)TALLY_ERROR_INIT;
        whole->session = worker->session;
        worker->has_next = false; /* the call overwrites it */
        contact_limit_calls(worker, worker->way_is_suspect ? SUSPECT_MS : INT64_MAX);
        /* The coordinator may hold its answer to a poll for longer. */
        whole->has_poll = whole->has_poll && !worker->way_is_suspect;
        if (call_update(worker->client, &worker->buffers, whole, updates,
                        whole->has_poll ? worker->poll_wait_ms : 0, ret_response,
                        ret_why) == TALLY_OK) {
            contact_reached(worker);
            worker->way_is_suspect = false;
            if (whole->has_poll) {
                undeliverables_answered(&worker->undeliverables);
            }
            worker->has_next = ret_response->has_next;
            worker->next = ret_response->next;
            return TALLY_OK;
        }
        status = after_failure(worker, ret_why, &joined_again, &is_refused, err);
        is_refused = is_refused || is_large_batch(whole, updates);
    }
    return status;
}

/* Appends an update to the encoded updates of a request, which begin with the field of the session.
 * call_update() fills that in. */
static enum tally_status append(const struct tally_update *update, struct tally_buffer *updates,
                                struct tally_error *err)
{
    uint8_t session[TALLY_SESSION_FIELD_BYTES];
    enum tally_status status = TALLY_OK;
    if (updates->size == 0) {
        tally_session_write_first(0, session);
        status = tally_buffer_append(updates, session, sizeof session);
    }
    if (status == TALLY_OK) {
        status = tally_update_request_add(update, updates);
    }
    return status == TALLY_OK ? status : tally_fail(err, status, NULL, "no memory for an update");
}

/* ---- One update ---- */

enum tally_status posting_post(struct worker *worker, struct tally_update *update,
                               const struct tally_bits *bits, bool polls, struct tally_error *err)
{
    struct tally_update_request whole = worker->batch.whole;
    struct tally_update_response response = {.has_next = false};
    struct tally_error why = TALLY_ERROR_INIT;
    bool goes_again = true;
    whole.n_updates = 1;
    enum tally_status status = polls ? add_poll(worker, &whole, err) : TALLY_OK;
    while (status == TALLY_OK && goes_again) {
        worker->alone.size = 0;
        status = append(update, &worker->alone, err);
        if (status == TALLY_OK) {
            status = post(worker, &whole, &worker->alone, &response, &why, err);
        }
        goes_again =
            status == TALLY_OK && why.status != TALLY_OK && after_refusal(worker, update, &why);
    }
    const bool counts =
        why.status == TALLY_OK && update->failure[0] == '\0' && update->refusal[0] == '\0';
    return status == TALLY_OK && counts
               ? count(worker, bits, response.formula_bits, response.payload_bits, err)
               : status;
}

void posting_write_reason(const struct tally_error *why, char ret_reason[TALLY_FAILURE_CAPACITY])
{
    snprintf(ret_reason, TALLY_FAILURE_CAPACITY, "%.*s", TALLY_FAILURE_CAPACITY - 1, why->message);
    ret_reason[tally_utf8_valid_prefix(ret_reason, strlen(ret_reason))] = '\0';
}

enum tally_status posting_refuse(struct worker *worker, uint32_t client, bool tried,
                                 const struct tally_error *why, struct tally_error *err)
{
    struct tally_update refusal = {.client = client,
                                   .tried = tried,
                                   .lacks_plugin = !tried && tally_plugin_set_is_absence(why)};
    posting_write_reason(why, refusal.refusal);
    worker->refusal = *why;
    tally_log(TALLY_LOG_ERROR, tally_log_event("job refused"),
              tally_log_text("job", worker->batch.whole.job_id), tally_log_problem(why));
    return posting_post(worker, &refusal, &(struct tally_bits){0}, false, err);
}

/* ---- Several updates ---- */

/* Drops the held updates. The computation of the next one begins. */
static void restart(struct batch *batch)
{
    batch->n = batch->encoded.size = 0;
    batch->since_ms = tally_monotonic_ms();
}

void posting_begin(struct worker *worker, const struct tally_task *task, uint32_t columns)
{
    struct batch *batch = &worker->batch;
    batch->whole =
        (struct tally_update_request){.round = task->round, .mark = task->mark, .columns = columns};
    memcpy(batch->whole.job_id, task->job_id, sizeof task->job_id);
    restart(batch);
}

/* The updates of the batch, to be read by tally_update_request_next(). */
static struct tally_update_request held_updates(const struct worker *worker)
{
    struct tally_update_request held = worker->batch.whole;
    held.rest = (struct tally_bytes){worker->batch.encoded.data, worker->batch.encoded.size};
    return held;
}

/* Posts the updates one by one; `polls` if there is just one. */
static enum tally_status post_each(struct worker *worker, bool polls, struct tally_error *err)
{
    struct tally_update_request held = held_updates(worker);
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; status == TALLY_OK && i < worker->batch.n &&
                       !undeliverables_has_new(&worker->undeliverables, held.job_id);
         i++) {
        struct tally_update update;
        status = tally_update_request_next(&held, &update, err);
        if (status == TALLY_OK) {
            status = posting_post(worker, &update, &worker->batch.bits[i], polls, err);
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
        return count(worker, bits, result->formula_bits, result->payload_bits, err);
    }
    if (undeliverables_has_new(&worker->undeliverables, worker->batch.whole.job_id)) {
        return TALLY_OK; /* the job is left to others, with all its updates */
    }
    struct tally_error why = TALLY_ERROR_INIT;
    tally_fail(&why, tally_status_of_connect_code(result->code), NULL, "%s", result->message);
    return contact_is_passing(why.status) || after_refusal(worker, update, &why)
               ? posting_post(worker, update, bits, false, err)
               : TALLY_OK;
}

static enum tally_status take_results(struct worker *worker, struct tally_update_response *response,
                                      struct tally_error *err)
{
    struct tally_update_request held = held_updates(worker);
    enum tally_status status = TALLY_OK;
    if (response->n_results == 0) {
        struct tally_bits sum = {0};
        for (size_t i = 0; i < worker->batch.n; i++) {
            tally_bits_add(&sum, &worker->batch.bits[i]);
        }
        return count(worker, &sum, response->formula_bits, response->payload_bits, err);
    }
    for (size_t i = 0; status == TALLY_OK && i < worker->batch.n; i++) {
        struct tally_update update;
        struct tally_update_result result;
        status = tally_update_request_next(&held, &update, err);
        if (status == TALLY_OK) {
            status = tally_update_response_next(response, &result, err);
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
                                       struct tally_update_response *response,
                                       struct tally_error *err)
{
    struct tally_buffer body = worker->buffers.response;
    worker->buffers.response = (struct tally_buffer){0};
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

/* Whether n bytes of updates may go together. */
static bool fits(const struct worker *worker, size_t n)
{
    return whole_bytes(worker) + n <= worker->max_batch_bytes;
}

/* A proxy has refused a batch: it may let shorter ones through, or none. Or the connection broke
 * before a large batch had passed. */
static void shorten_batches(struct worker *worker, const struct tally_error *why)
{
    const size_t half = worker->batch.encoded.size / 2;
    if (why->status == TALLY_TOO_LARGE) {
        worker->max_batch_bytes = (uint32_t)half;
    } else if (is_foreign_refusal(why)) {
        worker->max_batch_bytes = 0;
    } else if (contact_is_passing(why->status) && half < worker->max_batch_bytes) {
        worker->max_batch_bytes = (uint32_t)(half > LARGE_BATCH_BYTES ? half : LARGE_BATCH_BYTES);
    }
}

/* Posts the updates together or, if they are not accepted as a whole, one by one. */
static enum tally_status post_together(struct worker *worker, bool polls, struct tally_error *err)
{
    struct tally_update_request whole = worker->batch.whole;
    struct tally_update_response response = {.has_next = false};
    struct tally_error why = TALLY_ERROR_INIT;
    whole.n_updates = worker->batch.n;
    enum tally_status status = polls ? add_poll(worker, &whole, err) : TALLY_OK;
    if (status == TALLY_OK) {
        status = post(worker, &whole, &worker->batch.encoded, &response, &why, err);
    }
    if (status == TALLY_OK && why.status != TALLY_OK) {
        shorten_batches(worker, &why);
        return post_each(worker, false, err);
    }
    return status == TALLY_OK ? take_response(worker, &response, err) : status;
}

enum tally_status posting_flush(struct worker *worker, bool polls, struct tally_error *err)
{
    const enum tally_status status =
        worker->batch.n > 1 ? post_together(worker, polls, err) : post_each(worker, polls, err);
    restart(&worker->batch);
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
    if (status == TALLY_OK) {
        status = append(update, &batch->encoded, err);
    }
    if (status == TALLY_OK) {
        batch->bits[batch->n++] = *bits;
    }
    return status;
}

static bool is_due(const struct batch *batch)
{
    return tally_monotonic_ms() - batch->since_ms >= POST_AFTER_MS;
}

enum tally_status posting_add(struct worker *worker, struct tally_update *update,
                              const struct tally_bits *bits, bool is_last, struct tally_error *err)
{
    struct batch *batch = &worker->batch;
    const size_t n = TALLY_UPDATE_OWN_BYTES +
                     TALLY_METRIC_BYTES * (update->n_metrics + update->n_evaluation) +
                     strlen(update->evaluation_failure) + update->payload.size;
    enum tally_status status = TALLY_OK;
    if (!fits(worker, batch->encoded.size + n) || batch->n == TALLY_MAX_UPDATES) {
        status = posting_flush(worker, false, err);
    }
    if (status == TALLY_OK && batch->n == 0 && (is_last || is_due(batch) || !fits(worker, n))) {
        status = posting_post(worker, update, bits, is_last, err);
        restart(batch);
        return status;
    }
    if (status == TALLY_OK) {
        status = hold(batch, update, bits, err);
    }
    return status == TALLY_OK && (is_last || is_due(batch)) ? posting_flush(worker, is_last, err)
                                                            : status;
}
