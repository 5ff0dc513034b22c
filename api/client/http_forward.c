/* One curl multi handle, whose callbacks report which sockets it waits for, and one epoll set with
 * those sockets and a timer. The set is a descriptor itself, which the owner's loop watches:
 *
 *     owner's loop              forwarder                            peer
 *     tally_http_forward  --->  running                     --->     request
 *     (epoll_fd readable)  <--- a socket or the timer       <---     response
 *     ..._forward_take    --->  libcurl reads; ended: done
 *                         <---  result
 *
 * A request is in one list at any time, running or done. */
#include "api/client/http_forward.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "api/client/http_forward_internal.h"

enum {
    DEFAULT_MAX_REQUESTS = 20000,
    DEFAULT_MAX_IDLE_CONNECTIONS = 256,
    DEFAULT_CONNECT_TIMEOUT_MS = 2000,
    EVENTS_AT_ONCE = 256
};

static const size_t DEFAULT_MAX_HELD_BYTES = (size_t)512 << 20;

/* NULL = none. */
static struct tally_http_forward *first_of(const struct tally_list *list)
{
    return TALLY_LIST_FIRST(struct tally_http_forward, in_list, list);
}

/* ---- What libcurl asks for ---- */

/* Makes room for one more descriptor. */
static bool reserve_watched(struct tally_http_forwarder *forwarder, int fd)
{
    size_t n = forwarder->n_watched;
    if ((size_t)fd < n) {
        return true;
    }
    while (n <= (size_t)fd) {
        n = 2 * n + 64;
    }
    bool *watched = realloc(forwarder->watched, n * sizeof *watched);
    if (watched == NULL) {
        return false;
    }
    memset(watched + forwarder->n_watched, 0, (n - forwarder->n_watched) * sizeof *watched);
    forwarder->watched = watched;
    forwarder->n_watched = n;
    return true;
}

/* A socket for which libcurl no longer waits stays in the set until it has an event: libcurl 7.88
 * announces some after it has closed them, and by then the number may belong to another file. */
static int on_socket(CURL *easy, curl_socket_t fd, int what, void *context, void *socket_data)
{
    (void)easy, (void)socket_data;
    struct tally_http_forwarder *forwarder = context;
    struct epoll_event event = {.events = (what & CURL_POLL_IN ? EPOLLIN : 0U) |
                                          (what & CURL_POLL_OUT ? EPOLLOUT : 0U),
                                .data.fd = fd};
    if (!reserve_watched(forwarder, fd)) {
        return -1;
    }
    forwarder->watched[fd] = what != CURL_POLL_REMOVE;
    if (what == CURL_POLL_REMOVE ||
        epoll_ctl(forwarder->epoll_fd, EPOLL_CTL_MOD, fd, &event) == 0) {
        return 0;
    }
    return errno == ENOENT ? epoll_ctl(forwarder->epoll_fd, EPOLL_CTL_ADD, fd, &event) : -1;
}

static int on_timer(CURLM *multi, long timeout_ms, void *context)
{
    (void)multi;
    const struct tally_http_forwarder *forwarder = context;
    struct itimerspec when = {.it_value.tv_sec = timeout_ms / 1000,
                              .it_value.tv_nsec = timeout_ms % 1000 * 1000000};
    if (timeout_ms == 0) {
        when.it_value.tv_nsec = 1; /* immediately; zero would disarm the timer */
    } else if (timeout_ms < 0) {
        when = (struct itimerspec){0};
    }
    return timerfd_settime(forwarder->timer_fd, 0, &when, NULL);
}

/* ---- Running requests ---- */

/* libcurl counts busy and idle connections together, and compares with the limit when a busy one
 * becomes idle. That one is still `running` here. */
static void bound_idle(struct tally_http_forwarder *forwarder)
{
    if (forwarder->n_running > 0) {
        curl_multi_setopt(
            forwarder->multi, CURLMOPT_MAXCONNECTS,
            (long)(forwarder->n_running - 1 + forwarder->config.max_idle_connections));
    }
}

/* Removes a request from libcurl, which keeps its connection after a complete exchange. */
static void stop_running(struct tally_http_forward *forward)
{
    struct tally_http_forwarder *forwarder = forward->forwarder;
    tally_list_remove(&forward->in_list);
    forwarder->n_running--;
    curl_multi_remove_handle(forwarder->multi, forward->easy);
    bound_idle(forwarder);
}

static void end(struct tally_http_forward *forward, CURLcode code)
{
    http_forward_read_result(forward, code);
    stop_running(forward);
    curl_easy_cleanup(forward->easy);
    forward->easy = NULL;
    http_forward_drop_body(forward->forwarder, &forward->sent);
    tally_list_append(&forward->forwarder->done, &forward->in_list);
}

static void start(struct tally_http_forward *forward)
{
    struct tally_http_forwarder *forwarder = forward->forwarder;
    tally_list_append(&forwarder->running, &forward->in_list);
    forwarder->n_running++;
    bound_idle(forwarder);
    if (curl_multi_add_handle(forwarder->multi, forward->easy) != CURLM_OK) {
        end(forward, CURLE_OUT_OF_MEMORY);
        (void)on_timer(forwarder->multi, 0, forwarder); /* so that the owner's loop notices */
    }
}

static void take_ended(struct tally_http_forwarder *forwarder)
{
    int left;
    const CURLMsg *message;
    while ((message = curl_multi_info_read(forwarder->multi, &left)) != NULL) {
        char *forward = NULL;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &forward);
        end((struct tally_http_forward *)(void *)forward, message->data.result);
    }
}

static void serve_timer(struct tally_http_forwarder *forwarder)
{
    uint64_t count;
    int running;
    if (read(forwarder->timer_fd, &count, sizeof count) > 0) {
        curl_multi_socket_action(forwarder->multi, CURL_SOCKET_TIMEOUT, 0, &running);
        take_ended(forwarder);
    }
}

static void serve_event(struct tally_http_forwarder *forwarder, const struct epoll_event *event)
{
    int running;
    int mask = (event->events & EPOLLIN ? CURL_CSELECT_IN : 0) |
               (event->events & EPOLLOUT ? CURL_CSELECT_OUT : 0);
    if (!forwarder->watched[event->data.fd]) {
        struct epoll_event unused;
        (void)epoll_ctl(forwarder->epoll_fd, EPOLL_CTL_DEL, event->data.fd, &unused);
        return;
    }
    if (event->events & (EPOLLERR | EPOLLHUP)) {
        mask = 0; /* libcurl checks: a response may have arrived before the end */
    }
    curl_multi_socket_action(forwarder->multi, event->data.fd, mask, &running);
    take_ended(forwarder); /* one by one, for bound_idle() */
}

/* Lets libcurl send and receive what is ready, without waiting. */
static void serve_events(struct tally_http_forwarder *forwarder)
{
    struct epoll_event events[EVENTS_AT_ONCE];
    const int n = epoll_wait(forwarder->epoll_fd, events, EVENTS_AT_ONCE, 0);
    for (int i = 0; i < n; i++) {
        if (events[i].data.fd == forwarder->timer_fd) {
            serve_timer(forwarder);
        } else {
            serve_event(forwarder, &events[i]);
        }
    }
}

/* ---- Start and end ---- */

static bool open_descriptors(struct tally_http_forwarder *forwarder)
{
    forwarder->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    forwarder->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = forwarder->timer_fd};
    return forwarder->epoll_fd >= 0 && forwarder->timer_fd >= 0 &&
           epoll_ctl(forwarder->epoll_fd, EPOLL_CTL_ADD, forwarder->timer_fd, &event) == 0;
}

static bool set_up_multi(struct tally_http_forwarder *forwarder)
{
    CURLM *multi = forwarder->multi = curl_multi_init();
    return multi != NULL &&
           curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, on_socket) == CURLM_OK &&
           curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, forwarder) == CURLM_OK &&
           curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, on_timer) == CURLM_OK &&
           curl_multi_setopt(multi, CURLMOPT_TIMERDATA, forwarder) == CURLM_OK;
}

static void fill_in_defaults(struct tally_http_forwarder_config *config)
{
    if (config->max_requests == 0) {
        config->max_requests = DEFAULT_MAX_REQUESTS;
    }
    if (config->max_held_bytes == 0) {
        config->max_held_bytes = DEFAULT_MAX_HELD_BYTES;
    }
    if (config->max_idle_connections == 0) {
        config->max_idle_connections = DEFAULT_MAX_IDLE_CONNECTIONS;
    }
    if (config->connect_timeout_ms == 0) {
        config->connect_timeout_ms = DEFAULT_CONNECT_TIMEOUT_MS;
    }
}

static void forwarder_fini(struct tally_http_forwarder *forwarder)
{
    curl_multi_cleanup(forwarder->multi);
    if (forwarder->epoll_fd >= 0) {
        close(forwarder->epoll_fd);
    }
    if (forwarder->timer_fd >= 0) {
        close(forwarder->timer_fd);
    }
    free(forwarder->watched);
    free(forwarder->tls_ca);
    free(forwarder);
}

enum tally_status tally_http_forwarder_new(const struct tally_http_forwarder_config *config,
                                           struct tally_http_forwarder **ret_forwarder,
                                           struct tally_error *err)
{
    tally_curl_init();
    struct tally_http_forwarder *forwarder = calloc(1, sizeof *forwarder);
    if (forwarder == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a forwarder");
    }
    forwarder->config = *config;
    fill_in_defaults(&forwarder->config);
    forwarder->epoll_fd = forwarder->timer_fd = -1;
    tally_list_init(&forwarder->running);
    tally_list_init(&forwarder->done);
    enum tally_status status = TALLY_OK;
    if (config->tls_ca != NULL) {
        status = tally_curl_check_ca(config->tls_ca, "peer-tls-ca", err);
        forwarder->tls_ca = strdup(config->tls_ca);
    }
    if (status == TALLY_OK &&
        ((config->tls_ca != NULL && forwarder->tls_ca == NULL) || !set_up_multi(forwarder))) {
        status = tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a forwarder");
    }
    if (status == TALLY_OK && !open_descriptors(forwarder)) {
        status = tally_fail(err, TALLY_UNAVAILABLE, NULL, "no file descriptor for a forwarder");
    }
    if (status != TALLY_OK) {
        forwarder_fini(forwarder);
        return status;
    }
    *ret_forwarder = forwarder;
    return TALLY_OK;
}

static void free_all(struct tally_http_forwarder *forwarder, struct tally_list *list)
{
    struct tally_http_forward *forward;
    while ((forward = first_of(list)) != NULL) {
        tally_list_remove(&forward->in_list);
        if (forward->easy != NULL) {
            curl_multi_remove_handle(forwarder->multi, forward->easy);
        }
        http_forward_free(forward);
    }
}

void tally_http_forwarder_free(struct tally_http_forwarder *forwarder)
{
    if (forwarder == NULL) {
        return;
    }
    free_all(forwarder, &forwarder->running);
    free_all(forwarder, &forwarder->done);
    forwarder_fini(forwarder);
}

static bool has_line_end(const char *text)
{
    return strpbrk(text, "\r\n") != NULL;
}

static enum tally_status check_request(const struct tally_http_forward_request *request,
                                       struct tally_error *err)
{
    bool ok = !has_line_end(request->target);
    for (size_t i = 0; i < TALLY_HTTP_FORWARD_MAX_HEADERS && request->headers[i].name != NULL;
         i++) {
        ok = ok && !has_line_end(request->headers[i].value);
    }
    return ok ? TALLY_OK
              : tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "a line end in a request's head");
}

/* Admits and counts the request, or refuses it. */
static enum tally_status admit(struct tally_http_forwarder *forwarder, size_t n_body,
                               struct tally_error *err)
{
    const struct tally_http_forwarder_config *config = &forwarder->config;
    if (forwarder->n_requests >= config->max_requests) {
        return tally_fail(err, TALLY_RESOURCE_EXHAUSTED, NULL,
                          "%zu requests are being forwarded, the limit is %zu",
                          forwarder->n_requests, config->max_requests);
    }
    if (forwarder->held_bytes + n_body > config->max_held_bytes) {
        return tally_fail(err, TALLY_RESOURCE_EXHAUSTED, NULL,
                          "a body of %zu bytes would pass the limit of %zu held bytes", n_body,
                          config->max_held_bytes);
    }
    return TALLY_OK;
}

enum tally_status tally_http_forward(struct tally_http_forwarder *forwarder,
                                     const struct tally_http_forward_request *request,
                                     struct tally_http_forward **ret_forward,
                                     struct tally_error *err)
{
    struct tally_buffer empty = {0};
    struct tally_buffer *body = request->body != NULL ? request->body : &empty;
    enum tally_status status = check_request(request, err);
    if (status == TALLY_OK) {
        status = admit(forwarder, body->capacity, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    struct tally_http_forward *forward = calloc(1, sizeof *forward);
    if (forward == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory to forward a request");
    }
    forwarder->n_requests++;
    forward->forwarder = forwarder;
    forward->result.user = request->user;
    forward->result.body.limit = forwarder->config.max_answer_bytes;
    forward->sent.size = body->size; /* Content-Length */
    if (!http_forward_set_up(forward, request, err)) {
        forward->sent.size = 0;
        http_forward_free(forward);
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory to forward a request");
    }
    forward->sent = *body;
    *body = (struct tally_buffer){.limit = body->limit};
    forwarder->held_bytes += forward->sent.capacity;
    start(forward);
    *ret_forward = forward;
    return TALLY_OK;
}

void tally_http_forward_abort(struct tally_http_forward *forward)
{
    if (forward->easy != NULL) {
        stop_running(forward);
    } else {
        tally_list_remove(&forward->in_list);
    }
    http_forward_free(forward);
}

bool tally_http_forward_take(struct tally_http_forwarder *forwarder,
                             struct tally_http_forward_result *ret_result)
{
    if (tally_list_is_empty(&forwarder->done)) {
        serve_events(forwarder);
    }
    struct tally_http_forward *forward = first_of(&forwarder->done);
    if (forward == NULL) {
        return false;
    }
    tally_list_remove(&forward->in_list);
    *ret_result = forward->result;
    forwarder->held_bytes -= forward->result.body.capacity;
    forward->result = (struct tally_http_forward_result){0};
    http_forward_free(forward);
    return true;
}

int tally_http_forwarder_fd(const struct tally_http_forwarder *forwarder)
{
    return forwarder->epoll_fd;
}

void tally_http_forward_result_fini(struct tally_http_forward_result *result)
{
    tally_buffer_fini(&result->body);
    free(result->text);
    result->text = NULL;
}
