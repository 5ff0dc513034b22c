/* calm_model: the recursion of a few scalars that predicts a CALM job.
 *
 * Idea: three variances describe a job well enough to run it and to plan it: V, that of the common
 * point x around x*; Vz, that of the server's unrounded estimate z around x*; and nv, that of the
 * noise added by a client's own steps. Every step length, grid and scale of CALM is a function of
 * them, so client, server and simulator compute the same values and send none. CALM.md derives each
 * line.
 *
 *     epoch of n queries, V = variance of x:
 *
 *     client   w_1 = x, i = 1..n      query at w_i; w_{i+1} = w_i - e_i (g_i + lambda (w_i - x))
 *              lambda = h B / V       pull back to x: clients must not walk to their own optima
 *              q = h + lambda, p = h - q a
 *              e_i = (p (1 - a) V - p a B + q nv) / (p^2 (V + B) + q^2 nv + s0 + m v)
 *                                     minimises the next v; clipped to [0, local_step_limit]
 *              a <- a + e_i p;  nv <- (1 - e_i q)^2 nv + e_i^2 (s0 + m v)
 *              v <- (1 - a)^2 V + a^2 B + nv
 *              message: Q(mean_i(w_i - x - g_i / h)), noise = sum_i (s0 + m v_i) / (n h)^2,
 *              grid step r_u sqrt(noise / (12 E)), scale sqrt(noise + B + V)
 *     server   estimate = x + mean of the messages, its variance around x* is
 *              vnew = (noise + E step^2) / R + hs (1 - mean a)^2 V
 *                     + B (1/R - 1/M) M / (M - 1)              R of M clients answered
 *              z <- z + Vz / (Vz + vnew) (estimate - z);  Vz <- Vz vnew / (Vz + vnew)
 *     down     x <- x + Q(z - x), grid step max(r_d sqrt(Vz / (12 E)), sqrt((V / 25 - Vz) / E)),
 *              scale sqrt(max(V - Vz, V / 1000));  V <- Vz + E step^2
 *
 * a is the progress of the mean of w from x (0) to the client's own optimum (1), and v = v_i is the
 * variance of w around x*. E is the mean square of the error of rounding to a grid of the step 1
 * (tally_dithered_error(); 1/12 without a trellis). All variances are per coordinate. f has the
 * curvature h in every direction, so f(w) - f* is h d v / 2. Gradients have the noise s0 + m v per
 * coordinate, the clients' own optima the variance B around x*, and the curvature the relative
 * variance hs.
 *
 * Example: 10 clients, d = 30, h = 1/3, s0 = 2/3, m = 10/3, B = 0.03, hs = 0.0144, V = 1/6, step
 * limit 0.1, n = 14 queries, r_u = 1.08: noise = 0.75, grid step 1.03; Vz falls from 0.167 to
 * 0.056. The broadcast with r_d = 1.17 has a step of 0.305, and leaves V = 0.063.
 *
 * Values on which both sides must agree are computed only by sums, products, quotients and square
 * roots. These are correctly rounded, and the build fuses none of them, so equal arguments give
 * equal bits on every machine. Only the forecast of bits uses a logarithm.
 *
 * Source: the project's own combination of known parts. Proximal local steps: Li et al., FedProx,
 * 2020. Dithered quantization with an entropy coder: Ziv 1985; Zamir and Feder 1992. */
#ifndef TALLY_SERVICES_ALGORITHMS_CALM_CALM_MODEL_H
#define TALLY_SERVICES_ALGORITHMS_CALM_CALM_MODEL_H

#include <stddef.h>
#include <stdint.h>

/* The bits of a message beyond its ideal code length: the end of its arithmetic code. Measured with
 * codec/dithered: 1.05 +- 0.1 at any step for d = 30 and 300; below the noise for d = 7840. */
#define TALLY_CALM_MESSAGE_BITS 1.05

/* The least r_u and r_d. A finer grid is never worth its bits: its rounding would be below 0.6 % of
 * the noise, and levels could overflow the clients' sums. */
#define TALLY_CALM_FINEST 0.25

/* The least bits per coordinate of a message that is worth its bits: with fewer, it contains so
 * little information that its epoch only splits the next broadcast in two. */
#define TALLY_CALM_LEAST_RATE 0.25

enum { TALLY_CALM_MAX_EPOCHS = 32 };

/* The constants of a problem for CALM. Variances are per coordinate. */
struct tally_calm_constants {
    double curvature;        /* h = 1 / step_size; > 0 */
    double noise;            /* s0: of one gradient query at x*; > 0 */
    double noise_growth;     /* m: noise added per unit of the distance's variance; >= 0 */
    double client_spread;    /* B: of a client's own optimum around x*; >= 0 */
    double curvature_spread; /* hs: of the curvature around h, relative and squared; >= 0 */
    double initial_variance; /* V0: of the start point around x*; > 0 */
    double shift_error;      /* W: of the shifts around the clients' optima; 0: no shifts */
    double local_step_limit; /* longest own step of a client; >= 0; 0: clients take none */
    uint32_t clients;        /* M >= 1 */
    size_t dim;              /* d >= 1 */
    int64_t horizon;         /* T: gradient queries of a client; >= 1 */
    int64_t repeats;         /* queries at x before the epoch, which its message includes; >= 0 */
};

/* A client's own steps in one epoch, and the totals that its message needs. */
struct tally_calm_walk {
    double curvature, noise, noise_growth, client_spread, local_step_limit; /* constants */
    size_t dim;
    double shift_error;    /* W of this epoch */
    double start_variance; /* V of x */
    double pull;           /* lambda */
    double progress;       /* a of the next query */
    double own_noise;      /* nv of the next query */
    double variance;       /* v of the next query */
    int64_t n;             /* queries so far, with repeats */
    int64_t repeats;       /* of them at x, before the epoch */
    double sum_noise;      /* of s0 + m v_i over the queries so far */
    double sum_progress;   /* of a */
    double sum_variance;   /* of v_i, not of repeats: regret is clients * dim * h / 2 times this */
};

/* Starts at x, whose variance is V >= 0, and counts no query yet: constants->repeats is for
 * calm_leg.h. `constants` is not kept. */
void tally_calm_walk_begin(struct tally_calm_walk *walk,
                           const struct tally_calm_constants *constants, double variance);

/* Counts the query at w_i and returns e_i, the length of the step that leads to w_{i+1}:
 * w <- w - e_i (g + pull (w - x)). In [0, local_step_limit]. */
double tally_calm_walk_next(struct tally_calm_walk *walk);

/* Counts a query that was made at x before the epoch, and returns e_i. The client steps as from a
 * query at w_i, whose gradient a curvature h predicts from that at x:
 * w <- w - e_i (g + (h + pull) (w - x)). */
double tally_calm_walk_repeat(struct tally_calm_walk *walk);

/* Returns e_i, the length of the next step, without counting its query. */
double tally_calm_walk_step(const struct tally_calm_walk *walk);

/* Variance of the noise in the message of the queries so far: sum s(v_i) / (n h)^2. n >= 1. */
double tally_calm_walk_message_noise(const struct tally_calm_walk *walk);

/* Grid and coder of one message. */
struct tally_calm_grid {
    double step;  /* between two levels */
    double scale; /* standard deviation that the coder assumes for a coordinate */
};

/* The variance of the rounding of a message of `dim` coordinates: E step^2. */
double tally_calm_rounding(size_t dim, double step);
/* The expected bits of a message of `dim` coordinates on a grid. */
double tally_calm_message_bits(size_t dim, struct tally_calm_grid grid);
/* The step whose rounding has the variance width^2 / 12, as that of a plain grid of the step
 * `width`. */
double tally_calm_step(size_t dim, double width);

/* The grid of a client's message after its walk; resolution = r_u > 0. */
struct tally_calm_grid tally_calm_uplink_grid(const struct tally_calm_walk *walk,
                                              double resolution);

/* The grid of the broadcast of z - x; V of x before it, Vz of z, resolution = r_d > 0. */
struct tally_calm_grid tally_calm_downlink_grid(size_t dim, double variance,
                                                double estimate_variance, double resolution);

/* The factor of a message that is added to a shift: W / (W + noise + E step^2). 0 without
 * shifts. */
double tally_calm_shift_gain(const struct tally_calm_walk *walk, double step);

/* W after an epoch in which `answers` clients answered. `moved`: the mean square, per coordinate,
 * of what the broadcast added to x. */
double tally_calm_shift_error(const struct tally_calm_constants *constants,
                              const struct tally_calm_walk *walk, double step, uint32_t answers,
                              double moved);

/* V of x after the broadcast: Vz + E step^2. */
double tally_calm_broadcast_variance(size_t dim, double estimate_variance, double step);

/* The mean square of a coordinate of a broadcast that leaves V of x at `variance_after`: V - Vz for
 * z - x, plus the rounding. */
double tally_calm_moved(double variance, double estimate_variance, double variance_after);

/* How the server merges the clients' mean into z. */
struct tally_calm_merge {
    double gain;     /* z <- z + gain (estimate - z) */
    double variance; /* Vz afterwards */
};

/* `walk` is that of every client and `step` that of the uplink grid. `estimate_variance` is Vz
 * before the merge. 1 <= answers <= clients. */
struct tally_calm_merge tally_calm_merge(const struct tally_calm_constants *constants,
                                         const struct tally_calm_walk *walk, double step,
                                         uint32_t answers, double estimate_variance);

struct tally_calm_epoch {
    int64_t samples;            /* n_k >= 1 queries of each client */
    double uplink_resolution;   /* r_u > 0: step of the uplink grid over the message's noise */
    double downlink_resolution; /* r_d > 0: step of the downlink grid over sqrt(Vz) */
};

/* Epochs that end with a message and a broadcast. The remaining queries of the horizon form a last
 * epoch without a message. */
struct tally_calm_schedule {
    int n; /* in [0, TALLY_CALM_MAX_EPOCHS] */
    struct tally_calm_epoch epochs[TALLY_CALM_MAX_EPOCHS];
};

/* The state of a job at the start of an epoch. */
struct tally_calm_state {
    double variance;          /* V of x */
    double estimate_variance; /* Vz of z */
    int64_t samples_left;     /* queries up to the horizon; >= 1 */
};

/* At the start of the job: x = z. */
struct tally_calm_state tally_calm_start(const struct tally_calm_constants *constants);

/* The forecast of one epoch. */
struct tally_calm_epoch_forecast {
    int64_t samples;
    double regret;                           /* sum over clients and queries of f(w) - f* */
    double uplink_bits;                      /* of one client's message */
    double downlink_bits;                    /* of the broadcast */
    struct tally_calm_grid uplink, downlink; /* zero in an epoch without a message */
    double variance, estimate_variance;      /* V, Vz afterwards */
};

struct tally_calm_forecast {
    double regret;        /* cumulative, over all clients: sum of f(w) - f* */
    double uplink_bits;   /* of one client */
    double downlink_bits; /* of the broadcast stream */
    int n;                /* epochs; the last one sends nothing */
    struct tally_calm_epoch_forecast epochs[TALLY_CALM_MAX_EPOCHS + 1];
};

/* The forecast of the rest of the job if all clients answer. An epoch that would reach the horizon
 * is cut there and sends nothing. tally_calm_walk_ahead() (calm_leg.h) walks the epochs. */
void tally_calm_forecast(const struct tally_calm_constants *constants,
                         const struct tally_calm_state *state,
                         const struct tally_calm_schedule *schedule,
                         struct tally_calm_forecast *ret_forecast);

/* The rate of the entropy-coded dithered quantizer for a Gaussian coordinate, in bits; step_ratio =
 * step / scale > 0. Interpolated; accurate to 0.001 bit up to a ratio of 12, and to 1 % above. */
double tally_calm_rate(double step_ratio);
/* The inverse of tally_calm_rate(): step / scale of the quantizer that costs `rate` > 0 bits. */
double tally_calm_step_ratio(double rate);

#endif
