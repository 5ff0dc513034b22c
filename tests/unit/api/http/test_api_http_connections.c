/* Tests the table alone, with the test's own clock. A socket that is not TCP shows no progress. */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "api/http/http_connections.h"
#include "tests/harness.h"

static struct sockaddr_storage address_of(const char *text)
{
    struct sockaddr_storage storage = {0};
    if (strchr(text, ':') != NULL) {
        struct sockaddr_in6 *six = (struct sockaddr_in6 *)&storage;
        six->sin6_family = AF_INET6;
        CU_ASSERT_EQUAL_FATAL(inet_pton(AF_INET6, text, &six->sin6_addr), 1);
    } else {
        struct sockaddr_in *four = (struct sockaddr_in *)&storage;
        four->sin_family = AF_INET;
        CU_ASSERT_EQUAL_FATAL(inet_pton(AF_INET, text, &four->sin_addr), 1);
    }
    return storage;
}

static enum http_admission add(struct http_connections *table, struct http_connection *connection,
                               const char *from, enum http_phase phase, int64_t now_ms)
{
    const struct sockaddr_storage peer = address_of(from);
    *connection = (struct http_connection){.fd = -1};
    return http_connections_add(table, connection, -1, (const struct sockaddr *)&peer, phase,
                                now_ms);
}

static void test_api_http_connections__limits_are_inclusive(void)
{
    struct http_connections table;
    struct http_connection c[6];
    CU_ASSERT_TRUE_FATAL(http_connections_init(&table, 3, 2, 1000, 100, 1 << 20));
    CU_ASSERT_EQUAL(add(&table, &c[0], "10.0.0.1", HTTP_IDLE, 0), HTTP_ADMITTED);
    CU_ASSERT_EQUAL(add(&table, &c[1], "10.0.0.1", HTTP_IDLE, 0), HTTP_ADMITTED);
    CU_ASSERT_EQUAL(add(&table, &c[2], "10.0.0.1", HTTP_IDLE, 0), HTTP_ADDRESS_FULL);
    CU_ASSERT_EQUAL(add(&table, &c[2], "10.0.0.2", HTTP_IDLE, 0), HTTP_ADMITTED);
    CU_ASSERT_EQUAL(add(&table, &c[3], "10.0.0.3", HTTP_IDLE, 0), HTTP_FULL);
    http_connections_remove(&table, &c[1]);
    CU_ASSERT_EQUAL(add(&table, &c[1], "10.0.0.1", HTTP_IDLE, 0), HTTP_ADMITTED);
    for (int i = 0; i < 3; i++) {
        http_connections_remove(&table, &c[i]);
    }
    CU_ASSERT_EQUAL(table.n, 0);
    http_connections_fini(&table);
}

static void test_api_http_connections__one_network_is_one_address(void)
{
    static const char *const pairs[][2] = {
        {"2001:db8::1", "2001:db8::ffff:1"},    /* the same /64 */
        {"::ffff:10.0.0.1", "10.0.0.1"},        /* IPv4 on an IPv6 socket */
        {"2001:db8:0:1::1", "2001:db8:0:2::1"}, /* another /64 */
        {"::ffff:10.0.0.1", "::ffff:10.0.0.2"}, /* another IPv4 */
        {"10.0.0.1", "a00:1::"},                /* the same bits, but another family */
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        struct http_connections table;
        struct http_connection first, second;
        CU_ASSERT_TRUE_FATAL(http_connections_init(&table, 9, 1, 1000, 100, 1 << 20));
        CU_ASSERT_EQUAL(add(&table, &first, pairs[i][0], HTTP_IDLE, 0), HTTP_ADMITTED);
        const enum http_admission admission = add(&table, &second, pairs[i][1], HTTP_IDLE, 0);
        CU_ASSERT_EQUAL(admission, i < 2 ? HTTP_ADDRESS_FULL : HTTP_ADMITTED);
        if (admission == HTTP_ADMITTED) {
            http_connections_remove(&table, &second);
        }
        http_connections_remove(&table, &first);
        http_connections_fini(&table);
    }
}

static void test_api_http_connections__many_addresses_come_and_go(void)
{
    enum { N = 20000 };
    static struct http_connection c[N];
    struct http_connections table;
    CU_ASSERT_TRUE_FATAL(http_connections_init(&table, N, 1, 1000, 100, 1 << 20));
    for (int turn = 0; turn < 2; turn++) {
        for (unsigned i = 0; i < N; i++) {
            char text[32];
            snprintf(text, sizeof text, "10.%u.%u.7", i / 256, i % 256);
            CU_ASSERT_EQUAL(add(&table, &c[i], text, HTTP_IDLE, 0), HTTP_ADMITTED);
        }
        for (size_t i = 0; i < N; i++) {
            http_connections_remove(&table, &c[(i * 7919) % N]);
        }
    }
    http_connections_fini(&table);
}

static void test_api_http_connections__clocks_run_out_in_order(void)
{
    struct http_connections table;
    struct http_connection c[3];
    CU_ASSERT_TRUE_FATAL(http_connections_init(&table, 9, 9, 1000, 100, 1 << 20));
    CU_ASSERT_EQUAL(http_connections_wait_ms(&table, 0), -1);
    add(&table, &c[0], "10.0.0.1", HTTP_RECEIVING, 0);
    add(&table, &c[1], "10.0.0.1", HTTP_RECEIVING, 10);
    add(&table, &c[2], "10.0.0.1", HTTP_RECEIVING, 20);
    CU_ASSERT_EQUAL(http_connections_wait_ms(&table, 0), 1000);
    CU_ASSERT_PTR_NULL(http_connections_late(&table, 999));
    CU_ASSERT_EQUAL(http_connections_wait_ms(&table, 999), 1);
    http_connections_enter(&table, &c[1], HTTP_WAITING, 999); /* this phase has no clock */
    CU_ASSERT_PTR_EQUAL(http_connections_late(&table, 1000), &c[0]);
    http_connections_enter(&table, &c[0], HTTP_LINGERING, 1000);
    CU_ASSERT_PTR_NULL(http_connections_late(&table, 1000));
    CU_ASSERT_PTR_EQUAL(http_connections_late(&table, 1020), &c[2]);
    http_connections_enter(&table, &c[2], HTTP_SENDING, 1020);
    CU_ASSERT_PTR_EQUAL(http_connections_late(&table, 1100), &c[0]); /* lingered long enough */
    http_connections_remove(&table, &c[0]);
    CU_ASSERT_PTR_EQUAL(http_connections_late(&table, 2020), &c[2]); /* its peer read nothing */
    http_connections_remove(&table, &c[2]);
    CU_ASSERT_PTR_NULL(http_connections_late(&table, INT32_MAX));
    http_connections_remove(&table, &c[1]);
    http_connections_fini(&table);
}

static void test_api_http_connections__silence_is_no_request(void)
{
    struct http_connections table;
    struct http_connection c;
    CU_ASSERT_TRUE_FATAL(http_connections_init(&table, 9, 9, 1000, 100, 1 << 20));
    add(&table, &c, "10.0.0.1", HTTP_IDLE, 0);
    for (int64_t now_ms = 0; now_ms < 100000; now_ms += 50) {
        CU_ASSERT_PTR_NULL(http_connections_late(&table, now_ms));
    }
    CU_ASSERT_EQUAL(c.phase, HTTP_IDLE);
    http_connections_remove(&table, &c);
    http_connections_fini(&table);
}

static void test_api_http_connections__oldest_holder_goes_first(void)
{
    struct http_connections table;
    struct http_connection c[3];
    CU_ASSERT_TRUE_FATAL(http_connections_init(&table, 9, 9, 1000, 100, 100000));
    for (int i = 0; i < 3; i++) {
        add(&table, &c[i], "10.0.0.1", HTTP_RECEIVING, 0);
    }
    http_connections_hold(&table, &c[0], HTTP_HOLDER_BYTES - 1); /* too little to be a holder */
    http_connections_hold(&table, &c[2], 40000);
    http_connections_hold(&table, &c[1], 40000);
    CU_ASSERT_PTR_NULL(http_connections_greedy(&table, NULL));
    http_connections_hold(&table, &c[1], 60000);
    CU_ASSERT_EQUAL(table.held_bytes, 100000 + HTTP_HOLDER_BYTES - 1);
    CU_ASSERT_PTR_EQUAL(http_connections_greedy(&table, NULL), &c[2]);
    CU_ASSERT_PTR_EQUAL(http_connections_greedy(&table, &c[2]), &c[1]);
    http_connections_enter(&table, &c[2], HTTP_WAITING, 0); /* the connection waits for us */
    CU_ASSERT_PTR_EQUAL(http_connections_greedy(&table, NULL), &c[1]);
    http_connections_hold(&table, &c[1], 0);
    CU_ASSERT_PTR_NULL(http_connections_greedy(&table, NULL));
    for (int i = 0; i < 3; i++) {
        http_connections_remove(&table, &c[i]);
    }
    CU_ASSERT_EQUAL(table.held_bytes, 0);
    CU_ASSERT_TRUE(tally_list_is_empty(&table.holders));
    http_connections_fini(&table);
}

/* A connection that finishes within two turns is never checked; any other is checked once. */
static void test_api_http_connections__senders_are_marked_late(void)
{
    struct http_connections table;
    struct http_connection slow, quick;
    CU_ASSERT_TRUE_FATAL(http_connections_init(&table, 9, 9, 1000, 100, 1 << 20));
    CU_ASSERT_EQUAL(add(&table, &slow, "10.0.0.1", HTTP_IDLE, 0), HTTP_ADMITTED);
    CU_ASSERT_EQUAL(add(&table, &quick, "10.0.0.1", HTTP_IDLE, 0), HTTP_ADMITTED);
    http_connections_enter(&table, &slow, HTTP_SENDING, 0);
    for (unsigned turn = 1; turn <= 5; turn++) {
        http_connections_enter(&table, &quick, HTTP_SENDING, turn);
        http_connections_mark(&table);
        CU_ASSERT_EQUAL(quick.n_marks, 1);
        CU_ASSERT_EQUAL(slow.n_marks, turn < 3 ? turn : 3);
    }
    CU_ASSERT_PTR_EQUAL(http_connections_late(&table, 1000), &slow);
    http_connections_remove(&table, &slow);
    http_connections_remove(&table, &quick);
    http_connections_fini(&table);
}

/* Silence is measured by the owner's byte count if that is known, else by the socket's. */
static void test_api_http_connections__counted_bytes_are_the_mark(void)
{
    struct http_connections table;
    struct http_connection c;
    CU_ASSERT_TRUE_FATAL(http_connections_init(&table, 9, 9, 1000, 100, 1 << 20));
    CU_ASSERT_EQUAL(add(&table, &c, "10.0.0.1", HTTP_RECEIVING, 0), HTTP_ADMITTED);
    c.read_bytes = 7; /* more than the missing socket reports: new bytes have arrived */
    http_connections_enter(&table, &c, HTTP_IDLE, 0);
    CU_ASSERT_EQUAL(c.mark_bytes, 7);
    CU_ASSERT_PTR_NULL(http_connections_late(&table, 250));
    CU_ASSERT_EQUAL(c.phase, HTTP_RECEIVING);
    c.read_bytes = HTTP_READ_UNKNOWN;
    http_connections_enter(&table, &c, HTTP_IDLE, 300);
    CU_ASSERT_EQUAL(c.mark_bytes, 0);
    CU_ASSERT_PTR_NULL(http_connections_late(&table, 550));
    CU_ASSERT_EQUAL(c.phase, HTTP_IDLE);
    http_connections_remove(&table, &c);
    http_connections_fini(&table);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_api_http_connections__limits_are_inclusive),
    TALLY_TEST(test_api_http_connections__one_network_is_one_address),
    TALLY_TEST(test_api_http_connections__many_addresses_come_and_go),
    TALLY_TEST(test_api_http_connections__clocks_run_out_in_order),
    TALLY_TEST(test_api_http_connections__silence_is_no_request),
    TALLY_TEST(test_api_http_connections__oldest_holder_goes_first),
    TALLY_TEST(test_api_http_connections__senders_are_marked_late),
    TALLY_TEST(test_api_http_connections__counted_bytes_are_the_mark),
};

TALLY_SUITE(api_http_connections, TESTS);
