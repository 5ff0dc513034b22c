/* Contract of job_list and job_list_live: order, filter, cursor, limit, stopping. */
#include <stdio.h>
#include <string.h>

#include "tests/contract/store_tests.h"
#include "tests/contract/support/store_fixture.h"

/* The ids that job_list() returns, "c,b,a". */
static const char *list(struct store_fixture *f, int status, int64_t before_key, int64_t limit)
{
    struct job_walk walk = {.n = 0};
    tally_error_clear(&f->err);
    TALLY_ASSERT_STATUS(
        f->ops->job_list(f->store, status, before_key, limit, collect_job, &walk, &f->err),
        TALLY_OK, &f->err);
    return collected_ids(&walk);
}

void test_store__job_list_is_newest_first(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    TALLY_ASSERT_TEXT(list(&f, -1, INT64_MAX, 10), "");
    expect_job(&f, "b", TALLY_JOB_QUEUED);
    expect_job(&f, "c", TALLY_JOB_COMPLETED);
    expect_job(&f, "a", TALLY_JOB_RUNNING);
    TALLY_ASSERT_TEXT(list(&f, -1, INT64_MAX, 10), "a,c,b");
    store_fixture_close(&f);
}

void test_store__job_list_gives_whole_rows(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    struct tally_store_job expected = sample_job("a", 3);
    expect_begin(&f);
    expected.key = expect_job_insert(&f, &expected);
    expect_commit(&f);
    struct job_walk walk = {.n = 0};
    f.ops->job_list(f.store, -1, INT64_MAX, 1, collect_job, &walk, NULL);
    expect_same_job(&walk.jobs[0], &expected);
    walk = (struct job_walk){.n = 0};
    f.ops->job_list_live(f.store, collect_job, &walk, NULL);
    expect_same_job(&walk.jobs[0], &expected);
    store_fixture_close(&f);
}

void test_store__job_list_stops_at_the_limit(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    expect_job(&f, "a", TALLY_JOB_QUEUED);
    expect_job(&f, "b", TALLY_JOB_QUEUED);
    expect_job(&f, "c", TALLY_JOB_QUEUED);
    TALLY_ASSERT_TEXT(list(&f, -1, INT64_MAX, 2), "c,b");
    TALLY_ASSERT_TEXT(list(&f, -1, INT64_MAX, 3), "c,b,a");
    TALLY_ASSERT_TEXT(list(&f, -1, INT64_MAX, INT64_MAX), "c,b,a");
    TALLY_ASSERT_TEXT(list(&f, -1, INT64_MAX, 0), "");
    TALLY_ASSERT_TEXT(list(&f, -1, INT64_MAX, -1), "");
    store_fixture_close(&f);
}

void test_store__job_list_continues_before_the_cursor(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t a = expect_job(&f, "a", TALLY_JOB_QUEUED);
    int64_t b = expect_job(&f, "b", TALLY_JOB_QUEUED);
    expect_job(&f, "c", TALLY_JOB_QUEUED);
    TALLY_ASSERT_TEXT(list(&f, -1, b, 10), "a");
    TALLY_ASSERT_TEXT(list(&f, -1, b + 1, 10), "b,a");
    TALLY_ASSERT_TEXT(list(&f, -1, a, 10), "");
    TALLY_ASSERT_TEXT(list(&f, -1, INT64_MIN, 10), "");
    store_fixture_close(&f);
}

void test_store__job_list_filters_by_status(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    expect_job(&f, "q1", TALLY_JOB_QUEUED);
    expect_job(&f, "r1", TALLY_JOB_RUNNING);
    int64_t q2 = expect_job(&f, "q2", TALLY_JOB_QUEUED);
    expect_job(&f, "f1", TALLY_JOB_FAILED);
    expect_job(&f, "q3", TALLY_JOB_QUEUED);
    TALLY_ASSERT_TEXT(list(&f, TALLY_JOB_QUEUED, INT64_MAX, 10), "q3,q2,q1");
    TALLY_ASSERT_TEXT(list(&f, TALLY_JOB_QUEUED, INT64_MAX, 2), "q3,q2");
    TALLY_ASSERT_TEXT(list(&f, TALLY_JOB_QUEUED, q2, 10), "q1");
    TALLY_ASSERT_TEXT(list(&f, TALLY_JOB_RUNNING, INT64_MAX, 10), "r1");
    TALLY_ASSERT_TEXT(list(&f, TALLY_JOB_PAUSED, INT64_MAX, 10), "");
    TALLY_ASSERT_TEXT(list(&f, TALLY_N_JOB_STATUS, INT64_MAX, 10), "");
    store_fixture_close(&f);
}

void test_store__job_list_follows_a_status_change(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    struct tally_store_job job = sample_job("a", 1);
    job.key = expect_job(&f, "a", TALLY_JOB_QUEUED);
    job.status = TALLY_JOB_COMPLETED;
    expect_begin(&f);
    TALLY_ASSERT_STATUS(f.ops->job_update(f.store, &job, &f.err), TALLY_OK, &f.err);
    expect_commit(&f);
    TALLY_ASSERT_TEXT(list(&f, TALLY_JOB_QUEUED, INT64_MAX, 10), "");
    TALLY_ASSERT_TEXT(list(&f, TALLY_JOB_COMPLETED, INT64_MAX, 10), "a");
    store_fixture_close(&f);
}

void test_store__pages_of_job_list_cover_all_jobs_once(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    for (int i = 0; i < 23; i++) {
        char id[16];
        snprintf(id, sizeof id, "%d", i);
        expect_job(&f, id, TALLY_JOB_QUEUED);
    }
    int64_t cursor = INT64_MAX;
    int expected = 22;
    for (int page = 0; page < 5; page++) {
        struct job_walk walk = {.n = 0};
        TALLY_ASSERT_STATUS(f.ops->job_list(f.store, -1, cursor, 5, collect_job, &walk, &f.err),
                            TALLY_OK, &f.err);
        CU_ASSERT_EQUAL(walk.n, page < 4 ? 5 : 3);
        for (int i = 0; i < walk.n && i < 5; i++) {
            char id[16];
            snprintf(id, sizeof id, "%d", expected--);
            TALLY_ASSERT_TEXT(walk.jobs[i].id, id);
            cursor = walk.jobs[i].key;
        }
    }
    CU_ASSERT_EQUAL(expected, -1);
    store_fixture_close(&f);
}

void test_store__callback_stops_job_list(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    expect_job(&f, "a", TALLY_JOB_QUEUED);
    expect_job(&f, "b", TALLY_JOB_QUEUED);
    expect_job(&f, "c", TALLY_JOB_QUEUED);
    struct job_walk walk = {.stop_at = 2};
    TALLY_ASSERT_STATUS(f.ops->job_list(f.store, -1, INT64_MAX, 10, collect_job, &walk, &f.err),
                        TALLY_CANCELLED, &f.err);
    TALLY_ASSERT_TEXT(f.err.message, "enough");
    TALLY_ASSERT_TEXT(collected_ids(&walk), "c,b");
    TALLY_ASSERT_TEXT(list(&f, -1, INT64_MAX, 10), "c,b,a");
    walk = (struct job_walk){.stop_at = 1};
    TALLY_ASSERT_STATUS(f.ops->job_list_live(f.store, collect_job, &walk, NULL), TALLY_CANCELLED,
                        NULL);
    TALLY_ASSERT_TEXT(collected_ids(&walk), "a");
    store_fixture_close(&f);
}

void test_store__job_list_live_is_oldest_first_without_the_ended(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    expect_job(&f, "completed", TALLY_JOB_COMPLETED);
    expect_job(&f, "running", TALLY_JOB_RUNNING);
    expect_job(&f, "failed", TALLY_JOB_FAILED);
    expect_job(&f, "queued", TALLY_JOB_QUEUED);
    expect_job(&f, "cancelled", TALLY_JOB_CANCELLED);
    expect_job(&f, "paused", TALLY_JOB_PAUSED);
    struct job_walk walk = {.n = 0};
    TALLY_ASSERT_STATUS(f.ops->job_list_live(f.store, collect_job, &walk, &f.err), TALLY_OK,
                        &f.err);
    TALLY_ASSERT_TEXT(collected_ids(&walk), "running,queued,paused");
    store_fixture_close(&f);
}

/* Reads everything that is stored about a live job, as at start-up. */
static enum tally_status read_around(void *context, const struct tally_store_job *job,
                                     struct tally_error *err)
{
    struct store_fixture *f = context;
    struct tally_buffer out = {0};
    struct update_walk updates = {.n = 0};
    struct record_walk records = {.n = 0};
    struct tally_store_job same;
    TALLY_ASSERT_STATUS(f->ops->job_get(f->store, job->id, &same, err), TALLY_OK, err);
    expect_same_job(&same, job);
    TALLY_ASSERT_STATUS(f->ops->document_get(f->store, job->key, &out, err), TALLY_OK, err);
    CU_ASSERT_EQUAL(out.size, 2);
    TALLY_ASSERT_STATUS(f->ops->state_get(f->store, job->key, &out, err), TALLY_OK, err);
    CU_ASSERT_EQUAL(out.size, 7);
    TALLY_ASSERT_STATUS(f->ops->update_list(f->store, job->key, 1, collect_update, &updates, err),
                        TALLY_OK, err);
    CU_ASSERT_EQUAL(updates.n, 1);
    TALLY_ASSERT_STATUS(
        f->ops->round_list(f->store, job->key, 0, 10, collect_record, &records, err), TALLY_OK,
        err);
    CU_ASSERT_EQUAL(records.n, 1);
    tally_buffer_fini(&out);
    return TALLY_OK;
}

void test_store__callback_may_read_the_store(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    static const char *const IDS[] = {"a", "b", "c"};
    for (int i = 0; i < 3; i++) {
        int64_t key = expect_job(&f, IDS[i], TALLY_JOB_RUNNING);
        struct tally_round_record record = sample_record(1, 1);
        expect_begin(&f);
        f.ops->state_put(f.store, key, "state", 5, NULL);
        f.ops->round_insert(f.store, key, &record, NULL);
        expect_update(&f, key, 1, 1, "body");
        expect_commit(&f);
    }
    TALLY_ASSERT_STATUS(f.ops->job_list_live(f.store, read_around, &f, &f.err), TALLY_OK, &f.err);
    TALLY_ASSERT_STATUS(f.ops->job_list(f.store, -1, INT64_MAX, 9, read_around, &f, &f.err),
                        TALLY_OK, &f.err);
    store_fixture_close(&f);
}
