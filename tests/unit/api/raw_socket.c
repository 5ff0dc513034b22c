#include "tests/unit/api/raw_socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int tally_raw_connect(uint16_t port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        close(fd);
        return -1;
    }
    if (fd >= 0) {
        (void)fcntl(fd, F_SETFL, O_NONBLOCK);
    }
    return fd;
}

long tally_raw_send(int fd, const void *bytes, size_t n)
{
    ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);
    if (sent < 0) {
        return errno == EAGAIN ? 0 : -1;
    }
    return sent;
}

bool tally_raw_receive(int fd, struct tally_buffer *in)
{
    for (;;) {
        if (tally_buffer_reserve(in, 65537) != TALLY_OK) {
            abort();
        }
        ssize_t n = recv(fd, in->data + in->size, 65536, 0);
        if (n > 0) {
            in->size += (size_t)n;
        }
        in->data[in->size] = '\0';
        if (n <= 0) {
            return n < 0 && errno == EAGAIN;
        }
    }
}

void tally_raw_reset(int fd)
{
    const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(fd);
}

size_t tally_raw_response_bytes(const char *text, size_t n, bool has_body)
{
    size_t at = 0;
    for (;;) {
        const char *end = at < n ? memmem(text + at, n - at, "\r\n\r\n", 4) : NULL;
        if (end == NULL) {
            return 0;
        }
        const char *head = text + at;
        size_t n_head = (size_t)(end - head) + 4;
        at += n_head;
        if (strncmp(head, "HTTP/1.1 1", 10) == 0) {
            continue;
        }
        const char *length = memmem(head, n_head, "Content-Length: ", 16);
        size_t n_body = length != NULL && has_body ? strtoul(length + 16, NULL, 10) : 0;
        return n - at >= n_body ? at + n_body : 0;
    }
}
