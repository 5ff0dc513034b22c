#include "services/coordinator/workers/worker_calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/base/utf8.h"
#include "codec/encoding.h"
#include "services/base/log.h"
#include "services/base/time.h"
#include "services/coordinator/base/rooms.h"
#include "services/coordinator/jobs/lifecycle.h"
#include "services/coordinator/jobs/rounds.h"
#include "services/coordinator/turn/transaction.h"
#include "services/coordinator/workers/assignment.h"
#include "services/coordinator/workers/long_polls.h"
#include "services/coordinator/workers/workers.h"
#include "services/job/reasons.h"

static enum tally_status read_connect_body(struct call *call, const uint8_t **ret_body,
                                           size_t *ret_size, struct tally_error *err)
{
    const char *version = tally_http_header(call->request, "Connect-Protocol-Version");
    if (version != NULL && strcmp(version, "1") != 0) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "Connect-Protocol-Version",
                          "version %.16s of the Connect protocol is not 1", version);
    }
    const char *encoding = tally_http_header(call->request, "Content-Encoding");
    if (encoding != NULL && strcmp(encoding, "identity") != 0) {
        return tally_fail(err, TALLY_UNIMPLEMENTED, "Content-Encoding",
                          "compression %.16s is not supported, only identity", encoding);
    }
    return read_body(call, "application/proto", ret_body, ret_size, err);
}

static enum tally_status answer_protobuf(struct call *call, enum tally_status encoded,
                                         struct tally_error *err)
{
    return answer_bytes(call, encoded, "application/proto", err);
}

/* A session belongs to the token that joined: its id alone gives no access. */
static enum tally_status check_owner(const struct call *call, const struct session *session,
                                     struct tally_error *err)
{
    return same_identity(&call->identity, &session->token->identity)
               ? TALLY_OK
               : tally_fail(err, TALLY_PERMISSION_DENIED, "session",
                            "the session was joined with another token");
}

static enum tally_status find_session(struct tally_coordinator *coordinator,
                                      const struct call *call, uint64_t id,
                                      struct session **ret_session, struct tally_error *err)
{
    struct session *session = session_by_id(&coordinator->workers->sessions, id);
    if (session == NULL) {
        return tally_fail(err, TALLY_NOT_FOUND, "session", "the session is unknown: join again");
    }
    if (check_owner(call, session, err) != TALLY_OK) {
        return TALLY_PERMISSION_DENIED;
    }
    session->last_contact_ms = call->arrived_ns / 1000000;
    session_heard(session);
    *ret_session = session;
    return TALLY_OK;
}

/* Join. */

/* A client that does not say its format is believed to have read the present FORMAT.md, but for
 * our own worker: it has said it since there was a second one. */
static uint32_t format_of(const struct call *call, const struct tally_join_request *join)
{
    const char *agent = tally_http_header(call->request, "User-Agent");
    if (join->format != 0) {
        return join->format;
    }
    return agent != NULL && strcmp(agent, "tally-worker") == 0 ? 1 : TALLY_FORMAT_VERSION;
}

/* Whether one more session is allowed: a new name does not replace a session. */
static enum tally_status check_session_limits(const struct tally_coordinator *coordinator,
                                              const struct call *call, struct tally_error *err)
{
    const struct session_table *sessions = &coordinator->workers->sessions;
    const struct tally_coordinator_config *config = &coordinator->config;
    const struct token_identity none = {{0}};
    if (sessions->n_sessions >= config->max_sessions) {
        return tally_fail(err, TALLY_RESOURCE_EXHAUSTED, NULL,
                          "%lld workers have a session, the limit is %lld",
                          (long long)sessions->n_sessions, (long long)config->max_sessions);
    }
    const int64_t n = session_count_of(sessions, &call->identity);
    if (n >= config->max_sessions_per_token && !same_identity(&call->identity, &none)) {
        return tally_fail(err, TALLY_RESOURCE_EXHAUSTED, NULL,
                          "%lld workers have a session with this token, the limit is %lld",
                          (long long)n, (long long)config->max_sessions_per_token);
    }
    return TALLY_OK;
}

static enum tally_status check_join(struct tally_coordinator *coordinator, const struct call *call,
                                    const struct tally_join_request *join, struct tally_error *err)
{
    if (tally_join_check_format(format_of(call, join), TALLY_FORMAT_VERSION, err) != TALLY_OK) {
        return TALLY_FAILED_PRECONDITION;
    }
    if (join->slots < 1 || join->slots > TALLY_MAX_SLOTS) {
        return tally_fail(err, TALLY_OUT_OF_RANGE, "slots", "slots %u outside [1, %d]", join->slots,
                          TALLY_MAX_SLOTS);
    }
    if (join->name[0] == '\0') {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "name", "the worker's name is empty");
    }
    const size_t control = tally_utf8_find_control(join->name);
    if (join->name[control] != '\0') {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "name",
                          "the worker's name has a control character at byte %zu", control);
    }
    if (session_by_name(&coordinator->workers->sessions, join->name) == NULL &&
        check_session_limits(coordinator, call, err) != TALLY_OK) {
        return TALLY_RESOURCE_EXHAUSTED;
    }
    if (join->job_id[0] != '\0' && find_job(coordinator, join->job_id) == NULL) {
        bool is_elsewhere;
        if (is_live_elsewhere(coordinator, join->job_id, &is_elsewhere, NULL) == TALLY_OK &&
            is_elsewhere) {
            return tally_fail(err, TALLY_UNAVAILABLE, "job_id",
                              "job %s is not here (any more): try again", join->job_id);
        }
        return tally_fail(err, TALLY_NOT_FOUND, "job_id", "there is no live job %s", join->job_id);
    }
    return TALLY_OK;
}

/* Whether the client is vacant and no other worker is known to have had it last. After a restart of
 * the coordinator none is: the first to ask gets it. */
static bool may_ask_for(const struct session *session, const struct client_slot *slot)
{
    return slot->session == NULL &&
           (slot->previous[0] == '\0' ||
            same_identity(&slot->previous_identity, &session->token->identity));
}

/* Gives a worker back the clients that it had before, if they are vacant. */
static void take_held(struct tally_coordinator *coordinator, struct session *session,
                      const struct tally_join_request *join)
{
    for (size_t i = 0; i < join->n_held && session_n_free(session) > 0; i++) {
        const struct tally_held_client *held = &join->held[i];
        struct hosted_job *job = find_job(coordinator, held->job_id);
        bool vacant = job != NULL && held->client < job->row.clients &&
                      job->row.status != TALLY_JOB_QUEUED && job->slots != NULL &&
                      may_ask_for(session, &job->slots[held->client]);
        if (vacant && session_serves(session, job)) {
            session_assign(&coordinator->workers->sessions, session, job, held->client);
        }
    }
}

enum tally_status worker_join(struct tally_coordinator *coordinator, struct call *call,
                              struct tally_error *err)
{
    const uint8_t *body = NULL;
    size_t n_body = 0;
    struct tally_join_request join;
    struct session *session = NULL;
    enum tally_status status = read_connect_body(call, &body, &n_body, err);
    if (status == TALLY_OK) {
        status = tally_join_request_decode(body, n_body, &join, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    status = check_join(coordinator, call, &join, err);
    struct session *old = session_by_name(&coordinator->workers->sessions, join.name);
    if (status == TALLY_OK && old != NULL &&
        !same_identity(&old->token->identity, &call->identity)) {
        status = tally_fail(err, TALLY_PERMISSION_DENIED, "name",
                            "a worker that joined with another token has this name");
    }
    if (status == TALLY_FAILED_PRECONDITION) { /* its own log may be on another machine */
        tally_log(TALLY_LOG_WARN, tally_log_event("worker refused"),
                  tally_log_text("worker", join.name), tally_log_problem(err));
    }
    if (status == TALLY_OK) {
        if (old != NULL) {
            end_session(coordinator, old);
        }
        const struct session_request request = {
            .join = &join,
            .bound_to = join.job_id[0] != '\0' ? find_job(coordinator, join.job_id) : NULL,
            .identity = &call->identity,
            .token_name = call->token_name};
        status = session_new(&coordinator->workers->sessions, &request, &session, err);
    }
    if (status == TALLY_OK) {
        session->last_contact_ms = tally_monotonic_ms();
        session->joined_ms = tally_realtime_ms();
        session->n_removed = coordinator->jobs->n_removed;
        session_set_timer(&coordinator->workers->sessions, session,
                          coordinator->config.session_timeout_ms);
        take_held(coordinator, session, &join);
        coordinator->jobs->match_due = true;
        coordinator->workers->counts.joined++;
        tally_log(TALLY_LOG_INFO, tally_log_event("worker joined"),
                  tally_log_text("worker", session->name),
                  tally_log_integer("slots", session->n_slots));
        const struct tally_join_response response = {
            .session = session->id,
            .session_timeout_ms = (uint32_t)coordinator->config.session_timeout_ms,
            .format = TALLY_FORMAT_VERSION,
            .max_wait_ms = coordinator->view.is_shared ? (uint32_t)longest_wait(coordinator) : 0};
        status = answer_protobuf(call, tally_join_response_encode(&response, &call->body), err);
    }
    tally_join_request_fini(&join);
    return status;
}

/* PollTask. */

enum tally_status worker_poll(struct tally_coordinator *coordinator, struct call *call,
                              struct tally_error *err)
{
    const uint8_t *body = NULL;
    size_t n_body = 0;
    struct tally_poll_request message;
    struct session *session = NULL;
    enum tally_status status = read_connect_body(call, &body, &n_body, err);
    if (status == TALLY_OK) {
        status = tally_poll_request_decode(body, n_body, &message, err);
    }
    if (status == TALLY_OK) {
        status = find_session(coordinator, call, message.session, &session, err);
    }
    if (status == TALLY_OK && coordinator->draining) {
        status = tally_fail(err, TALLY_UNAVAILABLE, NULL, "the coordinator is shutting down");
    }
    if (status == TALLY_OK) {
        status = keep_poll(coordinator, call, session, &message, err);
    }
    if (status == TALLY_OK) {
        hold_poll(coordinator, session, call);
    }
    return status;
}

/* An update that also polls; it waits for nothing before the update is durable. */
static enum tally_status take_poll(struct tally_coordinator *coordinator, struct call *call,
                                   struct session *session, const struct tally_bytes *encoded,
                                   struct tally_error *err)
{
    struct tally_poll_request message;
    enum tally_status status =
        tally_poll_request_decode(encoded->data, encoded->size, &message, err);
    if (status != TALLY_OK) {
        tally_error_in_field(err, "poll");
        return status;
    }
    if (coordinator->draining) {
        return TALLY_OK;
    }
    status = keep_poll(coordinator, call, session, &message, err);
    if (status == TALLY_OK) {
        call->polling_session = session->id;
    }
    return status;
}

/* PostUpdate. */

/* Also the worker that had it before and was silent for too long: its late update counts. */
static bool takes_part(const struct session *session, const struct hosted_job *job, uint32_t client)
{
    const struct client_slot *slot =
        job->slots != NULL && client < job->row.clients ? &job->slots[client] : NULL;
    return slot != NULL && (slot->session == session ||
                            (strcmp(slot->previous, session->name) == 0 &&
                             same_identity(&slot->previous_identity, &session->token->identity)));
}

/* An update for a live job. */
static enum tally_status receive(struct tally_coordinator *coordinator, struct call *call,
                                 struct hosted_job *job, const struct tally_update *update,
                                 struct tally_job_outcome *ret_outcome, struct tally_error *err)
{
    if (job->needs_reload) {
        return transaction_fail(coordinator->transaction, err);
    }
    enum tally_status status = transaction_begin_update(coordinator->transaction, err);
    if (status != TALLY_OK) {
        return status;
    }
    const struct tally_job_update event = event_of(update);
    status = tally_job_receive(job->engine, &event, ret_outcome, err);
    if (status != TALLY_OK || ret_outcome->duplicate) {
        return status;
    }
    job->absence.worker[0] = '\0';
    if (has_closed(job, ret_outcome)) {
        transaction_require(coordinator->transaction);
        return put_closed(coordinator, job, ret_outcome, err);
    }
    mark_touched(job);
    const struct pending_job pending = {.row = &job->row,
                                        .has_stored_updates = &job->has_stored_updates};
    const size_t n_pending = coordinator->transaction->pending.n;
    status = pending_add(&coordinator->transaction->pending, coordinator->store, pending, update,
                         call->request, err);
    if (coordinator->transaction->pending.n == n_pending) { /* it is with the store already */
        transaction_require(coordinator->transaction);
    }
    return transaction_check(coordinator->transaction, status, err);
}

/* A worker whose message counted has added it to its own copy of the client's shift. */
static void note_shift(const struct hosted_job *job, const struct session *session, uint32_t client)
{
    struct client_slot *slot =
        job->slots != NULL && client < job->row.clients ? &job->slots[client] : NULL;
    if (slot != NULL && slot->session == session) {
        slot->has_shift = true;
    }
}

/* An update for a job that has ended. One that is live at another replica does not belong to this
 * session. */
static enum tally_status receive_ended(struct tally_coordinator *coordinator,
                                       struct session *session, const struct tally_update *update,
                                       struct tally_job_outcome *ret_outcome,
                                       struct tally_error *err)
{
    struct tally_store_job row;
    enum tally_status status = read_row(coordinator, update->job_id, &row, err);
    if (status == TALLY_NOT_FOUND &&
        may_be_job_id(update->job_id)) { /* the session has other jobs to go on with */
        tally_error_clear(err);
        return tally_fail(err, TALLY_FAILED_PRECONDITION, "job_id", "job %s is deleted",
                          update->job_id);
    }
    if (status == TALLY_OK && !tally_job_status_is_terminal(row.status)) {
        end_session(coordinator, session);
        return tally_fail(err, TALLY_NOT_FOUND, "session",
                          "job %s is led by another coordinator: join again", update->job_id);
    }
    if (status == TALLY_OK) {
        const struct tally_job_update event = event_of(update);
        status = ended_receive(&coordinator->jobs->ended, coordinator->store, &row, &event,
                               ret_outcome, err);
    }
    return status;
}

static enum tally_status end_in_failure(struct tally_coordinator *coordinator,
                                        struct hosted_job *job, const char *reason,
                                        struct tally_error *err)
{
    enum tally_status status = fail_job(coordinator, job, reason, err);
    if (status == TALLY_OK) {
        round_closed(coordinator, job);
    }
    return status;
}

/* No worker could continue with the client: its computation is a function of job and seed. */
static enum tally_status take_failure(struct tally_coordinator *coordinator, struct hosted_job *job,
                                      const struct tally_update *update, struct tally_error *err)
{
    if (job->needs_reload) {
        return transaction_fail(coordinator->transaction, err);
    }
    enum tally_status status = tally_job_check_round(job->engine, update->round, update->mark, err);
    if (status != TALLY_OK) {
        return status;
    }
    char reason[TALLY_REASON_CAPACITY];
    TALLY_REASON_WRITE(reason, CLIENT_FAILED, update->client, update->round, update->failure);
    return end_in_failure(coordinator, job, reason, err);
}

static bool has_been_tried(const struct hosted_job *job)
{
    const struct refusal *refusal = job->supply.refusals;
    while (refusal != NULL && !refusal->tried) {
        refusal = refusal->next_of_job;
    }
    return refusal != NULL;
}

/* Whether a worker that had a client of the job is away. */
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

/* Whether no present worker can serve the job, and waiting for others would be in vain: no worker
 * has ever answered for it, or it breaks those that do. A plug-in that a worker has not loaded is
 * one option away, so that job waits. */
static bool is_hopeless(const struct tally_coordinator *coordinator, const struct hosted_job *job)
{
    const struct tally_job_round *round = tally_job_open_round(job->engine);
    const bool is_new = tally_job_progress(job->engine)->round == 0 && round->received == 0 &&
                        job->absence.worker[0] == '\0';
    return !can_be_served(coordinator, job) &&
           (is_new || (has_been_tried(job) && !may_be_resumed(coordinator, job)));
}

static void note_absence(struct hosted_job *job, const struct session *session,
                         const struct tally_update *update)
{
    if (update->lacks_plugin) {
        memcpy(job->absence.worker, session->name, sizeof job->absence.worker);
        memcpy(job->absence.reason, update->refusal, sizeof job->absence.reason);
    }
}

/* The worker cannot serve the job: its clients go to others. */
static enum tally_status take_refusal(struct tally_coordinator *coordinator,
                                      struct session *session, struct hosted_job *job,
                                      const struct tally_update *update, struct tally_error *err)
{
    if (job->needs_reload) {
        return transaction_fail(coordinator->transaction, err);
    }
    enum tally_status status =
        session_refuse(&coordinator->workers->sessions, session, job, update, err);
    if (status != TALLY_OK) {
        return status;
    }
    note_absence(job, session, update);
    coordinator->jobs->match_due = true;
    tally_log(TALLY_LOG_WARN, tally_log_event("worker refused a job"),
              tally_log_text("worker", session->name), tally_log_text("job", job->row.id),
              tally_log_text("reason", update->refusal));
    if (!is_hopeless(coordinator, job)) {
        return TALLY_OK;
    }
    char reason[TALLY_REASON_CAPACITY];
    TALLY_REASON_WRITE(reason, NO_WORKER_CAN_SERVE, session->name, update->refusal);
    return end_in_failure(coordinator, job, reason, err);
}

enum tally_status worker_update(struct tally_coordinator *coordinator, struct call *call,
                                struct tally_error *err)
{
    const uint8_t *body = NULL;
    size_t n_body = 0;
    struct tally_update update;
    struct session *session = NULL;
    struct tally_job_outcome outcome = {0};
    enum tally_status status = read_connect_body(call, &body, &n_body, err);
    if (status == TALLY_OK) {
        status = tally_update_decode(body, n_body, &update, err);
    }
    if (status == TALLY_OK) {
        status = find_session(coordinator, call, update.session, &session, err);
    }
    if (status == TALLY_OK && update.has_poll) {
        status = take_poll(coordinator, call, session, &update.poll, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    struct hosted_job *job = find_job(coordinator, update.job_id);
    if (job == NULL) {
        status = receive_ended(coordinator, session, &update, &outcome, err);
    } else if (!takes_part(session, job, update.client)) {
        status = tally_fail(err, TALLY_PERMISSION_DENIED, "client",
                            "client %u of job %s is not assigned to this session", update.client,
                            update.job_id);
    } else if (update.refusal[0] != '\0') {
        status = take_refusal(coordinator, session, job, &update, err);
    } else if (update.failure[0] != '\0') {
        status = take_failure(coordinator, job, &update, err);
    } else {
        status = receive(coordinator, call, job, &update, &outcome, err);
        if (status == TALLY_OK) {
            note_shift(job, session, update.client);
        }
    }
    if (status != TALLY_OK) {
        return status;
    }
    memcpy(call->job_id, update.job_id, sizeof call->job_id);
    call->repeated = outcome.duplicate;
    call->reports_failure = update.failure[0] != '\0' && job != NULL;
    call->reports_refusal = update.refusal[0] != '\0' && job != NULL;
    call->update_response = (struct tally_update_response){
        .formula_bits = outcome.bits.formula_bits, .payload_bits = outcome.bits.payload_bits};
    /* Whoever polls gets it with the next task. */
    if (call->polling_session == 0) {
        status = tally_update_response_encode(&call->update_response, NULL, &call->body);
    }
    return answer_protobuf(call, status, err);
}

/* Leave. */

enum tally_status worker_leave(struct tally_coordinator *coordinator, struct call *call,
                               struct tally_error *err)
{
    const uint8_t *body = NULL;
    size_t n_body = 0;
    uint64_t id;
    enum tally_status status = read_connect_body(call, &body, &n_body, err);
    if (status == TALLY_OK) {
        status = tally_leave_request_decode(body, n_body, &id, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    struct session *session = session_by_id(&coordinator->workers->sessions, id);
    if (session != NULL && check_owner(call, session, err) != TALLY_OK) {
        return TALLY_PERMISSION_DENIED;
    }
    if (session != NULL) {
        tally_log(TALLY_LOG_INFO, tally_log_event("worker left"),
                  tally_log_text("worker", session->name));
        end_session(coordinator, session);
    }
    return answer_protobuf(call, TALLY_OK, err);
}
