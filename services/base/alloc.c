#include "services/base/alloc.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "services/base/log.h"

static void check(const void *p, size_t n_bytes)
{
    if (p == NULL) {
        tally_log(TALLY_LOG_ERROR, tally_log_event("out of memory"),
                  tally_log_integer("bytes", (int64_t)n_bytes));
        _exit(1);
    }
}

void *tally_xcalloc(size_t n, size_t size)
{
    void *p = n > 0 && size > 0 ? calloc(n, size) : calloc(1, 1);
    check(p, n * size);
    return p;
}

void *tally_xrealloc(void *old, size_t n, size_t size)
{
    const size_t n_bytes = n * size > 0 ? n * size : 1;
    void *p = size == 0 || n <= SIZE_MAX / size ? realloc(old, n_bytes) : NULL;
    check(p, n_bytes);
    return p;
}

char *tally_xstrdup(const char *text)
{
    char *p = strdup(text);
    check(p, strlen(text) + 1);
    return p;
}
