/* plugin_host: the child process of plugin_process.h, which runs one plug-in for one job. */
#ifndef TALLY_SERVICES_PLUGINS_PLUGIN_HOST_H
#define TALLY_SERVICES_PLUGINS_PLUGIN_HOST_H

#include <stdbool.h>

/* The first argument that makes a program such a child. Internal, so --help does not list it. */
#define TALLY_PLUGIN_HOST_WORD "--plugin-host"

/* Call this first in main(). True: this process was such a child, has done its work and must exit
 * with *ret_exit_code. */
bool tally_plugin_host(int argc, char **argv, int *ret_exit_code);

#endif
