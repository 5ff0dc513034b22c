#include "tests/bench/echo_server.h"

#include <microhttpd.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>

struct tally_echo_server {
    struct MHD_Daemon *daemon;
    struct MHD_Response *response; /* one for all requests: no work per request */
};

static enum MHD_Result handle(void *context, struct MHD_Connection *connection, const char *path,
                              const char *method, const char *version, const char *upload,
                              size_t *n_upload, void **request)
{
    (void)path, (void)method, (void)version, (void)upload;
    static char seen;
    struct tally_echo_server *server = context;
    if (*request == NULL) { /* only the headers; the body comes next */
        *request = &seen;
        return MHD_YES;
    }
    if (*n_upload > 0) {
        *n_upload = 0;
        return MHD_YES;
    }
    return MHD_queue_response(connection, MHD_HTTP_OK, server->response);
}

enum tally_status tally_echo_server_new(size_t n_answer, unsigned n_connections,
                                        struct tally_echo_server **ret_server,
                                        struct tally_error *err)
{
    struct tally_echo_server *server = calloc(1, sizeof *server);
    void *answer = calloc(1, n_answer + 1);
    if (server != NULL && answer != NULL) {
        server->response = MHD_create_response_from_buffer(n_answer, answer, MHD_RESPMEM_MUST_COPY);
    }
    free(answer);
    if (server == NULL || server->response == NULL) {
        tally_echo_server_free(server);
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for an echo server");
    }
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    server->daemon = MHD_start_daemon(
        MHD_USE_EPOLL, 0, NULL, NULL, handle, server, MHD_OPTION_SOCK_ADDR,
        (const struct sockaddr *)&address, MHD_OPTION_CONNECTION_LIMIT, n_connections,
        MHD_OPTION_LISTEN_BACKLOG_SIZE, n_connections, MHD_OPTION_END);
    if (server->daemon == NULL) {
        tally_echo_server_free(server);
        return tally_fail(err, TALLY_UNAVAILABLE, NULL, "an echo server cannot listen");
    }
    *ret_server = server;
    return TALLY_OK;
}

void tally_echo_server_free(struct tally_echo_server *server)
{
    if (server == NULL) {
        return;
    }
    if (server->daemon != NULL) {
        MHD_stop_daemon(server->daemon);
    }
    if (server->response != NULL) {
        MHD_destroy_response(server->response);
    }
    free(server);
}

uint16_t tally_echo_server_port(const struct tally_echo_server *server)
{
    return MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_BIND_PORT)->port;
}

void tally_echo_server_step(struct tally_echo_server *server)
{
    MHD_UNSIGNED_LONG_LONG timeout_ms = 0;
    const int wait_ms =
        MHD_get_timeout(server->daemon, &timeout_ms) == MHD_YES ? (int)timeout_ms : -1;
    struct pollfd ready = {
        .fd = MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd,
        .events = POLLIN};
    (void)poll(&ready, 1, wait_ms);
    (void)MHD_run(server->daemon);
}
