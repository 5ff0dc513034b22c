#include "api/client/http_foreign.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* In libcurl's order. HTTP_PROXY is not read, because a CGI program gets it from its client. */
static const char *proxy_of(const char *url)
{
    static const char *const plain[] = {"http_proxy", "all_proxy", "ALL_PROXY", NULL};
    static const char *const tls[] = {"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", NULL};
    const char *const *name = strncasecmp(url, "https:", 6) == 0 ? tls : plain;
    const char *value = NULL;
    for (; *name != NULL && (value == NULL || value[0] == '\0'); name++) {
        value = getenv(*name);
    }
    return value != NULL ? value : "";
}

void http_proxy_name(const char *url, char ret_name[HTTP_PROXY_CAPACITY])
{
    const char *proxy = proxy_of(url);
    const char *scheme_end = strstr(proxy, "://");
    const char *host = scheme_end != NULL ? scheme_end + 3 : proxy;
    const char *user_end = strrchr(host, '@');
    snprintf(ret_name, HTTP_PROXY_CAPACITY, "%.*s%s", (int)(host - proxy), proxy,
             user_end != NULL ? user_end + 1 : host);
}

/* Where a redirect leads to: if only the address in front of the path differs, that address. */
static void write_redirect(const struct tally_http_exchange *exchange, char *text, size_t capacity)
{
    const size_t n = strlen(exchange->location), n_path = strlen(exchange->path);
    const bool is_same_path =
        n > n_path && strcmp(exchange->location + n - n_path, exchange->path) == 0;
    if (n == 0) {
        snprintf(text, capacity, ": redirects, but does not say where to");
    } else if (is_same_path) {
        snprintf(text, capacity, ": redirects to %.*s: use that", (int)(n - n_path),
                 exchange->location);
    } else {
        snprintf(text, capacity, ": redirects to %s", exchange->location);
    }
}

static void write_detail(const struct tally_http_exchange *exchange,
                         const struct tally_error *answer, char *text, size_t capacity)
{
    const char *excerpt = strchr(answer->message, ':'); /* after "HTTP status 400" */
    if (exchange->status >= 300 && exchange->status <= 399) {
        write_redirect(exchange, text, capacity);
    } else if (exchange->status == 413) {
        snprintf(text, capacity, ": body of %zu bytes", exchange->n_body);
    } else if (exchange->status < 300) {
        snprintf(text, capacity, ": response of type \"%s\": this is no Tally coordinator",
                 exchange->response_type);
    } else {
        snprintf(text, capacity, "%s", excerpt != NULL ? excerpt : "");
    }
}

enum tally_status http_fail_foreign(const char *url, const struct tally_http_exchange *exchange,
                                    const struct tally_error *answer, struct tally_error *err)
{
    char proxy[HTTP_PROXY_CAPACITY] = "", detail[320];
    const bool is_moved = exchange->status == 301 || exchange->status == 308;
    const char *server = exchange->server;
    if (exchange->has_proxy) {
        http_proxy_name(url, proxy);
    }
    write_detail(exchange, answer, detail, sizeof detail);
    return tally_fail(err, is_moved ? TALLY_MISDIRECTED : answer->status, TALLY_HTTP_FOREIGN,
                      "HTTP %d from %s%s%s%s%s%s%s", exchange->status, url,
                      server[0] != '\0' ? " (" : "", server, server[0] != '\0' ? ")" : "",
                      proxy[0] != '\0' ? " through the proxy " : "", proxy, detail);
}
