#include "services/coordinator/calls.h"

#include <stdlib.h>

#include "services/coordinator/rooms.h"

enum tally_status calls_new(const struct route *routes, struct calls **ret_calls,
                            struct tally_error *err)
{
    struct calls *calls = calloc(1, sizeof *calls);
    if (calls == NULL || call_counts_init(&calls->counts, routes) != TALLY_OK) {
        free(calls);
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for calls");
    }
    calls->routes = routes;
    calls->brief.last = &calls->brief.first;
    calls->reads.last = &calls->reads.first;
    calls->in_pieces.last = &calls->in_pieces.first;
    calls->begun.last = &calls->begun.first;
    calls->written.last = &calls->written.first;
    *ret_calls = calls;
    return TALLY_OK;
}

void call_queue_push(struct call_queue *queue, struct call *call)
{
    call->next = NULL;
    *queue->last = call;
    queue->last = &call->next;
}

void call_queue_push_first(struct call_queue *queue, struct call *call)
{
    call->next = queue->first;
    if (queue->first == NULL) {
        queue->last = &call->next;
    }
    queue->first = call;
}

struct call *call_queue_pop(struct call_queue *queue)
{
    struct call *call = queue->first;
    queue->first = call->next;
    if (queue->first == NULL) {
        queue->last = &queue->first;
    }
    return call;
}

struct call *call_queue_take(struct call_queue *queue)
{
    struct call *first = queue->first;
    *queue = (struct call_queue){.last = &queue->first};
    return first;
}

bool calls_have_reads(const struct calls *calls)
{
    return calls->brief.first != NULL || calls->reads.first != NULL ||
           calls->in_pieces.first != NULL || calls->begun.first != NULL;
}

static void drop_all(struct tally_coordinator *coordinator, struct call_queue *queue)
{
    struct call *call = call_queue_take(queue);
    while (call != NULL) {
        struct call *next = call->next;
        call_free(coordinator, call);
        call = next;
    }
}

void calls_drop_queued(struct tally_coordinator *coordinator)
{
    if (coordinator->calls != NULL) {
        drop_all(coordinator, &coordinator->calls->brief);
        drop_all(coordinator, &coordinator->calls->reads);
        drop_all(coordinator, &coordinator->calls->in_pieces);
        drop_all(coordinator, &coordinator->calls->begun);
        drop_all(coordinator, &coordinator->calls->written);
    }
}

void calls_free(struct calls *calls)
{
    while (calls != NULL && calls->unused != NULL) {
        struct call *call = calls->unused;
        calls->unused = call->next;
        free(call);
    }
    if (calls != NULL) {
        call_counts_fini(&calls->counts);
        free(calls);
    }
}
