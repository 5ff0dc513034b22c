/* workers_long_polls: polls that wait for a task, and their responses. An update that polls becomes
 * such a poll once it is durable, and its acknowledgement travels with the task. */
#include "services/base/alloc.h"
#include "services/coordinator/workers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/json/problem.h"
#include "services/base/log.h"
#include "services/base/time.h"
#include "services/coordinator/calls.h"
#include "services/coordinator/coordinator.h"
#include "services/coordinator/jobs_live.h"

enum {
    MAX_WAIT_MS = 30000,
    OWN_BYTES = 96 /* of a response with a task, for its own fields and lengths; an estimate */
};

/* ---- Requests ---- */

/* Limit of a poll's wait. With several coordinators it is at most a lease, so that workers notice a
 * dead or isolated coordinator when the others do. */
int64_t poll_longest_wait(const struct tally_coordinator *coordinator)
{
    const int64_t lease_ms = coordinator->config.lease_ms;
    return coordinator->view.is_shared && lease_ms < MAX_WAIT_MS ? lease_ms : MAX_WAIT_MS;
}

/* The minimum of the wait that the worker requests, its Connect time-out, if any, and our limit. */
static int64_t limit_wait(const struct tally_coordinator *coordinator, const struct call *call,
                          int64_t wait_ms)
{
    const int64_t longest_ms = poll_longest_wait(coordinator);
    const char *text = tally_http_header(call->request, "Connect-Timeout-Ms");
    const long long timeout_ms = text != NULL ? strtoll(text, NULL, 10) : 0;
    if (timeout_ms > 0 && timeout_ms < MAX_WAIT_MS && wait_ms > timeout_ms * 3 / 4) {
        wait_ms = timeout_ms * 3 / 4; /* leave time for the response to travel */
    }
    return wait_ms < longest_ms ? wait_ms : longest_ms;
}

/* Copies the worker's poll message, because the original may be gone when the poll is examined. */
void poll_keep(struct tally_coordinator *coordinator, struct call *call, struct session *session,
               const struct tally_poll_request *message)
{
    if (session->poll.message == NULL) {
        session->poll.message = tally_xcalloc(1, sizeof *session->poll.message);
    }
    if (session->poll.request != NULL) {
        poll_finish_idle(coordinator, session); /* the worker has abandoned that poll */
    }
    *session->poll.message = *message;
    call->poll_until_ms =
        call->arrived_ns / 1000000 + limit_wait(coordinator, call, message->wait_ms);
}

void poll_begin(struct tally_coordinator *coordinator, struct session *session,
                const struct call *call)
{
    coordinator->workers->sessions.n_waiting++;
    session->poll.request = call->request;
    session->poll.arrived_ns = call->arrived_ns;
    session->poll.until_ms = call->poll_until_ms;
    session->poll.has_update = false;
    session->poll.parts.size = 0;
    session_set_timer(&coordinator->workers->sessions, session,
                      coordinator->config.session_timeout_ms);
    workers_mark_ready(coordinator, session);
    session->poll.holder = (struct request_holder){.session = session};
    tally_http_set_user(call->request, &session->poll.holder);
    tally_http_forget_body(call->request);
}

/* Encodes the response to updates without a task. */
static void encode_alone(struct call *call)
{
    if (tally_update_response_encode(&call->update_response, NULL, &call->body) != TALLY_OK) {
        struct tally_error err = TALLY_ERROR_INIT;
        tally_fail(&err, TALLY_NO_MEMORY, NULL, "no memory for the response");
        call_answer_error(call, &err);
    }
}

bool poll_begin_after_update(struct tally_coordinator *coordinator, struct call *call)
{
    struct session *session = session_by_id(&coordinator->workers->sessions, call->polling_session);
    if (call->error.status != TALLY_OK) {
        return false;
    }
    if (call->request == NULL || session == NULL || session->poll.request != NULL ||
        coordinator->draining) {
        encode_alone(call);
        return false;
    }
    poll_begin(coordinator, session, call);
    session->poll.has_update = true;
    session->poll.update = call->update_response;
    memcpy(session->poll.job_id, call->job_id, sizeof session->poll.job_id);
    (void)tally_buffer_append(&session->poll.parts, call->parts.data, call->parts.size);
    call_hand_over(coordinator, call);
    return true;
}

void poll_drop(struct tally_coordinator *coordinator, struct session *session)
{
    coordinator->workers->sessions.n_waiting--;
    session->poll.request = NULL;
    session->last_contact_ms = tally_monotonic_ms(); /* the worker counts as present until now */
    session_set_timer(&coordinator->workers->sessions, session,
                      coordinator->config.session_timeout_ms);
}

bool poll_has_task(const struct tally_coordinator *coordinator, const struct call *call)
{
    const struct session *session =
        session_by_id(&coordinator->workers->sessions, call->polling_session);
    return session != NULL && workers_has_work(session);
}

/* ---- Responses ---- */

/* Encodes the response to a poll, inside the response to its updates if it came with any. */
static enum tally_status encode_answer(const struct session *session,
                                       const struct tally_poll_response *response,
                                       struct tally_buffer *body)
{
    /* Room for a shared task, so that it is written without being measured first. */
    const bool is_whole = response->kind == TALLY_POLL_TASK && !response->task.shared_is_apart;
    const size_t n_shared = is_whole ? response->task.shared.size : 0;
    enum tally_status status = tally_buffer_reserve(body, n_shared + OWN_BYTES);
    if (status != TALLY_OK) {
        return status;
    }
    return session->poll.has_update
               ? tally_update_response_encode(&session->poll.update, response, body)
               : tally_poll_response_encode(response, body);
}

/* Returns the poll's request, to be answered. The worker's silence begins now, because it may have
 * waited for longer than it may be silent. */
static struct tally_http_request *take_request(struct tally_coordinator *coordinator,
                                               struct session *session, int64_t now_ms)
{
    coordinator->workers->sessions.n_waiting--;
    struct tally_http_request *request = session->poll.request;
    session->poll.request = NULL;
    session->last_contact_ms = now_ms;
    session_set_timer(&coordinator->workers->sessions, session,
                      coordinator->config.session_timeout_ms);
    return request;
}

/* is_own: the poll was a request of its own; if not, its update's request has been counted. */
static void count_poll(struct tally_coordinator *coordinator, enum tally_poll_kind kind,
                       bool is_own, double seconds)
{
    if (is_own) {
        call_counts_add_poll(&coordinator->calls->counts, 200);
    }
    histogram_observe(&coordinator->workers->counts.polls[kind], seconds);
}

/* Adds the bytes of a poll and of its response to the job: for the clients of the task, each with
 * the shift that the response has for it. */
static void count_task(struct hosted_job *job, const struct tally_task *task, uint64_t in,
                       uint64_t out)
{
    static struct traffic_part parts[TALLY_MAX_SLOTS]; /* used by one thread */
    for (size_t i = 0; i < task->n_clients; i++) {
        const size_t own = i < task->n_shifts ? task->shifts[i].vector.size : 0;
        parts[i] = (struct traffic_part){.client = task->clients[i],
                                         .own_bytes = {[TRAFFIC_OUT] = (uint32_t)own}};
    }
    hosted_job_count_bytes(job, parts, task->n_clients, in, out);
}

/* As count_task(), for a response without a task: counts for the clients of the poll's updates. */
static void count_acknowledgement(const struct session *session, struct hosted_job *job,
                                  uint64_t out)
{
    const struct tally_buffer *parts = &session->poll.parts;
    hosted_job_count_bytes(job, (const struct traffic_part *)parts->data,
                           parts->size / sizeof(struct traffic_part), 0, out);
}

static void finish_poll(struct tally_coordinator *coordinator, struct session *session,
                        const struct tally_poll_response *response, struct hosted_job *job)
{
    struct tally_buffer *body = &coordinator->workers->answer;
    body->size = 0;
    if (encode_answer(session, response, body) != TALLY_OK) {
        if (response->kind != TALLY_POLL_IDLE) {
            return; /* out of memory: the poll keeps waiting and is tried again */
        }
    }
    const int64_t now_ns = tally_monotonic_ns();
    struct tally_http_request *request = take_request(coordinator, session, now_ns / 1000000);
    /* An update's bytes were counted when it became durable. */
    const bool has_update = session->poll.has_update;
    const uint64_t in = has_update ? 0 : tally_http_wire_in_bytes(request);
    const bool is_apart =
        job != NULL && response->kind == TALLY_POLL_TASK && response->task.shared_is_apart;
    const uint64_t out = call_send_protobuf(request, body, is_apart ? job->shared_task.tail : NULL);
    count_poll(coordinator, response->kind, !has_update,
               (double)(now_ns - session->poll.arrived_ns) / 1e9);
    if (job == NULL && has_update) {
        job = jobs_find(coordinator, session->poll.job_id);
    }
    if (job != NULL && response->kind == TALLY_POLL_TASK) {
        count_task(job, &response->task, in, out);
    } else if (job != NULL) {
        count_acknowledgement(session, job, out);
    }
}

/* Live jobs that the session could serve, also at other replicas, where it may be sent. */
static uint32_t count_pending(const struct tally_coordinator *coordinator,
                              const struct session *session)
{
    if (session_is_bound(session)) {
        return session->bound_to != NULL && session_serves(session, session->bound_to);
    }
    /* All refused jobs are live here. */
    return (uint32_t)(coordinator->jobs->n - session->n_refusals + coordinator->view.n_jobs);
}

void poll_finish_idle(struct tally_coordinator *coordinator, struct session *session)
{
    const struct tally_poll_response response = {
        .kind = TALLY_POLL_IDLE, .jobs_pending = count_pending(coordinator, session)};
    finish_poll(coordinator, session, &response, NULL);
}

void poll_finish_all_idle(struct tally_coordinator *coordinator)
{
    for (struct session *s = coordinator->workers->sessions.first; s != NULL; s = s->next) {
        if (s->poll.request != NULL) {
            poll_finish_idle(coordinator, s);
        }
    }
}

/* Whether the job has ended. False if another replica leads it, or if the store cannot be read. */
static bool has_ended(struct tally_coordinator *coordinator, const char *job_id)
{
    bool is_elsewhere;
    const enum tally_status status =
        jobs_is_live_elsewhere(coordinator, job_id, &is_elsewhere, NULL);
    return status == TALLY_NOT_FOUND || (status == TALLY_OK && !is_elsewhere);
}

void poll_finish_last_updates(struct tally_coordinator *coordinator, struct hosted_job *job)
{
    for (struct session *s = coordinator->workers->sessions.first; s != NULL; s = s->next) {
        if (s->poll.request == NULL || !s->poll.has_update ||
            strcmp(s->poll.job_id, job->row.id) != 0) {
            continue;
        }
        struct tally_poll_response response = {.kind = TALLY_POLL_RELEASED};
        memcpy(response.released_job_id, s->poll.job_id, sizeof response.released_job_id);
        finish_poll(coordinator, s, &response, job);
    }
}

/* A job for which the worker holds a point that it no longer needs. */
static const char *find_released(struct tally_coordinator *coordinator,
                                 const struct session *session)
{
    const struct tally_poll_request *poll = session->poll.message;
    for (size_t i = 0; i < poll->n_cursors; i++) {
        if (jobs_find(coordinator, poll->cursors[i].job_id) == NULL &&
            has_ended(coordinator, poll->cursors[i].job_id)) {
            return poll->cursors[i].job_id;
        }
    }
    return NULL;
}

static void finish_refused(struct tally_coordinator *coordinator, struct session *session)
{
    struct tally_error err = TALLY_ERROR_INIT;
    tally_fail(&err, TALLY_UNAVAILABLE, NULL, "%s",
               coordinator->draining ? "the coordinator is shutting down"
                                     : "this coordinator has lost contact with the others");
    struct tally_buffer body = {0};
    tally_connect_error_encode(&err, &body);
    char drawn[REQUEST_ID_CAPACITY];
    struct tally_http_request *request = take_request(coordinator, session, tally_monotonic_ms());
    const char *given = request_id_given(request);
    if (given == NULL) {
        request_id_draw(coordinator, drawn);
    }
    const struct tally_http_response response = {
        .status = tally_status_info(err.status)->connect_http_status,
        .content_type = "application/json",
        .headers = {{"X-Request-Id", given != NULL ? given : drawn}},
        .body = &body};
    call_counts_add_poll(&coordinator->calls->counts, 503);
    tally_log(TALLY_LOG_DEBUG, tally_log_event("poll refused"),
              tally_log_text("request_id", given != NULL ? given : drawn),
              tally_log_text("worker", session->name),
              tally_log_integer("status", response.status));
    tally_http_respond(request, &response);
    tally_buffer_fini(&body);
}

/* Ends the poll without a response of its own, and acknowledges the updates that it came with. */
static void finish_alone(struct tally_coordinator *coordinator, struct session *session)
{
    struct tally_buffer body = {0};
    struct hosted_job *job = jobs_find(coordinator, session->poll.job_id);
    if (tally_update_response_encode(&session->poll.update, NULL, &body) != TALLY_OK) {
        return; /* out of memory: tried again, or cut off at shutdown */
    }
    struct tally_http_request *request = take_request(coordinator, session, tally_monotonic_ms());
    const uint64_t out = call_send_protobuf(request, &body, NULL);
    if (job != NULL) {
        count_acknowledgement(session, job, out);
    }
    tally_buffer_fini(&body);
}

/* Whether a poll with `until_idle` ends at once, because no job is left for the worker. The worker
 * must have seen a job: jobs are live, or were live since it joined. Never with several
 * coordinators: they learn of each other's jobs with a delay, and a job that moves between them
 * would be missed. */
static bool is_over(const struct tally_coordinator *coordinator, const struct session *session)
{
    const struct live_jobs *jobs = coordinator->jobs;
    return session->poll.message->until_idle && !coordinator->view.is_shared &&
           jobs->n + jobs->n_removed > session->n_removed &&
           count_pending(coordinator, session) == 0;
}

void poll_mark_until_idle(struct tally_coordinator *coordinator)
{
    for (struct session *s = coordinator->workers->sessions.first; s != NULL; s = s->next) {
        if (s->poll.request != NULL && s->poll.message->until_idle) {
            workers_mark_ready(coordinator, s);
        }
    }
}

static void serve_poll(struct tally_coordinator *coordinator, struct session *session,
                       uint32_t *clients, int64_t now_ms)
{
    if (coordinator->draining || !may_serve(&coordinator->view, tally_monotonic_ms())) {
        if (session->poll.has_update) {
            finish_alone(coordinator, session);
        } else {
            finish_refused(coordinator, session);
        }
        return;
    }
    const char *released = find_released(coordinator, session);
    if (released != NULL) {
        struct tally_poll_response response = {.kind = TALLY_POLL_RELEASED};
        snprintf(response.released_job_id, sizeof response.released_job_id, "%s", released);
        finish_poll(coordinator, session, &response, NULL);
        return;
    }
    const struct hosted_job *asking = workers_find_question(coordinator, session);
    if (asking != NULL) {
        struct tally_poll_response response;
        workers_make_question(asking, &response);
        finish_poll(coordinator, session, &response, jobs_find(coordinator, asking->row.id));
        return;
    }
    size_t n_clients;
    struct hosted_job *job = workers_find_work(session, clients, &n_clients);
    if (job != NULL) {
        struct tally_poll_response response; /* large: unused members are not cleared */
        workers_make_task(session, job, clients, n_clients, now_ms, &response);
        finish_poll(coordinator, session, &response, job);
    } else if (now_ms >= session->poll.until_ms || is_over(coordinator, session)) {
        poll_finish_idle(coordinator, session);
    }
}

void poll_serve(struct tally_coordinator *coordinator, int64_t now_ms)
{
    static uint32_t clients[TALLY_MAX_SLOTS]; /* used by one thread; too large for the stack */
    struct session *session;
    while ((session = TALLY_LIST_FIRST(struct session, in_ready, &coordinator->workers->ready)) !=
           NULL) {
        tally_list_remove(&session->in_ready);
        if (session->poll.request != NULL) {
            serve_poll(coordinator, session, clients, now_ms);
        }
    }
}
