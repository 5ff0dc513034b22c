#include "services/experiment/run_pool.h"

#include <string.h>

#include "tests/harness.h"

enum { N = 500 };

struct field {
    int visits[N];
    size_t bad;
    size_t watched;
    bool patience;
};

static enum tally_status visit(void *context, size_t index, const atomic_bool *stop,
                               struct tally_error *err)
{
    struct field *field = context;
    (void)stop;
    field->visits[index]++;
    return index == field->bad
               ? tally_fail(err, TALLY_DATA_LOSS, "piece", "piece %zu is bad", index)
               : TALLY_OK;
}

static bool watch(void *context, size_t done)
{
    struct field *field = context;
    field->watched = done;
    return field->patience;
}

static void test_experiment_pool__does_every_piece_once(void)
{
    for (unsigned threads = 1; threads <= 8; threads *= 2) {
        struct field field = {.bad = N, .patience = true};
        const struct tally_pool pool = {threads, watch, &field};
        TALLY_ASSERT_STATUS(tally_pool_run(&pool, N, visit, &field, NULL), TALLY_OK, NULL);
        for (size_t i = 0; i < N; i++) {
            CU_ASSERT_EQUAL(field.visits[i], 1);
        }
        CU_ASSERT_EQUAL(field.watched, N);
    }
}

static void test_experiment_pool__nothing_to_do_is_done(void)
{
    const struct tally_pool pool = {4, NULL, NULL};
    TALLY_ASSERT_STATUS(tally_pool_run(&pool, 0, visit, NULL, NULL), TALLY_OK, NULL);
}

static void test_experiment_pool__first_failure_stops_the_rest(void)
{
    struct field field = {.bad = 3};
    struct tally_error err = TALLY_ERROR_INIT;
    const struct tally_pool pool = {1, NULL, NULL};
    TALLY_ASSERT_STATUS(tally_pool_run(&pool, N, visit, &field, &err), TALLY_DATA_LOSS, &err);
    TALLY_ASSERT_TEXT(err.message, "piece 3 is bad");
    TALLY_ASSERT_TEXT(err.field, "piece");
    CU_ASSERT_EQUAL(field.visits[4], 0);
}

/* Waits until it is asked to stop. */
static enum tally_status linger(void *context, size_t index, const atomic_bool *stop,
                                struct tally_error *err)
{
    (void)context;
    (void)index;
    while (!atomic_load(stop)) {
    }
    return tally_fail(err, TALLY_CANCELLED, NULL, "stopped");
}

static void test_experiment_pool__watcher_can_stop_it(void)
{
    struct field field = {.patience = false};
    struct tally_error err = TALLY_ERROR_INIT;
    const struct tally_pool pool = {2, watch, &field};
    TALLY_ASSERT_STATUS(tally_pool_run(&pool, N, linger, &field, &err), TALLY_CANCELLED, &err);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_experiment_pool__does_every_piece_once),
    TALLY_TEST(test_experiment_pool__nothing_to_do_is_done),
    TALLY_TEST(test_experiment_pool__first_failure_stops_the_rest),
    TALLY_TEST(test_experiment_pool__watcher_can_stop_it),
};
TALLY_SUITE(experiment_pool, TESTS);
