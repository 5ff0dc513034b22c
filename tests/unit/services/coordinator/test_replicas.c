#include "services/coordinator/replicas.h"

#include <unistd.h>

#include "services/base/time.h"
#include "services/coordinator/coordinator.h"
#include "tests/harness.h"
#include "tests/simulation/storage/memory.h"
#include "tests/unit/services/coordinator/job_in_store.h"

enum {
    LEASE_MS = 60,        /* of "b", which sends six heartbeats per lease */
    LONG_MS = 1000 * 1000 /* long enough to end all leases by the database's clock */
};

/* Replica "a" consists only of its store and leads a job; replica "b" is a coordinator. The test
 * sets the database's clock, so a lease of "b" expires there only when a test says so. */
struct pair {
    struct tally_memory_database *database;
    int64_t now_ms;
    struct job_in_store a;
    struct tally_store *store; /* of "b" */
    struct tally_store_ops ops;
    struct tally_store_leases leases;
    struct tally_coordinator *b;
};

static bool is_away; /* the store of "b" fails to read documents */
static int n_refused;
static const struct tally_store_ops *plain_ops;
static const struct tally_store_leases *plain_leases;
static bool is_cut_off; /* the heartbeats of "b" fail */

static int64_t database_ms(void *context)
{
    return ((struct pair *)context)->now_ms;
}

static enum tally_status maybe_document_get(struct tally_store *store, int64_t job_key,
                                            struct tally_buffer *out, struct tally_error *err)
{
    n_refused += is_away;
    return is_away ? tally_fail(err, TALLY_STORE, NULL, "away")
                   : plain_ops->document_get(store, job_key, out, err);
}

static enum tally_status maybe_renew(struct tally_store *store, const struct tally_replica *self,
                                     tally_replica_fn *each, void *context, struct tally_error *err)
{
    return is_cut_off ? tally_fail(err, TALLY_STORE, NULL, "cut off")
                      : plain_leases->renew(store, self, each, context, err);
}

static enum tally_status pass_over(void *context, const struct tally_replica *replica,
                                   struct tally_error *err)
{
    (void)context, (void)replica, (void)err;
    return TALLY_OK;
}

static enum tally_status count_job(void *n, const struct tally_store_job *job,
                                   struct tally_error *err)
{
    (void)job, (void)err;
    ++*(int *)n;
    return TALLY_OK;
}

static struct tally_store *join_as_a(struct pair *pair)
{
    const struct tally_replica self = {.id = "a", .address = "http://127.0.0.1:1"};
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_store *store = NULL;
    int64_t number;
    TALLY_ASSERT_STATUS(tally_memory_database_open(pair->database, &store, &err), TALLY_OK, &err);
    TALLY_ASSERT_STATUS(store->leases->join(store, &self, LEASE_MS, &number, &err), TALLY_OK, &err);
    TALLY_ASSERT_STATUS(store->leases->renew(store, &self, pass_over, NULL, &err), TALLY_OK, &err);
    return store;
}

/* "a" gives up all jobs that it leads. */
static void leave(struct pair *pair)
{
    struct tally_store *store = pair->a.store;
    TALLY_ASSERT_STATUS(store->leases->leave(store, &pair->a.err), TALLY_OK, &pair->a.err);
}

static void play_round(struct pair *pair)
{
    (void)job_in_store_write_round(&pair->a);
    TALLY_ASSERT_STATUS(pair->a.store->ops->commit(pair->a.store, &pair->a.err), TALLY_OK,
                        &pair->a.err);
}

static void start_b(struct pair *pair)
{
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_memory_database_open(pair->database, &pair->store, &err), TALLY_OK,
                        &err);
    plain_ops = pair->store->ops;
    pair->ops = *plain_ops;
    pair->ops.document_get = maybe_document_get;
    pair->store->ops = &pair->ops;
    plain_leases = pair->store->leases;
    pair->leases = *plain_leases;
    pair->leases.renew = maybe_renew;
    pair->store->leases = &pair->leases;
    is_cut_off = false;
    const struct tally_coordinator_config config = {
        .store = pair->store,
        .session_timeout_ms = 10000,
        .max_jobs = 10,
        .max_streams = 10,
        .max_clients = 10,
        .max_dim = 1000,
        .max_job_bytes = INT64_C(1) << 30,
        .max_sessions = 10,
        .max_sessions_per_token = 10,
        .heartbeat_ms = 15000,
        .metrics_keep_ms = 60000,
        .replica_id = "b",
        .replica_address = "http://127.0.0.1:2",
        .lease_ms = LEASE_MS,
        .max_held_bytes = 1 << 20,
    };
    TALLY_ASSERT_STATUS(tally_coordinator_new(&config, &pair->b, &err), TALLY_OK, &err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(pair->b);
    is_away = false;
    n_refused = 0;
}

/* Runs "b" until it holds the job's lease and has tried at least n_tries times to load the job. */
static bool turn_until_led(struct pair *pair, int n_tries)
{
    const int64_t key = pair->a.job->row.key;
    for (int i = 0; i < 10000 && !pair->store->leases->holds(pair->store, key); i++) {
        tally_coordinator_turn(pair->b);
        usleep(1000);
    }
    for (int i = 0; i < 10000 && n_refused < n_tries; i++) {
        tally_coordinator_turn(pair->b);
        usleep(1000);
    }
    return pair->store->leases->holds(pair->store, key) && n_refused >= n_tries;
}

static void pair_init(struct pair *pair)
{
    struct tally_error err = TALLY_ERROR_INIT;
    *pair = (struct pair){.now_ms = LONG_MS};
    const struct tally_memory_clock clock = {.now_ms = database_ms, .context = pair};
    TALLY_ASSERT_STATUS(tally_memory_database_new(&clock, &pair->database, &err), TALLY_OK, &err);
    job_in_store_init(&pair->a, join_as_a(pair), NULL);
    play_round(pair);
    start_b(pair);
}

static void pair_fini(struct pair *pair)
{
    tally_coordinator_free(pair->b);
    job_in_store_fini(&pair->a);
    tally_memory_database_free(pair->database);
}

/* Returns the job's stored row after "b" has loaded the job. */
static struct tally_store_job load_by_b(struct pair *pair)
{
    struct tally_store_job row = {.progress.round = -1};
    is_away = false;
    CU_ASSERT_TRUE(turn_until_led(pair, n_refused));
    for (int i = 0; i < 20; i++) { /* two leases: "b" loads the job it took */
        tally_coordinator_turn(pair->b);
        usleep(LEASE_MS * 1000 / 10);
    }
    TALLY_ASSERT_STATUS(pair->store->ops->job_get(pair->store, "j", &row, &pair->a.err), TALLY_OK,
                        &pair->a.err);
    return row;
}

/* "b" takes the job, cannot load it, and its lease expires. "a" then leads the job for some rounds
 * and gives it up again, so the row that "b" read first is stale. */
static void test_coordinator_replicas__a_job_is_loaded_by_its_present_row(void)
{
    struct pair pair;
    int n_taken = 0;
    pair_init(&pair);
    is_away = true;
    leave(&pair);
    CU_ASSERT_TRUE(turn_until_led(&pair, 1));

    pair.now_ms += LONG_MS;
    struct tally_store *again = join_as_a(&pair);
    pair.now_ms += LEASE_MS / 3; /* only the test advances the database's clock */
    struct tally_error err = TALLY_ERROR_INIT;
    for (int i = 0; i < 10 && n_taken == 0; i++) {
        const struct tally_replica self = {.id = "a", .address = "http://127.0.0.1:1"};
        TALLY_ASSERT_STATUS(again->leases->renew(again, &self, pass_over, NULL, &err), TALLY_OK,
                            &err);
        TALLY_ASSERT_STATUS(again->leases->take(again, count_job, &n_taken, &err), TALLY_OK, &err);
        pair.now_ms += LEASE_MS / 3;
    }
    CU_ASSERT_EQUAL_FATAL(n_taken, 1);
    pair.a.store->ops->close(pair.a.store);
    pair.a.store = again;
    play_round(&pair);
    play_round(&pair);
    leave(&pair);

    const struct tally_store_job row = load_by_b(&pair);
    CU_ASSERT_EQUAL(row.status, TALLY_JOB_RUNNING);
    CU_ASSERT_EQUAL(row.progress.round, 3);
    TALLY_ASSERT_TEXT(row.reason, "");
    pair_fini(&pair);
}

/* Runs "b" until it serves its jobs, or stops serving them. */
static bool turn_until(struct pair *pair, bool serves)
{
    for (int i = 0; i < 10000; i++) {
        tally_coordinator_turn(pair->b);
        if (may_serve(&pair->b->view, tally_monotonic_ms()) == serves) {
            return true;
        }
        usleep(1000);
    }
    return false;
}

/* When the lease has ended, another replica may lead our jobs. */
static void test_coordinator_replicas__steps_down_without_heartbeats(void)
{
    struct pair pair;
    pair_init(&pair);
    CU_ASSERT_TRUE_FATAL(turn_until(&pair, true));
    const struct replica_view view = pair.b->view;
    CU_ASSERT_TRUE(may_serve(&view, view.serves_until_ms - 1));
    CU_ASSERT_FALSE(may_serve(&view, view.serves_until_ms));
    is_cut_off = true;
    CU_ASSERT_TRUE(turn_until(&pair, false));
    tally_coordinator_turn(pair.b);                           /* "b" notices */
    CU_ASSERT_TRUE(replicas_counts(pair.b)->step_downs >= 1); /* more on a slow machine */
    is_cut_off = false;
    CU_ASSERT_TRUE(turn_until(&pair, true));
    pair_fini(&pair);
}

/* A process whose store is not shared always serves its jobs. */
static void test_coordinator_replicas__a_store_of_ones_own_has_no_lease(void)
{
    const struct replica_view view = {.is_shared = false};
    CU_ASSERT_TRUE(may_serve(&view, 0));
    CU_ASSERT_TRUE(may_serve(&view, INT64_MAX));
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_coordinator_replicas__steps_down_without_heartbeats),
    TALLY_TEST(test_coordinator_replicas__a_store_of_ones_own_has_no_lease),
    TALLY_TEST(test_coordinator_replicas__a_job_is_loaded_by_its_present_row),
};

TALLY_SUITE(coordinator_replicas, TESTS);
