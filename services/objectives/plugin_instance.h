/* plugin_instance: a plug-in (plugin.h) that is open for one job, in this process or another.
 *
 * A fault of the plug-in is FAILED_PRECONDITION, with one line that describes it: this process
 * cannot answer, another one may. Instances are for one thread. */
#ifndef TALLY_SERVICES_OBJECTIVES_PLUGIN_INSTANCE_H
#define TALLY_SERVICES_OBJECTIVES_PLUGIN_INSTANCE_H

#include <stdbool.h>
#include <stdint.h>

#include "codec/error.h"
#include "codec/numeric/rng.h"
#include "codec/record.h"
#include "services/objectives/plugin.h"

enum { TALLY_PLUGIN_NAME_CAPACITY = 65, TALLY_PLUGIN_WHY_CAPACITY = 192 }; /* with NUL */

struct tally_plugin_instance;

/* All slots are required unless said otherwise. x and ret_gradient are double[dim]. */
struct tally_plugin_instance_ops {
    void (*free)(struct tally_plugin_instance *instance);
    /* Writes the mean of `samples` stochastic gradients of f_m at x, whose points are drawn from
     * rng; its values are not looked at. Coordinates that the plug-in leaves out are NaN. Only if
     * has_gradient. Errors: FAILED_PRECONDITION, NO_MEMORY. */
    enum tally_status (*gradient)(struct tally_plugin_instance *instance, uint32_t client,
                                  uint64_t samples, struct tally_rng *rng, const double *x,
                                  double *ret_gradient, struct tally_error *err);
    /* f_m(x). Only if has_loss. Errors: as gradient. */
    enum tally_status (*loss)(struct tally_plugin_instance *instance, uint32_t client,
                              const double *x, double *ret_loss, struct tally_error *err);
    /* Metrics of a round: ret_metrics[TALLY_METRICS_MOST]; names are NUL-terminated, but not
     * checked. Only if has_metrics. Errors: as gradient. */
    enum tally_status (*metrics)(struct tally_plugin_instance *instance, uint32_t client,
                                 uint32_t round, const double *x, struct tally_metric *ret_metrics,
                                 size_t *ret_n, struct tally_error *err);
    /* Trains from weights, float[dim], which are replaced; its values and *ret_samples are not
     * looked at. Only if has_train. Errors: as gradient. */
    enum tally_status (*train)(struct tally_plugin_instance *instance, uint32_t client,
                               uint32_t round, float *weights, uint64_t *ret_samples,
                               struct tally_error *err);
    /* Writes the point to start from, float[dim]; its values are not looked at, those that the
     * plug-in leaves out are NaN. Only if has_initial. Errors: as gradient. */
    enum tally_status (*initial)(struct tally_plugin_instance *instance, float *ret_weights,
                                 struct tally_error *err);
    /* Metrics of the model `weights`, float[dim], that `round` made; as metrics. Only if
     * has_evaluate. Errors: as gradient. */
    enum tally_status (*evaluate)(struct tally_plugin_instance *instance, uint32_t client,
                                  uint32_t round, const float *weights,
                                  struct tally_metric *ret_metrics, size_t *ret_n,
                                  struct tally_error *err);
};

struct tally_plugin_instance {
    const struct tally_plugin_instance_ops *ops;
    char name[TALLY_PLUGIN_NAME_CAPACITY];
    bool has_gradient, has_loss, has_metrics, has_train, has_initial, has_evaluate;
};

/* Whether this is a plug-in that can be used: its ABI, its size, its name, and all functions that
 * are not optional. Errors: INVALID_ARGUMENT, with both versions if its ABI differs. */
enum tally_status tally_plugin_check(const struct tally_plugin *plugin, struct tally_error *err);

/* Whether a plug-in that passed the check has the function; the tables of older ones end before
 * it. */
bool tally_plugin_has_metrics(const struct tally_plugin *plugin);
bool tally_plugin_has_train(const struct tally_plugin *plugin);
bool tally_plugin_has_initial(const struct tally_plugin *plugin);
bool tally_plugin_has_evaluate(const struct tally_plugin *plugin);

/* A legal name of a plug-in: 1 to 64 of a-z 0-9 - _ */
bool tally_plugin_is_name(const char *name);

/* Opens a plug-in that passed the check in this process. `plugin` is borrowed and outlives the
 * instance. Errors: FAILED_PRECONDITION, NO_MEMORY. */
enum tally_status tally_plugin_instance_open(const struct tally_plugin *plugin,
                                             const struct tally_plugin_problem *problem,
                                             struct tally_plugin_instance **ret_instance,
                                             struct tally_error *err);
void tally_plugin_instance_free(struct tally_plugin_instance *instance);

#endif
