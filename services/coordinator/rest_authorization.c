/* rest_authorization: which route a request takes, and whether its caller may use it. */
#include <stdio.h>
#include <string.h>

#include "services/base/time.h"
#include "services/coordinator/access.h"
#include "services/coordinator/calls.h"
#include "services/coordinator/coordinator.h"
#include "services/coordinator/rest_routes.h"

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

/* The methods that a 405 lists as allowed. Bits: 1 GET, 2 POST, 4 DELETE. */
static const char *allowed(unsigned methods)
{
    static const char *const texts[] = {
        "",       "GET, HEAD",         "POST",         "GET, HEAD, POST",
        "DELETE", "GET, HEAD, DELETE", "POST, DELETE", "GET, HEAD, POST, DELETE"};
    return texts[methods & 7U];
}

static enum tally_status find_route(const struct tally_coordinator *coordinator, struct call *call,
                                    const char *method, const char *path, struct tally_error *err)
{
    unsigned methods = 0;
    bool is_fixed = false; /* the path is one without "{id}", which then matches no other */
    for (const struct route *route = coordinator->calls->routes; route->method != NULL; route++) {
        const bool has_id = strchr(route->path, '{') != NULL;
        if ((is_fixed && has_id) || !match_path(route->path, path, call)) {
            continue;
        }
        is_fixed = !has_id;
        if (strcmp(route->method, method) == 0) {
            call->route = route;
            return TALLY_OK;
        }
        methods |= route->method[0] == 'G' ? 1U : route->method[0] == 'P' ? 2U : 4U;
    }
    call->allow = allowed(methods);
    return methods != 0 ? tally_fail(err, TALLY_METHOD_NOT_ALLOWED, NULL,
                                     "method %.16s is not allowed here", method)
                        : tally_fail(err, TALLY_NOT_FOUND, NULL, "no such resource: %.128s", path);
}

/* The roles whose tokens grant access to a route: a mask of 1 << role. */
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

/* 401 if another token would help; 403 if the token is known and its role does not permit the
 * request (RFC 9110, 15.5.2 and 15.5.4). */
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
        return tally_fail(err, TALLY_PERMISSION_DENIED, NULL,
                          "this token's role does not permit this request");
    case TOKEN_RIGHT:
        call->identity = token->identity;
        call->token_name = token->name;
        call->token_until_ms = token->until_ms;
        return TALLY_OK;
    }
    return tally_fail(err, TALLY_UNAUTHENTICATED, NULL, "the token is not valid");
}

/* Whether the request needs a token. The dashboard's files need none, but count as admin routes,
 * because the dashboard shows those. */
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
    if (config->any_host || host == NULL || access_host_is_allowed(host, config->allowed_hosts) ||
        is_guarded(coordinator, call)) {
        return TALLY_OK;
    }
    return tally_fail(err, TALLY_MISDIRECTED, "Host",
                      "without tokens Host may be an IP address, localhost or a name given with "
                      "--allowed-host, not \"%.128s\"",
                      host);
}

/* Refuses requests that a browser sends for a web page of another origin (access.h). */
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
    if (!access_write_is_foreign(host, origin, fetch_site)) {
        return TALLY_OK;
    }
    const bool origin_says_so = access_write_is_foreign(host, origin, NULL);
    return tally_fail(err, TALLY_PERMISSION_DENIED, origin_says_so ? "Origin" : "Sec-Fetch-Site",
                      "a web page of another origin may not write here: \"%.128s\"",
                      origin_says_so ? origin : fetch_site);
}

/* Finds the route and checks whether the caller may use it. The origin is checked first: a page of
 * another origin does not learn which routes exist. */
enum tally_status rest_admit(const struct tally_coordinator *coordinator, struct call *call,
                             struct tally_error *err)
{
    struct tally_error unknown = TALLY_ERROR_INIT;
    const enum tally_status found = find_route(coordinator, call, tally_http_method(call->request),
                                               tally_http_path(call->request), &unknown);
    enum tally_status status = check_origin(coordinator, call, err);
    if (status == TALLY_OK && found != TALLY_OK) {
        *err = unknown;
        status = found;
    }
    return status == TALLY_OK ? authorize(coordinator, call, err) : status;
}
