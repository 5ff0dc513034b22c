#include "codec/buffer.h"

#include <string.h>

#include "tests/harness.h"

static void test_codec_buffer__grows_and_keeps_its_bytes(void)
{
    struct tally_buffer buffer = {0};
    for (int i = 0; i < 1000; i++) {
        uint8_t bytes[3] = {(uint8_t)i, (uint8_t)(i >> 8), 0x5a};
        CU_ASSERT_EQUAL_FATAL(tally_buffer_append(&buffer, bytes, sizeof bytes), TALLY_OK);
        CU_ASSERT_TRUE(buffer.size <= buffer.capacity);
    }
    CU_ASSERT_EQUAL(buffer.size, 3000);
    bool same = true;
    for (size_t i = 0; i < 1000; i++) {
        same = same && buffer.data[3 * i] == (uint8_t)i &&
               buffer.data[3 * i + 1] == (uint8_t)(i >> 8) && buffer.data[3 * i + 2] == 0x5a;
    }
    CU_ASSERT_TRUE(same);
    tally_buffer_fini(&buffer);
    CU_ASSERT_PTR_NULL(buffer.data);
    CU_ASSERT_EQUAL(buffer.size, 0);
    tally_buffer_fini(NULL);
}

static void test_codec_buffer__limit_is_exact_and_refusal_changes_nothing(void)
{
    struct tally_buffer buffer = {.limit = 10};
    CU_ASSERT_EQUAL(tally_buffer_append(&buffer, "0123456789", 10), TALLY_OK);
    CU_ASSERT_EQUAL(tally_buffer_append(&buffer, "x", 1), TALLY_TOO_LARGE);
    CU_ASSERT_EQUAL(tally_buffer_append(&buffer, "", 0), TALLY_OK);
    CU_ASSERT_EQUAL(tally_buffer_reserve(&buffer, SIZE_MAX), TALLY_TOO_LARGE);
    CU_ASSERT_EQUAL(buffer.size, 10);
    CU_ASSERT_TRUE(buffer.capacity <= buffer.limit);
    CU_ASSERT_EQUAL(memcmp(buffer.data, "0123456789", 10), 0);
    tally_buffer_fini(&buffer);
    CU_ASSERT_EQUAL(buffer.limit, 10);
}

static void test_codec_buffer__prints_after_what_it_has(void)
{
    struct tally_buffer buffer = {0};
    CU_ASSERT_EQUAL(tally_buffer_append_text(&buffer, "a="), TALLY_OK);
    CU_ASSERT_EQUAL(tally_buffer_printf(&buffer, "%d,%s", -7,
                                        "long text beyond the first 64 "
                                        "bytes, so that it has to grow"),
                    TALLY_OK);
    CU_ASSERT_EQUAL(tally_buffer_printf(&buffer, "%s", ""), TALLY_OK);
    CU_ASSERT_EQUAL(tally_buffer_append(&buffer, "", 1), TALLY_OK);
    TALLY_ASSERT_TEXT((const char *)buffer.data,
                      "a=-7,long text beyond the first 64 bytes, so that it has to grow");
    CU_ASSERT_EQUAL(buffer.size, strlen((const char *)buffer.data) + 1);
    tally_buffer_fini(&buffer);
}

static void test_codec_buffer__gives_back_room(void)
{
    struct tally_buffer buffer = {0};
    tally_buffer_fit(&buffer);
    CU_ASSERT_EQUAL(buffer.capacity, 0);
    CU_ASSERT_EQUAL(tally_buffer_append(&buffer, "0123456789", 10), TALLY_OK);
    CU_ASSERT_EQUAL(tally_buffer_reserve(&buffer, 5000), TALLY_OK);
    tally_buffer_fit(&buffer);
    CU_ASSERT_TRUE(buffer.capacity >= buffer.size && buffer.capacity < 100);
    CU_ASSERT_EQUAL(buffer.size, 10);
    CU_ASSERT_EQUAL(memcmp(buffer.data, "0123456789", 10), 0);
    CU_ASSERT_EQUAL(tally_buffer_append(&buffer, "more", 4), TALLY_OK);
    const size_t capacity = buffer.capacity;
    tally_buffer_fit(&buffer);
    CU_ASSERT_EQUAL(buffer.capacity, capacity);
    tally_buffer_fini(&buffer);
}

static void test_codec_buffer__huge_reserve_is_refused(void)
{
    struct tally_buffer buffer = {0};
    CU_ASSERT_EQUAL(tally_buffer_reserve(&buffer, SIZE_MAX), TALLY_TOO_LARGE);
    CU_ASSERT_EQUAL(tally_buffer_reserve(&buffer, 0), TALLY_OK);
    CU_ASSERT_PTR_NULL(buffer.data);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_codec_buffer__grows_and_keeps_its_bytes),
    TALLY_TEST(test_codec_buffer__limit_is_exact_and_refusal_changes_nothing),
    TALLY_TEST(test_codec_buffer__prints_after_what_it_has),
    TALLY_TEST(test_codec_buffer__gives_back_room),
    TALLY_TEST(test_codec_buffer__huge_reserve_is_refused),
};
TALLY_SUITE(codec_buffer, TESTS);
