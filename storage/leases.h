/* leases: several coordinators on one store, each leading some of its jobs.
 *
 * A store that several coordinators share (PostgreSQL) knows its replicas and which of them leads
 * which live job. SQLite has no leases. A replica keeps its leases by renew(). To the others, a
 * replica that has not renewed for lease_ms, by the store's clock, is dead, and take() gives them
 * its jobs.
 *
 * Fencing. A lease alone does not protect a job: a leader that was paused cannot know that its
 * lease expired meanwhile. So each change of leader raises the job's token (Burrows, "The Chubby
 * lock service", OSDI 2006, section 2.4: sequencers). A store object remembers the tokens of the
 * jobs that it was given. Every transaction that writes to a job compares the token in the same
 * transaction, under a lock for which take() must wait:
 *
 *     replica a                      store             replica b
 *     take(): leads job 7            token 4
 *     is paused ...                  lease expires     take(): leads job 7
 *                                    token 5           writes round 12 with token 5
 *     writes round 12 with token 4   4 is not 5: FAILED_PRECONDITION, nothing is written
 *
 * The whole transaction fails with the write. The replica that inserts a job leads it. A store
 * object that has reconnected holds new tokens: by then, what the old connection had in progress
 * has been committed or rolled back.
 *
 * Slots fail with STORE if the store cannot be reached; then it is not known whether anything
 * changed. */
#ifndef TALLY_STORAGE_LEASES_H
#define TALLY_STORAGE_LEASES_H

#include <stdbool.h>
#include <stdint.h>

#include "codec/error.h"

struct tally_store;
struct tally_store_job;

enum {
    TALLY_REPLICA_ID_CAPACITY = 65,       /* with NUL */
    TALLY_REPLICA_ADDRESS_CAPACITY = 257, /* with NUL */
    TALLY_MAX_REPLICA_NUMBER = 65535
};

/* A coordinator as the others see it. */
struct tally_replica {
    char id[TALLY_REPLICA_ID_CAPACITY]; /* chosen by its owner; the same after a restart */
    char address[TALLY_REPLICA_ADDRESS_CAPACITY]; /* URL at which the others reach it */
    int64_t number;      /* in [1, 65535]; assigned to the id by the store, for good */
    int64_t jobs;        /* number of live jobs that it leads */
    int64_t slots;       /* of its workers that can move to another replica, sooner or later */
    int64_t free_slots;  /* slots of all its workers that have no client */
    int64_t wants_key;   /* key of its oldest job that waits for slots; 0 = none */
    int64_t wants_slots; /* how many slots that job lacks */
    bool is_alive;       /* it renewed in time; set by walks that read rows */
};

/* The replica that leads a job. */
struct tally_job_leader {
    int64_t key;                  /* of the job */
    bool is_live;                 /* whether the job is live; an ended job needs no leader */
    bool has_leader;              /* for a live job: a replica, dead or alive, was given the job */
    struct tally_replica replica; /* if has_leader: only id, number, address and is_alive */
};

typedef enum tally_status tally_replica_fn(void *context, const struct tally_replica *replica,
                                           struct tally_error *err);

struct tally_store_leases {
    /* Announces this process as a replica; once, before the other slots. A former process with the
     * same id loses the jobs that it led: the next take() gives them to this one. */
    enum tally_status (*join)(struct tally_store *store, const struct tally_replica *self,
                              int64_t lease_ms, int64_t *ret_number, struct tally_error *err);
    /* Renews the leases of this replica and announces what it has; then walks all replicas, itself
     * among them, by number. Afterwards holds() is up to date. */
    enum tally_status (*renew)(struct tally_store *store, const struct tally_replica *self,
                               tally_replica_fn *each, void *context, struct tally_error *err);
    /* Takes every live job that has no leader, whose leader is dead, or that another replica has
     * given to this one; walks their rows, oldest first. All jobs of a dead replica go to one
     * taker. A store that was itself unreachable for a while first gives its replicas lease_ms to
     * return. Not within a transaction. */
    enum tally_status (*take)(struct tally_store *store,
                              enum tally_status (*each)(void *context,
                                                        const struct tally_store_job *job,
                                                        struct tally_error *err),
                              void *context, struct tally_error *err);
    /* Hands over the lease of a job to another replica, whose next take() returns the job. Runs in
     * its own transaction. Errors: FAILED_PRECONDITION (this replica no longer leads the
     * job). */
    enum tally_status (*give)(struct tally_store *store, int64_t job_key, int64_t replica_number,
                              struct tally_error *err);
    /* Whether this process leads the job, as far as it knows without asking. */
    bool (*holds)(const struct tally_store *store, int64_t job_key);
    /* Errors: NOT_FOUND. */
    enum tally_status (*leader_of)(struct tally_store *store, const char *job_id,
                                   struct tally_job_leader *ret_leader, struct tally_error *err);
    /* Releases all leases, so that any replica can take the jobs at once, and leaves. For a clean
     * shutdown; close() alone leaves them to expire. */
    enum tally_status (*leave)(struct tally_store *store, struct tally_error *err);
};

#endif
