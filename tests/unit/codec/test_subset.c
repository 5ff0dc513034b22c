#include "codec/numeric/subset.h"

#include <stdlib.h>
#include <string.h>

#include "tests/harness.h"

static void draw(uint32_t round, uint32_t total, uint32_t n, uint32_t *ret_drawn)
{
    struct tally_rng rng;
    uint32_t *taken = malloc(tally_subset_room(n) * sizeof *taken);
    CU_ASSERT_PTR_NOT_NULL_FATAL(taken);
    memset(taken, 0xaa, tally_subset_room(n) * sizeof *taken); /* the draw clears it */
    tally_rng_init(&rng, tally_rng_key(5, 0), 3, round, TALLY_RNG_UPLINK);
    tally_subset_draw(&rng, total, n, taken, ret_drawn);
    free(taken);
}

static void test_codec_subset__is_a_set_in_order(void)
{
    static const uint32_t sizes[][2] = {{1, 1},       {2, 1},      {3, 2},         {1000, 1},
                                        {1000, 37},   {1000, 999}, {100000, 1000}, {64, 63},
                                        {1000, 1000}, {64, 32},    {INT32_MAX, 50}};
    static uint32_t drawn[1000];
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        for (uint32_t round = 1; round <= 20; round++) {
            draw(round, sizes[s][0], sizes[s][1], drawn);
            for (uint32_t i = 0; i < sizes[s][1]; i++) {
                CU_ASSERT_TRUE(drawn[i] < sizes[s][0]);
                CU_ASSERT_TRUE(i == 0 || drawn[i - 1] < drawn[i]);
            }
        }
    }
}

/* All 20 subsets of 3 out of 6 occur, each within 5 standard deviations of its share of 20,000
 * draws. */
static void test_codec_subset__subsets_are_equally_likely(void)
{
    enum { DRAWS = 20000 };
    int counts[64] = {0};
    for (uint32_t round = 0; round < DRAWS; round++) {
        uint32_t drawn[3];
        draw(round, 6, 3, drawn);
        counts[1 << drawn[0] | 1 << drawn[1] | 1 << drawn[2]]++;
    }
    int n = 0;
    for (int set = 0; set < 64; set++) {
        n += counts[set] > 0;
        CU_ASSERT_TRUE(counts[set] == 0 || (counts[set] > 846 && counts[set] < 1154));
    }
    CU_ASSERT_EQUAL(n, 20);
}

static void test_codec_subset__room_is_a_power_of_two(void)
{
    static const size_t rows[][2] = {{1, 2}, {2, 4},  {3, 8},
                                     {4, 8}, {5, 16}, {1 << 30, UINT32_C(1) << 31}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CU_ASSERT_EQUAL(tally_subset_room((uint32_t)rows[i][0]), rows[i][1]);
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_codec_subset__is_a_set_in_order),
    TALLY_TEST(test_codec_subset__subsets_are_equally_likely),
    TALLY_TEST(test_codec_subset__room_is_a_power_of_two),
};
TALLY_SUITE(codec_subset, TESTS);
