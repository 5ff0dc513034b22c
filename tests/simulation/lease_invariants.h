/* lease_invariants: a second account of who leads which job, kept from what the database has
 * carried out, without a look at its tokens. It holds that
 *   - whoever commits a write to a job leads it at that moment: two coordinators never both write
 *     one job in one lease, and one that has lost a job never writes to it again;
 *   - a job is taken only from nobody, from a former process of the same replica, by the one it was
 *     given to, or from a replica whose lease has run out by the database's clock. */
#ifndef TALLY_TESTS_SIMULATION_LEASE_INVARIANTS_H
#define TALLY_TESTS_SIMULATION_LEASE_INVARIANTS_H

#include <stdbool.h>
#include <stdint.h>

/* One life of one replica. */
struct lease_holder {
    int replica; /* in [0, SIM_MAX_REPLICAS) */
    int64_t life;
    int64_t number; /* that the store has given it; 0 = it has not joined */
};

void lease_invariants_begin(int64_t lease_ms);

/* What the database has just carried out, whether or not the answer arrives. */
void lease_invariants_see_join(const struct lease_holder *holder);
void lease_invariants_see_renew(const struct lease_holder *holder);
void lease_invariants_see_leave(const struct lease_holder *holder);
void lease_invariants_see_take(const struct lease_holder *holder, int64_t job_key);
void lease_invariants_see_give(const struct lease_holder *holder, int64_t job_key, int64_t number);
void lease_invariants_see_insert(const struct lease_holder *holder, int64_t job_key);
void lease_invariants_see_write(const struct lease_holder *holder, int64_t job_key);

/* Whether the replica leads the job, since a while of `us` at least. */
bool lease_invariants_leads(int replica, int64_t job_key, int64_t us);

#endif
