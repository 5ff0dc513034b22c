/* machine_memory: how much memory this process may use: the machine's memory, or the limit of its
 * cgroup or of an ancestor if that is lower (cgroup versions 1 and 2; containers, systemd). */
#ifndef TALLY_SERVICES_BASE_MACHINE_MEMORY_H
#define TALLY_SERVICES_BASE_MACHINE_MEMORY_H

#include <stdint.h>

/* Bytes; INT64_MAX if the system does not say. */
int64_t tally_machine_memory(void);

/* The lowest limit of the cgroups in `membership` (the content of /proc/self/cgroup) and of their
 * ancestors, in the folder `root` (/sys/fs/cgroup). In a container the cgroup's own folder may be
 * `root` itself, which is read too. INT64_MAX if there is no limit. */
int64_t tally_cgroup_memory(const char *membership, const char *root);

/* The value of a limit file: a number, or "max". INT64_MAX if it is not a limit. */
int64_t tally_cgroup_limit(const char *text);

#endif
