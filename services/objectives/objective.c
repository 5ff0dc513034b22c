#include "services/objectives/objective.h"

#include <stdlib.h>

#include "services/objectives/plugin_instance.h"

const char *const TALLY_OBJECTIVE_NAMES[] = {"least_squares", "softmax_regression", "plugin", NULL};
const char *const TALLY_DATA_NAMES[] = {"synthetic_linear", "idx", NULL};

enum {
    MAX_DIM = 10000000,
    MAX_POINTS = 100000000,
    MAX_VALUES = 1 << 27 /* dim * points: 1 GiB of doubles */
};

#define SYNTHETIC(member) offsetof(struct tally_data_spec, synthetic_linear.member)
static const struct tally_field SYNTHETIC_LINEAR_FIELDS[] = {
    {.name = "dim",
     .kind = TALLY_FIELD_INTEGER,
     .offset = SYNTHETIC(dim),
     .required = true,
     .min = 1,
     .max = MAX_DIM,
     .doc = "number of coordinates d"},
    {.name = "points",
     .kind = TALLY_FIELD_INTEGER,
     .offset = SYNTHETIC(points),
     .required = true,
     .min = 1,
     .max = MAX_POINTS,
     .doc = "number of data points N, over all clients"},
    {.name = "frobenius_norm",
     .kind = TALLY_FIELD_REAL,
     .offset = SYNTHETIC(frobenius_norm),
     .min = 0,
     .min_exclusive = true,
     .max = 1e12,
     .doc = "Frobenius norm of the covariate matrix"},
    {.name = "noise_std",
     .kind = TALLY_FIELD_REAL,
     .offset = SYNTHETIC(noise_std),
     .min = 0,
     .max = 1e9,
     .doc = "standard deviation of the response noise"},
};

#define IDX(member) offsetof(struct tally_data_spec, idx.member)
static const struct tally_field IDX_FIELDS[] = {
    {.name = "images",
     .kind = TALLY_FIELD_TEXT,
     .offset = IDX(images),
     .required = true,
     .capacity = sizeof((struct tally_idx_data *)0)->images,
     .doc = "IDX file of images, below the data folder"},
    {.name = "labels",
     .kind = TALLY_FIELD_TEXT,
     .offset = IDX(labels),
     .required = true,
     .capacity = sizeof((struct tally_idx_data *)0)->labels,
     .doc = "IDX file of labels, below the data folder"},
    {.name = "features",
     .kind = TALLY_FIELD_INTEGER,
     .offset = IDX(features),
     .required = true,
     .min = 1,
     .max = 1000000,
     .doc = "pixels of an image"},
    {.name = "classes",
     .kind = TALLY_FIELD_INTEGER,
     .offset = IDX(classes),
     .required = true,
     .min = 2,
     .max = 256,
     .doc = "number of classes; labels are 0 to classes - 1"},
    {.name = "points_per_class",
     .kind = TALLY_FIELD_INTEGER,
     .offset = IDX(points_per_class),
     .required = true,
     .min = 1,
     .max = 10000000,
     .doc = "images of every class, over all clients"},
};

static const struct tally_field SOFTMAX_FIELDS[] = {
    {.name = "l2",
     .kind = TALLY_FIELD_REAL,
     .offset = offsetof(struct tally_objective_spec, l2),
     .min = 0,
     .max = 1e9,
     .doc = "ridge mu"},
};

#define PLUGIN(member) offsetof(struct tally_objective_spec, plugin.member)
static const struct tally_field PLUGIN_FIELDS[] = {
    {.name = "name",
     .kind = TALLY_FIELD_TEXT,
     .offset = PLUGIN(name),
     .required = true,
     .capacity = sizeof((struct tally_plugin_spec *)0)->name,
     .doc = "of the plug-in that the workers have loaded: 1 to 64 of a-z 0-9 - _"},
    {.name = "dim",
     .kind = TALLY_FIELD_INTEGER,
     .offset = PLUGIN(dim),
     .required = true,
     .min = 1,
     .max = MAX_DIM,
     .doc = "number of coordinates d"},
    {.name = "options",
     .kind = TALLY_FIELD_TEXT,
     .offset = PLUGIN(options),
     .capacity = sizeof((struct tally_plugin_spec *)0)->options,
     .doc = "for the plug-in, which alone knows what it means"},
};

#define ROWS(table) table, sizeof table / sizeof table[0]
const struct tally_objective_kind TALLY_OBJECTIVE_KINDS[] = {
    [TALLY_LEAST_SQUARES] = {"least_squares", NULL, 0, TALLY_DATA_SYNTHETIC_LINEAR},
    [TALLY_SOFTMAX_REGRESSION] = {"softmax_regression", ROWS(SOFTMAX_FIELDS), TALLY_DATA_IDX},
    [TALLY_PLUGIN] = {"plugin", ROWS(PLUGIN_FIELDS), TALLY_DATA_NONE},
};
const struct tally_data_kind TALLY_DATA_KINDS[] = {
    [TALLY_DATA_SYNTHETIC_LINEAR] = {"synthetic_linear", ROWS(SYNTHETIC_LINEAR_FIELDS)},
    [TALLY_DATA_IDX] = {"idx", ROWS(IDX_FIELDS)},
};

struct tally_objective_spec tally_objective_spec_default(void)
{
    return (struct tally_objective_spec){
        .l2 = 0.5, .data.synthetic_linear = {.frobenius_norm = 100, .noise_std = 1}};
}

/* N and the number of values of a point. */
static void shape_of(const struct tally_data_spec *data, int64_t *ret_points, int64_t *ret_width)
{
    if (data->type == TALLY_DATA_IDX) {
        *ret_points = data->idx.classes * data->idx.points_per_class;
        *ret_width = data->idx.features;
    } else {
        *ret_points = data->synthetic_linear.points;
        *ret_width = data->synthetic_linear.dim;
    }
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
    if (spec->type == TALLY_PLUGIN) {
        return validate_plugin(&spec->plugin, err);
    }
    const struct tally_data_spec *data = &spec->data;
    const bool is_idx = data->type == TALLY_DATA_IDX;
    const char *field = is_idx ? "objective.data.points_per_class" : "objective.data.points";
    int64_t points, width;
    shape_of(data, &points, &width);
    if (data->type != (int)TALLY_OBJECTIVE_KINDS[spec->type].data) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data.type",
                          "%s takes data of type %s", TALLY_OBJECTIVE_NAMES[spec->type],
                          TALLY_DATA_NAMES[TALLY_OBJECTIVE_KINDS[spec->type].data]);
    }
    if (points < clients) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, field,
                          "%lld points cannot be split over %lld clients", (long long)points,
                          (long long)clients);
    }
    const int64_t most = is_idx ? (int64_t)MAX_VALUES * 8 : MAX_VALUES; /* bytes, not doubles */
    if (points > most / width) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, field,
                          "%lld points of %lld values are more than %lld values", (long long)points,
                          (long long)width, (long long)most);
    }
    if (tally_objective_spec_dim(spec) > MAX_DIM) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data.features",
                          "features times classes is above %d", MAX_DIM);
    }
    return TALLY_OK;
}

size_t tally_objective_spec_dim(const struct tally_objective_spec *spec)
{
    const struct tally_data_spec *data = &spec->data;
    if (spec->type == TALLY_PLUGIN) {
        return (size_t)spec->plugin.dim;
    }
    return data->type == TALLY_DATA_IDX ? (size_t)(data->idx.features * data->idx.classes)
                                        : (size_t)data->synthetic_linear.dim;
}

enum tally_status tally_objective_new(const struct tally_objective_spec *spec, uint32_t clients,
                                      struct tally_rng_key key, const char *data_dir,
                                      struct tally_objective **ret, struct tally_error *err)
{
    if (spec->type == TALLY_PLUGIN) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, "objective.name",
                          "plug-in %s is not loaded here", spec->plugin.name);
    }
    return spec->type == TALLY_SOFTMAX_REGRESSION
               ? tally_softmax_regression_new(spec, clients, key, data_dir, ret, err)
               : tally_least_squares_new(&spec->data, clients, key, ret, err);
}

void tally_objective_free(struct tally_objective *objective)
{
    if (objective != NULL) {
        objective->ops->free(objective);
    }
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

enum tally_status tally_objective_minimum(const struct tally_objective *objective,
                                          const atomic_bool *stop, double *ret_f_star,
                                          double *ret_x_star, struct tally_error *err)
{
    return objective->ops->minimum(objective, stop, ret_f_star, ret_x_star, err);
}
