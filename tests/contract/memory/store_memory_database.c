/* Concurrent transactions of store objects on one in-memory database, in one thread. A conflict
 * occurs where a server would make a transaction wait. */
#include <string.h>

#include "tests/contract/store_tests.h"
#include "tests/contract/support/lease_fixture.h"
#include "tests/simulation/storage/memory.h"

static enum tally_status insert(struct store_fixture *f, const char *id,
                                const char *idempotency_key, int64_t *ret_key)
{
    struct tally_store_job job = sample_job(id, 1);
    tally_error_clear(&f->err);
    return f->ops->job_insert(f->store, &job, "{}", 2, idempotency_key, 0, ret_key, &f->err);
}

static const char *all_ids(struct store_fixture *f)
{
    static struct job_walk walk;
    walk = (struct job_walk){.n = 0};
    TALLY_ASSERT_STATUS(f->ops->job_list(f->store, -1, INT64_MAX, 100, collect_job, &walk, &f->err),
                        TALLY_OK, &f->err);
    return collected_ids(&walk);
}

void test_store_memory_database__keys_of_open_transactions_are_unique(void)
{
    struct store_fixture a;
    struct store_fixture b;
    int64_t keys[4] = {0};
    open_two(&a, &b);
    expect_begin(&a);
    expect_begin(&b);
    insert(&a, "w", NULL, &keys[0]);
    insert(&b, "x", NULL, &keys[1]);
    insert(&a, "y", NULL, &keys[2]);
    insert(&b, "z", NULL, &keys[3]);
    for (int i = 0; i < 4; i++) {
        CU_ASSERT_EQUAL(keys[i], i + 1);
    }
    TALLY_ASSERT_TEXT(all_ids(&a), "y,w");
    TALLY_ASSERT_TEXT(all_ids(&b), "z,x");
    expect_commit(&b);
    TALLY_ASSERT_TEXT(all_ids(&a), "z,y,x,w");
    expect_commit(&a);
    TALLY_ASSERT_TEXT(all_ids(&b), "z,y,x,w");
    CU_ASSERT(holds(&a, 1) && holds(&a, 3) && holds(&b, 2) && holds(&b, 4));
    CU_ASSERT(!holds(&a, 2) && !holds(&b, 1));
    close_two(&a, &b);
}

/* Two transactions insert the same id, or the same idempotency key; the second commit fails as a
 * whole. */
void test_store_memory_database__second_of_two_insertions_fails_in_commit(void)
{
    struct store_fixture a;
    struct store_fixture b;
    open_two(&a, &b);
    for (int kind = 0; kind < 2; kind++) {
        struct tally_store_job job;
        int64_t key = 0;
        expect_begin(&a);
        expect_begin(&b);
        CU_ASSERT_EQUAL(insert(&a, kind == 0 ? "same" : "first", "once", &key), TALLY_OK);
        CU_ASSERT_EQUAL(insert(&b, "beside", NULL, &key), TALLY_OK);
        CU_ASSERT_EQUAL(
            insert(&b, kind == 0 ? "same" : "second", kind == 0 ? "other" : "once", &key),
            TALLY_OK);
        expect_commit(&a);
        CU_ASSERT_EQUAL(insert(&b, kind == 0 ? "same" : "third", "once", &key),
                        TALLY_ALREADY_EXISTS);
        TALLY_ASSERT_STATUS(b.ops->commit(b.store, NULL), TALLY_ALREADY_EXISTS, NULL);
        CU_ASSERT_EQUAL(b.ops->job_get(b.store, "beside", &job, NULL), TALLY_NOT_FOUND);
        CU_ASSERT(!holds(&b, key));
        expect_job(&b, kind == 0 ? "after" : "at last", TALLY_JOB_QUEUED);
        close_two(&a, &b);
        open_two(&a, &b);
    }
    close_two(&a, &b);
}

/* Neither store object is a replica, so no fence separates them. */
void test_store_memory_database__second_of_two_writers_fails_in_commit(void)
{
    struct store_fixture a;
    struct store_fixture b;
    store_fixture_open(&a);
    store_fixture_open_beside(&b, &a);
    int64_t x = expect_job(&a, "x", TALLY_JOB_RUNNING);
    int64_t y = expect_job(&a, "y", TALLY_JOB_RUNNING);
    expect_begin(&a);
    expect_begin(&b);
    expect_update(&a, x, 1, 1, "a");
    expect_update(&b, y, 1, 1, "b");
    expect_update(&b, x, 1, 2, "b");
    expect_commit(&a);
    TALLY_ASSERT_STATUS(b.ops->commit(b.store, NULL), TALLY_STORE, NULL);
    CU_ASSERT_EQUAL(n_updates(&b, x), 1);
    CU_ASSERT_EQUAL(n_updates(&b, y), 0);
    TALLY_ASSERT_STATUS(write_update(&b, x, 2), TALLY_OK, &b.err);
    close_two(&a, &b);
}

/* The transaction of the other store object is not affected. */
void test_store_memory_database__one_connection_can_be_lost(void)
{
    struct store_fixture a;
    struct store_fixture b;
    open_two(&a, &b);
    int64_t x = expect_job(&a, "x", TALLY_JOB_RUNNING);
    int64_t y = expect_job(&b, "y", TALLY_JOB_RUNNING);
    expect_begin(&a);
    expect_begin(&b);
    expect_update(&a, x, 1, 1, "a");
    expect_update(&b, y, 1, 1, "b");
    tally_memory_database_disconnect(a.store);
    TALLY_ASSERT_STATUS(a.ops->commit(a.store, NULL), TALLY_STORE, NULL);
    expect_commit(&b);
    CU_ASSERT_EQUAL(n_updates(&b, x), 0);
    CU_ASSERT_EQUAL(n_updates(&b, y), 1);
    TALLY_ASSERT_STATUS(write_update(&a, x, 1), TALLY_OK, &a.err);
    CU_ASSERT_EQUAL(a.ops->counters(a.store).reconnects, 1);
    CU_ASSERT_EQUAL(b.ops->counters(b.store).reconnects, 0);
    close_two(&a, &b);
}

/* A database without its own clock uses the machine's, by which no hour has passed. */
void test_store_memory_database__clock_of_the_machine_is_the_default(void)
{
    struct tally_memory_database *database = NULL;
    struct store_fixture f = {.err = TALLY_ERROR_INIT};
    struct replica_walk walk;
    CU_ASSERT_EQUAL_FATAL(tally_memory_database_new(NULL, &database, NULL), TALLY_OK);
    CU_ASSERT_EQUAL_FATAL(tally_memory_database_open(database, &f.store, NULL), TALLY_OK);
    f.ops = f.store->ops;
    expect_join(&f, "a", LEASE_MS);
    TALLY_ASSERT_STATUS(renew(&f, "a", &walk), TALLY_OK, &f.err);
    CU_ASSERT(walk.n == 1 && walk.replicas[0].is_alive);
    f.ops->close(f.store);
    tally_memory_database_free(database);
    tally_memory_database_free(NULL);
}
