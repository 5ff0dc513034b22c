/* lease_set: the jobs that a store object may write to, and the token of each (leases.h). */
#ifndef TALLY_STORAGE_LEASE_SET_H
#define TALLY_STORAGE_LEASE_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/base/error.h"

/* Stands for the token of a job that nobody leads, which a store object that is no replica may
 * write to. Tokens of jobs are >= 1. */
enum { TALLY_NO_TOKEN = 0 };

struct tally_lease {
    int64_t job_key;
    int64_t token;
    bool has_ended; /* the job: PostgreSQL is not asked for it any more */
};

/* By key, ascending. {0} is empty. */
struct tally_lease_set {
    struct tally_lease *leases;
    size_t n, capacity;
};

void tally_lease_set_fini(struct tally_lease_set *set);
/* NULL = it is not in there. Borrowed until the next change. */
struct tally_lease *tally_lease_find(const struct tally_lease_set *set, int64_t job_key);
/* Adds a lease or gives it another token. Errors: NO_MEMORY. */
enum tally_status tally_lease_put(struct tally_lease_set *set, int64_t job_key, int64_t token);
void tally_lease_drop(struct tally_lease_set *set, int64_t job_key);
/* Those of every job in `which`. */
void tally_lease_drop_all(struct tally_lease_set *set, const struct tally_lease_set *which);
/* Of those that have not ended. */
size_t tally_lease_count(const struct tally_lease_set *set);

#endif
