#include "services/objectives/plugin_objective.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codec/numeric/fetch.h"
#include "codec/numeric/wide_sum.h"
#include "services/objectives/known_losses.h"

/* The client that trained last, and with how many samples; 0 = none has. */
struct trained {
    uint32_t client;
    uint32_t samples;
};

struct plugin_objective {
    struct tally_objective base;
    struct tally_plugin_instance *instance;
    struct tally_objective *own;      /* may be NULL */
    struct tally_known_losses *known; /* f, where the plug-in's losses gave it */
    struct trained *trained;
};

static const struct plugin_objective *of(const struct tally_objective *objective)
{
    return (const struct plugin_objective *)objective;
}

/* The first coordinate whose size is not in [0, limit]; dim if there is none. */
static size_t find_outside(const double *values, size_t dim, double limit)
{
    enum { BLOCK = 256 };
    for (size_t at = 0, n; at < dim; at += n) {
        uint64_t n_outside = 0;
        n = dim - at < BLOCK ? dim - at : BLOCK;
        tally_fetch_ahead(values + at, n * sizeof *values);
        for (size_t i = at; i < at + n; i++) {        /* no exit, for vector instructions */
            n_outside += !(fabs(values[i]) <= limit); /* true for NaN */
        }
        for (size_t i = at; n_outside > 0; i++) {
            if (!(fabs(values[i]) <= limit)) {
                return i;
            }
        }
    }
    return dim;
}

static void plugin_free(struct tally_objective *objective)
{
    struct plugin_objective *self = (struct plugin_objective *)objective;
    tally_plugin_instance_free(self->instance);
    tally_objective_free(self->own);
    tally_known_losses_fini(self->known);
    free(self->known);
    free(self->trained);
    free(self);
}

static enum tally_status plugin_local_gradient(const struct tally_objective *objective,
                                               uint32_t client, const double *x, int64_t n,
                                               struct tally_rng *rng, double *ret_gradient,
                                               struct tally_error *err)
{
    struct tally_plugin_instance *instance = of(objective)->instance;
    const size_t dim = objective->dim;
    if (find_outside(x, dim, DBL_MAX) < dim) {
        for (size_t i = 0; i < dim; i++) {
            ret_gradient[i] = NAN;
        }
        return TALLY_OK;
    }
    enum tally_status status =
        instance->ops->gradient(instance, client, (uint64_t)n, rng, x, ret_gradient, err);
    if (status == TALLY_OK) {
        const size_t i = find_outside(ret_gradient, dim, FLT_MAX); /* what a message can carry */
        if (i < dim) {
            status =
                isnan(ret_gradient[i])
                    ? tally_fail(err, TALLY_FAILED_PRECONDITION, NULL, "coordinate %zu is NaN", i)
                    : tally_fail(err, TALLY_FAILED_PRECONDITION, NULL,
                                 "coordinate %zu is %g, beyond what float can hold", i,
                                 ret_gradient[i]);
        }
    }
    if (status == TALLY_FAILED_PRECONDITION) {
        tally_error_wrap(err, "plug-in %s: gradient of client %u in round %u", instance->name,
                         client, tally_rng_round(rng));
    }
    return status;
}

static enum tally_status plugin_local_loss(const struct tally_objective *objective, uint32_t client,
                                           const double *x, double *ret_loss,
                                           struct tally_error *err)
{
    const struct plugin_objective *self = of(objective);
    struct tally_plugin_instance *instance = self->instance;
    double loss = NAN;
    if (!instance->has_loss && self->own != NULL) {
        return tally_objective_local_loss(self->own, client, x, ret_loss, err);
    }
    if (find_outside(x, objective->dim, DBL_MAX) < objective->dim) {
        *ret_loss = NAN;
        return TALLY_OK;
    }
    enum tally_status status =
        instance->has_loss
            ? instance->ops->loss(instance, client, x, &loss, err)
            : tally_fail(err, TALLY_FAILED_PRECONDITION, NULL, "it has no function \"loss\"");
    if (status == TALLY_OK && !isfinite(loss)) {
        status = tally_fail(err, TALLY_FAILED_PRECONDITION, NULL, "it is %s",
                            isnan(loss) ? "NaN" : "infinite");
    }
    if (status == TALLY_FAILED_PRECONDITION) {
        tally_error_wrap(err, "plug-in %s: loss of client %u", instance->name, client);
    }
    if (status == TALLY_OK) {
        *ret_loss = loss;
    }
    return status;
}

/* f(x), the mean over all clients. The plug-in computes it once for each point. */
static enum tally_status mean_loss(const struct tally_objective *objective, const double *x,
                                   double *ret_loss, struct tally_error *err)
{
    struct tally_known_losses *known = of(objective)->known;
    const struct tally_point_key key = tally_point_key(x, objective->dim);
    if (tally_known_losses_get(known, &key, ret_loss)) {
        return TALLY_OK;
    }
    struct tally_wide_sum sum = {0};
    for (uint32_t m = 0; m < objective->clients; m++) {
        double loss;
        enum tally_status status = plugin_local_loss(objective, m, x, &loss, err);
        if (status != TALLY_OK) {
            return status;
        }
        tally_wide_sum_add(&sum, 1, loss);
    }
    *ret_loss = tally_wide_sum_mean(&sum, objective->clients);
    tally_known_losses_put(known, &key, *ret_loss);
    return TALLY_OK;
}

static enum tally_status plugin_losses(const struct tally_objective *objective,
                                       const double *points, size_t n, double *ret_losses,
                                       struct tally_error *err)
{
    const struct plugin_objective *self = of(objective);
    if (!self->instance->has_loss && self->own != NULL) {
        return tally_objective_losses(self->own, points, n, ret_losses, err);
    }
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; status == TALLY_OK && i < n; i++) {
        status = mean_loss(objective, points + i * objective->dim, &ret_losses[i], err);
    }
    return status;
}

static bool plugin_has_loss(const struct tally_objective *objective)
{
    const struct plugin_objective *self = of(objective);
    return self->instance->has_loss || self->own != NULL;
}

static enum tally_status plugin_minimum(const struct tally_objective *objective,
                                        const struct tally_domain *domain, const atomic_bool *stop,
                                        double *ret_f_star, double *ret_x_star,
                                        struct tally_error *err)
{
    const struct plugin_objective *self = of(objective);
    return self->own != NULL
               ? tally_objective_minimum(self->own, domain, stop, ret_f_star, ret_x_star, err)
               : tally_fail(err, TALLY_FAILED_PRECONDITION, "reference",
                            "the minimum of a plug-in's objective is not known here; give the "
                            "reference as a value or none");
}

static enum tally_status check_metric(const struct tally_metric *metrics, size_t i,
                                      struct tally_error *err)
{
    const char *name = metrics[i].name;
    if (!tally_metric_is_name(name)) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, NULL,
                          "metric %zu has no name of [a-z][a-z0-9_]{0,31}", i);
    }
    for (size_t k = 0; k < i; k++) {
        if (strcmp(metrics[k].name, name) == 0) {
            return tally_fail(err, TALLY_FAILED_PRECONDITION, NULL, "metric %s appears twice",
                              name);
        }
    }
    return TALLY_OK;
}

static enum tally_status check_metrics(const struct tally_metric *metrics, size_t n,
                                       struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; status == TALLY_OK && i < n; i++) {
        status = check_metric(metrics, i, err);
    }
    return status;
}

static enum tally_status plugin_metrics(const struct tally_objective *objective, uint32_t client,
                                        uint32_t round, const double *x,
                                        struct tally_metric *ret_metrics, size_t *ret_n,
                                        struct tally_error *err)
{
    struct tally_plugin_instance *instance = of(objective)->instance;
    size_t n = 0;
    if (!instance->has_metrics) {
        return TALLY_OK;
    }
    enum tally_status status =
        instance->ops->metrics(instance, client, round, x, ret_metrics, &n, err);
    if (status == TALLY_OK) {
        status = check_metrics(ret_metrics, n, err);
    }
    if (status == TALLY_FAILED_PRECONDITION) {
        tally_error_wrap(err, "plug-in %s: metrics of client %u in round %u", instance->name,
                         client, round);
    }
    *ret_n = status == TALLY_OK ? n : 0;
    return status;
}

/* Training. */

static enum tally_status check_weights(const float *weights, size_t dim, struct tally_error *err)
{
    size_t i = 0;
    while (i < dim && isfinite(weights[i])) {
        i++;
    }
    return i == dim ? TALLY_OK
                    : tally_fail(err, TALLY_FAILED_PRECONDITION, NULL, "weight %zu is %s", i,
                                 isnan(weights[i]) ? "NaN" : "infinite");
}

static enum tally_status check_trained(const float *weights, size_t dim, uint64_t samples,
                                       struct tally_error *err)
{
    if (samples < 1 || samples > TALLY_DATA_MAX_POINTS) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, NULL, "samples %llu outside [1, %d]",
                          (unsigned long long)samples, (int)TALLY_DATA_MAX_POINTS);
    }
    return check_weights(weights, dim, err);
}

static enum tally_status plugin_initial(const struct tally_objective *objective, float *ret_weights,
                                        struct tally_error *err)
{
    struct tally_plugin_instance *instance = of(objective)->instance;
    enum tally_status status =
        instance->has_initial
            ? instance->ops->initial(instance, ret_weights, err)
            : tally_fail(err, TALLY_FAILED_PRECONDITION, NULL, "it has no function \"initial\"");
    if (status == TALLY_OK) {
        status = check_weights(ret_weights, objective->dim, err);
    }
    if (status == TALLY_FAILED_PRECONDITION) {
        tally_error_wrap(err, "plug-in %s: initial point", instance->name);
    }
    return status;
}

static enum tally_status plugin_train(const struct tally_objective *objective, uint32_t client,
                                      uint32_t round, float *weights, struct tally_error *err)
{
    const struct plugin_objective *self = of(objective);
    struct tally_plugin_instance *instance = self->instance;
    uint64_t samples = 0;
    *self->trained = (struct trained){.samples = 0};
    enum tally_status status =
        instance->ops->train(instance, client, round, weights, &samples, err);
    if (status == TALLY_OK) {
        status = check_trained(weights, objective->dim, samples, err);
    }
    if (status == TALLY_OK) {
        *self->trained = (struct trained){client, (uint32_t)samples};
    } else if (status == TALLY_FAILED_PRECONDITION) {
        tally_error_wrap(err, "plug-in %s: training of client %u in round %u", instance->name,
                         client, round);
    }
    return status;
}

static enum tally_status plugin_evaluate(const struct tally_objective *objective, uint32_t client,
                                         uint32_t round, const float *weights,
                                         struct tally_metric *ret_metrics, size_t *ret_n,
                                         struct tally_error *err)
{
    struct tally_plugin_instance *instance = of(objective)->instance;
    size_t n = 0;
    if (!instance->has_evaluate) {
        return TALLY_OK;
    }
    enum tally_status status =
        instance->ops->evaluate(instance, client, round, weights, ret_metrics, &n, err);
    if (status == TALLY_OK) {
        status = check_metrics(ret_metrics, n, err);
    }
    if (status == TALLY_FAILED_PRECONDITION) {
        tally_error_wrap(err, "plug-in %s: evaluation of round %u's model by client %u",
                         instance->name, round, client);
    }
    *ret_n = status == TALLY_OK ? n : 0;
    return status;
}

static enum tally_status plugin_points(const struct tally_objective *objective, uint32_t client,
                                       uint32_t *ret_n, struct tally_error *err)
{
    const struct trained *trained = of(objective)->trained;
    if (trained->samples == 0 || trained->client != client) {
        return tally_fail(err, TALLY_INTERNAL, NULL, "client %u has not trained", client);
    }
    *ret_n = trained->samples;
    return TALLY_OK;
}

static enum tally_status no_gradient(const struct tally_objective *objective, uint32_t client,
                                     const double *x, int64_t n, struct tally_rng *rng,
                                     double *ret_gradient, struct tally_error *err)
{
    (void)objective;
    (void)client;
    (void)x;
    (void)n;
    (void)rng;
    (void)ret_gradient;
    return tally_fail(err, TALLY_FAILED_PRECONDITION, NULL, "a training loop has no gradient");
}

static bool never_has_loss(const struct tally_objective *objective)
{
    (void)objective;
    return false;
}

static const struct tally_objective_ops TRAINING_OPS = {
    .free = plugin_free,
    .local_loss = plugin_local_loss,
    .local_gradient = no_gradient,
    .losses = plugin_losses,
    .minimum = plugin_minimum,
    .has_loss = never_has_loss,
    .metrics = plugin_metrics,
    .points = plugin_points,
    .train = plugin_train,
    .initial = plugin_initial,
    .evaluate_model = plugin_evaluate,
};

static const struct tally_objective_ops PLUGIN_OPS = {
    .is_program = true,
    .free = plugin_free,
    .local_loss = plugin_local_loss,
    .local_gradient = plugin_local_gradient,
    .losses = plugin_losses,
    .minimum = plugin_minimum,
    .has_loss = plugin_has_loss,
    .metrics = plugin_metrics,
    .initial = plugin_initial,
};

enum tally_status tally_plugin_objective_of(struct tally_plugin_instance *instance,
                                            const struct tally_plugin_problem *problem, bool trains,
                                            struct tally_objective *own,
                                            struct tally_objective **ret_objective,
                                            struct tally_error *err)
{
    struct plugin_objective *self = calloc(1, sizeof *self);
    struct tally_known_losses *known = calloc(1, sizeof *known);
    struct trained *trained = calloc(1, sizeof *trained);
    if (self == NULL || known == NULL || trained == NULL) {
        free(self);
        free(known);
        free(trained);
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for an objective");
    }
    self->base = (struct tally_objective){.ops = trains ? &TRAINING_OPS : &PLUGIN_OPS,
                                          .dim = (size_t)problem->dim,
                                          .clients = problem->clients};
    self->instance = instance;
    self->own = own;
    self->known = known;
    self->trained = trained;
    *ret_objective = &self->base;
    return TALLY_OK;
}

/* The type of objective. */

#define PLUGIN(member) TALLY_OBJECTIVE_MEMBER(plugin.member)
static const struct tally_field FIELDS[] = {
    TALLY_TEXT("name", PLUGIN(name), sizeof((struct tally_plugin_spec *)0)->name, .required = true,
               .doc = "name of the plug-in that the workers have loaded: 1 to 64 of a-z 0-9 - _"),
    TALLY_INTEGER("dim", PLUGIN(dim), 1, TALLY_MAX_DIM, .required = true, .unit = "coordinates",
                  .doc = "number of coordinates d"),
    TALLY_TEXT("options", PLUGIN(options), sizeof((struct tally_plugin_spec *)0)->options,
               .doc = "text that is passed to the plug-in"),
};

const struct tally_objective_kind TALLY_OBJECTIVE_PLUGIN = {"plugin", TALLY_ROWS(FIELDS),
                                                            .labels = TALLY_LABELS_REAL};
const struct tally_objective_kind TALLY_OBJECTIVE_TRAINING = {"training", TALLY_ROWS(FIELDS),
                                                              .labels = TALLY_LABELS_REAL};
