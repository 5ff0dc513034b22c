#include "tests/unit/services/objectives/objective_checks.h"

#include <math.h>
#include <string.h>

#include "services/objectives/data/sharding.h"
#include "tests/harness.h"
#include "tests/unit/services/local_loss.h"

void checks_point_gradient(const struct tally_objective *objective, uint32_t client, uint32_t size,
                           uint32_t index, const double *x, double *ret_gradient)
{
    /* A stream whose first word is in the middle of the words that below(size) maps to index. */
    const uint64_t middle = ((uint64_t)index << 32) + (UINT64_C(1) << 31);
    struct tally_rng rng = {.block = {(uint32_t)(middle / size)}};
    CU_ASSERT_EQUAL(
        tally_objective_local_gradient(objective, client, x, 1, &rng, ret_gradient, NULL),
        TALLY_OK);
}

void checks_shard_gradient(const struct tally_objective *objective, uint32_t points,
                           uint32_t client, const double *x, double *ret_gradient)
{
    const uint32_t size = tally_shard_of(points, objective->clients, client).size;
    memset(ret_gradient, 0, objective->dim * sizeof *ret_gradient);
    for (uint32_t i = 0; i < size; i++) {
        double one[CHECKS_MOST_DIM];
        checks_point_gradient(objective, client, size, i, x, one);
        for (size_t j = 0; j < objective->dim; j++) {
            ret_gradient[j] += one[j] / size;
        }
    }
}

void checks_full_gradient(const struct tally_objective *objective, uint32_t points, const double *x,
                          double *ret_gradient)
{
    memset(ret_gradient, 0, objective->dim * sizeof *ret_gradient);
    for (uint32_t m = 0; m < objective->clients; m++) {
        double one[CHECKS_MOST_DIM];
        checks_shard_gradient(objective, points, m, x, one);
        for (size_t j = 0; j < objective->dim; j++) {
            ret_gradient[j] += one[j] / objective->clients;
        }
    }
}

double checks_full_loss(const struct tally_objective *objective, const double *x)
{
    double sum = 0;
    for (uint32_t m = 0; m < objective->clients; m++) {
        sum += local_loss_of(objective, m, x);
    }
    return sum / objective->clients;
}

double checks_norm(const double *v, size_t n)
{
    double square = 0;
    for (size_t i = 0; i < n; i++) {
        square += v[i] * v[i];
    }
    return sqrt(square);
}

double checks_distance(const double *a, const double *b, size_t n)
{
    double square = 0;
    for (size_t i = 0; i < n; i++) {
        square += (a[i] - b[i]) * (a[i] - b[i]);
    }
    return sqrt(square);
}
