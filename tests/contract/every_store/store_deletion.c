/* Contract of job_delete: what it removes, what it keeps, and which jobs it may delete. */
#include <string.h>

#include "tests/contract/store_tests.h"
#include "tests/contract/support/store_fixture.h"

/* Inserts a job with data in every table. */
static int64_t insert_full(struct store_fixture *f, const char *id, const char *idempotency_key,
                           enum tally_job_status status)
{
    struct tally_store_job job = sample_job(id, 1);
    struct tally_round_record record = sample_record(1, 1);
    int64_t key = 0;
    job.status = status;
    expect_begin(f);
    TALLY_ASSERT_STATUS(
        f->ops->job_insert(f->store, &job, "{}", 2, idempotency_key, 7, &key, &f->err), TALLY_OK,
        &f->err);
    TALLY_ASSERT_STATUS(f->ops->state_put(f->store, key, "state", 5, &f->err), TALLY_OK, &f->err);
    TALLY_ASSERT_STATUS(f->ops->state_append(f->store, key, 1, "+", 1, &f->err), TALLY_OK, &f->err);
    expect_update(f, key, 2, 0, "update");
    const struct tally_store_model model = {.slot = 1, .n_bytes = 5};
    TALLY_ASSERT_STATUS(f->ops->model_put(f->store, key, &model, "point", &f->err), TALLY_OK,
                        &f->err);
    TALLY_ASSERT_STATUS(f->ops->round_insert(f->store, key, &record, &f->err), TALLY_OK, &f->err);
    expect_commit(f);
    return key;
}

static void expect_deleted(struct store_fixture *f, int64_t key)
{
    expect_begin(f);
    TALLY_ASSERT_STATUS(flushed(f, f->ops->job_delete(f->store, key, &f->err)), TALLY_OK, &f->err);
    expect_commit(f);
}

void test_store__deleted_job_leaves_nothing(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    struct tally_buffer before = {0}, after = {0};
    expect_job(&f, "other", TALLY_JOB_COMPLETED);
    describe_store(&f, &before);
    const int64_t key = insert_full(&f, "a", "key", TALLY_JOB_FAILED);
    expect_deleted(&f, key);
    describe_store(&f, &after);
    CU_ASSERT_EQUAL(before.size, after.size);
    CU_ASSERT_EQUAL(memcmp(before.data, after.data, before.size), 0);
    struct tally_buffer bytes = {0};
    struct update_walk updates = {0};
    struct record_walk records = {0};
    TALLY_ASSERT_STATUS(f.ops->document_get(f.store, key, &bytes, NULL), TALLY_NOT_FOUND, NULL);
    TALLY_ASSERT_STATUS(f.ops->state_get(f.store, key, &bytes, NULL), TALLY_NOT_FOUND, NULL);
    TALLY_ASSERT_STATUS(f.ops->update_list(f.store, key, 2, collect_update, &updates, &f.err),
                        TALLY_OK, &f.err);
    TALLY_ASSERT_STATUS(f.ops->round_list(f.store, key, 0, 9, collect_record, &records, &f.err),
                        TALLY_OK, &f.err);
    CU_ASSERT_EQUAL(updates.n + records.n, 0);
    tally_buffer_fini(&before);
    tally_buffer_fini(&after);
    store_fixture_close(&f);
}

void test_store__delete_frees_the_id_and_the_idempotency_key(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    expect_deleted(&f, insert_full(&f, "a", "key", TALLY_JOB_COMPLETED));
    struct tally_store_job job;
    uint64_t digest;
    TALLY_ASSERT_STATUS(f.ops->job_by_idempotency_key(f.store, "key", &job, &digest, NULL),
                        TALLY_NOT_FOUND, NULL);
    const int64_t again = insert_full(&f, "a", "key", TALLY_JOB_COMPLETED);
    TALLY_ASSERT_STATUS(f.ops->job_get(f.store, "a", &job, &f.err), TALLY_OK, &f.err);
    CU_ASSERT_EQUAL(job.key, again);
    store_fixture_close(&f);
}

void test_store__key_of_a_deleted_job_is_not_given_again(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    const int64_t key = insert_full(&f, "a", NULL, TALLY_JOB_COMPLETED);
    expect_deleted(&f, key);
    CU_ASSERT_TRUE(insert_full(&f, "b", NULL, TALLY_JOB_COMPLETED) > key);
    store_fixture_close(&f);
}

void test_store__only_a_job_that_has_ended_can_be_deleted(void)
{
    static const enum tally_job_status live[] = {TALLY_JOB_QUEUED, TALLY_JOB_RUNNING,
                                                 TALLY_JOB_PAUSED};
    static const char *const ids[] = {"queued", "running", "paused"};
    struct store_fixture f;
    store_fixture_open(&f);
    for (int i = 0; i < 3; i++) {
        const int64_t key = expect_job(&f, ids[i], live[i]);
        struct tally_store_job job;
        expect_begin(&f);
        TALLY_ASSERT_STATUS(flushed(&f, f.ops->job_delete(f.store, key, NULL)), TALLY_NOT_FOUND,
                            NULL);
        expect_commit(&f); /* the transaction may continue */
        TALLY_ASSERT_STATUS(f.ops->job_get(f.store, ids[i], &job, &f.err), TALLY_OK, &f.err);
        /* The job ends and is deleted in one transaction. */
        job.status = TALLY_JOB_CANCELLED;
        expect_begin(&f);
        TALLY_ASSERT_STATUS(f.ops->job_update(f.store, &job, &f.err), TALLY_OK, &f.err);
        TALLY_ASSERT_STATUS(f.ops->job_delete(f.store, key, &f.err), TALLY_OK, &f.err);
        expect_commit(&f);
        TALLY_ASSERT_STATUS(f.ops->job_get(f.store, ids[i], &job, NULL), TALLY_NOT_FOUND, NULL);
    }
    expect_begin(&f);
    TALLY_ASSERT_STATUS(flushed(&f, f.ops->job_delete(f.store, 4711, NULL)), TALLY_NOT_FOUND, NULL);
    expect_commit(&f);
    store_fixture_close(&f);
}

void test_store__rollback_restores_a_deleted_job(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    struct tally_buffer before = {0}, after = {0};
    const int64_t key = insert_full(&f, "a", "key", TALLY_JOB_COMPLETED);
    describe_store(&f, &before);
    expect_begin(&f);
    TALLY_ASSERT_STATUS(flushed(&f, f.ops->job_delete(f.store, key, &f.err)), TALLY_OK, &f.err);
    struct tally_store_job job;
    TALLY_ASSERT_STATUS(f.ops->job_get(f.store, "a", &job, NULL), TALLY_NOT_FOUND, NULL);
    f.ops->rollback(f.store);
    describe_store(&f, &after);
    CU_ASSERT_EQUAL(before.size, after.size);
    CU_ASSERT_EQUAL(memcmp(before.data, after.data, before.size), 0);
    tally_buffer_fini(&before);
    tally_buffer_fini(&after);
    store_fixture_close(&f);
}

void test_store__lists_leave_out_deleted_jobs(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    expect_job(&f, "a", TALLY_JOB_COMPLETED);
    const int64_t b = expect_job(&f, "b", TALLY_JOB_COMPLETED);
    expect_job(&f, "c", TALLY_JOB_COMPLETED);
    expect_begin(&f);
    TALLY_ASSERT_STATUS(flushed(&f, f.ops->job_delete(f.store, b, &f.err)), TALLY_OK, &f.err);
    struct job_walk walk = {0};
    TALLY_ASSERT_STATUS(f.ops->job_list(f.store, -1, INT64_MAX, 9, collect_job, &walk, &f.err),
                        TALLY_OK, &f.err);
    TALLY_ASSERT_TEXT(collected_ids(&walk), "c,a"); /* in the transaction too */
    expect_commit(&f);
    walk = (struct job_walk){0};
    TALLY_ASSERT_STATUS(f.ops->job_list(f.store, -1, INT64_MAX, 9, collect_job, &walk, &f.err),
                        TALLY_OK, &f.err);
    TALLY_ASSERT_TEXT(collected_ids(&walk), "c,a");
    store_fixture_close(&f);
}
