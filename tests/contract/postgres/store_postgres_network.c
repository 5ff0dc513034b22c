/* Effects of the network between a store and its server: lost packets, cut connections,
 * slowness. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "storage/leases.h"
#include "tests/contract/store_tests.h"
#include "tests/contract/support/proxy.h"
#include "tests/contract/support/raw_postgres.h"
#include "tests/contract/support/store_fixture.h"

/* In time of waited_ms(), which excludes waiting for a processor. Less than the time limit of one
 * attempt to connect, more than twenty calls that do not wait can take on a slow machine. */
enum { AT_ONCE_MS = 1800 };
/* Less than the silence that earlier versions waited for, more than the current one. */
enum { ONE_SILENCE_MS = 6500 };

enum { HANG_MS = 120000 };

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* A clock without the time that this thread is runnable but gets no processor. That time, in
 * nanoseconds, is the second number of schedstat, see proc(5). */
static int64_t waited_ms(void)
{
    long long on_processor_ns = 0;
    long long without_ns = 0;
    FILE *file = fopen("/proc/thread-self/schedstat", "r");
    if (file != NULL) {
        CU_ASSERT_EQUAL(fscanf(file, "%lld %lld", &on_processor_ns, &without_ns), 2);
        fclose(file);
    }
    return now_ms() - without_ns / 1000000;
}

/* Opens a store that reaches its server through one or two proxies, which are its addresses. The
 * connect timeout is the store's own instead of the fixture's. */
static void open_through(struct store_fixture *f, const struct proxy *first,
                         const struct proxy *second)
{
    store_fixture_init(f);
    size_t n = strlen(f->uri);
    if (second == NULL) {
        snprintf(f->uri + n, sizeof f->uri - n, " connect_timeout=2 host=127.0.0.1 port=%d",
                 proxy_port(first));
    } else {
        snprintf(f->uri + n, sizeof f->uri - n,
                 " connect_timeout=2 host=127.0.0.1,127.0.0.1 port=%d,%d", proxy_port(first),
                 proxy_port(second));
    }
    store_fixture_reopen(f);
}

/* Makes one call, whose kind depends on `i` and which must fail; its message is in f->err. */
static void fail_once(struct store_fixture *f, int i)
{
    struct tally_store_job job;
    enum tally_status status = TALLY_OK;
    tally_error_clear(&f->err);
    if (i % 3 == 0) {
        status = f->ops->check(f->store, &f->err);
    } else if (i % 3 == 1) {
        status = f->ops->job_get(f->store, "a", &job, &f->err);
    } else {
        status = f->ops->begin(f->store, &f->err);
        f->ops->rollback(f->store);
    }
    TALLY_ASSERT_STATUS(status, TALLY_STORE, &f->err);
}

/* Successive calls do not wait: neither the one that starts connecting, nor those after it. */
static void expect_failures_at_once(struct store_fixture *f)
{
    int64_t began = now_ms();
    int64_t before = waited_ms();
    for (int i = 0; i < 20; i++) {
        fail_once(f, i);
    }
    CU_ASSERT(waited_ms() - before < AT_ONCE_MS);
    /* Unless the calls took so long that the attempt has ended. */
    CU_ASSERT(strstr(f->err.message, "is being connected to") != NULL ||
              now_ms() - began >= AT_ONCE_MS);
}

/* Makes calls until the attempt has failed, and then until the next one has started. */
static void expect_another_attempt(struct store_fixture *f)
{
    static const char *const MESSAGES[] = {"while connecting", "next attempt in",
                                           "is being connected to"};
    for (int i = 0; i < 3; i++) {
        bool is_told = false;
        int64_t before = now_ms();
        for (int n = 0; now_ms() - before < HANG_MS && !is_told; n++) {
            fail_once(f, n);
            is_told = strstr(f->err.message, MESSAGES[i]) != NULL;
            usleep(2000);
        }
        CU_ASSERT(is_told);
    }
}

static void expect_recovery(struct store_fixture *f, int64_t key, int64_t round)
{
    expect_connection(f);
    expect_begin(f);
    expect_update(f, key, round, 1, "body");
    expect_commit(f);
    CU_ASSERT_EQUAL(raw_ask(f->schema, "SELECT count(*) FROM updates"), round);
}

void test_store_postgres_network__silent_server_holds_up_one_call(void)
{
    struct store_fixture f;
    struct proxy *proxy = proxy_start();
    open_through(&f, proxy, NULL);
    int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
    for (int round = 1; round <= 2; round++) {
        expect_begin(&f);
        expect_update(&f, key, round, 2, "lost");
        proxy_set(proxy, PROXY_SILENT);
        int64_t before = waited_ms();
        tally_error_clear(&f.err);
        TALLY_ASSERT_STATUS(f.ops->commit(f.store, &f.err), TALLY_STORE, &f.err);
        CU_ASSERT(waited_ms() - before < ONE_SILENCE_MS);
        CU_ASSERT_PTR_NOT_NULL(strstr(f.err.message, "no answer for 3000 ms"));
        expect_failures_at_once(&f);
        if (round == 1) {
            expect_another_attempt(&f);
        }
        /* The bytes in transit arrive, but their commit was never sent. */
        proxy_set(proxy, PROXY_PASS);
        expect_recovery(&f, key, round);
        CU_ASSERT_EQUAL(f.ops->counters(f.store).reconnects, (uint64_t)round);
    }
    store_fixture_close(&f);
    proxy_stop(proxy);
}

void test_store_postgres_network__calls_fail_at_once_while_nobody_answers(void)
{
    struct store_fixture f;
    struct proxy *proxy = proxy_start();
    open_through(&f, proxy, NULL);
    int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
    proxy_set(proxy, PROXY_HOLE);
    expect_failures_at_once(&f);
    expect_another_attempt(&f);
    expect_failures_at_once(&f);
    proxy_set(proxy, PROXY_PASS);
    expect_recovery(&f, key, 1);
    CU_ASSERT_EQUAL(f.ops->counters(f.store).reconnects, 1);
    store_fixture_close(&f);
    proxy_stop(proxy);
}

/* Waits for the current attempt, which must succeed. */
static void expect_no_other_attempt(struct store_fixture *f)
{
    enum tally_status status = TALLY_STORE;
    for (int i = 0; i < 3000 && status == TALLY_STORE; i++) {
        tally_error_clear(&f->err);
        status = f->ops->check(f->store, &f->err);
        CU_ASSERT(status == TALLY_OK || strstr(f->err.message, "is being connected to") != NULL);
        usleep(10000);
    }
    TALLY_ASSERT_STATUS(status, TALLY_OK, &f->err);
}

/* Whether the first address does not respond at all, or accepts and is then silent. */
void test_store_postgres_network__other_addresses_are_tried(void)
{
    struct store_fixture f;
    struct proxy *first = proxy_start();
    struct proxy *second = proxy_start();
    open_through(&f, first, second);
    int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
    proxy_set(first, PROXY_HOLE);
    expect_failures_at_once(&f);
    expect_no_other_attempt(&f);
    expect_recovery(&f, key, 1);
    proxy_set(first, PROXY_SILENT);
    proxy_set(second, PROXY_HOLE);
    proxy_set(second, PROXY_PASS);
    expect_failures_at_once(&f);
    expect_recovery(&f, key, 2);
    CU_ASSERT_EQUAL(f.ops->counters(f.store).reconnects, 2);
    store_fixture_close(&f);
    proxy_stop(first);
    proxy_stop(second);
}

void test_store_postgres_network__replica_holds_its_jobs_after_a_partition(void)
{
    struct store_fixture f;
    struct proxy *proxy = proxy_start();
    struct tally_replica self = {.id = "a", .address = "http://a:8080"};
    int64_t number = 0;
    open_through(&f, proxy, NULL);
    TALLY_ASSERT_STATUS(f.store->leases->join(f.store, &self, 3600000, &number, &f.err), TALLY_OK,
                        &f.err);
    int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
    proxy_set(proxy, PROXY_SILENT);
    TALLY_ASSERT_STATUS(f.ops->check(f.store, &f.err), TALLY_STORE, &f.err);
    expect_failures_at_once(&f);
    CU_ASSERT(f.store->leases->holds(f.store, key));
    proxy_set(proxy, PROXY_PASS);
    expect_recovery(&f, key, 1);
    CU_ASSERT(f.store->leases->holds(f.store, key));
    CU_ASSERT_EQUAL(raw_ask(f.schema, "SELECT token FROM job_leases"), 2);
    store_fixture_close(&f);
    proxy_stop(proxy);
}

/* Sends a large value, most of which the kernel accepts at once, and receives it, both slowly.
 * Whether that was done on one connection. */
static bool passes_slowly(const uint8_t *bytes, size_t n, int bytes_per_s)
{
    struct store_fixture f;
    struct proxy *proxy = proxy_start();
    struct tally_buffer actual = {0};
    open_through(&f, proxy, NULL);
    int64_t key = expect_job(&f, "a", TALLY_JOB_RUNNING);
    proxy_limit(proxy, bytes_per_s);
    expect_begin(&f);
    const bool passes = f.ops->state_put(f.store, key, bytes, n, &f.err) == TALLY_OK &&
                        f.ops->commit(f.store, &f.err) == TALLY_OK &&
                        f.ops->state_get(f.store, key, &actual, &f.err) == TALLY_OK;
    CU_ASSERT(!passes || (actual.size == n && memcmp(actual.data, bytes, n) == 0));
    const bool is_one = f.ops->counters(f.store).reconnects == 0;
    proxy_limit(proxy, 0);
    tally_buffer_fini(&actual);
    store_fixture_close(&f);
    proxy_stop(proxy);
    return passes && is_one;
}

/* A busy machine may let the proxy wait for longer than a server may be silent, but not each time.
 */
void test_store_postgres_network__slow_network_is_not_silent(void)
{
    enum { N = 3000000, BYTES_PER_S = 500000, ATTEMPTS = 3 };
    uint8_t *bytes = pattern_new(N);
    bool passes = false;
    for (int i = 0; i < ATTEMPTS && !passes; i++) {
        passes = passes_slowly(bytes, N, BYTES_PER_S);
    }
    CU_ASSERT_TRUE(passes);
    free(bytes);
}

void test_store_postgres_network__store_may_be_closed_while_connecting(void)
{
    struct store_fixture f;
    struct proxy *proxy = proxy_start();
    open_through(&f, proxy, NULL);
    proxy_set(proxy, PROXY_HOLE);
    fail_once(&f, 0);
    int64_t before = waited_ms();
    store_fixture_close(&f);
    CU_ASSERT(waited_ms() - before < AT_ONCE_MS);
    proxy_stop(proxy);
}

/* Another process makes the tables for longer than an open store would wait. */
void test_store_postgres_network__opening_waits_for_another(void)
{
    struct store_fixture f;
    store_fixture_init(&f);
    struct raw *raw = raw_open(f.schema);
    raw_run(raw, "BEGIN; SELECT pg_advisory_xact_lock("
                 "hashtextextended('tally_schema ' || current_schema(), 0))");
    raw_send(raw, "SELECT pg_sleep(4); COMMIT");
    store_fixture_reopen(&f);
    raw_wait(raw);
    raw_close(raw);
    expect_job(&f, "a", TALLY_JOB_RUNNING);
    store_fixture_close(&f);
}
