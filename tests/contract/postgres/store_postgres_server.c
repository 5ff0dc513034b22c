/* What a store may find in a PostgreSQL database: other schemas, other programs, other values;
 * readers, and stores that start concurrently. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "storage/migrate.h"
#include "tests/contract/store_tests.h"
#include "tests/contract/support/raw_postgres.h"
#include "tests/contract/support/store_fixture.h"

/* Context of the follow_ functions: the expected next row. */
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

/* Lists of more rows than a page has, some of which end with a page. */
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

/* A thread with its own store. */
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
    CU_ASSERT_EQUAL(raw_n_rows(f.schema, "jobs"), N_WORKERS * N_INSERTS);
    CU_ASSERT_EQUAL(raw_n_rows(f.schema, "job_leases"), N_WORKERS * N_INSERTS);
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
        CU_ASSERT_EQUAL(raw_n_rows(f.schema, "job_keys"), 1);
        CU_ASSERT_EQUAL(raw_n_rows(f.schema, "tally_schema"), 1);
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

/* A job that an operator deletes leaves no rows. */
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
            CU_ASSERT_EQUAL(raw_n_rows(f.schema, TABLES[i]) > 0, deleted == 0);
        }
        raw_ask(f.schema, "DELETE FROM jobs");
    }
    store_fixture_close(&f);
}

/* Creates a SQLite store, in its own file, with a state that has been appended to. */
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

/* A migration puts an appended state as a whole, and the report has the same values for both
 * sides. */
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
    for (int again = 0; again < 2; again++) { /* the second time only compares */
        TALLY_ASSERT_STATUS(tally_store_migrate(uri, f.uri, NULL, &report, &f.err), TALLY_OK,
                            &f.err);
        CU_ASSERT_EQUAL(report.source[TALLY_TABLE_STATES].n_rows, 1);
        CU_ASSERT_EQUAL(report.target[TALLY_TABLE_STATES].n_rows, 1);
        CU_ASSERT_EQUAL(raw_n_rows(f.schema, "job_states"), 1);
        CU_ASSERT_EQUAL(raw_n_rows(f.schema, "job_state_changes"), 0);
    }
    store_fixture_reopen(&f);
    expect_state_text(&f, 1, "put 9 12");
    store_fixture_close(&f);
    CU_ASSERT_EQUAL(remove(path), 0);
    CU_ASSERT_EQUAL(rmdir(folder), 0);
}

void test_store_postgres_server__other_schema_version_is_refused_untouched(void)
{
    static const struct {
        int version;
        enum tally_status status;
        const char *message;
    } CASES[] = {
        {1000, TALLY_FAILED_PRECONDITION, "schema version 1000, newer than 11"},
        {5, TALLY_FAILED_PRECONDITION,
         "schema version 5, not 11; the last release that reads it is Tally 0.15.0"},
        {-1, TALLY_DATA_LOSS, "schema version -1, which no release has made"},
    };
    const struct tally_store_options reading = {.read_only = true};
    struct store_fixture f;
    store_fixture_open(&f);
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct tally_store *store = NULL;
        raw_ask(f.schema, "UPDATE tally_schema SET version = %d", CASES[i].version);
        expect_open(&f, CASES[i].status, CASES[i].message);
        CU_ASSERT_EQUAL(tally_store_open(f.uri, &reading, &store, NULL), CASES[i].status);
        CU_ASSERT_EQUAL(raw_ask(f.schema, "SELECT version FROM tally_schema"), CASES[i].version);
    }
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
    if (reader == NULL) { /* already reported */
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
    CU_ASSERT_EQUAL(raw_n_rows(f.schema, "job_states"), 0);
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
