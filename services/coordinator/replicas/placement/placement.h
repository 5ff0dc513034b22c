/* placement: which replica is to have a worker or a queued job.
 *
 * A job has only workers of the replica that leads it, so slots that are free at one replica help
 * no job of another replica until a worker or the job moves:
 *
 *     job      a queued job goes to a replica that has the slots for it free
 *     worker   what is left: a job that no replica alone has the slots for. Its leader says how
 *              many it lacks (wants_slots), and the others send it idle workers
 *
 * Pure decisions: the replicas as last read from the store come in, the choice goes out. All
 * replicas decide alike from the same rows, each for itself; rows that are some hundred
 * milliseconds old cost a worker or a job a move for nothing, never more. Replicas that are not
 * alive count for nothing.
 *
 * As in one coordinator (workers/matching) an older job goes before a younger one if the slots that
 * there are can be enough for it, and holds no job up if they cannot. */
#ifndef TALLY_SERVICES_COORDINATOR_REPLICAS_PLACEMENT_PLACEMENT_H
#define TALLY_SERVICES_COORDINATOR_REPLICAS_PLACEMENT_PLACEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "storage/leases.h"

struct placement {
    struct tally_replica *replicas; /* any order */
    size_t n;
    int64_t self; /* number of the replica that decides */
};

/* The replica with the oldest job that waits for slots which the others have, free or not;
 * `n_more` are on their way to it. NULL = there is none. */
struct tally_replica *placement_neediest(const struct placement *placement, int64_t n_more);

/* Where a worker goes that joins here with `slots` slots and is bound to no job: the neediest, or
 * NULL for here. */
struct tally_replica *placement_home(const struct placement *placement, int64_t slots);

/* Whether the queued job here must not take slots because an older one elsewhere waits for them. */
bool placement_holds_back(const struct placement *placement, int64_t job_key);

/* A replica that can start the queued job here at once; NULL = there is none. */
struct tally_replica *placement_taker(const struct placement *placement, int64_t job_key,
                                      int64_t clients);

/* How many slots of idle workers are to go from here to the neediest. They go when the free slots
 * of all are enough for its job; the replicas, in order of their numbers, give what they have until
 * the job has enough. expectant: key of the oldest queued job here that the slots here will be
 * enough for, 0 = none. `alone`: the others have had their time to give, so this one gives as if it
 * were the only one. */
int64_t placement_share(const struct placement *placement, int64_t expectant, bool alone);

/* Chooses idle workers with `wanted` slots together, or more if it must be, or all of them: the
 * largest that fit, then the smallest that fills the rest. */
void placement_pick(const int64_t *slots, size_t n, int64_t wanted, bool *ret_picked);

#endif
