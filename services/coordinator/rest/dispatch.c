/* dispatch: from a request to its handler: admitted, then run at once if it writes, else queued. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/base/time.h"
#include "services/coordinator/base/rooms.h"
#include "services/coordinator/calls/calls.h"
#include "services/coordinator/replicas/forwarding.h"
#include "services/coordinator/replicas/request_routing.h"
#include "services/coordinator/rest/handlers.h"
#include "services/coordinator/turn/transaction.h"
#include "services/coordinator/workers/long_polls.h"
#include "services/coordinator/workers/worker_calls.h"

/* Runs the handler, or forwards the call to the replica that must answer it. A long poll has no
 * response afterwards; it waits. */
static void run(struct tally_coordinator *coordinator, struct call *call)
{
    struct tally_error err = TALLY_ERROR_INIT;
    bool is_sent;
    enum tally_status status = route_call(coordinator, call, &is_sent, &err);
    if (is_sent) {
        return;
    }
    if (status == TALLY_OK) {
        status = call->route->handler(coordinator, call, &err);
    }
    if (status != TALLY_OK) {
        transaction_note_damage(coordinator->transaction, &err);
        answer_error(call, &err);
    }
}

/* Takes the caller's own id, so that the caller finds its request in our log; a new id is drawn
 * later. */
static void name_request(struct call *call)
{
    const char *told = told_request_id(call->request);
    call->request_id_told = told != NULL;
    if (told != NULL) {
        memcpy(call->request_id, told, strlen(told) + 1);
    }
}

/* Returns false for a request that will be refused anyway. */
bool tally_coordinator_wants_body(void *context, struct tally_http_request *request)
{
    struct tally_error err = TALLY_ERROR_INIT;
    struct call call = {.request = request};
    return admit(context, &call, &err) == TALLY_OK;
}

/* A worker's request takes long to arrive. */
bool tally_coordinator_on_part(void *context, struct tally_http_request *request)
{
    struct tally_coordinator *coordinator = context;
    struct tally_error err = TALLY_ERROR_INIT;
    struct call call = {.request = request};
    return admit(coordinator, &call, &err) != TALLY_OK || call.route->kind != ROUTE_WORKER ||
           worker_part(coordinator, &call);
}

void tally_coordinator_on_request(void *context, struct tally_http_request *request)
{
    struct tally_coordinator *coordinator = context;
    struct call *call = call_new(coordinator);
    coordinator->calls->counts.n_requests++;
    if (call == NULL) {
        char id[REQUEST_ID_CAPACITY];
        draw_request_id(coordinator, id);
        const struct tally_http_response response = {.status = 503,
                                                     .headers = {{"X-Request-Id", id}}};
        tally_http_respond(request, &response);
        return;
    }
    call->request = request;
    call->arrived_ns = tally_monotonic_ns();
    name_request(call);
    call->holder = (struct request_holder){.call = call};
    tally_http_set_user(request, &call->holder);
    struct tally_error err = TALLY_ERROR_INIT;
    const enum tally_status status = admit(coordinator, call, &err);
    if (status != TALLY_OK) {
        answer_error(call, &err);
        call_queue_push(&coordinator->calls->written, call);
    } else if ((call->route->flags & ROUTE_WRITES) == 0) {
        const bool in_pieces = (call->route->flags & ROUTE_IN_PIECES) != 0;
        struct calls *calls = coordinator->calls;
        call_queue_push(in_pieces ? &calls->in_pieces : &calls->reads, call);
    } else {
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
}

void tally_coordinator_on_abandoned(void *context, struct tally_http_request *request)
{
    struct tally_coordinator *coordinator = context;
    const struct request_holder *holder = tally_http_user(request);
    if (holder == NULL) { /* there was no memory for a call */
        return;
    }
    struct session *session = holder->session;
    struct call *call = holder->call;
    if (session != NULL) {
        abandon_poll(coordinator, session);
    } else if (call->forwarded != NULL) {
        forward_abandon(coordinator, call);
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
        answer_error(call, &err);
    }
}

/* Makes one step of the first call whose response may come in pieces. The other calls have not
 * begun and hold no memory, so their number is not limited. */
static void run_in_pieces(struct tally_coordinator *coordinator)
{
    struct call_queue *queue = &coordinator->calls->in_pieces;
    struct call *call = queue->first;
    if (call == NULL) {
        return;
    }
    if (call->request != NULL) {
        go_on(coordinator, call);
    }
    if (call->pieces != NULL && !call->answered && call->request != NULL) {
        return; /* the next piece comes in the next turn */
    }
    call_queue_pop(queue);
    if (call->forwarded == NULL) { /* else it waits for the other replica */
        send_answer(coordinator, call);
    }
}

void run_reads(struct tally_coordinator *coordinator)
{
    run_in_pieces(coordinator);
    struct call *call = call_queue_take(&coordinator->calls->reads);
    while (call != NULL) {
        struct call *next = call->next;
        if (call->request != NULL) {
            run(coordinator, call);
        }
        if (call->forwarded == NULL) { /* else it waits for the other replica */
            send_answer(coordinator, call);
        }
        call = next;
    }
}
