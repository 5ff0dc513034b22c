#include "tests/bench/load.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "codec/buffer.h"
#include "services/base/signals.h"
#include "services/base/time.h"

enum {
    EVENTS_AT_ONCE = 256,
    READ_BYTES = 4096, /* enough for a response without a point */
    /* A buffer that has grown beyond this is freed: otherwise a thousand clients of a large job
     * would hold a thousand broadcasts. */
    KEPT_BYTES = 64 << 10,
};

/* Headers from after the path up to the length of the body. */
static const char HEADERS[] = "User-Agent: tally-worker\r\n"
                              "Content-Type: application/proto\r\n"
                              "Content-Length: ";

struct connection {
    int fd;
    bool is_waiting; /* for a response */
    struct tally_buffer out;
    struct iovec parts[3]; /* of the request: bytes still to be sent */
    size_t n_out, n_out_body;
    int64_t begun_ns;
    struct tally_buffer in;
    size_t n_head, n_body; /* of the response; n_head = 0 until the head is complete */
    int status;
    bool is_over; /* the server closes the connection after this response */
};

struct tally_load {
    int epoll_fd;
    char host[48];
    tally_load_answer_fn *on_answer;
    void *context;
    struct tally_load_bytes bytes;
    uint32_t n;
    uint16_t port;
    struct connection connections[];
};

static enum tally_status broken(const char *what, struct tally_error *err)
{
    return tally_fail(err, TALLY_UNAVAILABLE, NULL, "a connection to the server broke: %s", what);
}

/* Connections. */

static enum tally_status connect_one(struct tally_load *load, uint32_t index,
                                     struct tally_error *err)
{
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons(load->port),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.u32 = index};
    load->connections[index].fd = fd;
    if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof address) != 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0 ||
        fcntl(fd, F_SETFL, O_NONBLOCK) != 0 ||
        epoll_ctl(load->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        return tally_fail(err, TALLY_UNAVAILABLE, NULL, "connection %u to port %u: %s", index + 1,
                          (unsigned)load->port, strerror(errno));
    }
    return TALLY_OK;
}

enum tally_status tally_load_new(uint16_t port, uint32_t n, tally_load_answer_fn *on_answer,
                                 void *context, struct tally_load **ret_load,
                                 struct tally_error *err)
{
    struct tally_load *load = calloc(1, sizeof *load + n * sizeof load->connections[0]);
    if (load == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %u connections", n);
    }
    load->on_answer = on_answer;
    load->context = context;
    load->n = n;
    load->port = port;
    for (uint32_t i = 0; i < n; i++) {
        load->connections[i].fd = -1;
    }
    snprintf(load->host, sizeof load->host, " HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n", (unsigned)port);
    load->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    enum tally_status status = load->epoll_fd >= 0 ? TALLY_OK
                                                   : tally_fail(err, TALLY_UNAVAILABLE, NULL,
                                                                "no epoll: %s", strerror(errno));
    for (uint32_t i = 0; i < n && status == TALLY_OK; i++) {
        status = connect_one(load, i, err);
    }
    if (status != TALLY_OK) {
        tally_load_free(load);
        return status;
    }
    *ret_load = load;
    return TALLY_OK;
}

void tally_load_free(struct tally_load *load)
{
    if (load == NULL) {
        return;
    }
    for (uint32_t i = 0; i < load->n; i++) {
        if (load->connections[i].fd >= 0) {
            close(load->connections[i].fd);
        }
        tally_buffer_fini(&load->connections[i].out);
        tally_buffer_fini(&load->connections[i].in);
    }
    if (load->epoll_fd >= 0) {
        close(load->epoll_fd);
    }
    free(load);
}

/* Requests. */

static enum tally_status send_rest(struct connection *connection, struct tally_error *err)
{
    struct iovec *parts = connection->parts;
    while (parts[0].iov_len + parts[1].iov_len + parts[2].iov_len > 0) {
        const struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};
        ssize_t n = sendmsg(connection->fd, &message, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return errno == EAGAIN ? TALLY_OK : broken(strerror(errno), err);
        }
        for (int i = 0; i < 3; i++) {
            const size_t sent = (size_t)n < parts[i].iov_len ? (size_t)n : parts[i].iov_len;
            parts[i].iov_base = (char *)parts[i].iov_base + sent;
            parts[i].iov_len -= sent;
            n -= (ssize_t)sent;
        }
    }
    return TALLY_OK;
}

/* Writes everything but the middle of the body to `out`. */
static enum tally_status write_request(const struct tally_load *load, struct tally_buffer *out,
                                       const char *path, const struct tally_load_body *body,
                                       size_t *ret_n_begin)
{
    char length[32];
    const int n = snprintf(length, sizeof length, "%zu\r\n\r\n",
                           body->n_begin + body->n_middle + body->n_end);
    out->size = 0;
    enum tally_status status = tally_buffer_append(out, "POST ", 5);
    status = status == TALLY_OK ? tally_buffer_append_text(out, path) : status;
    status = status == TALLY_OK ? tally_buffer_append_text(out, load->host) : status;
    status = status == TALLY_OK ? tally_buffer_append(out, HEADERS, sizeof HEADERS - 1) : status;
    status = status == TALLY_OK ? tally_buffer_append(out, length, (size_t)n) : status;
    status = status == TALLY_OK ? tally_buffer_append(out, body->begin, body->n_begin) : status;
    *ret_n_begin = out->size;
    return status == TALLY_OK ? tally_buffer_append(out, body->end, body->n_end) : status;
}

enum tally_status tally_load_post(struct tally_load *load, uint32_t connection, const char *path,
                                  const struct tally_load_body *body, struct tally_error *err)
{
    struct connection *self = &load->connections[connection];
    assert(!self->is_waiting);
    size_t n_begin;
    enum tally_status status = write_request(load, &self->out, path, body, &n_begin);
    if (status != TALLY_OK) {
        return tally_fail(err, status, NULL, "no memory for a request");
    }
    self->parts[0] = (struct iovec){self->out.data, n_begin};
    self->parts[1] = (struct iovec){(void *)(uintptr_t)body->middle, body->n_middle};
    self->parts[2] = (struct iovec){self->out.data + n_begin, self->out.size - n_begin};
    self->n_out = self->out.size + body->n_middle;
    self->n_out_body = body->n_begin + body->n_middle + body->n_end;
    self->is_waiting = true;
    self->in.size = self->n_head = 0;
    self->begun_ns = tally_monotonic_ns();
    return send_rest(self, err);
}

/* Responses. */

/* Reads status and length if the headers are complete. */
static enum tally_status read_head(struct connection *connection, struct tally_error *err)
{
    static const char LENGTH[] = "\r\nContent-Length:", CLOSE[] = "\r\nConnection: close\r\n";
    const char *data = (const char *)connection->in.data;
    const char *end = memmem(data, connection->in.size, "\r\n\r\n", 4);
    if (end == NULL) {
        return TALLY_OK;
    }
    const size_t n_head = (size_t)(end - data) + 4;
    if (n_head < 16 || memcmp(data, "HTTP/1.1 ", 9) != 0) {
        return broken("the response is not HTTP", err);
    }
    connection->status = atoi(data + 9);
    connection->is_over = memmem(data, n_head, CLOSE, sizeof CLOSE - 1) != NULL;
    const char *at = memchr(data, '\r', n_head);
    while (at < end && strncasecmp(at, LENGTH, sizeof LENGTH - 1) != 0) {
        at = memchr(at + 1, '\r', n_head - (size_t)(at + 1 - data));
    }
    if (at >= end) {
        return broken("an answer without its length", err);
    }
    connection->n_head = n_head;
    connection->n_body = strtoul(at + sizeof LENGTH - 1, NULL, 10);
    return TALLY_OK;
}

static bool is_complete(const struct connection *connection)
{
    return connection->n_head > 0 && connection->in.size >= connection->n_head + connection->n_body;
}

/* Receives what is available. Stops when the response is complete, because nothing else can
 * follow. */
static enum tally_status receive(struct connection *connection, struct tally_error *err)
{
    struct tally_buffer *in = &connection->in;
    enum tally_status status = TALLY_OK;
    while (status == TALLY_OK && !is_complete(connection)) {
        const size_t missing =
            connection->n_head > 0 ? connection->n_head + connection->n_body - in->size : 0;
        status = tally_buffer_reserve(in, missing > READ_BYTES ? missing : READ_BYTES);
        if (status != TALLY_OK) {
            return tally_fail(err, status, NULL, "no memory for an answer");
        }
        const ssize_t n = recv(connection->fd, in->data + in->size, in->capacity - in->size, 0);
        if (n == 0) {
            return broken("closed by the server", err);
        }
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return errno == EAGAIN ? TALLY_OK : broken(strerror(errno), err);
        }
        in->size += (size_t)n;
        status = connection->n_head == 0 ? read_head(connection, err) : TALLY_OK;
    }
    return status;
}

/* Detaches the response's bytes from the connection, so that the callback can send the next request
 * while it reads them. */
static enum tally_status deliver(struct tally_load *load, uint32_t index, struct tally_error *err)
{
    struct connection *connection = &load->connections[index];
    struct tally_buffer in = connection->in;
    const struct tally_load_answer answer = {.status = connection->status,
                                             .body = in.data + connection->n_head,
                                             .n_body = connection->n_body,
                                             .ns = tally_monotonic_ns() - connection->begun_ns};
    load->bytes.wire += connection->n_out + in.size;
    load->bytes.bodies += connection->n_out_body + connection->n_body;
    connection->in = (struct tally_buffer){0};
    connection->is_waiting = false;
    enum tally_status status = TALLY_OK;
    if (connection->is_over) {
        close(connection->fd);
        status = connect_one(load, index, err);
    }
    if (status == TALLY_OK) {
        status = load->on_answer(load->context, index, &answer, err);
    }
    if (in.capacity > KEPT_BYTES) {
        tally_buffer_fini(&in);
    }
    in.size = 0;
    connection->in = in;
    return status;
}

static enum tally_status serve(struct tally_load *load, uint32_t index, uint32_t *ret_n,
                               struct tally_error *err)
{
    struct connection *connection = &load->connections[index];
    enum tally_status status = TALLY_OK;
    if (connection->is_waiting) {
        status = send_rest(connection, err);
    }
    if (status == TALLY_OK && connection->is_waiting) {
        status = receive(connection, err);
    }
    if (status == TALLY_OK && connection->is_waiting && is_complete(connection)) {
        ++*ret_n;
        status = deliver(load, index, err);
    }
    return status;
}

enum tally_status tally_load_step(struct tally_load *load, int timeout_ms, uint32_t *ret_n,
                                  struct tally_error *err)
{
    struct epoll_event events[EVENTS_AT_ONCE];
    enum tally_status status = TALLY_OK;
    *ret_n = 0;
    if (*tally_signals_stop() != 0) {
        return tally_fail(err, TALLY_CANCELLED, NULL, "interrupted");
    }
    const int n = epoll_wait(load->epoll_fd, events, EVENTS_AT_ONCE, timeout_ms);
    for (int i = 0; i < n && status == TALLY_OK; i++) {
        status = serve(load, events[i].data.u32, ret_n, err);
    }
    return status;
}

struct tally_load_bytes tally_load_bytes(const struct tally_load *load)
{
    return load->bytes;
}
