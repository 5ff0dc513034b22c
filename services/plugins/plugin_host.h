/* plugin_host: the child process of plugin_process.h, which runs one plug-in for one job. */
#ifndef TALLY_SERVICES_PLUGINS_PLUGIN_HOST_H
#define TALLY_SERVICES_PLUGINS_PLUGIN_HOST_H

#include <stdbool.h>

/* With this first argument a program becomes such a child. It is internal, so --help does not list
 * it. */
#define TALLY_PLUGIN_HOST_WORD "--plugin-host"

/* Must be called first in main(). True: this process was such a child, has done its work and must
 * exit with *ret_exit_code. */
bool tally_plugin_host(int argc, char **argv, int *ret_exit_code);

#endif
