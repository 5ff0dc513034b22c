#include "tests/unit/api/http/http_fixture.h"

static void test_api_http_reading__pipelined_requests_are_answered_in_order(void)
{
    struct fixture f;
    fixture_open(&f);
    struct tally_buffer in = {.size = 0};
    const char *requests = "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\none"
                           "GET /wait HTTP/1.1\r\nHost: h\r\n\r\n"
                           "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nthree"
                           "GET /now HTTP/1.1\r\nHost: h\r\n\r\n";
    int fd = connected(&f);
    CU_ASSERT_TRUE(send_all(&f, fd, requests, strlen(requests)));
    await_requests(&f, 2);
    step_for(&f, 30);
    CU_ASSERT_EQUAL(f.n_requests, 2); /* the third waits for the second */
    answer_text(&f, f.waiting[0], 200, "two");
    await_requests(&f, 4);
    for (int64_t end = patience_end_ms(); in.size < f.out_bytes && step_before(&f, end);) {
        CU_ASSERT_TRUE(tally_raw_receive(fd, &in));
    }
    char bodies[64] = "";
    size_t n_bodies = 0;
    const char *at = (char *)in.data;
    for (size_t left = in.size; left > 0;) {
        size_t n = tally_raw_response_bytes(at, left, true);
        CU_ASSERT_TRUE_FATAL(n > 0);
        const char *body = strstr(at, "\r\n\r\n") + 4;
        n_bodies += (size_t)snprintf(bodies + n_bodies, sizeof bodies - n_bodies, "%.*s ",
                                     (int)(at + n - body), body);
        at += n;
        left -= n;
    }
    TALLY_ASSERT_TEXT(bodies, "one two three hello ");
    CU_ASSERT_EQUAL(f.in_bytes, strlen(requests));
    CU_ASSERT_EQUAL(f.out_bytes, in.size);
    close(fd);
    tally_buffer_fini(&in);
    fixture_close(&f);
}

static void test_api_http_reading__request_may_come_byte_by_byte(void)
{
    struct fixture f;
    fixture_open(&f);
    struct tally_buffer in = {.size = 0};
    const char *request =
        "POST /echo HTTP/1.1\r\nHost: h\r\nX-Slow: yes\r\nContent-Length: 4\r\n\r\nslow";
    int fd = connected(&f);
    for (const char *p = request; *p != '\0'; p++) {
        CU_ASSERT_EQUAL(f.n_requests, 0);
        CU_ASSERT_EQUAL(tally_raw_send(fd, p, 1), 1);
        step(&f, 5);
        step(&f, 0);
    }
    CU_ASSERT_TRUE(await_response(&f, fd, &in, true));
    TALLY_ASSERT_TEXT(body_of(&in), "slow");
    CU_ASSERT_EQUAL(f.in_bytes, strlen(request));
    CU_ASSERT_EQUAL(f.out_bytes, in.size);
    close(fd);
    tally_buffer_fini(&in);
    fixture_close(&f);
}

static void test_api_http_reading__client_may_leave_at_any_byte(void)
{
    struct fixture f;
    fixture_open(&f);
    const char *request = "POST /now HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nslow";
    for (size_t n = 0; n < strlen(request); n++) {
        int fd = connected(&f);
        (void)tally_raw_send(fd, request, n);
        step(&f, 2);
        if (n % 2 == 0) {
            close(fd);
        } else {
            tally_raw_reset(fd);
        }
        step(&f, 0);
    }
    await_connections(&f, 0);
    CU_ASSERT_EQUAL(f.n_requests, 0);
    CU_ASSERT_EQUAL(f.n_abandoned, 0);
    fixture_close(&f);
}

static void test_api_http_reading__junk_does_not_stop_it(void)
{
    static const char *const junk[] = {
        "\r\n\r\n\r\n",
        "nonsense\r\n\r\n",
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "GET /%zz%4%%00%ff?%=%&=&&q=%e HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nno colon\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\n: empty\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: abc\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\nxyz",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffffff\r\n",
        "PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n",
        "CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    };
    struct fixture f;
    fixture_open(&f);
    struct tally_buffer in = {.size = 0};
    for (size_t i = 0; i < sizeof junk / sizeof junk[0]; i++) {
        int fd = connected(&f);
        (void)send_all(&f, fd, junk[i], strlen(junk[i]));
        step_for(&f, 10);
        (void)tally_raw_receive(fd, &in);
        close(fd);
    }
    CU_ASSERT_EQUAL(ask(&f, "GET /now HTTP/1.1\r\nHost: h\r\n\r\n", &in), 200);
    CU_ASSERT_EQUAL(
        ask(&f, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\nxyz", &in), 501);
    tally_buffer_fini(&in);
    fixture_close(&f);
}

static void test_api_http_reading__huge_headers_are_refused(void)
{
    struct fixture f;
    fixture_open(&f);
    struct tally_buffer in = {.size = 0};
    size_t n = 200000;
    char *request = malloc(n + 1);
    memset(request, 'x', n);
    request[n] = '\0';
    memcpy(request, "GET / HTTP/1.1\r\nX: ", 19);
    int fd = connected(&f);
    (void)send_all(&f, fd, request, n);
    bool open = await_response(&f, fd, &in, true);
    CU_ASSERT_TRUE(in.size == 0 ? !open : status_of(&in) >= 400);
    close(fd);
    CU_ASSERT_EQUAL(f.n_requests, 0);
    CU_ASSERT_EQUAL(ask(&f, "GET /now HTTP/1.1\r\nHost: h\r\n\r\n", &in), 200);
    free(request);
    tally_buffer_fini(&in);
    fixture_close(&f);
}

/* The default action of SIGPIPE would end this program. */
static void test_api_http_reading__reader_that_leaves_midway_is_survived(void)
{
    struct fixture f;
    fixture_open(&f);
    const char *request = "GET /large HTTP/1.1\r\nHost: h\r\n\r\n";
    for (int i = 0; i < 4; i++) {
        struct tally_buffer in = {.size = 0};
        int fd = connected(&f);
        CU_ASSERT_TRUE(send_all(&f, fd, request, strlen(request)));
        step(&f, 5);
        (void)tally_raw_receive(fd, &in);
        if (i % 2 == 0) {
            tally_raw_reset(fd);
        } else {
            close(fd);
        }
        await_connections(&f, 0);
        tally_buffer_fini(&in);
    }
    CU_ASSERT_EQUAL(f.n_requests, 4);
    CU_ASSERT_EQUAL(f.n_abandoned, 0);
    fixture_close(&f);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_api_http_reading__pipelined_requests_are_answered_in_order),
    TALLY_TEST(test_api_http_reading__request_may_come_byte_by_byte),
    TALLY_TEST(test_api_http_reading__client_may_leave_at_any_byte),
    TALLY_TEST(test_api_http_reading__junk_does_not_stop_it),
    TALLY_TEST(test_api_http_reading__huge_headers_are_refused),
    TALLY_TEST(test_api_http_reading__reader_that_leaves_midway_is_survived),
};

TALLY_SUITE(api_http_reading, TESTS);
