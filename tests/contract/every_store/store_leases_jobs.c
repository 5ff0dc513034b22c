/* Contract of leases.h: which store object on a shared store leads a job that was inserted, taken,
 * given or left. */
#include "tests/contract/store_tests.h"
#include "tests/contract/support/lease_fixture.h"

void test_store_leases__inserted_job_is_led_by_its_inserter(void)
{
    struct store_fixture a;
    struct store_fixture b;
    open_two(&a, &b);
    struct tally_store_job job = sample_job("x", 1);
    expect_begin(&a);
    int64_t key = expect_job_insert(&a, &job);
    a.ops->rollback(a.store);
    CU_ASSERT(!holds(&a, key));
    key = expect_job(&a, "x", TALLY_JOB_QUEUED);
    CU_ASSERT(holds(&a, key));
    CU_ASSERT(!holds(&b, key));
    TALLY_ASSERT_TEXT(taken(&b), "");
    TALLY_ASSERT_TEXT(taken(&a), "");
    TALLY_ASSERT_STATUS(write_update(&a, key, 1), TALLY_OK, &a.err);
    TALLY_ASSERT_STATUS(write_update(&b, key, 2), TALLY_FAILED_PRECONDITION, &b.err);
    CU_ASSERT_EQUAL(n_updates(&b, key), 1);
    close_two(&a, &b);
}

void test_store_leases__take_gives_what_nobody_leads_oldest_first(void)
{
    struct store_fixture a;
    struct store_fixture b;
    store_fixture_open(&a);
    store_fixture_open_beside(&b, &a);
    int64_t x = expect_job(&a, "x", TALLY_JOB_RUNNING);
    int64_t y = expect_job(&a, "y", TALLY_JOB_COMPLETED);
    int64_t z = expect_job(&a, "z", TALLY_JOB_QUEUED);
    CU_ASSERT(!holds(&a, x));
    TALLY_ASSERT_STATUS(b.store->leases->take(b.store, collect_job, NULL, NULL),
                        TALLY_FAILED_PRECONDITION, NULL);
    expect_join(&a, "a", LEASE_MS);
    expect_join(&b, "b", LEASE_MS);
    TALLY_ASSERT_TEXT(taken(&b), "x,z");
    TALLY_ASSERT_TEXT(taken(&a), "");
    TALLY_ASSERT_TEXT(taken(&b), "");
    CU_ASSERT(holds(&b, x) && holds(&b, z));
    CU_ASSERT(!holds(&b, y) && !holds(&a, x));
    TALLY_ASSERT_STATUS(write_update(&b, z, 1), TALLY_OK, &b.err);
    close_two(&a, &b);
}

void test_store_leases__stopped_walk_is_gone_on_with(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    int64_t first = expect_job(&f, "x", TALLY_JOB_RUNNING);
    int64_t second = expect_job(&f, "y", TALLY_JOB_RUNNING);
    expect_job(&f, "z", TALLY_JOB_RUNNING);
    expect_join(&f, "a", LEASE_MS);
    struct job_walk walk = {.stop_at = 2};
    TALLY_ASSERT_STATUS(f.store->leases->take(f.store, collect_job, &walk, &f.err), TALLY_CANCELLED,
                        &f.err);
    CU_ASSERT(holds(&f, first));
    CU_ASSERT(!holds(&f, second));
    TALLY_ASSERT_TEXT(taken(&f), "y,z");
    CU_ASSERT(holds(&f, second));
    store_fixture_close(&f);
}

void test_store_leases__given_job_waits_for_its_receiver(void)
{
    struct store_fixture a;
    struct store_fixture b;
    struct store_fixture c;
    open_two(&a, &b);
    store_fixture_open_beside(&c, &a);
    expect_join(&c, "c", LEASE_MS);
    const struct tally_store_leases *leases = a.store->leases;
    int64_t x = expect_job(&a, "x", TALLY_JOB_RUNNING);
    int64_t y = expect_job(&a, "y", TALLY_JOB_RUNNING);
    TALLY_ASSERT_STATUS(leases->give(a.store, x, 9, &a.err), TALLY_FAILED_PRECONDITION, &a.err);
    TALLY_ASSERT_STATUS(leases->give(b.store, x, 3, &b.err), TALLY_FAILED_PRECONDITION, &b.err);
    CU_ASSERT(holds(&a, x));
    tally_error_clear(&a.err);
    TALLY_ASSERT_STATUS(leases->give(a.store, x, 2, &a.err), TALLY_OK, &a.err);
    CU_ASSERT(!holds(&a, x) && holds(&a, y));
    TALLY_ASSERT_STATUS(write_update(&a, x, 1), TALLY_FAILED_PRECONDITION, &a.err);
    TALLY_ASSERT_STATUS(write_update(&b, x, 1), TALLY_FAILED_PRECONDITION, &b.err);
    TALLY_ASSERT_TEXT(taken(&c), "");
    TALLY_ASSERT_TEXT(taken(&a), "");
    TALLY_ASSERT_TEXT(taken(&b), "x");
    TALLY_ASSERT_STATUS(write_update(&b, x, 1), TALLY_OK, &b.err);
    TALLY_ASSERT_STATUS(leases->give(a.store, y, 2, &a.err), TALLY_OK, &a.err);
    for (int i = 0; i < 5; i++) { /* the receiver dies before it takes the job */
        store_fixture_pass_time(&a, STEP_MS);
        expect_renew(&a, "a");
        expect_renew(&c, "c");
    }
    TALLY_ASSERT_TEXT(taken(&c), "x,y");
    store_fixture_close(&c);
    close_two(&a, &b);
}

void test_store_leases__leaving_frees_the_jobs_at_once(void)
{
    struct store_fixture a;
    struct store_fixture b;
    struct replica_walk walk;
    open_two(&a, &b);
    int64_t key = expect_job(&a, "x", TALLY_JOB_RUNNING);
    TALLY_ASSERT_STATUS(a.store->leases->leave(a.store, &a.err), TALLY_OK, &a.err);
    CU_ASSERT(!holds(&a, key));
    TALLY_ASSERT_STATUS(renew(&a, "a", &walk), TALLY_FAILED_PRECONDITION, &a.err);
    TALLY_ASSERT_TEXT(taken(&b), "x");
    TALLY_ASSERT_STATUS(write_update(&a, key, 1), TALLY_FAILED_PRECONDITION, &a.err);
    CU_ASSERT_EQUAL(n_updates(&b, key), 0);
    close_two(&a, &b);
}

/* The store was unavailable for an hour, so no replica could renew. */
void test_store_leases__time_without_a_store_does_not_count(void)
{
    enum { MINUTE_MS = 60000, LEASE_MINUTES = 10 };
    struct store_fixture a;
    struct store_fixture b;
    struct replica_walk walk;
    store_fixture_open(&a);
    store_fixture_open_beside(&b, &a);
    expect_join(&a, "a", LEASE_MINUTES * MINUTE_MS);
    expect_join(&b, "b", LEASE_MS);
    int64_t key = expect_job(&a, "x", TALLY_JOB_RUNNING);
    store_fixture_pass_time(&a, 2 * MINUTE_MS);
    expect_renew(&b, "b");
    store_fixture_pass_time(&a, 60 * MINUTE_MS);
    TALLY_ASSERT_TEXT(taken(&b), "");
    TALLY_ASSERT_STATUS(renew(&b, "b", &walk), TALLY_OK, &b.err);
    CU_ASSERT(walk.n == 2 && walk.replicas[0].is_alive);
    TALLY_ASSERT_TEXT(taken(&b), "");
    CU_ASSERT(holds(&a, key));
    TALLY_ASSERT_STATUS(write_update(&a, key, 1), TALLY_OK, &a.err);
    /* It had 8 minutes left when the store became unavailable, and still has them, but no more. */
    for (int minute = 0; minute < 9; minute += 3) {
        CU_ASSERT(walk.n == 2 && walk.replicas[0].is_alive);
        TALLY_ASSERT_TEXT(taken(&b), "");
        store_fixture_pass_time(&a, 3 * MINUTE_MS);
        TALLY_ASSERT_STATUS(renew(&b, "b", &walk), TALLY_OK, &b.err);
    }
    CU_ASSERT(walk.n == 2 && !walk.replicas[0].is_alive);
    store_fixture_pass_time(&a, 30 * MINUTE_MS); /* it was dead before the outage */
    TALLY_ASSERT_STATUS(renew(&b, "b", &walk), TALLY_OK, &b.err);
    CU_ASSERT(walk.n == 2 && !walk.replicas[0].is_alive);
    TALLY_ASSERT_TEXT(taken(&b), "x");
    close_two(&a, &b);
}

void test_store_leases__ended_job_may_still_be_written(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    expect_join(&f, "a", LEASE_MS);
    struct tally_store_job job = sample_job("x", 1);
    job.key = expect_job(&f, "x", TALLY_JOB_RUNNING);
    for (int i = 0; i < 3; i++) {
        job.status = TALLY_JOB_COMPLETED;
        job.wire_in_bytes = (uint64_t)i;
        expect_begin(&f);
        TALLY_ASSERT_STATUS(f.ops->job_update(f.store, &job, &f.err), TALLY_OK, &f.err);
        expect_commit(&f);
        expect_renew(&f, "a");
    }
    TALLY_ASSERT_TEXT(taken(&f), "");
    store_fixture_close(&f);
}

void test_store_leases__who_is_no_replica_writes_what_nobody_leads(void)
{
    struct store_fixture a;
    struct store_fixture other;
    store_fixture_open(&a);
    store_fixture_open_beside(&other, &a);
    int64_t key = expect_job(&other, "x", TALLY_JOB_RUNNING);
    TALLY_ASSERT_STATUS(write_update(&other, key, 1), TALLY_OK, &other.err);
    expect_join(&a, "a", LEASE_MS);
    TALLY_ASSERT_STATUS(write_update(&a, key, 2), TALLY_FAILED_PRECONDITION, &a.err);
    TALLY_ASSERT_TEXT(taken(&a), "x");
    TALLY_ASSERT_STATUS(write_update(&other, key, 2), TALLY_FAILED_PRECONDITION, &other.err);
    TALLY_ASSERT_STATUS(write_update(&a, key, 2), TALLY_OK, &a.err);
    CU_ASSERT_EQUAL(n_updates(&other, key), 2);
    close_two(&a, &other);
}

void test_store_leases__leader_of_tells_who_leads(void)
{
    struct store_fixture a;
    struct store_fixture b;
    open_two(&a, &b);
    struct tally_job_leader leader;
    TALLY_ASSERT_STATUS(b.store->leases->leader_of(b.store, "x", &leader, &b.err), TALLY_NOT_FOUND,
                        &b.err);
    int64_t key = expect_job(&a, "x", TALLY_JOB_RUNNING);
    leader = leader_of(&b, "x");
    CU_ASSERT_EQUAL(leader.key, key);
    CU_ASSERT(leader.is_live && leader.has_leader && leader.replica.is_alive);
    CU_ASSERT_EQUAL(leader.replica.number, 1);
    TALLY_ASSERT_TEXT(leader.replica.id, "a");
    TALLY_ASSERT_TEXT(leader.replica.address, "http://a:8080");
    outlive(&a, &b, NULL);
    leader = leader_of(&b, "x");
    CU_ASSERT(leader.has_leader && !leader.replica.is_alive);
    a.store->leases->leave(a.store, NULL);
    leader = leader_of(&b, "x");
    CU_ASSERT(leader.is_live && !leader.has_leader);
    expect_job(&b, "y", TALLY_JOB_CANCELLED);
    leader = leader_of(&a, "y");
    CU_ASSERT(!leader.is_live && !leader.has_leader);
    close_two(&a, &b);
}

/* The process dies without leave(). */
void test_store_leases__closing_leaves_the_leases_to_expire(void)
{
    struct store_fixture a;
    struct store_fixture b;
    open_two(&a, &b);
    int64_t key = expect_job(&b, "x", TALLY_JOB_RUNNING);
    store_fixture_reopen(&b);
    TALLY_ASSERT_TEXT(taken(&a), "");
    TALLY_ASSERT_STATUS(write_update(&b, key, 1), TALLY_FAILED_PRECONDITION, &b.err);
    CU_ASSERT_EQUAL(expect_join(&b, "b", LEASE_MS), 2);
    TALLY_ASSERT_TEXT(taken(&b), "x");
    TALLY_ASSERT_STATUS(write_update(&b, key, 1), TALLY_OK, &b.err);
    store_fixture_close(&b);
    for (int i = 0; i < 5; i++) {
        TALLY_ASSERT_TEXT(taken(&a), i < 4 ? "" : "x");
        store_fixture_pass_time(&a, STEP_MS + STEP_MS / 10);
        expect_renew(&a, "a");
    }
    store_fixture_close(&a);
}
