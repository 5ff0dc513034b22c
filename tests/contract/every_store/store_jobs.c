/* Contract of job_insert, job_update, document, state and the reads of jobs. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/contract/store_tests.h"
#include "tests/contract/support/store_fixture.h"

static const size_t LARGE_BYTES = 5 * 1024 * 1024;

/* Inserts `job` in a transaction of its own and reads it back. */
static void expect_round_trip(struct store_fixture *f, const struct tally_store_job *job)
{
    struct tally_store_job expected = *job;
    expect_begin(f);
    expected.key = expect_job_insert(f, job);
    expect_commit(f);
    struct tally_store_job actual;
    memset(&actual, 0x5a, sizeof actual);
    TALLY_ASSERT_STATUS(f->ops->job_get(f->store, job->id, &actual, &f->err), TALLY_OK, &f->err);
    expect_same_job(&actual, &expected);
}

void test_store__every_member_of_a_job_is_read_back(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    struct tally_store_job odd = sample_job("odd", 1);
    struct tally_store_job even = sample_job("even", 2);
    expect_round_trip(&f, &odd);
    expect_round_trip(&f, &even);
    store_fixture_close(&f);
}

void test_store__extreme_values_of_a_job_are_exact(void)
{
    static const double REALS[] = {-0.0,     0.0,      5e-324,    -5e-324, DBL_MIN, DBL_MAX,
                                   -DBL_MAX, INFINITY, -INFINITY, 0.1,     1e15,    -3.0};
    static const int64_t INTEGERS[] = {0, -1, INT64_MAX, INT64_MIN};
    static const uint64_t COUNTERS[] = {0, UINT64_MAX, (uint64_t)INT64_MAX + 1, 1};
    struct store_fixture f;
    store_fixture_open(&f);
    for (int i = 0; i < (int)(sizeof REALS / sizeof REALS[0]); i++) {
        char id[16];
        snprintf(id, sizeof id, "job %d", i);
        struct tally_store_job job = sample_job(id, 1);
        job.progress.cumulative_regret = REALS[i];
        job.progress.f_star = REALS[i];
        job.progress.loss = REALS[i];
        job.progress.best.value = job.progress.patience.best = job.progress.stopped.value =
            REALS[i];
        job.progress.estimates.sigma = REALS[i];
        job.progress.estimates.gradient_bound = REALS[i];
        job.curvature.smoothness = job.curvature.strong_convexity = REALS[i];
        job.created_ms = job.dim = job.progress.time_step = INTEGERS[i % 4];
        job.progress.x_checksum = job.wire_out_bytes = COUNTERS[i % 4];
        job.progress.bits.uplink.formula_bits = COUNTERS[i % 4];
        job.progress.bits.telemetry_bits = COUNTERS[i % 4];
        expect_round_trip(&f, &job);
    }
    store_fixture_close(&f);
}

void test_store__nan_stays_nan(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    struct tally_store_job job = sample_job("a", 1);
    job.progress.loss = (double)NAN;
    expect_begin(&f);
    expect_job_insert(&f, &job);
    expect_commit(&f);
    TALLY_ASSERT_STATUS(f.ops->job_get(f.store, "a", &job, &f.err), TALLY_OK, &f.err);
    CU_ASSERT(isnan(job.progress.loss));
    store_fixture_close(&f);
}

void test_store__every_status_is_read_back(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    for (int status = 0; status < TALLY_N_JOB_STATUS; status++) {
        struct tally_store_job job =
            sample_job(tally_job_status_name((enum tally_job_status)status), 1);
        job.status = (enum tally_job_status)status;
        expect_round_trip(&f, &job);
    }
    store_fixture_close(&f);
}

void test_store__any_text_is_data(void)
{
    static const char *const TEXTS[] = {
        "",        "it's", "\"x\"; DROP TABLE jobs; --", "?1 {names} %s", "\xc3\xbc\xe2\x82\xac",
        "\xff\xfe"};
    struct store_fixture f;
    store_fixture_open(&f);
    for (int i = 0; i < (int)(sizeof TEXTS / sizeof TEXTS[0]); i++) {
        struct tally_store_job job = sample_job(TEXTS[i], 1);
        strcpy(job.name, TEXTS[i]);
        strcpy(job.reason, TEXTS[i]);
        strcpy(job.algorithm, TEXTS[i]);
        expect_round_trip(&f, &job);
    }
    store_fixture_close(&f);
}

void test_store__texts_of_full_length_are_read_back(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    struct tally_store_job job = sample_job("", 1);
    memset(job.id, 'i', sizeof job.id - 1);
    memset(job.name, 'n', sizeof job.name - 1);
    memset(job.algorithm, 'a', sizeof job.algorithm - 1);
    memset(job.reason, 'r', sizeof job.reason - 1);
    expect_round_trip(&f, &job);
    store_fixture_close(&f);
}

void test_store__keys_ascend_whatever_the_caller_says(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t last = INT64_MIN;
    expect_begin(&f);
    for (int i = 0; i < 5; i++) {
        char id[16];
        snprintf(id, sizeof id, "job %d", i);
        struct tally_store_job job = sample_job(id, 1);
        job.key = 77 - i;
        int64_t key = expect_job_insert(&f, &job);
        CU_ASSERT(key > last);
        last = key;
    }
    expect_commit(&f);
    store_fixture_close(&f);
}

void test_store__second_insert_of_an_id_already_exists(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    expect_job(&f, "a", TALLY_JOB_QUEUED);
    struct tally_store_job job = sample_job("a", 9);
    int64_t key = -7;
    expect_begin(&f);
    TALLY_ASSERT_STATUS(f.ops->job_insert(f.store, &job, "[]", 2, NULL, 0, &key, &f.err),
                        TALLY_ALREADY_EXISTS, &f.err);
    CU_ASSERT_EQUAL(key, -7);
    CU_ASSERT_EQUAL(f.err.status, TALLY_ALREADY_EXISTS);
    f.ops->rollback(f.store);
    TALLY_ASSERT_STATUS(f.ops->job_get(f.store, "a", &job, NULL), TALLY_OK, NULL);
    TALLY_ASSERT_TEXT(job.name, "name 1");
    store_fixture_close(&f);
}

void test_store__second_insert_of_an_idempotency_key_already_exists(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    struct tally_store_job a = sample_job("a", 1);
    struct tally_store_job b = sample_job("b", 2);
    int64_t key = -7;
    expect_begin(&f);
    TALLY_ASSERT_STATUS(f.ops->job_insert(f.store, &a, "{}", 2, "once", 1, &key, &f.err), TALLY_OK,
                        &f.err);
    key = -7;
    TALLY_ASSERT_STATUS(f.ops->job_insert(f.store, &b, "{}", 2, "once", 1, &key, &f.err),
                        TALLY_ALREADY_EXISTS, &f.err);
    CU_ASSERT_EQUAL(key, -7);
    expect_commit(&f);
    TALLY_ASSERT_STATUS(f.ops->job_get(f.store, "b", &b, NULL), TALLY_NOT_FOUND, NULL);
    store_fixture_close(&f);
}

void test_store__idempotency_key_gives_the_job_and_the_digest(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    struct tally_store_job jobs[2] = {sample_job("a", 1), sample_job("b", 2)};
    expect_begin(&f);
    TALLY_ASSERT_STATUS(f.ops->job_insert(f.store, &jobs[0], "{}", 2, "it's \"a\"", UINT64_MAX,
                                          &jobs[0].key, &f.err),
                        TALLY_OK, &f.err);
    TALLY_ASSERT_STATUS(f.ops->job_insert(f.store, &jobs[1], "{}", 2, "", 7, &jobs[1].key, &f.err),
                        TALLY_OK, &f.err);
    expect_commit(&f);
    struct tally_store_job job;
    uint64_t digest = 0;
    TALLY_ASSERT_STATUS(f.ops->job_by_idempotency_key(f.store, "it's \"a\"", &job, &digest, &f.err),
                        TALLY_OK, &f.err);
    expect_same_job(&job, &jobs[0]);
    CU_ASSERT_EQUAL(digest, UINT64_MAX);
    TALLY_ASSERT_STATUS(f.ops->job_by_idempotency_key(f.store, "", &job, &digest, &f.err), TALLY_OK,
                        &f.err);
    expect_same_job(&job, &jobs[1]);
    CU_ASSERT_EQUAL(digest, 7);
    store_fixture_close(&f);
}

void test_store__jobs_without_an_idempotency_key_do_not_collide(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    expect_job(&f, "a", TALLY_JOB_QUEUED);
    expect_job(&f, "b", TALLY_JOB_QUEUED);
    struct tally_store_job job = sample_job("x", 9);
    uint64_t digest = 3;
    TALLY_ASSERT_STATUS(f.ops->job_by_idempotency_key(f.store, "", &job, &digest, &f.err),
                        TALLY_NOT_FOUND, &f.err);
    CU_ASSERT_EQUAL(f.err.status, TALLY_NOT_FOUND);
    TALLY_ASSERT_TEXT(job.id, "x");
    CU_ASSERT_EQUAL(digest, 3);
    store_fixture_close(&f);
}

void test_store__unknown_id_is_not_found(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    expect_job(&f, "a", TALLY_JOB_QUEUED);
    struct tally_store_job job = sample_job("x", 9);
    TALLY_ASSERT_STATUS(f.ops->job_get(f.store, "A", &job, &f.err), TALLY_NOT_FOUND, &f.err);
    TALLY_ASSERT_TEXT(job.id, "x");
    TALLY_ASSERT_TEXT(f.err.message, "no job \"A\"");
    store_fixture_close(&f);
}

void test_store__job_update_overwrites_what_is_mutable(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    struct tally_store_job first = sample_job("a", 1);
    struct tally_store_job expected = sample_job("other id", 2);
    expected.status = TALLY_JOB_FAILED;
    expect_begin(&f);
    expect_job_insert(&f, &(struct tally_store_job){.id = "before"});
    first.key = expect_job_insert(&f, &first);
    expect_job_insert(&f, &(struct tally_store_job){.id = "after"});
    expected.key = first.key;
    TALLY_ASSERT_STATUS(f.ops->job_update(f.store, &expected, &f.err), TALLY_OK, &f.err);
    expect_commit(&f);
    strcpy(expected.id, first.id);
    strcpy(expected.name, first.name);
    strcpy(expected.algorithm, first.algorithm);
    expected.created_ms = first.created_ms;
    expected.clients = first.clients;
    expected.dim = first.dim;
    expected.horizon = first.horizon;
    memcpy(expected.labels, first.labels, sizeof expected.labels);
    struct tally_store_job actual;
    TALLY_ASSERT_STATUS(f.ops->job_get(f.store, "a", &actual, &f.err), TALLY_OK, &f.err);
    expect_same_job(&actual, &expected);
    TALLY_ASSERT_STATUS(f.ops->job_get(f.store, "after", &actual, &f.err), TALLY_OK, &f.err);
    CU_ASSERT_EQUAL(actual.finished_ms, 0);
    store_fixture_close(&f);
}

void test_store__job_update_of_an_unknown_key_is_not_found(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    struct tally_store_job job = sample_job("a", 1);
    expect_begin(&f);
    static const int64_t KEYS[] = {0, 1, -1, INT64_MAX, INT64_MIN};
    for (int i = 0; i < 5; i++) {
        job.key = KEYS[i];
        TALLY_ASSERT_STATUS(flushed(&f, f.ops->job_update(f.store, &job, NULL)), TALLY_NOT_FOUND,
                            NULL);
    }
    f.ops->rollback(f.store);
    store_fixture_close(&f);
}

/* Inserts a job with the document and checks that document_get() appends it after "[". */
static void expect_document(struct store_fixture *f, const char *id, const char *document, size_t n)
{
    struct tally_store_job job = sample_job(id, 1);
    int64_t key = 0;
    expect_begin(f);
    TALLY_ASSERT_STATUS(f->ops->job_insert(f->store, &job, document, n, NULL, 0, &key, &f->err),
                        TALLY_OK, &f->err);
    expect_commit(f);
    struct tally_buffer out = {0};
    tally_buffer_append_text(&out, "[");
    TALLY_ASSERT_STATUS(f->ops->document_get(f->store, key, &out, &f->err), TALLY_OK, &f->err);
    CU_ASSERT_EQUAL(out.size, n + 1);
    CU_ASSERT(out.size == n + 1 && out.data[0] == '[' &&
              (n == 0 || memcmp(out.data + 1, document, n) == 0));
    tally_buffer_fini(&out);
}

void test_store__document_is_appended_byte_by_byte(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    char *large = (char *)pattern_new(LARGE_BYTES);
    expect_document(&f, "small", "{\"name\": \"it's\"}", 16);
    expect_document(&f, "empty", NULL, 0);
    expect_document(&f, "nul", "a\0b", 3);
    expect_document(&f, "large", large, LARGE_BYTES);
    free(large);
    store_fixture_close(&f);
}

void test_store__document_of_an_unknown_job_is_not_found(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    struct tally_buffer out = {0};
    TALLY_ASSERT_STATUS(f.ops->document_get(f.store, 1, &out, &f.err), TALLY_NOT_FOUND, &f.err);
    CU_ASSERT_EQUAL(f.err.status, TALLY_NOT_FOUND);
    CU_ASSERT_EQUAL(out.size, 0);
    store_fixture_close(&f);
}

void test_store__document_past_the_limit_of_the_buffer_is_too_large(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t key = expect_job(&f, "a", TALLY_JOB_QUEUED);
    struct tally_buffer out = {.limit = 1};
    TALLY_ASSERT_STATUS(f.ops->document_get(f.store, key, &out, &f.err), TALLY_TOO_LARGE, &f.err);
    CU_ASSERT_EQUAL(f.err.status, TALLY_TOO_LARGE);
    CU_ASSERT_EQUAL(out.size, 0);
    tally_buffer_fini(&out);
    store_fixture_close(&f);
}

/* Puts a state and checks that state_get() appends it after "[". */
static void expect_state(struct store_fixture *f, int64_t key, const void *bytes, size_t n)
{
    expect_begin(f);
    TALLY_ASSERT_STATUS(f->ops->state_put(f->store, key, bytes, n, &f->err), TALLY_OK, &f->err);
    expect_commit(f);
    struct tally_buffer out = {0};
    tally_buffer_append_text(&out, "[");
    TALLY_ASSERT_STATUS(f->ops->state_get(f->store, key, &out, &f->err), TALLY_OK, &f->err);
    CU_ASSERT_EQUAL(out.size, n + 1);
    CU_ASSERT(out.size == n + 1 && out.data[0] == '[' &&
              (n == 0 || memcmp(out.data + 1, bytes, n) == 0));
    tally_buffer_fini(&out);
}

void test_store__state_put_overwrites(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t a = expect_job(&f, "a", TALLY_JOB_QUEUED);
    int64_t b = expect_job(&f, "b", TALLY_JOB_QUEUED);
    uint8_t *large = pattern_new(LARGE_BYTES);
    expect_state(&f, b, "state of b", 10);
    expect_state(&f, a, "x\0y", 3);
    expect_state(&f, a, large, LARGE_BYTES);
    expect_state(&f, a, NULL, 0);
    expect_state(&f, a, "again", 5);
    struct tally_buffer out = {0};
    TALLY_ASSERT_STATUS(f.ops->state_get(f.store, b, &out, NULL), TALLY_OK, NULL);
    CU_ASSERT(out.size == 10 && memcmp(out.data, "state of b", 10) == 0);
    tally_buffer_fini(&out);
    free(large);
    store_fixture_close(&f);
}

void test_store__state_is_not_found_before_it_is_put(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t key = expect_job(&f, "a", TALLY_JOB_QUEUED);
    struct tally_buffer out = {0};
    TALLY_ASSERT_STATUS(f.ops->state_get(f.store, key, &out, &f.err), TALLY_NOT_FOUND, &f.err);
    CU_ASSERT_EQUAL(f.err.status, TALLY_NOT_FOUND);
    TALLY_ASSERT_STATUS(f.ops->state_get(f.store, key + 1, &out, NULL), TALLY_NOT_FOUND, NULL);
    expect_begin(&f);
    TALLY_ASSERT_STATUS(flushed(&f, f.ops->state_put(f.store, key + 1, "x", 1, &f.err)),
                        TALLY_NOT_FOUND, &f.err);
    CU_ASSERT_EQUAL(f.err.status, TALLY_NOT_FOUND);
    f.ops->rollback(f.store);
    store_fixture_close(&f);
}
