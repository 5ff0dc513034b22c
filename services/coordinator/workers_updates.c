/* workers_updates: PostUpdate.
 *
 * The updates of a request are processed one after the other, each in three steps: it is decoded
 * (worker_messages.h), received by the engine, and added to the step's pending updates
 * (loop_pending.h). The response waits for the step's commit.
 *
 * The refusal of an only update is the error of the request. Of several, each has its own result.
 * They share the transaction: if the commit fails, all are undone and the request as a whole gets
 * the error. The same holds for an error that concerns no single update, such as an unknown
 * session. */
#include <stdio.h>
#include <string.h>

#include "codec/utf8.h"
#include "services/base/log.h"
#include "services/coordinator/call_counts.h"
#include "services/coordinator/coordinator.h"
#include "services/coordinator/jobs_lifecycle.h"
#include "services/coordinator/jobs_live.h"
#include "services/coordinator/jobs_rounds.h"
#include "services/coordinator/loop_transaction.h"
#include "services/coordinator/workers.h"
#include "services/job/job_reasons.h"

static void note_absence(struct hosted_job *job, const struct session *session, const char *reason)
{
    memcpy(job->absence.worker, session->name, sizeof job->absence.worker);
    snprintf(job->absence.reason, sizeof job->absence.reason, "%s", reason);
}

static void log_refusal(const struct session *session, const struct hosted_job *job,
                        const char *reason)
{
    tally_log(TALLY_LOG_WARN, tally_log_event("worker refused a job"),
              tally_log_text("worker", session->name), tally_log_text("job", job->row.id),
              tally_log_text("reason", reason));
}

/* As for a job whose plug-in is not loaded, the job never fails for this reason: another worker may
 * reach the coordinator by another way, and a proxy's limit takes one line to change. */
void workers_take_undeliverable(struct tally_coordinator *coordinator, struct session *session,
                                const struct tally_undeliverable *undeliverable)
{
    struct hosted_job *job = jobs_find(coordinator, undeliverable->job_id);
    if (job == NULL) {
        return;
    }
    coordinator->jobs->match_due = true;
    if (undeliverable->reason[0] == '\0') {
        session_accept(session, job);
        return;
    }
    struct tally_update update = {.client = 0};
    memcpy(update.refusal, undeliverable->reason, sizeof update.refusal);
    session_refuse(&coordinator->workers->sessions, session, job, &update);
    note_absence(job, session, update.refusal);
    log_refusal(session, job, update.refusal);
}

/* Takes the poll of a request. It begins to wait once the updates are durable. */
static enum tally_status take_poll(struct tally_coordinator *coordinator, struct call *call,
                                   struct session *session,
                                   const struct tally_update_request *request,
                                   struct tally_error *err)
{
    struct tally_poll_request message;
    enum tally_status status =
        tally_poll_request_decode(request->poll.data, request->poll.size, &message, err);
    if (status != TALLY_OK) {
        tally_error_in_field(err, "poll");
        return status;
    }
    if (coordinator->draining) {
        return TALLY_OK;
    }
    for (size_t i = 0; i < message.n_cursors; i++) {
        if (message.cursors[i].job_id[0] == '\0') {
            memcpy(message.cursors[i].job_id, request->job_id, sizeof request->job_id);
        }
    }
    workers_take_undeliverable(coordinator, session, &message.undeliverable);
    poll_keep(coordinator, call, session, &message);
    call->polling_session = session->id;
    return TALLY_OK;
}

/* Whether the session may answer for the client. This includes the worker that had the client
 * before and was silent for too long: its late update counts. */
static bool takes_part(const struct session *session, const struct hosted_job *job, uint32_t client)
{
    const struct client_slot *slot =
        job->slots != NULL && client < job->row.clients ? &job->slots[client] : NULL;
    return slot != NULL &&
           (slot->session == session ||
            (strcmp(slot->previous, session->name) == 0 &&
             access_same_identity(&slot->previous_identity, &session->token->identity)));
}

/* Receives an update for a live job. `owner`: as for pending_add(). is_last: of the request. */
static enum tally_status receive(struct tally_coordinator *coordinator,
                                 struct tally_http_request *owner, bool is_last,
                                 struct hosted_job *job, const struct tally_update *update,
                                 struct tally_job_outcome *ret_outcome, struct tally_error *err)
{
    struct pending_updates *pending = &coordinator->transaction->pending;
    if (job->needs_reload) {
        return transaction_fail(coordinator->transaction, err);
    }
    enum tally_status status = transaction_begin_update(coordinator->transaction, err);
    if (status != TALLY_OK) {
        return status;
    }
    status = tally_job_receive(job->engine, update, ret_outcome, err);
    if (status != TALLY_OK || ret_outcome->duplicate) {
        return status;
    }
    job->absence.worker[0] = '\0';
    if (rounds_has_closed(job, ret_outcome)) {
        transaction_require(coordinator->transaction);
        if (is_last) {
            pending_leave_body(pending);
        }
        return rounds_put_closed(coordinator, job, ret_outcome, err);
    }
    hosted_job_mark_touched(job);
    const size_t n_pending = pending->n;
    status = pending_add(pending, coordinator->store, job, update, owner, err);
    if (pending->n == n_pending) { /* it has been stored already */
        transaction_require(coordinator->transaction);
    }
    return jobs_check_write(coordinator, job, status, err);
}

/* Notes that the worker, whose message counts, has added the message to its copy of the client's
 * shift. */
static void note_shift(const struct hosted_job *job, const struct session *session, uint32_t client)
{
    struct client_slot *slot =
        job->slots != NULL && client < job->row.clients ? &job->slots[client] : NULL;
    if (slot != NULL && slot->session == session) {
        slot->has_shift = true;
    }
}

static void note_columns(struct hosted_job *job, const struct session *session, uint32_t columns,
                         uint32_t client)
{
    if (job->columns.digest == 0) {
        job->columns = (struct known_columns){.digest = columns, .client = client};
        memcpy(job->columns.worker, session->name, sizeof job->columns.worker);
    }
}

/* Receives an update for a job that has ended. A job that is live at another replica does not
 * belong to this session. */
static enum tally_status receive_ended(struct tally_coordinator *coordinator,
                                       struct session *session, const char *job_id,
                                       const struct tally_update *update,
                                       struct tally_job_outcome *ret_outcome,
                                       struct tally_error *err)
{
    struct tally_store_job row;
    enum tally_status status = jobs_read_row(coordinator, job_id, &row, err);
    if (status == TALLY_NOT_FOUND &&
        jobs_may_be_id(job_id)) { /* the session may continue with other jobs */
        tally_error_clear(err);
        return tally_fail(err, TALLY_FAILED_PRECONDITION, "job_id", "job %s is deleted", job_id);
    }
    if (status == TALLY_OK && !tally_job_status_is_terminal(row.status)) {
        workers_end_session(coordinator, session);
        return tally_fail(err, TALLY_NOT_FOUND, "session",
                          "job %s is led by another coordinator: join again", job_id);
    }
    return status == TALLY_OK ? ended_receive(&coordinator->jobs->ended, coordinator->store, &row,
                                              update, ret_outcome, err)
                              : status;
}

static enum tally_status end_in_failure(struct tally_coordinator *coordinator,
                                        struct hosted_job *job, const char *reason,
                                        struct tally_error *err)
{
    enum tally_status status = jobs_fail(coordinator, job, reason, err);
    if (status == TALLY_OK) {
        rounds_note_closed(coordinator, job);
    }
    return status;
}

/* The slot of a setback's client, in which its numbers are those of the update's round. */
static struct client_slot *slot_of_setback(struct hosted_job *job,
                                           const struct tally_update *update)
{
    struct client_slot *slot = job->slots != NULL && update->client < job->row.clients
                                   ? &job->slots[update->client]
                                   : NULL;
    if (slot != NULL && slot->setback_round != update->round) {
        slot->setback_round = update->round;
        memset(slot->setbacks, 0, sizeof slot->setbacks);
    }
    return slot;
}

/* Whether the setback has been counted: its request came again. */
static bool is_counted(const struct client_slot *slot, const struct tally_update *update)
{
    for (int i = 0; slot != NULL && update->attempt != 0 && i <= TALLY_RETRIES_MOST; i++) {
        if (slot->setbacks[i] == update->attempt) {
            return true;
        }
    }
    return false;
}

/* The client's training failed, and the job goes on; the open transaction takes what follows. */
static enum tally_status take_setback(struct tally_coordinator *coordinator, struct hosted_job *job,
                                      const struct session *session,
                                      const struct tally_update *update, struct tally_error *err)
{
    struct tally_job_outcome outcome;
    struct client_slot *slot = slot_of_setback(job, update);
    if (is_counted(slot, update)) {
        return TALLY_OK;
    }
    const int n_before = slot != NULL ? tally_job_n_setbacks(job->engine, update->client) : 0;
    enum tally_status status = transaction_begin_update(coordinator->transaction, err);
    if (status == TALLY_OK) {
        status =
            tally_job_take_setback(job->engine, update->client, update->failure, &outcome, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    if (slot != NULL) {
        slot->setbacks[n_before % (TALLY_RETRIES_MOST + 1)] = update->attempt;
    }
    tally_log(TALLY_LOG_WARN, tally_log_event("a client's training failed"),
              tally_log_text("job", job->row.id), tally_log_integer("round", update->round),
              tally_log_integer("client", update->client), tally_log_text("worker", session->name),
              tally_log_text("reason", update->failure));
    if (rounds_has_closed(job, &outcome)) {
        transaction_require(coordinator->transaction);
        return rounds_put_closed(coordinator, job, &outcome, err);
    }
    coordinator->jobs->ops->ready(coordinator, job); /* it may be another client's turn again */
    return TALLY_OK;
}

/* Without `may_retry` no worker could continue with the client, since its computation depends on
 * job and seed alone. */
static enum tally_status take_failure(struct tally_coordinator *coordinator, struct hosted_job *job,
                                      const struct session *session,
                                      const struct tally_update *update, struct tally_error *err)
{
    if (job->needs_reload) {
        return transaction_fail(coordinator->transaction, err);
    }
    enum tally_status status = tally_job_check_round(job->engine, update->round, update->mark, err);
    if (status != TALLY_OK) {
        return status;
    }
    if (update->may_retry) {
        return take_setback(coordinator, job, session, update, err);
    }
    char reason[TALLY_REASON_CAPACITY];
    TALLY_REASON_WRITE(reason, CLIENT_FAILED, update->client, update->round, update->failure);
    return end_in_failure(coordinator, job, reason, err);
}

/* The worker's coordinates are other features than those of an earlier one. Which of the two is
 * wrong is not known, and the rounds that have closed may contain either, so the job fails. */
static enum tally_status take_other_columns(struct tally_coordinator *coordinator,
                                            const struct session *session, struct hosted_job *job,
                                            const struct tally_update *update,
                                            struct tally_error *err)
{
    if (job->needs_reload) {
        return transaction_fail(coordinator->transaction, err);
    }
    enum tally_status status = tally_job_check_round(job->engine, update->round, update->mark, err);
    if (status != TALLY_OK) {
        return status;
    }
    char known[96] = "the coordinator", reason[TALLY_REASON_CAPACITY];
    if (job->columns.worker[0] != '\0') {
        snprintf(known, sizeof known, "worker %s (client %u)", job->columns.worker,
                 job->columns.client);
    }
    TALLY_REASON_WRITE(reason, COLUMNS_DIFFER, session->name, update->client, known);
    status = end_in_failure(coordinator, job, reason, err);
    return status == TALLY_OK ? tally_fail(err, TALLY_FAILED_PRECONDITION, "columns",
                                           "the job has failed: %s", reason)
                              : status;
}

static bool has_been_tried(const struct hosted_job *job)
{
    const struct refusal *refusal = job->supply.refusals;
    while (refusal != NULL && !refusal->tried) {
        refusal = refusal->next_of_job;
    }
    return refusal != NULL;
}

/* Whether a worker that had a client of the job is not connected. */
static bool may_be_resumed(const struct tally_coordinator *coordinator,
                           const struct hosted_job *job)
{
    for (int64_t m = 0; job->slots != NULL && m < job->row.clients; m++) {
        const char *previous = job->slots[m].previous;
        if (previous[0] != '\0' &&
            session_by_name(&coordinator->workers->sessions, previous) == NULL) {
            return true;
        }
    }
    return false;
}

/* Whether no present worker can serve the job, and waiting for others is pointless: either no
 * worker has ever answered for it, or the workers that try it fail. If only a plug-in is not
 * loaded, the job waits, because loading it takes just one option. */
static bool is_hopeless(const struct tally_coordinator *coordinator, const struct hosted_job *job)
{
    const struct tally_job_round *round = tally_job_open_round(job->engine);
    const bool is_new = tally_job_progress(job->engine)->round == 0 && round->received == 0 &&
                        job->absence.worker[0] == '\0';
    return !workers_can_be_served(coordinator, job) &&
           (is_new || (has_been_tried(job) && !may_be_resumed(coordinator, job)));
}

/* The worker cannot serve the job: its clients go to others. */
static enum tally_status take_refusal(struct tally_coordinator *coordinator,
                                      struct session *session, struct hosted_job *job,
                                      const struct tally_update *update, struct tally_error *err)
{
    if (job->needs_reload) {
        return transaction_fail(coordinator->transaction, err);
    }
    session_refuse(&coordinator->workers->sessions, session, job, update);
    if (update->lacks_plugin) {
        note_absence(job, session, update->refusal);
    }
    coordinator->jobs->match_due = true;
    log_refusal(session, job, update->refusal);
    if (!is_hopeless(coordinator, job)) {
        return TALLY_OK;
    }
    char reason[TALLY_REASON_CAPACITY];
    TALLY_REASON_WRITE(reason, NO_WORKER_CAN_SERVE, session->name, update->refusal);
    return end_in_failure(coordinator, job, reason, err);
}

/* The initial point that the worker was asked for. One that is no point is a refusal of the job, so
 * that the worker is not asked again. */
static enum tally_status take_start(struct tally_coordinator *coordinator, struct session *session,
                                    struct hosted_job *job, const struct tally_update *update,
                                    bool *ret_is_repeated, struct tally_error *err)
{
    struct tally_error why = TALLY_ERROR_INIT;
    enum tally_status status =
        workers_take_start(coordinator, session, job, update, ret_is_repeated, &why);
    if (status == TALLY_MALFORMED) {
        struct tally_update refusal = {.client = update->client, .tried = true};
        snprintf(refusal.refusal, sizeof refusal.refusal, "%.*s", (int)sizeof refusal.refusal - 1,
                 why.message);
        (void)take_refusal(coordinator, session, job, &refusal, NULL);
    }
    return status == TALLY_OK ? status : tally_fail(err, status, why.field, "%s", why.message);
}

/* A request of a session, and what has become of it so far. */
struct post {
    struct call *call;
    struct session *session;
    struct tally_update_request message;
    struct tally_bits bits; /* of the acknowledged updates */
    /* Of several updates: */
    size_t n_left; /* after the present one */
    int64_t n_taken;
    int64_t dim; /* of their job; 0 = unknown */
    bool has_refusal, has_invalid;
};

/* Notes an update that was taken, so that its bytes are charged to its client. Without memory they
 * are charged only to the job. */
static void note_taken(struct post *post, const struct tally_update *update,
                       enum update_result result)
{
    struct call *call = post->call;
    const struct traffic_part part = {.client = update->client,
                                      .own_bytes = {[TRAFFIC_IN] = (uint32_t)update->encoded.size},
                                      .is_accepted = result == UPDATE_ACCEPTED,
                                      .payload_bits = update->payload_bits};
    (void)tally_buffer_append(&call->parts, &part, sizeof part);
    memcpy(call->job_id, post->message.job_id, sizeof call->job_id);
    call->updates[result]++;
}

/* Takes an update of the session. Errors: the update is refused, or those of the request. */
static enum tally_status take_update(struct tally_coordinator *coordinator, struct post *post,
                                     const struct tally_update *update, struct tally_bits *ret_bits,
                                     struct tally_error *err)
{
    enum tally_status status;
    enum update_result result = UPDATE_ACCEPTED;
    struct tally_job_outcome outcome = {0};
    struct session *session = post->session;
    const struct tally_update_request *message = &post->message;
    struct hosted_job *job = jobs_find(coordinator, message->job_id);
    if (job == NULL) {
        status = receive_ended(coordinator, session, message->job_id, update, &outcome, err);
    } else if (!takes_part(session, job, update->client) &&
               !workers_is_asked(session, job, update->round)) {
        status = tally_fail(err, TALLY_PERMISSION_DENIED, "client",
                            "client %u of job %s is not assigned to this session", update->client,
                            message->job_id);
    } else if (update->refusal[0] != '\0') {
        result = UPDATE_REFUSAL;
        status = take_refusal(coordinator, session, job, update, err);
    } else if (update->failure[0] != '\0') {
        result = UPDATE_FAILURE;
        status = take_failure(coordinator, job, session, update, err);
    } else if (workers_is_asked(session, job, update->round)) {
        status = take_start(coordinator, session, job, update, &outcome.duplicate, err);
    } else if (message->columns != 0 && job->columns.digest != 0 &&
               message->columns != job->columns.digest) {
        status = take_other_columns(coordinator, session, job, update, err);
    } else {
        status = receive(coordinator, post->call->request, post->n_left == 0, job, update, &outcome,
                         err);
        if (status == TALLY_OK) {
            note_shift(job, session, update->client);
            note_columns(job, session, message->columns, update->client);
        }
    }
    if (status == TALLY_OK) {
        note_taken(post, update, outcome.duplicate ? UPDATE_REPEATED : result);
        *ret_bits = outcome.bits;
    }
    return status;
}

/* Whether an error concerns only one update. Others concern the session, the job or this
 * coordinator, and so all updates of a request. */
static bool is_refusal(enum tally_status status)
{
    return !tally_status_info(status)->retryable && status != TALLY_NOT_FOUND &&
           status != TALLY_DATA_LOSS && status != TALLY_INTERNAL;
}

static void write_refusal(const struct tally_error *why, struct tally_update_result *ret_result)
{
    snprintf(ret_result->code, sizeof ret_result->code, "%s",
             tally_status_info(why->status)->connect_code);
    snprintf(ret_result->message, sizeof ret_result->message, "%s%s%s", why->field,
             why->field[0] != '\0' ? ": " : "", why->message);
    tally_utf8_sanitize_line(ret_result->message);
}

/* Whether the request's next update may be processed. Otherwise the worker posts it again, alone: a
 * request holds up the loop for only so long, and a worker whose message is invalid gets no more
 * than one such message decoded for each request. */
static enum tally_status check_turn(const struct tally_coordinator *coordinator,
                                    const struct post *post, struct tally_error *err)
{
    if (post->has_invalid) {
        return tally_fail(err, TALLY_UNAVAILABLE, NULL,
                          "an update before it in the request is invalid: post it again");
    }
    if (post->n_taken > 0 && coordinator->workers->n_decoded >= MOST_DECODED) {
        return tally_fail(err, TALLY_UNAVAILABLE, NULL,
                          "updates of %d coordinates were taken at once: post it again",
                          (int)MOST_DECODED);
    }
    return TALLY_OK;
}

/* Takes the only update of a request. */
static enum tally_status take_only(struct tally_coordinator *coordinator, struct post *post,
                                   struct tally_error *err)
{
    struct tally_update update;
    enum tally_status status = tally_update_request_next(&post->message, &update, err);
    return status == TALLY_OK ? take_update(coordinator, post, &update, &post->bits, err) : status;
}

/* Takes the next update of several and appends its result to the response. Errors: those that end
 * the request. */
static enum tally_status take_next(struct tally_coordinator *coordinator, struct post *post,
                                   struct tally_error *err)
{
    struct tally_update update;
    struct tally_bits bits;
    struct tally_update_result result = {.formula_bits = 0};
    struct tally_error why = TALLY_ERROR_INIT;
    const bool is_put_off = check_turn(coordinator, post, &why) != TALLY_OK;
    enum tally_status status = is_put_off ? TALLY_UNAVAILABLE : TALLY_OK;
    if (status == TALLY_OK) {
        status = tally_update_request_next(&post->message, &update, &why);
    }
    if (status == TALLY_OK) {
        status = take_update(coordinator, post, &update, &bits, &why);
        coordinator->workers->n_decoded += post->dim;
        post->n_taken++;
    }
    if (status == TALLY_OK) {
        result.formula_bits = bits.formula_bits;
        result.payload_bits = bits.payload_bits;
        tally_bits_add(&post->bits, &bits);
    } else if (is_put_off || is_refusal(status)) {
        post->call->updates[call_counts_result_of(status)]++;
        post->has_invalid |= call_counts_result_of(status) == UPDATE_INVALID;
        post->call->polling_session = 0; /* the worker has something to do */
        write_refusal(&why, &result);
        post->has_refusal = true;
    } else {
        return tally_fail(err, status, why.field, "%s", why.message);
    }
    return tally_update_result_add(&result, &post->call->body) == TALLY_OK
               ? TALLY_OK
               : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the response");
}

/* The response has the results or, if no update is refused, two sums. A worker that polls gets
 * these together with the next task. */
static enum tally_status answer(const struct post *post, struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    struct call *call = post->call;
    if (!post->has_refusal) {
        call->body.size = 0;
        call->update_response = (struct tally_update_response){
            .formula_bits = post->bits.formula_bits, .payload_bits = post->bits.payload_bits};
        if (call->polling_session == 0) {
            status = tally_update_response_encode(&call->update_response, NULL, &call->body);
        }
    }
    return workers_answer_protobuf(call, status, err);
}

/* Reads the message and finds its session. */
static enum tally_status read_post(struct tally_coordinator *coordinator, struct post *post,
                                   struct tally_error *err)
{
    const uint8_t *body = NULL;
    size_t n_body = 0;
    const uint32_t most = coordinator->config.max_batch_bytes;
    enum tally_status status = workers_read_body(post->call, &body, &n_body, err);
    if (status == TALLY_OK) {
        status = tally_update_request_decode(body, n_body, &post->message, err);
    }
    if (status == TALLY_OK && post->message.n_updates > 1 && n_body > most) {
        status =
            tally_fail(err, TALLY_OUT_OF_RANGE, "updates",
                       "a request of %zu bytes is longer than max_batch_bytes, %u", n_body, most);
    }
    if (status != TALLY_OK) {
        return status;
    }
    if (post->message.n_updates > 1) {
        const struct hosted_job *job = jobs_find(coordinator, post->message.job_id);
        post->dim = job != NULL ? job->row.dim : 0;
    }
    post->call->n_updates = (uint32_t)post->message.n_updates;
    return workers_find_session(coordinator, post->call, post->message.session, &post->session,
                                err);
}

enum tally_status workers_update(struct tally_coordinator *coordinator, struct call *call,
                                 struct tally_error *err)
{
    struct post post = {.call = call};
    enum tally_status status = read_post(coordinator, &post, err);
    if (status == TALLY_OK && post.message.has_poll) {
        status = take_poll(coordinator, call, post.session, &post.message, err);
    }
    for (size_t i = 0; status == TALLY_OK && i < post.message.n_updates; i++) {
        post.n_left = post.message.n_updates - 1 - i;
        status = post.message.n_updates == 1 ? take_only(coordinator, &post, err)
                                             : take_next(coordinator, &post, err);
    }
    return status == TALLY_OK ? answer(&post, err) : status;
}
