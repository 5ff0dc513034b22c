#include "services/algorithms/calm/calm_course.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "services/algorithms/calm/calm_leg.h"

enum { MAX = TALLY_CALM_COURSE_EPOCHS, UP = TALLY_CALM_UP, DOWN = TALLY_CALM_DOWN };

/* Relative step of the finite differences. */
#define NUDGE 1e-6

/* The variables that the logits of the descent represent. */
struct layout {
    double samples[MAX];
    double bits[TALLY_CALM_DIRECTIONS][MAX]; /* of a message, all of it */
};

struct at {
    double variance, estimate; /* V, Vz */
    double shift;              /* W; 0: no shifts */
};

static double spare_samples(const struct tally_calm_course *course)
{
    return (double)course->state.samples_left - (course->n + 1);
}

static int messages_in(const struct tally_calm_course *course, int pool)
{
    return ((course->pools.of[UP] == pool) + (course->pools.of[DOWN] == pool)) * course->n;
}

static double overhead(const struct tally_calm_course *course)
{
    return course->is_ideal ? 0 : TALLY_CALM_MESSAGE_BITS;
}

/* The shortest message. */
static double least_bits(const struct tally_calm_course *course)
{
    return overhead(course) + TALLY_CALM_LEAST_RATE * (double)course->constants->dim;
}

/* The bits of a pool beyond those of the shortest messages. */
static double spare_bits(const struct tally_calm_course *course, int pool)
{
    return course->pools.bits[pool] - least_bits(course) * messages_in(course, pool);
}

bool tally_calm_course_is_possible(const struct tally_calm_course *course)
{
    return spare_samples(course) > 0 && spare_bits(course, course->pools.of[UP]) > 0 &&
           spare_bits(course, course->pools.of[DOWN]) > 0;
}

int tally_calm_course_variables(const struct tally_calm_course *course)
{
    return 3 * course->n;
}

/* shares[i] = exp(x[i]) / sum over all i. */
static void shares_of(const double *x, int n, double *ret_shares)
{
    double most = x[0], sum = 0;
    for (int i = 1; i < n; i++) {
        most = fmax(most, x[i]);
    }
    for (int i = 0; i < n; i++) {
        ret_shares[i] = exp(x[i] - most);
        sum += ret_shares[i];
    }
    for (int i = 0; i < n; i++) {
        ret_shares[i] /= sum;
    }
}

/* Turns the gradient by shares into that by logits, in place: s_k (g_k - sum_j s_j g_j) * total. */
static void through_shares(const double *shares, int n, double total, double *gradient)
{
    double mean = 0;
    for (int i = 0; i < n; i++) {
        mean += shares[i] * gradient[i];
    }
    for (int i = 0; i < n; i++) {
        gradient[i] = shares[i] * (gradient[i] - mean) * total;
    }
}

/* Gathers the logits of a pool, in the order up, down, and returns their number. */
static int gather(const struct tally_calm_course *course, int pool, const double *x, double *ret)
{
    int n = 0;
    for (int direction = UP; direction <= DOWN; direction++) {
        for (int k = 0; k < course->n && course->pools.of[direction] == pool; k++) {
            ret[n++] = x[course->n * (1 + direction) + k];
        }
    }
    return n;
}

/* The inverse of gather(). */
static void scatter(const struct tally_calm_course *course, int pool, const double *values,
                    double *ret_x)
{
    int n = 0;
    for (int direction = UP; direction <= DOWN; direction++) {
        for (int k = 0; k < course->n && course->pools.of[direction] == pool; k++) {
            ret_x[course->n * (1 + direction) + k] = values[n++];
        }
    }
}

void tally_calm_course_samples(const struct tally_calm_course *course, const double *x,
                               double *ret_samples)
{
    double logits[MAX + 1] = {0}, shares[MAX + 1];
    memcpy(logits, x, (size_t)course->n * sizeof *x);
    shares_of(logits, course->n + 1, shares);
    for (int k = 0; k < course->n; k++) {
        ret_samples[k] =
            course->is_settled ? (double)course->samples[k] : 1 + spare_samples(course) * shares[k];
    }
}

static struct layout layout_of(const struct tally_calm_course *course, const double *x)
{
    struct layout layout;
    double all[3 * MAX] = {0}, logits[2 * MAX], shares[2 * MAX];
    tally_calm_course_samples(course, x, layout.samples);
    for (int pool = 0; pool < TALLY_CALM_DIRECTIONS; pool++) {
        const int n = gather(course, pool, x, logits);
        if (n > 0) {
            shares_of(logits, n, shares);
            scatter(course, pool, shares, all);
        }
    }
    for (int direction = UP; direction <= DOWN; direction++) {
        const double spare = spare_bits(course, course->pools.of[direction]);
        for (int k = 0; k < course->n; k++) {
            layout.bits[direction][k] =
                least_bits(course) + spare * all[course->n * (1 + direction) + k];
        }
    }
    return layout;
}

/* Turns the gradient by (samples, bits up, bits down) into that by x, in place. */
static void through_layout(const struct tally_calm_course *course, const double *x,
                           double *gradient)
{
    double logits[2 * MAX + 1] = {0}, shares[2 * MAX + 1], values[2 * MAX + 1] = {0};
    memcpy(logits, x, (size_t)course->n * sizeof *x);
    memcpy(values, gradient, (size_t)course->n * sizeof *x);
    shares_of(logits, course->n + 1, shares);
    through_shares(shares, course->n + 1, course->is_settled ? 0 : spare_samples(course), values);
    memcpy(gradient, values, (size_t)course->n * sizeof *x);
    for (int pool = 0; pool < TALLY_CALM_DIRECTIONS; pool++) {
        const int n = gather(course, pool, x, logits);
        if (n > 0) {
            gather(course, pool, gradient, values);
            shares_of(logits, n, shares);
            through_shares(shares, n, spare_bits(course, pool), values);
            scatter(course, pool, values, gradient);
        }
    }
}

/* The grid step of a message of `bits` bits whose coordinates have the variance scale^2, of which
 * `noise` is not common to all clients. */
static double step_of(const struct tally_calm_course *course, double bits, double scale,
                      double noise)
{
    const double rate = (bits - overhead(course)) / (double)course->constants->dim;
    const size_t dim = course->constants->dim;
    const double finest = tally_calm_step(dim, TALLY_CALM_FINEST * sqrt(noise));
    const double step = course->is_ideal
                            ? tally_calm_step(dim, sqrt(12 * noise / (exp2(2 * rate) - 1)))
                            : scale * tally_calm_step_ratio(rate);
    return fmax(step, finest);
}

/* V, Vz and W after message and broadcast. The ideal uplink rate is that of the message's own
 * noise, because a joint decoder needs the common part of all messages only once. */
static struct at exchange(const struct tally_calm_course *course, struct at at,
                          const struct tally_calm_leg *leg, double bits_up, double bits_down)
{
    const size_t dim = course->constants->dim;
    const double spread = course->constants->client_spread;
    const double scale =
        sqrt(at.shift > 0 ? leg->noise + at.shift : leg->noise + spread + at.variance);
    const double up = step_of(course, bits_up, scale, leg->noise);
    const double noise = leg->noise + tally_calm_rounding(dim, up);
    const double vnew = noise / course->constants->clients + leg->bias;
    const double estimate = at.estimate * vnew / (at.estimate + vnew);
    const struct tally_calm_grid grid =
        tally_calm_downlink_grid(dim, at.variance, estimate, TALLY_CALM_FINEST);
    const double down = step_of(course, bits_down, grid.scale,
                                course->is_ideal ? grid.scale * grid.scale : estimate);
    const double after = tally_calm_broadcast_variance(dim, estimate, fmax(down, grid.step));
    const double moved = tally_calm_moved(at.variance, estimate, after);
    const double shift = at.shift > 0 ? at.shift * noise / (at.shift + noise) +
                                            course->constants->curvature_spread * moved
                                      : 0;
    return (struct at){after, estimate, shift};
}

/* The walk of epoch k. Only the first one includes queries that were made before. */
static struct tally_calm_leg leg_of(const struct tally_calm_course *course, int k, double variance,
                                    double n)
{
    struct tally_calm_constants own = *course->constants;
    own.repeats = k == 0 ? own.repeats : 0;
    return tally_calm_leg(&own, variance, n);
}

/* The regret that a unit of V, Vz or W at the end of an epoch costs. */
struct price {
    double variance, estimate, shift;
};

/* Prepends epoch k to those whose price is `after`. Returns the price at its start and writes the
 * gradient by its queries and bits. */
static struct price precede(const struct tally_calm_course *course, int k, struct at at,
                            const double *values, struct price after, double *ret_gradient)
{
    enum { INPUTS = 6, OWN = 3 };
    double own[OWN] = {values[0], values[1], values[2]}, slopes[INPUTS] = {0};
    double *const inputs[INPUTS] = {&at.variance, &at.estimate, &at.shift,
                                    &own[0],      &own[1],      &own[2]};
    const struct tally_calm_leg leg = leg_of(course, k, at.variance, own[0]);
    const struct at base = exchange(course, at, &leg, own[1], own[2]);
    for (int i = 0; i < INPUTS; i++) {
        const double kept = *inputs[i], nudge = kept * NUDGE;
        if (nudge == 0) { /* no shifts */
            continue;
        }
        *inputs[i] = kept + nudge;
        const struct tally_calm_leg moved = inputs[i] == &at.variance || inputs[i] == &own[0]
                                                ? leg_of(course, k, at.variance, own[0])
                                                : leg;
        const struct at end = exchange(course, at, &moved, own[1], own[2]);
        *inputs[i] = kept;
        slopes[i] = (moved.regret - leg.regret + after.variance * (end.variance - base.variance) +
                     after.estimate * (end.estimate - base.estimate) +
                     after.shift * (end.shift - base.shift)) /
                    nudge;
    }
    memcpy(ret_gradient, slopes + INPUTS - OWN, sizeof own);
    return (struct price){slopes[0], slopes[1], slopes[2]};
}

static void gradient_of(const struct tally_calm_course *course, const struct layout *layout,
                        const struct at *at, double left, double regret, double *ret_gradient)
{
    const int n = course->n;
    const double tail = leg_of(course, n, at[n].variance, left).regret;
    const double by_left =
        (leg_of(course, n, at[n].variance, left * (1 + NUDGE)).regret - tail) / (left * NUDGE);
    struct price price = {(leg_of(course, n, at[n].variance * (1 + NUDGE), left).regret - tail) /
                              (at[n].variance * NUDGE),
                          0, 0};
    for (int k = n - 1; k >= 0; k--) {
        double slopes[3];
        const double values[3] = {layout->samples[k], layout->bits[UP][k], layout->bits[DOWN][k]};
        price = precede(course, k, at[k], values, price, slopes);
        ret_gradient[k] = (slopes[0] - by_left) / regret;
        ret_gradient[n + k] = slopes[1] / regret;
        ret_gradient[2 * n + k] = slopes[2] / regret;
    }
}

double tally_calm_course_value(const void *context, const double *x, double *ret_gradient)
{
    const struct tally_calm_course *course = context;
    const struct layout layout = layout_of(course, x);
    struct at at[MAX + 1] = {
        {course->state.variance, course->state.estimate_variance, course->constants->shift_error}};
    double left = (double)course->state.samples_left, regret = 0;
    for (int k = 0; k < course->n; k++) {
        const struct tally_calm_leg leg = leg_of(course, k, at[k].variance, layout.samples[k]);
        regret += leg.regret;
        left -= layout.samples[k];
        at[k + 1] = exchange(course, at[k], &leg, layout.bits[UP][k], layout.bits[DOWN][k]);
    }
    if (!(left >= 1)) {
        return INFINITY;
    }
    regret += leg_of(course, course->n, at[course->n].variance, left).regret;
    if (ret_gradient != NULL) {
        gradient_of(course, &layout, at, left, regret, ret_gradient);
        through_layout(course, x, ret_gradient);
    }
    return isfinite(regret) ? log(regret) : INFINITY;
}

/* Like exchange(), but with the actual walk of the clients and with resolutions in place of bits.
 */
static struct tally_calm_epoch settle_epoch(const struct tally_calm_course *course,
                                            const struct layout *layout, int k, struct at *at)
{
    struct tally_calm_constants own = *course->constants;
    const struct tally_calm_constants *constants = &own;
    struct tally_calm_epoch epoch = {.samples = course->samples[k]};
    struct tally_calm_walk walk;
    own.shift_error = at->shift;
    own.repeats = k == 0 ? own.repeats : 0;
    tally_calm_walk_ahead(&walk, constants, at->variance, epoch.samples);
    const double noise = tally_calm_walk_message_noise(&walk);
    struct tally_calm_grid grid = tally_calm_uplink_grid(&walk, TALLY_CALM_FINEST);
    grid.step = step_of(course, layout->bits[UP][k], grid.scale, noise);
    epoch.uplink_resolution = grid.step / tally_calm_step(own.dim, sqrt(noise));
    at->estimate =
        tally_calm_merge(constants, &walk, grid.step, constants->clients, at->estimate).variance;
    const double before = at->variance, step = grid.step;
    grid = tally_calm_downlink_grid(own.dim, at->variance, at->estimate, TALLY_CALM_FINEST);
    grid.step = fmax(grid.step, step_of(course, layout->bits[DOWN][k], grid.scale, at->estimate));
    epoch.downlink_resolution = grid.step / tally_calm_step(own.dim, sqrt(at->estimate));
    at->variance = tally_calm_broadcast_variance(own.dim, at->estimate, grid.step);
    at->shift = tally_calm_shift_error(constants, &walk, step, constants->clients,
                                       tally_calm_moved(before, at->estimate, at->variance));
    return epoch;
}

void tally_calm_course_schedule(const struct tally_calm_course *course, const double *x,
                                struct tally_calm_schedule *ret_schedule)
{
    assert(course->is_settled && !course->is_ideal);
    const struct layout layout = layout_of(course, x);
    struct at at = {course->state.variance, course->state.estimate_variance,
                    course->constants->shift_error};
    *ret_schedule = (struct tally_calm_schedule){.n = course->n};
    for (int k = 0; k < course->n; k++) {
        ret_schedule->epochs[k] = settle_epoch(course, &layout, k, &at);
    }
}
