#include "services/objectives/sharding.h"

struct tally_shard tally_shard_of(uint32_t points, uint32_t clients, uint32_t client)
{
    uint32_t size = points / clients;
    uint32_t longer = points % clients;
    uint32_t extra = client < longer ? client : longer;
    return (struct tally_shard){.first = client * size + extra, .size = size + (client < longer)};
}

void tally_shard_permutation(struct tally_rng_key key, uint32_t points, uint32_t *order)
{
    struct tally_rng rng;
    tally_rng_init(&rng, key, TALLY_RNG_SERVER, 0, TALLY_RNG_SHARDING);
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
