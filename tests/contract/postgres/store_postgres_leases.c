/* Leases on a server: locks, connections, and the content of the tables. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/contract/store_tests.h"
#include "tests/contract/support/child.h"
#include "tests/contract/support/lease_fixture.h"
#include "tests/contract/support/raw_postgres.h"

/* Makes it look as if replica `number` had not renewed for a long time and its connection were
 * unknown. */
static void let_die(const struct store_fixture *f, int64_t number)
{
    raw_ask(
        f->schema,
        "UPDATE replicas SET expires_at = clock_timestamp() - interval '1 hour', backend_pid = NULL"
        " WHERE number = %lld",
        (long long)number);
}

/* The caller of a read may not see that it met the fence; the commit must report it. */
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

void test_store_postgres_leases__fence_is_held_until_the_end_of_the_transaction(void)
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

/* Context of stay_in_transaction. */
struct stay {
    const char *uri;
    bool is_stopped; /* false: it keeps reading in its transaction as long as it can */
};

/* In a child: joins as "a", inserts job "x", and stays in the middle of a transaction on it.
 * Reports the key, then the result of commit(). */
static void stay_in_transaction(void *context, int reports)
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

/* Declares a leader dead in the middle of its transaction, and takes its jobs. */
static void expect_take_from(bool is_stopped)
{
    struct store_fixture b;
    store_fixture_open(&b);
    expect_join(&b, "b", LEASE_MS);
    struct stay stay = {b.uri, is_stopped};
    struct child child = child_start(stay_in_transaction, &stay);
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

/* The server ends the unfinished transaction before take() times out. */
void test_store_postgres_leases__stopped_process_holds_up_a_taker_briefly(void)
{
    expect_take_from(true);
}

/* The dead leader's connection is busy and would keep its locks forever. */
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

/* The server stops responding after COMMIT was sent to it. Until the pending transaction has ended,
 * in either way, no new connection can write. */
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
    /* Waits until the new connection waits for the lock of the old one. */
    for (int i = 0; i < 3000 && strstr(f.err.message, "55P03") == NULL; i++) {
        TALLY_ASSERT_STATUS(write_update(&f, key, 3), TALLY_STORE, &f.err);
        usleep(10000);
    }
    CU_ASSERT_PTR_NOT_NULL(strstr(f.err.message, "55P03"));
    CU_ASSERT_EQUAL(raw_ask(f.schema, "SELECT count(*) FROM updates"), 0);
    kill(backend, SIGCONT);
    TALLY_ASSERT_STATUS(write_update_at_last(&f, key, 3), TALLY_OK, &f.err);
    int n = n_updates(&f, key);
    CU_ASSERT(n == 1 || n == 3);
    CU_ASSERT_EQUAL(raw_ask(f.schema, "SELECT token FROM job_leases"), 2);
    store_fixture_close(&f);
}

/* Ended jobs must not be read one by one, because every heartbeat calls take(). */
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
    store_fixture_close(&b); /* its index scans are counted when its session ends */
    int64_t n_scans = 0;
    for (int i = 0; i < HANG_MS && n_scans == 0; i++) {
        n_scans = raw_ask(a.schema, "SELECT idx_scan FROM pg_stat_user_indexes WHERE schemaname ="
                                    " current_schema() AND indexrelname = 'jobs_live'");
        usleep(1000);
    }
    CU_ASSERT(n_scans > 0);
    store_fixture_close(&a);
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
    CU_ASSERT_PTR_NOT_NULL(strstr(f.err.message, "65535 replicas have already joined"));
    CU_ASSERT_EQUAL(expect_join(&f, "r7", LEASE_MS), 7); /* a known replica keeps its number */
    raw_ask(f.schema, "DELETE FROM replicas WHERE number = 12345");
    CU_ASSERT_EQUAL(expect_join(&f, "new", LEASE_MS), 12345);
    store_fixture_close(&f);
}

/* One thread of the race below. */
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
    /* Only one of the two ever waits for the other, so there was no deadlock to retry. */
    CU_ASSERT_EQUAL(f[0].ops->counters(f[0].store).retried_conflicts, 0);
    CU_ASSERT_EQUAL(f[1].ops->counters(f[1].store).retried_conflicts, 0);
    store_fixture_close(&f[1]);
    close_two(&a, &f[0]);
}

/* According to the database it leads the job, but it does not know, because a response was lost. */
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
