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

/* Deals 1,000 points of labels 0 to 3. *ret_most <- the mean, over the labels, of the largest share
 * that a client has of a label. */
static void deal(double alpha, uint32_t clients, uint32_t run, uint32_t *order,
                 struct tally_shard *shards, double *ret_most)
{
    enum { POINTS = 1000, LABELS = 4 };
    double labels[POINTS];
    bool seen[POINTS] = {false};
    uint32_t next = 0;
    for (int i = 0; i < POINTS; i++) {
        labels[i] = i % 7 % LABELS;
    }
    CU_ASSERT_TRUE_FATAL(tally_shard_dirichlet(tally_rng_key(3, run), alpha, labels, POINTS,
                                               clients, order, shards));
    double n_of[LABELS] = {0}, most[LABELS] = {0};
    for (uint32_t m = 0; m < clients; m++) {
        double n[LABELS] = {0};
        CU_ASSERT_TRUE(shards[m].size >= 1);
        CU_ASSERT_EQUAL(shards[m].first, next);
        next += shards[m].size;
        for (uint32_t i = shards[m].first; i < next; i++) {
            CU_ASSERT_FALSE(seen[order[i]]);
            seen[order[i]] = true;
            n[(int)labels[order[i]]]++;
        }
        for (int k = 0; k < LABELS; k++) {
            n_of[k] += n[k];
            most[k] = n[k] > most[k] ? n[k] : most[k];
        }
    }
    CU_ASSERT_EQUAL(next, POINTS);
    *ret_most = 0;
    for (int k = 0; k < LABELS; k++) {
        *ret_most += most[k] / n_of[k] / LABELS;
    }
}

static void test_objectives_sharding__dirichlet_deals_every_point_once(void)
{
    static const double alphas[] = {1e-4, 0.1, 1, 1e6};
    static const uint32_t clients[] = {1, 2, 10, 300, 999, 1000};
    uint32_t order[1000];
    struct tally_shard shards[1000];
    double most;
    for (size_t a = 0; a < 4; a++) {
        for (size_t c = 0; c < 6; c++) {
            deal(alphas[a], clients[c], 0, order, shards, &most);
        }
    }
}

/* With 10 clients the largest part of a label is 1/10 for alpha = infinity, and 1 for alpha = 0.
 * The largest of 10 spacings of a stick (alpha = 1) has mean (1 + 1/2 + ... + 1/10) / 10 = 0.293
 * and a standard deviation of about 0.08. */
static void test_objectives_sharding__dirichlet_is_as_even_as_alpha(void)
{
    enum { RUNS = 50 };
    static const struct {
        double alpha, least, most;
    } rows[] = {{1e6, 0.1, 0.105}, {1, 0.27, 0.316}, {1e-4, 0.98, 1}};
    uint32_t order[1000];
    struct tally_shard shards[10];
    for (size_t i = 0; i < 3; i++) {
        double sum = 0;
        for (uint32_t run = 0; run < RUNS; run++) {
            double most;
            deal(rows[i].alpha, 10, run, order, shards, &most);
            sum += most / RUNS;
        }
        CU_ASSERT_TRUE(sum >= rows[i].least && sum <= rows[i].most);
    }
}

static void test_objectives_sharding__dirichlet_follows_from_the_key(void)
{
    uint32_t a[1000], b[1000];
    struct tally_shard of_a[10], of_b[10];
    double most;
    deal(0.5, 10, 0, a, of_a, &most);
    deal(0.5, 10, 0, b, of_b, &most);
    CU_ASSERT_EQUAL(memcmp(a, b, sizeof a), 0);
    CU_ASSERT_EQUAL(memcmp(of_a, of_b, sizeof of_a), 0);
    deal(0.5, 10, 1, b, of_b, &most);
    CU_ASSERT_NOT_EQUAL(memcmp(of_a, of_b, sizeof of_a), 0);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_objectives_sharding__shards_partition_the_points),
    TALLY_TEST(test_objectives_sharding__permutation_has_every_point_once),
    TALLY_TEST(test_objectives_sharding__permutation_follows_from_the_key),
    TALLY_TEST(test_objectives_sharding__all_orders_are_as_likely),
    TALLY_TEST(test_objectives_sharding__dirichlet_deals_every_point_once),
    TALLY_TEST(test_objectives_sharding__dirichlet_is_as_even_as_alpha),
    TALLY_TEST(test_objectives_sharding__dirichlet_follows_from_the_key),
};
TALLY_SUITE(objectives_sharding, TESTS);
