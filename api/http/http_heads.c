#include "api/http/http_heads.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum {
    MAX_ARGUMENTS = 100,
    /* MHD's record of a header field, an argument or a cookie, in the memory of the connection. */
    RECORD_BYTES = 64,
    RESPONSE_HEAD_BYTES = 640, /* the longest, the dashboard's, has less than 560 */
    MAX_LINE_END_BYTES = 2     /* CRLF, or LF alone */
};

/* ---- While it arrives ---- */

void http_heads_end(struct http_peer *peer)
{
    struct http_peers *peers = peer->peers;
    tally_list_remove(&peer->in_heads);
    peers->parsing = peers->parsing == peer ? NULL : peers->parsing;
}

/* Responds to the connection for the last time. MHD closes it when its own response cannot be sent,
 * or when the server refuses to begin the request. */
static void refuse_head(struct http_peer *peer, enum tally_http_refusal_reason reason, int status,
                        const char *detail)
{
    http_heads_end(peer);
    http_peer_refuse(peer, reason, status, detail);
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
    struct http_peers *peers = context;
    struct http_peer *peer = http_peer_of(connection);
    tally_list_prepend(&peers->heads, &peer->in_heads);
    peers->parsing = peer;
    peers->parsed_path = uri;
    if (uri != NULL && count_arguments(uri) > MAX_ARGUMENTS) {
        char detail[64];
        snprintf(detail, sizeof detail, "more than %d query parameters", MAX_ARGUMENTS);
        refuse_head(peer, TALLY_HTTP_REFUSED_HEADERS, MHD_HTTP_URI_TOO_LONG, detail);
    }
    return NULL;
}

size_t http_heads_unescape(void *context, struct MHD_Connection *connection, char *text)
{
    struct http_peers *peers = context;
    const size_t n = MHD_http_unescape(text);
    if (text == peers->parsed_path) {
        peers->parsing = NULL;
    }
    if (memchr(text, '\0', n) != NULL) {
        http_peer_of(connection)->has_nul = true;
    }
    return n;
}

static bool has_many_headers(const struct http_peer *peer)
{
    return MHD_get_connection_values(peer->mhd, MHD_HEADER_KIND, NULL, NULL) >= HTTP_MAX_HEADERS;
}

/* The connection that MHD is about to respond to; NULL = unknown. While MHD parses a query, it is
 * peers->parsing. After the last header line MHD knows the section's length and makes the request
 * next. So a connection in peers->heads with a length and without a status is the one. Before its
 * last header line, a connection with too many header fields is taken: it would be refused too. */
static struct http_peer *find_refused(const struct http_peers *peers, int status)
{
    if (peers->parsing != NULL) {
        return peers->parsing;
    }
    TALLY_LIST_EACH(node, &peers->heads)
    {
        struct http_peer *peer = TALLY_LIST_MEMBER(struct http_peer, in_heads, node);
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
                "too many header fields, cookies or query parameters");
}

static void refuse_instead_of_mhd(struct http_peer *peer, int status)
{
    if (status == MHD_HTTP_CONTENT_TOO_LARGE) {
        char detail[64];
        snprintf(detail, sizeof detail, "body longer than %zu bytes", peer->peers->max_body_bytes);
        refuse_head(peer, TALLY_HTTP_REFUSED_BODY, status, detail);
    } else if (status == MHD_HTTP_BAD_REQUEST) {
        refuse_head(peer, TALLY_HTTP_REFUSED_MALFORMED, status, "Content-Length is not a number");
    } else {
        refuse_cramped(peer);
    }
}

void http_heads_on_log(void *context, const char *format, va_list arguments)
{
    struct http_peers *peers = context;
    char id[TALLY_HTTP_REQUEST_ID_CAPACITY];
    if (strstr(format, "HTTP response code is %u") == NULL) {
        return;
    }
    va_list copy;
    va_copy(copy, arguments);
    const int status = (int)va_arg(copy, unsigned);
    va_end(copy);
    struct http_peer *peer = find_refused(peers, status);
    if (peer != NULL) {
        refuse_instead_of_mhd(peer, status);
    } else {
        http_refusal_report(&peers->refuser, TALLY_HTTP_REFUSED_LIBRARY, status, NULL, id);
    }
}

/* ---- When it is complete ---- */

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

/* Whether the text at `next` directly follows a line that ended at `end`. */
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
    head->has_bad_line |= !follows(head->end, name) || memchr(value, '\r', n_value) != NULL;
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
        peer->peers->memory_bytes) {
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
        return "a header field that is folded or contains NUL or a bare CR";
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
    if (head->n_origins > 1 || head->n_sites > 1) { /* only the first would be checked */
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
