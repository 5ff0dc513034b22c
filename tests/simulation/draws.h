/* draws: what every kind of scenario draws: jobs, network, workers. */
#ifndef TALLY_TESTS_SIMULATION_DRAWS_H
#define TALLY_TESTS_SIMULATION_DRAWS_H

#include <stdint.h>

#include "tests/simulation/checks/sim_job.h"
#include "tests/simulation/programs/sim_worker.h"
#include "tests/simulation/world/sim_network.h"

struct draws {
    struct sim_job jobs[SIM_MAX_JOBS];
    int n_jobs;
    struct sim_network_faults network;
    struct sim_workers_config workers;
    int64_t estimate_us; /* approximate duration of the jobs if nothing fails */
};

/* To be called in this order. */
void draw_jobs(struct draws *draws);
void draw_network(struct draws *draws);
void draw_workers(struct draws *draws);

#endif
