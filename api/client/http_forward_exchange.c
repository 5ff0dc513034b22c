/* http_forward_exchange: one forwarded request on libcurl: how it is sent, and how its response is
 * read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/client/http_forward_internal.h"

enum {
    /* Half of what our server gives a silent connection by default, so that a request seldom meets
     * a connection that is being closed. */
    MAX_IDLE_S = 30,
    MIN_HTTP_STATUS = 200,
    MAX_HTTP_STATUS = 599
};

/* ---- The request ---- */

void http_forward_drop_body(struct tally_http_forwarder *forwarder, struct tally_buffer *body)
{
    forwarder->held_bytes -= body->capacity;
    tally_buffer_fini(body);
}

void http_forward_free(struct tally_http_forward *forward)
{
    struct tally_http_forwarder *forwarder = forward->forwarder;
    curl_easy_cleanup(forward->easy);
    curl_slist_free_all(forward->lines);
    http_forward_drop_body(forwarder, &forward->sent);
    http_forward_drop_body(forwarder, &forward->result.body);
    free(forward->result.text);
    free(forward);
    forwarder->n_requests--;
}

/* Without a seek function libcurl cannot send a body a second time. */
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
    if (forwarder->held_bytes + size * n > forwarder->config.max_held_bytes) {
        forward->refused = TALLY_RESOURCE_EXHAUSTED;
    } else {
        forward->refused = tally_buffer_append(body, data, size * n);
    }
    forwarder->held_bytes += body->capacity - before;
    return forward->refused == TALLY_OK ? size * n : 0;
}

/* Called for each complete line. libcurl does not notice when the peer closes within the header
 * section. */
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

bool http_forward_set_up(struct tally_http_forward *forward,
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
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);    /* an aborted look-up may be running */
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L); /* a long poll is silent */
    curl_easy_setopt(easy, CURLOPT_DNS_CACHE_TIMEOUT,
                     0L); /* a peer may restart at another address */
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

/* ---- The response ---- */

/* Whether a header goes to the client: not if it belongs to one connection (RFC 9110, 7.6.1) or is
 * generated again. */
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

/* Copies the header section out of libcurl's memory. */
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
            /* libcurl reuses the struct, but not the texts. */
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
    return forward->refused == TALLY_TOO_LARGE            ? "the response is too large"
           : forward->refused == TALLY_RESOURCE_EXHAUSTED ? "too many responses are held"
           : forward->curl_message[0] != '\0'             ? forward->curl_message
                                                          : curl_easy_strerror(code);
}

void http_forward_read_result(struct tally_http_forward *forward, CURLcode code)
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
        tally_fail(&result->err, TALLY_NO_MEMORY, NULL, "no memory for a response");
    } else if (result->http_status < MIN_HTTP_STATUS || result->http_status > MAX_HTTP_STATUS) {
        tally_fail(&result->err, TALLY_UNAVAILABLE, NULL, "%.128s: a response of status %d", url,
                   result->http_status);
    }
    if (result->err.status != TALLY_OK) {
        http_forward_drop_body(forward->forwarder, &result->body);
    }
}
