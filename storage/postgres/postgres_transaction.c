/* postgres_transaction: writes are collected, and sent together with their fence.
 *
 * A coordinator and its database are on different machines, so each statement that it waits for
 * costs a round trip, while its only thread serves no requests. libpq's pipeline mode sends several
 * statements at once. A transaction uses it as follows, and takes two round trips however many
 * writes it has:
 *
 *     slot       to the server                                           round trip
 *     begin()    nothing
 *     write      nothing: the write is kept, with the token that its job has now
 *     flush()    BEGIN; FENCE of the jobs that are new here; the writes  first
 *     commit()   the same for what flush() did not send; then, if all
 *                tokens were right, COMMIT                               second
 *
 * FENCE locks the rows of these jobs in job_leases and returns their tokens (leases.h). A token
 * that differs from the one that was kept means that another replica leads the job: the transaction
 * is rolled back. While the rows are locked no token can change.
 *
 * COMMIT is not in the first round trip, because this program judges the writes: a write that has
 * changed no row is NOT_FOUND or ALREADY_EXISTS, which is not an error on the server and leaves the
 * transaction usable. job_insert() is sent at once, because its caller needs the key.
 *
 * Conflicts. All writes are kept until the end. After a deadlock or serialisation failure the
 * transaction is rolled back and all its writes are sent again, except those that were refused.
 * Results that the caller already has must not change: keys of new jobs are sent as parameters
 * (set_key), and a write that succeeded before and is refused now fails the transaction. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "storage/allocate.h"
#include "storage/postgres/postgres_internal.h"

/* Ten conflicts of the same transaction are not a coincidence. */
enum { MAX_RUNS = 10, FIRST_PAUSE_MS = 1, MAX_PAUSE_MS = 64 };

static void pause_before(int run)
{
    int64_t ms = FIRST_PAUSE_MS;
    for (int i = 2; i < run && ms < MAX_PAUSE_MS; i++) {
        ms *= 2;
    }
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

static void forget_writes(struct tally_pg_transaction *transaction)
{
    for (size_t i = 0; i < transaction->n_writes; i++) {
        tally_pg_call_fini(&transaction->writes[i].call);
    }
    transaction->n_writes = 0;
}

/* Forgets what was collected. */
static void empty(struct tally_pg_transaction *transaction)
{
    forget_writes(transaction);
    free(transaction->writes);
    tally_lease_set_fini(&transaction->fenced);
    tally_lease_set_fini(&transaction->inserted);
    *transaction = (struct tally_pg_transaction){0};
}

/* Rolls back the server's transaction, if there is one. */
static void undo(struct tally_postgres *pg)
{
    struct tally_pg_transaction *transaction = &pg->transaction;
    if (transaction->is_begun) {
        struct tally_pg_call call = tally_pg_call(TALLY_PG_ROLLBACK);
        if (tally_pg_run(pg, &call, NULL, NULL) != TALLY_OK) {
            tally_pg_drop(pg); /* the transaction must not exist when the next one begins */
        }
    }
    transaction->is_begun = false;
    transaction->fenced.n = 0;
}

enum tally_status tally_pg_begin(struct tally_store *store, struct tally_error *err)
{
    struct tally_postgres *pg = postgres_of(store);
    assert(!pg->transaction.is_open);
    enum tally_status status = tally_pg_require_connection(pg, err);
    if (status == TALLY_OK) {
        empty(&pg->transaction);
        pg->transaction.is_open = true;
    }
    if (status == TALLY_OK && pg->filling) {
        status = tally_pg_begin_filling(pg, err);
        if (status != TALLY_OK) {
            tally_pg_rollback(store);
        }
    }
    return status;
}

void tally_pg_rollback(struct tally_store *store)
{
    struct tally_postgres *pg = postgres_of(store);
    if (pg->transaction.is_open) {
        undo(pg);
    }
    empty(&pg->transaction);
}

/* Every write, flush and commit calls this. */
static enum tally_status require_transaction(struct tally_postgres *pg, struct tally_error *err)
{
    assert(pg->transaction.is_open);
    if (pg->read_only) {
        return tally_fail(err, TALLY_STORE, NULL, "database \"%s\" is open for reading only",
                          pg->label);
    }
    /* A refusal by the fence lasts until the transaction ends: it may have come with a read, and
     * callers do not take a failed read for a failed write. */
    if (pg->transaction.is_fenced) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, NULL,
                          "a job of this transaction is led by another replica; roll back");
    }
    return pg->transaction.is_broken
               ? tally_fail(
                     err, TALLY_STORE, NULL,
                     "database \"%s\": an earlier write of this transaction failed; roll back",
                     pg->label)
               : TALLY_OK;
}

/* The lease token that the fence must find for a write collected now. */
static int64_t token_now(const struct tally_postgres *pg, int64_t job_key)
{
    const struct tally_lease *lease = tally_lease_find(&pg->transaction.inserted, job_key);
    if (lease == NULL) {
        lease = tally_lease_find(&pg->held, job_key);
    }
    return lease != NULL ? lease->token : TALLY_NO_TOKEN;
}

/* Takes ownership of the call. */
static enum tally_status append(struct tally_postgres *pg, struct tally_pg_call *call,
                                int64_t job_key, struct tally_pg_write **ret_write,
                                struct tally_error *err)
{
    struct tally_pg_transaction *transaction = &pg->transaction;
    enum tally_status status = require_transaction(pg, err);
    if (status == TALLY_OK && call->status != TALLY_OK) {
        status = tally_fail(err, call->status, NULL, "cannot buffer a write of the transaction");
        transaction->is_broken = true;
    }
    struct tally_pg_write *writes =
        status == TALLY_OK ? tally_store_grow(transaction->writes, &transaction->capacity,
                                              transaction->n_writes + 1, sizeof *writes)
                           : NULL;
    if (status == TALLY_OK && writes == NULL) {
        status = tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a transaction");
        transaction->is_broken = true;
    }
    if (status != TALLY_OK) {
        tally_pg_call_fini(call);
        return status;
    }
    transaction->writes = writes;
    *ret_write = &transaction->writes[transaction->n_writes++];
    **ret_write =
        (struct tally_pg_write){.call = *call, .job_key = job_key, .token = token_now(pg, job_key)};
    return TALLY_OK;
}

enum tally_status tally_pg_transaction_add(struct tally_postgres *pg, struct tally_pg_call *call,
                                           int64_t job_key, struct tally_error *err)
{
    struct tally_pg_write *write = NULL;
    return append(pg, call, job_key, &write, err);
}

static const char *name_of_row(enum tally_pg_sql which)
{
    return which == TALLY_PG_STATE_APPEND   ? "change of its state"
           : which == TALLY_PG_ROUND_INSERT ? "round"
                                            : "update";
}

static enum tally_status fail_write(struct tally_postgres *pg, const struct tally_pg_write *write,
                                    enum tally_status status, struct tally_error *err)
{
    if (status == TALLY_NOT_FOUND) {
        return tally_fail(err, status, NULL,
                          write->call.which == TALLY_PG_STATE_APPEND ? "no state for job key %lld"
                          : write->call.which == TALLY_PG_ROUND_UPDATE
                              ? "no such round of job key %lld"
                              : "no job with key %lld",
                          (long long)write->job_key);
    }
    if (status == TALLY_FAILED_PRECONDITION) {
        return tally_fail(err, status, NULL, "job with key %lld is led by another replica",
                          (long long)write->job_key);
    }
    if (write->call.which == TALLY_PG_JOB_INSERT) {
        return tally_fail(err, status, NULL,
                          "database \"%s\": id or idempotency key of a job is taken", pg->label);
    }
    return tally_fail(err, status, NULL, "database \"%s\": job with key %lld has this %s already",
                      pg->label, (long long)write->job_key, name_of_row(write->call.which));
}

/* One run of the pending writes. */
struct run {
    struct tally_postgres *pg;
    size_t first;                        /* of the writes to run */
    bool has_begun;                      /* BEGIN is among the statements */
    bool has_fence;                      /* FENCE too */
    size_t next_write;                   /* whose result comes next */
    enum tally_status status;            /* of processing the results */
    const struct tally_pg_write *failed; /* the first with an expected failure, or fenced */
    enum tally_status failure;           /* its status */
};

static void take_fence(struct run *run, const PGresult *result)
{
    struct tally_postgres *pg = run->pg;
    for (int i = 0; i < PQntuples(result) && run->status == TALLY_OK; i++) {
        struct tally_pg_row row = tally_pg_row(pg, result, i, NULL);
        const int64_t key = tally_pg_take_int64(&row);
        const int64_t token = tally_pg_take_int64(&row);
        const bool has_no_leader = tally_pg_take_bool(&row);
        run->status = row.status;
        if (run->status == TALLY_OK) {
            run->status =
                tally_lease_put(&pg->transaction.fenced, key,
                                has_no_leader && pg->number == 0 ? TALLY_NO_TOKEN : token);
        }
    }
}

static void note_failure(struct run *run, struct tally_pg_write *write, enum tally_status status)
{
    if (run->failed == NULL) {
        run->failed = write;
        run->failure = status;
    }
}

/* OK, or why an append, which is to a state and not only to a job, did not add its row. */
static enum tally_status judge_append(struct run *run, const PGresult *result)
{
    if (PQntuples(result) == 0) {
        return TALLY_NOT_FOUND;
    }
    struct tally_pg_row row = tally_pg_row(run->pg, result, 0, NULL);
    const bool is_new = tally_pg_take_bool(&row);
    run->status = run->status == TALLY_OK ? row.status : run->status;
    return is_new ? TALLY_OK : TALLY_ALREADY_EXISTS;
}

/* OK, or why the write, whose job no other replica leads, has changed nothing. */
static enum tally_status judge_rows(struct run *run, enum tally_pg_sql which, bool has_job,
                                    const PGresult *result)
{
    if (which == TALLY_PG_STATE_APPEND) {
        return judge_append(run, result);
    }
    if (which == TALLY_PG_UPDATES_DELETE ||
        strtoll(PQcmdTuples((PGresult *)result), NULL, 10) > 0) {
        return TALLY_OK;
    }
    if (which == TALLY_PG_JOB_DELETE || /* the job does not exist, or has not ended */
        which == TALLY_PG_ROUND_UPDATE) {
        return TALLY_NOT_FOUND;
    }
    return has_job || which == TALLY_PG_JOB_INSERT ? TALLY_ALREADY_EXISTS : TALLY_NOT_FOUND;
}

/* The result of a write to another replica's job does not count: the transaction is not
 * committed. */
static void judge_write(struct run *run, struct tally_pg_write *write, const PGresult *result)
{
    const struct tally_lease *lease =
        tally_lease_find(&run->pg->transaction.fenced, write->job_key);
    bool is_insert = write->call.which == TALLY_PG_JOB_INSERT;
    write->state = TALLY_PG_WRITE_DONE;
    write->was_sent = true;
    if (is_insert && PQntuples(result) == 1 && run->status == TALLY_OK) {
        struct tally_pg_row row = tally_pg_row(run->pg, result, 0, NULL);
        write->job_key = tally_pg_take_int64(&row);
        run->status = row.status;
    }
    /* The statement deletes only an ended job, which has no leader. */
    const bool needs_token = !is_insert && write->call.which != TALLY_PG_JOB_DELETE;
    if (needs_token && lease != NULL && lease->token != write->token) {
        run->pg->counters.fenced_writes++;
        tally_lease_drop(&run->pg->held, write->job_key);
        if (run->failure != TALLY_FAILED_PRECONDITION) {
            run->failed = write;
            run->failure = TALLY_FAILED_PRECONDITION;
        }
        return;
    }
    enum tally_status status = judge_rows(run, write->call.which, lease != NULL, result);
    if (status != TALLY_OK) {
        write->state = TALLY_PG_WRITE_REFUSED;
        note_failure(run, write, status);
    }
}

/* Whether a write belongs to the run: writes from `first` on and, in a rerun, those sent before. */
static bool is_to_run(const struct run *run, size_t i)
{
    const struct tally_pg_write *write = &run->pg->transaction.writes[i];
    return write->state == TALLY_PG_WRITE_PENDING && (i >= run->first || write->was_sent);
}

static void take_result(void *context, int i, PGresult **result)
{
    struct run *run = context;
    struct tally_pg_transaction *transaction = &run->pg->transaction;
    int n_before = (run->has_begun ? 1 : 0) + (run->has_fence ? 1 : 0);
    if (i >= n_before) {
        while (!is_to_run(run, run->next_write)) {
            run->next_write++;
        }
        judge_write(run, &transaction->writes[run->next_write++], *result);
    } else if (i == n_before - 1 && run->has_fence) {
        take_fence(run, *result);
    }
}

static bool has_work(const struct run *run)
{
    for (size_t i = 0; i < run->pg->transaction.n_writes; i++) {
        if (is_to_run(run, i)) {
            return true;
        }
    }
    return false;
}

/* Queues the fence for the jobs with pending writes that are not fenced yet. */
static enum tally_status queue_fence(struct run *run)
{
    struct tally_postgres *pg = run->pg;
    struct tally_lease_set wanted = {0};
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; i < pg->transaction.n_writes && status == TALLY_OK; i++) {
        const struct tally_pg_write *write = &pg->transaction.writes[i];
        if (is_to_run(run, i) && write->call.which != TALLY_PG_JOB_INSERT && !pg->filling &&
            tally_lease_find(&pg->transaction.fenced, write->job_key) == NULL) {
            status = tally_lease_put(&wanted, write->job_key, 0);
        }
    }
    if (status == TALLY_OK && wanted.n > 0) {
        struct tally_pg_call call = tally_pg_call(TALLY_PG_FENCE);
        tally_pg_bind_keys(&call, &wanted);
        status = call.status;
        if (status == TALLY_OK) {
            tally_pg_queue(pg, &call);
            run->has_fence = true;
        }
        tally_pg_call_fini(&call);
    }
    tally_lease_set_fini(&wanted);
    return status;
}

/* Sends the writes of the run, and what must come before them. */
static enum tally_status run_once(struct run *run, struct tally_error *err)
{
    struct tally_postgres *pg = run->pg;
    struct tally_pg_transaction *transaction = &pg->transaction;
    pg->sqlstate[0] = '\0';
    if (!transaction->is_begun) {
        struct tally_pg_call begin = tally_pg_call(TALLY_PG_BEGIN);
        tally_pg_queue(pg, &begin);
        transaction->is_begun = run->has_begun = true;
    }
    enum tally_status status = queue_fence(run);
    for (size_t i = 0; i < transaction->n_writes && status == TALLY_OK; i++) {
        if (is_to_run(run, i)) {
            tally_pg_queue(pg, &transaction->writes[i].call);
        }
    }
    if (status != TALLY_OK) {
        tally_pg_drop(pg); /* with what is queued */
        return tally_fail(err, status, NULL, "no memory for a transaction");
    }
    status = tally_pg_exchange(pg, take_result, run, err);
    if (status == TALLY_OK && run->status != TALLY_OK) {
        status =
            tally_fail(err, run->status, NULL, "database \"%s\": cannot read a lease", pg->label);
    }
    return status;
}

/* Marks everything that was done as pending again, because the server has forgotten it. */
static void start_again(struct tally_pg_transaction *transaction)
{
    for (size_t i = 0; i < transaction->n_writes; i++) {
        if (transaction->writes[i].state == TALLY_PG_WRITE_DONE) {
            transaction->writes[i].state = TALLY_PG_WRITE_PENDING;
        }
    }
}

/* Whether a write that was reported as successful is refused in the rerun. */
static bool broke_a_promise(const struct tally_pg_transaction *transaction)
{
    for (size_t i = 0; i < transaction->n_writes; i++) {
        if (transaction->writes[i].is_told &&
            transaction->writes[i].state == TALLY_PG_WRITE_REFUSED) {
            return true;
        }
    }
    return false;
}

static void tell(struct tally_pg_transaction *transaction)
{
    for (size_t i = 0; i < transaction->n_writes; i++) {
        if (transaction->writes[i].state == TALLY_PG_WRITE_DONE) {
            transaction->writes[i].is_told = true;
        }
    }
}

/* Returns the status of what was run, and marks the transaction accordingly. */
static enum tally_status conclude(const struct run *run, enum tally_status status,
                                  struct tally_error *err)
{
    struct tally_pg_transaction *transaction = &run->pg->transaction;
    if (status != TALLY_OK) {
        transaction->is_broken = true;
        return status;
    }
    if (broke_a_promise(transaction)) {
        transaction->is_broken = true;
        return tally_fail(err, TALLY_STORE, NULL,
                          "database \"%s\": another process wrote the same meanwhile",
                          run->pg->label);
    }
    tell(transaction);
    if (run->failed == NULL) {
        if (run->pg->filling) {
            forget_writes(transaction);
        }
        return TALLY_OK;
    }
    transaction->is_broken = transaction->is_fenced = run->failure == TALLY_FAILED_PRECONDITION;
    return fail_write(run->pg, run->failed, run->failure, err);
}

/* Runs the pending writes from `first` on and, after a conflict, all of them from the start. */
static enum tally_status run_pending(struct tally_postgres *pg, size_t first,
                                     struct tally_error *err)
{
    for (int n_runs = 1;; n_runs++) {
        struct tally_error cause = TALLY_ERROR_INIT;
        struct run run = {.pg = pg, .first = first};
        enum tally_status status = has_work(&run) ? run_once(&run, &cause) : TALLY_OK;
        if (status == TALLY_OK || !tally_pg_met_conflict(pg) || n_runs == MAX_RUNS ||
            pg->connection == NULL) {
            if (status != TALLY_OK) {
                tally_fail(err, status, NULL, "%s", cause.message);
            }
            return conclude(&run, status, err);
        }
        undo(pg);
        pg->counters.retried_conflicts++;
        pause_before(n_runs + 1);
        start_again(&pg->transaction);
        if (pg->connection == NULL) {
            return conclude(&run, tally_fail(err, status, NULL, "%s", cause.message), err);
        }
    }
}

enum tally_status tally_pg_flush(struct tally_store *store, struct tally_error *err)
{
    struct tally_postgres *pg = postgres_of(store);
    if (pg->read_only) {
        return TALLY_OK; /* nothing can have been collected */
    }
    enum tally_status status = require_transaction(pg, err);
    return status == TALLY_OK ? run_pending(pg, 0, err) : status;
}

/* Makes the key from the server a parameter, in case the transaction is run again. */
static enum tally_status set_key(struct tally_pg_write *write)
{
    struct tally_pg_call call = tally_pg_call(TALLY_PG_JOB_INSERT);
    const size_t n_null = sizeof(int32_t); /* the first parameter so far */
    tally_pg_bind_int64(&call, write->job_key);
    if (call.status == TALLY_OK) {
        call.status = tally_buffer_append(&call.parameters, write->call.parameters.data + n_null,
                                          write->call.parameters.size - n_null);
    }
    if (call.status != TALLY_OK) {
        tally_pg_call_fini(&call);
        return TALLY_NO_MEMORY;
    }
    call.n_parameters = write->call.n_parameters;
    tally_pg_call_fini(&write->call);
    write->call = call;
    return TALLY_OK;
}

enum tally_status tally_pg_transaction_insert_job(struct tally_postgres *pg,
                                                  struct tally_pg_call *call, int64_t *ret_key,
                                                  struct tally_error *err)
{
    struct tally_pg_transaction *transaction = &pg->transaction;
    struct tally_pg_write *write = NULL;
    enum tally_status status = append(pg, call, 0, &write, err);
    if (status == TALLY_OK) {
        status = run_pending(pg, transaction->n_writes - 1, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    status = set_key(write);
    if (status == TALLY_OK) {
        status = tally_lease_put(&transaction->inserted, write->job_key,
                                 pg->number == 0 ? TALLY_NO_TOKEN : 1);
    }
    if (status != TALLY_OK) {
        transaction->is_broken = true;
        return tally_fail(err, status, NULL, "no memory for a transaction");
    }
    *ret_key = write->job_key;
    return TALLY_OK;
}

static void note_tag(void *context, int i, PGresult **result)
{
    bool *is_committed = context;
    (void)i;
    *is_committed = strcmp(PQcmdStatus(*result), "COMMIT") == 0;
}

/* Sends COMMIT, to which the server answers ROLLBACK if its transaction had failed before. */
static enum tally_status send_commit(struct tally_postgres *pg, struct tally_error *err)
{
    struct tally_pg_call call = tally_pg_call(TALLY_PG_COMMIT);
    bool is_committed = false;
    pg->sqlstate[0] = '\0';
    tally_pg_queue(pg, &call);
    enum tally_status status = tally_pg_exchange(pg, note_tag, &is_committed, err);
    pg->transaction.is_begun = false;
    return status == TALLY_OK && !is_committed
               ? tally_fail(err, TALLY_STORE, NULL, "database \"%s\": rolled back, not committed",
                            pg->label)
               : status;
}

/* Commits what was run; a conflict found then is handled like one found before. */
static enum tally_status commit(struct tally_postgres *pg, struct tally_error *err)
{
    for (int n_runs = 1;; n_runs++) {
        enum tally_status status = run_pending(pg, 0, err);
        if (status != TALLY_OK || !pg->transaction.is_begun) {
            return status;
        }
        struct tally_error cause = TALLY_ERROR_INIT;
        status = send_commit(pg, &cause);
        if (status == TALLY_OK || !tally_pg_met_conflict(pg) || n_runs == MAX_RUNS) {
            return status == TALLY_OK ? status : tally_fail(err, status, NULL, "%s", cause.message);
        }
        pg->counters.retried_conflicts++;
        pg->transaction.fenced.n = 0;
        pause_before(n_runs + 1);
        start_again(&pg->transaction);
    }
}

enum tally_status tally_pg_commit(struct tally_store *store, struct tally_error *err)
{
    struct tally_postgres *pg = postgres_of(store);
    enum tally_status status = require_transaction(pg, err);
    if (status == TALLY_OK) {
        status = commit(pg, err);
    }
    for (size_t i = 0; status == TALLY_OK && pg->number != 0 && i < pg->transaction.inserted.n;
         i++) {
        /* If there is no memory, the next take() returns the job. */
        (void)tally_lease_put(&pg->held, pg->transaction.inserted.leases[i].job_key,
                              pg->transaction.inserted.leases[i].token);
    }
    tally_pg_rollback(store);
    return status;
}
