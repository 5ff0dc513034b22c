#include "storage/lease_set.h"

#include <stdlib.h>
#include <string.h>

#include "storage/allocate.h"

void tally_lease_set_fini(struct tally_lease_set *set)
{
    free(set->leases);
    *set = (struct tally_lease_set){0};
}

/* Index of the first lease whose key is >= `job_key`. */
static size_t place_of(const struct tally_lease_set *set, int64_t job_key)
{
    size_t low = 0;
    size_t high = set->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (set->leases[middle].job_key < job_key) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

struct tally_lease *tally_lease_find(const struct tally_lease_set *set, int64_t job_key)
{
    size_t at = place_of(set, job_key);
    return at < set->n && set->leases[at].job_key == job_key ? &set->leases[at] : NULL;
}

enum tally_status tally_lease_put(struct tally_lease_set *set, int64_t job_key, int64_t token)
{
    size_t at = place_of(set, job_key);
    if (at < set->n && set->leases[at].job_key == job_key) {
        set->leases[at] = (struct tally_lease){.job_key = job_key, .token = token};
        return TALLY_OK;
    }
    struct tally_lease *leases =
        tally_store_grow(set->leases, &set->capacity, set->n + 1, sizeof *leases);
    if (leases == NULL) {
        return TALLY_NO_MEMORY;
    }
    set->leases = leases;
    memmove(set->leases + at + 1, set->leases + at, (set->n - at) * sizeof *set->leases);
    set->leases[at] = (struct tally_lease){.job_key = job_key, .token = token};
    set->n++;
    return TALLY_OK;
}

void tally_lease_drop(struct tally_lease_set *set, int64_t job_key)
{
    struct tally_lease *lease = tally_lease_find(set, job_key);
    if (lease != NULL) {
        size_t at = (size_t)(lease - set->leases);
        set->n--;
        memmove(lease, lease + 1, (set->n - at) * sizeof *lease);
    }
}

void tally_lease_drop_all(struct tally_lease_set *set, const struct tally_lease_set *which)
{
    for (size_t i = 0; i < which->n; i++) {
        tally_lease_drop(set, which->leases[i].job_key);
    }
}

size_t tally_lease_count(const struct tally_lease_set *set)
{
    size_t n = 0;
    for (size_t i = 0; i < set->n; i++) {
        n += set->leases[i].has_ended ? 0 : 1;
    }
    return n;
}
