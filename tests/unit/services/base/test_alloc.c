#include "services/base/alloc.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness.h"

static void test_base_alloc__memory_is_zeroed_and_grows(void)
{
    int *numbers = tally_xcalloc(3, sizeof *numbers);
    CU_ASSERT_TRUE(numbers[0] == 0 && numbers[1] == 0 && numbers[2] == 0);
    numbers[2] = 7;
    numbers = tally_xrealloc(numbers, 1000, sizeof *numbers);
    CU_ASSERT_EQUAL(numbers[2], 7);
    free(numbers);
    void *nothing = tally_xcalloc(0, 8); /* never NULL */
    CU_ASSERT_PTR_NOT_NULL(nothing);
    nothing = tally_xrealloc(nothing, 0, 8);
    CU_ASSERT_PTR_NOT_NULL(nothing);
    free(nothing);
    char *copy = tally_xstrdup("text");
    CU_ASSERT_STRING_EQUAL(copy, "text");
    free(copy);
}

/* In a child, whose stderr is `out`. The product overflows, so that no sanitizer reports it. */
static int exit_code_without_memory(int out)
{
    int status = 0;
    const pid_t child = fork();
    CU_ASSERT_FATAL(child >= 0);
    if (child == 0) {
        (void)dup2(out, STDERR_FILENO);
        void *p = tally_xrealloc(NULL, SIZE_MAX / 2, 4);
        free(p);
        _exit(0);
    }
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    CU_ASSERT_TRUE(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_base_alloc__without_memory_the_process_ends_with_a_message(void)
{
    int ends[2];
    char said[512] = "";
    CU_ASSERT_EQUAL_FATAL(pipe(ends), 0);
    CU_ASSERT_EQUAL(exit_code_without_memory(ends[1]), 1);
    close(ends[1]);
    const ssize_t n = read(ends[0], said, sizeof said - 1);
    close(ends[0]);
    CU_ASSERT_TRUE(n > 0);
    CU_ASSERT_PTR_NOT_NULL(strstr(said, "out of memory"));
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_base_alloc__memory_is_zeroed_and_grows),
    TALLY_TEST(test_base_alloc__without_memory_the_process_ends_with_a_message),
};
TALLY_SUITE(base_alloc, TESTS);
