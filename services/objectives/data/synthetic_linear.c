#include "services/objectives/data/synthetic_linear.h"

#include <math.h>
#include <stdlib.h>

#include "codec/numeric/vector.h"

/* Point i of the data set has its own streams, so its position does not matter. */
static void make_point(const struct tally_synthetic_linear *data, struct tally_rng_key key,
                       uint32_t point, const double *true_point, double *row, double *response)
{
    struct tally_rng rng;
    size_t dim = (size_t)data->dim;
    tally_rng_init(&rng, key, TALLY_RNG_SERVER, point, TALLY_RNG_COVARIATES);
    tally_rng_direction(&rng, data->frobenius_norm / sqrt((double)data->points), row, dim);
    double noise;
    tally_rng_init(&rng, key, TALLY_RNG_SERVER, point, TALLY_RNG_NOISE);
    tally_rng_normal(&rng, &noise, 1);
    *response = tally_vector_dot(row, true_point, dim) + data->noise_std * noise;
}

enum tally_status tally_synthetic_linear_make(const struct tally_synthetic_linear *data,
                                              uint32_t clients, struct tally_rng_key key,
                                              struct tally_dataset **ret, struct tally_error *err)
{
    const size_t dim = (size_t)data->dim;
    const uint32_t points = (uint32_t)data->points;
    struct tally_dataset *dataset = calloc(1, sizeof *dataset);
    uint32_t *order = malloc(points * sizeof *order);
    double *true_point = malloc(dim * sizeof *true_point);
    enum tally_status status = TALLY_NO_MEMORY;
    if (dataset == NULL || order == NULL || true_point == NULL) {
        goto out;
    }
    *dataset = (struct tally_dataset){.clients = clients,
                                      .points = points,
                                      .features = dim,
                                      .is_whole = true,
                                      .shards = malloc(clients * sizeof *dataset->shards),
                                      .values = malloc(points * dim * sizeof *dataset->values),
                                      .labels = malloc(points * sizeof *dataset->labels)};
    if (dataset->shards == NULL || dataset->values == NULL || dataset->labels == NULL) {
        goto out;
    }
    for (uint32_t m = 0; m < clients; m++) {
        dataset->shards[m] = tally_shard_of(points, clients, m);
    }
    struct tally_rng rng;
    tally_rng_init(&rng, key, TALLY_RNG_SERVER, 0, TALLY_RNG_TRUE_POINT);
    tally_rng_direction(&rng, 1, true_point, dim);
    tally_shard_permutation(key, points, order);
    for (uint32_t i = 0; i < points; i++) {
        make_point(data, key, order[i], true_point, dataset->values + i * dim, &dataset->labels[i]);
    }
    *ret = dataset;
    dataset = NULL;
    status = TALLY_OK;
out:
    if (status != TALLY_OK) {
        tally_fail(err, status, NULL, "no memory for %u points of dim %zu", points, dim);
    }
    free(order);
    free(true_point);
    tally_dataset_free(dataset);
    return status;
}
