/* error: one status enum for the whole product, and a caller-owned description of what went wrong.
 *
 * Every function that can fail returns `enum tally_status`, TALLY_OK being 0, and takes an optional
 * `struct tally_error *`. The first failure fills it; later ones only prepend context. There is no
 * thread-local last error. Messages name the value and the limit: "levels 0 outside [1, 32767]". */
#ifndef TALLY_CODEC_ERROR_H
#define TALLY_CODEC_ERROR_H

#include <stdbool.h>

/* One row per status: symbol, HTTP status of the REST interface, Connect code, HTTP status that the
 * Connect protocol prescribes for that code, retryable, title. */
#define TALLY_STATUS_TABLE(X)                                                                      \
    X(OK, 200, "", 200, false, "ok")                                                               \
    X(INVALID_ARGUMENT, 400, "invalid_argument", 400, false, "invalid argument")                   \
    X(MALFORMED, 400, "invalid_argument", 400, false, "malformed input")                           \
    X(OUT_OF_RANGE, 400, "invalid_argument", 400, false, "value out of range")                     \
    X(NOT_FINITE, 400, "invalid_argument", 400, false, "NaN or infinity")                          \
    X(UNAUTHENTICATED, 401, "unauthenticated", 401, false, "authentication required")              \
    X(PERMISSION_DENIED, 403, "permission_denied", 403, false, "not permitted")                    \
    X(NOT_FOUND, 404, "not_found", 404, false, "not found")                                        \
    X(METHOD_NOT_ALLOWED, 405, "unimplemented", 501, false, "method not allowed")                  \
    X(NOT_ACCEPTABLE, 406, "invalid_argument", 400, false, "not acceptable")                       \
    X(ALREADY_EXISTS, 409, "already_exists", 409, false, "already exists")                         \
    X(FAILED_PRECONDITION, 409, "failed_precondition", 400, false, "not possible in this state")   \
    X(TOO_LARGE, 413, "resource_exhausted", 429, false, "content too large")                       \
    X(UNSUPPORTED_MEDIA_TYPE, 415, "invalid_argument", 400, false, "unsupported media type")       \
    X(MISDIRECTED, 421, "permission_denied", 421, false, "misdirected request")                    \
    X(RESOURCE_EXHAUSTED, 429, "resource_exhausted", 429, true, "limit reached")                   \
    X(CANCELLED, 499, "canceled", 499, false, "cancelled")                                         \
    X(NO_MEMORY, 503, "resource_exhausted", 429, true, "out of memory")                            \
    X(STORE, 503, "unavailable", 503, true, "store unavailable")                                   \
    X(UNAVAILABLE, 503, "unavailable", 503, true, "unavailable")                                   \
    X(DEADLINE, 504, "deadline_exceeded", 504, true, "deadline exceeded")                          \
    X(UNIMPLEMENTED, 501, "unimplemented", 501, false, "not implemented")                          \
    X(DATA_LOSS, 500, "data_loss", 500, false, "stored data is damaged")                           \
    X(INTERNAL, 500, "internal", 500, false, "internal error")

enum tally_status {
#define TALLY_STATUS_ENUM(symbol, http, connect, connect_http, retryable, title) TALLY_##symbol,
    TALLY_STATUS_TABLE(TALLY_STATUS_ENUM)
#undef TALLY_STATUS_ENUM
};

/* Properties of a status; tally_status_info() never returns NULL. */
struct tally_status_info {
    const char *name;         /* "INVALID_ARGUMENT" */
    const char *title;        /* for people */
    int http_status;          /* REST */
    const char *connect_code; /* Connect protocol, "" for OK */
    int connect_http_status;
    bool retryable;
};
const struct tally_status_info *tally_status_info(enum tally_status status);

/* The status whose Connect code is `code`, TALLY_INTERNAL for an unknown one. */
enum tally_status tally_status_of_connect_code(const char *code);

struct tally_error {
    enum tally_status status;
    char field[96];    /* path of the offending field, "algorithm.step_size"; "" if none */
    char message[384]; /* one sentence, no newline */
};

/* An error without content; `= TALLY_ERROR_INIT`. */
#define TALLY_ERROR_INIT                                                                           \
    {                                                                                              \
        TALLY_OK, "", ""                                                                           \
    }

/* Records `status`, which is not OK, with a message, and returns it. `err` may be NULL. If `err`
 * already holds a failure, it is kept (first one wins). `field` may be NULL. A macro, so that
 * compilers and analysers see that it returns `status`; it evaluates `status` twice. */
#define tally_fail(err, status, field, ...)                                                        \
    tally_status_recorded((status), tally_error_record((err), (status), (field), __VA_ARGS__))
/* True if this was the first failure and was recorded. */
bool tally_error_record(struct tally_error *err, enum tally_status status, const char *field,
                        const char *format, ...) __attribute__((format(printf, 4, 5)));
static inline enum tally_status tally_status_recorded(enum tally_status status, bool is_first)
{
    (void)is_first;
    return status;
}

/* Puts "context: " in front of the message; err may be NULL. */
void tally_error_wrap(struct tally_error *err, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Puts "prefix." in front of the field path; err may be NULL. */
void tally_error_in_field(struct tally_error *err, const char *prefix);

/* Empties `err` for reuse. */
void tally_error_clear(struct tally_error *err);

#endif
