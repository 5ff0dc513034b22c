/* least_squares: the objective of that name once more, as a plug-in that draws its points with
 * query->below() and whose arithmetic is in the same order. It must give the same bytes.
 *
 * Options: "POINTS FROBENIUS_NORM NOISE_STD". Made for the tests alone: its data come from Tally's
 * own generator, which is compiled into it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "codec/numeric/rng.h"
#include "services/objectives/data/sharding.h"
#include "services/objectives/plugin.h"

struct state {
    size_t dim;
    uint32_t clients, points;
    double *rows, *responses;
};

static double dot(const double *a, const double *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

static void close_state(void *opaque)
{
    struct state *state = opaque;
    free(state->rows);
    free(state->responses);
    free(state);
}

static void make_points(struct state *state, struct tally_rng_key key, double norm,
                        double noise_std, double *true_point, uint32_t *order)
{
    struct tally_rng rng;
    tally_rng_init(&rng, key, TALLY_RNG_SERVER, 0, TALLY_RNG_TRUE_POINT);
    tally_rng_direction(&rng, 1, true_point, state->dim);
    tally_shard_permutation(key, state->points, order);
    for (uint32_t i = 0; i < state->points; i++) {
        double *row = state->rows + i * state->dim, noise;
        tally_rng_init(&rng, key, TALLY_RNG_SERVER, order[i], TALLY_RNG_COVARIATES);
        tally_rng_direction(&rng, norm / sqrt((double)state->points), row, state->dim);
        tally_rng_init(&rng, key, TALLY_RNG_SERVER, order[i], TALLY_RNG_NOISE);
        tally_rng_normal(&rng, &noise, 1);
        state->responses[i] = dot(row, true_point, state->dim) + noise_std * noise;
    }
}

static int open_state(const struct tally_plugin_problem *problem, void **ret_state, char *ret_why,
                      size_t capacity)
{
    double norm, noise_std;
    struct state *state = calloc(1, sizeof *state);
    if (sscanf(problem->options, "%u %lf %lf", &state->points, &norm, &noise_std) != 3) {
        snprintf(ret_why, capacity, "options \"%s\" are not three numbers", problem->options);
        free(state);
        return 1;
    }
    state->dim = (size_t)problem->dim;
    state->clients = problem->clients;
    state->rows = malloc(state->points * state->dim * sizeof(double));
    state->responses = malloc(state->points * sizeof(double));
    double *true_point = malloc(state->dim * sizeof(double));
    uint32_t *order = malloc(state->points * sizeof(uint32_t));
    make_points(state, tally_rng_key(problem->seed, problem->run), norm, noise_std, true_point,
                order);
    free(true_point);
    free(order);
    *ret_state = state;
    return 0;
}

static double residual(const struct state *state, uint32_t row, const double *x)
{
    return dot(state->rows + row * state->dim, x, state->dim) - state->responses[row];
}

static int gradient(void *opaque, const struct tally_plugin_query *query, const double *x,
                    double *ret_gradient, uint64_t *ret_dim, char *ret_why, size_t capacity)
{
    (void)ret_why;
    (void)capacity;
    const struct state *state = opaque;
    const struct tally_shard shard = tally_shard_of(state->points, state->clients, query->client);
    for (size_t j = 0; j < state->dim; j++) {
        ret_gradient[j] = 0;
    }
    for (uint64_t i = 0; i < query->samples; i++) {
        const uint32_t row = shard.first + query->below(query->stream, shard.size);
        const double factor = 2 * residual(state, row, x);
        for (size_t j = 0; j < state->dim; j++) {
            ret_gradient[j] += factor * state->rows[row * state->dim + j];
        }
    }
    for (size_t j = 0; j < state->dim; j++) {
        ret_gradient[j] /= (double)query->samples;
    }
    *ret_dim = state->dim;
    return 0;
}

static int loss(void *opaque, uint32_t client, const double *x, double *ret_loss, char *ret_why,
                size_t capacity)
{
    (void)ret_why;
    (void)capacity;
    const struct state *state = opaque;
    const struct tally_shard shard = tally_shard_of(state->points, state->clients, client);
    double sum = 0;
    for (uint32_t i = 0; i < shard.size; i++) {
        const double r = residual(state, shard.first + i, x);
        sum += r * r;
    }
    *ret_loss = sum / shard.size;
    return 0;
}

const struct tally_plugin *tally_plugin(void)
{
    static const struct tally_plugin plugin = {.abi = TALLY_PLUGIN_ABI,
                                               .size = sizeof plugin,
                                               .name = "least-squares",
                                               .open = open_state,
                                               .close = close_state,
                                               .gradient = gradient,
                                               .loss = loss};
    return &plugin;
}
