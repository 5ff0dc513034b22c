#include "codec/buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_CAPACITY = 64 };

void tally_buffer_fini(struct tally_buffer *buffer)
{
    if (buffer != NULL) {
        free(buffer->data);
        *buffer = (struct tally_buffer){.limit = buffer->limit};
    }
}

enum tally_status tally_buffer_reserve(struct tally_buffer *buffer, size_t n)
{
    size_t limit = buffer->limit != 0 ? buffer->limit : SIZE_MAX / 2;
    if (n > limit - buffer->size) {
        return TALLY_TOO_LARGE;
    }
    size_t need = buffer->size + n;
    if (need <= buffer->capacity) {
        return TALLY_OK;
    }
    /* No more than is asked for at once: a body, a broadcast or a state has its size in advance. */
    size_t capacity = buffer->capacity + buffer->capacity / 2;
    if (capacity < need) {
        capacity = need < LEAST_CAPACITY ? LEAST_CAPACITY : need;
    }
    if (capacity > limit) {
        capacity = limit;
    }
    uint8_t *data = realloc(buffer->data, capacity);
    if (data == NULL) {
        return TALLY_NO_MEMORY;
    }
    buffer->data = data;
    buffer->capacity = capacity;
    return TALLY_OK;
}

void tally_buffer_fit(struct tally_buffer *buffer)
{
    const size_t fit = buffer->size < LEAST_CAPACITY ? LEAST_CAPACITY : buffer->size;
    if (buffer->capacity / 2 <= fit) {
        return;
    }
    uint8_t *data = realloc(buffer->data, fit);
    if (data != NULL) {
        buffer->data = data;
        buffer->capacity = fit;
    }
}

enum tally_status tally_buffer_append(struct tally_buffer *buffer, const void *bytes, size_t n)
{
    enum tally_status status = tally_buffer_reserve(buffer, n);
    if (status == TALLY_OK && n > 0) {
        memcpy(buffer->data + buffer->size, bytes, n);
        buffer->size += n;
    }
    return status;
}

enum tally_status tally_buffer_append_text(struct tally_buffer *buffer, const char *text)
{
    return tally_buffer_append(buffer, text, strlen(text));
}

enum tally_status tally_buffer_printf(struct tally_buffer *buffer, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    enum tally_status status = TALLY_INTERNAL;
    if (n >= 0) {
        status = tally_buffer_reserve(buffer, (size_t)n + 1);
    }
    if (status == TALLY_OK) {
        vsnprintf((char *)buffer->data + buffer->size, (size_t)n + 1, format, again);
        buffer->size += (size_t)n;
    }
    va_end(again);
    return status;
}
