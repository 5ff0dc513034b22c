/* lease_fixture: replicas on one store, for the tests of leases. */
#ifndef TALLY_TESTS_CONTRACT_SUPPORT_LEASE_FIXTURE_H
#define TALLY_TESTS_CONTRACT_SUPPORT_LEASE_FIXTURE_H

#include "storage/leases.h"
#include "tests/contract/support/store_fixture.h"

/* Longer than any test, so that no replica dies of a slow machine. */
enum { LEASE_MS = 3600000 };

/* The longest time that is sure to count: the clock of leases stops half a lease after a renewal.
 */
enum { STEP_MS = LEASE_MS / 4 };

struct tally_replica replica_named(const char *id);
/* Joins; returns the number. */
int64_t expect_join(struct store_fixture *f, const char *id, int64_t lease_ms);
/* A store of its own that is replica "a", and one beside it that is "b". */
void open_two(struct store_fixture *a, struct store_fixture *b);
void close_two(struct store_fixture *a, struct store_fixture *b);

/* What renew() lists. */
struct replica_walk {
    struct tally_replica replicas[8];
    int n;
};
enum tally_status renew(struct store_fixture *f, const char *id, struct replica_walk *walk);
void expect_renew(struct store_fixture *f, const char *id);
/* The ids that take() gives, "a,b". */
const char *taken(struct store_fixture *f);
bool holds(const struct store_fixture *f, int64_t job_key);
struct tally_job_leader leader_of(struct store_fixture *f, const char *job_id);

/* One update of round 1 in a transaction of its own, and how many of them a job has. */
enum tally_status write_update(struct store_fixture *f, int64_t job_key, uint32_t client);
int n_updates(struct store_fixture *f, int64_t job_key);
/* The same by a store whose connection is being ended. */
enum tally_status write_update_at_last(struct store_fixture *f, int64_t job_key, uint32_t client);

/* A lease passes while only "b", and "c" unless it is NULL, tell that they live. */
void outlive(const struct store_fixture *first, struct store_fixture *b, struct store_fixture *c);

#endif
