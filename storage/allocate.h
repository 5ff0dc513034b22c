/* allocate: memory for rows, in two functions that a test can replace at link time to make the n-th
 * allocation fail (tests/contract/memory/store_memory_exhaustion.c). Release it with free(). */
#ifndef TALLY_STORAGE_ALLOCATE_H
#define TALLY_STORAGE_ALLOCATE_H

#include <stddef.h>

/* Returns n > 0 bytes of zeros; NULL = no memory. */
void *tally_store_allocate(size_t n);
/* Makes room for n > 0 items of `size` bytes in `array` (NULL = none yet) and returns the array,
 * which may have moved. *capacity counts items and doubles. NULL = no memory, and nothing has
 * changed. */
void *tally_store_grow(void *array, size_t *capacity, size_t n, size_t size);

#endif
