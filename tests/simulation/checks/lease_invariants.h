/* lease_invariants: a second record of which replica leads which job. It follows the operations
 * that the database has carried out, and does not look at tokens. It checks that
 *   - a replica that commits a write to a job leads the job at that moment: two coordinators never
 *     both write to a job within one lease, and a coordinator that has lost a job never writes
 *     to it;
 *   - a job is taken only if it has no leader, if its leader is an earlier process of the same
 *     replica, if it was given to the replica that takes it, or if its leader's lease has expired
 * by the database's clock. */
#ifndef TALLY_TESTS_SIMULATION_CHECKS_LEASE_INVARIANTS_H
#define TALLY_TESTS_SIMULATION_CHECKS_LEASE_INVARIANTS_H

#include <stdbool.h>
#include <stdint.h>

/* One life of one replica. */
struct lease_holder {
    int replica; /* in [0, SIM_MAX_REPLICAS) */
    int64_t life;
    int64_t number; /* that the store has given it; 0 = it has not joined */
};

void lease_invariants_begin(int64_t lease_ms);

/* What the database has just carried out, whether or not the response arrives. */
void lease_invariants_see_join(const struct lease_holder *holder);
void lease_invariants_see_renew(const struct lease_holder *holder);
void lease_invariants_see_leave(const struct lease_holder *holder);
void lease_invariants_see_take(const struct lease_holder *holder, int64_t job_key);
void lease_invariants_see_give(const struct lease_holder *holder, int64_t job_key, int64_t number);
void lease_invariants_see_insert(const struct lease_holder *holder, int64_t job_key);
void lease_invariants_see_write(const struct lease_holder *holder, int64_t job_key);

/* Whether the replica has led the job for at least `us`. */
bool lease_invariants_leads(int replica, int64_t job_key, int64_t us);

#endif
