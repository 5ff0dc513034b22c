#include "services/coordinator/replicas_placement.h"

static bool wants_slots(const struct tally_replica *replica)
{
    return replica->is_alive && replica->wants_key > 0 && replica->wants_slots > 0;
}

/* Counts the slots of all live replicas except `but`. */
static int64_t count_others(const struct placement *placement, const struct tally_replica *but,
                            bool only_free)
{
    int64_t n = 0;
    for (size_t i = 0; i < placement->n; i++) {
        const struct tally_replica *replica = &placement->replicas[i];
        if (replica->is_alive && replica != but) {
            n += only_free ? replica->free_slots : replica->slots;
        }
    }
    return n;
}

struct tally_replica *placement_neediest(const struct placement *placement, int64_t n_more)
{
    struct tally_replica *neediest = NULL;
    for (size_t i = 0; i < placement->n; i++) {
        struct tally_replica *replica = &placement->replicas[i];
        if (wants_slots(replica) &&
            (neediest == NULL || replica->wants_key < neediest->wants_key) &&
            count_others(placement, replica, false) + n_more >= replica->wants_slots) {
            neediest = replica;
        }
    }
    return neediest;
}

struct tally_replica *placement_home(const struct placement *placement, int64_t slots)
{
    struct tally_replica *neediest = placement_neediest(placement, slots);
    return neediest != NULL && neediest->number != placement->self ? neediest : NULL;
}

int64_t placement_held_back_key(const struct placement *placement)
{
    const struct tally_replica *neediest = placement_neediest(placement, 0);
    return neediest != NULL && neediest->number != placement->self ? neediest->wants_key : 0;
}

struct tally_replica *placement_taker(const struct placement *placement, int64_t job_key,
                                      int64_t clients)
{
    struct tally_replica *taker = NULL;
    const struct tally_replica *neediest = placement_neediest(placement, 0);
    if (neediest != NULL && neediest->wants_key < job_key) {
        return NULL; /* free slots are kept for that job */
    }
    for (size_t i = 0; i < placement->n; i++) {
        struct tally_replica *replica = &placement->replicas[i];
        const bool has_older = replica->wants_key > 0 && replica->wants_key < job_key;
        if (replica->is_alive && replica->number != placement->self && !has_older &&
            replica->free_slots >= clients &&
            (taker == NULL || replica->free_slots > taker->free_slots ||
             (replica->free_slots == taker->free_slots && replica->jobs < taker->jobs))) {
            taker = replica;
        }
    }
    return taker;
}

int64_t placement_share(const struct placement *placement, int64_t expectant, bool alone)
{
    const struct tally_replica *neediest = placement_neediest(placement, 0);
    if (neediest == NULL || neediest->number == placement->self ||
        (expectant > 0 && expectant < neediest->wants_key) ||
        count_others(placement, neediest, true) < neediest->wants_slots) {
        return 0;
    }
    int64_t own = 0, from_lower = 0;
    for (size_t i = 0; i < placement->n; i++) {
        const struct tally_replica *replica = &placement->replicas[i];
        if (!replica->is_alive || replica == neediest) {
            continue;
        }
        own += replica->number == placement->self ? replica->free_slots : 0;
        from_lower += replica->number < placement->self ? replica->free_slots : 0;
    }
    const int64_t left = neediest->wants_slots - (alone ? 0 : from_lower);
    return left <= 0 ? 0 : left < own ? left : own;
}

void placement_pick(const int64_t *slots, size_t n, int64_t wanted, bool *ret_picked)
{
    for (size_t i = 0; i < n; i++) {
        ret_picked[i] = false;
    }
    int64_t left = wanted;
    while (left > 0) {
        size_t best = n;
        for (size_t i = 0; i < n; i++) {
            if (ret_picked[i]) {
                continue;
            }
            const bool fits = slots[i] <= left;
            const bool best_fits = best < n && slots[best] <= left;
            const bool is_better =
                best == n || (fits && !best_fits) ||
                (fits == best_fits && (fits ? slots[i] > slots[best] : slots[i] < slots[best]));
            best = is_better ? i : best;
        }
        if (best == n) {
            return;
        }
        ret_picked[best] = true;
        left -= slots[best];
    }
}
