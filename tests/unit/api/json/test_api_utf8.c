#include <string.h>

#include "codec/utf8.h"
#include "tests/harness.h"

static size_t valid_prefix(const char *text)
{
    return tally_utf8_valid_prefix(text, strlen(text));
}

static void test_api_utf8__every_length_is_accepted(void)
{
    CU_ASSERT_EQUAL(valid_prefix("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"), 10);
    CU_ASSERT_EQUAL(valid_prefix("\xC2\x80\xDF\xBF"), 4);
    CU_ASSERT_EQUAL(valid_prefix("\xE0\xA0\x80\xEF\xBF\xBF"), 6);
    CU_ASSERT_EQUAL(valid_prefix("\xF0\x90\x80\x80\xF4\x8F\xBF\xBF"), 8);
    CU_ASSERT_EQUAL(tally_utf8_valid_prefix("\0", 1), 1);
    CU_ASSERT_EQUAL(tally_utf8_valid_prefix(NULL, 0), 0);
}

static void test_api_utf8__invalid_forms_end_the_prefix(void)
{
    static const char *const invalid[] = {
        "ab\x80",             /* lone continuation byte */
        "ab\xC0\x80",         /* overlong */
        "ab\xC1\xBF",         /* overlong */
        "ab\xE0\x9F\xBF",     /* overlong */
        "ab\xF0\x8F\xBF\xBF", /* overlong */
        "ab\xED\xA0\x80",     /* surrogate */
        "ab\xF4\x90\x80\x80", /* past U+10FFFF */
        "ab\xF5\x80\x80\x80", /* past U+10FFFF */
        "ab\xE2\x82",         /* truncated */
        "ab\xE2\x28\xA1",     /* bad second byte */
        "ab\xE2\x82\x28",     /* bad third byte */
        "ab\xFF",
    };
    for (size_t i = 0; i < sizeof invalid / sizeof invalid[0]; i++) {
        CU_ASSERT_EQUAL(valid_prefix(invalid[i]), 2);
    }
}

static void test_api_utf8__sanitize_keeps_length_and_valid_text(void)
{
    char text[] = "a\n\xC3\xA9\xFF\x80 z\x7F";
    size_t n = strlen(text);
    tally_utf8_sanitize_line(text);
    CU_ASSERT_EQUAL(strlen(text), n);
    TALLY_ASSERT_TEXT(text, "a \xC3\xA9?? z ");
    char empty[] = "";
    tally_utf8_sanitize_line(empty);
    TALLY_ASSERT_TEXT(empty, "");
}

static void test_api_utf8__controls_are_found_and_blanked(void)
{
    static const struct {
        const char *text;
        size_t at; /* of the control character */
    } cases[] = {
        /* NOLINTBEGIN(misc-misleading-bidirectional): the test is about such characters */
        {"a\x1F", 1},
        {"a\x7F", 1},
        {"\xC2\x80", 0},
        {"ab\xC2\x9F", 2},
        {"a\xE2\x80\xA8", 1},
        {"a\xE2\x80\xAE", 1},
        {"\xE2\x81\xA6", 0},
        {"\xE2\x81\xA9", 0},
        /* Just outside the ranges, then no valid character, then no text. */
        {"~ ", 2},
        {"\xC2\xA0", 2},
        {"\xE2\x80\xA7", 3},
        {"\xE2\x80\xAF", 3},
        {"\xE2\x81\xA5", 3},
        {"\xE2\x81\xAA", 3},
        {"\x80\x9F", 2},
        {"", 0},
        /* NOLINTEND(misc-misleading-bidirectional) */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CU_ASSERT_EQUAL(tally_utf8_find_control(cases[i].text), cases[i].at);
    }
    /* NOLINTNEXTLINE(misc-misleading-bidirectional): as above */
    char text[] = "a\xC2\x9B"
                  "31m\xE2\x80\xAE\xC2\xA0z";
    tally_utf8_sanitize_line(text);
    TALLY_ASSERT_TEXT(text, "a  31m   \xC2\xA0z");
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_api_utf8__every_length_is_accepted),
    TALLY_TEST(test_api_utf8__invalid_forms_end_the_prefix),
    TALLY_TEST(test_api_utf8__sanitize_keeps_length_and_valid_text),
    TALLY_TEST(test_api_utf8__controls_are_found_and_blanked),
};
TALLY_SUITE(api_utf8, TESTS);
