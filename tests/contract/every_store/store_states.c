/* Contract of states that are appended to. */
#include <stdlib.h>
#include <string.h>

#include "storage/digest.h"
#include "tests/contract/store_tests.h"
#include "tests/contract/support/store_fixture.h"

static void expect_put(struct store_fixture *f, int64_t key, const char *text)
{
    tally_error_clear(&f->err);
    TALLY_ASSERT_STATUS(f->ops->state_put(f->store, key, text, strlen(text), &f->err), TALLY_OK,
                        &f->err);
}

static void expect_append(struct store_fixture *f, int64_t key, int64_t round, const char *text)
{
    tally_error_clear(&f->err);
    TALLY_ASSERT_STATUS(f->ops->state_append(f->store, key, round, text, strlen(text), &f->err),
                        TALLY_OK, &f->err);
}

/* Checks the status of a rejected append; the transaction continues. */
static void expect_refusal(struct store_fixture *f, int64_t key, int64_t round,
                           enum tally_status expected)
{
    tally_error_clear(&f->err);
    TALLY_ASSERT_STATUS(
        flushed(f, f->ops->state_append(f->store, key, round, "refused", 7, &f->err)), expected,
        &f->err);
    CU_ASSERT_EQUAL(f->err.status, expected);
    tally_error_clear(&f->err);
}

/* Adds a running job with a state. */
static int64_t expect_job_with_state(struct store_fixture *f, const char *id, const char *state)
{
    int64_t key = expect_job(f, id, TALLY_JOB_RUNNING);
    expect_begin(f);
    expect_put(f, key, state);
    expect_commit(f);
    return key;
}

void test_store__appended_parts_follow_what_was_put(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
    expect_begin(&f);
    expect_put(&f, key, "put");
    expect_append(&f, key, 1, " one");
    expect_state_text(&f, key, "put one");
    expect_append(&f, key, 2, " two");
    expect_state_text(&f, key, "put one two");
    expect_commit(&f);
    expect_state_text(&f, key, "put one two");
    expect_begin(&f);
    expect_append(&f, key, 3, " three");
    expect_commit(&f);
    expect_state_text(&f, key, "put one two three");
    store_fixture_close(&f);
}

void test_store__appended_parts_are_in_the_order_of_their_rounds(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t a = expect_job_with_state(&f, "a", "a:");
    int64_t b = expect_job_with_state(&f, "b", "b:");
    expect_begin(&f);
    expect_append(&f, a, 100, " 100");
    expect_append(&f, a, INT64_MAX, " max");
    expect_append(&f, b, 9, " 9");
    expect_append(&f, a, 9, " 9");
    expect_commit(&f);
    expect_begin(&f);
    expect_append(&f, b, 10, " 10");
    expect_append(&f, a, 10, " 10");
    expect_append(&f, a, 1, " 1");
    expect_state_text(&f, a, "a: 1 9 10 100 max");
    expect_commit(&f);
    expect_state_text(&f, a, "a: 1 9 10 100 max");
    expect_state_text(&f, b, "b: 9 10");
    store_fixture_close(&f);
}

void test_store__state_put_drops_what_was_appended(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t a = expect_job_with_state(&f, "a", "a:");
    int64_t b = expect_job_with_state(&f, "b", "b:");
    expect_begin(&f);
    expect_append(&f, a, 1, " 1");
    expect_append(&f, a, 2, " 2");
    expect_append(&f, b, 1, " 1");
    expect_commit(&f);
    expect_begin(&f);
    expect_append(&f, a, 3, " 3");
    expect_put(&f, a, "again:");
    expect_state_text(&f, a, "again:");
    expect_append(&f, a, 2, " second 2"); /* round 2 may be appended again */
    expect_commit(&f);
    expect_state_text(&f, a, "again: second 2");
    expect_state_text(&f, b, "b: 1");
    expect_begin(&f);
    expect_put(&f, a, "");
    expect_commit(&f);
    expect_state_text(&f, a, "");
    expect_state_text(&f, b, "b: 1");
    store_fixture_close(&f);
}

void test_store__append_without_a_state_is_not_found(void)
{
    struct store_fixture f;
    struct tally_buffer out = {0};
    store_fixture_open(&f);
    int64_t with = expect_job_with_state(&f, "a", "a:");
    int64_t without = expect_job(&f, "b", TALLY_JOB_RUNNING);
    expect_begin(&f);
    expect_append(&f, with, 1, " 1");
    expect_refusal(&f, without, 1, TALLY_NOT_FOUND);
    expect_refusal(&f, without + 1, 1, TALLY_NOT_FOUND);
    expect_append(&f, with, 2, " 2");
    TALLY_ASSERT_STATUS(f.ops->state_get(f.store, without, &out, NULL), TALLY_NOT_FOUND, NULL);
    expect_commit(&f);
    TALLY_ASSERT_STATUS(f.ops->state_get(f.store, without, &out, NULL), TALLY_NOT_FOUND, NULL);
    expect_state_text(&f, with, "a: 1 2");
    expect_begin(&f);
    expect_put(&f, without, "b:"); /* the rejected appends left nothing */
    expect_state_text(&f, without, "b:");
    expect_append(&f, without, 1, " 1");
    expect_commit(&f);
    expect_state_text(&f, without, "b: 1");
    tally_buffer_fini(&out);
    store_fixture_close(&f);
}

void test_store__second_append_of_a_round_already_exists(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t key = expect_job_with_state(&f, "a", "a:");
    expect_begin(&f);
    expect_append(&f, key, 1, " 1");
    expect_refusal(&f, key, 1, TALLY_ALREADY_EXISTS);
    expect_append(&f, key, 2, " 2");
    expect_commit(&f);
    expect_state_text(&f, key, "a: 1 2");
    expect_begin(&f);
    expect_refusal(&f, key, 2, TALLY_ALREADY_EXISTS);
    expect_refusal(&f, key, 1, TALLY_ALREADY_EXISTS);
    expect_append(&f, key, 3, " 3");
    expect_update(&f, key, 4, 1, "body");
    expect_commit(&f);
    expect_state_text(&f, key, "a: 1 2 3");
    struct update_walk walk = {.n = 0};
    f.ops->update_list(f.store, key, 4, collect_update, &walk, NULL);
    CU_ASSERT_EQUAL(walk.n, 1);
    store_fixture_close(&f);
}

void test_store__rollback_forgets_what_was_appended(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t key = expect_job_with_state(&f, "a", "a:");
    for (int i = 0; i < 2; i++) {
        expect_begin(&f);
        expect_append(&f, key, 1, " lost");
        expect_state_text(&f, key, "a: lost");
        f.ops->rollback(f.store);
        expect_state_text(&f, key, "a:");
    }
    expect_begin(&f);
    expect_append(&f, key, 1, " 1");
    expect_commit(&f);
    expect_begin(&f);
    expect_append(&f, key, 2, " lost");
    f.ops->rollback(f.store); /* before the state was read */
    expect_state_text(&f, key, "a: 1");
    store_fixture_close(&f);
}

void test_store__rollback_restores_what_a_put_has_dropped(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t key = expect_job_with_state(&f, "a", "a:");
    expect_begin(&f);
    expect_append(&f, key, 1, " 1");
    expect_append(&f, key, 2, " 2");
    expect_commit(&f);
    for (int i = 0; i < 2; i++) {
        expect_begin(&f);
        expect_put(&f, key, "lost:");
        expect_append(&f, key, 1, " lost");
        expect_append(&f, key, 7, " lost");
        expect_state_text(&f, key, "lost: lost lost");
        f.ops->rollback(f.store);
        expect_state_text(&f, key, "a: 1 2");
    }
    expect_begin(&f);
    expect_refusal(&f, key, 2, TALLY_ALREADY_EXISTS);
    expect_append(&f, key, 7, " 7");
    expect_commit(&f);
    expect_state_text(&f, key, "a: 1 2 7");
    store_fixture_close(&f);
}

void test_store__appended_parts_of_any_size_are_exact(void)
{
    static const size_t SIZES[] = {0, 1, 3, 4096, 0, 1024 * 1024, 2, 0};
    enum { N_PUT = 100, N_SIZES = 8, N_MOST = 1024 * 1024 };
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
    uint8_t *bytes = pattern_new(N_MOST);
    struct tally_buffer expected = {0};
    struct tally_buffer actual = {0};
    expect_begin(&f);
    TALLY_ASSERT_STATUS(f.ops->state_put(f.store, key, bytes, N_PUT, &f.err), TALLY_OK, &f.err);
    expect_commit(&f);
    tally_buffer_append(&expected, bytes, N_PUT);
    for (int i = 0; i < N_SIZES; i++) {
        const size_t n = SIZES[i];
        expect_begin(&f);
        TALLY_ASSERT_STATUS(
            f.ops->state_append(f.store, key, i, n > 0 ? bytes + N_MOST - n : NULL, n, &f.err),
            TALLY_OK, &f.err);
        expect_commit(&f);
        tally_buffer_append(&expected, bytes + N_MOST - n, n);
        actual.size = 0;
        TALLY_ASSERT_STATUS(f.ops->state_get(f.store, key, &actual, &f.err), TALLY_OK, &f.err);
        CU_ASSERT_EQUAL(actual.size, expected.size);
        CU_ASSERT(actual.size == expected.size &&
                  memcmp(actual.data, expected.data, expected.size) == 0);
    }
    expect_begin(&f);
    expect_refusal(&f, key, 0, TALLY_ALREADY_EXISTS); /* an empty append counts too */
    expect_commit(&f);
    tally_buffer_fini(&expected);
    tally_buffer_fini(&actual);
    free(bytes);
    store_fixture_close(&f);
}

void test_store__empty_state_can_be_appended_to(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t key = expect_job_with_state(&f, "a", "");
    expect_state_text(&f, key, "");
    expect_begin(&f);
    expect_append(&f, key, 1, "");
    expect_append(&f, key, 2, "two");
    expect_commit(&f);
    expect_state_text(&f, key, "two");
    store_fixture_close(&f);
}

void test_store__many_appended_parts_are_whole(void)
{
    enum { N = 3000, N_PART = 7 };
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t key = expect_job_with_state(&f, "a", "");
    uint8_t *bytes = pattern_new((size_t)N * N_PART);
    struct tally_buffer out = {0};
    expect_begin(&f);
    for (int i = N - 1; i >= 0; i--) {
        TALLY_ASSERT_STATUS(
            f.ops->state_append(f.store, key, i, bytes + (size_t)i * N_PART, N_PART, &f.err),
            TALLY_OK, &f.err);
    }
    expect_commit(&f);
    TALLY_ASSERT_STATUS(f.ops->state_get(f.store, key, &out, &f.err), TALLY_OK, &f.err);
    CU_ASSERT(out.size == (size_t)N * N_PART && memcmp(out.data, bytes, out.size) == 0);
    tally_buffer_fini(&out);
    free(bytes);
    store_fixture_close(&f);
}

void test_store__long_parts_are_exact(void)
{
    enum { N_STATE = 3 << 20, N_CHANGE = 2 << 20, N = N_STATE + N_CHANGE };
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
    uint8_t *bytes = pattern_new(N);
    for (int i = 0; i < 2; i++) { /* inserts the state, then replaces it by other bytes */
        struct tally_buffer out = {0};
        bytes[1000] = (uint8_t)i;
        expect_begin(&f);
        TALLY_ASSERT_STATUS(f.ops->state_put(f.store, key, bytes, N_STATE, &f.err), TALLY_OK,
                            &f.err);
        TALLY_ASSERT_STATUS(f.ops->state_append(f.store, key, 1, bytes + N_STATE, N_CHANGE, &f.err),
                            TALLY_OK, &f.err);
        expect_commit(&f);
        TALLY_ASSERT_STATUS(f.ops->state_get(f.store, key, &out, &f.err), TALLY_OK, &f.err);
        CU_ASSERT(out.size == N && memcmp(out.data, bytes, N) == 0);
        tally_buffer_fini(&out);
    }
    free(bytes);
    store_fixture_close(&f);
}

void test_store__state_past_the_limit_of_the_buffer_is_too_large(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t key = expect_job_with_state(&f, "a", "a:");
    struct tally_buffer out = {.limit = 3};
    expect_begin(&f);
    expect_append(&f, key, 1, "1");
    expect_commit(&f);
    TALLY_ASSERT_STATUS(f.ops->state_get(f.store, key, &out, &f.err), TALLY_OK, &f.err);
    CU_ASSERT(out.size == 3 && memcmp(out.data, "a:1", 3) == 0);
    expect_begin(&f);
    expect_append(&f, key, 2, "2");
    expect_commit(&f);
    out.size = 0;
    TALLY_ASSERT_STATUS(f.ops->state_get(f.store, key, &out, &f.err), TALLY_TOO_LARGE, &f.err);
    CU_ASSERT_EQUAL(f.err.status, TALLY_TOO_LARGE);
    tally_buffer_fini(&out);
    store_fixture_close(&f);
}

static void expect_same_digest(const struct tally_store_digest *a,
                               const struct tally_store_digest *b)
{
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_store_digest_compare(a, "one", b, "other", &err), TALLY_OK, &err);
    CU_ASSERT_EQUAL(tally_store_digest_rows(a), tally_store_digest_rows(b));
}

static struct tally_store_digest digest_of(struct store_fixture *f)
{
    struct tally_store_digest digest = {0};
    tally_error_clear(&f->err);
    TALLY_ASSERT_STATUS(tally_store_digest_read(f->store, NULL, "", 0, &digest, &f->err), TALLY_OK,
                        &f->err);
    return digest;
}

void test_store__digest_does_not_tell_how_a_state_was_written(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t key = expect_job_with_state(&f, "a", "put, one, two");
    struct tally_store_digest whole = digest_of(&f);
    CU_ASSERT_EQUAL(tally_store_digest_table(&whole, TALLY_TABLE_STATES).n_rows, 1);
    expect_begin(&f);
    expect_put(&f, key, "put,");
    expect_append(&f, key, 2, " two");
    expect_append(&f, key, 1, " one,");
    expect_commit(&f);
    struct tally_store_digest appended = digest_of(&f);
    expect_same_digest(&whole, &appended);
    expect_begin(&f);
    expect_append(&f, key, 3, ".");
    expect_commit(&f);
    struct tally_store_digest longer = digest_of(&f);
    TALLY_ASSERT_STATUS(tally_store_digest_compare(&whole, "one", &longer, "other", NULL),
                        TALLY_DATA_LOSS, NULL);
    expect_begin(&f);
    expect_put(&f, key, "put, one, two");
    expect_commit(&f);
    struct tally_store_digest again = digest_of(&f);
    expect_same_digest(&whole, &again);
    tally_store_digest_fini(&whole);
    tally_store_digest_fini(&appended);
    tally_store_digest_fini(&longer);
    tally_store_digest_fini(&again);
    store_fixture_close(&f);
}
