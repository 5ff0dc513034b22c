#include "services/coordinator/replicas/forwarding.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/client/http_forward.h"
#include "services/base/log.h"
#include "services/coordinator/internal.h"

/* How long an answer is waited for. Of a poll: as long as its caller says it waits, else the
 * longest wait and time for a large answer. That a replica has died is noticed earlier. */
enum { CALL_TIMEOUT_MS = 30000, MAX_POLL_TIMEOUT_MS = 40000 };

/* What a handler may look at, beside FORWARDED_HEADER and X-Request-Id. */
static const char *const PASSED_ON[] = {
    "Accept",           "Authorization", "Connect-Protocol-Version", "Connect-Timeout-Ms",
    "Content-Encoding", "Content-Type",  "Idempotency-Key",          "If-None-Match",
    "User-Agent",
};

enum {
    N_PASSED_ON = sizeof PASSED_ON / sizeof PASSED_ON[0],
    OWN_HEADERS = 3 /* that responses.c adds to those of a forwarded answer */
};
_Static_assert(N_PASSED_ON + 2 < TALLY_HTTP_FORWARD_MAX_HEADERS, "headers of a forwarded request");

struct forwarded {
    struct forwarding *forwarding;
    struct call *call;
    int64_t number; /* of the replica that is asked */
    char id[TALLY_REPLICA_ID_CAPACITY];
    struct tally_http_forward *request; /* NULL: it has ended */
    bool has_answer;
    struct tally_http_forward_result answer;
    struct forwarded *next, **link; /* while it has not ended */
};

struct forwarding {
    struct tally_http_forwarder *forwarder;
    struct forwarded *first;
};

enum tally_status forwarding_new(struct tally_coordinator *coordinator, struct tally_error *err)
{
    const struct tally_http_forwarder_config config = {.wake_fd = coordinator->wake_fd,
                                                       .tls_ca = coordinator->config.peer_tls_ca,
                                                       .max_held_bytes =
                                                           coordinator->config.max_held_bytes};
    struct forwarding *forwarding = calloc(1, sizeof *forwarding);
    if (forwarding == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory to forward requests");
    }
    enum tally_status status = tally_http_forwarder_new(&config, &forwarding->forwarder, err);
    if (status != TALLY_OK) {
        free(forwarding);
        return status;
    }
    coordinator->forwarding = forwarding;
    return TALLY_OK;
}

void forwarding_free(struct forwarding *forwarding)
{
    if (forwarding != NULL) {
        tally_http_forwarder_free(forwarding->forwarder);
        free(forwarding);
    }
}

bool is_forwarded(const struct call *call)
{
    return tally_http_header(call->request, FORWARDED_HEADER) != NULL;
}

/* One call. */

static struct forwarded *forwarded_new(struct forwarding *forwarding, struct call *call,
                                       const struct tally_replica *to)
{
    struct forwarded *forwarded = calloc(1, sizeof *forwarded);
    if (forwarded == NULL) {
        return NULL;
    }
    forwarded->forwarding = forwarding;
    forwarded->call = call;
    forwarded->number = to->number;
    memcpy(forwarded->id, to->id, sizeof forwarded->id);
    forwarded->next = forwarding->first;
    forwarded->link = &forwarding->first;
    if (forwarded->next != NULL) {
        forwarded->next->link = &forwarded->next;
    }
    forwarding->first = forwarded;
    return forwarded;
}

/* It is waited for no more. */
static void leave_list(struct forwarded *forwarded)
{
    if (forwarded->link != NULL) {
        *forwarded->link = forwarded->next;
        if (forwarded->next != NULL) {
            forwarded->next->link = forwarded->link;
        }
        forwarded->link = NULL;
    }
}

void forwarded_free(struct forwarded *forwarded)
{
    if (forwarded == NULL) {
        return;
    }
    leave_list(forwarded);
    if (forwarded->request != NULL) {
        tally_http_forward_abort(forwarded->forwarding->forwarder, forwarded->request);
    }
    tally_http_forward_result_fini(&forwarded->answer);
    free(forwarded);
}

bool forward_has_answer(const struct forwarded *forwarded)
{
    return forwarded != NULL && forwarded->has_answer;
}

const char *forward_asked(const struct forwarded *forwarded)
{
    return forwarded->id;
}

void forward_add_headers(const struct forwarded *forwarded, struct tally_http_response *response)
{
    size_t n = 0;
    for (const struct tally_http_forward_header *header = forwarded->answer.headers;
         header->name != NULL && n < TALLY_HTTP_MAX_EXTRA_HEADERS - OWN_HEADERS; header++) {
        if (strcasecmp(header->name, "X-Request-Id") != 0) { /* ours is the caller's own */
            response->headers[n].name = header->name;
            response->headers[n++].value = header->value;
        }
    }
}

/* Sending. */

static long timeout_of(const struct call *call)
{
    if (call->route->handler != worker_poll && call->route->handler != worker_update) {
        return CALL_TIMEOUT_MS; /* an update may poll as well */
    }
    const char *text = tally_http_header(call->request, "Connect-Timeout-Ms");
    const long told_ms = text != NULL ? strtol(text, NULL, 10) : 0;
    return told_ms > 0 && told_ms < MAX_POLL_TIMEOUT_MS ? told_ms : MAX_POLL_TIMEOUT_MS;
}

static void add_header(struct tally_http_forward_request *request, size_t *n, const char *name,
                       const char *value)
{
    if (value != NULL) {
        request->headers[*n].name = name;
        request->headers[(*n)++].value = value;
    }
}

static enum tally_status send_call(struct tally_coordinator *coordinator,
                                   struct forwarded *forwarded, const char *address,
                                   const char *target, struct tally_error *err)
{
    struct call *call = forwarded->call;
    char number[24];
    snprintf(number, sizeof number, "%" PRId64, coordinator->replica_number);
    struct tally_buffer body = {0};
    struct tally_http_forward_request request = {.method = tally_http_method(call->request),
                                                 .base_url = address,
                                                 .target = target,
                                                 .body = &body,
                                                 .timeout_ms = timeout_of(call),
                                                 .user = forwarded};
    size_t n = 0;
    add_header(&request, &n, FORWARDED_HEADER, number);
    add_header(&request, &n, "X-Request-Id", call->request_id);
    for (int i = 0; i < N_PASSED_ON; i++) {
        add_header(&request, &n, PASSED_ON[i], tally_http_header(call->request, PASSED_ON[i]));
    }
    tally_http_take_body(call->request, &body);
    enum tally_status status =
        tally_http_forward(forwarded->forwarding->forwarder, &request, &forwarded->request, err);
    tally_buffer_fini(&body);
    return status;
}

enum tally_status forward_call(struct tally_coordinator *coordinator, struct call *call,
                               const struct tally_replica *to, struct tally_error *err)
{
    struct tally_buffer target = {0};
    if (is_forwarded(call) || to->address[0] == '\0') {
        return tally_fail(err, TALLY_UNAVAILABLE, NULL,
                          "it is not settled which coordinator has to answer this");
    }
    if (call->request_id[0] == '\0') { /* both replicas' logs have it */
        draw_request_id(coordinator, call->request_id);
    }
    struct forwarded *forwarded = forwarded_new(coordinator->forwarding, call, to);
    enum tally_status status = forwarded != NULL ? TALLY_OK : TALLY_NO_MEMORY;
    if (status == TALLY_OK) {
        status = tally_http_target(call->request, &target);
    }
    if (status == TALLY_OK) {
        status = tally_buffer_append(&target, "", 1);
    }
    status = status == TALLY_OK
                 ? send_call(coordinator, forwarded, to->address, (const char *)target.data, err)
                 : tally_fail(err, status, NULL, "no memory to forward a request");
    tally_buffer_fini(&target);
    if (status != TALLY_OK) {
        coordinator->metrics.forwarded[FORWARD_REFUSED]++;
        forwarded_free(forwarded);
        return status;
    }
    call->forwarded = forwarded;
    return TALLY_OK;
}

/* Answers. */

/* Gives the call's answer to its caller, or to whoever has more to do with it. */
static void pass_on(struct tally_coordinator *coordinator, struct call *call)
{
    if (call->collector != NULL) {
        call->collector(coordinator, call);
    } else {
        send_answer(coordinator, call);
    }
}

static void answer_unavailable(struct tally_coordinator *coordinator, struct forwarded *forwarded,
                               enum forward_result result)
{
    struct call *call = forwarded->call;
    struct tally_error err = TALLY_ERROR_INIT;
    leave_list(forwarded);
    tally_fail(&err, TALLY_UNAVAILABLE, NULL, "coordinator %s, which has to answer this, does not",
               forwarded->id);
    coordinator->metrics.forwarded[result]++;
    answer_error(call, &err);
    pass_on(coordinator, call);
}

static enum forward_result result_of(enum tally_status status)
{
    return status == TALLY_DEADLINE      ? FORWARD_TIMEOUT
           : status == TALLY_UNAVAILABLE ? FORWARD_UNREACHABLE
                                         : FORWARD_REFUSED;
}

static void give_answer(struct tally_coordinator *coordinator, struct forwarded *forwarded)
{
    struct call *call = forwarded->call;
    leave_list(forwarded);
    forwarded->has_answer = true;
    coordinator->metrics.forwarded[FORWARD_ANSWERED]++;
    call->answered = true;
    call->status = forwarded->answer.http_status;
    call->content_type = forwarded->answer.content_type;
    tally_buffer_fini(&call->body);
    call->body = forwarded->answer.body;
    forwarded->answer.body = (struct tally_buffer){0};
    pass_on(coordinator, call);
}

void forward_take_results(struct tally_coordinator *coordinator)
{
    struct tally_http_forward_result result;
    while (coordinator->forwarding != NULL &&
           tally_http_forward_take(coordinator->forwarding->forwarder, &result)) {
        struct forwarded *forwarded = result.user;
        forwarded->request = NULL;
        forwarded->answer = result;
        if (result.err.status == TALLY_OK) {
            give_answer(coordinator, forwarded);
        } else {
            tally_log(TALLY_LOG_DEBUG, tally_log_event("forwarded request failed"),
                      tally_log_text("request_id", forwarded->call->request_id),
                      tally_log_text("forwarded_to", forwarded->id),
                      tally_log_problem(&result.err));
            answer_unavailable(coordinator, forwarded, result_of(result.err.status));
        }
    }
}

void forward_abort_all(struct tally_coordinator *coordinator, int64_t number)
{
    struct forwarded *forwarded =
        coordinator->forwarding != NULL ? coordinator->forwarding->first : NULL;
    while (forwarded != NULL) {
        struct forwarded *next = forwarded->next;
        if (forwarded->number == number) {
            answer_unavailable(coordinator, forwarded, FORWARD_ABORTED);
        }
        forwarded = next;
    }
}

void forward_end_polls(struct tally_coordinator *coordinator)
{
    struct forwarded *forwarded =
        coordinator->forwarding != NULL ? coordinator->forwarding->first : NULL;
    while (forwarded != NULL) {
        struct forwarded *next = forwarded->next;
        if (forwarded->call->polls) {
            answer_unavailable(coordinator, forwarded, FORWARD_ABORTED);
        }
        forwarded = next;
    }
}

void forward_abandon(struct tally_coordinator *coordinator, struct call *call)
{
    coordinator->metrics.forwarded[FORWARD_ABANDONED]++;
    call->request = NULL;
    send_answer(coordinator, call);
}
