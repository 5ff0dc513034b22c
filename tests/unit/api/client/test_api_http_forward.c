/* A forwarder in the test's thread, and peers in threads of their own: our server, or a socket that
 * misbehaves. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "api/client/http_forward.h"
#include "api/server/http_server.h"
#include "codec/base/monotonic.h"
#include "tests/harness.h"
#include "tests/unit/api/raw_socket.h"

/* No test waits so long unless something hangs. */
enum { HANG_MS = 60000 };

/* ---- A peer with our server ---- */

enum { MAX_HELD = 512 };

struct host {
    struct tally_http_server *server;
    pthread_t thread;
    int wake_fd;
    char url[64];
    atomic_bool stops, releases;               /* wake_fd says that one of them is set */
    struct tally_http_request *held[MAX_HELD]; /* of the thread */
    size_t n_held;
    atomic_size_t n_requests, n_abandoned, n_connections;
};

static void respond(struct tally_http_request *request, const void *bytes, size_t n)
{
    struct tally_buffer body = {.size = 0};
    (void)tally_buffer_append(&body, bytes, n);
    struct tally_http_response response = {
        .status = 201,
        .content_type = "text/x-test; charset=utf-8",
        .headers = {{"Location", "/elsewhere"}, {"X-Two", "a, b"}},
        .body = &body};
    tally_http_respond(request, &response);
}

/* What came: method, target and headers, then the body. */
static void echo(struct tally_http_request *request)
{
    static const char *const NAMES[] = {"Accept", "Authorization", "Content-Type", "Content-Length",
                                        "Expect", "User-Agent",    "X-Empty"};
    struct tally_buffer text = {.size = 0};
    (void)tally_buffer_printf(&text, "%s ", tally_http_method(request));
    CU_ASSERT_EQUAL(tally_http_target(request, &text), TALLY_OK);
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        const char *value = tally_http_header(request, NAMES[i]);
        if (value != NULL) {
            (void)tally_buffer_printf(&text, " %s=%s", NAMES[i], value);
        }
    }
    struct tally_buffer body;
    tally_http_take_body(request, &body);
    (void)tally_buffer_append_text(&text, "\n");
    (void)tally_buffer_append(&text, body.data, body.size);
    respond(request, text.data, text.size);
    tally_buffer_fini(&body);
    tally_buffer_fini(&text);
}

static void on_request(void *context, struct tally_http_request *request)
{
    struct host *host = context;
    atomic_fetch_add(&host->n_requests, 1);
    const char *path = tally_http_path(request);
    size_t n;
    const uint8_t *body = tally_http_body(request, &n);
    if (strcmp(path, "/hold") == 0) {
        host->held[host->n_held++] = request;
    } else if (strcmp(path, "/mirror") == 0) {
        respond(request, body, n);
    } else if (strcmp(path, "/none") == 0) {
        const struct tally_http_response response = {.status = 204};
        tally_http_respond(request, &response);
    } else {
        echo(request);
    }
}

static void on_abandoned(void *context, struct tally_http_request *request)
{
    struct host *host = context;
    for (size_t i = 0; i < host->n_held; i++) {
        if (host->held[i] == request) {
            host->held[i] = host->held[--host->n_held];
            break;
        }
    }
    atomic_fetch_add(&host->n_abandoned, 1);
}

static void *run_host(void *context)
{
    struct host *host = context;
    while (!atomic_load(&host->stops)) {
        unsigned n_connections;
        size_t held_bytes;
        (void)tally_http_server_step(host->server, HANG_MS, host->wake_fd, NULL);
        tally_http_server_load(host->server, &n_connections, &held_bytes);
        atomic_store(&host->n_connections, n_connections);
        if (atomic_exchange(&host->releases, false)) {
            uint64_t count;
            CU_ASSERT_EQUAL(read(host->wake_fd, &count, sizeof count), (ssize_t)sizeof count);
            while (host->n_held > 0) {
                respond(host->held[--host->n_held], "released", 8);
            }
        }
    }
    return NULL;
}

static void host_start(struct host *host)
{
    memset(host, 0, sizeof *host);
    host->wake_fd = eventfd(0, EFD_CLOEXEC);
    struct tally_http_server_config config = {.listen = "127.0.0.1:0",
                                              .max_body_bytes = 16 << 20,
                                              .on_request = on_request,
                                              .on_abandoned = on_abandoned,
                                              .context = host};
    CU_ASSERT_EQUAL_FATAL(tally_http_server_new(&config, &host->server, NULL), TALLY_OK);
    snprintf(host->url, sizeof host->url, "http://127.0.0.1:%u",
             tally_http_server_port(host->server));
    CU_ASSERT_EQUAL_FATAL(pthread_create(&host->thread, NULL, run_host, host), 0);
}

static void signal_host(struct host *host, atomic_bool *flag)
{
    const uint64_t one = 1;
    atomic_store(flag, true);
    CU_ASSERT_EQUAL(write(host->wake_fd, &one, sizeof one), (ssize_t)sizeof one);
}

static void host_stop(struct host *host)
{
    signal_host(host, &host->stops);
    pthread_join(host->thread, NULL);
    tally_http_server_free(host->server);
    close(host->wake_fd);
}

static void wait_until(atomic_size_t *counter, size_t n)
{
    for (int i = 0; i < HANG_MS && atomic_load(counter) < n; i++) {
        (void)poll(NULL, 0, 1);
    }
    CU_ASSERT_TRUE(atomic_load(counter) >= n);
}

/* ---- The forwarder's owner ---- */

struct owner {
    struct tally_http_forwarder *forwarder;
};

static void owner_start(struct owner *owner, const struct tally_http_forwarder_config *limits)
{
    struct tally_http_forwarder_config config =
        limits != NULL ? *limits : (struct tally_http_forwarder_config){0};
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_http_forwarder_new(&config, &owner->forwarder, &err), TALLY_OK, &err);
}

static void owner_stop(struct owner *owner)
{
    tally_http_forwarder_free(owner->forwarder);
}

static enum tally_status submit(struct owner *owner, const char *url, const char *target,
                                long timeout_ms, void *user, struct tally_http_forward **ret)
{
    const struct tally_http_forward_request request = {
        .method = "GET", .base_url = url, .target = target, .timeout_ms = timeout_ms, .user = user};
    return tally_http_forward(owner->forwarder, &request, ret, NULL);
}

static struct tally_http_forward *expect_submit(struct owner *owner, const char *url,
                                                const char *target, long timeout_ms, void *user)
{
    struct tally_http_forward *forward = NULL;
    CU_ASSERT_EQUAL_FATAL(submit(owner, url, target, timeout_ms, user, &forward), TALLY_OK);
    return forward;
}

/* Whether the forwarder's descriptor becomes readable. */
static bool has_work(const struct owner *owner, int timeout_ms)
{
    struct pollfd ready = {.fd = tally_http_forwarder_fd(owner->forwarder), .events = POLLIN};
    return poll(&ready, 1, timeout_ms) == 1;
}

static void take(struct owner *owner, struct tally_http_forward_result *ret_result)
{
    while (!tally_http_forward_take(owner->forwarder, ret_result)) {
        CU_ASSERT_TRUE_FATAL(has_work(owner, HANG_MS));
    }
}

/* Turns the forwarder, which is to have no result, until the counter has reached `n`. */
static void turn_until(const struct owner *owner, atomic_size_t *counter, size_t n)
{
    struct tally_http_forward_result result;
    const int64_t end_ms =
        tally_monotonic_ms() + HANG_MS; /* not turns: there may be work in each */
    while (atomic_load(counter) < n && tally_monotonic_ms() < end_ms) {
        CU_ASSERT_FALSE_FATAL(tally_http_forward_take(owner->forwarder, &result));
        (void)has_work(owner, 1);
    }
    CU_ASSERT_TRUE(atomic_load(counter) >= n);
}

/* Whose it is and what it says does not matter. */
static void take_any(struct owner *owner)
{
    struct tally_http_forward_result result;
    take(owner, &result);
    tally_http_forward_result_fini(&result);
}

static void assert_failure(struct owner *owner, enum tally_status expected)
{
    struct tally_http_forward_result result;
    take(owner, &result);
    TALLY_ASSERT_STATUS(result.err.status, expected, &result.err);
    CU_ASSERT_EQUAL(result.body.size, 0);
    tally_http_forward_result_fini(&result);
}

static void assert_body(struct tally_http_forward_result *result, const char *expected)
{
    (void)tally_buffer_append(&result->body, "", 1);
    TALLY_ASSERT_TEXT((const char *)result->body.data, expected);
}

static const char *header_of(const struct tally_http_forward_result *result, const char *name)
{
    for (size_t i = 0; result->headers[i].name != NULL; i++) {
        if (strcasecmp(result->headers[i].name, name) == 0) {
            return result->headers[i].value;
        }
    }
    return NULL;
}

static void start_both(struct host *host, struct owner *owner,
                       const struct tally_http_forwarder_config *limits)
{
    host_start(host);
    owner_start(owner, limits);
}

static void stop_both(struct host *host, struct owner *owner)
{
    owner_stop(owner);
    host_stop(host);
}

/* ---- Answers ---- */

static void test_api_http_forward__answer_comes_back_as_it_is(void)
{
    struct host host;
    struct owner owner;
    struct tally_http_forward_result result;
    start_both(&host, &owner, NULL);
    expect_submit(&owner, host.url, "/a%20b/c?x=1&y&z=%26", 5000, &host);
    take(&owner, &result);
    TALLY_ASSERT_STATUS(result.err.status, TALLY_OK, &result.err);
    CU_ASSERT_PTR_EQUAL(result.user, &host);
    CU_ASSERT_EQUAL(result.http_status, 201);
    TALLY_ASSERT_TEXT(result.content_type, "text/x-test; charset=utf-8");
    TALLY_ASSERT_TEXT(result.headers[0].name, "Location");
    TALLY_ASSERT_TEXT(result.headers[0].value, "/elsewhere");
    TALLY_ASSERT_TEXT(header_of(&result, "X-Two"), "a, b");
    CU_ASSERT_PTR_NULL(header_of(&result, "Content-Type"));
    CU_ASSERT_PTR_NULL(header_of(&result, "Content-Length"));
    CU_ASSERT_PTR_NULL(header_of(&result, "Date"));
    CU_ASSERT_PTR_NULL(header_of(&result, "Connection"));
    assert_body(&result, "GET /a%20b/c?x=1&y&z=%26\n"); /* and no header of libcurl's own */
    tally_http_forward_result_fini(&result);
    expect_submit(&owner, host.url, "/none", 5000, NULL);
    take(&owner, &result);
    CU_ASSERT_EQUAL(result.http_status, 204);
    CU_ASSERT_PTR_NULL(result.content_type);
    CU_ASSERT_EQUAL(result.body.size, 0);
    tally_http_forward_result_fini(&result);
    stop_both(&host, &owner);
}

static void test_api_http_forward__request_goes_as_it_is(void)
{
    struct host host;
    struct owner owner;
    struct tally_http_forward *forward;
    struct tally_http_forward_result result;
    struct tally_buffer body = {.size = 0};
    start_both(&host, &owner, NULL);
    char url[80];
    snprintf(url, sizeof url, "%s//", host.url);
    struct tally_http_forward_request request = {.method = "POST",
                                                 .base_url = url,
                                                 .target = "/p",
                                                 .headers = {{"Authorization", "Bearer s3cret"},
                                                             {"Content-Type", "a/b"},
                                                             {"Accept", "c/d"},
                                                             {"User-Agent", "me"},
                                                             {"X-Empty", ""}},
                                                 .body = &body,
                                                 .timeout_ms = HANG_MS};
    (void)tally_buffer_append_text(&body, "hello");
    CU_ASSERT_EQUAL_FATAL(tally_http_forward(owner.forwarder, &request, &forward, NULL), TALLY_OK);
    CU_ASSERT_PTR_NULL(body.data); /* moved */
    take(&owner, &result);
    assert_body(&result, "POST /p Accept=c/d Authorization=Bearer s3cret Content-Type=a/b "
                         "Content-Length=5 User-Agent=me X-Empty=\nhello");
    tally_http_forward_result_fini(&result);
    request = (struct tally_http_forward_request){
        .method = "PUT", .base_url = url, .target = "/q", .timeout_ms = HANG_MS};
    CU_ASSERT_EQUAL_FATAL(tally_http_forward(owner.forwarder, &request, &forward, NULL), TALLY_OK);
    take(&owner, &result);
    assert_body(&result, "PUT /q Content-Length=0\n");
    tally_http_forward_result_fini(&result);
    stop_both(&host, &owner);
}

static void test_api_http_forward__no_line_ends_in_a_head(void)
{
    struct owner owner;
    struct tally_http_forward *forward = NULL;
    owner_start(&owner, NULL);
    struct tally_http_forward_request request = {.method = "GET",
                                                 .base_url = "http://127.0.0.1:1",
                                                 .target = "/",
                                                 .headers = {{"Accept", "a\r\nX-Evil: 1"}},
                                                 .timeout_ms = 1000};
    CU_ASSERT_EQUAL(tally_http_forward(owner.forwarder, &request, &forward, NULL),
                    TALLY_INVALID_ARGUMENT);
    request.headers[0].name = NULL;
    request.target = "/ HTTP/1.1\nX: y";
    CU_ASSERT_EQUAL(tally_http_forward(owner.forwarder, &request, &forward, NULL),
                    TALLY_INVALID_ARGUMENT);
    CU_ASSERT_PTR_NULL(forward);
    owner_stop(&owner);
}

static void test_api_http_forward__large_bodies(void)
{
    enum { BIG = 8 << 20 };
    struct host host;
    struct owner owner;
    struct tally_http_forward *forward;
    struct tally_http_forward_result result;
    struct tally_buffer body = {.size = 0};
    start_both(&host, &owner, NULL);
    CU_ASSERT_EQUAL_FATAL(tally_buffer_reserve(&body, BIG), TALLY_OK);
    body.size = BIG;
    for (size_t i = 0; i < BIG; i++) {
        body.data[i] = (uint8_t)(i * 2654435761U >> 24);
    }
    struct tally_buffer copy = {.size = 0};
    CU_ASSERT_EQUAL_FATAL(tally_buffer_append(&copy, body.data, body.size), TALLY_OK);
    const struct tally_http_forward_request request = {.method = "POST",
                                                       .base_url = host.url,
                                                       .target = "/mirror",
                                                       .body = &body,
                                                       .timeout_ms = HANG_MS};
    CU_ASSERT_EQUAL_FATAL(tally_http_forward(owner.forwarder, &request, &forward, NULL), TALLY_OK);
    take(&owner, &result);
    TALLY_ASSERT_STATUS(result.err.status, TALLY_OK, &result.err);
    CU_ASSERT_EQUAL_FATAL(result.body.size, BIG);
    CU_ASSERT_EQUAL(memcmp(result.body.data, copy.data, BIG), 0);
    tally_http_forward_result_fini(&result);
    tally_buffer_fini(&copy);
    stop_both(&host, &owner);
}

/* ---- Many, and waiting ---- */

static void test_api_http_forward__long_poll_holds_up_nobody(void)
{
    struct host host;
    struct owner owner;
    struct tally_http_forward_result result;
    int tags[2];
    start_both(&host, &owner, NULL);
    expect_submit(&owner, host.url, "/hold", HANG_MS, &tags[0]);
    turn_until(&owner, &host.n_requests, 1);
    expect_submit(&owner, host.url, "/x", 5000, &tags[1]);
    take(&owner, &result);
    CU_ASSERT_PTR_EQUAL(result.user, &tags[1]);
    tally_http_forward_result_fini(&result);
    CU_ASSERT_FALSE(tally_http_forward_take(owner.forwarder, &result));
    signal_host(&host, &host.releases);
    take(&owner, &result);
    CU_ASSERT_PTR_EQUAL(result.user, &tags[0]);
    assert_body(&result, "released");
    tally_http_forward_result_fini(&result);
    stop_both(&host, &owner);
}

static void test_api_http_forward__two_hundred_at_once(void)
{
    enum { N = 200 };
    struct host host;
    struct owner owner;
    struct tally_http_forward_result result;
    bool came[N] = {false};
    start_both(&host, &owner, NULL);
    for (int round = 0; round < 2; round++) { /* the second on kept connections */
        for (size_t i = 0; i < N; i++) {
            expect_submit(&owner, host.url, "/hold", HANG_MS, &came[i]);
        }
        turn_until(&owner, &host.n_requests, (size_t)(round + 1) * N);
        CU_ASSERT_FALSE(tally_http_forward_take(owner.forwarder, &result));
        signal_host(&host, &host.releases);
        memset(came, 0, sizeof came);
        for (size_t i = 0; i < N; i++) {
            take(&owner, &result);
            TALLY_ASSERT_STATUS(result.err.status, TALLY_OK, &result.err);
            bool *mine = result.user;
            CU_ASSERT_FALSE(*mine);
            *mine = true;
            tally_http_forward_result_fini(&result);
        }
    }
    stop_both(&host, &owner);
}

/* A peer that answers every request of every connection, one connection after the other, and
 * counts them. */
struct plain_peer {
    int listen_fd;
    pthread_t thread;
    char url[64];
    _Atomic(const char *) answer; /* then the connection is closed, unless keeps */
    atomic_bool keeps;
    atomic_size_t n_connections, n_requests;
};

static bool serve_one(struct plain_peer *peer, int fd)
{
    struct tally_buffer in = {.size = 0};
    bool whole = false;
    for (bool open = true; open && !whole;) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        (void)poll(&ready, 1, HANG_MS);
        open = tally_raw_receive(fd, &in);
        whole = in.size > 0 && strstr((char *)in.data, "\r\n\r\n") != NULL;
    }
    tally_buffer_fini(&in);
    const bool keeps = peer->keeps; /* the test may change it when it has the answer */
    if (whole) {
        atomic_fetch_add(&peer->n_requests, 1);
        const char *answer = peer->answer;
        (void)tally_raw_send(fd, answer, strlen(answer));
    }
    return whole && keeps;
}

static void *run_plain_peer(void *context)
{
    struct plain_peer *peer = context;
    int fd;
    while ((fd = accept4(peer->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        atomic_fetch_add(&peer->n_connections, 1);
        while (serve_one(peer, fd)) {
        }
        close(fd);
    }
    return NULL;
}

static int listen_on_loopback(char url[64])
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    CU_ASSERT_EQUAL_FATAL(bind(fd, (struct sockaddr *)&address, size), 0);
    CU_ASSERT_EQUAL_FATAL(listen(fd, 16), 0);
    CU_ASSERT_EQUAL_FATAL(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    snprintf(url, 64, "http://127.0.0.1:%u", ntohs(address.sin_port));
    return fd;
}

static void plain_peer_start(struct plain_peer *peer, const char *answer, bool keeps)
{
    memset(peer, 0, sizeof *peer);
    peer->answer = answer;
    peer->keeps = keeps;
    peer->listen_fd = listen_on_loopback(peer->url);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&peer->thread, NULL, run_plain_peer, peer), 0);
}

static void plain_peer_stop(struct plain_peer *peer)
{
    shutdown(peer->listen_fd, SHUT_RDWR); /* wakes accept() */
    pthread_join(peer->thread, NULL);
    close(peer->listen_fd);
}

static void test_api_http_forward__connections_are_used_again(void)
{
    struct plain_peer peer;
    struct owner owner;
    struct tally_http_forward_result result;
    plain_peer_start(&peer, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", true);
    owner_start(&owner, NULL);
    for (int i = 0; i < 5; i++) {
        expect_submit(&owner, peer.url, "/", 5000, NULL);
        take(&owner, &result);
        assert_body(&result, "ok");
        tally_http_forward_result_fini(&result);
    }
    owner_stop(&owner);
    plain_peer_stop(&peer);
    CU_ASSERT_EQUAL(peer.n_connections, 1);
    CU_ASSERT_EQUAL(peer.n_requests, 5);
}

static double cpu_seconds(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

static void test_api_http_forward__idle_connection_that_closes_is_quiet(void)
{
    struct plain_peer peer;
    struct owner owner;
    plain_peer_start(&peer, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", false);
    owner_start(&owner, NULL);
    expect_submit(&owner, peer.url, "/", 5000, NULL);
    take_any(&owner);
    const double before = cpu_seconds();
    struct tally_http_forward_result result;
    for (const int64_t end_ms = tally_monotonic_ms() + 300; tally_monotonic_ms() < end_ms;) {
        (void)has_work(&owner, 300);
        CU_ASSERT_FALSE(tally_http_forward_take(owner.forwarder, &result));
    }
    CU_ASSERT_TRUE(cpu_seconds() - before < 0.03);
    owner_stop(&owner);
    plain_peer_stop(&peer);
}

static void test_api_http_forward__idle_connections_are_few(void)
{
    enum { N = 20 };
    struct host host;
    struct owner owner;
    start_both(&host, &owner, &(struct tally_http_forwarder_config){.max_idle_connections = 3});
    for (size_t i = 0; i < N; i++) {
        expect_submit(&owner, host.url, "/hold", HANG_MS, NULL);
    }
    turn_until(&owner, &host.n_requests, N);
    signal_host(&host, &host.releases);
    for (size_t i = 0; i < N; i++) {
        take_any(&owner);
    }
    struct tally_http_forward_result none;
    const int64_t end_ms = tally_monotonic_ms() + HANG_MS;
    while (atomic_load(&host.n_connections) > 3 && tally_monotonic_ms() < end_ms) {
        CU_ASSERT_FALSE_FATAL(tally_http_forward_take(owner.forwarder, &none));
        (void)has_work(&owner, 1);
    }
    CU_ASSERT_EQUAL(atomic_load(&host.n_connections), 3);
    stop_both(&host, &owner);
}

/* ---- Failures ---- */

static void test_api_http_forward__peer_refuses_the_connection(void)
{
    struct owner owner;
    char url[64];
    close(listen_on_loopback(url)); /* nobody listens there now */
    owner_start(&owner, NULL);
    expect_submit(&owner, url, "/", 5000, NULL);
    assert_failure(&owner, TALLY_UNAVAILABLE);
    expect_submit(&owner, "nonsense://x", "/", 5000, NULL);
    assert_failure(&owner, TALLY_UNAVAILABLE);
    owner_stop(&owner);
}

static void assert_broken(const char *answer)
{
    struct plain_peer peer;
    struct owner owner;
    plain_peer_start(&peer, answer, false);
    owner_start(&owner, NULL);
    expect_submit(&owner, peer.url, "/", 5000, NULL);
    assert_failure(&owner, TALLY_UNAVAILABLE);
    owner_stop(&owner);
    plain_peer_stop(&peer);
}

static void test_api_http_forward__peer_closes_before_the_answer_is_whole(void)
{
    assert_broken("");
    assert_broken("HTTP/1.1 200 OK\r\nContent-Le");
    assert_broken("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort");
    assert_broken("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
    assert_broken("SSH-2.0-OpenSSH_9.2\r\n");
    assert_broken("HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n");
}

/* A body is not sent a second time: nobody can know whether the first one counted. */
static void test_api_http_forward__a_body_is_sent_once(void)
{
    struct plain_peer peer;
    struct owner owner;
    struct tally_http_forward *forward;
    plain_peer_start(&peer, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", true);
    owner_start(&owner, NULL);
    expect_submit(&owner, peer.url, "/", 5000, NULL);
    take_any(&owner);
    peer.answer = ""; /* from now on: read, and close */
    peer.keeps = false;
    struct tally_buffer body = {.size = 0};
    (void)tally_buffer_append_text(&body, "once");
    const struct tally_http_forward_request request = {.method = "POST",
                                                       .base_url = peer.url,
                                                       .target = "/",
                                                       .body = &body,
                                                       .timeout_ms = HANG_MS};
    CU_ASSERT_EQUAL_FATAL(tally_http_forward(owner.forwarder, &request, &forward, NULL), TALLY_OK);
    assert_failure(&owner, TALLY_UNAVAILABLE);
    owner_stop(&owner);
    plain_peer_stop(&peer);
    CU_ASSERT_EQUAL(peer.n_requests, 2);
}

static void test_api_http_forward__timeout(void)
{
    struct host host;
    struct owner owner;
    start_both(&host, &owner, NULL);
    expect_submit(&owner, host.url, "/hold", 150, NULL);
    assert_failure(&owner, TALLY_DEADLINE);
    wait_until(&host.n_abandoned, 1);
    stop_both(&host, &owner);
}

/* ---- Aborting ---- */

static void test_api_http_forward__abort_ends_it_at_the_peer(void)
{
    struct host host;
    struct owner owner;
    struct tally_http_forward *forward;
    struct tally_http_forward_result result;
    start_both(&host, &owner, NULL);
    forward = expect_submit(&owner, host.url, "/hold", HANG_MS, NULL);
    turn_until(&owner, &host.n_requests, 1);
    tally_http_forward_abort(forward);
    wait_until(&host.n_abandoned, 1);
    CU_ASSERT_FALSE(tally_http_forward_take(owner.forwarder, &result));
    /* At once, and when its result is there: one that cannot be sent has it soon. */
    forward = expect_submit(&owner, host.url, "/hold", HANG_MS, NULL);
    tally_http_forward_abort(forward);
    struct tally_http_forward *others[2];
    others[0] = expect_submit(&owner, "nonsense://x", "/", HANG_MS, &others[1]);
    others[1] = expect_submit(&owner, "nonsense://x", "/", HANG_MS, &others[0]);
    take(&owner, &result);
    tally_http_forward_abort(*(struct tally_http_forward **)result.user);
    tally_http_forward_result_fini(&result);
    CU_ASSERT_FALSE(tally_http_forward_take(owner.forwarder, &result));
    stop_both(&host, &owner);
}

/* Many are aborted while answers to them come. */
static void test_api_http_forward__abort_races_with_the_answer(void)
{
    enum { N = 100, ROUNDS = 5 };
    struct host host;
    struct owner owner;
    struct tally_http_forward *forwards[N];
    struct tally_http_forward_result result;
    bool aborted[N], came[N];
    start_both(&host, &owner, NULL);
    for (int round = 0; round < ROUNDS; round++) {
        memset(aborted, 0, sizeof aborted);
        memset(came, 0, sizeof came);
        for (size_t i = 0; i < N; i++) {
            forwards[i] = expect_submit(&owner, host.url, "/x", HANG_MS, &came[i]);
        }
        for (size_t i = (size_t)round; i < N; i += 2) {
            if (tally_http_forward_take(owner.forwarder, &result)) {
                *(bool *)result.user = true;
                tally_http_forward_result_fini(&result);
            }
            if (!came[i]) {
                aborted[i] = true;
                tally_http_forward_abort(forwards[i]);
            }
        }
        for (size_t i = 0; i < N; i++) {
            while (!aborted[i] && !came[i]) {
                take(&owner, &result);
                CU_ASSERT_FALSE(aborted[(bool *)result.user - came]);
                *(bool *)result.user = true;
                tally_http_forward_result_fini(&result);
            }
        }
        CU_ASSERT_FALSE(tally_http_forward_take(owner.forwarder, &result));
    }
    stop_both(&host, &owner);
}

static void test_api_http_forward__free_while_requests_are_under_way(void)
{
    struct host host;
    struct owner owner;
    start_both(&host, &owner, NULL);
    for (int i = 0; i < 20; i++) {
        expect_submit(&owner, host.url, "/hold", HANG_MS, NULL);
    }
    turn_until(&owner, &host.n_requests, 20);
    expect_submit(&owner, host.url, "/x", HANG_MS, NULL);
    expect_submit(&owner, host.url, "/hold", HANG_MS, NULL);
    owner_stop(&owner);
    wait_until(&host.n_abandoned, 20);
    host_stop(&host);
    tally_http_forwarder_free(NULL);
}

/* ---- Limits ---- */

static void test_api_http_forward__requests_have_a_limit(void)
{
    struct host host;
    struct owner owner;
    struct tally_http_forward *first, *second, *third = NULL;
    start_both(&host, &owner, &(struct tally_http_forwarder_config){.max_requests = 2});
    CU_ASSERT_EQUAL(submit(&owner, host.url, "/hold", HANG_MS, NULL, &first), TALLY_OK);
    CU_ASSERT_EQUAL(submit(&owner, host.url, "/x", HANG_MS, NULL, &second), TALLY_OK);
    CU_ASSERT_EQUAL(submit(&owner, host.url, "/x", HANG_MS, NULL, &third),
                    TALLY_RESOURCE_EXHAUSTED);
    CU_ASSERT_PTR_NULL(third);
    CU_ASSERT_TRUE(has_work(&owner, HANG_MS)); /* counts until its result is taken */
    CU_ASSERT_EQUAL(submit(&owner, host.url, "/x", HANG_MS, NULL, &third),
                    TALLY_RESOURCE_EXHAUSTED);
    take_any(&owner);
    CU_ASSERT_EQUAL(submit(&owner, host.url, "/x", HANG_MS, NULL, &third), TALLY_OK);
    stop_both(&host, &owner);
}

static struct tally_buffer body_of(size_t n)
{
    struct tally_buffer body = {.size = 0};
    CU_ASSERT_EQUAL_FATAL(tally_buffer_reserve(&body, n), TALLY_OK);
    memset(body.data, 'b', n);
    body.size = n;
    return body;
}

static enum tally_status mirror(struct owner *owner, const char *url, struct tally_buffer *body)
{
    struct tally_http_forward *forward;
    const struct tally_http_forward_request request = {.method = "POST",
                                                       .base_url = url,
                                                       .target = "/mirror",
                                                       .body = body,
                                                       .timeout_ms = HANG_MS};
    return tally_http_forward(owner->forwarder, &request, &forward, NULL);
}

static void test_api_http_forward__bytes_have_a_limit(void)
{
    struct host host;
    struct owner owner;
    struct tally_http_forward_result result;
    start_both(&host, &owner, &(struct tally_http_forwarder_config){.max_held_bytes = 150000});
    struct tally_buffer body = body_of(200000);
    CU_ASSERT_EQUAL(mirror(&owner, host.url, &body), TALLY_RESOURCE_EXHAUSTED);
    CU_ASSERT_EQUAL(body.size, 200000); /* stays the caller's */
    tally_buffer_fini(&body);
    body = body_of(100001);
    CU_ASSERT_EQUAL(mirror(&owner, host.url, &body), TALLY_OK);
    assert_failure(&owner, TALLY_RESOURCE_EXHAUSTED); /* body and answer are held together */
    for (int i = 0; i < 20; i++) {                    /* what was held is given back */
        body = body_of(50000);
        CU_ASSERT_EQUAL_FATAL(mirror(&owner, host.url, &body), TALLY_OK);
        take(&owner, &result);
        TALLY_ASSERT_STATUS(result.err.status, TALLY_OK, &result.err);
        CU_ASSERT_EQUAL(result.body.size, 50000);
        tally_http_forward_result_fini(&result);
    }
    owner_stop(&owner);
    owner_start(&owner, &(struct tally_http_forwarder_config){.max_answer_bytes = 100000});
    body = body_of(100001);
    CU_ASSERT_EQUAL(mirror(&owner, host.url, &body), TALLY_OK);
    assert_failure(&owner, TALLY_TOO_LARGE);
    body = body_of(100000);
    CU_ASSERT_EQUAL(mirror(&owner, host.url, &body), TALLY_OK);
    take(&owner, &result);
    TALLY_ASSERT_STATUS(result.err.status, TALLY_OK, &result.err);
    tally_http_forward_result_fini(&result);
    stop_both(&host, &owner);
}

static void test_api_http_forward__authorities_are_looked_at_at_once(void)
{
    struct tally_http_forwarder *forwarder = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_http_forwarder_config config = {.tls_ca = "/nonexistent.pem"};
    TALLY_ASSERT_STATUS(tally_http_forwarder_new(&config, &forwarder, &err), TALLY_INVALID_ARGUMENT,
                        &err);
    TALLY_ASSERT_TEXT(err.field, "peer-tls-ca");
    CU_ASSERT_PTR_NULL(forwarder);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_api_http_forward__answer_comes_back_as_it_is),
    TALLY_TEST(test_api_http_forward__request_goes_as_it_is),
    TALLY_TEST(test_api_http_forward__no_line_ends_in_a_head),
    TALLY_TEST(test_api_http_forward__large_bodies),
    TALLY_TEST(test_api_http_forward__long_poll_holds_up_nobody),
    TALLY_TEST(test_api_http_forward__two_hundred_at_once),
    TALLY_TEST(test_api_http_forward__connections_are_used_again),
    TALLY_TEST(test_api_http_forward__idle_connection_that_closes_is_quiet),
    TALLY_TEST(test_api_http_forward__idle_connections_are_few),
    TALLY_TEST(test_api_http_forward__peer_refuses_the_connection),
    TALLY_TEST(test_api_http_forward__peer_closes_before_the_answer_is_whole),
    TALLY_TEST(test_api_http_forward__a_body_is_sent_once),
    TALLY_TEST(test_api_http_forward__timeout),
    TALLY_TEST(test_api_http_forward__abort_ends_it_at_the_peer),
    TALLY_TEST(test_api_http_forward__abort_races_with_the_answer),
    TALLY_TEST(test_api_http_forward__free_while_requests_are_under_way),
    TALLY_TEST(test_api_http_forward__requests_have_a_limit),
    TALLY_TEST(test_api_http_forward__bytes_have_a_limit),
    TALLY_TEST(test_api_http_forward__authorities_are_looked_at_at_once),
};
TALLY_SUITE(api_http_forward, TESTS);
