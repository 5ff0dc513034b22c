#include "api/http/http_refusal.h"

#include <assert.h>
#include <microhttpd.h>
#include <time.h>

/* The members of a status's problem document besides the detail. */
static const struct {
    int status;
    const char *title, *code;
} TEXTS[] = {
    {MHD_HTTP_BAD_REQUEST, "malformed input", "malformed"},
    {MHD_HTTP_REQUEST_TIMEOUT, "deadline exceeded", "deadline"},
    {MHD_HTTP_CONTENT_TOO_LARGE, "content too large", "too_large"},
    {MHD_HTTP_URI_TOO_LONG, "uri too long", "too_large"},
    {MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE, "header fields too large", "too_large"},
    {MHD_HTTP_NOT_IMPLEMENTED, "not implemented", "unimplemented"},
    {MHD_HTTP_SERVICE_UNAVAILABLE, "unavailable", "unavailable"},
};

const char *http_date(struct http_refuser *refuser)
{
    const time_t now = time(NULL);
    struct tm day;
    if (refuser->date[0] == '\0' || now != refuser->date_s) {
        refuser->date_s = now;
        if (gmtime_r(&now, &day) == NULL ||
            strftime(refuser->date, sizeof refuser->date, "%a, %d %b %Y %H:%M:%S GMT", &day) == 0) {
            refuser->date[0] = '\0';
        }
    }
    return refuser->date;
}

void http_refusal_report(const struct http_refuser *refuser, enum tally_http_refusal_reason reason,
                         int status, const struct tally_http_request *request,
                         char ret_id[TALLY_HTTP_REQUEST_ID_CAPACITY])
{
    const struct tally_http_refusal refusal = {
        .reason = reason, .status = status, .request = request};
    ret_id[0] = '\0';
    if (refuser->on_refused != NULL) {
        refuser->on_refused(refuser->context, &refusal, ret_id);
    }
}

void http_refusal_problem(struct tally_buffer *out, int status, const char *detail)
{
    size_t i = 0;
    while (i < sizeof TEXTS / sizeof TEXTS[0] - 1 && TEXTS[i].status != status) {
        i++;
    }
    assert(TEXTS[i].status == status);
    (void)tally_buffer_printf(out,
                              "{\"type\": \"about:blank\", \"title\": \"%s\", \"status\": %d, "
                              "\"detail\": \"%s\", \"code\": \"%s\"}",
                              TEXTS[i].title, status, detail, TEXTS[i].code);
}

void http_refusal_write(struct http_refuser *refuser, enum tally_http_refusal_reason reason,
                        int status, const struct tally_http_request *request, const char *detail,
                        struct tally_buffer *out)
{
    char id[TALLY_HTTP_REQUEST_ID_CAPACITY];
    struct tally_buffer body = {.size = 0};
    http_refusal_report(refuser, reason, status, request, id);
    http_refusal_problem(&body, status, detail);
    (void)tally_buffer_printf(
        out,
        "HTTP/1.1 %d %s\r\nDate: %s\r\nConnection: close\r\n"
        "Content-Type: application/problem+json\r\nX-Content-Type-Options: nosniff\r\n"
        "Cache-Control: no-store\r\n%s%s%s%sContent-Length: %zu\r\n\r\n",
        status, MHD_get_reason_phrase_for((unsigned)status), http_date(refuser),
        status == MHD_HTTP_SERVICE_UNAVAILABLE ? "Retry-After: 1\r\n" : "",
        id[0] != '\0' ? "X-Request-Id: " : "", id, id[0] != '\0' ? "\r\n" : "", body.size);
    (void)tally_buffer_append(out, body.data, body.size);
    tally_buffer_fini(&body);
}
