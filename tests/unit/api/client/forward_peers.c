#include "tests/unit/api/client/forward_peers.h"

#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "codec/monotonic.h"
#include "tests/harness.h"
#include "tests/unit/api/raw_socket.h"

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

/* Responds with the method, target and headers of the request, then its body. */
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
    struct forward_host *host = context;
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
    struct forward_host *host = context;
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
    struct forward_host *host = context;
    while (!atomic_load(&host->stops)) {
        unsigned n_connections;
        size_t held_bytes;
        (void)tally_http_server_step(host->server, FORWARD_HANG_MS, host->wake_fd, NULL);
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

void forward_host_start(struct forward_host *host)
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

void forward_host_signal(struct forward_host *host, atomic_bool *flag)
{
    const uint64_t one = 1;
    atomic_store(flag, true);
    CU_ASSERT_EQUAL(write(host->wake_fd, &one, sizeof one), (ssize_t)sizeof one);
}

void forward_host_stop(struct forward_host *host)
{
    forward_host_signal(host, &host->stops);
    pthread_join(host->thread, NULL);
    tally_http_server_free(host->server);
    close(host->wake_fd);
}

void forward_wait_until(atomic_size_t *counter, size_t n)
{
    for (int i = 0; i < FORWARD_HANG_MS && atomic_load(counter) < n; i++) {
        (void)poll(NULL, 0, 1);
    }
    CU_ASSERT_TRUE(atomic_load(counter) >= n);
}

static bool serve_one(struct forward_plain_peer *peer, int fd)
{
    struct tally_buffer in = {.size = 0};
    bool whole = false;
    for (bool open = true; open && !whole;) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        (void)poll(&ready, 1, FORWARD_HANG_MS);
        open = tally_raw_receive(fd, &in);
        whole = in.size > 0 && strstr((char *)in.data, "\r\n\r\n") != NULL;
    }
    tally_buffer_fini(&in);
    const bool keeps = peer->keeps; /* the test may change it once it has the response */
    if (whole) {
        atomic_fetch_add(&peer->n_requests, 1);
        const char *answer = peer->answer;
        (void)tally_raw_send(fd, answer, strlen(answer));
    }
    return whole && keeps;
}

static void *run_plain_peer(void *context)
{
    struct forward_plain_peer *peer = context;
    int fd;
    while ((fd = accept4(peer->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        atomic_fetch_add(&peer->n_connections, 1);
        while (serve_one(peer, fd)) {
        }
        close(fd);
    }
    return NULL;
}

int forward_listen(char url[64])
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

void forward_plain_peer_start(struct forward_plain_peer *peer, const char *answer, bool keeps)
{
    memset(peer, 0, sizeof *peer);
    peer->answer = answer;
    peer->keeps = keeps;
    peer->listen_fd = forward_listen(peer->url);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&peer->thread, NULL, run_plain_peer, peer), 0);
}

void forward_plain_peer_stop(struct forward_plain_peer *peer)
{
    shutdown(peer->listen_fd, SHUT_RDWR); /* wakes accept() */
    pthread_join(peer->thread, NULL);
    close(peer->listen_fd);
}

void forward_owner_start(struct forward_owner *owner,
                         const struct tally_http_forwarder_config *limits)
{
    struct tally_http_forwarder_config config =
        limits != NULL ? *limits : (struct tally_http_forwarder_config){0};
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_http_forwarder_new(&config, &owner->forwarder, &err), TALLY_OK, &err);
}

void forward_owner_stop(struct forward_owner *owner)
{
    tally_http_forwarder_free(owner->forwarder);
}

enum tally_status forward_submit(struct forward_owner *owner, const char *url, const char *target,
                                 long timeout_ms, void *user, struct tally_http_forward **ret)
{
    const struct tally_http_forward_request request = {
        .method = "GET", .base_url = url, .target = target, .timeout_ms = timeout_ms, .user = user};
    return tally_http_forward(owner->forwarder, &request, ret, NULL);
}

struct tally_http_forward *forward_expect_submit(struct forward_owner *owner, const char *url,
                                                 const char *target, long timeout_ms, void *user)
{
    struct tally_http_forward *forward = NULL;
    CU_ASSERT_EQUAL_FATAL(forward_submit(owner, url, target, timeout_ms, user, &forward), TALLY_OK);
    return forward;
}

bool forward_has_work(const struct forward_owner *owner, int timeout_ms)
{
    struct pollfd ready = {.fd = tally_http_forwarder_fd(owner->forwarder), .events = POLLIN};
    return poll(&ready, 1, timeout_ms) == 1;
}

void forward_take(struct forward_owner *owner, struct tally_http_forward_result *ret_result)
{
    while (!tally_http_forward_take(owner->forwarder, ret_result)) {
        CU_ASSERT_TRUE_FATAL(forward_has_work(owner, FORWARD_HANG_MS));
    }
}

void forward_turn_until(const struct forward_owner *owner, atomic_size_t *counter, size_t n)
{
    struct tally_http_forward_result result;
    const int64_t end_ms =
        tally_monotonic_ms() + FORWARD_HANG_MS; /* limits time, not turns: each turn may do work */
    while (atomic_load(counter) < n && tally_monotonic_ms() < end_ms) {
        CU_ASSERT_FALSE_FATAL(tally_http_forward_take(owner->forwarder, &result));
        (void)forward_has_work(owner, 1);
    }
    CU_ASSERT_TRUE(atomic_load(counter) >= n);
}

void forward_take_any(struct forward_owner *owner)
{
    struct tally_http_forward_result result;
    forward_take(owner, &result);
    tally_http_forward_result_fini(&result);
}

void forward_assert_failure(struct forward_owner *owner, enum tally_status expected)
{
    struct tally_http_forward_result result;
    forward_take(owner, &result);
    TALLY_ASSERT_STATUS(result.err.status, expected, &result.err);
    CU_ASSERT_EQUAL(result.body.size, 0);
    tally_http_forward_result_fini(&result);
}

void forward_assert_body(struct tally_http_forward_result *result, const char *expected)
{
    (void)tally_buffer_append(&result->body, "", 1);
    TALLY_ASSERT_TEXT((const char *)result->body.data, expected);
}

const char *forward_header(const struct tally_http_forward_result *result, const char *name)
{
    for (size_t i = 0; result->headers[i].name != NULL; i++) {
        if (strcasecmp(result->headers[i].name, name) == 0) {
            return result->headers[i].value;
        }
    }
    return NULL;
}

void forward_start_both(struct forward_host *host, struct forward_owner *owner,
                        const struct tally_http_forwarder_config *limits)
{
    forward_host_start(host);
    forward_owner_start(owner, limits);
}

void forward_stop_both(struct forward_host *host, struct forward_owner *owner)
{
    forward_owner_stop(owner);
    forward_host_stop(host);
}
