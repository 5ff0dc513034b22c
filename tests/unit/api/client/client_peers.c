#include "tests/unit/api/client/client_peers.h"

#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "api/http/http_server.h"
#include "api/json/problem.h"
#include "tests/harness.h"
#include "tests/unit/api/raw_socket.h"

static void respond(struct client_host *host, struct tally_http_request *request, int status,
                    const char *type, const void *bytes, size_t n)
{
    struct tally_buffer body = {.size = 0};
    (void)tally_buffer_append(&body, bytes, n);
    struct tally_http_response response = {.status = status,
                                           .content_type = type,
                                           .headers = {{"Location", "/elsewhere"}},
                                           .body = &body};
    host->out_bytes += tally_http_respond(request, &response);
}

static void respond_text(struct client_host *host, struct tally_http_request *request, int status,
                         const char *type, const char *text)
{
    respond(host, request, status, type, text, strlen(text));
}

/* Responds with the headers that the client sent. */
static void respond_headers(struct client_host *host, struct tally_http_request *request)
{
    static const char *const names[] = {
        "Host",         "User-Agent",        "Accept", "Authorization",
        "Content-Type", "Content-Length",    "Expect", "Connect-Protocol-Version",
        "X-Extra",      "Connect-Timeout-Ms"};
    struct tally_buffer text = {.size = 0};
    (void)tally_buffer_printf(&text, "%s ", tally_http_method(request));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = tally_http_header(request, names[i]);
        if (value != NULL && strcmp(names[i], "Host") != 0) {
            (void)tally_buffer_printf(&text, "%s=%s;", names[i], value);
        }
    }
    bool is_connect = strstr(tally_http_path(request), "/tally.v1") != NULL;
    respond(host, request, 200, is_connect ? "application/proto" : "text/plain", text.data,
            text.size);
    tally_buffer_fini(&text);
}

static void respond_error(struct client_host *host, struct tally_http_request *request,
                          bool as_connect)
{
    struct tally_error err = {.status = TALLY_NOT_FOUND, .message = "no such thing", .field = "id"};
    struct tally_buffer body = {.size = 0};
    (void)(as_connect ? tally_connect_error_encode(&err, &body)
                      : tally_problem_encode(&err, &body));
    respond(host, request, 404, as_connect ? "application/json" : "application/problem+json",
            body.data, body.size);
    tally_buffer_fini(&body);
}

static void on_request(void *context, struct tally_http_request *request)
{
    struct client_host *host = context;
    host->in_bytes += tally_http_wire_in_bytes(request);
    size_t n;
    const uint8_t *body = tally_http_body(request, &n);
    const char *path = tally_http_path(request);
    const char *last = strrchr(path, '/');
    if (strcmp(last, "/hang") == 0) {
        return;
    }
    if (strcmp(last, "/Echo") == 0) {
        respond(host, request, 200, "application/proto", body, n);
    } else if (strcmp(last, "/Headers") == 0) {
        respond_headers(host, request);
    } else if (strcmp(last, "/problem") == 0) {
        respond_error(host, request, false);
    } else if (strcmp(last, "/Fail") == 0) {
        respond_error(host, request, true);
    } else if (strcmp(last, "/Proxy") == 0) {
        respond_text(host, request, 502, "text/html", "<h1>Bad gateway</h1>\n");
    } else if (strcmp(last, "/Page") == 0) {
        respond_text(host, request, 200, "text/html", "<h1>Welcome</h1>");
    } else if (strcmp(last, "/redirect") == 0) {
        respond_text(host, request, 302, NULL, "");
    } else {
        respond_text(host, request, 200, "text/plain", path);
    }
}

static void on_abandoned(void *context, struct tally_http_request *request)
{
    (void)request;
    struct client_host *host = context;
    host->n_abandoned++;
}

static void *run_host(void *context)
{
    struct client_host *host = context;
    struct pollfd stop = {.fd = host->stop_fd, .events = POLLIN};
    while (poll(&stop, 1, 0) == 0) {
        (void)tally_http_server_step(host->server, -1, host->stop_fd, NULL);
    }
    return NULL;
}

void client_start_thread(pthread_t *thread, void *(*run)(void *), void *context)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    CU_ASSERT_EQUAL_FATAL(pthread_create(thread, NULL, run, context), 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void client_host_start(struct client_host *host, unsigned idle_timeout_s)
{
    *host = (struct client_host){.stop_fd = eventfd(0, EFD_CLOEXEC)};
    struct tally_http_server_config config = {.listen = "127.0.0.1:0",
                                              .max_body_bytes = 1 << 22,
                                              .idle_timeout_s = idle_timeout_s,
                                              .on_request = on_request,
                                              .on_abandoned = on_abandoned,
                                              .context = host};
    CU_ASSERT_EQUAL_FATAL(tally_http_server_new(&config, &host->server, NULL), TALLY_OK);
    snprintf(host->url, sizeof host->url, "http://127.0.0.1:%u",
             tally_http_server_port(host->server));
    client_start_thread(&host->thread, run_host, host);
}

void client_host_stop(struct client_host *host)
{
    uint64_t one = 1;
    CU_ASSERT_EQUAL(write(host->stop_fd, &one, sizeof one), (ssize_t)sizeof one);
    pthread_join(host->thread, NULL);
    tally_http_server_free(host->server);
    close(host->stop_fd);
}

static bool read_request(int fd)
{
    struct tally_buffer in = {.size = 0};
    bool whole = false;
    for (bool open = true; open && !whole;) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        (void)poll(&ready, 1, CLIENT_HANG_MS);
        open = tally_raw_receive(fd, &in);
        whole = strstr((char *)in.data, "\r\n\r\n") != NULL;
    }
    tally_buffer_fini(&in);
    return whole;
}

long client_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void send_answer(struct client_peer *peer, int fd, const char *answer)
{
    const char *body = strstr(answer, "\r\n\r\n");
    size_t n = peer->drip_ms == 0 || body == NULL ? strlen(answer) : (size_t)(body + 4 - answer);
    while (answer[0] != '\0') {
        const long before_ms = client_now_ms();
        (void)tally_raw_send(fd, answer, n);
        const long pause_ms = client_now_ms() - peer->sent_ms;
        peer->longest_ms = pause_ms > peer->longest_ms ? pause_ms : peer->longest_ms;
        peer->sent_ms = before_ms;
        answer += n;
        n = peer->drip_ms == 0 ? strlen(answer) : 1;
        (void)poll(NULL, 0, peer->drip_ms);
    }
}

static void *run_peer(void *context)
{
    struct client_peer *peer = context;
    int fd = -1;
    for (const struct client_line *line = peer->script; line->answer != NULL;) {
        if (fd < 0) {
            fd = accept4(peer->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        }
        if (read_request(fd)) {
            send_answer(peer, fd, line->answer);
        }
        if (line->closes) {
            close(fd);
            fd = -1;
        }
        line++;
    }
    if (fd >= 0) {
        close(fd);
    }
    return NULL;
}

void client_peer_start_slow(struct client_peer *peer, const struct client_line *script, int drip_ms)
{
    *peer = (struct client_peer){.script = script,
                                 .drip_ms = drip_ms,
                                 .sent_ms = client_now_ms(),
                                 .listen_fd = socket(AF_INET, SOCK_STREAM, 0)};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    CU_ASSERT_EQUAL_FATAL(bind(peer->listen_fd, (struct sockaddr *)&address, size), 0);
    CU_ASSERT_EQUAL_FATAL(listen(peer->listen_fd, 5), 0);
    CU_ASSERT_EQUAL_FATAL(getsockname(peer->listen_fd, (struct sockaddr *)&address, &size), 0);
    snprintf(peer->url, sizeof peer->url, "http://127.0.0.1:%u", ntohs(address.sin_port));
    client_start_thread(&peer->thread, run_peer, peer);
}

void client_peer_start(struct client_peer *peer, const struct client_line *script)
{
    client_peer_start_slow(peer, script, 0);
}

void client_peer_stop(struct client_peer *peer)
{
    pthread_join(peer->thread, NULL);
    close(peer->listen_fd);
}

struct tally_http_client *client_with(const struct tally_http_client_config *config)
{
    struct tally_http_client *client = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_http_client_new(config, &client, &err), TALLY_OK, &err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(client);
    return client;
}

void caller_start_with(struct caller *caller, const struct tally_http_client_config *config)
{
    *caller = (struct caller){.client = client_with(config), .err = TALLY_ERROR_INIT};
}

void caller_start(struct caller *caller, const char *url)
{
    const struct tally_http_client_config config = {.base_url = url};
    caller_start_with(caller, &config);
}

void caller_stop(struct caller *caller)
{
    tally_http_client_free(caller->client);
    tally_buffer_fini(&caller->out);
}

enum tally_status caller_perform(struct caller *caller)
{
    tally_error_clear(&caller->err);
    return tally_http_perform(caller->client, &caller->exchange, &caller->out, &caller->err);
}

enum tally_status caller_get(struct caller *caller, const char *path, long timeout_ms)
{
    caller->exchange =
        (struct tally_http_exchange){.method = "GET", .path = path, .timeout_ms = timeout_ms};
    return caller_perform(caller);
}

enum tally_status caller_hang(struct caller *caller, long limit_ms)
{
    enum tally_status status = TALLY_UNAVAILABLE;
    while (status == TALLY_UNAVAILABLE && limit_ms < CLIENT_HANG_MS) {
        tally_error_clear(&caller->err);
        status = caller_get(caller, "/hang", limit_ms);
        limit_ms *= 2;
    }
    return status;
}

void client_assert_text(struct tally_buffer *out, const char *expected)
{
    (void)tally_buffer_append(out, "", 1);
    TALLY_ASSERT_TEXT((const char *)out->data, expected);
    out->size = 0;
}
