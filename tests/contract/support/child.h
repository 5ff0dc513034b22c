/* child: processes that tests start, and kill by their own id. */
#ifndef TALLY_TESTS_CONTRACT_SUPPORT_CHILD_H
#define TALLY_TESTS_CONTRACT_SUPPORT_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

/* Runs `body` in a forked child and returns its value (0 to 255), or -1 if a signal ended it. CUnit
 * must not be used in a child. */
int child_run(int (*body)(void *context), void *context);

/* For bodies: 0 if `holds`, else 1 and a line on stderr; a body returns the sum. */
int child_require(bool holds, const char *what);

/* A child that reports integers and is killed. */
struct child {
    pid_t pid;
    int reports; /* read end */
};

/* Starts `body`, which reports through child_report; the child then sleeps until it is killed. */
struct child child_start(void (*body)(void *context, int reports), void *context);
void child_report(int reports, int value);
/* The next report; -1 if the child has died. */
int child_next(struct child *child);
/* SIGKILL; returns the last report not yet read, or `last` if there was none. */
int child_kill(struct child *child, int last);

#endif
