/* rest_dispatch: from a request to its handler: admitted, then run at once if it writes, else
 * queued. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/base/time.h"
#include "services/coordinator/calls.h"
#include "services/coordinator/coordinator.h"
#include "services/coordinator/loop_transaction.h"
#include "services/coordinator/replicas_forwarding.h"
#include "services/coordinator/replicas_routing.h"
#include "services/coordinator/rest_routes.h"
#include "services/coordinator/workers.h"

enum {
    /* Time for reads in each turn. A round of a small job takes two or three turns and 2 ms, so it
     * becomes about twice as long beside readers without a pause. */
    READS_NS = 1000000,
    /* Of responses in progress. Each is then as long as it will be; the server limits unread ones.
     */
    MAX_BEGUN_BYTES = 32 << 20
};

static void answer_failure(struct tally_coordinator *coordinator, struct call *call,
                           const struct tally_error *err)
{
    transaction_note_damage(coordinator->transaction, err);
    call_answer_error(call, err);
}

/* Runs the handler, or forwards the call to the replica that must answer it. A long poll has no
 * response afterwards; it waits. */
static void run(struct tally_coordinator *coordinator, struct call *call)
{
    struct tally_error err = TALLY_ERROR_INIT;
    bool is_sent;
    enum tally_status status = replicas_route_call(coordinator, call, &is_sent, &err);
    if (is_sent) {
        return;
    }
    if (status == TALLY_OK) {
        status = call->route->handler(coordinator, call, &err);
    }
    if (status != TALLY_OK) {
        answer_failure(coordinator, call, &err);
    }
}

/* Takes the caller's own id, so that the caller finds its request in our log; a new id is drawn
 * later. */
static void name_request(struct call *call)
{
    const char *given = request_id_given(call->request);
    call->has_own_request_id = given != NULL;
    if (given != NULL) {
        memcpy(call->request_id, given, strlen(given) + 1);
    }
}

/* Returns false for a request that will be refused anyway. */
bool tally_coordinator_wants_body(void *context, struct tally_http_request *request)
{
    struct tally_error err = TALLY_ERROR_INIT;
    struct call call = {.request = request};
    return rest_admit(context, &call, &err) == TALLY_OK;
}

/* A worker's request takes long to arrive. */
bool tally_coordinator_on_part(void *context, struct tally_http_request *request)
{
    struct tally_coordinator *coordinator = context;
    struct tally_error err = TALLY_ERROR_INIT;
    struct call call = {.request = request};
    return rest_admit(coordinator, &call, &err) != TALLY_OK || call.route->kind != ROUTE_WORKER ||
           workers_on_part(coordinator, &call);
}

/* Where a request waits that is answered after the commit. */
static struct call_queue *queue_of(struct calls *calls, const struct route *route)
{
    if ((route->flags & ROUTE_IS_BRIEF) != 0) {
        return &calls->brief;
    }
    return (route->flags & ROUTE_IN_PIECES) != 0 ? &calls->in_pieces : &calls->reads;
}

/* Runs a call that writes. */
static void run_write(struct tally_coordinator *coordinator, struct call *call)
{
    run(coordinator, call);
    if (call->forwarded != NULL || call->is_held) {
        return;
    }
    call->in_transaction = transaction_is_open(coordinator->transaction);
    if (call->request != NULL && call->answered) {
        coordinator->transaction->counts.requests += call->in_transaction;
        call_queue_push(&coordinator->calls->written, call);
    } else {
        call_free(coordinator, call); /* a long poll: the session holds the request */
    }
}

void rest_run_again(struct tally_coordinator *coordinator, struct call *call)
{
    struct tally_error err = TALLY_ERROR_INIT;
    call->is_held = false;
    if (rest_admit(coordinator, call, &err) == TALLY_OK) { /* its token may be gone */
        run_write(coordinator, call);
    } else {
        call_answer_error(call, &err);
        call_queue_push(&coordinator->calls->written, call);
    }
}

void tally_coordinator_on_request(void *context, struct tally_http_request *request)
{
    struct tally_coordinator *coordinator = context;
    struct call *call = call_new(coordinator);
    coordinator->calls->counts.n_requests++;
    call->request = request;
    call->arrived_ns = tally_monotonic_ns();
    name_request(call);
    call->holder = (struct request_holder){.call = call};
    tally_http_set_user(request, &call->holder);
    struct tally_error err = TALLY_ERROR_INIT;
    const enum tally_status status = rest_admit(coordinator, call, &err);
    if (status != TALLY_OK) {
        call_answer_error(call, &err);
        call_queue_push(&coordinator->calls->written, call);
    } else if ((call->route->flags & ROUTE_WRITES) == 0) {
        call_queue_push(queue_of(coordinator->calls, call->route), call);
    } else {
        run_write(coordinator, call);
    }
}

void tally_coordinator_on_abandoned(void *context, struct tally_http_request *request)
{
    struct tally_coordinator *coordinator = context;
    const struct request_holder *holder = tally_http_user(request);
    struct session *session = holder->session;
    struct call *call = holder->call;
    if (session != NULL) {
        poll_drop(coordinator, session);
    } else if (call->forwarded != NULL) {
        forwarding_drop(coordinator, call);
    } else {
        call->request = NULL;
    }
}

/* Runs the call, or makes the next piece of its response. */
static void go_on(struct tally_coordinator *coordinator, struct call *call)
{
    struct tally_error err = TALLY_ERROR_INIT;
    if (call->pieces == NULL) {
        run(coordinator, call);
    } else if (call->pieces->write(call, &err) != TALLY_OK) {
        answer_failure(coordinator, call, &err);
    }
}

/* Sends the response of a call that has run, unless another replica will. */
static void finish(struct tally_coordinator *coordinator, struct call *call)
{
    if (call->forwarded == NULL) {
        call_send(coordinator, call);
    }
}

/* Runs the first call of the queue. Returns false if there is none. */
static bool run_next(struct tally_coordinator *coordinator, struct call_queue *queue)
{
    if (queue->first == NULL) {
        return false;
    }
    struct call *call = call_queue_pop(queue);
    if (call->request != NULL) {
        run(coordinator, call);
    }
    finish(coordinator, call);
    return true;
}

static size_t bytes_of(const struct call *call)
{
    return call->body.capacity + (call->pieces != NULL ? call->pieces->n_bytes : 0);
}

/* Runs the first call of the queue until its next pause. One that has begun goes behind the others,
 * so that all are equally fast; but if they hold much memory, one that holds some stays the first
 * until it is done. One that holds none may be waiting for the others (series_read()). */
static void run_piece(struct tally_coordinator *coordinator, struct call_queue *queue)
{
    struct calls *calls = coordinator->calls;
    struct call *call = call_queue_pop(queue);
    calls->begun_bytes -= queue == &calls->begun ? bytes_of(call) : 0;
    if (call->request != NULL) {
        go_on(coordinator, call);
    }
    if (call->pieces == NULL || call->answered || call->request == NULL) {
        finish(coordinator, call);
        return;
    }
    calls->begun_bytes += bytes_of(call);
    if (calls->begun_bytes < MAX_BEGUN_BYTES || queue != &calls->begun || bytes_of(call) == 0) {
        call_queue_push(&calls->begun, call);
    } else {
        call_queue_push_first(&calls->begun, call);
    }
}

/* Begins the next call whose response may come in pieces, or continues one. Returns false if there
 * is none. A call that has not begun holds no memory, so the number of calls is not limited. */
static bool run_in_pieces(struct tally_coordinator *coordinator)
{
    struct calls *calls = coordinator->calls;
    const bool may_begin = calls->in_pieces.first != NULL && calls->begun_bytes < MAX_BEGUN_BYTES;
    if (may_begin) {
        run_piece(coordinator, &calls->in_pieces);
    }
    if (calls->begun.first != NULL) {
        run_piece(coordinator, &calls->begun);
        return true;
    }
    return may_begin;
}

void rest_run_reads(struct tally_coordinator *coordinator)
{
    struct calls *calls = coordinator->calls;
    while (run_next(coordinator, &calls->brief)) {
    }
    if (!calls_have_reads(calls)) {
        return;
    }
    const int64_t until_ns = tally_monotonic_ns() + READS_NS;
    bool is_short, is_long;
    do {
        is_short = run_next(coordinator, &calls->reads);
        is_long = run_in_pieces(coordinator);
    } while ((is_short || is_long) && tally_monotonic_ns() < until_ns);
}
