#include "tests/simulation/world/sim_fiber.h"

#include <stdlib.h>
#include <ucontext.h>

#include "tests/simulation/world/sim.h"

/* The worker's loop holds a poll's answer (4 KiB) and calls into the algorithms. */
enum { STACK_BYTES = 256 * 1024 };

struct sim_fiber {
    ucontext_t context, loop;
    void *stack;
    void (*body)(void *context);
    void (*on_end)(void *context);
    void *argument;
    bool has_ended;
    struct sim_fiber *next_free;
};

static struct sim_fiber *self;
static struct sim_fiber *spare; /* ended fibers, whose stacks are reused */

static void run(void)
{
    struct sim_fiber *fiber = self;
    fiber->body(fiber->argument);
    fiber->has_ended = true;
    swapcontext(&fiber->context, &fiber->loop);
}

/* A fiber with a stack. Not inlined, because variables around getcontext(3) must not be in
 * registers. */
__attribute__((noinline)) static struct sim_fiber *take_spare(void)
{
    if (spare != NULL) {
        struct sim_fiber *fiber = spare;
        spare = fiber->next_free;
        return fiber;
    }
    struct sim_fiber *fiber = sim_new(sizeof *fiber);
    fiber->stack = sim_new(STACK_BYTES);
    return fiber;
}

void sim_fiber_start(void (*body)(void *context), void (*on_end)(void *context), void *context)
{
    struct sim_fiber *const fiber = take_spare();
    fiber->body = body;
    fiber->on_end = on_end;
    fiber->argument = context;
    fiber->has_ended = false;
    SIM_REQUIRE(getcontext(&fiber->context) == 0, "no context");
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = STACK_BYTES;
    fiber->context.uc_link = NULL;
    makecontext(&fiber->context, run, 0);
    sim_fiber_wake(fiber);
}

struct sim_fiber *sim_fiber_self(void)
{
    return self;
}

void sim_fiber_wait(void)
{
    struct sim_fiber *fiber = self;
    swapcontext(&fiber->context, &fiber->loop);
}

void sim_fiber_wake(struct sim_fiber *fiber)
{
    SIM_REQUIRE(self == NULL, "a fiber woke another one");
    self = fiber;
    swapcontext(&fiber->loop, &fiber->context);
    self = NULL;
    if (fiber->has_ended) {
        void (*on_end)(void *context) = fiber->on_end;
        void *argument = fiber->argument;
        fiber->next_free = spare;
        spare = fiber;
        if (on_end != NULL) {
            on_end(argument);
        }
    }
}

void sim_fiber_end(void)
{
    while (spare != NULL) {
        struct sim_fiber *fiber = spare;
        spare = fiber->next_free;
        free(fiber->stack);
        free(fiber);
    }
}
