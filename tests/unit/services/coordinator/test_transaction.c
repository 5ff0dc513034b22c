#include "services/coordinator/loop_transaction.h"

#include "tests/harness.h"

/* A store whose calls fail when the test says so. */
struct failing_store {
    struct tally_store base;
    struct tally_store_ops ops;
    enum tally_status on_begin, on_commit;
    int n_begun, n_committed, n_rolled_back;
};

static struct failing_store store;

static enum tally_status answer(enum tally_status status, struct tally_error *err)
{
    return status == TALLY_OK ? status : tally_fail(err, status, NULL, "told to fail");
}

static enum tally_status begin(struct tally_store *base, struct tally_error *err)
{
    (void)base;
    store.n_begun++;
    return answer(store.on_begin, err);
}

static enum tally_status commit(struct tally_store *base, struct tally_error *err)
{
    (void)base;
    store.n_committed++;
    return answer(store.on_commit, err);
}

static void rollback(struct tally_store *base)
{
    (void)base;
    store.n_rolled_back++;
}

static int n_recovered;

static void on_recovered(void *context)
{
    (void)context;
    n_recovered++;
}

static struct transaction *open_transaction(void)
{
    store = (struct failing_store){.ops = {.begin = begin, .commit = commit, .rollback = rollback}};
    store.base.ops = &store.ops;
    struct transaction *transaction = transaction_new(&store.base);
    transaction->on_recovered = on_recovered;
    n_recovered = 0;
    return transaction;
}

static void test_coordinator_transaction__updates_alone_are_deferrable(void)
{
    struct transaction *transaction = open_transaction();
    CU_ASSERT_EQUAL(transaction_begin_update(transaction, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(transaction->state, TRANSACTION_DEFERRABLE);
    CU_ASSERT_EQUAL(transaction_begin_update(transaction, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(transaction->state, TRANSACTION_DEFERRABLE);
    CU_ASSERT_EQUAL(transaction_begin_write(transaction, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(transaction->state, TRANSACTION_REQUIRED);
    CU_ASSERT_EQUAL(transaction_begin_update(transaction, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(transaction->state, TRANSACTION_REQUIRED); /* unchanged */
    CU_ASSERT_EQUAL(store.n_begun, 1);
    transaction_free(transaction);
}

static void test_coordinator_transaction__commit_counts_what_is_stored(void)
{
    struct transaction *transaction = open_transaction();
    const uint64_t number = transaction->number;
    transaction_begin_write(transaction, NULL);
    transaction->uncommitted.closed = 2;
    CU_ASSERT_TRUE(transaction_commit(transaction));
    CU_ASSERT_EQUAL(transaction->state, TRANSACTION_NONE);
    CU_ASSERT_EQUAL(transaction->number, number + 1);
    CU_ASSERT_EQUAL(transaction->counts.rounds.closed, 2);
    transaction_begin_write(transaction, NULL);
    transaction->uncommitted.closed = 3;
    store.on_commit = TALLY_STORE;
    CU_ASSERT_FALSE(transaction_commit(transaction));
    CU_ASSERT_EQUAL(transaction->counts.rounds.closed, 2);
    CU_ASSERT_EQUAL(transaction->uncommitted.closed, 0);
    CU_ASSERT_EQUAL(transaction->counts.store_errors[STORE_COMMIT], 1);
    CU_ASSERT_EQUAL(transaction->error.status, TALLY_STORE);
    transaction_free(transaction);
}

/* After a failed begin, the step does not try again, because that would wait for the lock again. */
static void test_coordinator_transaction__begin_is_tried_once_in_a_step(void)
{
    struct transaction *transaction = open_transaction();
    struct tally_error err = TALLY_ERROR_INIT;
    store.on_begin = TALLY_STORE;
    CU_ASSERT_EQUAL(transaction_begin_write(transaction, NULL), TALLY_STORE);
    CU_ASSERT_EQUAL(transaction_begin_update(transaction, &err), TALLY_STORE);
    CU_ASSERT_EQUAL(store.n_begun, 1);
    CU_ASSERT_FALSE(transaction_is_open(transaction));
    transaction_end_step(transaction);
    store.on_begin = TALLY_OK;
    CU_ASSERT_EQUAL(transaction_begin_update(transaction, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(store.n_begun, 2);
    transaction_free(transaction);
}

static void test_coordinator_transaction__a_failed_write_is_rolled_back(void)
{
    struct transaction *transaction = open_transaction();
    struct tally_error err = TALLY_ERROR_INIT;
    transaction_begin_update(transaction, NULL);
    CU_ASSERT_EQUAL(transaction_check(transaction, TALLY_OK, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(transaction->state, TRANSACTION_DEFERRABLE);
    CU_ASSERT_EQUAL(transaction_check(transaction, TALLY_STORE, NULL), TALLY_STORE);
    CU_ASSERT_EQUAL(transaction->state, TRANSACTION_FAILED);
    CU_ASSERT_EQUAL(transaction_begin_update(transaction, &err), TALLY_STORE);
    CU_ASSERT_FALSE(transaction_commit(transaction));
    CU_ASSERT_EQUAL(store.n_committed, 0);
    CU_ASSERT_EQUAL(store.n_rolled_back, 1);
    CU_ASSERT_EQUAL(transaction->counts.store_errors[STORE_WRITE], 1);
    transaction_free(transaction);
}

/* If another replica leads the job, the store is not at fault, and the caller must try again. */
static void test_coordinator_transaction__a_fenced_write_does_not_blame_the_store(void)
{
    struct transaction *transaction = open_transaction();
    struct tally_error err = TALLY_ERROR_INIT;
    transaction_begin_write(transaction, NULL);
    transaction_check(transaction, TALLY_FAILED_PRECONDITION, NULL);
    CU_ASSERT_EQUAL(transaction->state, TRANSACTION_FENCED);
    CU_ASSERT_EQUAL(transaction->error.status, TALLY_OK);
    CU_ASSERT_FALSE(transaction_commit(transaction));
    CU_ASSERT_EQUAL(transaction_fail(transaction, &err), TALLY_UNAVAILABLE);
    CU_ASSERT_EQUAL(transaction->counts.store_errors[STORE_WRITE], 0);
    transaction_end_step(transaction);
    CU_ASSERT_FALSE(transaction->was_fenced);
    transaction_free(transaction);
}

static void test_coordinator_transaction__says_once_that_the_store_is_back(void)
{
    struct transaction *transaction = open_transaction();
    struct tally_error ok = TALLY_ERROR_INIT, failed = TALLY_ERROR_INIT;
    tally_fail(&failed, TALLY_STORE, NULL, "full");
    transaction_note_store(transaction, &ok);
    CU_ASSERT_EQUAL(n_recovered, 0);
    transaction_note_store(transaction, &failed);
    const int64_t since_ms = transaction->failed_ms;
    CU_ASSERT_TRUE(since_ms > 0);
    transaction_note_store(transaction, &failed);
    CU_ASSERT_EQUAL(transaction->failed_ms, since_ms);
    transaction_note_store(transaction, &ok);
    transaction_note_store(transaction, &ok);
    CU_ASSERT_EQUAL(n_recovered, 1);
    transaction_free(transaction);
}

static void test_coordinator_transaction__remembers_the_first_damage(void)
{
    struct transaction *transaction = open_transaction();
    struct tally_error full = TALLY_ERROR_INIT, lost = TALLY_ERROR_INIT, later = TALLY_ERROR_INIT;
    tally_fail(&full, TALLY_STORE, NULL, "full");
    tally_fail(&lost, TALLY_DATA_LOSS, NULL, "row 7");
    tally_fail(&later, TALLY_DATA_LOSS, NULL, "row 8");
    transaction_note_damage(transaction, &full);
    CU_ASSERT_EQUAL(transaction->damage.status, TALLY_OK);
    transaction_note_damage(transaction, &lost);
    transaction_note_damage(transaction, &later);
    TALLY_ASSERT_TEXT(transaction->damage.message, "row 7");
    transaction_free(transaction);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_coordinator_transaction__updates_alone_are_deferrable),
    TALLY_TEST(test_coordinator_transaction__commit_counts_what_is_stored),
    TALLY_TEST(test_coordinator_transaction__begin_is_tried_once_in_a_step),
    TALLY_TEST(test_coordinator_transaction__a_failed_write_is_rolled_back),
    TALLY_TEST(test_coordinator_transaction__a_fenced_write_does_not_blame_the_store),
    TALLY_TEST(test_coordinator_transaction__says_once_that_the_store_is_back),
    TALLY_TEST(test_coordinator_transaction__remembers_the_first_damage),
};
TALLY_SUITE(coordinator_transaction, TESTS);
