/* postgres_leases: replicas, and which of them leads which job.
 *
 * job_leases has one row per job: its leader, and a token that grows with each change. This process
 * holds the tokens that it received. A job that it leads without holding it (the job was handed
 * over, or the result of take() was lost) is left to the next take(). Only the store's clock
 * counts. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "storage/postgres/postgres_internal.h"

/* A transaction on leases, one round trip: calls[1] and so on between BEGIN and COMMIT. */
enum { MAX_CALLS = 8 };

struct batch {
    struct tally_pg_call calls[MAX_CALLS];
    int n_calls;
    PGresult *results[MAX_CALLS];
};

static struct tally_pg_call *add_call(struct batch *batch, enum tally_pg_sql which)
{
    assert(batch->n_calls < MAX_CALLS);
    struct tally_pg_call *call = &batch->calls[batch->n_calls++];
    *call = tally_pg_call(which);
    return call;
}

static void keep_results(void *context, int i, PGresult **result)
{
    struct batch *batch = context;
    if (i > 0 && i <= batch->n_calls) {
        PQclear(batch->results[i - 1]);
        batch->results[i - 1] = *result;
        *result = NULL;
    }
}

static void batch_fini(struct batch *batch)
{
    for (int i = 0; i < MAX_CALLS; i++) {
        tally_pg_call_fini(&batch->calls[i]);
        PQclear(batch->results[i]);
    }
}

static enum tally_status send_batch(struct tally_postgres *pg, struct batch *batch,
                                    struct tally_error *err)
{
    for (int i = 0; i < batch->n_calls; i++) {
        if (batch->calls[i].status != TALLY_OK) {
            return tally_fail(err, batch->calls[i].status, NULL, "no memory for a lease");
        }
    }
    struct tally_pg_call begin = tally_pg_call(TALLY_PG_BEGIN);
    struct tally_pg_call commit = tally_pg_call(TALLY_PG_COMMIT);
    tally_pg_queue(pg, &begin);
    for (int i = 0; i < batch->n_calls; i++) {
        tally_pg_queue(pg, &batch->calls[i]);
    }
    tally_pg_queue(pg, &commit);
    enum tally_status status = tally_pg_exchange(pg, keep_results, batch, err);
    if (status != TALLY_OK && pg->connection != NULL) {
        struct tally_pg_call rollback = tally_pg_call(TALLY_PG_ROLLBACK);
        if (tally_pg_run(pg, &rollback, NULL, NULL) != TALLY_OK) {
            tally_pg_drop(pg);
        }
    }
    return status;
}

/* Sends the batch, and sends it again after a conflict. */
static enum tally_status run_batch(struct tally_postgres *pg, struct batch *batch,
                                   struct tally_error *err)
{
    enum { MAX_RUNS = 5 };
    for (int n_runs = 1;; n_runs++) {
        struct tally_error cause = TALLY_ERROR_INIT;
        pg->sqlstate[0] = '\0';
        enum tally_status status = send_batch(pg, batch, &cause);
        if (status == TALLY_OK || n_runs == MAX_RUNS || pg->connection == NULL ||
            !tally_pg_met_conflict(pg)) {
            return status == TALLY_OK ? status : tally_fail(err, status, NULL, "%s", cause.message);
        }
        pg->counters.retried_conflicts++;
    }
}

static enum tally_status require_ready(struct tally_postgres *pg, struct tally_error *err)
{
    assert(!pg->transaction.is_open);
    return tally_pg_require_connection(pg, err);
}

/* Requires that this process is a replica, that is, has joined. */
static enum tally_status require_member(struct tally_postgres *pg, struct tally_error *err)
{
    return pg->number != 0
               ? require_ready(pg, err)
               : tally_fail(err, TALLY_FAILED_PRECONDITION, NULL,
                            "database \"%s\": this process is not a replica", pg->label);
}

static bool changed_nothing(PGresult *result)
{
    return strcmp(PQcmdTuples(result), "0") == 0;
}

static void bind_replica(struct tally_pg_call *call, const struct tally_replica *replica)
{
    tally_pg_bind_text(call, replica->address);
    tally_pg_bind_int64(call, replica->jobs);
    tally_pg_bind_int64(call, replica->slots);
    tally_pg_bind_int64(call, replica->free_slots);
    tally_pg_bind_int64(call, replica->wants_key);
    tally_pg_bind_int64(call, replica->wants_slots);
}

static enum tally_status tell_join(struct tally_postgres *pg, const PGresult *joined,
                                   int64_t lease_ms, int64_t *ret_number, struct tally_error *err)
{
    if (PQntuples(joined) != 1) {
        return tally_fail(err, TALLY_STORE, NULL,
                          "database \"%s\": %d replicas have already joined", pg->label,
                          (int)TALLY_MAX_REPLICA_NUMBER);
    }
    struct tally_pg_row row = tally_pg_row(pg, joined, 0, err);
    const int64_t number = tally_pg_take_int64(&row);
    const int64_t incarnation = tally_pg_take_int64(&row);
    if (row.status == TALLY_OK) {
        pg->number = *ret_number = number;
        pg->incarnation = incarnation;
        pg->lease_ms = lease_ms;
        pg->held.n = 0;
    }
    return row.status;
}

static enum tally_status postgres_join(struct tally_store *store, const struct tally_replica *self,
                                       int64_t lease_ms, int64_t *ret_number,
                                       struct tally_error *err)
{
    struct tally_postgres *pg = postgres_of(store);
    enum tally_status status = require_ready(pg, err);
    if (status != TALLY_OK) {
        return status;
    }
    /* Ends the connection of an earlier process with this id, to avoid waiting for its locks. A
     * lack of permission is not a failure. */
    struct tally_pg_call namesake = tally_pg_call(TALLY_PG_END_NAMESAKE);
    tally_pg_bind_text(&namesake, self->id);
    (void)tally_pg_run(pg, &namesake, NULL, NULL);

    struct batch join = {.n_calls = 0};
    add_call(&join, TALLY_PG_TURN);
    add_call(&join, TALLY_PG_RETURN_TIME);
    add_call(&join, TALLY_PG_TICK);
    add_call(&join, TALLY_PG_FORGET_LEADERS);
    add_call(&join, TALLY_PG_FORGET_REPLICAS);
    tally_pg_bind_text(add_call(&join, TALLY_PG_DISOWN), self->id);
    struct tally_pg_call *call = add_call(&join, TALLY_PG_JOIN);
    tally_pg_bind_text(call, self->id);
    bind_replica(call, self);
    tally_pg_bind_int64(call, lease_ms);
    tally_pg_bind_int64(call, TALLY_MAX_REPLICA_NUMBER);
    status = tally_pg_require_connection(pg, err);
    if (status == TALLY_OK) {
        status = run_batch(pg, &join, err);
    }
    if (status == TALLY_OK) {
        status = tell_join(pg, join.results[join.n_calls - 1], lease_ms, ret_number, err);
    }
    batch_fini(&join);
    return status;
}

static enum tally_status confirm(struct tally_lease_set *confirmed, int64_t job_key, int64_t token,
                                 bool has_ended)
{
    enum tally_status status = tally_lease_put(confirmed, job_key, token);
    if (status == TALLY_OK) {
        tally_lease_find(confirmed, job_key)->has_ended = has_ended;
    }
    return status;
}

/* Keeps only the held leases that the result confirms. */
static enum tally_status keep_confirmed(struct tally_postgres *pg, const PGresult *leases,
                                        struct tally_error *err)
{
    struct tally_lease_set confirmed = {0};
    enum tally_status status = TALLY_OK;
    for (int i = 0; i < PQntuples(leases) && status == TALLY_OK; i++) {
        struct tally_pg_row row = tally_pg_row(pg, leases, i, err);
        const int64_t key = tally_pg_take_int64(&row);
        const int64_t token = tally_pg_take_int64(&row);
        const bool is_live = tally_pg_take_bool(&row);
        const struct tally_lease *held = tally_lease_find(&pg->held, key);
        status = row.status;
        if (status == TALLY_OK && held != NULL && held->token == token) {
            status = confirm(&confirmed, key, token, !is_live);
        }
    }
    for (size_t i = 0; i < pg->held.n && status == TALLY_OK; i++) {
        const struct tally_lease *lease = &pg->held.leases[i];
        if (lease->has_ended) { /* it was not requested */
            status = confirm(&confirmed, lease->job_key, lease->token, true);
        }
    }
    if (status != TALLY_OK) {
        tally_lease_set_fini(&confirmed);
        return tally_fail(err, status, NULL, "no memory for leases");
    }
    tally_lease_set_fini(&pg->held);
    pg->held = confirmed;
    return TALLY_OK;
}

static enum tally_status read_replica(struct tally_postgres *pg, const PGresult *rows, int i,
                                      struct tally_replica *ret_replica, struct tally_error *err)
{
    struct tally_replica replica = {.number = 0};
    struct tally_pg_row row = tally_pg_row(pg, rows, i, err);
    replica.number = tally_pg_take_int64(&row);
    tally_pg_take_text(&row, replica.id, sizeof replica.id);
    tally_pg_take_text(&row, replica.address, sizeof replica.address);
    replica.jobs = tally_pg_take_int64(&row);
    replica.slots = tally_pg_take_int64(&row);
    replica.free_slots = tally_pg_take_int64(&row);
    replica.wants_key = tally_pg_take_int64(&row);
    replica.wants_slots = tally_pg_take_int64(&row);
    replica.is_alive = tally_pg_take_bool(&row);
    if (row.status == TALLY_OK) {
        *ret_replica = replica;
    }
    return row.status;
}

static enum tally_status postgres_renew(struct tally_store *store, const struct tally_replica *self,
                                        tally_replica_fn *each, void *context,
                                        struct tally_error *err)
{
    enum { RENEW = 3, MY_LEASES, REPLICAS };
    struct tally_postgres *pg = postgres_of(store);
    enum tally_status status = require_member(pg, err);
    if (status != TALLY_OK) {
        return status;
    }
    struct batch renewal = {.n_calls = 0};
    add_call(&renewal, TALLY_PG_BEGIN_RENEWAL);
    add_call(&renewal, TALLY_PG_RETURN_TIME);
    add_call(&renewal, TALLY_PG_TICK);
    struct tally_pg_call *call = add_call(&renewal, TALLY_PG_RENEW);
    tally_pg_bind_int64(call, pg->number);
    tally_pg_bind_int64(call, pg->incarnation);
    bind_replica(call, self);
    call = add_call(&renewal, TALLY_PG_MY_LEASES);
    tally_pg_bind_int64(call, pg->number);
    tally_pg_bind_keys(call, &pg->held);
    add_call(&renewal, TALLY_PG_REPLICAS);
    status = run_batch(pg, &renewal, err);
    if (status == TALLY_OK && changed_nothing(renewal.results[RENEW])) {
        pg->held.n = 0;
        status = tally_fail(err, TALLY_FAILED_PRECONDITION, NULL,
                            "database \"%s\": another process has joined as replica \"%s\"",
                            pg->label, self->id);
    }
    if (status == TALLY_OK) {
        status = keep_confirmed(pg, renewal.results[MY_LEASES], err);
    }
    for (int row = 0; status == TALLY_OK && row < PQntuples(renewal.results[REPLICAS]); row++) {
        struct tally_replica replica;
        status = read_replica(pg, renewal.results[REPLICAS], row, &replica, err);
        if (status == TALLY_OK) {
            status = each(context, &replica, err);
        }
    }
    batch_fini(&renewal);
    return status;
}

/* Adds the leases of a result to the held ones, and to *ret_taken. */
static enum tally_status hold(struct tally_postgres *pg, const PGresult *leases,
                              struct tally_lease_set *ret_taken, struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    for (int i = 0; i < PQntuples(leases) && status == TALLY_OK; i++) {
        struct tally_pg_row row = tally_pg_row(pg, leases, i, err);
        const int64_t key = tally_pg_take_int64(&row);
        const int64_t token = tally_pg_take_int64(&row);
        status = row.status;
        if (status == TALLY_OK && ret_taken != NULL) {
            status = tally_lease_put(ret_taken, key, token);
        }
        if (status == TALLY_OK) {
            status = tally_lease_put(&pg->held, key, token);
        }
    }
    return status == TALLY_OK ? status : tally_fail(err, status, NULL, "cannot keep a lease");
}

/* Whether there is a job to take. Ends the connections of dead replicas. */
static enum tally_status prepare_take(struct tally_postgres *pg, bool *ret_is_any,
                                      struct tally_error *err)
{
    struct tally_pg_call call = tally_pg_call(TALLY_PG_PREPARE_TAKE);
    PGresult *result = NULL;
    int64_t n = 0;
    tally_pg_bind_int64(&call, pg->number);
    tally_pg_bind_keys(&call, &pg->held);
    enum tally_status status = tally_pg_run(pg, &call, &result, NULL);
    if (status == TALLY_OK) {
        struct tally_pg_row row = tally_pg_row(pg, result, 0, err);
        n = tally_pg_take_int64(&row);
        status = row.status;
    } else if (pg->connection != NULL) {
        n = 1; /* probably not permitted; a dead replica's locks end by themselves, but later */
        status = TALLY_OK;
    } else {
        status = tally_pg_require_connection(pg, err);
    }
    PQclear(result);
    *ret_is_any = n > 0;
    return status;
}

/* Walks the rows of the jobs that were taken. If it ends early, jobs that the caller has not
 * accepted are released: the next take() returns them again. */
static enum tally_status walk_taken(struct tally_postgres *pg, const struct tally_lease_set *taken,
                                    tally_store_job_fn *each, void *context,
                                    struct tally_error *err)
{
    struct tally_pg_call call = tally_pg_call(TALLY_PG_TAKEN_JOBS);
    PGresult *jobs = NULL;
    int64_t seen_key = INT64_MIN;
    tally_pg_bind_keys(&call, taken);
    enum tally_status status = tally_pg_run(pg, &call, &jobs, err);
    for (int i = 0; status == TALLY_OK && i < PQntuples(jobs); i++) {
        struct tally_store_job job;
        struct tally_pg_row row = tally_pg_row(pg, jobs, i, err);
        tally_pg_take_job(&row, &job);
        status = row.status;
        if (status == TALLY_OK) {
            status = each(context, &job, err);
        }
        seen_key = status == TALLY_OK ? job.key : seen_key;
    }
    for (size_t i = 0; status != TALLY_OK && i < taken->n; i++) {
        if (taken->leases[i].job_key > seen_key) {
            tally_lease_drop(&pg->held, taken->leases[i].job_key);
        }
    }
    PQclear(jobs);
    return status;
}

static enum tally_status postgres_take(struct tally_store *store, tally_store_job_fn *each,
                                       void *context, struct tally_error *err)
{
    enum { TAKE = 0 };
    struct tally_postgres *pg = postgres_of(store);
    bool is_any = false;
    enum tally_status status = require_member(pg, err);
    if (status == TALLY_OK) {
        status = prepare_take(pg, &is_any, err);
    }
    if (status != TALLY_OK || !is_any) {
        return status;
    }
    struct batch take = {.n_calls = 0};
    struct tally_lease_set taken = {0};
    struct tally_pg_call *call = add_call(&take, TALLY_PG_TAKE);
    tally_pg_bind_int64(call, pg->number);
    tally_pg_bind_keys(call, &pg->held);
    tally_pg_bind_int64(call, pg->incarnation);
    status = run_batch(pg, &take, err);
    if (status == TALLY_OK) {
        status = hold(pg, take.results[TAKE], &taken, err);
        if (status != TALLY_OK) { /* the next take() returns them */
            tally_lease_drop_all(&pg->held, &taken);
        }
    }
    if (status == TALLY_OK && taken.n > 0) {
        status = walk_taken(pg, &taken, each, context, err);
    }
    tally_lease_set_fini(&taken);
    batch_fini(&take);
    return status;
}

static enum tally_status postgres_give(struct tally_store *store, int64_t job_key,
                                       int64_t replica_number, struct tally_error *err)
{
    struct tally_postgres *pg = postgres_of(store);
    enum tally_status status = require_member(pg, err); /* a new connection gets new tokens */
    if (status != TALLY_OK) {
        return status;
    }
    const struct tally_lease *lease = tally_lease_find(&pg->held, job_key);
    PGresult *result = NULL;
    struct tally_pg_call call = tally_pg_call(TALLY_PG_GIVE);
    tally_pg_bind_int64(&call, job_key);
    tally_pg_bind_int64(&call, lease != NULL ? lease->token : TALLY_NO_TOKEN);
    tally_pg_bind_int64(&call, replica_number);
    status = tally_pg_run(pg, &call, &result, err);
    if (status == TALLY_OK && changed_nothing(result)) {
        status = tally_fail(err, TALLY_FAILED_PRECONDITION, NULL,
                            "job with key %lld is not led by this replica, or there is no replica "
                            "%lld",
                            (long long)job_key, (long long)replica_number);
    }
    if (status == TALLY_OK) {
        tally_lease_drop(&pg->held, job_key);
    }
    PQclear(result);
    return status;
}

static bool postgres_holds(const struct tally_store *store, int64_t job_key)
{
    const struct tally_postgres *pg = (const struct tally_postgres *)store;
    return tally_lease_find(&pg->held, job_key) != NULL;
}

static enum tally_status read_leader(struct tally_postgres *pg, const PGresult *result,
                                     struct tally_job_leader *ret_leader, struct tally_error *err)
{
    struct tally_job_leader leader = {.key = 0};
    struct tally_pg_row row = tally_pg_row(pg, result, 0, err);
    leader.key = tally_pg_take_int64(&row);
    leader.is_live = tally_pg_take_bool(&row);
    leader.has_leader = leader.is_live && !tally_pg_is_null(&row);
    if (leader.has_leader) {
        struct tally_replica *replica = &leader.replica;
        replica->number = tally_pg_take_int64(&row);
        tally_pg_take_text(&row, replica->id, sizeof replica->id);
        tally_pg_take_text(&row, replica->address, sizeof replica->address);
        replica->is_alive = tally_pg_take_bool(&row);
    }
    if (row.status == TALLY_OK) {
        *ret_leader = leader;
    }
    return row.status;
}

static enum tally_status postgres_leader_of(struct tally_store *store, const char *job_id,
                                            struct tally_job_leader *ret_leader,
                                            struct tally_error *err)
{
    struct tally_postgres *pg = postgres_of(store);
    enum tally_status status =
        pg->transaction.is_begun ? TALLY_OK : tally_pg_require_connection(pg, err);
    if (status != TALLY_OK) {
        return status;
    }
    PGresult *result = NULL;
    struct tally_pg_call call = tally_pg_call(TALLY_PG_LEADER_OF);
    tally_pg_bind_text(&call, job_id);
    status = tally_pg_run(pg, &call, &result, err);
    if (status == TALLY_OK && PQntuples(result) == 0) {
        status = tally_fail(err, TALLY_NOT_FOUND, NULL, "no job \"%s\"", job_id);
    }
    if (status == TALLY_OK) {
        status = read_leader(pg, result, ret_leader, err);
    }
    PQclear(result);
    return status;
}

static enum tally_status postgres_leave(struct tally_store *store, struct tally_error *err)
{
    struct tally_postgres *pg = postgres_of(store);
    enum tally_status status = require_member(pg, err);
    if (status != TALLY_OK) {
        return status;
    }
    struct batch leaving = {.n_calls = 0};
    static const enum tally_pg_sql STEPS[] = {TALLY_PG_LEAVE_JOBS, TALLY_PG_LEAVE};
    for (int i = 0; i < 2; i++) {
        struct tally_pg_call *call = add_call(&leaving, STEPS[i]);
        tally_pg_bind_int64(call, pg->number);
        tally_pg_bind_int64(call, pg->incarnation);
    }
    status = run_batch(pg, &leaving, err);
    if (status == TALLY_OK) {
        pg->number = pg->incarnation = 0;
        pg->held.n = 0;
    }
    batch_fini(&leaving);
    return status;
}

/* What was in progress on the old connection held its fences until it ended, and this call waits
 * for them. If that connection is only cut off, whatever it may still send has outdated tokens. */
enum tally_status tally_pg_renew_tokens(struct tally_postgres *pg, struct tally_error *err)
{
    enum { RENEW_TOKENS = 1 };
    if (pg->number == 0) {
        return TALLY_OK;
    }
    /* The server may not know that the old connection is lost, and nothing else ends it in the
     * middle of a message. */
    struct tally_pg_call former = tally_pg_call(TALLY_PG_END_FORMER);
    tally_pg_bind_int64(&former, pg->number);
    tally_pg_bind_int64(&former, pg->incarnation);
    (void)tally_pg_run(pg, &former, NULL, NULL);

    struct batch renewal = {.n_calls = 0};
    struct tally_pg_call *call = add_call(&renewal, TALLY_PG_REANNOUNCE);
    tally_pg_bind_int64(call, pg->number);
    tally_pg_bind_int64(call, pg->incarnation);
    call = add_call(&renewal, TALLY_PG_RENEW_TOKENS);
    tally_pg_bind_int64(call, pg->number);
    tally_pg_bind_keys(call, &pg->held);
    tally_pg_bind_tokens(call, &pg->held);
    enum tally_status status =
        pg->connection != NULL ? run_batch(pg, &renewal, err) : tally_pg_fail(pg, NULL, err);
    if (status == TALLY_OK) {
        pg->held.n = 0;
        status = hold(pg, renewal.results[RENEW_TOKENS], NULL, err);
    }
    batch_fini(&renewal);
    return status;
}

const struct tally_store_leases TALLY_PG_LEASES = {
    .join = postgres_join,
    .renew = postgres_renew,
    .take = postgres_take,
    .give = postgres_give,
    .holds = postgres_holds,
    .leader_of = postgres_leader_of,
    .leave = postgres_leave,
};
