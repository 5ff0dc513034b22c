/* process_guard: privileges that a program drops, and secrets that it hides from its children, so
 * that an attacker gains less from it. */
#ifndef TALLY_SERVICES_BASE_PROCESS_GUARD_H
#define TALLY_SERVICES_BASE_PROCESS_GUARD_H

#include <stdbool.h>

/* From now on, the files that this program creates are accessible only to their owner, and no
 * program that it starts gains privileges (no_new_privs; the only such program is a worker itself,
 * for isolated plug-ins). With secrets, in addition, no core dump is written, and no other process
 * of the same user can read its memory (PR_SET_DUMPABLE 0), not even a debugger unless it is
 * root's.
 *
 * System calls are not filtered: which ones libraries need may change with their updates. systemd
 * and container engines set filters of their own. */
void tally_process_guard(bool keeps_secrets);

/* The environment of a program that this one starts: this program's without TALLY_*, which are its
 * options and include secrets. For execve(). The caller frees only the array; its strings belong to
 * the environment. NULL if out of memory. */
char **tally_child_environment_new(void);

#endif
