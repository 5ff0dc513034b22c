/* calm_course: the cost of a schedule as a smooth function that descent.h can minimise.
 *
 * Idea: two sums bound the variables of a plan. The epochs and the queries after them fill the
 * horizon, and the messages of one direction share its budget. As shares of a sum, the variables
 * need no bounds: share_k = exp(x_k) / sum_j exp(x_j). The bits of a message determine its grid
 * through the inverse of the rate. Every point of R^(3K) is thus a schedule that uses its budget
 * exactly.
 *
 *     x = | K logits: n_k, against 0 for the rest | K logits: bits up | K logits: bits down |
 *
 * The value is log(regret). Its gradient is computed backwards through the epochs: an epoch maps
 * (V, Vz, n, bits up, bits down) to (V, Vz, regret). The partial derivatives of this map are finite
 * differences; the chain rule between epochs is exact. The cost is three walks per epoch. */
#ifndef TALLY_SERVICES_ALGORITHMS_CALM_CALM_COURSE_H
#define TALLY_SERVICES_ALGORITHMS_CALM_CALM_COURSE_H

#include <stdbool.h>

#include "services/algorithms/calm/calm_model.h"

enum { TALLY_CALM_COURSE_EPOCHS = 16 };

enum tally_calm_direction { TALLY_CALM_UP, TALLY_CALM_DOWN, TALLY_CALM_DIRECTIONS };

/* Pools of bits that the messages of one direction, or of both, share. */
struct tally_calm_pools {
    int of[TALLY_CALM_DIRECTIONS];      /* pool of a direction: 0 or 1 */
    double bits[TALLY_CALM_DIRECTIONS]; /* of pool 0, of pool 1 */
};

struct tally_calm_course {
    const struct tally_calm_constants *constants;
    struct tally_calm_state state; /* at the start */
    struct tally_calm_pools pools;
    int n;           /* epochs with a message, in [1, TALLY_CALM_COURSE_EPOCHS] */
    bool is_ideal;   /* uses the rates of the limit lines, not of the dithered quantizer */
    bool is_settled; /* samples[] is fixed */
    int64_t samples[TALLY_CALM_COURSE_EPOCHS];
};

/* Whether the epochs fit the horizon, and their messages the pools. */
bool tally_calm_course_is_possible(const struct tally_calm_course *course);

/* Variables of the course: 3 n. */
int tally_calm_course_variables(const struct tally_calm_course *course);

/* log(regret) at x, in the form of tally_descent.value. `context` is the course. */
double tally_calm_course_value(const void *context, const double *x, double *ret_gradient);

/* The number of queries of each epoch at x, as real numbers. */
void tally_calm_course_samples(const struct tally_calm_course *course, const double *x,
                               double *ret_samples);

/* The schedule at x of a settled course. Its exact forecast uses the bits of the pools, or fewer if
 * even the finest grid needs fewer. */
void tally_calm_course_schedule(const struct tally_calm_course *course, const double *x,
                                struct tally_calm_schedule *ret_schedule);

#endif
