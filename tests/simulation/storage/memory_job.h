/* memory_job: one job of the in-memory store, and drafts of it.
 *
 * A job has only what was committed. A transaction writes to a draft of it: a copy of the content,
 * and the rounds that the transaction adds. Commit moves the draft into the job; rollback frees it.
 * Bodies and states are immutable and reference-counted, so a copy shares them. */
#ifndef TALLY_TESTS_SIMULATION_STORAGE_MEMORY_JOB_H
#define TALLY_TESTS_SIMULATION_STORAGE_MEMORY_JOB_H

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

/* What a round changed in the state. */
struct tally_memory_change {
    int64_t round;
    struct tally_blob *bytes;
};

struct tally_memory_model {
    struct tally_store_model row;
    struct tally_blob *point;
};

/* In order of rounds. Records are never removed. They are kept out of the copied content, since
 * copying them in every transaction would take quadratic time. */
struct tally_memory_rounds {
    struct tally_round_record *records;
    size_t n, capacity;
};

/* Everything else that a write can change. */
struct tally_memory_content {
    struct tally_store_job job;
    struct tally_blob *state;            /* NULL = none was put */
    struct tally_memory_change *changes; /* changes of that state, by round */
    size_t n_changes, changes_capacity;
    struct tally_memory_update *updates; /* by round, client */
    size_t n_updates, updates_capacity;
    struct tally_memory_model *models; /* by slot */
    size_t n_models, models_capacity;
};

struct tally_memory_job {
    struct tally_blob *document;
    char *idempotency_key; /* NULL = none */
    uint64_t request_digest;
    struct tally_memory_content *content; /* NULL = not committed yet */
    struct tally_memory_rounds rounds;
    uint64_t version; /* increases with each commit */
    int64_t leader;   /* number of a replica; 0 = none */
    int64_t token;    /* increases with each change of leader */
    struct tally_memory_job *next_deleted;
};

/* A job as a store object's transaction sees it. */
struct tally_memory_draft {
    struct tally_memory_job *job; /* borrowed unless it is new */
    bool is_new;                  /* inserted by this transaction */
    bool is_deleted;              /* by this transaction */
    struct tally_memory_content *content;
    struct tally_memory_rounds rounds; /* added or changed by this transaction */
    uint64_t version;                  /* of the job at the time of the copy */
    int64_t token;                     /* held by the store object then, or TALLY_NO_TOKEN */
    uint64_t n_writes;
};

/* A new job without state, updates and rounds, whose key is row->key; NULL = no memory. */
struct tally_memory_draft *tally_memory_draft_insert(const struct tally_store_job *row,
                                                     const char *document, size_t n_document,
                                                     const char *idempotency_key,
                                                     uint64_t request_digest);
/* A draft of a committed job; NULL = no memory. */
struct tally_memory_draft *tally_memory_draft_copy(struct tally_memory_job *job);
/* If the job is new, frees it too. NULL is allowed. */
void tally_memory_draft_free(struct tally_memory_draft *draft);
void tally_memory_job_free(struct tally_memory_job *job);

/* apply() moves the draft into its job and frees it. prepare() reserves the memory for that, so
 * that apply() cannot fail. Errors of prepare(): NO_MEMORY. */
enum tally_status tally_memory_draft_prepare(struct tally_memory_draft *draft);
void tally_memory_draft_apply(struct tally_memory_draft *draft);

/* Changes of a draft. On failure nothing has changed.
 * Errors: NO_MEMORY; ALREADY_EXISTS (those that add). */
enum tally_status tally_memory_draft_put_state(struct tally_memory_draft *draft, const void *bytes,
                                               size_t n);
enum tally_status tally_memory_draft_add_change(struct tally_memory_draft *draft, int64_t round,
                                                const void *bytes, size_t n);
enum tally_status tally_memory_draft_add_update(struct tally_memory_draft *draft,
                                                const struct tally_store_update *update);
enum tally_status tally_memory_draft_add_round(struct tally_memory_draft *draft,
                                               const struct tally_round_record *record);
/* Errors: NOT_FOUND (there is no record of this round), NO_MEMORY. */
enum tally_status tally_memory_draft_update_round(struct tally_memory_draft *draft,
                                                  const struct tally_round_record *record);
enum tally_status tally_memory_draft_put_model(struct tally_memory_draft *draft,
                                               const struct tally_store_model *model,
                                               const void *bytes);
void tally_memory_draft_drop_updates(struct tally_memory_draft *draft, int64_t first_round,
                                     int64_t last_round);

/* The first record after a round; NULL = there is none. Borrowed until the next change. */
const struct tally_round_record *tally_memory_round_after(const struct tally_memory_rounds *rounds,
                                                          int64_t round);

#endif
