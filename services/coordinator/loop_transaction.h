/* loop_transaction: what a step writes to the store, committed as one (group commit).
 *
 *                    begin_update                 begin_write
 *        NONE ------------------> DEFERRABLE -----------------> REQUIRED
 *         | the store refuses               |                    |
 *         v                                 | a write fails      |
 *      REFUSED   until the step ends        v                    v
 *                                    FAILED (the store) or FENCED (another replica leads the job)
 *
 * begin_write makes both moves. A transaction ends in NONE: committed if it is DEFERRABLE or
 * REQUIRED, rolled back if it is FAILED or FENCED. While it is DEFERRABLE it holds nothing but
 * updates whose responses wait for the next task anyway; the turn may leave it open for a while. */
#ifndef TALLY_SERVICES_COORDINATOR_LOOP_TRANSACTION_H
#define TALLY_SERVICES_COORDINATOR_LOOP_TRANSACTION_H

#include <stdbool.h>
#include <stdint.h>

#include "codec/error.h"
#include "services/coordinator/call_counts.h"
#include "services/coordinator/loop_pending.h"
#include "storage/store.h"

enum transaction_state {
    TRANSACTION_NONE,
    TRANSACTION_REFUSED, /* begin failed in this step; another try would wait again */
    TRANSACTION_DEFERRABLE,
    TRANSACTION_REQUIRED,
    TRANSACTION_FAILED,
    TRANSACTION_FENCED,
    N_TRANSACTION_STATES
};

enum store_operation { STORE_BEGIN, STORE_WRITE, STORE_COMMIT, STORE_READ, N_STORE_OPERATIONS };

struct round_counts {
    uint64_t closed, dropped_answers;
};

struct transaction_counts {
    struct round_counts rounds; /* committed */
    struct histogram commit_seconds, commit_requests;
    uint64_t requests; /* those whose responses depend on the open transaction */
    uint64_t store_errors[N_STORE_OPERATIONS];
};

struct transaction {
    struct tally_store *store;
    enum transaction_state state;
    bool was_fenced;                /* the step's last failure was a fence, not a store error */
    uint64_t number;                /* of the open transaction, or of the next one; from 1 */
    struct pending_updates pending; /* accepted, but not given to the store yet */
    struct round_counts uncommitted;
    struct tally_error error;  /* of the last failed commit or write; OK = the store takes writes */
    struct tally_error damage; /* the first DATA_LOSS since the start; OK = none */
    int64_t failed_ms;         /* Unix time of the failure since which `error` is not OK */
    void (*on_recovered)(void *context); /* called when `error` is OK again */
    void *context;
    struct transaction_counts counts;
};

struct transaction *transaction_new(struct tally_store *store);
/* NULL is allowed. */
void transaction_free(struct transaction *transaction);

static inline bool transaction_is_open(const struct transaction *transaction)
{
    return transaction->state >= TRANSACTION_DEFERRABLE;
}

/* Opens the transaction for an update, if it is not open. Errors: STORE; UNAVAILABLE (another
 * replica leads a job that was to be written). */
enum tally_status transaction_begin_update(struct transaction *transaction,
                                           struct tally_error *err);
/* As transaction_begin_update(), for all other writes: the transaction will be committed in this
 * step. */
enum tally_status transaction_begin_write(struct transaction *transaction, struct tally_error *err);
/* Notes that the open transaction holds more than pending updates. */
void transaction_require(struct transaction *transaction);
/* If `status` is not OK, marks the open transaction as one to roll back. Returns `status`. */
enum tally_status transaction_check(struct transaction *transaction, enum tally_status status,
                                    const struct tally_error *err);
/* Fails like a write that is not stored: STORE or UNAVAILABLE. */
enum tally_status transaction_fail(const struct transaction *transaction, struct tally_error *err);

/* Ends the open transaction. Returns false if what it wrote is lost. */
bool transaction_commit(struct transaction *transaction);
/* Ends the step: the next one may try to begin again. */
void transaction_end_step(struct transaction *transaction);

/* Records the result of the last attempt to write: OK, or why the store failed. */
void transaction_note_store(struct transaction *transaction, const struct tally_error *result);
/* Remembers a DATA_LOSS for /readyz; ignores other errors. */
void transaction_note_damage(struct transaction *transaction, const struct tally_error *err);

#endif
