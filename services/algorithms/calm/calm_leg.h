/* calm_leg: the walk of one epoch for the planner, in few strides and for any real number of
 * queries.
 *
 * Idea: a search needs thousands of walks and their derivatives in n. The first queries are counted
 * one by one. After them, a stride covers a constant share of the queries before it, with the step
 * length of its start. Under a constant step, a and nv are geometric sequences, so a stride of any
 * real length w has a closed form:
 *
 *     k = (1 - e q)^w;  a* = h / q;  a <- a* + k (a - a*)
 *     nv <- k^2 nv + (1 - k^2) e^2 s / (1 - (1 - e q)^2)
 *     sum of w values from y to y' (without y'), nearly linear: w (y + y') / 2 + (y - y') / 2
 *
 * A walk of 1,500 queries takes 125 strides. Its sums differ from those of calm_model.h by less
 * than 2 %, and mostly by far less. The strides before the last one do not depend on n, so all sums
 * are smooth in n. */
#ifndef TALLY_SERVICES_ALGORITHMS_CALM_CALM_LEG_H
#define TALLY_SERVICES_ALGORITHMS_CALM_CALM_LEG_H

#include "services/algorithms/calm/calm_model.h"

struct tally_calm_leg {
    double regret; /* of all clients */
    double noise;  /* of the message, per coordinate */
    double bias;   /* hs (1 - mean a)^2 V: what the curvature's spread adds to the mean of all */
};

/* n >= 1 queries from the variance V > 0. */
struct tally_calm_leg tally_calm_leg(const struct tally_calm_constants *constants, double variance,
                                     double n);

/* Epochs of up to this many queries are predicted query by query. */
enum { TALLY_CALM_EXACT_QUERIES = 1 << 18 };

/* A walk after n >= 1 queries (or none after repeats), for forecasts: exact up to
 * TALLY_CALM_EXACT_QUERIES, and in strides beyond that. Even a horizon of 2^31 therefore costs
 * little time. Not for values on which client and server must agree. */
void tally_calm_walk_ahead(struct tally_calm_walk *walk,
                           const struct tally_calm_constants *constants, double variance,
                           int64_t n);

#endif
