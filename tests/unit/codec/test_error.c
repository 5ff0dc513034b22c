#include "codec/error.h"

#include <string.h>

#include "tests/harness.h"

static void test_codec_error__table_gives_names_and_codes(void)
{
    TALLY_ASSERT_TEXT(tally_status_info(TALLY_OK)->name, "OK");
    const struct tally_status_info *info = tally_status_info(TALLY_FAILED_PRECONDITION);
    TALLY_ASSERT_TEXT(info->name, "FAILED_PRECONDITION");
    TALLY_ASSERT_TEXT(info->connect_code, "failed_precondition");
    CU_ASSERT_EQUAL(info->http_status, 409);
    CU_ASSERT_EQUAL(info->connect_http_status, 400);
    CU_ASSERT_FALSE(info->retryable);
    CU_ASSERT_TRUE(tally_status_info(TALLY_UNAVAILABLE)->retryable);
}

static void test_codec_error__unknown_status_is_internal(void)
{
    TALLY_ASSERT_TEXT(tally_status_info((enum tally_status)9999)->name, "INTERNAL");
    TALLY_ASSERT_TEXT(tally_status_info((enum tally_status) - 1)->name, "INTERNAL");
}

static void test_codec_error__connect_codes_lead_back(void)
{
    for (int i = TALLY_OK + 1; i <= TALLY_INTERNAL; i++) {
        const char *code = tally_status_info((enum tally_status)i)->connect_code;
        enum tally_status back = tally_status_of_connect_code(code);
        TALLY_ASSERT_TEXT(tally_status_info(back)->connect_code, code);
    }
    CU_ASSERT_EQUAL(tally_status_of_connect_code("already_exists"), TALLY_ALREADY_EXISTS);
    CU_ASSERT_EQUAL(tally_status_of_connect_code(""), TALLY_INTERNAL);
    CU_ASSERT_EQUAL(tally_status_of_connect_code("no_such_code"), TALLY_INTERNAL);
}

static void test_codec_error__first_failure_wins(void)
{
    struct tally_error err = TALLY_ERROR_INIT;
    CU_ASSERT_EQUAL(tally_fail(&err, TALLY_OUT_OF_RANGE, "levels", "levels %d outside [1, 7]", 0),
                    TALLY_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(tally_fail(&err, TALLY_INTERNAL, "other", "later"), TALLY_INTERNAL);
    CU_ASSERT_EQUAL(err.status, TALLY_OUT_OF_RANGE);
    TALLY_ASSERT_TEXT(err.field, "levels");
    TALLY_ASSERT_TEXT(err.message, "levels 0 outside [1, 7]");
    tally_error_clear(&err);
    CU_ASSERT_EQUAL(err.status, TALLY_OK);
    TALLY_ASSERT_TEXT(err.message, "");
    tally_fail(&err, TALLY_INTERNAL, NULL, "again");
    TALLY_ASSERT_TEXT(err.field, "");
    TALLY_ASSERT_TEXT(err.message, "again");
}

static void test_codec_error__null_error_is_allowed(void)
{
    CU_ASSERT_EQUAL(tally_fail(NULL, TALLY_NOT_FOUND, "x", "%d", 1), TALLY_NOT_FOUND);
    tally_error_wrap(NULL, "context");
    tally_error_in_field(NULL, "field");
    tally_error_clear(NULL);
}

static void test_codec_error__context_goes_in_front(void)
{
    struct tally_error err = TALLY_ERROR_INIT;
    tally_fail(&err, TALLY_MALFORMED, "step_size", "too large");
    tally_error_wrap(&err, "stage %d", 3);
    tally_error_wrap(&err, "job %s", "a");
    TALLY_ASSERT_TEXT(err.message, "job a: stage 3: too large");
    tally_error_in_field(&err, "algorithm");
    TALLY_ASSERT_TEXT(err.field, "algorithm.step_size");
    tally_error_clear(&err);
    tally_error_in_field(&err, "algorithm");
    TALLY_ASSERT_TEXT(err.field, "algorithm");
}

/* Under the sanitizers, this also checks that nothing is written past the ends. */
static void test_codec_error__long_texts_are_cut(void)
{
    char text[1000];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    struct tally_error err = TALLY_ERROR_INIT;
    tally_fail(&err, TALLY_MALFORMED, text, "%s", text);
    CU_ASSERT_EQUAL(strlen(err.field), sizeof err.field - 1);
    CU_ASSERT_EQUAL(strlen(err.message), sizeof err.message - 1);
    memset(text, 'b', sizeof text - 1);
    tally_error_wrap(&err, "%s", text);
    CU_ASSERT_EQUAL(strlen(err.message), sizeof err.message - 1);
    CU_ASSERT_EQUAL(err.message[0], 'b');
    CU_ASSERT_PTR_NOT_NULL(strstr(err.message, "b: a"));
    tally_error_in_field(&err, text);
    CU_ASSERT_EQUAL(strlen(err.field), sizeof err.field - 1);
    CU_ASSERT_EQUAL(err.field[0], 'b');
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_codec_error__table_gives_names_and_codes),
    TALLY_TEST(test_codec_error__unknown_status_is_internal),
    TALLY_TEST(test_codec_error__connect_codes_lead_back),
    TALLY_TEST(test_codec_error__first_failure_wins),
    TALLY_TEST(test_codec_error__null_error_is_allowed),
    TALLY_TEST(test_codec_error__context_goes_in_front),
    TALLY_TEST(test_codec_error__long_texts_are_cut),
};
TALLY_SUITE(codec_error, TESTS);
