/* Contract of updates of the open round and records of the closed ones. */
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/contract/store_tests.h"
#include "tests/contract/support/store_fixture.h"

/* The updates of a round, "client=body ...". */
static const char *updates_of(struct store_fixture *f, int64_t job_key, int64_t round)
{
    static char text[256];
    size_t n = 0;
    text[0] = '\0';
    struct update_walk walk = {.n = 0};
    tally_error_clear(&f->err);
    TALLY_ASSERT_STATUS(
        f->ops->update_list(f->store, job_key, round, collect_update, &walk, &f->err), TALLY_OK,
        &f->err);
    for (int i = 0; i < walk.n && i < 8; i++) {
        CU_ASSERT_EQUAL(walk.updates[i].round, round);
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%u=%s", i > 0 ? " " : "",
                              walk.updates[i].client, walk.bodies[i]);
    }
    return text;
}

void test_store__updates_are_listed_by_client(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
    expect_begin(&f);
    expect_update(&f, key, 1, 10, "ten");
    expect_update(&f, key, 1, 2, "two");
    expect_update(&f, key, 1, UINT32_MAX, "last");
    expect_update(&f, key, 1, 0, "zero");
    TALLY_ASSERT_TEXT(updates_of(&f, key, 1), "0=zero 2=two 10=ten 4294967295=last");
    expect_commit(&f);
    TALLY_ASSERT_TEXT(updates_of(&f, key, 1), "0=zero 2=two 10=ten 4294967295=last");
    store_fixture_close(&f);
}

void test_store__updates_are_kept_apart_by_job_and_round(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t a = expect_job(&f, "a", TALLY_JOB_RUNNING);
    int64_t b = expect_job(&f, "b", TALLY_JOB_RUNNING);
    expect_begin(&f);
    expect_update(&f, a, 2, 1, "a2");
    expect_update(&f, a, 1, 1, "a1");
    expect_update(&f, b, 1, 1, "b1");
    expect_update(&f, a, INT64_MAX, 1, "amax");
    expect_commit(&f);
    TALLY_ASSERT_TEXT(updates_of(&f, a, 1), "1=a1");
    TALLY_ASSERT_TEXT(updates_of(&f, a, 2), "1=a2");
    TALLY_ASSERT_TEXT(updates_of(&f, a, INT64_MAX), "1=amax");
    TALLY_ASSERT_TEXT(updates_of(&f, b, 1), "1=b1");
    TALLY_ASSERT_TEXT(updates_of(&f, b, 2), "");
    TALLY_ASSERT_TEXT(updates_of(&f, b + 1, 1), "");
    store_fixture_close(&f);
}

/* Context of same_body. */
struct body {
    const uint8_t *bytes;
    size_t n;
    int n_calls;
};

static enum tally_status same_body(void *context, const struct tally_store_update *update,
                                   struct tally_error *err)
{
    (void)err;
    struct body *body = context;
    body->n_calls++;
    CU_ASSERT_PTR_NOT_NULL(update->body);
    CU_ASSERT_EQUAL(update->n_body, body->n);
    CU_ASSERT(update->n_body == body->n &&
              (body->n == 0 || memcmp(update->body, body->bytes, body->n) == 0));
    return TALLY_OK;
}

void test_store__bodies_of_any_size_are_exact(void)
{
    static const size_t SIZES[] = {0, 1, 100, 4096, 5 * 1024 * 1024};
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
    for (int i = 0; i < 5; i++) {
        uint8_t *bytes = pattern_new(SIZES[i]);
        struct tally_store_update update = {i, 1, SIZES[i] > 0 ? bytes : NULL, SIZES[i]};
        expect_begin(&f);
        TALLY_ASSERT_STATUS(f.ops->update_insert(f.store, key, &update, &f.err), TALLY_OK, &f.err);
        expect_commit(&f);
        struct body body = {bytes, SIZES[i], 0};
        TALLY_ASSERT_STATUS(f.ops->update_list(f.store, key, i, same_body, &body, &f.err), TALLY_OK,
                            &f.err);
        CU_ASSERT_EQUAL(body.n_calls, 1);
        free(bytes);
    }
    store_fixture_close(&f);
}

void test_store__second_update_of_a_client_already_exists(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
    struct tally_store_update again = {1, 7, (const uint8_t *)"other", 5};
    expect_begin(&f);
    expect_update(&f, key, 1, 7, "first");
    TALLY_ASSERT_STATUS(flushed(&f, f.ops->update_insert(f.store, key, &again, &f.err)),
                        TALLY_ALREADY_EXISTS, &f.err);
    CU_ASSERT_EQUAL(f.err.status, TALLY_ALREADY_EXISTS);
    expect_commit(&f);
    TALLY_ASSERT_TEXT(updates_of(&f, key, 1), "7=first");
    store_fixture_close(&f);
}

void test_store__update_of_an_unknown_job_is_not_found(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    struct tally_store_update update = {1, 7, (const uint8_t *)"x", 1};
    expect_begin(&f);
    TALLY_ASSERT_STATUS(flushed(&f, f.ops->update_insert(f.store, 1, &update, &f.err)),
                        TALLY_NOT_FOUND, &f.err);
    TALLY_ASSERT_TEXT(f.err.message, "no job with key 1");
    expect_commit(&f);
    store_fixture_close(&f);
}

void test_store__updates_delete_drops_a_range_of_rounds(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t a = expect_job(&f, "a", TALLY_JOB_RUNNING);
    int64_t b = expect_job(&f, "b", TALLY_JOB_RUNNING);
    expect_begin(&f);
    expect_update(&f, a, TALLY_STORE_PROVENANCE_ROUND, 0, "programs");
    expect_update(&f, a, TALLY_STORE_TRAFFIC_ROUND, 0, "traffic");
    expect_update(&f, a, TALLY_STORE_METRICS_ROUND, 0, "metrics");
    expect_update(&f, a, 1, 1, "a1");
    expect_update(&f, a, 2, 1, "a2");
    expect_update(&f, a, 2, 2, "a2");
    expect_update(&f, a, 3, 1, "a3");
    expect_update(&f, b, 1, 1, "b1");
    expect_commit(&f);
    expect_begin(&f);
    TALLY_ASSERT_STATUS(f.ops->updates_delete(f.store, a, 0, 2, &f.err), TALLY_OK, &f.err);
    expect_commit(&f);
    TALLY_ASSERT_TEXT(updates_of(&f, a, TALLY_STORE_TRAFFIC_ROUND), "0=traffic");
    TALLY_ASSERT_TEXT(updates_of(&f, a, TALLY_STORE_METRICS_ROUND), "");
    TALLY_ASSERT_TEXT(updates_of(&f, a, 1), "");
    TALLY_ASSERT_TEXT(updates_of(&f, a, 2), "");
    TALLY_ASSERT_TEXT(updates_of(&f, a, 3), "1=a3");
    TALLY_ASSERT_TEXT(updates_of(&f, b, 1), "1=b1");
    expect_begin(&f);
    TALLY_ASSERT_STATUS(f.ops->updates_delete(f.store, a, -1, -1, &f.err), TALLY_OK, &f.err);
    expect_update(&f, a, 2, 1, "again");
    TALLY_ASSERT_STATUS(f.ops->updates_delete(f.store, b + 1, 1, 9, &f.err), TALLY_OK, &f.err);
    TALLY_ASSERT_STATUS(f.ops->updates_delete(f.store, b, 1, 0, &f.err), TALLY_OK, &f.err);
    expect_commit(&f);
    TALLY_ASSERT_TEXT(updates_of(&f, a, TALLY_STORE_TRAFFIC_ROUND), "");
    TALLY_ASSERT_TEXT(updates_of(&f, a, TALLY_STORE_PROVENANCE_ROUND), "0=programs");
    TALLY_ASSERT_TEXT(updates_of(&f, a, 2), "1=again");
    TALLY_ASSERT_TEXT(updates_of(&f, a, 3), "1=a3");
    TALLY_ASSERT_TEXT(updates_of(&f, b, 1), "1=b1");
    store_fixture_close(&f);
}

void test_store__callback_stops_update_list(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
    expect_begin(&f);
    expect_update(&f, key, 1, 1, "x");
    expect_update(&f, key, 1, 2, "y");
    expect_update(&f, key, 1, 3, "z");
    expect_commit(&f);
    struct update_walk walk = {.stop_at = 2};
    TALLY_ASSERT_STATUS(f.ops->update_list(f.store, key, 1, collect_update, &walk, &f.err),
                        TALLY_CANCELLED, &f.err);
    CU_ASSERT_EQUAL(walk.n, 2);
    TALLY_ASSERT_TEXT(updates_of(&f, key, 1), "1=x 2=y 3=z");
    store_fixture_close(&f);
}

static void expect_round(struct store_fixture *f, int64_t job_key, int64_t round, int salt)
{
    struct tally_round_record record = sample_record(round, salt);
    tally_error_clear(&f->err);
    TALLY_ASSERT_STATUS(f->ops->round_insert(f->store, job_key, &record, &f->err), TALLY_OK,
                        &f->err);
}

/* The rounds that round_list() returns, as digits: 123. */
static int64_t rounds_of(struct store_fixture *f, int64_t job_key, int64_t after, int64_t limit)
{
    struct record_walk walk = {.n = 0};
    tally_error_clear(&f->err);
    TALLY_ASSERT_STATUS(
        f->ops->round_list(f->store, job_key, after, limit, collect_record, &walk, &f->err),
        TALLY_OK, &f->err);
    int64_t digits = 0;
    for (int i = 0; i < walk.n && i < COLLECT_CAPACITY; i++) {
        digits = 10 * digits + walk.records[i].round;
    }
    return digits;
}

void test_store__every_member_of_a_record_is_read_back(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
    struct tally_round_record extreme = {
        .round = INT64_MAX,
        .time_step = INT64_MAX,
        .iterate = INT64_MIN,
        .norm = -0.0,
        .loss = 5e-324,
        .cumulative_regret = -DBL_MAX,
        .bits = {.uplink = {.formula_bits = UINT64_MAX}, .telemetry_bits = UINT64_MAX - 1}};
    expect_begin(&f);
    expect_round(&f, key, 1, 1);
    expect_round(&f, key, 2, 2);
    TALLY_ASSERT_STATUS(f.ops->round_insert(f.store, key, &extreme, &f.err), TALLY_OK, &f.err);
    expect_commit(&f);
    struct record_walk walk = {.n = 0};
    TALLY_ASSERT_STATUS(f.ops->round_list(f.store, key, 0, 10, collect_record, &walk, &f.err),
                        TALLY_OK, &f.err);
    CU_ASSERT_EQUAL(walk.n, 3);
    struct tally_round_record odd = sample_record(1, 1);
    struct tally_round_record even = sample_record(2, 2);
    expect_same_record(&walk.records[0], &odd);
    expect_same_record(&walk.records[1], &even);
    expect_same_record(&walk.records[2], &extreme);
    store_fixture_close(&f);
}

void test_store__records_are_listed_in_order_from_the_cursor(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t a = expect_job(&f, "a", TALLY_JOB_RUNNING);
    int64_t b = expect_job(&f, "b", TALLY_JOB_RUNNING);
    expect_begin(&f);
    expect_round(&f, a, 3, 1);
    expect_round(&f, a, 1, 1);
    expect_round(&f, b, 9, 1);
    expect_round(&f, a, 4, 1);
    expect_round(&f, a, 2, 1);
    expect_commit(&f);
    CU_ASSERT_EQUAL(rounds_of(&f, a, 0, 10), 1234);
    CU_ASSERT_EQUAL(rounds_of(&f, a, INT64_MIN, INT64_MAX), 1234);
    CU_ASSERT_EQUAL(rounds_of(&f, a, 2, 10), 34);
    CU_ASSERT_EQUAL(rounds_of(&f, a, 4, 10), 0);
    CU_ASSERT_EQUAL(rounds_of(&f, a, 0, 3), 123);
    CU_ASSERT_EQUAL(rounds_of(&f, a, 1, 2), 23);
    CU_ASSERT_EQUAL(rounds_of(&f, a, 0, 0), 0);
    CU_ASSERT_EQUAL(rounds_of(&f, a, 0, -1), 0);
    CU_ASSERT_EQUAL(rounds_of(&f, b, 0, 10), 9);
    CU_ASSERT_EQUAL(rounds_of(&f, b + 1, 0, 10), 0);
    store_fixture_close(&f);
}

void test_store__second_record_of_a_round_already_exists(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
    struct tally_round_record first = sample_record(1, 1);
    struct tally_round_record again = sample_record(1, 2);
    expect_begin(&f);
    expect_round(&f, key, 1, 1);
    TALLY_ASSERT_STATUS(flushed(&f, f.ops->round_insert(f.store, key, &again, &f.err)),
                        TALLY_ALREADY_EXISTS, &f.err);
    CU_ASSERT_EQUAL(f.err.status, TALLY_ALREADY_EXISTS);
    expect_commit(&f);
    struct record_walk walk = {.n = 0};
    f.ops->round_list(f.store, key, 0, 10, collect_record, &walk, NULL);
    CU_ASSERT_EQUAL(walk.n, 1);
    expect_same_record(&walk.records[0], &first);
    store_fixture_close(&f);
}

void test_store__record_of_an_unknown_job_is_not_found(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    struct tally_round_record record = sample_record(1, 1);
    expect_begin(&f);
    TALLY_ASSERT_STATUS(flushed(&f, f.ops->round_insert(f.store, 1, &record, &f.err)),
                        TALLY_NOT_FOUND, &f.err);
    CU_ASSERT_EQUAL(f.err.status, TALLY_NOT_FOUND);
    expect_commit(&f);
    store_fixture_close(&f);
}

/* Reads the records of a job and expects round 1 with one salt and round 2 with another. */
static void expect_two_records(struct store_fixture *f, int64_t key, int salt_1, int salt_2)
{
    struct record_walk walk = {.n = 0};
    const struct tally_round_record first = sample_record(1, salt_1);
    const struct tally_round_record second = sample_record(2, salt_2);
    TALLY_ASSERT_STATUS(f->ops->round_list(f->store, key, 0, 10, collect_record, &walk, &f->err),
                        TALLY_OK, &f->err);
    CU_ASSERT_EQUAL(walk.n, 2);
    expect_same_record(&walk.records[0], &first);
    expect_same_record(&walk.records[1], &second);
}

void test_store__record_is_overwritten(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    const int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
    const int64_t other = expect_job(&f, "b", TALLY_JOB_RUNNING);
    const struct tally_round_record changed = sample_record(1, 4);
    const struct tally_round_record again = sample_record(1, 5);
    expect_begin(&f);
    expect_round(&f, key, 1, 1);
    expect_round(&f, key, 2, 2);
    expect_round(&f, other, 1, 1);
    expect_round(&f, other, 2, 2);
    expect_commit(&f);
    expect_begin(&f);
    TALLY_ASSERT_STATUS(flushed(&f, f.ops->round_update(f.store, key, &changed, &f.err)), TALLY_OK,
                        &f.err);
    expect_two_records(&f, key, 4, 2);
    f.ops->rollback(f.store);
    expect_two_records(&f, key, 1, 2);
    expect_begin(&f);
    TALLY_ASSERT_STATUS(flushed(&f, f.ops->round_update(f.store, key, &changed, &f.err)), TALLY_OK,
                        &f.err);
    TALLY_ASSERT_STATUS(flushed(&f, f.ops->round_update(f.store, key, &again, &f.err)), TALLY_OK,
                        &f.err);
    expect_commit(&f);
    expect_two_records(&f, key, 5, 2);
    expect_two_records(&f, other, 1, 2);
    store_fixture_close(&f);
}

void test_store__overwriting_a_record_that_is_not_there_is_not_found(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    const int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
    const struct tally_round_record record = sample_record(2, 1);
    expect_begin(&f);
    expect_round(&f, key, 1, 1);
    for (int64_t k = key; k <= key + 1; k++) {
        tally_error_clear(&f.err);
        TALLY_ASSERT_STATUS(flushed(&f, f.ops->round_update(f.store, k, &record, &f.err)),
                            TALLY_NOT_FOUND, &f.err);
        CU_ASSERT_EQUAL(f.err.status, TALLY_NOT_FOUND);
    }
    expect_commit(&f);
    CU_ASSERT_EQUAL(rounds_of(&f, key, 0, 10), 1);
    store_fixture_close(&f);
}

void test_store__callback_stops_round_list(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
    expect_begin(&f);
    expect_round(&f, key, 1, 1);
    expect_round(&f, key, 2, 1);
    expect_round(&f, key, 3, 1);
    expect_commit(&f);
    struct record_walk walk = {.stop_at = 2};
    TALLY_ASSERT_STATUS(f.ops->round_list(f.store, key, 0, 10, collect_record, &walk, &f.err),
                        TALLY_CANCELLED, &f.err);
    CU_ASSERT_EQUAL(walk.n, 2);
    CU_ASSERT_EQUAL(rounds_of(&f, key, 0, 10), 123);
    store_fixture_close(&f);
}
