/* sim_clock: simulated time and the queue of future events. Time passes only from one event to the
 * next. Stands in for services/base/time.h. */
#ifndef TALLY_TESTS_SIMULATION_WORLD_SIM_CLOCK_H
#define TALLY_TESTS_SIMULATION_WORLD_SIM_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

void sim_clock_begin(void);
void sim_clock_end(void);

/* Microseconds since the start of the seed. */
int64_t sim_now_us(void);

typedef void sim_event_fn(void *context, int64_t argument);
/* Calls `event` once, `delay_us` from now; events at the same time run in the order of the calls.
 * An event cannot be cancelled: it must check whether it still applies. */
void sim_after(int64_t delay_us, sim_event_fn *event, void *context, int64_t argument);
/* Runs the next event; false if there is none. */
bool sim_step(void);

/* Sets the wall clock forward or back; intervals are not affected. */
void sim_jump_realtime(int64_t ms);

/* The clocks of one machine, if machines differ. */
struct sim_clocks {
    int64_t realtime_ms; /* how far the wall clock is ahead */
    int64_t drift_ppm;   /* how much too fast both clocks run */
};
/* Sets the clocks that services/base/time.h shows from now on; NULL = the simulation's. Borrowed.
 * Returns the previous ones. */
const struct sim_clocks *sim_clock_look_at(const struct sim_clocks *clocks);

#endif
