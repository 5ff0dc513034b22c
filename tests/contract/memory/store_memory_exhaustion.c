/* The in-memory store if an allocation fails: each allocation of a scenario in turn. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "storage/allocate.h"
#include "storage/leases.h"
#include "tests/simulation/storage/memory.h"
#include "tests/harness.h"

/* ---- Allocations: replaces storage/allocate.c ---- */

enum { NEVER = -1 };
static long n_allocations;
static long failing_allocation = NEVER;

static bool is_failing(void)
{
    return failing_allocation != NEVER && n_allocations++ == failing_allocation;
}

void *tally_store_allocate(size_t n)
{
    return is_failing() ? NULL : calloc(1, n);
}

/* Grows by one item at a time, so that every item is an allocation that may fail. */
void *tally_store_grow(void *array, size_t *capacity, size_t n, size_t size)
{
    if (array != NULL && n <= *capacity) {
        return array;
    }
    void *grown = is_failing() ? NULL : reallocarray(array, n, size);
    if (grown != NULL) {
        *capacity = n;
    }
    return grown;
}

/* ---- The scenario: "a" inserts jobs and adds to them, dies, and "b" takes them ---- */

enum { N_JOBS = 20, LEASE_MS = 1000 };

struct scenario {
    struct tally_memory_database *database;
    struct tally_store *a, *b;
    int64_t now_ms;
    int64_t keys[N_JOBS]; /* of the jobs that were committed */
    int n_jobs;
};

static int64_t scenario_now_ms(void *context)
{
    return ((const struct scenario *)context)->now_ms;
}

/* Calls may fail only with NO_MEMORY. */
static bool succeeds(enum tally_status status)
{
    CU_ASSERT(status == TALLY_OK || status == TALLY_NO_MEMORY);
    return status == TALLY_OK;
}

static enum tally_status count_job(void *context, const struct tally_store_job *job,
                                   struct tally_error *err)
{
    (void)job;
    (void)err;
    ++*(int *)context;
    return TALLY_OK;
}

static enum tally_status count_round(void *context, const struct tally_round_record *record,
                                     struct tally_error *err)
{
    (void)record;
    (void)err;
    ++*(int *)context;
    return TALLY_OK;
}

static enum tally_status pass_over_replica(void *context, const struct tally_replica *replica,
                                           struct tally_error *err)
{
    (void)context;
    (void)replica;
    (void)err;
    return TALLY_OK;
}

static int n_rounds(struct tally_store *store, int64_t job_key)
{
    int n = 0;
    store->ops->round_list(store, job_key, 0, INT64_MAX, count_round, &n, NULL);
    return n;
}

static bool open_scenario(struct scenario *scenario)
{
    const struct tally_memory_clock clock = {scenario_now_ms, scenario};
    const struct tally_replica a = {.id = "a"};
    const struct tally_replica b = {.id = "b"};
    int64_t number = 0;
    return succeeds(tally_memory_database_new(&clock, &scenario->database, NULL)) &&
           succeeds(tally_memory_database_open(scenario->database, &scenario->a, NULL)) &&
           succeeds(tally_memory_database_open(scenario->database, &scenario->b, NULL)) &&
           succeeds(scenario->a->leases->join(scenario->a, &a, LEASE_MS, &number, NULL)) &&
           succeeds(scenario->b->leases->join(scenario->b, &b, LEASE_MS, &number, NULL));
}

static void close_scenario(const struct scenario *scenario)
{
    if (scenario->a != NULL) {
        scenario->a->ops->close(scenario->a);
    }
    if (scenario->b != NULL) {
        scenario->b->ops->close(scenario->b);
    }
    tally_memory_database_free(scenario->database);
}

static enum tally_status end_transaction(struct tally_store *store, enum tally_status status)
{
    if (status == TALLY_OK) {
        return store->ops->commit(store, NULL);
    }
    CU_ASSERT_EQUAL(store->ops->commit(store, NULL), TALLY_STORE);
    return status;
}

/* Inserts a job with a row in every table, or leaves no trace of it. */
static bool insert_job(struct scenario *scenario, int salt)
{
    struct tally_store *a = scenario->a;
    const struct tally_store_update update = {1, 1, (const uint8_t *)"body", 4};
    const struct tally_round_record record = {.round = 1};
    struct tally_store_job job = {.status = TALLY_JOB_RUNNING};
    char once[16];
    int64_t key = 0;
    snprintf(job.id, sizeof job.id, "job %d", salt);
    snprintf(once, sizeof once, "once %d", salt);
    a->ops->begin(a, NULL);
    enum tally_status status = a->ops->job_insert(a, &job, "{}", 2, once, 1, &key, NULL);
    status = status == TALLY_OK ? a->ops->state_put(a, key, "state", 5, NULL) : status;
    status = status == TALLY_OK ? a->ops->state_append(a, key, 1, "more", 4, NULL) : status;
    status = status == TALLY_OK ? a->ops->update_insert(a, key, &update, NULL) : status;
    status = status == TALLY_OK ? a->ops->round_insert(a, key, &record, NULL) : status;
    status = end_transaction(a, status);
    const enum tally_status found = scenario->b->ops->job_get(scenario->b, job.id, &job, NULL);
    CU_ASSERT_EQUAL(found, status == TALLY_OK ? TALLY_OK : TALLY_NOT_FOUND);
    if (!succeeds(status)) {
        return false;
    }
    CU_ASSERT_EQUAL(n_rounds(scenario->b, key), 1);
    scenario->keys[scenario->n_jobs++] = key;
    return true;
}

/* Adds more rounds than there is room for: either all or none. */
static void add_rounds(struct scenario *scenario, int64_t job_key)
{
    enum { N_ROUNDS = 40 };
    struct tally_store *a = scenario->a;
    enum tally_status status = a->ops->begin(a, NULL);
    for (int64_t round = 2; round < 2 + N_ROUNDS && status == TALLY_OK; round++) {
        const struct tally_round_record record = {.round = round};
        status = a->ops->round_insert(a, job_key, &record, NULL);
    }
    status = end_transaction(a, status);
    if (status == TALLY_FAILED_PRECONDITION) { /* the lease of the new job could not be stored */
        int n_taken = 0;
        CU_ASSERT(!a->leases->holds(a, job_key));
        CU_ASSERT_EQUAL(a->leases->take(a, count_job, &n_taken, NULL), TALLY_OK);
        CU_ASSERT_EQUAL(n_taken, 1);
        status = TALLY_NO_MEMORY;
    }
    CU_ASSERT_EQUAL(n_rounds(scenario->b, job_key), status == TALLY_OK ? 1 + N_ROUNDS : 1);
    (void)succeeds(status);
}

/* take() returns every committed job once; after a failure, the next take() does. */
static void take_all(struct scenario *scenario)
{
    struct tally_store *b = scenario->b;
    const struct tally_replica self = {.id = "b"};
    int n_taken = 0;
    for (int i = 0; i < 5; i++) {
        scenario->now_ms += LEASE_MS / 4;
        CU_ASSERT_EQUAL(b->leases->renew(b, &self, pass_over_replica, NULL, NULL), TALLY_OK);
    }
    if (!succeeds(b->leases->take(b, count_job, &n_taken, NULL))) {
        CU_ASSERT_EQUAL(n_taken, 0);
        CU_ASSERT_EQUAL(b->leases->take(b, count_job, &n_taken, NULL), TALLY_OK);
    }
    CU_ASSERT_EQUAL(n_taken, scenario->n_jobs);
    for (int i = 0; i < scenario->n_jobs; i++) {
        CU_ASSERT(b->leases->holds(b, scenario->keys[i]));
    }
}

/* Runs the scenario with one failing allocation; false if it has fewer allocations. */
static bool play(long failing)
{
    struct scenario scenario = {.now_ms = 0};
    n_allocations = 0;
    failing_allocation = failing;
    if (open_scenario(&scenario)) {
        for (int i = 0; i < N_JOBS; i++) {
            if (insert_job(&scenario, i)) {
                add_rounds(&scenario, scenario.keys[scenario.n_jobs - 1]);
            }
        }
        take_all(&scenario);
    }
    const bool was_reached = n_allocations > failing;
    failing_allocation = NEVER;
    close_scenario(&scenario);
    return was_reached;
}

static void test_memory_exhaustion__each_allocation_may_fail(void)
{
    long failing = 0;
    while (play(failing)) {
        failing++;
    }
    CU_ASSERT(failing > 10L * N_JOBS);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_memory_exhaustion__each_allocation_may_fail)};
TALLY_SUITE(memory_exhaustion, TESTS);
