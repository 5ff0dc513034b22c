#include "services/coordinator/access.h"

#include <stdio.h>
#include <string.h>

#include "tests/harness.h"

enum { ADMIN = 1 << TOKEN_ADMIN, WORKER = 1 << TOKEN_WORKER, METRICS = 1 << TOKEN_METRICS };

static struct tally_tokens tokens; /* used by the running test */

static const struct known_token *add(enum token_role role, const char *text, const char *name,
                                     int64_t until_ms)
{
    static struct tally_token token;
    struct tally_error err = TALLY_ERROR_INIT;
    snprintf(token.text, sizeof token.text, "%s", text);
    snprintf(token.name, sizeof token.name, "%s", name);
    token.until_ms = until_ms;
    TALLY_ASSERT_STATUS(token_set_add(&tokens.roles[role], &token, &err), TALLY_OK, &err);
    return &tokens.roles[role].items[tokens.roles[role].n - 1];
}

static void begin(void)
{
    memset(&tokens, 0, sizeof tokens);
    add(TOKEN_ADMIN, "admin-0123456789", "", INT64_MAX);
    add(TOKEN_WORKER, "worker-a-0123456789", "a", INT64_MAX);
    add(TOKEN_WORKER, "worker-b-0123456789", "", 5000);
    add(TOKEN_METRICS, "metrics-0123456789", "", INT64_MAX);
}

static void expect(unsigned wanted, const char *given, int64_t now_ms, enum token_verdict verdict)
{
    const struct known_token *found = NULL;
    CU_ASSERT_EQUAL(token_look_up(&tokens, wanted, given, now_ms, &found), verdict);
    CU_ASSERT_EQUAL(found != NULL, verdict != TOKEN_UNKNOWN);
}

static void test_coordinator_token_set__a_token_opens_its_own_role(void)
{
    begin();
    expect(ADMIN, "admin-0123456789", 0, TOKEN_RIGHT);
    expect(ADMIN | METRICS, "admin-0123456789", 0, TOKEN_RIGHT);
    expect(ADMIN | METRICS, "metrics-0123456789", 0, TOKEN_RIGHT);
    expect(ADMIN, "metrics-0123456789", 0, TOKEN_OTHER_ROLE);
    expect(WORKER, "admin-0123456789", 0, TOKEN_OTHER_ROLE);
    expect(WORKER, "worker-a-0123456789", 0, TOKEN_RIGHT);
    expect(ADMIN, "worker-a-0123456789", 0, TOKEN_OTHER_ROLE);
}

static void test_coordinator_token_set__nearly_is_not_enough(void)
{
    begin();
    static const char *const WRONG[] = {"",
                                        "a",
                                        "admin-012345678",
                                        "admin-01234567890",
                                        "admin-0123456789 ",
                                        " admin-0123456789",
                                        "Admin-0123456789",
                                        "admin-0123456788",
                                        "bdmin-0123456789",
                                        "admin-0123456789admin-0123456789"};
    for (size_t i = 0; i < sizeof WRONG / sizeof WRONG[0]; i++) {
        expect(ADMIN, WRONG[i], 0, TOKEN_UNKNOWN);
    }
}

static void test_coordinator_token_set__until_ends_it(void)
{
    begin();
    expect(WORKER, "worker-b-0123456789", 4999, TOKEN_RIGHT);
    expect(WORKER, "worker-b-0123456789", 5000, TOKEN_EXPIRED);
    expect(ADMIN, "worker-b-0123456789", 4999, TOKEN_OTHER_ROLE);
    expect(ADMIN, "worker-b-0123456789", 5000, TOKEN_EXPIRED);
    add(TOKEN_ADMIN, "worker-b-0123456789", "", 9000); /* expired as worker, valid as admin */
    expect(ADMIN, "worker-b-0123456789", 5000, TOKEN_RIGHT);
    expect(WORKER, "worker-b-0123456789", 5000, TOKEN_OTHER_ROLE);
}

static void test_coordinator_token_set__who_has_the_same_name_is_the_same(void)
{
    memset(&tokens, 0, sizeof tokens);
    const struct token_identity nobody = {{0}};
    const struct known_token *old = add(TOKEN_WORKER, "one-0123456789abcdef", "site", 5000);
    const struct known_token *fresh = add(TOKEN_WORKER, "two-0123456789abcdef", "site", INT64_MAX);
    const struct known_token *other = add(TOKEN_WORKER, "three-0123456789abcdef", "sit", INT64_MAX);
    const struct known_token *bare = add(TOKEN_WORKER, "four-0123456789abcdef", "", INT64_MAX);
    const struct known_token *more = add(TOKEN_WORKER, "five-0123456789abcdef", "", INT64_MAX);
    CU_ASSERT_TRUE(access_same_identity(&old->identity, &fresh->identity));
    CU_ASSERT_FALSE(access_same_identity(&old->identity, &other->identity));
    CU_ASSERT_FALSE(access_same_identity(&bare->identity, &more->identity));
    CU_ASSERT_FALSE(access_same_identity(&bare->identity, &nobody));
    CU_ASSERT_FALSE(access_same_identity(&old->identity, &nobody));
}

static void test_coordinator_token_set__an_identity_differs_in_any_byte(void)
{
    const struct token_identity one = {{0}};
    for (int i = 0; i < TALLY_SHA256_BYTES; i++) {
        struct token_identity other = one;
        other.bytes[i] = 1;
        CU_ASSERT_FALSE(access_same_identity(&one, &other));
    }
    CU_ASSERT_TRUE(access_same_identity(&one, &one));
}

static bool holds(const void *bytes, size_t n, const char *text)
{
    return memmem(bytes, n, text, strlen(text)) != NULL;
}

static void test_coordinator_token_set__does_not_keep_the_token(void)
{
    begin();
    CU_ASSERT_TRUE(holds(&tokens, sizeof tokens, "a")); /* its name */
    CU_ASSERT_FALSE(holds(&tokens, sizeof tokens, "admin"));
    CU_ASSERT_FALSE(holds(&tokens, sizeof tokens, "0123456789"));
}

static void test_coordinator_token_set__refuses_what_can_be_guessed(void)
{
    static struct tally_token token = {.text = "123456789012345", .until_ms = INT64_MAX};
    struct token_set set = {0};
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(token_set_add(&set, &token, &err), TALLY_INVALID_ARGUMENT, &err);
    TALLY_ASSERT_TEXT(err.message, "the token has 15 bytes, fewer than 16");
    CU_ASSERT_EQUAL(set.n, 0);
}

static void test_coordinator_token_set__holds_64(void)
{
    static struct tally_token token = {.until_ms = INT64_MAX};
    struct token_set set = {0};
    struct tally_error err = TALLY_ERROR_INIT;
    for (int i = 0; i < 64; i++) {
        snprintf(token.text, sizeof token.text, "0123456789abcdef%d", i);
        TALLY_ASSERT_STATUS(token_set_add(&set, &token, &err), TALLY_OK, &err);
    }
    TALLY_ASSERT_STATUS(token_set_add(&set, &token, &err), TALLY_INVALID_ARGUMENT, &err);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_coordinator_token_set__a_token_opens_its_own_role),
    TALLY_TEST(test_coordinator_token_set__nearly_is_not_enough),
    TALLY_TEST(test_coordinator_token_set__until_ends_it),
    TALLY_TEST(test_coordinator_token_set__who_has_the_same_name_is_the_same),
    TALLY_TEST(test_coordinator_token_set__an_identity_differs_in_any_byte),
    TALLY_TEST(test_coordinator_token_set__does_not_keep_the_token),
    TALLY_TEST(test_coordinator_token_set__refuses_what_can_be_guessed),
    TALLY_TEST(test_coordinator_token_set__holds_64),
};
TALLY_SUITE(coordinator_token_set, TESTS);
