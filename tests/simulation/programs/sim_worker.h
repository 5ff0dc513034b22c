/* sim_worker: worker processes. Each runs the real worker (services/worker) in a fiber. */
#ifndef TALLY_TESTS_SIMULATION_PROGRAMS_SIM_WORKER_H
#define TALLY_TESTS_SIMULATION_PROGRAMS_SIM_WORKER_H

#include <stdbool.h>
#include <stdint.h>

struct sim_workers_config {
    int n_workers;
    uint32_t slots[16]; /* of each */
    uint32_t wait_ms;   /* of a long poll */
    int64_t think_us;   /* mean time before a request */
    int64_t restart_us; /* mean time until a dead one is started again */
    int renamed;        /* restarts under a new name, per 1000 */
};

enum { SIM_MAX_WORKERS = 16 };

/* Starts them all, one after the other. */
void sim_workers_begin(const struct sim_workers_config *config);
void sim_workers_end(void);

/* Misfortunes of one worker drawn at random. */
void sim_worker_kill(void);
void sim_worker_terminate(void);
void sim_worker_pause(int64_t us);
void sim_worker_partition(int64_t us);
void sim_worker_slow_down(int64_t us); /* each of its requests, until the calm */
/* Starts a second process under the name of a live worker. */
void sim_worker_start_double(void);

/* Ends all misfortunes of workers, and lets every worker run. */
void sim_workers_calm(void);

/* For the stand-ins around the real worker: the worker whose code runs, NULL = none. */
const char *sim_worker_speaking(void);
void sim_worker_said(const char *event, const char *text);
void sim_worker_think(void);

#endif
