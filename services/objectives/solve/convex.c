#include "services/objectives/solve/convex.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codec/numeric/vector.h"
#include "services/objectives/solve/cholesky.h"

static const double TOLERANCE = 1e-8; /* of |g|, relative to the scale */

enum { MAX_NEWTON_STEPS = 500, MAX_GRADIENT_STEPS = 200000 };

struct solver {
    const struct tally_convex *f;
    const atomic_bool *stop;
    double *hessian; /* double[dim][dim], or NULL */
    double *x, *gradient, *trial, *trial_gradient, *step;
    double *residual, *direction, *product; /* of the conjugate gradients */
    double value, norm;                     /* f and |g| at x */
    double damping;
};

static void swap(double **a, double **b)
{
    double *old = *a;
    *a = *b;
    *b = old;
}

static bool is_stopped(const struct solver *solver)
{
    return solver->stop != NULL && atomic_load(solver->stop);
}

static enum tally_status stopped(struct tally_error *err)
{
    return tally_fail(err, TALLY_CANCELLED, NULL, "stopped while solving for f(x*)");
}

/* D, with ones for coordinates that f does not depend on. */
static double diagonal_of(const struct tally_convex *f, size_t i)
{
    return f->diagonal[i] > 0 ? f->diagonal[i] : 1;
}

/* Newton's step. */

/* The lower triangle of D^(-1/2) H D^(-1/2), column by column. */
static void load_hessian(struct solver *solver)
{
    const struct tally_convex *f = solver->f;
    const size_t dim = f->dim;
    double *unit = solver->direction;
    memset(unit, 0, dim * sizeof *unit);
    for (size_t j = 0; j < dim; j++) {
        unit[j] = 1;
        f->hessian_times(f->context, unit, solver->product);
        unit[j] = 0;
        for (size_t i = j; i < dim; i++) {
            solver->hessian[i * dim + j] =
                solver->product[i] / sqrt(diagonal_of(f, i) * diagonal_of(f, j));
        }
    }
}

/* The least damping, for a Hessian that cannot be factorised without damping: it has no effect at a
 * gradient of 1e-8. With the largest damping, a step is too short to change x. */
static const double LEAST_DAMPING = 1e-10, MOST_DAMPING = 1e15;

static bool factor(struct solver *solver)
{
    const size_t dim = solver->f->dim;
    load_hessian(solver);
    for (size_t i = 0; i < dim; i++) {
        solver->hessian[i * dim + i] += solver->damping;
    }
    return tally_cholesky_factor(solver->hessian, dim);
}

static void step_by_factor(struct solver *solver)
{
    const struct tally_convex *f = solver->f;
    const size_t dim = f->dim;
    while (!factor(solver) && solver->damping < MOST_DAMPING) {
        solver->damping = fmax(10 * solver->damping, LEAST_DAMPING);
    }
    for (size_t i = 0; i < dim; i++) {
        solver->step[i] = -solver->gradient[i] / sqrt(diagonal_of(f, i));
    }
    tally_cholesky_solve(solver->hessian, dim, solver->step);
    for (size_t i = 0; i < dim; i++) {
        solver->step[i] /= sqrt(diagonal_of(f, i));
    }
}

/* Conjugate gradients start at zero, so every iterate is a descent direction. Far from the minimum
 * they stop early: a relative residual of sqrt(|g|) keeps the outer convergence superlinear. */
static void step_by_conjugate_gradients(struct solver *solver)
{
    const struct tally_convex *f = solver->f;
    const size_t dim = f->dim;
    const size_t most = dim < 500 ? 2 * dim : 1000;
    double *r = solver->residual, *p = solver->direction, *q = solver->product;
    double square = 0;
    for (size_t i = 0; i < dim; i++) {
        solver->step[i] = 0;
        r[i] = -solver->gradient[i];
        p[i] = r[i] / diagonal_of(f, i);
        square += r[i] * p[i];
    }
    const double factor = fmin(0.1, sqrt(solver->norm / f->scale));
    const double enough = factor * factor * square;
    for (size_t n = 0; n < most && square > enough && !is_stopped(solver); n++) {
        f->hessian_times(f->context, p, q);
        for (size_t i = 0; i < dim; i++) {
            q[i] += solver->damping * diagonal_of(f, i) * p[i];
        }
        const double curvature = tally_vector_dot(p, q, dim);
        if (!(curvature > 0)) { /* f is linear along p */
            if (n == 0) {
                memcpy(solver->step, p, dim * sizeof *p);
            }
            return;
        }
        const double length = square / curvature;
        double next = 0;
        for (size_t i = 0; i < dim; i++) {
            solver->step[i] += length * p[i];
            r[i] -= length * q[i];
            next += r[i] * r[i] / diagonal_of(f, i);
        }
        for (size_t i = 0; i < dim; i++) {
            p[i] = r[i] / diagonal_of(f, i) + next / square * p[i];
        }
        square = next;
    }
}

/* The decrease that the quadratic model predicts: -g.d - d.H d / 2, by the equation of the step. */
static double promise_of(const struct solver *solver, double slope)
{
    double damped = 0;
    for (size_t i = 0; i < solver->f->dim; i++) {
        damped += diagonal_of(solver->f, i) * solver->step[i] * solver->step[i];
    }
    return (slope + solver->damping * damped) / 2;
}

/* Whether Newton's step is short, relative to the point or in terms of f. On the way to an infimum
 * that is not attained, steps do not become shorter, although the gradient vanishes too. */
static bool is_at_rest(const struct solver *solver, double slope, double first_value)
{
    const size_t dim = solver->f->dim;
    return slope <= 1e-16 * fabs(first_value) ||
           tally_vector_norm(solver->step, dim) <= 1e-3 * tally_vector_norm(solver->x, dim);
}

/* The number of steps below the tolerance within which a minimum must come to rest: near it they
 * converge quadratically; on the way to infinity each shrinks the gradient by a factor of e. */
enum { MAX_RESTLESS_STEPS = 6 };

static enum tally_status not_reached(const struct solver *solver, int steps,
                                     struct tally_error *err)
{
    return tally_fail(err, TALLY_FAILED_PRECONDITION, "reference",
                      "the gradient is still %.3g after %d steps, not below %.3g; give the "
                      "objective a larger l2, or the reference as a value",
                      solver->norm, steps, TOLERANCE * solver->f->scale);
}

static enum tally_status no_minimum(const struct solver *solver, struct tally_error *err)
{
    return tally_fail(err, TALLY_FAILED_PRECONDITION, "reference",
                      "f(x) has no minimum: it still falls at |x| = %.3g; give the objective an l2 "
                      "above 0, the job a domain, or the reference as a value",
                      tally_vector_norm(solver->x, solver->f->dim));
}

/* Tries the step. If x stays unchanged, returns false; then evaluate() has last seen a point other
 * than x. */
static bool try_step(struct solver *solver, double promise)
{
    const struct tally_convex *f = solver->f;
    for (size_t i = 0; i < f->dim; i++) {
        solver->trial[i] = solver->x[i] + solver->step[i];
    }
    const double value = f->evaluate(f->context, solver->trial, solver->trial_gradient);
    const double norm = tally_vector_norm(solver->trial_gradient, f->dim);
    /* If rounding hides the difference of f, the gradient decides. */
    const bool is_hidden = promise < 1e-12 * fabs(solver->value);
    const double ratio = (solver->value - value) / promise;
    if (!isfinite(norm) || !(is_hidden ? norm < solver->norm : ratio > 1e-4)) {
        solver->damping = fmax(8 * solver->damping, 1e-3);
        return false;
    }
    if (is_hidden || ratio > 0.75) {
        solver->damping = solver->damping < 1e-8 ? 0 : solver->damping / 8;
    } else if (ratio < 0.25) {
        solver->damping = fmax(4 * solver->damping, 1e-3);
    }
    swap(&solver->x, &solver->trial);
    swap(&solver->gradient, &solver->trial_gradient);
    solver->value = value;
    solver->norm = norm;
    return true;
}

static enum tally_status newton(struct solver *solver, struct tally_error *err)
{
    const struct tally_convex *f = solver->f;
    const double bound = TOLERANCE * f->scale;
    memset(solver->x, 0, f->dim * sizeof *solver->x);
    solver->value = f->evaluate(f->context, solver->x, solver->gradient);
    solver->norm = tally_vector_norm(solver->gradient, f->dim);
    const double first_value = solver->value;
    int n_restless = 0;
    for (int n = 0; n < MAX_NEWTON_STEPS && isfinite(solver->norm); n++) {
        if (solver->norm <= 0) {
            return TALLY_OK;
        }
        if (solver->norm <= bound) {
            solver->damping = 0; /* for is_at_rest() the step must be Newton's own */
        }
        if (solver->hessian != NULL) {
            step_by_factor(solver);
        } else {
            step_by_conjugate_gradients(solver);
        }
        if (is_stopped(solver)) {
            return stopped(err);
        }
        const double slope = -tally_vector_dot(solver->gradient, solver->step, f->dim);
        if (solver->norm <= bound) {
            if (is_at_rest(solver, slope, first_value)) {
                return TALLY_OK;
            }
            if (n_restless++ == MAX_RESTLESS_STEPS) {
                return no_minimum(solver, err);
            }
        }
        if (!try_step(solver, promise_of(solver, slope))) {
            if (solver->damping > MOST_DAMPING) {
                return not_reached(solver, n, err); /* rounding hides the descent */
            }
            f->evaluate(f->context, solver->x, solver->gradient);
        }
    }
    return not_reached(solver, MAX_NEWTON_STEPS, err);
}

/* The accelerated projected gradient method, starting at x. `step` is the point before x, `trial`
 * the point y at which the gradient is computed, and `residual` the projected point. */
static enum tally_status accelerate(struct solver *solver, const struct tally_domain *domain,
                                    struct tally_error *err)
{
    const struct tally_convex *f = solver->f;
    const size_t dim = f->dim;
    const double smoothness = f->smoothness > 0 ? f->smoothness : 1; /* f is linear */
    double *next = solver->residual;
    double t = 1;
    tally_domain_project(domain, solver->x, dim);
    memcpy(solver->trial, solver->x, dim * sizeof *solver->x);
    for (int n = 0; n < MAX_GRADIENT_STEPS; n++) {
        if (is_stopped(solver)) {
            return stopped(err);
        }
        f->evaluate(f->context, solver->trial, solver->gradient);
        for (size_t i = 0; i < dim; i++) {
            next[i] = solver->trial[i] - solver->gradient[i] / smoothness;
        }
        tally_domain_project(domain, next, dim);
        double square = 0, uphill = 0;
        for (size_t i = 0; i < dim; i++) {
            const double mapping = solver->trial[i] - next[i];
            square += mapping * mapping;
            uphill += mapping * (next[i] - solver->x[i]);
        }
        solver->norm = smoothness * sqrt(square);
        const double t_next = (1 + sqrt(1 + 4 * t * t)) / 2;
        const double momentum = uphill > 0 ? 0 : (t - 1) / t_next;
        t = uphill > 0 ? 1 : t_next;
        for (size_t i = 0; i < dim; i++) {
            solver->trial[i] = next[i] + momentum * (next[i] - solver->x[i]);
            solver->x[i] = next[i];
        }
        if (solver->norm <= TOLERANCE * f->scale) {
            solver->value = f->evaluate(f->context, solver->x, solver->gradient);
            return TALLY_OK;
        }
        if (!isfinite(solver->norm)) {
            break;
        }
    }
    return not_reached(solver, MAX_GRADIENT_STEPS, err);
}

static enum tally_status minimise(struct solver *solver, const struct tally_domain *domain,
                                  struct tally_error *err)
{
    const bool is_bounded = tally_domain_is_bounded(domain);
    struct tally_error unbounded = TALLY_ERROR_INIT;
    if (solver->f->hessian_times == NULL) {
        return accelerate(solver, domain, err);
    }
    const enum tally_status status = newton(solver, is_bounded ? &unbounded : err);
    if (!is_bounded || status == TALLY_CANCELLED) {
        return is_bounded ? stopped(err) : status;
    }
    if (status == TALLY_OK && tally_domain_is_inside(domain, solver->x, solver->f->dim)) {
        return TALLY_OK;
    }
    if (status != TALLY_OK) {
        memset(solver->x, 0, solver->f->dim * sizeof *solver->x);
    }
    return accelerate(solver, domain, err);
}

enum tally_status tally_convex_minimise(const struct tally_convex *f,
                                        const struct tally_domain *domain, const atomic_bool *stop,
                                        double *x, double *ret_f, struct tally_error *err)
{
    const size_t dim = f->dim;
    enum { N_VECTORS = 8 };
    double *room = calloc(N_VECTORS * dim, sizeof *room);
    double *hessian = f->has_small_hessian ? malloc(dim * dim * sizeof *hessian) : NULL;
    enum tally_status status = TALLY_NO_MEMORY;
    if (room == NULL || (f->has_small_hessian && hessian == NULL)) {
        tally_fail(err, status, NULL, "no memory to solve dim %zu", dim);
    } else {
        struct solver solver = {.f = f,
                                .stop = stop,
                                .hessian = hessian,
                                .x = room,
                                .gradient = room + dim,
                                .trial = room + 2 * dim,
                                .trial_gradient = room + 3 * dim,
                                .step = room + 4 * dim,
                                .residual = room + 5 * dim,
                                .direction = room + 6 * dim,
                                .product = room + 7 * dim};
        status = minimise(&solver, domain, err);
        if (status == TALLY_OK) {
            memcpy(x, solver.x, dim * sizeof *x);
            *ret_f = solver.value;
        }
    }
    free(room);
    free(hessian);
    return status;
}

enum tally_status tally_convex_minimum(const struct tally_convex *f,
                                       const struct tally_domain *domain, const atomic_bool *stop,
                                       double *ret_f_star, double *ret_x_star,
                                       struct tally_error *err)
{
    double f_star = 0;
    double *x = malloc(f->dim * sizeof *x);
    enum tally_status status =
        x != NULL ? tally_convex_minimise(f, domain, stop, x, &f_star, err)
                  : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory to solve dim %zu", f->dim);
    if (status == TALLY_OK) {
        *ret_f_star = f_star;
        for (size_t i = 0; ret_x_star != NULL && i < f->dim; i++) {
            ret_x_star[i] = x[i];
        }
    }
    free(x);
    return status;
}
