#include "services/plugins/plugin_set.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/objectives/plugin_objective.h"
#include "services/plugins/plugin_file.h"

/* A table in this process. */
struct table_source {
    struct tally_plugin_source base;
    const struct tally_plugin *plugin;
    struct tally_plugin_file file; /* that contains the table; empty: the caller's table */
};

static enum tally_status table_open(const struct tally_plugin_source *source,
                                    const struct tally_plugin_problem *problem,
                                    struct tally_plugin_instance **ret_instance,
                                    struct tally_error *err)
{
    const struct table_source *self = (const struct table_source *)source;
    return tally_plugin_instance_open(self->plugin, problem, ret_instance, err);
}

static void table_free(struct tally_plugin_source *source)
{
    struct table_source *self = (struct table_source *)source;
    tally_plugin_file_close(&self->file);
    free(self);
}

static const struct tally_plugin_source_ops TABLE_OPS = {.open = table_open, .free = table_free};

void tally_plugin_set_fini(struct tally_plugin_set *set)
{
    while (set->first != NULL) {
        struct tally_plugin_source *gone = set->first;
        set->first = gone->next;
        gone->ops->free(gone);
    }
}

enum tally_status tally_plugin_set_take(struct tally_plugin_set *set,
                                        struct tally_plugin_source *source, struct tally_error *err)
{
    struct tally_plugin_source **at = &set->first;
    for (; *at != NULL; at = &(*at)->next) {
        if (strcmp((*at)->name, source->name) == 0) {
            return tally_fail(err, TALLY_ALREADY_EXISTS, NULL, "a plug-in named %s exists already",
                              source->name);
        }
        if ((*at)->is_override && source->is_override) {
            return tally_fail(err, TALLY_ALREADY_EXISTS, NULL,
                              "plug-in %s overrides all jobs already, so %s cannot", (*at)->name,
                              source->name);
        }
    }
    source->next = NULL;
    *at = source;
    return TALLY_OK;
}

/* Adds a table. If this succeeds, the set owns the file. */
static enum tally_status add(struct tally_plugin_set *set, const struct table_source *source,
                             struct tally_error *err)
{
    struct table_source *self = malloc(sizeof *self);
    const char *name = source->plugin->name;
    if (self == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for plug-in %s", name);
    }
    *self = *source;
    self->base.ops = &TABLE_OPS;
    self->base.has_initial = tally_plugin_has_initial(source->plugin);
    memcpy(self->base.name, name, strlen(name) + 1);
    enum tally_status status = tally_plugin_set_take(set, &self->base, err);
    if (status != TALLY_OK) {
        free(self);
    }
    return status;
}

enum tally_status tally_plugin_set_add(struct tally_plugin_set *set,
                                       const struct tally_plugin *plugin, bool is_override,
                                       uint64_t dim, struct tally_error *err)
{
    const struct table_source source = {.base = {.is_override = is_override, .dim = dim},
                                        .plugin = plugin};
    enum tally_status status = tally_plugin_check(plugin, err);
    return status == TALLY_OK ? add(set, &source, err) : status;
}

enum tally_status tally_plugin_set_load(struct tally_plugin_set *set, const char *path,
                                        struct tally_error *err)
{
    struct table_source source = {.plugin = NULL};
    enum tally_status status = tally_plugin_file_open(path, &source.file, err);
    if (status == TALLY_OK) {
        source.plugin = source.file.plugin;
        tally_file_digest(path, source.base.code.sha256);
        status = add(set, &source, err);
    }
    if (status != TALLY_OK) {
        tally_plugin_file_close(&source.file);
        tally_error_wrap(err, "%s", path);
    }
    return status;
}

enum tally_status tally_plugin_set_load_list(struct tally_plugin_set *set, const char *paths,
                                             const struct tally_plugin_limits *limits,
                                             struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    char *copy = strdup(paths != NULL ? paths : ""), *rest = copy, *path = NULL;
    if (copy == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a list of plug-ins");
    }
    while (status == TALLY_OK && (path = strtok_r(rest, ":", &rest)) != NULL) {
        status = limits != NULL ? tally_plugin_set_isolate(set, path, limits, err)
                                : tally_plugin_set_load(set, path, err);
    }
    free(copy);
    return status;
}

static bool fits(const struct tally_plugin_source *source, uint64_t dim)
{
    return source->dim == 0 || source->dim == dim;
}

/* The plug-in that must serve the job; NULL if the job needs none. */
static const struct tally_plugin_source *find(const struct tally_plugin_set *set,
                                              const struct tally_objective_spec *spec)
{
    const bool is_plugin = tally_objective_spec_is_plugin(spec);
    const struct tally_plugin_source *source = set != NULL ? set->first : NULL;
    const struct tally_plugin_source *override = NULL;
    for (; source != NULL; source = source->next) {
        if (is_plugin && strcmp(source->name, spec->plugin.name) == 0) {
            return source;
        }
        if (source->is_override && fits(source, tally_objective_spec_dim(spec))) {
            override = source;
        }
    }
    return override;
}

void tally_plugin_set_code(const struct tally_plugin_set *set,
                           const struct tally_objective_spec *spec,
                           struct tally_user_code *ret_code)
{
    const struct tally_plugin_source *source = find(set, spec);
    *ret_code = (struct tally_user_code){.name = ""};
    if (source == NULL) {
        return;
    }
    *ret_code = source->code;
    if (ret_code->name[0] == '\0') {
        snprintf(ret_code->name, sizeof ret_code->name, "%s", source->name);
    }
    if (source->path != NULL) { /* the file may be another one now */
        tally_file_digest(source->path, ret_code->sha256);
    }
}

static const char ABSENT_FIELD[] = "objective.name";

bool tally_plugin_set_is_absence(const struct tally_error *err)
{
    return err->status == TALLY_FAILED_PRECONDITION && strcmp(err->field, ABSENT_FIELD) == 0;
}

/* The error lists the plug-ins that are loaded. */
static enum tally_status fail_absent(const struct tally_plugin_set *set, const char *name,
                                     struct tally_error *err)
{
    char others[160] = "";
    const struct tally_plugin_source *source = set != NULL ? set->first : NULL;
    for (size_t n = 0; source != NULL && n < sizeof others; source = source->next) {
        n += (size_t)snprintf(others + n, sizeof others - n, "%s%s", n > 0 ? ", " : "",
                              source->name);
    }
    return tally_fail(err, TALLY_FAILED_PRECONDITION, ABSENT_FIELD,
                      "plug-in %s is not loaded here (--plugin FILE); %s%s", name,
                      others[0] != '\0' ? "there is " : "there is none", others);
}

/* Makes the job's own objective, which computes the losses if an overriding plug-in has no loss();
 * NULL if its data are not available here. */
static enum tally_status make_own(const struct tally_job_spec *spec,
                                  const struct tally_data_source *files,
                                  struct tally_objective **ret_own, struct tally_error *err)
{
    struct tally_objective *own = NULL;
    struct tally_error why = TALLY_ERROR_INIT;
    const enum tally_status status =
        tally_objective_load(&spec->objective, (uint32_t)spec->clients,
                             tally_job_spec_setting(spec).key, files, &own, &why);
    if (status == TALLY_NO_MEMORY || status == TALLY_CANCELLED) {
        return tally_fail(err, status, why.field, "%s", why.message);
    }
    *ret_own = status == TALLY_OK ? own : NULL;
    return TALLY_OK;
}

static enum tally_status open_plugin(const struct tally_plugin_source *source,
                                     const struct tally_job_spec *spec, const char *job,
                                     const struct tally_data_source *files,
                                     struct tally_objective **ret_objective,
                                     struct tally_error *err)
{
    const bool is_plugin = tally_objective_spec_is_plugin(&spec->objective);
    const bool trains = spec->objective.type == TALLY_TRAINING;
    const struct tally_plugin_problem problem = {
        .size = sizeof problem,
        .dim = tally_objective_spec_dim(&spec->objective),
        .clients = (uint32_t)spec->clients,
        .seed = (uint64_t)spec->seed,
        .run = (uint32_t)spec->run,
        .options = is_plugin ? spec->objective.plugin.options : "",
        .data_dir = files->dir,
        .rounds = trains ? (uint64_t)spec->horizon : 0,
        .job = job,
        .mu = trains ? spec->params.baseline.mu : 0, /* of all algorithms that take training */
    };
    struct tally_plugin_instance *instance = NULL;
    struct tally_objective *own = NULL;
    if (!fits(source, problem.dim)) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, "objective.dim",
                          "plug-in %s serves dim %" PRIu64 ", the job has %" PRIu64, source->name,
                          source->dim, problem.dim);
    }
    if (spec->minibatch == 0 && !trains) {
        return tally_fail(
            err, TALLY_FAILED_PRECONDITION, "minibatch",
            "plug-in %s does not say how many points a client has, so its jobs need a "
            "minibatch of at least 1",
            source->name);
    }
    if (tally_job_spec_is_surveyed(spec)) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, "objective.data",
                          "plug-in %s does not survey its points, from which the features of this "
                          "job are scaled",
                          source->name);
    }
    enum tally_status status = source->ops->open(source, &problem, &instance, err);
    if (status != TALLY_OK) {
        tally_error_wrap(err, "plug-in %s", source->name);
        return status;
    }
    if (trains ? !instance->has_train : !instance->has_gradient) {
        status =
            tally_fail(err, TALLY_FAILED_PRECONDITION, "objective.type",
                       "plug-in %s has no function %s, which jobs of type %s need", source->name,
                       trains ? "train" : "gradient", TALLY_OBJECTIVE_NAMES[spec->objective.type]);
    }
    if (status == TALLY_OK && !is_plugin && !instance->has_loss) {
        status = make_own(spec, files, &own, err);
    }
    if (status == TALLY_OK && !instance->has_loss && own == NULL &&
        spec->reference.type != TALLY_REFERENCE_NONE) {
        status = tally_fail(err, TALLY_FAILED_PRECONDITION, "reference.type",
                            "plug-in %s has no function \"loss\", so its jobs need a reference of "
                            "type none",
                            source->name);
    }
    if (status == TALLY_OK) {
        status = tally_plugin_objective_of(instance, &problem, trains, own, ret_objective, err);
    }
    if (status != TALLY_OK) {
        tally_objective_free(own);
        tally_plugin_instance_free(instance);
    }
    return status;
}

enum tally_status tally_plugin_set_objective(const struct tally_plugin_set *set,
                                             const struct tally_job_spec *spec, const char *job,
                                             const struct tally_data_source *files,
                                             struct tally_objective **ret_objective,
                                             struct tally_error *err)
{
    const struct tally_plugin_source *source = find(set, &spec->objective);
    if (source != NULL) {
        return open_plugin(source, spec, job, files, ret_objective, err);
    }
    if (tally_objective_spec_is_plugin(&spec->objective)) {
        return fail_absent(set, spec->objective.plugin.name, err);
    }
    return tally_objective_load(&spec->objective, (uint32_t)spec->clients,
                                tally_job_spec_setting(spec).key, files, ret_objective, err);
}
