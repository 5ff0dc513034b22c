#include "services/coordinator/loop.h"

#include <stdlib.h>
#include <sys/eventfd.h>

#include "services/base/log.h"
#include "services/base/time.h"
#include "services/coordinator/calls.h"
#include "services/coordinator/coordinator.h"
#include "services/coordinator/loop_transaction.h"

enum { TICKS_PER_SECOND = 1000 / TICK_MS };

enum tally_status turn_new(const struct turn_ops *ops, struct turn **ret_turn,
                           struct tally_error *err)
{
    struct turn *turn = calloc(1, sizeof *turn);
    if (turn == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the loop");
    }
    turn->ops = ops;
    turn->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (turn->wake_fd < 0) {
        free(turn);
        return tally_fail(err, TALLY_UNAVAILABLE, NULL, "no file descriptor for the loop");
    }
    *ret_turn = turn;
    return TALLY_OK;
}

void turn_free(struct turn *turn)
{
    free(turn);
}

void turn_hurry(struct turn *turn)
{
    turn->next_tick_ms = 0;
    turn->n_ticks = 0;
}

/* Ends the step's transaction. Returns false if what it wrote is lost. */
static bool commit(struct tally_coordinator *coordinator)
{
    struct transaction *transaction = coordinator->transaction;
    struct turn *turn = coordinator->turn;
    if (!transaction_is_open(transaction) || turn->defers) {
        return true;
    }
    const uint64_t number = transaction->number;
    const bool ok = transaction_commit(transaction);
    turn->defer_until_ms = 0;
    if (!ok) {
        if (transaction->was_fenced) {
            tally_log(TALLY_LOG_WARN,
                      tally_log_event("write refused: another replica leads a job"));
        } else {
            tally_log(TALLY_LOG_ERROR, tally_log_event("write failed"),
                      tally_log_problem(&transaction->error));
        }
        turn->ops->lost(coordinator, number);
    }
    return ok;
}

/* Whether the transaction may stay open: nothing waits for it but updates whose responses wait for
 * the next task anyway. Most of them need not be written at all if their round closes first. */
static bool may_defer(struct tally_coordinator *coordinator, int64_t now_ms)
{
    struct turn *turn = coordinator->turn;
    const struct calls *calls = coordinator->calls;
    if (coordinator->transaction->state != TRANSACTION_DEFERRABLE || coordinator->draining ||
        calls_have_reads(calls)) {
        return false;
    }
    if (turn->defer_until_ms == 0) {
        turn->defer_until_ms = turn->ops->defer_until(coordinator, now_ms);
    }
    const struct call *call =
        turn->last_deferred != NULL ? turn->last_deferred->next : calls->written.first;
    for (; call != NULL; call = call->next) {
        if (call->polling_session == 0 || call->error.status != TALLY_OK) {
            return false;
        }
        const int64_t shared_ms = now_ms + DEFER_SHARED_MS;
        if (call->poll_until_ms < turn->defer_until_ms) {
            turn->defer_until_ms = call->poll_until_ms;
        }
        if (shared_ms < turn->defer_until_ms && turn->ops->has_task(coordinator, call)) {
            turn->defer_until_ms = shared_ms;
        }
        turn->last_deferred = call;
    }
    return now_ms < turn->defer_until_ms;
}

/* Responds to the step's writes, with an error if they are not committed. */
static void publish(struct tally_coordinator *coordinator, bool committed)
{
    struct turn *turn = coordinator->turn;
    if (turn->defers) {
        return;
    }
    struct call *call = call_queue_take(&coordinator->calls->written);
    turn->last_deferred = NULL;
    while (call != NULL) {
        struct call *next = call->next;
        if (!committed && call->in_transaction && (call->route->flags & ROUTE_IN_MEMORY) == 0) {
            struct tally_error err = TALLY_ERROR_INIT;
            transaction_fail(coordinator->transaction, &err);
            call->location[0] = '\0';
            answer_error(call, &err);
        }
        if (call->polling_session == 0 || !turn->ops->hold_poll(coordinator, call)) {
            send_answer(coordinator, call);
        }
        call = next;
    }
}

static int time_to_next(const struct turn *turn)
{
    int64_t next_ms = turn->next_tick_ms;
    if (turn->defers && turn->defer_until_ms < next_ms) {
        next_ms = turn->defer_until_ms;
    }
    const int64_t wait_ms = next_ms - tally_monotonic_ms();
    return wait_ms < 0 ? 0 : (int)wait_ms;
}

/* Measures the time since the last turn. It is short unless that turn or the step of the HTTP
 * server took long, or the process did not run. */
static void look_for_stall(struct tally_coordinator *coordinator, int64_t now_ms)
{
    struct turn *turn = coordinator->turn;
    const int64_t pause_ms = turn->began_ms > 0 ? now_ms - turn->began_ms : 0;
    turn->began_ms = now_ms;
    if (pause_ms >= STALL_MS) {
        turn->ops->stalled(coordinator, now_ms, pause_ms);
    }
}

int turn_run(struct tally_coordinator *coordinator)
{
    struct transaction *transaction = coordinator->transaction;
    struct turn *turn = coordinator->turn;
    const int64_t now_ms = tally_monotonic_ms();
    const bool ticks = now_ms >= turn->next_tick_ms;
    const bool seconds = ticks && turn->n_ticks++ % TICKS_PER_SECOND == 0;
    if (ticks) {
        turn->next_tick_ms = now_ms + TICK_MS;
    }
    look_for_stall(coordinator, now_ms);
    turn->ops->work(coordinator, now_ms, ticks, seconds);
    turn->defers = may_defer(coordinator, now_ms);
    publish(coordinator, commit(coordinator));
    turn->ops->retire(coordinator);
    commit(coordinator); /* of the retired jobs: nobody waits for it */
    transaction_end_step(transaction);
    if (!transaction_is_open(transaction)) {
        turn->ops->outside(coordinator, now_ms);
    }
    const bool has_more = turn->ops->serve(coordinator, now_ms, turn->defers);
    return has_more ? 0 : time_to_next(turn);
}
