/* memory: an in-memory database that several store objects of one process share, with leases
 * (leases.h): the reference for the contract, and the database of the simulation's replicas.
 *
 * All store objects of a database belong to one thread. Their calls may interleave in any order,
 * even while several have open transactions. But the callback of a walk may not write through
 * another store object. Isolation is READ COMMITTED: a transaction's writes are visible only to its
 * own store object until commit() applies all of them or none. No call waits for a lock. Job keys
 * are unique and become visible in commit order. commit() reports conflicts:
 *
 *     FAILED_PRECONDITION  another replica leads a job that was written to (also in flush())
 *     ALREADY_EXISTS       two transactions inserted the same id or idempotency key
 *     STORE                two store objects that are not replicas wrote to the same job */
#ifndef TALLY_TESTS_SIMULATION_STORAGE_MEMORY_H
#define TALLY_TESTS_SIMULATION_STORAGE_MEMORY_H

#include <stdint.h>

#include "storage/store.h"

struct tally_memory_database;

/* The clock by which leases expire, in milliseconds since an arbitrary point in time. */
struct tally_memory_clock {
    int64_t (*now_ms)(void *context);
    void *context;
};

/* An empty database. `clock` is copied; NULL = the monotonic clock of the machine.
 * Errors: NO_MEMORY. */
enum tally_status tally_memory_database_new(const struct tally_memory_clock *clock,
                                            struct tally_memory_database **ret_database,
                                            struct tally_error *err);
/* Every store object on it must have been closed. NULL is allowed. */
void tally_memory_database_free(struct tally_memory_database *database);

/* Opens a store object, a "connection", with leases. The caller closes it with ops->close(), which
 * leaves its leases to expire. Errors: NO_MEMORY. */
enum tally_status tally_memory_database_open(struct tally_memory_database *database,
                                             struct tally_store **ret_store,
                                             struct tally_error *err);

/* Breaks the connection of a store object that tally_memory_database_open() opened, like a lost
 * network connection. An open transaction is lost: its writes and its commit fail with STORE. The
 * next begin() or lease operation connects again; the store object then holds the jobs that it
 * still leads. To simulate a lost response to a commit: commit, disconnect, and report STORE. */
void tally_memory_database_disconnect(struct tally_store *store);
/* Simulates a kill and restart of the database server: all rows stay, and all connections break.
 * There is no separate grace time. As on PostgreSQL, the clock of all leases stops half a lease
 * after the last renewal by any replica, and the next renewal extends them by the time that it
 * stood still. So the downtime of the simulated server does not count. */
void tally_memory_database_restart(struct tally_memory_database *database);

#endif
