/* quadratic: f(x) = x^T A x / 2 - b^T x, with a symmetric A and b from files.
 *
 *     gradient   A x - b, plus noise of standard deviation noise_std / sqrt(n) per coordinate for
 *                n points, drawn from the sampling stream; no noise for n = 0
 *
 * All clients have the same f but different noise. A gradient costs dim^2 operations. */
#include <math.h>
#include <stdlib.h>

#include "codec/numeric/vector.h"
#include "services/objectives/data/load_data.h"
#include "services/objectives/losses/loss_kind.h"
#include "services/objectives/solve/convex.h"
#include "services/objectives/solve/eigenvalues.h"

/* Up to this, all eigenvalues and factors are computed: a second or two. */
enum { MAX_EXACT_DIM = 1024 };

enum { NOISE_STD }; /* index in the parameters */

struct quadratic {
    struct tally_objective base;
    double noise_std;
    double *a;        /* double[dim][dim] */
    double *b;        /* double[dim] */
    double *diagonal; /* double[dim], of A */
};

static const struct quadratic *of(const struct tally_objective *objective)
{
    return (const struct quadratic *)objective;
}

static void quadratic_free(struct tally_objective *objective)
{
    struct quadratic *self = (struct quadratic *)objective;
    free(self->a);
    free(self->b);
    free(self->diagonal);
    free(self);
}

static double row_product(const struct quadratic *self, size_t i, const double *x)
{
    return tally_vector_dot(self->a + i * self->base.dim, x, self->base.dim);
}

static double value_at(const struct quadratic *self, const double *x)
{
    double sum = 0;
    for (size_t i = 0; i < self->base.dim; i++) {
        sum += x[i] * (row_product(self, i, x) / 2 - self->b[i]);
    }
    return sum;
}

static enum tally_status quadratic_local_loss(const struct tally_objective *objective,
                                              uint32_t client, const double *x, double *ret_loss,
                                              struct tally_error *err)
{
    (void)client, (void)err;
    *ret_loss = value_at(of(objective), x);
    return TALLY_OK;
}

static enum tally_status quadratic_local_gradient(const struct tally_objective *objective,
                                                  uint32_t client, const double *x, int64_t n,
                                                  struct tally_rng *rng, double *ret_gradient,
                                                  struct tally_error *err)
{
    (void)client, (void)err;
    const struct quadratic *self = of(objective);
    const double deviation = n > 0 ? self->noise_std / sqrt((double)n) : 0;
    if (deviation > 0) {
        tally_rng_normal(rng, ret_gradient, objective->dim);
    }
    for (size_t i = 0; i < objective->dim; i++) {
        const double noise = deviation > 0 ? deviation * ret_gradient[i] : 0;
        ret_gradient[i] = row_product(self, i, x) - self->b[i] + noise;
    }
    return TALLY_OK;
}

static enum tally_status quadratic_losses(const struct tally_objective *objective,
                                          const double *points, size_t n, double *ret_losses,
                                          struct tally_error *err)
{
    (void)err;
    for (size_t p = 0; p < n; p++) {
        ret_losses[p] = value_at(of(objective), points + p * objective->dim);
    }
    return TALLY_OK;
}

/* Curvature and minimum. */

static void matrix_times(void *context, const double *v, double *ret_product)
{
    const struct quadratic *self = context;
    for (size_t i = 0; i < self->base.dim; i++) {
        ret_product[i] = row_product(self, i, v);
    }
}

static double evaluate(void *context, const double *x, double *ret_gradient)
{
    const struct quadratic *self = context;
    double sum = 0;
    for (size_t i = 0; i < self->base.dim; i++) {
        const double product = row_product(self, i, x);
        sum += x[i] * (product / 2 - self->b[i]);
        ret_gradient[i] = product - self->b[i];
    }
    return sum;
}

static enum tally_status quadratic_curvature(const struct tally_objective *objective,
                                             const atomic_bool *stop,
                                             struct tally_curvature *ret_curvature,
                                             struct tally_error *err)
{
    struct quadratic *self = (struct quadratic *)objective; /* is not written to */
    const size_t dim = objective->dim;
    if (dim > MAX_EXACT_DIM) {
        double trace = 0;
        for (size_t i = 0; i < dim; i++) {
            trace += self->diagonal[i];
        }
        const double largest = tally_eigenvalues_largest(dim, trace, matrix_times, self, stop);
        *ret_curvature = (struct tally_curvature){largest, NAN};
        return TALLY_OK;
    }
    double smallest, largest;
    double *a = malloc(dim * dim * sizeof *a);
    for (size_t i = 0; a != NULL && i < dim * dim; i++) {
        a[i] = self->a[i];
    }
    const bool ok = a != NULL && tally_eigenvalues_range(a, dim, &smallest, &largest);
    free(a);
    if (!ok) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a matrix of dim %zu", dim);
    }
    const double rounding = 1e-14 * (double)dim * fmax(largest, -smallest);
    *ret_curvature = (struct tally_curvature){
        .smoothness = fmax(largest, -smallest) + rounding,
        .strong_convexity = fabs(smallest) <= rounding ? 0 : smallest - rounding};
    return TALLY_OK;
}

static enum tally_status quadratic_minimum(const struct tally_objective *objective,
                                           const struct tally_domain *domain,
                                           const atomic_bool *stop, double *ret_f_star,
                                           double *ret_x_star, struct tally_error *err)
{
    struct quadratic *self = (struct quadratic *)objective; /* is not written to */
    const size_t dim = objective->dim;
    struct tally_curvature curvature;
    enum tally_status status = quadratic_curvature(objective, stop, &curvature, err);
    if (status == TALLY_OK && curvature.strong_convexity < 0) {
        status = tally_fail(err, TALLY_FAILED_PRECONDITION, "reference",
                            "the matrix has an eigenvalue of %.3g: f is not convex",
                            curvature.strong_convexity);
    }
    if (status != TALLY_OK) {
        return status;
    }
    const double scale = tally_vector_norm(self->b, dim);
    const struct tally_convex f = {.dim = dim,
                                   .diagonal = self->diagonal,
                                   .smoothness = curvature.smoothness,
                                   .scale = scale > 0 ? scale : 1,
                                   .has_small_hessian = dim <= MAX_EXACT_DIM,
                                   .context = self,
                                   .evaluate = evaluate,
                                   .hessian_times = matrix_times};
    return tally_convex_minimum(&f, domain, stop, ret_f_star, ret_x_star, err);
}

static const struct tally_objective_ops QUADRATIC_OPS = {
    .free = quadratic_free,
    .local_loss = quadratic_local_loss,
    .local_gradient = quadratic_local_gradient,
    .losses = quadratic_losses,
    .minimum = quadratic_minimum,
    .curvature = quadratic_curvature,
};

static enum tally_status check_symmetric(const struct quadratic *self, const char *name,
                                         struct tally_error *err)
{
    const size_t dim = self->base.dim;
    double largest = 0;
    for (size_t i = 0; i < dim * dim; i++) {
        largest = fmax(largest, fabs(self->a[i]));
    }
    for (size_t i = 0; i < dim; i++) {
        for (size_t j = 0; j < i; j++) {
            const double below = self->a[i * dim + j], above = self->a[j * dim + i];
            if (fabs(below - above) > 1e-12 * largest) { /* more than the rounding of a product */
                return tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data.matrix",
                                  "%s is not symmetric: [%zu][%zu] is %g, [%zu][%zu] is %g", name,
                                  i, j, below, j, i, above);
            }
        }
    }
    return TALLY_OK;
}

static enum tally_status quadratic_make(const struct tally_objective_kind *kind,
                                        const struct tally_objective_spec *spec, uint32_t clients,
                                        struct tally_rng_key key,
                                        const struct tally_data_source *source,
                                        struct tally_objective **ret, struct tally_error *err)
{
    (void)kind, (void)key;
    const struct tally_matrix_data *data = &spec->data.matrix;
    const size_t dim = (size_t)data->dim;
    struct quadratic *self = calloc(1, sizeof *self);
    if (self == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for an objective");
    }
    self->base = (struct tally_objective){.ops = &QUADRATIC_OPS, .dim = dim, .clients = clients};
    self->noise_std = spec->parameters[NOISE_STD];
    enum tally_status status = tally_matrix_load(source, data->matrix, dim, dim, &self->a, err);
    if (status == TALLY_OK) {
        status = tally_matrix_load(source, data->vector, dim, 0, &self->b, err);
    }
    if (status == TALLY_OK) {
        status = check_symmetric(self, data->matrix, err);
    }
    if (status == TALLY_OK) {
        self->diagonal = malloc(dim * sizeof *self->diagonal);
        status = self->diagonal != NULL
                     ? TALLY_OK
                     : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for dim %zu", dim);
    }
    if (status != TALLY_OK) {
        quadratic_free(&self->base);
        return status;
    }
    for (size_t i = 0; i < dim; i++) {
        self->diagonal[i] = self->a[i * dim + i];
    }
    *ret = &self->base;
    return TALLY_OK;
}

static const struct tally_field FIELDS[] = {
    TALLY_REAL("noise_std", TALLY_OBJECTIVE_MEMBER(parameters[NOISE_STD]), 0, 1e9,
               .unit = "gradient",
               .doc = "standard deviation of every coordinate of a gradient query"),
};

const struct tally_objective_kind TALLY_OBJECTIVE_QUADRATIC = {
    "quadratic",
    TALLY_ROWS(FIELDS),
    .data = 1 << TALLY_DATA_MATRIX,
    .labels = TALLY_LABELS_REAL,
    .make = quadratic_make,
};
