/* harness: CUnit suites as const tables, selected by argv.
 *
 * On Debian 12 CU_basic_run_tests() and CU_get_error() report success when tests failed, so main()
 * returns the number of failures itself, and an unknown suite name is a failure too. A suite that
 * lacks what it needs is skipped and says so; if nothing else was asked for, the exit status is 77.
 */
#ifndef TALLY_TESTS_HARNESS_H
#define TALLY_TESTS_HARNESS_H

#include <CUnit/CUnit.h>

struct tally_test {
    const char *name; /* test_codec_unary__zero_costs_one_bit */
    void (*run)(void);
};

struct tally_suite {
    const char *name; /* "codec_unary" */
    const struct tally_test *tests;
    int n_tests;
    const char *needs; /* an environment variable without which it is skipped; NULL = none */
};

/* Row of a test table: the function's own name. */
#define TALLY_TEST(function)                                                                       \
    {                                                                                              \
#function, function                                                                        \
    }
#define TALLY_SUITE(symbol, suite_name, table)                                                     \
    TALLY_SUITE_THAT_NEEDS(symbol, suite_name, table, NULL)
#define TALLY_SUITE_THAT_NEEDS(symbol, suite_name, table, variable)                                \
    const struct tally_suite symbol = {suite_name, table, (int)(sizeof table / sizeof table[0]),   \
                                       variable}

/* Defined by each test program: its suites, NULL-terminated. */
extern const struct tally_suite *const TALLY_SUITES[];

/* Checks that two texts are equal and shows both if not. */
#define TALLY_ASSERT_TEXT(actual, expected) tally_assert_text(actual, expected, __FILE__, __LINE__)
void tally_assert_text(const char *actual, const char *expected, const char *file, int line);

/* Checks a status and shows the error message if it is another. */
#define TALLY_ASSERT_STATUS(call, expected, err)                                                   \
    tally_assert_status((call), (expected), (err), __FILE__, __LINE__)
#include "codec/base/error.h"
void tally_assert_status(enum tally_status actual, enum tally_status expected,
                         const struct tally_error *err, const char *file, int line);

#endif
