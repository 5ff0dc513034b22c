/* One curl easy handle in one curl multi handle. The multi handle keeps the connection alive
 * between exchanges, and its poll returns often enough to check `cancel`.
 *
 * Wire bytes are counted where libcurl shows what it sends and receives (CURLOPT_DEBUGFUNCTION):
 * request and response heads and bodies as they are on the wire, without TLS.
 *
 * Proxies from the environment (http_proxy, https_proxy, no_proxy) are used, except for a
 * coordinator on the loopback interface, where a proxy makes no sense. */
#include "api/client/http_client.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* For counters that struct tcp_info of netinet/tcp.h lacks. */
#include <linux/in.h>
#include <linux/sockios.h>
#include <linux/tcp.h>

#include "api/client/http_curl.h"
#include "api/client/http_foreign.h"
#include "api/json/problem.h"
#include "codec/monotonic.h"

enum {
    DEFAULT_CONNECT_TIMEOUT_MS = 5000,
    DEFAULT_TIMEOUT_MS = 30000,
    CANCEL_CHECK_MS = 100, /* half of the time that the header promises */
    LOOK_MS = 100,         /* between two looks at what the kernel has moved */
    PROGRESS_MS = 1000,
    /* A NAT may forget a connection that is idle for 30 s, and a long poll is silent for as long.
     */
    KEEP_ALIVE_S = 10,
    MAX_SOCKETS = 4 /* of which one is connected; several addresses may be tried at once */
};

struct tally_http_client {
    CURLM *multi;
    CURL *easy;
    char *base_url;      /* without trailing slash */
    char *authorization; /* "Authorization: Bearer ..."; NULL = none. Never in a message. */
    bool is_loopback;
    const volatile sig_atomic_t *cancel;
    bool is_terse;
    long silence_ms; /* 0 = no separate limit */
    void (*on_progress)(void *context, const struct tally_http_progress *progress);
    void *context;
    int sockets[MAX_SOCKETS]; /* -1 = none */
    uint64_t out_bytes, in_bytes;
    char curl_message[CURL_ERROR_SIZE];
};

/* What one exchange collects. */
struct transfer {
    CURL *easy;
    const char *method;
    bool has_others; /* other servers share this address */
    /* Monotonic times: when bytes were last received or sent; of the last look; of the last call of
     * on_progress. */
    int64_t begun_ms, heard_ms, looked_ms, told_ms;
    int64_t told_heard_ms; /* heard_ms at that call */
    uint64_t moved_bytes;  /* by the kernel, at the last look; 0 = no look yet */
    long limit_ms;         /* without a byte */
    size_t n_body;
    struct tally_buffer *out;
    enum tally_status append_status;
    bool has_whole_head; /* the blank line has been received */
    bool has_proxy;      /* the request goes to a proxy */
    uint64_t out_bytes, in_bytes, body_out_bytes;
};

/* ---- libcurl's callbacks ---- */

static int on_socket(void *context, curl_socket_t fd, curlsocktype purpose)
{
    struct tally_http_client *client = context;
    for (int i = 0; purpose == CURLSOCKTYPE_IPCXN && i < MAX_SOCKETS; i++) {
        if (client->sockets[i] < 0) {
            client->sockets[i] = fd;
            break;
        }
    }
    return CURL_SOCKOPT_OK;
}

static int on_close(void *context, curl_socket_t fd)
{
    struct tally_http_client *client = context;
    for (int i = 0; i < MAX_SOCKETS; i++) {
        if (client->sockets[i] == fd) {
            client->sockets[i] = -1;
        }
    }
    return close(fd);
}

static size_t on_body(char *data, size_t size, size_t n, void *context)
{
    struct transfer *transfer = context;
    transfer->append_status = tally_buffer_append(transfer->out, data, size * n);
    return transfer->append_status == TALLY_OK ? size * n : 0;
}

/* Called for each complete line. libcurl does not notice if the peer closes the connection within
 * the header section. */
static size_t on_head_line(char *line, size_t size, size_t n, void *context)
{
    struct transfer *transfer = context;
    transfer->has_whole_head = size * n > 0 && (line[0] == '\r' || line[0] == '\n');
    if (transfer->has_whole_head && transfer->has_others) {
        long status = 0;
        curl_easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE, &status);
        curl_easy_setopt(transfer->easy, CURLOPT_FORBID_REUSE,
                         status >= 502 && status <= 504 ? 1L : 0L);
    }
    return size * n;
}

/* libcurl sends a request again if a kept connection turns out to be dead. Then the first copy was
 * lost, and counting starts again with the request line. */
static bool starts_request(const struct transfer *transfer, const char *data, size_t n)
{
    size_t n_method = strlen(transfer->method);
    return n > n_method && memcmp(data, transfer->method, n_method) == 0 && data[n_method] == ' ';
}

/* A request to a proxy names the whole URL, or it is a CONNECT. */
static bool is_for_proxy(const char *data, size_t n)
{
    static const char CONNECT[] = "CONNECT ";
    const char *target = memchr(data, ' ', n);
    return (n >= sizeof CONNECT - 1 && memcmp(data, CONNECT, sizeof CONNECT - 1) == 0) ||
           (target != NULL && target + 1 < data + n && target[1] != '/');
}

/* libcurl says which variable it takes the proxy from. A proxy that cannot be reached gets no
 * request, and CURLINFO_USED_PROXY is newer than the oldest libcurl that Tally supports. */
static bool names_proxy(const char *text, size_t n)
{
    static const char USES[] = "Uses proxy env variable ";
    const size_t n_uses = sizeof USES - 1;
    return n > n_uses + 3 && memcmp(text, USES, n_uses) == 0 &&
           strncasecmp(text + n_uses, "no_", 3) != 0;
}

static int on_debug(CURL *easy, curl_infotype type, char *data, size_t n, void *context)
{
    (void)easy;
    struct transfer *transfer = context;
    if (type == CURLINFO_TEXT) {
        transfer->has_proxy = transfer->has_proxy || names_proxy(data, n);
    } else {
        transfer->heard_ms = tally_monotonic_ms();
    }
    if (type == CURLINFO_HEADER_OUT) {
        transfer->has_proxy = transfer->has_proxy || is_for_proxy(data, n);
    }
    if (type == CURLINFO_HEADER_OUT && starts_request(transfer, data, n)) {
        transfer->out_bytes = 0;
        transfer->in_bytes = 0;
        transfer->body_out_bytes = 0;
    }
    transfer->body_out_bytes += type == CURLINFO_DATA_OUT ? n : 0;
    if (type == CURLINFO_HEADER_OUT || type == CURLINFO_DATA_OUT) {
        transfer->out_bytes += n;
    } else if (type == CURLINFO_HEADER_IN || type == CURLINFO_DATA_IN) {
        transfer->in_bytes += n;
    }
    return 0;
}

/* ---- The client ---- */

/* A copy of one part of the URL, or NULL. */
static char *url_part(CURLU *url, CURLUPart part)
{
    char *value = NULL;
    return curl_url_get(url, part, &value, 0) == CURLUE_OK ? value : NULL;
}

static bool is_loopback_host(const char *host)
{
    size_t n = strlen(host);
    const char *suffix = ".localhost";
    size_t n_suffix = strlen(suffix);
    return strcasecmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 ||
           strcmp(host, "[::1]") == 0 ||
           (n > n_suffix && strcasecmp(host + n - n_suffix, suffix) == 0);
}

/* "localhost:8080" stands for http://localhost:8080. NULL: no memory. */
static char *complete_url(const char *base_url)
{
    char *url;
    const bool has_scheme = base_url == NULL || strstr(base_url, "://") != NULL;
    return asprintf(&url, "%s%s", has_scheme ? "" : "http://", base_url != NULL ? base_url : "") < 0
               ? NULL
               : url;
}

/* Takes a complete URL. The message never shows it, because it may contain a password. */
static enum tally_status read_base_url(struct tally_http_client *client, char *base_url,
                                       struct tally_error *err)
{
    client->base_url = base_url;
    CURLU *url = curl_url();
    if (url == NULL || base_url == NULL) {
        curl_url_cleanup(url);
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for an HTTP client");
    }
    bool ok = curl_url_set(url, CURLUPART_URL, base_url, 0) == CURLUE_OK;
    char *scheme = url_part(url, CURLUPART_SCHEME);
    char *host = url_part(url, CURLUPART_HOST);
    char *user = url_part(url, CURLUPART_USER);
    char *query = url_part(url, CURLUPART_QUERY);
    char *fragment = url_part(url, CURLUPART_FRAGMENT);
    ok = ok && scheme != NULL && host != NULL &&
         (strcmp(scheme, "http") == 0 || strcmp(scheme, "https") == 0) && user == NULL &&
         query == NULL && fragment == NULL;
    client->is_loopback = ok && is_loopback_host(host);
    curl_free(scheme);
    curl_free(host);
    curl_free(user);
    curl_free(query);
    curl_free(fragment);
    curl_url_cleanup(url);
    if (!ok) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "coordinator",
                          "coordinator is not http://HOST:PORT or https://HOST:PORT, without user, "
                          "query and fragment");
    }
    for (size_t n = strlen(base_url); n > 0 && client->base_url[n - 1] == '/'; n--) {
        client->base_url[n - 1] = '\0';
    }
    return TALLY_OK;
}

static enum tally_status read_token(struct tally_http_client *client, const char *token,
                                    struct tally_error *err)
{
    if (token == NULL) {
        return TALLY_OK;
    }
    for (const char *p = token; *p != '\0'; p++) {
        if (*p <= ' ' || *p > '~') {
            return tally_fail(err, TALLY_INVALID_ARGUMENT, "token",
                              "token contains a character other than visible ASCII");
        }
    }
    if (asprintf(&client->authorization, "Authorization: Bearer %s", token) < 0) {
        client->authorization = NULL;
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for an HTTP client");
    }
    return TALLY_OK;
}

/* Options that all exchanges share. */
static enum tally_status set_up_curl(struct tally_http_client *client,
                                     const struct tally_http_client_config *config,
                                     struct tally_error *err)
{
    client->multi = curl_multi_init();
    client->easy = curl_easy_init();
    if (client->multi == NULL || client->easy == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for an HTTP client");
    }
    CURL *easy = client->easy;
    long connect_timeout_ms = config->connect_timeout_ms != 0 ? config->connect_timeout_ms
                                                              : (long)DEFAULT_CONNECT_TIMEOUT_MS;
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L); /* a long poll may be silent for minutes */
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, (long)KEEP_ALIVE_S);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPINTVL, (long)KEEP_ALIVE_S);
    curl_easy_setopt(easy, CURLOPT_SOCKOPTFUNCTION, on_socket);
    curl_easy_setopt(easy, CURLOPT_SOCKOPTDATA, client);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, on_close);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, client);
    /* Connections are kept alive, so names are seldom looked up. But after a broken connection the
     * server may be back at another address, as containers are. With its cache, libcurl would try
     * the old address for a minute. */
    curl_easy_setopt(easy, CURLOPT_DNS_CACHE_TIMEOUT, 0L);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, connect_timeout_ms);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, client->curl_message);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_head_line);
    curl_easy_setopt(easy, CURLOPT_DEBUGFUNCTION, on_debug);
    curl_easy_setopt(easy, CURLOPT_VERBOSE, 1L); /* otherwise on_debug is not called */
    bool ok = curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK;
    ok = ok &&
         curl_easy_setopt(easy, CURLOPT_USERAGENT,
                          config->user_agent != NULL ? config->user_agent : "tally") == CURLE_OK;
    if (client->is_loopback) {
        ok = ok && curl_easy_setopt(easy, CURLOPT_PROXY, "") == CURLE_OK;
    }
    if (!ok) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for an HTTP client");
    }
    enum tally_status status = tally_curl_set_tls(easy, config->tls_ca, err);
    if (status == TALLY_OK && config->any_host && config->tls_ca != NULL) {
        (void)curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);
    }
    return status;
}

enum tally_status tally_http_client_new(const struct tally_http_client_config *config,
                                        struct tally_http_client **ret_client,
                                        struct tally_error *err)
{
    tally_curl_init();
    struct tally_http_client *client = calloc(1, sizeof *client);
    if (client == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for an HTTP client");
    }
    client->cancel = config->cancel;
    client->is_terse = config->is_terse;
    client->on_progress = config->on_progress;
    client->context = config->context;
    for (int i = 0; i < MAX_SOCKETS; i++) {
        client->sockets[i] = -1;
    }
    enum tally_status status = read_base_url(client, complete_url(config->base_url), err);
    if (status == TALLY_OK) {
        status = read_token(client, config->bearer_token, err);
    }
    if (status == TALLY_OK && config->tls_ca != NULL) {
        status = tally_curl_check_ca(config->tls_ca, "tls-ca", err);
    }
    if (status == TALLY_OK) {
        status = set_up_curl(client, config, err);
    }
    if (status != TALLY_OK) {
        tally_http_client_free(client);
        return status;
    }
    *ret_client = client;
    return TALLY_OK;
}

void tally_http_client_free(struct tally_http_client *client)
{
    if (client == NULL) {
        return;
    }
    curl_easy_cleanup(client->easy);
    curl_multi_cleanup(client->multi);
    free(client->base_url);
    free(client->authorization);
    free(client);
}

void tally_http_client_set_silence(struct tally_http_client *client, long silence_ms)
{
    client->silence_ms = silence_ms;
}

void tally_http_client_wire_bytes(const struct tally_http_client *client, uint64_t *ret_out,
                                  uint64_t *ret_in)
{
    *ret_out = client->out_bytes;
    *ret_in = client->in_bytes;
}

/* ---- An exchange ---- */

/* Appends "name: value" (or `name` alone if it is a whole line). */
static bool add_line(struct curl_slist **lines, const char *name, const char *value)
{
    char line[512];
    int n = snprintf(line, sizeof line, "%s%s%s", name, value != NULL ? ": " : "",
                     value != NULL ? value : "");
    if (n < 0 || (size_t)n >= sizeof line) {
        return false;
    }
    struct curl_slist *longer = curl_slist_append(*lines, line);
    if (longer == NULL) {
        return false;
    }
    *lines = longer;
    return true;
}

/* A line "Name:" without a value tells libcurl to omit a header that it would add by itself. */
static bool add_request_headers(const struct tally_http_client *client,
                                const struct tally_http_exchange *exchange,
                                struct curl_slist **lines)
{
    const char *type = exchange->content_type, *accept = exchange->accept;
    bool ok = add_line(lines, "Expect:", NULL) &&
              add_line(lines, type != NULL ? "Content-Type" : "Content-Type:", type) &&
              add_line(lines, accept != NULL ? "Accept" : "Accept:", accept) &&
              (exchange->extra_header == NULL || add_line(lines, exchange->extra_header, NULL));
    if (ok && client->authorization != NULL) { /* it may be longer than add_line() accepts */
        struct curl_slist *longer = curl_slist_append(*lines, client->authorization);
        *lines = longer != NULL ? longer : *lines;
        ok = longer != NULL;
    }
    return ok;
}

static bool set_method(CURL *easy, const struct tally_http_exchange *exchange)
{
    bool is_get = strcmp(exchange->method, "GET") == 0;
    bool is_head = strcmp(exchange->method, "HEAD") == 0;
    bool ok = curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, NULL) == CURLE_OK &&
              curl_easy_setopt(easy, CURLOPT_HTTPGET, 1L) == CURLE_OK;
    if (is_head) {
        return ok && curl_easy_setopt(easy, CURLOPT_NOBODY, 1L) == CURLE_OK;
    }
    if (is_get) {
        return ok;
    }
    const void *body = exchange->n_body > 0 ? (const void *)exchange->body : "";
    ok = ok && curl_easy_setopt(easy, CURLOPT_POST, 1L) == CURLE_OK &&
         curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body) == CURLE_OK &&
         curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)exchange->n_body) ==
             CURLE_OK;
    if (strcmp(exchange->method, "POST") != 0) {
        ok = ok && curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, exchange->method) == CURLE_OK;
    }
    return ok;
}

static bool set_exchange(struct tally_http_client *client,
                         const struct tally_http_exchange *exchange, struct curl_slist *headers,
                         struct transfer *transfer)
{
    CURL *easy = client->easy;
    char *url = NULL;
    if (asprintf(&url, "%s%s", client->base_url, exchange->path) < 0) {
        return false;
    }
    bool ok = curl_easy_setopt(easy, CURLOPT_URL, url) == CURLE_OK; /* copies it */
    free(url);
    return ok && set_method(easy, exchange) &&
           curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 0L) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_WRITEDATA, transfer) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_HEADERDATA, transfer) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_DEBUGDATA, transfer) == CURLE_OK;
}

/* The flag may be set by a signal handler that runs in any thread. */
static bool is_cancelled(const struct tally_http_client *client)
{
    return client->cancel != NULL && __atomic_load_n(client->cancel, __ATOMIC_RELAXED) != 0;
}

/* Bytes that the kernel has received, and those of ours that the peer has acknowledged; and how
 * many it has not. libcurl does not know: the kernel takes megabytes from it at once. */
static uint64_t moved_bytes(const struct tally_http_client *client, uint64_t *ret_unsent)
{
    uint64_t moved = 0;
    *ret_unsent = 0;
    for (int i = 0; i < MAX_SOCKETS; i++) {
        struct tcp_info info = {0};
        socklen_t size = sizeof info;
        int n_unsent = 0;
        if (client->sockets[i] >= 0 &&
            getsockopt(client->sockets[i], IPPROTO_TCP, TCP_INFO, &info, &size) == 0) {
            moved += info.tcpi_bytes_received + info.tcpi_bytes_acked;
            (void)ioctl(client->sockets[i], SIOCOUTQ, &n_unsent);
            *ret_unsent += (uint64_t)n_unsent;
        }
    }
    return moved;
}

static void tell_progress(const struct tally_http_client *client, struct transfer *transfer,
                          uint64_t n_unsent, int64_t now_ms)
{
    curl_off_t received = 0, to_receive = 0;
    curl_easy_getinfo(client->easy, CURLINFO_SIZE_DOWNLOAD_T, &received);
    curl_easy_getinfo(client->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &to_receive);
    const uint64_t body_out = transfer->body_out_bytes;
    const struct tally_http_progress progress = {
        .elapsed_ms = now_ms - transfer->begun_ms,
        .sent_bytes = body_out > n_unsent ? body_out - n_unsent : 0,
        .to_send_bytes = transfer->n_body,
        .received_bytes = (uint64_t)received,
        .to_receive_bytes = to_receive > 0 ? (uint64_t)to_receive : 0,
        .has_moved = transfer->heard_ms != transfer->told_heard_ms};
    transfer->told_ms = now_ms;
    transfer->told_heard_ms = transfer->heard_ms;
    client->on_progress(client->context, &progress);
}

/* Looks at what has moved, from time to time. */
static void look(const struct tally_http_client *client, struct transfer *transfer, int64_t now_ms)
{
    uint64_t n_unsent;
    if (now_ms - transfer->looked_ms < LOOK_MS) {
        return;
    }
    transfer->looked_ms = now_ms;
    const uint64_t moved = moved_bytes(client, &n_unsent);
    if (transfer->moved_bytes != 0 && moved != transfer->moved_bytes) {
        transfer->heard_ms = now_ms;
    }
    transfer->moved_bytes = moved;
    if (client->on_progress != NULL && now_ms - transfer->told_ms >= PROGRESS_MS) {
        tell_progress(client, transfer, n_unsent, now_ms);
    }
}

static int64_t left_ms(const struct transfer *transfer, int64_t now_ms)
{
    const int64_t left = transfer->heard_ms + transfer->limit_ms - now_ms;
    return left > 0 ? left : 0;
}

/* Runs the loop until the transfer is done, fails or is cancelled; false if it is cancelled. */
static bool run_transfer(struct tally_http_client *client, struct transfer *transfer,
                         CURLcode *ret_code)
{
    int running = 1;
    while (!is_cancelled(client)) {
        *ret_code = CURLE_FAILED_INIT;
        /* Read before the check, so that time in which this process does not run does not count as
         * silence. */
        const int64_t now_ms = tally_monotonic_ms();
        if (curl_multi_perform(client->multi, &running) != CURLM_OK) {
            return true;
        }
        if (running == 0) {
            int left;
            const CURLMsg *message = curl_multi_info_read(client->multi, &left);
            *ret_code = message != NULL ? message->data.result : *ret_code;
            return true;
        }
        look(client, transfer, now_ms);
        const int64_t wait_ms = left_ms(transfer, now_ms);
        if (wait_ms == 0) {
            *ret_code = CURLE_OPERATION_TIMEDOUT;
            snprintf(client->curl_message, sizeof client->curl_message,
                     "timed out: nothing was sent or received for %ld ms", transfer->limit_ms);
            return true;
        }
        if (curl_multi_poll(client->multi, NULL, 0,
                            wait_ms < CANCEL_CHECK_MS ? (int)wait_ms : CANCEL_CHECK_MS,
                            NULL) != CURLM_OK) {
            return true;
        }
    }
    return false;
}

/* OpenSSL may write to a connection that the peer has closed, and raise SIGPIPE. The guard blocks
 * the signal in this thread and consumes it, unless one was pending before. */
struct pipe_guard {
    sigset_t before;
    bool was_pending;
};

static sigset_t only_sigpipe(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    return set;
}

static void pipe_guard_init(struct pipe_guard *guard)
{
    sigset_t pending;
    sigset_t pipe = only_sigpipe();
    sigpending(&pending);
    guard->was_pending = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe, &guard->before);
}

static void pipe_guard_fini(const struct pipe_guard *guard)
{
    const struct timespec at_once = {.tv_sec = 0};
    sigset_t pipe = only_sigpipe();
    if (!guard->was_pending) {
        (void)sigtimedwait(&pipe, NULL, &at_once);
    }
    pthread_sigmask(SIG_SETMASK, &guard->before, NULL);
}

static enum tally_status status_of(CURL *easy, CURLcode code, const struct transfer *transfer)
{
    return code == CURLE_WRITE_ERROR && transfer->append_status != TALLY_OK
               ? transfer->append_status
               : tally_curl_status(easy, code);
}

static void copy_header(CURL *easy, const char *name, char *ret_value, size_t capacity)
{
    struct curl_header *header = NULL;
    if (curl_easy_header(easy, name, 0, CURLH_HEADER, -1, &header) == CURLHE_OK) {
        snprintf(ret_value, capacity, "%s", header->value);
    }
}

static void read_answer(CURL *easy, struct tally_http_exchange *exchange)
{
    long status = 0;
    const char *type = NULL;
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(easy, CURLINFO_CONTENT_TYPE, &type);
    exchange->status = (int)status;
    snprintf(exchange->response_type, sizeof exchange->response_type, "%s",
             type != NULL ? type : "");
    copy_header(easy, "Location", exchange->location, sizeof exchange->location);
    copy_header(easy, "Date", exchange->date, sizeof exchange->date);
    copy_header(easy, "Server", exchange->server, sizeof exchange->server);
}

/* Reads the result of a transfer that libcurl has ended. */
static enum tally_status finish_transfer(struct tally_http_client *client,
                                         struct tally_http_exchange *exchange,
                                         const struct transfer *transfer, CURLcode code,
                                         struct tally_error *err)
{
    exchange->has_proxy = transfer->has_proxy;
    if (code == CURLE_OK && !transfer->has_whole_head) {
        code = CURLE_GOT_NOTHING;
    }
    if (code == CURLE_OK) {
        read_answer(client->easy, exchange);
        client->out_bytes += transfer->out_bytes;
        client->in_bytes += transfer->in_bytes;
        return TALLY_OK;
    }
    enum tally_status status = status_of(client->easy, code, transfer);
    const char *reason =
        client->curl_message[0] != '\0' ? client->curl_message : curl_easy_strerror(code);
    const bool is_away = code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST;
    const bool is_unanswered =
        transfer->out_bytes > 0 && (status == TALLY_UNAVAILABLE || status == TALLY_DEADLINE);
    char proxy[HTTP_PROXY_CAPACITY] = "";
    if (transfer->has_proxy) {
        http_proxy_name(client->base_url, proxy);
    }
    return tally_fail(err, status,
                      is_unanswered                 ? TALLY_HTTP_UNANSWERED
                      : is_away && proxy[0] == '\0' ? "coordinator"
                                                    : NULL,
                      "%s %s%s%s%s: %s", exchange->method, client->base_url, exchange->path,
                      proxy[0] != '\0' ? " through the proxy " : "", proxy,
                      status == TALLY_TOO_LARGE ? "response is too large" : reason);
}

static long limit_of(const struct tally_http_client *client,
                     const struct tally_http_exchange *exchange)
{
    const long own_ms = exchange->timeout_ms != 0 ? exchange->timeout_ms : (long)DEFAULT_TIMEOUT_MS;
    return client->silence_ms > 0 && client->silence_ms < own_ms ? client->silence_ms : own_ms;
}

static enum tally_status exchange_with(struct tally_http_client *client,
                                       struct tally_http_exchange *exchange,
                                       struct curl_slist *headers, struct tally_buffer *out,
                                       struct tally_error *err)
{
    size_t n_before = out->size;
    const int64_t now_ms = tally_monotonic_ms();
    struct transfer transfer = {.easy = client->easy,
                                .method = exchange->method,
                                .has_others = client->silence_ms > 0,
                                .begun_ms = now_ms,
                                .heard_ms = now_ms,
                                .looked_ms = now_ms,
                                .told_ms = now_ms,
                                .limit_ms = limit_of(client, exchange),
                                .n_body = exchange->n_body,
                                .out = out};
    if (!set_exchange(client, exchange, headers, &transfer) ||
        curl_multi_add_handle(client->multi, client->easy) != CURLM_OK) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for an HTTP exchange");
    }
    struct pipe_guard guard;
    pipe_guard_init(&guard);
    client->curl_message[0] = '\0';
    CURLcode code = CURLE_OK;
    enum tally_status status = run_transfer(client, &transfer, &code)
                                   ? finish_transfer(client, exchange, &transfer, code, err)
                                   : tally_fail(err, TALLY_CANCELLED, NULL, "%s %s cancelled",
                                                exchange->method, exchange->path);
    curl_multi_remove_handle(client->multi, client->easy);
    pipe_guard_fini(&guard);
    if (status != TALLY_OK) {
        out->size = n_before;
    }
    return status;
}

static enum tally_status perform(struct tally_http_client *client,
                                 struct tally_http_exchange *exchange,
                                 const char *second_extra_header, struct tally_buffer *out,
                                 struct tally_error *err)
{
    exchange->status = 0;
    exchange->response_type[0] = '\0';
    exchange->location[0] = '\0';
    exchange->date[0] = '\0';
    exchange->server[0] = '\0';
    exchange->has_proxy = false;
    struct curl_slist *headers = NULL;
    bool ok = add_request_headers(client, exchange, &headers);
    if (second_extra_header != NULL) {
        ok = ok && add_line(&headers, second_extra_header, NULL);
    }
    enum tally_status status =
        ok ? exchange_with(client, exchange, headers, out, err)
           : tally_fail(err, TALLY_NO_MEMORY, NULL, "request headers too long, or no memory");
    curl_slist_free_all(headers);
    return status;
}

enum tally_status tally_http_perform(struct tally_http_client *client,
                                     struct tally_http_exchange *exchange, struct tally_buffer *out,
                                     struct tally_error *err)
{
    return perform(client, exchange, NULL, out, err);
}

/* The error that a response describes, or is. */
static enum tally_status fail_answered(const struct tally_http_client *client,
                                       const struct tally_http_exchange *exchange, const char *text,
                                       size_t n, struct tally_error *err)
{
    struct tally_error answer = TALLY_ERROR_INIT;
    if (!tally_problem_decode(exchange->status, text, n, &answer)) {
        return http_fail_foreign(client->base_url, exchange, &answer, err);
    }
    return answer.status == TALLY_TOO_LARGE
               ? tally_fail(err, answer.status, answer.field, "%s; this one has %zu",
                            answer.message, exchange->n_body)
               : tally_fail(err, answer.status, answer.field, "%s", answer.message);
}

enum tally_status tally_connect_call(struct tally_http_client *client, const char *method,
                                     const uint8_t *body, size_t n_body, long timeout_ms,
                                     struct tally_buffer *out, struct tally_error *err)
{
    static const char proto[] = "application/proto";
    char path[128];
    char timeout[64];
    long limit_ms = timeout_ms != 0 ? timeout_ms : (long)DEFAULT_TIMEOUT_MS;
    snprintf(path, sizeof path, "/tally.v1.WorkerService/%s", method);
    snprintf(timeout, sizeof timeout, "Connect-Timeout-Ms: %ld", limit_ms);
    struct tally_http_exchange exchange = {
        .method = "POST",
        .path = path,
        .content_type = proto,
        .extra_header = client->is_terse ? NULL : "Connect-Protocol-Version: 1",
        .body = body,
        .n_body = n_body,
        .timeout_ms = limit_ms};
    size_t n_before = out->size;
    enum tally_status status =
        perform(client, &exchange, client->is_terse ? NULL : timeout, out, err);
    if (status == TALLY_OK &&
        (exchange.status != 200 || strcasecmp(exchange.response_type, proto) != 0)) {
        const char *text = out->data != NULL ? (const char *)out->data + n_before : "";
        status = fail_answered(client, &exchange, text, out->size - n_before, err);
        out->size = n_before;
    }
    return status;
}
