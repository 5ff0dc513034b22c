#include "services/coordinator/loop.h"
#include "services/base/alloc.h"

#include <stdlib.h>
#include <sys/eventfd.h>

#include "services/base/log.h"
#include "services/base/time.h"
#include "services/coordinator/calls.h"
#include "services/coordinator/coordinator.h"
#include "services/coordinator/loop_transaction.h"

enum { TICKS_PER_SECOND = 1000 / TICK_MS };

enum tally_status loop_new(const struct loop_ops *ops, struct loop **ret_loop,
                           struct tally_error *err)
{
    struct loop *loop = tally_xcalloc(1, sizeof *loop);
    loop->ops = ops;
    loop->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (loop->wake_fd < 0) {
        free(loop);
        return tally_fail(err, TALLY_UNAVAILABLE, NULL, "no file descriptor for the loop");
    }
    *ret_loop = loop;
    return TALLY_OK;
}

void loop_free(struct loop *loop)
{
    free(loop);
}

void loop_hurry(struct loop *loop)
{
    loop->next_tick_ms = 0;
    loop->n_ticks = 0;
}

/* Ends the step's transaction. Returns false if what it wrote is lost. */
static bool commit(struct tally_coordinator *coordinator)
{
    struct transaction *transaction = coordinator->transaction;
    struct loop *loop = coordinator->loop;
    if (!transaction_is_open(transaction) || loop->defers) {
        return true;
    }
    const uint64_t number = transaction->number;
    const bool ok = transaction_commit(transaction);
    loop->defer_until_ms = 0;
    if (!ok) {
        if (transaction->was_fenced) {
            tally_log(TALLY_LOG_WARN,
                      tally_log_event("write refused: another replica leads a job"));
        } else {
            tally_log(TALLY_LOG_ERROR, tally_log_event("write failed"),
                      tally_log_problem(&transaction->error));
        }
        loop->ops->lost(coordinator, number);
    }
    return ok;
}

/* Whether the transaction may stay open: nothing waits for it but updates whose responses wait for
 * the next task anyway. Most of them need not be written at all if their round closes first. Each
 * call is examined once: a task that appears later follows from a write or from another worker's
 * call, which end the deferral, or from a time limit of seconds. */
static bool may_defer(struct tally_coordinator *coordinator, int64_t now_ms)
{
    struct loop *loop = coordinator->loop;
    const struct calls *calls = coordinator->calls;
    if (coordinator->transaction->state != TRANSACTION_DEFERRABLE || coordinator->draining ||
        calls_have_reads(calls)) {
        return false;
    }
    if (loop->defer_until_ms == 0) {
        loop->defer_until_ms = loop->ops->defer_until(coordinator, now_ms);
    }
    const struct call *call =
        loop->last_deferred != NULL ? loop->last_deferred->next : calls->written.first;
    for (; call != NULL; call = call->next) {
        if (call->polling_session == 0 || call->error.status != TALLY_OK) {
            return false;
        }
        const int64_t shared_ms = now_ms + DEFER_SHARED_MS;
        if (call->poll_until_ms < loop->defer_until_ms) {
            loop->defer_until_ms = call->poll_until_ms;
        }
        if (shared_ms < loop->defer_until_ms && loop->ops->has_task(coordinator, call)) {
            loop->defer_until_ms = shared_ms;
        }
        loop->last_deferred = call;
    }
    return now_ms < loop->defer_until_ms;
}

/* Responds to the step's writes, with an error if they are not committed. */
static void acknowledge(struct tally_coordinator *coordinator, bool committed)
{
    struct loop *loop = coordinator->loop;
    if (loop->defers) {
        return;
    }
    struct call *call = call_queue_take(&coordinator->calls->written);
    loop->last_deferred = NULL;
    while (call != NULL) {
        struct call *next = call->next;
        if (!committed && call->in_transaction && (call->route->flags & ROUTE_IN_MEMORY) == 0) {
            struct tally_error err = TALLY_ERROR_INIT;
            transaction_fail(coordinator->transaction, &err);
            call->location[0] = '\0';
            call_answer_error(call, &err);
        }
        if (call->polling_session == 0 || !loop->ops->begin_poll(coordinator, call)) {
            call_send(coordinator, call);
        }
        call = next;
    }
}

static int time_to_next(const struct loop *loop)
{
    int64_t next_ms = loop->next_tick_ms;
    if (loop->defers && loop->defer_until_ms < next_ms) {
        next_ms = loop->defer_until_ms;
    }
    const int64_t wait_ms = next_ms - tally_monotonic_ms();
    return wait_ms < 0 ? 0 : (int)wait_ms;
}

/* Measures the time since the last turn. It is short unless that turn or the step of the HTTP
 * server took long, or the process did not run. */
static void check_stall(struct tally_coordinator *coordinator, int64_t now_ms)
{
    struct loop *loop = coordinator->loop;
    const int64_t pause_ms = loop->began_ms > 0 ? now_ms - loop->began_ms : 0;
    loop->began_ms = now_ms;
    if (pause_ms >= STALL_MS) {
        loop->ops->stalled(coordinator, now_ms, pause_ms);
    }
}

int loop_run(struct tally_coordinator *coordinator)
{
    struct transaction *transaction = coordinator->transaction;
    struct loop *loop = coordinator->loop;
    const int64_t now_ms = tally_monotonic_ms();
    const bool ticks = now_ms >= loop->next_tick_ms;
    const bool seconds = ticks && loop->n_ticks++ % TICKS_PER_SECOND == 0;
    if (ticks) {
        loop->next_tick_ms = now_ms + TICK_MS;
    }
    check_stall(coordinator, now_ms);
    loop->ops->work(coordinator, now_ms, ticks, seconds);
    loop->defers = may_defer(coordinator, now_ms);
    acknowledge(coordinator, commit(coordinator));
    loop->ops->retire(coordinator);
    commit(coordinator); /* of the retired jobs: nobody waits for it */
    transaction_end_step(transaction);
    if (!transaction_is_open(transaction)) {
        loop->ops->outside(coordinator, now_ms);
    }
    const bool has_more = loop->ops->serve(coordinator, now_ms, loop->defers);
    return has_more ? 0 : time_to_next(loop);
}
