#include "services/coordinator/access.h"
#include "services/base/alloc.h"

#include <arpa/inet.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "services/base/log.h"

enum { HOST_CAPACITY = INET6_ADDRSTRLEN };

static bool is_v6(const char *host)
{
    struct in6_addr v6;
    return inet_pton(AF_INET6, host, &v6) == 1;
}

/* A port needs only digits here; its range is checked apart. */
static bool is_digits(const char *text)
{
    return text[0] != '\0' && text[strspn(text, "0123456789")] == '\0';
}

/* The text has no port, or an address that cannot be told from it. `host` is the text before the
 * last colon, "" = there is none. */
static enum tally_status refuse_parts(const char *text, const char *host, const char *port,
                                      struct tally_error *err)
{
    if (strstr(text, "://") != NULL) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "listen",
                          "\"%s\" is a URL; give only ADDRESS:PORT, such as 127.0.0.1:8080", text);
    }
    if (is_digits(text)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "listen",
                          "\"%s\" is only a port; give an address too: 127.0.0.1:%s for this "
                          "machine alone",
                          text, text);
    }
    if (host[0] == '\0' && text[0] == ':') {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "listen",
                          "\"%s\" has no address; give 127.0.0.1%s for this machine alone, "
                          "0.0.0.0%s for all addresses",
                          text, text, text);
    }
    if (is_v6(host) && is_digits(port)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "listen",
                          "\"%s\": an IPv6 address needs brackets: [%s]:%s", text, host, port);
    }
    return is_v6(text) ? tally_fail(err, TALLY_INVALID_ARGUMENT, "listen",
                                    "\"%s\" has no port, and an IPv6 address needs brackets: "
                                    "[%s]:8080",
                                    text, text)
                       : tally_fail(err, TALLY_INVALID_ARGUMENT, "listen",
                                    "\"%s\" has no port; give ADDRESS:PORT, such as %s:8080", text,
                                    text[0] != '\0' ? text : "127.0.0.1");
}

static enum tally_status refuse_host(const char *text, size_t n_host, const char *port,
                                     struct tally_error *err)
{
    return tally_fail(err, TALLY_INVALID_ARGUMENT, "listen",
                      "\"%.*s\" is not a numeric address or localhost; 127.0.0.1:%s serves this "
                      "machine alone, 0.0.0.0:%s all addresses",
                      (int)n_host, text, port, port);
}

enum tally_status listen_read(const char *text, char ret_listen[LISTEN_CAPACITY],
                              struct tally_error *err)
{
    char host[LISTEN_CAPACITY - 8] = "", numeric[HOST_CAPACITY];
    const char *colon = strrchr(text, ':'), *end = strchr(text, ']');
    const char *port = colon != NULL ? colon + 1 : "";
    const size_t n = colon != NULL ? (size_t)(colon - text) : 0;
    struct in_addr v4;
    snprintf(host, sizeof host, "%.*s", (int)(n < sizeof host ? n : sizeof host - 1), text);
    const bool is_bracketed = text[0] == '[' && end != NULL;
    const bool has_port =
        colon != NULL && (is_bracketed ? end + 1 == colon : n > 0 && strchr(text, ':') == colon);
    if (!has_port || strstr(text, "://") != NULL) {
        return refuse_parts(text, host, port, err);
    }
    if (!is_digits(port) || strlen(port) > 5 || strtoul(port, NULL, 10) > UINT16_MAX) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "listen", "port \"%s\" outside [0, 65535]",
                          port);
    }
    if (n >= sizeof host) { /* no address is that long */
        return refuse_host(text, n, port, err);
    }
    if (is_bracketed) {
        /* A link-local address may have a zone. */
        snprintf(numeric, sizeof numeric, "%.*s", (int)strcspn(host + 1, "]%"), host + 1);
        if (is_v6(numeric)) {
            snprintf(ret_listen, LISTEN_CAPACITY, "%s:%.5s", host, port);
            return TALLY_OK;
        }
    } else if (inet_aton(strcmp(host, "localhost") == 0 ? "127.0.0.1" : host, &v4) != 0) {
        inet_ntop(AF_INET, &v4, numeric, sizeof numeric);
        snprintf(ret_listen, LISTEN_CAPACITY, "%s:%.5s", numeric, port);
        return TALLY_OK;
    }
    return refuse_host(text, n, port, err);
}

/* Copies the host of ADDRESS:PORT, without brackets; returns false if there is none. */
static bool read_host(const char *listen, char ret_host[HOST_CAPACITY], bool *ret_bracketed)
{
    const char *colon = strrchr(listen, ':');
    size_t n = colon != NULL ? (size_t)(colon - listen) : 0;
    const bool bracketed = n >= 2 && listen[0] == '[' && listen[n - 1] == ']';
    listen += bracketed;
    n -= bracketed ? 2 : 0;
    if (n == 0 || n >= HOST_CAPACITY) {
        return false;
    }
    memcpy(ret_host, listen, n);
    ret_host[n] = '\0';
    *ret_bracketed = bracketed;
    return true;
}

bool listen_is_loopback(const char *listen)
{
    char host[HOST_CAPACITY];
    bool bracketed;
    uint8_t v4[4];
    struct in6_addr v6;
    if (!read_host(listen, host, &bracketed)) {
        return false;
    }
    if (!bracketed) {
        return inet_pton(AF_INET, host, v4) == 1 && v4[0] == 127;
    }
    return inet_pton(AF_INET6, host, &v6) == 1 &&
           (IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127));
}

bool listen_is_one_address(const char *listen)
{
    char host[HOST_CAPACITY];
    bool bracketed;
    uint8_t v4[4];
    struct in6_addr v6;
    if (!read_host(listen, host, &bracketed) || strcmp(strrchr(listen, ':'), ":0") == 0) {
        return false;
    }
    if (!bracketed) {
        static const uint8_t ANY[4] = {0};
        return inet_pton(AF_INET, host, v4) == 1 && memcmp(v4, ANY, sizeof v4) != 0;
    }
    return inet_pton(AF_INET6, host, &v6) == 1 && !IN6_IS_ADDR_UNSPECIFIED(&v6);
}

bool listen_own_url(const char *listen, bool is_tls, char ret_url[LISTEN_URL_CAPACITY])
{
    char host[HOST_CAPACITY];
    bool bracketed;
    if (!read_host(listen, host, &bracketed)) {
        return false;
    }
    const char *port = strrchr(listen, ':') + 1;
    const bool is_wildcard = strcmp(host, bracketed ? "::" : "0.0.0.0") == 0;
    const int n = snprintf(ret_url, LISTEN_URL_CAPACITY, "http%s://%.*s:%s", is_tls ? "s" : "",
                           is_wildcard ? 9 : (int)(port - 1 - listen),
                           is_wildcard ? "127.0.0.1" : listen, port);
    return n < LISTEN_URL_CAPACITY && strcmp(port, "0") != 0;
}

enum { HTTP_PORT = 80, HTTPS_PORT = 443 };

static const char DIGITS[] = "0123456789";

struct authority {
    const char *host; /* without brackets and trailing dot */
    size_t n_host;
    bool is_bracketed;
    unsigned long port; /* 0 = none */
};

/* Parses "" or ":PORT"; the digits may be missing (RFC 3986, 3.2.3). */
static bool read_port(const char *text, unsigned long *ret_port)
{
    const size_t n = text[0] == ':' ? strspn(text + 1, DIGITS) : 0;
    *ret_port = n > 0 ? strtoul(text + 1, NULL, 10) : 0;
    return text[0] == '\0' || (text[0] == ':' && text[1 + n] == '\0' && n <= 5);
}

/* Parses HOST or HOST:PORT. */
static bool read_authority(const char *text, struct authority *ret)
{
    ret->is_bracketed = text[0] == '[';
    ret->host = text + ret->is_bracketed;
    ret->n_host = strcspn(ret->host, ret->is_bracketed ? "]" : ":");
    const char *end = ret->host + ret->n_host;
    if (ret->is_bracketed && *end == ']') {
        end++;
    } else if (ret->is_bracketed) {
        return false;
    } else if (ret->n_host > 1 && end[-1] == '.') {
        ret->n_host--;
    }
    return ret->n_host > 0 && read_port(end, &ret->port);
}

static bool is_ip_literal(const struct authority *authority)
{
    char text[INET6_ADDRSTRLEN];
    struct in6_addr address;
    if (authority->n_host >= sizeof text) {
        return false;
    }
    memcpy(text, authority->host, authority->n_host);
    text[authority->n_host] = '\0';
    return inet_pton(authority->is_bracketed ? AF_INET6 : AF_INET, text, &address) == 1;
}

static bool is_same_name(const char *a, size_t n_a, const char *b, size_t n_b)
{
    return n_a == n_b && strncasecmp(a, b, n_a) == 0;
}

static bool is_listed(const struct authority *authority, const char *list)
{
    while (*list != '\0') {
        const size_t n = strcspn(list, ":");
        const size_t n_name = n > 1 && list[n - 1] == '.' ? n - 1 : n;
        if (is_same_name(authority->host, authority->n_host, list, n_name)) {
            return true;
        }
        list += n + (list[n] == ':');
    }
    return false;
}

bool access_host_is_allowed(const char *host, const char *allowed)
{
    struct authority authority;
    if (!read_authority(host, &authority)) {
        return false;
    }
    return is_ip_literal(&authority) ||
           (!authority.is_bracketed && (is_listed(&authority, "localhost") ||
                                        is_listed(&authority, allowed != NULL ? allowed : "")));
}

/* The default port of an origin that begins with "http://" or "https://"; 0 for any other, such as
 * "null". */
static unsigned long default_port(const char *origin, const char **ret_authority)
{
    static const char HTTP[] = "http://", HTTPS[] = "https://";
    const bool is_https = strncasecmp(origin, HTTPS, sizeof HTTPS - 1) == 0;
    const bool is_http = strncasecmp(origin, HTTP, sizeof HTTP - 1) == 0;
    *ret_authority = origin + (is_https ? sizeof HTTPS - 1 : sizeof HTTP - 1);
    return is_https ? HTTPS_PORT : is_http ? HTTP_PORT : 0;
}

static bool is_own_origin(const char *origin, const char *host)
{
    struct authority own, its;
    const char *authority = NULL;
    const unsigned long missing = default_port(origin, &authority);
    if (missing == 0 || host == NULL || !read_authority(authority, &its) ||
        !read_authority(host, &own)) {
        return false;
    }
    return own.is_bracketed == its.is_bracketed &&
           is_same_name(own.host, own.n_host, its.host, its.n_host) &&
           (own.port != 0 ? own.port : missing) == (its.port != 0 ? its.port : missing);
}

bool access_write_is_foreign(const char *host, const char *origin, const char *fetch_site)
{
    if (fetch_site != NULL && strcasecmp(fetch_site, "same-origin") != 0 &&
        strcasecmp(fetch_site, "none") != 0) {
        return true;
    }
    return origin != NULL && !is_own_origin(origin, host);
}

bool access_is_host_name(const char *text)
{
    static const char ALLOWED[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                  "0123456789.-_";
    const size_t n = strlen(text);
    return strspn(text, ALLOWED) == n && strspn(text, DIGITS) < n;
}

/* Takes the same time whichever bytes differ. */
static bool same_digest(const uint8_t a[TALLY_SHA256_BYTES], const uint8_t b[TALLY_SHA256_BYTES])
{
    unsigned difference = 0;
    for (int i = 0; i < TALLY_SHA256_BYTES; i++) {
        difference |= (unsigned)(a[i] ^ b[i]);
    }
    return difference == 0;
}

bool access_same_identity(const struct token_identity *a, const struct token_identity *b)
{
    return same_digest(a->bytes, b->bytes);
}

enum tally_status token_set_add(struct token_set *set, const struct tally_token *token,
                                struct tally_error *err)
{
    const size_t n = strlen(token->text);
    if (n < TOKEN_MIN_BYTES) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                          "the token has %zu bytes, fewer than %d", n, TOKEN_MIN_BYTES);
    }
    if (set->n == TALLY_TOKENS_PER_FILE) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "more than %d tokens",
                          TALLY_TOKENS_PER_FILE);
    }
    struct known_token *known = &set->items[set->n++];
    tally_sha256(token->text, n, known->digest);
    memcpy(known->name, token->name, sizeof known->name);
    known->until_ms = token->until_ms;
    known->line = token->line;
    if (token->name[0] == '\0') {
        memcpy(known->identity.bytes, known->digest, sizeof known->digest);
    } else { /* tokens contain no spaces, so none has this digest */
        char text[sizeof "name " + TALLY_TOKEN_NAME_CAPACITY];
        snprintf(text, sizeof text, "name %s", token->name);
        tally_sha256(text, strlen(text), known->identity.bytes);
    }
    return TALLY_OK;
}

enum token_verdict token_look_up(const struct tally_tokens *tokens, unsigned wanted,
                                 const char *given, int64_t now_ms,
                                 const struct known_token **ret_token)
{
    uint8_t digest[TALLY_SHA256_BYTES];
    enum token_verdict best = TOKEN_UNKNOWN;
    tally_sha256(given, strlen(given), digest);
    for (unsigned role = 0; role < N_TOKEN_ROLES; role++) {
        const struct token_set *set = &tokens->roles[role];
        for (int i = 0; i < set->n; i++) {
            const struct known_token *known = &set->items[i];
            const bool is_it = same_digest(digest, known->digest);
            const enum token_verdict verdict = now_ms >= known->until_ms    ? TOKEN_EXPIRED
                                               : (wanted >> role & 1U) != 0 ? TOKEN_RIGHT
                                                                            : TOKEN_OTHER_ROLE;
            if (is_it && verdict > best) {
                best = verdict;
                *ret_token = known;
            }
        }
    }
    return best;
}

static const struct {
    const char *option, *variable;
} SOURCES[N_TOKEN_ROLES] = {[TOKEN_ADMIN] = {"admin-token-file", "TALLY_ADMIN_TOKEN"},
                            [TOKEN_WORKER] = {"worker-token-file", "TALLY_WORKER_TOKEN"},
                            [TOKEN_METRICS] = {"metrics-token-file", "TALLY_METRICS_TOKEN"}};

/* "--worker-token-file FILE:LINE name=NAME" */
enum { PLACE_CAPACITY = 320 };

static enum tally_status add(void *context, const struct tally_token *token,
                             struct tally_error *err)
{
    return token_set_add(context, token, err);
}

/* Whether a container engine or systemd provides the file. They choose its mode and keep other
 * users from reaching it. */
static bool is_handed_over(const char *path)
{
    const char *credentials = getenv("CREDENTIALS_DIRECTORY");
    return strncmp(path, "/run/secrets/", 13) == 0 ||
           (credentials != NULL && credentials[0] != '\0' &&
            strncmp(path, credentials, strlen(credentials)) == 0);
}

static enum tally_status read_file(const char *path, bool regular_only, struct token_set *set,
                                   struct tally_error *err)
{
    struct tally_token_file file = {
        .path = path, .regular_only = regular_only, .on_token = add, .context = set};
    enum tally_status status = tally_token_file_read(&file, err);
    if (status == TALLY_OK && file.ret_is_exposed && !is_handed_over(path)) {
        tally_log(TALLY_LOG_WARN, tally_log_event("token file can be read by others"),
                  tally_log_text("file", path), tally_log_text("remedy", "chmod 600"));
    }
    return status;
}

static enum tally_status take_variable(const char *name, bool has_file, struct token_set *set,
                                       struct tally_error *err)
{
    static struct tally_token token; /* wiped below */
    bool found = false;
    token = (struct tally_token){.until_ms = INT64_MAX};
    enum tally_status status = tally_token_take_environment(name, token.text, &found, err);
    if (status == TALLY_OK && found && has_file) {
        status = tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                            "%s holds a token, and a token file is given, too: use only one", name);
    } else if (status == TALLY_OK && found) {
        status = token_set_add(set, &token, err);
        if (status != TALLY_OK) {
            tally_error_wrap(err, "%s", name);
        }
    }
    explicit_bzero(&token, sizeof token);
    return status;
}

/* Writes the place of a token, never the token itself. */
static void describe(const struct tally_options *options, enum token_role role,
                     const struct known_token *token, char ret_place[PLACE_CAPACITY])
{
    const bool has_name = token->name[0] != '\0';
    if (token->line == 0) {
        snprintf(ret_place, PLACE_CAPACITY, "%s", SOURCES[role].variable);
    } else {
        snprintf(ret_place, PLACE_CAPACITY, "--%s %.200s:%d%s%s", SOURCES[role].option,
                 tally_options_text(options, SOURCES[role].option), token->line,
                 has_name ? " name=" : "", token->name);
    }
}

typedef void shared_token_fn(const char *first, const char *second);

/* Calls on_pair() with the places of every token that has both roles. Returns their number. */
static int walk_pair(const struct tally_options *options, const struct tally_tokens *tokens,
                     enum token_role a, enum token_role b, shared_token_fn *on_pair)
{
    int n = 0;
    for (int i = 0; i < tokens->roles[a].n; i++) {
        for (int j = 0; j < tokens->roles[b].n; j++) {
            const struct known_token *one = &tokens->roles[a].items[i];
            const struct known_token *other = &tokens->roles[b].items[j];
            if (same_digest(one->digest, other->digest)) {
                char first[PLACE_CAPACITY], second[PLACE_CAPACITY];
                describe(options, a, one, first);
                describe(options, b, other, second);
                on_pair(first, second);
                n++;
            }
        }
    }
    return n;
}

static int walk_shared(const struct tally_options *options, const struct tally_tokens *tokens,
                       shared_token_fn *on_pair)
{
    return walk_pair(options, tokens, TOKEN_ADMIN, TOKEN_WORKER, on_pair) +
           walk_pair(options, tokens, TOKEN_ADMIN, TOKEN_METRICS, on_pair) +
           walk_pair(options, tokens, TOKEN_WORKER, TOKEN_METRICS, on_pair);
}

static void log_shared(const char *first, const char *second)
{
    tally_log(TALLY_LOG_WARN, tally_log_event("one token grants two roles"),
              tally_log_text("first", first), tally_log_text("second", second),
              tally_log_text("remedy", "give each role tokens of its own"));
}

static void print_shared(const char *first, const char *second)
{
    printf("warn  %s and %s hold the same token: give each role tokens of its own\n", first,
           second);
}

void tokens_print_shared(const struct tally_options *options, const struct tally_tokens *tokens)
{
    walk_shared(options, tokens, print_shared);
}

enum tally_status tokens_load(const struct tally_options *options, struct tally_tokens *ret_tokens,
                              struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    *ret_tokens = (struct tally_tokens){0};
    for (int role = 0; status == TALLY_OK && role < N_TOKEN_ROLES; role++) {
        struct token_set *set = &ret_tokens->roles[role];
        const char *path = tally_options_text(options, SOURCES[role].option);
        status = take_variable(SOURCES[role].variable, path != NULL, set, err);
        if (status == TALLY_OK && path != NULL) {
            status = read_file(path, false, set, err);
        }
    }
    if (status == TALLY_OK) {
        ret_tokens->n_shared = walk_shared(options, ret_tokens, log_shared);
    }
    return status;
}

enum tally_status tokens_reload(const struct tally_options *options, struct tally_tokens *tokens,
                                struct tally_error *err)
{
    struct tally_tokens *fresh = tally_xcalloc(1, sizeof *fresh);
    *fresh = *tokens;
    enum tally_status status = TALLY_OK;
    for (int role = 0; status == TALLY_OK && role < N_TOKEN_ROLES; role++) {
        const char *path = tally_options_text(options, SOURCES[role].option);
        if (path != NULL) {
            fresh->roles[role].n = 0;
            /* A pipe was read at the start; waiting for another writer would block the loop. */
            status = read_file(path, true, &fresh->roles[role], err);
        }
    }
    if (status == TALLY_OK) {
        fresh->n_shared = walk_shared(options, fresh, log_shared);
        *tokens = *fresh;
    }
    free(fresh);
    return status;
}
