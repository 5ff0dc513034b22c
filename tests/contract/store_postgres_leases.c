/* Several store objects on one PostgreSQL database: who leads which job, and who may write. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "storage/leases.h"
#include "tests/contract/child.h"
#include "tests/contract/raw_postgres.h"
#include "tests/contract/store_fixture.h"
#include "tests/contract/store_tests.h"

/* Longer than any test, so that nobody dies of a slow machine. */
enum { LEASE_MS = 3600000 };

static struct tally_replica replica_named(const char *id)
{
    struct tally_replica replica = {
        .jobs = 1, .slots = 20, .free_slots = 3, .wants_key = 4, .wants_slots = 5};
    snprintf(replica.id, sizeof replica.id, "%s", id);
    snprintf(replica.address, sizeof replica.address, "http://%s:8080", id);
    return replica;
}

static int64_t expect_join(struct store_fixture *f, const char *id, int64_t lease_ms)
{
    struct tally_replica self = replica_named(id);
    int64_t number = 0;
    TALLY_ASSERT_STATUS(f->store->leases->join(f->store, &self, lease_ms, &number, &f->err),
                        TALLY_OK, &f->err);
    return number;
}

/* A store in a schema of its own that is replica "a", and one beside it that is "b". */
static void open_two(struct store_fixture *a, struct store_fixture *b)
{
    store_fixture_open(a);
    store_fixture_open_beside(b, a);
    CU_ASSERT_EQUAL(expect_join(a, "a", LEASE_MS), 1);
    CU_ASSERT_EQUAL(expect_join(b, "b", LEASE_MS), 2);
}

static void close_two(struct store_fixture *a, struct store_fixture *b)
{
    store_fixture_close(b);
    store_fixture_close(a);
}

/* The ids that take() gives, "a,b". */
static const char *taken(struct store_fixture *f)
{
    static struct job_walk walk;
    walk = (struct job_walk){.n = 0};
    tally_error_clear(&f->err);
    TALLY_ASSERT_STATUS(f->store->leases->take(f->store, collect_job, &walk, &f->err), TALLY_OK,
                        &f->err);
    return collected_ids(&walk);
}

/* Context of list_replica. */
struct replica_walk {
    struct tally_replica replicas[8];
    int n;
};

static enum tally_status list_replica(void *context, const struct tally_replica *replica,
                                      struct tally_error *err)
{
    (void)err;
    struct replica_walk *walk = context;
    if (walk->n < 8) {
        walk->replicas[walk->n] = *replica;
    }
    walk->n++;
    return TALLY_OK;
}

static enum tally_status renew(struct store_fixture *f, const char *id, struct replica_walk *walk)
{
    struct tally_replica self = replica_named(id);
    *walk = (struct replica_walk){.n = 0};
    tally_error_clear(&f->err);
    return f->store->leases->renew(f->store, &self, list_replica, walk, &f->err);
}

static void expect_renew(struct store_fixture *f, const char *id)
{
    struct replica_walk walk;
    TALLY_ASSERT_STATUS(renew(f, id, &walk), TALLY_OK, &f->err);
}

static bool holds(const struct store_fixture *f, int64_t job_key)
{
    return f->store->leases->holds(f->store, job_key);
}

/* As if replica `number` had not renewed for a long time; and nobody knows its connection. */
static void let_die(const struct store_fixture *f, int64_t number)
{
    raw_ask(
        f->schema,
        "UPDATE replicas SET expires_at = clock_timestamp() - interval '1 hour', backend_pid = NULL"
        " WHERE number = %lld",
        (long long)number);
}

static int64_t n_updates(const struct store_fixture *f, int64_t job_key)
{
    return raw_ask(f->schema, "SELECT count(*) FROM updates WHERE job_key = %lld",
                   (long long)job_key);
}

/* One write in a bracket of its own. */
static enum tally_status write_update(struct store_fixture *f, int64_t job_key, uint32_t client)
{
    struct tally_store_update update = {1, client, (const uint8_t *)"body", 4};
    tally_error_clear(&f->err);
    enum tally_status status = f->ops->begin(f->store, &f->err);
    if (status == TALLY_OK) {
        status = f->ops->update_insert(f->store, job_key, &update, &f->err);
    }
    if (status == TALLY_OK) {
        return f->ops->commit(f->store, &f->err);
    }
    f->ops->rollback(f->store);
    return status;
}

/* The same by a store whose connection is being ended. */
static enum tally_status write_update_at_last(struct store_fixture *f, int64_t job_key,
                                              uint32_t client)
{
    enum tally_status status = write_update(f, job_key, client);
    for (int i = 0; i < 1000 && status == TALLY_STORE; i++) {
        usleep(10000);
        status = write_update(f, job_key, client);
    }
    return status;
}

void test_store_postgres_leases__replicas_are_numbered_and_listed(void)
{
    struct store_fixture a;
    struct store_fixture b;
    struct replica_walk walk;
    open_two(&a, &b);
    TALLY_ASSERT_STATUS(renew(&b, "b", &walk), TALLY_OK, &b.err);
    CU_ASSERT_EQUAL(walk.n, 2);
    for (int i = 0; i < 2; i++) {
        struct tally_replica expected = replica_named(i == 0 ? "a" : "b");
        const struct tally_replica *actual = &walk.replicas[i];
        TALLY_ASSERT_TEXT(actual->id, expected.id);
        TALLY_ASSERT_TEXT(actual->address, expected.address);
        CU_ASSERT_EQUAL(actual->number, i + 1);
        CU_ASSERT_EQUAL(actual->jobs, expected.jobs);
        CU_ASSERT_EQUAL(actual->slots, expected.slots);
        CU_ASSERT_EQUAL(actual->free_slots, expected.free_slots);
        CU_ASSERT_EQUAL(actual->wants_key, expected.wants_key);
        CU_ASSERT_EQUAL(actual->wants_slots, expected.wants_slots);
        CU_ASSERT(actual->is_alive);
    }
    store_fixture_reopen(&a);
    CU_ASSERT_EQUAL(expect_join(&a, "a", LEASE_MS), 1);
    TALLY_ASSERT_STATUS(b.store->leases->leave(b.store, &b.err), TALLY_OK, &b.err);
    TALLY_ASSERT_STATUS(renew(&a, "a", &walk), TALLY_OK, &a.err);
    CU_ASSERT_EQUAL(walk.n, 1);
    CU_ASSERT_EQUAL(expect_join(&b, "c", LEASE_MS), 3);
    store_fixture_reopen(&b);
    CU_ASSERT_EQUAL(expect_join(&b, "b", LEASE_MS), 2);
    close_two(&a, &b);
}

void test_store_postgres_leases__inserted_job_is_led_by_its_inserter(void)
{
    struct store_fixture a;
    struct store_fixture b;
    open_two(&a, &b);
    struct tally_store_job job = sample_job("x", 1);
    expect_begin(&a);
    int64_t key = expect_job_insert(&a, &job);
    a.ops->rollback(a.store);
    CU_ASSERT(!holds(&a, key));
    key = expect_job(&a, "x", TALLY_JOB_QUEUED);
    CU_ASSERT(holds(&a, key));
    CU_ASSERT(!holds(&b, key));
    TALLY_ASSERT_TEXT(taken(&b), "");
    TALLY_ASSERT_TEXT(taken(&a), "");
    TALLY_ASSERT_STATUS(write_update(&a, key, 1), TALLY_OK, &a.err);
    TALLY_ASSERT_STATUS(write_update(&b, key, 2), TALLY_FAILED_PRECONDITION, &b.err);
    CU_ASSERT_EQUAL(n_updates(&a, key), 1);
    close_two(&a, &b);
}

void test_store_postgres_leases__take_gives_what_nobody_leads_oldest_first(void)
{
    struct store_fixture a;
    struct store_fixture b;
    store_fixture_open(&a);
    store_fixture_open_beside(&b, &a);
    int64_t x = expect_job(&a, "x", TALLY_JOB_RUNNING);
    int64_t y = expect_job(&a, "y", TALLY_JOB_COMPLETED);
    int64_t z = expect_job(&a, "z", TALLY_JOB_QUEUED);
    CU_ASSERT(!holds(&a, x));
    TALLY_ASSERT_STATUS(b.store->leases->take(b.store, collect_job, NULL, NULL),
                        TALLY_FAILED_PRECONDITION, NULL);
    expect_join(&a, "a", LEASE_MS);
    expect_join(&b, "b", LEASE_MS);
    TALLY_ASSERT_TEXT(taken(&b), "x,z");
    TALLY_ASSERT_TEXT(taken(&a), "");
    TALLY_ASSERT_TEXT(taken(&b), "");
    CU_ASSERT(holds(&b, x) && holds(&b, z));
    CU_ASSERT(!holds(&b, y) && !holds(&a, x));
    TALLY_ASSERT_STATUS(write_update(&b, z, 1), TALLY_OK, &b.err);
    close_two(&a, &b);
}

void test_store_postgres_leases__stopped_walk_is_gone_on_with(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t first = expect_job(&f, "x", TALLY_JOB_RUNNING);
    int64_t second = expect_job(&f, "y", TALLY_JOB_RUNNING);
    expect_job(&f, "z", TALLY_JOB_RUNNING);
    expect_join(&f, "a", LEASE_MS);
    struct job_walk walk = {.stop_at = 2};
    TALLY_ASSERT_STATUS(f.store->leases->take(f.store, collect_job, &walk, &f.err), TALLY_CANCELLED,
                        &f.err);
    CU_ASSERT(holds(&f, first));
    CU_ASSERT(!holds(&f, second));
    TALLY_ASSERT_TEXT(taken(&f), "y,z");
    CU_ASSERT(holds(&f, second));
    store_fixture_close(&f);
}

void test_store_postgres_leases__silent_replica_dies_and_loses_its_jobs(void)
{
    struct store_fixture a;
    struct store_fixture b;
    struct replica_walk walk;
    store_fixture_open(&a);
    store_fixture_open_beside(&b, &a);
    expect_join(&a, "a", 300);
    int64_t key = expect_job(&a, "x", TALLY_JOB_RUNNING);
    expect_join(&b, "b", LEASE_MS);
    bool is_dead = false;
    for (int i = 0; i < 600 && !is_dead; i++) {
        TALLY_ASSERT_TEXT(taken(&b), "");
        usleep(50000);
        TALLY_ASSERT_STATUS(renew(&b, "b", &walk), TALLY_OK, &b.err);
        is_dead = walk.n == 2 && !walk.replicas[0].is_alive;
    }
    CU_ASSERT(is_dead);
    CU_ASSERT(walk.replicas[1].is_alive);
    TALLY_ASSERT_TEXT(taken(&b), "x");
    CU_ASSERT(holds(&b, key));
    close_two(&a, &b);
}

void test_store_postgres_leases__former_leader_can_write_nothing(void)
{
    struct store_fixture a;
    struct store_fixture b;
    open_two(&a, &b);
    struct tally_store_job job = sample_job("x", 1);
    struct tally_round_record record = sample_record(1, 1);
    job.key = expect_job(&a, "x", TALLY_JOB_RUNNING);
    expect_begin(&a);
    a.ops->state_put(a.store, job.key, "first", 5, NULL);
    a.ops->state_append(a.store, job.key, 1, " change", 7, NULL);
    expect_commit(&a);
    let_die(&a, 1);
    TALLY_ASSERT_TEXT(taken(&b), "x");
    struct tally_buffer before = {0};
    struct tally_buffer after = {0};
    describe_store(&b, &before);
    job.progress.round = 77;
    for (int kind = 0; kind < 6; kind++) {
        struct tally_store_update update = {1, 1, (const uint8_t *)"body", 4};
        expect_begin(&a);
        enum tally_status status =
            kind == 0   ? a.ops->update_insert(a.store, job.key, &update, &a.err)
            : kind == 1 ? a.ops->state_put(a.store, job.key, "state", 5, &a.err)
            : kind == 2 ? a.ops->round_insert(a.store, job.key, &record, &a.err)
            : kind == 3 ? a.ops->job_update(a.store, &job, &a.err)
            : kind == 4 ? a.ops->state_append(a.store, job.key, 2, " stray", 6, &a.err)
                        : a.ops->updates_delete(a.store, job.key, 9, &a.err);
        CU_ASSERT_EQUAL(status, TALLY_OK);
        TALLY_ASSERT_STATUS(a.ops->commit(a.store, &a.err), TALLY_FAILED_PRECONDITION, &a.err);
        a.ops->rollback(a.store);
    }
    CU_ASSERT(!holds(&a, job.key));
    CU_ASSERT_EQUAL(a.ops->counters(a.store).fenced_writes, 6);
    describe_store(&b, &after);
    TALLY_ASSERT_TEXT((char *)after.data, (char *)before.data);
    TALLY_ASSERT_STATUS(write_update(&b, job.key, 1), TALLY_OK, &b.err);
    expect_renew(&a, "a");
    CU_ASSERT(!holds(&a, job.key));
    TALLY_ASSERT_TEXT(taken(&a), "");
    tally_buffer_fini(&before);
    tally_buffer_fini(&after);
    close_two(&a, &b);
}

/* Collected as leader, sent as one no more. */
void test_store_postgres_leases__bracket_from_before_the_take_over_is_refused(void)
{
    struct store_fixture a;
    struct store_fixture b;
    open_two(&a, &b);
    int64_t key = expect_job(&a, "x", TALLY_JOB_RUNNING);
    expect_begin(&a);
    expect_update(&a, key, 1, 1, "old");
    let_die(&a, 1);
    TALLY_ASSERT_TEXT(taken(&b), "x");
    TALLY_ASSERT_STATUS(write_update(&b, key, 9), TALLY_OK, &b.err);
    TALLY_ASSERT_STATUS(a.ops->commit(a.store, &a.err), TALLY_FAILED_PRECONDITION, &a.err);
    CU_ASSERT_EQUAL(n_updates(&a, key), 1);
    close_two(&a, &b);
}

void test_store_postgres_leases__bracket_is_refused_as_a_whole(void)
{
    struct store_fixture a;
    struct store_fixture b;
    open_two(&a, &b);
    int64_t x = expect_job(&a, "x", TALLY_JOB_RUNNING);
    int64_t y = expect_job(&a, "y", TALLY_JOB_RUNNING);
    TALLY_ASSERT_STATUS(a.store->leases->give(a.store, x, 2, &a.err), TALLY_OK, &a.err);
    expect_begin(&a);
    expect_update(&a, y, 1, 1, "y");
    expect_update(&a, x, 1, 1, "x");
    expect_update(&a, y, 1, 2, "y");
    TALLY_ASSERT_STATUS(a.ops->flush(a.store, &a.err), TALLY_FAILED_PRECONDITION, &a.err);
    struct tally_store_update update = {1, 3, (const uint8_t *)"y", 1};
    TALLY_ASSERT_STATUS(a.ops->update_insert(a.store, y, &update, NULL), TALLY_FAILED_PRECONDITION,
                        NULL);
    TALLY_ASSERT_STATUS(a.ops->commit(a.store, NULL), TALLY_FAILED_PRECONDITION, NULL);
    CU_ASSERT_EQUAL(n_updates(&a, x) + n_updates(&a, y), 0);
    TALLY_ASSERT_STATUS(write_update(&a, y, 1), TALLY_OK, &a.err);
    close_two(&a, &b);
}

/* Its reader does not know what it has met; who commits must. */
void test_store_postgres_leases__fence_that_a_read_has_met_is_told_by_the_commit(void)
{
    struct store_fixture a;
    struct store_fixture b;
    open_two(&a, &b);
    int64_t key = expect_job(&a, "x", TALLY_JOB_RUNNING);
    TALLY_ASSERT_STATUS(a.store->leases->give(a.store, key, 2, &a.err), TALLY_OK, &a.err);
    expect_begin(&a);
    expect_update(&a, key, 1, 1, "x");
    struct tally_store_job row;
    TALLY_ASSERT_STATUS(a.ops->job_get(a.store, "x", &row, NULL), TALLY_FAILED_PRECONDITION, NULL);
    TALLY_ASSERT_STATUS(a.ops->commit(a.store, &a.err), TALLY_FAILED_PRECONDITION, &a.err);
    close_two(&a, &b);
}

void test_store_postgres_leases__fence_is_held_until_the_end_of_the_bracket(void)
{
    struct store_fixture a;
    store_fixture_open(&a);
    expect_join(&a, "a", LEASE_MS);
    int64_t key = expect_job(&a, "x", TALLY_JOB_RUNNING);
    struct raw *raw = raw_open(a.schema);
    raw_run(raw, "SET lock_timeout = 200");
    for (int ends = 0; ends < 2; ends++) {
        expect_begin(&a);
        expect_update(&a, key, 1, (uint32_t)ends, "x");
        TALLY_ASSERT_STATUS(a.ops->flush(a.store, &a.err), TALLY_OK, &a.err);
        CU_ASSERT(!raw_succeeds(raw, "UPDATE job_leases SET token = token"));
        if (ends == 0) {
            expect_commit(&a);
        } else {
            a.ops->rollback(a.store);
        }
        CU_ASSERT(raw_succeeds(raw, "UPDATE job_leases SET token = token"));
    }
    raw_close(raw);
    store_fixture_close(&a);
}

/* Context of stay_in_bracket. */
struct stay {
    const char *uri;
    bool is_stopped; /* else it goes on reading in its bracket, for as long as it can */
};

/* In a child: joins as "a", inserts job "x", and stays in the middle of a bracket on it. Reports
 * the key, then what commit() said. */
static void stay_in_bracket(void *context, int reports)
{
    const struct stay *stay = context;
    struct tally_store *store = NULL;
    struct tally_replica self = replica_named("a");
    struct tally_store_job job = sample_job("x", 1);
    struct tally_store_update update = {1, 1, (const uint8_t *)"half", 4};
    int64_t key = 0;
    int64_t number = 0;
    if (tally_store_open(stay->uri, NULL, &store, NULL) != TALLY_OK ||
        store->leases->join(store, &self, LEASE_MS, &number, NULL) != TALLY_OK ||
        store->ops->begin(store, NULL) != TALLY_OK ||
        store->ops->job_insert(store, &job, "{}", 2, NULL, 0, &key, NULL) != TALLY_OK ||
        store->ops->commit(store, NULL) != TALLY_OK || store->ops->begin(store, NULL) != TALLY_OK ||
        store->ops->update_insert(store, key, &update, NULL) != TALLY_OK ||
        store->ops->flush(store, NULL) != TALLY_OK) {
        _exit(3);
    }
    child_report(reports, (int)key);
    if (stay->is_stopped) {
        raise(SIGSTOP);
    }
    while (!stay->is_stopped && store->ops->job_get(store, "x", &job, NULL) == TALLY_OK) {
        usleep(20000);
    }
    child_report(reports, (int)store->ops->commit(store, NULL));
}

/* Declares a leader dead in the middle of a bracket, and takes. */
static void expect_take_from(bool is_stopped)
{
    struct store_fixture b;
    store_fixture_open(&b);
    expect_join(&b, "b", LEASE_MS);
    struct stay stay = {b.uri, is_stopped};
    struct child child = child_start(stay_in_bracket, &stay);
    int64_t key = child_next(&child);
    CU_ASSERT_FATAL(key > 0);
    int64_t backend = raw_ask(b.schema, "SELECT backend_pid FROM replicas WHERE number = 2");
    let_die(&b, 2);
    if (!is_stopped) {
        raw_ask(b.schema, "UPDATE replicas SET backend_pid = %lld WHERE number = 2",
                (long long)backend);
    }
    TALLY_ASSERT_TEXT(taken(&b), "x");
    CU_ASSERT(holds(&b, key));
    kill(child.pid, SIGCONT);
    CU_ASSERT_EQUAL(child_next(&child), TALLY_STORE);
    child_kill(&child, 0);
    CU_ASSERT_EQUAL(n_updates(&b, key), 0);
    TALLY_ASSERT_STATUS(write_update(&b, key, 1), TALLY_OK, &b.err);
    store_fixture_close(&b);
}

/* The server ends the half bracket before take() is out of patience. */
void test_store_postgres_leases__stopped_process_holds_up_a_taker_briefly(void)
{
    expect_take_from(true);
}

/* It is busy and would keep its locks for ever. */
void test_store_postgres_leases__taker_ends_the_connection_of_the_dead(void)
{
    expect_take_from(false);
}

static int64_t token_of(const struct store_fixture *f, int64_t job_key)
{
    return raw_ask(f->schema, "SELECT token FROM job_leases WHERE job_key = %lld",
                   (long long)job_key);
}

void test_store_postgres_leases__reconnecting_changes_the_tokens(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    expect_join(&f, "a", LEASE_MS);
    int64_t key = expect_job(&f, "x", TALLY_JOB_RUNNING);
    for (uint64_t i = 0; i < 3; i++) {
        CU_ASSERT_EQUAL(token_of(&f, key), 1 + (int64_t)i);
        raw_end_connections(f.schema);
        TALLY_ASSERT_STATUS(write_update_at_last(&f, key, (uint32_t)i), TALLY_OK, &f.err);
        CU_ASSERT_EQUAL(f.ops->counters(f.store).reconnects, i + 1);
        CU_ASSERT(holds(&f, key));
    }
    CU_ASSERT_EQUAL(token_of(&f, key), 4);
    CU_ASSERT_EQUAL(n_updates(&f, key), 3);
    store_fixture_close(&f);
}

/* The server falls silent after COMMIT was sent to it. Until what it had under way has ended, and
 * it may end either way, there is no new connection that could write. */
void test_store_postgres_leases__reconnecting_waits_for_the_old_connection(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    expect_join(&f, "a", LEASE_MS);
    int64_t key = expect_job(&f, "x", TALLY_JOB_RUNNING);
    pid_t backend = (pid_t)raw_ask(f.schema, "SELECT backend_pid FROM replicas");
    expect_begin(&f);
    expect_update(&f, key, 1, 1, "old");
    expect_update(&f, key, 1, 2, "old");
    TALLY_ASSERT_STATUS(f.ops->flush(f.store, &f.err), TALLY_OK, &f.err);
    CU_ASSERT_EQUAL_FATAL(kill(backend, SIGSTOP), 0);
    TALLY_ASSERT_STATUS(f.ops->commit(f.store, &f.err), TALLY_STORE, &f.err);
    /* Until the new connection waits for the lock that the old one has. */
    for (int i = 0; i < 3000 && strstr(f.err.message, "55P03") == NULL; i++) {
        TALLY_ASSERT_STATUS(write_update(&f, key, 3), TALLY_STORE, &f.err);
        usleep(10000);
    }
    CU_ASSERT_PTR_NOT_NULL(strstr(f.err.message, "55P03"));
    CU_ASSERT_EQUAL(n_updates(&f, key), 0);
    kill(backend, SIGCONT);
    TALLY_ASSERT_STATUS(write_update_at_last(&f, key, 3), TALLY_OK, &f.err);
    int64_t n = n_updates(&f, key);
    CU_ASSERT(n == 1 || n == 3);
    CU_ASSERT_EQUAL(raw_ask(f.schema, "SELECT token FROM job_leases"), 2);
    store_fixture_close(&f);
}

void test_store_postgres_leases__reconnecting_after_a_take_over_holds_nothing(void)
{
    struct store_fixture a;
    struct store_fixture b;
    open_two(&a, &b);
    int64_t key = expect_job(&a, "x", TALLY_JOB_RUNNING);
    let_die(&a, 1);
    TALLY_ASSERT_TEXT(taken(&b), "x");
    raw_end_connections(a.schema);
    TALLY_ASSERT_STATUS(write_update_at_last(&a, key, 1), TALLY_FAILED_PRECONDITION, &a.err);
    CU_ASSERT(!holds(&a, key));
    TALLY_ASSERT_STATUS(write_update(&b, key, 1), TALLY_OK, &b.err);
    close_two(&a, &b);
}

void test_store_postgres_leases__second_process_of_an_id_replaces_the_first(void)
{
    struct store_fixture old;
    struct store_fixture new;
    struct replica_walk walk;
    store_fixture_open(&old);
    store_fixture_open_beside(&new, &old);
    CU_ASSERT_EQUAL(expect_join(&old, "a", LEASE_MS), 1);
    int64_t key = expect_job(&old, "x", TALLY_JOB_RUNNING);
    CU_ASSERT_EQUAL(expect_join(&new, "a", LEASE_MS), 1);
    TALLY_ASSERT_STATUS(write_update_at_last(&old, key, 1), TALLY_FAILED_PRECONDITION, &old.err);
    TALLY_ASSERT_STATUS(renew(&old, "a", &walk), TALLY_FAILED_PRECONDITION, &old.err);
    TALLY_ASSERT_TEXT(taken(&old), "");
    CU_ASSERT(!holds(&old, key));
    TALLY_ASSERT_TEXT(taken(&new), "x");
    TALLY_ASSERT_STATUS(old.store->leases->leave(old.store, &old.err), TALLY_OK, &old.err);
    TALLY_ASSERT_STATUS(write_update(&new, key, 1), TALLY_OK, &new.err);
    CU_ASSERT_EQUAL(n_updates(&old, key), 1);
    close_two(&old, &new);
}

/* Without being looked at one by one: each heartbeat takes. */
void test_store_postgres_leases__ended_jobs_are_passed_over(void)
{
    enum { HANG_MS = 60000 };
    struct store_fixture a;
    struct store_fixture b;
    open_two(&a, &b);
    expect_job(&a, "x", TALLY_JOB_COMPLETED);
    raw_ask(a.schema, "INSERT INTO jobs SELECT (jsonb_populate_record(j, jsonb_build_object("
                      "'job_key', n, 'id', 'ended' || n, 'idempotency_key', NULL))).*"
                      " FROM jobs j, generate_series(100, 20000) n; "
                      "INSERT INTO job_leases SELECT n, 1, 1 FROM generate_series(100, 20000) n; "
                      "ANALYZE jobs, job_leases");
    TALLY_ASSERT_TEXT(taken(&b), "");
    store_fixture_close(&b); /* what it has done is counted at the end of its session */
    int64_t n_scans = 0;
    for (int i = 0; i < HANG_MS && n_scans == 0; i++) {
        n_scans = raw_ask(a.schema, "SELECT idx_scan FROM pg_stat_user_indexes WHERE schemaname ="
                                    " current_schema() AND indexrelname = 'jobs_live'");
        usleep(1000);
    }
    CU_ASSERT(n_scans > 0);
    store_fixture_close(&a);
}

/* Though a job that it led to its end keeps its lease. */
void test_store_postgres_leases__long_dead_replica_is_forgotten(void)
{
    static const char IS_THERE[] = "SELECT count(*) FROM replicas WHERE id = 'a'";
    struct store_fixture a;
    struct store_fixture b;
    struct store_fixture c;
    store_fixture_open(&a);
    store_fixture_open_beside(&b, &a);
    store_fixture_open_beside(&c, &a);
    expect_join(&a, "a", LEASE_MS);
    expect_job(&a, "x", TALLY_JOB_RUNNING);
    int64_t ended = expect_job(&a, "y", TALLY_JOB_COMPLETED);
    raw_ask(a.schema, "UPDATE replicas SET expires_at = clock_timestamp() - interval '8 days'");
    expect_join(&b, "b", LEASE_MS);
    CU_ASSERT_EQUAL(raw_ask(a.schema, "%s", IS_THERE), 1); /* its other job is nobody else's yet */
    TALLY_ASSERT_TEXT(taken(&b), "x");
    CU_ASSERT_EQUAL(expect_join(&c, "c", LEASE_MS), 3);
    CU_ASSERT_EQUAL(raw_ask(a.schema, "%s", IS_THERE), 0);
    CU_ASSERT_EQUAL(raw_ask(a.schema, "SELECT job_key FROM job_leases WHERE leader IS NULL"),
                    ended);
    TALLY_ASSERT_TEXT(taken(&c), "");
    store_fixture_close(&c);
    close_two(&a, &b);
}

void test_store_postgres_leases__numbers_run_out(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    struct tally_replica self = replica_named("new");
    int64_t number = 0;
    raw_ask(f.schema,
            "INSERT INTO replicas SELECT n, 'r' || n, '', 0, 0, 0, 0, 0, interval '1 hour',"
            " clock_timestamp(), true, 1 FROM generate_series(1, %d) n",
            (int)TALLY_MAX_REPLICA_NUMBER);
    TALLY_ASSERT_STATUS(f.store->leases->join(f.store, &self, LEASE_MS, &number, &f.err),
                        TALLY_STORE, &f.err);
    CU_ASSERT_PTR_NOT_NULL(strstr(f.err.message, "there are 65535 replicas already"));
    CU_ASSERT_EQUAL(expect_join(&f, "r7", LEASE_MS), 7); /* who is known has its own */
    raw_ask(f.schema, "DELETE FROM replicas WHERE number = 12345");
    CU_ASSERT_EQUAL(expect_join(&f, "new", LEASE_MS), 12345);
    store_fixture_close(&f);
}

void test_store_postgres_leases__given_job_waits_for_its_receiver(void)
{
    struct store_fixture a;
    struct store_fixture b;
    struct store_fixture c;
    open_two(&a, &b);
    store_fixture_open_beside(&c, &a);
    expect_join(&c, "c", LEASE_MS);
    const struct tally_store_leases *leases = a.store->leases;
    int64_t x = expect_job(&a, "x", TALLY_JOB_RUNNING);
    int64_t y = expect_job(&a, "y", TALLY_JOB_RUNNING);
    TALLY_ASSERT_STATUS(leases->give(a.store, x, 9, &a.err), TALLY_FAILED_PRECONDITION, &a.err);
    TALLY_ASSERT_STATUS(leases->give(b.store, x, 3, &b.err), TALLY_FAILED_PRECONDITION, &b.err);
    CU_ASSERT(holds(&a, x));
    tally_error_clear(&a.err);
    TALLY_ASSERT_STATUS(leases->give(a.store, x, 2, &a.err), TALLY_OK, &a.err);
    CU_ASSERT(!holds(&a, x) && holds(&a, y));
    TALLY_ASSERT_STATUS(write_update(&a, x, 1), TALLY_FAILED_PRECONDITION, &a.err);
    TALLY_ASSERT_STATUS(write_update(&b, x, 1), TALLY_FAILED_PRECONDITION, &b.err);
    TALLY_ASSERT_TEXT(taken(&c), "");
    TALLY_ASSERT_TEXT(taken(&a), "");
    TALLY_ASSERT_TEXT(taken(&b), "x");
    TALLY_ASSERT_STATUS(write_update(&b, x, 1), TALLY_OK, &b.err);
    TALLY_ASSERT_STATUS(leases->give(a.store, y, 2, &a.err), TALLY_OK, &a.err);
    let_die(&a, 2); /* the receiver dies before it takes */
    TALLY_ASSERT_TEXT(taken(&c), "x,y");
    store_fixture_close(&c);
    close_two(&a, &b);
}

void test_store_postgres_leases__leaving_frees_the_jobs_at_once(void)
{
    struct store_fixture a;
    struct store_fixture b;
    struct replica_walk walk;
    open_two(&a, &b);
    int64_t key = expect_job(&a, "x", TALLY_JOB_RUNNING);
    TALLY_ASSERT_STATUS(a.store->leases->leave(a.store, &a.err), TALLY_OK, &a.err);
    CU_ASSERT(!holds(&a, key));
    TALLY_ASSERT_STATUS(renew(&a, "a", &walk), TALLY_FAILED_PRECONDITION, &a.err);
    TALLY_ASSERT_TEXT(taken(&b), "x");
    TALLY_ASSERT_STATUS(write_update(&a, key, 1), TALLY_FAILED_PRECONDITION, &a.err);
    CU_ASSERT_EQUAL(n_updates(&a, key), 0);
    close_two(&a, &b);
}

/* A thread of the race below. */
struct taker {
    struct tally_store *store;
    pthread_barrier_t *start;
    int n_taken;
    enum tally_status status;
};

static enum tally_status count_job(void *context, const struct tally_store_job *job,
                                   struct tally_error *err)
{
    (void)job;
    (void)err;
    ((struct taker *)context)->n_taken++;
    return TALLY_OK;
}

static void *take_at_once(void *context)
{
    struct taker *taker = context;
    pthread_barrier_wait(taker->start);
    taker->status = taker->store->leases->take(taker->store, count_job, taker, NULL);
    return NULL;
}

void test_store_postgres_leases__one_taker_gets_all_jobs_of_the_dead(void)
{
    enum { N_RACES = 30, N_JOBS = 12 };
    struct store_fixture a;
    struct store_fixture f[2];
    open_two(&a, &f[0]);
    store_fixture_open_beside(&f[1], &a);
    expect_join(&f[1], "c", LEASE_MS);
    for (int i = 0; i < N_JOBS; i++) {
        char id[16];
        snprintf(id, sizeof id, "job %d", i);
        expect_job(&a, id, TALLY_JOB_RUNNING);
    }
    for (int race = 0; race < N_RACES; race++) {
        pthread_barrier_t start;
        pthread_t threads[2];
        struct taker takers[2];
        raw_ask(a.schema, "UPDATE job_leases SET leader = 1, token = token + 1");
        let_die(&a, 1);
        pthread_barrier_init(&start, NULL, 2);
        for (int i = 0; i < 2; i++) {
            takers[i] = (struct taker){f[i].store, &start, 0, TALLY_INTERNAL};
            CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[i], NULL, take_at_once, &takers[i]), 0);
        }
        for (int i = 0; i < 2; i++) {
            pthread_join(threads[i], NULL);
            CU_ASSERT_EQUAL(takers[i].status, TALLY_OK);
        }
        pthread_barrier_destroy(&start);
        CU_ASSERT_EQUAL(takers[0].n_taken + takers[1].n_taken, N_JOBS);
        CU_ASSERT(takers[0].n_taken == 0 || takers[1].n_taken == 0);
    }
    /* They wait for each other one way only. */
    CU_ASSERT_EQUAL(f[0].ops->counters(f[0].store).retried_conflicts, 0);
    CU_ASSERT_EQUAL(f[1].ops->counters(f[1].store).retried_conflicts, 0);
    store_fixture_close(&f[1]);
    close_two(&a, &f[0]);
}

/* The database was away for an hour: nobody could renew. */
void test_store_postgres_leases__time_without_a_store_does_not_count(void)
{
    struct store_fixture a;
    struct store_fixture b;
    struct replica_walk walk;
    open_two(&a, &b);
    int64_t key = expect_job(&a, "x", TALLY_JOB_RUNNING);
    raw_ask(
        a.schema,
        "UPDATE replicas SET lease = '10 min', expires_at = clock_timestamp() - interval '51 min';"
        "UPDATE lease_clock SET renewed_at = clock_timestamp() - interval '1 hour'");
    TALLY_ASSERT_TEXT(taken(&b), "");
    TALLY_ASSERT_STATUS(renew(&b, "b", &walk), TALLY_OK, &b.err);
    CU_ASSERT(walk.n == 2 && walk.replicas[0].is_alive);
    TALLY_ASSERT_TEXT(taken(&b), "");
    CU_ASSERT(holds(&a, key));
    TALLY_ASSERT_STATUS(write_update(&a, key, 1), TALLY_OK, &a.err);
    /* It had 9 minutes left when the store went away, and has them again, no more. */
    int64_t left =
        raw_ask(a.schema, "SELECT extract(epoch FROM expires_at - clock_timestamp())::bigint"
                          " FROM replicas WHERE number = 1");
    CU_ASSERT(left > 0 && left <= 540);
    let_die(&a, 1); /* before the store went away */
    raw_ask(a.schema, "UPDATE lease_clock SET renewed_at = clock_timestamp() - interval '30 min'");
    TALLY_ASSERT_STATUS(renew(&b, "b", &walk), TALLY_OK, &b.err);
    CU_ASSERT(walk.n == 2 && !walk.replicas[0].is_alive);
    TALLY_ASSERT_TEXT(taken(&b), "x");
    close_two(&a, &b);
}

/* The database says that it leads, and it does not know: an answer was lost. */
void test_store_postgres_leases__lead_without_a_token_is_taken_again(void)
{
    struct store_fixture a;
    struct store_fixture b;
    open_two(&a, &b);
    int64_t key = expect_job(&a, "x", TALLY_JOB_RUNNING);
    raw_ask(a.schema, "UPDATE job_leases SET token = token + 1");
    CU_ASSERT(holds(&a, key));
    expect_renew(&a, "a");
    CU_ASSERT(!holds(&a, key));
    TALLY_ASSERT_TEXT(taken(&b), "");
    TALLY_ASSERT_TEXT(taken(&a), "x");
    TALLY_ASSERT_STATUS(write_update(&a, key, 1), TALLY_OK, &a.err);
    expect_renew(&a, "a");
    CU_ASSERT(holds(&a, key));
    close_two(&a, &b);
}

void test_store_postgres_leases__ended_job_may_still_be_written(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    expect_join(&f, "a", LEASE_MS);
    struct tally_store_job job = sample_job("x", 1);
    job.key = expect_job(&f, "x", TALLY_JOB_RUNNING);
    for (int i = 0; i < 3; i++) {
        job.status = TALLY_JOB_COMPLETED;
        job.wire_in_bytes = (uint64_t)i;
        expect_begin(&f);
        TALLY_ASSERT_STATUS(f.ops->job_update(f.store, &job, &f.err), TALLY_OK, &f.err);
        expect_commit(&f);
        expect_renew(&f, "a");
    }
    TALLY_ASSERT_TEXT(taken(&f), "");
    store_fixture_close(&f);
}

void test_store_postgres_leases__who_is_no_replica_writes_what_nobody_leads(void)
{
    struct store_fixture a;
    struct store_fixture other;
    store_fixture_open(&a);
    store_fixture_open_beside(&other, &a);
    int64_t key = expect_job(&other, "x", TALLY_JOB_RUNNING);
    TALLY_ASSERT_STATUS(write_update(&other, key, 1), TALLY_OK, &other.err);
    expect_join(&a, "a", LEASE_MS);
    TALLY_ASSERT_STATUS(write_update(&a, key, 2), TALLY_FAILED_PRECONDITION, &a.err);
    TALLY_ASSERT_TEXT(taken(&a), "x");
    TALLY_ASSERT_STATUS(write_update(&other, key, 2), TALLY_FAILED_PRECONDITION, &other.err);
    TALLY_ASSERT_STATUS(write_update(&a, key, 2), TALLY_OK, &a.err);
    CU_ASSERT_EQUAL(n_updates(&a, key), 2);
    close_two(&a, &other);
}

static struct tally_job_leader leader_of(struct store_fixture *f, const char *id)
{
    struct tally_job_leader leader = {.key = -1};
    tally_error_clear(&f->err);
    TALLY_ASSERT_STATUS(f->store->leases->leader_of(f->store, id, &leader, &f->err), TALLY_OK,
                        &f->err);
    return leader;
}

void test_store_postgres_leases__leader_of_tells_who_leads(void)
{
    struct store_fixture a;
    struct store_fixture b;
    open_two(&a, &b);
    struct tally_job_leader leader;
    TALLY_ASSERT_STATUS(b.store->leases->leader_of(b.store, "x", &leader, &b.err), TALLY_NOT_FOUND,
                        &b.err);
    int64_t key = expect_job(&a, "x", TALLY_JOB_RUNNING);
    leader = leader_of(&b, "x");
    CU_ASSERT_EQUAL(leader.key, key);
    CU_ASSERT(leader.is_live && leader.has_leader && leader.replica.is_alive);
    CU_ASSERT_EQUAL(leader.replica.number, 1);
    TALLY_ASSERT_TEXT(leader.replica.id, "a");
    TALLY_ASSERT_TEXT(leader.replica.address, "http://a:8080");
    let_die(&a, 1);
    leader = leader_of(&b, "x");
    CU_ASSERT(leader.has_leader && !leader.replica.is_alive);
    a.store->leases->leave(a.store, NULL);
    leader = leader_of(&b, "x");
    CU_ASSERT(leader.is_live && !leader.has_leader);
    expect_job(&b, "y", TALLY_JOB_CANCELLED);
    leader = leader_of(&a, "y");
    CU_ASSERT(!leader.is_live && !leader.has_leader);
    close_two(&a, &b);
}
