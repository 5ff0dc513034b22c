#include "api/json/problem.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "codec/utf8.h"

/* "code" of a problem is the status's own name in lower case: finer than the Connect code, because
 * OUT_OF_RANGE and MALFORMED stay apart. */
static void code_of_status(enum tally_status status, char code[static 40])
{
    const char *name = tally_status_info(status)->name;
    size_t i = 0;
    for (; name[i] != '\0' && i < 39; i++) {
        code[i] = (char)tolower((unsigned char)name[i]);
    }
    code[i] = '\0';
}

/* "field: message" */
enum { LINE_CAPACITY = sizeof(struct tally_error) };

/* Messages quote untrusted input and may be cut within a character. */
static struct tally_json *clean_text(const char *text)
{
    char line[LINE_CAPACITY];
    snprintf(line, sizeof line, "%s", text);
    tally_utf8_sanitize_line(line);
    return tally_json_text(line);
}

static enum tally_status dump_and_free(struct tally_json *object, bool ok, struct tally_buffer *out)
{
    enum tally_status status = ok ? tally_json_dump(object, 0, out) : TALLY_NO_MEMORY;
    tally_json_free(object);
    return status;
}

enum tally_status tally_problem_encode(const struct tally_error *err, struct tally_buffer *out)
{
    return tally_problem_encode_all(err, NULL, out);
}

enum tally_status tally_problem_encode_all(const struct tally_error *err,
                                           const struct tally_json *errors,
                                           struct tally_buffer *out)
{
    assert(err->status != TALLY_OK);
    const struct tally_status_info *info = tally_status_info(err->status);
    char code[40];
    code_of_status(err->status, code);
    struct tally_json *object = tally_json_object();
    bool ok = object != NULL;
    ok = ok && tally_json_set_text(object, "type", "about:blank");
    ok = ok && tally_json_set_text(object, "title", info->title);
    ok = ok && tally_json_set_integer(object, "status", info->http_status);
    ok = ok && tally_json_set(object, "detail", clean_text(err->message));
    ok = ok && tally_json_set_text(object, "code", code);
    if (err->field[0] != '\0') {
        ok = ok && tally_json_set(object, "field", clean_text(err->field));
    }
    if (errors != NULL) {
        ok = ok && tally_json_set(object, "errors", tally_json_copy(errors));
    }
    return dump_and_free(object, ok, out);
}

enum tally_status tally_connect_error_encode(const struct tally_error *err,
                                             struct tally_buffer *out)
{
    assert(err->status != TALLY_OK);
    char message[LINE_CAPACITY];
    snprintf(message, sizeof message, "%s%s%s", err->field, err->field[0] != '\0' ? ": " : "",
             err->message);
    struct tally_json *object = tally_json_object();
    bool ok = object != NULL;
    ok = ok && tally_json_set_text(object, "code", tally_status_info(err->status)->connect_code);
    ok = ok && tally_json_set(object, "message", clean_text(message));
    return dump_and_free(object, ok, out);
}

/* Our own names take precedence: several statuses share a Connect code, and the one of that name is
 * meant ("unavailable" is UNAVAILABLE, not STORE). */
static enum tally_status status_of_code(const char *code)
{
    static const char *const names[] = {
#define TALLY_STATUS_NAME(symbol, http, connect, connect_http, retryable, title) #symbol,
        TALLY_STATUS_TABLE(TALLY_STATUS_NAME)
#undef TALLY_STATUS_NAME
    };
    for (size_t i = 1; i < sizeof names / sizeof names[0]; i++) {
        if (strcasecmp(names[i], code) == 0) {
            return (enum tally_status)i;
        }
    }
    return tally_status_of_connect_code(code);
}

/* For responses of other programs, such as a proxy. A proxy sends 502 to 504 when the coordinator
 * is down. */
static enum tally_status status_of_http(int http_status)
{
    switch (http_status) {
    case 408:
        return TALLY_DEADLINE;
    case 409:
        return TALLY_FAILED_PRECONDITION;
    case 429:
        return TALLY_RESOURCE_EXHAUSTED;
    case 500:
        return TALLY_INTERNAL;
    case 502:
    case 503:
    case 504:
        return TALLY_UNAVAILABLE;
    default:
        break;
    }
    static const enum tally_status like_rest[] = {
        TALLY_INVALID_ARGUMENT, TALLY_UNAUTHENTICATED,        TALLY_PERMISSION_DENIED,
        TALLY_NOT_FOUND,        TALLY_METHOD_NOT_ALLOWED,     TALLY_NOT_ACCEPTABLE,
        TALLY_TOO_LARGE,        TALLY_UNSUPPORTED_MEDIA_TYPE, TALLY_MISDIRECTED,
        TALLY_CANCELLED,        TALLY_UNIMPLEMENTED};
    for (size_t i = 0; i < sizeof like_rest / sizeof like_rest[0]; i++) {
        if (tally_status_info(like_rest[i])->http_status == http_status) {
            return like_rest[i];
        }
    }
    if (http_status >= 400 && http_status < 500) {
        return TALLY_INVALID_ARGUMENT;
    }
    return TALLY_INTERNAL;
}

/* Describes a response that is not one of our errors: HTTP status and first printable words, of a
 * page in HTML its title. */
static void describe_foreign(int http_status, const char *text, size_t n, struct tally_error *err)
{
    static const char TITLE[] = "<title>";
    char excerpt[121];
    const char *title = n > 0 ? memmem(text, n, TITLE, sizeof TITLE - 1) : NULL;
    if (title != NULL) {
        title += sizeof TITLE - 1;
        n -= (size_t)(title - text);
        text = title;
    }
    size_t size = n < sizeof excerpt - 1 ? n : sizeof excerpt - 1;
    if (size > 0) {
        memcpy(excerpt, text, size);
    }
    excerpt[size] = '\0';
    if (title != NULL) {
        excerpt[strcspn(excerpt, "<")] = '\0';
    }
    tally_utf8_sanitize_line(excerpt);
    tally_fail(err, status_of_http(http_status), NULL, "HTTP status %d%s%s", http_status,
               excerpt[0] != '\0' ? ": " : "", excerpt);
}

bool tally_problem_decode(int http_status, const char *text, size_t n, struct tally_error *ret_err)
{
    tally_error_clear(ret_err);
    struct tally_json *object = NULL;
    const char *code = NULL;
    if (tally_json_parse(text, n, &object, NULL) == TALLY_OK) {
        code = tally_json_get_text(object, "code");
    }
    if (code == NULL) {
        describe_foreign(http_status, text, n, ret_err);
    } else {
        const char *message = tally_json_get_text(object, "detail");
        message = message != NULL ? message : tally_json_get_text(object, "message");
        enum tally_status status = status_of_code(code);
        tally_fail(ret_err, status != TALLY_OK ? status : TALLY_INTERNAL,
                   tally_json_get_text(object, "field"), "%s",
                   message != NULL ? message : tally_status_info(status)->title);
        tally_utf8_sanitize_line(ret_err->message);
        tally_utf8_sanitize_line(ret_err->field);
    }
    const bool is_ours = code != NULL;
    tally_json_free(object);
    return is_ours;
}
