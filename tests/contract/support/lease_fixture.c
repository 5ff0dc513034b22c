#include "tests/contract/support/lease_fixture.h"

#include <stdio.h>
#include <unistd.h>

struct tally_replica replica_named(const char *id)
{
    struct tally_replica replica = {
        .jobs = 1, .slots = 20, .free_slots = 3, .wants_key = 4, .wants_slots = 5};
    snprintf(replica.id, sizeof replica.id, "%s", id);
    snprintf(replica.address, sizeof replica.address, "http://%s:8080", id);
    return replica;
}

int64_t expect_join(struct store_fixture *f, const char *id, int64_t lease_ms)
{
    struct tally_replica self = replica_named(id);
    int64_t number = 0;
    TALLY_ASSERT_STATUS(f->store->leases->join(f->store, &self, lease_ms, &number, &f->err),
                        TALLY_OK, &f->err);
    return number;
}

void open_two(struct store_fixture *a, struct store_fixture *b)
{
    store_fixture_open(a);
    store_fixture_open_beside(b, a);
    CU_ASSERT_EQUAL(expect_join(a, "a", LEASE_MS), 1);
    CU_ASSERT_EQUAL(expect_join(b, "b", LEASE_MS), 2);
}

void close_two(struct store_fixture *a, struct store_fixture *b)
{
    store_fixture_close(b);
    store_fixture_close(a);
}

static enum tally_status list_replica(void *context, const struct tally_replica *replica,
                                      struct tally_error *err)
{
    (void)err;
    struct replica_walk *walk = context;
    if (walk->n < 8) {
        walk->replicas[walk->n] = *replica;
    }
    walk->n++;
    return TALLY_OK;
}

enum tally_status renew(struct store_fixture *f, const char *id, struct replica_walk *walk)
{
    struct tally_replica self = replica_named(id);
    *walk = (struct replica_walk){.n = 0};
    tally_error_clear(&f->err);
    return f->store->leases->renew(f->store, &self, list_replica, walk, &f->err);
}

void expect_renew(struct store_fixture *f, const char *id)
{
    struct replica_walk walk;
    TALLY_ASSERT_STATUS(renew(f, id, &walk), TALLY_OK, &f->err);
}

const char *taken(struct store_fixture *f)
{
    static struct job_walk walk;
    walk = (struct job_walk){.n = 0};
    tally_error_clear(&f->err);
    TALLY_ASSERT_STATUS(f->store->leases->take(f->store, collect_job, &walk, &f->err), TALLY_OK,
                        &f->err);
    return collected_ids(&walk);
}

bool holds(const struct store_fixture *f, int64_t job_key)
{
    return f->store->leases->holds(f->store, job_key);
}

struct tally_job_leader leader_of(struct store_fixture *f, const char *job_id)
{
    struct tally_job_leader leader = {.key = -1};
    tally_error_clear(&f->err);
    TALLY_ASSERT_STATUS(f->store->leases->leader_of(f->store, job_id, &leader, &f->err), TALLY_OK,
                        &f->err);
    return leader;
}

enum tally_status write_update(struct store_fixture *f, int64_t job_key, uint32_t client)
{
    struct tally_store_update update = {1, client, (const uint8_t *)"body", 4};
    tally_error_clear(&f->err);
    enum tally_status status = f->ops->begin(f->store, &f->err);
    if (status == TALLY_OK) {
        status = f->ops->update_insert(f->store, job_key, &update, &f->err);
    }
    if (status == TALLY_OK) {
        return f->ops->commit(f->store, &f->err);
    }
    f->ops->rollback(f->store);
    return status;
}

int n_updates(struct store_fixture *f, int64_t job_key)
{
    struct update_walk walk = {.n = 0};
    TALLY_ASSERT_STATUS(f->ops->update_list(f->store, job_key, 1, collect_update, &walk, &f->err),
                        TALLY_OK, &f->err);
    return walk.n;
}

enum tally_status write_update_at_last(struct store_fixture *f, int64_t job_key, uint32_t client)
{
    enum tally_status status = write_update(f, job_key, client);
    for (int i = 0; i < 1000 && status == TALLY_STORE; i++) {
        usleep(10000);
        status = write_update(f, job_key, client);
    }
    return status;
}

void outlive(const struct store_fixture *first, struct store_fixture *b, struct store_fixture *c)
{
    for (int i = 0; i < 5; i++) {
        store_fixture_pass_time(first, STEP_MS);
        expect_renew(b, "b");
        if (c != NULL) {
            expect_renew(c, "c");
        }
    }
}
