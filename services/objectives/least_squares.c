/* least_squares: f(theta) = (1/N) sum_i (y_i - X_i . theta)^2   ([1] section V, linear regression).
 *
 *     gradient at point i   2 (X_i . theta - y_i) X_i
 *     minimum               normal equations, Cholesky; points weighted 1 / (M n_m) so that it is
 * the mean over clients also when shards differ in size
 *
 * The rows of a shard lie together in memory, in the order of the sharding permutation. */
#include <math.h>
#include <stdlib.h>

#include "services/objectives/objective.h"
#include "services/objectives/sharding.h"

/* Above it the d x d matrix of the normal equations takes over 128 MiB and minutes. */
enum { MAX_SOLVE_DIM = 4096 };

/* Up to it the quadratic form is made with the data: at most a few times the work of the data. */
enum { MAX_FORM_DIM = 256 };

struct least_squares {
    struct tally_objective base;
    uint32_t points;
    double *rows;      /* double[points][dim], shard by shard */
    double *responses; /* double[points] */
    /* f(x) = x^T A x - 2 b^T x + c, where that is cheaper than a pass over the points; else NULL.
     */
    double *a; /* double[dim][dim], lower triangle */
    double *b; /* double[dim] */
    double c;
};

static const struct least_squares *of(const struct tally_objective *objective)
{
    return (const struct least_squares *)objective;
}

static double dot(const double *a, const double *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

static void least_squares_free(struct tally_objective *objective)
{
    struct least_squares *self = (struct least_squares *)objective;
    free(self->rows);
    free(self->responses);
    free(self->a);
    free(self->b);
    free(self);
}

static double residual(const struct least_squares *self, uint32_t row, const double *x)
{
    size_t dim = self->base.dim;
    return dot(self->rows + row * dim, x, dim) - self->responses[row];
}

static double shard_loss(const struct least_squares *self, uint32_t client, const double *x)
{
    struct tally_shard shard = tally_shard_of(self->points, self->base.clients, client);
    double sum = 0;
    for (uint32_t i = 0; i < shard.size; i++) {
        double r = residual(self, shard.first + i, x);
        sum += r * r;
    }
    return sum / shard.size;
}

static enum tally_status least_squares_local_loss(const struct tally_objective *objective,
                                                  uint32_t client, const double *x,
                                                  double *ret_loss, struct tally_error *err)
{
    (void)err;
    *ret_loss = shard_loss(of(objective), client, x);
    return TALLY_OK;
}

static enum tally_status least_squares_local_gradient(const struct tally_objective *objective,
                                                      uint32_t client, const double *x, int64_t n,
                                                      struct tally_rng *rng, double *ret_gradient,
                                                      struct tally_error *err)
{
    (void)err;
    const struct least_squares *self = of(objective);
    struct tally_shard shard = tally_shard_of(self->points, objective->clients, client);
    size_t dim = objective->dim;
    for (size_t j = 0; j < dim; j++) {
        ret_gradient[j] = 0;
    }
    for (int64_t draw = 0; draw < n; draw++) {
        uint32_t row = shard.first + tally_rng_below(rng, shard.size);
        double factor = 2 * residual(self, row, x);
        const double *covariates = self->rows + row * dim;
        for (size_t j = 0; j < dim; j++) {
            ret_gradient[j] += factor * covariates[j];
        }
    }
    for (size_t j = 0; j < dim; j++) {
        ret_gradient[j] /= (double)n;
    }
    return TALLY_OK;
}

static double weight_of(const struct least_squares *self, struct tally_shard shard)
{
    return 1.0 / ((double)self->base.clients * shard.size);
}

/* Lower triangle of A = sum w_i X_i X_i^T and b = sum w_i y_i X_i. */
static void normal_equations(const struct least_squares *self, double *a, double *b)
{
    size_t dim = self->base.dim;
    uint32_t clients = self->base.clients;
    for (uint32_t m = 0; m < clients; m++) {
        struct tally_shard shard = tally_shard_of(self->points, clients, m);
        double weight = weight_of(self, shard);
        for (uint32_t i = shard.first; i < shard.first + shard.size; i++) {
            const double *row = self->rows + i * dim;
            for (size_t j = 0; j < dim; j++) {
                double scaled = weight * row[j];
                b[j] += scaled * self->responses[i];
                for (size_t k = 0; k <= j; k++) {
                    a[j * dim + k] += scaled * row[k];
                }
            }
        }
    }
}

static bool make_form(struct least_squares *self)
{
    size_t dim = self->base.dim;
    if (dim > MAX_FORM_DIM || dim >= self->points) {
        return true;
    }
    self->a = calloc(dim * dim, sizeof *self->a);
    self->b = calloc(dim, sizeof *self->b);
    if (self->a == NULL || self->b == NULL) {
        return false;
    }
    normal_equations(self, self->a, self->b);
    for (uint32_t m = 0; m < self->base.clients; m++) {
        struct tally_shard shard = tally_shard_of(self->points, self->base.clients, m);
        const double *y = self->responses + shard.first;
        self->c += weight_of(self, shard) * dot(y, y, shard.size);
    }
    return true;
}

static double form_at(const struct least_squares *self, const double *x)
{
    size_t dim = self->base.dim;
    double sum = self->c;
    for (size_t j = 0; j < dim; j++) {
        const double *row = self->a + j * dim;
        sum += x[j] * (2 * dot(row, x, j) + row[j] * x[j] - 2 * self->b[j]);
    }
    return sum;
}

static double mean_loss(const struct least_squares *self, const double *x)
{
    double sum = 0;
    for (uint32_t m = 0; m < self->base.clients; m++) {
        sum += shard_loss(self, m, x);
    }
    return sum / self->base.clients;
}

static enum tally_status least_squares_losses(const struct tally_objective *objective,
                                              const double *points, size_t n, double *ret_losses,
                                              struct tally_error *err)
{
    (void)err;
    const struct least_squares *self = of(objective);
    for (size_t i = 0; i < n; i++) {
        const double *x = points + i * objective->dim;
        ret_losses[i] = self->a != NULL ? form_at(self, x) : mean_loss(self, x);
    }
    return TALLY_OK;
}

/* A = L L^T in place of the lower triangle; false if A is not safely positive definite. */
static bool cholesky(double *a, size_t dim)
{
    for (size_t j = 0; j < dim; j++) {
        double diagonal = a[j * dim + j];
        double pivot = diagonal - dot(a + j * dim, a + j * dim, j);
        if (!(pivot > 1e-12 * diagonal)) { /* rank deficient up to rounding */
            return false;
        }
        pivot = sqrt(pivot);
        a[j * dim + j] = pivot;
        for (size_t i = j + 1; i < dim; i++) {
            a[i * dim + j] = (a[i * dim + j] - dot(a + i * dim, a + j * dim, j)) / pivot;
        }
    }
    return true;
}

/* Solves L L^T x = b in place of b. */
static void cholesky_solve(const double *l, size_t dim, double *b)
{
    for (size_t j = 0; j < dim; j++) {
        b[j] = (b[j] - dot(l + j * dim, b, j)) / l[j * dim + j];
    }
    for (size_t j = dim; j-- > 0;) {
        for (size_t i = j + 1; i < dim; i++) {
            b[j] -= l[i * dim + j] * b[i];
        }
        b[j] /= l[j * dim + j];
    }
}

static enum tally_status least_squares_minimum(const struct tally_objective *objective,
                                               const atomic_bool *stop, double *ret_f_star,
                                               double *ret_x_star, struct tally_error *err)
{
    size_t dim = objective->dim;
    (void)stop;
    if (dim > MAX_SOLVE_DIM) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, "reference",
                          "dim %zu is above %d, too large to solve; give the reference as a value",
                          dim, MAX_SOLVE_DIM);
    }
    enum tally_status status = TALLY_NO_MEMORY;
    double *a = calloc(dim * dim, sizeof *a);
    double *b = calloc(dim, sizeof *b);
    if (a == NULL || b == NULL) {
        tally_fail(err, status, NULL, "no memory for the normal equations of dim %zu", dim);
        goto out;
    }
    normal_equations(of(objective), a, b);
    if (!cholesky(a, dim)) {
        status = tally_fail(err, TALLY_FAILED_PRECONDITION, "reference",
                            "the data have no unique minimum: their rank is below dim %zu", dim);
        goto out;
    }
    cholesky_solve(a, dim, b);
    *ret_f_star = mean_loss(of(objective), b);
    for (size_t j = 0; ret_x_star != NULL && j < dim; j++) {
        ret_x_star[j] = b[j];
    }
    status = TALLY_OK;
out:
    free(a);
    free(b);
    return status;
}

static const struct tally_objective_ops LEAST_SQUARES_OPS = {
    .free = least_squares_free,
    .local_loss = least_squares_local_loss,
    .local_gradient = least_squares_local_gradient,
    .losses = least_squares_losses,
    .minimum = least_squares_minimum,
};

/* Point i of the data set has streams of its own, so that its position does not matter. */
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
    *response = dot(row, true_point, dim) + data->noise_std * noise;
}

enum tally_status tally_least_squares_new(const struct tally_data_spec *data, uint32_t clients,
                                          struct tally_rng_key key, struct tally_objective **ret,
                                          struct tally_error *err)
{
    const struct tally_synthetic_linear *synthetic = &data->synthetic_linear;
    size_t dim = (size_t)synthetic->dim;
    uint32_t points = (uint32_t)synthetic->points;
    enum tally_status status = TALLY_NO_MEMORY;
    struct least_squares *self = calloc(1, sizeof *self);
    uint32_t *order = malloc(points * sizeof *order);
    double *true_point = malloc(dim * sizeof *true_point);
    if (self == NULL || order == NULL || true_point == NULL) {
        goto out;
    }
    self->base = (struct tally_objective){&LEAST_SQUARES_OPS, dim, clients};
    self->points = points;
    self->rows = malloc(points * dim * sizeof *self->rows);
    self->responses = malloc(points * sizeof *self->responses);
    if (self->rows == NULL || self->responses == NULL) {
        goto out;
    }
    struct tally_rng rng;
    tally_rng_init(&rng, key, TALLY_RNG_SERVER, 0, TALLY_RNG_TRUE_POINT);
    tally_rng_direction(&rng, 1, true_point, dim);
    tally_shard_permutation(key, points, order);
    for (uint32_t i = 0; i < points; i++) {
        make_point(synthetic, key, order[i], true_point, self->rows + i * dim, &self->responses[i]);
    }
    if (!make_form(self)) {
        goto out;
    }
    *ret = &self->base;
    self = NULL;
    status = TALLY_OK;
out:
    if (status != TALLY_OK) {
        tally_fail(err, status, NULL, "no memory for %u points of dim %zu", points, dim);
    }
    free(order);
    free(true_point);
    if (self != NULL) {
        least_squares_free(&self->base);
    }
    return status;
}
