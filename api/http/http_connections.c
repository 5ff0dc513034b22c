#include "api/http/http_connections.h"

#include <assert.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* For two counters that struct tcp_info of netinet/tcp.h lacks; the two headers exclude each other.
 */
#include <linux/tcp.h>

enum {
    N_BUCKETS = 4096, /* of addresses; 20,000 addresses put about five in each */
    MARKED = 3        /* n_marks of a connection whose mark_bytes is valid */
};

struct http_address {
    uint64_t key;
    bool is_ipv6;
    unsigned n;
    struct http_address *next;
};

/* ---- Addresses ---- */

static uint64_t key_of(const struct sockaddr *peer, bool *ret_is_ipv6)
{
    uint64_t key = 0;
    *ret_is_ipv6 = peer->sa_family == AF_INET6;
    if (*ret_is_ipv6) {
        const struct in6_addr *six = &((const struct sockaddr_in6 *)(const void *)peer)->sin6_addr;
        *ret_is_ipv6 = !IN6_IS_ADDR_V4MAPPED(six);
        memcpy(&key, six->s6_addr + (*ret_is_ipv6 ? 0 : 12), *ret_is_ipv6 ? sizeof key : 4);
    } else if (peer->sa_family == AF_INET) {
        key = ((const struct sockaddr_in *)(const void *)peer)->sin_addr.s_addr;
    }
    return key;
}

/* The seed is secret, so an attacker cannot choose addresses of one bucket. */
static size_t bucket_of(const struct http_connections *table, uint64_t key)
{
    uint64_t x = key ^ table->seed;
    x = (x ^ (x >> 32)) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 29)) * (table->seed | 1);
    return (size_t)(x >> 40) % N_BUCKETS;
}

static struct http_address *find_address(struct http_connections *table,
                                         const struct sockaddr *peer)
{
    bool is_ipv6;
    const uint64_t key = key_of(peer, &is_ipv6);
    struct http_address **bucket = &table->addresses[bucket_of(table, key)];
    for (struct http_address *at = *bucket; at != NULL; at = at->next) {
        if (at->key == key && at->is_ipv6 == is_ipv6) {
            return at;
        }
    }
    struct http_address *address = calloc(1, sizeof *address);
    if (address != NULL) {
        *address = (struct http_address){.key = key, .is_ipv6 = is_ipv6, .next = *bucket};
        *bucket = address;
    }
    return address;
}

static void release_address(struct http_connections *table, struct http_address *address)
{
    if (--address->n > 0) {
        return;
    }
    struct http_address **at = &table->addresses[bucket_of(table, address->key)];
    while (*at != address) {
        at = &(*at)->next;
    }
    *at = address->next;
    free(address);
}

/* ---- The table ---- */

bool http_connections_init(struct http_connections *table, unsigned max, unsigned max_per_address,
                           int64_t request_timeout_ms, int64_t linger_ms, size_t max_held_bytes)
{
    *table = (struct http_connections){
        .max = max, .max_per_address = max_per_address, .max_held_bytes = max_held_bytes};
    for (int phase = 0; phase < N_HTTP_PHASES; phase++) {
        tally_list_init(&table->phases[phase]);
    }
    tally_list_init(&table->holders);
    table->period_ms[HTTP_RECEIVING] = request_timeout_ms;
    table->period_ms[HTTP_UPLOADING] = request_timeout_ms;
    table->period_ms[HTTP_IDLE] = request_timeout_ms / 4;
    table->period_ms[HTTP_SENDING] = request_timeout_ms;
    table->period_ms[HTTP_LINGERING] = linger_ms;
    if (getrandom(&table->seed, sizeof table->seed, GRND_NONBLOCK) < 0) {
        table->seed = (uint64_t)(uintptr_t)table;
    }
    table->addresses = calloc(N_BUCKETS, sizeof(struct http_address *));
    return table->addresses != NULL;
}

void http_connections_fini(struct http_connections *table)
{
    assert(table->n == 0);
    free(table->addresses);
}

enum http_admission http_connections_add(struct http_connections *table,
                                         struct http_connection *connection, int fd,
                                         const struct sockaddr *peer, enum http_phase phase,
                                         int64_t now_ms)
{
    if (table->n >= table->max) {
        return HTTP_FULL;
    }
    struct http_address *address = find_address(table, peer);
    if (address == NULL) {
        return HTTP_NO_MEMORY;
    }
    if (address->n >= table->max_per_address) {
        return HTTP_ADDRESS_FULL;
    }
    address->n++;
    table->n++;
    connection->fd = fd;
    connection->address = address;
    connection->phase = phase;
    connection->due_ms = now_ms + table->period_ms[phase];
    tally_list_append(&table->phases[phase], &connection->in_phase);
    return HTTP_ADMITTED;
}

bool http_connections_has_room(const struct http_connections *table,
                               const struct http_connection *connection)
{
    return table->n < table->max && connection->address->n < table->max_per_address;
}

void http_connections_remove(struct http_connections *table, struct http_connection *connection)
{
    http_connections_hold(table, connection, 0);
    tally_list_remove(&connection->in_phase);
    release_address(table, connection->address);
    table->n--;
}

static struct tcp_info info_of(const struct http_connection *connection)
{
    struct tcp_info info = {0};
    socklen_t size = sizeof info;
    (void)getsockopt(connection->fd, IPPROTO_TCP, TCP_INFO, &info, &size);
    return info;
}

struct http_transport http_connections_transport(const struct http_connection *connection)
{
    const struct tcp_info info = info_of(connection);
    return (struct http_transport){.received_bytes = info.tcpi_bytes_received,
                                   .acked_bytes = info.tcpi_bytes_acked,
                                   .received_ago_ms = info.tcpi_last_data_recv,
                                   .acked_ago_ms = info.tcpi_last_ack_recv};
}

static uint64_t progress_of(const struct http_connection *connection)
{
    switch (connection->phase) {
    case HTTP_UPLOADING:
    case HTTP_IDLE:
        return info_of(connection).tcpi_bytes_received;
    case HTTP_SENDING:
        return info_of(connection).tcpi_bytes_acked;
    case HTTP_RECEIVING:
    case HTTP_LINGERING:
    case HTTP_WAITING:
    case N_HTTP_PHASES:
        break;
    }
    return 0;
}

/* Moves the connection to the end of its list: the clock set last expires last. */
static void set_clock(struct http_connections *table, struct http_connection *connection,
                      enum http_phase phase, uint64_t mark_bytes, int64_t now_ms)
{
    tally_list_remove(&connection->in_phase);
    connection->phase = phase;
    connection->mark_bytes = mark_bytes;
    connection->n_marks = MARKED;
    connection->due_ms = now_ms + table->period_ms[phase];
    tally_list_append(&table->phases[phase], &connection->in_phase);
}

void http_connections_enter(struct http_connections *table, struct http_connection *connection,
                            enum http_phase phase, int64_t now_ms)
{
    set_clock(table, connection, phase, 0, now_ms);
    connection->n_marks = phase == HTTP_SENDING ? 0 : MARKED;
    if (phase == HTTP_UPLOADING && connection->read_bytes != HTTP_READ_UNKNOWN) {
        connection->mark_bytes = connection->read_bytes; /* otherwise 0: once in its favour */
    }
    if (phase == HTTP_IDLE) {
        connection->mark_bytes = connection->read_bytes != HTTP_READ_UNKNOWN
                                     ? connection->read_bytes
                                     : progress_of(connection);
    }
}

void http_connections_mark(struct http_connections *table)
{
    const struct tally_list_node *head = &table->phases[HTTP_SENDING].head;
    for (struct tally_list_node *node = head->previous; node != head; node = node->previous) {
        struct http_connection *at = TALLY_LIST_MEMBER(struct http_connection, in_phase, node);
        if (at->n_marks == MARKED) {
            return; /* so are those before it */
        }
        if (++at->n_marks == MARKED) {
            at->mark_bytes = progress_of(at);
        }
    }
}

void http_connections_hold(struct http_connections *table, struct http_connection *connection,
                           size_t bytes)
{
    const bool was = connection->held_bytes >= HTTP_HOLDER_BYTES;
    const bool is = bytes >= HTTP_HOLDER_BYTES;
    table->held_bytes += bytes - connection->held_bytes;
    connection->held_bytes = bytes;
    if (is && !was) {
        tally_list_append(&table->holders, &connection->in_holders);
    } else if (was && !is) {
        tally_list_remove(&connection->in_holders);
    }
}

/* ---- The clocks ---- */

static struct http_connection *first_in(const struct tally_list *phase)
{
    return TALLY_LIST_FIRST(struct http_connection, in_phase, phase);
}

/* Whether the peer made too little progress before its clock expired; if not, restarts the
 * clock. */
static bool is_late(struct http_connections *table, struct http_connection *connection,
                    int64_t now_ms)
{
    if (connection->phase == HTTP_RECEIVING || connection->phase == HTTP_LINGERING) {
        return true;
    }
    const uint64_t progress = progress_of(connection);
    if (connection->phase == HTTP_IDLE) {
        const bool has_begun = progress != connection->mark_bytes;
        set_clock(table, connection, has_begun ? HTTP_RECEIVING : HTTP_IDLE, progress, now_ms);
        return false;
    }
    const uint64_t least_bytes =
        (uint64_t)table->period_ms[connection->phase] * HTTP_MIN_BYTES_PER_S / 1000;
    if (progress - connection->mark_bytes < least_bytes) {
        return true;
    }
    set_clock(table, connection, connection->phase, progress, now_ms);
    return false;
}

struct http_connection *http_connections_late(struct http_connections *table, int64_t now_ms)
{
    for (int phase = 0; phase < N_HTTP_PHASES; phase++) {
        const struct tally_list *list = &table->phases[phase];
        struct http_connection *first;
        while (table->period_ms[phase] > 0 && (first = first_in(list)) != NULL &&
               first->due_ms <= now_ms) {
            if (is_late(table, first, now_ms)) {
                return first;
            }
        }
    }
    return NULL;
}

struct http_connection *http_connections_greedy(struct http_connections *table,
                                                const struct http_connection *spared)
{
    if (table->held_bytes <= table->max_held_bytes) {
        return NULL;
    }
    TALLY_LIST_EACH(node, &table->holders)
    {
        struct http_connection *connection =
            TALLY_LIST_MEMBER(struct http_connection, in_holders, node);
        if (connection != spared && connection->phase != HTTP_WAITING) {
            return connection;
        }
    }
    return NULL;
}

int64_t http_connections_wait_ms(const struct http_connections *table, int64_t now_ms)
{
    int64_t wait_ms = -1;
    for (int phase = 0; phase < N_HTTP_PHASES; phase++) {
        const struct http_connection *first = first_in(&table->phases[phase]);
        if (table->period_ms[phase] == 0 || first == NULL) {
            continue;
        }
        const int64_t left_ms = first->due_ms > now_ms ? first->due_ms - now_ms : 0;
        wait_ms = wait_ms < 0 || left_ms < wait_ms ? left_ms : wait_ms;
    }
    return wait_ms;
}
