#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "services/base/process_guard.h"
#include "tests/harness.h"

static void test_base_child_environment__all_but_our_options(void)
{
    char *const of_test[] = {
        "TALLY_TOKEN=secret", "PATH=/bin", "TALLY=1", "TALLY_=", "HOME=/", NULL};
    char **const saved = environ;
    environ = (char **)of_test;
    char **environment = tally_child_environment_new();
    environ = saved;
    CU_ASSERT_PTR_NOT_NULL_FATAL(environment);
    CU_ASSERT_PTR_EQUAL(environment[0], of_test[1]);
    CU_ASSERT_PTR_EQUAL(environment[1], of_test[2]);
    CU_ASSERT_PTR_EQUAL(environment[2], of_test[4]);
    CU_ASSERT_PTR_NULL(environment[3]);
    free(environment);
}

static void test_base_child_environment__of_nothing(void)
{
    char *none[] = {NULL};
    char **const saved = environ;
    environ = none;
    char **environment = tally_child_environment_new();
    environ = saved;
    CU_ASSERT_PTR_NOT_NULL_FATAL(environment);
    CU_ASSERT_PTR_NULL(environment[0]);
    free(environment);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_base_child_environment__all_but_our_options),
    TALLY_TEST(test_base_child_environment__of_nothing),
};
TALLY_SUITE(base_child_environment, TESTS);
