#include "tests/simulation/checks/lease_invariants.h"

#include <string.h>

#include "tests/simulation/programs/sim_replica.h"
#include "tests/simulation/storage/sim_database.h"
#include "tests/simulation/world/sim.h"
#include "tests/simulation/world/sim_clock.h"

enum { NOBODY = -1, MAX_LEASES = 256 /* job keys; failed inserts use up keys, too */ };

struct lease {
    int leader; /* replica, or NOBODY */
    int64_t life;
    int64_t since_us;
    bool is_void;     /* the leader has joined again, and not yet taken the job */
    int64_t given_to; /* number; 0 = to none */
};

struct member {
    int64_t number, life;
    int64_t expires_ms; /* by the database's clock, unless renewed */
    bool has_left;
};

static struct {
    int64_t lease_ms;
    struct lease leases[MAX_LEASES]; /* of job key i + 1 */
    struct member members[SIM_MAX_REPLICAS];
} all;

void lease_invariants_begin(int64_t lease_ms)
{
    memset(&all, 0, sizeof all);
    all.lease_ms = lease_ms;
    for (int i = 0; i < MAX_LEASES; i++) {
        all.leases[i].leader = NOBODY;
    }
}

static struct lease *lease_of(int64_t job_key)
{
    SIM_REQUIRE(job_key >= 1 && job_key <= MAX_LEASES, "more job keys than expected");
    return &all.leases[job_key - 1];
}

static void hand_over(struct lease *lease, const struct lease_holder *to, int64_t given_to)
{
    *lease = (struct lease){.leader = to != NULL ? to->replica : NOBODY,
                            .life = to != NULL ? to->life : 0,
                            .since_us = sim_now_us(),
                            .given_to = given_to};
}

static bool holds(const struct lease *lease, const struct lease_holder *holder)
{
    return lease->leader == holder->replica && lease->life == holder->life && !lease->is_void &&
           lease->given_to == 0;
}

void lease_invariants_see_join(const struct lease_holder *holder)
{
    all.members[holder->replica] =
        (struct member){.number = holder->number,
                        .life = holder->life,
                        .expires_ms = sim_database_now_ms() + all.lease_ms};
    for (int i = 0; i < MAX_LEASES; i++) {
        all.leases[i].is_void |= all.leases[i].leader == holder->replica;
    }
}

void lease_invariants_see_renew(const struct lease_holder *holder)
{
    struct member *member = &all.members[holder->replica];
    if (member->life != holder->life) {
        sim_violation("replica %d: a process of the past renews its lease", holder->replica);
    }
    member->expires_ms = sim_database_now_ms() + all.lease_ms;
}

void lease_invariants_see_leave(const struct lease_holder *holder)
{
    struct member *member = &all.members[holder->replica];
    if (member->life != holder->life) {
        return; /* another process has its name and keeps its leases */
    }
    member->has_left = true;
    for (int i = 0; i < MAX_LEASES; i++) {
        const struct lease *lease = &all.leases[i];
        if (lease->given_to != 0 ? lease->given_to == holder->number
                                 : lease->leader == holder->replica) {
            hand_over(&all.leases[i], NULL, 0); /* also what it was given and has not taken */
        }
    }
}

/* Whether any replica, or this one, may take the lease now. */
static bool may_be_taken(const struct lease *lease, const struct lease_holder *by)
{
    if (lease->leader == NOBODY || lease->leader == by->replica || lease->given_to == by->number) {
        return true;
    }
    const struct member *leader = NULL;
    for (int i = 0; i < SIM_MAX_REPLICAS; i++) {
        const struct member *member = &all.members[i];
        const bool leads =
            lease->given_to != 0 ? member->number == lease->given_to : i == lease->leader;
        leader = leads ? member : leader;
    }
    return leader == NULL || leader->has_left || sim_database_now_ms() >= leader->expires_ms;
}

void lease_invariants_see_take(const struct lease_holder *holder, int64_t job_key)
{
    struct lease *lease = lease_of(job_key);
    if (!may_be_taken(lease, holder)) {
        sim_violation("replica %d takes job %lld from replica %d, which has a lease for %lld ms",
                      holder->replica, (long long)job_key, lease->leader,
                      (long long)(all.members[lease->leader].expires_ms - sim_database_now_ms()));
    }
    hand_over(lease, holder, 0);
}

void lease_invariants_see_give(const struct lease_holder *holder, int64_t job_key, int64_t number)
{
    struct lease *lease = lease_of(job_key);
    if (!holds(lease, holder)) {
        sim_violation("replica %d gives job %lld away, which it does not lead", holder->replica,
                      (long long)job_key);
    }
    hand_over(lease, holder, number);
}

void lease_invariants_see_insert(const struct lease_holder *holder, int64_t job_key)
{
    hand_over(lease_of(job_key), holder, 0);
}

void lease_invariants_see_write(const struct lease_holder *holder, int64_t job_key)
{
    const struct lease *lease = lease_of(job_key);
    if (!holds(lease, holder)) {
        sim_violation("replica %d (life %lld) writes to job %lld, which replica %d (life %lld) "
                      "leads",
                      holder->replica, (long long)holder->life, (long long)job_key, lease->leader,
                      (long long)lease->life);
    }
}

bool lease_invariants_leads(int replica, int64_t job_key, int64_t us)
{
    const struct lease *lease = lease_of(job_key);
    return lease->leader == replica && !lease->is_void && lease->given_to == 0 &&
           sim_now_us() - lease->since_us >= us;
}
