/* sim_store_internal: shared only by the two files of the simulated connection. */
#ifndef TALLY_TESTS_SIMULATION_STORAGE_SIM_STORE_INTERNAL_H
#define TALLY_TESTS_SIMULATION_STORAGE_SIM_STORE_INTERNAL_H

#include "tests/simulation/checks/sim_job.h"
#include "tests/simulation/programs/sim_replica.h"
#include "tests/simulation/storage/sim_store.h"

enum { MAX_WRITTEN = SIM_MAX_JOBS + 2 };

struct sim_store {
    struct tally_store base;
    struct tally_store_ops ops;
    struct tally_store *inner;
    struct sim_replica *owner;
    int64_t number; /* as a replica; 0 = it has not joined */
    bool is_connected, in_transaction;
    bool is_broken; /* the connection was lost in this transaction */
    bool in_walk;   /* the callback of a walk runs: its reads came with the walk */
    int64_t retry_at_us, backoff_us;
    int64_t written[MAX_WRITTEN], inserted[MAX_WRITTEN]; /* keys, in this transaction */
    int n_written, n_inserted;
};

static inline struct sim_store *sim_store_of(const struct tally_store *base)
{
    return (struct sim_store *)base;
}

enum tally_status sim_store_fail_lost(struct tally_error *err);
/* The way to the database. On error, the call has not arrived. */
enum tally_status sim_store_send(struct sim_store *store, struct tally_error *err);
/* The way back of a response. */
enum tally_status sim_store_hear(struct sim_store *store, enum tally_status status,
                                 struct tally_error *err);

/* Writes and reads (sim_store_calls.c). */
void sim_store_add_calls(struct tally_store_ops *ops);

#endif
