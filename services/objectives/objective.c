#include "services/objectives/objective.h"

#include <stdlib.h>

const char *const TALLY_OBJECTIVE_NAMES[] = {"least_squares", "softmax_regression", NULL};
enum { MAX_DIM = 10000000 };

static const struct tally_field SOFTMAX_FIELDS[] = {
    {.name = "l2",
     .kind = TALLY_FIELD_REAL,
     .offset = offsetof(struct tally_objective_spec, l2),
     .min = 0,
     .max = 1e9,
     .doc = "ridge mu"},
};

#define ROWS(table) table, sizeof table / sizeof table[0]
const struct tally_objective_kind TALLY_OBJECTIVE_KINDS[] = {
    [TALLY_LEAST_SQUARES] = {"least_squares", NULL, 0, 1U << TALLY_DATA_SYNTHETIC_LINEAR,
                             TALLY_LABELS_REAL},
    [TALLY_SOFTMAX_REGRESSION] = {"softmax_regression", ROWS(SOFTMAX_FIELDS), 1U << TALLY_DATA_IDX,
                                  TALLY_LABELS_CLASSES},
};

struct tally_objective_spec tally_objective_spec_default(void)
{
    return (struct tally_objective_spec){
        .l2 = 0.5, .data.synthetic_linear = {.frobenius_norm = 100, .noise_std = 1}};
}

enum tally_status tally_objective_spec_validate(const struct tally_objective_spec *spec,
                                                int64_t clients, struct tally_error *err)
{
    const struct tally_objective_kind *kind = &TALLY_OBJECTIVE_KINDS[spec->type];
    const struct tally_data_spec *data = &spec->data;
    if ((kind->data & 1U << data->type) == 0) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data.type",
                          "%s takes no data of type %s", kind->name, TALLY_DATA_NAMES[data->type]);
    }
    const enum tally_status status = tally_data_spec_validate(data, kind->labels, clients, err);
    if (status != TALLY_OK) {
        return status;
    }
    if (tally_objective_spec_dim(spec) > MAX_DIM) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data.features",
                          "features times classes is above %d", MAX_DIM);
    }
    return TALLY_OK;
}

size_t tally_objective_spec_dim(const struct tally_objective_spec *spec)
{
    const int64_t features = tally_data_spec_features(&spec->data);
    return (size_t)(spec->type == TALLY_SOFTMAX_REGRESSION
                        ? features * tally_data_spec_classes(&spec->data)
                        : features);
}

enum tally_status tally_objective_load(const struct tally_objective_spec *spec, uint32_t clients,
                                       struct tally_rng_key key,
                                       const struct tally_data_source *source,
                                       struct tally_objective **ret, struct tally_error *err)
{
    return spec->type == TALLY_SOFTMAX_REGRESSION
               ? tally_softmax_regression_new(spec, clients, key, source, ret, err)
               : tally_least_squares_new(&spec->data, clients, key, ret, err);
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
