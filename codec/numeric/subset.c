#include "codec/numeric/subset.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

size_t tally_subset_room(uint32_t n)
{
    size_t room = 2;
    while (room < 2 * (size_t)n) {
        room *= 2;
    }
    return room;
}

/* Adds a number to the table, whose entries are number + 1. False if it is there already. */
static bool take(uint32_t *taken, uint32_t mask, uint32_t number)
{
    static const uint32_t multiplier = 2654435769; /* 2^32 / golden ratio: spreads neighbours */
    uint32_t at = ((number * multiplier) >> 7) & mask;
    while (taken[at] != 0 && taken[at] != number + 1) {
        at = (at + 1) & mask;
    }
    const bool is_new = taken[at] == 0;
    taken[at] = number + 1;
    return is_new;
}

static int compare(const void *a, const void *b)
{
    const uint32_t *left = a, *right = b;
    return (*left > *right) - (*left < *right);
}

void tally_subset_draw(struct tally_rng *rng, uint32_t total, uint32_t n, uint32_t *taken,
                       uint32_t *ret_drawn)
{
    if (n == total) {
        for (uint32_t i = 0; i < n; i++) {
            ret_drawn[i] = i;
        }
        return;
    }
    const size_t room = tally_subset_room(n);
    const uint32_t mask = (uint32_t)(room - 1);
    memset(taken, 0, room * sizeof *taken);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t last = total - n + i;
        const uint32_t number = tally_rng_below(rng, last + 1);
        ret_drawn[i] = take(taken, mask, number) ? number : last;
        if (ret_drawn[i] == last && number != last) {
            take(taken, mask, last);
        }
    }
    qsort(ret_drawn, n, sizeof *ret_drawn, compare);
}
