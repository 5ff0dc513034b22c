#include "services/coordinator/listen_scope.h"

#include <arpa/inet.h>
#include <stdint.h>
#include <string.h>

bool listen_is_loopback(const char *listen)
{
    char host[INET6_ADDRSTRLEN];
    const char *colon = strrchr(listen, ':');
    size_t n = colon != NULL ? (size_t)(colon - listen) : 0;
    const bool bracketed = n >= 2 && listen[0] == '[' && listen[n - 1] == ']';
    listen += bracketed;
    n -= bracketed ? 2 : 0;
    if (n == 0 || n >= sizeof host) {
        return false;
    }
    memcpy(host, listen, n);
    host[n] = '\0';
    uint8_t v4[4];
    struct in6_addr v6;
    if (!bracketed) {
        return inet_pton(AF_INET, host, v4) == 1 && v4[0] == 127;
    }
    return inet_pton(AF_INET6, host, &v6) == 1 &&
           (IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127));
}
