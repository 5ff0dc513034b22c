#include "api/http/http_wait.h"

#include <sys/epoll.h>

enum {
    /* This many make a turn of MHD 3 ms longer. More than that within SUSPEND_AFTER_MS would take
     * 400,000 requests a second. */
    MAX_WAITING = 8192,
    SUSPEND_AFTER_MS = 20
};

void http_wait_begin(struct tally_http_request *request)
{
    struct tally_http_server *server = request->server;
    if (server->n_waiting == MAX_WAITING) {
        http_wait_suspend(request);
        return;
    }
    request->is_waiting = true;
    request->waits_since_ms = server->peers.now_ms;
    tally_list_append(&server->waiting, &request->in_list);
    server->n_waiting++;
}

void http_wait_end(struct tally_http_request *request)
{
    if (request->is_waiting) {
        request->is_waiting = false;
        tally_list_remove(&request->in_list);
        request->server->n_waiting--;
    }
}

void http_wait_suspend(struct tally_http_request *request)
{
    struct tally_http_server *server = request->server;
    http_wait_end(request);
    http_peer_enter(request->peer, HTTP_WAITING);
    MHD_suspend_connection(request->connection);
    request->is_suspended = true;
    server->n_suspended++;
    tally_list_append(&server->suspended, &request->in_list);
    /* While a body waits, the peer's FIN may already be in the socket: a client that has sent
     * everything and shuts down its side has not left. */
    http_peer_watch(request->peer, request->upload.state == HTTP_UPLOAD_WAITS ? 0 : EPOLLRDHUP);
}

void http_wait_resume(struct tally_http_request *request)
{
    struct tally_http_server *server = request->server;
    http_peer_unwatch(request->peer);
    tally_list_remove(&request->in_list);
    request->is_suspended = false;
    server->n_suspended--;
    server->peers.has_resumed = true;
    MHD_resume_connection(request->connection);
}

void http_wait_wake(struct tally_http_request *request)
{
    if (request->is_suspended) {
        http_wait_resume(request);
    } else if (request->is_waiting) {
        request->server->peers.has_resumed = true;
    }
}

void http_wait_suspend_old(struct tally_http_server *server)
{
    struct tally_http_request *request;
    while ((request = TALLY_LIST_FIRST(struct tally_http_request, in_list, &server->waiting)) !=
               NULL &&
           !request->is_answered &&
           server->peers.now_ms - request->waits_since_ms >= SUSPEND_AFTER_MS) {
        http_wait_suspend(request);
    }
}

void http_wait_resume_all(struct tally_http_server *server)
{
    TALLY_LIST_EACH(node, &server->suspended)
    {
        http_wait_resume(TALLY_LIST_MEMBER(struct tally_http_request, in_list, node));
    }
}

void http_wait_hang_up(struct tally_http_request *request)
{
    if (request->is_suspended) {
        http_uploads_end(&request->server->uploads, &request->upload);
        request->is_gone = true;
        http_wait_resume(request);
    }
}
