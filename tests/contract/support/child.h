/* child: processes that tests start, and kill by process id. */
#ifndef TALLY_TESTS_CONTRACT_SUPPORT_CHILD_H
#define TALLY_TESTS_CONTRACT_SUPPORT_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

/* Runs `body` in a forked child and returns its value (0 to 255), or -1 if a signal ended it.
 * Children must not use CUnit. */
int child_run(int (*body)(void *context), void *context);

/* For bodies: returns 0 if `holds`; else returns 1 and prints a line on stderr. A body returns the
 * sum. */
int child_require(bool holds, const char *what);

/* A child that reports integers until it is killed. */
struct child {
    pid_t pid;
    int reports; /* read end */
};

/* Starts `body`, which calls child_report(); after it the child sleeps until it is killed. */
struct child child_start(void (*body)(void *context, int reports), void *context);
void child_report(int reports, int value);
/* The next report; -1 if the child has died. */
int child_next(struct child *child);
/* Sends SIGKILL. Returns the last unread report, or `last` if there is none. */
int child_kill(struct child *child, int last);

#endif
