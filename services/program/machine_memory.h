/* machine_memory: how much memory this process may use: that of the machine, or less where its
 * cgroup, or one above it, has a limit (cgroup version 1 and 2; containers, systemd). */
#ifndef TALLY_SERVICES_PROGRAM_MACHINE_MEMORY_H
#define TALLY_SERVICES_PROGRAM_MACHINE_MEMORY_H

#include <stdint.h>

/* Bytes; INT64_MAX if the system does not tell. */
int64_t tally_machine_memory(void);

/* The least limit of the cgroups that `membership` (the content of /proc/self/cgroup) names, and of
 * those above them, below the folder `root` (/sys/fs/cgroup). Where a container does not show the
 * cgroup's own folder, the folder that is at `root` is it. INT64_MAX if there is no limit. */
int64_t tally_cgroup_memory(const char *membership, const char *root);

/* What a limit's file says: a number, or "max"; INT64_MAX if it is no limit. */
int64_t tally_cgroup_limit(const char *text);

#endif
