/* fetch: asks for memory before a loop over a long vector comes to it. The processor's own
 * prefetching stops at each page, which costs such a loop up to half of its speed. */
#ifndef TALLY_CODEC_NUMERIC_FETCH_H
#define TALLY_CODEC_NUMERIC_FETCH_H

#include <stddef.h>
#include <stdint.h>

enum { TALLY_FETCH_LINE = 64, TALLY_FETCH_AHEAD = 4096 };

/* Asks for the n_bytes that begin at `at` + TALLY_FETCH_AHEAD. They may lie past the end of the
 * vector: a prefetch may go there, but a pointer may not, so the address is an integer. */
static inline void tally_fetch_ahead(const void *at, size_t n_bytes)
{
    const uintptr_t first = (uintptr_t)at + TALLY_FETCH_AHEAD;
    for (size_t i = 0; i < n_bytes; i += TALLY_FETCH_LINE) {
        __builtin_prefetch((const void *)(first + i));
    }
}

#endif
