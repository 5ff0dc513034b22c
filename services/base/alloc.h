/* alloc: small allocations of the programs. If there is no memory, the process ends with a message
 * and exit code 1: what a store of files or a server has acknowledged is durable, so a coordinator
 * that is started again loses none of it.
 *
 * Not for request bodies, nor for what grows with the dimension of a model or the number of
 * clients: such allocations fail with NO_MEMORY. Not for libtally, whose process belongs to the
 * user. */
#ifndef TALLY_SERVICES_BASE_ALLOC_H
#define TALLY_SERVICES_BASE_ALLOC_H

#include <stddef.h>

/* n * size bytes, all zero. Never NULL, even if n * size is 0. */
void *tally_xcalloc(size_t n, size_t size);

/* `old`, which may be NULL, with room for n * size bytes. New bytes are not set. */
void *tally_xrealloc(void *old, size_t n, size_t size);

char *tally_xstrdup(const char *text);

#endif
