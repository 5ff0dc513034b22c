/* replicas_placement: which replica gets a worker or a queued job.
 *
 * A job uses only workers of the replica that leads it, so free slots of one replica do not help
 * the jobs of another until a worker or the job moves:
 *
 *     job      a queued job goes to a replica that has the slots for it free
 *     worker   if no replica alone has the slots for a job, its leader says how many it lacks
 *              (wants_slots), and the others send it idle workers
 *
 * Pure: the replicas as last read from the store in, a decision out. Every replica decides for
 * itself, and the same rows lead to the same decision. Rows that are some hundred milliseconds old
 * cost at worst a useless move of a worker or a job. Replicas that are not alive are ignored.
 *
 * As in one coordinator (workers_matching.h), an older job goes before a younger one if the
 * existing slots can be enough for it, and holds up no job if they cannot. */
#ifndef TALLY_SERVICES_COORDINATOR_REPLICAS_PLACEMENT_H
#define TALLY_SERVICES_COORDINATOR_REPLICAS_PLACEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "storage/leases.h"

struct placement {
    struct tally_replica *replicas; /* any order */
    size_t n;
    int64_t self; /* number of the replica that decides */
};

/* The replica with the oldest job that waits for slots and for which those of the others, free or
 * not, are enough, with `n_more` that are on their way. NULL = none. */
struct tally_replica *placement_neediest(const struct placement *placement, int64_t n_more);

/* The replica for a worker that joins here with `slots` slots and is bound to no job: the neediest,
 * or NULL for this one. */
struct tally_replica *placement_home(const struct placement *placement, int64_t slots);

/* Key of the job elsewhere that waits for slots: queued jobs here with a higher key must not take
 * slots. 0 = there is none. */
int64_t placement_held_back_key(const struct placement *placement);

/* A replica that can start the queued job here at once; NULL = there is none. */
struct tally_replica *placement_taker(const struct placement *placement, int64_t job_key,
                                      int64_t clients);

/* How many slots of idle workers this replica must send to the neediest. They are sent when the
 * free slots of all replicas are enough for its job. The replicas, in order of their numbers, give
 * what they have until the job has enough. expectant: key of the oldest queued job here that the
 * slots here will be enough for, 0 = none. `alone`: the others have had time to give, so this one
 * gives as if it were the only one. */
int64_t placement_share(const struct placement *placement, int64_t expectant, bool alone);

/* Chooses idle workers with `wanted` slots in all, or more if unavoidable, or all workers if they
 * have fewer: first the largest that fit, then the smallest that fills the rest. */
void placement_pick(const int64_t *slots, size_t n, int64_t wanted, bool *ret_picked);

#endif
