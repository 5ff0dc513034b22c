#include "services/program/token_file.h"

#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/services/program/scratch_file.h"
#include "tests/unit/services/program/suites.h"

static enum tally_status read_bytes(const char *bytes, size_t n, char *token,
                                    struct tally_error *err)
{
    struct scratch_file file;
    scratch_file_init(&file, bytes, n);
    enum tally_status status = tally_token_file_read(file.path, token, err);
    scratch_file_fini(&file);
    return status;
}

static void expect_token(const char *content, const char *expected)
{
    char token[TALLY_TOKEN_CAPACITY] = "unchanged";
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(read_bytes(content, strlen(content), token, &err), TALLY_OK, &err);
    TALLY_ASSERT_TEXT(token, expected);
}

static void expect_refused(const char *content, size_t n, const char *message_part)
{
    char token[TALLY_TOKEN_CAPACITY] = "unchanged";
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(read_bytes(content, n, token, &err), TALLY_INVALID_ARGUMENT, &err);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.message, message_part));
    CU_ASSERT_PTR_NOT_NULL(strstr(err.message, "/tmp/tally-test-"));
    TALLY_ASSERT_TEXT(token, "unchanged");
}

static void test_program_token_file__drops_the_line_end(void)
{
    expect_token("secret", "secret");
    expect_token("secret\n", "secret");
    expect_token("secret\r\n", "secret");
    expect_token("a.b-c_d~e+f/g==\n", "a.b-c_d~e+f/g==");
}

static void test_program_token_file__refuses_empty(void)
{
    expect_refused("", 0, "is empty");
    expect_refused("\n", 1, "is empty");
    expect_refused("\r\n", 2, "is empty");
}

static void test_program_token_file__refuses_what_cannot_stand_in_a_header(void)
{
    expect_refused("a\nb\n", 4, "byte 2 ");
    expect_refused("secret\n\n", 8, "byte 7 ");
    expect_refused("a b", 3, "byte 2 ");
    expect_refused("abc\0d", 5, "byte 4 ");
    expect_refused("\x7F", 1, "byte 1 ");
    expect_refused("\xC3\xA9", 2, "byte 1 ");
}

static void test_program_token_file__holds_4096_bytes_and_no_more(void)
{
    char content[4200];
    memset(content, 'x', sizeof content);
    char token[TALLY_TOKEN_CAPACITY];
    TALLY_ASSERT_STATUS(read_bytes(content, 4096, token, NULL), TALLY_OK, NULL);
    CU_ASSERT_EQUAL(strlen(token), 4096);
    content[4096] = '\r';
    content[4097] = '\n';
    TALLY_ASSERT_STATUS(read_bytes(content, 4098, token, NULL), TALLY_OK, NULL);
    CU_ASSERT_EQUAL(strlen(token), 4096);
    content[4096] = content[4097] = 'x';
    expect_refused(content, 4097, "longer than 4096 bytes");
    expect_refused(content, sizeof content, "longer than 4096 bytes");
}

static void test_program_token_file__messages_never_show_the_token(void)
{
    char token[TALLY_TOKEN_CAPACITY];
    struct tally_error err = TALLY_ERROR_INIT;
    read_bytes("hunter2 ", 8, token, &err);
    CU_ASSERT_PTR_NULL(strstr(err.message, "hunter2"));
}

static void test_program_token_file__says_why_it_cannot_read(void)
{
    char token[TALLY_TOKEN_CAPACITY];
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_token_file_read("/nonexistent/token", token, &err),
                        TALLY_INVALID_ARGUMENT, &err);
    TALLY_ASSERT_TEXT(err.message, "token file /nonexistent/token: No such file or directory");
    tally_error_clear(&err);
    TALLY_ASSERT_STATUS(tally_token_file_read("/tmp", token, &err), TALLY_INVALID_ARGUMENT, &err);
    TALLY_ASSERT_TEXT(err.message, "token file /tmp: Is a directory");
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_program_token_file__drops_the_line_end),
    TALLY_TEST(test_program_token_file__refuses_empty),
    TALLY_TEST(test_program_token_file__refuses_what_cannot_stand_in_a_header),
    TALLY_TEST(test_program_token_file__holds_4096_bytes_and_no_more),
    TALLY_TEST(test_program_token_file__messages_never_show_the_token),
    TALLY_TEST(test_program_token_file__says_why_it_cannot_read),
};
TALLY_SUITE(program_token_file_suite, "program_token_file", TESTS);
