/* plugin_objective: an objective whose gradients come from a plug-in (plugin.h).
 *
 * A plug-in is checked at every answer: a function that fails, a gradient of another dimension, and
 * coordinates or losses that are no numbers are FAILED_PRECONDITION with a message that names the
 * plug-in, the client, the round and the coordinate: this process cannot answer for the job,
 * another one may. At a point that is not finite itself the plug-in is not asked: the iterates
 * diverged, which is not its fault.
 *
 * Unlike other objectives it is for one thread. */
#ifndef TALLY_SERVICES_OBJECTIVES_LOSSES_PLUGIN_OBJECTIVE_H
#define TALLY_SERVICES_OBJECTIVES_LOSSES_PLUGIN_OBJECTIVE_H

#include "services/objectives/losses/plugin_instance.h"
#include "services/objectives/objective.h"

/* Opens `plugin`, a table in this process, for one job. `plugin` is borrowed and outlives the
 * objective.
 *
 * `own` is NULL, or the objective that the job's document describes, which a plug-in stands in for:
 * then losses that the plug-in has no function for, and the minimum, are `own`'s. It is the new
 * objective's on success.
 *
 * Errors: INVALID_ARGUMENT (tally_plugin_check()), FAILED_PRECONDITION (what open() says),
 * NO_MEMORY. */
enum tally_status tally_plugin_objective_new(const struct tally_plugin *plugin,
                                             const struct tally_plugin_problem *problem,
                                             struct tally_objective *own,
                                             struct tally_objective **ret_objective,
                                             struct tally_error *err);

/* The same on an instance that is open already; it is the objective's on success. */
enum tally_status tally_plugin_objective_of(struct tally_plugin_instance *instance,
                                            const struct tally_plugin_problem *problem,
                                            struct tally_objective *own,
                                            struct tally_objective **ret_objective,
                                            struct tally_error *err);

#endif
