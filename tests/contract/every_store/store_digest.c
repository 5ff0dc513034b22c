/* Contract of request_get, and of digests, which walk through everything. */
#include <stdio.h>
#include <string.h>

#include "storage/digest.h"
#include "tests/contract/store_tests.h"
#include "tests/contract/support/store_fixture.h"
#include "tests/simulation/storage/memory.h"

void test_store__request_is_read_back(void)
{
    static const char *const KEYS[] = {"it's \"a\"", "", NULL};
    struct store_fixture f;
    store_fixture_open(&f);
    for (int i = 0; i < 3; i++) {
        char id[8];
        snprintf(id, sizeof id, "job %d", i);
        struct tally_store_job job = sample_job(id, i);
        const uint64_t digest = UINT64_MAX - (uint64_t)i;
        expect_begin(&f);
        TALLY_ASSERT_STATUS(
            f.ops->job_insert(f.store, &job, "{}", 2, KEYS[i], digest, &job.key, &f.err), TALLY_OK,
            &f.err);
        expect_commit(&f);
        struct tally_buffer key = {0};
        tally_buffer_append_text(&key, "x");
        bool has_key = KEYS[i] == NULL;
        uint64_t found = 0;
        TALLY_ASSERT_STATUS(f.ops->request_get(f.store, job.key, &key, &has_key, &found, &f.err),
                            TALLY_OK, &f.err);
        CU_ASSERT_EQUAL(has_key, KEYS[i] != NULL);
        CU_ASSERT_EQUAL(found, digest);
        tally_buffer_append(&key, "", 1);
        CU_ASSERT_EQUAL(key.data[0], 'x');
        TALLY_ASSERT_TEXT((const char *)key.data + 1, KEYS[i] != NULL ? KEYS[i] : "");
        tally_buffer_fini(&key);
    }
    store_fixture_close(&f);
}

void test_store__request_of_an_unknown_job_is_not_found(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    struct tally_buffer key = {0};
    bool has_key = true;
    uint64_t digest = 3;
    TALLY_ASSERT_STATUS(f.ops->request_get(f.store, 1, &key, &has_key, &digest, &f.err),
                        TALLY_NOT_FOUND, &f.err);
    CU_ASSERT(has_key);
    CU_ASSERT_EQUAL(digest, 3);
    CU_ASSERT_EQUAL(key.size, 0);
    store_fixture_close(&f);
}

/* More jobs than one page of the walk, the last of them with more rounds than one page. */
enum { N_JOBS = 260, N_ROUNDS = 1030 };

/* Fills any store with the same content; returns the key of the last job. */
static int64_t fill(struct store_fixture *f)
{
    int64_t key = 0;
    expect_begin(f);
    for (int i = 0; i < N_JOBS; i++) {
        char id[16];
        snprintf(id, sizeof id, "job %d", i);
        struct tally_store_job job = sample_job(id, i % 100);
        job.status = (enum tally_job_status)(i % TALLY_N_JOB_STATUS);
        job.progress.round = N_ROUNDS;
        TALLY_ASSERT_STATUS(f->ops->job_insert(f->store, &job, "{\"a\": 1}", 8,
                                               i % 2 == 0 ? id : NULL, (uint64_t)i, &key, &f->err),
                            TALLY_OK, &f->err);
    }
    TALLY_ASSERT_STATUS(f->ops->state_put(f->store, key, "\0state", 6, &f->err), TALLY_OK, &f->err);
    expect_update(f, key, N_ROUNDS + 1, 3, "three");
    expect_update(f, key, N_ROUNDS + 1, 1, "");
    const struct tally_store_model model = {
        .slot = 2, .round = 2, .iterate = 3, .value = (double)NAN, .n_bytes = 5};
    TALLY_ASSERT_STATUS(f->ops->model_put(f->store, key, &model, "point", &f->err), TALLY_OK,
                        &f->err);
    for (int64_t round = 1; round <= N_ROUNDS; round++) {
        struct tally_round_record record = sample_record(round, (int)(round % 100));
        TALLY_ASSERT_STATUS(f->ops->round_insert(f->store, key, &record, &f->err), TALLY_OK,
                            &f->err);
    }
    expect_commit(f);
    return key;
}

static void read_digest(struct store_fixture *f, struct tally_store_digest *ret_digest)
{
    TALLY_ASSERT_STATUS(tally_store_digest_read(f->store, NULL, "", 0, ret_digest, &f->err),
                        TALLY_OK, &f->err);
}

void test_store__digest_is_that_of_the_reference(void)
{
    struct store_fixture f;
    struct store_fixture reference = {.err = TALLY_ERROR_INIT};
    struct tally_store_digest here;
    struct tally_store_digest there;
    store_fixture_open(&f);
    CU_ASSERT_EQUAL_FATAL(tally_memory_database_new(NULL, &reference.database, NULL), TALLY_OK);
    CU_ASSERT_EQUAL_FATAL(tally_memory_database_open(reference.database, &reference.store, NULL),
                          TALLY_OK);
    reference.ops = reference.store->ops;
    fill(&f);
    fill(&reference);
    read_digest(&f, &here);
    read_digest(&reference, &there);
    TALLY_ASSERT_STATUS(tally_store_digest_compare(&here, "this", &there, "reference", &f.err),
                        TALLY_OK, &f.err);
    CU_ASSERT_EQUAL(here.n_jobs, N_JOBS);
    CU_ASSERT_EQUAL(tally_store_digest_rows(&here), 2 * N_JOBS + 1 + 2 + N_ROUNDS + 1);
    CU_ASSERT_EQUAL(tally_store_digest_table(&here, TALLY_TABLE_ROUNDS).n_rows, N_ROUNDS);
    tally_store_digest_fini(&here);
    tally_store_digest_fini(&there);
    store_fixture_close(&reference);
    store_fixture_close(&f);
}

/* Makes one of the numbered changes to a filled store; returns the table that it changes. */
static enum tally_table change(struct store_fixture *f, int number, int64_t key)
{
    struct tally_store_job job;
    struct tally_round_record record = sample_record(N_ROUNDS + 1, 1);
    const struct tally_store_model model = {
        .slot = 2, .round = 2, .iterate = 3, .value = (double)NAN, .n_bytes = 5};
    TALLY_ASSERT_STATUS(f->ops->job_get(f->store, "job 259", &job, &f->err), TALLY_OK, &f->err);
    expect_begin(f);
    enum tally_table table = TALLY_TABLE_JOBS;
    enum tally_status status = TALLY_OK;
    switch (number) {
    case 0:
        job.progress.loss = -job.progress.loss;
        status = f->ops->job_update(f->store, &job, &f->err);
        break;
    case 1:
        table = TALLY_TABLE_STATES;
        status = f->ops->state_put(f->store, key, "\0statf", 6, &f->err);
        break;
    case 2:
        table = TALLY_TABLE_UPDATES;
        expect_update(f, key, N_ROUNDS + 1, 2, "");
        break;
    case 3:
        table = TALLY_TABLE_UPDATES;
        expect_update(f, key, TALLY_STORE_PROVENANCE_ROUND, 0, "p");
        break;
    case 4:
        table = TALLY_TABLE_MODELS;
        status = f->ops->model_put(f->store, key, &model, "poinu", &f->err);
        break;
    default:
        table = TALLY_TABLE_ROUNDS;
        status = f->ops->round_insert(f->store, key, &record, &f->err);
        break;
    }
    TALLY_ASSERT_STATUS(status, TALLY_OK, &f->err);
    expect_commit(f);
    return table;
}

void test_store__digest_shows_a_change_of_any_table(void)
{
    struct store_fixture f;
    struct tally_store_digest before;
    struct tally_store_digest after;
    store_fixture_open(&f);
    const int64_t key = fill(&f);
    read_digest(&f, &before);
    for (int i = 0; i < 6; i++) {
        struct tally_error err = TALLY_ERROR_INIT;
        const enum tally_table table = change(&f, i, key);
        read_digest(&f, &after);
        TALLY_ASSERT_STATUS(tally_store_digest_compare(&before, "one", &after, "other", &err),
                            TALLY_DATA_LOSS, &err);
        CU_ASSERT_PTR_NOT_NULL(strstr(err.message, "job 259"));
        CU_ASSERT_PTR_NOT_NULL(strstr(err.message, TALLY_TABLE_NAMES[table]));
        tally_store_digest_fini(&before);
        before = after;
    }
    tally_store_digest_fini(&before);
    store_fixture_close(&f);
}

void test_store__digest_shows_a_job_too_many(void)
{
    struct store_fixture f;
    struct tally_store_digest before;
    struct tally_store_digest after;
    store_fixture_open(&f);
    fill(&f);
    read_digest(&f, &before);
    expect_job(&f, "one more", TALLY_JOB_QUEUED);
    read_digest(&f, &after);
    for (int i = 0; i < 2; i++) {
        struct tally_error err = TALLY_ERROR_INIT;
        TALLY_ASSERT_STATUS(tally_store_digest_compare(i == 0 ? &before : &after, "one",
                                                       i == 0 ? &after : &before, "other", &err),
                            TALLY_DATA_LOSS, &err);
        CU_ASSERT_PTR_NOT_NULL(strstr(err.message, "one more"));
    }
    tally_store_digest_fini(&before);
    tally_store_digest_fini(&after);
    store_fixture_close(&f);
}
