#include "services/objectives/objective.h"

#include <stdlib.h>
#include <string.h>

#include "services/objectives/data/dataset.h"
#include "services/objectives/data/scaling.h"
#include "services/objectives/data/survey.h"
#include "services/objectives/losses/loss_report.h"
#include "services/objectives/plugin_instance.h"

const char *const TALLY_OBJECTIVE_NAMES[] = {
#define TALLY_OBJECTIVE_NAME(symbol, name) [TALLY_##symbol] = #name,
    TALLY_OBJECTIVE_TABLE(TALLY_OBJECTIVE_NAME) NULL
#undef TALLY_OBJECTIVE_NAME
};
const struct tally_objective_kind *const TALLY_OBJECTIVE_KINDS[] = {
#define TALLY_OBJECTIVE_KIND(symbol, name) [TALLY_##symbol] = &TALLY_OBJECTIVE_##symbol,
    TALLY_OBJECTIVE_TABLE(TALLY_OBJECTIVE_KIND) NULL
#undef TALLY_OBJECTIVE_KIND
};

void tally_objective_spec_choose(struct tally_objective_spec *spec, int type)
{
    const struct tally_objective_kind *kind = TALLY_OBJECTIVE_KINDS[type];
    spec->type = type;
    spec->l2 = kind->l2;
    memcpy(spec->parameters, kind->parameters, sizeof spec->parameters);
}

struct tally_objective_spec tally_objective_spec_default(void)
{
    return (struct tally_objective_spec){
        .data.synthetic_linear = {.frobenius_norm = 100, .noise_std = 1}};
}

bool tally_objective_spec_is_plugin(const struct tally_objective_spec *spec)
{
    return spec->type == TALLY_PLUGIN || spec->type == TALLY_TRAINING;
}

static enum tally_status validate_plugin(const struct tally_plugin_spec *plugin,
                                         struct tally_error *err)
{
    return tally_plugin_is_name(plugin->name)
               ? TALLY_OK
               : tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.name",
                            "\"%s\" is not a name of a plug-in: 1 to %d of a-z 0-9 - _",
                            plugin->name, TALLY_PLUGIN_NAME_CAPACITY - 1);
}

enum tally_status tally_objective_spec_validate(const struct tally_objective_spec *spec,
                                                int64_t clients, struct tally_error *err)
{
    const struct tally_objective_kind *kind = TALLY_OBJECTIVE_KINDS[spec->type];
    if (tally_objective_spec_is_plugin(spec)) {
        return validate_plugin(&spec->plugin, err);
    }
    const struct tally_data_spec *data = &spec->data;
    if ((kind->data & 1U << data->type) == 0) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data.type",
                          "%s takes no data of type %s", kind->name, TALLY_DATA_NAMES[data->type]);
    }
    const enum tally_status status = tally_data_spec_validate(data, kind->labels, clients, err);
    if (status != TALLY_OK) {
        return status;
    }
    const size_t dim = tally_objective_spec_dim(spec);
    return dim <= TALLY_MAX_DIM
               ? TALLY_OK
               : tally_fail(err, TALLY_INVALID_ARGUMENT, tally_objective_dim_field(spec),
                            "dim %zu is above %d", dim, TALLY_MAX_DIM);
}

const char *tally_objective_dim_field(const struct tally_objective_spec *spec)
{
    const int data = spec->data.type;
    return tally_objective_spec_is_plugin(spec) ? "objective.dim"
           : data == TALLY_DATA_SYNTHETIC_LINEAR || data == TALLY_DATA_MATRIX
               ? "objective.data.dim"
               : "objective.data.features";
}

double tally_objective_spec_convexity(const struct tally_objective_spec *spec)
{
    return tally_objective_spec_is_plugin(spec) ? 0 : 2 * spec->l2;
}

size_t tally_objective_spec_dim(const struct tally_objective_spec *spec)
{
    if (tally_objective_spec_is_plugin(spec)) {
        return (size_t)spec->plugin.dim;
    }
    const int64_t features = tally_data_spec_features(&spec->data) + spec->bias;
    return (size_t)(TALLY_OBJECTIVE_KINDS[spec->type]->has_classes
                        ? features * tally_data_spec_classes(&spec->data)
                        : features);
}

bool tally_objective_spec_has_points(const struct tally_objective_spec *spec)
{
    return spec->type == TALLY_TRAINING ||
           (TALLY_OBJECTIVE_KINDS[spec->type]->data & TALLY_DATA_SET_POINTS) != 0;
}

uint32_t tally_objective_spec_points(const struct tally_objective_spec *spec)
{
    return tally_objective_spec_has_points(spec) && spec->type != TALLY_TRAINING
               ? tally_data_spec_points(&spec->data)
               : 0;
}

bool tally_objective_spec_is_surveyed(const struct tally_objective_spec *spec)
{
    return (TALLY_OBJECTIVE_KINDS[spec->type]->data & TALLY_DATA_SET_TABLES) != 0 &&
           tally_data_spec_is_surveyed(&spec->data);
}

enum tally_status tally_objective_load(const struct tally_objective_spec *spec, uint32_t clients,
                                       struct tally_rng_key key,
                                       const struct tally_data_source *source,
                                       struct tally_objective **ret, struct tally_error *err)
{
    const struct tally_objective_kind *kind = TALLY_OBJECTIVE_KINDS[spec->type];
    if (kind->make == NULL) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, "objective.name",
                          "plug-in %s is not loaded here", spec->plugin.name);
    }
    struct tally_objective *objective = NULL;
    struct tally_columns columns = {.n = 0};
    struct tally_scaling own = {0};
    struct tally_data_source files = *source;
    const bool is_surveyed = tally_objective_spec_is_surveyed(spec);
    uint64_t digest = 0;
    files.columns = &columns; /* the held-out points have those of the training data */
    files.scaling = source->scaling != NULL ? source->scaling : &own; /* the same */
    if (is_surveyed && (files.surveys = calloc(1, sizeof *files.surveys)) == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for surveys");
    }
    files.ret_digest = &digest;
    enum tally_status status = kind->make(kind, spec, clients, key, &files, &objective, err);
    files.ret_digest = NULL; /* held-out points change no result */
    if (status == TALLY_OK) {
        objective->surveys = files.surveys;
        objective->scaling = files.scaling->digest;
    } else {
        tally_surveys_free(files.surveys);
    }
    files.surveys = NULL;
    if (status == TALLY_OK && (!is_surveyed || objective->scaling != 0)) {
        status = tally_report_add(objective, kind, spec, key, &files, err);
    }
    if (status == TALLY_OK) {
        objective->columns = tally_columns_digest(&columns);
        objective->data_digest = digest;
        *ret = objective;
    } else {
        tally_objective_free(objective);
    }
    tally_columns_fini(&columns);
    tally_scaling_fini(&own);
    return status;
}

void tally_objective_spec_drop_report(struct tally_objective_spec *spec)
{
    spec->accuracy = false;
    tally_data_spec_drop_test(&spec->data);
}

enum tally_status tally_objective_new(const struct tally_objective_spec *spec, uint32_t clients,
                                      struct tally_rng_key key, const char *data_dir,
                                      struct tally_objective **ret, struct tally_error *err)
{
    const struct tally_data_source source = {.dir = data_dir};
    return tally_objective_load(spec, clients, key, &source, ret, err);
}
