/* workers_service: Join, PollTask, Progress and Leave, and whose session a call names. */
#include "services/coordinator/workers.h"

#include <stdio.h>
#include <string.h>

#include "codec/encoding.h"
#include "codec/utf8.h"
#include "services/base/log.h"
#include "services/base/time.h"
#include "services/coordinator/coordinator.h"
#include "services/coordinator/jobs_lifecycle.h"
#include "services/coordinator/jobs_live.h"
#include "services/coordinator/loop_transaction.h"
#include "services/coordinator/provenance.h"

enum { RIVAL_FOR_MS = 300000 }; /* several times the longest pause of a replaced worker */

enum tally_status workers_read_body(struct call *call, const uint8_t **ret_body, size_t *ret_size,
                                    struct tally_error *err)
{
    const char *version = tally_http_header(call->request, "Connect-Protocol-Version");
    if (version != NULL && strcmp(version, "1") != 0) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "Connect-Protocol-Version",
                          "version %.16s of the Connect protocol is not 1", version);
    }
    return call_read_body(call, "application/proto", ret_body, ret_size, err);
}

enum tally_status workers_answer_protobuf(struct call *call, enum tally_status encoded,
                                          struct tally_error *err)
{
    return call_answer_bytes(call, encoded, "application/proto", err);
}

/* A session belongs to the token that it was joined with: its id alone gives no access. */
static enum tally_status check_owner(const struct call *call, const struct session *session,
                                     struct tally_error *err)
{
    return access_same_identity(&call->identity, &session->token->identity)
               ? TALLY_OK
               : tally_fail(err, TALLY_PERMISSION_DENIED, "session",
                            "the session was joined with another token");
}

/* ---- Two workers of one name ---- */

/* Logs the 2nd, 4th, 8th ... time, because workers that do not pause, as ours does, replace each
 * other 26 times a second. The 1st may be the last call of a worker that is being restarted. */
static void log_rivals(const struct session *session)
{
    const int64_t n = session->rival.n;
    if (n > 1 && (n & (n - 1)) == 0) {
        tally_log(TALLY_LOG_WARN, tally_log_event("two workers have the same name"),
                  tally_log_text("worker", session->name),
                  tally_log_text("address", session->address),
                  tally_log_text("other_address", session->rival.address),
                  tally_log_integer("replaced", n),
                  tally_log_text("remedy", "give each worker a --name of its own"));
    }
}

/* A worker has called whose session another has replaced: both are alive. */
static void note_rivals(struct tally_coordinator *coordinator, const struct call *call,
                        struct replaced_session *replaced)
{
    struct session *other = session_by_name(&coordinator->workers->sessions, replaced->name);
    if (other != NULL && !replaced->has_called) {
        replaced->has_called = true;
        tally_http_address(call->request, other->rival.address);
        other->rival.last_ms = tally_monotonic_ms();
        other->rival.n++;
        log_rivals(other);
    }
}

static enum tally_status fail_unknown(struct tally_coordinator *coordinator,
                                      const struct call *call, uint64_t id, struct tally_error *err)
{
    struct replaced_session *replaced = session_replaced(&coordinator->workers->sessions, id);
    if (replaced == NULL) {
        return tally_fail(err, TALLY_NOT_FOUND, "session", "the session is unknown: join again");
    }
    note_rivals(coordinator, call, replaced);
    return tally_fail(err, TALLY_NOT_FOUND, "session",
                      "another worker has joined as %s, from %s: join again", replaced->name,
                      replaced->by);
}

/* Whether the worker's name has been fought over of late. */
bool workers_session_has_rival(const struct session *session)
{
    return session->rival.n > 0 && tally_monotonic_ms() - session->rival.last_ms < RIVAL_FOR_MS;
}

static enum tally_status look_up(struct tally_coordinator *coordinator, const struct call *call,
                                 uint64_t id, struct session **ret_session, struct tally_error *err)
{
    struct session *session = session_by_id(&coordinator->workers->sessions, id);
    if (session == NULL) {
        return fail_unknown(coordinator, call, id, err);
    }
    if (check_owner(call, session, err) != TALLY_OK) {
        return TALLY_PERMISSION_DENIED;
    }
    session->last_contact_ms = call->arrived_ns / 1000000;
    *ret_session = session;
    return TALLY_OK;
}

enum tally_status workers_find_session(struct tally_coordinator *coordinator,
                                       const struct call *call, uint64_t id,
                                       struct session **ret_session, struct tally_error *err)
{
    struct session *session = NULL;
    enum tally_status status = look_up(coordinator, call, id, &session, err);
    if (status == TALLY_OK) {
        session->progress.n_whole = 0; /* the message has arrived */
        tally_http_line_attach(&session->line, call->request);
        workers_session_heard(session);
        *ret_session = session;
    }
    return status;
}

bool workers_on_part(struct tally_coordinator *coordinator, const struct call *call)
{
    size_t n;
    uint64_t id;
    const uint8_t *body = tally_http_body(call->request, &n);
    if (n < TALLY_SESSION_FIELD_BYTES) {
        return false;
    }
    /* Other messages do not have it in front. Then the last request on the connection tells. */
    if (tally_session_read_first(body, &id)) {
        struct session *session = session_by_id(&coordinator->workers->sessions, id);
        if (session != NULL && check_owner(call, session, NULL) == TALLY_OK) {
            tally_http_line_attach(&session->line, call->request);
        }
    }
    return true;
}

/* Join. */

/* Fails unless one more session is allowed. To be called for a new name only: joining under a known
 * name replaces a session. */
static enum tally_status check_session_limits(const struct tally_coordinator *coordinator,
                                              const struct call *call, struct tally_error *err)
{
    const struct session_table *sessions = &coordinator->workers->sessions;
    const struct tally_coordinator_config *config = &coordinator->config;
    const struct token_identity none = {{0}};
    if (sessions->n_sessions >= config->max_sessions) {
        return tally_fail(err, TALLY_RESOURCE_EXHAUSTED, NULL,
                          "%lld workers have a session, the limit is %lld: --max-sessions, or "
                          "--max-connections if that is lower",
                          (long long)sessions->n_sessions, (long long)config->max_sessions);
    }
    const int64_t n = session_count_of(sessions, &call->identity);
    if (n >= config->max_sessions_per_token && !access_same_identity(&call->identity, &none)) {
        return tally_fail(err, TALLY_RESOURCE_EXHAUSTED, NULL,
                          "%lld workers have a session with this token, the limit is %lld",
                          (long long)n, (long long)config->max_sessions_per_token);
    }
    return TALLY_OK;
}

static enum tally_status check_join(struct tally_coordinator *coordinator, const struct call *call,
                                    const struct tally_join_request *join, struct tally_error *err)
{
    if (tally_join_check_format(join->format, TALLY_FORMAT_VERSION, err) != TALLY_OK) {
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
    return TALLY_OK;
}

/* The status with which the job that the worker names has ended; NULL if it is live, or the worker
 * names none. Errors: UNAVAILABLE (the job is live elsewhere), NOT_FOUND (no such job). */
static enum tally_status check_job(struct tally_coordinator *coordinator,
                                   const struct tally_join_request *join, const char **ret_ended,
                                   struct tally_error *err)
{
    *ret_ended = NULL;
    if (join->job_id[0] == '\0' || jobs_find(coordinator, join->job_id) != NULL) {
        return TALLY_OK;
    }
    struct tally_store_job row;
    enum tally_status status = jobs_may_be_id(join->job_id)
                                   ? jobs_read_row(coordinator, join->job_id, &row, err)
                                   : TALLY_NOT_FOUND;
    if (status == TALLY_NOT_FOUND) {
        tally_error_clear(err);
        return tally_fail(err, TALLY_NOT_FOUND, "job_id", "there is no live job %s", join->job_id);
    }
    if (status == TALLY_OK && !tally_job_status_is_terminal(row.status)) { /* a replica leads it */
        return tally_fail(err, TALLY_UNAVAILABLE, "job_id",
                          "this coordinator does not have job %s: try again", join->job_id);
    }
    if (status != TALLY_OK) {
        return status;
    }
    *ret_ended = tally_job_status_name(row.status);
    return TALLY_OK;
}

static enum tally_status answer_ended(struct call *call, const char *ended, struct tally_error *err)
{
    struct tally_join_response response = {.format = TALLY_FORMAT_VERSION};
    snprintf(response.ended, sizeof response.ended, "%s", ended);
    return workers_answer_protobuf(call, tally_join_response_encode(&response, &call->body), err);
}

/* Whether the client is vacant and no other worker is known to have had it last. After a restart of
 * the coordinator, no such worker is known, so the first one to ask gets the client. */
static bool may_ask_for(const struct session *session, const struct client_slot *slot)
{
    return slot->session == NULL &&
           (slot->previous[0] == '\0' ||
            access_same_identity(&slot->previous_identity, &session->token->identity));
}

/* Gives a worker back the clients that it had before, if they are vacant. */
static void take_held(struct tally_coordinator *coordinator, struct session *session,
                      const struct tally_join_request *join)
{
    for (size_t i = 0; i < join->n_held && session_n_free(session) > 0; i++) {
        const struct tally_held_client *held = &join->held[i];
        struct hosted_job *job = jobs_find(coordinator, held->job_id);
        bool vacant = job != NULL && held->client < job->row.clients &&
                      job->row.status != TALLY_JOB_QUEUED && job->slots != NULL &&
                      may_ask_for(session, &job->slots[held->client]);
        if (vacant && session_serves(session, job)) {
            session_assign(&coordinator->workers->sessions, session, job, held->client);
        }
    }
}

enum tally_status workers_join(struct tally_coordinator *coordinator, struct call *call,
                               struct tally_error *err)
{
    const uint8_t *body = NULL;
    size_t n_body = 0;
    struct tally_join_request join;
    struct session *session = NULL;
    enum tally_status status = workers_read_body(call, &body, &n_body, err);
    if (status == TALLY_OK) {
        status = tally_join_request_decode(body, n_body, &join, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    const char *ended;
    status = check_join(coordinator, call, &join, err);
    if (status == TALLY_OK) {
        status = check_job(coordinator, &join, &ended, err);
    }
    if (status == TALLY_OK && ended != NULL) {
        tally_join_request_fini(&join);
        return answer_ended(call, ended, err);
    }
    struct session *old = session_by_name(&coordinator->workers->sessions, join.name);
    if (status == TALLY_OK && old != NULL &&
        !access_same_identity(&old->token->identity, &call->identity)) {
        status = tally_fail(err, TALLY_PERMISSION_DENIED, "name",
                            "a worker that joined with another token has this name");
    }
    if (status == TALLY_FAILED_PRECONDITION) { /* the worker's log may be on another machine */
        tally_log(TALLY_LOG_WARN, tally_log_event("worker refused"),
                  tally_log_text("worker", join.name), tally_log_problem(err));
    }
    struct rival rival = {.n = 0};
    char address[TALLY_HTTP_ADDRESS_CAPACITY];
    if (status == TALLY_OK) {
        tally_http_address(call->request, address);
        if (old != NULL) {
            if (workers_session_has_rival(old)) {
                rival = old->rival;
                memcpy(rival.address, old->address, sizeof rival.address);
            }
            session_note_replaced(&coordinator->workers->sessions, old, address);
            workers_end_session(coordinator, old);
        }
        const struct session_request request = {
            .join = &join,
            .bound_to = join.job_id[0] != '\0' ? jobs_find(coordinator, join.job_id) : NULL,
            .identity = &call->identity,
            .token_name = call->token_name,
            .address = address};
        status = session_new(&coordinator->workers->sessions, &request, &session, err);
    }
    if (status == TALLY_OK) {
        session->last_contact_ms = tally_monotonic_ms();
        tally_http_line_attach(&session->line, call->request);
        session->joined_ms = tally_realtime_ms();
        session->n_removed = coordinator->jobs->n_removed;
        session->rival = rival;
        session_set_timer(&coordinator->workers->sessions, session,
                          coordinator->config.session_timeout_ms);
        take_held(coordinator, session, &join);
        coordinator->jobs->match_due = true;
        coordinator->workers->counts.joined++;
        tally_log(TALLY_LOG_INFO, tally_log_event("worker joined"),
                  tally_log_text("worker", session->name),
                  tally_log_integer("slots", session->n_slots));
        struct tally_join_response response = {
            .session = session->id,
            .session_timeout_ms = (uint32_t)coordinator->config.session_timeout_ms,
            .format = TALLY_FORMAT_VERSION,
            .max_wait_ms =
                coordinator->view.is_shared ? (uint32_t)poll_longest_wait(coordinator) : 0,
            .max_batch_bytes = coordinator->config.max_batch_bytes};
        memcpy(response.rival, rival.address, sizeof response.rival);
        status =
            workers_answer_protobuf(call, tally_join_response_encode(&response, &call->body), err);
    }
    tally_join_request_fini(&join);
    return status;
}

/* PollTask. */

DEFINE_READ_MESSAGE(poll_request, workers_find_session)

enum tally_status workers_poll(struct tally_coordinator *coordinator, struct call *call,
                               struct tally_error *err)
{
    struct tally_poll_request message;
    struct session *session = NULL;
    enum tally_status status = read_poll_request(coordinator, call, &message, &session, err);
    if (status == TALLY_OK && coordinator->draining) {
        status = tally_fail(err, TALLY_UNAVAILABLE, NULL, "the coordinator is shutting down");
    }
    if (status == TALLY_OK) {
        workers_take_undeliverable(coordinator, session, &message.undeliverable);
        poll_keep(coordinator, call, session, &message);
        poll_begin(coordinator, session, call);
    }
    return status;
}

/* Progress. */

DEFINE_READ_MESSAGE(progress_request, look_up)

/* Its connection carries no message of the session, so the line stays where it is. And a worker
 * that has missed a deadline is heard again only when its message has arrived. */
enum tally_status workers_progress(struct tally_coordinator *coordinator, struct call *call,
                                   struct tally_error *err)
{
    struct tally_progress_request message;
    struct session *session = NULL;
    enum tally_status status = read_progress_request(coordinator, call, &message, &session, err);
    if (status != TALLY_OK) {
        return status;
    }
    session->progress = (struct tally_http_motion){
        .is_upload = !message.receives, .n = message.bytes, .n_whole = message.of_bytes};
    session->progress_ms = session->last_contact_ms;
    struct tally_http_motion seen; /* here, perhaps: then it replaces what the worker says */
    (void)session_motion(session, session->progress_ms, &seen);
    return workers_answer_protobuf(call, TALLY_OK, err);
}

/* Describe. */

/* Whether a client of the job is assigned to the session. */
static bool has_client_of(const struct session *session, const struct hosted_job *job)
{
    uint32_t i = 0;
    while (i < session->n_assignments && session->assignments[i].job != job) {
        i++;
    }
    return i < session->n_assignments;
}

DEFINE_READ_MESSAGE(describe_request, workers_find_session)

enum tally_status workers_describe(struct tally_coordinator *coordinator, struct call *call,
                                   struct tally_error *err)
{
    struct tally_describe_request message;
    struct session *session = NULL;
    enum tally_status status = read_describe_request(coordinator, call, &message, &session, err);
    if (status != TALLY_OK) {
        return status;
    }
    struct hosted_job *job = jobs_find(coordinator, message.job_id);
    if (job == NULL) {
        return tally_fail(err, TALLY_NOT_FOUND, "job_id", "there is no live job %s",
                          message.job_id);
    }
    if (!has_client_of(session, job)) {
        return tally_fail(err, TALLY_PERMISSION_DENIED, "job_id",
                          "no client of job %s is assigned to this session", message.job_id);
    }
    struct tally_buffer text = {0};
    status = job->needs_reload
                 ? transaction_fail(coordinator->transaction, err)
                 : provenance_read_origin(coordinator->store, job, message.origin, &text, err);
    if (status == TALLY_OK && text.size > 0) {
        status = transaction_begin_write(coordinator->transaction, err);
        if (status == TALLY_OK) {
            status = provenance_put_origin(coordinator->store, job, &text, err);
            jobs_check_write(coordinator, job, status, err);
        }
    }
    tally_buffer_fini(&text);
    return status == TALLY_OK ? workers_answer_protobuf(call, TALLY_OK, err) : status;
}

/* Leave. */

enum tally_status workers_leave(struct tally_coordinator *coordinator, struct call *call,
                                struct tally_error *err)
{
    const uint8_t *body = NULL;
    size_t n_body = 0;
    uint64_t id;
    enum tally_status status = workers_read_body(call, &body, &n_body, err);
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
        workers_end_session(coordinator, session);
    }
    return workers_answer_protobuf(call, TALLY_OK, err);
}
