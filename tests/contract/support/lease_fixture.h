/* lease_fixture: replicas on one store, for the tests of leases. */
#ifndef TALLY_TESTS_CONTRACT_SUPPORT_LEASE_FIXTURE_H
#define TALLY_TESTS_CONTRACT_SUPPORT_LEASE_FIXTURE_H

#include "storage/leases.h"
#include "tests/contract/support/store_fixture.h"

/* Longer than any test, so that no lease expires on a slow machine. */
enum { LEASE_MS = 3600000 };

/* A step that certainly counts whole: the lease clock stops half a lease after a renewal. */
enum { STEP_MS = LEASE_MS / 4 };

struct tally_replica replica_named(const char *id);
/* Joins; returns the replica's number. */
int64_t expect_join(struct store_fixture *f, const char *id, int64_t lease_ms);
/* Opens a new store as replica "a", and another store object on it as "b". */
void open_two(struct store_fixture *a, struct store_fixture *b);
void close_two(struct store_fixture *a, struct store_fixture *b);

/* The replicas that renew() lists. */
struct replica_walk {
    struct tally_replica replicas[8];
    int n;
};
enum tally_status renew(struct store_fixture *f, const char *id, struct replica_walk *walk);
void expect_renew(struct store_fixture *f, const char *id);
/* The ids of the jobs that take() returns, "a,b". */
const char *taken(struct store_fixture *f);
bool holds(const struct store_fixture *f, int64_t job_key);
struct tally_job_leader leader_of(struct store_fixture *f, const char *job_id);

/* Writes an update of round 1 in its own transaction; and counts these updates of a job. */
enum tally_status write_update(struct store_fixture *f, int64_t job_key, uint32_t client);
int n_updates(struct store_fixture *f, int64_t job_key);
/* As write_update(), but retries while the store has lost its connection. */
enum tally_status write_update_at_last(struct store_fixture *f, int64_t job_key, uint32_t client);

/* Lets a lease expire while only "b", and "c" unless it is NULL, renew. */
void outlive(const struct store_fixture *first, struct store_fixture *b, struct store_fixture *c);

#endif
