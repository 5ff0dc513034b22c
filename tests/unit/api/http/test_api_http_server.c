#include "tests/unit/api/http/http_fixture.h"

static void test_api_http_server__step_ends_by_time_and_by_wake(void)
{
    struct fixture f;
    fixture_open(&f);
    int64_t start = manual_clock_real_ms();
    step(&f, 60);
    CU_ASSERT_TRUE(manual_clock_real_ms() - start >= 55);
    int wake = eventfd(1, EFD_CLOEXEC);
    start = manual_clock_real_ms();
    CU_ASSERT_EQUAL(tally_http_server_step(f.server, -1, wake, NULL), TALLY_OK);
    CU_ASSERT_TRUE(manual_clock_real_ms() - start < 30000);
    close(wake);
    fixture_close(&f);
}

static void test_api_http_server__quiesce_lets_open_connections_go_on(void)
{
    struct fixture f;
    fixture_open(&f);
    struct tally_buffer in = {.size = 0};
    int fd = wait_on_new_connection(&f);
    tally_http_server_quiesce(f.server);
    tally_http_server_quiesce(f.server);
    CU_ASSERT_TRUE(tally_raw_connect(f.port) < 0);
    answer_text(&f, f.waiting[0], 200, "drained");
    CU_ASSERT_TRUE(await_response(&f, fd, &in, true));
    TALLY_ASSERT_TEXT(body_of(&in), "drained");
    close(fd);
    tally_buffer_fini(&in);
    fixture_close(&f);
}

static void on_none(void *context, struct tally_http_request *request)
{
    (void)context, (void)request;
    CU_FAIL("a request to a server that gets none");
}

static enum tally_status open_on(const char *listen, struct tally_http_server **ret_server,
                                 struct tally_error *err)
{
    struct tally_http_server_config config = {
        .listen = listen, .max_body_bytes = 10, .on_request = on_none, .on_abandoned = on_none};
    return tally_http_server_new(&config, ret_server, err);
}

static void test_api_http_server__bad_addresses_are_refused(void)
{
    static const char *const bad[] = {"",
                                      "127.0.0.1",
                                      ":8080",
                                      "127.0.0.1:",
                                      "127.0.0.1:65536",
                                      "127.0.0.1:-1",
                                      "127.0.0.1:80x",
                                      "127.0.0.1:000080",
                                      "::1:8080",
                                      "[::1]",
                                      "[::1:80",
                                      "[]:80",
                                      "[127.0.0.1]:80",
                                      "localhost:80",
                                      "1.2.3:99999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct tally_http_server *server = NULL;
        struct tally_error err = TALLY_ERROR_INIT;
        TALLY_ASSERT_STATUS(open_on(bad[i], &server, &err), TALLY_INVALID_ARGUMENT, &err);
        TALLY_ASSERT_TEXT(err.field, "listen");
        CU_ASSERT_PTR_NULL(server);
    }
}

static void test_api_http_server__taken_port_is_named(void)
{
    struct fixture f;
    struct tally_buffer in = {.size = 0};
    fixture_open(&f);
    char listen[32];
    char expected[96];
    snprintf(listen, sizeof listen, "127.0.0.1:%u", f.port);
    snprintf(expected, sizeof expected, "cannot listen on %s: Address already in use", listen);
    struct tally_http_server *second = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(open_on(listen, &second, &err), TALLY_UNAVAILABLE, &err);
    TALLY_ASSERT_TEXT(err.message, expected);
    /* A closed server's port is free at once, although a connection that the server ended lingers
     * in TIME_WAIT. */
    int fd = connected(&f);
    const char *request = "GET /now HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    CU_ASSERT_TRUE(send_all(&f, fd, request, strlen(request)));
    await_end(&f, fd, &in);
    close(fd);
    tally_buffer_fini(&in);
    fixture_close(&f);
    tally_error_clear(&err);
    TALLY_ASSERT_STATUS(open_on(listen, &second, &err), TALLY_OK, &err);
    tally_http_server_free(second);
}

static void test_api_http_server__ipv6_loopback(void)
{
    struct tally_http_server *server = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    enum tally_status status = open_on("[::1]:0", &server, &err);
    if (status == TALLY_UNAVAILABLE) {
        return; /* this machine has no IPv6 */
    }
    TALLY_ASSERT_STATUS(status, TALLY_OK, &err);
    struct sockaddr_in6 address = {.sin6_family = AF_INET6,
                                   .sin6_addr = IN6ADDR_LOOPBACK_INIT,
                                   .sin6_port = htons(tally_http_server_port(server))};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CU_ASSERT_EQUAL(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    CU_ASSERT_EQUAL(tally_http_server_step(server, 10, -1, NULL), TALLY_OK);
    close(fd);
    tally_http_server_free(server);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_api_http_server__step_ends_by_time_and_by_wake),
    TALLY_TEST(test_api_http_server__quiesce_lets_open_connections_go_on),
    TALLY_TEST(test_api_http_server__bad_addresses_are_refused),
    TALLY_TEST(test_api_http_server__taken_port_is_named),
    TALLY_TEST(test_api_http_server__ipv6_loopback),
};

TALLY_SUITE(api_http_server, TESTS);
