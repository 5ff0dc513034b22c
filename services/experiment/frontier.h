/* frontier: the least regret as a function of the bits, on the synthetic problem.
 *
 * [1] states neither CEAL's constants nor the start point. The frontier therefore covers both
 * readings of the data, each with start points at |x^(1)| = 1, 2 and 3. What runs is data, the
 * documents frontier-loud and frontier-quiet of deploy/experiments: CEAL over a table of constants
 * and those that searches found (CMA-ES over all of them, seeds 1-60, for the least regret within
 * 1, 1.1, 1.2, 1.3 and 2 times the bits of Table I); every baseline over its number of local steps
 * K and a constant of its own, at the best step size of a grid for each; FedAvg and FedPAQ also
 * with steps that decay and rounds that grow; CALM over its budgets with the constants of the
 * problem, and once without budget and constants. */
#ifndef TALLY_SERVICES_EXPERIMENT_FRONTIER_H
#define TALLY_SERVICES_EXPERIMENT_FRONTIER_H

#include "api/json/json.h"
#include "codec/buffer.h"
#include "services/experiment/sweep.h"

/* One algorithm with one set of parameters, on one problem, over all seeds. */
struct tally_frontier_point {
    const char *reading; /* "loud", "quiet" */
    double radius;       /* |x^(1)| */
    const struct tally_algorithm *algorithm;
    union tally_algorithm_params params; /* with the step size that was run */
    struct tally_budget budget;          /* of CALM; 0 = none */
    struct tally_summary regret;
    struct tally_mean_bits bits;
    struct tally_bit_pair counted; /* run.h */
    /* No point of the same method, with the same kind of schedule, has less regret and fewer
     * bits on this problem. */
    bool on_front;
};

/* The limits of CALM with a budget on one problem; see calm_plan.h. */
struct tally_frontier_limits {
    double shared_regret; /* if clients shared every query at no cost */
    double ideal_regret;  /* if the budget's bits were coded at the rates of information theory */
};
struct tally_frontier_limit {
    const char *reading;
    double radius;
    struct tally_budget budget;
    struct tally_frontier_limits limits;
};

struct tally_frontier {
    int64_t first_seed;
    size_t n_seeds;
    struct tally_frontier_point *points; /* by problem, method, schedule, bits and regret */
    size_t n_points;
    struct tally_frontier_limit *limits; /* problem by problem, by budget */
    size_t n_limits;
};

bool tally_frontier_has_optimizer(const struct tally_frontier_point *point);

/* The name of the point's algorithm, or of its server optimizer, such as "fedadam"; "ef21_rand_k"
 * for EF21 with random coordinates. */
const char *tally_frontier_method(const struct tally_frontier_point *point);

/* Whether the point's steps decay or its rounds grow. */
bool tally_frontier_is_scheduled(const struct tally_frontier_point *point);

/* The counted bits: up, per client, plus down. */
double tally_frontier_bits(const struct tally_frontier_point *point);

/* Of `config`, threads, watch and its context are used. Errors: OUT_OF_RANGE (too many seeds),
 * NO_MEMORY, CANCELLED. */
enum tally_status tally_frontier_run(int64_t first_seed, size_t n_seeds,
                                     const struct tally_sweep_config *config,
                                     struct tally_frontier *ret_frontier, struct tally_error *err);
void tally_frontier_fini(struct tally_frontier *frontier);

/* Sorts the points and sets their `on_front`. */
void tally_frontier_sort(struct tally_frontier *frontier);

/* ---- The points of the frontier as CSV and as JSON. tests/bench/frontier.py makes the
 * table and the plot from them. */

/* One line per point, with a header line. Errors: NO_MEMORY. */
enum tally_status tally_frontier_csv(const struct tally_frontier *frontier,
                                     struct tally_buffer *out);

/* {"experiment": "synthetic", "seeds": [...], "points": [{"reading", "radius", "algorithm",
 *  "parameters", "regret", "uplink", "downlink", "on_front"}],
 *  "limits": [{"reading", "radius", "uplink_bits", "downlink_bits", "ideal_regret",
 *  "shared_regret"}]}. Only points on a front are included. A point of CALM also has "budget" if
 * it ran with one. NULL when memory ran out. */
struct tally_json *tally_frontier_json(const struct tally_frontier *frontier);

#endif
