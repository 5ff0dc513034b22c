/* allocate: memory for rows. */
#ifndef TALLY_STORAGE_ALLOCATE_H
#define TALLY_STORAGE_ALLOCATE_H

#include <stddef.h>

/* Makes room for n > 0 items of `size` bytes in `array` (NULL = none yet) and returns the array,
 * which may have moved. *capacity counts items and doubles. NULL = no memory, and nothing has
 * changed. Release it with free(). */
void *tally_store_grow(void *array, size_t *capacity, size_t n, size_t size);

#endif
