#include "services/objectives/plugin_instance.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "codec/utf8.h"

/* In this process. */
struct local_instance {
    struct tally_plugin_instance base;
    const struct tally_plugin *plugin;
    uint64_t dim;
    void *state;
};

/* The table of the first version ended before `metrics`. */
static const size_t FIRST_SIZE = offsetof(struct tally_plugin, metrics);

bool tally_plugin_has_metrics(const struct tally_plugin *plugin)
{
    return plugin->size >= FIRST_SIZE + sizeof plugin->metrics && plugin->metrics != NULL;
}

bool tally_plugin_has_train(const struct tally_plugin *plugin)
{
    return plugin->size >= offsetof(struct tally_plugin, train) + sizeof plugin->train &&
           plugin->train != NULL;
}

bool tally_plugin_has_initial(const struct tally_plugin *plugin)
{
    return plugin->size >= offsetof(struct tally_plugin, initial) + sizeof plugin->initial &&
           plugin->initial != NULL;
}

bool tally_plugin_has_evaluate(const struct tally_plugin *plugin)
{
    return plugin->size >= offsetof(struct tally_plugin, evaluate) + sizeof plugin->evaluate &&
           plugin->evaluate != NULL;
}

bool tally_plugin_is_name(const char *name)
{
    const size_t n = strnlen(name, TALLY_PLUGIN_NAME_CAPACITY);
    return n > 0 && n < TALLY_PLUGIN_NAME_CAPACITY &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-_") == n;
}

enum tally_status tally_plugin_check(const struct tally_plugin *plugin, struct tally_error *err)
{
    const enum tally_status wrong = TALLY_INVALID_ARGUMENT;
    if (plugin == NULL) {
        return tally_fail(err, wrong, NULL, "tally_plugin() returns NULL");
    }
    if (plugin->abi != TALLY_PLUGIN_ABI) { /* what follows may lie elsewhere then */
        return tally_fail(err, wrong, NULL,
                          "it is made for version %" PRIu32 " of the plug-in ABI, this is version "
                          "%d; rebuild it with this version's plugin.h",
                          plugin->abi, TALLY_PLUGIN_ABI);
    }
    if (plugin->size < FIRST_SIZE) {
        return tally_fail(err, wrong, NULL,
                          "its table says that it has %zu bytes, not %zu or more; set size to "
                          "sizeof(struct tally_plugin)",
                          plugin->size, FIRST_SIZE);
    }
    if (plugin->name == NULL || !tally_plugin_is_name(plugin->name)) {
        return tally_fail(err, wrong, NULL, "its name is not 1 to %d of a-z 0-9 - _",
                          TALLY_PLUGIN_NAME_CAPACITY - 1);
    }
    const char *lacks = plugin->open == NULL                                          ? "open"
                        : plugin->close == NULL                                       ? "close"
                        : plugin->gradient == NULL && !tally_plugin_has_train(plugin) ? "gradient"
                                                                                      : NULL;
    return lacks == NULL ? TALLY_OK
                         : tally_fail(err, wrong, NULL, "plug-in %s has no function \"%s\"",
                                      plugin->name, lacks);
}

/* For a function that returned `code` and wrote `why`, which may be any bytes. */
static enum tally_status failed(int code, char why[TALLY_PLUGIN_WHY_CAPACITY],
                                struct tally_error *err)
{
    why[TALLY_PLUGIN_WHY_CAPACITY - 1] = '\0';
    tally_utf8_sanitize_line(why);
    return why[0] != '\0' ? tally_fail(err, TALLY_FAILED_PRECONDITION, NULL, "%s", why)
                          : tally_fail(err, TALLY_FAILED_PRECONDITION, NULL,
                                       "it returned %d without a reason", code);
}

static uint32_t draw_below(void *stream, uint32_t n)
{
    return tally_rng_below(stream, n > 0 ? n : 1);
}

static enum tally_status local_gradient(struct tally_plugin_instance *instance, uint32_t client,
                                        uint64_t samples, struct tally_rng *rng, const double *x,
                                        double *ret_gradient, struct tally_error *err)
{
    struct local_instance *self = (struct local_instance *)instance;
    char why[TALLY_PLUGIN_WHY_CAPACITY] = "";
    uint64_t n = 0;
    const struct tally_plugin_query query = {.size = sizeof query,
                                             .client = client,
                                             .round = tally_rng_round(rng),
                                             .samples = samples,
                                             .below = draw_below,
                                             .stream = rng};
    for (uint64_t i = 0; i < self->dim; i++) {
        ret_gradient[i] = NAN; /* so that omitted coordinates are noticed */
    }
    const int code =
        self->plugin->gradient(self->state, &query, x, ret_gradient, &n, why, sizeof why);
    if (code != 0) {
        return failed(code, why, err);
    }
    if (n != self->dim) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, NULL,
                          "it wrote %" PRIu64 " coordinates, the job has dim %" PRIu64, n,
                          self->dim);
    }
    return TALLY_OK;
}

static enum tally_status local_loss(struct tally_plugin_instance *instance, uint32_t client,
                                    const double *x, double *ret_loss, struct tally_error *err)
{
    struct local_instance *self = (struct local_instance *)instance;
    char why[TALLY_PLUGIN_WHY_CAPACITY] = "";
    double loss = NAN;
    const int code = self->plugin->loss(self->state, client, x, &loss, why, sizeof why);
    if (code != 0) {
        return failed(code, why, err);
    }
    *ret_loss = loss;
    return TALLY_OK;
}

/* Copies metrics that a plug-in has written. */
static enum tally_status copy_metrics(const struct tally_plugin_metric *metrics, size_t n,
                                      struct tally_metric *ret_metrics, size_t *ret_n,
                                      struct tally_error *err)
{
    _Static_assert(sizeof ret_metrics->name == sizeof metrics->name &&
                       (int)TALLY_PLUGIN_METRICS_MOST == (int)TALLY_METRICS_MOST,
                   "plugin.h stands alone");
    if (n > TALLY_METRICS_MOST) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, NULL, "%zu metrics, at most %d", n,
                          TALLY_METRICS_MOST);
    }
    for (size_t i = 0; i < n; i++) {
        memcpy(ret_metrics[i].name, metrics[i].name, sizeof ret_metrics[i].name);
        ret_metrics[i].name[sizeof ret_metrics[i].name - 1] = '\0';
        ret_metrics[i].value = metrics[i].value;
    }
    *ret_n = n;
    return TALLY_OK;
}

static enum tally_status local_metrics(struct tally_plugin_instance *instance, uint32_t client,
                                       uint32_t round, const double *x,
                                       struct tally_metric *ret_metrics, size_t *ret_n,
                                       struct tally_error *err)
{
    struct local_instance *self = (struct local_instance *)instance;
    char why[TALLY_PLUGIN_WHY_CAPACITY] = "";
    struct tally_plugin_metric metrics[TALLY_PLUGIN_METRICS_MOST];
    size_t n = 0;
    const int code =
        self->plugin->metrics(self->state, client, round, x, metrics, &n, why, sizeof why);
    return code != 0 ? failed(code, why, err) : copy_metrics(metrics, n, ret_metrics, ret_n, err);
}

static enum tally_status local_train(struct tally_plugin_instance *instance, uint32_t client,
                                     uint32_t round, float *weights, uint64_t *ret_samples,
                                     struct tally_error *err)
{
    struct local_instance *self = (struct local_instance *)instance;
    char why[TALLY_PLUGIN_WHY_CAPACITY] = "";
    uint64_t samples = 0;
    const struct tally_plugin_training task = {sizeof task, client, round};
    const int code = self->plugin->train(self->state, &task, weights, &samples, why, sizeof why);
    if (code != 0) {
        return failed(code, why, err);
    }
    *ret_samples = samples;
    return TALLY_OK;
}

static enum tally_status local_initial(struct tally_plugin_instance *instance, float *ret_weights,
                                       struct tally_error *err)
{
    struct local_instance *self = (struct local_instance *)instance;
    char why[TALLY_PLUGIN_WHY_CAPACITY] = "";
    for (uint64_t i = 0; i < self->dim; i++) {
        ret_weights[i] = NAN;
    }
    const int code = self->plugin->initial(self->state, ret_weights, why, sizeof why);
    return code == 0 ? TALLY_OK : failed(code, why, err);
}

static enum tally_status local_evaluate(struct tally_plugin_instance *instance, uint32_t client,
                                        uint32_t round, const float *weights,
                                        struct tally_metric *ret_metrics, size_t *ret_n,
                                        struct tally_error *err)
{
    struct local_instance *self = (struct local_instance *)instance;
    char why[TALLY_PLUGIN_WHY_CAPACITY] = "";
    struct tally_plugin_metric metrics[TALLY_PLUGIN_METRICS_MOST];
    size_t n = 0;
    const struct tally_plugin_training task = {sizeof task, client, round};
    const int code =
        self->plugin->evaluate(self->state, &task, weights, metrics, &n, why, sizeof why);
    return code != 0 ? failed(code, why, err) : copy_metrics(metrics, n, ret_metrics, ret_n, err);
}

static void local_free(struct tally_plugin_instance *instance)
{
    struct local_instance *self = (struct local_instance *)instance;
    self->plugin->close(self->state);
    free(self);
}

static const struct tally_plugin_instance_ops LOCAL_OPS = {
    .free = local_free,
    .gradient = local_gradient,
    .loss = local_loss,
    .metrics = local_metrics,
    .train = local_train,
    .initial = local_initial,
    .evaluate = local_evaluate,
};

enum tally_status tally_plugin_instance_open(const struct tally_plugin *plugin,
                                             const struct tally_plugin_problem *problem,
                                             struct tally_plugin_instance **ret_instance,
                                             struct tally_error *err)
{
    char why[TALLY_PLUGIN_WHY_CAPACITY] = "";
    struct local_instance *self = calloc(1, sizeof *self);
    if (self == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for plug-in %s", plugin->name);
    }
    self->base = (struct tally_plugin_instance){.ops = &LOCAL_OPS,
                                                .has_gradient = plugin->gradient != NULL,
                                                .has_loss = plugin->loss != NULL,
                                                .has_metrics = tally_plugin_has_metrics(plugin),
                                                .has_train = tally_plugin_has_train(plugin),
                                                .has_initial = tally_plugin_has_initial(plugin),
                                                .has_evaluate = tally_plugin_has_evaluate(plugin)};
    memcpy(self->base.name, plugin->name, strlen(plugin->name) + 1);
    self->plugin = plugin;
    self->dim = problem->dim;
    const int code = plugin->open(problem, &self->state, why, sizeof why);
    if (code != 0) {
        free(self);
        return failed(code, why, err);
    }
    *ret_instance = &self->base;
    return TALLY_OK;
}

void tally_plugin_instance_free(struct tally_plugin_instance *instance)
{
    if (instance != NULL) {
        instance->ops->free(instance);
    }
}
