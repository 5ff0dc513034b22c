/* sharding: which data points belong to which client.
 *
 * The points, in the order of a permutation drawn from the seed or in another order (data.h), are
 * cut into M runs whose sizes differ by at most one, the longer ones first. */
#ifndef TALLY_SERVICES_OBJECTIVES_DATA_SHARDING_H
#define TALLY_SERVICES_OBJECTIVES_DATA_SHARDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/numeric/rng.h"

/* Points order[first] .. order[first + size - 1] of the permutation. */
struct tally_shard {
    uint32_t first;
    uint32_t size;
};

/* Shard of client m of M; 1 <= clients <= points, client < clients. */
struct tally_shard tally_shard_of(uint32_t points, uint32_t clients, uint32_t client);

/* How many points a gradient query of n points looks at: n, or all of the shard for n = 0. */
static inline int64_t tally_shard_queried(struct tally_shard shard, int64_t n)
{
    return n > 0 ? n : shard.size;
}

/* Point i of a query: drawn uniformly with replacement, or the i-th of all. */
static inline uint32_t tally_shard_point(struct tally_shard shard, int64_t n, int64_t i,
                                         struct tally_rng *rng)
{
    return shard.first + (n > 0 ? tally_rng_below(rng, shard.size) : (uint32_t)i);
}

/* Puts rows of n_bytes into order, so that row p becomes what was row order[p]. `order` is a
 * permutation and becomes the identity; `spare` has room for a row. */
void tally_shard_reorder(void *rows, size_t n_bytes, uint32_t points, uint32_t *order, void *spare);

/* Fills order[points] with the permutation (Fisher and Yates, points - 1 draws). */
void tally_shard_permutation(struct tally_rng_key key, uint32_t points, uint32_t *order);

/* The same from a second random stream, for the points that tally_shard_permutation() has
 * selected. */
void tally_shard_permutation_of_chosen(struct tally_rng_key key, uint32_t points, uint32_t *order);

/* The same from a third random stream: the first points of the permutation are held out
 * for tests. */
void tally_shard_permutation_of_test(struct tally_rng_key key, uint32_t points, uint32_t *order);

/* Deals points with labels to clients: the points of each label are split in proportions drawn from
 * the symmetric Dirichlet distribution with parameter alpha > 0, so that a small alpha gives most
 * points of a label to few clients. A client without points gets one from the client with the most.
 * Fills order[points] and shards[clients]; clients <= points. False if memory ran out. */
bool tally_shard_dirichlet(struct tally_rng_key key, double alpha, const double *labels,
                           uint32_t points, uint32_t clients, uint32_t *order,
                           struct tally_shard *shards);

#endif
