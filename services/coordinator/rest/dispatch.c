/* dispatch: from a request to its route's handler: path, method, token, then run or queue. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/base/time.h"
#include "services/coordinator/access/origin_policy.h"
#include "services/coordinator/internal.h"
#include "services/coordinator/replicas/request_routing.h"

/* Matches one path against a pattern and copies what "{id}" stands for. */
static bool match_path(const char *pattern, const char *path, struct call *call)
{
    while (*pattern != '\0' && *path != '\0') {
        if (*pattern == '{') {
            size_t n = strcspn(path, "/");
            if (n == 0 || n >= sizeof call->params[0]) {
                return false;
            }
            memcpy(call->params[0], path, n);
            call->params[0][n] = '\0';
            path += n;
            pattern += strcspn(pattern, "}") + 1;
        } else if (*pattern++ != *path++) {
            return false;
        }
    }
    return *pattern == '\0' && *path == '\0';
}

static enum tally_status find_route(struct call *call, const char *method, const char *path,
                                    struct tally_error *err)
{
    bool path_is_known = false;
    for (const struct route *route = ROUTES; route->method != NULL; route++) {
        if (!match_path(route->path, path, call)) {
            continue;
        }
        if (strcmp(route->method, method) == 0) {
            call->route = route;
            return TALLY_OK;
        }
        path_is_known = true;
        call->allow = strcmp(route->method, "GET") == 0
                          ? (call->allow != NULL ? "GET, HEAD, POST" : "GET, HEAD")
                          : (call->allow != NULL ? "GET, HEAD, POST" : "POST");
    }
    return path_is_known
               ? tally_fail(err, TALLY_METHOD_NOT_ALLOWED, NULL, "%.16s is not possible here",
                            method)
               : tally_fail(err, TALLY_NOT_FOUND, NULL, "there is nothing at %.128s", path);
}

/* The roles whose tokens open a route: a mask of 1 << role. */
static unsigned roles_of(enum route_kind kind)
{
    switch (kind) {
    case ROUTE_PUBLIC:
        return 0;
    case ROUTE_ADMIN:
        return 1U << TOKEN_ADMIN;
    case ROUTE_WORKER:
        return 1U << TOKEN_WORKER;
    case ROUTE_METRICS:
        return 1U << TOKEN_ADMIN | 1U << TOKEN_METRICS;
    }
    return 0;
}

/* A role without tokens needs none. */
static bool needs_token(const struct tally_tokens *tokens, unsigned roles)
{
    for (unsigned role = 0; role < N_TOKEN_ROLES; role++) {
        if ((roles >> role & 1U) != 0 && tokens->roles[role].n > 0) {
            return true;
        }
    }
    return false;
}

/* 401 where another token would help whoever it is, 403 where we know who it is, and it is not for
 * them (RFC 9110, 15.5.2 and 15.5.4). */
static enum tally_status authorize(const struct tally_coordinator *coordinator, struct call *call,
                                   struct tally_error *err)
{
    const struct tally_tokens *tokens = coordinator->config.tokens;
    const unsigned roles = roles_of(call->route->kind);
    call->token_name = "";
    call->token_until_ms = INT64_MAX;
    if (tokens == NULL || !needs_token(tokens, roles)) {
        return TALLY_OK;
    }
    const char *header = tally_http_header(call->request, "Authorization");
    if (header == NULL || strncasecmp(header, "Bearer ", 7) != 0) {
        return tally_fail(err, TALLY_UNAUTHENTICATED, NULL, "a bearer token is needed");
    }
    const struct known_token *token = NULL;
    switch (token_look_up(tokens, roles, header + 7, tally_realtime_ms(), &token)) {
    case TOKEN_UNKNOWN:
        break;
    case TOKEN_EXPIRED:
        return tally_fail(err, TALLY_UNAUTHENTICATED, NULL, "the token has expired");
    case TOKEN_OTHER_ROLE:
        return tally_fail(err, TALLY_PERMISSION_DENIED, NULL, "the token is not for this");
    case TOKEN_RIGHT:
        call->identity = token->identity;
        call->token_name = token->name;
        call->token_until_ms = token->until_ms;
        return TALLY_OK;
    }
    return tally_fail(err, TALLY_UNAUTHENTICATED, NULL, "the token is not valid");
}

/* Whether the request needs a token. The dashboard's files need none, but count as admin routes:
 * those are what the dashboard shows. */
static bool is_guarded(const struct tally_coordinator *coordinator, const struct call *call)
{
    const struct tally_tokens *tokens = coordinator->config.tokens;
    const enum route_kind kind = call->route != NULL ? call->route->kind : ROUTE_PUBLIC;
    return tokens != NULL &&
           needs_token(tokens, roles_of(kind == ROUTE_PUBLIC ? ROUTE_ADMIN : kind));
}

/* A web page does not know a token, so any Host is accepted where a token is needed. A request
 * without Host is HTTP/1.0, which no browser sends. */
static enum tally_status check_host(const struct tally_coordinator *coordinator,
                                    const struct call *call, const char *host,
                                    struct tally_error *err)
{
    const struct tally_coordinator_config *config = &coordinator->config;
    if (config->any_host || host == NULL || host_is_allowed(host, config->allowed_hosts) ||
        is_guarded(coordinator, call)) {
        return TALLY_OK;
    }
    return tally_fail(err, TALLY_MISDIRECTED, "Host",
                      "without tokens Host may be an IP address, localhost or a name given with "
                      "--allowed-host, not \"%.128s\"",
                      host);
}

/* Refuses requests that a browser sends for a web page of another origin (origin_policy.h). */
static enum tally_status check_origin(const struct tally_coordinator *coordinator,
                                      const struct call *call, struct tally_error *err)
{
    const char *host = tally_http_header(call->request, "Host");
    const char *method = tally_http_method(call->request);
    const bool is_read = strcmp(method, "GET") == 0 || strcmp(method, "OPTIONS") == 0;
    enum tally_status status = check_host(coordinator, call, host, err);
    if (status != TALLY_OK || is_read) {
        return status;
    }
    const char *origin = tally_http_header(call->request, "Origin");
    const char *fetch_site = tally_http_header(call->request, "Sec-Fetch-Site");
    if (!write_is_foreign(host, origin, fetch_site)) {
        return TALLY_OK;
    }
    return tally_fail(err, TALLY_PERMISSION_DENIED, origin != NULL ? "Origin" : "Sec-Fetch-Site",
                      "a web page of another origin may not write here: \"%.128s\"",
                      origin != NULL ? origin : fetch_site);
}

/* Finds the route and checks whether the caller may use it. The origin is checked first: a page of
 * another origin does not learn which routes exist. */
static enum tally_status admit(const struct tally_coordinator *coordinator, struct call *call,
                               struct tally_error *err)
{
    struct tally_error unknown = TALLY_ERROR_INIT;
    const enum tally_status found = find_route(call, tally_http_method(call->request),
                                               tally_http_path(call->request), &unknown);
    enum tally_status status = check_origin(coordinator, call, err);
    if (status == TALLY_OK && found != TALLY_OK) {
        *err = unknown;
        status = found;
    }
    return status == TALLY_OK ? authorize(coordinator, call, err) : status;
}

static void push(struct call_queue *queue, struct call *call)
{
    call->next = NULL;
    *queue->last = call;
    queue->last = &call->next;
}

/* Runs the handler, or sends the call to whose it is; what neither answers has been kept for later.
 */
static void run(struct tally_coordinator *coordinator, struct call *call)
{
    struct tally_error err = TALLY_ERROR_INIT;
    bool is_sent;
    enum tally_status status = call_send_on(coordinator, call, &is_sent, &err);
    if (is_sent) {
        return;
    }
    if (status == TALLY_OK) {
        status = call->route->handler(coordinator, call, &err);
    }
    if (status != TALLY_OK) {
        note_damage(coordinator, &err);
        answer_error(call, &err);
    }
}

/* The caller's own id, so that it finds its request in our log; a new one comes later. */
static void name_request(struct call *call)
{
    const char *told = told_request_id(call->request);
    call->request_id_told = told != NULL;
    if (told != NULL) {
        memcpy(call->request_id, told, strlen(told) + 1);
    }
}

void tally_coordinator_on_request(void *context, struct tally_http_request *request)
{
    struct tally_coordinator *coordinator = context;
    struct call *call = call_new(coordinator);
    coordinator->n_requests++;
    if (call == NULL) {
        char id[REQUEST_ID_CAPACITY];
        draw_request_id(coordinator, id);
        const struct tally_http_response response = {.status = 503,
                                                     .headers = {{"X-Request-Id", id}}};
        tally_http_respond(request, &response);
        return;
    }
    call->request = request;
    call->arrived_ns = tally_monotonic_ns();
    name_request(call);
    call->holder = (struct request_holder){.call = call};
    tally_http_set_user(request, &call->holder);
    struct tally_error err = TALLY_ERROR_INIT;
    const enum tally_status status = admit(coordinator, call, &err);
    if (status != TALLY_OK) {
        answer_error(call, &err);
        push(&coordinator->written, call);
    } else if (!call->route->writes) {
        push(&coordinator->reads, call);
    } else {
        run(coordinator, call);
        if (call->forwarded != NULL) {
            return;
        }
        call->in_transaction = coordinator->in_transaction;
        if (call->request != NULL && call->answered) {
            coordinator->metrics.requests_in_commit += call->in_transaction;
            push(&coordinator->written, call);
        } else {
            call_free(coordinator, call); /* a long poll: the session holds the request */
        }
    }
}

void tally_coordinator_on_abandoned(void *context, struct tally_http_request *request)
{
    struct tally_coordinator *coordinator = context;
    const struct request_holder *holder = tally_http_user(request);
    if (holder == NULL) { /* there was no memory for a call */
        return;
    }
    struct session *session = holder->session;
    struct call *call = holder->call;
    if (session != NULL) {
        coordinator->sessions.n_waiting--;
        session->poll.request = NULL;
        session->last_contact_ms = tally_monotonic_ms(); /* until now it was there */
        session_set_timer(&coordinator->sessions, session, coordinator->config.session_timeout_ms);
    } else if (call->forwarded != NULL) {
        forward_abandon(coordinator, call);
    } else {
        call->request = NULL;
    }
}

/* Runs the reads that waited for the commit. */
void run_reads(struct tally_coordinator *coordinator)
{
    struct call *call = coordinator->reads.first;
    coordinator->reads = (struct call_queue){.last = &coordinator->reads.first};
    while (call != NULL) {
        struct call *next = call->next;
        if (call->request != NULL) {
            run(coordinator, call);
        }
        if (call->forwarded == NULL) { /* else it waits for the other replica */
            send_answer(coordinator, call);
        }
        call = next;
    }
}
