/* A client's measurement of the curvature of f in the opening round of CALM, for a job whose step
 * size is to be estimated.
 *
 *     g_1 .. g_n       gradients at x; n = 4, or 6 in a program or with fewer than 8 clients
 *     g'_i             the gradient of the same draws at x + dx; i = 1 and 2, only 1 if x is random
 *                      and there are 8 clients or more; i = 2, 3, 4 in a program
 *     dx = -l m / |m|  m: the mean of the gradients of the draws that are not repeated
 *     dx = l u / |u|   u = g'_i - g_i of the query before, if it serves (below)
 *     c_i = <g'_i - g_i, dx> / |dx|^2          r_i = |g'_i - g_i|^2 / <g'_i - g_i, dx>
 *                      (r_i = |g'_i - g_i| / |dx| if the product is not positive)
 *
 * The client reports the means c1 of the c_i along m, c2 of those along a u, and that of all r_i.
 * c1 = c2 if it has only one of them; all are 0 if it could measure none.
 *
 * Idea: with the same draws, the difference is H_i dx, where H_i is the Hessian of the sample, and
 * has no noise of the gradients. The draws are independent of dx, so for a quadratic c_i is an
 * unbiased estimate of the curvature of f along dx. (Along a mean that contains g_i itself, it
 * would be several times too large.) It scatters: if a sample is one point a of a linear model, H_i
 * is a multiple of a a', and c_i that of <a, dx>^2. But then r_i is the trace of H_i, whatever dx
 * is. In general r_i is between c_i and the largest eigenvalue of H_i, if H_i has no negative one.
 *
 * u = H_i dx is a step of the power method: it turns to the steepest directions, which a gradient
 * may hardly contain. It serves unless its squared cosine with dx, c_i / r_i, is below a third, as
 * for a sample of one point, because then it is mostly the sample's own; without noise always; in a
 * program never, because f need not be convex there.
 *
 * l is to change a gradient by SHARE. The scale of x is not known, so the first l is a guess, and
 * a query that changes the gradient by far too much or too little does not count, but corrects l
 * for the next one.
 *
 * The gradient of a user's program must repeat its draws, that is, it may use only the random
 * numbers of the query. Such a client repeats a query at x itself in place of i = 1, and makes more
 * queries near x, because its first l is often a bad guess: weights that are offsets from a start
 * have x = 0. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "services/algorithms/calm.h"

enum { MOST_DRAWS = CALM_OPENING_SAMPLES };

/* Changes of a gradient, relative to the gradients at x: as wanted; the least whose rounding does
 * not matter, in double and in a program, which may compute in float32; the most that is still
 * local; and the most by which a repeated query may differ. */
static const double SHARE = 0.01, LEAST_SHARE = 1e-11, LEAST_FLOAT_SHARE = 1e-5, MOST_SHARE = 0.5,
                    REPEATED_SHARE = 1e-3;
/* The first l as a share of the root of d, if x is 0. It is small because data may be large; a
 * program's must not be. */
static const double NEAR_SHARE = 1e-4;

struct probe {
    const struct tally_client_task *task;
    struct tally_scratch *scratch;
    int n_draws;  /* queries at x */
    int n_probes; /* queries after them */
    int n_queries;
    double *gradients; /* double[n_draws][dim] at x */
    double *points;    /* double[n_probes][dim]: where the other queries were made */
    struct tally_rng draws[MOST_DRAWS]; /* at the start of each query at x */
    double size;                        /* root mean square of the gradients' norms */
    double least;                       /* change that counts */
    double length;                      /* l */
    double *direction;                  /* double[dim]: of -dx, with any length */
    bool is_exact;                      /* all gradients at x are equal */
    bool has_turned;                    /* the direction is no longer m */
    double along, steep;                /* sums of the c_i along m, and of the others */
    double samples;                     /* sum of the r_i */
    int n_along, n_steep;
};

/* Makes query i, with its draws, at scratch->local. */
static enum tally_status query(struct probe *probe, int i, double *gradient,
                               struct tally_error *err)
{
    const struct tally_client_task *task = probe->task;
    const size_t dim = task->setting->dim;
    const double *w = probe->scratch->local;
    struct tally_rng rng = probe->draws[i];
    enum tally_status status = tally_objective_local_gradient(
        task->objective, task->client, w, task->setting->minibatch, &rng, gradient, err);
    probe->n_queries++;
    if (probe->n_queries < probe->n_draws) { /* the next query draws what follows */
        probe->draws[i + 1] = rng;
    } else if (probe->n_queries > probe->n_draws) {
        memcpy(probe->points + (size_t)(probe->n_queries - probe->n_draws - 1) * dim, w,
               dim * sizeof *w);
    }
    return status;
}

static enum tally_status query_at_x(struct probe *probe, struct tally_error *err)
{
    const struct tally_client_task *task = probe->task;
    const size_t dim = task->setting->dim;
    double squares = 0;
    tally_rng_init(&probe->draws[0], task->setting->key, task->client, task->round,
                   TALLY_RNG_SAMPLING);
    memcpy(probe->scratch->local, task->x, dim * sizeof *task->x);
    for (int i = 0; i < probe->n_draws; i++) {
        double *g = probe->gradients + (size_t)i * dim;
        enum tally_status status = query(probe, i, g, err);
        if (status != TALLY_OK) {
            return status;
        }
        for (size_t j = 0; j < dim; j++) {
            squares += g[j] * g[j];
        }
    }
    probe->size = sqrt(squares / probe->n_draws);
    return TALLY_OK;
}

/* Whether the draws i and k have the same points, as far as their gradients show. */
static bool is_same_draw(const struct probe *probe, int i, int k)
{
    const size_t dim = probe->task->setting->dim;
    const double *a = probe->gradients + (size_t)i * dim, *b = probe->gradients + (size_t)k * dim;
    return memcmp(a, b, dim * sizeof *a) == 0;
}

/* Whether draw k is one of those to be repeated, from query `first` on, or the same as one. */
static bool is_repeated(const struct probe *probe, int first, int k)
{
    bool is_one = false;
    for (int i = first; i < probe->n_probes; i++) {
        is_one = is_one || is_same_draw(probe, i, k);
    }
    return is_one;
}

/* Adds the gradients at x to the direction: all, or those of draws that are not repeated. Returns
 * whether there was one. */
static bool add_gradients(struct probe *probe, int first, bool all)
{
    const size_t dim = probe->task->setting->dim;
    bool any = false;
    for (int k = 0; k < probe->n_draws; k++) {
        const double *g = probe->gradients + (size_t)k * dim;
        if (all || !is_repeated(probe, first, k)) {
            any = true;
            for (size_t j = 0; j < dim; j++) {
                probe->direction[j] += g[j];
            }
        }
    }
    return any;
}

/* Sets the first direction, m. (Without noise all gradients are equal, and may be used.) */
static void begin_direction(struct probe *probe, int first)
{
    memset(probe->direction, 0, probe->task->setting->dim * sizeof *probe->direction);
    probe->is_exact = !add_gradients(probe, first, false);
    if (probe->is_exact) {
        (void)add_gradients(probe, first, true);
    }
}

/* After query i was repeated with the gradient `again`: the next direction, unless a query that is
 * still to be repeated has the same points. */
static void turn(struct probe *probe, int i, const double *again)
{
    const size_t dim = probe->task->setting->dim;
    const double *g = probe->gradients + (size_t)i * dim;
    if (probe->is_exact || !is_repeated(probe, i + 1, i)) {
        probe->has_turned = true;
        for (size_t j = 0; j < dim; j++) {
            probe->direction[j] = g[j] - again[j];
        }
    }
}

/* Sets scratch->local to x + dx. */
static void move(const struct probe *probe)
{
    const size_t dim = probe->task->setting->dim;
    const double *x = probe->task->x, *direction = probe->direction;
    double *w = probe->scratch->local, squares = 0;
    for (size_t j = 0; j < dim; j++) {
        squares += direction[j] * direction[j];
    }
    const double factor = squares > 0 ? probe->length / sqrt(squares) : 0;
    for (size_t j = 0; j < dim; j++) {
        w[j] = x[j] - factor * direction[j];
    }
    tally_domain_project(&probe->task->setting->domain, w, dim);
}

/* What a repeated query shows: c_i, r_i, and by how much the gradient changed. NaN at x. */
struct difference {
    double curvature, steepest, change;
};

/* Makes query i again, at scratch->local. */
static enum tally_status query_again(struct probe *probe, int i, struct difference *ret_difference,
                                     struct tally_error *err)
{
    const size_t dim = probe->task->setting->dim;
    const double *x = probe->task->x, *w = probe->scratch->local,
                 *g = probe->gradients + (size_t)i * dim, *again = probe->scratch->gradient;
    double product = 0, moved = 0, changed = 0;
    enum tally_status status = query(probe, i, probe->scratch->gradient, err);
    for (size_t j = 0; status == TALLY_OK && j < dim; j++) {
        const double dx = w[j] - x[j], dg = again[j] - g[j];
        product += dg * dx;
        moved += dx * dx;
        changed += dg * dg;
    }
    *ret_difference = (struct difference){
        .curvature = product / moved,
        .steepest = product > 0 ? changed / product : sqrt(changed / moved),
        .change = changed > 0 ? sqrt(changed) / probe->size : 0,
    };
    return status;
}

/* Makes query 0 again at x, where the gradient must be the same. */
static enum tally_status check_draws(struct probe *probe, struct tally_error *err)
{
    struct difference difference;
    enum tally_status status = query_again(probe, 0, &difference, err);
    if (status == TALLY_OK && !(difference.change <= REPEATED_SHARE)) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, "algorithm.step_size",
                          "the gradient of client %u does not repeat its draws: the same query "
                          "gave a vector that differs by %.2g of its length. Draw only from the "
                          "query's random numbers, or state step_size",
                          probe->task->client, difference.change);
    }
    probe->least = fmax(LEAST_FLOAT_SHARE, 10 * difference.change);
    return status;
}

/* Makes query i again at x + dx, and adapts l. A change that is too large may have been limited by
 * f, as by a logistic loss, so l shrinks more than a quadratic would need. One that is too small
 * may be chance, so l grows little: f far away may be huge, and the query counts in the regret. */
static enum tally_status measure(struct probe *probe, int i, struct tally_error *err)
{
    static const double NEARER = 1e-3, FARTHER = 30, MOST = 3, LEAST_SQUARE = 1.0 / 3;
    const struct tally_client_task *task = probe->task;
    const bool is_turned = probe->has_turned;
    struct difference seen;
    move(probe);
    enum tally_status status = query_again(probe, i, &seen, err);
    if (status != TALLY_OK) {
        return status;
    }
    if (isfinite(seen.change) && seen.change > probe->least && !task->objective->ops->is_program &&
        (probe->is_exact || seen.curvature > LEAST_SQUARE * seen.steepest)) {
        turn(probe, i, probe->scratch->gradient);
    }
    const double wanted = SHARE / seen.change; /* times as long */
    if (!isfinite(seen.change) || seen.change > MOST_SHARE) {
        probe->length *= isfinite(seen.change) ? fmin(NEARER, wanted) : NEARER;
    } else if (seen.change < probe->least) {
        probe->length *= FARTHER;
    } else if (isfinite(seen.curvature) && isfinite(seen.steepest)) {
        *(is_turned ? &probe->steep : &probe->along) += seen.curvature;
        *(is_turned ? &probe->n_steep : &probe->n_along) += 1;
        probe->samples += seen.steepest;
        probe->length *= fmax(1 / MOST, fmin(MOST, wanted));
    }
    return TALLY_OK;
}

static double first_length(const struct tally_client_task *task)
{
    const size_t dim = task->setting->dim;
    double squares = 0;
    for (size_t j = 0; j < dim; j++) {
        squares += task->x[j] * task->x[j];
    }
    if (squares > 0) {
        return SHARE * sqrt(squares);
    }
    return (task->objective->ops->is_program ? SHARE : NEAR_SHARE) * sqrt((double)dim);
}

static enum tally_status measure_all(struct probe *probe, struct tally_error *err)
{
    const struct tally_client_task *task = probe->task;
    enum tally_status status = query_at_x(probe, err);
    if (status != TALLY_OK) {
        return status;
    }
    probe->length = first_length(task);
    const bool is_program = task->objective->ops->is_program;
    if (is_program) {
        status = check_draws(probe, err);
    }
    if (status == TALLY_OK) {
        begin_direction(probe, is_program);
    }
    for (int i = is_program; status == TALLY_OK && i < probe->n_probes; i++) {
        status = measure(probe, i, err);
    }
    return status;
}

/* The mean of the gradients at x in scratch->wide.reals, and the sum of the coordinates'
 * variances. */
static double take_moments(const struct probe *probe)
{
    const size_t dim = probe->task->setting->dim;
    double *mean = probe->scratch->wide.reals, squares = 0;
    for (size_t j = 0; j < dim; j++) {
        double sum = 0, here = 0;
        for (int i = 0; i < probe->n_draws; i++) {
            sum += probe->gradients[(size_t)i * dim + j];
        }
        mean[j] = sum / probe->n_draws;
        for (int i = 0; i < probe->n_draws; i++) {
            const double away = probe->gradients[(size_t)i * dim + j] - mean[j];
            here += away * away;
        }
        squares += here;
    }
    return squares / (probe->n_draws - 1);
}

static struct calm_curvature take_curvature(const struct probe *probe)
{
    const int n_along = probe->n_along, n_steep = probe->n_steep;
    if (n_along + n_steep == 0) {
        return (struct calm_curvature){0};
    }
    return (struct calm_curvature){
        .along = n_along > 0 ? probe->along / n_along : probe->steep / n_steep,
        .steep = n_steep > 0 ? probe->steep / n_steep : probe->along / n_along,
        .sample = probe->samples / (n_along + n_steep)};
}

/* The mean of f over all queries. */
static enum tally_status take_loss(const struct probe *probe, double *ret_loss,
                                   struct tally_error *err)
{
    const struct tally_objective *objective = probe->task->objective;
    double at_x = 0, near[CALM_PROGRAM_PROBES], sum = 0;
    const int n = probe->n_probes, all = probe->n_draws + n;
    enum tally_status status = tally_objective_losses(objective, probe->task->x, 1, &at_x, err);
    if (status == TALLY_OK) {
        status = tally_objective_losses(objective, probe->points, (size_t)n, near, err);
    }
    for (int i = 0; status == TALLY_OK && i < n; i++) {
        sum += near[i] / all;
    }
    *ret_loss = at_x * ((double)probe->n_draws / all) + sum;
    if (status == TALLY_OK && !isfinite(*ret_loss)) {
        return tally_fail(err, TALLY_NOT_FINITE, NULL,
                          "the loss at the initial point, or near it, is %g", *ret_loss);
    }
    return status;
}

enum tally_status calm_measure(const struct tally_client_task *task, struct tally_scratch *scratch,
                               double *ret_variance, struct calm_curvature *ret_curvature,
                               double *ret_loss, struct tally_error *err)
{
    const size_t dim = task->setting->dim;
    const int64_t samples = task->plan->samples; /* as announced by a coordinator, of any release */
    if (samples != calm_opening_samples(task->setting)) {
        return tally_fail(err, TALLY_OUT_OF_RANGE, "samples",
                          "samples %lld of an opening round that has %lld", (long long)samples,
                          (long long)calm_opening_samples(task->setting));
    }
    const int n_draws = (int)calm_draws(task->setting, true), n = (int)samples - n_draws;
    struct probe probe = {
        .task = task, .scratch = scratch, .n_draws = n_draws, .n_probes = n, .least = LEAST_SHARE};
    probe.gradients = malloc((size_t)(samples + 1) * dim * sizeof *probe.gradients);
    if (probe.gradients == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %d vectors of dim %zu",
                          (int)samples + 1, dim);
    }
    probe.points = probe.gradients + (size_t)n_draws * dim;
    probe.direction = probe.points + (size_t)n * dim;
    enum tally_status status = measure_all(&probe, err);
    if (status == TALLY_OK) {
        *ret_variance = take_moments(&probe);
        *ret_curvature = take_curvature(&probe);
    }
    if (status == TALLY_OK && ret_loss != NULL) {
        status = take_loss(&probe, ret_loss, err);
    }
    free(probe.gradients);
    return status;
}
