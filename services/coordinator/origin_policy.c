#include "services/coordinator/origin_policy.h"

#include <arpa/inet.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

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

bool host_is_allowed(const char *host, const char *allowed)
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

bool write_is_foreign(const char *host, const char *origin, const char *fetch_site)
{
    if (fetch_site != NULL && strcasecmp(fetch_site, "same-origin") != 0 &&
        strcasecmp(fetch_site, "none") != 0) {
        return true;
    }
    return origin != NULL && !is_own_origin(origin, host);
}

bool is_host_name(const char *text)
{
    static const char ALLOWED[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                  "0123456789.-_";
    const size_t n = strlen(text);
    return strspn(text, ALLOWED) == n && strspn(text, DIGITS) < n;
}
