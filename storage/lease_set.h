/* lease_set: the jobs that a store object may write to, and the token of each (leases.h). */
#ifndef TALLY_STORAGE_LEASE_SET_H
#define TALLY_STORAGE_LEASE_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/error.h"

/* The token of a job without a leader. A store object that is not a replica may write to such a
 * job. Other tokens are >= 1. */
enum { TALLY_NO_TOKEN = 0 };

struct tally_lease {
    int64_t job_key;
    int64_t token;
    bool has_ended; /* the job has ended; PostgreSQL is not asked about it any more */
};

/* In ascending order of keys. {0} is an empty set. */
struct tally_lease_set {
    struct tally_lease *leases;
    size_t n, capacity;
};

void tally_lease_set_fini(struct tally_lease_set *set);
/* NULL = not in the set. Borrowed until the next change. */
struct tally_lease *tally_lease_find(const struct tally_lease_set *set, int64_t job_key);
/* Adds a lease or gives it another token. Errors: NO_MEMORY. */
enum tally_status tally_lease_put(struct tally_lease_set *set, int64_t job_key, int64_t token);
void tally_lease_drop(struct tally_lease_set *set, int64_t job_key);
/* Drops the lease of every job in `which`. */
void tally_lease_drop_all(struct tally_lease_set *set, const struct tally_lease_set *which);
/* Number of leases of jobs that have not ended. */
size_t tally_lease_count(const struct tally_lease_set *set);

#endif
