#include "services/algorithms/calm/calm_leg.h"

#include <math.h>

/* The number of queries that are counted one by one, and the length of a later stride as a share of
 * the queries before it. */
enum { SINGLE_STEPS = 24 };
#define STRIDE (1.0 / SINGLE_STEPS)

/* The sum of `width` values that lead from `from` to `to`, without the last one. */
static double stretch(double width, double from, double to)
{
    return width * (from + to) / 2 + (from - to) / 2;
}

/* Counts `width` queries, each followed by a step of the length after the first. */
static void stride(struct tally_calm_walk *walk, double width)
{
    const double e = tally_calm_walk_step(walk);
    const double q = walk->curvature + walk->pull, kept = 1 - e * q;
    const double a = walk->progress, v = walk->variance;
    if (e > 0) {
        const double k = kept > 0 ? exp(width * log(kept)) : 0;
        const double noise = walk->noise + walk->noise_growth * v;
        walk->progress = walk->curvature / q + k * (a - walk->curvature / q);
        walk->own_noise = k * k * walk->own_noise + (1 - k * k) * e * e * noise / (1 - kept * kept);
    }
    const double left = 1 - walk->progress;
    walk->variance = left * left * walk->start_variance +
                     walk->progress * walk->progress * walk->client_spread + walk->own_noise;
    walk->sum_progress += stretch(width, a, walk->progress);
    walk->sum_variance += stretch(width, v, walk->variance);
}

/* Begins a walk, with the queries that were made before it. */
static void begin(struct tally_calm_walk *walk, const struct tally_calm_constants *constants,
                  double variance)
{
    tally_calm_walk_begin(walk, constants, variance);
    while (walk->repeats < constants->repeats) {
        tally_calm_walk_repeat(walk);
    }
}

/* Walks n >= 1 queries from `variance` on. walk->n counts only the single ones. */
static void walk_in_strides(struct tally_calm_walk *walk,
                            const struct tally_calm_constants *constants, double variance, double n)
{
    begin(walk, constants, variance);
    double done = 0;
    for (; done < SINGLE_STEPS && done + 1 <= n; done++) {
        tally_calm_walk_next(walk);
    }
    while (done < n) {
        const double width = fmin(fmax(1, done * STRIDE), n - done);
        stride(walk, width);
        done += width;
    }
    walk->sum_noise = (n + (double)walk->repeats) * walk->noise +
                      walk->noise_growth * (walk->sum_variance + (double)walk->repeats * variance);
}

void tally_calm_walk_ahead(struct tally_calm_walk *walk,
                           const struct tally_calm_constants *constants, double variance, int64_t n)
{
    if (n > TALLY_CALM_EXACT_QUERIES) {
        walk_in_strides(walk, constants, variance, (double)n);
        walk->n = n + walk->repeats;
        return;
    }
    begin(walk, constants, variance);
    while (walk->n < n + walk->repeats) {
        tally_calm_walk_next(walk);
    }
}

struct tally_calm_leg tally_calm_leg(const struct tally_calm_constants *constants, double variance,
                                     double n)
{
    struct tally_calm_walk walk;
    walk_in_strides(&walk, constants, variance, n);
    const double all = n + (double)walk.repeats;
    const double length = all * constants->curvature, rest = 1 - walk.sum_progress / all;
    return (struct tally_calm_leg){
        .regret = walk.sum_variance * constants->clients * (double)constants->dim *
                  constants->curvature / 2,
        .noise = walk.sum_noise / (length * length),
        .bias = constants->curvature_spread * rest * rest * variance,
    };
}
