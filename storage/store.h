/* store: what a coordinator must not forget, behind one small interface.
 *
 * A store keeps jobs, the accepted updates of each job's open round, and the records of its closed
 * rounds. Everything else is derived. The promise that the service builds on:
 *
 *     what was written in a transaction whose commit() returned TALLY_OK survives kill -9 of the
 *     process at any later instant; what was not committed leaves no trace.
 *
 * Writers put their calls between begin() and commit(). Reads are allowed inside and outside a
 * transaction and see the transaction's own writes. A store object belongs to one thread at a time;
 * it has no locks of its own.
 *
 * Group commit. The cost of a commit is a wait for the medium or for another machine, whatever the
 * number of rows. So the coordinator puts all updates that have arrived since its last commit into
 * one transaction, and answers them once it is committed:
 *
 *     update a --+                                +--> response to a
 *     update b --+--> begin, 3 inserts, commit ---+--> response to b
 *     update c --+                                +--> response to c
 *
 * The longer a commit takes, the more updates share the next one. Within a transaction an expected
 * error affects only its own row: if b is a duplicate (ALREADY_EXISTS), a and c are still written.
 *
 * Errors common to all slots: STORE (the medium failed: disk full, read-only, locked; retryable),
 * DATA_LOSS (what is stored cannot be read back), NO_MEMORY. A write that fails with ALREADY_EXISTS
 * or NOT_FOUND has changed nothing, and its transaction may continue. Every write except
 * updates_delete gives NOT_FOUND for a job that does not exist. After any other failed write the
 * caller must call rollback(); until then further writes and commit() fail. FAILED_PRECONDITION,
 * from stores with leases (leases.h): the write was to a job that this process does not lead (any
 * more). From then on its transaction fails with it, too. `err` may be NULL everywhere. `ret_*` are
 * written only on success.
 *
 * The callback of a walk may read from the store, but not start the same walk again, write, or
 * close a transaction. */
#ifndef TALLY_STORAGE_STORE_H
#define TALLY_STORAGE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/buffer.h"
#include "codec/error.h"
#include "codec/record.h"

enum {
    TALLY_JOB_ID_CAPACITY = 33,     /* with NUL */
    TALLY_JOB_NAME_CAPACITY = 129,  /* with NUL */
    TALLY_JOB_REASON_CAPACITY = 385 /* with NUL */
};

/* One job without its large parts (document, state). */
struct tally_store_job {
    int64_t key;                    /* assigned by job_insert, ascending; the cursor of job_list */
    char id[TALLY_JOB_ID_CAPACITY]; /* public, unique */
    char name[TALLY_JOB_NAME_CAPACITY]; /* chosen by the user, not unique */
    char labels[TALLY_LABELS_CAPACITY]; /* in the form of services/base/labels.h */
    char algorithm[32];                 /* for lists */
    enum tally_job_status status;
    char reason[TALLY_JOB_REASON_CAPACITY]; /* why it failed or was cancelled; else "" */
    int64_t created_ms;                     /* Unix time */
    int64_t started_ms;                     /* 0 = not yet */
    int64_t finished_ms;                    /* 0 = not yet */
    int64_t clients;                        /* M */
    int64_t dim;                            /* d */
    int64_t horizon;                        /* T */
    struct tally_progress progress;
    struct tally_curvature curvature;       /* of f */
    char schedule[TALLY_SCHEDULE_CAPACITY]; /* the schedule that its algorithm planned; "" = none */
    uint64_t recovery_bits;                 /* broadcasts and snapshots sent again */
    uint64_t wire_in_bytes, wire_out_bytes;
};

/* Four round numbers stand not for updates but for what a coordinator keeps about a job: what its
 * webhook has not been told yet, with which programs and data it was run, the traffic of each
 * client, and what the clients reported in the last closed round that has metrics. */
enum {
    TALLY_STORE_WEBHOOK_ROUND = -3,
    TALLY_STORE_PROVENANCE_ROUND = -2,
    TALLY_STORE_TRAFFIC_ROUND = -1,
    TALLY_STORE_METRICS_ROUND = 0
};

/* One accepted update of an open round, as it arrived. */
struct tally_store_update {
    int64_t round;
    uint32_t client;
    const uint8_t *body; /* borrowed for the call */
    size_t n_body;
};

/* A model that a job keeps besides its current point, without its numbers. */
struct tally_store_model {
    int64_t slot;        /* TALLY_STORE_BEST_MODEL, or the round after which it was kept */
    int64_t round;       /* that made it; 0 = it is the initial point */
    int64_t iterate;     /* its k */
    double value;        /* of the metric of which it is the best; else NaN */
    uint64_t x_checksum; /* tally_checksum64 of its numbers */
    int64_t n_bytes;     /* of its numbers, float64[dim] */
};
enum { TALLY_STORE_BEST_MODEL = 0 };

/* Called for each row; a status other than TALLY_OK stops the walk and is returned by it. */
typedef enum tally_status tally_store_update_fn(void *context,
                                                const struct tally_store_update *update,
                                                struct tally_error *err);
typedef enum tally_status tally_store_job_fn(void *context, const struct tally_store_job *job,
                                             struct tally_error *err);
typedef enum tally_status tally_store_model_fn(void *context, const struct tally_store_model *model,
                                               struct tally_error *err);
typedef enum tally_status tally_store_round_fn(void *context,
                                               const struct tally_round_record *record,
                                               struct tally_error *err);

struct tally_store;

struct tally_store_ops {
    /* Frees everything; an open transaction is rolled back. NULL is allowed. */
    void (*close)(struct tally_store *store);

    /* Opens a transaction. Precondition: none is open. */
    enum tally_status (*begin)(struct tally_store *store, struct tally_error *err);
    /* Checks the transaction's writes so far: a store on another machine sends writes together, and
     * reports their failures only here, in a read or in commit(), with the status that the write
     * would have had. Other stores do nothing. */
    enum tally_status (*flush)(struct tally_store *store, struct tally_error *err);
    /* Makes the transaction durable and closes it. On failure the transaction is rolled back and
     * closed. But if the connection was lost meanwhile, the whole transaction may have been
     * committed: read it back. */
    enum tally_status (*commit)(struct tally_store *store, struct tally_error *err);
    /* Discards the transaction's writes and closes it; harmless if none is open. */
    void (*rollback)(struct tally_store *store);

    /* Writes (each needs an open transaction). */

    /* Adds a job and its document (JSON text, n bytes). job->key is ignored and a new one returned,
     * unless the store is being filled. `idempotency_key` may be NULL; `request_digest` is kept
     * with it. Errors: ALREADY_EXISTS (id or idempotency key is taken). */
    enum tally_status (*job_insert)(struct tally_store *store, const struct tally_store_job *job,
                                    const char *document, size_t n_document,
                                    const char *idempotency_key, uint64_t request_digest,
                                    int64_t *ret_key, struct tally_error *err);
    /* Overwrites all mutable members of the job `job->key` (not id, name, labels, algorithm,
     * created_ms, clients, dim, horizon). Errors: NOT_FOUND. */
    enum tally_status (*job_update)(struct tally_store *store, const struct tally_store_job *job,
                                    struct tally_error *err);
    /* Deletes a job that has ended, with its document, state, updates, round records and models;
     * its id and idempotency key are free again. Needs no lease. The job's key is not given to
     * another job while the store is open. Errors: NOT_FOUND (no such job, or it has not ended). */
    enum tally_status (*job_delete)(struct tally_store *store, int64_t job_key,
                                    struct tally_error *err);
    /* Overwrites the engine state of a job (opaque bytes), including what was appended to it.
     * Errors: NOT_FOUND. */
    enum tally_status (*state_put)(struct tally_store *store, int64_t job_key, const void *bytes,
                                   size_t n, struct tally_error *err);
    /* Appends the change of `round` to the engine state. The cost depends on n, not on the length
     * of the state. The bytes are in the order of the rounds. Errors: ALREADY_EXISTS for the same
     * (job, round); NOT_FOUND (no such job, or it has no state). */
    enum tally_status (*state_append)(struct tally_store *store, int64_t job_key, int64_t round,
                                      const void *bytes, size_t n, struct tally_error *err);
    /* Adds an update. Errors: ALREADY_EXISTS for the same (job, round, client). */
    enum tally_status (*update_insert)(struct tally_store *store, int64_t job_key,
                                       const struct tally_store_update *update,
                                       struct tally_error *err);
    /* Drops the updates of the rounds from first_round to last_round. */
    enum tally_status (*updates_delete)(struct tally_store *store, int64_t job_key,
                                        int64_t first_round, int64_t last_round,
                                        struct tally_error *err);
    /* Adds a round record. Errors: ALREADY_EXISTS for the same (job, round). */
    enum tally_status (*round_insert)(struct tally_store *store, int64_t job_key,
                                      const struct tally_round_record *record,
                                      struct tally_error *err);
    /* Overwrites the record of record->round. Errors: NOT_FOUND (no such job, or no such record).
     */
    enum tally_status (*round_update)(struct tally_store *store, int64_t job_key,
                                      const struct tally_round_record *record,
                                      struct tally_error *err);
    /* Stores a model, in place of the one in its slot. `bytes` are its numbers, n_bytes of them. */
    enum tally_status (*model_put)(struct tally_store *store, int64_t job_key,
                                   const struct tally_store_model *model, const void *bytes,
                                   struct tally_error *err);

    /* Reads. */

    /* Errors: NOT_FOUND. */
    enum tally_status (*job_get)(struct tally_store *store, const char *id,
                                 struct tally_store_job *ret_job, struct tally_error *err);
    /* Errors: NOT_FOUND if the key was never used. */
    enum tally_status (*job_by_idempotency_key)(struct tally_store *store,
                                                const char *idempotency_key,
                                                struct tally_store_job *ret_job,
                                                uint64_t *ret_request_digest,
                                                struct tally_error *err);
    /* The request that created the job: appends its idempotency key to *out, if it has one
     * (*ret_has_key), and gives the digest that was kept with it. Errors: NOT_FOUND. */
    enum tally_status (*request_get)(struct tally_store *store, int64_t job_key,
                                     struct tally_buffer *out, bool *ret_has_key,
                                     uint64_t *ret_request_digest, struct tally_error *err);
    /* Newest first: jobs with key < before_key (INT64_MAX for all), with one status or any (status
     * < 0), at most `limit`. */
    enum tally_status (*job_list)(struct tally_store *store, int status, int64_t before_key,
                                  int64_t limit, tally_store_job_fn *each, void *context,
                                  struct tally_error *err);
    /* Oldest first: all jobs that are not in a terminal status, for start-up. */
    enum tally_status (*job_list_live)(struct tally_store *store, tally_store_job_fn *each,
                                       void *context, struct tally_error *err);
    /* Appends the document to *out. Errors: NOT_FOUND. */
    enum tally_status (*document_get)(struct tally_store *store, int64_t job_key,
                                      struct tally_buffer *out, struct tally_error *err);
    /* Appends the engine state to *out: what was put, then what was appended to it, by round.
     * Errors: NOT_FOUND if none was put. */
    enum tally_status (*state_get)(struct tally_store *store, int64_t job_key,
                                   struct tally_buffer *out, struct tally_error *err);
    /* All updates of one round, by client. */
    enum tally_status (*update_list)(struct tally_store *store, int64_t job_key, int64_t round,
                                     tally_store_update_fn *each, void *context,
                                     struct tally_error *err);
    /* Round records with round > after_round, ascending, at most `limit`. */
    enum tally_status (*round_list)(struct tally_store *store, int64_t job_key, int64_t after_round,
                                    int64_t limit, tally_store_round_fn *each, void *context,
                                    struct tally_error *err);
    /* All models of a job, by slot. The cost does not depend on their size. */
    enum tally_status (*model_list)(struct tally_store *store, int64_t job_key,
                                    tally_store_model_fn *each, void *context,
                                    struct tally_error *err);
    /* Appends the numbers of the model in a slot to *out. Errors: NOT_FOUND. */
    enum tally_status (*model_get)(struct tally_store *store, int64_t job_key, int64_t slot,
                                   struct tally_buffer *out, struct tally_error *err);
    /* Checks that the medium can be read and written now; for /readyz. */
    enum tally_status (*check)(struct tally_store *store, struct tally_error *err);
    /* NULL = the store has no counters. */
    struct tally_store_counters (*counters)(const struct tally_store *store);
};

struct tally_store {
    const struct tally_store_ops *ops;
    const struct tally_store_leases *leases; /* leases.h; NULL = only one process uses the store */
};

/* Numbers of a store since it was opened, for /metrics. */
struct tally_store_counters {
    uint64_t retried_conflicts; /* transactions that conflicted with another and were run again */
    uint64_t reconnects;
    uint64_t fenced_writes; /* refused because another replica leads the job */
};

struct tally_store_options {
    bool power_loss_safe; /* commit waits for the medium, not only for the operating system */
    /* One snapshot of an existing store, whether or not a coordinator uses it: takes no lock,
     * creates nothing, and every write fails. */
    bool read_only;
    /* Fails with STORE if another process has the store open. With read_only, not a byte of its
     * files changes. For a kind of store that only one process uses. */
    bool exclusive;
    /* To fill an empty store with the jobs of another one, in one transaction (migrate.h). begin()
     * keeps all coordinators out until the transaction ends; it fails with FAILED_PRECONDITION if
     * one uses the store or another process is filling it. job_insert() keeps job->key. After
     * flush() the transaction holds no memory. Only for backends that can_be_filled. */
    bool filling;
};

#endif
