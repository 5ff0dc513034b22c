/* calm_plan: the schedule of a CALM job that minimises its regret for a budget of bits.
 *
 * Idea: calm_model.h predicts regret and bits of any schedule, calm_course.h represents the
 * schedules that use a budget exactly as points of R^(3K), and descent.h minimises over these
 * points. A plan tries K = 1, 2, ... 16 epochs, each from a few starting points, until more epochs
 * no longer help. Then it rounds the epochs to whole queries. It uses no random numbers and no
 * clock: equal arguments give equal schedules on one machine. The plan of the example takes about
 * 0.1 s of processor time, or 0.5 s if a direction has no budget (AMD EPYC). A coordinator
 * stores a plan and never computes it again, because exp and log may differ between machines.
 *
 * Example: the job of calm_model.h, T = 2000, at 263 bits up and 289 down without margins: epochs
 * of 15, 37, 111 and 346 queries, expected regret 522. At 130 / 145 bits, two epochs, 49 and 208:
 * 933.
 *
 * A direction without a budget has a price: more bits are spent while one per cent more of them
 * lowers the regret by at least half a per cent.
 *
 * Left out: the scatter of a single job around its plan. The code length of one coordinate has a
 * standard deviation of about one bit, and that of n messages has tally_calm_scatter_bits(). The
 * caller's margins determine how much of that a plan reserves. */
#ifndef TALLY_SERVICES_ALGORITHMS_CALM_CALM_PLAN_H
#define TALLY_SERVICES_ALGORITHMS_CALM_CALM_PLAN_H

#include "services/algorithms/calm/calm_model.h"

/* Bits that a client (up) and the broadcast stream (down) may still spend; INFINITY = no budget. */
struct tally_calm_budget {
    double uplink_bits, downlink_bits;
    double uplink_margin, downlink_margin; /* bits of a budget that the plan leaves free; >= 0 */
};

/* The schedule from `state` on. Its forecast never exceeds budget - margin; if no message fits, it
 * has no epochs. `previous`: the rest of an earlier plan. The search starts from it and
 * then takes only a few milliseconds. NULL = none. */
void tally_calm_plan(const struct tally_calm_constants *constants,
                     const struct tally_calm_state *state, const struct tally_calm_budget *budget,
                     const struct tally_calm_schedule *previous,
                     struct tally_calm_schedule *ret_schedule);

/* Standard deviation of the length of n messages of `dim` coordinates, in bits: each coordinate
 * contributes y^2 / (2 scale^2) log2(e), whose variance is log2(e)^2 / 2. Coarse grids scatter
 * less. */
double tally_calm_scatter_bits(size_t dim, int messages);

/* Limit lines: the regret in ideal cases. First, the regret from the start if all clients shared
 * every query at no cost. */
double tally_calm_shared_regret(const struct tally_calm_constants *constants);

/* Second, for finite budgets, the regret from the start if all messages were coded at the rates of
 * information theory without overhead, in the best number of epochs. Up: the Gaussian CEO rate
 * d/2 log2(1 + noise / D) for a quantization error of D (Viswanathan and Berger 1997; the common
 * part of all messages costs nothing). Down: d/2 log2(1 + scale^2 / D). Not a bound on regret. */
double tally_calm_ideal_regret(const struct tally_calm_constants *constants,
                               const struct tally_calm_budget *budget);

#endif
