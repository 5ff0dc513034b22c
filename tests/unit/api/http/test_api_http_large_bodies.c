#include "tests/unit/api/http/http_fixture.h"

/* There are too many bodies to read at once. All arrive, in whatever order they are sent, except
 * those of peers that leave while waiting. */
static void test_api_http_large_bodies__large_bodies_take_turns(void)
{
    enum { N = 6, BODY = 6 << 20, PIECE = 100 * 1000 };
    char head[96];
    struct fixture f;
    struct tally_buffer in = {.size = 0};
    fixture_open_config(&f, (struct tally_http_server_config){.max_body_bytes = BODY});
    char *body = malloc(BODY);
    memset(body, 'b', BODY);
    const int n = snprintf(head, sizeof head,
                           "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", BODY);
    int fds[N];
    size_t sent[N];
    const int64_t begin = tally_monotonic_ms();
    for (size_t i = 0; i < N; i++) {
        fds[i] = connected(&f);
        CU_ASSERT_TRUE(send_all(&f, fds[i], head, (size_t)n));
        const long done = tally_raw_send(fds[i], body, PIECE);
        CU_ASSERT_FATAL(done > 0);
        sent[i] = (size_t)done;
        step(&f, 0);
    }
    unsigned n_open;
    size_t held_bytes;
    step(&f, 0);
    tally_http_server_load(f.server, &n_open, &held_bytes);
    if (tally_monotonic_ms() - begin < HTTP_UPLOAD_QUIET_MS) { /* otherwise more may have begun */
        CU_ASSERT_TRUE(held_bytes <= 2 * 2 * PIECE);
    }
    close(fds[N - 1]);
    /* Send in reverse order of connection: data that come too early wait in the socket. */
    for (int64_t end = patience_end_ms(); f.n_requests < N - 1 && step_before(&f, end);) {
        for (size_t i = N - 1; i-- > 0;) {
            const long done = tally_raw_send(fds[i], body + sent[i], BODY - sent[i]);
            CU_ASSERT_FATAL(done >= 0);
            sent[i] += (size_t)done;
        }
    }
    CU_ASSERT_EQUAL(f.n_requests, N - 1);
    for (size_t i = 0; i < N - 1; i++) {
        (void)await_response(&f, fds[i], &in, true);
        CU_ASSERT_EQUAL(status_of(&in), 200);
        in.size = 0;
        close(fds[i]);
    }
    await_connections(&f, 0);
    tally_http_server_load(f.server, &n_open, &held_bytes);
    CU_ASSERT_EQUAL(held_bytes, 0);
    CU_ASSERT_EQUAL(f.n_abandoned, 0);
    tally_buffer_fini(&in);
    free(body);
    fixture_close(&f);
}

/* Checks that a POST of 60 kB on a new connection is answered. */
static void check_large_post(struct fixture *f)
{
    enum { BODY = 60 * 1000 };
    struct tally_buffer in = {.size = 0};
    char text[96 + BODY] = {0};
    const int n =
        snprintf(text, 96, "POST /now HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", BODY);
    const int fd = connected(f);
    CU_ASSERT_TRUE(send_all(f, fd, text, (size_t)n + BODY));
    (void)await_response(f, fd, &in, true);
    CU_ASSERT_TRUE(in.size > 0);
    CU_ASSERT_EQUAL(in.size > 0 ? status_of(&in) : 0, 200);
    tally_buffer_fini(&in);
    close(fd);
}

/* Connections that announce large bodies and send nothing block no other connection. */
static void test_api_http_large_bodies__announced_bytes_stop_nobody(void)
{
    enum { N = 40, BODY = 64 << 20 };
    char head[160];
    int fds[N];
    struct fixture f;
    fixture_open_config(&f, (struct tally_http_server_config){.max_body_bytes = BODY});
    for (int i = 0; i < N; i++) {
        const int n =
            snprintf(head, sizeof head,
                     "POST /now HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\nx", BODY);
        fds[i] = connected(&f);
        CU_ASSERT_TRUE(send_all(&f, fds[i], head, (size_t)n));
    }
    check_large_post(&f);
    for (int i = 0; i < N; i++) {
        close(fds[i]);
    }
    fixture_close(&f);
}

/* With a Transfer-Encoding, the Content-Length is ignored. */
static void test_api_http_large_bodies__length_of_a_chunked_body_stops_nobody(void)
{
    const char *begun = "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n"
                        "Content-Length: 9000000000000000000\r\n\r\n5\r\nbegun\r\n";
    struct fixture f;
    fixture_open_config(&f, (struct tally_http_server_config){.max_body_bytes = 1 << 20});
    const int fd = connected(&f);
    CU_ASSERT_TRUE(send_all(&f, fd, begun, strlen(begun)));
    step_for(&f, 10);
    for (int i = 0; i < 3; i++) {
        check_large_post(&f);
    }
    close(fd);
    fixture_close(&f);
}

/* An upload is answered even if its body had to wait for its turn. */
static void test_api_http_large_bodies__half_closed_upload_is_answered(void)
{
    enum { N = 6, BODY = 60 * 1000, LIMIT = 64 << 20 };
    static char text[96 + BODY];
    int fds[N];
    struct fixture f;
    struct tally_buffer in = {.size = 0};
    fixture_open_config(&f, (struct tally_http_server_config){.max_body_bytes = LIMIT});
    for (int i = 0; i < N; i++) { /* the first stalls, and the others wait */
        const int n =
            snprintf(text, 96, "POST /now HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n",
                     i == 0 ? LIMIT : BODY);
        fds[i] = connected(&f);
        CU_ASSERT_EQUAL(tally_raw_send(fds[i], text, (size_t)n + BODY), (long)(n + BODY));
        if (i > 0) {
            shutdown(fds[i], SHUT_WR);
        }
    }
    for (int i = 1; i < N; i++) {
        (void)await_response(&f, fds[i], &in, true);
        CU_ASSERT_EQUAL(in.size > 0 ? status_of(&in) : 0, 200);
        in.size = 0;
        close(fds[i]);
    }
    close(fds[0]);
    tally_buffer_fini(&in);
    fixture_close(&f);
}

/* If a finished body kept its share, every later upload would wait forever. */
static void test_api_http_large_bodies__a_large_body_that_is_over_makes_room(void)
{
    enum { N = 12, BODY = HTTP_UPLOADS_MAX_BYTES };
    char head[96];
    struct fixture f;
    struct tally_buffer in = {.size = 0};
    fixture_open_config(&f, (struct tally_http_server_config){.max_body_bytes = BODY});
    char *body = calloc(1, BODY);
    const int n = snprintf(head, sizeof head,
                           "POST /now HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", BODY);
    f.server->peers.looks_at_first =
        true; /* the connection gets a large buffer, and so will stay */
    const int fd = connected(&f);
    for (size_t i = 0; i < N; i++) {
        CU_ASSERT_TRUE(send_all(&f, fd, head, (size_t)n));
        CU_ASSERT_TRUE(send_all(&f, fd, body, BODY));
        (void)await_response(&f, fd, &in, true);
        CU_ASSERT_EQUAL(status_of(&in), 200);
        CU_ASSERT_EQUAL(f.server->uploads.under_way_bytes, 0);
        in.size = 0;
    }
    CU_ASSERT_EQUAL(f.n_requests, N);
    close(fd);
    tally_buffer_fini(&in);
    free(body);
    fixture_close(&f);
}

static int socket_option(int fd, int option)
{
    int value = -1;
    socklen_t n = sizeof value;
    CU_ASSERT_EQUAL(getsockopt(fd, SOL_SOCKET, option, &value, &n), 0);
    return value;
}

enum { LARGE_BODY = 300 * 1000 };

static void send_large_to(struct fixture *f, int fd, const char *path, const char *header)
{
    char head[128];
    const int n =
        snprintf(head, sizeof head, "POST %s HTTP/1.1\r\nHost: h\r\n%sContent-Length: %d\r\n\r\n",
                 path, header, LARGE_BODY);
    const size_t n_before = f->n_requests;
    char *body = calloc(1, LARGE_BODY);
    CU_ASSERT_TRUE(send_all(f, fd, head, (size_t)n));
    CU_ASSERT_TRUE(send_all(f, fd, body, LARGE_BODY));
    free(body);
    await_requests(f, n_before + 1);
}

/* Sends a large body that the test answers later, so that it can first inspect the connection. */
static void send_large(struct fixture *f, int fd)
{
    send_large_to(f, fd, "/wait", "");
}

static struct http_peer *last_peer(const struct fixture *f)
{
    return f->waiting[f->n_waiting - 1]->peer;
}

static void answer_last(struct fixture *f, int fd, struct tally_buffer *in)
{
    in->size = 0;
    answer_text(f, f->waiting[f->n_waiting - 1], 200, "taken");
    (void)await_response(f, fd, in, true);
    CU_ASSERT_EQUAL(status_of(in), 200);
    CU_ASSERT_STRING_EQUAL(body_of(in), "taken");
}

/* The connection still serves short requests after the large body. */
static void test_api_http_large_bodies__a_large_body_fits_its_window(void)
{
    struct fixture f;
    struct tally_buffer in = {.size = 0};
    fixture_open_config(&f, (struct tally_http_server_config){.max_body_bytes = LARGE_BODY});
    f.server->peers.looks_at_first =
        true; /* the connection gets a large buffer, and so will stay */
    const int fd = connected(&f);
    send_large(&f, fd);
    const int peer_fd = last_peer(&f)->base.fd;
    CU_ASSERT_TRUE(socket_option(peer_fd, SO_RCVBUF) >= 2 * LARGE_BODY);
    CU_ASSERT_EQUAL(socket_option(peer_fd, SO_RCVLOWAT), 1);
    answer_last(&f, fd, &in);
    in.size = 0;
    static const char brief[] = "GET /now HTTP/1.1\r\nHost: h\r\n\r\n";
    CU_ASSERT_TRUE(send_all(&f, fd, brief, sizeof brief - 1));
    (void)await_response(&f, fd, &in, true);
    CU_ASSERT_EQUAL(status_of(&in), 200);
    CU_ASSERT_EQUAL(f.server->peers.windows_bytes, 2 * LARGE_BODY);
    close(fd);
    await_connections(&f, 0);
    CU_ASSERT_EQUAL(f.server->peers.windows_bytes, 0);
    /* All buffer space is in use. */
    f.server->peers.windows_bytes = (size_t)64 << 20;
    const int late_fd = connected(&f);
    send_large(&f, late_fd);
    CU_ASSERT_EQUAL(last_peer(&f)->window_bytes, 0);
    answer_last(&f, late_fd, &in);
    close(late_fd);
    tally_buffer_fini(&in);
    fixture_close(&f);
}

static const char BRIEF_WAIT[] = "GET /wait HTTP/1.1\r\nHost: h\r\n\r\n";

/* A peer that sends large bodies is told to connect again, and then gets a larger buffer. */
static void test_api_http_large_bodies__large_bodies_come_over_connections_of_their_own(void)
{
    struct fixture f;
    struct tally_buffer in = {.size = 0};
    fixture_open_config(&f, (struct tally_http_server_config){.max_body_bytes = LARGE_BODY});
    const int first_fd = connected(&f);
    send_large(&f, first_fd);
    CU_ASSERT_FALSE(last_peer(&f)->is_wide);
    answer_last(&f, first_fd, &in);
    CU_ASSERT_TRUE(holds(&in, "\r\nConnection: close\r\n"));
    CU_ASSERT_EQUAL(f.out_bytes, in.size);
    await_end(&f, first_fd, &in);
    close(first_fd);
    /* Requests that arrive before the next large body are served as usual. */
    const int silent_fd = connected(&f), other_fd = wait_on_new_connection(&f);
    CU_ASSERT_FALSE(last_peer(&f)->is_wide);
    answer_last(&f, other_fd, &in);
    const int fd = connected(&f);
    for (int i = 0; i < 3; i++) {
        send_large(&f, fd);
        CU_ASSERT_TRUE(last_peer(&f)->is_wide);
        answer_last(&f, fd, &in);
        CU_ASSERT_FALSE(holds(&in, "Connection:"));
    }
    CU_ASSERT_EQUAL(f.server->peers.n_wide, 1);
    /* The connection sleeps like any other while its response is pending. */
    CU_ASSERT_TRUE(send_all(&f, fd, BRIEF_WAIT, sizeof BRIEF_WAIT - 1));
    await_requests(&f, 6);
    pass_time(&f, 50);
    CU_ASSERT_TRUE(f.waiting[f.n_waiting - 1]->is_suspended);
    answer_last(&f, fd, &in);
    await_connections(&f, 3);
    close(silent_fd);
    close(other_fd);
    close(fd);
    await_connections(&f, 0);
    CU_ASSERT_EQUAL(f.server->peers.n_wide, 0);
    tally_buffer_fini(&in);
    fixture_close(&f);
}

static void test_api_http_large_bodies__connection_without_large_bodies_goes_back(void)
{
    struct fixture f;
    struct tally_buffer in = {.size = 0};
    fixture_open_config(&f, (struct tally_http_server_config){.max_body_bytes = LARGE_BODY});
    f.server->peers.looks_at_first = true;
    const int fd = connected(&f);
    for (int i = 0; i < 2 * 64; i++) {
        if (i % 64 == 0) {
            send_large(&f, fd);
        } else {
            const size_t n_before = f.n_requests;
            CU_ASSERT_TRUE(send_all(&f, fd, BRIEF_WAIT, sizeof BRIEF_WAIT - 1));
            await_requests(&f, n_before + 1);
        }
        answer_last(&f, fd, &in);
        CU_ASSERT_FALSE(holds(&in, "Connection:"));
    }
    CU_ASSERT_TRUE(send_all(&f, fd, BRIEF_WAIT, sizeof BRIEF_WAIT - 1));
    await_requests(&f, 2 * 64 + 1);
    answer_last(&f, fd, &in);
    CU_ASSERT_TRUE(holds(&in, "Connection: close"));
    await_end(&f, fd, &in);
    close(fd);
    tally_buffer_fini(&in);
    fixture_close(&f);
}

/* Sends a large body and expects that its sender is not told to connect again. */
static void expect_no_move(struct fixture *f, int fd, struct tally_buffer *in)
{
    send_large(f, fd);
    CU_ASSERT_FALSE(last_peer(f)->is_wide);
    answer_last(f, fd, in);
    CU_ASSERT_FALSE(holds(in, "Connection:"));
}

static void test_api_http_large_bodies__nobody_is_sent_away_in_vain(void)
{
    enum { N_WIDE = 256 };
    struct fixture f;
    struct tally_buffer in = {.size = 0};
    fixture_open_config(&f, (struct tally_http_server_config){.max_body_bytes = LARGE_BODY,
                                                              .max_connections = 3,
                                                              .max_connections_per_address = 2});
    const int fd = connected(&f);
    /* The request was refused. */
    send_large_to(&f, fd, "/status/404", "");
    (void)await_response(&f, fd, &in, true);
    CU_ASSERT_EQUAL(status_of(&in), 404);
    CU_ASSERT_FALSE(holds(&in, "Connection:"));
    CU_ASSERT_FALSE(f.server->peers.looks_at_first);
    /* All large buffers are in use. */
    f.server->peers.n_wide = N_WIDE;
    expect_no_move(&f, fd, &in);
    f.server->peers.looks_at_first = true;
    const int late_fd = connected(&f);
    expect_no_move(&f, late_fd, &in);
    f.server->peers.n_wide = 0;
    /* Another connection might take the freed slot under the limit per address or in total. */
    expect_no_move(&f, fd, &in);
    f.server->peers.table.max_per_address = 3;
    f.server->peers.table.max = 2;
    expect_no_move(&f, fd, &in);
    close(late_fd);
    await_connections(&f, 1);
    /* The server is out of descriptors for now. */
    f.server->peers.accept_again_ms = tally_monotonic_ms() + 1000000;
    expect_no_move(&f, fd, &in);
    f.server->peers.accept_again_ms = 0;
    /* The server is about to stop. */
    tally_http_server_quiesce(f.server);
    expect_no_move(&f, fd, &in);
    close(fd);
    tally_buffer_fini(&in);
    fixture_close(&f);
}

/* Peers that are silent at first or send in pieces lose no data. */
static void test_api_http_large_bodies__first_bytes_are_awaited(void)
{
    static const char rest[] = "\nHost: h\r\nContent-Length: 1\r\n\r\n.";
    struct fixture f;
    struct tally_buffer in = {.size = 0};
    fixture_open_config(&f, (struct tally_http_server_config){.max_body_bytes = LARGE_BODY,
                                                              .request_timeout_s = 1});
    f.server->peers.looks_at_first = true;
    manual_clock_stop();
    const int slow_fd = connected(&f), silent_fd = connected(&f), ending_fd = connected(&f);
    await_connections(&f, 3);
    CU_ASSERT_TRUE(send_all(&f, slow_fd, "POST /echo HTTP/1.1\r", 20));
    pass_time(&f, 10);
    CU_ASSERT_TRUE(send_all(&f, slow_fd, rest, sizeof rest - 1));
    (void)await_response(&f, slow_fd, &in, true);
    CU_ASSERT_EQUAL(status_of(&in), 200);
    CU_ASSERT_STRING_EQUAL(body_of(&in), ".");
    close(ending_fd);
    await_connections(&f, 2);
    pass_time(&f, 1100);
    await_end(&f, silent_fd, &in);
    CU_ASSERT_EQUAL(f.refused[TALLY_HTTP_REFUSED_REQUEST_TIMEOUT], 0);
    close(silent_fd);
    close(slow_fd);
    const int last_fd = connected(&f);
    await_connections(&f, 1);
    tally_buffer_fini(&in);
    fixture_close(&f); /* with one connection still silent */
    close(last_fd);
}

/* "Connection: close" also works with a cached response, which other connections must receive
 * without that line. */
static void test_api_http_large_bodies__brief_answer_may_end_a_connection(void)
{
    struct fixture f;
    struct tally_buffer in = {.size = 0};
    fixture_open_config(&f, (struct tally_http_server_config){.max_body_bytes = LARGE_BODY});
    for (int i = 0; i < 3; i++) {
        const int fd = connected(&f);
        const bool is_large = i == 1;
        in.size = 0;
        f.out_bytes = 0;
        if (is_large) {
            send_large_to(&f, fd, "/brief/20", "");
            await_end(&f, fd, &in);
        } else {
            static const char small[] = "POST /brief/20 HTTP/1.1\r\nHost: h\r\n"
                                        "Content-Length: 1\r\n\r\n.";
            CU_ASSERT_TRUE(send_all(&f, fd, small, sizeof small - 1));
            (void)await_response(&f, fd, &in, true);
        }
        CU_ASSERT_EQUAL(holds(&in, "Connection: close"), is_large);
        CU_ASSERT_STRING_EQUAL(body_of(&in), "uuuuuuuuuuuuuuuuuuuu");
        CU_ASSERT_EQUAL(f.out_bytes, in.size);
        close(fd);
    }
    tally_buffer_fini(&in);
    fixture_close(&f);
}

/* If the connection ends anyway, the server expects no new one in its place. */
static void test_api_http_large_bodies__large_body_may_end_its_connection(void)
{
    struct fixture f;
    struct tally_buffer in = {.size = 0};
    fixture_open_config(&f, (struct tally_http_server_config){.max_body_bytes = LARGE_BODY});
    const int fd = connected(&f);
    send_large_to(&f, fd, "/echo", "Connection: close\r\n");
    await_end(&f, fd, &in);
    CU_ASSERT_EQUAL(f.out_bytes, in.size);
    CU_ASSERT_FALSE(f.server->peers.looks_at_first);
    close(fd);
    tally_buffer_fini(&in);
    fixture_close(&f);
}

static bool wants_none(void *context, struct tally_http_request *request)
{
    (void)context;
    (void)request;
    return false;
}

enum { PIECE_BYTES = 64 * 1000 };

/* Checks that the connection ends after the response, which comes at once or later, and that the
 * server does not reset it while the client keeps sending: a reset could destroy the response. */
static void check_unwanted(const char *path, const char *framing, size_t n_sent)
{
    static char piece[PIECE_BYTES];
    char head[128];
    unsigned n_open;
    size_t held_bytes;
    struct fixture f;
    struct tally_buffer in = {.size = 0};
    fixture_open_config(&f, (struct tally_http_server_config){.max_body_bytes = LARGE_BODY,
                                                              .wants_body = wants_none});
    const int n =
        snprintf(head, sizeof head, "POST %s HTTP/1.1\r\nHost: h\r\n%s\r\n\r\n", path, framing);
    const int fd = connected(&f);
    CU_ASSERT_TRUE(send_all(&f, fd, head, (size_t)n));
    (void)tally_raw_send(fd, piece, n_sent);
    step_for(&f, 50);
    CU_ASSERT_EQUAL(f.n_requests, 1);
    tally_http_server_load(f.server, &n_open, &held_bytes);
    CU_ASSERT_EQUAL(held_bytes, 0);
    if (f.n_waiting > 0) {
        answer_text(&f, f.waiting[0], 401, "words");
    }
    await_end(&f, fd, &in);
    CU_ASSERT_EQUAL(status_of(&in), 401);
    CU_ASSERT_STRING_EQUAL(body_of(&in), "words");
    CU_ASSERT_PTR_NOT_NULL(strstr((char *)in.data, "Connection: close\r\n"));
    CU_ASSERT_EQUAL(f.out_bytes, in.size);
    CU_ASSERT_EQUAL(f.in_bytes, (size_t)n);
    CU_ASSERT_EQUAL(f.n_abandoned, 0);
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL(tally_raw_send(fd, piece, 1000), 1000);
        step_for(&f, 20);
    }
    close(fd);
    tally_buffer_fini(&in);
    fixture_close(&f);
}

static void test_api_http_large_bodies__unwanted_body_is_left_unread(void)
{
    char length[64];
    snprintf(length, sizeof length, "Content-Length: %d", LARGE_BODY);
    for (size_t n_sent = 0; n_sent <= PIECE_BYTES; n_sent += PIECE_BYTES) {
        check_unwanted("/status/401", length, n_sent);
        check_unwanted("/status/401", "Transfer-Encoding: chunked", n_sent);
        check_unwanted("/wait", length, n_sent);
        check_unwanted("/wait", "Transfer-Encoding: chunked", n_sent);
    }
}

/* Both orders: the server stops first, or the peer leaves first. */
static void test_api_http_large_bodies__unwanted_body_may_be_abandoned(void)
{
    const char *post = "POST /wait HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (int peer_leaves = 0; peer_leaves < 2; peer_leaves++) {
        struct fixture f;
        fixture_open_config(&f, (struct tally_http_server_config){.wants_body = wants_none});
        const int fd = connected(&f);
        CU_ASSERT_TRUE(send_all(&f, fd, post, strlen(post)));
        step_for(&f, 20);
        CU_ASSERT_EQUAL(f.n_waiting, 1);
        if (peer_leaves == 1) {
            close(fd);
            await_connections(&f, 0);
            CU_ASSERT_EQUAL(f.n_abandoned, 1);
        }
        fixture_close(&f);
        CU_ASSERT_EQUAL(f.n_abandoned, 1);
        if (peer_leaves == 0) {
            close(fd);
        }
    }
}

/* A short body is read although the handler does not want it, and the connection stays open. */
static void test_api_http_large_bodies__short_body_is_read_unasked(void)
{
    const char *post = "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nshort";
    struct fixture f;
    struct tally_buffer in = {.size = 0};
    fixture_open_config(&f, (struct tally_http_server_config){.wants_body = wants_none});
    const int fd = connected(&f);
    for (int i = 0; i < 2; i++) {
        in.size = 0;
        CU_ASSERT_TRUE(send_all(&f, fd, post, strlen(post)));
        (void)await_response(&f, fd, &in, true);
        CU_ASSERT_EQUAL(status_of(&in), 200);
        CU_ASSERT_STRING_EQUAL(body_of(&in), "short");
    }
    close(fd);
    tally_buffer_fini(&in);
    fixture_close(&f);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_api_http_large_bodies__large_bodies_take_turns),
    TALLY_TEST(test_api_http_large_bodies__announced_bytes_stop_nobody),
    TALLY_TEST(test_api_http_large_bodies__length_of_a_chunked_body_stops_nobody),
    TALLY_TEST(test_api_http_large_bodies__half_closed_upload_is_answered),
    TALLY_TEST(test_api_http_large_bodies__a_large_body_that_is_over_makes_room),
    TALLY_TEST(test_api_http_large_bodies__a_large_body_fits_its_window),
    TALLY_TEST(test_api_http_large_bodies__large_bodies_come_over_connections_of_their_own),
    TALLY_TEST(test_api_http_large_bodies__connection_without_large_bodies_goes_back),
    TALLY_TEST(test_api_http_large_bodies__nobody_is_sent_away_in_vain),
    TALLY_TEST(test_api_http_large_bodies__first_bytes_are_awaited),
    TALLY_TEST(test_api_http_large_bodies__brief_answer_may_end_a_connection),
    TALLY_TEST(test_api_http_large_bodies__large_body_may_end_its_connection),
    TALLY_TEST(test_api_http_large_bodies__unwanted_body_is_left_unread),
    TALLY_TEST(test_api_http_large_bodies__unwanted_body_may_be_abandoned),
    TALLY_TEST(test_api_http_large_bodies__short_body_is_read_unasked),
};

TALLY_SUITE(api_http_large_bodies, TESTS);
