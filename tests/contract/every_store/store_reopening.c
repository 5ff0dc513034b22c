/* What a reopened store still has. */
#include <string.h>

#include "tests/contract/store_tests.h"
#include "tests/contract/support/store_fixture.h"

/* Checks that the reopened store returns the same as `before`. */
static void expect_same_after_reopening(struct store_fixture *f, const struct tally_buffer *before)
{
    struct tally_buffer after = {0};
    store_fixture_reopen(f);
    describe_store(f, &after);
    TALLY_ASSERT_TEXT((char *)after.data, (char *)before->data);
    tally_buffer_fini(&after);
}

void test_store_reopening__keeps_everything(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    struct tally_store_job job = sample_job("a", 1);
    struct tally_round_record record = sample_record(1, 1);
    struct tally_buffer before = {0};
    expect_begin(&f);
    f.ops->job_insert(f.store, &job, "{\"a\":1}", 7, "once", UINT64_MAX, &job.key, NULL);
    f.ops->state_put(f.store, job.key, "state", 5, NULL);
    f.ops->state_append(f.store, job.key, 2, " second", 7, NULL);
    f.ops->state_append(f.store, job.key, 1, " first", 6, NULL);
    f.ops->round_insert(f.store, job.key, &record, NULL);
    expect_update(&f, job.key, 2, 1, "body");
    expect_commit(&f);
    describe_store(&f, &before);
    CU_ASSERT_PTR_NOT_NULL(strstr((char *)before.data, "state first second"));
    expect_same_after_reopening(&f, &before);
    struct tally_store_job actual;
    uint64_t digest = 0;
    TALLY_ASSERT_STATUS(f.ops->job_by_idempotency_key(f.store, "once", &actual, &digest, &f.err),
                        TALLY_OK, &f.err);
    expect_same_job(&actual, &job);
    CU_ASSERT_EQUAL(digest, UINT64_MAX);
    struct record_walk records = {.n = 0};
    TALLY_ASSERT_STATUS(f.ops->round_list(f.store, job.key, 0, 1, collect_record, &records, &f.err),
                        TALLY_OK, &f.err);
    expect_same_record(&records.records[0], &record);
    CU_ASSERT(expect_job(&f, "b", TALLY_JOB_QUEUED) > job.key);
    tally_buffer_fini(&before);
    store_fixture_close(&f);
}

void test_store_reopening__leaves_out_what_was_not_committed(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    struct tally_store_job job = sample_job("b", 1);
    struct tally_buffer before = {0};
    int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
    expect_begin(&f);
    f.ops->state_put(f.store, key, "state", 5, NULL);
    f.ops->state_append(f.store, key, 1, " first", 6, NULL);
    expect_commit(&f);
    describe_store(&f, &before);
    expect_begin(&f);
    expect_update(&f, key, 1, 1, "body");
    f.ops->state_put(f.store, key, "lost", 4, NULL); /* which would drop the old state */
    f.ops->state_append(f.store, key, 2, " lost", 5, NULL);
    expect_job_insert(&f, &job);
    TALLY_ASSERT_STATUS(f.ops->flush(f.store, &f.err), TALLY_OK, &f.err);
    expect_same_after_reopening(&f, &before);
    TALLY_ASSERT_STATUS(f.ops->job_get(f.store, "b", &job, NULL), TALLY_NOT_FOUND, NULL);
    tally_buffer_fini(&before);
    store_fixture_close(&f);
}
