/* leases: several coordinators on one store, each leading some of its jobs.
 *
 * A store that several coordinators share (PostgreSQL; memory.h in one process) knows its replicas
 * and which of them leads which live job. SQLite and the private in-memory store have no leases. A
 * replica keeps its leases by renew(). To the others, a replica that has not renewed for lease_ms,
 * by the store's clock, is dead, and take() gives them its jobs.
 *
 * Fencing. A lease alone does not protect a job: a leader that was paused cannot know that its
 * lease expired meanwhile. So each change of leader raises the job's token (Burrows, "The Chubby
 * lock service", OSDI 2006, section 2.4: sequencers). A store object remembers the tokens of the
 * jobs that it was given. Every transaction that writes to a job compares the token under a lock
 * for which take() must wait, in the same transaction as the write:
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
 * Slots fail with STORE if the store cannot be reached; then nothing is known to have changed. */
#ifndef TALLY_STORAGE_LEASES_H
#define TALLY_STORAGE_LEASES_H

#include <stdbool.h>
#include <stdint.h>

#include "codec/base/error.h"

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
    int64_t number;      /* in [1, 65535]; given by the store to an id, and kept */
    int64_t jobs;        /* live ones that it leads */
    int64_t slots;       /* of its workers that can move to another replica, sooner or later */
    int64_t free_slots;  /* of all its workers, those without a client */
    int64_t wants_key;   /* key of the oldest job there that waits for slots; 0 = none */
    int64_t wants_slots; /* how many slots that job lacks */
    bool is_alive;       /* it has renewed in time; of rows that are read */
};

/* The replica that leads a job. */
struct tally_job_leader {
    int64_t key;                  /* of the job */
    bool is_live;                 /* the job is; one that has ended needs no leader */
    bool has_leader;              /* of a live job: some replica was given it, dead or alive */
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
     * among them, by number. Afterwards holds() is right for this moment. */
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
    /* Hands a job that this replica leads to another, for whose next take() it waits. In a
     * transaction of its own. Errors: FAILED_PRECONDITION (it does not lead it any more). */
    enum tally_status (*give)(struct tally_store *store, int64_t job_key, int64_t replica_number,
                              struct tally_error *err);
    /* Whether this process leads the job, as far as it knows without asking. */
    bool (*holds)(const struct tally_store *store, int64_t job_key);
    /* Errors: NOT_FOUND. */
    enum tally_status (*leader_of)(struct tally_store *store, const char *job_id,
                                   struct tally_job_leader *ret_leader, struct tally_error *err);
    /* Gives up all leases, for the first replica that takes them, and leaves. For a clean end;
     * close() alone leaves them to expire. */
    enum tally_status (*leave)(struct tally_store *store, struct tally_error *err);
};

#endif
