/* harness: main() of every CUnit program: PROGRAM [--list] [SUITE...]. Without names all suites
 * run.
 */
#include "tests/harness.h"

#include <CUnit/Basic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tally_assert_text(const char *actual, const char *expected, const char *file, int line)
{
    bool equal = actual != NULL && expected != NULL && strcmp(actual, expected) == 0;
    if (!equal) {
        printf("\n    %s:%d: got \"%s\", expected \"%s\"", file, line,
               actual != NULL ? actual : "(null)", expected != NULL ? expected : "(null)");
    }
    CU_assertImplementation(equal, (unsigned)line, "texts are equal", file, "", CU_FALSE);
}

void tally_assert_status(enum tally_status actual, enum tally_status expected,
                         const struct tally_error *err, const char *file, int line)
{
    if (actual != expected) {
        printf("\n    %s:%d: status %s, expected %s%s%s", file, line,
               tally_status_info(actual)->name, tally_status_info(expected)->name,
               err != NULL ? ": " : "", err != NULL ? err->message : "");
    }
    CU_assertImplementation(actual == expected, (unsigned)line, "status as expected", file, "",
                            CU_FALSE);
}

/* Bounds of the section that TALLY_SUITE fills. The linker chooses these names. */
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming)
extern const struct tally_suite *const __start_tally_suites[];
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming)
extern const struct tally_suite *const __stop_tally_suites[];

static int n_suites(void)
{
    return (int)(__stop_tally_suites - __start_tally_suites);
}

static const struct tally_suite *find_suite(const char *name)
{
    for (int i = 0; i < n_suites(); i++) {
        if (strcmp(__start_tally_suites[i]->name, name) == 0) {
            return __start_tally_suites[i];
        }
    }
    return NULL;
}

enum { SKIPPED = 77 }; /* exit status */

static bool can_run(const struct tally_suite *suite)
{
    if (suite->needs != NULL && getenv(suite->needs) == NULL) {
        printf("suite \"%s\" is SKIPPED: %s is not set\n", suite->name, suite->needs);
        return false;
    }
    return true;
}

static bool add_suite(const struct tally_suite *suite)
{
    if (!can_run(suite)) {
        return true;
    }
    CU_pSuite added = CU_add_suite(suite->name, NULL, NULL);
    for (int i = 0; added != NULL && i < suite->n_tests; i++) {
        if (CU_add_test(added, suite->tests[i].name, suite->tests[i].run) == NULL) {
            return false;
        }
    }
    return added != NULL;
}

#if defined(__SANITIZE_ADDRESS__)
/* Read by ASan at the start; what ASAN_OPTIONS sets takes precedence. A text without its NUL must
 * fail in every run of a test program, not only in the part of tests/run that sets options. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "strict_string_checks=1:detect_leaks=1";
}
#endif

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (int i = 0; i < n_suites(); i++) {
            puts(__start_tally_suites[i]->name);
        }
        return 0;
    }
    if (CU_initialize_registry() != CUE_SUCCESS) {
        return 2;
    }
    for (int i = 1; i < argc; i++) {
        const struct tally_suite *suite = find_suite(argv[i]);
        if (suite == NULL || !add_suite(suite)) {
            fprintf(stderr, "no suite \"%s\"; --list shows them\n", argv[i]);
            return 2;
        }
    }
    for (int i = 0; argc == 1 && i < n_suites(); i++) {
        if (!add_suite(__start_tally_suites[i])) {
            return 2;
        }
    }
    if (CU_get_registry()->uiNumberOfSuites == 0) {
        CU_cleanup_registry();
        return SKIPPED;
    }
    CU_basic_set_mode(CU_BRM_VERBOSE);
    CU_basic_run_tests();
    unsigned failures = CU_get_number_of_failures();
    unsigned run = CU_get_number_of_tests_run();
    CU_cleanup_registry();
    if (run == 0) {
        fprintf(stderr, "no test was run\n");
        return 2;
    }
    return failures == 0 ? 0 : 1;
}
