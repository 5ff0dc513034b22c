/* What a PostgreSQL server can do to a transaction: drop the connection, or report a conflict or a
 * deadlock. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/contract/store_tests.h"
#include "tests/contract/support/raw_postgres.h"
#include "tests/contract/support/store_fixture.h"

/* The first call on a store after its connection was lost. */
typedef enum tally_status first_call_fn(struct store_fixture *f);

static enum tally_status call_job_get(struct store_fixture *f)
{
    struct tally_store_job job;
    return f->ops->job_get(f->store, "a", &job, &f->err);
}

static enum tally_status call_check(struct store_fixture *f)
{
    return f->ops->check(f->store, &f->err);
}

static enum tally_status call_begin(struct store_fixture *f)
{
    enum tally_status status = f->ops->begin(f->store, &f->err);
    f->ops->rollback(f->store);
    return status;
}

/* Even a local server may take longer to reconnect than a call waits. */
void test_store_postgres_server__lost_connection_is_made_again(void)
{
    static first_call_fn *const CALLS[] = {call_job_get, call_check, call_begin};
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
    for (int i = 0; i < 3; i++) {
        raw_end_connections(f.schema);
        enum tally_status status = TALLY_STORE;
        for (int n = 0; n < 3000 && status == TALLY_STORE; n++) {
            tally_error_clear(&f.err);
            status = CALLS[i](&f);
            usleep(status == TALLY_OK ? 0 : 10000);
        }
        TALLY_ASSERT_STATUS(status, TALLY_OK, &f.err);
        CU_ASSERT_EQUAL(f.ops->counters(f.store).reconnects, (uint64_t)i + 1);
    }
    expect_begin(&f);
    expect_update(&f, key, 1, 1, "x");
    expect_commit(&f);
    CU_ASSERT_EQUAL(raw_n_rows(f.schema, "updates"), 1);
    store_fixture_close(&f);
}

/* After begin(), after a flush, and in a transaction with a read of its own. */
void test_store_postgres_server__lost_in_a_transaction_leaves_nothing(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
    struct tally_store_update update = {1, 2, (const uint8_t *)"y", 1};
    struct tally_store_job job;
    for (int when = 0; when < 3; when++) {
        expect_connection(&f);
        expect_begin(&f);
        expect_update(&f, key, 1, 1, "x");
        if (when == 1) {
            TALLY_ASSERT_STATUS(f.ops->flush(f.store, &f.err), TALLY_OK, &f.err);
        } else if (when == 2) {
            f.ops->job_get(f.store, "a", &job, NULL);
        }
        raw_end_connections(f.schema);
        enum tally_status status = f.ops->update_insert(f.store, key, &update, &f.err);
        if (when == 2) {
            TALLY_ASSERT_STATUS(f.ops->job_get(f.store, "a", &job, &f.err), TALLY_STORE, &f.err);
            TALLY_ASSERT_STATUS(f.ops->update_insert(f.store, key, &update, NULL), TALLY_STORE,
                                NULL);
        }
        CU_ASSERT_EQUAL(status, TALLY_OK);
        TALLY_ASSERT_STATUS(f.ops->commit(f.store, &f.err), TALLY_STORE, &f.err);
        CU_ASSERT_EQUAL(raw_n_rows(f.schema, "updates"), 0);
    }
    expect_connection(&f);
    expect_begin(&f);
    expect_update(&f, key, 1, 1, "x");
    expect_commit(&f);
    CU_ASSERT_EQUAL(raw_n_rows(f.schema, "updates"), 1);
    store_fixture_close(&f);
}

/* Adds a trigger that acts on its first `n` calls; a rollback does not undo the count. `when` is
 * "BEFORE", or "CONSTRAINT" for the end of the transaction. */
static void add_trigger(const struct store_fixture *f, const char *when, int n, const char *what)
{
    bool at_commit = strcmp(when, "CONSTRAINT") == 0;
    raw_ask(f->schema,
            "CREATE SEQUENCE calls; CREATE FUNCTION disturb() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN IF nextval('calls') <= %d THEN %s; END IF; RETURN NEW; END $$;"
            "CREATE %s TRIGGER disturb %s INSERT ON updates %s FOR EACH ROW"
            " EXECUTE FUNCTION disturb()",
            n, what, at_commit ? "CONSTRAINT" : "", at_commit ? "AFTER" : when,
            at_commit ? "DEFERRABLE INITIALLY DEFERRED" : "");
}

static void expect_loss(const char *when)
{
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
    add_trigger(&f, when, 1, "PERFORM pg_terminate_backend(pg_backend_pid())");
    TALLY_ASSERT_STATUS(write_transaction(&f, key, 1), TALLY_STORE, &f.err);
    CU_ASSERT_EQUAL(raw_n_rows(f.schema, "updates"), 0);
    CU_ASSERT_EQUAL(raw_n_rows(f.schema, "job_states"), 0);
    CU_ASSERT_EQUAL(raw_n_rows(f.schema, "job_state_changes"), 0);
    expect_connection(&f);
    TALLY_ASSERT_STATUS(write_transaction(&f, key, 1), TALLY_OK, &f.err);
    CU_ASSERT_EQUAL(raw_n_rows(f.schema, "updates"), 3);
    CU_ASSERT_EQUAL(f.ops->counters(f.store).reconnects, 1);
    store_fixture_close(&f);
}

void test_store_postgres_server__lost_in_a_write_leaves_nothing(void)
{
    expect_loss("BEFORE");
}

void test_store_postgres_server__lost_in_commit_leaves_nothing(void)
{
    expect_loss("CONSTRAINT");
}

/* Connections are ended at random moments, whatever transaction is open. */
void test_store_postgres_server__random_losses_lose_nothing_acknowledged(void)
{
    enum { N_LOSSES = 40 };
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
    struct raw *raw = raw_open(f.schema);
    char sql[512];
    snprintf(sql, sizeof sql,
             "DO $$ BEGIN FOR i IN 1..%d LOOP PERFORM pg_sleep(0.02 + random() * 0.1);"
             " PERFORM pg_stat_clear_snapshot();"
             " PERFORM pg_terminate_backend(pid) FROM pg_stat_activity"
             " WHERE application_name = '%s'; END LOOP; END $$",
             N_LOSSES, f.schema);
    raw_send(raw, sql);
    int64_t round = 1;
    int64_t n_failed = 0;
    while (raw_is_busy(raw)) {
        enum tally_status status = write_transaction(&f, key, round);
        if (status == TALLY_OK || status == TALLY_ALREADY_EXISTS) {
            round++;
        } else {
            CU_ASSERT_EQUAL(status, TALLY_STORE);
            n_failed++;
            usleep(1000);
        }
    }
    raw_wait(raw);
    raw_close(raw);
    /* On a busy machine no connection may have lasted long enough to be used. It is unknown whether
     * the round that failed last was committed. */
    expect_connection(&f);
    const enum tally_status last = write_transaction(&f, key, round);
    CU_ASSERT(last == TALLY_OK || last == TALLY_ALREADY_EXISTS);
    int64_t n_whole = raw_ask(f.schema, "SELECT count(*) FROM (SELECT FROM updates GROUP BY round"
                                        " HAVING count(*) = 3) AS whole");
    CU_ASSERT_EQUAL(n_whole, round);
    CU_ASSERT_EQUAL(raw_n_rows(f.schema, "updates"), 3 * n_whole);
    CU_ASSERT(n_failed > 0);
    CU_ASSERT(f.ops->counters(f.store).reconnects > 0);
    store_fixture_close(&f);
}

static void expect_retries(const char *when, const char *state)
{
    struct store_fixture f;
    char what[96];
    store_fixture_open(&f);
    int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
    snprintf(what, sizeof what, "RAISE EXCEPTION 'conflict' USING ERRCODE = '%s'", state);
    add_trigger(&f, when, 3, what);
    TALLY_ASSERT_STATUS(write_transaction(&f, key, 1), TALLY_OK, &f.err);
    CU_ASSERT_EQUAL(raw_n_rows(f.schema, "updates"), 3);
    CU_ASSERT_EQUAL(raw_n_rows(f.schema, "job_states"), 1);
    CU_ASSERT_EQUAL(raw_n_rows(f.schema, "job_state_changes"), 1);
    CU_ASSERT_EQUAL(f.ops->counters(f.store).retried_conflicts, 3);
    CU_ASSERT_EQUAL(f.ops->counters(f.store).reconnects, 0);
    store_fixture_close(&f);
}

void test_store_postgres_server__conflict_in_a_write_is_retried(void)
{
    expect_retries("BEFORE", "40001");
    expect_retries("BEFORE", "40P01");
}

void test_store_postgres_server__conflict_in_commit_is_retried(void)
{
    expect_retries("CONSTRAINT", "40001");
}

/* The key of a new job and the rejected writes stay the same, although the transaction was
 * repeated. */
void test_store_postgres_server__retried_transaction_keeps_what_was_told(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t old = expect_job(&f, "a", TALLY_JOB_RUNNING);
    add_trigger(&f, "BEFORE", 2, "RAISE EXCEPTION 'conflict' USING ERRCODE = '40001'");
    raw_ask(f.schema, "SELECT setval('calls', 100)"); /* not yet */
    expect_begin(&f);
    expect_update(&f, old, 1, 1, "first");
    f.ops->state_put(f.store, old, "put", 3, NULL);
    f.ops->state_append(f.store, old, 1, " 1", 2, NULL);
    expect_commit(&f);
    struct tally_store_job job = sample_job("b", 1);
    struct tally_store_update again = {1, 1, (const uint8_t *)"second", 6};
    expect_begin(&f);
    int64_t key = expect_job_insert(&f, &job);
    TALLY_ASSERT_STATUS(flushed(&f, f.ops->update_insert(f.store, old, &again, &f.err)),
                        TALLY_ALREADY_EXISTS, &f.err);
    tally_error_clear(&f.err);
    TALLY_ASSERT_STATUS(flushed(&f, f.ops->state_append(f.store, old, 1, " again", 6, &f.err)),
                        TALLY_ALREADY_EXISTS, &f.err);
    tally_error_clear(&f.err);
    TALLY_ASSERT_STATUS(flushed(&f, f.ops->state_append(f.store, key, 1, " b", 2, &f.err)),
                        TALLY_NOT_FOUND, &f.err);
    f.ops->state_append(f.store, old, 2, " 2", 2, NULL);
    f.ops->state_put(f.store, key, "b", 1, NULL); /* too late for the rejected append */
    expect_update(&f, key, 1, 1, "b1");
    raw_ask(f.schema, "SELECT setval('calls', 1, false)");
    int64_t other_key = 0;
    struct tally_store_job other = sample_job("c", 1);
    tally_error_clear(&f.err);
    TALLY_ASSERT_STATUS(f.ops->job_insert(f.store, &other, "{}", 2, NULL, 0, &other_key, &f.err),
                        TALLY_OK, &f.err);
    /* Other transactions come first and use the next keys. */
    struct raw *raw = raw_open(f.schema);
    raw_send(raw, "UPDATE job_keys SET last_key = last_key + 10");
    expect_commit(&f);
    raw_wait(raw);
    raw_close(raw);
    CU_ASSERT_EQUAL(f.ops->counters(f.store).retried_conflicts, 2);
    struct tally_store_job actual;
    f.ops->job_get(f.store, "b", &actual, NULL);
    CU_ASSERT_EQUAL(actual.key, key);
    f.ops->job_get(f.store, "c", &actual, NULL);
    CU_ASSERT_EQUAL(actual.key, other_key);
    CU_ASSERT_EQUAL(raw_n_rows(f.schema, "updates"), 2);
    CU_ASSERT_EQUAL(raw_n_rows(f.schema, "updates WHERE body = 'first'"), 1);
    CU_ASSERT_EQUAL(raw_n_rows(f.schema, "job_state_changes"), 2);
    expect_state_text(&f, old, "put 1 2");
    expect_state_text(&f, key, "b");
    store_fixture_close(&f);
}

void test_store_postgres_server__endless_conflict_is_given_up(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
    add_trigger(&f, "BEFORE", 1000, "RAISE EXCEPTION 'conflict' USING ERRCODE = '40001'");
    TALLY_ASSERT_STATUS(write_transaction(&f, key, 1), TALLY_STORE, &f.err);
    CU_ASSERT_PTR_NOT_NULL(strstr(f.err.message, "40001"));
    raw_ask(f.schema, "DROP TRIGGER disturb ON updates");
    TALLY_ASSERT_STATUS(write_transaction(&f, key, 1), TALLY_OK, &f.err);
    CU_ASSERT_EQUAL(raw_n_rows(f.schema, "updates"), 3);
    store_fixture_close(&f);
}

static bool is_waiting(int64_t pid)
{
    return raw_ask("public", "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = %lld",
                   (long long)pid) > 0;
}

void test_store_postgres_server__deadlock_is_retried(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t a = expect_job(&f, "a", TALLY_JOB_RUNNING);
    int64_t b = expect_job(&f, "b", TALLY_JOB_RUNNING);
    struct raw *raw = raw_open(f.schema);
    int64_t pid = raw_run(raw, "SELECT pg_backend_pid()");
    /* The store must be the one that detects the deadlock. */
    raw_run(raw, "SET deadlock_timeout = '1 min'");
    raw_run(raw, "BEGIN; SELECT FROM job_leases WHERE job_key = %lld FOR UPDATE", (long long)b);
    expect_begin(&f);
    expect_update(&f, a, 1, 1, "a");
    TALLY_ASSERT_STATUS(f.ops->flush(f.store, &f.err), TALLY_OK, &f.err);
    raw_send(raw, "SELECT FROM job_leases ORDER BY job_key FOR UPDATE; COMMIT");
    for (int i = 0; i < 1000 && !is_waiting(pid); i++) {
        usleep(1000);
    }
    expect_update(&f, b, 1, 1, "b");
    expect_commit(&f);
    raw_wait(raw);
    raw_close(raw);
    CU_ASSERT_EQUAL(raw_n_rows(f.schema, "updates"), 2);
    /* The store may be first again, before the other connection has woken up. */
    CU_ASSERT(f.ops->counters(f.store).retried_conflicts >= 1);
    store_fixture_close(&f);
}

/* A connection that locks in ascending order never deadlocks with a transaction, whatever the order
 * of its writes: while the transaction waits for the first job, it must not have locked the
 * second. */
void test_store_postgres_server__transactions_lock_in_one_order(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t a = expect_job(&f, "a", TALLY_JOB_RUNNING);
    int64_t b = expect_job(&f, "b", TALLY_JOB_RUNNING);
    /* The rows are stored in the opposite order. */
    raw_ask(f.schema, "UPDATE job_leases SET token = token WHERE job_key = %lld", (long long)a);
    raw_ask(f.schema, "VACUUM FULL job_leases");
    struct raw *raw = raw_open(f.schema);
    raw_run(raw, "BEGIN; SELECT FROM job_leases WHERE job_key = %lld FOR UPDATE", (long long)a);
    raw_send(raw, "SELECT pg_sleep(0.5);"
                  "SELECT FROM job_leases ORDER BY job_key DESC LIMIT 1 FOR UPDATE NOWAIT; COMMIT");
    expect_begin(&f);
    expect_update(&f, b, 1, 1, "b");
    expect_update(&f, a, 1, 1, "a");
    expect_commit(&f);
    raw_wait(raw);
    raw_close(raw);
    CU_ASSERT_EQUAL(raw_n_rows(f.schema, "updates"), 2);
    store_fixture_close(&f);
}

/* An error that the server detects only at the end of the transaction. */
void test_store_postgres_server__deferred_failure_fails_the_commit(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
    add_trigger(&f, "CONSTRAINT", 1, "RAISE EXCEPTION 'no' USING ERRCODE = '53100'");
    TALLY_ASSERT_STATUS(write_transaction(&f, key, 1), TALLY_STORE, &f.err);
    CU_ASSERT_EQUAL(raw_n_rows(f.schema, "updates"), 0);
    TALLY_ASSERT_STATUS(write_transaction(&f, key, 1), TALLY_OK, &f.err);
    store_fixture_close(&f);
}
