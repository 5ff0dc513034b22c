#include "codec/numeric/bits.h"

#include <stdlib.h>
#include <string.h>

#include "codec/numeric/rng.h"
#include "tests/harness.h"

static void test_codec_bits__first_bit_is_the_lowest_of_the_first_byte(void)
{
    uint8_t data[2] = {0xff, 0xff};
    struct tally_bit_writer writer;
    tally_bit_writer_init(&writer, data, sizeof data);
    tally_bit_write(&writer, 1, 1);
    tally_bit_write(&writer, 0, 2);
    tally_bit_write(&writer, 0x2d, 6); /* 101101, lowest first */
    CU_ASSERT_EQUAL(tally_bit_writer_tell(&writer), 9);
    CU_ASSERT_EQUAL(tally_bit_writer_finish(&writer), 2);
    CU_ASSERT_EQUAL(data[0], 0x69); /* 1 00 10110, read from bit 0 up */
    CU_ASSERT_EQUAL(data[1], 0x01); /* the last 1 and zero padding */
}

/* Every width at every misalignment: the reader returns what was written, and tell() agrees. */
static void test_codec_bits__every_width_at_every_offset(void)
{
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(11, 0), 0, 0, TALLY_RNG_NOISE);
    bool same = true, told = true;
    for (unsigned offset = 0; offset < 64; offset++) {
        for (unsigned width = 0; width <= 64; width++) {
            uint64_t head = tally_rng_u32(&rng) | (uint64_t)tally_rng_u32(&rng) << 32;
            uint64_t bits = tally_rng_u32(&rng) | (uint64_t)tally_rng_u32(&rng) << 32;
            uint64_t mask = width < 64 ? (UINT64_C(1) << width) - 1 : UINT64_MAX;
            uint8_t data[24];
            struct tally_bit_writer writer;
            tally_bit_writer_init(&writer, data, sizeof data);
            tally_bit_write(&writer, head, offset);
            tally_bit_write(&writer, bits, width); /* bits above `width` are ignored */
            tally_bit_write(&writer, 1, 1);
            uint64_t total = tally_bit_writer_tell(&writer);
            size_t n = tally_bit_writer_finish(&writer);
            told = told && total == offset + width + 1 && n == (total + 7) / 8;
            same = same && tally_bits_are_framed(data, n, total);

            struct tally_bit_reader reader;
            tally_bit_reader_init(&reader, data, total);
            for (unsigned i = 0; i < offset; i++) {
                same = same && tally_bit_read(&reader, 1) == (head >> i & 1);
            }
            uint64_t got;
            if (width <= 57) {
                got = tally_bit_read(&reader, width);
            } else {
                got = tally_bit_read(&reader, 57);
                got |= tally_bit_read(&reader, width - 57) << 57;
            }
            same = same && got == (bits & mask) && tally_bit_read(&reader, 1) == 1;
            told = told && tally_bit_reader_tell(&reader) == total && !reader.overrun;
        }
    }
    CU_ASSERT_TRUE(same);
    CU_ASSERT_TRUE(told);
}

/* Uses heap buffers of exact size, so that the address sanitizer detects any access beyond them. */
static void test_codec_bits__overflow_writes_nothing_outside(void)
{
    for (size_t capacity = 0; capacity <= 20; capacity++) {
        for (unsigned n_bits = 0; n_bits <= 20 * 8; n_bits += 1) {
            uint8_t *data = malloc(capacity + (capacity == 0));
            CU_ASSERT_PTR_NOT_NULL_FATAL(data);
            struct tally_bit_writer writer;
            tally_bit_writer_init(&writer, data, capacity);
            for (unsigned i = 0; i < n_bits; i += 13) {
                tally_bit_write(&writer, UINT64_MAX, n_bits - i < 13 ? n_bits - i : 13);
            }
            bool fits = (n_bits + 7) / 8 <= capacity;
            size_t n = tally_bit_writer_finish(&writer);
            CU_ASSERT_EQUAL(writer.overflow, !fits);
            CU_ASSERT_EQUAL(n, fits ? (n_bits + 7) / 8 : 0);
            CU_ASSERT_EQUAL(tally_bit_writer_tell(&writer), n_bits);
            free(data);
        }
    }
}

static void test_codec_bits__reading_past_the_end_gives_zeros_and_says_so(void)
{
    const uint8_t data[2] = {0xff, 0x0f};
    struct tally_bit_reader reader;
    tally_bit_reader_init(&reader, data, 12);
    CU_ASSERT_EQUAL(tally_bit_read(&reader, 10), 0x3ff);
    CU_ASSERT_FALSE(reader.overrun);
    CU_ASSERT_EQUAL(tally_bit_read(&reader, 3), 0);
    CU_ASSERT_TRUE(reader.overrun);
    CU_ASSERT_EQUAL(tally_bit_reader_tell(&reader), 12);
    CU_ASSERT_EQUAL(tally_bit_read(&reader, 1), 0);
    CU_ASSERT_EQUAL(tally_bit_read(&reader, 0), 0);
    tally_bit_reader_init(&reader, NULL, 0);
    CU_ASSERT_EQUAL(tally_bit_read(&reader, 1), 0);
    CU_ASSERT_TRUE(reader.overrun);
}

static void test_codec_bits__framing_is_exact_and_padding_zero(void)
{
    const uint8_t data[3] = {0xff, 0x7f, 0x00};
    CU_ASSERT_TRUE(tally_bits_are_framed(data, 2, 15));
    CU_ASSERT_TRUE(tally_bits_are_framed(data, 2, 16));
    CU_ASSERT_FALSE(tally_bits_are_framed(data, 2, 14)); /* a one in the padding */
    CU_ASSERT_FALSE(tally_bits_are_framed(data, 2, 17));
    CU_ASSERT_FALSE(tally_bits_are_framed(data, 2, 8));
    CU_ASSERT_FALSE(tally_bits_are_framed(data, 3, 15)); /* one byte too many */
    CU_ASSERT_TRUE(tally_bits_are_framed(data, 3, 17));
    CU_ASSERT_TRUE(tally_bits_are_framed(data, 0, 0));
    CU_ASSERT_TRUE(tally_bits_are_framed(NULL, 0, 0));
    CU_ASSERT_FALSE(tally_bits_are_framed(data, 1, 0));
    CU_ASSERT_FALSE(tally_bits_are_framed(NULL, 0, 1));
    CU_ASSERT_FALSE(tally_bits_are_framed(data, 3, UINT64_MAX));
    CU_ASSERT_FALSE(tally_bits_are_framed(data, 0, UINT64_MAX));
    CU_ASSERT_FALSE(tally_bits_are_framed(data, 0, UINT64_MAX - 6)); /* + 7 wraps to 0 */
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_codec_bits__first_bit_is_the_lowest_of_the_first_byte),
    TALLY_TEST(test_codec_bits__every_width_at_every_offset),
    TALLY_TEST(test_codec_bits__overflow_writes_nothing_outside),
    TALLY_TEST(test_codec_bits__reading_past_the_end_gives_zeros_and_says_so),
    TALLY_TEST(test_codec_bits__framing_is_exact_and_padding_zero),
};
TALLY_SUITE(codec_bits, TESTS);
