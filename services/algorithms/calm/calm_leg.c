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

/* Walks n >= 1 queries from `variance` on. walk->n remains the number of single queries. */
static void walk_in_strides(struct tally_calm_walk *walk,
                            const struct tally_calm_constants *constants, double variance, double n)
{
    tally_calm_walk_begin(walk, constants, variance);
    for (int i = 1; i <= SINGLE_STEPS && i <= n; i++) {
        tally_calm_walk_next(walk);
    }
    double done = (double)walk->n;
    while (done < n) {
        const double width = fmin(fmax(1, done * STRIDE), n - done);
        stride(walk, width);
        done += width;
    }
    walk->sum_noise = n * walk->noise + walk->noise_growth * walk->sum_variance;
}

void tally_calm_walk_ahead(struct tally_calm_walk *walk,
                           const struct tally_calm_constants *constants, double variance, int64_t n)
{
    if (n > TALLY_CALM_EXACT_QUERIES) {
        walk_in_strides(walk, constants, variance, (double)n);
        walk->n = n;
        return;
    }
    tally_calm_walk_begin(walk, constants, variance);
    while (walk->n < n) {
        tally_calm_walk_next(walk);
    }
}

struct tally_calm_leg tally_calm_leg(const struct tally_calm_constants *constants, double variance,
                                     double n)
{
    struct tally_calm_walk walk;
    walk_in_strides(&walk, constants, variance, n);
    const double length = n * constants->curvature, rest = 1 - walk.sum_progress / n;
    return (struct tally_calm_leg){
        .regret = walk.sum_variance * constants->clients * (double)constants->dim *
                  constants->curvature / 2,
        .noise = walk.sum_noise / (length * length),
        .bias = constants->curvature_spread * rest * rest * variance,
    };
}
