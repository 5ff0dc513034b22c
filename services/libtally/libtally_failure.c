#include <stdio.h>

#include "services/libtally/libtally_internal.h"

const char *tally_version(void)
{
    return TALLY_VERSION;
}

/* What a caller can tell apart; the rest is INTERNAL. */
static enum tally_code code_of(enum tally_status status)
{
#define CASE(symbol)                                                                               \
    case TALLY_##symbol:                                                                           \
        return TALLY_CODE_##symbol
    switch ((int)status) {
        CASE(OK);
        CASE(INVALID_ARGUMENT);
        CASE(MALFORMED);
        CASE(OUT_OF_RANGE);
        CASE(NOT_FINITE);
        CASE(NO_MEMORY);
        CASE(UNAUTHENTICATED);
        CASE(PERMISSION_DENIED);
        CASE(NOT_FOUND);
        CASE(UNAVAILABLE);
        CASE(FAILED_PRECONDITION);
        CASE(DATA_LOSS);
    case TALLY_MISDIRECTED:
        return TALLY_CODE_PERMISSION_DENIED;
    case TALLY_TOO_LARGE:
        return TALLY_CODE_OUT_OF_RANGE;
    default:
        return TALLY_CODE_INTERNAL;
    }
#undef CASE
}

const char *tally_code_name(int code)
{
    static const char *const NAMES[] = {
        "OK",         "INVALID_ARGUMENT", "MALFORMED",           "OUT_OF_RANGE",
        "NOT_FINITE", "NO_MEMORY",        "UNAUTHENTICATED",     "PERMISSION_DENIED",
        "NOT_FOUND",  "UNAVAILABLE",      "FAILED_PRECONDITION", "DATA_LOSS",
        "INTERNAL"};
    return NAMES[code >= TALLY_CODE_OK && code <= TALLY_CODE_INTERNAL ? code : TALLY_CODE_INTERNAL];
}

enum tally_code tally_failure_of(enum tally_status status, const struct tally_error *err,
                                 struct tally_failure *failure)
{
    const enum tally_code code = code_of(status);
    if (code != TALLY_CODE_OK && failure != NULL) {
        const char *message =
            err->message[0] != '\0' ? err->message : tally_status_info(status)->title;
        failure->code = (int)code;
        snprintf(failure->field, sizeof failure->field, "%s", err->field);
        snprintf(failure->message, sizeof failure->message, "%s", message);
    }
    return code;
}
