#include "codec/numeric/rng.h"

#include <math.h>
#include <string.h>

#include "tests/harness.h"

/* Known answers: Random123's kat_vectors (philox 4 32) for both round counts. The rows that it
 * lacks and all other constants in this file come from a Python implementation of the paper's
 * figure, written independently of rng.c. */
static void test_codec_rng__philox_known_answers(void)
{
    static const struct {
        unsigned rounds;
        uint32_t counter[4], key[2], out[4];
    } rows[] = {
        {7, {0, 0, 0, 0}, {0, 0}, {0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48}},
        {7,
         {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX},
         {UINT32_MAX, UINT32_MAX},
         {0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662}},
        {7,
         {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a}},
        {10, {0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {10,
         {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX},
         {UINT32_MAX, UINT32_MAX},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {10,
         {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint32_t out[4];
        tally_philox4x32(rows[i].rounds, rows[i].counter, rows[i].key, out);
        CU_ASSERT_EQUAL(memcmp(out, rows[i].out, sizeof out), 0);
    }
}

static void test_codec_rng__key_depends_on_all_of_seed_and_run(void)
{
    struct tally_rng_key key = tally_rng_key(UINT64_C(0x0123456789abcdef), 3);
    CU_ASSERT_EQUAL(key.word[0], 0x07ecdcae);
    CU_ASSERT_EQUAL(key.word[1], 0x3d0b82fc);
    key = tally_rng_key(1, 0);
    CU_ASSERT_EQUAL(key.word[0], 0xf50c9398);
    CU_ASSERT_EQUAL(key.word[1], 0xb36cdab2);
    const struct tally_rng_key others[] = {tally_rng_key(1, 1), tally_rng_key(2, 0),
                                           tally_rng_key(1 + (UINT64_C(1) << 32), 0)};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        CU_ASSERT_NOT_EQUAL(memcmp(&others[i], &key, sizeof key), 0);
    }
}

static void test_codec_rng__stream_is_index_client_round_purpose(void)
{
    static const uint32_t expected[8] = {0xce0fc617, 0x8e076626, 0x37fbadaf, 0x26eb0ade,
                                         0x1e98e700, 0x431d8d49, 0xda710358, 0xd1299ef0};
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(UINT64_C(0x0123456789abcdef), 3), 5, 9, TALLY_RNG_SAMPLING);
    for (int i = 0; i < 8; i++) {
        CU_ASSERT_EQUAL(tally_rng_u32(&rng), expected[i]);
    }
    tally_rng_init(&rng, tally_rng_key(UINT64_C(0x0123456789abcdef), 3), 5, 9, TALLY_RNG_SAMPLING);
    CU_ASSERT_EQUAL(tally_rng_uniform(&rng), 0.8049281890398823);
}

static void test_codec_rng__streams_do_not_depend_on_order(void)
{
    struct tally_rng_key key = tally_rng_key(7, 0);
    struct tally_rng a, b;
    tally_rng_init(&a, key, 1, 1, TALLY_RNG_UPLINK);
    tally_rng_init(&b, key, 2, 1, TALLY_RNG_UPLINK);
    uint32_t alone[16], mixed[16];
    for (int i = 0; i < 16; i++) {
        alone[i] = tally_rng_u32(&a);
    }
    tally_rng_init(&a, key, 1, 1, TALLY_RNG_UPLINK);
    for (int i = 0; i < 16; i++) {
        for (int other = 0; other < i % 4; other++) {
            tally_rng_u32(&b);
        }
        mixed[i] = tally_rng_u32(&a);
    }
    CU_ASSERT_EQUAL(memcmp(alone, mixed, sizeof alone), 0);
}

/* Two streams differ if their names differ in any part. */
static void test_codec_rng__every_part_of_the_name_counts(void)
{
    struct tally_rng_key key = tally_rng_key(7, 0);
    static const struct {
        uint32_t client, round;
        enum tally_rng_purpose purpose;
    } names[] = {{1, 1, TALLY_RNG_UPLINK},   {2, 1, TALLY_RNG_UPLINK},
                 {1, 2, TALLY_RNG_UPLINK},   {1, 1, TALLY_RNG_DOWNLINK},
                 {1, 1, TALLY_RNG_SAMPLING}, {TALLY_RNG_SERVER, 1, TALLY_RNG_UPLINK}};
    enum { N = sizeof names / sizeof names[0] };
    uint32_t first[N][4];
    for (size_t i = 0; i < N; i++) {
        struct tally_rng rng;
        tally_rng_init(&rng, key, names[i].client, names[i].round, names[i].purpose);
        for (int w = 0; w < 4; w++) {
            first[i][w] = tally_rng_u32(&rng);
        }
        for (size_t j = 0; j < i; j++) {
            CU_ASSERT_NOT_EQUAL(memcmp(first[i], first[j], sizeof first[i]), 0);
        }
    }
}

static void test_codec_rng__uniform_stays_in_its_interval(void)
{
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(3, 0), 0, 0, TALLY_RNG_NOISE);
    bool inside = true, fine = false;
    for (int i = 0; i < 100000; i++) {
        double u = tally_rng_uniform(&rng);
        inside = inside && u >= 0 && u < 1 && u * 0x1p53 == floor(u * 0x1p53);
        fine = fine || fmod(u * 0x1p53, 2) == 1;
    }
    CU_ASSERT_TRUE(inside);
    CU_ASSERT_TRUE(fine); /* all 53 bits are used */
    /* The ends: all bits one and all bits zero. */
    rng = (struct tally_rng){.block = {UINT32_MAX, UINT32_MAX, 0, 0}};
    CU_ASSERT_EQUAL(tally_rng_uniform(&rng), 1 - 0x1p-53);
    CU_ASSERT_EQUAL(tally_rng_uniform(&rng), 0);
}

static void test_codec_rng__below_reaches_both_ends_and_no_further(void)
{
    static const uint32_t limits[] = {1, 2, 3, 7, 10, 2000, 0x80000001u, UINT32_MAX};
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(4, 0), 0, 0, TALLY_RNG_SAMPLING);
    for (size_t l = 0; l < sizeof limits / sizeof limits[0]; l++) {
        uint32_t low = UINT32_MAX, high = 0;
        for (int i = 0; i < 40000; i++) {
            uint32_t v = tally_rng_below(&rng, limits[l]);
            low = v < low ? v : low;
            high = v > high ? v : high;
        }
        CU_ASSERT_TRUE(high < limits[l]);
        if (limits[l] <= 2000) {
            CU_ASSERT_EQUAL(low, 0);
            CU_ASSERT_EQUAL(high, limits[l] - 1);
        }
    }
}

/* Lemire: of the 2^32 words, exactly 2^32 mod n are rejected, namely those whose product has a low
 * half below 2^32 mod n. For n = 3, 2^32 mod 3 = 1: word 0 has product 0 and is rejected. */
static void test_codec_rng__below_rejects_exactly_the_surplus(void)
{
    struct tally_rng rng = {.block = {0, UINT32_MAX, 0x55555556, 0x55555555}};
    CU_ASSERT_EQUAL(tally_rng_below(&rng, 3), 2); /* 0 is rejected, UINT32_MAX gives 2 */
    CU_ASSERT_EQUAL(rng.n_used, 2);
    CU_ASSERT_EQUAL(tally_rng_below(&rng, 3), 1); /* 0x55555556 * 3 = 2^32 + 2 */
    CU_ASSERT_EQUAL(tally_rng_below(&rng, 3), 0); /* 0x55555555 * 3 = 2^32 - 1 */
    rng = (struct tally_rng){.block = {0, 1, 2, 3}};
    CU_ASSERT_EQUAL(tally_rng_below(&rng, 4), 0); /* a power of two rejects nothing */
    CU_ASSERT_EQUAL(rng.n_used, 1);
}

static void test_codec_rng__normal_of_odd_count_is_a_prefix(void)
{
    double five[5], six[6];
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(5, 0), 1, 2, TALLY_RNG_NOISE);
    tally_rng_normal(&rng, five, 5);
    CU_ASSERT_EQUAL(rng.counter[0], 3); /* 4 draws, one block, per pair */
    tally_rng_init(&rng, tally_rng_key(5, 0), 1, 2, TALLY_RNG_NOISE);
    tally_rng_normal(&rng, six, 6);
    CU_ASSERT_EQUAL(memcmp(five, six, sizeof five), 0);
}

static void test_codec_rng__normal_is_finite_at_the_ends_of_uniform(void)
{
    double pair[2];
    struct tally_rng rng = {.block = {UINT32_MAX, UINT32_MAX, 0, 0}};
    tally_rng_normal(&rng, pair, 2);
    CU_ASSERT_DOUBLE_EQUAL(pair[0], sqrt(2 * 53 * log(2)), 1e-12); /* u = 2^-53 */
    CU_ASSERT_EQUAL(pair[1], 0);
    rng = (struct tally_rng){.block = {0, 0, 0, 0}};
    tally_rng_normal(&rng, pair, 2);
    CU_ASSERT_EQUAL(pair[0], 0);
}

static void test_codec_rng__direction_has_the_length(void)
{
    for (size_t n = 1; n <= 50; n++) {
        double v[50], square = 0;
        struct tally_rng rng;
        tally_rng_init(&rng, tally_rng_key(6, 0), 0, (uint32_t)n, TALLY_RNG_INITIAL_POINT);
        tally_rng_direction(&rng, 2.5, v, n);
        for (size_t i = 0; i < n; i++) {
            square += v[i] * v[i];
        }
        CU_ASSERT_DOUBLE_EQUAL(sqrt(square), 2.5, 1e-13);
    }
}

static void test_codec_rng__lanes_are_laid_out_as_documented(void)
{
    struct tally_rng_key key = tally_rng_key(UINT64_C(0x0123456789abcdef), 3);
    struct tally_rng rng;
    tally_rng_init(&rng, key, 5, 9, TALLY_RNG_UPLINK);
    tally_rng_u32(&rng);
    const struct tally_rng before = rng;
    uint32_t words[TALLY_RNG_LANES];
    tally_rng_lanes(&rng, 2, words);
    CU_ASSERT_EQUAL(memcmp(&rng, &before, sizeof rng), 0);
    CU_ASSERT_EQUAL(words[0], 0xafe1a1f5);
    CU_ASSERT_EQUAL(words[1], 0x616f1151);
    CU_ASSERT_EQUAL(words[15], 0x3b0850c8);
    CU_ASSERT_EQUAL(words[16], 0xb3c25e4e);
    CU_ASSERT_EQUAL(words[17], 0x56f8b3fa);
    CU_ASSERT_EQUAL(words[63], 0xd02f3c6f);
    /* As stated in the header: coordinate i takes word (i / 16) % 4 of block
     * 16 (i / 64) + i % 16. */
    for (uint32_t i = 128; i < 192; i++) {
        const uint32_t counter[4] = {16 * (i / 64) + i % 16, 5, 9, TALLY_RNG_UPLINK};
        uint32_t out[4];
        tally_philox4x32(7, counter, key.word, out);
        CU_ASSERT_EQUAL(words[i % 64], out[i / 16 % 4]);
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_codec_rng__philox_known_answers),
    TALLY_TEST(test_codec_rng__key_depends_on_all_of_seed_and_run),
    TALLY_TEST(test_codec_rng__stream_is_index_client_round_purpose),
    TALLY_TEST(test_codec_rng__streams_do_not_depend_on_order),
    TALLY_TEST(test_codec_rng__every_part_of_the_name_counts),
    TALLY_TEST(test_codec_rng__uniform_stays_in_its_interval),
    TALLY_TEST(test_codec_rng__below_reaches_both_ends_and_no_further),
    TALLY_TEST(test_codec_rng__below_rejects_exactly_the_surplus),
    TALLY_TEST(test_codec_rng__normal_of_odd_count_is_a_prefix),
    TALLY_TEST(test_codec_rng__normal_is_finite_at_the_ends_of_uniform),
    TALLY_TEST(test_codec_rng__direction_has_the_length),
    TALLY_TEST(test_codec_rng__lanes_are_laid_out_as_documented),
};
TALLY_SUITE(codec_rng, TESTS);
