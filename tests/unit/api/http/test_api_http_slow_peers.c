#include "tests/unit/api/http/http_fixture.h"

static void test_api_http_slow_peers__idle_connections_are_closed_waiting_ones_not(void)
{
    struct fixture f;
    fixture_open_with(&f, 0, 1);
    struct tally_buffer in = {.size = 0};
    int waiting = wait_on_new_connection(&f);
    int idle = connected(&f);
    await_end(&f, idle, &in);
    step_for(&f, 1200);
    CU_ASSERT_EQUAL(f.n_abandoned, 0);
    answer_text(&f, f.waiting[0], 200, "patience");
    in.size = 0;
    CU_ASSERT_TRUE(await_response(&f, waiting, &in, true));
    TALLY_ASSERT_TEXT(body_of(&in), "patience");
    close(waiting);
    close(idle);
    tally_buffer_fini(&in);
    fixture_close(&f);
}

/* Sends `text` byte by byte, 40 bytes per second of the server's clock. Returns the milliseconds
 * until the connection ended. */
static int64_t trickle(struct fixture *f, int fd, const char *text, struct tally_buffer *in)
{
    const int64_t began = tally_monotonic_ms();
    bool open = true;
    for (size_t i = 0; open && tally_monotonic_ms() - began < PATIENCE_MS; i++) {
        open = tally_raw_send(fd, &text[i % strlen(text)], 1) >= 0;
        pass_time(f, 25);
        open = tally_raw_receive(fd, in) && open;
    }
    CU_ASSERT_FALSE(open);
    return tally_monotonic_ms() - began;
}

static void test_api_http_slow_peers__slow_requests_are_dropped(void)
{
    static const char *const begins[] = {
        "GET /now HTTP/1.1\r\nX: ",
        "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 900\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n384\r\n",
        "",
        "GET /now HTTP/1.1\r\nHost: h\r\n\r\nGET /now HTTP/1.1\r\nX: ", /* the second is slow */
    };
    for (size_t i = 0; i < sizeof begins / sizeof begins[0]; i++) {
        struct fixture f;
        struct tally_buffer in = {.size = 0};
        fixture_open_config(&f, (struct tally_http_server_config){.request_timeout_s = 1});
        int fd = connected(&f);
        CU_ASSERT_TRUE(send_all(&f, fd, begins[i], strlen(begins[i])));
        const int64_t ms = trickle(&f, fd, "x", &in);
        CU_ASSERT_TRUE(ms >= 900); /* not before the timeout */
        CU_ASSERT_TRUE(ms < PATIENCE_MS);
        CU_ASSERT_EQUAL(f.refused[TALLY_HTTP_REFUSED_REQUEST_TIMEOUT], 1);
        CU_ASSERT_TRUE(holds(&in, "HTTP/1.1 408 Request Timeout\r\n"));
        CU_ASSERT_TRUE(holds(&in, "\"status\": 408"));
        CU_ASSERT_EQUAL(f.n_requests, i == 4 ? 1 : 0);
        close(fd);
        tally_buffer_fini(&in);
        fixture_close(&f);
    }
}

/* What on_part has seen. The line is that of the sender. */
static struct parts {
    unsigned n_calls, n_wanted;
    struct tally_http_line line;
} parts;

static bool on_part(void *context, struct tally_http_request *request)
{
    (void)context;
    size_t n;
    CU_ASSERT_PTR_NOT_NULL(tally_http_body(request, &n));
    CU_ASSERT_TRUE(n > 0);
    tally_http_line_attach(&parts.line, request);
    return ++parts.n_calls == parts.n_wanted;
}

/* A body may take several times request_timeout_s, and is reported meanwhile. */
static void test_api_http_slow_peers__steady_bodies_are_not_dropped(void)
{
    enum { N = 900, STEP = 10 }; /* 400 bytes a second */
    struct fixture f;
    struct tally_buffer in = {.size = 0};
    struct tally_http_motion motion;
    parts = (struct parts){.n_wanted = 2};
    fixture_open_config(
        &f, (struct tally_http_server_config){.request_timeout_s = 1, .on_part = on_part});
    int fd = connected(&f);
    char text[N];
    memset(text, 'x', sizeof text);
    manual_clock_stop();
    const char *head = "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 900\r\n\r\n";
    CU_ASSERT_TRUE(send_all(&f, fd, head, strlen(head)));
    for (size_t n = 0; n < N; n += STEP) {
        CU_ASSERT_TRUE(send_all(&f, fd, text + n, STEP));
        pass_time(&f, 25);
        if (n == N / 2) {
            CU_ASSERT_TRUE(tally_http_line_look(&parts.line, &motion));
            CU_ASSERT_TRUE(motion.is_upload);
            CU_ASSERT_TRUE(motion.has_moved);
            CU_ASSERT_EQUAL(motion.n, N / 2 + STEP);
            CU_ASSERT_EQUAL(motion.n_whole, N);
            CU_ASSERT_TRUE(tally_http_line_look(&parts.line, &motion));
            CU_ASSERT_FALSE(motion.has_moved);
        }
    }
    manual_clock_run();
    CU_ASSERT_TRUE(await_response(&f, fd, &in, true));
    CU_ASSERT_EQUAL(status_of(&in), 200);
    CU_ASSERT_EQUAL(parts.n_calls, 2);
    CU_ASSERT_FALSE(tally_http_line_look(&parts.line, &motion)); /* a short response */
    close(fd);
    await_connections(&f, 0);
    CU_ASSERT_PTR_NULL(parts.line.peer);
    tally_buffer_fini(&in);
    fixture_close(&f);
}

/* A response is on its way until its last byte is acknowledged. */
static void test_api_http_slow_peers__a_line_sees_a_response_leave(void)
{
    struct fixture f;
    struct tally_buffer in = {.size = 0};
    struct tally_http_motion motion;
    struct tally_http_line line = {0}, other = {0};
    fixture_open(&f);
    int fd = wait_on_new_connection(&f);
    tally_http_line_attach(&other, f.waiting[0]);
    tally_http_line_attach(&line, f.waiting[0]); /* replaces the other */
    CU_ASSERT_PTR_NULL(other.peer);
    CU_ASSERT_FALSE(tally_http_line_look(&line, &motion)); /* it waits for the response */
    struct tally_buffer body = {.size = 0};
    CU_ASSERT_EQUAL_FATAL(tally_buffer_reserve(&body, 8 << 20), TALLY_OK);
    memset(body.data, 'x', 8 << 20);
    body.size = 8 << 20;
    const struct tally_http_response response = {.status = 200, .body = &body};
    answer(&f, f.waiting[0], &response);
    step(&f, 0);
    CU_ASSERT_TRUE(tally_http_line_look(&line, &motion));
    CU_ASSERT_FALSE(motion.is_upload);
    CU_ASSERT_TRUE(motion.n < motion.n_whole);
    CU_ASSERT_TRUE(motion.n_whole > 8 << 20);
    CU_ASSERT_TRUE(await_response(&f, fd, &in, true));
    for (const int64_t end = patience_end_ms();
         tally_http_line_look(&line, &motion) && step_before(&f, end);) {
    }
    CU_ASSERT_FALSE(tally_http_line_look(&line, &motion));
    tally_http_line_detach(&line);
    close(fd);
    tally_buffer_fini(&in);
    fixture_close(&f);
}

static void test_api_http_slow_peers__time_of_the_handler_is_not_the_clients(void)
{
    struct fixture f;
    struct tally_buffer in = {.size = 0};
    fixture_open_config(&f, (struct tally_http_server_config){.request_timeout_s = 1});
    int fd = wait_on_new_connection(&f);
    pass_time(&f, 1500);
    CU_ASSERT_EQUAL(f.n_abandoned, 0);
    answer_text(&f, f.waiting[0], 200, "late");
    CU_ASSERT_TRUE(await_response(&f, fd, &in, true));
    TALLY_ASSERT_TEXT(body_of(&in), "late");
    pass_time(&f, 1500); /* silence between two requests does not count */
    const char *request = "GET /now HTTP/1.1\r\nHost: h\r\n\r\n";
    in.size = 0;
    CU_ASSERT_TRUE(send_all(&f, fd, request, strlen(request)));
    CU_ASSERT_TRUE(await_response(&f, fd, &in, true));
    CU_ASSERT_EQUAL(status_of(&in), 200);
    close(fd);
    tally_buffer_fini(&in);
    fixture_close(&f);
}

/* Reads from an 8 MiB response for `ms` of the server's clock, at `pace` bytes per 25 ms. */
static void read_at_pace(struct fixture *f, size_t pace, long ms)
{
    char block[4096];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int small = 1;
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(f->port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const char *request = "GET /large HTTP/1.1\r\nHost: h\r\n\r\n";
    bool open = true;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    CU_ASSERT_EQUAL_FATAL(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    (void)fcntl(fd, F_SETFL, O_NONBLOCK);
    CU_ASSERT_TRUE(send_all(f, fd, request, strlen(request)));
    manual_clock_stop(); /* a pause of this process must not count */
    const int64_t end = patience_end_ms();
    for (long passed_ms = 0; open && passed_ms < ms; passed_ms += 25) {
        for (size_t n_read = 0; open && n_read < pace && step_before(f, end);) {
            const ssize_t n = recv(fd, block, pace - n_read, 0);
            open = n > 0 || (n < 0 && errno == EAGAIN);
            n_read += n > 0 ? (size_t)n : 0;
        }
        pass_time(f, 25);
    }
    manual_clock_run();
    close(fd);
}

static void test_api_http_slow_peers__slow_readers_are_dropped(void)
{
    struct fixture f;
    fixture_open_config(&f, (struct tally_http_server_config){.request_timeout_s = 1});
    /* Nothing, after the first bytes, which the kernel sends in a few pieces: every piece may save
     * the peer for another period, since its timers run by the real clock. */
    read_at_pace(&f, 0, 15000);
    CU_ASSERT_EQUAL(f.refused[TALLY_HTTP_REFUSED_SLOW_READER], 1);
    read_at_pace(&f, 4000, 2500); /* 160,000 a second */
    CU_ASSERT_EQUAL(f.refused[TALLY_HTTP_REFUSED_SLOW_READER], 1);
    fixture_close(&f);
}

static void test_api_http_slow_peers__memory_of_slow_peers_is_bounded(void)
{
    enum { N = 5, BODY = 450 * 1024 };
    struct fixture f;
    fixture_open_config(&f, (struct tally_http_server_config){.max_body_bytes = 1 << 20,
                                                              .max_held_bytes = 2 << 20});
    const char *head = "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n";
    char *body = calloc(1, BODY);
    int fds[N];
    unsigned n_open;
    size_t held_bytes = 0;
    for (size_t i = 0; i < N; i++) { /* the fifth is one too many: the first is dropped */
        const size_t n_taken = i < N - 1 ? i + 1 : i;
        fds[i] = connected(&f);
        CU_ASSERT_TRUE(send_all(&f, fds[i], head, strlen(head)));
        CU_ASSERT_TRUE(send_all(&f, fds[i], body, BODY));
        for (const int64_t end = patience_end_ms();
             (held_bytes < n_taken * BODY || f.server->peers.table.n > N - 1) &&
             step_before(&f, end);) {
            tally_http_server_load(f.server, &n_open, &held_bytes);
        }
    }
    step(&f, 0);
    tally_http_server_load(f.server, &n_open, &held_bytes);
    CU_ASSERT_TRUE(held_bytes <= 2 << 20);
    CU_ASSERT_EQUAL(f.refused[TALLY_HTTP_REFUSED_MEMORY], 1);
    CU_ASSERT_EQUAL(n_open, N - 1);
    struct tally_buffer in = {.size = 0};
    CU_ASSERT_FALSE(tally_raw_receive(fds[0], &in)); /* the oldest */
    CU_ASSERT_EQUAL(ask(&f, "GET /now HTTP/1.1\r\nHost: h\r\n\r\n", &in), 200);
    for (size_t i = 0; i < N; i++) {
        close(fds[i]);
    }
    for (const int64_t end = patience_end_ms(); held_bytes > 0 && step_before(&f, end);) {
        tally_http_server_load(f.server, &n_open, &held_bytes);
    }
    CU_ASSERT_EQUAL(held_bytes, 0);
    tally_buffer_fini(&in);
    free(body);
    fixture_close(&f);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_api_http_slow_peers__idle_connections_are_closed_waiting_ones_not),
    TALLY_TEST(test_api_http_slow_peers__slow_requests_are_dropped),
    TALLY_TEST(test_api_http_slow_peers__steady_bodies_are_not_dropped),
    TALLY_TEST(test_api_http_slow_peers__a_line_sees_a_response_leave),
    TALLY_TEST(test_api_http_slow_peers__time_of_the_handler_is_not_the_clients),
    TALLY_TEST(test_api_http_slow_peers__slow_readers_are_dropped),
    TALLY_TEST(test_api_http_slow_peers__memory_of_slow_peers_is_bounded),
};

TALLY_SUITE(api_http_slow_peers, TESTS);
