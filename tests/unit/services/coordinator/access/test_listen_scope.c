#include "services/coordinator/access/listen_scope.h"

#include "tests/harness.h"

static void test_coordinator_listen_scope__this_machine_alone(void)
{
    static const char *const LOOPBACK[] = {"127.0.0.1:8080",
                                           "127.0.0.1:0",
                                           "127.255.255.254:1",
                                           "[::1]:8080",
                                           "[::1]:0",
                                           "[0:0:0:0:0:0:0:1]:8080",
                                           "[::ffff:127.0.0.1]:80",
                                           "[::ffff:7f00:1]:8080",
                                           "[0:0:0:0:0:ffff:127.9.9.9]:8080"};
    for (size_t i = 0; i < sizeof LOOPBACK / sizeof LOOPBACK[0]; i++) {
        CU_ASSERT_TRUE(listen_is_loopback(LOOPBACK[i]));
    }
}

static void test_coordinator_listen_scope__others_too_or_not_understood(void)
{
    static const char *const OTHERS[] = {
        "0.0.0.0:8080",
        "0.0.0.0:0",
        "0:8080",
        "[::]:8080",
        "[::]:0",
        "[::ffff:0.0.0.0]:8080",
        "[::ffff:10.0.0.1]:8080",
        "[::127.0.0.1]:8080",
        "[127.0.0.1]:8080",
        "[fe80::1]:8080",
        "[::2]:8080",
        "10.127.0.1:8080",
        "128.0.0.1:8080",
        "192.168.1.1:8080",
        "127.0.0.1.example.org:80",
        "localhost:8080",
        "::1:8080",
        "[::1]",
        "127.0.0.1",
        ":8080",
        "[]:8080",
        "]:8080",
        "",
        "0000000000000000000000000000000000000000000000127.0.0.1:8"};
    for (size_t i = 0; i < sizeof OTHERS / sizeof OTHERS[0]; i++) {
        CU_ASSERT_FALSE(listen_is_loopback(OTHERS[i]));
    }
}

static void test_coordinator_listen_scope__one_address_or_any(void)
{
    static const char *const ONE[] = {"127.0.0.1:8080", "10.0.0.1:80", "[::1]:8080",
                                      "[fe80::1]:8080"};
    static const char *const ANY[] = {
        "0.0.0.0:8080", "[::]:8080", "127.0.0.1:0", "[::1]:0", "localhost:8080", "127.0.0.1", ""};
    for (size_t i = 0; i < sizeof ONE / sizeof ONE[0]; i++) {
        CU_ASSERT_TRUE(listen_is_one_address(ONE[i]));
    }
    for (size_t i = 0; i < sizeof ANY / sizeof ANY[0]; i++) {
        CU_ASSERT_FALSE(listen_is_one_address(ANY[i]));
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_coordinator_listen_scope__this_machine_alone),
    TALLY_TEST(test_coordinator_listen_scope__others_too_or_not_understood),
    TALLY_TEST(test_coordinator_listen_scope__one_address_or_any),
};
TALLY_SUITE(coordinator_listen_scope, TESTS);
