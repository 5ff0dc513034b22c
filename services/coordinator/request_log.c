/* request_log: an id for every request, and the log line with the outcome of the request. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "services/base/log.h"
#include "services/base/time.h"
#include "services/coordinator/calls.h"
#include "services/coordinator/coordinator.h"

void request_id_draw(struct tally_coordinator *coordinator, char ret_id[REQUEST_ID_CAPACITY])
{
    struct calls *calls = coordinator->calls;
    if (calls->n_request_ids++ == 0 &&
        getrandom(&calls->request_id_prefix, sizeof calls->request_id_prefix, 0) < 0) {
        calls->request_id_prefix = (uint32_t)tally_realtime_ms();
    }
    snprintf(ret_id, REQUEST_ID_CAPACITY, "%08" PRIx32 "-%" PRIx64, calls->request_id_prefix,
             calls->n_request_ids);
}

const char *request_id_given(const struct tally_http_request *request)
{
    static const char ALLOWED[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                  "0123456789._-";
    const char *given = tally_http_header(request, "X-Request-Id");
    const size_t n = given != NULL ? strspn(given, ALLOWED) : 0;
    return n > 0 && n < REQUEST_ID_CAPACITY && given[n] == '\0' ? given : NULL;
}

/* Worker calls are frequent and alike. Changes by an administrator must leave a trace. */
static enum tally_log_level level_of(const struct call *call, int status)
{
    if (status >= 500) {
        return TALLY_LOG_WARN;
    }
    const bool is_worker = call->route != NULL && call->route->kind == ROUTE_WORKER;
    const bool is_write = call->route != NULL && (call->route->flags & ROUTE_WRITES) != 0;
    const bool is_noteworthy = is_worker ? status == 401 : is_write || status >= 400;
    return is_noteworthy ? TALLY_LOG_INFO : TALLY_LOG_DEBUG;
}

/* Refusals may be frequent, so the log has them only at level debug. The metrics count them. */
void tally_coordinator_on_refused(void *context, const struct tally_http_refusal *refusal,
                                  char ret_request_id[TALLY_HTTP_REQUEST_ID_CAPACITY])
{
    static const char *const REASONS[] = {
#define REFUSAL_LABEL(symbol, label) label,
        TALLY_HTTP_REFUSAL_TABLE(REFUSAL_LABEL)
#undef REFUSAL_LABEL
    };
    struct tally_coordinator *coordinator = context;
    const char *given = refusal->request != NULL ? request_id_given(refusal->request) : NULL;
    if (given != NULL) {
        memcpy(ret_request_id, given, strlen(given) + 1);
    } else {
        request_id_draw(coordinator, ret_request_id);
    }
    call_counts_add_refusal(&coordinator->calls->counts, refusal->reason, refusal->status);
    tally_log(TALLY_LOG_DEBUG, tally_log_event("refused"),
              tally_log_text("request_id", ret_request_id),
              tally_log_text("reason", REASONS[refusal->reason]),
              tally_log_integer("status", refusal->status));
}

void request_log_begin(struct tally_coordinator *coordinator, struct call *call)
{
    struct logged_request *logged = &call->logged;
    const bool is_logged = tally_log_is_on(level_of(call, call->status));
    logged->status = call->status;
    if (call->request_id[0] == '\0' && (is_logged || call_shows_request_id(call))) {
        request_id_draw(coordinator, call->request_id);
    }
    if (is_logged) {
        snprintf(logged->method, sizeof logged->method, "%s", tally_http_method(call->request));
        snprintf(logged->path, sizeof logged->path, "%s", tally_http_path(call->request));
    }
}

void request_log_end(struct tally_coordinator *coordinator, const struct call *call)
{
    const struct logged_request *logged = &call->logged;
    const double seconds = (double)(tally_monotonic_ns() - call->arrived_ns) / 1e9;
    call_counts_add(&coordinator->calls->counts, coordinator->calls->routes, call, logged->status,
                    seconds);
    const enum tally_log_level level = level_of(call, logged->status);
    if (!tally_log_is_on(level)) {
        return;
    }
    struct tally_log_pair pairs[10] = {
        tally_log_event("request"),
        tally_log_text("request_id", call->request_id),
        tally_log_text("method", logged->method),
        tally_log_text("route", call->route != NULL ? call->route->path : "unmatched"),
        tally_log_integer("status", logged->status),
        tally_log_real("duration_ms", (double)(int64_t)(seconds * 1e6) / 1e3),
        tally_log_unsigned("bytes", logged->bytes),
        tally_log_text("path", logged->path),
    };
    size_t n = 8;
    if (call->forwarded != NULL) {
        pairs[n++] = tally_log_text("forwarded_to", call->forwarded->replica_id);
    }
    if (call->error.status != TALLY_OK) {
        pairs[n++] = tally_log_problem(&call->error);
    }
    tally_log_write(level, pairs, n);
}
