#include "services/objectives/data/sharding.h"

#include <stdlib.h>
#include <string.h>

#include "tests/harness.h"

static void test_objectives_sharding__shards_partition_the_points(void)
{
    static const uint32_t cases[][2] = {
        {1, 1},     {2, 1},    {2, 2},     {7, 3},   {2000, 10},         {63, 5},
        {50000, 7}, {100, 99}, {100, 100}, {101, 2}, {100000000, 100000}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        const uint32_t points = cases[c][0], clients = cases[c][1];
        uint32_t next = 0, previous = UINT32_MAX;
        bool good = true;
        for (uint32_t m = 0; m < clients; m++) {
            struct tally_shard shard = tally_shard_of(points, clients, m);
            good = good && shard.first == next && shard.size <= previous; /* longer ones first */
            good = good && (shard.size == points / clients || shard.size == points / clients + 1);
            next += shard.size;
            previous = shard.size;
        }
        CU_ASSERT_TRUE(good);
        CU_ASSERT_EQUAL(next, points);
    }
}

static void test_objectives_sharding__permutation_has_every_point_once(void)
{
    static const uint32_t sizes[] = {1, 2, 3, 64, 5000};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        const uint32_t n = sizes[s];
        uint32_t *order = malloc(n * sizeof *order);
        bool *seen = calloc(n, sizeof *seen);
        CU_ASSERT_FATAL(order != NULL && seen != NULL);
        tally_shard_permutation(tally_rng_key(3, 0), n, order);
        bool once = true;
        uint32_t moved = 0;
        for (uint32_t i = 0; i < n; i++) {
            once = once && order[i] < n && !seen[order[i]];
            seen[order[i] % n] = true;
            moved += order[i] != i;
        }
        CU_ASSERT_TRUE(once);
        CU_ASSERT_TRUE(n < 64 || moved > n / 2);
        free(order);
        free(seen);
    }
}

static void test_objectives_sharding__permutation_follows_from_the_key(void)
{
    uint32_t a[100], b[100], other[100];
    tally_shard_permutation(tally_rng_key(3, 0), 100, a);
    tally_shard_permutation(tally_rng_key(3, 0), 100, b);
    CU_ASSERT_EQUAL(memcmp(a, b, sizeof a), 0);
    tally_shard_permutation(tally_rng_key(4, 0), 100, other);
    CU_ASSERT_NOT_EQUAL(memcmp(a, other, sizeof a), 0);
    tally_shard_permutation(tally_rng_key(3, 1), 100, other);
    CU_ASSERT_NOT_EQUAL(memcmp(a, other, sizeof a), 0);
    tally_shard_permutation_of_chosen(tally_rng_key(3, 0), 100, other);
    CU_ASSERT_NOT_EQUAL(memcmp(a, other, sizeof a), 0);
}

/* All 24 orders of 4 points occur about equally often: chi-square with 23 degrees of freedom is
 * above 49.7 with probability 0.001. */
static void test_objectives_sharding__all_orders_are_as_likely(void)
{
    enum { TRIALS = 24000 };
    int counts[256] = {0};
    for (uint32_t t = 0; t < TRIALS; t++) {
        uint32_t order[4];
        tally_shard_permutation(tally_rng_key(5, t), 4, order);
        counts[order[0] | order[1] << 2 | order[2] << 4 | order[3] << 6]++;
    }
    double chi_square = 0;
    int occurring = 0;
    for (int i = 0; i < 256; i++) {
        if (counts[i] > 0) {
            occurring++;
            chi_square += (counts[i] - 1000.0) * (counts[i] - 1000.0) / 1000;
        }
    }
    CU_ASSERT_EQUAL(occurring, 24);
    CU_ASSERT_TRUE(chi_square < 49.7);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_objectives_sharding__shards_partition_the_points),
    TALLY_TEST(test_objectives_sharding__permutation_has_every_point_once),
    TALLY_TEST(test_objectives_sharding__permutation_follows_from_the_key),
    TALLY_TEST(test_objectives_sharding__all_orders_are_as_likely),
};
TALLY_SUITE(objectives_sharding, TESTS);
