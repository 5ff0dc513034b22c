#include "services/coordinator/replicas_routing.h"

#include <string.h>

#include "services/base/time.h"
#include "services/coordinator/calls.h"
#include "services/coordinator/coordinator.h"
#include "services/coordinator/jobs_live.h"
#include "services/coordinator/loop_transaction.h"
#include "services/coordinator/replicas.h"
#include "services/coordinator/replicas_forwarding.h"

enum {
    SESSION_NUMBER_SHIFT = 48, /* the bits above contain the number of the session's home */
    MAX_HELD_JOBS = 8          /* number of different jobs that can decide where a Join goes */
};

enum whereabouts {
    JOB_HERE,      /* also a job that has ended or never existed: any replica can say so */
    JOB_ELSEWHERE, /* live, at a replica that is alive */
    JOB_NOWHERE    /* live, and no replica leads it at this moment */
};

/* Errors: STORE. */
static enum tally_status locate(struct tally_coordinator *coordinator, const char *job_id,
                                enum whereabouts *ret_where, struct tally_replica *ret_leader,
                                struct tally_error *err)
{
    struct tally_store *store = coordinator->store;
    struct tally_job_leader leader;
    *ret_where = JOB_HERE;
    if (jobs_find(coordinator, job_id) != NULL) {
        return TALLY_OK;
    }
    struct tally_error why = TALLY_ERROR_INIT;
    enum tally_status status = store->leases->leader_of(store, job_id, &leader, &why);
    if (status == TALLY_NOT_FOUND) {
        return TALLY_OK;
    }
    if (status != TALLY_OK) {
        return tally_fail(err, status, why.field, "%s", why.message);
    }
    if (leader.is_live) {
        const bool is_there = leader.has_leader && leader.replica.is_alive &&
                              leader.replica.number != coordinator->view.number;
        *ret_where = is_there ? JOB_ELSEWHERE : JOB_NOWHERE;
        *ret_leader = leader.replica;
    }
    return TALLY_OK;
}

static enum tally_status fail_unplaced(const char *job_id, struct tally_error *err)
{
    return tally_fail(err, TALLY_UNAVAILABLE, NULL, "job %s is being taken over by a coordinator",
                      job_id);
}

/* Answers from the store if the leader has not responded. */
static void fall_back_to_store(struct tally_coordinator *coordinator, struct call *call)
{
    if (!call_has_forwarded_answer(call)) {
        struct tally_error err = TALLY_ERROR_INIT;
        call_clear_answer(call);
        if (call->route->handler(coordinator, call, &err) != TALLY_OK) {
            transaction_note_damage(coordinator->transaction, &err);
            call_answer_error(call, &err);
        }
    }
    call_send(coordinator, call);
}

/* A request about a job. */
static enum tally_status route_job(struct tally_coordinator *coordinator, struct call *call,
                                   bool *ret_sent, struct tally_error *err)
{
    enum whereabouts where;
    struct tally_replica leader;
    const bool store_knows = call->route->place == AT_LEADER_OR_STORE;
    if (store_knows && forwarding_is_forwarded(call)) {
        return TALLY_OK; /* the sender is mistaken, and the store knows almost everything */
    }
    enum tally_status status = locate(coordinator, call->params[0], &where, &leader, err);
    if (status != TALLY_OK || where == JOB_HERE || (where == JOB_NOWHERE && store_knows)) {
        return status;
    }
    if (where == JOB_NOWHERE) {
        return fail_unplaced(call->params[0], err);
    }
    call->collector = store_knows ? fall_back_to_store : NULL;
    status = forwarding_forward(coordinator, call, &leader, err);
    *ret_sent = status == TALLY_OK;
    return status;
}

/* The id of the session that a worker's call is about; 0 if it cannot be read. It is in the same
 * field of every message, and the only field of Leave. So every message is decoded as a Leave,
 * which skips other fields; the session's home reports errors in those. */
static uint64_t session_of(const struct call *call)
{
    size_t n = 0;
    const uint8_t *body = tally_http_body(call->request, &n);
    uint64_t id = 0;
    return tally_leave_request_decode(body, n, &id, NULL) == TALLY_OK ? id : 0;
}

/* Whether updates come with a poll. */
static bool has_poll(const struct call *call)
{
    size_t n = 0;
    const uint8_t *body = tally_http_body(call->request, &n);
    struct tally_update_request message;
    return tally_update_request_decode(body, n, &message, NULL) == TALLY_OK && message.has_poll;
}

/* Whether the call may wait for a task. */
static bool is_poll(const struct call *call)
{
    return (call->route->flags & ROUTE_IS_POLL) != 0 ||
           ((call->route->flags & ROUTE_IS_UPDATE) != 0 && has_poll(call));
}

static enum tally_status route_session(struct tally_coordinator *coordinator, struct call *call,
                                       bool *ret_sent, struct tally_error *err)
{
    const struct tally_replica *home =
        forwarding_is_forwarded(call)
            ? NULL
            : replicas_find(coordinator, (int64_t)(session_of(call) >> SESSION_NUMBER_SHIFT));
    if (home == NULL) {
        return TALLY_OK; /* it is ours, or unknown */
    }
    call->polls = is_poll(call);
    enum tally_status status = forwarding_forward(coordinator, call, home, err);
    *ret_sent = status == TALLY_OK;
    return status;
}

/* ---- Join ---- */

/* A live job that the worker says it served, and how many clients of it. */
struct held_job {
    const char *id;
    size_t n_clients;
};

static size_t list_held(const struct tally_join_request *join, struct held_job held[MAX_HELD_JOBS])
{
    size_t n = 0;
    for (size_t i = 0; i < join->n_held; i++) {
        size_t k = 0;
        while (k < n && strcmp(held[k].id, join->held[i].job_id) != 0) {
            k++;
        }
        if (k == n && n < MAX_HELD_JOBS) {
            held[n++] = (struct held_job){.id = join->held[i].job_id};
        }
        if (k < n) {
            held[k].n_clients++;
        }
    }
    return n;
}

/* Locates the live job of which the worker held most clients; *ret_found = there is one. */
static enum tally_status locate_held(struct tally_coordinator *coordinator,
                                     const struct tally_join_request *join, bool *ret_found,
                                     enum whereabouts *ret_where, struct tally_replica *ret_leader,
                                     struct tally_error *err)
{
    struct held_job held[MAX_HELD_JOBS];
    const size_t n = list_held(join, held);
    size_t most = 0;
    *ret_found = false;
    for (size_t i = 0; i < n; i++) {
        enum whereabouts where;
        struct tally_replica leader;
        enum tally_status status = locate(coordinator, held[i].id, &where, &leader, err);
        if (status != TALLY_OK) {
            return status;
        }
        const bool is_live = where != JOB_HERE || jobs_find(coordinator, held[i].id) != NULL;
        if (is_live && held[i].n_clients > most) {
            most = held[i].n_clients;
            *ret_found = true;
            *ret_where = where;
            *ret_leader = leader;
        }
    }
    return TALLY_OK;
}

/* Chooses the replica for a Join that came from the worker itself. */
static enum tally_status find_home(struct tally_coordinator *coordinator,
                                   const struct tally_join_request *join,
                                   struct tally_replica *ret_home, bool *ret_is_here,
                                   struct tally_error *err)
{
    enum whereabouts where = JOB_HERE;
    bool is_bound = true;
    const enum tally_status status =
        join->job_id[0] != '\0' ? locate(coordinator, join->job_id, &where, ret_home, err)
                                : locate_held(coordinator, join, &is_bound, &where, ret_home, err);
    if (status != TALLY_OK) {
        return status;
    }
    if (where == JOB_NOWHERE) { /* the replica that takes over the job will have its clients */
        return tally_fail(err, TALLY_UNAVAILABLE, NULL,
                          "the worker's job is being taken over by a coordinator");
    }
    *ret_is_here = where == JOB_HERE;
    if (!is_bound) {
        const struct tally_replica *home = replicas_home(coordinator, join->slots);
        *ret_is_here = home == NULL;
        if (home != NULL) {
            *ret_home = *home;
        }
    }
    return TALLY_OK;
}

static enum tally_status route_join(struct tally_coordinator *coordinator, struct call *call,
                                    bool *ret_sent, struct tally_error *err)
{
    struct tally_join_request join;
    struct tally_replica home;
    bool is_here = true;
    size_t n = 0;
    const uint8_t *body = tally_http_body(call->request, &n);
    if (forwarding_is_forwarded(call) ||
        tally_join_request_decode(body, n, &join, NULL) != TALLY_OK) {
        return TALLY_OK; /* the handler reports the error */
    }
    enum tally_status status = find_home(coordinator, &join, &home, &is_here, err);
    tally_join_request_fini(&join);
    if (status == TALLY_OK && !is_here) {
        status = forwarding_forward(coordinator, call, &home, err);
        *ret_sent = status == TALLY_OK;
    }
    return status;
}

/* This replica may not answer for its jobs, and does not know which replicas lead them. */
static enum tally_status fail_aside(const struct tally_coordinator *coordinator,
                                    struct tally_error *err)
{
    const char *why = coordinator->draining ? "it is shutting down"
                      : coordinator->transaction->error.status != TALLY_OK
                          ? coordinator->transaction->error.message
                          : "it was away for too long";
    return tally_fail(err, TALLY_UNAVAILABLE, NULL,
                      "this coordinator has lost contact with the others: %s", why);
}

enum tally_status replicas_route_call(struct tally_coordinator *coordinator, struct call *call,
                                      bool *ret_sent, struct tally_error *err)
{
    const struct route *route = call->route;
    *ret_sent = false;
    if (!coordinator->view.is_shared ||
        (route->place == AT_ANY && (route->flags & ROUTE_WRITES) == 0)) {
        return TALLY_OK;
    }
    if (coordinator->draining && (route->flags & ROUTE_ASKS_WORK) != 0) {
        return tally_fail(err, TALLY_UNAVAILABLE, NULL, "the coordinator is shutting down");
    }
    if (!may_serve(&coordinator->view, tally_monotonic_ms())) {
        return route->place == AT_LEADER_OR_STORE ? TALLY_OK : fail_aside(coordinator, err);
    }
    switch (route->place) {
    case AT_ANY:
        break;
    case AT_LEADER:
    case AT_LEADER_OR_STORE:
        return route_job(coordinator, call, ret_sent, err);
    case AT_SESSION:
        return route_session(coordinator, call, ret_sent, err);
    case AT_WORKERS_JOB:
        return route_join(coordinator, call, ret_sent, err);
    }
    return TALLY_OK;
}
