#include "services/job/step_probe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codec/numeric/vector.h"

enum {
    CLIENTS_MOST = 64,
    CLIENTS_LEAST = 8,     /* if there are as many */
    QUERIES = 256,         /* of single points, all clients */
    QUERIES_LEAST = 4,     /* of a client */
    COORDINATES = 1 << 22, /* points * dim of one evaluation of the gradient */
    QUERIED = 1 << 25,     /* numbers that all these queries take */
    RESCALINGS = 4,
    NEWTON_STEPS = 3,
    HALVINGS = 5
};

/* Part of the way back from x* to the initial point at which the curvature is measured. */
static const double MIDDLE = 0.5;
static const double SMALL_GRADIENT = 1e-3; /* relative to the first one: near enough to x* */

/* Changes of the gradient relative to itself, along a step of a difference: as wanted, and the most
 * that is still local. The least is SHARE^2. */
static const double SHARE = 1e-3, MOST_SHARE = 1e-2;
/* A smaller curvature, relative to the largest, is rounding. */
static const double LEAST_CURVATURE = 1e-8;

struct probe {
    const struct tally_job_spec *spec;
    const struct tally_objective *objective;
    const atomic_bool *stop;
    struct tally_rng_key key;
    size_t dim;
    uint32_t n_clients; /* that are probed */
    double *weights;    /* double[n_clients], with the sum 1 */
    int64_t *points;    /* int64[n_clients]: drawn of each; 0 = all */
    double *x;          /* where the products are measured */
    double *gradient;   /* of f at x */
    double length;      /* of the steps of differences */
    double *basis;      /* double[TALLY_PROBE_ITERATIONS][dim] */
    double *error;      /* x^(1) - x* */
    double *step;       /* towards x*; then the noise */
    double *at, *one, *other, *sum;
    struct tally_error *err;
};

static uint32_t client_of(const struct probe *probe, uint32_t i)
{
    return (uint32_t)((uint64_t)i * probe->objective->clients / probe->n_clients);
}

static void add(double *x, double factor, const double *y, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        x[i] += factor * y[i];
    }
}

static enum tally_status no_curvature(const struct probe *probe)
{
    return tally_fail(probe->err, TALLY_FAILED_PRECONDITION, NULL,
                      "f has no curvature that can be measured at the initial point");
}

/* The gradient of the points that are looked at of client i, always the same ones. */
static enum tally_status client_gradient(const struct probe *probe, uint32_t i, const double *x,
                                         double *ret_gradient)
{
    struct tally_rng rng;
    const uint32_t client = client_of(probe, i);
    if (probe->stop != NULL && atomic_load(probe->stop)) {
        return tally_fail(probe->err, TALLY_CANCELLED, NULL, "stopped");
    }
    tally_rng_init(&rng, probe->key, client, UINT32_MAX, TALLY_RNG_PROBE);
    return tally_objective_local_gradient(probe->objective, client, x, probe->points[i], &rng,
                                          ret_gradient, probe->err);
}

static enum tally_status gradient_at(const struct probe *probe, const double *x, double *ret)
{
    enum tally_status status = TALLY_OK;
    memset(ret, 0, probe->dim * sizeof *ret);
    for (uint32_t i = 0; status == TALLY_OK && i < probe->n_clients; i++) {
        status = client_gradient(probe, i, x, probe->one);
        if (status == TALLY_OK) {
            add(ret, probe->weights[i], probe->one, probe->dim);
        }
    }
    return status;
}

/* ret <- H v, for |v| = 1. */
static enum tally_status times(const struct probe *probe, const double *v, double *ret)
{
    memcpy(probe->at, probe->x, probe->dim * sizeof *probe->at);
    add(probe->at, probe->length, v, probe->dim);
    const enum tally_status status = gradient_at(probe, probe->at, ret);
    for (size_t i = 0; i < probe->dim; i++) {
        ret[i] = (ret[i] - probe->gradient[i]) / probe->length;
    }
    return status;
}

/* ---- Lanczos. */

struct spectrum {
    size_t n;
    double nodes[TALLY_PROBE_ITERATIONS];
    double weights[TALLY_PROBE_ITERATIONS]; /* with the sum 1 */
    double newton[TALLY_PROBE_ITERATIONS];  /* T^-1 e_1, of nodes that are not rounding */
};

/* Eigenvalues and eigenvectors of a symmetric matrix of n <= TALLY_PROBE_ITERATIONS rows, by
 * Jacobi's rotations. `a` becomes diagonal. */
static void diagonalize(size_t n, double a[][TALLY_PROBE_ITERATIONS],
                        double ret_vectors[][TALLY_PROBE_ITERATIONS])
{
    enum { SWEEPS = 12 }; /* quadratic convergence */
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < n; k++) {
            ret_vectors[i][k] = i == k;
        }
    }
    for (size_t step = 0; step < SWEEPS * n * n; step++) {
        const size_t p = step / n % n, q = step % n;
        if (p >= q || a[p][q] == 0) {
            continue;
        }
        const double theta = (a[q][q] - a[p][p]) / (2 * a[p][q]);
        const double t = (theta < 0 ? -1 : 1) / (fabs(theta) + sqrt(theta * theta + 1));
        const double c = 1 / sqrt(t * t + 1), s = t * c;
        for (size_t k = 0; k < n; k++) { /* columns */
            const double kp = a[k][p], kq = a[k][q];
            const double vp = ret_vectors[k][p], vq = ret_vectors[k][q];
            a[k][p] = c * kp - s * kq;
            a[k][q] = s * kp + c * kq;
            ret_vectors[k][p] = c * vp - s * vq;
            ret_vectors[k][q] = s * vp + c * vq;
        }
        for (size_t k = 0; k < n; k++) { /* rows */
            const double pk = a[p][k], qk = a[q][k];
            a[p][k] = c * pk - s * qk;
            a[q][k] = s * pk + c * qk;
        }
    }
}

static void take_spectrum(size_t n, double t[][TALLY_PROBE_ITERATIONS], struct spectrum *ret)
{
    double vectors[TALLY_PROBE_ITERATIONS][TALLY_PROBE_ITERATIONS], largest = 0;
    diagonalize(n, t, vectors);
    *ret = (struct spectrum){.n = n};
    for (size_t i = 0; i < n; i++) {
        ret->nodes[i] = t[i][i];
        ret->weights[i] = vectors[0][i] * vectors[0][i];
        largest = fmax(largest, t[i][i]);
    }
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; ret->nodes[i] > LEAST_CURVATURE * largest && k < n; k++) {
            ret->newton[k] += vectors[k][i] * vectors[0][i] / ret->nodes[i];
        }
    }
}

/* The spectral measure of the vector in probe->sum, with the vectors of the basis. */
static enum tally_status iterate(const struct probe *probe, struct spectrum *ret_spectrum)
{
    double t[TALLY_PROBE_ITERATIONS][TALLY_PROBE_ITERATIONS] = {{0}};
    const size_t dim = probe->dim;
    const size_t most = dim < TALLY_PROBE_ITERATIONS ? dim : TALLY_PROBE_ITERATIONS;
    double *w = probe->sum, norm = tally_vector_norm(w, dim), largest = 0;
    enum tally_status status = TALLY_OK;
    size_t n = 0;
    while (status == TALLY_OK && n < most && norm > 0 && norm > LEAST_CURVATURE * largest) {
        double *v = probe->basis + n * dim;
        for (size_t i = 0; i < dim; i++) {
            v[i] = w[i] / norm;
        }
        status = times(probe, v, w);
        for (size_t k = 0; k <= n; k++) { /* twice is enough against rounding */
            t[n][k] = t[k][n] = tally_vector_dot(w, probe->basis + k * dim, dim);
        }
        for (int again = 0; again < 2; again++) {
            for (size_t k = 0; k <= n; k++) {
                const double *u = probe->basis + k * dim;
                add(w, -tally_vector_dot(w, u, dim), u, dim);
            }
        }
        norm = tally_vector_norm(w, dim);
        largest = fmax(largest, fabs(t[n][n]));
        n++;
    }
    if (status == TALLY_OK && (n == 0 || !isfinite(norm))) {
        return no_curvature(probe);
    }
    take_spectrum(n, t, ret_spectrum);
    return status;
}

/* ---- Measurements. */

/* Finds a length at which differences are local: x may have any scale. */
static enum tally_status find_length(struct probe *probe)
{
    const double size = tally_vector_norm(probe->gradient, probe->dim);
    enum tally_status status = size > 0 && isfinite(size) ? TALLY_OK : no_curvature(probe);
    probe->length = 1e-4 * (1 + tally_vector_norm(probe->x, probe->dim));
    for (int i = 0; status == TALLY_OK && i < RESCALINGS; i++) {
        for (size_t k = 0; k < probe->dim; k++) {
            probe->other[k] = -probe->gradient[k] / size;
        }
        status = times(probe, probe->other, probe->sum);
        const double change = tally_vector_norm(probe->sum, probe->dim) * probe->length / size;
        if (status != TALLY_OK || !(change > MOST_SHARE || change < SHARE * SHARE)) {
            break;
        }
        probe->length *= fmin(fmax(SHARE / fmax(change, 1e-12), 1e-6), 1e6);
    }
    return status;
}

/* Takes a step -probe->step from probe->x, or a part of it, after which the gradient is shorter.
 * *ret_moved is false if there is none. */
static enum tally_status step_down(struct probe *probe, bool *ret_moved)
{
    const double before = tally_vector_norm(probe->gradient, probe->dim);
    double part = 1;
    enum tally_status status = TALLY_OK;
    *ret_moved = false;
    for (int i = 0; status == TALLY_OK && !*ret_moved && i < HALVINGS; i++) {
        memcpy(probe->other, probe->x, probe->dim * sizeof *probe->other);
        add(probe->other, -part, probe->step, probe->dim);
        status = gradient_at(probe, probe->other, probe->sum);
        *ret_moved = status == TALLY_OK && tally_vector_norm(probe->sum, probe->dim) < before;
        part /= 2;
    }
    if (*ret_moved) {
        memcpy(probe->x, probe->other, probe->dim * sizeof *probe->x);
        memcpy(probe->gradient, probe->sum, probe->dim * sizeof *probe->gradient);
    }
    return status;
}

/* probe->x <- an estimate of x*, by Newton's method in Krylov subspaces. */
static enum tally_status find_minimum(struct probe *probe)
{
    const double first = tally_vector_norm(probe->gradient, probe->dim);
    bool moved = true;
    enum tally_status status = TALLY_OK;
    for (int k = 0; status == TALLY_OK && moved && k < NEWTON_STEPS &&
                    tally_vector_norm(probe->gradient, probe->dim) > SMALL_GRADIENT * first;
         k++) {
        struct spectrum spectrum;
        const double size = tally_vector_norm(probe->gradient, probe->dim);
        memcpy(probe->sum, probe->gradient, probe->dim * sizeof *probe->sum);
        status = iterate(probe, &spectrum);
        memset(probe->step, 0, probe->dim * sizeof *probe->step);
        for (size_t i = 0; status == TALLY_OK && i < spectrum.n; i++) {
            add(probe->step, size * spectrum.newton[i], probe->basis + i * probe->dim, probe->dim);
        }
        if (status == TALLY_OK) {
            status = step_down(probe, &moved);
        }
    }
    return status;
}

/* The variance of the gradients of single points, and of their differences along probe->other, of
 * client i. Adds deviations with random signs to probe->sum. */
static enum tally_status query_points(const struct probe *probe, uint32_t i, int n,
                                      double *ret_variance, double *ret_growth)
{
    const size_t dim = probe->dim;
    const uint32_t client = client_of(probe, i);
    double *means = probe->basis, *near = probe->basis + 2 * dim; /* which no iteration needs now */
    double squares[2] = {0, 0}, signs = 0;
    enum tally_status status = TALLY_OK;
    memset(means, 0, 2 * dim * sizeof *means);
    memcpy(near, probe->x, dim * sizeof *near);
    add(near, probe->length, probe->other, dim);
    for (int k = 0; status == TALLY_OK && k < n; k++) {
        struct tally_rng rng, same;
        tally_rng_init(&rng, probe->key, client, (uint32_t)k, TALLY_RNG_PROBE);
        const double sign = tally_rng_below(&rng, 2) == 0 ? -1 : 1;
        same = rng;
        status = tally_objective_local_gradient(probe->objective, client, probe->x, 1, &rng,
                                                probe->one, probe->err);
        if (status == TALLY_OK) {
            status = tally_objective_local_gradient(probe->objective, client, near, 1, &same,
                                                    probe->at, probe->err);
        }
        if (status == TALLY_OK) {
            add(probe->at, -1, probe->one, dim);
            squares[0] += tally_vector_dot(probe->one, probe->one, dim);
            squares[1] += tally_vector_dot(probe->at, probe->at, dim);
            add(means, 1.0 / n, probe->one, dim);
            add(means + dim, 1.0 / n, probe->at, dim);
            add(probe->sum, sign, probe->one, dim);
            signs += sign;
        }
    }
    if (status == TALLY_OK) {
        add(probe->sum, -signs, means, dim);
        *ret_variance = (squares[0] - n * tally_vector_dot(means, means, dim)) / (n - 1);
        *ret_growth = (squares[1] - n * tally_vector_dot(means + dim, means + dim, dim)) / (n - 1) /
                      (probe->length * probe->length);
    }
    return status;
}

/* The clients' own gradients at probe->x. */
static enum tally_status measure_spread(struct probe *probe, double variance,
                                        struct tally_probe *ret)
{
    double spread = 0;
    enum tally_status status = gradient_at(probe, probe->x, probe->gradient);
    for (uint32_t i = 0; status == TALLY_OK && i < probe->n_clients; i++) {
        status = client_gradient(probe, i, probe->x, probe->one);
        if (status == TALLY_OK) {
            add(probe->one, -1, probe->gradient, probe->dim);
            spread += probe->weights[i] * tally_vector_dot(probe->one, probe->one, probe->dim);
            spread -=
                probe->points[i] > 0 ? probe->weights[i] * variance / (double)probe->points[i] : 0;
            if (probe->spec->minibatch == 0) {
                add(probe->sum, i % 2 == 0 ? 1 : -1, probe->one, probe->dim);
            }
        }
    }
    ret->spread = fmax(spread, 0);
    return status;
}

enum part { ERROR, NOISE, EVEN };

/* Adds the modes of the vector in probe->sum. */
static enum tally_status add_modes(const struct probe *probe, enum part part,
                                   struct tally_probe *ret)
{
    struct spectrum spectrum;
    const double square = tally_vector_dot(probe->sum, probe->sum, probe->dim);
    const size_t first = ret->n;
    double sum = 0;
    enum tally_status status = iterate(probe, &spectrum);
    for (size_t i = 0; status == TALLY_OK && i < spectrum.n; i++) {
        ret->smoothness = fmax(ret->smoothness, spectrum.nodes[i]);
    }
    for (size_t i = 0; status == TALLY_OK && i < spectrum.n; i++) {
        if (spectrum.nodes[i] > LEAST_CURVATURE * ret->smoothness) {
            ret->modes[ret->n++].curvature = spectrum.nodes[i];
            sum += spectrum.weights[i];
            ret->modes[ret->n - 1].square = spectrum.weights[i]; /* for now */
        }
    }
    for (size_t i = first; i < ret->n; i++) {
        const double weight = ret->modes[i].square / sum;
        ret->modes[i].square = part == ERROR ? square * weight : 0;
        ret->modes[i].share = part == NOISE ? weight : 0;
        ret->modes[i].even = part == EVEN ? weight : 0;
    }
    return status;
}

/* How many single points of each client are queried. A point of a matrix costs all its numbers, but
 * its noise is the same in all directions, so that a few show it. */
static int queries_of(const struct probe *probe)
{
    const double dim = (double)probe->dim;
    const double cost = probe->spec->objective.data.type == TALLY_DATA_MATRIX ? dim * dim : dim;
    return (int)fmax(fmin(QUERIES, QUERIED / cost) / probe->n_clients, QUERIES_LEAST);
}

/* Measures at probe->x, the estimate of x*. The noise is left in probe->sum. */
static enum tally_status measure_noise(struct probe *probe, struct tally_probe *ret)
{
    const size_t dim = probe->dim;
    const int n = queries_of(probe);
    const double points = (double)probe->spec->minibatch,
                 distance = tally_vector_norm(probe->error, probe->dim);
    double variance = 0, growth = 0;
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; i < dim; i++) {
        probe->other[i] = probe->error[i] / distance;
    }
    memset(probe->sum, 0, dim * sizeof *probe->sum);
    for (uint32_t i = 0; status == TALLY_OK && i < probe->n_clients; i++) {
        double of_client = 0, growth_of_client = 0;
        status = query_points(probe, i, n, &of_client, &growth_of_client);
        variance += probe->weights[i] * of_client;
        growth += probe->weights[i] * growth_of_client;
    }
    if (points > 0) {
        ret->noise = variance / points;
        ret->growth = growth / points;
    } else {
        memset(probe->sum, 0, dim * sizeof *probe->sum);
    }
    return status == TALLY_OK ? measure_spread(probe, variance, ret) : status;
}

/* The modes at the middle between the initial point and x*. */
static enum tally_status measure_modes(struct probe *probe, struct tally_probe *ret)
{
    const size_t dim = probe->dim;
    struct tally_rng signs;
    tally_rng_init(&signs, probe->key, TALLY_RNG_SERVER, 0, TALLY_RNG_PROBE);
    memcpy(probe->step, probe->sum, dim * sizeof *probe->step); /* the noise */
    add(probe->x, MIDDLE, probe->error, dim);
    enum tally_status status = gradient_at(probe, probe->x, probe->gradient);
    if (status == TALLY_OK) {
        memcpy(probe->sum, probe->error, dim * sizeof *probe->sum);
        status = add_modes(probe, ERROR, ret);
    }
    if (status == TALLY_OK && tally_vector_norm(probe->step, probe->dim) > 0) {
        memcpy(probe->sum, probe->step, dim * sizeof *probe->sum);
        status = add_modes(probe, NOISE, ret);
    }
    for (size_t i = 0; i < dim; i++) {
        probe->sum[i] = tally_rng_below(&signs, 2) == 0 ? -1 : 1;
    }
    return status == TALLY_OK ? add_modes(probe, EVEN, ret) : status;
}

/* ---- The whole. */

/* Chooses how many points are looked at of each client, and the clients' weights. */
static enum tally_status choose_points(struct probe *probe)
{
    const double most = fmax(COORDINATES / (double)probe->dim / probe->n_clients, 1);
    double sum = 0;
    for (uint32_t i = 0; i < probe->n_clients; i++) {
        uint32_t n = 0;
        struct tally_error ignored = TALLY_ERROR_INIT;
        const bool is_known =
            tally_objective_points(probe->objective, client_of(probe, i), &n, &ignored) == TALLY_OK;
        probe->points[i] = is_known && n > most ? (int64_t)most : 0;
        probe->weights[i] =
            probe->spec->objective.weighting == TALLY_WEIGHTING_POINTS && is_known ? n : 1;
        sum += probe->weights[i];
    }
    for (uint32_t i = 0; i < probe->n_clients; i++) {
        probe->weights[i] /= sum;
    }
    return TALLY_OK;
}

static enum tally_status measure(struct probe *probe, const double *x, struct tally_probe *ret)
{
    enum tally_status status = choose_points(probe);
    memcpy(probe->x, x, probe->dim * sizeof *x);
    if (status == TALLY_OK) {
        status = gradient_at(probe, x, probe->gradient);
    }
    if (status == TALLY_OK) {
        status = find_length(probe);
    }
    if (status == TALLY_OK) {
        status = find_minimum(probe);
    }
    for (size_t i = 0; i < probe->dim; i++) {
        probe->error[i] = x[i] - probe->x[i];
    }
    if (status == TALLY_OK && !(tally_vector_norm(probe->error, probe->dim) > 0)) {
        return no_curvature(probe);
    }
    if (status == TALLY_OK) {
        status = measure_noise(probe, ret);
    }
    return status == TALLY_OK ? measure_modes(probe, ret) : status;
}

enum tally_status tally_probe_measure(const struct tally_job_spec *spec,
                                      const struct tally_objective *objective, const double *x,
                                      const atomic_bool *stop, struct tally_probe *ret_probe,
                                      struct tally_error *err)
{
    const size_t dim = objective->dim;
    const size_t affordable = COORDINATES / 2 / dim;
    const size_t most = affordable < CLIENTS_LEAST  ? CLIENTS_LEAST
                        : affordable < CLIENTS_MOST ? affordable
                                                    : CLIENTS_MOST;
    const uint32_t n = objective->clients < most ? objective->clients : (uint32_t)most;
    double *vectors = calloc((TALLY_PROBE_ITERATIONS + 8) * dim, sizeof *vectors);
    double *weights = calloc(n, sizeof *weights);
    int64_t *points = calloc(n, sizeof *points);
    struct tally_probe result = {.n = 0};
    enum tally_status status = TALLY_NO_MEMORY;
    if (vectors != NULL && weights != NULL && points != NULL) {
        struct probe probe = {.spec = spec,
                              .objective = objective,
                              .stop = stop,
                              .key = tally_job_spec_setting(spec).key,
                              .dim = dim,
                              .n_clients = n,
                              .weights = weights,
                              .points = points,
                              .x = vectors,
                              .gradient = vectors + dim,
                              .at = vectors + 2 * dim,
                              .one = vectors + 3 * dim,
                              .other = vectors + 4 * dim,
                              .sum = vectors + 5 * dim,
                              .error = vectors + 6 * dim,
                              .step = vectors + 7 * dim,
                              .basis = vectors + 8 * dim,
                              .err = err};
        status = measure(&probe, x, &result);
    } else {
        status = tally_fail(err, status, NULL, "no memory to look at f");
    }
    free(vectors);
    free(weights);
    free(points);
    if (status == TALLY_OK) {
        *ret_probe = result;
    }
    return status;
}
