/* plugin_file: a shared object that exports tally_plugin(), loaded into this process. */
#ifndef TALLY_SERVICES_PLUGINS_PLUGIN_FILE_H
#define TALLY_SERVICES_PLUGINS_PLUGIN_FILE_H

#include "codec/error.h"
#include "services/objectives/plugin.h"

struct tally_plugin_file {
    void *handle;                      /* of dlopen() */
    const struct tally_plugin *plugin; /* has passed tally_plugin_check() */
};

/* A path without a slash names a file in the working folder, not one on the system's search path.
 * All symbols are resolved at once, and are not visible to other plug-ins. Errors:
 * INVALID_ARGUMENT. */
enum tally_status tally_plugin_file_open(const char *path, struct tally_plugin_file *ret_file,
                                         struct tally_error *err);
void tally_plugin_file_close(struct tally_plugin_file *file);

#endif
