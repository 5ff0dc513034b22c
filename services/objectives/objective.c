#include "services/objectives/objective.h"

#include <stdlib.h>

const char *const TALLY_OBJECTIVE_NAMES[] = {"least_squares", NULL};
const char *const TALLY_DATA_NAMES[] = {"synthetic_linear", NULL};

enum {
    MAX_DIM = 10000000,
    MAX_POINTS = 100000000,
    MAX_VALUES = 1 << 27 /* dim * points: 1 GiB of doubles */
};

#define SYNTHETIC(member) offsetof(struct tally_synthetic_linear, member)
const struct tally_field TALLY_SYNTHETIC_LINEAR_FIELDS[] = {
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
const size_t TALLY_N_SYNTHETIC_LINEAR_FIELDS =
    sizeof TALLY_SYNTHETIC_LINEAR_FIELDS / sizeof TALLY_SYNTHETIC_LINEAR_FIELDS[0];

struct tally_objective_spec tally_objective_spec_default(void)
{
    return (struct tally_objective_spec){
        .data.synthetic_linear = {.frobenius_norm = 100, .noise_std = 1}};
}

enum tally_status tally_objective_spec_validate(const struct tally_objective_spec *spec,
                                                int64_t clients, struct tally_error *err)
{
    const struct tally_synthetic_linear *data = &spec->data.synthetic_linear;
    if (data->points < clients) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data.points",
                          "%lld points cannot be split over %lld clients", (long long)data->points,
                          (long long)clients);
    }
    if (data->points > MAX_VALUES / data->dim) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data.points",
                          "dim %lld times points %lld is above %d", (long long)data->dim,
                          (long long)data->points, MAX_VALUES);
    }
    return TALLY_OK;
}

size_t tally_objective_spec_dim(const struct tally_objective_spec *spec)
{
    return (size_t)spec->data.synthetic_linear.dim;
}

enum tally_status tally_objective_new(const struct tally_objective_spec *spec, uint32_t clients,
                                      struct tally_rng_key key, struct tally_objective **ret,
                                      struct tally_error *err)
{
    return tally_least_squares_new(&spec->data, clients, key, ret, err);
}

void tally_objective_free(struct tally_objective *objective)
{
    if (objective != NULL) {
        objective->ops->free(objective);
    }
}

double tally_objective_local_loss(const struct tally_objective *objective, uint32_t client,
                                  const double *x)
{
    return objective->ops->local_loss(objective, client, x);
}

void tally_objective_local_gradient(const struct tally_objective *objective, uint32_t client,
                                    const double *x, int64_t n, struct tally_rng *rng,
                                    double *ret_gradient)
{
    objective->ops->local_gradient(objective, client, x, n, rng, ret_gradient);
}

enum tally_status tally_objective_minimum(const struct tally_objective *objective,
                                          double *ret_f_star, double *ret_x_star,
                                          struct tally_error *err)
{
    return objective->ops->minimum(objective, ret_f_star, ret_x_star, err);
}
