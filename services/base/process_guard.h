/* process_guard: privileges that a program drops, and secrets that it hides from its children, so
 * that an attacker gains less from it. */
#ifndef TALLY_SERVICES_BASE_PROCESS_GUARD_H
#define TALLY_SERVICES_BASE_PROCESS_GUARD_H

#include <stdbool.h>
#include <stdint.h>

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

/* ---- How much memory this process may use: the machine's memory, or the limit of its
 * cgroup or of an ancestor if that is lower (cgroup versions 1 and 2; containers, systemd). */

/* Bytes; INT64_MAX if the system does not say. */
int64_t tally_machine_memory(void);

/* The lowest limit of the cgroups in `membership` (the content of /proc/self/cgroup) and of their
 * ancestors, in the folder `root` (/sys/fs/cgroup). In a container the cgroup's own folder may be
 * `root` itself, which is read too. INT64_MAX if there is no limit. */
int64_t tally_cgroup_memory(const char *membership, const char *root);

/* The value of a limit file: a number, or "max". INT64_MAX if it is not a limit. */
int64_t tally_cgroup_limit(const char *text);

#endif
