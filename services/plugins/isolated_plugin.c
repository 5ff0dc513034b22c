/* isolated_plugin: a shared object that runs in a child process, as a source of a set
 * (plugin_set.h). */
#include <stdlib.h>
#include <string.h>

#include "services/plugins/plugin_process.h"
#include "services/plugins/plugin_set.h"

struct isolated_source {
    struct tally_plugin_source base;
    struct tally_plugin_limits limits;
    char *path;
};

struct isolated_instance {
    struct tally_plugin_instance base;
    const struct isolated_source *source;
    struct tally_plugin_process *process;
    struct tally_plugin_problem problem; /* its texts are copies */
    char *options, *data_dir, *job;
    size_t dim;
};

static enum tally_status open_process(struct isolated_instance *self, struct tally_error *err);

/* Replaces a process that has ended: a training loop that crashed costs its client one round. */
static enum tally_status require_process(struct isolated_instance *self, struct tally_error *err)
{
    if (!tally_plugin_process_has_ended(self->process)) {
        return TALLY_OK;
    }
    tally_plugin_process_free(self->process);
    self->process = NULL;
    return open_process(self, err);
}

static enum tally_status isolated_gradient(struct tally_plugin_instance *instance, uint32_t client,
                                           uint64_t samples, struct tally_rng *rng, const double *x,
                                           double *ret_gradient, struct tally_error *err)
{
    struct isolated_instance *self = (struct isolated_instance *)instance;
    struct tally_plugin_request request = {
        .operation = TALLY_PLUGIN_GRADIENT, .client = client, .samples = samples, .rng = *rng};
    struct tally_plugin_reply reply;
    memcpy(tally_plugin_process_x(self->process), x, self->dim * sizeof *x);
    enum tally_status status = tally_plugin_process_call(self->process, &request, &reply, err);
    if (status == TALLY_OK) {
        memcpy(ret_gradient, tally_plugin_process_gradient(self->process), self->dim * sizeof *x);
        /* Only the position in the stream is taken over, not its key and purpose. */
        rng->counter[0] = reply.rng.counter[0];
        rng->n_used = reply.rng.n_used;
        memcpy(rng->block, reply.rng.block, sizeof rng->block);
    }
    return status;
}

static enum tally_status isolated_loss(struct tally_plugin_instance *instance, uint32_t client,
                                       const double *x, double *ret_loss, struct tally_error *err)
{
    struct isolated_instance *self = (struct isolated_instance *)instance;
    struct tally_plugin_request request = {.operation = TALLY_PLUGIN_LOSS, .client = client};
    struct tally_plugin_reply reply;
    memcpy(tally_plugin_process_x(self->process), x, self->dim * sizeof *x);
    enum tally_status status = tally_plugin_process_call(self->process, &request, &reply, err);
    if (status == TALLY_OK) {
        *ret_loss = reply.loss;
    }
    return status;
}

static enum tally_status isolated_metrics(struct tally_plugin_instance *instance, uint32_t client,
                                          uint32_t round, const double *x,
                                          struct tally_metric *ret_metrics, size_t *ret_n,
                                          struct tally_error *err)
{
    struct isolated_instance *self = (struct isolated_instance *)instance;
    struct tally_plugin_request request = {
        .operation = TALLY_PLUGIN_METRICS, .client = client, .round = round};
    struct tally_plugin_reply reply;
    memcpy(tally_plugin_process_x(self->process), x, self->dim * sizeof *x);
    enum tally_status status = tally_plugin_process_call(self->process, &request, &reply, err);
    if (status == TALLY_OK) {
        memcpy(ret_metrics, reply.metrics, sizeof reply.metrics);
        *ret_n = (size_t)reply.n_metrics;
    }
    return status;
}

static enum tally_status isolated_train(struct tally_plugin_instance *instance, uint32_t client,
                                        uint32_t round, float *weights, uint64_t *ret_samples,
                                        struct tally_error *err)
{
    struct isolated_instance *self = (struct isolated_instance *)instance;
    struct tally_plugin_request request = {
        .operation = TALLY_PLUGIN_TRAIN, .client = client, .round = round};
    struct tally_plugin_reply reply;
    enum tally_status status = require_process(self, err);
    if (status == TALLY_OK) {
        memcpy(tally_plugin_process_x(self->process), weights, self->dim * sizeof *weights);
        status = tally_plugin_process_call(self->process, &request, &reply, err);
    }
    if (status == TALLY_OK) {
        memcpy(weights, tally_plugin_process_gradient(self->process), self->dim * sizeof *weights);
        *ret_samples = reply.samples;
    }
    return status;
}

static enum tally_status isolated_initial(struct tally_plugin_instance *instance,
                                          float *ret_weights, struct tally_error *err)
{
    struct isolated_instance *self = (struct isolated_instance *)instance;
    struct tally_plugin_request request = {.operation = TALLY_PLUGIN_INITIAL};
    struct tally_plugin_reply reply;
    enum tally_status status = tally_plugin_process_call(self->process, &request, &reply, err);
    if (status == TALLY_OK) {
        memcpy(ret_weights, tally_plugin_process_gradient(self->process),
               self->dim * sizeof *ret_weights);
    }
    return status;
}

static enum tally_status isolated_evaluate(struct tally_plugin_instance *instance, uint32_t client,
                                           uint32_t round, const float *weights,
                                           struct tally_metric *ret_metrics, size_t *ret_n,
                                           struct tally_error *err)
{
    struct isolated_instance *self = (struct isolated_instance *)instance;
    struct tally_plugin_request request = {
        .operation = TALLY_PLUGIN_EVALUATE, .client = client, .round = round};
    struct tally_plugin_reply reply;
    enum tally_status status = require_process(self, err);
    if (status == TALLY_OK) {
        memcpy(tally_plugin_process_x(self->process), weights, self->dim * sizeof *weights);
        status = tally_plugin_process_call(self->process, &request, &reply, err);
    }
    if (status == TALLY_OK) {
        memcpy(ret_metrics, reply.metrics, sizeof reply.metrics);
        *ret_n = (size_t)reply.n_metrics;
    }
    return status;
}

static void isolated_instance_free(struct tally_plugin_instance *instance)
{
    struct isolated_instance *self = (struct isolated_instance *)instance;
    tally_plugin_process_free(self->process);
    free(self->options);
    free(self->data_dir);
    free(self->job);
    free(self);
}

static const struct tally_plugin_instance_ops INSTANCE_OPS = {.free = isolated_instance_free,
                                                              .gradient = isolated_gradient,
                                                              .loss = isolated_loss,
                                                              .metrics = isolated_metrics,
                                                              .train = isolated_train,
                                                              .initial = isolated_initial,
                                                              .evaluate = isolated_evaluate};

/* Starts a child that loads the shared object. `reply` receives the result. */
static enum tally_status start(const char *path, const struct tally_plugin_limits *limits,
                               const struct tally_plugin_problem *problem,
                               struct tally_plugin_process **ret_process,
                               struct tally_plugin_reply *ret_reply, struct tally_error *err)
{
    struct tally_plugin_request request = {.operation = TALLY_PLUGIN_LOAD};
    struct tally_plugin_process *process = NULL;
    enum tally_status status = tally_plugin_process_start(path, problem, limits, &process, err);
    if (status == TALLY_OK) {
        status = tally_plugin_process_call(process, &request, ret_reply, err);
    }
    if (status != TALLY_OK) {
        tally_plugin_process_free(process);
        return status;
    }
    *ret_process = process;
    return TALLY_OK;
}

/* Starts the instance's process and opens the plug-in there. */
static enum tally_status open_process(struct isolated_instance *self, struct tally_error *err)
{
    const struct isolated_source *source = self->source;
    struct tally_plugin_request request = {.operation = TALLY_PLUGIN_OPEN};
    struct tally_plugin_reply reply;
    enum tally_status status =
        start(source->path, &source->limits, &self->problem, &self->process, &reply, err);
    if (status == TALLY_OK && strcmp(reply.name, source->base.name) != 0) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, NULL,
                          "%s now holds plug-in %s; restart the worker", source->path, reply.name);
    }
    if (status == TALLY_OK) {
        self->base.has_gradient = reply.has_gradient != 0;
        self->base.has_loss = reply.has_loss != 0;
        self->base.has_metrics = reply.has_metrics != 0;
        self->base.has_train = reply.has_train != 0;
        self->base.has_initial = reply.has_initial != 0;
        self->base.has_evaluate = reply.has_evaluate != 0;
        status = tally_plugin_process_call(self->process, &request, &reply, err);
    }
    return status;
}

static enum tally_status isolated_open(const struct tally_plugin_source *source,
                                       const struct tally_plugin_problem *problem,
                                       struct tally_plugin_instance **ret_instance,
                                       struct tally_error *err)
{
    struct isolated_instance *instance = calloc(1, sizeof *instance);
    if (instance == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for plug-in %s", source->name);
    }
    instance->base = (struct tally_plugin_instance){.ops = &INSTANCE_OPS};
    memcpy(instance->base.name, source->name, sizeof instance->base.name);
    instance->source = (const struct isolated_source *)source;
    instance->dim = (size_t)problem->dim;
    instance->problem = *problem;
    instance->problem.options = instance->options = strdup(problem->options);
    instance->problem.data_dir = instance->data_dir = strdup(problem->data_dir);
    instance->problem.job = instance->job = strdup(problem->job);
    enum tally_status status =
        instance->options != NULL && instance->data_dir != NULL && instance->job != NULL
            ? open_process(instance, err)
            : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for plug-in %s", source->name);
    if (status != TALLY_OK) {
        isolated_instance_free(&instance->base);
        return status;
    }
    *ret_instance = &instance->base;
    return TALLY_OK;
}

static void isolated_free(struct tally_plugin_source *source)
{
    struct isolated_source *self = (struct isolated_source *)source;
    free(self->path);
    free(self);
}

static const struct tally_plugin_source_ops SOURCE_OPS = {.open = isolated_open,
                                                          .free = isolated_free};

/* Learns the plug-in's name from a child, which then ends. */
static enum tally_status look_at(struct isolated_source *self, struct tally_error *err)
{
    const struct tally_plugin_problem none = {.options = "", .data_dir = "", .job = ""};
    struct tally_plugin_process *process = NULL;
    struct tally_plugin_reply reply;
    enum tally_status status = start(self->path, &self->limits, &none, &process, &reply, err);
    if (status == TALLY_OK) {
        memcpy(self->base.name, reply.name, sizeof self->base.name);
        self->base.has_initial = reply.has_initial != 0;
        tally_plugin_process_free(process);
    }
    return status;
}

enum tally_status tally_plugin_set_isolate(struct tally_plugin_set *set, const char *path,
                                           const struct tally_plugin_limits *limits,
                                           struct tally_error *err)
{
    struct isolated_source *self = calloc(1, sizeof *self);
    char *copy = strdup(path);
    if (self == NULL || copy == NULL) {
        free(self);
        free(copy);
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for plug-in %s", path);
    }
    self->base.ops = &SOURCE_OPS;
    self->path = copy;
    self->base.path = copy;
    self->limits = *limits;
    enum tally_status status = look_at(self, err);
    if (status == TALLY_OK) {
        status = tally_plugin_set_take(set, &self->base, err);
    }
    if (status != TALLY_OK) {
        tally_error_wrap(err, "%s", path);
        isolated_free(&self->base);
    }
    return status;
}
