#include "services/algorithms/calm/calm_model.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>

#include "codec/dithered/dithered.h"
#include "services/algorithms/calm/calm_leg.h"

/* A broadcast lowers V by at most this factor, which protects against constants that are far off. A
 * schedule that is planned for its bits stays below it. (A limit of 5 increased the regret of the
 * job of [1] by 2.5 % at 130 / 145 bits.) */
#define LARGEST_GAIN 25.0
/* The coder's scale stays above sqrt(V / 1000), as a margin for errors of the recursion. */
#define LEAST_SHARE 1e-3

void tally_calm_walk_begin(struct tally_calm_walk *walk,
                           const struct tally_calm_constants *constants, double variance)
{
    *walk = (struct tally_calm_walk){
        .curvature = constants->curvature,
        .noise = constants->noise,
        .noise_growth = constants->noise_growth,
        .client_spread = constants->client_spread,
        .local_step_limit = constants->local_step_limit,
        .dim = constants->dim,
        .shift_error = constants->shift_error,
        .start_variance = variance,
        .pull = variance > 0 ? constants->curvature * constants->client_spread / variance : 0,
        .variance = variance,
    };
}

/* e_i; 0 where the quotient is not a number, which happens without noise at x*, or if lambda^2
 * overflows. */
static double step_length(const struct tally_calm_walk *walk, double noise)
{
    const double a = walk->progress, start = walk->start_variance, spread = walk->client_spread;
    const double q = walk->curvature + walk->pull;
    const double p = walk->curvature - q * a;
    const double e = (p * (1 - a) * start - p * a * spread + q * walk->own_noise) /
                     (p * p * (start + spread) + q * q * walk->own_noise + noise);
    if (!(e > 0)) {
        return 0;
    }
    return e < walk->local_step_limit ? e : walk->local_step_limit;
}

double tally_calm_walk_step(const struct tally_calm_walk *walk)
{
    return step_length(walk, walk->noise + walk->noise_growth * walk->variance);
}

/* a, nv and v after a step of length e > 0. */
static void move(struct tally_calm_walk *walk, double e, double noise)
{
    const double q = walk->curvature + walk->pull, kept = 1 - e * q;
    walk->progress += e * (walk->curvature - q * walk->progress);
    walk->own_noise = kept * kept * walk->own_noise + e * e * noise;
    const double a = walk->progress;
    walk->variance =
        (1 - a) * (1 - a) * walk->start_variance + a * a * walk->client_spread + walk->own_noise;
}

double tally_calm_walk_next(struct tally_calm_walk *walk)
{
    const double noise = walk->noise + walk->noise_growth * walk->variance;
    walk->n++;
    walk->sum_noise += noise;
    walk->sum_progress += walk->progress;
    walk->sum_variance += walk->variance;
    const double e = step_length(walk, noise);
    if (e > 0) {
        move(walk, e, noise);
    }
    return e;
}

double tally_calm_walk_repeat(struct tally_calm_walk *walk)
{
    const double noise = walk->noise + walk->noise_growth * walk->start_variance;
    walk->n++;
    walk->repeats++;
    walk->sum_noise += noise;
    const double e = step_length(walk, noise);
    if (e > 0) {
        move(walk, e, noise);
    }
    return e;
}

double tally_calm_walk_message_noise(const struct tally_calm_walk *walk)
{
    assert(walk->n >= 1);
    const double length = (double)walk->n * walk->curvature;
    return walk->sum_noise / (length * length);
}

double tally_calm_rounding(size_t dim, double step)
{
    return tally_dithered_error(dim) * step * step;
}

double tally_calm_step(size_t dim, double width)
{
    return width / sqrt(12 * tally_dithered_error(dim));
}

struct tally_calm_grid tally_calm_uplink_grid(const struct tally_calm_walk *walk, double resolution)
{
    const double noise = tally_calm_walk_message_noise(walk);
    return (struct tally_calm_grid){
        .step = tally_calm_step(walk->dim, resolution * sqrt(noise)),
        .scale = sqrt(walk->shift_error > 0 ? noise + walk->shift_error
                                            : noise + walk->client_spread + walk->start_variance),
    };
}

double tally_calm_shift_gain(const struct tally_calm_walk *walk, double step)
{
    const double error = walk->shift_error;
    return error > 0 ? error / (error + tally_calm_walk_message_noise(walk) +
                                tally_calm_rounding(walk->dim, step))
                     : 0;
}

double tally_calm_shift_error(const struct tally_calm_constants *constants,
                              const struct tally_calm_walk *walk, double step, uint32_t answers,
                              double moved)
{
    const double share = (double)answers / constants->clients;
    const double left = 1 - share * tally_calm_shift_gain(walk, step);
    return walk->shift_error > 0 ? walk->shift_error * left + constants->curvature_spread * moved
                                 : 0;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

struct tally_calm_grid tally_calm_downlink_grid(size_t dim, double variance,
                                                double estimate_variance, double resolution)
{
    const double floor_square = larger(12 * (variance / LARGEST_GAIN - estimate_variance), 0);
    const double width = larger(resolution * sqrt(estimate_variance), sqrt(floor_square));
    return (struct tally_calm_grid){
        .step = tally_calm_step(dim, width),
        .scale = sqrt(larger(variance - estimate_variance, variance * LEAST_SHARE)),
    };
}

double tally_calm_broadcast_variance(size_t dim, double estimate_variance, double step)
{
    return estimate_variance + tally_calm_rounding(dim, step);
}

double tally_calm_moved(double variance, double estimate_variance, double variance_after)
{
    return larger(variance - estimate_variance, 0) + (variance_after - estimate_variance);
}

/* The variance around x* of the mean of the optima of R of the M clients. (The mean over all M is
 * x*.) With shifts, the variance of what the shifts lack. */
static double absence_variance(const struct tally_calm_constants *constants, uint32_t answers)
{
    const double n = answers, all = constants->clients;
    assert(answers >= 1 && answers <= constants->clients);
    const double spread =
        constants->shift_error > 0 ? constants->shift_error : constants->client_spread;
    return n < all ? spread * (1 / n - 1 / all) * all / (all - 1) : 0;
}

struct tally_calm_merge tally_calm_merge(const struct tally_calm_constants *constants,
                                         const struct tally_calm_walk *walk, double step,
                                         uint32_t answers, double estimate_variance)
{
    const double noise = tally_calm_walk_message_noise(walk);
    const double rest = 1 - walk->sum_progress / (double)walk->n;
    const double vnew = (noise + tally_calm_rounding(walk->dim, step)) / (double)answers +
                        constants->curvature_spread * rest * rest * walk->start_variance +
                        absence_variance(constants, answers);
    const double sum = estimate_variance + vnew;
    return (struct tally_calm_merge){
        .gain = estimate_variance / sum,
        .variance = estimate_variance * vnew / sum,
    };
}

struct tally_calm_state tally_calm_start(const struct tally_calm_constants *constants)
{
    return (struct tally_calm_state){constants->initial_variance, constants->initial_variance,
                                     constants->horizon};
}

double tally_calm_message_bits(size_t dim, struct tally_calm_grid grid)
{
    return (double)dim * tally_calm_rate(grid.step / grid.scale) + TALLY_CALM_MESSAGE_BITS;
}

/* Applies message and broadcast after the walk of an epoch. */
static void exchange(struct tally_calm_constants *constants, const struct tally_calm_walk *walk,
                     const struct tally_calm_epoch *epoch, struct tally_calm_state *state,
                     struct tally_calm_epoch_forecast *ret)
{
    const double before = state->variance;
    ret->uplink = tally_calm_uplink_grid(walk, epoch->uplink_resolution);
    ret->uplink_bits = tally_calm_message_bits(constants->dim, ret->uplink);
    state->estimate_variance = tally_calm_merge(constants, walk, ret->uplink.step,
                                                constants->clients, state->estimate_variance)
                                   .variance;
    ret->downlink = tally_calm_downlink_grid(constants->dim, state->variance,
                                             state->estimate_variance, epoch->downlink_resolution);
    ret->downlink_bits = tally_calm_message_bits(constants->dim, ret->downlink);
    state->variance =
        tally_calm_broadcast_variance(constants->dim, state->estimate_variance, ret->downlink.step);
    constants->shift_error =
        tally_calm_shift_error(constants, walk, ret->uplink.step, constants->clients,
                               tally_calm_moved(before, state->estimate_variance, state->variance));
}

/* Forecasts one epoch, which sends nothing if `epoch` is NULL or reaches the horizon. */
static struct tally_calm_epoch_forecast forecast_epoch(struct tally_calm_constants *constants,
                                                       const struct tally_calm_epoch *epoch,
                                                       struct tally_calm_state *state)
{
    const bool is_last = epoch == NULL || epoch->samples >= state->samples_left;
    struct tally_calm_epoch_forecast made = {
        .samples = is_last ? state->samples_left : epoch->samples,
    };
    struct tally_calm_walk walk;
    tally_calm_walk_ahead(&walk, constants, state->variance, made.samples);
    made.regret =
        walk.sum_variance * constants->clients * (double)constants->dim * constants->curvature / 2;
    if (!is_last) {
        exchange(constants, &walk, epoch, state, &made);
    }
    constants->repeats = 0;
    state->samples_left -= made.samples;
    made.variance = state->variance;
    made.estimate_variance = state->estimate_variance;
    return made;
}

void tally_calm_forecast(const struct tally_calm_constants *constants,
                         const struct tally_calm_state *state,
                         const struct tally_calm_schedule *schedule,
                         struct tally_calm_forecast *ret_forecast)
{
    struct tally_calm_state at = *state;
    struct tally_calm_constants constants_then = *constants; /* W changes from epoch to epoch */
    *ret_forecast = (struct tally_calm_forecast){0};
    while (at.samples_left > 0) {
        const int k = ret_forecast->n++;
        const struct tally_calm_epoch_forecast made =
            forecast_epoch(&constants_then, k < schedule->n ? &schedule->epochs[k] : NULL, &at);
        ret_forecast->regret += made.regret;
        ret_forecast->uplink_bits += made.uplink_bits;
        ret_forecast->downlink_bits += made.downlink_bits;
        ret_forecast->epochs[k] = made;
    }
}

/* RATES[k] is the rate at step / scale = LEAST_RATIO (MOST_RATIO / LEAST_RATIO)^(k / 59): the
 * entropy of rint(y / step + u) given u, for y from N(0, scale^2), averaged over u uniform in
 * [-1/2, 1/2]. The unit test recomputes each of them. */
enum { N_RATES = 60 };
#define LEAST_RATIO 0.05
#define MOST_RATIO  12.0
static const double RATES[N_RATES] = {
    6.369173945109, 6.235189524921, 6.101211365635, 5.967240744677, 5.833279200005, 5.699328582980,
    5.565391122290, 5.431469500484, 5.297566946292, 5.163687345399, 5.029835373539, 4.896016656338,
    4.762237961168, 4.628507427202, 4.494834841016, 4.361231966557, 4.227712939666, 4.094294738903,
    3.960997746720, 3.827846416570, 3.694870064065, 3.562103801967, 3.429589640986, 3.297377779306,
    3.165528104210, 3.034111927615, 2.903213973340, 2.772934625888, 2.643392436992, 2.514726864840,
    2.387101189256, 2.260705501351, 2.135759605401, 2.012515592009, 1.891259744881, 1.772313332434,
    1.656031720104, 1.542801139049, 1.433032394480, 1.327150839263, 1.225582136480, 1.128733753538,
    1.036972818386, 0.950601919429, 0.869835531914, 0.794780734255, 0.725426298890, 0.661643589762,
    0.603200636760, 0.549787511155, 0.501047760610, 0.456608849001, 0.416105561322, 0.379193823288,
    0.345556229399, 0.314902541564, 0.286968086942, 0.261511648937, 0.238313407105, 0.217173040806,
};

/* Below LEAST_RATIO, halving the step costs one more bit. Above MOST_RATIO, only coordinates within
 * a scale of a cell's edge cost bits, and their share falls as 1 / step. At the edges of the table
 * both approximations are accurate to 1 % or better. */
double tally_calm_rate(double step_ratio)
{
    if (step_ratio <= LEAST_RATIO) {
        return RATES[0] + log2(LEAST_RATIO / step_ratio);
    }
    if (step_ratio >= MOST_RATIO) {
        return RATES[N_RATES - 1] * MOST_RATIO / step_ratio;
    }
    const double position =
        log(step_ratio / LEAST_RATIO) / log(MOST_RATIO / LEAST_RATIO) * (N_RATES - 1);
    const int k = position < N_RATES - 2 ? (int)position : N_RATES - 2;
    const double share = position - k;
    return RATES[k] + share * (RATES[k + 1] - RATES[k]);
}

double tally_calm_step_ratio(double rate)
{
    if (rate >= RATES[0]) {
        return LEAST_RATIO * exp2(RATES[0] - rate);
    }
    if (rate <= RATES[N_RATES - 1]) {
        return RATES[N_RATES - 1] * MOST_RATIO / rate;
    }
    int below = 0, above = N_RATES - 1; /* RATES[below] > rate >= RATES[above] */
    while (above - below > 1) {
        const int middle = (below + above) / 2;
        *(RATES[middle] > rate ? &below : &above) = middle;
    }
    const double share = (RATES[below] - rate) / (RATES[below] - RATES[above]);
    return LEAST_RATIO * exp(log(MOST_RATIO / LEAST_RATIO) * (below + share) / (N_RATES - 1));
}
