#include "tests/unit/api/http/http_fixture.h"

static void test_api_http_responses__answer_at_once(void)
{
    struct fixture f;
    struct tally_buffer in = {.size = 0};
    fixture_open(&f);
    CU_ASSERT_EQUAL(ask(&f, "GET /now HTTP/1.1\r\nHost: h\r\n\r\n", &in), 200);
    TALLY_ASSERT_TEXT(body_of(&in), "hello");
    CU_ASSERT_TRUE(holds(&in, "Content-Type: text/plain\r\n"));
    CU_ASSERT_TRUE(holds(&in, "Content-Length: 5\r\n"));
    CU_ASSERT_TRUE(holds(&in, "Date: "));
    CU_ASSERT_FALSE(holds(&in, "Connection:"));
    CU_ASSERT_EQUAL(f.n_abandoned, 0);
    tally_buffer_fini(&in);
    fixture_close(&f);
}

static void test_api_http_responses__request_is_shown(void)
{
    struct fixture f;
    struct tally_buffer in = {.size = 0};
    fixture_open(&f);
    (void)ask(&f, "PUT /a%20b/c?q=x%2By&r HTTP/1.1\r\nHost: h\r\nX-TEST:  v 1\r\n\r\n", &in);
    TALLY_ASSERT_TEXT(f.last_method, "PUT");
    TALLY_ASSERT_TEXT(f.last_path, "/a b/c");
    TALLY_ASSERT_TEXT(f.last_query, "x+y");
    TALLY_ASSERT_TEXT(f.last_header, "v 1");
    (void)ask(&f, "GET / HTTP/1.1\r\nHost: h\r\n\r\n", &in);
    CU_ASSERT_FALSE(f.has_query);
    CU_ASSERT_FALSE(f.has_header);
    (void)ask(&f, "GET /?q HTTP/1.1\r\nHost: h\r\n\r\n", &in);
    CU_ASSERT_TRUE(f.has_query);
    TALLY_ASSERT_TEXT(f.last_query, "");
    tally_buffer_fini(&in);
    fixture_close(&f);
}

static void test_api_http_responses__body_is_collected(void)
{
    struct fixture f;
    struct tally_buffer in = {.size = 0};
    fixture_open(&f);
    CU_ASSERT_EQUAL(
        ask(&f, "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\n\r\nhello world", &in),
        200);
    TALLY_ASSERT_TEXT(body_of(&in), "hello world");
    CU_ASSERT_EQUAL(ask(&f, "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n", &in),
                    200);
    TALLY_ASSERT_TEXT(body_of(&in), "");
    tally_buffer_fini(&in);
    fixture_close(&f);
}

static void test_api_http_responses__chunked_body_is_joined(void)
{
    struct fixture f;
    struct tally_buffer in = {.size = 0};
    fixture_open(&f);
    const char *head = "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    char request[256];
    snprintf(request, sizeof request, "%s5\r\nhello\r\n1;ext=1\r\n \r\n5\r\nworld\r\n0\r\n\r\n",
             head);
    CU_ASSERT_EQUAL(ask(&f, request, &in), 200);
    TALLY_ASSERT_TEXT(body_of(&in), "hello world");
    CU_ASSERT_EQUAL(f.in_bytes, strlen(head) + 11); /* as documented: without the framing */
    tally_buffer_fini(&in);
    fixture_close(&f);
}

static void test_api_http_responses__extra_headers_are_sent(void)
{
    struct fixture f;
    struct tally_buffer in = {.size = 0};
    fixture_open(&f);
    CU_ASSERT_EQUAL(ask(&f, "GET /headers HTTP/1.1\r\nHost: h\r\n\r\n", &in), 201);
    CU_ASSERT_TRUE(holds(&in, "\r\nLocation: /v1/jobs/1\r\n"));
    CU_ASSERT_TRUE(holds(&in, "\r\nWWW-Authenticate: Bearer realm=\"tally\"\r\n"));
    CU_ASSERT_TRUE(holds(&in, "\r\nX-Last: 6\r\n"));
    CU_ASSERT_FALSE(holds(&in, "Injected"));
    CU_ASSERT_FALSE(holds(&in, "Connection"));
    CU_ASSERT_FALSE(holds(&in, "yesterday"));
    CU_ASSERT_EQUAL(f.out_bytes, in.size);
    tally_buffer_fini(&in);
    fixture_close(&f);
}

static void test_api_http_responses__head_is_get_without_body(void)
{
    struct fixture f;
    struct tally_buffer in = {.size = 0};
    fixture_open(&f);
    int fd = connected(&f);
    const char *request = "HEAD /now HTTP/1.1\r\nHost: h\r\n\r\n";
    CU_ASSERT_TRUE(send_all(&f, fd, request, strlen(request)));
    CU_ASSERT_TRUE(await_response(&f, fd, &in, false));
    TALLY_ASSERT_TEXT(f.last_method, "GET");
    CU_ASSERT_TRUE(holds(&in, "Content-Length: 5\r\n"));
    TALLY_ASSERT_TEXT(body_of(&in), "");
    close(fd);
    tally_buffer_fini(&in);
    fixture_close(&f);
}

/* Any number of headers is searched. Of several headers with one name, the first counts. */
static void test_api_http_responses__every_header_is_found(void)
{
    struct fixture f;
    struct tally_buffer in = {.size = 0};
    fixture_open(&f);
    for (int n_before = 0; n_before < 40; n_before++) {
        char request[2048] = "GET / HTTP/1.1\r\nHost: h\r\n";
        for (int i = 0; i < n_before; i++) {
            char line[32];
            snprintf(line, sizeof line, "X-Tes%d: no\r\n", i % 10);
            strcat(request, line);
        }
        strcat(request, "x-TEST: yes\r\nX-Test: twice\r\n\r\n");
        CU_ASSERT_EQUAL(ask(&f, request, &in), 200);
        TALLY_ASSERT_TEXT(f.last_header, "yes");
    }
    tally_buffer_fini(&in);
    fixture_close(&f);
}

static void test_api_http_responses__brief_answers_of_all_lengths(void)
{
    struct fixture f;
    struct tally_buffer in = {.size = 0};
    fixture_open(&f);
    const int fd = connected(&f);
    for (size_t i = 0; i < 2200; i++) { /* more lengths than are cached, twice */
        const size_t n = i % 1100;
        char request[64];
        snprintf(request, sizeof request, "GET /brief/%zu HTTP/1.1\r\nHost: h\r\n\r\n", n);
        in.size = 0;
        CU_ASSERT_TRUE(send_all(&f, fd, request, strlen(request)));
        CU_ASSERT_TRUE(await_response(&f, fd, &in, true));
        CU_ASSERT_TRUE(in.size > n && in.size < n + 100);
        CU_ASSERT_TRUE(n == 0 || (in.data[in.size - 1] == 'a' + n % 26 &&
                                  in.data[in.size - n] == 'a' + n % 26));
        CU_ASSERT_FALSE(holds(&in, "Date:"));
        CU_ASSERT_TRUE(holds(&in, "Content-Type: application/proto\r\n"));
    }
    close(fd);
    tally_buffer_fini(&in);
    fixture_close(&f);
}

/* Responses of the same length that are in progress together each have their own bytes. In each
 * turn, one peer leaves before its response is sent. */
static void test_api_http_responses__brief_answers_at_once(void)
{
    enum { N = 20, GONE = 7 };
    static const char request[] = "GET /wait HTTP/1.1\r\nHost: h\r\n\r\n";
    struct fixture f;
    int fds[N];
    fixture_open(&f);
    for (int turn = 0; turn < 3; turn++) {
        struct tally_buffer in = {.size = 0};
        for (size_t i = 0; i < N; i++) {
            fds[i] = connected(&f);
            CU_ASSERT_TRUE(send_all(&f, fds[i], request, strlen(request)));
            await_requests(&f, (size_t)turn * N + i + 1);
        }
        close(fds[GONE]);
        fds[GONE] = -1;
        for (size_t i = 0; i < N; i++) {
            if (f.waiting[i] != NULL) {
                answer_brief(&f, f.waiting[i], 50, (char)('A' + i));
            }
        }
        f.n_waiting = 0;
        for (size_t i = 0; i < N; i++) {
            in.size = 0;
            if (fds[i] >= 0) {
                CU_ASSERT_TRUE(await_response(&f, fds[i], &in, true));
                CU_ASSERT_TRUE(in.size > 50 && in.data[in.size - 1] == 'A' + i &&
                               in.data[in.size - 50] == 'A' + i);
                close(fds[i]);
            }
        }
        await_connections(&f, 0);
        tally_buffer_fini(&in);
    }
    fixture_close(&f);
}

/* Forgetting a body does not change the count of wire bytes. */
static void test_api_http_responses__a_body_can_be_forgotten(void)
{
    struct fixture f;
    struct tally_buffer in = {.size = 0};
    const char *request = "POST /wait HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello";
    unsigned n_open;
    size_t held_bytes, n_body;
    fixture_open(&f);
    int fd = connected(&f);
    CU_ASSERT_TRUE(send_all(&f, fd, request, strlen(request)));
    await_requests(&f, 1);
    tally_http_server_load(f.server, &n_open, &held_bytes);
    CU_ASSERT_TRUE(held_bytes >= 5);
    tally_http_forget_body(f.waiting[0]);
    tally_http_server_load(f.server, &n_open, &held_bytes);
    CU_ASSERT_EQUAL(held_bytes, 0);
    (void)tally_http_body(f.waiting[0], &n_body);
    CU_ASSERT_EQUAL(n_body, 0);
    CU_ASSERT_EQUAL(tally_http_wire_in_bytes(f.waiting[0]), strlen(request));
    answer_text(&f, f.waiting[0], 200, "later");
    (void)await_response(&f, fd, &in, true);
    CU_ASSERT_EQUAL(status_of(&in), 200);
    close(fd);
    tally_buffer_fini(&in);
    fixture_close(&f);
}

static struct tally_shared_bytes *make_tail(void)
{
    struct tally_buffer bytes = {.size = 0};
    CU_ASSERT_EQUAL_FATAL(tally_buffer_reserve(&bytes, TAIL_BYTES), TALLY_OK);
    for (size_t i = 0; i < TAIL_BYTES; i++) {
        bytes.data[i] = (uint8_t)('a' + i % 23);
    }
    bytes.size = TAIL_BYTES;
    struct tally_shared_bytes *tail = tally_shared_bytes_new(&bytes);
    CU_ASSERT_PTR_NOT_NULL_FATAL(tail);
    return tail;
}

/* Responses share a tail, even when some readers leave early. */
static void test_api_http_responses__answers_share_a_tail(void)
{
    enum { N = 4 };
    static const char REQUEST[] = "GET /tail HTTP/1.1\r\nHost: h\r\n\r\n";
    struct fixture f;
    struct tally_buffer in[N] = {{.size = 0}};
    int fds[N];
    unsigned n_open;
    size_t held_bytes;
    fixture_open(&f);
    struct tally_shared_bytes *tail = f.tail = make_tail();
    for (size_t i = 0; i < N; i++) {
        fds[i] = connected(&f);
        CU_ASSERT_TRUE(send_all(&f, fds[i], REQUEST, sizeof REQUEST - 1));
    }
    await_requests(&f, N);
    CU_ASSERT_EQUAL(tail->n_holders, N + 1);
    tally_http_server_load(f.server, &n_open, &held_bytes);
    CU_ASSERT_TRUE(held_bytes > TAIL_BYTES && held_bytes < 2 * TAIL_BYTES); /* 1/2 + 1/3 + ... */
    close(fds[0]);
    tally_raw_reset(fds[1]);
    uint64_t n_in = 0;
    for (size_t i = 2; i < N; i++) {
        (void)await_response(&f, fds[i], &in[i], true);
        const char *body = body_of(&in[i]);
        CU_ASSERT_EQUAL_FATAL(body - (char *)in[i].data + 5 + TAIL_BYTES, (long)in[i].size);
        CU_ASSERT_EQUAL(memcmp(body, "begin", 5), 0);
        CU_ASSERT_EQUAL(memcmp(body + 5, tail->bytes.data, TAIL_BYTES), 0);
        n_in += in[i].size;
        tally_buffer_fini(&in[i]);
    }
    CU_ASSERT_EQUAL(f.out_bytes, 2 * n_in);
    await_connections(&f, 2);
    CU_ASSERT_EQUAL(tail->n_holders, 1);
    tally_http_server_load(f.server, &n_open, &held_bytes);
    CU_ASSERT_EQUAL(held_bytes, 0);
    tally_shared_bytes_release(tail);
    close(fds[2]);
    close(fds[3]);
    fixture_close(&f);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_api_http_responses__answer_at_once),
    TALLY_TEST(test_api_http_responses__request_is_shown),
    TALLY_TEST(test_api_http_responses__body_is_collected),
    TALLY_TEST(test_api_http_responses__chunked_body_is_joined),
    TALLY_TEST(test_api_http_responses__extra_headers_are_sent),
    TALLY_TEST(test_api_http_responses__head_is_get_without_body),
    TALLY_TEST(test_api_http_responses__every_header_is_found),
    TALLY_TEST(test_api_http_responses__brief_answers_of_all_lengths),
    TALLY_TEST(test_api_http_responses__brief_answers_at_once),
    TALLY_TEST(test_api_http_responses__answers_share_a_tail),
    TALLY_TEST(test_api_http_responses__a_body_can_be_forgotten),
};

TALLY_SUITE(api_http_responses, TESTS);
