/* Stands in for api/client/http_forward.h: requests of one coordinator to another, through the
 * simulated network. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/client/http_forward.h"
#include "services/coordinator/replicas_forwarding.h"
#include "tests/simulation/programs/sim_replica.h"
#include "tests/simulation/world/sim.h"

struct tally_http_forward {
    struct tally_http_forwarder *forwarder;
    struct sim_exchange *exchange; /* NULL: the result is there */
    void *user;
    struct sim_answer answer;
    struct tally_http_forward *next;
};

struct tally_http_forwarder {
    struct sim_replica *replica;
    struct tally_http_forward *first; /* newest first */
};

enum tally_status tally_http_forwarder_new(const struct tally_http_forwarder_config *config,
                                           struct tally_http_forwarder **ret_forwarder,
                                           struct tally_error *err)
{
    (void)config, (void)err;
    *ret_forwarder = sim_new(sizeof **ret_forwarder);
    (*ret_forwarder)->replica = sim_replica_self();
    return TALLY_OK;
}

int tally_http_forwarder_fd(const struct tally_http_forwarder *forwarder)
{
    (void)forwarder;
    return -1;
}

static void take_out(struct tally_http_forward *forward)
{
    struct tally_http_forward **at = &forward->forwarder->first;
    while (*at != forward) {
        at = &(*at)->next;
    }
    *at = forward->next;
    if (forward->exchange != NULL) {
        sim_network_abandon(forward->exchange, false);
    }
    tally_buffer_fini(&forward->answer.body);
    free(forward);
}

void tally_http_forwarder_free(struct tally_http_forwarder *forwarder)
{
    while (forwarder != NULL && forwarder->first != NULL) {
        take_out(forwarder->first);
    }
    free(forwarder);
}

static void take_answer(void *context, struct sim_exchange *exchange, struct sim_answer *answer)
{
    struct tally_http_forward *forward = context;
    SIM_REQUIRE(forward->exchange == exchange, "an answer that nobody waits for");
    forward->exchange = NULL;
    forward->answer = *answer;
    sim_replica_wake_up(forward->forwarder->replica);
}

static const char *header(const struct tally_http_forward_request *request, const char *name)
{
    for (const struct tally_http_forward_header *each = request->headers; each->name != NULL;
         each++) {
        if (strcasecmp(each->name, name) == 0) {
            return each->value;
        }
    }
    return NULL;
}

enum tally_status tally_http_forward(struct tally_http_forwarder *forwarder,
                                     const struct tally_http_forward_request *request,
                                     struct tally_http_forward **ret_forward,
                                     struct tally_error *err)
{
    struct sim_replica *replica = forwarder->replica;
    struct sim_host *host = sim_replica_at(request->base_url);
    SIM_REQUIRE(host != NULL, "a request to nobody");
    if (!sim_replica_pass(replica, 0)) {
        return tally_fail(err, TALLY_UNAVAILABLE, NULL, "the process is dead");
    }
    const struct sim_message message = {.method = request->method,
                                        .path = request->target,
                                        .content_type = header(request, "Content-Type"),
                                        .idempotency_key = header(request, "Idempotency-Key"),
                                        .forwarded = header(request, FORWARDED_HEADER),
                                        .body = request->body->data,
                                        .n_body = request->body->size};
    struct tally_http_forward *forward = sim_new(sizeof *forward);
    forward->forwarder = forwarder;
    forward->user = request->user;
    forward->next = forwarder->first;
    forwarder->first = forward;
    forward->exchange = sim_network_send_to(host, sim_replica_peer(replica), &message,
                                            request->timeout_ms, take_answer, forward);
    tally_buffer_fini(request->body);
    *ret_forward = forward;
    return TALLY_OK;
}

void tally_http_forward_abort(struct tally_http_forward *forward)
{
    take_out(forward);
}

bool tally_http_forward_take(struct tally_http_forwarder *forwarder,
                             struct tally_http_forward_result *ret_result)
{
    struct tally_http_forward *forward = forwarder->first;
    while (forward != NULL && forward->exchange != NULL) {
        forward = forward->next;
    }
    if (forward == NULL) {
        return false;
    }
    struct sim_answer *answer = &forward->answer;
    *ret_result = (struct tally_http_forward_result){
        .user = forward->user, .http_status = answer->http_status, .body = answer->body};
    answer->body = (struct tally_buffer){0};
    if (answer->status != TALLY_OK) {
        tally_fail(&ret_result->err, answer->status, NULL, "%s",
                   tally_status_info(answer->status)->title);
    } else if (answer->content_type[0] != '\0') {
        ret_result->text = sim_copy(answer->content_type, strlen(answer->content_type));
        ret_result->content_type = ret_result->text;
    }
    take_out(forward);
    return true;
}

void tally_http_forward_result_fini(struct tally_http_forward_result *result)
{
    tally_buffer_fini(&result->body);
    free(result->text);
    result->text = NULL;
}
