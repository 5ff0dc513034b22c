#include "services/coordinator/loop_transaction.h"
#include "services/base/alloc.h"

#include <assert.h>
#include <stdlib.h>

#include "services/base/log.h"
#include "services/base/time.h"
#include "services/coordinator/call_counts.h"

/* Requests in one commit. */
static const double REQUESTS[] = {0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
enum { N_REQUESTS = sizeof REQUESTS / sizeof REQUESTS[0] };
_Static_assert(sizeof REQUESTS / sizeof REQUESTS[0] <= HISTOGRAM_MAX_BOUNDS, "buckets of commits");

#define TO(state) (1U << TRANSACTION_##state)

/* The states that may follow each state. */
static const unsigned MOVES[N_TRANSACTION_STATES] = {
    [TRANSACTION_NONE] = TO(DEFERRABLE) | TO(REFUSED),
    [TRANSACTION_REFUSED] = TO(NONE),
    [TRANSACTION_DEFERRABLE] = TO(NONE) | TO(REQUIRED) | TO(FAILED) | TO(FENCED),
    [TRANSACTION_REQUIRED] = TO(NONE) | TO(FAILED) | TO(FENCED),
    [TRANSACTION_FAILED] = TO(NONE),
    [TRANSACTION_FENCED] = TO(NONE),
};

static void check_invariant(const struct transaction *transaction)
{
    const bool is_open = transaction_is_open(transaction);
    assert(is_open || transaction->pending.n == 0);
    assert(is_open || transaction->counts.requests == 0);
    assert(is_open || transaction->uncommitted.closed == 0);
    assert(transaction->state != TRANSACTION_FENCED || transaction->was_fenced);
    assert(transaction->state != TRANSACTION_FAILED || !transaction->was_fenced);
}

static void move(struct transaction *transaction, enum transaction_state to)
{
    assert((MOVES[transaction->state] >> to & 1U) != 0);
    transaction->state = to;
    check_invariant(transaction);
}

struct transaction *transaction_new(struct tally_store *store)
{
    struct transaction *transaction = tally_xcalloc(1, sizeof *transaction);
    transaction->store = store;
    transaction->number = 1;
    transaction->counts.commit_seconds.bounds = CALL_SECONDS;
    transaction->counts.commit_seconds.n_bounds = N_CALL_SECONDS;
    transaction->counts.commit_requests.bounds = REQUESTS;
    transaction->counts.commit_requests.n_bounds = N_REQUESTS;
    return transaction;
}

void transaction_free(struct transaction *transaction)
{
    if (transaction != NULL) {
        pending_fini(&transaction->pending);
        free(transaction);
    }
}

enum tally_status transaction_fail(const struct transaction *transaction, struct tally_error *err)
{
    return transaction->was_fenced
               ? tally_fail(err, TALLY_UNAVAILABLE, NULL,
                            "another coordinator leads a job of this write: try again")
               : tally_fail(err, TALLY_STORE, NULL, "the store cannot be written: %s",
                            transaction->error.message);
}

enum tally_status transaction_begin_update(struct transaction *transaction, struct tally_error *err)
{
    switch (transaction->state) {
    case TRANSACTION_DEFERRABLE:
    case TRANSACTION_REQUIRED:
        return TALLY_OK;
    case TRANSACTION_NONE:
        break;
    case TRANSACTION_REFUSED:
    case TRANSACTION_FAILED:
    case TRANSACTION_FENCED:
    case N_TRANSACTION_STATES:
        return transaction_fail(transaction, err);
    }
    struct tally_error why = TALLY_ERROR_INIT;
    const enum tally_status status = transaction->store->ops->begin(transaction->store, &why);
    move(transaction, status == TALLY_OK ? TRANSACTION_DEFERRABLE : TRANSACTION_REFUSED);
    if (status != TALLY_OK) {
        transaction->counts.store_errors[STORE_BEGIN]++;
        transaction_note_store(transaction, &why);
        tally_fail(err, status, why.field, "%s", why.message);
    }
    return status;
}

void transaction_require(struct transaction *transaction)
{
    if (transaction->state == TRANSACTION_DEFERRABLE) {
        move(transaction, TRANSACTION_REQUIRED);
    }
}

enum tally_status transaction_begin_write(struct transaction *transaction, struct tally_error *err)
{
    const enum tally_status status = transaction_begin_update(transaction, err);
    transaction_require(transaction);
    return status;
}

enum tally_status transaction_check(struct transaction *transaction, enum tally_status status,
                                    const struct tally_error *err)
{
    const bool can_fail =
        transaction->state == TRANSACTION_DEFERRABLE || transaction->state == TRANSACTION_REQUIRED;
    if (status == TALLY_OK || !can_fail) {
        return status;
    }
    transaction->was_fenced = status == TALLY_FAILED_PRECONDITION;
    move(transaction, transaction->was_fenced ? TRANSACTION_FENCED : TRANSACTION_FAILED);
    if (!transaction->was_fenced) {
        struct tally_error why = TALLY_ERROR_INIT;
        transaction->counts.store_errors[STORE_WRITE]++;
        tally_fail(&why, status, NULL, "%s",
                   err != NULL ? err->message : tally_status_info(status)->title);
        transaction_note_store(transaction, &why);
        transaction_note_damage(transaction, &why);
    }
    return status;
}

/* Gives the store the updates that no closed round has made unnecessary. */
static void store_pending(struct transaction *transaction)
{
    if (transaction->state == TRANSACTION_DEFERRABLE ||
        transaction->state == TRANSACTION_REQUIRED) {
        struct tally_error err = TALLY_ERROR_INIT;
        const enum tally_status status =
            pending_store(&transaction->pending, transaction->store, &err);
        transaction_check(transaction, status, &err);
    }
    pending_clear(&transaction->pending);
}

static bool commit_store(struct transaction *transaction)
{
    struct tally_error err = TALLY_ERROR_INIT;
    struct transaction_counts *counts = &transaction->counts;
    const int64_t began_ns = tally_monotonic_ns();
    const bool ok = transaction->store->ops->commit(transaction->store, &err) == TALLY_OK;
    transaction->was_fenced = err.status == TALLY_FAILED_PRECONDITION;
    if (!transaction->was_fenced) {
        transaction_note_store(transaction, &err); /* OK again, or the reason of this failure */
    }
    transaction_note_damage(transaction, &err);
    histogram_observe(&counts->commit_seconds, (double)(tally_monotonic_ns() - began_ns) / 1e9);
    histogram_observe(&counts->commit_requests, (double)counts->requests);
    counts->store_errors[STORE_COMMIT] += !ok && !transaction->was_fenced;
    return ok;
}

bool transaction_commit(struct transaction *transaction)
{
    struct transaction_counts *counts = &transaction->counts;
    bool ok = false;
    store_pending(transaction);
    if (transaction->state == TRANSACTION_FAILED || transaction->state == TRANSACTION_FENCED) {
        transaction->store->ops->rollback(transaction->store);
    } else {
        ok = commit_store(transaction);
    }
    counts->requests = 0;
    counts->rounds.closed += ok ? transaction->uncommitted.closed : 0;
    counts->rounds.dropped_answers += ok ? transaction->uncommitted.dropped_answers : 0;
    transaction->uncommitted = (struct round_counts){0};
    transaction->number++;
    move(transaction, TRANSACTION_NONE);
    return ok;
}

void transaction_end_step(struct transaction *transaction)
{
    if (transaction->state == TRANSACTION_REFUSED) {
        move(transaction, TRANSACTION_NONE);
    }
    transaction->was_fenced = transaction->state == TRANSACTION_FENCED;
}

void transaction_note_store(struct transaction *transaction, const struct tally_error *result)
{
    const bool was_ok = transaction->error.status == TALLY_OK;
    if (was_ok && result->status != TALLY_OK) {
        transaction->failed_ms = tally_realtime_ms();
    }
    transaction->error = *result;
    if (!was_ok && result->status == TALLY_OK && transaction->on_recovered != NULL) {
        transaction->on_recovered(transaction->context);
    }
}

void transaction_note_damage(struct transaction *transaction, const struct tally_error *err)
{
    if (err->status == TALLY_DATA_LOSS && transaction->damage.status == TALLY_OK) {
        transaction->damage = *err;
        tally_log(TALLY_LOG_ERROR, tally_log_event("stored data is damaged"),
                  tally_log_problem(err));
    }
}
