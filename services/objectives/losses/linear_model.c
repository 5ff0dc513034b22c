/* linear_model: objectives whose loss at a point depends only on X_i . x (linear_model.h).
 *
 *     f(x) = (1/N) sum_i phi(X_i . x, y_i) + l2 |x|^2
 *
 *     gradient at point i   phi'(z, y) X_i + 2 l2 x
 *     Hessian               (1/N) sum_i phi''(z, y) X_i X_i^T + 2 l2 I
 *
 * Points are weighted 1 / (M n_m), so that f is the mean over clients even if shards differ in
 * size, or 1 / N with weighting `points`. With `bias` every point has an additional feature with
 * the value 1; l2 applies to its coordinate too. The cost of a sparse point is its nonzeros.
 *
 * Least squares with few coordinates keeps its quadratic form x^T A x - 2 b^T x + c, so a value of
 * f costs dim^2 / 2 operations, independent of the number of points. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codec/numeric/vector.h"
#include "codec/numeric/wide_sum.h"
#include "services/objectives/data/load_data.h"
#include "services/objectives/data/row.h"
#include "services/objectives/losses/linear_model.h"
#include "services/objectives/solve/cholesky.h"
#include "services/objectives/solve/convex.h"
#include "services/objectives/solve/eigenvalues.h"

/* Above this, the d x d matrix of the normal equations takes over 128 MiB and minutes. */
enum { MAX_SOLVE_DIM = 4096 };

/* Up to this, the quadratic form is computed with the data, at most a few times their cost. */
enum { MAX_FORM_DIM = 256 };

/* Up to this, d x d matrices are made for factors and eigenvalues: a few seconds at most. */
enum { MAX_MATRIX_DIM = 1024 };
static const double MAX_MATRIX_WORK = 4e9;

struct linear_model {
    struct tally_objective base;
    const struct tally_scalar_loss *loss;
    double parameters[TALLY_LOSS_PARAMETERS], l2;
    bool has_bias, has_classes; /* labels are -1 and 1 */
    struct tally_dataset *data;
    /* For least squares: f(x) = x^T A x - 2 b^T x + c, if that is cheaper than a pass over the
     * points; otherwise NULL. */
    double *a; /* double[dim][dim], lower triangle */
    double *b; /* double[dim] */
    double c;
};

static const struct linear_model *of(const struct tally_objective *objective)
{
    return (const struct linear_model *)objective;
}

static void linear_model_free(struct tally_objective *objective)
{
    struct linear_model *self = (struct linear_model *)objective;
    tally_dataset_free(self->data);
    free(self->a);
    free(self->b);
    free(self);
}

/* X_i . x, including the bias. */
static double product(const struct linear_model *self, uint32_t point, const double *x)
{
    const double sum = tally_dataset_dot(self->data, point, x);
    return self->has_bias ? sum + x[self->data->features] : sum;
}

static void add(const struct linear_model *self, uint32_t point, double factor, double *x)
{
    tally_dataset_add(self->data, point, factor, x);
    if (self->has_bias) {
        x[self->data->features] += factor;
    }
}

static double ridge(const struct linear_model *self, const double *x)
{
    return self->l2 > 0 ? self->l2 * tally_vector_dot(x, x, self->base.dim) : 0;
}

/* Returns the shard's mean loss, without the ridge. Unless ret_right is NULL, *ret_right is the
 * number of points that are classified correctly: whose label and z have the same sign. */
static double shard_loss(const struct linear_model *self, struct tally_shard shard, const double *x,
                         uint32_t *ret_right)
{
    struct tally_wide_sum sum = {0};
    uint32_t n_right = 0;
    for (uint32_t i = shard.first; i < shard.first + shard.size; i++) {
        const double z = product(self, i, x), y = self->data->labels[i];
        tally_wide_sum_add(&sum, 1, self->loss->value(z, y, self->parameters));
        n_right += (z > 0) == (y > 0);
    }
    if (ret_right != NULL) {
        *ret_right = n_right;
    }
    return tally_wide_sum_mean(&sum, shard.size);
}

static enum tally_status linear_model_local_loss(const struct tally_objective *objective,
                                                 uint32_t client, const double *x, double *ret_loss,
                                                 struct tally_error *err)
{
    const struct linear_model *self = of(objective);
    struct tally_shard shard;
    enum tally_status status = tally_dataset_shard(self->data, client, &shard, err);
    if (status == TALLY_OK) {
        *ret_loss = shard_loss(self, shard, x, NULL) + ridge(self, x);
    }
    return status;
}

static enum tally_status linear_model_points(const struct tally_objective *objective,
                                             uint32_t client, uint32_t *ret_n,
                                             struct tally_error *err)
{
    return tally_dataset_count(of(objective)->data, client, ret_n, err);
}

static enum tally_status linear_model_evaluate(const struct tally_objective *objective,
                                               uint32_t client, const double *x,
                                               struct tally_evaluation *ret_evaluation,
                                               struct tally_error *err)
{
    const struct linear_model *self = of(objective);
    struct tally_shard shard;
    enum tally_status status = tally_dataset_shard(self->data, client, &shard, err);
    if (status == TALLY_OK) {
        uint32_t n_right;
        ret_evaluation->loss = shard_loss(self, shard, x, &n_right) + ridge(self, x);
        ret_evaluation->accuracy = self->has_classes ? (double)n_right / shard.size : (double)NAN;
    }
    return status;
}

static enum tally_status linear_model_local_gradient(const struct tally_objective *objective,
                                                     uint32_t client, const double *x, int64_t n,
                                                     struct tally_rng *rng, double *ret_gradient,
                                                     struct tally_error *err)
{
    const struct linear_model *self = of(objective);
    const size_t dim = objective->dim;
    struct tally_shard shard;
    enum tally_status status = tally_dataset_shard(self->data, client, &shard, err);
    if (status != TALLY_OK) {
        return status;
    }
    for (size_t j = 0; j < dim; j++) {
        ret_gradient[j] = 0;
    }
    const int64_t queried = tally_shard_queried(shard, n);
    for (int64_t i = 0; i < queried; i++) {
        const uint32_t point = tally_shard_point(shard, n, i, rng);
        const double slope =
            self->loss->slope(product(self, point, x), self->data->labels[point], self->parameters);
        add(self, point, slope, ret_gradient);
    }
    for (size_t j = 0; j < dim; j++) {
        ret_gradient[j] /= (double)queried;
    }
    for (size_t j = 0; self->l2 > 0 && j < dim; j++) {
        ret_gradient[j] += 2 * self->l2 * x[j];
    }
    return TALLY_OK;
}

/* f over all clients. */

/* f over the local points, which are all points wherever f is requested. */
static double mean_loss(const struct linear_model *self, const double *x)
{
    struct tally_wide_sum sum = {0};
    double n = 0;
    for (uint32_t m = 0; m < tally_dataset_n_shards(self->data); m++) {
        const struct tally_shard shard = self->data->shards[m];
        if (shard.size > 0) {
            const double share = tally_dataset_share(self->data, shard);
            tally_wide_sum_add(&sum, share, shard_loss(self, shard, x, NULL));
            n += share;
        }
    }
    return tally_wide_sum_mean(&sum, n) + ridge(self, x);
}

/* Lower triangle of A = sum w_i X_i X_i^T and, unless NULL, b = sum w_i y_i X_i. `row` is
 * double[dim]. False if stopped. */
static bool normal_equations(const struct linear_model *self, const atomic_bool *stop, double *row,
                             double *a, double *b)
{
    const size_t dim = self->base.dim;
    if (self->has_bias) {
        row[dim - 1] = 1;
    }
    for (uint32_t m = 0; m < self->base.clients; m++) {
        const struct tally_shard shard = self->data->shards[m];
        const double weight = tally_dataset_weight(self->data, shard);
        for (uint32_t i = shard.first; i < shard.first + shard.size; i++) {
            if (stop != NULL && atomic_load(stop)) {
                return false;
            }
            tally_dataset_row(self->data, i, row);
            for (size_t j = 0; j < dim; j++) {
                const double scaled = weight * row[j];
                if (scaled == 0) { /* as for most of a sparse row: changes no bit */
                    continue;
                }
                if (b != NULL) {
                    b[j] += scaled * self->data->labels[i];
                }
                for (size_t k = 0; k <= j; k++) {
                    a[j * dim + k] += scaled * row[k];
                }
            }
        }
    }
    return true;
}

static bool make_form(struct linear_model *self)
{
    const size_t dim = self->base.dim;
    if (!self->loss->is_square || !self->data->is_whole || dim > MAX_FORM_DIM ||
        dim >= self->data->points) {
        return true;
    }
    double *row = malloc(dim * sizeof *row);
    self->a = calloc(dim * dim, sizeof *self->a);
    self->b = calloc(dim, sizeof *self->b);
    if (row == NULL || self->a == NULL || self->b == NULL) {
        free(row);
        return false;
    }
    normal_equations(self, NULL, row, self->a, self->b);
    free(row);
    for (size_t j = 0; j < dim; j++) {
        self->a[j * dim + j] += self->l2;
    }
    for (uint32_t m = 0; m < self->base.clients; m++) {
        const struct tally_shard shard = self->data->shards[m];
        const double *y = self->data->labels + shard.first;
        self->c += tally_dataset_weight(self->data, shard) * tally_vector_dot(y, y, shard.size);
    }
    return true;
}

static double form_at(const struct linear_model *self, const double *x)
{
    const size_t dim = self->base.dim;
    double sum = self->c;
    for (size_t j = 0; j < dim; j++) {
        const double *row = self->a + j * dim;
        sum += x[j] * (2 * tally_vector_dot(row, x, j) + row[j] * x[j] - 2 * self->b[j]);
    }
    return sum;
}

static enum tally_status linear_model_losses(const struct tally_objective *objective,
                                             const double *points, size_t n, double *ret_losses,
                                             struct tally_error *err)
{
    const struct linear_model *self = of(objective);
    (void)err;
    for (size_t i = 0; i < n; i++) {
        const double *x = points + i * objective->dim;
        const double by_form = self->a != NULL ? form_at(self, x) : (double)NAN;
        ret_losses[i] = isfinite(by_form) ? by_form : mean_loss(self, x); /* its sums are wider */
    }
    return TALLY_OK;
}

/* The interface of the solver (convex.h). */

struct problem {
    const struct linear_model *self;
    double *weights;    /* double[points]: weight of a point in f */
    double *curvatures; /* double[points]: weight times phi'' at the last x */
    double *diagonal;   /* double[dim]: most_curvature sum_i w_i X_ij^2 + 2 l2 */
    double *room;       /* double[dim]: a row */
    double trace;       /* of sum_i w_i X_i X_i^T */
};

static void problem_fini(struct problem *problem)
{
    free(problem->weights);
    free(problem->curvatures);
    free(problem->diagonal);
    free(problem->room);
}

/* Makes the data of the solver, which the estimates of the Hessian use too. */
static enum tally_status problem_init(struct problem *problem, const struct linear_model *self,
                                      struct tally_error *err)
{
    const size_t dim = self->base.dim, points = self->data->points;
    *problem = (struct problem){.self = self,
                                .weights = malloc(points * sizeof *problem->weights),
                                .curvatures = calloc(points, sizeof *problem->curvatures),
                                .diagonal = calloc(dim, sizeof *problem->diagonal),
                                .room = calloc(dim, sizeof *problem->room)};
    if (problem->weights == NULL || problem->curvatures == NULL || problem->diagonal == NULL ||
        problem->room == NULL) {
        problem_fini(problem);
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory to solve dim %zu", dim);
    }
    tally_dataset_weights(self->data, problem->weights);
    for (uint32_t i = 0; i < points; i++) {
        const struct tally_row row = tally_row_of(self->data, i, problem->room);
        for (size_t k = 0; k < row.n; k++) {
            problem->diagonal[tally_row_column(&row, k)] +=
                problem->weights[i] * row.values[k] * row.values[k];
        }
        if (self->has_bias) {
            problem->diagonal[dim - 1] += problem->weights[i];
        }
    }
    for (size_t j = 0; j < dim; j++) {
        problem->trace += problem->diagonal[j];
        problem->diagonal[j] = self->loss->most_curvature * problem->diagonal[j] + 2 * self->l2;
    }
    return TALLY_OK;
}

static double evaluate(void *context, const double *x, double *ret_gradient)
{
    struct problem *problem = context;
    const struct linear_model *self = problem->self;
    const struct tally_scalar_loss *loss = self->loss;
    double sum = 0;
    for (size_t j = 0; j < self->base.dim; j++) {
        ret_gradient[j] = 2 * self->l2 * x[j];
    }
    for (uint32_t i = 0; i < self->data->points; i++) {
        const double z = product(self, i, x), y = self->data->labels[i];
        sum += problem->weights[i] * loss->value(z, y, self->parameters);
        add(self, i, problem->weights[i] * loss->slope(z, y, self->parameters), ret_gradient);
        problem->curvatures[i] = problem->weights[i] * loss->curvature(z, y, self->parameters);
    }
    return sum + ridge(self, x);
}

/* Adds sum_i factors_i X_i X_i^T v. */
static void add_products(const struct linear_model *self, const double *factors, const double *v,
                         double *ret_product)
{
    for (uint32_t i = 0; i < self->data->points; i++) {
        if (factors[i] > 0) {
            add(self, i, factors[i] * product(self, i, v), ret_product);
        }
    }
}

static void hessian_times(void *context, const double *v, double *ret_product)
{
    const struct problem *problem = context;
    for (size_t j = 0; j < problem->self->base.dim; j++) {
        ret_product[j] = 2 * problem->self->l2 * v[j];
    }
    add_products(problem->self, problem->curvatures, v, ret_product);
}

/* sum_i w_i X_i X_i^T v */
static void covariance_times(void *context, const double *v, double *ret_product)
{
    const struct problem *problem = context;
    for (size_t j = 0; j < problem->self->base.dim; j++) {
        ret_product[j] = 0;
    }
    add_products(problem->self, problem->weights, v, ret_product);
}

/* A bound on the gradient at 0, by Cauchy-Schwarz: the root mean squares of phi' and |X_i|. */
static double scale_of(const struct problem *problem)
{
    const struct linear_model *self = problem->self;
    double square = 0;
    for (uint32_t i = 0; i < self->data->points; i++) {
        const double slope = self->loss->slope(0, self->data->labels[i], self->parameters);
        square += problem->weights[i] * slope * slope;
    }
    const double scale = sqrt(square * problem->trace);
    return scale > 0 ? scale : 1;
}

static bool is_small(const struct linear_model *self)
{
    const double dim = (double)self->base.dim;
    return self->base.dim <= MAX_MATRIX_DIM && self->data->points * dim * dim <= MAX_MATRIX_WORK;
}

static double smoothness_of(struct problem *problem, const atomic_bool *stop)
{
    const struct linear_model *self = problem->self;
    const double largest =
        tally_eigenvalues_largest(self->base.dim, problem->trace, covariance_times, problem, stop);
    return self->loss->most_curvature * largest + 2 * self->l2;
}

static enum tally_status search(const struct linear_model *self, const struct tally_domain *domain,
                                const atomic_bool *stop, double *x, double *ret_f,
                                struct tally_error *err)
{
    struct problem problem;
    enum tally_status status = problem_init(&problem, self, err);
    if (status != TALLY_OK) {
        return status;
    }
    const bool is_bounded = tally_domain_is_bounded(domain);
    const struct tally_convex f = {.dim = self->base.dim,
                                   .diagonal = problem.diagonal,
                                   .smoothness = is_bounded ? smoothness_of(&problem, stop) : 0,
                                   .scale = scale_of(&problem),
                                   .has_small_hessian = is_small(self),
                                   .context = &problem,
                                   .evaluate = evaluate,
                                   .hessian_times = hessian_times};
    status = tally_convex_minimise(&f, domain, stop, x, ret_f, err);
    problem_fini(&problem);
    return status;
}

/* Least squares over R^d: x* from the normal equations, if they have full rank. */
static enum tally_status solve_normal_equations(const struct linear_model *self,
                                                const atomic_bool *stop, double *x,
                                                bool *ret_is_solved, struct tally_error *err)
{
    const size_t dim = self->base.dim;
    double *a = calloc(dim * dim, sizeof *a);
    double *row = calloc(dim, sizeof *row);
    enum tally_status status = TALLY_OK;
    for (size_t j = 0; j < dim; j++) {
        x[j] = 0;
    }
    if (a == NULL || row == NULL) {
        status = tally_fail(err, TALLY_NO_MEMORY, NULL,
                            "no memory for the normal equations of dim %zu", dim);
    } else if (!normal_equations(self, stop, row, a, x)) {
        status = tally_fail(err, TALLY_CANCELLED, NULL, "stopped while solving for f(x*)");
    } else {
        for (size_t j = 0; j < dim; j++) {
            a[j * dim + j] += self->l2;
        }
        *ret_is_solved = tally_cholesky_factor(a, dim);
        if (*ret_is_solved) {
            tally_cholesky_solve(a, dim, x);
        }
    }
    free(a);
    free(row);
    return status;
}

static enum tally_status linear_model_minimum(const struct tally_objective *objective,
                                              const struct tally_domain *domain,
                                              const atomic_bool *stop, double *ret_f_star,
                                              double *ret_x_star, struct tally_error *err)
{
    const struct linear_model *self = of(objective);
    const size_t dim = objective->dim;
    const bool is_bounded = tally_domain_is_bounded(domain);
    double f_star = 0;
    double *x = malloc(dim * sizeof *x);
    enum tally_status status = tally_dataset_check_whole(self->data, err);
    if (x == NULL && status == TALLY_OK) {
        status = tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory to solve dim %zu", dim);
    }
    bool is_solved = false;
    if (status == TALLY_OK && self->loss->is_square && !is_bounded && dim <= MAX_SOLVE_DIM) {
        status = solve_normal_equations(self, stop, x, &is_solved, err);
        f_star = is_solved ? mean_loss(self, x) : 0;
    }
    if (status == TALLY_OK && !is_solved) {
        status = search(self, domain, stop, x, &f_star, err);
    }
    if (status == TALLY_OK) {
        *ret_f_star = f_star;
        for (size_t j = 0; ret_x_star != NULL && j < dim; j++) {
            ret_x_star[j] = x[j];
        }
    }
    free(x);
    return status;
}

/* Computes both ends of the spectrum of sum_i w_i X_i X_i^T exactly. */
static enum tally_status exact_range(const struct linear_model *self, struct problem *problem,
                                     const atomic_bool *stop, double *ret_smallest,
                                     double *ret_largest, struct tally_error *err)
{
    const size_t dim = self->base.dim;
    double *a = calloc(dim * dim, sizeof *a);
    enum tally_status status = TALLY_OK;
    if (a != NULL && !normal_equations(self, stop, problem->room, a, NULL)) {
        status = tally_fail(err, TALLY_CANCELLED, NULL, "stopped while looking at the curvature");
    } else if (a == NULL || !tally_eigenvalues_range(a, dim, ret_smallest, ret_largest)) {
        status = tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a matrix of dim %zu", dim);
    }
    free(a);
    return status;
}

static enum tally_status linear_model_curvature(const struct tally_objective *objective,
                                                const atomic_bool *stop,
                                                struct tally_curvature *ret_curvature,
                                                struct tally_error *err)
{
    const struct linear_model *self = of(objective);
    struct problem problem;
    enum tally_status status = tally_dataset_check_whole(self->data, err);
    if (status == TALLY_OK) {
        status = problem_init(&problem, self, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    double smallest = 0, largest = 0;
    if (is_small(self)) {
        status = exact_range(self, &problem, stop, &smallest, &largest, err);
        const double rounding = 1e-14 * (double)objective->dim * largest;
        smallest = fmax(0, smallest - rounding);
        largest = self->loss->most_curvature * (largest + rounding) + 2 * self->l2;
    } else {
        largest = smoothness_of(&problem, stop);
        if (isnan(largest) && status == TALLY_OK) {
            status = tally_fail(err, TALLY_CANCELLED, NULL, "the curvature was not found");
        }
    }
    problem_fini(&problem);
    if (status == TALLY_OK) {
        *ret_curvature = (struct tally_curvature){
            .smoothness = largest,
            .strong_convexity = self->loss->least_curvature * smallest + 2 * self->l2};
    }
    return status;
}

static const struct tally_objective_ops LINEAR_MODEL_OPS = {
    .free = linear_model_free,
    .local_loss = linear_model_local_loss,
    .local_gradient = linear_model_local_gradient,
    .losses = linear_model_losses,
    .minimum = linear_model_minimum,
    .curvature = linear_model_curvature,
    .points = linear_model_points,
    .evaluate = linear_model_evaluate,
};

enum tally_status tally_linear_model_make(const struct tally_objective_kind *kind,
                                          const struct tally_objective_spec *spec, uint32_t clients,
                                          struct tally_rng_key key,
                                          const struct tally_data_source *source,
                                          struct tally_objective **ret, struct tally_error *err)
{
    struct linear_model *self = calloc(1, sizeof *self);
    if (self == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for an objective");
    }
    enum tally_status status =
        tally_dataset_load(&spec->data, kind->labels, clients, key, source, &self->data, err);
    self->base =
        (struct tally_objective){.ops = &LINEAR_MODEL_OPS,
                                 .dim = (size_t)tally_data_spec_features(&spec->data) + spec->bias,
                                 .clients = clients};
    self->loss = kind->loss;
    memcpy(self->parameters, spec->parameters, sizeof self->parameters);
    self->l2 = spec->l2;
    self->has_bias = spec->bias;
    self->has_classes = kind->labels == TALLY_LABELS_BINARY;
    if (status == TALLY_OK && spec->weighting == TALLY_WEIGHTING_POINTS) {
        tally_dataset_weigh_points(self->data);
    }
    if (status == TALLY_OK && !make_form(self)) {
        status = tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %u points of dim %zu",
                            self->data->points, self->base.dim);
    }
    if (status != TALLY_OK) {
        linear_model_free(&self->base);
        return status;
    }
    *ret = &self->base;
    return TALLY_OK;
}
