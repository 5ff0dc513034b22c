#include "services/base/token_file.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codec/numeric/rng.h"
#include "tests/harness.h"
#include "tests/unit/services/base/scratch_file.h"

enum { MAX_SEEN = TALLY_TOKENS_PER_FILE };

static struct {
    struct tally_token tokens[MAX_SEEN];
    int n;
} seen;

static enum tally_status note(void *context, const struct tally_token *token,
                              struct tally_error *err)
{
    (void)context;
    if (seen.n == MAX_SEEN) {
        return tally_fail(err, TALLY_INTERNAL, NULL, "the test holds %d tokens", MAX_SEEN);
    }
    seen.tokens[seen.n++] = *token;
    return TALLY_OK;
}

static enum tally_status read_bytes(const char *bytes, size_t n, struct tally_error *err)
{
    struct scratch_file scratch;
    seen.n = 0;
    scratch_file_init(&scratch, bytes, n);
    struct tally_token_file file = {.path = scratch.path, .on_token = note};
    enum tally_status status = tally_token_file_read(&file, err);
    scratch_file_fini(&scratch);
    return status;
}

static void expect_read(const char *content, int n_tokens)
{
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(read_bytes(content, strlen(content), &err), TALLY_OK, &err);
    CU_ASSERT_EQUAL(seen.n, n_tokens);
}

static void expect_token(int i, const char *text, const char *name, int64_t until_ms, int line)
{
    TALLY_ASSERT_TEXT(seen.tokens[i].text, text);
    TALLY_ASSERT_TEXT(seen.tokens[i].name, name);
    CU_ASSERT_EQUAL(seen.tokens[i].until_ms, until_ms);
    CU_ASSERT_EQUAL(seen.tokens[i].line, line);
}

/* The error message consists of the file, the line unless it is 0, and `problem`. */
static void expect_bytes_refused(const char *content, size_t n, int line, const char *problem)
{
    struct tally_error err = TALLY_ERROR_INIT;
    char end[200];
    snprintf(end, sizeof end, line > 0 ? ":%d: %s" : "%.0d: %s", line, problem);
    TALLY_ASSERT_STATUS(read_bytes(content, n, &err), TALLY_INVALID_ARGUMENT, &err);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.message, "token file /tmp/tally-test-"));
    const size_t n_message = strlen(err.message), n_end = strlen(end);
    TALLY_ASSERT_TEXT(n_message > n_end ? err.message + n_message - n_end : err.message, end);
}

static void expect_refused(const char *content, int line, const char *problem)
{
    expect_bytes_refused(content, strlen(content), line, problem);
}

static void test_base_token_file__one_token_and_its_line_end(void)
{
    expect_read("\xEF\xBB\xBFsecret\n", 1);
    expect_token(0, "secret", "", INT64_MAX, 1);
    static const char *const SAME[] = {"secret",          "secret\n",
                                       "secret\r\n",      "secret\n\n",
                                       "  secret\t \r\n", "\n\n# of the workers\nsecret"};
    static const int LINES[] = {1, 1, 1, 1, 1, 4};
    for (size_t i = 0; i < sizeof SAME / sizeof SAME[0]; i++) {
        expect_read(SAME[i], 1);
        expect_token(0, "secret", "", INT64_MAX, LINES[i]);
    }
    expect_read("a.b-c_d~e+f/g==#\n", 1);
    expect_token(0, "a.b-c_d~e+f/g==#", "", INT64_MAX, 1);
}

static void test_base_token_file__several_tokens_with_names_and_ends(void)
{
    expect_read("# two of site a\n"
                "one name=site-a\r\n"
                "   two\tuntil=2026-11-21T03:40:00.123Z  name=site-a\n"
                "\n"
                "  # and an other one\n"
                "three until=2000-02-29T00:00:00Z\n"
                "name=x",
                4);
    expect_token(0, "one", "site-a", INT64_MAX, 2);
    expect_token(1, "two", "site-a", 1795232400123, 3);
    expect_token(2, "three", "", 951782400000, 6);
    expect_token(3, "name=x", "", INT64_MAX, 7);
}

static void test_base_token_file__refuses_a_file_without_tokens(void)
{
    expect_refused("", 0, "it contains no token");
    expect_refused("\n \r\n\t\n", 0, "it contains no token");
    expect_refused("# secret\n  # secret", 0, "it contains no token");
}

static void test_base_token_file__refuses_what_cannot_stand_in_a_header(void)
{
    expect_bytes_refused("abc\0d", 5, 1, "it contains a NUL byte");
    expect_bytes_refused("a\n\0\n", 4, 2, "it contains a NUL byte");
    expect_refused("a\nb\x7F\n", 2, "byte 2 is not a visible ASCII character");
    expect_refused("\xC3\xA9", 1, "byte 1 is not a visible ASCII character");
    expect_refused("a\n\xEF\xBB\xBFsecret\n", 2, "byte 1 is not a visible ASCII character");
    expect_refused("\xEF\xBB\xBF\xEF\xBB\xBFsecret\n", 1,
                   "byte 1 is not a visible ASCII character");
    expect_bytes_refused("\xEF\xBB\xBF", 3, 0, "it contains no token");
    expect_refused("sec\rret\n", 1, "byte 4 is not a visible ASCII character");
}

static void test_base_token_file__refuses_wrong_attributes(void)
{
    static const char AFTER[] = "only name=NAME and until=TIME may follow the token, once each";
    static const char NAME[] = "name= must be 1 to 64 letters, digits, '.', '_' or '-'";
    static const char UNTIL[] = "until= must be a time in UTC such as 2026-12-01T00:00:00Z";
    expect_refused("a\nb other\n", 2, AFTER);
    expect_refused("a # comment", 1, AFTER);
    expect_refused("a name=x name=y", 1, AFTER);
    expect_refused("a Name=x", 1, AFTER);
    expect_refused("a until=2026-12-01T00:00:00Z until=2026-12-01T00:00:00Z", 1, AFTER);
    expect_refused("a name=", 1, NAME);
    expect_refused("a name=x/y", 1, NAME);
    expect_refused("a name=\xC3\xA9", 1, NAME);
    expect_refused("a name=0123456789012345678901234567890123456789012345678901234567890123x", 1,
                   NAME);
    expect_read("a name=0123456789012345678901234567890123456789012345678901234567890123", 1);
    expect_refused("a until=", 1, UNTIL);
    expect_refused("a until=tomorrow", 1, UNTIL);
    expect_refused("a until=2026-12-01", 1, UNTIL);
    expect_refused("a until=2026-12-01T00:00:00+01:00", 1, UNTIL);
    expect_refused("a until=2026-02-29T00:00:00Z", 1, UNTIL);
}

static void test_base_token_file__refuses_a_token_twice(void)
{
    expect_refused("one\ntwo name=x\n\n# one\n two until=2026-12-01T00:00:00Z\n", 5,
                   "the token is also on an earlier line");
    expect_read("one\none1\non\n", 3);
}

static void test_base_token_file__holds_4096_bytes_and_no_more(void)
{
    char content[4200];
    memset(content, 'x', sizeof content);
    TALLY_ASSERT_STATUS(read_bytes(content, 4096, NULL), TALLY_OK, NULL);
    CU_ASSERT_EQUAL(strlen(seen.tokens[0].text), 4096);
    content[4096] = '\r';
    content[4097] = '\n';
    TALLY_ASSERT_STATUS(read_bytes(content, 4098, NULL), TALLY_OK, NULL);
    CU_ASSERT_EQUAL(strlen(seen.tokens[0].text), 4096);
    content[4096] = content[4097] = 'x';
    expect_bytes_refused(content, 4097, 1, "the token is longer than 4096 bytes");
    expect_bytes_refused(content, sizeof content, 1, "the token is longer than 4096 bytes");
}

static void test_base_token_file__holds_64_tokens_and_no_more(void)
{
    char content[65 * 8 + 1], *end = content;
    for (int i = 1; i <= 64; i++) {
        end += sprintf(end, "token%d\n", i);
    }
    expect_read(content, 64);
    sprintf(end, "one");
    expect_refused(content, 65, "more than 64 tokens");
}

static void test_base_token_file__refuses_a_file_that_is_no_token_file(void)
{
    const size_t n = 512 * 1024 + 1;
    char *comments = malloc(n);
    CU_ASSERT_PTR_NOT_NULL_FATAL(comments);
    memset(comments, '#', n);
    memcpy(comments + n - 6, "\ntoken", 6);
    expect_bytes_refused(comments, n, 0, "longer than 524288 bytes");
    memmove(comments + n - 7, comments + n - 6, 6);
    TALLY_ASSERT_STATUS(read_bytes(comments, n - 1, NULL), TALLY_OK, NULL);
    free(comments);
}

/* Any file content gives an error or valid tokens, and no message repeats the content. */
static void test_base_token_file__junk_is_refused_without_being_shown(void)
{
    static const char *const PIECES[] = {
        "hunter2hunter2",       " ",  "\t", "\n", "\r", "#", "name=", "a", "=", "\xFF", "until=",
        "2026-12-01T00:00:00Z", ".5Z"};
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(6, 0), 0, 0, TALLY_RNG_SAMPLING);
    for (int run = 0; run < 2000; run++) {
        char content[600] = "";
        const int n = (int)(20 * tally_rng_uniform(&rng));
        for (int i = 0; i < n; i++) {
            strcat(content, PIECES[(size_t)(13 * tally_rng_uniform(&rng))]);
        }
        struct tally_error err = TALLY_ERROR_INIT;
        enum tally_status status = read_bytes(content, strlen(content), &err);
        CU_ASSERT(status == TALLY_OK ? seen.n > 0 : status == TALLY_INVALID_ARGUMENT);
        CU_ASSERT_PTR_NULL(strstr(err.message, "hunter2"));
        for (int i = 0; i < seen.n; i++) {
            CU_ASSERT(seen.tokens[i].text[0] != '\0');
            CU_ASSERT_EQUAL(strcspn(seen.tokens[i].text, " \t\r\n\xFF"),
                            strlen(seen.tokens[i].text));
            CU_ASSERT_EQUAL(strcspn(seen.tokens[i].name, " \t\r\n\xFF="),
                            strlen(seen.tokens[i].name));
        }
    }
}

static void test_base_token_file__says_why_it_cannot_read(void)
{
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_token_file file = {.path = "/nonexistent/token", .on_token = note};
    TALLY_ASSERT_STATUS(tally_token_file_read(&file, &err), TALLY_INVALID_ARGUMENT, &err);
    TALLY_ASSERT_TEXT(err.message, "token file /nonexistent/token: No such file or directory");
    tally_error_clear(&err);
    file.path = "/tmp";
    TALLY_ASSERT_STATUS(tally_token_file_read(&file, &err), TALLY_INVALID_ARGUMENT, &err);
    TALLY_ASSERT_TEXT(err.message, "token file /tmp: Is a directory");
}

static void test_base_token_file__can_insist_on_a_regular_file(void)
{
    char folder[] = "/tmp/tally-test-XXXXXX", path[64];
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/pipe", folder);
    CU_ASSERT_FATAL(mkfifo(path, 0600) == 0);
    struct tally_token_file file = {.path = path, .regular_only = true, .on_token = note};
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_token_file_read(&file, &err), TALLY_INVALID_ARGUMENT, &err);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.message, "is not a regular file"));
    unlink(path);
    rmdir(folder);
}

static void test_base_token_file__tells_whether_others_may_read_it(void)
{
    static const struct {
        mode_t mode;
        bool is_exposed;
    } CASES[] = {{0600, false}, {0400, false}, {0640, true}, {0604, true}, {0444, true}};
    struct scratch_file scratch;
    scratch_file_init_text(&scratch, "secret\n");
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        CU_ASSERT_FATAL(chmod(scratch.path, CASES[i].mode) == 0);
        struct tally_token_file file = {.path = scratch.path, .on_token = note};
        seen.n = 0;
        TALLY_ASSERT_STATUS(tally_token_file_read(&file, NULL), TALLY_OK, NULL);
        CU_ASSERT_EQUAL(file.ret_is_exposed, CASES[i].is_exposed);
    }
    scratch_file_fini(&scratch);
}

static void test_base_token_file__the_first_that_has_not_expired_is_shown(void)
{
    struct scratch_file scratch;
    struct tally_error err = TALLY_ERROR_INIT;
    char token[TALLY_TOKEN_CAPACITY];
    bool is_exposed;
    scratch_file_init_text(&scratch,
                           "one until=1970-01-01T00:00:01Z\ntwo until=1970-01-01T00:00:03Z\n"
                           "three until=1970-01-01T00:00:02Z\n");
    static const char *const WANTED[] = {"one", "two", "two"};
    for (int i = 0; i < 3; i++) {
        TALLY_ASSERT_STATUS(
            tally_token_file_first(scratch.path, i * INT64_C(1000), token, &is_exposed, &err),
            TALLY_OK, &err);
        TALLY_ASSERT_TEXT(token, WANTED[i]);
    }
    TALLY_ASSERT_STATUS(tally_token_file_first(scratch.path, 3000, token, &is_exposed, &err),
                        TALLY_INVALID_ARGUMENT, &err);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.message, ": all its tokens have expired"));
    scratch_file_fini(&scratch);
}

static void test_base_token_file__the_environment_forgets_the_token(void)
{
    char token[TALLY_TOKEN_CAPACITY] = "unchanged";
    bool found = true;
    struct tally_error err = TALLY_ERROR_INIT;
    unsetenv("TALLY_TEST_TOKEN");
    TALLY_ASSERT_STATUS(tally_token_take_environment("TALLY_TEST_TOKEN", token, &found, &err),
                        TALLY_OK, &err);
    CU_ASSERT_FALSE(found);
    setenv("TALLY_TEST_TOKEN", "", 1);
    TALLY_ASSERT_STATUS(tally_token_take_environment("TALLY_TEST_TOKEN", token, &found, &err),
                        TALLY_OK, &err);
    CU_ASSERT_FALSE(found);
    TALLY_ASSERT_TEXT(token, "unchanged");
    static const char *const WRONG[] = {"hunter2\n", "hunter2 name=x", "hunter2\r"};
    for (int i = 0; i < 3; i++) {
        setenv("TALLY_TEST_TOKEN", WRONG[i], 1);
        tally_error_clear(&err);
        TALLY_ASSERT_STATUS(tally_token_take_environment("TALLY_TEST_TOKEN", token, &found, &err),
                            TALLY_INVALID_ARGUMENT, &err);
        TALLY_ASSERT_TEXT(err.message, "TALLY_TEST_TOKEN: byte 8 is not a visible ASCII character");
        TALLY_ASSERT_TEXT(getenv("TALLY_TEST_TOKEN"), "");
    }
    setenv("TALLY_TEST_TOKEN", "hunter2", 1);
    const char *place = getenv("TALLY_TEST_TOKEN");
    TALLY_ASSERT_STATUS(tally_token_take_environment("TALLY_TEST_TOKEN", token, &found, NULL),
                        TALLY_OK, NULL);
    CU_ASSERT_TRUE(found);
    TALLY_ASSERT_TEXT(token, "hunter2");
    for (int i = 0; i < 7; i++) {
        CU_ASSERT_EQUAL(place[i], '\0');
    }
    unsetenv("TALLY_TEST_TOKEN");
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_base_token_file__one_token_and_its_line_end),
    TALLY_TEST(test_base_token_file__several_tokens_with_names_and_ends),
    TALLY_TEST(test_base_token_file__refuses_a_file_without_tokens),
    TALLY_TEST(test_base_token_file__refuses_what_cannot_stand_in_a_header),
    TALLY_TEST(test_base_token_file__refuses_wrong_attributes),
    TALLY_TEST(test_base_token_file__refuses_a_token_twice),
    TALLY_TEST(test_base_token_file__holds_4096_bytes_and_no_more),
    TALLY_TEST(test_base_token_file__holds_64_tokens_and_no_more),
    TALLY_TEST(test_base_token_file__refuses_a_file_that_is_no_token_file),
    TALLY_TEST(test_base_token_file__junk_is_refused_without_being_shown),
    TALLY_TEST(test_base_token_file__says_why_it_cannot_read),
    TALLY_TEST(test_base_token_file__can_insist_on_a_regular_file),
    TALLY_TEST(test_base_token_file__tells_whether_others_may_read_it),
    TALLY_TEST(test_base_token_file__the_first_that_has_not_expired_is_shown),
    TALLY_TEST(test_base_token_file__the_environment_forgets_the_token),
};
TALLY_SUITE(base_token_file, TESTS);
