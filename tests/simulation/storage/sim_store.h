/* sim_store: the store of one of several coordinators: a connection to the database
 * (sim_database.h) over the simulated network. Each call takes time, in which the process may be
 * paused or killed while others continue. A call may be lost before it takes effect, or its
 * response after that. Either way the caller gets STORE, and the connection is lost. */
#ifndef TALLY_TESTS_SIMULATION_STORAGE_SIM_STORE_H
#define TALLY_TESTS_SIMULATION_STORAGE_SIM_STORE_H

#include <stdint.h>

#include "storage/store.h"

struct sim_replica;

struct sim_store_faults {
    int64_t delay_us; /* of a message, mean; 0 = none, and no other fiber runs meanwhile */
    int lost_requests, lost_answers; /* of 1000 calls */
};
void sim_store_set_faults(const struct sim_store_faults *faults);

/* Called in the fiber of the replica. Errors: STORE. */
enum tally_status sim_store_open(struct sim_replica *owner, struct tally_store **ret_store,
                                 struct tally_error *err);

#endif
