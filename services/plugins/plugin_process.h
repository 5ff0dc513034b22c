/* plugin_process: a child process that runs a plug-in, so that a crash or a hang is only a failed
 * call.
 *
 * The child runs this program again (plugin_host.h). It starts with fresh memory, without the
 * parent's descriptors, the secrets in the parent's memory and TALLY_* variables. It runs as the
 * same user, which protects against mistakes, not against malice. It ends when the thread that
 * started it ends, for whatever reason, and leaves SIGINT and SIGTERM to the parent. */
#ifndef TALLY_SERVICES_PLUGINS_PLUGIN_PROCESS_H
#define TALLY_SERVICES_PLUGINS_PLUGIN_PROCESS_H

#include "services/plugins/plugin_set.h"
#include "services/plugins/plugin_wire.h"

struct tally_plugin_process;

/* Starts a child for a shared object and its problem, which is copied. Errors: UNAVAILABLE (no
 * process or descriptor), NO_MEMORY, INVALID_ARGUMENT (a string is too long). */
enum tally_status tally_plugin_process_start(const char *path,
                                             const struct tally_plugin_problem *problem,
                                             const struct tally_plugin_limits *limits,
                                             struct tally_plugin_process **ret_process,
                                             struct tally_error *err);

/* The shared vectors, double[dim] each. */
double *tally_plugin_process_x(struct tally_plugin_process *process);
const double *tally_plugin_process_gradient(const struct tally_plugin_process *process);

/* Sends a request, whose number it fills in, and waits for the reply, whose texts are
 * NUL-terminated printable lines. Errors: FAILED_PRECONDITION (the plug-in reports a failure, or
 * the child crashed, ended, took too long or sent an invalid reply), CANCELLED. Except after a
 * failure that the plug-in reports, the child has ended, and every later call is
 * FAILED_PRECONDITION. */
enum tally_status tally_plugin_process_call(struct tally_plugin_process *process,
                                            struct tally_plugin_request *request,
                                            struct tally_plugin_reply *ret_reply,
                                            struct tally_error *err);

/* Whether the child has ended, for whatever reason; NULL = it could not be started. */
bool tally_plugin_process_has_ended(const struct tally_plugin_process *process);

/* Lets the child close the plug-in and end. Kills the child if it has not ended after 2 s. */
void tally_plugin_process_free(struct tally_plugin_process *process);

#endif
