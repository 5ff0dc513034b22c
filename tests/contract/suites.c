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
static const struct tally_test STORE_REFERENCE_LEASES_TESTS[] = {
    TALLY_STORE_LEASES_TESTS(ROW) TALLY_STORE_MEMORY_DATABASE_TESTS(ROW)};
static const struct tally_test STORE_OPEN_TESTS[] = {TALLY_STORE_OPEN_TESTS(ROW)};

TALLY_SUITE(store_reference, STORE_TESTS);
TALLY_SUITE(store_reference_leases, STORE_REFERENCE_LEASES_TESTS);
TALLY_SUITE(store_memory, STORE_TESTS);
TALLY_SUITE(store_sqlite, STORE_TESTS);
TALLY_SUITE_THAT_NEEDS(store_postgres, STORE_TESTS, "TALLY_POSTGRES");
TALLY_SUITE_THAT_NEEDS(store_postgres_server, STORE_POSTGRES_SERVER_TESTS, "TALLY_POSTGRES");
TALLY_SUITE_THAT_NEEDS(store_postgres_network, STORE_POSTGRES_NETWORK_TESTS, "TALLY_POSTGRES");
TALLY_SUITE_THAT_NEEDS(store_postgres_leases, STORE_POSTGRES_LEASES_TESTS, "TALLY_POSTGRES");
TALLY_SUITE(store_sqlite_file, STORE_SQLITE_FILE_TESTS);
TALLY_SUITE(store_open, STORE_OPEN_TESTS);
