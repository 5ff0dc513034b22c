/* sim_replica: the real coordinator as one of several processes on one database. Each runs in a
 * fiber. Wherever it waits, in a store call or before it sends a response, it may be paused, killed
 * or cut off while the others continue. */
#ifndef TALLY_TESTS_SIMULATION_PROGRAMS_SIM_REPLICA_H
#define TALLY_TESTS_SIMULATION_PROGRAMS_SIM_REPLICA_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/simulation/world/sim_clock.h"
#include "tests/simulation/world/sim_network.h"

enum { SIM_MAX_REPLICAS = 5 };

struct sim_replica;

struct sim_replicas_config {
    int n;
    int64_t lease_ms, session_timeout_ms;
    int64_t batch_us;   /* the loop turns at most so long after a request */
    int64_t restart_us; /* mean time until a dead one is started again */
    int moves;          /* of 1000 requests: sent to another coordinator than the one before */
    struct sim_clocks clocks[SIM_MAX_REPLICAS];
};

void sim_replicas_begin(const struct sim_replicas_config *config);
void sim_replicas_end(void);
/* The load balancer: a sim_balancer_fn. */
struct sim_host *sim_replicas_balance(struct sim_peer *peer);
/* The replica at http://replica-N; NULL = there is none. */
struct sim_host *sim_replica_at(const char *url);

/* Misfortunes of one replica drawn at random. */
enum sim_fate { SIM_FATE_KILL, SIM_FATE_PAUSE, SIM_FATE_CUT, SIM_FATE_DRAIN };
/* Now; at its n-th boundary, which is a place where it waits; or before its n-th commit arrives.
 * `us`: duration of the fate. */
enum sim_when { SIM_NOW, SIM_AT_BOUNDARY, SIM_AT_COMMIT };
void sim_replica_strike(enum sim_fate fate, enum sim_when when, int64_t n, int64_t us);
/* Cuts one off from the database, in one direction or both. */
void sim_replica_cut_database(int64_t us);
/* Cuts two off from each other. */
void sim_replica_cut_apart(int64_t us);
/* Cuts the worker or administrator at this place off from one of the coordinators. */
void sim_replica_cut_client(int place, int64_t us);
/* Shuts all down cleanly, one after the other. */
void sim_replicas_roll(int64_t pause_us);
void sim_replica_jump_clock(int64_t ms);
/* Ends the misfortunes under way and cancels those planned. */
void sim_replicas_calm(void);

/* For the stand-ins around the coordinator. */

/* The replica whose code runs; NULL = none. */
struct sim_replica *sim_replica_self(void);
int sim_replica_index(const struct sim_replica *replica);
int64_t sim_replica_life(const struct sim_replica *replica);
const char *sim_replica_name(const struct sim_replica *replica);
struct sim_peer *sim_replica_peer(struct sim_replica *replica);
bool sim_replica_is_killed(const struct sim_replica *replica);
/* A boundary, within its fiber: `us` pass. False if the process is dead. */
bool sim_replica_pass(struct sim_replica *replica, int64_t us);
/* The next boundary is a commit in transit to the database. */
void sim_replica_note_commit(struct sim_replica *replica);
/* Wakes its loop. */
void sim_replica_wake_up(struct sim_replica *replica);

#endif
