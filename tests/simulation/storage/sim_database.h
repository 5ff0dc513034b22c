/* sim_database: the database that several coordinators share: the in-memory store
 * (tests/simulation/storage/memory.h) as a server in the network, with a clock of its own. */
#ifndef TALLY_TESTS_SIMULATION_STORAGE_SIM_DATABASE_H
#define TALLY_TESTS_SIMULATION_STORAGE_SIM_DATABASE_H

#include <stdbool.h>
#include <stdint.h>

#include "storage/store.h"
#include "tests/simulation/world/sim_clock.h"

void sim_database_begin(const struct sim_clocks *clocks);
void sim_database_end(void); /* after its clients */

/* Its place in the network. */
enum { SIM_DATABASE_PLACE = 5 };

/* Opens a connection. */
struct tally_store *sim_database_open(void);
/* What is committed, for the invariants; never fails. */
struct tally_store *sim_database_observe(void);
/* Commits that the database has made. */
uint64_t sim_database_n_changes(void);
void sim_database_note_change(void);
/* The time by which leases expire. */
int64_t sim_database_now_ms(void);

/* Misfortunes. The database is killed and comes back after `us`; every connection breaks. */
void sim_database_crash(int64_t us);
bool sim_database_is_up(void);
void sim_database_jump_clock(int64_t ms);

#endif
