#include "tests/unit/api/http/http_fixture.h"

static int post_of_length(struct fixture *f, size_t n, struct tally_buffer *in)
{
    char request[MAX_BODY + 256];
    int head = snprintf(request, sizeof request,
                        "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n", n);
    memset(request + head, 'b', n);
    request[(size_t)head + n] = '\0';
    return ask(f, request, in);
}

static void test_api_http_limits__body_limit_is_inclusive(void)
{
    struct fixture f;
    struct tally_buffer in = {.size = 0};
    fixture_open(&f);
    CU_ASSERT_EQUAL(post_of_length(&f, MAX_BODY, &in), 200);
    CU_ASSERT_EQUAL(f.n_requests, 1);
    CU_ASSERT_EQUAL(post_of_length(&f, MAX_BODY + 1, &in), 413);
    CU_ASSERT_EQUAL(f.n_requests, 1); /* the handler does not see the second */
    CU_ASSERT_TRUE(holds(&in, "Connection: close\r\n"));
    CU_ASSERT_TRUE(holds(&in, "Content-Type: application/problem+json\r\n"));
    TALLY_ASSERT_TEXT(body_of(&in),
                      "{\"type\": \"about:blank\", \"title\": \"content too large\", \"status\": "
                      "413, \"detail\": \"body longer than 1000 bytes\", \"code\": \"too_large\"}");
    CU_ASSERT_EQUAL(f.n_abandoned, 0);
    tally_buffer_fini(&in);
    fixture_close(&f);
}

static void test_api_http_limits__too_long_is_refused_before_the_body(void)
{
    static const char *const lengths[] = {"1001", "18446744073709551615"};
    struct fixture f;
    fixture_open(&f);
    for (size_t i = 0; i < 2; i++) {
        for (int expect = 0; expect < 2; expect++) {
            struct tally_buffer in = {.size = 0};
            char request[256];
            int n = snprintf(request, sizeof request,
                             "POST /echo HTTP/1.1\r\nHost: h\r\n%sContent-Length: %s\r\n\r\n",
                             expect ? "Expect: 100-continue\r\n" : "", lengths[i]);
            int fd = connected(&f);
            CU_ASSERT_TRUE(send_all(&f, fd, request, (size_t)n));
            await_end(&f, fd, &in);
            CU_ASSERT_EQUAL(status_of(&in), 413); /* without a 100 Continue before it */
            close(fd);
            tally_buffer_fini(&in);
        }
    }
    CU_ASSERT_EQUAL(f.n_requests, 0);
    fixture_close(&f);
}

/* Sends chunks of 100 bytes and a last one of `n_rest` bytes. Returns the status of the response; 0
 * if the connection broke instead. */
static int post_chunks(struct fixture *f, size_t n_chunks, int n_rest)
{
    const char *head = "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    char chunk[112];
    snprintf(chunk, sizeof chunk, "64\r\n%0100d\r\n", 7);
    struct tally_buffer in = {.size = 0};
    int fd = connected(f);
    bool ok = send_all(f, fd, head, strlen(head));
    for (size_t i = 0; ok && i < n_chunks; i++) {
        ok = send_all(f, fd, chunk, strlen(chunk));
    }
    if (ok && n_rest > 0) {
        int n = snprintf(chunk, sizeof chunk, "%x\r\n%0*d\r\n", (unsigned)n_rest, n_rest, 7);
        ok = send_all(f, fd, chunk, (size_t)n);
    }
    if (ok) {
        (void)send_all(f, fd, "0\r\n\r\n", 5);
    }
    bool open = await_response(f, fd, &in, true);
    int status = in.size > 0 ? status_of(&in) : 0;
    if (status == 413) {
        await_end(f, fd, &in);
        CU_ASSERT_TRUE(holds(&in, "Connection: close\r\n"));
    } else {
        CU_ASSERT_TRUE(open == (status == 200));
    }
    close(fd);
    tally_buffer_fini(&in);
    return status;
}

static void test_api_http_limits__chunked_body_limit(void)
{
    struct fixture f;
    fixture_open(&f);
    CU_ASSERT_EQUAL(post_chunks(&f, MAX_BODY / 100, 0), 200);
    CU_ASSERT_EQUAL(f.n_requests, 1);
    CU_ASSERT_EQUAL(post_chunks(&f, MAX_BODY / 100, 1), 413);
    CU_ASSERT_EQUAL(post_chunks(&f, 1000, 0), 413);
    CU_ASSERT_EQUAL(post_chunks(&f, 20000, 0), 413); /* 2 MB: answered at once, then discarded */
    CU_ASSERT_EQUAL(f.n_requests, 1);
    CU_ASSERT_EQUAL(f.n_abandoned, 0);
    fixture_close(&f);
}

static void test_api_http_limits__connections_are_limited(void)
{
    struct fixture f;
    fixture_open_with(&f, 2, 0);
    int first = wait_on_new_connection(&f);
    int second = wait_on_new_connection(&f);
    const char *request = "GET /now HTTP/1.1\r\nHost: h\r\n\r\n";
    struct tally_buffer in = {.size = 0};
    CU_ASSERT_EQUAL(ask(&f, request, &in), 503);
    CU_ASSERT_TRUE(holds(&in, "all 2 connections are taken"));
    CU_ASSERT_TRUE(holds(&in, "\r\nRetry-After: 1\r\n"));
    CU_ASSERT_EQUAL(f.n_requests, 2);
    CU_ASSERT_EQUAL(f.refused[TALLY_HTTP_REFUSED_CONNECTIONS], 1);
    close(first);
    await_abandoned(&f, 1);
    CU_ASSERT_EQUAL(ask(&f, request, &in), 200);
    close(second);
    tally_buffer_fini(&in);
    fixture_close(&f);
}

static void test_api_http_limits__headers_too_long_get_a_problem_document(void)
{
    struct fixture f;
    struct tally_buffer in = {.size = 0};
    fixture_open_config(&f, (struct tally_http_server_config){.max_header_bytes = 2000});
    char request[4096];
    for (int excess = 0; excess < 2; excess++) {
        const char *end = "\r\n\r\n";
        int n = snprintf(request, sizeof request, "GET /now HTTP/1.1\r\nHost: h\r\nX-Long: ");
        const size_t n_value = 2000 - (size_t)n - strlen(end) + (size_t)excess;
        memset(request + n, 'x', n_value);
        memcpy(request + (size_t)n + n_value, end, strlen(end) + 1);
        CU_ASSERT_EQUAL(ask(&f, request, &in), excess == 0 ? 200 : 431);
    }
    CU_ASSERT_TRUE(holds(&in, "Content-Type: application/problem+json\r\n"));
    CU_ASSERT_TRUE(holds(&in, "longer than 2000 bytes"));
    CU_ASSERT_TRUE(holds(&in, "\r\nX-Request-Id: id-1\r\n"));
    CU_ASSERT_EQUAL(f.refused[TALLY_HTTP_REFUSED_HEADERS], 1);
    CU_ASSERT_EQUAL(f.last_refusal_status, 431);
    CU_ASSERT_EQUAL(f.n_requests, 1);
    tally_buffer_fini(&in);
    fixture_close(&f);
}

static void test_api_http_limits__refusals_are_told(void)
{
    static const struct {
        const char *request;
        int status;
        enum tally_http_refusal_reason reason;
    } cases[] = {
        {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n", 413,
         TALLY_HTTP_REFUSED_BODY},
        {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n", 501,
         TALLY_HTTP_REFUSED_UNIMPLEMENTED},
        {"GET /a%00b HTTP/1.1\r\n\r\n", 400, TALLY_HTTP_REFUSED_MALFORMED},
        {"GET /now?q=%00 HTTP/1.1\r\n\r\n", 400, TALLY_HTTP_REFUSED_MALFORMED},
        {"GET /now?%00=1 HTTP/1.1\r\n\r\n", 400, TALLY_HTTP_REFUSED_MALFORMED},
        {"GET / HTTP/1.1\r\n\r\n", 400, TALLY_HTTP_REFUSED_MALFORMED},
        {"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400, TALLY_HTTP_REFUSED_MALFORMED},
        {"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400, TALLY_HTTP_REFUSED_LIBRARY},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture f;
        struct tally_buffer in = {.size = 0};
        fixture_open(&f);
        CU_ASSERT_EQUAL(ask(&f, cases[i].request, &in), cases[i].status);
        CU_ASSERT_EQUAL(f.refused[cases[i].reason], 1);
        CU_ASSERT_EQUAL(f.last_refusal_status, cases[i].status);
        CU_ASSERT_EQUAL(f.n_requests, 0);
        CU_ASSERT_EQUAL(holds(&in, "\r\nX-Request-Id: id-"),
                        cases[i].reason != TALLY_HTTP_REFUSED_LIBRARY);
        CU_ASSERT_EQUAL(ask(&f, "GET /now?q=%30 HTTP/1.1\r\nHost: h\r\n\r\n", &in), 200);
        TALLY_ASSERT_TEXT(f.last_query, "0");
        tally_buffer_fini(&in);
        fixture_close(&f);
    }
}

/* A client that sends everything before it reads receives its response, not a reset. */
static void test_api_http_limits__refusal_reaches_a_client_that_sends_on(void)
{
    struct fixture f;
    struct tally_buffer in = {.size = 0};
    fixture_open(&f);
    enum { N = 8 << 20 };
    char *body = calloc(1, N);
    const char *head = "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 8388608\r\n\r\n";
    int fd = connected(&f);
    CU_ASSERT_TRUE(send_all(&f, fd, head, strlen(head)));
    while (f.refused[TALLY_HTTP_REFUSED_BODY] == 0) {
        step(&f, 5);
    }
    while (tally_list_is_empty(
        &f.server->peers.table.phases[HTTP_LINGERING])) { /* until MHD has closed it */
        step(&f, 5);
    }
    CU_ASSERT_TRUE(send_all(&f, fd, body, N));
    await_end(&f, fd, &in);
    CU_ASSERT_EQUAL(status_of(&in), 413);
    close(fd);
    await_connections(&f, 0);
    free(body);
    tally_buffer_fini(&in);
    fixture_close(&f);
}

static int connected_from(const struct fixture *f, const char *source)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in from = {.sin_family = AF_INET};
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(f->port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    CU_ASSERT_EQUAL_FATAL(inet_pton(AF_INET, source, &from.sin_addr), 1);
    CU_ASSERT_EQUAL_FATAL(bind(fd, (struct sockaddr *)&from, sizeof from), 0);
    CU_ASSERT_EQUAL_FATAL(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    (void)fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static void test_api_http_limits__connections_per_address_are_limited(void)
{
    struct fixture f;
    struct tally_buffer in = {.size = 0};
    fixture_open_config(&f, (struct tally_http_server_config){.max_connections_per_address = 2});
    const char *request = "GET /now HTTP/1.1\r\nHost: h\r\n\r\n";
    int first = wait_on_new_connection(&f);
    int second = wait_on_new_connection(&f);
    CU_ASSERT_EQUAL(ask(&f, request, &in), 503);
    CU_ASSERT_TRUE(holds(&in, "all 2 connections of one address are taken"));
    CU_ASSERT_EQUAL(f.refused[TALLY_HTTP_REFUSED_ADDRESS], 1);
    int other = connected_from(&f, "127.0.0.2");
    in.size = 0;
    CU_ASSERT_TRUE(send_all(&f, other, request, strlen(request)));
    CU_ASSERT_TRUE(await_response(&f, other, &in, true));
    CU_ASSERT_EQUAL(status_of(&in), 200);
    close(first);
    await_abandoned(&f, 1);
    CU_ASSERT_EQUAL(ask(&f, request, &in), 200);
    close(second);
    close(other);
    tally_buffer_fini(&in);
    fixture_close(&f);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_api_http_limits__body_limit_is_inclusive),
    TALLY_TEST(test_api_http_limits__too_long_is_refused_before_the_body),
    TALLY_TEST(test_api_http_limits__chunked_body_limit),
    TALLY_TEST(test_api_http_limits__connections_are_limited),
    TALLY_TEST(test_api_http_limits__headers_too_long_get_a_problem_document),
    TALLY_TEST(test_api_http_limits__refusals_are_told),
    TALLY_TEST(test_api_http_limits__refusal_reaches_a_client_that_sends_on),
    TALLY_TEST(test_api_http_limits__connections_per_address_are_limited),
};

TALLY_SUITE(api_http_limits, TESTS);
