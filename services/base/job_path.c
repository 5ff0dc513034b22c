#include "services/base/job_path.h"

#include <stdio.h>
#include <string.h>

enum { MAX_ID_BYTES = 64, ENCODED_BYTES = 3 };

static bool is_plain(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_';
}

/* Encodes as much as fits, NUL-terminated; returns how many bytes of `text` it encoded. */
static size_t encode(const char *text, char *ret_text, size_t capacity)
{
    size_t i = 0, n = 0;
    for (; text[i] != '\0' && n + ENCODED_BYTES < capacity; i++) {
        if (is_plain(text[i])) {
            ret_text[n++] = text[i];
        } else {
            n += (size_t)snprintf(ret_text + n, capacity - n, "%%%02X", (unsigned char)text[i]);
        }
    }
    ret_text[n] = '\0';
    return i;
}

void tally_job_path(const char *id, const char *rest, char ret_path[TALLY_JOB_PATH_CAPACITY])
{
    char encoded[MAX_ID_BYTES * ENCODED_BYTES + ENCODED_BYTES + 1];
    encode(id, encoded, sizeof encoded);
    snprintf(ret_path, TALLY_JOB_PATH_CAPACITY, "/v1/jobs/%s%s", encoded, rest);
}

bool tally_query_value(const char *text, char ret_text[TALLY_QUERY_VALUE_CAPACITY])
{
    return encode(text, ret_text, TALLY_QUERY_VALUE_CAPACITY) == strlen(text);
}
