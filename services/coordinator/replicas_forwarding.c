#include "services/coordinator/replicas_forwarding.h"
#include "services/base/alloc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/client/http_forward.h"
#include "codec/list.h"
#include "services/base/log.h"
#include "services/coordinator/calls.h"
#include "services/coordinator/coordinator.h"
#include "services/coordinator/loop.h"

/* How long to wait for a response. For a poll, it is the time-out that its caller states, else the
 * longest wait plus time for a large response. The death of a replica is noticed earlier. */
enum { CALL_TIMEOUT_MS = 30000, MAX_POLL_TIMEOUT_MS = 40000 };

/* Headers that are forwarded because a handler may read them, besides FORWARDED_HEADER and
 * X-Request-Id. */
static const char *const PASSED_ON[] = {
    "Accept",           "Authorization", "Connect-Protocol-Version", "Connect-Timeout-Ms",
    "Content-Encoding", "Content-Type",  "Idempotency-Key",          "If-None-Match",
    "User-Agent",
};

enum {
    N_PASSED_ON = sizeof PASSED_ON / sizeof PASSED_ON[0],
    OWN_HEADERS = 3 /* that calls.c adds to those of a forwarded response */
};
_Static_assert(N_PASSED_ON + 2 < TALLY_HTTP_FORWARD_MAX_HEADERS, "headers of a forwarded request");

/* A forwarded call. */
struct sent_call {
    struct forwarded base; /* what the call knows of it */
    struct forwarding *forwarding;
    struct call *call;
    int64_t number; /* of the replica that is asked */
    char id[TALLY_REPLICA_ID_CAPACITY];
    struct tally_http_forward *request; /* NULL: it has ended */
    struct tally_http_forward_result answer;
    struct tally_list_node node; /* while it has not ended */
};

struct forwarding {
    struct tally_http_forwarder *forwarder;
    struct tally_list sent;
    uint64_t counts[N_FORWARD_RESULTS];
};

enum tally_status forwarding_new(struct tally_coordinator *coordinator, struct tally_error *err)
{
    const struct tally_http_forwarder_config config = {.tls_ca = coordinator->config.peer_tls_ca,
                                                       .max_held_bytes =
                                                           coordinator->config.max_held_bytes};
    struct forwarding *forwarding = tally_xcalloc(1, sizeof *forwarding);
    enum tally_status status = tally_http_forwarder_new(&config, &forwarding->forwarder, err);
    if (status != TALLY_OK) {
        free(forwarding);
        return status;
    }
    tally_list_init(&forwarding->sent);
    coordinator->forwarding = forwarding;
    return TALLY_OK;
}

int forwarding_fd(const struct forwarding *forwarding)
{
    return forwarding != NULL ? tally_http_forwarder_fd(forwarding->forwarder) : -1;
}

void forwarding_free(struct forwarding *forwarding)
{
    if (forwarding != NULL) {
        tally_http_forwarder_free(forwarding->forwarder);
        free(forwarding);
    }
}

const uint64_t *forwarding_counts(const struct forwarding *forwarding)
{
    return forwarding->counts;
}

bool forwarding_is_forwarded(const struct call *call)
{
    return tally_http_header(call->request, FORWARDED_HEADER) != NULL;
}

/* One call. */

static void free_sent(struct forwarded *base)
{
    struct sent_call *sent = (struct sent_call *)base;
    tally_list_remove(&sent->node);
    if (sent->request != NULL) {
        tally_http_forward_abort(sent->request);
    }
    tally_http_forward_result_fini(&sent->answer);
    free(sent);
}

static void add_headers(const struct forwarded *base, struct tally_http_response *response)
{
    const struct sent_call *sent = (const struct sent_call *)base;
    size_t n = 0;
    for (const struct tally_http_forward_header *header = sent->answer.headers;
         header->name != NULL && n < TALLY_HTTP_MAX_EXTRA_HEADERS - OWN_HEADERS; header++) {
        if (strcasecmp(header->name, "X-Request-Id") != 0) { /* the caller's own id is used */
            response->headers[n].name = header->name;
            response->headers[n++].value = header->value;
        }
    }
}

static struct sent_call *sent_new(struct forwarding *forwarding, struct call *call,
                                  const struct tally_replica *to)
{
    struct sent_call *sent = tally_xcalloc(1, sizeof *sent);
    sent->base =
        (struct forwarded){.replica_id = sent->id, .add_headers = add_headers, .free = free_sent};
    sent->forwarding = forwarding;
    sent->call = call;
    sent->number = to->number;
    memcpy(sent->id, to->id, sizeof sent->id);
    tally_list_prepend(&forwarding->sent, &sent->node);
    return sent;
}

/* Sending. */

static long timeout_of(const struct call *call)
{
    if ((call->route->flags & (ROUTE_IS_POLL | ROUTE_IS_UPDATE)) == 0) {
        return CALL_TIMEOUT_MS; /* an update may poll as well */
    }
    const char *text = tally_http_header(call->request, "Connect-Timeout-Ms");
    const long given_ms = text != NULL ? strtol(text, NULL, 10) : 0;
    return given_ms > 0 && given_ms < MAX_POLL_TIMEOUT_MS ? given_ms : MAX_POLL_TIMEOUT_MS;
}

static void add_header(struct tally_http_forward_request *request, size_t *n, const char *name,
                       const char *value)
{
    if (value != NULL) {
        request->headers[*n].name = name;
        request->headers[(*n)++].value = value;
    }
}

static enum tally_status send_call(struct tally_coordinator *coordinator, struct sent_call *sent,
                                   const char *address, const char *target, struct tally_error *err)
{
    struct call *call = sent->call;
    char number[24];
    snprintf(number, sizeof number, "%" PRId64, coordinator->view.number);
    struct tally_buffer body = {0};
    struct tally_http_forward_request request = {.method = tally_http_method(call->request),
                                                 .base_url = address,
                                                 .target = target,
                                                 .body = &body,
                                                 .timeout_ms = timeout_of(call),
                                                 .user = sent};
    size_t n = 0;
    add_header(&request, &n, FORWARDED_HEADER, number);
    add_header(&request, &n, "X-Request-Id", call->request_id);
    for (int i = 0; i < N_PASSED_ON; i++) {
        add_header(&request, &n, PASSED_ON[i], tally_http_header(call->request, PASSED_ON[i]));
    }
    tally_http_take_body(call->request, &body);
    enum tally_status status =
        tally_http_forward(sent->forwarding->forwarder, &request, &sent->request, err);
    tally_http_free_body(&body);
    return status;
}

enum tally_status forwarding_forward(struct tally_coordinator *coordinator, struct call *call,
                                     const struct tally_replica *to, struct tally_error *err)
{
    struct tally_buffer target = {0};
    if (forwarding_is_forwarded(call) || to->address[0] == '\0') {
        return tally_fail(err, TALLY_UNAVAILABLE, NULL,
                          "the coordinator for this request is not known yet");
    }
    if (call->request_id[0] == '\0') { /* the logs of both replicas show it */
        request_id_draw(coordinator, call->request_id);
    }
    struct sent_call *sent = sent_new(coordinator->forwarding, call, to);
    enum tally_status status = tally_http_target(call->request, &target);
    if (status == TALLY_OK) {
        status = tally_buffer_append(&target, "", 1);
    }
    status = status == TALLY_OK
                 ? send_call(coordinator, sent, to->address, (const char *)target.data, err)
                 : tally_fail(err, status, NULL, "no memory to forward a request");
    tally_buffer_fini(&target);
    if (status != TALLY_OK) {
        coordinator->forwarding->counts[FORWARD_REFUSED]++;
        free_sent(&sent->base);
        return status;
    }
    call->forwarded = &sent->base;
    return TALLY_OK;
}

/* Responses. */

/* Gives the response to the call's collector, or sends it. */
static void pass_on(struct tally_coordinator *coordinator, struct call *call)
{
    if (call->collector != NULL) {
        call->collector(coordinator, call);
    } else {
        call_send(coordinator, call);
    }
}

static void answer_unavailable(struct tally_coordinator *coordinator, struct sent_call *sent,
                               enum forward_result result)
{
    struct call *call = sent->call;
    struct tally_error err = TALLY_ERROR_INIT;
    tally_list_remove(&sent->node);
    tally_fail(&err, TALLY_UNAVAILABLE, NULL,
               "coordinator %s, which handles this request, does not respond", sent->id);
    coordinator->forwarding->counts[result]++;
    call_answer_error(call, &err);
    pass_on(coordinator, call);
}

static enum forward_result result_of(enum tally_status status)
{
    return status == TALLY_DEADLINE      ? FORWARD_TIMEOUT
           : status == TALLY_UNAVAILABLE ? FORWARD_UNREACHABLE
                                         : FORWARD_REFUSED;
}

static void give_answer(struct tally_coordinator *coordinator, struct sent_call *sent)
{
    struct call *call = sent->call;
    tally_list_remove(&sent->node);
    sent->base.has_answer = true;
    coordinator->forwarding->counts[FORWARD_ANSWERED]++;
    call->answered = true;
    call->status = sent->answer.http_status;
    call->content_type = sent->answer.content_type;
    tally_buffer_fini(&call->body);
    call->body = sent->answer.body;
    sent->answer.body = (struct tally_buffer){0};
    pass_on(coordinator, call);
}

void forwarding_take_results(struct tally_coordinator *coordinator)
{
    struct tally_http_forward_result result;
    while (coordinator->forwarding != NULL &&
           tally_http_forward_take(coordinator->forwarding->forwarder, &result)) {
        struct sent_call *sent = result.user;
        sent->request = NULL;
        sent->answer = result;
        if (result.err.status == TALLY_OK) {
            give_answer(coordinator, sent);
        } else {
            tally_log(TALLY_LOG_DEBUG, tally_log_event("forwarded request failed"),
                      tally_log_text("request_id", sent->call->request_id),
                      tally_log_text("forwarded_to", sent->id), tally_log_problem(&result.err));
            answer_unavailable(coordinator, sent, result_of(result.err.status));
        }
    }
}

void forwarding_abort_all(struct tally_coordinator *coordinator, int64_t number)
{
    if (coordinator->forwarding == NULL) {
        return;
    }
    TALLY_LIST_EACH(node, &coordinator->forwarding->sent)
    {
        struct sent_call *sent = TALLY_LIST_MEMBER(struct sent_call, node, node);
        if (sent->number == number) {
            answer_unavailable(coordinator, sent, FORWARD_ABORTED);
        }
    }
}

void forwarding_finish_polls(struct tally_coordinator *coordinator)
{
    if (coordinator->forwarding == NULL) {
        return;
    }
    TALLY_LIST_EACH(node, &coordinator->forwarding->sent)
    {
        struct sent_call *sent = TALLY_LIST_MEMBER(struct sent_call, node, node);
        if (sent->call->polls) {
            answer_unavailable(coordinator, sent, FORWARD_ABORTED);
        }
    }
}

void forwarding_drop(struct tally_coordinator *coordinator, struct call *call)
{
    coordinator->forwarding->counts[FORWARD_ABANDONED]++;
    call->request = NULL;
    call_send(coordinator, call);
}
