/* Contract of begin, commit, rollback, close and check. */
#include <stdio.h>
#include <string.h>

#include "tests/contract/store_tests.h"
#include "tests/contract/support/store_fixture.h"

void test_store__committed_update_is_read_back(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
    expect_begin(&f);
    expect_update(&f, key, 1, 3, "body");
    expect_commit(&f);
    f.ops->rollback(f.store);
    struct update_walk walk = {.n = 0};
    TALLY_ASSERT_STATUS(f.ops->update_list(f.store, key, 1, collect_update, &walk, &f.err),
                        TALLY_OK, &f.err);
    CU_ASSERT_EQUAL(walk.n, 1);
    TALLY_ASSERT_TEXT(walk.bodies[0], "body");
    store_fixture_close(&f);
}

void test_store__transaction_sees_its_own_writes(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    struct tally_store_job job = sample_job("a", 1);
    struct tally_round_record record = sample_record(1, 1);
    struct tally_buffer out = {0};
    struct update_walk updates = {.n = 0};
    struct record_walk records = {.n = 0};
    expect_begin(&f);
    job.key = expect_job_insert(&f, &job);
    job.progress.round = 5;
    f.ops->job_update(f.store, &job, NULL);
    f.ops->state_put(f.store, job.key, "state", 5, NULL);
    f.ops->state_append(f.store, job.key, 1, "change", 6, NULL);
    f.ops->round_insert(f.store, job.key, &record, NULL);
    expect_update(&f, job.key, 1, 1, "x");
    struct tally_store_job actual;
    TALLY_ASSERT_STATUS(f.ops->job_get(f.store, "a", &actual, &f.err), TALLY_OK, &f.err);
    expect_same_job(&actual, &job);
    TALLY_ASSERT_STATUS(f.ops->state_get(f.store, job.key, &out, &f.err), TALLY_OK, &f.err);
    CU_ASSERT(out.size == 11 && memcmp(out.data, "statechange", 11) == 0);
    f.ops->update_list(f.store, job.key, 1, collect_update, &updates, NULL);
    f.ops->round_list(f.store, job.key, 0, 9, collect_record, &records, NULL);
    CU_ASSERT_EQUAL(updates.n, 1);
    CU_ASSERT_EQUAL(records.n, 1);
    f.ops->rollback(f.store);
    tally_buffer_fini(&out);
    store_fixture_close(&f);
}

/* Adds two jobs with data in every table. */
static int64_t populate(struct store_fixture *f)
{
    int64_t a = expect_job(f, "a", TALLY_JOB_RUNNING);
    int64_t b = expect_job(f, "b", TALLY_JOB_QUEUED);
    struct tally_round_record record = sample_record(1, 1);
    expect_begin(f);
    f->ops->state_put(f->store, a, "state", 5, NULL);
    f->ops->state_append(f->store, a, 1, " 1", 2, NULL);
    f->ops->round_insert(f->store, a, &record, NULL);
    expect_update(f, a, 2, 1, "a2");
    expect_update(f, a, 3, 1, "a3");
    expect_update(f, b, 1, 1, "b1");
    expect_commit(f);
    return a;
}

/* One write of each kind to the job `key` of populate(), and a new job. */
static void write_everything(struct store_fixture *f, int64_t key)
{
    struct tally_store_job job = sample_job("a", 7);
    struct tally_round_record record = sample_record(2, 2);
    struct tally_store_job added = sample_job("c", 3);
    int64_t added_key = 0;
    job.key = key;
    job.status = TALLY_JOB_FAILED;
    CU_ASSERT_EQUAL(f->ops->job_update(f->store, &job, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(f->ops->state_put(f->store, key, "STATE", 5, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(f->ops->state_append(f->store, key, 2, " 2", 2, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(f->ops->state_put(f->store, key + 1, "first", 5, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(f->ops->updates_delete(f->store, key, 1, 2, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(f->ops->round_insert(f->store, key, &record, NULL), TALLY_OK);
    expect_update(f, key, 4, 1, "a4");
    CU_ASSERT_EQUAL(f->ops->job_insert(f->store, &added, "[1]", 3, "once", 5, &added_key, NULL),
                    TALLY_OK);
    expect_update(f, added_key, 1, 1, "c1");
}

void test_store__rollback_restores_everything(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    struct tally_buffer before = {0};
    struct tally_buffer during = {0};
    struct tally_buffer after = {0};
    int64_t key = populate(&f);
    describe_store(&f, &before);
    for (int again = 0; again < 2; again++) {
        during.size = after.size = 0;
        expect_begin(&f);
        write_everything(&f, key);
        describe_store(&f, &during);
        CU_ASSERT_NOT_EQUAL(strcmp((char *)during.data, (char *)before.data), 0);
        f.ops->rollback(f.store);
        describe_store(&f, &after);
        TALLY_ASSERT_TEXT((char *)after.data, (char *)before.data);
    }
    after.size = 0;
    expect_begin(&f);
    write_everything(&f, key);
    expect_commit(&f);
    describe_store(&f, &after);
    TALLY_ASSERT_TEXT((char *)after.data, (char *)during.data);
    tally_buffer_fini(&before);
    tally_buffer_fini(&during);
    tally_buffer_fini(&after);
    store_fixture_close(&f);
}

void test_store__rollback_forgets_only_its_own_transaction(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t key = populate(&f);
    struct tally_buffer before = {0};
    struct tally_buffer after = {0};
    expect_begin(&f);
    write_everything(&f, key);
    expect_commit(&f);
    describe_store(&f, &before);
    expect_begin(&f);
    f.ops->rollback(f.store);
    f.ops->rollback(f.store);
    describe_store(&f, &after);
    TALLY_ASSERT_TEXT((char *)after.data, (char *)before.data);
    tally_buffer_fini(&before);
    tally_buffer_fini(&after);
    store_fixture_close(&f);
}

void test_store__rollback_frees_the_id_and_the_idempotency_key(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    struct tally_store_job job = sample_job("a", 1);
    uint64_t digest = 0;
    for (int i = 0; i < 2; i++) {
        expect_begin(&f);
        TALLY_ASSERT_STATUS(f.ops->job_insert(f.store, &job, "{}", 2, "once", 1, &job.key, &f.err),
                            TALLY_OK, &f.err);
        f.ops->rollback(f.store);
        TALLY_ASSERT_STATUS(f.ops->job_get(f.store, "a", &job, NULL), TALLY_NOT_FOUND, NULL);
        TALLY_ASSERT_STATUS(f.ops->job_by_idempotency_key(f.store, "once", &job, &digest, NULL),
                            TALLY_NOT_FOUND, NULL);
    }
    store_fixture_close(&f);
}

void test_store__rollback_without_a_transaction_is_harmless(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    f.ops->rollback(f.store);
    expect_job(&f, "a", TALLY_JOB_QUEUED);
    f.ops->rollback(f.store);
    struct tally_store_job job;
    TALLY_ASSERT_STATUS(f.ops->job_get(f.store, "a", &job, &f.err), TALLY_OK, &f.err);
    store_fixture_close(&f);
}

void test_store__expected_errors_leave_the_transaction_usable(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
    struct tally_store_job job = sample_job("a", 2);
    struct tally_round_record record = sample_record(1, 1);
    struct tally_store_update update = {1, 1, (const uint8_t *)"y", 1};
    expect_begin(&f);
    expect_update(&f, key, 1, 1, "x");
    CU_ASSERT_EQUAL(flushed(&f, f.ops->update_insert(f.store, key, &update, NULL)),
                    TALLY_ALREADY_EXISTS);
    CU_ASSERT_EQUAL(flushed(&f, f.ops->update_insert(f.store, 99, &update, NULL)), TALLY_NOT_FOUND);
    CU_ASSERT_EQUAL(f.ops->job_insert(f.store, &job, "", 0, NULL, 0, &key, NULL),
                    TALLY_ALREADY_EXISTS);
    CU_ASSERT_EQUAL(flushed(&f, f.ops->job_update(f.store, &job, NULL)), TALLY_NOT_FOUND);
    CU_ASSERT_EQUAL(flushed(&f, f.ops->state_put(f.store, 99, "", 0, NULL)), TALLY_NOT_FOUND);
    CU_ASSERT_EQUAL(flushed(&f, f.ops->state_append(f.store, key, 1, "x", 1, NULL)),
                    TALLY_NOT_FOUND);
    CU_ASSERT_EQUAL(flushed(&f, f.ops->round_insert(f.store, 99, &record, NULL)), TALLY_NOT_FOUND);
    expect_update(&f, key, 1, 2, "z");
    expect_commit(&f);
    struct update_walk walk = {.n = 0};
    f.ops->update_list(f.store, key, 1, collect_update, &walk, NULL);
    CU_ASSERT_EQUAL(walk.n, 2);
    TALLY_ASSERT_TEXT(walk.bodies[0], "x");
    store_fixture_close(&f);
}

void test_store__many_updates_are_one_transaction(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
    for (int commit = 0; commit < 2; commit++) {
        expect_begin(&f);
        for (uint32_t client = 0; client < 1000; client++) {
            expect_update(&f, key, 1, client, "body");
        }
        if (commit == 1) {
            expect_commit(&f);
        } else {
            f.ops->rollback(f.store);
        }
        struct update_walk walk = {.n = 0};
        f.ops->update_list(f.store, key, 1, collect_update, &walk, NULL);
        CU_ASSERT_EQUAL(walk.n, commit == 1 ? 1000 : 0);
    }
    store_fixture_close(&f);
}

void test_store__close_allows_null_and_an_open_transaction(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    f.ops->close(NULL);
    int64_t key = populate(&f);
    expect_begin(&f);
    write_everything(&f, key);
    store_fixture_close(&f);
}

void test_store__check_passes_on_a_sound_store(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    TALLY_ASSERT_STATUS(f.ops->check(f.store, &f.err), TALLY_OK, &f.err);
    TALLY_ASSERT_STATUS(f.ops->check(f.store, NULL), TALLY_OK, NULL);
    expect_begin(&f);
    struct tally_store_job job = sample_job("a", 1);
    expect_job_insert(&f, &job);
    TALLY_ASSERT_STATUS(f.ops->check(f.store, &f.err), TALLY_OK, &f.err);
    f.ops->rollback(f.store);
    TALLY_ASSERT_STATUS(f.ops->job_get(f.store, "a", &job, NULL), TALLY_NOT_FOUND, NULL);
    store_fixture_close(&f);
}

/* Only one process uses a file, because of its lock, or a private store. */
void test_store__only_a_shared_store_has_leases(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    const char *suite = CU_get_current_suite()->pName;
    const bool is_alone = strcmp(suite, "store_memory") == 0 || strcmp(suite, "store_sqlite") == 0;
    CU_ASSERT_EQUAL(f.store->leases == NULL, is_alone);
    store_fixture_close(&f);
}
