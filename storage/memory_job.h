/* memory_job: one job of the in-memory store, with a way back to what it was.
 *
 * A job is an immutable part, a `now` that writes change, and rounds, of which a bracket can only
 * add some. The first write of a bracket puts a copy of `now` aside as `before`; settling drops one
 * of the two, and the rounds that were added or the marks of them. Restoring is exact because
 * nothing else can change. Bodies and states are immutable and counted, so a copy shares them. */
#ifndef TALLY_STORAGE_MEMORY_JOB_H
#define TALLY_STORAGE_MEMORY_JOB_H

#include "storage/store.h"

/* Immutable bytes with several owners. */
struct tally_blob {
    size_t n_owners;
    size_t n;
    uint8_t bytes[];
};

struct tally_memory_update {
    int64_t round;
    uint32_t client;
    struct tally_blob *body;
};

/* What a round changed of the state. */
struct tally_memory_change {
    int64_t round;
    struct tally_blob *bytes;
};

/* Never changed or taken away, and as many as a job has lived: copying them with every bracket
 * would be quadratic. */
struct tally_memory_round {
    struct tally_round_record record;
    bool is_new; /* of this bracket */
};

/* All else that writes can change. */
struct tally_memory_content {
    struct tally_store_job job;
    struct tally_blob *state;            /* NULL = none was put */
    struct tally_memory_change *changes; /* of it since, by round */
    size_t n_changes;
    struct tally_memory_update *updates; /* by round, client */
    size_t n_updates;
};

struct tally_memory_job {
    struct tally_blob *document;
    char *idempotency_key; /* NULL = none */
    uint64_t request_digest;
    struct tally_memory_content *now;
    struct tally_memory_content *before; /* NULL = not written in this bracket */
    struct tally_memory_round *rounds;   /* by round */
    size_t n_rounds, n_new_rounds, rounds_capacity;
};

/* A job without state, updates and rounds; NULL without memory. */
struct tally_memory_job *tally_memory_job_new(const struct tally_store_job *row,
                                              const char *document, size_t n_document,
                                              const char *idempotency_key, uint64_t request_digest);
void tally_memory_job_free(struct tally_memory_job *job);

/* Puts `now` aside unless that is done. Errors: NO_MEMORY. */
enum tally_status tally_memory_job_touch(struct tally_memory_job *job);
/* Keeps what is, or goes back to what was when it was first touched. */
void tally_memory_job_commit(struct tally_memory_job *job);
void tally_memory_job_rollback(struct tally_memory_job *job);

/* Changes of `now`, which must have been touched. On failure nothing has changed.
 * Errors: NO_MEMORY; ALREADY_EXISTS (those that add). */
enum tally_status tally_memory_job_put_state(struct tally_memory_job *job, const void *bytes,
                                             size_t n);
enum tally_status tally_memory_job_add_change(struct tally_memory_job *job, int64_t round,
                                              const void *bytes, size_t n);
enum tally_status tally_memory_job_add_update(struct tally_memory_job *job,
                                              const struct tally_store_update *update);
enum tally_status tally_memory_job_add_round(struct tally_memory_job *job,
                                             const struct tally_round_record *record);
void tally_memory_job_drop_updates(struct tally_memory_job *job, int64_t through_round);

#endif
