#include "storage/allocate.h"

#include <stdlib.h>

enum { FIRST_CAPACITY = 16 };

void *tally_store_grow(void *array, size_t *capacity, size_t n, size_t size)
{
    size_t wanted = *capacity > 0 ? *capacity : FIRST_CAPACITY;
    while (wanted < n) {
        wanted *= 2;
    }
    if (wanted == *capacity) {
        return array;
    }
    void *grown = reallocarray(array, wanted, size);
    if (grown != NULL) {
        *capacity = wanted;
    }
    return grown;
}
