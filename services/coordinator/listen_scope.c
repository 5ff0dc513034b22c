#include "services/coordinator/listen_scope.h"

#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
