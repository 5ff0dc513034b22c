#include "services/coordinator/access/listen_scope.h"

#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { HOST_CAPACITY = INET6_ADDRSTRLEN };

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
