/* http_forward_internal: one forwarded request, and what it shares with its forwarder. */
#ifndef TALLY_API_CLIENT_HTTP_FORWARD_INTERNAL_H
#define TALLY_API_CLIENT_HTTP_FORWARD_INTERNAL_H

#include "api/client/http_curl.h"
#include "api/client/http_forward.h"
#include "codec/list.h"

struct tally_http_forward {
    struct tally_http_forwarder *forwarder;
    CURL *easy;                /* NULL once it has ended */
    struct curl_slist *lines;  /* of the request's header section */
    struct tally_buffer sent;  /* the request's body */
    size_t n_sent;             /* bytes of it that libcurl already has */
    enum tally_status refused; /* why the rest of the response is not read; OK = it is */
    bool has_whole_head;       /* the blank line has arrived */
    char curl_message[CURL_ERROR_SIZE];
    struct tally_http_forward_result result;
    struct tally_list_node in_list; /* running or done */
};

struct tally_http_forwarder {
    struct tally_http_forwarder_config config;
    char *tls_ca;
    CURLM *multi;
    int epoll_fd; /* the sockets that libcurl waits for, and the timer */
    int timer_fd; /* when libcurl wants to be called without an event */
    struct tally_list running, done;
    size_t n_running;
    size_t n_requests, held_bytes;
    bool *watched; /* by descriptor: libcurl waits for it */
    size_t n_watched;
};

/* Prepares the easy handle of a zeroed request; false when memory ran out. The body is set later;
 * only the size of forward->sent is used. */
bool http_forward_set_up(struct tally_http_forward *forward,
                         const struct tally_http_forward_request *request, struct tally_error *err);
/* Reads the result of an exchange that libcurl has ended. */
void http_forward_read_result(struct tally_http_forward *forward, CURLcode code);
void http_forward_drop_body(struct tally_http_forwarder *forwarder, struct tally_buffer *body);
/* Precondition: the request is in no list, and its easy handle in no multi handle. */
void http_forward_free(struct tally_http_forward *forward);

#endif
