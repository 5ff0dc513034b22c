#include "codec/utf8.h"

#include "tests/harness.h"

static void expect(const char *text, size_t n, uint32_t point)
{
    uint32_t got = 1;
    CU_ASSERT_EQUAL(tally_utf8_next(text, &got), n);
    CU_ASSERT_EQUAL(got, point);
}

static void test_base_utf8__reads_each_length(void)
{
    expect("", 0, 0);
    expect("a", 1, 'a');
    expect("\x7F", 1, 0x7F);
    expect("\xC2\x80", 2, 0x80);
    expect("\xDF\xBF", 2, 0x7FF);
    expect("\xE0\xA0\x80", 3, 0x800);
    expect("\xEF\xBF\xBF", 3, 0xFFFF);
    expect("\xF0\x90\x80\x80", 4, 0x10000);
    expect("\xF4\x8F\xBF\xBF", 4, 0x10FFFF);
}

static void test_base_utf8__refuses_what_rfc_3629_forbids(void)
{
    static const char *const WRONG[] = {
        "\x80",             /* lone continuation byte */
        "\xC1\x81",         /* overlong 'A' */
        "\xC3",             /* cut short */
        "\xE0\x9F\xBF",     /* overlong U+07FF */
        "\xE2\x82",         /* cut short */
        "\xED\xA0\x80",     /* surrogate U+D800 */
        "\xED\xBF\xBF",     /* surrogate U+DFFF */
        "\xF0\x8F\xBF\xBF", /* overlong U+FFFF */
        "\xF4\x90\x80\x80", /* U+110000 */
        "\xF5\x80\x80\x80",
        "\xFF",
    };
    for (size_t i = 0; i < sizeof WRONG / sizeof WRONG[0]; i++) {
        expect(WRONG[i], 1, TALLY_UTF8_INVALID);
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_base_utf8__reads_each_length),
    TALLY_TEST(test_base_utf8__refuses_what_rfc_3629_forbids),
};
TALLY_SUITE(base_utf8, TESTS);
