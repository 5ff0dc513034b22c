#include "services/objectives/data/sharding.h"

#include <string.h>

struct tally_shard tally_shard_of(uint32_t points, uint32_t clients, uint32_t client)
{
    uint32_t size = points / clients;
    uint32_t longer = points % clients;
    uint32_t extra = client < longer ? client : longer;
    return (struct tally_shard){.first = client * size + extra, .size = size + (client < longer)};
}

/* `round` selects the stream. */
static void permute(struct tally_rng_key key, uint32_t round, uint32_t points, uint32_t *order)
{
    struct tally_rng rng;
    tally_rng_init(&rng, key, TALLY_RNG_SERVER, round, TALLY_RNG_SHARDING);
    for (uint32_t i = 0; i < points; i++) {
        order[i] = i;
    }
    for (uint32_t i = points; i > 1; i--) {
        uint32_t j = tally_rng_below(&rng, i);
        uint32_t point = order[i - 1];
        order[i - 1] = order[j];
        order[j] = point;
    }
}

void tally_shard_permutation(struct tally_rng_key key, uint32_t points, uint32_t *order)
{
    permute(key, 0, points, order);
}

void tally_shard_permutation_of_chosen(struct tally_rng_key key, uint32_t points, uint32_t *order)
{
    permute(key, 1, points, order);
}

/* Moves rows cycle by cycle. The first row of a cycle is kept in `spare` until its place is free.
 */
void tally_shard_reorder(void *rows, size_t n_bytes, uint32_t points, uint32_t *order, void *spare)
{
    uint8_t *at = rows;
    for (uint32_t first = 0; first < points; first++) {
        if (order[first] == first) {
            continue;
        }
        memcpy(spare, at + first * n_bytes, n_bytes);
        uint32_t to = first;
        while (order[to] != first) {
            const uint32_t from = order[to];
            memcpy(at + to * n_bytes, at + from * n_bytes, n_bytes);
            order[to] = to;
            to = from;
        }
        memcpy(at + to * n_bytes, spare, n_bytes);
        order[to] = to;
    }
}
