/* open_below: opens regular files below a folder and nothing else.
 *
 * Names come from job documents and are not trusted. Neither "..", nor an absolute name, nor a
 * symbolic link leads out of the folder, and a pipe or device in it is refused without waiting for
 * it. The folder itself is the operator's: its own path may be or contain links. */
#ifndef TALLY_SERVICES_OBJECTIVES_DATA_OPEN_BELOW_H
#define TALLY_SERVICES_OBJECTIVES_DATA_OPEN_BELOW_H

#include <stdbool.h>

/* Whether a name is relative, not empty and has no "..": what a document may say at all. */
bool tally_is_name_below(const char *name);

/* A descriptor for reading, or a negative errno: -ENOENT, -EACCES ...; -EXDEV where the name leads
 * out of the folder, -ELOOP where it goes through a link that is not followed, -EINVAL for what is
 * not a regular file. Links that stay inside the folder are followed where the kernel can check
 * that (openat2, Linux 5.6 on); where it cannot, none are. */
int tally_open_below(int folder, const char *name);
/* The same without openat2: component by component, following no link. */
int tally_open_below_walking(int folder, const char *name);

#endif
