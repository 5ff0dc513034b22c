#include "services/coordinator/access.h"

#include <string.h>

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

static void test_coordinator_listen_scope__own_url(void)
{
    static const struct {
        const char *listen, *url; /* NULL = none */
        bool is_tls;
    } CASES[] = {
        {"127.0.0.1:8080", "http://127.0.0.1:8080", false},
        {"10.0.0.1:443", "https://10.0.0.1:443", true},
        {"0.0.0.0:8080", "http://127.0.0.1:8080", false},
        {"[::]:8443", "https://127.0.0.1:8443", true},
        {"[fe80::1]:80", "http://[fe80::1]:80", false},
        {"0.0.0.0:0", NULL, false},
        {"8080", NULL, false},
        {":8080", NULL, false},
        {"", NULL, false},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        char url[LISTEN_URL_CAPACITY];
        const bool has_url = listen_own_url(CASES[i].listen, CASES[i].is_tls, url);
        CU_ASSERT_EQUAL(has_url, CASES[i].url != NULL);
        CU_ASSERT(!has_url || strcmp(url, CASES[i].url) == 0);
    }
}

static void test_coordinator_listen_scope__reads_numeric_addresses_and_localhost(void)
{
    static const char *const rows[][2] = {
        {"127.0.0.1:8080", "127.0.0.1:8080"}, {"localhost:8080", "127.0.0.1:8080"},
        {"localhost:0", "127.0.0.1:0"},       {"127.1:80", "127.0.0.1:80"},
        {"0:8080", "0.0.0.0:8080"},           {"0.0.0.0:65535", "0.0.0.0:65535"},
        {"[::1]:8080", "[::1]:8080"},         {"[fe80::1%eth0]:8080", "[fe80::1%eth0]:8080"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char listen[LISTEN_CAPACITY] = "";
        struct tally_error err = TALLY_ERROR_INIT;
        TALLY_ASSERT_STATUS(listen_read(rows[i][0], listen, &err), TALLY_OK, &err);
        TALLY_ASSERT_TEXT(listen, rows[i][1]);
    }
}

static void test_coordinator_listen_scope__says_what_was_probably_meant(void)
{
    static const char *const rows[][2] = {
        {"127.0.0.1", "\"127.0.0.1\" has no port; give ADDRESS:PORT, such as 127.0.0.1:8080"},
        {"localhost", "\"localhost\" has no port; give ADDRESS:PORT, such as localhost:8080"},
        {"", "\"\" has no port; give ADDRESS:PORT, such as 127.0.0.1:8080"},
        {"[::1]", "\"[::1]\" has no port; give ADDRESS:PORT, such as [::1]:8080"},
        {"8080", "\"8080\" is only a port; give an address too: 127.0.0.1:8080 for this machine "
                 "alone"},
        {":8080", "\":8080\" has no address; give 127.0.0.1:8080 for this machine alone, "
                  "0.0.0.0:8080 for all addresses"},
        {"::1:8080", "\"::1:8080\": an IPv6 address needs brackets: [::1]:8080"},
        {"fe80::7", "\"fe80::7\" has no port, and an IPv6 address needs brackets: [fe80::7]:8080"},
        {"::1", "\"::1\" has no port, and an IPv6 address needs brackets: [::1]:8080"},
        {"http://127.0.0.1:8080",
         "\"http://127.0.0.1:8080\" is a URL; give only ADDRESS:PORT, such as 127.0.0.1:8080"},
        {"127.0.0.1:99999", "port \"99999\" outside [0, 65535]"},
        {"127.0.0.1:http", "port \"http\" outside [0, 65535]"},
        {"127.0.0.1:", "port \"\" outside [0, 65535]"},
        {"*:80", "\"*\" is not a numeric address or localhost; 127.0.0.1:80 serves this machine "
                 "alone, 0.0.0.0:80 all addresses"},
        {"example.org:80",
         "\"example.org\" is not a numeric address or localhost; 127.0.0.1:80 serves this machine "
         "alone, 0.0.0.0:80 all addresses"},
        {"[127.0.0.1]:80",
         "\"[127.0.0.1]\" is not a numeric address or localhost; 127.0.0.1:80 serves this machine "
         "alone, 0.0.0.0:80 all addresses"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char listen[LISTEN_CAPACITY] = "";
        struct tally_error err = TALLY_ERROR_INIT;
        CU_ASSERT_EQUAL(listen_read(rows[i][0], listen, &err), TALLY_INVALID_ARGUMENT);
        TALLY_ASSERT_TEXT(err.message, rows[i][1]);
    }
    char longest[400], listen[LISTEN_CAPACITY];
    memset(longest, '1', sizeof longest);
    memcpy(longest + sizeof longest - 4, ":80", 4);
    CU_ASSERT_EQUAL(listen_read(longest, listen, NULL), TALLY_INVALID_ARGUMENT);
    longest[0] = '[';
    longest[sizeof longest - 5] = ']';
    CU_ASSERT_EQUAL(listen_read(longest, listen, NULL), TALLY_INVALID_ARGUMENT);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_coordinator_listen_scope__this_machine_alone),
    TALLY_TEST(test_coordinator_listen_scope__others_too_or_not_understood),
    TALLY_TEST(test_coordinator_listen_scope__one_address_or_any),
    TALLY_TEST(test_coordinator_listen_scope__own_url),
    TALLY_TEST(test_coordinator_listen_scope__reads_numeric_addresses_and_localhost),
    TALLY_TEST(test_coordinator_listen_scope__says_what_was_probably_meant),
};
TALLY_SUITE(coordinator_listen_scope, TESTS);
