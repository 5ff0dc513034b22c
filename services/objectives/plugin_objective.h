/* plugin_objective: an objective whose gradients, or whose training loop, is a plug-in's
 * (plugin.h).
 *
 * A plug-in is checked at every answer: a function that fails, a gradient of the wrong dimension,
 * and coordinates, weights or losses that are not finite are FAILED_PRECONDITION, with a message
 * that names the plug-in, the client, the round and the coordinate: this process cannot answer for
 * the job, but another one may. The plug-in is not called at a point that is not finite itself: the
 * iterates diverged, and that is no fault of the plug-in.
 *
 * Unlike other objectives it is for one thread. */
#ifndef TALLY_SERVICES_OBJECTIVES_PLUGIN_OBJECTIVE_H
#define TALLY_SERVICES_OBJECTIVES_PLUGIN_OBJECTIVE_H

#include "services/objectives/losses/loss_kind.h"
#include "services/objectives/plugin_instance.h"

/* An objective on an open instance, which is the objective's on success.
 *
 * `trains`: of type `training`; the instance has train(). Otherwise it has gradient().
 *
 * `own` is NULL, or the objective that the job's document describes and that the plug-in overrides:
 * losses that the plug-in has no function for, and the minimum, are `own`'s then. It is the new
 * objective's on success. Errors: NO_MEMORY. */
enum tally_status tally_plugin_objective_of(struct tally_plugin_instance *instance,
                                            const struct tally_plugin_problem *problem, bool trains,
                                            struct tally_objective *own,
                                            struct tally_objective **ret_objective,
                                            struct tally_error *err);

#endif
