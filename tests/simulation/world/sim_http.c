#include "tests/simulation/world/sim_http.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "services/coordinator/replicas_forwarding.h"
#include "tests/simulation/checks/invariants.h"
#include "tests/simulation/world/sim.h"
#include "tests/simulation/world/sim_clock.h"

/* About the size of the real headers; it only matters that both ends agree. */
enum { REQUEST_HEAD_BYTES = 180, ANSWER_HEAD_BYTES = 110 };

struct tally_http_request {
    struct sim_exchange *exchange;
    void *user;
    int64_t arrived_us;
    bool is_lost; /* no client waits for the response, but the coordinator does not know yet */
    struct tally_http_request *next, **link;
};

static struct tally_http_request *open_requests;
static uint32_t most_batch_bytes;

void sim_http_limit_batches(uint32_t most_bytes)
{
    most_batch_bytes = most_bytes;
}

uint32_t sim_http_most_batch_bytes(void)
{
    return most_batch_bytes;
}

struct tally_http_request *sim_http_request_new(struct sim_exchange *exchange)
{
    struct tally_http_request *request = sim_new(sizeof *request);
    request->exchange = exchange;
    request->arrived_us = sim_now_us();
    request->next = open_requests;
    request->link = &open_requests;
    if (request->next != NULL) {
        request->next->link = &request->next;
    }
    open_requests = request;
    return request;
}

static struct sim_exchange *close_request(struct tally_http_request *request)
{
    struct sim_exchange *exchange = request->exchange;
    *request->link = request->next;
    if (request->next != NULL) {
        request->next->link = request->link;
    }
    free(request);
    return exchange;
}

void sim_http_close(struct tally_http_request *request)
{
    sim_exchange_drop(close_request(request));
}

void sim_http_note_lost(struct tally_http_request *request)
{
    request->is_lost = true;
}

bool sim_http_is_lost(const struct tally_http_request *request)
{
    return request->is_lost;
}

struct tally_http_request *sim_http_find_lost(const struct sim_host *host)
{
    struct tally_http_request *request = open_requests;
    while (request != NULL && !(request->is_lost && sim_exchange_host(request->exchange) == host)) {
        request = request->next;
    }
    return request;
}

void sim_http_drop_all(const struct sim_host *host)
{
    struct tally_http_request *request = open_requests;
    while (request != NULL) {
        struct tally_http_request *next = request->next;
        if (sim_exchange_host(request->exchange) == host) {
            sim_exchange_break(close_request(request));
        }
        request = next;
    }
}

const char *tally_http_method(const struct tally_http_request *request)
{
    return sim_exchange_message(request->exchange)->method;
}

const char *tally_http_path(const struct tally_http_request *request)
{
    return sim_exchange_message(request->exchange)->path;
}

const char *tally_http_query(const struct tally_http_request *request, const char *name)
{
    (void)request, (void)name; /* no simulated request has a query */
    return NULL;
}

const char *tally_http_query_at(const struct tally_http_request *request, const char *name,
                                size_t index)
{
    (void)request, (void)name, (void)index;
    return NULL;
}

const char *tally_http_header(const struct tally_http_request *request, const char *name)
{
    const struct sim_message *message = sim_exchange_message(request->exchange);
    if (strcasecmp(name, "Content-Type") == 0) {
        return message->content_type;
    }
    if (strcasecmp(name, FORWARDED_HEADER) == 0) {
        return message->forwarded;
    }
    return strcasecmp(name, "Idempotency-Key") == 0 ? message->idempotency_key : NULL;
}

const uint8_t *tally_http_body(const struct tally_http_request *request, size_t *ret_size)
{
    const struct sim_message *message = sim_exchange_message(request->exchange);
    *ret_size = message->n_body;
    return message->body;
}

void tally_http_address(const struct tally_http_request *request,
                        char ret_address[TALLY_HTTP_ADDRESS_CAPACITY])
{
    (void)request;
    ret_address[0] = '\0';
}

uint64_t tally_http_wire_in_bytes(const struct tally_http_request *request)
{
    return REQUEST_HEAD_BYTES + sim_exchange_message(request->exchange)->n_body;
}

/* Messages arrive at once, so none is ever under way. */
void tally_http_line_attach(struct tally_http_line *line, const struct tally_http_request *request)
{
    (void)line, (void)request;
}

void tally_http_line_detach(struct tally_http_line *line)
{
    (void)line;
}

bool tally_http_line_look(struct tally_http_line *line, struct tally_http_motion *ret_motion)
{
    (void)line, (void)ret_motion;
    return false;
}

void tally_http_forget_body(struct tally_http_request *request)
{
    (void)request; /* the message owns it */
}

/* Copies the body, because the invariants read the message when the response leaves. */
void tally_http_take_body(struct tally_http_request *request, struct tally_buffer *ret_body)
{
    const struct sim_message *message = sim_exchange_message(request->exchange);
    *ret_body = (struct tally_buffer){0};
    SIM_REQUIRE(tally_buffer_append(ret_body, message->body, message->n_body) == TALLY_OK,
                "out of memory");
}

void tally_http_free_body(struct tally_buffer *body)
{
    tally_buffer_fini(body);
}

void tally_http_trim(void)
{
}

enum tally_status tally_http_target(const struct tally_http_request *request,
                                    struct tally_buffer *out)
{
    return tally_buffer_append_text(out, tally_http_path(request));
}

void tally_http_set_user(struct tally_http_request *request, void *user)
{
    request->user = user;
}

void *tally_http_user(const struct tally_http_request *request)
{
    return request->user;
}

uint64_t tally_http_respond(struct tally_http_request *request,
                            const struct tally_http_response *response)
{
    struct tally_buffer body = {0};
    if (response->body != NULL) {
        body = *response->body;
        *response->body = (struct tally_buffer){0};
    }
    if (response->tail != NULL) {
        const struct tally_buffer *tail = &response->tail->bytes;
        (void)tally_buffer_append(&body, tail->data, tail->size);
    }
    const uint64_t n_wire = ANSWER_HEAD_BYTES + body.size;
    struct sim_host *host = sim_exchange_host(request->exchange);
    const int64_t age_us = sim_now_us() - request->arrived_us;
    const bool leaves = host->may_answer(host); /* meanwhile the peer may disappear */
    struct sim_exchange *exchange = close_request(request);
    if (leaves) {
        invariants_see_answer(sim_exchange_peer(exchange), sim_exchange_message(exchange), age_us,
                              response->status, body.data, body.size);
        sim_exchange_answer(exchange, response->status, response->content_type, &body);
    } else {
        tally_buffer_fini(&body);
        sim_exchange_break(exchange);
    }
    return n_wire;
}

/* No simulated client asks for event streams. */

enum tally_status tally_http_respond_stream(struct tally_http_request *request,
                                            const struct tally_http_response *response,
                                            const struct tally_http_stream_config *config,
                                            struct tally_http_stream **ret_stream)
{
    (void)request, (void)response, (void)config, (void)ret_stream;
    return TALLY_NO_MEMORY;
}

enum tally_status tally_http_stream_write(struct tally_http_stream *stream, const void *bytes,
                                          size_t n)
{
    (void)stream, (void)bytes, (void)n;
    return TALLY_NO_MEMORY;
}

size_t tally_http_stream_pending(const struct tally_http_stream *stream)
{
    (void)stream;
    return 0;
}

void tally_http_stream_end(struct tally_http_stream *stream)
{
    (void)stream;
}
