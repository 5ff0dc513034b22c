#include "services/base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tally_text_put_bytes(struct tally_text *text, const char *bytes, size_t n)
{
    if (text->status == TALLY_OK) {
        text->status = tally_buffer_append(text->out, bytes, n);
    }
}

void tally_text_put(struct tally_text *text, const char *piece)
{
    tally_text_put_bytes(text, piece, strlen(piece));
}

void tally_text_printf(struct tally_text *text, const char *format, ...)
{
    char *piece = NULL;
    va_list arguments;
    va_start(arguments, format);
    const int n = vasprintf(&piece, format, arguments);
    va_end(arguments);
    if (n >= 0) {
        tally_text_put_bytes(text, piece, (size_t)n);
        free(piece);
    } else if (text->status == TALLY_OK) {
        text->status = TALLY_NO_MEMORY;
    }
}
