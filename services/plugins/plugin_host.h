/* plugin_host: the child process of plugin_process.h, which runs one plug-in for one job. */
#ifndef TALLY_SERVICES_PLUGINS_PLUGIN_HOST_H
#define TALLY_SERVICES_PLUGINS_PLUGIN_HOST_H

#include <stdbool.h>

/* First argument of a program that is to be such a child; for itself alone, hence in no --help. */
#define TALLY_PLUGIN_HOST_WORD "--plugin-host"

/* For the first lines of main(): true if this process is such a child; then it has done its work
 * and is to exit with *ret_exit_code. */
bool tally_plugin_host(int argc, char **argv, int *ret_exit_code);

#endif
