#include <stdio.h>
#include <string.h>

#include "api/json/problem.h"
#include "tests/harness.h"

static void assert_encoded(enum tally_status (*encode)(const struct tally_error *,
                                                       struct tally_buffer *),
                           const struct tally_error *err, const char *expected)
{
    struct tally_buffer out = {.size = 0};
    TALLY_ASSERT_STATUS(encode(err, &out), TALLY_OK, NULL);
    (void)tally_buffer_append(&out, "", 1);
    TALLY_ASSERT_TEXT((const char *)out.data, expected);
    tally_buffer_fini(&out);
}

static struct tally_error decoded(int http_status, const char *text)
{
    struct tally_error err = {.status = TALLY_NOT_FOUND, .message = "stale", .field = "stale"};
    tally_problem_decode(http_status, text, strlen(text), &err);
    return err;
}

static void test_api_problem__rest_form(void)
{
    struct tally_error err = {.status = TALLY_OUT_OF_RANGE,
                              .field = "algorithm.levels",
                              .message = "levels 0 outside [1, 32767]"};
    assert_encoded(tally_problem_encode, &err,
                   "{\"type\": \"about:blank\", \"title\": \"value out of range\", \"status\": "
                   "400, \"detail\": \"levels 0 outside [1, 32767]\", \"code\": \"out_of_range\", "
                   "\"field\": \"algorithm.levels\"}");
    struct tally_error plain = {.status = TALLY_STORE, .message = "disk is full"};
    assert_encoded(tally_problem_encode, &plain,
                   "{\"type\": \"about:blank\", \"title\": \"store unavailable\", \"status\": 503, "
                   "\"detail\": \"disk is full\", \"code\": \"store\"}");
}

static void test_api_problem__connect_form(void)
{
    struct tally_error err = {.status = TALLY_MALFORMED, .field = "round", .message = "cut"};
    assert_encoded(tally_connect_error_encode, &err,
                   "{\"code\": \"invalid_argument\", \"message\": \"round: cut\"}");
    struct tally_error plain = {.status = TALLY_CANCELLED, .message = "stopped"};
    assert_encoded(tally_connect_error_encode, &plain,
                   "{\"code\": \"canceled\", \"message\": \"stopped\"}");
}

static void test_api_problem__messages_of_strangers_are_made_printable(void)
{
    struct tally_error err = {.status = TALLY_MALFORMED, .message = "a\xFF\nb"};
    assert_encoded(tally_connect_error_encode, &err,
                   "{\"code\": \"invalid_argument\", \"message\": \"a? b\"}");
}

static void test_api_problem__limit_of_the_buffer_is_kept(void)
{
    struct tally_error err = {.status = TALLY_INTERNAL, .message = "m"};
    struct tally_buffer out = {.limit = 10};
    CU_ASSERT_EQUAL(tally_problem_encode(&err, &out), TALLY_TOO_LARGE);
    tally_buffer_fini(&out);
}

static void test_api_problem__every_status_round_trips_in_the_rest_form(void)
{
    for (int i = TALLY_OK + 1; i <= TALLY_INTERNAL; i++) {
        struct tally_error err = {
            .status = (enum tally_status)i, .field = "f.g", .message = "some words"};
        struct tally_buffer out = {.size = 0};
        struct tally_error back = TALLY_ERROR_INIT;
        CU_ASSERT_EQUAL(tally_problem_encode(&err, &out), TALLY_OK);
        tally_problem_decode(500, (char *)out.data, out.size, &back);
        CU_ASSERT_EQUAL(back.status, err.status);
        TALLY_ASSERT_TEXT(back.field, err.field);
        TALLY_ASSERT_TEXT(back.message, err.message);
        tally_buffer_fini(&out);
    }
}

static void test_api_problem__every_status_keeps_its_connect_code(void)
{
    for (int i = TALLY_OK + 1; i <= TALLY_INTERNAL; i++) {
        struct tally_error err = {.status = (enum tally_status)i, .message = "some words"};
        struct tally_buffer out = {.size = 0};
        struct tally_error back = TALLY_ERROR_INIT;
        CU_ASSERT_EQUAL(tally_connect_error_encode(&err, &out), TALLY_OK);
        tally_problem_decode(500, (char *)out.data, out.size, &back);
        TALLY_ASSERT_TEXT(tally_status_info(back.status)->connect_code,
                          tally_status_info(err.status)->connect_code);
        tally_buffer_fini(&out);
    }
}

static void test_api_problem__shared_connect_codes_mean_their_namesake(void)
{
    CU_ASSERT_EQUAL(decoded(503, "{\"code\":\"unavailable\"}").status, TALLY_UNAVAILABLE);
    CU_ASSERT_EQUAL(decoded(429, "{\"code\":\"resource_exhausted\"}").status,
                    TALLY_RESOURCE_EXHAUSTED);
    CU_ASSERT_EQUAL(decoded(501, "{\"code\":\"unimplemented\"}").status, TALLY_UNIMPLEMENTED);
    CU_ASSERT_EQUAL(decoded(400, "{\"code\":\"invalid_argument\"}").status, TALLY_INVALID_ARGUMENT);
    CU_ASSERT_EQUAL(decoded(504, "{\"code\":\"deadline_exceeded\"}").status, TALLY_DEADLINE);
    CU_ASSERT_EQUAL(decoded(500, "{\"code\":\"unknown\"}").status, TALLY_INTERNAL);
    CU_ASSERT_EQUAL(decoded(200, "{\"code\":\"ok\"}").status, TALLY_INTERNAL);
    CU_ASSERT_EQUAL(decoded(200, "{\"code\":\"\"}").status == TALLY_OK, 0);
}

static void test_api_problem__other_answers_follow_the_http_status(void)
{
    static const struct {
        int http_status;
        enum tally_status status;
    } cases[] = {
        {400, TALLY_INVALID_ARGUMENT},
        {401, TALLY_UNAUTHENTICATED},
        {403, TALLY_PERMISSION_DENIED},
        {404, TALLY_NOT_FOUND},
        {405, TALLY_METHOD_NOT_ALLOWED},
        {408, TALLY_DEADLINE},
        {409, TALLY_FAILED_PRECONDITION},
        {413, TALLY_TOO_LARGE},
        {415, TALLY_UNSUPPORTED_MEDIA_TYPE},
        {418, TALLY_INVALID_ARGUMENT},
        {429, TALLY_RESOURCE_EXHAUSTED},
        {500, TALLY_INTERNAL},
        {501, TALLY_UNIMPLEMENTED},
        {502, TALLY_UNAVAILABLE},
        {503, TALLY_UNAVAILABLE},
        {504, TALLY_UNAVAILABLE},
        {507, TALLY_INTERNAL},
        {302, TALLY_INTERNAL},
        {200, TALLY_INTERNAL},
        {0, TALLY_INTERNAL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        TALLY_ASSERT_STATUS(decoded(cases[i].http_status, "<html>").status, cases[i].status, NULL);
        TALLY_ASSERT_STATUS(decoded(cases[i].http_status, "{\"a\":1}").status, cases[i].status,
                            NULL);
        TALLY_ASSERT_STATUS(decoded(cases[i].http_status, "").status, cases[i].status, NULL);
    }
}

static void test_api_problem__a_foreign_page_is_quoted_in_one_line(void)
{
    struct tally_error err = decoded(502, "<h1>\nBad gateway</h1>");
    TALLY_ASSERT_TEXT(err.message, "HTTP status 502: <h1> Bad gateway</h1>");
    TALLY_ASSERT_TEXT(err.field, "");
    char page[4096];
    memset(page, 'x', sizeof page);
    tally_problem_decode(502, page, sizeof page, &err);
    CU_ASSERT_TRUE(strlen(err.message) < 200);
    tally_problem_decode(502, NULL, 0, &err);
    TALLY_ASSERT_TEXT(err.message, "HTTP status 502");
    err = decoded(413, "<html>\n<head><title>413 Request\nToo Large</title></head><body>x</body>");
    TALLY_ASSERT_TEXT(err.message, "HTTP status 413: 413 Request Too Large");
    err = decoded(413, "<title>");
    TALLY_ASSERT_TEXT(err.message, "HTTP status 413");
}

static void test_api_problem__odd_json_is_survived(void)
{
    CU_ASSERT_EQUAL(decoded(404, "{\"code\":5}").status, TALLY_NOT_FOUND);
    CU_ASSERT_EQUAL(decoded(404, "[]").status, TALLY_NOT_FOUND);
    CU_ASSERT_EQUAL(decoded(404, "null").status, TALLY_NOT_FOUND);
    struct tally_error err = decoded(404, "{\"code\":\"not_found\"}");
    TALLY_ASSERT_TEXT(err.message, "not found");
    err = decoded(404, "{\"code\":\"not_found\",\"message\":\"a\\nb\",\"field\":7}");
    TALLY_ASSERT_TEXT(err.message, "a b");
    TALLY_ASSERT_TEXT(err.field, "");
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_api_problem__rest_form),
    TALLY_TEST(test_api_problem__connect_form),
    TALLY_TEST(test_api_problem__messages_of_strangers_are_made_printable),
    TALLY_TEST(test_api_problem__limit_of_the_buffer_is_kept),
    TALLY_TEST(test_api_problem__every_status_round_trips_in_the_rest_form),
    TALLY_TEST(test_api_problem__every_status_keeps_its_connect_code),
    TALLY_TEST(test_api_problem__shared_connect_codes_mean_their_namesake),
    TALLY_TEST(test_api_problem__other_answers_follow_the_http_status),
    TALLY_TEST(test_api_problem__a_foreign_page_is_quoted_in_one_line),
    TALLY_TEST(test_api_problem__odd_json_is_survived),
};
TALLY_SUITE(api_problem, TESTS);
