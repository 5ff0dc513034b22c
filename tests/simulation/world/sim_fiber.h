/* sim_fiber: code that blocks, inside one thread. A fiber runs on a stack of its own until it
 * waits; then the event loop continues, and a later event wakes the fiber. The real worker's loop
 * runs in one. */
#ifndef TALLY_TESTS_SIMULATION_WORLD_SIM_FIBER_H
#define TALLY_TESTS_SIMULATION_WORLD_SIM_FIBER_H

#include <stdbool.h>

struct sim_fiber;

/* Runs `body` until it first waits. `on_end` (NULL = none) is called, outside the fiber, when the
 * body has returned; the fiber is gone then. */
void sim_fiber_start(void (*body)(void *context), void (*on_end)(void *context), void *context);
/* The fiber that runs now; NULL in the event loop. */
struct sim_fiber *sim_fiber_self(void);
/* Returns to the event loop until this fiber is woken. */
void sim_fiber_wait(void);
/* From the event loop: resumes a waiting fiber until it waits again or ends. */
void sim_fiber_wake(struct sim_fiber *fiber);
/* Frees the stacks kept for reuse. */
void sim_fiber_end(void);

#endif
