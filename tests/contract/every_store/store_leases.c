/* Contract of leases.h: a former leader writes nothing; the effects of a lost connection. Tests
 * that need a server are in store_postgres_leases.c. */
#include <unistd.h>

#include "tests/contract/store_tests.h"
#include "tests/contract/support/lease_fixture.h"

void test_store_leases__replicas_are_numbered_and_listed(void)
{
    struct store_fixture a;
    struct store_fixture b;
    struct replica_walk walk;
    open_two(&a, &b);
    TALLY_ASSERT_STATUS(renew(&b, "b", &walk), TALLY_OK, &b.err);
    CU_ASSERT_EQUAL(walk.n, 2);
    for (int i = 0; i < 2; i++) {
        struct tally_replica expected = replica_named(i == 0 ? "a" : "b");
        const struct tally_replica *actual = &walk.replicas[i];
        TALLY_ASSERT_TEXT(actual->id, expected.id);
        TALLY_ASSERT_TEXT(actual->address, expected.address);
        CU_ASSERT_EQUAL(actual->number, i + 1);
        CU_ASSERT_EQUAL(actual->jobs, expected.jobs);
        CU_ASSERT_EQUAL(actual->slots, expected.slots);
        CU_ASSERT_EQUAL(actual->free_slots, expected.free_slots);
        CU_ASSERT_EQUAL(actual->wants_key, expected.wants_key);
        CU_ASSERT_EQUAL(actual->wants_slots, expected.wants_slots);
        CU_ASSERT(actual->is_alive);
    }
    store_fixture_reopen(&a);
    CU_ASSERT_EQUAL(expect_join(&a, "a", LEASE_MS), 1);
    TALLY_ASSERT_STATUS(b.store->leases->leave(b.store, &b.err), TALLY_OK, &b.err);
    TALLY_ASSERT_STATUS(renew(&a, "a", &walk), TALLY_OK, &a.err);
    CU_ASSERT_EQUAL(walk.n, 1);
    CU_ASSERT_EQUAL(expect_join(&b, "c", LEASE_MS), 3);
    store_fixture_reopen(&b);
    CU_ASSERT_EQUAL(expect_join(&b, "b", LEASE_MS), 2);
    close_two(&a, &b);
}

void test_store_leases__silent_replica_dies_and_loses_its_jobs(void)
{
    struct store_fixture a;
    struct store_fixture b;
    struct replica_walk walk;
    open_two(&a, &b);
    int64_t x = expect_job(&a, "x", TALLY_JOB_RUNNING);
    int64_t y = expect_job(&a, "y", TALLY_JOB_QUEUED);
    for (int i = 0; i < 3; i++) {
        store_fixture_pass_time(&a, STEP_MS);
        TALLY_ASSERT_TEXT(taken(&b), "");
        TALLY_ASSERT_STATUS(renew(&b, "b", &walk), TALLY_OK, &b.err);
        CU_ASSERT(walk.n == 2 && walk.replicas[0].is_alive);
        TALLY_ASSERT_TEXT(taken(&b), "");
    }
    store_fixture_pass_time(&a, STEP_MS + STEP_MS / 2);
    TALLY_ASSERT_STATUS(renew(&b, "b", &walk), TALLY_OK, &b.err);
    CU_ASSERT(walk.n == 2 && !walk.replicas[0].is_alive && walk.replicas[1].is_alive);
    CU_ASSERT(holds(&a, x)); /* it does not know yet, and its jobs were not taken */
    TALLY_ASSERT_TEXT(taken(&b), "x,y");
    CU_ASSERT(holds(&b, x) && holds(&b, y));
    close_two(&a, &b);
}

/* A replica that was away, and is back before its jobs were taken, still leads them. */
void test_store_leases__late_renewal_keeps_what_nobody_took(void)
{
    struct store_fixture a;
    struct store_fixture b;
    open_two(&a, &b);
    int64_t key = expect_job(&a, "x", TALLY_JOB_RUNNING);
    outlive(&a, &b, NULL);
    TALLY_ASSERT_STATUS(write_update(&a, key, 1), TALLY_OK, &a.err);
    expect_renew(&a, "a");
    CU_ASSERT(holds(&a, key));
    TALLY_ASSERT_TEXT(taken(&b), "");
    TALLY_ASSERT_STATUS(write_update(&a, key, 2), TALLY_OK, &a.err);
    close_two(&a, &b);
}

void test_store_leases__late_renewal_brings_nothing_back(void)
{
    struct store_fixture a;
    struct store_fixture b;
    open_two(&a, &b);
    int64_t key = expect_job(&a, "x", TALLY_JOB_RUNNING);
    outlive(&a, &b, NULL);
    TALLY_ASSERT_TEXT(taken(&b), "x");
    expect_renew(&a, "a");
    CU_ASSERT(!holds(&a, key) && holds(&b, key));
    CU_ASSERT_EQUAL(leader_of(&a, "x").replica.number, 2);
    TALLY_ASSERT_TEXT(taken(&a), "");
    TALLY_ASSERT_STATUS(write_update(&a, key, 1), TALLY_FAILED_PRECONDITION, &a.err);
    TALLY_ASSERT_STATUS(write_update(&b, key, 1), TALLY_OK, &b.err);
    close_two(&a, &b);
}

void test_store_leases__former_leader_can_write_nothing(void)
{
    struct store_fixture a;
    struct store_fixture b;
    open_two(&a, &b);
    struct tally_store_job job = sample_job("x", 1);
    struct tally_round_record record = sample_record(1, 1);
    struct tally_round_record old = sample_record(2, 1), changed = sample_record(2, 2);
    job.key = expect_job(&a, "x", TALLY_JOB_RUNNING);
    expect_begin(&a);
    a.ops->round_insert(a.store, job.key, &old, NULL);
    a.ops->state_put(a.store, job.key, "first", 5, NULL);
    a.ops->state_append(a.store, job.key, 1, " change", 7, NULL);
    expect_commit(&a);
    outlive(&a, &b, NULL);
    TALLY_ASSERT_TEXT(taken(&b), "x");
    struct tally_buffer before = {0};
    struct tally_buffer after = {0};
    describe_store(&b, &before);
    job.progress.round = 77;
    for (int kind = 0; kind < 7; kind++) {
        struct tally_store_update update = {1, 1, (const uint8_t *)"body", 4};
        expect_begin(&a);
        enum tally_status status =
            kind == 0   ? a.ops->update_insert(a.store, job.key, &update, &a.err)
            : kind == 1 ? a.ops->state_put(a.store, job.key, "state", 5, &a.err)
            : kind == 2 ? a.ops->round_insert(a.store, job.key, &record, &a.err)
            : kind == 3 ? a.ops->job_update(a.store, &job, &a.err)
            : kind == 4 ? a.ops->state_append(a.store, job.key, 2, " stray", 6, &a.err)
            : kind == 5 ? a.ops->round_update(a.store, job.key, &changed, &a.err)
                        : a.ops->updates_delete(a.store, job.key, 1, 9, &a.err);
        CU_ASSERT(status == TALLY_OK || status == TALLY_FAILED_PRECONDITION);
        TALLY_ASSERT_STATUS(a.ops->commit(a.store, &a.err), TALLY_FAILED_PRECONDITION, &a.err);
        a.ops->rollback(a.store);
    }
    CU_ASSERT(!holds(&a, job.key));
    CU_ASSERT_EQUAL(a.ops->counters(a.store).fenced_writes, 7);
    describe_store(&b, &after);
    TALLY_ASSERT_TEXT((char *)after.data, (char *)before.data);
    TALLY_ASSERT_STATUS(write_update(&b, job.key, 1), TALLY_OK, &b.err);
    expect_renew(&a, "a");
    CU_ASSERT(!holds(&a, job.key));
    TALLY_ASSERT_TEXT(taken(&a), "");
    tally_buffer_fini(&before);
    tally_buffer_fini(&after);
    close_two(&a, &b);
}

/* Its lease has been lost, although it does not know that yet. */
void test_store_leases__former_leader_can_give_nothing(void)
{
    struct store_fixture a;
    struct store_fixture b;
    open_two(&a, &b);
    int64_t key = expect_job(&a, "x", TALLY_JOB_RUNNING);
    outlive(&a, &b, NULL);
    TALLY_ASSERT_TEXT(taken(&b), "x");
    CU_ASSERT(holds(&a, key));
    TALLY_ASSERT_STATUS(a.store->leases->give(a.store, key, 1, &a.err), TALLY_FAILED_PRECONDITION,
                        &a.err);
    TALLY_ASSERT_TEXT(taken(&a), "");
    TALLY_ASSERT_STATUS(write_update(&b, key, 1), TALLY_OK, &b.err);
    close_two(&a, &b);
}

/* Collected while it was the leader, sent when it no longer was. */
void test_store_leases__transaction_from_before_the_take_over_is_refused(void)
{
    struct store_fixture a;
    struct store_fixture b;
    open_two(&a, &b);
    int64_t key = expect_job(&a, "x", TALLY_JOB_RUNNING);
    expect_begin(&a);
    expect_update(&a, key, 1, 1, "old");
    outlive(&a, &b, NULL);
    TALLY_ASSERT_TEXT(taken(&b), "x");
    TALLY_ASSERT_STATUS(write_update(&b, key, 9), TALLY_OK, &b.err);
    TALLY_ASSERT_STATUS(a.ops->commit(a.store, &a.err), TALLY_FAILED_PRECONDITION, &a.err);
    CU_ASSERT_EQUAL(n_updates(&b, key), 1);
    close_two(&a, &b);
}

void test_store_leases__transaction_is_refused_as_a_whole(void)
{
    struct store_fixture a;
    struct store_fixture b;
    open_two(&a, &b);
    int64_t x = expect_job(&a, "x", TALLY_JOB_RUNNING);
    int64_t y = expect_job(&a, "y", TALLY_JOB_RUNNING);
    TALLY_ASSERT_STATUS(a.store->leases->give(a.store, x, 2, &a.err), TALLY_OK, &a.err);
    expect_begin(&a);
    expect_update(&a, y, 1, 1, "y");
    expect_update(&a, x, 1, 1, "x");
    expect_update(&a, y, 1, 2, "y");
    TALLY_ASSERT_STATUS(a.ops->flush(a.store, &a.err), TALLY_FAILED_PRECONDITION, &a.err);
    struct tally_store_update update = {1, 3, (const uint8_t *)"y", 1};
    TALLY_ASSERT_STATUS(a.ops->update_insert(a.store, y, &update, NULL), TALLY_FAILED_PRECONDITION,
                        NULL);
    TALLY_ASSERT_STATUS(a.ops->commit(a.store, NULL), TALLY_FAILED_PRECONDITION, NULL);
    CU_ASSERT_EQUAL(n_updates(&b, x) + n_updates(&b, y), 0);
    TALLY_ASSERT_STATUS(write_update(&a, y, 1), TALLY_OK, &a.err);
    close_two(&a, &b);
}

/* Makes a write of every kind, to a job that both replicas know and to a new one. */
static void write_everything(struct store_fixture *f, struct tally_store_job job)
{
    struct tally_store_job added = sample_job("new", 2);
    struct tally_round_record record = sample_record(2, 2);
    int64_t key = 0;
    job.progress.round = 77;
    CU_ASSERT_EQUAL(f->ops->job_update(f->store, &job, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(f->ops->state_append(f->store, job.key, 2, " more", 5, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(f->ops->round_insert(f->store, job.key, &record, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(f->ops->updates_delete(f->store, job.key, 1, 1, NULL), TALLY_OK);
    expect_update(f, job.key, 2, 1, "second");
    CU_ASSERT_EQUAL(f->ops->job_insert(f->store, &added, "{}", 2, "once", 1, &key, NULL), TALLY_OK);
    expect_update(f, key, 1, 1, "first");
    TALLY_ASSERT_STATUS(f->ops->flush(f->store, &f->err), TALLY_OK, &f->err);
}

static void expect_no_trace(struct store_fixture *f, const struct tally_buffer *before)
{
    struct tally_buffer now = {0};
    struct tally_store_job job;
    struct job_walk live = {.n = 0};
    uint64_t digest = 0;
    describe_store(f, &now);
    TALLY_ASSERT_TEXT((char *)now.data, (char *)before->data);
    CU_ASSERT_EQUAL(f->ops->job_get(f->store, "new", &job, NULL), TALLY_NOT_FOUND);
    CU_ASSERT_EQUAL(f->ops->job_by_idempotency_key(f->store, "once", &job, &digest, NULL),
                    TALLY_NOT_FOUND);
    CU_ASSERT_EQUAL(f->ops->job_list_live(f->store, collect_job, &live, NULL), TALLY_OK);
    TALLY_ASSERT_TEXT(collected_ids(&live), "x");
    struct tally_job_leader leader;
    CU_ASSERT_EQUAL(f->store->leases->leader_of(f->store, "new", &leader, NULL), TALLY_NOT_FOUND);
    tally_buffer_fini(&now);
}

void test_store_leases__others_see_a_transaction_when_it_is_committed(void)
{
    struct store_fixture a;
    struct store_fixture b;
    struct tally_buffer before = {0};
    struct tally_buffer written = {0};
    struct tally_buffer seen = {0};
    struct tally_round_record record = sample_record(1, 1);
    struct tally_store_job job = sample_job("x", 1);
    open_two(&a, &b);
    job.key = expect_job(&a, "x", TALLY_JOB_RUNNING);
    expect_begin(&a);
    a.ops->state_put(a.store, job.key, "state", 5, NULL);
    a.ops->round_insert(a.store, job.key, &record, NULL);
    expect_update(&a, job.key, 1, 1, "first");
    expect_commit(&a);
    describe_store(&b, &before);
    for (int ends = 0; ends < 2; ends++) {
        written.size = 0;
        expect_begin(&a);
        write_everything(&a, job);
        describe_store(&a, &written);
        expect_no_trace(&b, &before);
        expect_renew(&b, "b");
        TALLY_ASSERT_TEXT(taken(&b), "");
        if (ends == 0) {
            a.ops->rollback(a.store);
            expect_no_trace(&b, &before);
            expect_no_trace(&a, &before);
        }
    }
    expect_commit(&a);
    describe_store(&b, &seen);
    TALLY_ASSERT_TEXT((char *)seen.data, (char *)written.data);
    tally_buffer_fini(&before);
    tally_buffer_fini(&written);
    tally_buffer_fini(&seen);
    close_two(&a, &b);
}

/* Waits until a transaction can begin. */
static void expect_reconnection(struct store_fixture *f)
{
    enum tally_status status = TALLY_STORE;
    for (int i = 0; i < 1000 && status == TALLY_STORE; i++) {
        tally_error_clear(&f->err);
        status = f->ops->begin(f->store, &f->err);
        if (status == TALLY_STORE) {
            usleep(10000);
        }
    }
    TALLY_ASSERT_STATUS(status, TALLY_OK, &f->err);
    f->ops->rollback(f->store);
}

void test_store_leases__reconnecting_keeps_the_leases(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    expect_join(&f, "a", LEASE_MS);
    int64_t key = expect_job(&f, "x", TALLY_JOB_RUNNING);
    for (uint64_t i = 0; i < 3; i++) {
        store_fixture_end_connections(&f);
        TALLY_ASSERT_STATUS(write_update_at_last(&f, key, (uint32_t)i), TALLY_OK, &f.err);
        CU_ASSERT_EQUAL(f.ops->counters(f.store).reconnects, i + 1);
        CU_ASSERT(holds(&f, key));
    }
    CU_ASSERT_EQUAL(n_updates(&f, key), 3);
    TALLY_ASSERT_TEXT(taken(&f), "");
    store_fixture_close(&f);
}

void test_store_leases__lost_connection_loses_the_transaction(void)
{
    struct store_fixture f;
    store_fixture_open(&f);
    expect_join(&f, "a", LEASE_MS);
    int64_t key = expect_job(&f, "x", TALLY_JOB_RUNNING);
    struct tally_store_update update = {1, 2, (const uint8_t *)"body", 4};
    expect_begin(&f);
    expect_update(&f, key, 1, 1, "body");
    TALLY_ASSERT_STATUS(f.ops->flush(f.store, &f.err), TALLY_OK, &f.err);
    store_fixture_end_connections(&f);
    CU_ASSERT_EQUAL(flushed(&f, f.ops->update_insert(f.store, key, &update, NULL)), TALLY_STORE);
    tally_error_clear(&f.err);
    TALLY_ASSERT_STATUS(f.ops->commit(f.store, &f.err), TALLY_STORE, &f.err);
    TALLY_ASSERT_STATUS(write_update_at_last(&f, key, 3), TALLY_OK, &f.err);
    CU_ASSERT_EQUAL(n_updates(&f, key), 1);
    store_fixture_close(&f);
}

void test_store_leases__reconnecting_after_a_take_over_holds_nothing(void)
{
    struct store_fixture a;
    struct store_fixture b;
    open_two(&a, &b);
    int64_t key = expect_job(&a, "x", TALLY_JOB_RUNNING);
    outlive(&a, &b, NULL);
    TALLY_ASSERT_TEXT(taken(&b), "x");
    CU_ASSERT(holds(&a, key));
    store_fixture_end_connections(&a);
    expect_reconnection(&a);
    CU_ASSERT(!holds(&a, key));
    TALLY_ASSERT_STATUS(write_update(&a, key, 1), TALLY_FAILED_PRECONDITION, &a.err);
    TALLY_ASSERT_STATUS(write_update_at_last(&b, key, 1), TALLY_OK, &b.err);
    close_two(&a, &b);
}

void test_store_leases__second_process_of_an_id_replaces_the_first(void)
{
    struct store_fixture old;
    struct store_fixture new;
    struct replica_walk walk;
    store_fixture_open(&old);
    store_fixture_open_beside(&new, &old);
    CU_ASSERT_EQUAL(expect_join(&old, "a", LEASE_MS), 1);
    int64_t key = expect_job(&old, "x", TALLY_JOB_RUNNING);
    CU_ASSERT_EQUAL(expect_join(&new, "a", LEASE_MS), 1);
    TALLY_ASSERT_STATUS(write_update_at_last(&old, key, 1), TALLY_FAILED_PRECONDITION, &old.err);
    TALLY_ASSERT_STATUS(renew(&old, "a", &walk), TALLY_FAILED_PRECONDITION, &old.err);
    TALLY_ASSERT_TEXT(taken(&old), "");
    CU_ASSERT(!holds(&old, key));
    TALLY_ASSERT_TEXT(taken(&new), "x");
    TALLY_ASSERT_STATUS(old.store->leases->leave(old.store, &old.err), TALLY_OK, &old.err);
    TALLY_ASSERT_STATUS(write_update(&new, key, 1), TALLY_OK, &new.err);
    CU_ASSERT_EQUAL(n_updates(&new, key), 1);
    close_two(&old, &new);
}

/* It is forgotten although a job that it led to its end still has its lease. */
void test_store_leases__long_dead_replica_is_forgotten(void)
{
    enum { LONG_LEASE_MS = 3 * 24 * 3600 * 1000 };
    struct store_fixture a;
    struct store_fixture b;
    struct store_fixture other; /* no replica */
    struct replica_walk walk;
    store_fixture_open(&a);
    store_fixture_open_beside(&b, &a);
    store_fixture_open_beside(&other, &a);
    expect_join(&a, "a", LONG_LEASE_MS);
    expect_job(&a, "x", TALLY_JOB_RUNNING);
    int64_t ended = expect_job(&a, "y", TALLY_JOB_COMPLETED);
    expect_join(&b, "b", LONG_LEASE_MS);
    for (int day = 0; day < 11; day++) {
        store_fixture_pass_time(&a, LONG_LEASE_MS / 3);
        expect_renew(&b, "b");
    }
    TALLY_ASSERT_STATUS(write_update(&other, ended, 1), TALLY_FAILED_PRECONDITION, &other.err);
    CU_ASSERT_EQUAL(expect_join(&b, "b", LONG_LEASE_MS), 2);
    TALLY_ASSERT_STATUS(write_update(&other, ended, 1), TALLY_OK, &other.err);
    TALLY_ASSERT_STATUS(renew(&b, "b", &walk), TALLY_OK, &b.err);
    CU_ASSERT_EQUAL(walk.n, 2); /* no other replica has its other job yet */
    TALLY_ASSERT_TEXT(taken(&b), "x");
    CU_ASSERT_EQUAL(expect_join(&b, "b", LONG_LEASE_MS), 2);
    TALLY_ASSERT_STATUS(renew(&b, "b", &walk), TALLY_OK, &b.err);
    CU_ASSERT_EQUAL(walk.n, 1);
    TALLY_ASSERT_TEXT(taken(&b), "x"); /* its own former process led the job */
    store_fixture_close(&other);
    close_two(&a, &b);
}
