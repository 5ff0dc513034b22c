#include "codec/numeric/checksum.h"

#include <string.h>

#include "tests/harness.h"

/* Expected values: an independent Python implementation of the definition in FORMAT.md. */
static void test_codec_checksum__known_values(void)
{
    CU_ASSERT_EQUAL(tally_checksum64(NULL, 0), UINT64_C(0xb9034ad37056f5fb));
    CU_ASSERT_EQUAL(tally_checksum64("abc", 3), UINT64_C(0x57ac0ffa350d7c82));
    uint64_t sum = tally_checksum64("ab", 2);
    CU_ASSERT_EQUAL(tally_checksum64_more(sum, "cde", 3), UINT64_C(0xe1e56ed93ce18e34));
}

static void test_codec_checksum__of_a_point_as_in_format_md(void)
{
    const double x[3] = {1, -2.5, 0};
    CU_ASSERT_EQUAL(tally_checksum64(x, sizeof x), UINT64_C(0x47731b6b4da53c65));
}

/* A checksum made in pieces, alone or two at once, equals the checksum of the whole. */
static void test_codec_checksum__of_pieces_is_that_of_the_whole(void)
{
    uint64_t words[40];
    for (size_t i = 0; i < 40; i++) {
        words[i] = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
    }
    for (size_t first = 0; first <= 16; first++) {
        struct tally_checksum whole = tally_checksum_begin(TALLY_CHECKSUM_SEED);
        struct tally_checksum rest = tally_checksum_begin(99);
        tally_checksum_add(&whole, words, first * 8);
        tally_checksum_add_to_both(&whole, &rest, words + first, (20 - first) * 8);
        tally_checksum_add(&whole, words + 20, 160);
        CU_ASSERT_EQUAL(tally_checksum_end(&whole), tally_checksum64(words, sizeof words));
        CU_ASSERT_EQUAL(tally_checksum_end(&rest),
                        tally_checksum64_more(99, words + first, (20 - first) * 8));
    }
    const struct tally_checksum none = tally_checksum_begin(TALLY_CHECKSUM_SEED);
    CU_ASSERT_EQUAL(tally_checksum_end(&none), tally_checksum64(NULL, 0));
}

/* Any flipped bit, one byte less or one zero byte more changes the sum. A flipped bit changes about
 * half of the sum's bits. */
static void test_codec_checksum__sees_every_bit_and_the_length(void)
{
    uint8_t bytes[33];
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)(i * 37);
    }
    bytes[32] = 0;
    const uint64_t sum = tally_checksum64(bytes, 32);
    CU_ASSERT_NOT_EQUAL(tally_checksum64(bytes, 31), sum);
    CU_ASSERT_NOT_EQUAL(tally_checksum64(bytes, 33), sum);
    int fewest = 64;
    for (size_t bit = 0; bit < 256; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        int changed = __builtin_popcountll(tally_checksum64(bytes, 32) ^ sum);
        fewest = changed < fewest ? changed : fewest;
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    CU_ASSERT_TRUE(fewest >= 12); /* mean 32, standard deviation 4 */
    CU_ASSERT_NOT_EQUAL(tally_checksum64("\0", 1), tally_checksum64("\0\0", 2));
}

static void test_codec_checksum__does_not_need_alignment(void)
{
    uint8_t bytes[40] = {0};
    memcpy(bytes + 3, "the same thirty bytes of text!", 30);
    CU_ASSERT_EQUAL(tally_checksum64(bytes + 3, 30),
                    tally_checksum64("the same thirty bytes of text!", 30));
}

/* The same for tally_digest64(), at every length below 100 bytes. */
static void test_codec_checksum__digest_sees_every_bit_and_the_length(void)
{
    uint8_t bytes[100] = {0};
    memcpy(bytes + 7, "a text of some length that begins anywhere", 42);
    for (size_t n = 0; n < sizeof bytes; n++) {
        const uint64_t sum = tally_digest64(bytes, n);
        CU_ASSERT_NOT_EQUAL(tally_digest64(bytes, n + 1), sum);
        for (size_t bit = 0; bit < 8 * n; bit++) {
            bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
            CU_ASSERT_NOT_EQUAL(tally_digest64(bytes, n), sum);
            bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
        CU_ASSERT_EQUAL(tally_digest64(bytes, n), sum);
    }
    /* Stores hold these values, so they must not change. */
    CU_ASSERT_EQUAL(tally_digest64(NULL, 0), UINT64_C(0x8ac397a005075247));
    CU_ASSERT_EQUAL(tally_digest64(bytes, 100), UINT64_C(0x0f0ea2148b2635f3));
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_codec_checksum__known_values),
    TALLY_TEST(test_codec_checksum__of_a_point_as_in_format_md),
    TALLY_TEST(test_codec_checksum__sees_every_bit_and_the_length),
    TALLY_TEST(test_codec_checksum__does_not_need_alignment),
    TALLY_TEST(test_codec_checksum__of_pieces_is_that_of_the_whole),
    TALLY_TEST(test_codec_checksum__digest_sees_every_bit_and_the_length),
};
TALLY_SUITE(codec_checksum, TESTS);
