#include "tests/unit/api/http/http_fixture.h"

void answer(struct fixture *f, struct tally_http_request *request,
            const struct tally_http_response *response)
{
    f->out_bytes += tally_http_respond(request, response);
}

void answer_text(struct fixture *f, struct tally_http_request *request, int status,
                 const char *text)
{
    struct tally_http_response response = {.status = status,
                                           .content_type = "text/plain",
                                           .static_body = text,
                                           .n_static_body = strlen(text)};
    answer(f, request, &response);
}

static void answer_echo(struct fixture *f, struct tally_http_request *request)
{
    size_t n;
    const uint8_t *body = tally_http_body(request, &n);
    struct tally_buffer copy = {.size = 0};
    (void)tally_buffer_append(&copy, body, n);
    struct tally_http_response response = {
        .status = 200, .content_type = "application/octet-stream", .body = &copy};
    answer(f, request, &response);
    CU_ASSERT_PTR_NULL(copy.data); /* the server owns it */
    CU_ASSERT_EQUAL(copy.size, 0);
}

static void answer_headers(struct fixture *f, struct tally_http_request *request)
{
    struct tally_http_response response = {
        .status = 201,
        .headers = {{"Location", "/v1/jobs/1"},
                    {"X-Broken", "a\r\nInjected: yes"}, /* left out */
                    {"Connection", "close"},            /* only the library sets it */
                    {"date", "yesterday"},
                    {"WWW-Authenticate", "Bearer realm=\"tally\""},
                    {"X-Last", "6"}}};
    answer(f, request, &response);
}

static void answer_large(struct fixture *f, struct tally_http_request *request)
{
    struct tally_buffer body = {.size = 0};
    if (tally_buffer_reserve(&body, 8 << 20) == TALLY_OK) {
        memset(body.data, 'L', 8 << 20);
        body.size = 8 << 20;
    }
    struct tally_http_response response = {.status = 200, .body = &body};
    answer(f, request, &response);
}

void answer_brief(struct fixture *f, struct tally_http_request *request, size_t n, char letter)
{
    struct tally_buffer body = {.size = 0};
    if (tally_buffer_reserve(&body, n) == TALLY_OK && n > 0) {
        memset(body.data, letter, n);
        body.size = n;
    }
    struct tally_http_response response = {
        .status = 200, .content_type = "application/proto", .body = &body, .is_brief = true};
    answer(f, request, &response);
    CU_ASSERT_EQUAL(body.size, 0);
    tally_buffer_fini(&body);
}

static void answer_tail(struct fixture *f, struct tally_http_request *request)
{
    struct tally_buffer body = {.size = 0};
    (void)tally_buffer_append_text(&body, "begin");
    struct tally_http_response response = {.status = 200, .body = &body, .tail = f->tail};
    answer(f, request, &response);
}

static void remember(struct fixture *f, const struct tally_http_request *request)
{
    f->n_requests++;
    f->in_bytes += tally_http_wire_in_bytes(request);
    const char *query = tally_http_query(request, "q");
    const char *header = tally_http_header(request, "x-test");
    f->has_query = query != NULL;
    f->has_header = header != NULL;
    snprintf(f->last_method, sizeof f->last_method, "%s", tally_http_method(request));
    snprintf(f->last_path, sizeof f->last_path, "%s", tally_http_path(request));
    snprintf(f->last_query, sizeof f->last_query, "%s", query != NULL ? query : "");
    snprintf(f->last_header, sizeof f->last_header, "%s", header != NULL ? header : "");
}

static void on_request(void *context, struct tally_http_request *request)
{
    struct fixture *f = context;
    remember(f, request);
    const char *path = tally_http_path(request);
    int status;
    size_t n;
    if (strncmp(path, "/wait", 5) == 0 && f->n_waiting < MAX_WAITING) {
        tally_http_set_user(request, f);
        f->waiting[f->n_waiting++] = request;
    } else if (strcmp(path, "/echo") == 0) {
        answer_echo(f, request);
    } else if (strcmp(path, "/headers") == 0) {
        answer_headers(f, request);
    } else if (strcmp(path, "/large") == 0) {
        answer_large(f, request);
    } else if (sscanf(path, "/brief/%zu", &n) == 1) {
        answer_brief(f, request, n, (char)('a' + n % 26));
    } else if (strcmp(path, "/tail") == 0) {
        answer_tail(f, request);
    } else if (sscanf(path, "/status/%d", &status) == 1) {
        answer_text(f, request, status, "words");
    } else {
        answer_text(f, request, 200, "hello");
    }
}

static void on_abandoned(void *context, struct tally_http_request *request)
{
    struct fixture *f = context;
    f->n_abandoned++;
    f->last_abandoned_user = tally_http_user(request);
    for (size_t i = 0; i < f->n_waiting; i++) {
        if (f->waiting[i] == request) {
            f->waiting[i] = NULL;
        }
    }
}

static void on_refused(void *context, const struct tally_http_refusal *refusal,
                       char ret_request_id[TALLY_HTTP_REQUEST_ID_CAPACITY])
{
    struct fixture *f = context;
    f->refused[refusal->reason]++;
    f->last_refusal_status = refusal->status;
    snprintf(ret_request_id, TALLY_HTTP_REQUEST_ID_CAPACITY, "id-%d", (int)refusal->reason);
}

void fixture_open_config(struct fixture *f, struct tally_http_server_config config)
{
    *f = (struct fixture){.n_waiting = 0};
    config.listen = "127.0.0.1:0";
    config.max_body_bytes = config.max_body_bytes != 0 ? config.max_body_bytes : MAX_BODY;
    config.on_request = on_request;
    config.on_abandoned = on_abandoned;
    config.on_refused = on_refused;
    config.context = f;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_http_server_new(&config, &f->server, &err), TALLY_OK, &err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(f->server);
    f->port = tally_http_server_port(f->server);
    CU_ASSERT_NOT_EQUAL(f->port, 0);
}

void fixture_open_with(struct fixture *f, unsigned max_connections, unsigned idle_timeout_s)
{
    fixture_open_config(f, (struct tally_http_server_config){.max_connections = max_connections,
                                                             .idle_timeout_s = idle_timeout_s});
}

void fixture_open(struct fixture *f)
{
    fixture_open_with(f, 0, 0);
}

void fixture_close(struct fixture *f)
{
    tally_http_server_free(f->server);
    f->server = NULL;
    manual_clock_run();
}

int connected(const struct fixture *f)
{
    int fd = tally_raw_connect(f->port);
    CU_ASSERT_TRUE_FATAL(fd >= 0);
    return fd;
}

void step(struct fixture *f, int timeout_ms)
{
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_http_server_step(f->server, timeout_ms, -1, &err), TALLY_OK, &err);
}

int64_t patience_end_ms(void)
{
    return manual_clock_real_ms() + PATIENCE_MS;
}

bool step_before(struct fixture *f, int64_t end_ms)
{
    const bool is_before = manual_clock_real_ms() < end_ms;
    if (is_before) {
        step(f, 5);
    }
    return is_before;
}

void step_for(struct fixture *f, long ms)
{
    const int64_t end_ms = manual_clock_real_ms() + ms;
    while (step_before(f, end_ms)) {
    }
}

void pass_time(struct fixture *f, long ms)
{
    const int64_t end_ms = tally_monotonic_ms() + ms;
    while (tally_monotonic_ms() < end_ms) {
        manual_clock_advance(4);
        step(f, 1);
    }
}

void await_requests(struct fixture *f, size_t n)
{
    for (int64_t end = patience_end_ms(); f->n_requests < n && step_before(f, end);) {
    }
    CU_ASSERT_EQUAL(f->n_requests, n);
}

void await_abandoned(struct fixture *f, size_t n)
{
    for (int64_t end = patience_end_ms(); f->n_abandoned < n && step_before(f, end);) {
    }
    CU_ASSERT_EQUAL(f->n_abandoned, n);
}

void await_connections(struct fixture *f, unsigned n)
{
    for (int64_t end = patience_end_ms(); f->server->peers.table.n != n && step_before(f, end);) {
    }
    CU_ASSERT_EQUAL(f->server->peers.table.n, n);
}

bool send_all(struct fixture *f, int fd, const void *bytes, size_t n)
{
    for (size_t done = 0; done < n;) {
        long sent = tally_raw_send(fd, (const char *)bytes + done, n - done);
        if (sent < 0) {
            return false;
        }
        done += (size_t)sent;
        step(f, 0);
    }
    return true;
}

bool await_response(struct fixture *f, int fd, struct tally_buffer *in, bool has_body)
{
    const int64_t end = patience_end_ms();
    bool open;
    do {
        open = tally_raw_receive(fd, in);
    } while (open && tally_raw_response_bytes((char *)in->data, in->size, has_body) == 0 &&
             step_before(f, end));
    return open;
}

void await_end(struct fixture *f, int fd, struct tally_buffer *in)
{
    const int64_t end = patience_end_ms();
    bool open;
    while ((open = tally_raw_receive(fd, in)) && step_before(f, end)) {
    }
    CU_ASSERT_FALSE(open);
}

int status_of(const struct tally_buffer *in)
{
    int status = 0;
    if (in->data != NULL) {
        (void)sscanf((const char *)in->data, "HTTP/1.1 %d", &status);
    }
    return status;
}

const char *body_of(const struct tally_buffer *in)
{
    const char *end = in->data != NULL ? strstr((const char *)in->data, "\r\n\r\n") : NULL;
    return end != NULL ? end + 4 : "";
}

bool holds(const struct tally_buffer *in, const char *text)
{
    return in->data != NULL && strstr((const char *)in->data, text) != NULL;
}

int ask(struct fixture *f, const char *request, struct tally_buffer *in)
{
    int fd = connected(f);
    in->size = 0;
    CU_ASSERT_TRUE(send_all(f, fd, request, strlen(request)));
    (void)await_response(f, fd, in, true);
    close(fd);
    return status_of(in);
}

int wait_on_new_connection(struct fixture *f)
{
    const char *request = "GET /wait HTTP/1.1\r\nHost: h\r\n\r\n";
    const size_t n_before = f->n_requests;
    int fd = connected(f);
    CU_ASSERT_TRUE(send_all(f, fd, request, strlen(request)));
    await_requests(f, n_before + 1);
    return fd;
}
