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

#include "api/json/json.h"
#include "codec/buffer.h"
#include "services/experiment/runner.h"
#include "services/experiment/search.h"
#include "services/job/job_spec.h"

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
    double planned_regret;  /* see campaign.h; NaN: not CALM, or not predictable */
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

/* ---- What the recursion of CALM (calm_model.h) predicts for a job before it runs.
 *
 * The prediction is for the schedule that the job starts with. While the job runs, its grids become
 * coarser or finer to use up the budget, which the prediction ignores. */

/* The limit lines of a CALM job that has a budget both ways and knows its constants; see
 * calm_plan.h. */
struct tally_forecast_limits {
    double shared_regret; /* if clients shared every query at no cost */
    double ideal_regret;  /* if the budget's bits were coded at the rates of information theory */
};
struct tally_forecast_limits tally_forecast_limits_of(const struct tally_job_spec *spec);

/* ---- The results of a campaign, as JSON and as CSV. */

/* {"experiment", "seeds": [...], "rows": [{"algorithm", "preset", "step_size", "tuned",
 *  "regret": {"mean", "std"}, "planned_regret", "uplink": {"formula", "payload", "control",
 *  "entropy_payload"}, "downlink": same, "paper": {"uplink", "downlink"}}]}: bits per client up and
 * per broadcast down, means over runs; entropy_payload is an estimate; null stands for the regret
 * of runs that diverged, and for a regret that is not planned. NULL when memory ran out. */
struct tally_json *tally_report_json(const struct tally_campaign *campaign);

/* Returns `json` if it is complete. Otherwise frees it and returns NULL. */
struct tally_json *tally_report_checked(struct tally_json *json, bool is_whole);
/* Parts that the frontier's JSON shares. NULL when memory ran out. */
struct tally_json *tally_report_seeds(int64_t first, size_t n);
struct tally_json *tally_report_bits(const struct tally_run_bits *bits);
struct tally_json *tally_report_regret(const struct tally_summary *regret);

/* The same rows as CSV with a header line, and the grids. Errors: NO_MEMORY. */
enum tally_status tally_report_rows_csv(const struct tally_campaign *campaign,
                                        struct tally_buffer *out);
enum tally_status tally_report_grids_csv(const struct tally_campaign *campaign,
                                         struct tally_buffer *out);

#endif
