/* What a PostgreSQL server can do to a store, and what may be found in its database. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "storage/backends/migrate.h"
#include "tests/contract/raw_postgres.h"
#include "tests/contract/store_fixture.h"
#include "tests/contract/store_tests.h"

static int64_t n_rows(const struct store_fixture *f, const char *table)
{
    return raw_ask(f->schema, "SELECT count(*) FROM %s", table);
}

static void expect_state(struct store_fixture *f, int64_t key, const char *text)
{
    struct tally_buffer state = {0};
    tally_error_clear(&f->err);
    TALLY_ASSERT_STATUS(f->ops->state_get(f->store, key, &state, &f->err), TALLY_OK, &f->err);
    tally_buffer_append(&state, "", 1);
    TALLY_ASSERT_TEXT((const char *)state.data, text);
    tally_buffer_fini(&state);
}

/* Context of the follow_ functions: what must come next. */
struct follow {
    int64_t next;
    int64_t step;
    int n;
};

static enum tally_status follow_round(void *context, const struct tally_round_record *record,
                                      struct tally_error *err)
{
    (void)err;
    struct follow *follow = context;
    CU_ASSERT_EQUAL(record->round, follow->next);
    follow->next += follow->step;
    follow->n++;
    return TALLY_OK;
}

static enum tally_status follow_update(void *context, const struct tally_store_update *update,
                                       struct tally_error *err)
{
    (void)err;
    struct follow *follow = context;
    CU_ASSERT_EQUAL(update->client, follow->next);
    follow->next += follow->step;
    CU_ASSERT(update->n_body == 3 && memcmp(update->body, "xyz", 3) == 0);
    follow->n++;
    return TALLY_OK;
}

static enum tally_status follow_job(void *context, const struct tally_store_job *job,
                                    struct tally_error *err)
{
    (void)err;
    struct follow *follow = context;
    CU_ASSERT_EQUAL(job->key, follow->next);
    follow->next += follow->step;
    follow->n++;
    return TALLY_OK;
}

/* More rows than a page has, and numbers of them at which pages end. */
void test_store_postgres_server__huge_lists_are_whole(void)
{
    static const int SIZES[] = {1000, 2000, 2500};
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
    struct tally_round_record record = sample_record(1, 1);
    expect_begin(&f);
    f.ops->round_insert(f.store, key, &record, NULL);
    expect_commit(&f);
    for (int i = 0; i < 3; i++) {
        raw_ask(f.schema,
                "CREATE TEMP TABLE one AS SELECT * FROM rounds WHERE round = 1;"
                "DELETE FROM rounds; DELETE FROM updates;"
                "DO $$ BEGIN FOR i IN 1..%d LOOP UPDATE one SET round = i;"
                " INSERT INTO rounds SELECT * FROM one;"
                " INSERT INTO updates VALUES (%lld, 1, i - 1, 'xyz'); END LOOP; END $$",
                SIZES[i], (long long)key);
        struct follow rounds = {.next = 1, .step = 1};
        struct follow updates = {.next = 0, .step = 1};
        TALLY_ASSERT_STATUS(
            f.ops->round_list(f.store, key, 0, INT64_MAX, follow_round, &rounds, &f.err), TALLY_OK,
            &f.err);
        CU_ASSERT_EQUAL(rounds.n, SIZES[i]);
        rounds = (struct follow){.next = 7, .step = 1};
        f.ops->round_list(f.store, key, 6, 1300, follow_round, &rounds, NULL);
        CU_ASSERT_EQUAL(rounds.n, SIZES[i] == 1000 ? 994 : 1300);
        TALLY_ASSERT_STATUS(f.ops->update_list(f.store, key, 1, follow_update, &updates, &f.err),
                            TALLY_OK, &f.err);
        CU_ASSERT_EQUAL(updates.n, SIZES[i]);
    }
    raw_ask(f.schema, "CREATE TEMP TABLE one AS SELECT * FROM jobs;"
                      "DO $$ BEGIN FOR i IN 2..2300 LOOP UPDATE one SET job_key = i, id = i::text;"
                      " INSERT INTO jobs SELECT * FROM one; END LOOP; END $$");
    struct follow oldest_first = {.next = 1, .step = 1};
    struct follow newest_first = {.next = 2300, .step = -1};
    f.ops->job_list_live(f.store, follow_job, &oldest_first, NULL);
    f.ops->job_list(f.store, -1, INT64_MAX, INT64_MAX, follow_job, &newest_first, NULL);
    CU_ASSERT_EQUAL(oldest_first.n, 2300);
    CU_ASSERT_EQUAL(newest_first.n, 2300);
    store_fixture_close(&f);
}

/* The first one that a store makes after its connection was lost. */
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

/* A server nearby may need longer than a call waits. */
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
    CU_ASSERT_EQUAL(n_rows(&f, "updates"), 1);
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
        CU_ASSERT_EQUAL(n_rows(&f, "updates"), 0);
    }
    expect_connection(&f);
    expect_begin(&f);
    expect_update(&f, key, 1, 1, "x");
    expect_commit(&f);
    CU_ASSERT_EQUAL(n_rows(&f, "updates"), 1);
    store_fixture_close(&f);
}

/* A trigger that does something the first `n` times that it is called; what it counts with is not
 * undone by a rollback. `when` is "BEFORE", or "CONSTRAINT" for at the end of the transaction. */
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

/* Three updates, a state and a change of it in one transaction. */
static enum tally_status write_transaction(struct store_fixture *f, int64_t key, int64_t round)
{
    struct tally_store_update update = {round, 0, (const uint8_t *)"body", 4};
    tally_error_clear(&f->err);
    enum tally_status status = f->ops->begin(f->store, &f->err);
    if (status != TALLY_OK) {
        return status;
    }
    for (; update.client < 3 && status == TALLY_OK; update.client++) {
        status = f->ops->update_insert(f->store, key, &update, &f->err);
    }
    if (status == TALLY_OK) {
        status = f->ops->state_put(f->store, key, &round, sizeof round, &f->err);
    }
    if (status == TALLY_OK) {
        status = f->ops->state_append(f->store, key, round, "change", 6, &f->err);
    }
    return status == TALLY_OK ? f->ops->commit(f->store, &f->err)
                              : (f->ops->rollback(f->store), status);
}

static void expect_loss(const char *when)
{
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
    add_trigger(&f, when, 1, "PERFORM pg_terminate_backend(pg_backend_pid())");
    TALLY_ASSERT_STATUS(write_transaction(&f, key, 1), TALLY_STORE, &f.err);
    CU_ASSERT_EQUAL(n_rows(&f, "updates"), 0);
    CU_ASSERT_EQUAL(n_rows(&f, "job_states"), 0);
    CU_ASSERT_EQUAL(n_rows(&f, "job_state_changes"), 0);
    expect_connection(&f);
    TALLY_ASSERT_STATUS(write_transaction(&f, key, 1), TALLY_OK, &f.err);
    CU_ASSERT_EQUAL(n_rows(&f, "updates"), 3);
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

/* Connections are ended at random moments by somebody who knows nothing of transactions. */
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
    /* Of the last one nobody knows, if its commit was not answered. */
    int64_t n_whole = raw_ask(f.schema, "SELECT count(*) FROM (SELECT FROM updates GROUP BY round"
                                        " HAVING count(*) = 3) AS whole");
    CU_ASSERT(n_whole >= round - 1 && n_whole <= round);
    CU_ASSERT_EQUAL(n_rows(&f, "updates"), 3 * n_whole);
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
    CU_ASSERT_EQUAL(n_rows(&f, "updates"), 3);
    CU_ASSERT_EQUAL(n_rows(&f, "job_states"), 1);
    CU_ASSERT_EQUAL(n_rows(&f, "job_state_changes"), 1);
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

/* The key of a new job and what was refused are as before, though all was run again. */
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
    f.ops->state_put(f.store, key, "b", 1, NULL); /* to what was refused, too late */
    expect_update(&f, key, 1, 1, "b1");
    raw_ask(f.schema, "SELECT setval('calls', 1, false)");
    int64_t other_key = 0;
    struct tally_store_job other = sample_job("c", 1);
    tally_error_clear(&f.err);
    TALLY_ASSERT_STATUS(f.ops->job_insert(f.store, &other, "{}", 2, NULL, 0, &other_key, &f.err),
                        TALLY_OK, &f.err);
    /* Others come in between and are given the next keys. */
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
    CU_ASSERT_EQUAL(n_rows(&f, "updates"), 2);
    CU_ASSERT_EQUAL(n_rows(&f, "updates WHERE body = 'first'"), 1);
    CU_ASSERT_EQUAL(n_rows(&f, "job_state_changes"), 2);
    expect_state(&f, old, "put 1 2");
    expect_state(&f, key, "b");
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
    CU_ASSERT_EQUAL(n_rows(&f, "updates"), 3);
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
    /* It is the store that notices the deadlock. */
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
    CU_ASSERT_EQUAL(n_rows(&f, "updates"), 2);
    /* It may be first again, before the other has woken up. */
    CU_ASSERT(f.ops->counters(f.store).retried_conflicts >= 1);
    store_fixture_close(&f);
}

/* Whoever locks in ascending order meets no deadlock with a transaction, in whatever order its
 * writes are: while the transaction waits for the first job, it must not have locked the second. */
void test_store_postgres_server__transactions_lock_in_one_order(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t a = expect_job(&f, "a", TALLY_JOB_RUNNING);
    int64_t b = expect_job(&f, "b", TALLY_JOB_RUNNING);
    /* The rows lie in the other order. */
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
    CU_ASSERT_EQUAL(n_rows(&f, "updates"), 2);
    store_fixture_close(&f);
}

/* What the server finds only at the end. */
void test_store_postgres_server__deferred_failure_fails_the_commit(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
    add_trigger(&f, "CONSTRAINT", 1, "RAISE EXCEPTION 'no' USING ERRCODE = '53100'");
    TALLY_ASSERT_STATUS(write_transaction(&f, key, 1), TALLY_STORE, &f.err);
    CU_ASSERT_EQUAL(n_rows(&f, "updates"), 0);
    TALLY_ASSERT_STATUS(write_transaction(&f, key, 1), TALLY_OK, &f.err);
    store_fixture_close(&f);
}

/* A thread with a store of its own. */
struct worker {
    char uri[512];
    int number;
    int n_failed;
    enum tally_status status;
};

enum { N_WORKERS = 3, N_INSERTS = 40 };

static void *insert_jobs(void *context)
{
    struct worker *worker = context;
    struct tally_store *store = NULL;
    worker->status = tally_store_open(worker->uri, NULL, &store, NULL);
    for (int i = 0; i < N_INSERTS && worker->status == TALLY_OK; i++) {
        char id[32];
        snprintf(id, sizeof id, "%d of %d", i, worker->number);
        struct tally_store_job job = sample_job(id, 1);
        int64_t key = 0;
        bool ok = store->ops->begin(store, NULL) == TALLY_OK &&
                  store->ops->job_insert(store, &job, "{}", 2, NULL, 0, &key, NULL) == TALLY_OK &&
                  store->ops->commit(store, NULL) == TALLY_OK;
        worker->n_failed += ok ? 0 : 1;
        store->ops->rollback(store);
    }
    if (store != NULL) {
        store->ops->close(store);
    }
    return NULL;
}

static void *just_open(void *context)
{
    struct worker *worker = context;
    struct tally_store *store = NULL;
    worker->status = tally_store_open(worker->uri, NULL, &store, NULL);
    if (store != NULL) {
        store->ops->close(store);
    }
    return NULL;
}

static void run_workers(const struct store_fixture *f, struct worker *workers,
                        void *(*body)(void *context))
{
    pthread_t threads[N_WORKERS];
    for (int i = 0; i < N_WORKERS; i++) {
        workers[i] = (struct worker){.number = i, .status = TALLY_INTERNAL};
        snprintf(workers[i].uri, sizeof workers[i].uri, "%s", f->uri);
        CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[i], NULL, body, &workers[i]), 0);
    }
    for (int i = 0; i < N_WORKERS; i++) {
        pthread_join(threads[i], NULL);
        TALLY_ASSERT_STATUS(workers[i].status, TALLY_OK, NULL);
    }
}

void test_store_postgres_server__concurrent_inserts_have_ascending_keys(void)
{
    struct store_fixture f;
    struct worker workers[N_WORKERS];
    store_fixture_open(&f);
    run_workers(&f, workers, insert_jobs);
    for (int i = 0; i < N_WORKERS; i++) {
        CU_ASSERT_EQUAL(workers[i].n_failed, 0);
    }
    CU_ASSERT_EQUAL(n_rows(&f, "jobs"), N_WORKERS * N_INSERTS);
    CU_ASSERT_EQUAL(n_rows(&f, "job_leases"), N_WORKERS * N_INSERTS);
    CU_ASSERT_EQUAL(raw_ask(f.schema, "SELECT max(job_key) FROM jobs"), N_WORKERS * N_INSERTS);
    store_fixture_close(&f);
}

void test_store_postgres_server__two_may_make_the_schema_at_once(void)
{
    for (int i = 0; i < 5; i++) {
        struct store_fixture f;
        struct worker workers[N_WORKERS];
        store_fixture_init(&f);
        run_workers(&f, workers, just_open);
        CU_ASSERT_EQUAL(n_rows(&f, "job_keys"), 1);
        CU_ASSERT_EQUAL(n_rows(&f, "tally_schema"), 1);
        store_fixture_close(&f);
    }
}

static void expect_open(struct store_fixture *f, enum tally_status status, const char *message)
{
    struct tally_store *store = NULL;
    tally_error_clear(&f->err);
    TALLY_ASSERT_STATUS(tally_store_open(f->uri, NULL, &store, &f->err), status, &f->err);
    CU_ASSERT_PTR_NULL(store);
    CU_ASSERT_PTR_NOT_NULL(strstr(f->err.message, message));
}

/* Tables, indexes, their columns and constraints, as 64 bits. */
static int64_t shape_of(const struct store_fixture *f)
{
    return raw_ask(
        f->schema,
        "SELECT hashtextextended(string_agg(line, ';' ORDER BY line COLLATE \"C\"), 0) FROM ("
        "SELECT format('%%s %%s %%s %%s %%s %%s', c.relname, c.reloptions, a.attname,"
        " format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attstorage) AS line"
        " FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0"
        " AND NOT a.attisdropped"
        " WHERE c.relnamespace = current_schema()::regnamespace"
        " UNION ALL SELECT pg_get_constraintdef(oid) || conrelid::regclass FROM pg_constraint"
        " WHERE connamespace = current_schema()::regnamespace) AS lines");
}

/* Takes the schema back to an older version, down to what the steps after it have made. */
static void make_older(const struct store_fixture *f, int version)
{
    static const char *const UNDO[] = {
        [1] = "DROP INDEX jobs_live",
        [2] = "DROP TABLE job_state_changes;"
              "ALTER TABLE replicas RENAME COLUMN incarnation TO session",
        [3] = "ALTER TABLE jobs DROP COLUMN schedule",
    };
    for (int i = 3; i >= version; i--) {
        raw_ask(f->schema, "%s; UPDATE tally_schema SET version = %d", UNDO[i], i);
    }
}

void test_store_postgres_server__older_schema_is_brought_up_to_date(void)
{
    for (int version = 1; version <= 3; version++) {
        struct store_fixture f;
        store_fixture_open(&f);
        const int64_t newest = raw_ask(f.schema, "SELECT version FROM tally_schema");
        const int64_t shape = shape_of(&f);
        CU_ASSERT_EQUAL(newest, 4);
        int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
        expect_begin(&f);
        f.ops->state_put(f.store, key, "put", 3, NULL);
        expect_commit(&f);
        make_older(&f, version);
        CU_ASSERT_NOT_EQUAL(shape_of(&f), shape);
        store_fixture_reopen(&f);
        CU_ASSERT_EQUAL(raw_ask(f.schema, "SELECT version FROM tally_schema"), newest);
        CU_ASSERT_EQUAL(shape_of(&f), shape);
        struct tally_store_job job;
        TALLY_ASSERT_STATUS(f.ops->job_get(f.store, "a", &job, &f.err), TALLY_OK, &f.err);
        CU_ASSERT_EQUAL(job.key, key);
        expect_state(&f, key, "put");
        expect_begin(&f);
        f.ops->state_append(f.store, key, 1, " 1", 2, NULL);
        expect_commit(&f);
        expect_state(&f, key, "put 1");
        /* Which coordinators of versions before need, to lead a job. */
        struct raw *raw = raw_open(f.schema);
        CU_ASSERT(!raw_succeeds(raw, "SELECT session FROM replicas"));
        raw_close(raw);
        store_fixture_close(&f);
    }
}

/* Nothing of a job is left that an operator deletes. */
void test_store_postgres_server__deleted_job_leaves_nothing(void)
{
    static const char *const TABLES[] = {
        "jobs",    "job_documents", "job_states", "job_state_changes",
        "updates", "rounds",        "job_leases"};
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
    struct tally_round_record record = sample_record(1, 1);
    TALLY_ASSERT_STATUS(write_transaction(&f, key, 1), TALLY_OK, &f.err);
    expect_begin(&f);
    f.ops->round_insert(f.store, key, &record, NULL);
    expect_commit(&f);
    for (int deleted = 0; deleted < 2; deleted++) {
        for (size_t i = 0; i < sizeof TABLES / sizeof TABLES[0]; i++) {
            CU_ASSERT_EQUAL(n_rows(&f, TABLES[i]) > 0, deleted == 0);
        }
        raw_ask(f.schema, "DELETE FROM jobs");
    }
    store_fixture_close(&f);
}

/* A SQLite store with a state that has been appended to, in a file of its own. */
static void make_source(const char *uri)
{
    struct tally_store *store = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_store_open(uri, NULL, &store, &err), TALLY_OK, &err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(store);
    struct tally_store_job job = sample_job("a", 1);
    const struct tally_store_ops *ops = store->ops;
    bool ok = ops->begin(store, &err) == TALLY_OK &&
              ops->job_insert(store, &job, "{}", 2, NULL, 0, &job.key, &err) == TALLY_OK &&
              ops->state_put(store, job.key, "put", 3, &err) == TALLY_OK &&
              ops->state_append(store, job.key, 12, " 12", 3, &err) == TALLY_OK &&
              ops->state_append(store, job.key, 9, " 9", 2, &err) == TALLY_OK &&
              ops->commit(store, &err) == TALLY_OK;
    TALLY_ASSERT_STATUS(ok ? TALLY_OK : err.status, TALLY_OK, &err);
    ops->close(store);
}

/* A migration puts whole what was appended to, and what is said of both sides is the same. */
void test_store_postgres_server__migrated_state_is_whole(void)
{
    char folder[] = "/tmp/tally-store-XXXXXX";
    char path[64];
    char uri[80];
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/tally.db", folder);
    snprintf(uri, sizeof uri, "sqlite:%s", path);
    make_source(uri);
    struct store_fixture f;
    struct tally_migrate_report report;
    store_fixture_init(&f);
    for (int again = 0; again < 2; again++) { /* the second time, only compared */
        TALLY_ASSERT_STATUS(tally_store_migrate(uri, f.uri, NULL, &report, &f.err), TALLY_OK,
                            &f.err);
        CU_ASSERT_EQUAL(report.source[TALLY_TABLE_STATES].n_rows, 1);
        CU_ASSERT_EQUAL(report.target[TALLY_TABLE_STATES].n_rows, 1);
        CU_ASSERT_EQUAL(n_rows(&f, "job_states"), 1);
        CU_ASSERT_EQUAL(n_rows(&f, "job_state_changes"), 0);
    }
    store_fixture_reopen(&f);
    expect_state(&f, 1, "put 9 12");
    store_fixture_close(&f);
    CU_ASSERT_EQUAL(remove(path), 0);
    CU_ASSERT_EQUAL(rmdir(folder), 0);
}

void test_store_postgres_server__newer_schema_is_refused(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    raw_ask(f.schema, "UPDATE tally_schema SET version = 1000");
    expect_open(&f, TALLY_DATA_LOSS, "schema version 1000, newer than");
    CU_ASSERT_EQUAL(raw_ask(f.schema, "SELECT version FROM tally_schema"), 1000);
    store_fixture_close(&f);
}

void test_store_postgres_server__impossible_schema_version_is_refused(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    raw_ask(f.schema, "UPDATE tally_schema SET version = -1");
    expect_open(&f, TALLY_DATA_LOSS, "schema version -1 outside");
    raw_ask(f.schema, "DELETE FROM tally_schema");
    expect_open(&f, TALLY_DATA_LOSS, "0 rows, not 1");
    store_fixture_close(&f);
}

void test_store_postgres_server__table_of_another_program_is_refused_untouched(void)
{
    struct store_fixture f;
    store_fixture_init(&f);
    raw_ask(f.schema, "CREATE TABLE rounds (boxing text)");
    expect_open(&f, TALLY_DATA_LOSS, "\"rounds\" already exists");
    CU_ASSERT_EQUAL(raw_ask(f.schema, "SELECT count(*) FROM information_schema.tables"
                                      " WHERE table_schema = current_schema()"),
                    1);
    store_fixture_close(&f);
}

void test_store_postgres_server__missing_table_or_column_is_data_loss(void)
{
    static const char *const DAMAGE[] = {"DROP TABLE updates",
                                         "ALTER TABLE rounds DROP COLUMN norm",
                                         "DROP TABLE job_leases", "DROP TABLE job_state_changes"};
    for (int i = 0; i < 4; i++) {
        struct store_fixture f;
        store_fixture_open(&f);
        raw_ask(f.schema, "%s", DAMAGE[i]);
        expect_open(&f, TALLY_DATA_LOSS, "does not exist");
        store_fixture_close(&f);
    }
}

void test_store_postgres_server__unexpected_values_are_data_loss(void)
{
    static const char *const DAMAGE[] = {
        "UPDATE jobs SET status = 'resting'",
        "UPDATE jobs SET status = repeat('x', 100)",
        "UPDATE jobs SET name = repeat('x', 1000)",
        "ALTER TABLE jobs ALTER has_loss DROP NOT NULL; UPDATE jobs SET has_loss = NULL",
        "ALTER TABLE jobs ALTER round DROP NOT NULL; UPDATE jobs SET round = NULL",
    };
    struct store_fixture f;
    for (int i = 0; i < 5; i++) {
        struct tally_store_job job;
        struct job_walk walk = {.n = 0};
        store_fixture_open(&f);
        expect_job(&f, "a", TALLY_JOB_RUNNING);
        raw_ask(f.schema, "%s", DAMAGE[i]);
        TALLY_ASSERT_STATUS(f.ops->job_get(f.store, "a", &job, &f.err), TALLY_DATA_LOSS, &f.err);
        TALLY_ASSERT_STATUS(f.ops->job_list_live(f.store, collect_job, &walk, NULL),
                            TALLY_DATA_LOSS, NULL);
        CU_ASSERT_EQUAL(walk.n, 0);
        store_fixture_close(&f);
    }
    store_fixture_open(&f);
    int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
    struct update_walk updates = {.n = 0};
    raw_ask(f.schema, "INSERT INTO updates VALUES (%lld, 1, 4294967296, '')", (long long)key);
    TALLY_ASSERT_STATUS(f.ops->update_list(f.store, key, 1, collect_update, &updates, &f.err),
                        TALLY_DATA_LOSS, &f.err);
    struct tally_buffer state = {0};
    raw_ask(f.schema,
            "INSERT INTO job_states VALUES (%lld, 'put');"
            "ALTER TABLE job_state_changes ALTER change DROP NOT NULL;"
            "INSERT INTO job_state_changes VALUES (%lld, 1, ' 1'), (%lld, 2, NULL)",
            (long long)key, (long long)key, (long long)key);
    tally_error_clear(&f.err);
    TALLY_ASSERT_STATUS(f.ops->state_get(f.store, key, &state, &f.err), TALLY_DATA_LOSS, &f.err);
    CU_ASSERT_PTR_NOT_NULL(strstr(f.err.message, "column state holds no bytes"));
    tally_buffer_fini(&state);
    store_fixture_close(&f);
}

static struct tally_store *open_reader(struct store_fixture *f, enum tally_status expected)
{
    const struct tally_store_options options = {.read_only = true};
    struct tally_store *store = NULL;
    tally_error_clear(&f->err);
    TALLY_ASSERT_STATUS(tally_store_open(f->uri, &options, &store, &f->err), expected, &f->err);
    return store;
}

void test_store_postgres_server__reader_has_one_snapshot(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
    struct tally_store *reader = open_reader(&f, TALLY_OK);
    if (reader == NULL) { /* which has been said */
        store_fixture_close(&f);
        return;
    }
    struct tally_store_job job = sample_job("z", 1);
    expect_job(&f, "b", TALLY_JOB_RUNNING);
    CU_ASSERT_EQUAL(reader->ops->job_get(reader, "a", &job, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(reader->ops->job_get(reader, "b", &job, NULL), TALLY_NOT_FOUND);
    CU_ASSERT_EQUAL(reader->ops->begin(reader, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(reader->ops->state_put(reader, key, "x", 1, NULL), TALLY_STORE);
    CU_ASSERT_EQUAL(reader->ops->state_append(reader, key, 2, "x", 1, NULL), TALLY_STORE);
    CU_ASSERT_EQUAL(reader->ops->job_get(reader, "a", &job, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(reader->ops->job_insert(reader, &job, "", 0, NULL, 0, &key, NULL), TALLY_STORE);
    CU_ASSERT_NOT_EQUAL(reader->ops->commit(reader, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(reader->ops->job_get(reader, "a", &job, NULL), TALLY_OK);
    raw_end_connections(f.schema);
    CU_ASSERT_EQUAL(reader->ops->job_get(reader, "a", &job, NULL), TALLY_STORE);
    reader->ops->close(reader);
    CU_ASSERT_EQUAL(n_rows(&f, "job_states"), 0);
    store_fixture_close(&f);
}

void test_store_postgres_server__reader_needs_a_store(void)
{
    struct store_fixture f;
    store_fixture_init(&f);
    open_reader(&f, TALLY_NOT_FOUND);
    CU_ASSERT_EQUAL(raw_ask(f.schema, "SELECT count(*) FROM information_schema.tables"
                                      " WHERE table_schema = current_schema()"),
                    0);
    store_fixture_close(&f);
}

void test_store_postgres_server__no_message_has_the_password(void)
{
    static const char *const URIS[] = {
        "postgres:host=127.0.0.1 port=1 password=s3cret",
        "postgres:host=127.0.0.1 port=1 user=s3cret password=s3cret",
        "postgres:host=127.0.0.1 password=s3cret port=x",
        "postgres:host=127.0.0.1 password=a s3cret",
        "postgres:password='s3cret",
        "postgres://me:s3cret@127.0.0.1:1/db",
        "postgresql://me:s3cret@127.0.0.1:1/db",
        "postgres:postgresql://me:s3cret@127.0.0.1:1/db?sslmode=s3cret",
        "postgres://me:%s3cret@127.0.0.1:1/db",
        "postgres://me:x@s3cret@127.0.0.1:1/db",
        "postgres://me:x/s3cret@127.0.0.1:1/db",
        "mysql://me:s3cret@127.0.0.1:1/db",
    };
    for (size_t i = 0; i < sizeof URIS / sizeof URIS[0]; i++) {
        struct tally_store *store = NULL;
        struct tally_error err = TALLY_ERROR_INIT;
        CU_ASSERT_NOT_EQUAL(tally_store_open(URIS[i], NULL, &store, &err), TALLY_OK);
        struct tally_buffer label = {0};
        CU_ASSERT_EQUAL(tally_store_label(URIS[i], &label), TALLY_OK);
        CU_ASSERT_PTR_NOT_NULL(label.data);
        const char *shown = label.data != NULL ? (const char *)label.data : "";
        if (strstr(err.message, "s3cret") != NULL || strstr(shown, "s3cret") != NULL) {
            printf("\n    %s: %s, %s", URIS[i], err.message, shown);
            CU_FAIL("password is shown");
        }
        tally_buffer_fini(&label);
    }
}

void test_store_postgres_server__server_that_is_not_there_is_an_error(void)
{
    struct tally_store *store = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(
        tally_store_open("postgres:host=127.0.0.1 port=1 dbname=x", NULL, &store, &err),
        TALLY_STORE, &err);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.message, "postgres:127.0.0.1:1/x"));
    tally_error_clear(&err);
    TALLY_ASSERT_STATUS(tally_store_open("postgres:nonsense", NULL, &store, &err),
                        TALLY_INVALID_ARGUMENT, &err);
}
