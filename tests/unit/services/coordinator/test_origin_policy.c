#include "services/coordinator/access.h"

#include "tests/harness.h"

static void test_coordinator_origin_policy__hosts_of_nobodys_dns(void)
{
    static const char *const ALLOWED[] = {
        "127.0.0.1",       "127.0.0.1:8080", "10.1.2.3:80",     "0.0.0.0:8080", "[::1]",
        "[::1]:8080",      "[fe80::1]:1",    "[::ffff:7f00:1]", "localhost",    "localhost:8080",
        "LocalHost:65535", "localhost.",     "localhost.:8080", "localhost:"};
    for (size_t i = 0; i < sizeof ALLOWED / sizeof ALLOWED[0]; i++) {
        CU_ASSERT_TRUE(access_host_is_allowed(ALLOWED[i], NULL));
    }
}

static void test_coordinator_origin_policy__hosts_of_strangers(void)
{
    static const char *const REFUSED[] = {"",
                                          ":8080",
                                          ".",
                                          "evil.test",
                                          "evil.test:8080",
                                          "localhost.evil.test",
                                          "localhosts",
                                          "ocalhost",
                                          "localhost..",
                                          "evil.localhost",
                                          "127.0.0.1.evil.test",
                                          "127.0.0.1..",
                                          "127.1",
                                          "0x7f.0.0.1",
                                          "2130706433",
                                          "127.0.0.1:8080:1",
                                          "127.0.0.1:80x",
                                          "127.0.0.1:808080",
                                          "127.0.0.1 evil.test",
                                          "localhost,evil.test",
                                          "evil.test@localhost",
                                          "::1",
                                          "::1:8080",
                                          "[::1",
                                          "[::1]evil.test",
                                          "[]",
                                          "[localhost]",
                                          "[127.0.0.1]",
                                          "[evil.test]:8080",
                                          "[::1%lo]"};
    for (size_t i = 0; i < sizeof REFUSED / sizeof REFUSED[0]; i++) {
        CU_ASSERT_FALSE(access_host_is_allowed(REFUSED[i], NULL));
        CU_ASSERT_FALSE(access_host_is_allowed(REFUSED[i], "tally.test"));
    }
}

static void test_coordinator_origin_policy__allowed_names(void)
{
    static const char LIST[] = "tally.example:other:Full.Name.";
    CU_ASSERT_TRUE(access_host_is_allowed("tally.example", LIST));
    CU_ASSERT_TRUE(access_host_is_allowed("TALLY.example.:8443", LIST));
    CU_ASSERT_TRUE(access_host_is_allowed("other:1", LIST));
    CU_ASSERT_TRUE(access_host_is_allowed("full.name", LIST));
    CU_ASSERT_TRUE(access_host_is_allowed("localhost", LIST));
    CU_ASSERT_FALSE(access_host_is_allowed("example", LIST));
    CU_ASSERT_FALSE(access_host_is_allowed("tally", LIST));
    CU_ASSERT_FALSE(access_host_is_allowed("tally.example.test", LIST));
    CU_ASSERT_FALSE(access_host_is_allowed("", LIST));
    CU_ASSERT_FALSE(access_host_is_allowed("[other]", LIST));
}

static void test_coordinator_origin_policy__own_writes(void)
{
    static const struct {
        const char *host, *origin, *site;
    } OWN[] = {
        {"127.0.0.1:8080", NULL, NULL}, /* no browser */
        {NULL, NULL, NULL},
        {"127.0.0.1:8080", NULL, "none"},
        {"127.0.0.1:8080", NULL, "same-origin"},
        {"127.0.0.1:8080", "http://127.0.0.1:8080", "same-origin"},
        {"127.0.0.1:8080", "http://127.0.0.1:8080", NULL},
        {"[::1]:8080", "http://[::1]:8080", NULL},
        {"LOCALHOST:8080", "HTTP://localhost:8080", NULL},
        {"tally.example", "http://tally.example", NULL},
        {"tally.example:80", "http://tally.example", NULL},
        {"tally.example.", "http://tally.example:80", NULL},
        {"tally.example", "https://tally.example", NULL}, /* a proxy terminates TLS */
        {"tally.example:443", "https://tally.example", NULL},
        {"tally.example", "https://tally.example:443", NULL},
        {"tally.example:8443", "https://tally.example:8443", NULL},
    };
    for (size_t i = 0; i < sizeof OWN / sizeof OWN[0]; i++) {
        CU_ASSERT_FALSE(access_write_is_foreign(OWN[i].host, OWN[i].origin, OWN[i].site));
    }
}

static void test_coordinator_origin_policy__foreign_writes(void)
{
    static const struct {
        const char *host, *origin, *site;
    } FOREIGN[] = {
        {"127.0.0.1:8080", NULL, "cross-site"},
        {"127.0.0.1:8080", NULL, "Cross-Site"},
        {"127.0.0.1:8080", NULL, "same-site"},
        {"127.0.0.1:8080", NULL, ""},
        {"127.0.0.1:8080", "http://127.0.0.1:8080", "cross-site"},
        {"127.0.0.1:8080", "http://evil.test", "same-origin"},
        {"127.0.0.1:8080", "null", NULL},
        {"127.0.0.1:8080", "", NULL},
        {"127.0.0.1:8080", "127.0.0.1:8080", NULL},
        {"127.0.0.1:8080", "file://", NULL},
        {"127.0.0.1:8080", "chrome-extension://127.0.0.1:8080", NULL},
        {"127.0.0.1:8080", "http://evil.test", NULL},
        {"127.0.0.1:8080", "http://127.0.0.1", NULL},
        {"127.0.0.1:8080", "http://127.0.0.1:8081", NULL},
        {"127.0.0.1:8080", "http://127.0.0.1:80808", NULL},
        {"127.0.0.1:8080", "http://127.0.0.1:8080.evil.test", NULL},
        {"127.0.0.1:8080", "http://127.0.0.1:8080 http://evil.test", NULL},
        {"127.0.0.1:8080", "http://localhost:8080", NULL},
        {"tally.example:443", "http://tally.example", NULL},
        {"tally.example:80", "https://tally.example", NULL},
        {"tally.example", "http://tally.example:8080", NULL},
        {"tally.example", "https://evil.tally.example", NULL},
        {"::1", "http://[::1]", NULL},
        {"", "http://", NULL},
        {NULL, "http://127.0.0.1:8080", NULL},
    };
    for (size_t i = 0; i < sizeof FOREIGN / sizeof FOREIGN[0]; i++) {
        CU_ASSERT_TRUE(
            access_write_is_foreign(FOREIGN[i].host, FOREIGN[i].origin, FOREIGN[i].site));
    }
}

static void test_coordinator_origin_policy__names_for_the_list(void)
{
    CU_ASSERT_TRUE(access_is_host_name("tally"));
    CU_ASSERT_TRUE(access_is_host_name("tally-1.my_net.example."));
    CU_ASSERT_TRUE(access_is_host_name("1and1.example"));
    CU_ASSERT_FALSE(access_is_host_name(""));
    CU_ASSERT_FALSE(access_is_host_name("8080")); /* part of "tally:8080": ':' separates names */
    CU_ASSERT_FALSE(access_is_host_name("*.example"));
    CU_ASSERT_FALSE(access_is_host_name("http"
                                        "//tally"));
    CU_ASSERT_FALSE(access_is_host_name("a b"));
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_coordinator_origin_policy__hosts_of_nobodys_dns),
    TALLY_TEST(test_coordinator_origin_policy__hosts_of_strangers),
    TALLY_TEST(test_coordinator_origin_policy__allowed_names),
    TALLY_TEST(test_coordinator_origin_policy__own_writes),
    TALLY_TEST(test_coordinator_origin_policy__foreign_writes),
    TALLY_TEST(test_coordinator_origin_policy__names_for_the_list),
};
TALLY_SUITE(coordinator_origin_policy, TESTS);
