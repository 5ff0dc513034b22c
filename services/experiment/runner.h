/* runner: many runs over the same seeds, in parallel.
 *
 * Every seed has its own data. They are created when the first run needs them, shared read-only by
 * all runs of that seed, and freed after the last one. f(x*) is solved once per seed. A run is one
 * independent piece of work, so results do not depend on the number of threads. */
#ifndef TALLY_SERVICES_EXPERIMENT_RUNNER_H
#define TALLY_SERVICES_EXPERIMENT_RUNNER_H

#include <stdint.h>

#include "services/experiment/presets.h"
#include "services/experiment/run.h"

struct tally_runner_config {
    enum tally_problem_kind kind;
    int64_t first_seed;
    size_t n_seeds;
    const char *data_dir;
    unsigned threads;
    /* Called ten times a second with the share of all planned work that is done. Returning false
     * asks to stop. */
    bool (*watch)(void *context, double fraction, const char *what);
    void *context;
};

struct tally_runner;

/* Solves f(x*) of every seed. The config is copied, data_dir borrowed. Errors: INVALID_ARGUMENT
 * (data files, with a message that says how to get them), NO_MEMORY, CANCELLED. `planned_cost` is
 * the cost of the runs to come, so that `watch` is given the right fraction from the start.
 * tally_runner_plan() adds to it later. */
enum tally_status tally_runner_new(const struct tally_runner_config *config, double planned_cost,
                                   struct tally_runner **ret_runner, struct tally_error *err);
void tally_runner_free(struct tally_runner *runner);

void tally_runner_plan(struct tally_runner *runner, double cost);

struct tally_runner_item {
    const struct tally_preset *preset;
    const struct tally_problem *problem; /* of the runner's kind */
    double step_size;
    size_t seed;             /* 0 .. n_seeds - 1 */
    struct tally_run *place; /* receives the result, which the caller must fini */
};

/* What an item adds to the planned cost. */
double tally_runner_cost(const struct tally_runner_item *item);

/* Runs all items, sorted by seed first so that few data sets are in memory at a time. On failure
 * each place has a result or is unchanged. `what` is passed to `watch`. Errors: NO_MEMORY,
 * CANCELLED, those of a spec that is not valid. */
enum tally_status tally_runner_run(struct tally_runner *runner, struct tally_runner_item *items,
                                   size_t n, const char *what, struct tally_error *err);

#endif
