/* softmax_images: softmax_regression.c for the images of the experiment of [1].
 *
 *     gradient at point i, class k   X_i (1[k = Y_i] - p_ik) + 2 mu W_k,  p_ik ~ exp(-X_i . W_k)
 *
 * Pixels are stored as bytes (1/8 of the memory) and converted to doubles one block of rows at a
 * time. All products use cblas_dgemm on one thread, so results do not depend on the machine's load.
 * softmax_losses.h evaluates f along the clients' own iterates. */
#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "services/objectives/data/idx.h"
#include "services/objectives/data/sharding.h"
#include "services/objectives/losses/softmax.h"
#include "services/objectives/losses/softmax_losses.h"
#include "services/objectives/solve/convex.h"

enum {
    BLOCK = 256,           /* rows: 1.6 MB of doubles at 784 features, within the L2 cache */
    MAX_ITERATIONS = 20000 /* of the solver; MNIST needs about 200 */
};

struct softmax {
    struct tally_objective base;
    size_t features, classes;
    double l2;                /* mu */
    double value_of[256];     /* of a pixel: / 255, which is a slow division */
    struct tally_idx_set set; /* shard by shard */
    uint32_t n_parts;         /* f is the mean of the means over n_parts equal cuts of the set */
};

/* Space for one block of rows and the logits of n points. */
struct block {
    double *rows;   /* double[BLOCK][features] */
    double *logits; /* double[BLOCK][columns] */
    uint8_t labels[BLOCK];
    int n_rows;
};

static const struct softmax *of(const struct tally_objective *objective)
{
    return (const struct softmax *)objective;
}

static enum tally_status block_init(struct block *block, const struct softmax *self,
                                    struct tally_error *err)
{
    block->rows = malloc(BLOCK * self->features * sizeof *block->rows);
    block->logits = malloc(BLOCK * self->classes * sizeof *block->logits);
    return block->rows != NULL && block->logits != NULL
               ? TALLY_OK
               : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %d images of %zu pixels",
                            BLOCK, self->features);
}

static void block_fini(struct block *block)
{
    free(block->rows);
    free(block->logits);
}

static void block_put(struct block *block, const struct softmax *self, int at, size_t point)
{
    const uint8_t *pixels = self->set.pixels + point * self->features;
    double *row = block->rows + (size_t)at * self->features;
    for (size_t f = 0; f < self->features; f++) {
        row[f] = self->value_of[pixels[f]];
    }
    block->labels[at] = self->set.labels[point];
}

static void block_load(struct block *block, const struct softmax *self, size_t first, size_t end)
{
    block->n_rows = end - first < BLOCK ? (int)(end - first) : BLOCK;
    for (int i = 0; i < block->n_rows; i++) {
        block_put(block, self, i, first + (size_t)i);
    }
}

/* logits <- rows * weights, where weights is double[features][columns]. */
static void block_multiply(struct block *block, const struct softmax *self, const double *weights,
                           size_t columns)
{
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, block->n_rows, (int)columns,
                (int)self->features, 1.0, block->rows, (int)self->features, weights, (int)columns,
                0.0, block->logits, (int)columns);
}

static double ridge(const struct softmax *self, const double *x)
{
    return self->l2 * cblas_ddot((int)self->base.dim, x, 1, x, 1);
}

/* The number of points of a block that the logits classify correctly. */
static uint32_t n_right_in(const struct block *block, size_t classes)
{
    uint32_t n_right = 0;
    for (int i = 0; i < block->n_rows; i++) {
        n_right +=
            tally_softmax_class(block->logits + (size_t)i * classes, classes) == block->labels[i];
    }
    return n_right;
}

/* Adds the losses of points first .. end - 1. Also adds the sum of their gradients, and the number
 * of points that x classifies correctly, unless these are NULL. */
static void add_range(const struct softmax *self, struct block *block, const double *x,
                      size_t first, size_t end, double *sum, double *gradient, uint32_t *n_right)
{
    for (size_t at = first; at < end; at += BLOCK) {
        block_load(block, self, at, end);
        block_multiply(block, self, x, self->classes);
        if (n_right != NULL) {
            *n_right += n_right_in(block, self->classes);
        }
        for (int i = 0; i < block->n_rows; i++) {
            double *z = block->logits + (size_t)i * self->classes;
            *sum +=
                tally_softmax_loss(z, self->classes, block->labels[i], gradient != NULL ? z : NULL);
        }
        if (gradient != NULL) {
            cblas_dgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)self->features,
                        (int)self->classes, block->n_rows, 1.0, block->rows, (int)self->features,
                        block->logits, (int)self->classes, 1.0, gradient, (int)self->classes);
        }
    }
}

static struct tally_shard shard_of(const struct softmax *self, uint32_t client)
{
    return tally_shard_of(self->set.points, self->base.clients, client);
}

static enum tally_status softmax_local_loss(const struct tally_objective *objective,
                                            uint32_t client, const double *x, double *ret_loss,
                                            struct tally_error *err)
{
    const struct softmax *self = of(objective);
    const struct tally_shard shard = shard_of(self, client);
    struct block block;
    enum tally_status status = block_init(&block, self, err);
    if (status == TALLY_OK) {
        double sum = 0;
        add_range(self, &block, x, shard.first, shard.first + shard.size, &sum, NULL, NULL);
        *ret_loss = sum / shard.size + ridge(self, x);
    }
    block_fini(&block);
    return status;
}

static enum tally_status softmax_n_points(const struct tally_objective *objective, uint32_t client,
                                          uint32_t *ret_n, struct tally_error *err)
{
    (void)err;
    *ret_n = shard_of(of(objective), client).size;
    return TALLY_OK;
}

static enum tally_status softmax_evaluate(const struct tally_objective *objective, uint32_t client,
                                          const double *x, struct tally_evaluation *ret_evaluation,
                                          struct tally_error *err)
{
    const struct softmax *self = of(objective);
    const struct tally_shard shard = shard_of(self, client);
    struct block block;
    enum tally_status status = block_init(&block, self, err);
    if (status == TALLY_OK) {
        double sum = 0;
        uint32_t n_right = 0;
        add_range(self, &block, x, shard.first, shard.first + shard.size, &sum, NULL, &n_right);
        ret_evaluation->loss = sum / shard.size + ridge(self, x);
        ret_evaluation->accuracy = (double)n_right / shard.size;
    }
    block_fini(&block);
    return status;
}

static enum tally_status softmax_local_gradient(const struct tally_objective *objective,
                                                uint32_t client, const double *x, int64_t n,
                                                struct tally_rng *rng, double *ret_gradient,
                                                struct tally_error *err)
{
    const struct softmax *self = of(objective);
    const struct tally_shard shard = shard_of(self, client);
    const size_t dim = objective->dim;
    struct block block;
    enum tally_status status = block_init(&block, self, err);
    if (status != TALLY_OK) {
        block_fini(&block);
        return status;
    }
    for (size_t i = 0; i < dim; i++) {
        ret_gradient[i] = 0;
    }
    const int64_t queried = tally_shard_queried(shard, n);
    for (int64_t done = 0; done < queried; done += BLOCK) {
        block.n_rows = queried - done < BLOCK ? (int)(queried - done) : BLOCK;
        for (int i = 0; i < block.n_rows; i++) {
            block_put(&block, self, i, tally_shard_point(shard, n, done + i, rng));
        }
        block_multiply(&block, self, x, self->classes);
        for (int i = 0; i < block.n_rows; i++) {
            double *z = block.logits + (size_t)i * self->classes;
            tally_softmax_loss(z, self->classes, block.labels[i], z);
        }
        cblas_dgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)self->features,
                    (int)self->classes, block.n_rows, 1.0, block.rows, (int)self->features,
                    block.logits, (int)self->classes, 1.0, ret_gradient, (int)self->classes);
    }
    for (size_t i = 0; i < dim; i++) {
        ret_gradient[i] = ret_gradient[i] / (double)queried + 2 * self->l2 * x[i];
    }
    block_fini(&block);
    return TALLY_OK;
}

static enum tally_status softmax_losses(const struct tally_objective *objective,
                                        const double *points, size_t n, double *ret_losses,
                                        struct tally_error *err)
{
    const struct softmax *self = of(objective);
    if (!tally_softmax_losses(&self->set, self->classes, self->n_parts, points, n, ret_losses)) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the losses of %zu points", n);
    }
    for (size_t p = 0; p < n; p++) {
        ret_losses[p] += ridge(self, points + p * objective->dim);
    }
    return TALLY_OK;
}

/* The solver. f is 2 mu-strongly convex, and smooth with L = lambda_max(X^T X / N) / 2 + 2 mu,
 * because the Hessian of a softmax is at most 1/2. Nesterov's method with constant momentum
 * therefore converges like (1 - sqrt(2 mu / L))^t. A line search could stop short of 1e-8; this
 * method has none. */

struct solver {
    const struct softmax *self;
    struct block block;
    double *x, *y, *gradient; /* double[dim] */
};

/* f and its gradient at y, over all clients. */
static double full_gradient(struct solver *solver, const double *y)
{
    const struct softmax *self = solver->self;
    const size_t dim = self->base.dim;
    double *scaled = solver->gradient + dim; /* the other half of the buffer */
    double loss = 0;
    for (size_t i = 0; i < dim; i++) {
        solver->gradient[i] = 2 * self->l2 * y[i];
    }
    for (uint32_t m = 0; m < self->n_parts; m++) {
        const struct tally_shard shard = tally_shard_of(self->set.points, self->n_parts, m);
        const double weight = 1.0 / ((double)self->n_parts * shard.size);
        double sum = 0;
        for (size_t i = 0; i < dim; i++) {
            scaled[i] = 0;
        }
        add_range(self, &solver->block, y, shard.first, shard.first + shard.size, &sum, scaled,
                  NULL);
        loss += weight * sum;
        cblas_daxpy((int)dim, weight, scaled, 1, solver->gradient, 1);
    }
    return loss + ridge(self, y);
}

/* The largest eigenvalue of X^T X / N by power iteration; with the margin, an upper bound. */
static double largest_eigenvalue(struct solver *solver)
{
    const struct softmax *self = solver->self;
    const size_t features = self->features;
    double *v = solver->y, *next = solver->gradient;
    double eigenvalue = 0;
    for (size_t f = 0; f < features; f++) {
        v[f] = 1 / sqrt((double)features);
    }
    for (int iteration = 0; iteration < 30; iteration++) {
        for (size_t f = 0; f < features; f++) {
            next[f] = 0;
        }
        for (size_t at = 0; at < self->set.points; at += BLOCK) {
            block_load(&solver->block, self, at, self->set.points);
            cblas_dgemv(CblasRowMajor, CblasNoTrans, solver->block.n_rows, (int)features, 1.0,
                        solver->block.rows, (int)features, v, 1, 0.0, solver->block.logits, 1);
            cblas_dgemv(CblasRowMajor, CblasTrans, solver->block.n_rows, (int)features, 1.0,
                        solver->block.rows, (int)features, solver->block.logits, 1, 1.0, next, 1);
        }
        eigenvalue = cblas_dnrm2((int)features, next, 1);
        for (size_t f = 0; f < features; f++) {
            v[f] = eigenvalue > 0 ? next[f] / eigenvalue : 0;
        }
    }
    return 1.05 * eigenvalue / self->set.points;
}

static double smoothness_of(struct solver *solver)
{
    return largest_eigenvalue(solver) / 2 + 2 * solver->self->l2;
}

static enum tally_status nesterov(struct solver *solver, const atomic_bool *stop,
                                  struct tally_error *err)
{
    const struct softmax *self = solver->self;
    const size_t dim = self->base.dim;
    const double smoothness = smoothness_of(solver);
    const double root = sqrt(2 * self->l2 / smoothness);
    const double momentum = (1 - root) / (1 + root);
    double norm = INFINITY;
    for (size_t i = 0; i < dim; i++) {
        solver->x[i] = solver->y[i] = 0;
    }
    for (int iteration = 0; iteration < MAX_ITERATIONS; iteration++) {
        if (stop != NULL && atomic_load(stop)) {
            return tally_fail(err, TALLY_CANCELLED, NULL, "stopped while solving for f(x*)");
        }
        full_gradient(solver, solver->y);
        norm = cblas_dnrm2((int)dim, solver->gradient, 1);
        if (norm < 1e-8) {
            return TALLY_OK; /* y is the result */
        }
        for (size_t i = 0; i < dim; i++) {
            const double next = solver->y[i] - solver->gradient[i] / smoothness;
            solver->y[i] = next + momentum * (next - solver->x[i]);
            solver->x[i] = next;
        }
    }
    return tally_fail(err, TALLY_FAILED_PRECONDITION, "reference",
                      "the gradient is still %g after %d iterations; is l2 too small?", norm,
                      MAX_ITERATIONS);
}

/* In the form of convex.h. */
static double evaluate(void *context, const double *x, double *ret_gradient)
{
    struct solver *solver = context;
    const double value = full_gradient(solver, x);
    memcpy(ret_gradient, solver->gradient, solver->self->base.dim * sizeof *ret_gradient);
    return value;
}

/* Computes the minimum in a domain into solver->x. */
static enum tally_status search(struct solver *solver, const struct tally_domain *domain,
                                const atomic_bool *stop, double *ret_f, struct tally_error *err)
{
    const struct tally_convex f = {.dim = solver->self->base.dim,
                                   .smoothness = smoothness_of(solver),
                                   .scale = 1,
                                   .context = solver,
                                   .evaluate = evaluate};
    return tally_convex_minimise(&f, domain, stop, solver->x, ret_f, err);
}

static void solver_fini(struct solver *solver)
{
    block_fini(&solver->block);
    free(solver->x);
    free(solver->y);
    free(solver->gradient);
}

static enum tally_status solver_init(struct solver *solver, const struct softmax *self,
                                     struct tally_error *err)
{
    const size_t dim = self->base.dim;
    *solver = (struct solver){.self = self,
                              .x = malloc(dim * sizeof(double)),
                              .y = malloc(dim * sizeof(double)),
                              .gradient = malloc(2 * dim * sizeof(double))};
    enum tally_status status = block_init(&solver->block, self, err);
    if (solver->x == NULL || solver->y == NULL || solver->gradient == NULL) {
        status = tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory to solve dim %zu", dim);
    }
    if (status != TALLY_OK) {
        solver_fini(solver);
    }
    return status;
}

static enum tally_status softmax_minimum(const struct tally_objective *objective,
                                         const struct tally_domain *domain, const atomic_bool *stop,
                                         double *ret_f_star, double *ret_x_star,
                                         struct tally_error *err)
{
    const struct softmax *self = of(objective);
    const bool is_bounded = tally_domain_is_bounded(domain);
    if (self->l2 <= 0 && !is_bounded) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, "reference",
                          "l2 is 0: the minimum need not exist; give the reference as a value");
    }
    struct solver solver;
    double f_star = 0;
    enum tally_status status = solver_init(&solver, self, err);
    if (status != TALLY_OK) {
        return status;
    }
    status =
        is_bounded ? search(&solver, domain, stop, &f_star, err) : nesterov(&solver, stop, err);
    const double *x = is_bounded ? solver.x : solver.y;
    if (status == TALLY_OK) {
        *ret_f_star = is_bounded ? f_star : full_gradient(&solver, x);
        for (size_t i = 0; ret_x_star != NULL && i < objective->dim; i++) {
            ret_x_star[i] = x[i];
        }
    }
    solver_fini(&solver);
    return status;
}

static enum tally_status softmax_curvature(const struct tally_objective *objective,
                                           const atomic_bool *stop,
                                           struct tally_curvature *ret_curvature,
                                           struct tally_error *err)
{
    (void)stop; /* thirty passes over the images */
    struct solver solver;
    enum tally_status status = solver_init(&solver, of(objective), err);
    if (status == TALLY_OK) {
        *ret_curvature = (struct tally_curvature){.smoothness = smoothness_of(&solver),
                                                  .strong_convexity = 2 * of(objective)->l2};
        solver_fini(&solver);
    }
    return status;
}

static void softmax_free(struct tally_objective *objective)
{
    struct softmax *self = (struct softmax *)objective;
    tally_idx_fini(&self->set);
    free(self);
}

static const struct tally_objective_ops SOFTMAX_OPS = {
    .free = softmax_free,
    .local_loss = softmax_local_loss,
    .local_gradient = softmax_local_gradient,
    .losses = softmax_losses,
    .minimum = softmax_minimum,
    .curvature = softmax_curvature,
    .points = softmax_n_points,
    .evaluate = softmax_evaluate,
};

enum tally_status tally_softmax_images_make(const struct tally_objective_kind *kind,
                                            const struct tally_objective_spec *spec,
                                            uint32_t clients, struct tally_rng_key key,
                                            const struct tally_data_source *source,
                                            struct tally_objective **ret, struct tally_error *err)
{
    (void)kind;
    const struct tally_idx_data *data = &spec->data.idx;
    struct softmax *self = calloc(1, sizeof *self);
    if (self == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for an objective");
    }
    openblas_set_num_threads(1);
    enum tally_status status = tally_idx_load(data, (enum tally_sharding)spec->data.sharding,
                                              source, key, &self->set, err);
    if (status == TALLY_OK && self->set.points < clients) {
        status = tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data",
                            "%s has %u points, too few for %u clients", data->images,
                            self->set.points, clients);
        tally_idx_fini(&self->set);
    }
    if (status != TALLY_OK) {
        free(self);
        return status;
    }
    if (source->ret_digest != NULL) {
        *source->ret_digest = tally_idx_digest(&self->set);
    }
    self->features = (size_t)data->features;
    self->classes = (size_t)data->classes;
    self->l2 = spec->l2;
    /* The mean over all points is that of one cut. Equal shards stay cut: they change no bit. */
    self->n_parts =
        spec->weighting == TALLY_WEIGHTING_POINTS && self->set.points % clients != 0 ? 1 : clients;
    for (int pixel = 0; pixel < 256; pixel++) {
        self->value_of[pixel] = pixel / 255.0;
    }
    self->base = (struct tally_objective){
        .ops = &SOFTMAX_OPS, .dim = self->features * self->classes, .clients = clients};
    *ret = &self->base;
    return TALLY_OK;
}
