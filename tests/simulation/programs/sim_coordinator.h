/* sim_coordinator: the real coordinator and the real SQLite store as a process that is started,
 * turned, killed and started again. */
#ifndef TALLY_TESTS_SIMULATION_PROGRAMS_SIM_COORDINATOR_H
#define TALLY_TESTS_SIMULATION_PROGRAMS_SIM_COORDINATOR_H

#include <stdbool.h>
#include <stdint.h>

#include "storage/store.h"
#include "tests/simulation/world/sim_network.h"

struct sim_coordinator_config {
    bool power_loss_safe;
    int64_t session_timeout_ms;
    int64_t batch_us; /* the loop turns at most so long after a request: requests share a commit */
    int64_t restart_us; /* mean time until a dead one is started again */
};

void sim_coordinator_begin(const struct sim_coordinator_config *config);
void sim_coordinator_end(void);

enum sim_stop { SIM_STOP_KILL, SIM_STOP_POWER, SIM_STOP_DRAIN };
/* Stops it if it runs; it comes back after a while. */
void sim_coordinator_stop(enum sim_stop how);
/* Kills it in the n-th disk operation, or before or after the n-th response, from now. */
void sim_coordinator_kill_at_disk(int64_t n);
void sim_coordinator_kill_at_answer(int64_t n);

/* The store of the running coordinator, between its turns; NULL while it is down. */
struct tally_store *sim_coordinator_store(void);

/* The only coordinator, for every peer: a sim_balancer_fn. */
struct sim_host *sim_coordinator_host(struct sim_peer *peer);

#endif
