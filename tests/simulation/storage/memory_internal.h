/* memory_internal: shared by the memory*.c files only. */
#ifndef TALLY_TESTS_SIMULATION_STORAGE_MEMORY_INTERNAL_H
#define TALLY_TESTS_SIMULATION_STORAGE_MEMORY_INTERNAL_H

#include "storage/lease_set.h"
#include "storage/leases.h"
#include "tests/simulation/storage/memory.h"
#include "tests/simulation/storage/memory_job.h"

struct tally_memory_replica {
    struct tally_replica row; /* is_alive is unset */
    int64_t lease_ms;
    int64_t expires_ms;
    int64_t incarnation; /* number of processes so far with this id */
    bool is_member;      /* false: it has left, but keeps its number */
};

struct tally_memory_database {
    struct tally_memory_clock clock;
    struct tally_memory_job **jobs; /* committed, by key */
    size_t n_jobs, jobs_capacity;
    int64_t last_deleted_key;              /* the greatest; 0 = none */
    struct tally_memory_job *deleted;      /* jobs to which drafts of other store objects refer */
    struct tally_memory_replica *replicas; /* by number */
    size_t n_replicas, replicas_capacity;
    int64_t renewed_ms;               /* the last renewal by any replica */
    struct tally_memory_store *first; /* in the list of store objects */
};

struct tally_memory_store {
    struct tally_store base;
    struct tally_memory_database *database;
    struct tally_memory_store *next; /* on the same database */
    bool is_lost;                    /* the connection was lost, and no call has noticed yet */

    bool in_transaction;
    bool is_broken; /* a write failed; the transaction can only be rolled back */
    bool is_fenced; /* as is_broken: another replica leads one of its jobs */
    struct tally_memory_draft **drafts; /* of the open transaction, by job key */
    size_t n_drafts, drafts_capacity;

    int64_t number; /* as a replica; 0 = not a replica */
    int64_t incarnation;
    struct tally_lease_set held;
    struct tally_store_counters counters;
};

static inline struct tally_memory_store *memory_of(struct tally_store *store)
{
    return (struct tally_memory_store *)store;
}

/* memory_leases.c */

extern const struct tally_store_leases TALLY_MEMORY_LEASES;
/* Connects again if the connection was lost. Not within a transaction. */
void tally_memory_reconnect(struct tally_memory_store *memory);

/* memory_transaction.c */

/* A job as a store object sees it: with the writes of its open transaction. */
struct tally_memory_view {
    const struct tally_memory_job *job;
    const struct tally_memory_content *content;
    const struct tally_memory_draft *draft; /* NULL = not written by the transaction */
};

/* Find a visible job: the one with this key, the first after it, the last before it. False if there
 * is none. Borrowed until the next write, commit or rollback. */
bool tally_memory_find(const struct tally_memory_store *memory, int64_t job_key,
                       struct tally_memory_view *ret_view);
bool tally_memory_find_after(const struct tally_memory_store *memory, int64_t job_key,
                             struct tally_memory_view *ret_view);
bool tally_memory_find_before(const struct tally_memory_store *memory, int64_t job_key,
                              struct tally_memory_view *ret_view);
bool tally_memory_find_id(const struct tally_memory_store *memory, const char *id,
                          struct tally_memory_view *ret_view);
bool tally_memory_find_idempotency_key(const struct tally_memory_store *memory, const char *key,
                                       struct tally_memory_view *ret_view);
/* A committed job, to change its leader; NULL = there is none. */
struct tally_memory_job *tally_memory_job_find(const struct tally_memory_database *database,
                                               int64_t job_key);

/* Whether the open transaction can continue: FAILED_PRECONDITION or STORE if not. */
enum tally_status tally_memory_require_transaction(const struct tally_memory_store *memory,
                                                   struct tally_error *err);
/* Returns NO_MEMORY; the transaction can then only be rolled back. */
enum tally_status tally_memory_fail(struct tally_memory_store *memory, struct tally_error *err);
/* Every write to a job begins here, except its insertion. Errors: NOT_FOUND, NO_MEMORY. */
enum tally_status tally_memory_draft(struct tally_memory_store *memory, int64_t job_key,
                                     struct tally_memory_draft **ret_draft,
                                     struct tally_error *err);
/* Adds the draft of a new job. Takes ownership, also on failure. Errors: NO_MEMORY. */
enum tally_status tally_memory_add_draft(struct tally_memory_store *memory,
                                         struct tally_memory_draft *draft, struct tally_error *err);

enum tally_status tally_memory_begin(struct tally_store *store, struct tally_error *err);
enum tally_status tally_memory_flush(struct tally_store *store, struct tally_error *err);
enum tally_status tally_memory_commit(struct tally_store *store, struct tally_error *err);
void tally_memory_rollback(struct tally_store *store);

#endif
