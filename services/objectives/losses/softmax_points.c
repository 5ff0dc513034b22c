/* softmax_points: softmax_regression.c for points of any layout, dense or sparse. W is
 * double[features][classes]; with `bias` it has one more row, for a feature that is 1. Points are
 * weighted 1 / (M n_m), or 1 / N with weighting `points`. The cost of a sparse point is its number
 * of nonzeros times the number of classes. */
#include <math.h>
#include <stdlib.h>

#include "codec/numeric/vector.h"
#include "codec/numeric/wide_sum.h"
#include "services/objectives/data/load_data.h"
#include "services/objectives/data/row.h"
#include "services/objectives/losses/softmax.h"
#include "services/objectives/solve/convex.h"
#include "services/objectives/solve/eigenvalues.h"

/* Up to this, H is made, with as many passes over the points as it has columns. */
enum { MAX_MATRIX_DIM = 512 };
static const double MAX_MATRIX_WORK = 1e9;

struct softmax_points {
    struct tally_objective base;
    size_t rows, classes; /* of W */
    bool has_bias;
    double l2;
    struct tally_dataset *data;
};

static const struct softmax_points *of(const struct tally_objective *objective)
{
    return (const struct softmax_points *)objective;
}

static void softmax_points_free(struct tally_objective *objective)
{
    struct softmax_points *self = (struct softmax_points *)objective;
    tally_dataset_free(self->data);
    free(self);
}

/* z_k <- X_i . W_k; `room` is scratch, double[features]. */
static void logits_of(const struct softmax_points *self, uint32_t point, const double *w,
                      double *room, double *z)
{
    const size_t classes = self->classes;
    const struct tally_row row = tally_row_of(self->data, point, room);
    for (size_t k = 0; k < classes; k++) {
        z[k] = self->has_bias ? w[(self->rows - 1) * classes + k] : 0;
    }
    for (size_t i = 0; i < row.n; i++) {
        const double *weights = w + tally_row_column(&row, i) * classes;
        for (size_t k = 0; k < classes; k++) {
            z[k] += row.values[i] * weights[k];
        }
    }
}

/* W_k += factors_k X_i */
static void add(const struct softmax_points *self, uint32_t point, const double *factors,
                double *room, double *w)
{
    const size_t classes = self->classes;
    const struct tally_row row = tally_row_of(self->data, point, room);
    for (size_t i = 0; i < row.n; i++) {
        double *weights = w + tally_row_column(&row, i) * classes;
        for (size_t k = 0; k < classes; k++) {
            weights[k] += row.values[i] * factors[k];
        }
    }
    for (size_t k = 0; self->has_bias && k < classes; k++) {
        w[(self->rows - 1) * classes + k] += factors[k];
    }
}

static size_t label_of(const struct softmax_points *self, uint32_t point)
{
    return (size_t)self->data->labels[point];
}

static double ridge(const struct softmax_points *self, const double *w)
{
    return self->l2 > 0 ? self->l2 * tally_vector_dot(w, w, self->base.dim) : 0;
}

/* Allocates space for a row and its logits, or returns NULL. */
static double *room_for(const struct softmax_points *self, struct tally_error *err)
{
    double *room = malloc((self->rows + self->classes) * sizeof *room);
    if (room == NULL) {
        tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a point of %zu features", self->rows);
    }
    return room;
}

/* Returns the shard's mean loss at W, with the ridge. Adds to *n_right, unless NULL, the number of
 * points that W classifies correctly. */
static double shard_loss(const struct softmax_points *self, struct tally_shard shard,
                         const double *w, double *room, uint32_t *n_right)
{
    double *z = room + self->rows;
    struct tally_wide_sum sum = {0};
    for (uint32_t i = shard.first; i < shard.first + shard.size; i++) {
        logits_of(self, i, w, room, z);
        if (n_right != NULL) {
            *n_right += tally_softmax_class(z, self->classes) == label_of(self, i);
        }
        tally_wide_sum_add(&sum, 1, tally_softmax_loss(z, self->classes, label_of(self, i), NULL));
    }
    return tally_wide_sum_mean(&sum, shard.size) + ridge(self, w);
}

/* Gets the points of a client, and scratch space that the caller frees. */
static enum tally_status open_shard(const struct softmax_points *self, uint32_t client,
                                    struct tally_shard *ret_shard, double **ret_room,
                                    struct tally_error *err)
{
    const enum tally_status status = tally_dataset_shard(self->data, client, ret_shard, err);
    if (status != TALLY_OK) {
        return status;
    }
    *ret_room = room_for(self, err);
    return *ret_room != NULL ? TALLY_OK : TALLY_NO_MEMORY;
}

static enum tally_status softmax_points_local_loss(const struct tally_objective *objective,
                                                   uint32_t client, const double *x,
                                                   double *ret_loss, struct tally_error *err)
{
    const struct softmax_points *self = of(objective);
    struct tally_shard shard;
    double *room = NULL;
    const enum tally_status status = open_shard(self, client, &shard, &room, err);
    if (status != TALLY_OK) {
        return status;
    }
    *ret_loss = shard_loss(self, shard, x, room, NULL);
    free(room);
    return TALLY_OK;
}

static enum tally_status softmax_points_points(const struct tally_objective *objective,
                                               uint32_t client, uint32_t *ret_n,
                                               struct tally_error *err)
{
    return tally_dataset_count(of(objective)->data, client, ret_n, err);
}

static enum tally_status softmax_points_evaluate(const struct tally_objective *objective,
                                                 uint32_t client, const double *x,
                                                 struct tally_evaluation *ret_evaluation,
                                                 struct tally_error *err)
{
    const struct softmax_points *self = of(objective);
    struct tally_shard shard;
    double *room = NULL;
    uint32_t n_right = 0;
    const enum tally_status status = open_shard(self, client, &shard, &room, err);
    if (status != TALLY_OK) {
        return status;
    }
    ret_evaluation->loss = shard_loss(self, shard, x, room, &n_right);
    ret_evaluation->accuracy = (double)n_right / shard.size;
    free(room);
    return TALLY_OK;
}

static enum tally_status softmax_points_local_gradient(const struct tally_objective *objective,
                                                       uint32_t client, const double *x, int64_t n,
                                                       struct tally_rng *rng, double *ret_gradient,
                                                       struct tally_error *err)
{
    const struct softmax_points *self = of(objective);
    struct tally_shard shard;
    double *room = NULL;
    const enum tally_status status = open_shard(self, client, &shard, &room, err);
    if (status != TALLY_OK) {
        return status;
    }
    double *z = room + self->rows;
    for (size_t i = 0; i < objective->dim; i++) {
        ret_gradient[i] = 0;
    }
    const int64_t queried = tally_shard_queried(shard, n);
    for (int64_t i = 0; i < queried; i++) {
        const uint32_t point = tally_shard_point(shard, n, i, rng);
        logits_of(self, point, x, room, z);
        tally_softmax_loss(z, self->classes, label_of(self, point), z);
        add(self, point, z, room, ret_gradient);
    }
    for (size_t i = 0; i < objective->dim; i++) {
        ret_gradient[i] = ret_gradient[i] / (double)queried + 2 * self->l2 * x[i];
    }
    free(room);
    return TALLY_OK;
}

/* f over all clients. */

static enum tally_status softmax_points_losses(const struct tally_objective *objective,
                                               const double *points, size_t n, double *ret_losses,
                                               struct tally_error *err)
{
    const struct softmax_points *self = of(objective);
    double *room = room_for(self, err);
    if (room == NULL) {
        return TALLY_NO_MEMORY;
    }
    for (size_t p = 0; p < n; p++) { /* of the local points */
        struct tally_wide_sum sum = {0};
        double n_shares = 0;
        for (uint32_t m = 0; m < tally_dataset_n_shards(self->data); m++) {
            const struct tally_shard shard = self->data->shards[m];
            if (shard.size > 0) {
                const double share = tally_dataset_share(self->data, shard);
                tally_wide_sum_add(
                    &sum, share, shard_loss(self, shard, points + p * objective->dim, room, NULL));
                n_shares += share;
            }
        }
        ret_losses[p] = tally_wide_sum_mean(&sum, n_shares);
    }
    free(room);
    return TALLY_OK;
}

/* The interface of the solver (convex.h). The product of the Hessian and V is, class by class,
 *
 *     sum_i w_i X_i p_ik (u_ik - sum_l p_il u_il) + 2 mu V_k,     u_ik = X_i . V_k
 */
struct problem {
    const struct softmax_points *self;
    double *weights;       /* double[points]: weight of a point in f */
    double *probabilities; /* double[points][classes] at the last W */
    double *diagonal;      /* double[dim]: (1/4) sum_i w_i X_ij^2 + 2 mu, since p (1 - p) <= 1/4 */
    double *room, *z;      /* double[rows], double[classes] */
    double trace;          /* of sum_i w_i X_i X_i^T */
};

static void problem_fini(struct problem *problem)
{
    free(problem->weights);
    free(problem->probabilities);
    free(problem->diagonal);
    free(problem->room);
    free(problem->z);
}

static void add_squares(struct problem *problem)
{
    const struct softmax_points *self = problem->self;
    const size_t classes = self->classes;
    for (uint32_t i = 0; i < self->data->points; i++) {
        const struct tally_row row = tally_row_of(self->data, i, problem->room);
        for (size_t j = 0; j < row.n; j++) {
            problem->diagonal[tally_row_column(&row, j) * classes] +=
                problem->weights[i] * row.values[j] * row.values[j];
        }
        if (self->has_bias) {
            problem->diagonal[(self->rows - 1) * classes] += problem->weights[i];
        }
    }
    for (size_t j = 0; j < self->rows; j++) {
        const double square = problem->diagonal[j * classes];
        problem->trace += square;
        for (size_t k = 0; k < classes; k++) {
            problem->diagonal[j * classes + k] = square / 4 + 2 * self->l2;
        }
    }
}

static enum tally_status problem_init(struct problem *problem, const struct softmax_points *self,
                                      struct tally_error *err)
{
    const size_t points = self->data->points;
    *problem = (struct problem){.self = self,
                                .weights = malloc(points * sizeof *problem->weights),
                                .probabilities =
                                    malloc(points * self->classes * sizeof *problem->probabilities),
                                .diagonal = calloc(self->base.dim, sizeof *problem->diagonal),
                                .room = malloc(self->rows * sizeof *problem->room),
                                .z = malloc(self->classes * sizeof *problem->z)};
    if (problem->weights == NULL || problem->probabilities == NULL || problem->diagonal == NULL ||
        problem->room == NULL || problem->z == NULL) {
        problem_fini(problem);
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory to solve dim %zu", self->base.dim);
    }
    tally_dataset_weights(self->data, problem->weights);
    add_squares(problem);
    return TALLY_OK;
}

static double evaluate(void *context, const double *x, double *ret_gradient)
{
    struct problem *problem = context;
    const struct softmax_points *self = problem->self;
    const size_t classes = self->classes;
    double sum = 0;
    for (size_t i = 0; i < self->base.dim; i++) {
        ret_gradient[i] = 2 * self->l2 * x[i];
    }
    for (uint32_t i = 0; i < self->data->points; i++) {
        double *p = problem->probabilities + i * classes;
        logits_of(self, i, x, problem->room, p);
        sum += problem->weights[i] * tally_softmax_loss(p, classes, label_of(self, i), p);
        for (size_t k = 0; k < classes; k++) {
            problem->z[k] = problem->weights[i] * p[k];
            p[k] = (double)(k == label_of(self, i)) - p[k];
        }
        add(self, i, problem->z, problem->room, ret_gradient);
    }
    return sum + ridge(self, x);
}

static void hessian_times(void *context, const double *v, double *ret_product)
{
    const struct problem *problem = context;
    const struct softmax_points *self = problem->self;
    const size_t classes = self->classes;
    for (size_t i = 0; i < self->base.dim; i++) {
        ret_product[i] = 2 * self->l2 * v[i];
    }
    for (uint32_t i = 0; i < self->data->points; i++) {
        const double *p = problem->probabilities + i * classes;
        double mean = 0;
        logits_of(self, i, v, problem->room, problem->z);
        for (size_t k = 0; k < classes; k++) {
            mean += p[k] * problem->z[k];
        }
        for (size_t k = 0; k < classes; k++) {
            problem->z[k] = problem->weights[i] * p[k] * (problem->z[k] - mean);
        }
        add(self, i, problem->z, problem->room, ret_product);
    }
}

/* sum_i w_i X_i X_i^T v, for the features of one class. */
static void covariance_times(void *context, const double *v, double *ret_product)
{
    const struct problem *problem = context;
    const struct softmax_points *self = problem->self;
    for (size_t j = 0; j < self->rows; j++) {
        ret_product[j] = 0;
    }
    for (uint32_t i = 0; i < self->data->points; i++) {
        const double bias = self->has_bias ? v[self->rows - 1] : 0;
        const double factor = problem->weights[i] * (tally_dataset_dot(self->data, i, v) + bias);
        tally_dataset_add(self->data, i, factor, ret_product);
        if (self->has_bias) {
            ret_product[self->rows - 1] += factor;
        }
    }
}

/* The Hessian of a softmax is at most 1/2 (Boehning 1992). */
static double smoothness_of(struct problem *problem, const atomic_bool *stop)
{
    return tally_eigenvalues_largest(problem->self->rows, problem->trace, covariance_times, problem,
                                     stop) /
               2 +
           2 * problem->self->l2;
}

static enum tally_status softmax_points_minimum(const struct tally_objective *objective,
                                                const struct tally_domain *domain,
                                                const atomic_bool *stop, double *ret_f_star,
                                                double *ret_x_star, struct tally_error *err)
{
    const struct softmax_points *self = of(objective);
    const size_t dim = objective->dim;
    const bool is_bounded = tally_domain_is_bounded(domain);
    struct problem problem;
    enum tally_status status = tally_dataset_check_whole(self->data, err);
    if (status == TALLY_OK) {
        status = problem_init(&problem, self, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    const double work = (double)dim * (double)dim * self->data->points;
    const struct tally_convex f = {
        .dim = dim,
        .diagonal = problem.diagonal,
        .smoothness = is_bounded ? smoothness_of(&problem, stop) : 0,
        .scale = problem.trace > 0 ? sqrt(problem.trace) : 1, /* of residuals below 1 */
        .has_small_hessian = dim <= MAX_MATRIX_DIM && work <= MAX_MATRIX_WORK,
        .context = &problem,
        .evaluate = evaluate,
        .hessian_times = hessian_times};
    status = tally_convex_minimum(&f, domain, stop, ret_f_star, ret_x_star, err);
    problem_fini(&problem);
    return status;
}

static enum tally_status softmax_points_curvature(const struct tally_objective *objective,
                                                  const atomic_bool *stop,
                                                  struct tally_curvature *ret_curvature,
                                                  struct tally_error *err)
{
    const struct softmax_points *self = of(objective);
    struct problem problem;
    enum tally_status status = tally_dataset_check_whole(self->data, err);
    if (status == TALLY_OK) {
        status = problem_init(&problem, self, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    const double smoothness = smoothness_of(&problem, stop);
    problem_fini(&problem);
    if (isnan(smoothness)) {
        return tally_fail(err, TALLY_CANCELLED, NULL, "stopped while looking at the curvature");
    }
    *ret_curvature =
        (struct tally_curvature){.smoothness = smoothness, .strong_convexity = 2 * self->l2};
    return TALLY_OK;
}

static const struct tally_objective_ops SOFTMAX_POINTS_OPS = {
    .free = softmax_points_free,
    .local_loss = softmax_points_local_loss,
    .local_gradient = softmax_points_local_gradient,
    .losses = softmax_points_losses,
    .minimum = softmax_points_minimum,
    .curvature = softmax_points_curvature,
    .points = softmax_points_points,
    .evaluate = softmax_points_evaluate,
};

enum tally_status tally_softmax_points_make(const struct tally_objective_kind *kind,
                                            const struct tally_objective_spec *spec,
                                            uint32_t clients, struct tally_rng_key key,
                                            const struct tally_data_source *source,
                                            struct tally_objective **ret, struct tally_error *err)
{
    struct softmax_points *self = calloc(1, sizeof *self);
    if (self == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for an objective");
    }
    enum tally_status status =
        tally_dataset_load(&spec->data, kind->labels, clients, key, source, &self->data, err);
    if (status != TALLY_OK) {
        free(self);
        return status;
    }
    if (spec->weighting == TALLY_WEIGHTING_POINTS) {
        tally_dataset_weigh_points(self->data);
    }
    self->classes = (size_t)tally_data_spec_classes(&spec->data);
    self->rows = (size_t)tally_data_spec_features(&spec->data) + spec->bias;
    self->has_bias = spec->bias;
    self->l2 = spec->l2;
    self->base = (struct tally_objective){
        .ops = &SOFTMAX_POINTS_OPS, .dim = self->rows * self->classes, .clients = clients};
    *ret = &self->base;
    return TALLY_OK;
}
