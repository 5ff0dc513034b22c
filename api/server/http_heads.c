/* Header sections: the end of a request must be unambiguous (RFC 9112, section 6). If a proxy and
 * this server disagree about it, an attacker can hide one request inside another.
 *
 *   request line complete   http_heads_begin() refuses too many query parameters.
 *   header lines arrive     None of our code runs. If MHD runs out of memory, or cannot parse
 *                           Content-Length, it answers by itself: with an HTML page, and in some
 *                           cases with two header sections. It logs this first, but does not name
 *                           the connection. http_heads_refused() finds the connection, sends our
 *                           answer past MHD and shuts down the sending side, so that MHD's own
 *                           answer is lost.
 *   section complete        http_heads_note() has seen each line; http_heads_fault() judges.
 *
 * MHD joins folded lines and takes NUL for the end of a value. Positions reveal both: MHD parses in
 * place, so each line must begin where the previous one ended. */
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "api/server/http_server_internal.h"

enum {
    MAX_ARGUMENTS = 100,
    /* MHD's record of a header field, an argument or a cookie, in the memory of the connection. */
    RECORD_BYTES = 64,
    RESPONSE_HEAD_BYTES = 640, /* the longest, the dashboard's, has less than 560 */
    MAX_LINE_END_BYTES = 2     /* CRLF; LF alone will do */
};

static const char TOO_LARGE[] = "too_large";

/* ---- While it comes ---- */

void http_heads_end(struct http_peer *peer)
{
    struct tally_http_server *server = peer->server;
    if (!peer->is_in_head) {
        return;
    }
    peer->is_in_head = false;
    *(peer->previous_head != NULL ? &peer->previous_head->next_head : &server->heads) =
        peer->next_head;
    if (peer->next_head != NULL) {
        peer->next_head->previous_head = peer->previous_head;
    }
    if (server->parsing == peer) {
        server->parsing = NULL;
    }
}

static void add_head(struct http_peer *peer)
{
    struct tally_http_server *server = peer->server;
    peer->is_in_head = true;
    peer->previous_head = NULL;
    peer->next_head = server->heads;
    if (peer->next_head != NULL) {
        peer->next_head->previous_head = peer;
    }
    server->heads = peer;
}

/* Answers the connection for the last time. MHD closes it when its own answer cannot be sent, or
 * when handle() refuses to begin. */
static void refuse_head(struct http_peer *peer, enum tally_http_refusal_reason reason, int status,
                        const char *title, const char *code, const char *detail)
{
    http_heads_end(peer);
    http_peer_answer(peer, reason, status, title, code, detail);
    http_peer_end_sending(peer);
    peer->is_refused = true;
}

static size_t count_arguments(const char *uri)
{
    const char *at = strchr(uri, '?');
    size_t n = at != NULL ? 1 : 0;
    while (at != NULL && (at = strchr(at + 1, '&')) != NULL) {
        n++;
    }
    return n;
}

void *http_heads_begin(void *context, const char *uri, struct MHD_Connection *connection)
{
    struct tally_http_server *server = context;
    struct http_peer *peer =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    add_head(peer);
    server->parsing = peer;
    server->parsed_path = uri;
    if (uri != NULL && count_arguments(uri) > MAX_ARGUMENTS) {
        char detail[64];
        snprintf(detail, sizeof detail, "more than %d query parameters", MAX_ARGUMENTS);
        refuse_head(peer, TALLY_HTTP_REFUSED_HEADERS, MHD_HTTP_URI_TOO_LONG, "uri too long",
                    TOO_LARGE, detail);
    }
    return NULL;
}

void http_heads_unescaped(struct tally_http_server *server, const char *text)
{
    if (text == server->parsed_path) {
        server->parsing = NULL;
    }
}

static bool has_many_headers(const struct http_peer *peer)
{
    return MHD_get_connection_values(peer->mhd, MHD_HEADER_KIND, NULL, NULL) >= HTTP_MAX_HEADERS;
}

/* The connection that MHD is about to answer; NULL = unknown. While MHD parses a query, it is
 * server->parsing. After the last header line MHD knows the section's length and calls handle()
 * next. So a connection in server->heads with a length and without a status is the one. Before its
 * last header line, a connection with too many header fields is taken: it would be refused too. */
static struct http_peer *find_refused(const struct tally_http_server *server, int status)
{
    if (server->parsing != NULL) {
        return server->parsing;
    }
    for (struct http_peer *peer = server->heads; peer != NULL; peer = peer->next_head) {
        if (MHD_get_connection_info(peer->mhd, MHD_CONNECTION_INFO_HTTP_STATUS) == NULL &&
            (MHD_get_connection_info(peer->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE) != NULL ||
             (status == MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE && has_many_headers(peer)))) {
            return peer;
        }
    }
    return NULL;
}

/* The parts of the section do not fit into the memory of a connection. */
static void refuse_cramped(struct http_peer *peer)
{
    refuse_head(peer, TALLY_HTTP_REFUSED_HEADERS, MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE,
                "header fields too large", TOO_LARGE,
                "too many header fields, cookies or query parameters");
}

bool http_heads_refused(struct tally_http_server *server, int status)
{
    char detail[64];
    struct http_peer *peer = find_refused(server, status);
    if (peer == NULL) {
        return false;
    }
    if (status == MHD_HTTP_CONTENT_TOO_LARGE) {
        snprintf(detail, sizeof detail, "body longer than %zu bytes",
                 server->config.max_body_bytes);
        refuse_head(peer, TALLY_HTTP_REFUSED_BODY, status, "content too large", TOO_LARGE, detail);
    } else if (status == MHD_HTTP_BAD_REQUEST) {
        refuse_head(peer, TALLY_HTTP_REFUSED_MALFORMED, status, "malformed input", "malformed",
                    "Content-Length is not a number");
    } else {
        refuse_cramped(peer);
    }
    return true;
}

/* ---- When it is in ---- */

static bool is_token_character(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           (c != '\0' && strchr("!#$%&'*+.^_`|~", c) != NULL);
}

static bool is_token(const char *text, size_t n)
{
    size_t i = 0;
    while (i < n && is_token_character(text[i])) {
        i++;
    }
    return n > 0 && i == n;
}

static bool is_named(const char *name, size_t n_name, const char *wanted, size_t n_wanted)
{
    return n_name == n_wanted && strncasecmp(name, wanted, n_name) == 0;
}

/* Whether what begins at `next` follows a line that ended at `end`. */
static bool follows(const char *end, const char *next)
{
    return end == NULL || (next > end && next - end <= MAX_LINE_END_BYTES);
}

void http_heads_note(struct http_head *head, const char *name, size_t n_name, const char *value,
                     size_t n_value)
{
    static const char HOST[] = "Host", LENGTH[] = "Content-Length",
                      ENCODING[] = "Transfer-Encoding", COOKIE[] = "Cookie", ORIGIN[] = "Origin",
                      SITE[] = "Sec-Fetch-Site";
    head->n_hosts += is_named(name, n_name, HOST, sizeof HOST - 1);
    head->n_lengths += is_named(name, n_name, LENGTH, sizeof LENGTH - 1);
    head->n_encodings += is_named(name, n_name, ENCODING, sizeof ENCODING - 1);
    head->n_origins += is_named(name, n_name, ORIGIN, sizeof ORIGIN - 1);
    head->n_sites += is_named(name, n_name, SITE, sizeof SITE - 1);
    head->n_cookie_bytes += is_named(name, n_name, COOKIE, sizeof COOKIE - 1) ? n_value : 0;
    head->has_bad_name |= !is_token(name, n_name);
    head->has_bad_line |= !follows(head->end, name);
    head->end = value + n_value;
}

/* MHD copies the cookies before it splits them, so they count twice. */
bool http_heads_leave_room(struct http_peer *peer, const struct http_head *head, size_t n_headers,
                           size_t n_bytes)
{
    const int n_others =
        MHD_get_connection_values(peer->mhd, MHD_GET_ARGUMENT_KIND | MHD_COOKIE_KIND, NULL, NULL);
    const size_t n_records = n_headers + (size_t)n_others;
    if (n_bytes + head->n_cookie_bytes + n_records * RECORD_BYTES + RESPONSE_HEAD_BYTES <=
        peer->server->memory_bytes) {
        return true;
    }
    refuse_cramped(peer);
    return false;
}

const char *http_heads_fault(const struct http_head *head, const char *section_end, bool is_1_0)
{
    if (head->has_bad_name) {
        return "a header field with an invalid name";
    }
    if (head->has_bad_line ||
        (head->end != NULL && section_end - head->end > 2 * MAX_LINE_END_BYTES)) {
        return "a header field that is folded or contains NUL";
    }
    if (head->n_hosts > 1) {
        return "more than one Host";
    }
    if (head->n_hosts == 0 && !is_1_0) {
        return "Host is missing";
    }
    if (head->n_lengths > 1) {
        return "more than one Content-Length";
    }
    if (head->n_origins > 1 || head->n_sites > 1) { /* only the first would be looked at */
        return "more than one Origin or Sec-Fetch-Site";
    }
    if (head->n_encodings > 1) {
        return "more than one Transfer-Encoding";
    }
    if (head->n_encodings > 0 && head->n_lengths > 0) {
        return "both Content-Length and Transfer-Encoding";
    }
    return head->n_encodings > 0 && is_1_0 ? "Transfer-Encoding in HTTP/1.0" : NULL;
}
