/* digest: the number of rows in each table of a store, and a checksum over them, job by job.
 *
 * All rows are read through the slots of store.h and summed here, value by value. So two stores of
 * different kinds have equal digests if and only if they hold the same (except for collisions of a
 * checksum). A value that stores may keep in more than one form is summed in one form: every NaN is
 * the same NaN; the sign of a zero counts. */
#ifndef TALLY_STORAGE_DIGEST_H
#define TALLY_STORAGE_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#include "storage/backend.h"
#include "storage/store.h"

enum tally_table {
    TALLY_TABLE_JOBS, /* including idempotency key and request digest */
    TALLY_TABLE_DOCUMENTS,
    TALLY_TABLE_STATES,
    TALLY_TABLE_UPDATES, /* those of tally_store_walk_updates() */
    TALLY_TABLE_ROUNDS,
    TALLY_TABLE_MODELS, /* with their points */
    TALLY_N_TABLES
};

extern const char *const TALLY_TABLE_NAMES[TALLY_N_TABLES]; /* "jobs", "job_documents", ... */

struct tally_table_digest {
    int64_t n_rows;
    uint64_t checksum;
};

struct tally_job_digest {
    int64_t key;
    char id[TALLY_JOB_ID_CAPACITY];
    bool is_live;
    struct tally_table_digest tables[TALLY_N_TABLES];
    int64_t n_client_rows; /* of TALLY_TABLE_UPDATES: those that are no updates (store.h) */
};

/* All zeros = the digest of an empty store. */
struct tally_store_digest {
    struct tally_job_digest *jobs; /* newest first; heap */
    size_t n_jobs, capacity;
};

/* The updates of a job that are read after a start: provenance, traffic, metrics and those of the
 * open round. The store may still hold others, of closed rounds. Errors: those of update_list and
 * `each`. */
enum tally_status tally_store_walk_updates(struct tally_store *store,
                                           const struct tally_store_job *job,
                                           tally_store_update_fn *each, void *context,
                                           struct tally_error *err);

/* Reads a whole store. `progress` (may be NULL) gets `what` and the number of rows read, of
 * `n_rows` (0 = not known). If rows are written meanwhile, the result matches no single instant.
 * Errors: NO_MEMORY, CANCELLED, those of the reads. Even then, the caller must call fini. */
enum tally_status tally_store_digest_read(struct tally_store *store,
                                          const struct tally_store_progress *progress,
                                          const char *what, int64_t n_rows,
                                          struct tally_store_digest *ret_digest,
                                          struct tally_error *err);
void tally_store_digest_fini(struct tally_store_digest *digest);

/* The digest of one table, over all jobs. */
struct tally_table_digest tally_store_digest_table(const struct tally_store_digest *digest,
                                                   enum tally_table table);
int64_t tally_store_digest_rows(const struct tally_store_digest *digest);

/* OK if they are equal; else DATA_LOSS, and the message names the first job and table that differ,
 * and the stores as `name_a` and `name_b`. */
enum tally_status tally_store_digest_compare(const struct tally_store_digest *a, const char *name_a,
                                             const struct tally_store_digest *b, const char *name_b,
                                             struct tally_error *err);

#endif
