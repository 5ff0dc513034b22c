/* Suites of tally-test-contract. */
#include "tests/contract/store_tests.h"
#include "tests/harness.h"

#define ROW(name) TALLY_TEST(name),

static const struct tally_test STORE_TESTS[] = {TALLY_STORE_TESTS(ROW)};
static const struct tally_test STORE_SQLITE_FILE_TESTS[] = {TALLY_STORE_REOPENING_TESTS(ROW)
                                                                TALLY_STORE_SQLITE_FILE_TESTS(ROW)};
static const struct tally_test STORE_POSTGRES_SERVER_TESTS[] = {
    TALLY_STORE_REOPENING_TESTS(ROW) TALLY_STORE_POSTGRES_SERVER_TESTS(ROW)};
static const struct tally_test STORE_POSTGRES_NETWORK_TESTS[] = {
    TALLY_STORE_POSTGRES_NETWORK_TESTS(ROW)};
static const struct tally_test STORE_POSTGRES_LEASES_TESTS[] = {
    TALLY_STORE_LEASES_TESTS(ROW) TALLY_STORE_POSTGRES_LEASES_TESTS(ROW)};
static const struct tally_test STORE_MEMORY_LEASES_TESTS[] = {
    TALLY_STORE_LEASES_TESTS(ROW) TALLY_STORE_MEMORY_DATABASE_TESTS(ROW)};
static const struct tally_test STORE_OPEN_TESTS[] = {TALLY_STORE_OPEN_TESTS(ROW)};

static TALLY_SUITE(STORE_MEMORY, "store_memory", STORE_TESTS);
static TALLY_SUITE(STORE_MEMORY_SHARED, "store_memory_shared", STORE_TESTS);
static TALLY_SUITE(STORE_MEMORY_LEASES, "store_memory_leases", STORE_MEMORY_LEASES_TESTS);
static TALLY_SUITE(STORE_SQLITE, "store_sqlite", STORE_TESTS);
static TALLY_SUITE_THAT_NEEDS(STORE_POSTGRES, "store_postgres", STORE_TESTS, "TALLY_POSTGRES");
static TALLY_SUITE_THAT_NEEDS(STORE_POSTGRES_SERVER, "store_postgres_server",
                              STORE_POSTGRES_SERVER_TESTS, "TALLY_POSTGRES");
static TALLY_SUITE_THAT_NEEDS(STORE_POSTGRES_NETWORK, "store_postgres_network",
                              STORE_POSTGRES_NETWORK_TESTS, "TALLY_POSTGRES");
static TALLY_SUITE_THAT_NEEDS(STORE_POSTGRES_LEASES, "store_postgres_leases",
                              STORE_POSTGRES_LEASES_TESTS, "TALLY_POSTGRES");
static TALLY_SUITE(STORE_SQLITE_FILE, "store_sqlite_file", STORE_SQLITE_FILE_TESTS);
static TALLY_SUITE(STORE_OPEN, "store_open", STORE_OPEN_TESTS);

const struct tally_suite *const TALLY_SUITES[] = {&STORE_MEMORY,
                                                  &STORE_MEMORY_SHARED,
                                                  &STORE_MEMORY_LEASES,
                                                  &STORE_SQLITE,
                                                  &STORE_POSTGRES,
                                                  &STORE_POSTGRES_SERVER,
                                                  &STORE_POSTGRES_NETWORK,
                                                  &STORE_POSTGRES_LEASES,
                                                  &STORE_SQLITE_FILE,
                                                  &STORE_OPEN,
                                                  NULL};
