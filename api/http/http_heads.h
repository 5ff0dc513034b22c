/* http_heads: header sections. The end of a request must be unambiguous (RFC 9112, section 6): if a
 * proxy and this server disagree about it, an attacker can hide one request inside another.
 *
 *     POST / HTTP/1.1            a proxy that takes the first length forwards two requests,
 *     Content-Length: 6          one that takes the second forwards a single one: refused here
 *     Content-Length: 40
 *
 * What happens while a section arrives:
 *
 *     request line complete   http_heads_begin() refuses too many query parameters.
 *     header lines arrive     None of our code runs. If MHD runs out of memory, or cannot parse
 *                             Content-Length, it responds by itself: with an HTML page, and in some
 *                             cases with two header sections. It logs this first, but does not name
 *                             the connection. http_heads_on_log() finds the connection, sends our
 *                             response past MHD and shuts down the sending side, so that MHD's own
 *                             response is lost.
 *     section complete        http_heads_note() sees each line; http_heads_fault() judges.
 *
 * MHD joins folded lines and treats NUL as the end of a value. Positions reveal both: MHD parses in
 * place, so each line must begin where the previous one ended.
 *
 *     Host: h CR LF X: 1 CR LF CR LF
 *           ^ end   ^ next: at most 2 bytes (MAX_LINE_END_BYTES) after the end */
#ifndef TALLY_API_HTTP_HTTP_HEADS_H
#define TALLY_API_HTTP_HTTP_HEADS_H

#include <stdarg.h>

#include "api/http/http_peer.h"

enum { HTTP_MAX_HEADERS = 100 };

/* The facts that decide where a request ends, and whether a proxy would agree. */
struct http_head {
    unsigned n_hosts, n_lengths, n_encodings, n_origins, n_sites;
    size_t n_cookie_bytes; /* of the values of Cookie */
    const char *end;       /* of the last line so far, without CRLF; NULL = there was none */
    bool has_bad_name, has_bad_line;
};

/* ---- Callbacks of MHD; `context` is the struct http_peers ---- */

/* The request line is complete; `uri` is NULL if it has none. Returns NULL, because the request is
 * created later. */
void *http_heads_begin(void *context, const char *uri, struct MHD_Connection *connection);
/* Decodes a text of the query or the path, as MHD does by itself, and notes %00: a NUL would cut
 * the text for all readers. */
size_t http_heads_unescape(void *context, struct MHD_Connection *connection, char *text);
/* MHD logs that it is about to respond by itself. */
void http_heads_on_log(void *context, const char *format, va_list arguments);

/* ---- When the section is complete ---- */

/* To be called when the section is complete or the connection is over. */
void http_heads_end(struct http_peer *peer);
/* Called for each header line, in order. The texts must lie in MHD's own buffer. */
void http_heads_note(struct http_head *head, const char *name, size_t n_name, const char *value,
                     size_t n_value);
/* Whether a section of n_headers fields and n_bytes leaves MHD memory for the response's. If not,
 * this function has responded, because MHD would close the connection without a response. */
bool http_heads_leave_room(struct http_peer *peer, const struct http_head *head, size_t n_headers,
                           size_t n_bytes);
/* What is wrong with the framing; NULL = nothing. `section_end` points past the blank line. */
const char *http_heads_fault(const struct http_head *head, const char *section_end, bool is_1_0);

#endif
