#include "tests/contract/support/proxy.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/contract/support/raw_postgres.h"
#include "tests/harness.h"

enum { MAX_PAIRS = 32, MAX_FILLERS = 8, BACKLOG = 64, CHUNK = 16384 };

/* The two sockets of a connection: to the store, and to the server. */
struct pair {
    int ends[2];
};

struct proxy {
    pthread_t thread;
    pthread_mutex_t lock; /* for all members below */
    enum proxy_mode mode;
    bool is_ending;
    int bytes_per_s;
    int listener;
    int wake[2];
    int fillers[MAX_FILLERS]; /* connections that are never accepted */
    int n_fillers;
    struct pair pairs[MAX_PAIRS];
    int n_pairs;
};

static int connect_to_server(void)
{
    char host[256];
    char port[16];
    raw_find_server(host, sizeof host, port, sizeof port);
    struct addrinfo *found = NULL;
    CU_ASSERT_EQUAL_FATAL(
        getaddrinfo(host, port, &(struct addrinfo){.ai_socktype = SOCK_STREAM}, &found), 0);
    int fd = socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC, found->ai_protocol);
    CU_ASSERT_EQUAL_FATAL(connect(fd, found->ai_addr, found->ai_addrlen), 0);
    freeaddrinfo(found);
    return fd;
}

static struct sockaddr_in address_of(const struct proxy *proxy)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t n = sizeof address;
    CU_ASSERT_EQUAL_FATAL(getsockname(proxy->listener, (struct sockaddr *)&address, &n), 0);
    return address;
}

static void close_pair(struct proxy *proxy, int i)
{
    close(proxy->pairs[i].ends[0]);
    close(proxy->pairs[i].ends[1]);
    proxy->pairs[i] = proxy->pairs[--proxy->n_pairs];
}

static void accept_one(struct proxy *proxy)
{
    int fd = accept(proxy->listener, NULL, NULL);
    if (fd >= 0 && proxy->n_pairs < MAX_PAIRS) {
        proxy->pairs[proxy->n_pairs++] = (struct pair){{fd, connect_to_server()}};
    } else if (fd >= 0) {
        close(fd);
    }
}

/* False if either end has closed the connection. */
static bool pass_on(const struct proxy *proxy, int from, int to)
{
    uint8_t bytes[CHUNK];
    ssize_t n = recv(from, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n > 0 && proxy->bytes_per_s > 0) {
        usleep((useconds_t)(n * 1000000 / proxy->bytes_per_s));
    }
    return n > 0 && send(to, bytes, (size_t)n, MSG_NOSIGNAL) == n;
}

/* Handles the events that poll() returned: [0] is the pipe, [1] the listener. */
static void serve(struct proxy *proxy, const struct pollfd *polled, int n_pairs)
{
    char byte = 0;
    if (polled[0].revents != 0) {
        (void)!read(proxy->wake[0], &byte, 1);
    }
    if (proxy->mode != PROXY_PASS || n_pairs != proxy->n_pairs) {
        return;
    }
    for (int i = n_pairs - 1; i >= 0; i--) {
        const struct pair *pair = &proxy->pairs[i];
        bool is_open = true;
        for (int end = 0; end < 2 && is_open; end++) {
            if (polled[2 + 2 * i + end].revents != 0) {
                is_open = pass_on(proxy, pair->ends[end], pair->ends[1 - end]);
            }
        }
        if (!is_open) {
            close_pair(proxy, i);
        }
    }
    if (polled[1].revents != 0) {
        accept_one(proxy);
    }
}

static void *run(void *context)
{
    struct proxy *proxy = context;
    pthread_mutex_lock(&proxy->lock);
    while (!proxy->is_ending) {
        struct pollfd polled[2 + 2 * MAX_PAIRS] = {
            {.fd = proxy->wake[0], .events = POLLIN},
            {.fd = proxy->listener, .events = POLLIN},
        };
        int n_pairs = proxy->n_pairs;
        for (int i = 0; i < 2 * n_pairs; i++) {
            polled[2 + i] =
                (struct pollfd){.fd = proxy->pairs[i / 2].ends[i % 2], .events = POLLIN};
        }
        nfds_t n = proxy->mode == PROXY_PASS ? 2 + 2 * (nfds_t)n_pairs : 1;
        pthread_mutex_unlock(&proxy->lock);
        (void)poll(polled, n, -1);
        pthread_mutex_lock(&proxy->lock);
        serve(proxy, polled, n_pairs);
    }
    pthread_mutex_unlock(&proxy->lock);
    return NULL;
}

struct proxy *proxy_start(void)
{
    enum { RECEIVE_BUFFER = 16384 }; /* small, so that unforwarded bytes stay with the sender */
    struct proxy *proxy = calloc(1, sizeof *proxy);
    if (proxy == NULL) {
        abort();
    }
    proxy->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setsockopt(proxy->listener, SOL_SOCKET, SO_RCVBUF, &(int){RECEIVE_BUFFER}, sizeof(int));
    CU_ASSERT_EQUAL_FATAL(bind(proxy->listener, (struct sockaddr *)&address, sizeof address), 0);
    CU_ASSERT_EQUAL_FATAL(listen(proxy->listener, BACKLOG), 0);
    CU_ASSERT_EQUAL_FATAL(pipe(proxy->wake), 0);
    pthread_mutex_init(&proxy->lock, NULL);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&proxy->thread, NULL, run, proxy), 0);
    return proxy;
}

int proxy_port(const struct proxy *proxy)
{
    return ntohs(address_of(proxy).sin_port);
}

static void wake_up(struct proxy *proxy)
{
    CU_ASSERT_EQUAL(write(proxy->wake[1], "", 1), 1);
}

static void cut_all(struct proxy *proxy)
{
    while (proxy->n_pairs > 0) {
        close_pair(proxy, proxy->n_pairs - 1);
    }
    while (proxy->n_fillers > 0) {
        close(proxy->fillers[--proxy->n_fillers]);
    }
}

/* Fills the accept queue: after that Linux ignores new connections. */
static void fill_queue(struct proxy *proxy)
{
    enum { PATIENCE_MS = 200 };
    struct sockaddr_in address = address_of(proxy);
    struct pollfd filler = {.events = POLLOUT};
    CU_ASSERT_EQUAL(listen(proxy->listener, 0), 0);
    do {
        CU_ASSERT_FATAL(proxy->n_fillers < MAX_FILLERS);
        filler.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        connect(filler.fd, (struct sockaddr *)&address, sizeof address);
        proxy->fillers[proxy->n_fillers++] = filler.fd;
    } while (poll(&filler, 1, PATIENCE_MS) > 0);
}

void proxy_set(struct proxy *proxy, enum proxy_mode mode)
{
    pthread_mutex_lock(&proxy->lock);
    if (proxy->mode == PROXY_HOLE || mode == PROXY_HOLE) {
        cut_all(proxy);
        CU_ASSERT_EQUAL(listen(proxy->listener, BACKLOG), 0);
    }
    if (mode == PROXY_HOLE) {
        fill_queue(proxy);
    }
    proxy->mode = mode;
    pthread_mutex_unlock(&proxy->lock);
    wake_up(proxy);
}

void proxy_limit(struct proxy *proxy, int bytes_per_s)
{
    pthread_mutex_lock(&proxy->lock);
    proxy->bytes_per_s = bytes_per_s;
    pthread_mutex_unlock(&proxy->lock);
}

void proxy_stop(struct proxy *proxy)
{
    pthread_mutex_lock(&proxy->lock);
    proxy->is_ending = true;
    pthread_mutex_unlock(&proxy->lock);
    wake_up(proxy);
    pthread_join(proxy->thread, NULL);
    cut_all(proxy);
    close(proxy->listener);
    close(proxy->wake[0]);
    close(proxy->wake[1]);
    pthread_mutex_destroy(&proxy->lock);
    free(proxy);
}
