/* harness: self-registering CUnit suites in const tables, selected by argv.
 *
 *     static void test_codec_bits__read_past_end_fails(void) { ... }
 *     static const struct tally_test TESTS[] = {TALLY_TEST(test_codec_bits__read_past_end_fails)};
 *     TALLY_SUITE(codec_bits, TESTS);
 *
 * TALLY_SUITE places a pointer to the suite in the linker section "tally_suites", whose bounds the
 * linker provides, so that no other place names the suite. CMake finds the line in the source file
 * and adds the ctest entry PROGRAM/SUITE (tests/CMakeLists.txt).
 *
 * On Debian 12 CU_basic_run_tests() and CU_get_error() report success when tests failed, so main()
 * checks the number of failures itself. An unknown suite name is a failure too. A suite that lacks
 * its environment variable is skipped with a message; if no other suite was requested, the exit
 * status is 77. */
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
    const char *needs; /* environment variable without which the suite is skipped; NULL = none */
};

/* Row of a test table: the function's own name. */
#define TALLY_TEST(function)                                                                       \
    {                                                                                              \
#function, function                                                                        \
    }
/* Defines and registers a suite. `name` is an identifier, unique in the program. The macro must be
 * at the start of a line, where CMake finds it. */
#define TALLY_SUITE(name, table) TALLY_SUITE_THAT_NEEDS(name, table, NULL)
#define TALLY_SUITE_THAT_NEEDS(name, table, variable)                                              \
    static const struct tally_suite name##_suite = {                                               \
        #name, table, (int)(sizeof table / sizeof table[0]), variable};                            \
    static const struct tally_suite *const name##_entry                                            \
        __attribute__((used, section("tally_suites"))) = &name##_suite

/* Checks that two texts are equal and shows both if not. */
#define TALLY_ASSERT_TEXT(actual, expected) tally_assert_text(actual, expected, __FILE__, __LINE__)
void tally_assert_text(const char *actual, const char *expected, const char *file, int line);

/* Checks a status and shows the error message if it differs. */
#define TALLY_ASSERT_STATUS(call, expected, err)                                                   \
    tally_assert_status((call), (expected), (err), __FILE__, __LINE__)
#include "codec/error.h"
void tally_assert_status(enum tally_status actual, enum tally_status expected,
                         const struct tally_error *err, const char *file, int line);

#endif
