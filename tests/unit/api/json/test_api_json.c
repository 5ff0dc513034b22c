#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/json/json.h"
#include "tests/harness.h"

static struct tally_json *parsed(const char *text)
{
    struct tally_json *value = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_json_parse(text, strlen(text), &value, &err), TALLY_OK, &err);
    return value;
}

/* Dumps `value`, frees it and compares. */
static void assert_dump(struct tally_json *value, int indent, const char *expected)
{
    struct tally_buffer out = {.size = 0};
    TALLY_ASSERT_STATUS(tally_json_dump(value, indent, &out), TALLY_OK, NULL);
    (void)tally_buffer_append(&out, "", 1);
    TALLY_ASSERT_TEXT((const char *)out.data, expected);
    tally_buffer_fini(&out);
    tally_json_free(value);
}

static void assert_refused(const char *text, size_t n)
{
    struct tally_json *value = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_json_parse(text, n, &value, &err), TALLY_MALFORMED, &err);
    CU_ASSERT_PTR_NULL(value);
    CU_ASSERT_NOT_EQUAL(err.message[0], '\0');
    CU_ASSERT_PTR_NULL(strchr(err.message, '\n'));
}

static void test_api_json__an_empty_text_is_named_so(void)
{
    struct tally_json *value = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_json_parse(NULL, 0, &value, &err), TALLY_MALFORMED, &err);
    TALLY_ASSERT_TEXT(err.message, "empty, expected JSON");
}

static void test_api_json__object_round_trip_keeps_order(void)
{
    assert_dump(parsed("{\"z\":1,\"a\":[true,false,null,\"x\"],\"m\":{\"k\":-5}}"), 0,
                "{\"z\": 1, \"a\": [true, false, null, \"x\"], \"m\": {\"k\": -5}}");
}

static void test_api_json__indent_breaks_lines(void)
{
    assert_dump(parsed("{\"a\":[1,2],\"b\":{},\"c\":[]}"), 2,
                "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": {},\n  \"c\": []\n}");
}

static void test_api_json__text_is_escaped(void)
{
    struct tally_json *object = tally_json_object();
    CU_ASSERT_TRUE(tally_json_set_text(object, "t", "a\"b\\c\n\r\t\x01\x7F\xC3\xA9/"));
    assert_dump(object, 0, "{\"t\": \"a\\\"b\\\\c\\n\\r\\t\\u0001\\u007f\xC3\xA9/\"}");
    assert_dump(parsed("\"\\u009b\\u2028\\u202e\\u00a0\""), 0, "\"\\u009b\\u2028\\u202e\xC2\xA0\"");
    assert_dump(parsed("\"\\u00e9\\u0041\\ud83d\\ude00\""), 0,
                "\"\xC3\xA9"
                "A\xF0\x9F\x98\x80\"");
}

static void assert_real(double value, const char *expected)
{
    struct tally_json *array = tally_json_array();
    CU_ASSERT_TRUE(tally_json_append_real(array, value));
    char wrapped[64];
    snprintf(wrapped, sizeof wrapped, "[%s]", expected);
    assert_dump(array, 0, wrapped);
}

static void test_api_json__reals_are_the_shortest_that_read_back(void)
{
    assert_real(2.0, "2.0");
    assert_real(0.1, "0.1");
    assert_real(4.47, "4.47");
    assert_real(-0.0, "-0.0");
    assert_real(1e300, "1e+300");
    assert_real(1e15, "1e+15");
    assert_real(123456789012345.0, "123456789012345.0");
    assert_real(1.0 / 3.0, "0.3333333333333333");
    assert_real(0.1 + 0.2, "0.30000000000000004");
    assert_real(DBL_MAX, "1.7976931348623157e+308");
    assert_real(DBL_TRUE_MIN, "4.94065645841247e-324");
    assert_real(NAN, "null");
    assert_real(INFINITY, "null");
}

/* Any finite double is unchanged by a round trip through text and stays a real. */
static void test_api_json__random_reals_round_trip(void)
{
    uint64_t state = 12345;
    for (int i = 0; i < 20000; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint64_t bits = state ^ (state >> 29);
        double value;
        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value)) {
            continue;
        }
        struct tally_json *object = tally_json_object();
        struct tally_buffer out = {.size = 0};
        struct tally_json *again = NULL;
        (void)tally_json_set_real(object, "v", value);
        (void)tally_json_dump(object, 0, &out);
        CU_ASSERT_EQUAL(tally_json_parse((char *)out.data, out.size, &again, NULL), TALLY_OK);
        double back = tally_json_get_real(again, "v", 0);
        CU_ASSERT_TRUE(back == value && signbit(back) == signbit(value));
        CU_ASSERT_EQUAL(tally_json_get_integer(again, "v", 77), 77); /* still a real */
        tally_buffer_fini(&out);
        tally_json_free(object);
        tally_json_free(again);
    }
}

static void test_api_json__junk_is_malformed(void)
{
    static const char *const junk[] = {
        "",
        "{",
        "{\"a\":1}x",
        "{\"a\":1,\"a\":2}", /* duplicate key */
        "{\"a\":NaN}",
        "[1e999]",
        "[-1e999]",
        "[99999999999999999999]",
        "[01]",
        "{'a':1}",
        "[\"\\ud800\"]", /* half a surrogate pair */
        "[\"\xFF\"]",
        "[\"a\nb\"]",
        "[\"\\u0000\"]",
        "[1,]",
    };
    for (size_t i = 0; i < sizeof junk / sizeof junk[0]; i++) {
        assert_refused(junk[i], strlen(junk[i]));
    }
    assert_refused("[1]\0", 4);
    assert_refused(NULL, 0);
}

static void test_api_json__a_byte_order_mark_is_skipped(void)
{
    assert_dump(parsed("\xEF\xBB\xBF{\"a\":1}"), 0, "{\"a\": 1}");
    assert_refused("\xEF\xBB\xBF", 3);
    assert_refused("\xEF\xBB\xBF\xEF\xBB\xBF[]", 8);
    assert_refused("\xEF\xBB[]", 4);
    assert_refused("[\xEF\xBB\xBF]", 5);
}

static void test_api_json__deep_nesting_is_refused(void)
{
    enum { DEPTH = 100000 };
    char *text = malloc(DEPTH);
    memset(text, '[', DEPTH);
    assert_refused(text, DEPTH);
    free(text);
}

static void test_api_json__malformed_names_line_and_column(void)
{
    struct tally_json *value = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    const char *text = "{\n  \"a\": nope\n}";
    CU_ASSERT_EQUAL(tally_json_parse(text, strlen(text), &value, &err), TALLY_MALFORMED);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.message, "line 2 column"));
}

static void test_api_json__getters_fall_back(void)
{
    struct tally_json *object = parsed("{\"i\":3,\"r\":2.5,\"t\":\"x\",\"n\":null,\"l\":[7,8]}");
    CU_ASSERT_EQUAL(tally_json_get_integer(object, "i", -1), 3);
    CU_ASSERT_EQUAL(tally_json_get_integer(object, "r", -1), -1);
    CU_ASSERT_EQUAL(tally_json_get_integer(object, "none", -1), -1);
    CU_ASSERT_EQUAL(tally_json_get_real(object, "r", -1), 2.5);
    CU_ASSERT_EQUAL(tally_json_get_real(object, "i", -1), 3.0);
    CU_ASSERT_EQUAL(tally_json_get_real(object, "t", -1), -1.0);
    TALLY_ASSERT_TEXT(tally_json_get_text(object, "t"), "x");
    CU_ASSERT_PTR_NULL(tally_json_get_text(object, "n"));
    CU_ASSERT_PTR_NULL(tally_json_get(object, "none"));
    const struct tally_json *list = tally_json_get(object, "l");
    CU_ASSERT_TRUE(tally_json_is_array(list));
    CU_ASSERT_FALSE(tally_json_is_object(list));
    CU_ASSERT_TRUE(tally_json_is_object(object));
    CU_ASSERT_EQUAL(tally_json_size(list), 2);
    CU_ASSERT_PTR_NOT_NULL(tally_json_at(list, 1));
    CU_ASSERT_PTR_NULL(tally_json_at(list, 2));
    CU_ASSERT_FALSE(tally_json_is_object(NULL));
    CU_ASSERT_EQUAL(tally_json_get_integer(NULL, "i", 5), 5);
    tally_json_free(object);
    tally_json_free(NULL);
}

static void test_api_json__unsigned_past_int64_is_text(void)
{
    struct tally_json *object = tally_json_object();
    CU_ASSERT_TRUE(tally_json_set_unsigned(object, "a", INT64_MAX));
    CU_ASSERT_TRUE(tally_json_set_unsigned(object, "b", (uint64_t)INT64_MAX + 1));
    CU_ASSERT_TRUE(tally_json_set_unsigned(object, "c", UINT64_MAX));
    assert_dump(object, 0,
                "{\"a\": 9223372036854775807, \"b\": \"9223372036854775808\", "
                "\"c\": \"18446744073709551615\"}");
}

static void test_api_json__copy_is_deep(void)
{
    struct tally_json *object = tally_json_object();
    struct tally_json *list = tally_json_array();
    CU_ASSERT_TRUE(tally_json_append(list, tally_json_text("x")));
    CU_ASSERT_TRUE(tally_json_set(object, "l", list));
    CU_ASSERT_TRUE(tally_json_set_bool(object, "f", false));
    CU_ASSERT_TRUE(tally_json_set_null(object, "n"));
    CU_ASSERT_TRUE(tally_json_set_integer(object, "i", INT64_MIN));
    struct tally_json *copy = tally_json_copy(object);
    CU_ASSERT_TRUE(tally_json_append_real(list, 1.0));
    CU_ASSERT_TRUE(tally_json_append_integer(list, INT64_MAX));
    assert_dump(tally_json_copy(list), 0, "[\"x\", 1.0, 9223372036854775807]");
    tally_json_free(object);
    assert_dump(copy, 0,
                "{\"l\": [\"x\"], \"f\": false, \"n\": null, \"i\": -9223372036854775808}");
}

static void test_api_json__setters_report_failure(void)
{
    struct tally_json *object = tally_json_object();
    CU_ASSERT_FALSE(tally_json_set(object, "a", NULL)); /* as after a failed allocation */
    CU_ASSERT_FALSE(tally_json_set_text(object, "b", "\xFF"));
    CU_ASSERT_FALSE(tally_json_append(object, tally_json_text("no array"))); /* frees it too */
    assert_dump(object, 0, "{}");
}

static void test_api_json__reals_can_be_written_alone(void)
{
    static const double VALUES[] = {0.1, -0.0, 1e300, 3, NAN, -INFINITY};
    struct tally_buffer alone = {.size = 0};
    struct tally_json *array = tally_json_array();
    CU_ASSERT_EQUAL(tally_buffer_append_text(&alone, "["), TALLY_OK);
    for (size_t i = 0; i < sizeof VALUES / sizeof VALUES[0]; i++) {
        CU_ASSERT_TRUE(tally_json_append_real(array, VALUES[i]));
        CU_ASSERT_EQUAL(tally_buffer_append_text(&alone, i == 0 ? "" : ", "), TALLY_OK);
        CU_ASSERT_EQUAL(tally_json_dump_real(VALUES[i], &alone), TALLY_OK);
    }
    CU_ASSERT_EQUAL(tally_buffer_append(&alone, "]", sizeof "]"), TALLY_OK);
    assert_dump(array, 0, (const char *)alone.data);
    tally_buffer_fini(&alone);
}

static void test_api_json__dump_honours_the_limit(void)
{
    struct tally_json *object = parsed("{\"key\":[1,2.5,\"text\",{\"k\":true}]}");
    struct tally_buffer full = {.size = 0};
    CU_ASSERT_EQUAL(tally_json_dump(object, 3, &full), TALLY_OK);
    for (size_t limit = 1; limit < full.size; limit++) {
        struct tally_buffer small = {.limit = limit};
        CU_ASSERT_EQUAL(tally_json_dump(object, 3, &small), TALLY_TOO_LARGE);
        tally_buffer_fini(&small);
    }
    tally_buffer_fini(&full);
    tally_json_free(object);
}

static enum tally_status check_limits(const char *text, size_t n, const char *expected)
{
    static const struct tally_json_limits LIMITS = {.bytes = 64, .values = 4, .depth = 2};
    struct tally_error err = TALLY_ERROR_INIT;
    const enum tally_status status = tally_json_check_limits(text, n, &LIMITS, &err);
    if (status != TALLY_OK) {
        TALLY_ASSERT_TEXT(err.message, expected);
    }
    return status;
}

static void test_api_json__limits_are_checked_before_parsing(void)
{
    static const struct {
        const char *text, *refusal;
    } CASES[] = {
        {"{\"a\":1,\"b\":2,\"c\":3,\"d\":4}", NULL},
        {"{\"a\":1,\"b\":2,\"c\":3,\"d\":4,\"e\":5}",
         "the document has more than 4 members and elements, the limit"},
        {"[1,2,3,4,5]", "the document has more than 4 members and elements, the limit"},
        {"{\"a\":[1],\"b\":[1]}", NULL},
        {"{\"a\":[1],\"b\":[1,2]}", "the document has more than 4 members and elements, the limit"},
        {"[[1]]", NULL},
        {"[[],[],[]]", "the document has more than 4 members and elements, the limit"},
        {"[[[", "the document nests more than 2 objects and arrays, the limit"},
        /* A text counts as one value, whatever it contains. */
        {"[\",,,,[[[{{{\",\"\\\",,,,\",\"\\\\\",4]", NULL},
        {"[\"\\\\\",2,3,4,5]", "the document has more than 4 members and elements, the limit"},
        /* Not JSON: left to the parser. */
        {"", NULL},
        {"]]]]", NULL},
        {"[\"a", NULL},
        {"[\"a\\", NULL},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        const enum tally_status status =
            check_limits(CASES[i].text, strlen(CASES[i].text), CASES[i].refusal);
        CU_ASSERT_EQUAL(status, CASES[i].refusal == NULL ? TALLY_OK : TALLY_INVALID_ARGUMENT);
    }
    char blanks[65];
    memset(blanks, ' ', sizeof blanks);
    CU_ASSERT_EQUAL(check_limits(blanks, 64, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(check_limits(blanks, 65, "the document has 65 bytes, the limit is 64"),
                    TALLY_INVALID_ARGUMENT);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_api_json__an_empty_text_is_named_so),
    TALLY_TEST(test_api_json__object_round_trip_keeps_order),
    TALLY_TEST(test_api_json__indent_breaks_lines),
    TALLY_TEST(test_api_json__text_is_escaped),
    TALLY_TEST(test_api_json__reals_are_the_shortest_that_read_back),
    TALLY_TEST(test_api_json__random_reals_round_trip),
    TALLY_TEST(test_api_json__junk_is_malformed),
    TALLY_TEST(test_api_json__a_byte_order_mark_is_skipped),
    TALLY_TEST(test_api_json__deep_nesting_is_refused),
    TALLY_TEST(test_api_json__malformed_names_line_and_column),
    TALLY_TEST(test_api_json__getters_fall_back),
    TALLY_TEST(test_api_json__unsigned_past_int64_is_text),
    TALLY_TEST(test_api_json__copy_is_deep),
    TALLY_TEST(test_api_json__setters_report_failure),
    TALLY_TEST(test_api_json__reals_can_be_written_alone),
    TALLY_TEST(test_api_json__dump_honours_the_limit),
    TALLY_TEST(test_api_json__limits_are_checked_before_parsing),
};
TALLY_SUITE(api_json, TESTS);
