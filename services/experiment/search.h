/* search: the step size with the least mean regret, on a grid.
 *
 *     step = step size of [1] * factor^k,  k = first .. last
 *
 * so that the step size of [1] is always included. If the best one is at an edge of the grid, the
 * grid is widened there, at most six times, until it is not, and the report says so. An optimum
 * outside the grid would make the algorithm look worse than it is, and CEAL better.
 *
 *     regret   inf  90  60  70  95          best inside: done
 *     k         -2  -1   0   1   2
 *
 *     regret    40  50  60  70  95          best at the low edge: k = -5 .. -3 are run, too
 *     k         -2  -1   0   1   2
 *
 * A step size at which a run diverges has infinite regret, so that the search moves away from it.
 * All searches of a campaign share one batch of runs per widening: with n searches, g step sizes
 * and s seeds, n * g * s jobs keep the threads busy to the end. */
#ifndef TALLY_SERVICES_EXPERIMENT_SEARCH_H
#define TALLY_SERVICES_EXPERIMENT_SEARCH_H

#include "services/experiment/run.h"
#include "services/experiment/runner.h"

struct tally_trial {
    int exponent; /* k */
    double step_size;
    struct tally_summary regret;
};

enum tally_grid_edge { TALLY_EDGE_NONE, TALLY_EDGE_LOW, TALLY_EDGE_HIGH };

struct tally_search {
    const struct tally_preset *preset;
    struct tally_trial *trials; /* heap; by step size */
    size_t n_trials;
    size_t best; /* index of the least mean regret; the smallest step size among equals */
    bool widened_low, widened_high;
    enum tally_grid_edge edge; /* the edge where the best one still is after all widening */
};

/* The step size of a preset at exponent k. */
double tally_search_step_size(const struct tally_preset *preset, int exponent);

/* The index of the least mean regret, and the edge that it is at. Precondition: n >= 1. */
size_t tally_search_best(const struct tally_trial *trials, size_t n,
                         enum tally_grid_edge *ret_edge);

/* Searches for n presets at once over the first n_seeds seeds of the runner. The caller must fini
 * ret_searches[n]. Errors: those of tally_runner_run(). */
enum tally_status tally_search_run(struct tally_runner *runner, const struct tally_problem *problem,
                                   const struct tally_preset *const *presets, size_t n,
                                   size_t n_seeds, struct tally_search *ret_searches,
                                   struct tally_error *err);
void tally_search_fini(struct tally_search *search);

/* Cost of a search without widening, see tally_runner_plan(). */
double tally_search_cost(const struct tally_problem *problem, const struct tally_preset *preset,
                         size_t n_seeds);

#endif
