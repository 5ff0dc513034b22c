#include "tests/simulation/world/sim_network.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/simulation/world/sim.h"
#include "tests/simulation/world/sim_clock.h"
#include "tests/simulation/world/sim_http.h"
#include "tests/simulation/world/sim_random.h"

struct sim_exchange {
    int holds; /* events, the coordinator, and the client while it waits */
    struct sim_peer *peer;
    struct sim_host *host;
    struct sim_message message; /* the exchange owns its texts */
    bool client_waits;
    sim_answer_fn *done;
    void *context;
    struct tally_http_request *request; /* at the coordinator, until it is answered or abandoned */
    struct sim_answer answer;           /* on its way */
    struct sim_exchange *next, **link;
};

static struct {
    struct sim_network_faults faults;
    struct sim_exchange *exchanges;
    sim_balancer_fn *balancer;
    int64_t cut_until_us[SIM_MAX_PLACES][SIM_MAX_PLACES]; /* [from][to] */
} network;

enum { REFUSED_US = 200 /* no process listens: the kernel answers at once */ };

void sim_network_begin(sim_balancer_fn *balancer)
{
    memset(&network, 0, sizeof network);
    network.balancer = balancer;
}

void sim_network_set_faults(const struct sim_network_faults *faults)
{
    network.faults = *faults;
}

void sim_network_cut(int from, int to, int64_t until_us)
{
    network.cut_until_us[from][to] = until_us;
}

int64_t sim_network_cut_left_us(int from, int to)
{
    return network.cut_until_us[from][to] - sim_now_us();
}

void sim_network_mend(void)
{
    memset(network.cut_until_us, 0, sizeof network.cut_until_us);
}

/* How long the two ends of an exchange stay cut off, in one direction. */
static int64_t cut_left_us(const struct sim_exchange *exchange, bool to_host)
{
    const struct sim_peer *peer = exchange->peer, *host = &exchange->host->peer;
    const int64_t alone_us = peer->partitioned_until_us - sim_now_us();
    const int64_t us = to_host ? sim_network_cut_left_us(peer->place, host->place)
                               : sim_network_cut_left_us(host->place, peer->place);
    return us > alone_us ? us : alone_us;
}

static char *copy_text(const char *text)
{
    return text != NULL ? sim_copy(text, strlen(text)) : NULL;
}

static struct sim_exchange *new_exchange(struct sim_host *host, struct sim_peer *peer,
                                         const struct sim_message *message)
{
    struct sim_exchange *exchange = sim_new(sizeof *exchange);
    exchange->peer = peer;
    exchange->host = host;
    exchange->message = (struct sim_message){
        .method = copy_text(message->method),
        .path = copy_text(message->path),
        .content_type = copy_text(message->content_type),
        .idempotency_key = copy_text(message->idempotency_key),
        .forwarded = copy_text(message->forwarded),
        .body = sim_copy(message->body, message->n_body),
        .n_body = message->n_body,
    };
    exchange->next = network.exchanges;
    exchange->link = &network.exchanges;
    if (exchange->next != NULL) {
        exchange->next->link = &exchange->next;
    }
    network.exchanges = exchange;
    return exchange;
}

static void free_exchange(struct sim_exchange *exchange)
{
    *exchange->link = exchange->next;
    if (exchange->next != NULL) {
        exchange->next->link = exchange->link;
    }
    free((void *)exchange->message.method);
    free((void *)exchange->message.path);
    free((void *)exchange->message.content_type);
    free((void *)exchange->message.idempotency_key);
    free((void *)exchange->message.forwarded);
    free((void *)exchange->message.body);
    tally_buffer_fini(&exchange->answer.body);
    free(exchange);
}

void sim_network_end(void)
{
    while (network.exchanges != NULL) {
        free_exchange(network.exchanges);
    }
}

static void release(struct sim_exchange *exchange)
{
    if (--exchange->holds == 0) {
        free_exchange(exchange);
    }
}

/* Schedules an event about an exchange, which stays allocated until then. */
static void schedule(struct sim_exchange *exchange, int64_t delay_us, sim_event_fn *event)
{
    exchange->holds++;
    sim_after(delay_us, event, exchange, 0);
}

static int64_t draw_delay_us(void)
{
    const int64_t mean = network.faults.delay_us;
    return sim_around(sim_chance(network.faults.late) ? 100 * mean : mean);
}

/* Defers an event until a stopped process continues. True if it was deferred. */
static bool put_off(struct sim_exchange *exchange, sim_event_fn *event)
{
    const int64_t left_us = exchange->peer->paused_until_us - sim_now_us();
    if (left_us <= 0) {
        return false;
    }
    sim_after(left_us, event, exchange, 0);
    return true;
}

/* Ends the client's wait. */
static void finish(struct sim_exchange *exchange, struct sim_answer *answer)
{
    exchange->client_waits = false;
    exchange->holds--; /* the event that ends the wait has its own hold */
    if (answer->status != TALLY_OK) {
        exchange->peer->connected_to = 0;
    }
    exchange->done(exchange->context, exchange, answer);
}

static void client_sees_break(void *context, int64_t argument)
{
    struct sim_exchange *exchange = context;
    if (put_off(exchange, client_sees_break)) {
        return;
    }
    (void)argument;
    if (exchange->client_waits) {
        struct sim_answer answer = {.status = TALLY_UNAVAILABLE};
        finish(exchange, &answer);
    }
    release(exchange);
}

/* The coordinator notices that no client waits for the response any more. */
static void coordinator_sees_break(void *context, int64_t argument)
{
    struct sim_exchange *exchange = context;
    (void)argument;
    if (exchange->request != NULL && cut_left_us(exchange, true) <= 0) {
        struct tally_http_request *request = exchange->request;
        exchange->request = NULL;
        exchange->host->lose(exchange->host, request);
    }
    release(exchange);
}

static void client_times_out(void *context, int64_t argument)
{
    struct sim_exchange *exchange = context;
    if (exchange->client_waits && put_off(exchange, client_times_out)) {
        return;
    }
    (void)argument;
    if (exchange->client_waits) {
        schedule(exchange, draw_delay_us(), coordinator_sees_break);
        struct sim_answer answer = {.status = TALLY_DEADLINE};
        finish(exchange, &answer);
    }
    release(exchange);
}

/* A loss in either direction: the client's connection breaks, or it hears nothing until its
 * time-out. */
static void lose(struct sim_exchange *exchange, const char *what)
{
    const bool silent = sim_chance(network.faults.silent);
    sim_note("network", "%s %s %s lost%s", exchange->peer->name, exchange->message.path, what,
             silent ? ", silently" : "");
    if (exchange->client_waits && !silent) {
        schedule(exchange, draw_delay_us(), client_sees_break);
    }
}

static void answer_arrives(void *context, int64_t argument)
{
    struct sim_exchange *exchange = context;
    (void)argument;
    if (exchange->client_waits && put_off(exchange, answer_arrives)) {
        return;
    }
    const int64_t cut_us = cut_left_us(exchange, false);
    if (cut_us > 0 && exchange->client_waits) { /* resent when it can pass, or lost */
        if (sim_chance(500)) {
            sim_after(cut_us + draw_delay_us(), answer_arrives, exchange, 0);
            return;
        }
        sim_note("network", "answer to %s lost in a partition", exchange->peer->name);
    } else if (exchange->client_waits) {
        struct sim_answer answer = exchange->answer;
        exchange->answer = (struct sim_answer){0};
        finish(exchange, &answer);
    }
    release(exchange);
}

static void request_arrives(void *context, int64_t argument)
{
    struct sim_exchange *exchange = context;
    (void)argument;
    const int64_t cut_us = cut_left_us(exchange, true);
    if (cut_us > 0) {
        if (sim_chance(500)) {
            sim_after(cut_us + draw_delay_us(), request_arrives, exchange, 0);
            return;
        }
        sim_note("network", "request of %s lost in a partition", exchange->peer->name);
    } else if (!exchange->host->is_up(exchange->host)) {
        if (exchange->client_waits) {
            schedule(exchange, REFUSED_US, client_sees_break);
        }
    } else {
        exchange->holds++;
        exchange->request = sim_http_request_new(exchange);
        exchange->host->receive(exchange->host, exchange->request);
    }
    release(exchange);
}

static void set_out(struct sim_exchange *exchange, int64_t delay_us)
{
    if (sim_chance(network.faults.lost_requests)) {
        lose(exchange, "request");
    } else {
        schedule(exchange, delay_us, request_arrives);
    }
}

struct sim_exchange *sim_network_send(struct sim_peer *peer, const struct sim_message *message,
                                      int64_t timeout_ms, sim_answer_fn *done, void *context)
{
    return sim_network_send_to(network.balancer(peer), peer, message, timeout_ms, done, context);
}

struct sim_exchange *sim_network_send_to(struct sim_host *host, struct sim_peer *peer,
                                         const struct sim_message *message, int64_t timeout_ms,
                                         sim_answer_fn *done, void *context)
{
    struct sim_exchange *exchange = new_exchange(host, peer, message);
    exchange->client_waits = true;
    exchange->done = done;
    exchange->context = context;
    exchange->holds = 1;
    schedule(exchange, timeout_ms * 1000, client_times_out);
    set_out(exchange, draw_delay_us());
    if (sim_chance(network.faults.doubled)) {
        struct sim_exchange *again = new_exchange(host, peer, message);
        sim_note("network", "%s %s is doubled", peer->name, message->path);
        again->holds = 1;
        set_out(again, sim_chance(500) ? draw_delay_us() : sim_between(0, 20000000));
        release(again);
    }
    return exchange;
}

void sim_network_abandon(struct sim_exchange *exchange, bool unseen)
{
    exchange->client_waits = false;
    if (!unseen) {
        schedule(exchange, draw_delay_us(), coordinator_sees_break);
    }
    release(exchange);
}

const struct sim_message *sim_exchange_message(const struct sim_exchange *exchange)
{
    return &exchange->message;
}

const struct sim_peer *sim_exchange_peer(const struct sim_exchange *exchange)
{
    return exchange->peer;
}

struct sim_host *sim_exchange_host(const struct sim_exchange *exchange)
{
    return exchange->host;
}

void sim_exchange_drop(struct sim_exchange *exchange)
{
    exchange->request = NULL;
    release(exchange);
}

void sim_exchange_answer(struct sim_exchange *exchange, int status, const char *content_type,
                         struct tally_buffer *body)
{
    exchange->request = NULL;
    exchange->answer =
        (struct sim_answer){.status = TALLY_OK, .http_status = status, .body = *body};
    snprintf(exchange->answer.content_type, sizeof exchange->answer.content_type, "%s",
             content_type != NULL ? content_type : "");
    *body = (struct tally_buffer){0};
    if (exchange->client_waits && sim_chance(network.faults.lost_answers)) {
        lose(exchange, "answer");
    } else {
        schedule(exchange, draw_delay_us(), answer_arrives);
    }
    release(exchange);
}

void sim_exchange_break(struct sim_exchange *exchange)
{
    exchange->request = NULL;
    if (exchange->client_waits && !sim_chance(network.faults.silent)) {
        schedule(exchange, draw_delay_us(), client_sees_break);
    }
    release(exchange);
}
