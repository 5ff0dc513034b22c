/* process_guard: what a program gives up, and keeps from its children, so that less can be made of
 * it. */
#ifndef TALLY_SERVICES_BASE_PROCESS_GUARD_H
#define TALLY_SERVICES_BASE_PROCESS_GUARD_H

#include <stdbool.h>

/* From now on, only their owner may access the files that this program makes, and no program that
 * it starts gains privileges (no_new_privs; a worker starts itself for isolated plug-ins, nothing
 * else). With secrets, no core dump is written either, and no other process of the same user reads
 * its memory (PR_SET_DUMPABLE 0): not even a debugger, unless it is root's.
 *
 * No filter of system calls: libraries that are updated under us decide what they call. systemd and
 * container engines set filters of their own. */
void tally_process_guard(bool keeps_secrets);

/* The environment of a program that this one starts: ours without TALLY_*, which are options of
 * this program, secrets among them. For execve(); the caller frees only the array, its texts are
 * the environment's. NULL without memory. */
char **tally_child_environment_new(void);

#endif
