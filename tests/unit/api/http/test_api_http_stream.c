/* Streams of the HTTP server. The test runs the server and the clients in one thread. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/http/http_server.h"
#include "tests/harness.h"
#include "tests/unit/api/manual_clock.h"
#include "tests/unit/api/raw_socket.h"

enum { MAX_STREAMS = 512, PATIENCE_MS = 120000, PENDING_BYTES = 64 * 1024 };

/* A server that answers "/stream" with a stream and any other path with "hello". The test itself
 * answers "/later". */
struct fixture {
    struct tally_http_server *server;
    struct tally_http_stream *streams[MAX_STREAMS]; /* NULL = closed */
    size_t n_streams, n_closed, n_drained;
    struct tally_http_request *later;
    size_t n_to_make; /* bytes that on_drained still writes before it ends the stream */
    bool makes;
};

static void on_drained(void *context, struct tally_http_stream *stream)
{
    struct fixture *f = context;
    char piece[5000];
    f->n_drained++;
    if (!f->makes) {
        return;
    }
    size_t n = f->n_to_make < sizeof piece ? f->n_to_make : sizeof piece;
    memset(piece, 'm', n);
    CU_ASSERT_EQUAL(tally_http_stream_write(stream, piece, n), TALLY_OK);
    f->n_to_make -= n;
    if (f->n_to_make == 0) {
        tally_http_stream_end(stream);
        tally_http_stream_end(stream);
    }
}

static void on_closed(void *context, struct tally_http_stream *stream)
{
    struct fixture *f = context;
    f->n_closed++;
    size_t i = 0;
    while (i < f->n_streams && f->streams[i] != stream) {
        i++;
    }
    CU_ASSERT_TRUE_FATAL(i < f->n_streams); /* known, and not closed before */
    f->streams[i] = NULL;
}

static void start_stream(struct fixture *f, struct tally_http_request *request)
{
    const struct tally_http_response response = {.status = 200,
                                                 .content_type = "text/event-stream",
                                                 .headers = {{"Cache-Control", "no-store"}}};
    const struct tally_http_stream_config config = {.max_pending_bytes = PENDING_BYTES,
                                                    .on_drained = on_drained,
                                                    .on_closed = on_closed,
                                                    .context = f};
    CU_ASSERT_TRUE_FATAL(f->n_streams < MAX_STREAMS);
    struct tally_http_stream **stream = &f->streams[f->n_streams++];
    CU_ASSERT_EQUAL_FATAL(tally_http_respond_stream(request, &response, &config, stream), TALLY_OK);
}

static void on_request(void *context, struct tally_http_request *request)
{
    struct fixture *f = context;
    const char *path = tally_http_path(request);
    if (strcmp(path, "/stream") == 0) {
        start_stream(f, request);
    } else if (strcmp(path, "/later") == 0) {
        f->later = request;
    } else {
        const struct tally_http_response response = {
            .status = 200, .static_body = "hello", .n_static_body = 5};
        tally_http_respond(request, &response);
    }
}

static void on_abandoned(void *context, struct tally_http_request *request)
{
    (void)context;
    (void)request;
    CU_FAIL("a stream is closed, not abandoned");
}

static void fixture_open(struct fixture *f, unsigned idle_timeout_s)
{
    *f = (struct fixture){.n_streams = 0};
    const struct tally_http_server_config config = {.listen = "127.0.0.1:0",
                                                    .max_body_bytes = 1000,
                                                    .idle_timeout_s = idle_timeout_s,
                                                    .on_request = on_request,
                                                    .on_abandoned = on_abandoned,
                                                    .context = f};
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_http_server_new(&config, &f->server, &err), TALLY_OK, &err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(f->server);
}

static void step(struct fixture *f, int timeout_ms)
{
    CU_ASSERT_EQUAL(tally_http_server_step(f->server, timeout_ms, -1, NULL), TALLY_OK);
}

static void step_for(struct fixture *f, long ms)
{
    for (int64_t end = manual_clock_real_ms() + ms; manual_clock_real_ms() < end;) {
        step(f, 5);
    }
}

/* Runs the server until the counter has reached `n`. */
static void await_count(struct fixture *f, const size_t *counter, size_t n)
{
    for (int64_t end = manual_clock_real_ms() + PATIENCE_MS;
         *counter < n && manual_clock_real_ms() < end;) {
        step(f, 5);
    }
    CU_ASSERT_EQUAL(*counter, n);
}

/* Opens a connection and sends `request`. */
static int sent(struct fixture *f, const char *request)
{
    int fd = tally_raw_connect(tally_http_server_port(f->server));
    CU_ASSERT_TRUE_FATAL(fd >= 0);
    CU_ASSERT_EQUAL(tally_raw_send(fd, request, strlen(request)), (long)strlen(request));
    return fd;
}

#define STREAM_REQUEST "GET /stream HTTP/1.1\r\nHost: h\r\n\r\n"

/* Opens a connection whose stream is asleep after sending its headers. */
static int sleeping(struct fixture *f)
{
    size_t drained = f->n_drained;
    int fd = sent(f, STREAM_REQUEST);
    await_count(f, &f->n_drained, drained + 1);
    return fd;
}

static bool ends_with(const struct tally_buffer *in, const char *text)
{
    size_t n = strlen(text);
    return in->size >= n && memcmp(in->data + in->size - n, text, n) == 0;
}

/* Runs the server until the received bytes end with `text`; false if the connection has ended. */
static bool await_text(struct fixture *f, int fd, struct tally_buffer *in, const char *text)
{
    bool open = true;
    for (int64_t end = manual_clock_real_ms() + PATIENCE_MS;
         open && manual_clock_real_ms() < end;) {
        step(f, 2);
        open = tally_raw_receive(fd, in);
        if (ends_with(in, text)) {
            return open;
        }
    }
    CU_FAIL_FATAL("what was written did not come");
    return open;
}

static void await_end(struct fixture *f, int fd, struct tally_buffer *in)
{
    bool open = true;
    for (int64_t end = manual_clock_real_ms() + PATIENCE_MS;
         open && manual_clock_real_ms() < end;) {
        step(f, 5);
        open = tally_raw_receive(fd, in);
    }
    CU_ASSERT_FALSE(open);
}

static bool holds(const struct tally_buffer *in, const char *text)
{
    return in->data != NULL && strstr((const char *)in->data, text) != NULL;
}

/* Replaces a whole chunked response by its content. */
static void unchunk(struct tally_buffer *in)
{
    const char *at = strstr((const char *)in->data, "\r\n\r\n");
    CU_ASSERT_PTR_NOT_NULL_FATAL(at);
    at += 4;
    size_t n_out = 0;
    for (;;) {
        char *line_end;
        size_t n = strtoul(at, &line_end, 16);
        CU_ASSERT_TRUE_FATAL(line_end != at && strncmp(line_end, "\r\n", 2) == 0);
        if (n == 0) {
            break;
        }
        memmove(in->data + n_out, line_end + 2, n);
        n_out += n;
        at = line_end + 2 + n + 2;
        CU_ASSERT_TRUE_FATAL(at < (char *)in->data + in->size);
    }
    in->size = n_out;
}

static void write_text(struct tally_http_stream *stream, const char *text)
{
    CU_ASSERT_EQUAL(tally_http_stream_write(stream, text, strlen(text)), TALLY_OK);
}

/* ---- Life cycle of a stream ---- */

static void test_api_http_stream__pieces_come_as_they_are_written(void)
{
    struct fixture f;
    struct tally_buffer in = {.size = 0};
    fixture_open(&f, 0);
    int fd = sleeping(&f);
    CU_ASSERT_TRUE(await_text(&f, fd, &in, "\r\n\r\n"));
    CU_ASSERT_TRUE(holds(&in, "HTTP/1.1 200 OK\r\n"));
    CU_ASSERT_TRUE(holds(&in, "Content-Type: text/event-stream\r\n"));
    CU_ASSERT_TRUE(holds(&in, "Cache-Control: no-store\r\n"));
    CU_ASSERT_TRUE(holds(&in, "Transfer-Encoding: chunked\r\n"));
    CU_ASSERT_FALSE(holds(&in, "Content-Length"));
    write_text(f.streams[0], "one ");
    CU_ASSERT_EQUAL(tally_http_stream_pending(f.streams[0]), 4);
    CU_ASSERT_TRUE(await_text(&f, fd, &in, "4\r\none \r\n"));
    CU_ASSERT_EQUAL(tally_http_stream_pending(f.streams[0]), 0);
    write_text(f.streams[0], "two");
    write_text(f.streams[0], "");
    write_text(f.streams[0], " and");
    CU_ASSERT_TRUE(await_text(&f, fd, &in, "7\r\ntwo and\r\n"));
    CU_ASSERT_EQUAL(f.n_closed, 0);
    write_text(f.streams[0], " three");
    tally_http_stream_end(f.streams[0]);
    CU_ASSERT_TRUE(await_text(&f, fd, &in, "6\r\n three\r\n0\r\n\r\n"));
    await_count(&f, &f.n_closed, 1);
    /* The connection serves further requests. */
    const char *next = "GET /now HTTP/1.1\r\nHost: h\r\n\r\n";
    CU_ASSERT_EQUAL(tally_raw_send(fd, next, strlen(next)), (long)strlen(next));
    CU_ASSERT_TRUE(await_text(&f, fd, &in, "hello"));
    close(fd);
    tally_buffer_fini(&in);
    tally_http_server_free(f.server);
    CU_ASSERT_EQUAL(f.n_closed, 1);
}

static void test_api_http_stream__old_clients_get_it_until_the_end(void)
{
    struct fixture f;
    struct tally_buffer in = {.size = 0};
    fixture_open(&f, 0);
    int fd = sent(&f, "GET /stream HTTP/1.0\r\n\r\n");
    await_count(&f, &f.n_drained, 1);
    write_text(f.streams[0], "one ");
    CU_ASSERT_TRUE(await_text(&f, fd, &in, "\r\n\r\none "));
    write_text(f.streams[0], "two");
    CU_ASSERT_TRUE(await_text(&f, fd, &in, "\r\n\r\none two"));
    CU_ASSERT_FALSE(holds(&in, "chunked"));
    step_for(&f, 20); /* asleep again: only its end wakes it */
    tally_http_stream_end(f.streams[0]);
    await_end(&f, fd, &in);
    CU_ASSERT_TRUE(ends_with(&in, "\r\n\r\none two"));
    await_count(&f, &f.n_closed, 1);
    close(fd);
    tally_buffer_fini(&in);
    tally_http_server_free(f.server);
}

static void test_api_http_stream__head_gets_headers_alone(void)
{
    struct fixture f;
    struct tally_buffer in = {.size = 0};
    fixture_open(&f, 0);
    int fd = sent(&f, "HEAD /stream HTTP/1.1\r\nHost: h\r\n\r\n");
    await_count(&f, &f.n_closed, 1);
    await_end(&f, fd, &in);
    CU_ASSERT_TRUE(holds(&in, "Content-Type: text/event-stream\r\n"));
    CU_ASSERT_EQUAL(f.n_drained, 0);
    CU_ASSERT_TRUE(ends_with(&in, "\r\n\r\n")); /* without a last chunk "0\r\n\r\n" */
    CU_ASSERT_FALSE(ends_with(&in, "\r\n\r\n0\r\n\r\n"));
    CU_ASSERT_TRUE(holds(&in, "Connection: close\r\n"));
    close(fd);
    tally_buffer_fini(&in);
    tally_http_server_free(f.server);
}

static void test_api_http_stream__a_request_that_waited_becomes_one(void)
{
    struct fixture f;
    struct tally_buffer in = {.size = 0};
    fixture_open(&f, 0);
    int fd = sent(&f, "GET /later HTTP/1.1\r\nHost: h\r\n\r\n");
    for (int64_t end = manual_clock_real_ms() + PATIENCE_MS;
         f.later == NULL && manual_clock_real_ms() < end;) {
        step(&f, 5);
    }
    CU_ASSERT_PTR_NOT_NULL_FATAL(f.later);
    step_for(&f, 20);
    start_stream(&f, f.later);
    write_text(f.streams[0], "late");
    tally_http_stream_end(f.streams[0]);
    CU_ASSERT_TRUE(await_text(&f, fd, &in, "4\r\nlate\r\n0\r\n\r\n"));
    await_count(&f, &f.n_closed, 1);
    close(fd);
    tally_buffer_fini(&in);
    tally_http_server_free(f.server);
}

static void test_api_http_stream__may_be_filled_as_it_drains(void)
{
    struct fixture f;
    struct tally_buffer in = {.size = 0};
    const size_t n = 3000000;
    fixture_open(&f, 0);
    f.makes = true;
    f.n_to_make = n;
    int fd = sent(&f, STREAM_REQUEST);
    CU_ASSERT_TRUE(await_text(&f, fd, &in, "\r\n0\r\n\r\n"));
    unchunk(&in);
    CU_ASSERT_EQUAL(in.size, n);
    CU_ASSERT_EQUAL(f.n_drained, n / 5000);
    await_count(&f, &f.n_closed, 1);
    close(fd);
    tally_buffer_fini(&in);
    tally_http_server_free(f.server);
}

/* ---- Sleep ---- */

static void test_api_http_stream__sleep_costs_no_turns(void)
{
    struct fixture f;
    fixture_open(&f, 0);
    int fd = sleeping(&f);
    step_for(&f, 20);
    const int64_t start = manual_clock_real_ms();
    step(&f, 100);
    CU_ASSERT_TRUE(manual_clock_real_ms() - start >= 90);
    CU_ASSERT_EQUAL(f.n_drained, 1);
    close(fd);
    tally_http_server_free(f.server);
}

static void test_api_http_stream__departure_is_noticed_asleep(void)
{
    struct fixture f;
    fixture_open(&f, 0);
    int fd = sleeping(&f);
    CU_ASSERT_EQUAL(f.n_closed, 0);
    close(fd);
    await_count(&f, &f.n_closed, 1);
    tally_raw_reset(sleeping(&f));
    await_count(&f, &f.n_closed, 2);
    fd = sleeping(&f);
    CU_ASSERT_EQUAL(shutdown(fd, SHUT_WR), 0);
    await_count(&f, &f.n_closed, 3);
    close(fd);
    /* A departure is also noticed when the stream sleeps for the second time. */
    struct tally_buffer in = {.size = 0};
    fd = sleeping(&f);
    write_text(f.streams[3], "x");
    CU_ASSERT_TRUE(await_text(&f, fd, &in, "1\r\nx\r\n"));
    CU_ASSERT_EQUAL(f.n_closed, 3);
    close(fd);
    await_count(&f, &f.n_closed, 4);
    tally_buffer_fini(&in);
    tally_http_server_free(f.server);
    CU_ASSERT_EQUAL(f.n_closed, 4);
}

static void test_api_http_stream__write_to_a_peer_that_has_just_gone(void)
{
    struct fixture f;
    fixture_open(&f, 0);
    for (int ends = 0; ends < 2; ends++) {
        tally_raw_reset(sleeping(&f));
        write_text(f.streams[ends], "lost");
        if (ends == 1) {
            tally_http_stream_end(f.streams[ends]);
        }
        await_count(&f, &f.n_closed, (size_t)ends + 1);
    }
    tally_http_server_free(f.server);
}

static size_t n_threads(void)
{
    size_t n = 0;
    DIR *tasks = opendir("/proc/self/task");
    CU_ASSERT_PTR_NOT_NULL_FATAL(tasks);
    while (readdir(tasks) != NULL) {
        n++;
    }
    closedir(tasks);
    return n;
}

static void test_api_http_stream__five_hundred_sleep_and_wake(void)
{
    enum { N = 500 };
    struct fixture f;
    int fds[N];
    const size_t threads = n_threads();
    fixture_open(&f, 0);
    for (size_t i = 0; i < N; i++) {
        fds[i] = sleeping(&f);
    }
    CU_ASSERT_EQUAL(f.n_streams, N);
    CU_ASSERT_EQUAL(n_threads(), threads);
    const int64_t start = manual_clock_real_ms();
    step(&f, 100);
    CU_ASSERT_TRUE(manual_clock_real_ms() - start >= 90);
    for (size_t i = 0; i < N; i++) {
        char text[16];
        snprintf(text, sizeof text, "stream %03zu", i);
        write_text(f.streams[i], text);
    }
    for (size_t i = 0; i < N; i++) {
        struct tally_buffer in = {.size = 0};
        char text[32];
        snprintf(text, sizeof text, "stream %03zu\r\n", i);
        CU_ASSERT_TRUE(await_text(&f, fds[i], &in, text));
        tally_buffer_fini(&in);
    }
    CU_ASSERT_EQUAL(f.n_closed, 0);
    CU_ASSERT_EQUAL(n_threads(), threads);
    for (size_t i = 0; i < N; i++) {
        close(fds[i]);
    }
    await_count(&f, &f.n_closed, N);
    tally_http_server_free(f.server);
}

/* ---- Slow readers ---- */

/* Writes numbered lines until the buffer stays full; returns how many bytes were taken. */
static size_t write_until_full(struct fixture *f, struct tally_http_stream *stream)
{
    size_t n = 0;
    for (int refused = 0; refused < 20;) {
        char line[1024];
        snprintf(line, sizeof line, "%-1022zu\n", n);
        if (tally_http_stream_write(stream, line, 1023) == TALLY_OK) {
            n += 1023;
            refused = 0;
        } else {
            refused++;
            step(f, 2);
        }
        CU_ASSERT_TRUE_FATAL(n < (64U << 20));
    }
    return n;
}

static void test_api_http_stream__a_slow_reader_gets_all_and_costs_little(void)
{
    struct fixture f;
    struct tally_buffer in = {.size = 0};
    fixture_open(&f, 0);
    int fd = sleeping(&f);
    struct tally_http_stream *stream = f.streams[0];
    const size_t n = write_until_full(&f, stream);
    CU_ASSERT_TRUE(tally_http_stream_pending(stream) <= PENDING_BYTES);
    CU_ASSERT_TRUE(tally_http_stream_pending(stream) > PENDING_BYTES - 1023);
    /* At most the server's buffer plus the kernel's two; the receiver's has its default size. */
    CU_ASSERT_TRUE(n < (1U << 20));
    CU_ASSERT_EQUAL(tally_http_stream_write(stream, "", 0), TALLY_OK);
    tally_http_stream_end(stream);
    CU_ASSERT_TRUE(await_text(&f, fd, &in, "\r\n0\r\n\r\n"));
    unchunk(&in);
    CU_ASSERT_EQUAL_FATAL(in.size, n);
    for (size_t at = 0; at < n; at += 1023) {
        CU_ASSERT_EQUAL(strtoul((char *)in.data + at, NULL, 10), at);
    }
    await_count(&f, &f.n_closed, 1);
    close(fd);
    tally_buffer_fini(&in);
    tally_http_server_free(f.server);
}

static void test_api_http_stream__a_write_is_all_or_nothing(void)
{
    struct fixture f;
    static char bytes[PENDING_BYTES + 1];
    fixture_open(&f, 0);
    int fd = sleeping(&f);
    CU_ASSERT_EQUAL(tally_http_stream_write(f.streams[0], bytes, PENDING_BYTES + 1),
                    TALLY_TOO_LARGE);
    CU_ASSERT_EQUAL(tally_http_stream_pending(f.streams[0]), 0);
    CU_ASSERT_EQUAL(tally_http_stream_write(f.streams[0], bytes, PENDING_BYTES), TALLY_OK);
    CU_ASSERT_EQUAL(tally_http_stream_write(f.streams[0], bytes, 1), TALLY_TOO_LARGE);
    CU_ASSERT_EQUAL(tally_http_stream_pending(f.streams[0]), PENDING_BYTES);
    close(fd);
    tally_http_server_free(f.server);
}

static void test_api_http_stream__who_takes_nothing_is_closed_who_sleeps_not(void)
{
    struct fixture f;
    fixture_open(&f, 1);
    int asleep = sleeping(&f);
    int stuck = sleeping(&f);
    (void)write_until_full(&f, f.streams[1]);
    await_count(&f, &f.n_closed, 1);
    CU_ASSERT_PTR_NULL(f.streams[1]);
    step_for(&f, 1500);
    CU_ASSERT_EQUAL(f.n_closed, 1); /* asleep for longer than the timeout */
    struct tally_buffer in = {.size = 0};
    write_text(f.streams[0], "still there");
    CU_ASSERT_TRUE(await_text(&f, asleep, &in, "still there\r\n"));
    close(asleep);
    close(stuck);
    tally_buffer_fini(&in);
    tally_http_server_free(f.server);
}

/* ---- Server shutdown ---- */

static void test_api_http_stream__free_closes_all(void)
{
    struct fixture f;
    fixture_open(&f, 0);
    int asleep = sleeping(&f);
    int full = sleeping(&f);
    (void)write_until_full(&f, f.streams[1]);
    int ended = sleeping(&f);
    (void)write_until_full(&f, f.streams[2]);
    tally_http_stream_end(f.streams[2]);
    int woken = sleeping(&f);
    write_text(f.streams[3], "not sent");
    CU_ASSERT_EQUAL(f.n_closed, 0);
    tally_http_server_free(f.server);
    CU_ASSERT_EQUAL(f.n_closed, 4);
    close(asleep);
    close(full);
    close(ended);
    close(woken);
}

static void test_api_http_stream__quiesce_lets_streams_go_on(void)
{
    struct fixture f;
    struct tally_buffer in = {.size = 0};
    fixture_open(&f, 0);
    int fd = sleeping(&f);
    tally_http_server_quiesce(f.server);
    CU_ASSERT_EQUAL(tally_raw_connect(tally_http_server_port(f.server)), -1);
    write_text(f.streams[0], "last words");
    tally_http_stream_end(f.streams[0]);
    CU_ASSERT_TRUE(await_text(&f, fd, &in, "last words\r\n0\r\n\r\n"));
    await_count(&f, &f.n_closed, 1);
    close(fd);
    tally_buffer_fini(&in);
    tally_http_server_free(f.server);
}

static void test_api_http_stream__the_body_of_its_request_is_not_kept(void)
{
    struct fixture f;
    char request[700] = "GET /stream HTTP/1.1\r\nHost: h\r\nContent-Length: 500\r\n\r\n";
    const size_t n_head = strlen(request);
    unsigned n_open;
    size_t held_bytes;
    fixture_open(&f, 0);
    memset(request + n_head, 'b', 500);
    int fd = tally_raw_connect(tally_http_server_port(f.server));
    CU_ASSERT_TRUE_FATAL(fd >= 0);
    CU_ASSERT_EQUAL(tally_raw_send(fd, request, n_head + 500), (long)n_head + 500);
    await_count(&f, &f.n_drained, 1);
    CU_ASSERT_EQUAL(f.n_streams, 1);
    tally_http_server_load(f.server, &n_open, &held_bytes);
    CU_ASSERT_EQUAL(n_open, 1);
    CU_ASSERT_EQUAL(held_bytes, 0);
    close(fd);
    await_count(&f, &f.n_closed, 1);
    tally_http_server_free(f.server);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_api_http_stream__the_body_of_its_request_is_not_kept),
    TALLY_TEST(test_api_http_stream__pieces_come_as_they_are_written),
    TALLY_TEST(test_api_http_stream__old_clients_get_it_until_the_end),
    TALLY_TEST(test_api_http_stream__head_gets_headers_alone),
    TALLY_TEST(test_api_http_stream__a_request_that_waited_becomes_one),
    TALLY_TEST(test_api_http_stream__may_be_filled_as_it_drains),
    TALLY_TEST(test_api_http_stream__sleep_costs_no_turns),
    TALLY_TEST(test_api_http_stream__departure_is_noticed_asleep),
    TALLY_TEST(test_api_http_stream__write_to_a_peer_that_has_just_gone),
    TALLY_TEST(test_api_http_stream__five_hundred_sleep_and_wake),
    TALLY_TEST(test_api_http_stream__a_slow_reader_gets_all_and_costs_little),
    TALLY_TEST(test_api_http_stream__a_write_is_all_or_nothing),
    TALLY_TEST(test_api_http_stream__who_takes_nothing_is_closed_who_sleeps_not),
    TALLY_TEST(test_api_http_stream__free_closes_all),
    TALLY_TEST(test_api_http_stream__quiesce_lets_streams_go_on),
};
TALLY_SUITE(api_http_stream, TESTS);
