#include "tests/simulation/world/sim_process.h"

#include "tests/simulation/world/sim.h"
#include "tests/simulation/world/sim_clock.h"
#include "tests/simulation/world/sim_random.h"

static struct sim_process *self;

struct sim_process *sim_process_self(void)
{
    return self;
}

static void run(void *context)
{
    struct sim_process *process = context;
    process->fiber = sim_fiber_self();
    process->body(process->context);
}

static void has_ended(void *context)
{
    struct sim_process *process = context;
    process->fiber = NULL;
    process->n_waits++;
    if (process->on_end != NULL) {
        process->on_end(process->context);
    }
}

void sim_process_start(struct sim_process *process, void (*body)(void *context),
                       void (*on_end)(void *context), void *context)
{
    process->stop = 0;
    process->is_killed = false;
    process->body = body;
    process->on_end = on_end;
    process->context = context;
    self = process;
    sim_fiber_start(run, has_ended, process);
    self = NULL;
}

static void wake(struct sim_process *process)
{
    process->n_waits++;
    self = process;
    sim_fiber_wake(process->fiber);
    self = NULL;
}

static void wake_at(void *context, int64_t n_waits)
{
    struct sim_process *process = context;
    if (process->fiber == NULL || process->n_waits != n_waits) {
        return;
    }
    const int64_t left_us = process->peer.paused_until_us - sim_now_us();
    if (left_us > 0) {
        sim_after(left_us, wake_at, process, n_waits);
        return;
    }
    if (process->exchange != NULL) { /* terminated while it waited for an answer */
        sim_network_abandon(process->exchange, false);
        process->exchange = NULL;
    }
    wake(process);
}

void sim_process_kill(struct sim_process *process, bool unseen)
{
    if (process->fiber == NULL) {
        return;
    }
    process->is_killed = true;
    process->stop = SIGKILL; /* its code returns from wherever it is, without effect */
    if (process->exchange != NULL) {
        sim_network_abandon(process->exchange, unseen);
        process->exchange = NULL;
    }
    wake(process);
}

enum { NOTICES_STOP_US = 200000 /* http_client.h: it checks at least so often */ };

void sim_process_terminate(struct sim_process *process)
{
    if (process->fiber == NULL || process->stop != 0) {
        return;
    }
    process->stop = SIGTERM;
    if (process->exchange == NULL || process->can_be_cancelled) {
        sim_after(sim_between(0, NOTICES_STOP_US), wake_at, process, process->n_waits);
    }
}

void sim_process_sleep(int64_t us)
{
    if (!self->is_killed) {
        struct sim_process *process = self;
        sim_after(us, wake_at, process, process->n_waits);
        sim_fiber_wait();
    }
}

static void take_answer(void *context, struct sim_exchange *exchange, struct sim_answer *answer)
{
    struct sim_process *process = context;
    SIM_REQUIRE(process->exchange == exchange, "an answer that nobody waits for");
    process->exchange = NULL;
    process->answer = *answer;
    wake(process);
}

enum tally_status sim_process_call(const struct sim_message *message, int64_t timeout_ms,
                                   bool can_be_cancelled, struct sim_answer *ret_answer)
{
    struct sim_process *process = self;
    if (process->is_killed || (can_be_cancelled && process->stop != 0)) {
        return TALLY_CANCELLED;
    }
    process->answer = (struct sim_answer){.status = TALLY_CANCELLED};
    process->can_be_cancelled = can_be_cancelled;
    process->exchange = sim_network_send(&process->peer, message, timeout_ms, take_answer, process);
    sim_fiber_wait();
    if (process->is_killed) {
        tally_buffer_fini(&process->answer.body);
        return TALLY_CANCELLED;
    }
    *ret_answer = process->answer;
    return ret_answer->status;
}
