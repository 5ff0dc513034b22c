#include "services/coordinator/traffic.h"

#include <string.h>

#include "storage/backends.h"
#include "tests/harness.h"
#include "tests/unit/services/coordinator/job_in_store.h"

/* The example of traffic.h. */
static void test_coordinator_traffic__own_bytes_and_a_share_of_the_rest(void)
{
    struct client_traffic clients[10] = {0};
    const struct traffic_part parts[] = {{.client = 4, .own_bytes = {[TRAFFIC_IN] = 50}},
                                         {.client = 9, .own_bytes = {[TRAFFIC_IN] = 71}}};
    traffic_share(clients, parts, 2, TRAFFIC_IN, 300);
    CU_ASSERT_EQUAL(clients[4].wire_bytes[TRAFFIC_IN], 140);
    CU_ASSERT_EQUAL(clients[9].wire_bytes[TRAFFIC_IN], 160);
    traffic_share(clients, parts, 2, TRAFFIC_OUT, 7); /* no own bytes in the response */
    CU_ASSERT_EQUAL(clients[4].wire_bytes[TRAFFIC_OUT], 4);
    CU_ASSERT_EQUAL(clients[9].wire_bytes[TRAFFIC_OUT], 3);
    traffic_share(clients, parts, 2, TRAFFIC_IN, 0); /* an exchange without its own request */
    traffic_share(clients, parts, 0, TRAFFIC_IN, 55);
    CU_ASSERT_EQUAL(clients[4].wire_bytes[TRAFFIC_IN] + clients[9].wire_bytes[TRAFFIC_IN], 300);
    CU_ASSERT_EQUAL(clients[0].wire_bytes[TRAFFIC_IN], 0);
}

static void test_coordinator_traffic__no_byte_is_lost_or_counted_twice(void)
{
    struct client_traffic clients[7] = {0};
    struct traffic_part parts[7];
    uint64_t bytes = 0, counted = 0;
    for (uint32_t n = 1; n <= 7; n++) {
        for (uint32_t i = 0; i < n; i++) {
            parts[i] =
                (struct traffic_part){.client = (i * 3) % 7, .own_bytes = {[TRAFFIC_IN] = 100 * i}};
        }
        for (uint64_t shared = 0; shared < 40; shared++) {
            const uint64_t own = 100 * n * (n - 1) / 2;
            traffic_share(clients, parts, n, TRAFFIC_IN, own + shared);
            bytes += own + shared;
        }
    }
    for (int i = 0; i < 7; i++) {
        counted += clients[i].wire_bytes[TRAFFIC_IN];
    }
    CU_ASSERT_EQUAL(counted, bytes);
}

static void test_coordinator_traffic__repeated_updates_count_once(void)
{
    struct client_traffic clients[2] = {0};
    const struct traffic_part parts[] = {{.client = 1, .is_accepted = true, .payload_bits = 30},
                                         {.client = 1, .payload_bits = 30}};
    traffic_add_updates(clients, parts, 2);
    CU_ASSERT_EQUAL(clients[1].updates, 1);
    CU_ASSERT_EQUAL(clients[1].payload_bits, 30);
    CU_ASSERT_EQUAL(clients[0].updates, 0);
}

enum { CLIENTS = 10000 }; /* three blocks; the second is empty */

static void expect_put(struct job_in_store *host, const struct client_traffic *clients)
{
    const struct tally_store_ops *ops = host->store->ops;
    struct tally_store_job row = host->job->row;
    row.clients = CLIENTS;
    TALLY_ASSERT_STATUS(ops->begin(host->store, &host->err), TALLY_OK, &host->err);
    TALLY_ASSERT_STATUS(traffic_put(host->store, &row, clients, &host->err), TALLY_OK, &host->err);
    TALLY_ASSERT_STATUS(ops->commit(host->store, &host->err), TALLY_OK, &host->err);
    static struct client_traffic again[CLIENTS];
    memset(again, 0, sizeof again);
    TALLY_ASSERT_STATUS(traffic_get(host->store, &row, again, &host->err), TALLY_OK, &host->err);
    CU_ASSERT_TRUE(memcmp(again, clients, sizeof again) == 0);
}

static void test_coordinator_traffic__is_stored_whole(void)
{
    static struct client_traffic clients[CLIENTS];
    struct job_in_store host;
    job_in_store_init(&host, NULL, NULL);
    clients[0] = (struct client_traffic){1, 30, {UINT64_MAX, 2}};
    clients[4095] = (struct client_traffic){.wire_bytes = {0, 1}};
    clients[8192] = (struct client_traffic){.updates = 7};
    clients[CLIENTS - 1] = (struct client_traffic){.payload_bits = 9};
    expect_put(&host, clients);
    clients[0].updates++; /* replaces the stored block */
    expect_put(&host, clients);
    job_in_store_fini(&host);
}

static enum tally_status get_block(const void *body, size_t n_body, struct tally_error *err)
{
    struct job_in_store host;
    struct client_traffic clients[1] = {0};
    job_in_store_init(&host, NULL, NULL);
    const struct tally_store_ops *ops = host.store->ops;
    const struct tally_store_update block = {
        .round = TALLY_STORE_TRAFFIC_ROUND, .body = body, .n_body = n_body};
    TALLY_ASSERT_STATUS(ops->begin(host.store, err), TALLY_OK, err);
    TALLY_ASSERT_STATUS(ops->update_insert(host.store, host.job->row.key, &block, err), TALLY_OK,
                        err);
    TALLY_ASSERT_STATUS(ops->commit(host.store, err), TALLY_OK, err);
    const enum tally_status status = traffic_get(host.store, &host.job->row, clients, err);
    job_in_store_fini(&host);
    return status;
}

static void test_coordinator_traffic__damaged_blocks_are_told(void)
{
    struct tally_error err = TALLY_ERROR_INIT;
    const uint64_t words[5] = {1};
    CU_ASSERT_EQUAL(get_block(words, 39, &err), TALLY_DATA_LOSS);
    TALLY_ASSERT_TEXT(err.message,
                      "stored traffic of clients from 0 on has 39 bytes, not a multiple of 40");
    tally_error_clear(&err);
    CU_ASSERT_EQUAL(get_block(words, 40, &err), TALLY_DATA_LOSS);
    TALLY_ASSERT_TEXT(err.message, "stored traffic of client 1 of 1");
}

/* ---- The traffic of a job in memory and in the store ---- */

static void count(struct job_in_store *host, uint64_t in, uint64_t out)
{
    const struct traffic_part part = {.client = 0, .is_accepted = true, .payload_bits = 30};
    hosted_job_count_bytes(host->job, &part, 1, in, out);
    hosted_job_count_updates(host->job, &part, 1);
}

static void put(struct job_in_store *host)
{
    const struct tally_store_ops *ops = host->store->ops;
    TALLY_ASSERT_STATUS(ops->begin(host->store, &host->err), TALLY_OK, &host->err);
    TALLY_ASSERT_STATUS(hosted_job_put_row(host->store, host->job, 1, &host->err), TALLY_OK,
                        &host->err);
    TALLY_ASSERT_STATUS(hosted_job_put_traffic(host->store, host->job, &host->err), TALLY_OK,
                        &host->err);
    CU_ASSERT_FALSE(host->job->traffic_has_moved);
}

static void expect_traffic(const struct hosted_job *job, uint64_t updates, uint64_t in,
                           uint64_t out)
{
    CU_ASSERT_EQUAL(job->traffic[0].updates, updates);
    CU_ASSERT_EQUAL(job->traffic[0].payload_bits, 30 * updates);
    CU_ASSERT_EQUAL(job->traffic[0].wire_bytes[TRAFFIC_IN], in);
    CU_ASSERT_EQUAL(job->traffic[0].wire_bytes[TRAFFIC_OUT], out);
    CU_ASSERT_EQUAL(job->wire_in_bytes, in);
    CU_ASSERT_EQUAL(job->wire_out_bytes, out);
}

static void test_coordinator_traffic__comes_back_with_the_job(void)
{
    struct job_in_store host;
    job_in_store_init(&host, NULL, NULL);
    TALLY_ASSERT_STATUS(hosted_job_make_slots(host.job, &host.err), TALLY_OK, &host.err);
    job_in_store_write_round(&host);
    TALLY_ASSERT_STATUS(host.store->ops->commit(host.store, &host.err), TALLY_OK, &host.err);
    count(&host, 100, 10);
    put(&host);
    TALLY_ASSERT_STATUS(host.store->ops->commit(host.store, &host.err), TALLY_OK, &host.err);
    struct hosted_job *again = job_in_store_load(&host);
    expect_traffic(again, 1, 100, 10);

    /* A failed commit does not reduce the counts, and they are to be stored again. */
    count(&host, 5, 1);
    put(&host);
    host.store->ops->rollback(host.store);
    TALLY_ASSERT_STATUS(hosted_job_reload(host.store, host.job, &host.err), TALLY_OK, &host.err);
    expect_traffic(host.job, 2, 105, 11);
    CU_ASSERT_TRUE(host.job->traffic_has_moved);

    /* Another coordinator led the job meanwhile and counted more: its stored counts apply. */
    struct job_in_store other = host;
    other.job = again;
    count(&other, 50, 50);
    put(&other);
    TALLY_ASSERT_STATUS(host.store->ops->commit(host.store, &host.err), TALLY_OK, &host.err);
    TALLY_ASSERT_STATUS(hosted_job_reload(host.store, host.job, &host.err), TALLY_OK, &host.err);
    expect_traffic(host.job, 2, 150, 60);
    CU_ASSERT_FALSE(host.job->traffic_has_moved);
    count(&other, 1, 1);
    hosted_job_drop_slots(again); /* as if a start was not stored */
    CU_ASSERT_FALSE(again->traffic_has_moved);
    hosted_job_free(again);
    job_in_store_fini(&host);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_coordinator_traffic__own_bytes_and_a_share_of_the_rest),
    TALLY_TEST(test_coordinator_traffic__no_byte_is_lost_or_counted_twice),
    TALLY_TEST(test_coordinator_traffic__repeated_updates_count_once),
    TALLY_TEST(test_coordinator_traffic__is_stored_whole),
    TALLY_TEST(test_coordinator_traffic__damaged_blocks_are_told),
    TALLY_TEST(test_coordinator_traffic__comes_back_with_the_job),
};
TALLY_SUITE(coordinator_traffic, TESTS);
