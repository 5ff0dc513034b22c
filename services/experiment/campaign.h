/* campaign: one experiment of [1] from end to end, the rows of Table I.
 *
 * Every preset is run at its own step size, and every preset that has a grid also at the grid's
 * best step size ("tuned"), over the same seeds:
 *
 *     presets  -->  searches (search.h)  -->  rows: preset x {own, tuned}  -->  runs[row][seed]
 *
 * Runs are jobs of the engine, in process. A pool of threads executes them in any order, and each
 * writes only to its own place, so results do not depend on the number of threads. The runs of one
 * seed share its data and the minimum f(x*). */
#ifndef TALLY_SERVICES_EXPERIMENT_CAMPAIGN_H
#define TALLY_SERVICES_EXPERIMENT_CAMPAIGN_H

#include "services/experiment/runner.h"
#include "services/experiment/search.h"

struct tally_campaign_config {
    struct tally_runner_config runner;
    struct tally_problem problem;
    bool with_grid;
    /* Names of presets to run, separated by commas; NULL = all. "tuned" = at the grid's best step
     * size. */
    const char *only;
};

/* One algorithm with one set of parameters, over all seeds. */
struct tally_campaign_row {
    const struct tally_preset *preset;
    double step_size;
    bool tuned;             /* the step size is the grid's best */
    struct tally_run *runs; /* [n_seeds], heap */
    double planned_regret;  /* see forecast.h; NaN: not CALM, or not predictable */
};

struct tally_campaign {
    struct tally_campaign_config config;
    struct tally_campaign_row *rows;
    size_t n_rows;
    struct tally_search *searches;
    size_t n_searches;
    size_t n_search_seeds; /* searches use the first of the campaign's seeds */
};

/* "tuned", or the preset's name. */
const char *tally_campaign_row_name(const struct tally_campaign_row *row);

/* Errors: INVALID_ARGUMENT (no such preset, data files), NO_MEMORY, CANCELLED. */
enum tally_status tally_campaign_run(const struct tally_campaign_config *config,
                                     struct tally_campaign *ret_campaign, struct tally_error *err);
void tally_campaign_fini(struct tally_campaign *campaign);

#endif
