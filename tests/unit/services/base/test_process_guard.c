#include "services/base/process_guard.h"

#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness.h"

/* Runs in a child, because the change is irreversible. Returns bit 0: no_new_privs; bit 1:
 * dumpable; bit 2: the umask denies group and others all access; bit 3: the umask keeps its
 * previous bits. */
static int state_after(bool keeps_secrets)
{
    int status = 0;
    const pid_t child = fork();
    CU_ASSERT_FATAL(child >= 0);
    if (child == 0) {
        (void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
        umask(0200);
        tally_process_guard(keeps_secrets);
        const mode_t mask = umask(0);
        _exit(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) | prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) << 1 |
              ((mask & 0077) == 0077) << 2 | ((mask & 0200) != 0) << 3);
    }
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    CU_ASSERT_TRUE(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_base_process_guard__gives_up_new_rights_always_and_dumps_with_secrets(void)
{
    CU_ASSERT_EQUAL(state_after(false), 8 + 4 + 2 + 1);
    CU_ASSERT_EQUAL(state_after(true), 8 + 4 + 1);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_base_process_guard__gives_up_new_rights_always_and_dumps_with_secrets),
};
TALLY_SUITE(base_process_guard, TESTS);
