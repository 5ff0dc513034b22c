/* fetch: asks for memory before a loop over a long vector comes to it. The processor's own
 * prefetching stops at each page, which costs such a loop up to half of its speed. */
#ifndef TALLY_CODEC_NUMERIC_FETCH_H
#define TALLY_CODEC_NUMERIC_FETCH_H

#include <stddef.h>
#include <stdint.h>

enum { TALLY_FETCH_LINE = 64, TALLY_FETCH_AHEAD = 4096 };

/* Asks for n_bytes, TALLY_FETCH_AHEAD bytes behind `at`. They may lie past the end of the vector,
 * where a prefetch may go but a pointer into it may not. */
static inline void tally_fetch_ahead(const void *at, size_t n_bytes)
{
    const uintptr_t first = (uintptr_t)at + TALLY_FETCH_AHEAD;
    for (size_t i = 0; i < n_bytes; i += TALLY_FETCH_LINE) {
        __builtin_prefetch((const void *)(first + i));
    }
}

#endif
