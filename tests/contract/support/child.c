#include "tests/contract/support/child.h"

#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness.h"

int child_run(int (*body)(void *context), void *context)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        _exit(body(context));
    }
    CU_ASSERT_FATAL(pid > 0);
    int result = 0;
    CU_ASSERT_EQUAL_FATAL(waitpid(pid, &result, 0), pid);
    return WIFEXITED(result) ? WEXITSTATUS(result) : -1;
}

int child_require(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "\n    in the child, false: %s", what);
    }
    return holds ? 0 : 1;
}

struct child child_start(void (*body)(void *context, int reports), void *context)
{
    int ends[2];
    CU_ASSERT_EQUAL_FATAL(pipe(ends), 0);
    fflush(NULL);
    struct child child = {fork(), ends[0]};
    if (child.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* no orphan if the test program is killed */
        close(ends[0]);
        body(context, ends[1]);
        for (;;) {
            pause();
        }
    }
    CU_ASSERT_FATAL(child.pid > 0);
    close(ends[1]);
    return child;
}

void child_report(int reports, int value)
{
    if (write(reports, &value, sizeof value) != (ssize_t)sizeof value) {
        _exit(2);
    }
}

int child_next(struct child *child)
{
    int value = -1;
    ssize_t n = read(child->reports, &value, sizeof value);
    return n == (ssize_t)sizeof value ? value : -1;
}

int child_kill(struct child *child, int last)
{
    kill(child->pid, SIGKILL);
    int result = 0;
    CU_ASSERT_EQUAL(waitpid(child->pid, &result, 0), child->pid);
    CU_ASSERT(WIFSIGNALED(result) && WTERMSIG(result) == SIGKILL);
    for (int value = child_next(child); value >= 0; value = child_next(child)) {
        last = value;
    }
    close(child->reports);
    return last;
}
