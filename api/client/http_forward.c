/* One thread, one curl multi handle that tells through callbacks which sockets it waits for, and
 * one epoll set with those sockets and an eventfd of the owner's.
 *
 *   the owner                      the thread
 *   tally_http_forward     ->      waiting -> running
 *                                     running, ended by libcurl -> done
 *   tally_http_forward_take   <-   done
 *   tally_http_forward_abort  ->   running: taken out and freed
 *
 * A request is in one list at any time. While it is RUNNING only the thread touches it, but for
 * is_aborted; before and after only who holds the mutex. */
#include "api/client/http_forward.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "api/client/http_curl.h"

enum {
    DEFAULT_MAX_REQUESTS = 20000,
    DEFAULT_MAX_IDLE_CONNECTIONS = 256,
    DEFAULT_CONNECT_TIMEOUT_MS = 2000,
    /* Half of what our server gives a silent connection by default, so that a request seldom meets
     * one that is just being closed. */
    MAX_IDLE_S = 30,
    EVENTS_AT_ONCE = 256,
    MIN_HTTP_STATUS = 200,
    MAX_HTTP_STATUS = 599
};

static const size_t DEFAULT_MAX_HELD_BYTES = (size_t)512 << 20;

enum stage { WAITING, RUNNING, DONE };

struct tally_http_forward {
    struct tally_http_forwarder *forwarder;
    CURL *easy;               /* NULL once it has ended */
    struct curl_slist *lines; /* of the request's head */
    struct tally_buffer sent;
    size_t n_sent;             /* of it: what libcurl has already */
    enum tally_status refused; /* why no more of the answer is taken; OK = it is */
    bool has_whole_head;       /* the blank line has come */
    char curl_message[CURL_ERROR_SIZE];
    struct tally_http_forward_result result;
    /* Under the mutex. */
    enum stage stage;
    bool is_aborted;
    struct tally_http_forward *previous, *next;
    struct tally_http_forward *next_aborted;
};

struct list {
    struct tally_http_forward *first, *last;
};

struct tally_http_forwarder {
    struct tally_http_forwarder_config config;
    char *tls_ca;
    pthread_t thread;
    /* Of the thread alone. */
    CURLM *multi;
    int epoll_fd;
    int64_t timer_ms; /* when libcurl wants to be called without an event; -1 = never */
    struct list running;
    size_t n_running;
    bool *watched; /* by descriptor: libcurl waits for it */
    size_t n_watched;
    /* Of both. */
    int command_fd; /* eventfd: there is something in `waiting` or `aborted`, or it is to stop */
    atomic_size_t n_requests, held_bytes;
    pthread_mutex_t mutex; /* guards all below */
    struct list waiting, done;
    struct tally_http_forward *aborted; /* running ones */
    bool stopping;
};

/* ---- Lists ---- */

static void append(struct list *list, struct tally_http_forward *forward)
{
    forward->next = NULL;
    forward->previous = list->last;
    *(list->last != NULL ? &list->last->next : &list->first) = forward;
    list->last = forward;
}

static void unlink_from(struct list *list, struct tally_http_forward *forward)
{
    *(forward->previous != NULL ? &forward->previous->next : &list->first) = forward->next;
    *(forward->next != NULL ? &forward->next->previous : &list->last) = forward->previous;
}

static struct tally_http_forward *pop(struct list *list)
{
    struct tally_http_forward *forward = list->first;
    if (forward != NULL) {
        unlink_from(list, forward);
    }
    return forward;
}

static void wake(int fd)
{
    const uint64_t one = 1;
    ssize_t n = write(fd, &one, sizeof one);
    (void)n; /* fails only when the counter is full, and then it is readable already */
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- One request ---- */

static void drop_body(struct tally_http_forwarder *forwarder, struct tally_buffer *body)
{
    atomic_fetch_sub(&forwarder->held_bytes, body->capacity);
    tally_buffer_fini(body);
}

/* It is in no list, and its easy handle in no multi handle. */
static void forward_free(struct tally_http_forward *forward)
{
    struct tally_http_forwarder *forwarder = forward->forwarder;
    curl_easy_cleanup(forward->easy);
    curl_slist_free_all(forward->lines);
    drop_body(forwarder, &forward->sent);
    drop_body(forwarder, &forward->result.body);
    free(forward->result.text);
    free(forward);
    atomic_fetch_sub(&forwarder->n_requests, 1);
}

/* Not repeatable: without a function that seeks, libcurl cannot send a body a second time. */
static size_t on_send(char *into, size_t size, size_t n, void *context)
{
    struct tally_http_forward *forward = context;
    const size_t n_left = forward->sent.size - forward->n_sent;
    const size_t n_now = size * n < n_left ? size * n : n_left;
    if (n_now > 0) {
        memcpy(into, forward->sent.data + forward->n_sent, n_now);
        forward->n_sent += n_now;
    }
    return n_now;
}

static size_t on_body(char *data, size_t size, size_t n, void *context)
{
    struct tally_http_forward *forward = context;
    struct tally_http_forwarder *forwarder = forward->forwarder;
    struct tally_buffer *body = &forward->result.body;
    const size_t before = body->capacity;
    if (atomic_load(&forwarder->held_bytes) + size * n > forwarder->config.max_held_bytes) {
        forward->refused = TALLY_RESOURCE_EXHAUSTED;
    } else {
        forward->refused = tally_buffer_append(body, data, size * n);
    }
    atomic_fetch_add(&forwarder->held_bytes, body->capacity - before);
    return forward->refused == TALLY_OK ? size * n : 0;
}

/* Called for each complete line. libcurl takes a head that the peer's close has cut for a whole
 * one. */
static size_t on_head_line(char *line, size_t size, size_t n, void *context)
{
    struct tally_http_forward *forward = context;
    forward->has_whole_head = size * n > 0 && (line[0] == '\r' || line[0] == '\n');
    return size * n;
}

static bool add_text(struct tally_http_forward *forward, const char *line)
{
    struct curl_slist *longer = curl_slist_append(forward->lines, line);
    forward->lines = longer != NULL ? longer : forward->lines;
    return longer != NULL;
}

static bool add_header(struct tally_http_forward *forward,
                       const struct tally_http_forward_header *header)
{
    char *line = NULL;
    const bool is_empty = header->value[0] == '\0'; /* "Name:" would ask libcurl to leave it out */
    if (asprintf(&line, is_empty ? "%s;" : "%s: %s", header->name, header->value) < 0) {
        return false;
    }
    const bool ok = add_text(forward, line);
    free(line);
    return ok;
}

/* The headers of the request, and none that libcurl would add by itself. */
static bool add_headers(struct tally_http_forward *forward,
                        const struct tally_http_forward_request *request)
{
    bool ok = add_text(forward, "Expect:");
    bool has_type = false, has_accept = false;
    for (size_t i = 0; ok && i < TALLY_HTTP_FORWARD_MAX_HEADERS && request->headers[i].name != NULL;
         i++) {
        ok = add_header(forward, &request->headers[i]);
        has_type |= strcasecmp(request->headers[i].name, "Content-Type") == 0;
        has_accept |= strcasecmp(request->headers[i].name, "Accept") == 0;
    }
    ok = ok && (has_type || add_text(forward, "Content-Type:"));
    return ok && (has_accept || add_text(forward, "Accept:"));
}

static bool set_method(struct tally_http_forward *forward, const char *method)
{
    CURL *easy = forward->easy;
    if (strcmp(method, "GET") == 0) {
        return curl_easy_setopt(easy, CURLOPT_HTTPGET, 1L) == CURLE_OK;
    }
    return curl_easy_setopt(easy, CURLOPT_POST, 1L) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, method) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)forward->sent.size) ==
               CURLE_OK;
}

static bool set_url(CURL *easy, const struct tally_http_forward_request *request)
{
    char *url = NULL;
    size_t n_base = strlen(request->base_url);
    while (n_base > 0 && request->base_url[n_base - 1] == '/') {
        n_base--;
    }
    if (asprintf(&url, "%.*s%s", (int)n_base, request->base_url, request->target) < 0) {
        return false;
    }
    const bool ok = curl_easy_setopt(easy, CURLOPT_URL, url) == CURLE_OK; /* copies it */
    free(url);
    return ok;
}

static bool set_up(struct tally_http_forward *forward,
                   const struct tally_http_forward_request *request, struct tally_error *err)
{
    const struct tally_http_forwarder *forwarder = forward->forwarder;
    CURL *easy = forward->easy = curl_easy_init();
    if (easy == NULL || !add_headers(forward, request) || !set_url(easy, request)) {
        return false;
    }
    curl_easy_setopt(easy, CURLOPT_PRIVATE, forward);
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);    /* who is aborted may be looking up a name */
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L); /* a long poll may be silent for long */
    curl_easy_setopt(easy, CURLOPT_DNS_CACHE_TIMEOUT, 0L); /* a peer may come back elsewhere */
    curl_easy_setopt(easy, CURLOPT_MAXAGE_CONN, (long)MAX_IDLE_S);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, forwarder->config.connect_timeout_ms);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, request->timeout_ms);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, forward->curl_message);
    curl_easy_setopt(easy, CURLOPT_READFUNCTION, on_send);
    curl_easy_setopt(easy, CURLOPT_READDATA, forward);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, forward);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_head_line);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, forward);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, forward->lines);
    return curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_PROXY, "") == CURLE_OK &&
           set_method(forward, request->method) &&
           tally_curl_set_tls(easy, forwarder->tls_ca, err) == TALLY_OK;
}

/* ---- The answer ---- */

/* Those that belong to one connection (RFC 9110, 7.6.1), or that whoever passes the answer on makes
 * itself. */
static bool is_passed_on(const char *name)
{
    static const char *const NAMES[] = {"Connection", "Content-Length", "Content-Type",
                                        "Date",       "Keep-Alive",     "Proxy-Authenticate",
                                        "TE",         "Trailer",        "Transfer-Encoding",
                                        "Upgrade"};
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        if (strcasecmp(NAMES[i], name) == 0) {
            return false;
        }
    }
    return true;
}

static const char *copy_text(char **at, const char *text)
{
    const size_t n = strlen(text) + 1;
    char *copy = memcpy(*at, text, n);
    *at += n;
    return copy;
}

/* Copies the head out of libcurl's memory. */
static enum tally_status read_head(CURL *easy, struct tally_http_forward_result *result)
{
    struct tally_http_forward_header headers[TALLY_HTTP_FORWARD_MAX_HEADERS - 1];
    size_t n = 0;
    const char *type = NULL;
    long status = 0;
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(easy, CURLINFO_CONTENT_TYPE, &type);
    size_t n_text = type != NULL ? strlen(type) + 1 : 1;
    struct curl_header *header = NULL;
    while ((header = curl_easy_nextheader(easy, CURLH_HEADER, -1, header)) != NULL) {
        if (n < TALLY_HTTP_FORWARD_MAX_HEADERS - 1 && is_passed_on(header->name)) {
            /* The struct is libcurl's one for all, the texts stay. */
            headers[n++] = (struct tally_http_forward_header){header->name, header->value};
            n_text += strlen(header->name) + strlen(header->value) + 2;
        }
    }
    char *at = result->text = malloc(n_text);
    if (at == NULL) {
        return TALLY_NO_MEMORY;
    }
    result->http_status = (int)status;
    result->content_type = type != NULL ? copy_text(&at, type) : NULL;
    for (size_t i = 0; i < n; i++) {
        result->headers[i].name = copy_text(&at, headers[i].name);
        result->headers[i].value = copy_text(&at, headers[i].value);
    }
    return TALLY_OK;
}

static const char *reason_of(const struct tally_http_forward *forward, CURLcode code)
{
    return forward->refused == TALLY_TOO_LARGE            ? "the answer is too large"
           : forward->refused == TALLY_RESOURCE_EXHAUSTED ? "too many answers are held"
           : forward->curl_message[0] != '\0'             ? forward->curl_message
                                                          : curl_easy_strerror(code);
}

/* What a transfer that libcurl has ended came to. */
static void read_result(struct tally_http_forward *forward, CURLcode code)
{
    struct tally_http_forward_result *result = &forward->result;
    const char *url = "";
    curl_easy_getinfo(forward->easy, CURLINFO_EFFECTIVE_URL, &url);
    if (code == CURLE_OK && !forward->has_whole_head) {
        code = CURLE_GOT_NOTHING;
    }
    if (code != CURLE_OK) {
        const enum tally_status status = forward->refused != TALLY_OK
                                             ? forward->refused
                                             : tally_curl_status(forward->easy, code);
        tally_fail(&result->err, status, NULL, "%.128s: %s", url, reason_of(forward, code));
    } else if (read_head(forward->easy, result) != TALLY_OK) {
        tally_fail(&result->err, TALLY_NO_MEMORY, NULL, "no memory for an answer");
    } else if (result->http_status < MIN_HTTP_STATUS || result->http_status > MAX_HTTP_STATUS) {
        tally_fail(&result->err, TALLY_UNAVAILABLE, NULL, "%.128s: an answer of status %d", url,
                   result->http_status);
    }
    if (result->err.status != TALLY_OK) {
        drop_body(forward->forwarder, &result->body);
    }
}

/* ---- The thread ---- */

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

/* A socket that libcurl does not wait for any more stays in the set until something happens to it,
 * serve_event(): libcurl 7.88 tells of some when it has closed them already, and by then the number
 * may be that of somebody else's file. */
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
    struct tally_http_forwarder *forwarder = context;
    forwarder->timer_ms = timeout_ms < 0 ? -1 : now_ms() + timeout_ms;
    return 0;
}

/* libcurl counts busy and idle connections together, and looks when one of the busy becomes idle,
 * which is the last of them to be `running`. */
static void bound_idle(struct tally_http_forwarder *forwarder)
{
    if (forwarder->n_running > 0) {
        curl_multi_setopt(
            forwarder->multi, CURLMOPT_MAXCONNECTS,
            (long)(forwarder->n_running - 1 + forwarder->config.max_idle_connections));
    }
}

/* Takes it out of libcurl's hands; its connection is kept if it ended well, else closed. */
static void stop_running(struct tally_http_forward *forward)
{
    struct tally_http_forwarder *forwarder = forward->forwarder;
    unlink_from(&forwarder->running, forward);
    forwarder->n_running--;
    curl_multi_remove_handle(forwarder->multi, forward->easy);
    bound_idle(forwarder);
}

static void end(struct tally_http_forward *forward, CURLcode code)
{
    struct tally_http_forwarder *forwarder = forward->forwarder;
    read_result(forward, code);
    stop_running(forward);
    curl_easy_cleanup(forward->easy);
    forward->easy = NULL;
    drop_body(forwarder, &forward->sent);
    pthread_mutex_lock(&forwarder->mutex);
    const bool is_wanted = !forward->is_aborted; /* else obey() frees it */
    if (is_wanted) {
        forward->stage = DONE;
        append(&forwarder->done, forward);
    }
    pthread_mutex_unlock(&forwarder->mutex);
    if (is_wanted) {
        wake(forwarder->config.wake_fd);
    }
}

static void start(struct tally_http_forward *forward)
{
    struct tally_http_forwarder *forwarder = forward->forwarder;
    append(&forwarder->running, forward);
    forwarder->n_running++;
    bound_idle(forwarder);
    if (curl_multi_add_handle(forwarder->multi, forward->easy) != CURLM_OK) {
        end(forward, CURLE_OUT_OF_MEMORY);
    }
}

/* Does what the owner has asked for. False if that is to stop. */
static bool obey(struct tally_http_forwarder *forwarder)
{
    pthread_mutex_lock(&forwarder->mutex);
    const bool goes_on = !forwarder->stopping;
    struct tally_http_forward *aborted = forwarder->aborted;
    struct tally_http_forward *started = forwarder->waiting.first;
    for (struct tally_http_forward *forward = started; forward != NULL; forward = forward->next) {
        forward->stage = RUNNING;
    }
    forwarder->aborted = NULL;
    forwarder->waiting = (struct list){NULL, NULL};
    pthread_mutex_unlock(&forwarder->mutex);
    while (aborted != NULL) {
        struct tally_http_forward *next = aborted->next_aborted;
        if (aborted->easy != NULL) { /* it has not ended meanwhile */
            stop_running(aborted);
        }
        forward_free(aborted);
        aborted = next;
    }
    while (started != NULL) {
        struct tally_http_forward *next = started->next;
        start(started);
        started = next;
    }
    return goes_on;
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

static int wait_of(const struct tally_http_forwarder *forwarder)
{
    if (forwarder->timer_ms < 0) {
        return -1;
    }
    const int64_t wait_ms = forwarder->timer_ms - now_ms();
    return wait_ms < 0 ? 0 : wait_ms < INT_MAX ? (int)wait_ms : INT_MAX;
}

static void serve_event(struct tally_http_forwarder *forwarder, const struct epoll_event *event)
{
    int running;
    int mask = (event->events & EPOLLIN ? CURL_CSELECT_IN : 0) |
               (event->events & EPOLLOUT ? CURL_CSELECT_OUT : 0);
    if (event->data.fd == forwarder->command_fd) {
        uint64_t count;
        ssize_t n = read(forwarder->command_fd, &count, sizeof count);
        (void)n; /* what it is for stands in the lists */
        return;
    }
    if (!forwarder->watched[event->data.fd]) {
        struct epoll_event unused;
        (void)epoll_ctl(forwarder->epoll_fd, EPOLL_CTL_DEL, event->data.fd, &unused);
        return;
    }
    if (event->events & (EPOLLERR | EPOLLHUP)) {
        mask = 0; /* libcurl looks itself: an answer may have come before the end */
    }
    curl_multi_socket_action(forwarder->multi, event->data.fd, mask, &running);
    take_ended(forwarder); /* one by one, for bound_idle() */
}

static void *run(void *context)
{
    struct tally_http_forwarder *forwarder = context;
    struct epoll_event events[EVENTS_AT_ONCE];
    while (obey(forwarder)) {
        const int n = epoll_wait(forwarder->epoll_fd, events, EVENTS_AT_ONCE, wait_of(forwarder));
        for (int i = 0; i < n; i++) {
            serve_event(forwarder, &events[i]);
        }
        if (forwarder->timer_ms >= 0 && now_ms() >= forwarder->timer_ms) {
            int running;
            forwarder->timer_ms = -1; /* libcurl sets it anew */
            curl_multi_socket_action(forwarder->multi, CURL_SOCKET_TIMEOUT, 0, &running);
            take_ended(forwarder);
        }
    }
    return NULL;
}

/* ---- The owner's side ---- */

/* Signals are the process's business, not this thread's; SIGPIPE least of all. */
static int start_thread(struct tally_http_forwarder *forwarder)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int result = pthread_create(&forwarder->thread, NULL, run, forwarder);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return result;
}

static bool watch_commands(struct tally_http_forwarder *forwarder)
{
    forwarder->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    forwarder->command_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = forwarder->command_fd};
    return forwarder->epoll_fd >= 0 && forwarder->command_fd >= 0 &&
           epoll_ctl(forwarder->epoll_fd, EPOLL_CTL_ADD, forwarder->command_fd, &event) == 0;
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

/* All but the thread, which does not run. */
static void forwarder_fini(struct tally_http_forwarder *forwarder)
{
    curl_multi_cleanup(forwarder->multi);
    if (forwarder->epoll_fd >= 0) {
        close(forwarder->epoll_fd);
    }
    if (forwarder->command_fd >= 0) {
        close(forwarder->command_fd);
    }
    pthread_mutex_destroy(&forwarder->mutex);
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
    forwarder->epoll_fd = forwarder->command_fd = -1;
    forwarder->timer_ms = -1;
    pthread_mutex_init(&forwarder->mutex, NULL);
    enum tally_status status = TALLY_OK;
    if (config->tls_ca != NULL) {
        status = tally_curl_check_ca(config->tls_ca, "peer-tls-ca", err);
        forwarder->tls_ca = strdup(config->tls_ca);
    }
    if (status == TALLY_OK &&
        ((config->tls_ca != NULL && forwarder->tls_ca == NULL) || !set_up_multi(forwarder))) {
        status = tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a forwarder");
    }
    if (status == TALLY_OK && !watch_commands(forwarder)) {
        status = tally_fail(err, TALLY_UNAVAILABLE, NULL, "no file descriptor for a forwarder");
    }
    if (status == TALLY_OK && start_thread(forwarder) != 0) {
        status = tally_fail(err, TALLY_UNAVAILABLE, NULL, "cannot start the forwarder's thread");
    }
    if (status != TALLY_OK) {
        forwarder_fini(forwarder);
        return status;
    }
    *ret_forwarder = forwarder;
    return TALLY_OK;
}

static void free_all(struct tally_http_forwarder *forwarder, struct tally_http_forward *forward)
{
    while (forward != NULL) {
        struct tally_http_forward *next = forward->next;
        if (forward->easy != NULL) {
            curl_multi_remove_handle(forwarder->multi, forward->easy);
        }
        forward_free(forward);
        forward = next;
    }
}

void tally_http_forwarder_free(struct tally_http_forwarder *forwarder)
{
    if (forwarder == NULL) {
        return;
    }
    pthread_mutex_lock(&forwarder->mutex);
    forwarder->stopping = true;
    pthread_mutex_unlock(&forwarder->mutex);
    wake(forwarder->command_fd);
    pthread_join(forwarder->thread, NULL);
    /* The thread's last act was to obey: what waited is running, what was aborted is gone. */
    free_all(forwarder, forwarder->running.first);
    free_all(forwarder, forwarder->done.first);
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

/* Counts the request in, or refuses it. */
static enum tally_status admit(struct tally_http_forwarder *forwarder, size_t n_body,
                               struct tally_error *err)
{
    const struct tally_http_forwarder_config *config = &forwarder->config;
    if (atomic_load(&forwarder->n_requests) >= config->max_requests) {
        return tally_fail(err, TALLY_RESOURCE_EXHAUSTED, NULL,
                          "%zu requests are being forwarded, the limit is %zu",
                          atomic_load(&forwarder->n_requests), config->max_requests);
    }
    if (atomic_load(&forwarder->held_bytes) + n_body > config->max_held_bytes) {
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
    atomic_fetch_add(&forwarder->n_requests, 1);
    forward->forwarder = forwarder;
    forward->result.user = request->user;
    forward->result.body.limit = forwarder->config.max_answer_bytes;
    forward->sent.size = body->size; /* its length goes into the head */
    if (!set_up(forward, request, err)) {
        forward->sent.size = 0;
        forward_free(forward);
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory to forward a request");
    }
    forward->sent = *body;
    *body = (struct tally_buffer){.limit = body->limit};
    atomic_fetch_add(&forwarder->held_bytes, forward->sent.capacity);
    pthread_mutex_lock(&forwarder->mutex);
    append(&forwarder->waiting, forward);
    pthread_mutex_unlock(&forwarder->mutex);
    wake(forwarder->command_fd);
    *ret_forward = forward;
    return TALLY_OK;
}

void tally_http_forward_abort(struct tally_http_forwarder *forwarder,
                              struct tally_http_forward *forward)
{
    pthread_mutex_lock(&forwarder->mutex);
    const enum stage stage = forward->stage;
    switch (stage) {
    case WAITING:
        unlink_from(&forwarder->waiting, forward);
        break;
    case RUNNING:
        forward->is_aborted = true;
        forward->next_aborted = forwarder->aborted;
        forwarder->aborted = forward;
        break;
    case DONE:
        unlink_from(&forwarder->done, forward);
        break;
    }
    pthread_mutex_unlock(&forwarder->mutex);
    if (stage == RUNNING) {
        wake(forwarder->command_fd);
    } else {
        forward_free(forward);
    }
}

bool tally_http_forward_take(struct tally_http_forwarder *forwarder,
                             struct tally_http_forward_result *ret_result)
{
    pthread_mutex_lock(&forwarder->mutex);
    struct tally_http_forward *forward = pop(&forwarder->done);
    pthread_mutex_unlock(&forwarder->mutex);
    if (forward == NULL) {
        return false;
    }
    *ret_result = forward->result;
    atomic_fetch_sub(&forwarder->held_bytes, forward->result.body.capacity);
    forward->result = (struct tally_http_forward_result){0};
    forward_free(forward);
    return true;
}

void tally_http_forward_result_fini(struct tally_http_forward_result *result)
{
    tally_buffer_fini(&result->body);
    free(result->text);
    result->text = NULL;
}
