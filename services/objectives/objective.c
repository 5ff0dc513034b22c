#include "services/objectives/objective.h"

#include <math.h>

#include "services/objectives/losses/plugin_instance.h"

const char *const TALLY_OBJECTIVE_NAMES[] = {"least_squares",
                                             "softmax_regression",
                                             "logistic_regression",
                                             "huber_regression",
                                             "quadratic",
                                             "plugin",
                                             NULL};

_Static_assert((int)TALLY_MAX_DIM == (int)TALLY_DATA_MAX_FEATURES, "one limit of d");

const struct tally_curvature TALLY_CURVATURE_UNKNOWN = {NAN, NAN};

#define OBJECTIVE(member) offsetof(struct tally_objective_spec, member)
#define L2_FIELD                                                                                   \
    {                                                                                              \
        .name = "l2", .kind = TALLY_FIELD_REAL, .unit = "f per norm^2", .offset = OBJECTIVE(l2),   \
        .min = 0, .max = 1e9, .doc = "ridge mu: the objective has the term mu |x|^2"               \
    }
#define BIAS_FIELD                                                                                 \
    {                                                                                              \
        .name = "bias", .kind = TALLY_FIELD_BOOL, .offset = OBJECTIVE(bias),                       \
        .doc = "whether every point has one more feature, which is 1"                              \
    }
static const struct tally_field LINEAR_FIELDS[] = {L2_FIELD, BIAS_FIELD};
static const struct tally_field HUBER_FIELDS[] = {
    L2_FIELD,
    BIAS_FIELD,
    {.name = "threshold",
     .kind = TALLY_FIELD_REAL,
     .unit = "residual",
     .offset = OBJECTIVE(threshold),
     .min = 0,
     .min_exclusive = true,
     .max = 1e9,
     .doc = "residual above which the loss is linear"},
};
static const struct tally_field QUADRATIC_FIELDS[] = {
    {.name = "noise_std",
     .kind = TALLY_FIELD_REAL,
     .unit = "gradient",
     .offset = OBJECTIVE(noise_std),
     .min = 0,
     .max = 1e9,
     .doc = "standard deviation of every coordinate of a gradient query"},
};

#define PLUGIN(member) offsetof(struct tally_objective_spec, plugin.member)
static const struct tally_field PLUGIN_FIELDS[] = {
    {.name = "name",
     .kind = TALLY_FIELD_TEXT,
     .offset = PLUGIN(name),
     .required = true,
     .capacity = sizeof((struct tally_plugin_spec *)0)->name,
     .doc = "name of the plug-in that the workers have loaded: 1 to 64 of a-z 0-9 - _"},
    {.name = "dim",
     .kind = TALLY_FIELD_INTEGER,
     .unit = "coordinates",
     .offset = PLUGIN(dim),
     .required = true,
     .min = 1,
     .max = TALLY_MAX_DIM,
     .doc = "number of coordinates d"},
    {.name = "options",
     .kind = TALLY_FIELD_TEXT,
     .offset = PLUGIN(options),
     .capacity = sizeof((struct tally_plugin_spec *)0)->options,
     .doc = "text that is passed to the plug-in"},
};

#define ROWS(table) table, sizeof table / sizeof table[0]
enum {
    FILES = TALLY_DATA_SET_TABLES | 1 << TALLY_DATA_IDX,
    FILES_AND_SYNTHETIC = FILES | 1 << TALLY_DATA_SYNTHETIC_LINEAR
};
const struct tally_objective_kind TALLY_OBJECTIVE_KINDS[] = {
    [TALLY_LEAST_SQUARES] = {"least_squares", ROWS(LINEAR_FIELDS), FILES_AND_SYNTHETIC,
                             TALLY_LABELS_REAL, 0},
    [TALLY_SOFTMAX_REGRESSION] = {"softmax_regression", ROWS(LINEAR_FIELDS), FILES,
                                  TALLY_LABELS_CLASSES, 0.5},
    [TALLY_LOGISTIC_REGRESSION] = {"logistic_regression", ROWS(LINEAR_FIELDS), FILES,
                                   TALLY_LABELS_BINARY, 0},
    [TALLY_HUBER_REGRESSION] = {"huber_regression", ROWS(HUBER_FIELDS), FILES_AND_SYNTHETIC,
                                TALLY_LABELS_REAL, 0},
    [TALLY_QUADRATIC] = {"quadratic", ROWS(QUADRATIC_FIELDS), 1U << TALLY_DATA_MATRIX,
                         TALLY_LABELS_REAL, 0},
    [TALLY_PLUGIN] = {"plugin", ROWS(PLUGIN_FIELDS), 0, TALLY_LABELS_REAL, 0},
};

struct tally_objective_spec tally_objective_spec_default(void)
{
    return (struct tally_objective_spec){
        .threshold = 1.345, /* 95 % efficient where noise is normal with deviation 1 */
        .data.synthetic_linear = {.frobenius_norm = 100, .noise_std = 1}};
}

static enum tally_status validate_plugin(const struct tally_plugin_spec *plugin,
                                         struct tally_error *err)
{
    return tally_plugin_is_name(plugin->name)
               ? TALLY_OK
               : tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.name",
                            "\"%s\" is no name of a plug-in: 1 to %d of a-z 0-9 - _", plugin->name,
                            TALLY_PLUGIN_NAME_CAPACITY - 1);
}

enum tally_status tally_objective_spec_validate(const struct tally_objective_spec *spec,
                                                int64_t clients, struct tally_error *err)
{
    const struct tally_objective_kind *kind = &TALLY_OBJECTIVE_KINDS[spec->type];
    if (spec->type == TALLY_PLUGIN) {
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
    return spec->type == TALLY_PLUGIN ? "objective.dim"
           : data == TALLY_DATA_SYNTHETIC_LINEAR || data == TALLY_DATA_MATRIX
               ? "objective.data.dim"
               : "objective.data.features";
}

size_t tally_objective_spec_dim(const struct tally_objective_spec *spec)
{
    if (spec->type == TALLY_PLUGIN) {
        return (size_t)spec->plugin.dim;
    }
    const int64_t features = tally_data_spec_features(&spec->data) + spec->bias;
    return (size_t)(spec->type == TALLY_SOFTMAX_REGRESSION
                        ? features * tally_data_spec_classes(&spec->data)
                        : features);
}

static tally_objective_new_fn *maker_of(const struct tally_objective_spec *spec)
{
    const struct tally_data_spec *data = &spec->data;
    switch ((enum tally_objective_type)spec->type) {
    case TALLY_SOFTMAX_REGRESSION: /* images as the experiment of [1] has them have kernels */
        return data->type == TALLY_DATA_IDX && data->idx.points_per_class > 0 &&
                       data->sharding == TALLY_SHARDING_IID && !spec->bias
                   ? tally_softmax_regression_new
                   : tally_softmax_points_new;
    case TALLY_QUADRATIC:
        return tally_quadratic_new;
    case TALLY_LEAST_SQUARES:
    case TALLY_LOGISTIC_REGRESSION:
    case TALLY_HUBER_REGRESSION:
    case TALLY_PLUGIN: /* of services/plugins */
        break;
    }
    return tally_linear_model_new;
}

enum tally_status tally_objective_load(const struct tally_objective_spec *spec, uint32_t clients,
                                       struct tally_rng_key key,
                                       const struct tally_data_source *source,
                                       struct tally_objective **ret, struct tally_error *err)
{
    if (spec->type == TALLY_PLUGIN) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, "objective.name",
                          "plug-in %s is not loaded here", spec->plugin.name);
    }
    return maker_of(spec)(spec, clients, key, source, ret, err);
}

enum tally_status tally_objective_new(const struct tally_objective_spec *spec, uint32_t clients,
                                      struct tally_rng_key key, const char *data_dir,
                                      struct tally_objective **ret, struct tally_error *err)
{
    const struct tally_data_source source = {.dir = data_dir};
    return tally_objective_load(spec, clients, key, &source, ret, err);
}

void tally_objective_free(struct tally_objective *objective)
{
    if (objective != NULL) {
        objective->ops->free(objective);
    }
}

bool tally_objective_has_loss(const struct tally_objective *objective)
{
    return objective->ops->has_loss == NULL || objective->ops->has_loss(objective);
}

enum tally_status tally_objective_local_loss(const struct tally_objective *objective,
                                             uint32_t client, const double *x, double *ret_loss,
                                             struct tally_error *err)
{
    return objective->ops->local_loss(objective, client, x, ret_loss, err);
}

enum tally_status tally_objective_local_gradient(const struct tally_objective *objective,
                                                 uint32_t client, const double *x, int64_t n,
                                                 struct tally_rng *rng, double *ret_gradient,
                                                 struct tally_error *err)
{
    return objective->ops->local_gradient(objective, client, x, n, rng, ret_gradient, err);
}

enum tally_status tally_objective_losses(const struct tally_objective *objective,
                                         const double *points, size_t n, double *ret_losses,
                                         struct tally_error *err)
{
    return objective->ops->losses(objective, points, n, ret_losses, err);
}

enum tally_status tally_objective_minimum_in(const struct tally_objective *objective,
                                             const struct tally_domain *domain,
                                             const atomic_bool *stop, double *ret_f_star,
                                             double *ret_x_star, struct tally_error *err)
{
    return objective->ops->minimum(objective, domain, stop, ret_f_star, ret_x_star, err);
}

enum tally_status tally_objective_minimum(const struct tally_objective *objective,
                                          const atomic_bool *stop, double *ret_f_star,
                                          double *ret_x_star, struct tally_error *err)
{
    return tally_objective_minimum_in(objective, NULL, stop, ret_f_star, ret_x_star, err);
}

enum tally_status tally_objective_curvature(const struct tally_objective *objective,
                                            const atomic_bool *stop,
                                            struct tally_curvature *ret_curvature,
                                            struct tally_error *err)
{
    if (objective->ops->curvature == NULL) {
        *ret_curvature = TALLY_CURVATURE_UNKNOWN;
        return TALLY_OK;
    }
    return objective->ops->curvature(objective, stop, ret_curvature, err);
}
