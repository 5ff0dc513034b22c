/* memory_leases: replicas, and which of them leads which job.
 *
 * The rules are those of the statements in postgres_sql.c. A job's token grows with each change of
 * leader. A store object may lead a job without holding its token: the job was handed to it, or an
 * earlier process with the same id led the job. Its next take() returns such a job. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "storage/allocate.h"
#include "tests/simulation/storage/memory_internal.h"

/* After a week of silence a replica loses its number. */
static const int64_t LONG_DEAD_MS = (int64_t)7 * 24 * 3600 * 1000;

static int64_t now_ms(const struct tally_memory_database *database)
{
    return database->clock.now_ms(database->clock.context);
}

static bool is_live(const struct tally_memory_job *job)
{
    return !tally_job_status_is_terminal(job->content->job.status);
}

static struct tally_memory_replica *find_number(const struct tally_memory_database *database,
                                                int64_t number)
{
    for (size_t i = 0; i < database->n_replicas; i++) {
        if (database->replicas[i].row.number == number) {
            return &database->replicas[i];
        }
    }
    return NULL;
}

static struct tally_memory_replica *find_id(const struct tally_memory_database *database,
                                            const char *id)
{
    for (size_t i = 0; i < database->n_replicas; i++) {
        if (strcmp(database->replicas[i].row.id, id) == 0) {
            return &database->replicas[i];
        }
    }
    return NULL;
}

/* The row of this process; NULL after it has left or another process with its id has joined. */
static struct tally_memory_replica *find_self(const struct tally_memory_store *memory)
{
    struct tally_memory_replica *self = find_number(memory->database, memory->number);
    return self != NULL && self->is_member && self->incarnation == memory->incarnation ? self
                                                                                       : NULL;
}

/* ---- Time ---- */

/* Downtime of the database, in which no replica can renew, does not count: the clock of leases
 * stops half a lease after the last renewal by any replica. */
static bool is_alive(const struct tally_memory_database *database,
                     const struct tally_memory_replica *replica)
{
    const int64_t now = now_ms(database);
    const int64_t stop = database->renewed_ms + replica->lease_ms / 2;
    return replica->is_member && replica->expires_ms >= (now < stop ? now : stop);
}

/* The first renewal after such a gap extends all leases by the gap. Every renewal restarts the
 * gap. */
static void tick(struct tally_memory_database *database)
{
    const int64_t now = now_ms(database);
    const int64_t gap = now - database->renewed_ms;
    for (size_t i = 0; i < database->n_replicas; i++) {
        struct tally_memory_replica *replica = &database->replicas[i];
        if (gap > replica->lease_ms / 2) {
            replica->expires_ms += gap;
        }
    }
    database->renewed_ms = now;
}

/* ---- Joining ---- */

static bool leads_any(const struct tally_memory_database *database, int64_t number)
{
    for (size_t i = 0; i < database->n_jobs; i++) {
        if (database->jobs[i]->leader == number) {
            return true;
        }
    }
    return false;
}

static void set_leader(struct tally_memory_job *job, int64_t number)
{
    job->leader = number;
    job->token++;
}

/* A silent replica keeps its number for a week, and longer until its live jobs are taken over. Then
 * the ended jobs that it led have no leader. */
static void forget_long_dead(struct tally_memory_database *database)
{
    const int64_t now = now_ms(database);
    size_t n_kept = 0;
    for (size_t i = 0; i < database->n_replicas; i++) {
        const struct tally_memory_replica *replica = &database->replicas[i];
        const bool is_long_dead = replica->expires_ms < now - LONG_DEAD_MS;
        for (size_t j = 0; is_long_dead && j < database->n_jobs; j++) {
            if (database->jobs[j]->leader == replica->row.number && !is_live(database->jobs[j])) {
                set_leader(database->jobs[j], 0);
            }
        }
        if (!is_long_dead || leads_any(database, replica->row.number)) {
            database->replicas[n_kept++] = *replica;
        }
    }
    database->n_replicas = n_kept;
}

/* Adds a row with the next number. Errors: STORE (no number is left), NO_MEMORY. */
static enum tally_status add_replica(struct tally_memory_database *database,
                                     struct tally_memory_replica **ret_replica,
                                     struct tally_error *err)
{
    const size_t n = database->n_replicas;
    const int64_t number = n > 0 ? database->replicas[n - 1].row.number + 1 : 1;
    if (number > TALLY_MAX_REPLICA_NUMBER) {
        return tally_fail(err, TALLY_STORE, NULL, "%d replicas have already joined",
                          (int)TALLY_MAX_REPLICA_NUMBER);
    }
    struct tally_memory_replica *replicas =
        tally_store_grow(database->replicas, &database->replicas_capacity, n + 1, sizeof *replicas);
    if (replicas == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a replica");
    }
    replicas[n] = (struct tally_memory_replica){.row = {.number = number}};
    database->replicas = replicas;
    database->n_replicas++;
    *ret_replica = &replicas[n];
    return TALLY_OK;
}

/* Stores what a replica announces. */
static void announce(const struct tally_memory_database *database,
                     struct tally_memory_replica *replica, const struct tally_replica *self)
{
    const int64_t number = replica->row.number;
    replica->row = *self;
    replica->row.number = number;
    replica->expires_ms = now_ms(database) + replica->lease_ms;
}

static enum tally_status memory_join(struct tally_store *store, const struct tally_replica *self,
                                     int64_t lease_ms, int64_t *ret_number, struct tally_error *err)
{
    struct tally_memory_store *memory = memory_of(store);
    struct tally_memory_database *database = memory->database;
    assert(!memory->in_transaction);
    tally_memory_reconnect(memory);
    tick(database);
    forget_long_dead(database);
    struct tally_memory_replica *replica = find_id(database, self->id);
    if (replica == NULL) {
        enum tally_status status = add_replica(database, &replica, err);
        if (status != TALLY_OK) {
            return status;
        }
    }
    replica->lease_ms = lease_ms;
    replica->is_member = true;
    replica->incarnation++;
    announce(database, replica, self);
    /* No process holds the earlier process's jobs any more, but this replica still leads them. */
    for (size_t i = 0; i < database->n_jobs; i++) {
        if (database->jobs[i]->leader == replica->row.number) {
            set_leader(database->jobs[i], replica->row.number);
        }
    }
    memory->number = *ret_number = replica->row.number;
    memory->incarnation = replica->incarnation;
    memory->held.n = 0;
    return TALLY_OK;
}

/* Requires that this process is a replica, that is, that it has joined. */
static enum tally_status require_member(struct tally_memory_store *memory, struct tally_error *err)
{
    assert(!memory->in_transaction);
    tally_memory_reconnect(memory);
    return memory->number != 0
               ? TALLY_OK
               : tally_fail(err, TALLY_FAILED_PRECONDITION, NULL, "this process is not a replica");
}

/* ---- Leading ---- */

/* Drops the held leases that are no longer valid. */
static void keep_confirmed(struct tally_memory_store *memory)
{
    size_t n_kept = 0;
    for (size_t i = 0; i < memory->held.n; i++) {
        const struct tally_lease *lease = &memory->held.leases[i];
        const struct tally_memory_job *job =
            tally_memory_job_find(memory->database, lease->job_key);
        if (job->leader == memory->number && job->token == lease->token) {
            memory->held.leases[n_kept++] = *lease;
        }
    }
    memory->held.n = n_kept;
}

/* The old connection has nothing in progress that could still arrive, so tokens do not change. */
void tally_memory_reconnect(struct tally_memory_store *memory)
{
    if (memory->is_lost) {
        memory->is_lost = false;
        memory->counters.reconnects++;
        keep_confirmed(memory);
    }
}

static enum tally_status memory_renew(struct tally_store *store, const struct tally_replica *self,
                                      tally_replica_fn *each, void *context,
                                      struct tally_error *err)
{
    struct tally_memory_store *memory = memory_of(store);
    struct tally_memory_database *database = memory->database;
    enum tally_status status = require_member(memory, err);
    if (status != TALLY_OK) {
        return status;
    }
    tick(database);
    struct tally_memory_replica *row = find_self(memory);
    if (row == NULL) {
        memory->held.n = 0;
        return tally_fail(err, TALLY_FAILED_PRECONDITION, NULL,
                          "another process has joined as replica \"%s\"", self->id);
    }
    announce(database, row, self);
    keep_confirmed(memory);
    for (size_t i = 0; i < database->n_replicas && status == TALLY_OK; i++) {
        struct tally_replica replica = database->replicas[i].row;
        replica.is_alive = is_alive(database, &database->replicas[i]);
        if (database->replicas[i].is_member) {
            status = each(context, &replica, err);
        }
    }
    return status;
}

/* A job is led but not held if it was handed over, or if an earlier process led it. */
static bool is_to_be_taken(const struct tally_memory_store *memory,
                           const struct tally_memory_job *job)
{
    if (!is_live(job) || job->leader == 0) {
        return is_live(job);
    }
    if (job->leader == memory->number) {
        return tally_lease_find(&memory->held, job->content->job.key) == NULL;
    }
    const struct tally_memory_replica *leader = find_number(memory->database, job->leader);
    return leader == NULL || !is_alive(memory->database, leader);
}

/* On failure, *ret_taken contains at least the jobs that are newly held. */
static enum tally_status take_jobs(struct tally_memory_store *memory,
                                   struct tally_lease_set *ret_taken)
{
    const struct tally_memory_database *database = memory->database;
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; i < database->n_jobs && status == TALLY_OK; i++) {
        struct tally_memory_job *job = database->jobs[i];
        const int64_t key = job->content->job.key;
        if (is_to_be_taken(memory, job)) {
            set_leader(job, memory->number);
            status = tally_lease_put(ret_taken, key, job->token);
            if (status == TALLY_OK) {
                status = tally_lease_put(&memory->held, key, job->token);
            }
        }
    }
    return status;
}

/* Walks the rows of the jobs that were taken. Jobs that the caller did not see, because it stopped
 * the walk, are not held: the next take() returns them again. */
static enum tally_status walk_taken(struct tally_memory_store *memory,
                                    const struct tally_lease_set *taken, tally_store_job_fn *each,
                                    void *context, struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; i < taken->n; i++) {
        const int64_t key = taken->leases[i].job_key;
        if (status == TALLY_OK) {
            status =
                each(context, &tally_memory_job_find(memory->database, key)->content->job, err);
        }
        if (status != TALLY_OK) {
            tally_lease_drop(&memory->held, key);
        }
    }
    return status;
}

static enum tally_status memory_take(struct tally_store *store, tally_store_job_fn *each,
                                     void *context, struct tally_error *err)
{
    struct tally_memory_store *memory = memory_of(store);
    struct tally_lease_set taken = {0};
    enum tally_status status = require_member(memory, err);
    if (status != TALLY_OK || find_self(memory) == NULL) {
        return status;
    }
    status = take_jobs(memory, &taken);
    if (status == TALLY_OK) {
        status = walk_taken(memory, &taken, each, context, err);
    } else {
        tally_lease_drop_all(&memory->held, &taken);
        status = tally_fail(err, status, NULL, "no memory for leases");
    }
    tally_lease_set_fini(&taken);
    return status;
}

static enum tally_status memory_give(struct tally_store *store, int64_t job_key,
                                     int64_t replica_number, struct tally_error *err)
{
    struct tally_memory_store *memory = memory_of(store);
    enum tally_status status = require_member(memory, err);
    if (status != TALLY_OK) {
        return status;
    }
    struct tally_memory_job *job = tally_memory_job_find(memory->database, job_key);
    const struct tally_lease *lease = tally_lease_find(&memory->held, job_key);
    const struct tally_memory_replica *receiver = find_number(memory->database, replica_number);
    if (job == NULL || lease == NULL || lease->token != job->token || receiver == NULL ||
        !receiver->is_member) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, NULL,
                          "job with key %lld is not led by this replica, or there is no replica "
                          "%lld",
                          (long long)job_key, (long long)replica_number);
    }
    set_leader(job, replica_number);
    tally_lease_drop(&memory->held, job_key);
    return TALLY_OK;
}

static bool memory_holds(const struct tally_store *store, int64_t job_key)
{
    const struct tally_memory_store *memory = (const struct tally_memory_store *)store;
    return tally_lease_find(&memory->held, job_key) != NULL;
}

static enum tally_status memory_leader_of(struct tally_store *store, const char *job_id,
                                          struct tally_job_leader *ret_leader,
                                          struct tally_error *err)
{
    const struct tally_memory_store *memory = memory_of(store);
    struct tally_memory_view view;
    if (!tally_memory_find_id(memory, job_id, &view)) {
        return tally_fail(err, TALLY_NOT_FOUND, NULL, "no job \"%s\"", job_id);
    }
    struct tally_job_leader leader = {
        .key = view.content->job.key,
        .is_live = !tally_job_status_is_terminal(view.content->job.status),
    };
    const struct tally_memory_replica *replica = find_number(memory->database, view.job->leader);
    if (leader.is_live && replica != NULL) {
        leader.has_leader = true;
        leader.replica.number = replica->row.number;
        memcpy(leader.replica.id, replica->row.id, sizeof leader.replica.id);
        memcpy(leader.replica.address, replica->row.address, sizeof leader.replica.address);
        leader.replica.is_alive = is_alive(memory->database, replica);
    }
    *ret_leader = leader;
    return TALLY_OK;
}

static enum tally_status memory_leave(struct tally_store *store, struct tally_error *err)
{
    struct tally_memory_store *memory = memory_of(store);
    enum tally_status status = require_member(memory, err);
    if (status != TALLY_OK) {
        return status;
    }
    struct tally_memory_replica *self = find_self(memory);
    for (size_t i = 0; self != NULL && i < memory->database->n_jobs; i++) {
        if (memory->database->jobs[i]->leader == memory->number) {
            set_leader(memory->database->jobs[i], 0);
        }
    }
    if (self != NULL) {
        self->is_member = false;
    }
    memory->number = memory->incarnation = 0;
    memory->held.n = 0;
    return TALLY_OK;
}

const struct tally_store_leases TALLY_MEMORY_LEASES = {
    .join = memory_join,
    .renew = memory_renew,
    .take = memory_take,
    .give = memory_give,
    .holds = memory_holds,
    .leader_of = memory_leader_of,
    .leave = memory_leave,
};
