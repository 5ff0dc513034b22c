#include "codec/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct tally_status_info STATUS_INFO[] = {
#define TALLY_STATUS_ROW(symbol, http, connect, connect_http, retryable, title)                    \
    {#symbol, title, http, connect, connect_http, retryable},
    TALLY_STATUS_TABLE(TALLY_STATUS_ROW)
#undef TALLY_STATUS_ROW
};

static const size_t N_STATUS = sizeof STATUS_INFO / sizeof STATUS_INFO[0];

const struct tally_status_info *tally_status_info(enum tally_status status)
{
    size_t i = (size_t)status;
    return &STATUS_INFO[i < N_STATUS ? i : (size_t)TALLY_INTERNAL];
}

enum tally_status tally_status_of_connect_code(const char *code)
{
    for (size_t i = 1; i < N_STATUS; i++) {
        if (strcmp(STATUS_INFO[i].connect_code, code) == 0) {
            return (enum tally_status)i;
        }
    }
    return TALLY_INTERNAL;
}

bool tally_error_record(struct tally_error *err, enum tally_status status, const char *field,
                        const char *format, ...)
{
    if (err == NULL || err->status != TALLY_OK) {
        return false;
    }
    err->status = status;
    snprintf(err->field, sizeof err->field, "%s", field != NULL ? field : "");
    va_list args;
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    return true;
}

/* Prepends `head` to the NUL-terminated `text` of capacity `cap`, cutting the tail if need be. */
static void prepend(char *text, size_t cap, const char *head)
{
    size_t n_head = strlen(head);
    if (n_head >= cap) {
        n_head = cap - 1;
    }
    size_t n_text = strlen(text);
    if (n_text > cap - 1 - n_head) {
        n_text = cap - 1 - n_head;
    }
    memmove(text + n_head, text, n_text);
    memcpy(text, head, n_head);
    text[n_head + n_text] = '\0';
}

void tally_error_wrap(struct tally_error *err, const char *format, ...)
{
    if (err == NULL) {
        return;
    }
    char head[160];
    va_list args;
    va_start(args, format);
    vsnprintf(head, sizeof head, format, args);
    va_end(args);
    prepend(err->message, sizeof err->message, ": ");
    prepend(err->message, sizeof err->message, head);
}

void tally_error_in_field(struct tally_error *err, const char *prefix)
{
    if (err == NULL) {
        return;
    }
    char head[98];
    snprintf(head, sizeof head, "%s%s", prefix, err->field[0] != '\0' ? "." : "");
    prepend(err->field, sizeof err->field, head);
}

void tally_error_clear(struct tally_error *err)
{
    if (err != NULL) {
        *err = (struct tally_error)TALLY_ERROR_INIT;
    }
}
