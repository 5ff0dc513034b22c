#include "api/http/http_listen.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    /* Linux's default limit (net.core.somaxconn): all workers may connect at once. */
    LISTEN_BACKLOG = 4096,
    /* Descriptors left for the store, logs and the server itself. */
    RESERVED_DESCRIPTORS = 64
};

/* Converts "127.0.0.1:8080" or "[::1]:8080" to a list as from getaddrinfo(). */
static bool parse_address(const char *text, struct addrinfo **ret_address)
{
    char host[64];
    const char *colon = strrchr(text, ':');
    size_t n_host = colon != NULL ? (size_t)(colon - text) : 0;
    bool bracketed = n_host >= 2 && text[0] == '[' && text[n_host - 1] == ']';
    if (bracketed) {
        text++;
        n_host -= 2;
    }
    const char *port = colon != NULL ? colon + 1 : "";
    size_t n_port = strlen(port);
    bool is_port = n_port > 0 && n_port <= 5 && strspn(port, "0123456789") == n_port &&
                   strtoul(port, NULL, 10) <= UINT16_MAX;
    bool ok = is_port && n_host > 0 && n_host < sizeof host;
    if (ok) {
        memcpy(host, text, n_host);
        host[n_host] = '\0';
        struct addrinfo hints = {.ai_family = bracketed ? AF_INET6 : AF_INET,
                                 .ai_socktype = SOCK_STREAM,
                                 .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
        ok = getaddrinfo(host, port, &hints, ret_address) == 0;
    }
    return ok;
}

static uint16_t bound_port(int fd)
{
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    char port[8] = "0";
    if (getsockname(fd, (struct sockaddr *)&address, &size) == 0) {
        (void)getnameinfo((struct sockaddr *)&address, size, NULL, 0, port, sizeof port,
                          NI_NUMERICSERV);
    }
    return (uint16_t)strtoul(port, NULL, 10);
}

enum tally_status http_listen(const char *address, int *ret_fd, uint16_t *ret_port,
                              struct tally_error *err)
{
    struct addrinfo *parsed = NULL;
    if (!parse_address(address, &parsed)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "listen",
                          "listen \"%s\" is not ADDRESS:PORT, such as 127.0.0.1:8080 or [::1]:8080",
                          address);
    }
    const int on = 1;
    int fd = socket(parsed->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    bool ok = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
              bind(fd, parsed->ai_addr, parsed->ai_addrlen) == 0 && listen(fd, LISTEN_BACKLOG) == 0;
    int reason = errno;
    freeaddrinfo(parsed);
    if (!ok) {
        if (fd >= 0) {
            close(fd);
        }
        return tally_fail(err, TALLY_UNAVAILABLE, "listen", "cannot listen on %s: %s", address,
                          strerror(reason));
    }
    *ret_fd = fd;
    *ret_port = bound_port(fd);
    return TALLY_OK;
}

unsigned http_listen_max_connections(unsigned wanted)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0) {
        return wanted;
    }
    if (files.rlim_cur < files.rlim_max) {
        struct rlimit raised = {.rlim_cur = files.rlim_max, .rlim_max = files.rlim_max};
        if (setrlimit(RLIMIT_NOFILE, &raised) == 0) {
            files = raised;
        }
    }
    rlim_t room = files.rlim_cur / 2 > RESERVED_DESCRIPTORS ? files.rlim_cur - RESERVED_DESCRIPTORS
                                                            : files.rlim_cur / 2;
    return room < wanted ? (unsigned)room : wanted;
}
