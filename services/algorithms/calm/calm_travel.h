/* calm_travel: decides when a CALM job that specifies only a step size stops averaging and travels.
 *
 * Idea: the recursion of calm_model.h has one curvature h. Along a much flatter direction, a
 * client's prediction w - g / h falls far short of the optimum. The clients' means of successive
 * epochs then point the same way and are longer than V predicts, and averaging at one point would
 * waste the queries of the job. The clients therefore travel: each takes plain gradient steps of
 * one length e, which the server sends, and reports its displacement w - x. Epochs grow slowly.
 *
 *     averaging   | 6 | 18 |  the means agree
 *     travelling           | 24 | 24 | 24 | 27 | 31 | 36 ...   n = max(n before, 0.15 t)
 *
 * The steps follow Polyak's rule for the remaining gap f - f* and the noise s of one query: e =
 * h vs / (h^2 vs + s), where h vs / 2 is the gap per coordinate. The square of f's gradient per
 * coordinate is estimated from two successive means, so that their noise cancels, as gamma_k =
 * cos_k sqrt(raw_k raw_{k-1}) / (E_k E_{k-1}). E is the distance that an epoch would move a point
 * along a constant gradient of 1. While f - f* falls as a power of tau, the sum of all E, the gap
 * is a multiple of gamma tau. vs follows that gap, within bounds per epoch.
 *
 *     D_k         the mean of the clients' messages in epoch k
 *     raw, cos    mean square of D_k per coordinate; cosine of D_k and D_{k-1}
 *     A           variance of a client's message without that of its quantization
 *     R           clients that answered
 *     m           max(raw - (A + rounding) / R, 0): raw without its noise
 *     E           e n while travelling, 1.5 / h while averaging
 *     t           queries of a client so far
 *
 * The server computes all of this. While travelling may start or stop, it sends one bit that says
 * whether clients travel. It also sends e in 6 bits, later in 5, and for the grids A (5 bits) and m
 * (6 bits). Each value is sent as an index of quarter octaves relative to a value that the clients
 * know.
 *
 * Example: logistic regression, d = 30, step 1/2: the cosine of the second and third mean is 0.9.
 * From then on the job travels: 27 rounds of 24 to 500 queries, with steps that shrink from 0.3 to
 * 0.02.
 *
 * A job without regret is judged by its final model, so its last epoch ends at the horizon with a
 * message. Any other job makes its last queries without a message.
 *
 * Left out: blocks of coordinates, each with its own grid; CALM.md states their possible gain.
 *
 * Source: the project's own. The constants were found by search on quadratics, logistic and softmax
 * regressions and a small network. Polyak's step: Polyak, Introduction to Optimization, 1987. */
#ifndef TALLY_SERVICES_ALGORITHMS_CALM_CALM_TRAVEL_H
#define TALLY_SERVICES_ALGORITHMS_CALM_CALM_TRAVEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Plain data, stored unchanged. Initialise it with tally_calm_travel_begin(), not with zeros. */
struct tally_calm_travel {
    int64_t samples;  /* n of the open epoch */
    int64_t epochs;   /* epochs that ended */
    int32_t is_on;    /* the open epoch travels */
    int32_t is_first; /* the open epoch travels, and the one before did not */
    double step;      /* e of the open or the last epoch that travels; 0: none has */
    /* For the epoch that ended last: */
    double reach;  /* E */
    double square; /* raw */
    double motion; /* m */
    double noise;  /* A */
    /* m as sent to clients, if the open epoch travels; otherwise the gain of z, 0 before the first
     * epoch has ended */
    double told;
    int64_t time; /* t: queries up to its end */
    /* Over all epochs: */
    double total_reach; /* tau */
    double gap;         /* vs; 0: no epoch has travelled */
};

/* What the server observes when an epoch ends. Variances and squares are per coordinate. */
struct tally_calm_sight {
    double square;   /* raw */
    double cosine;   /* with the previous mean; 0 for the first */
    double spread;   /* variance across the clients' messages, quantization included */
    double noise;    /* A as sent to clients: without quantization */
    double rounding; /* variance of the rounding of a message */
    double variance; /* V of x, before the broadcast */
    double query;    /* s: noise of one query */
    /* Of nu = x + D_k - z, before z follows the mean: */
    double product;    /* with the previous mean, per coordinate */
    double innovation; /* mean square */
    double gain;       /* by which z follows the mean */
    int64_t answers;   /* R >= 1 */
    int64_t time;      /* t */
};

/* The constants of a job for travelling. */
struct tally_calm_ground {
    double curvature; /* h */
    size_t dim;
    bool is_even;  /* the opening round took all directions to be alike */
    bool is_round; /* f is known to have no direction that is much flatter than h */
    /* The opening round showed that some directions are much flatter. All epochs after the first
     * travel, and no bit announces it. */
    bool is_uneven;
};

/* The job starts by averaging, with a first epoch of `samples` queries. */
void tally_calm_travel_begin(struct tally_calm_travel *travel, int64_t samples);

/* How clearly the mean of an epoch contradicts the curvature h in all directions, in standard
 * errors. If the curvature is h, z + gain nu leaves the error (1 - gain) (x* - z) - gain n of a
 * mean with the noise n of variance N. Whatever V was assumed, the next nu' therefore has
 *
 *     E <D, nu'> / d = (1 - gain) m - gain N        E |nu'|^2 / d = (1 - gain)^2 m + gain^2 N + N'
 *
 * where m is the mean square of D without its noise. Flat directions increase both. */
struct tally_calm_contradiction {
    double direction; /* of <D, nu'>; normal if the curvature is h */
    double length;    /* of |nu'|^2 */
};
struct tally_calm_contradiction
tally_calm_travel_contradiction(const struct tally_calm_travel *travel,
                                const struct tally_calm_ground *ground,
                                const struct tally_calm_sight *sight);

/* Ends the open epoch: decides whether the next one travels, its steps and its length. Returns the
 * number of control bits that state this to clients. */
int tally_calm_travel_advance(struct tally_calm_travel *travel,
                              const struct tally_calm_ground *ground,
                              const struct tally_calm_sight *sight);

/* The expected message of the open epoch, which travels: the variance of its noise, and the mean
 * square including the common part of all clients. `query` as in the sight. */
struct tally_calm_passage {
    double noise, square;
};
struct tally_calm_passage tally_calm_travel_message(const struct tally_calm_travel *travel,
                                                    double query);

/* Whether the open epoch must last to the horizon, `left` queries away, because otherwise at most a
 * third of its length would remain after it. */
bool tally_calm_travel_is_last(const struct tally_calm_travel *travel, int64_t left);

/* The step of a client whose own gradients show noise of `seen` per query: e, or a shorter step if
 * `seen` is above `query`, because noise may grow with the distance from x*. */
double tally_calm_travel_step(double step, double curvature, double seen, double query);

/* `value` > 0 as encoded in `bits` control bits: the nearest of reference 2^(j / 4), with j in
 * [-2^(bits - 1), 2^(bits - 1) - 1]. */
double tally_calm_coded(double value, double reference, int bits);

enum { TALLY_CALM_TRAVEL_BITS = 6 };

/* Whether stored bytes can be the state of a job. */
bool tally_calm_travel_is_valid(const struct tally_calm_travel *travel);

#endif
