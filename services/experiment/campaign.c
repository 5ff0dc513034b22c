#include "services/experiment/campaign.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/base/word_list.h"
#include "services/experiment/forecast.h"

/* A run on MNIST takes seconds, so its grid is searched on only this many seeds. */
enum { MNIST_SEARCH_SEEDS = 2 };

static const char TUNED[] = "tuned";

const char *tally_campaign_row_name(const struct tally_campaign_row *row)
{
    return row->tuned ? TUNED : row->preset->name;
}

static bool is_wanted(const struct tally_campaign_config *config, const char *name)
{
    return config->only == NULL || tally_word_list_has(config->only, name, strlen(name));
}

static bool is_known(const struct tally_campaign_config *config, const char *name, size_t n)
{
    bool known = n == strlen(TUNED) && strncmp(name, TUNED, n) == 0;
    for (size_t i = 0; i < TALLY_N_PRESETS && !known; i++) {
        known = tally_preset_is_for(&TALLY_PRESETS[i], config->problem.kind) &&
                strlen(TALLY_PRESETS[i].name) == n && strncmp(TALLY_PRESETS[i].name, name, n) == 0;
    }
    return known;
}

static bool is_listed_before(enum tally_problem_kind kind, size_t index)
{
    for (size_t i = 0; i < index; i++) {
        if (tally_preset_is_for(&TALLY_PRESETS[i], kind) &&
            strcmp(TALLY_PRESETS[i].name, TALLY_PRESETS[index].name) == 0) {
            return true;
        }
    }
    return false;
}

/* "paper, paper_bits, auto, tuned" */
static void list_names(enum tally_problem_kind kind, char *ret_list, size_t capacity)
{
    size_t used = 0;
    for (size_t i = 0; i < TALLY_N_PRESETS && used < capacity; i++) {
        const struct tally_preset *preset = &TALLY_PRESETS[i];
        if (tally_preset_is_for(preset, kind) && !is_listed_before(kind, i)) {
            used += (size_t)snprintf(ret_list + used, capacity - used, "%s, ", preset->name);
        }
    }
    if (used < capacity) {
        snprintf(ret_list + used, capacity - used, "%s", TUNED);
    }
}

static enum tally_status check_names(const struct tally_campaign_config *config,
                                     struct tally_error *err)
{
    const char *list = config->only;
    size_t n;
    for (const char *at; (at = tally_word_list_next(&list, &n)) != NULL;) {
        if (!is_known(config, at, n)) {
            char names[128];
            list_names(config->problem.kind, names, sizeof names);
            return tally_fail(err, TALLY_INVALID_ARGUMENT, "preset",
                              "unknown preset \"%.*s\" for %s; choose from %s",
                              (int)(n < 60 ? n : 60), at,
                              tally_problem_experiment(&config->problem), names);
        }
    }
    return TALLY_OK;
}

static bool has_search(const struct tally_campaign_config *config,
                       const struct tally_preset *preset)
{
    return config->with_grid && preset->grid.factor > 0 && is_wanted(config, TUNED) &&
           tally_preset_is_for(preset, config->problem.kind);
}

/* Lists the presets to search for. With NULL it only counts them. */
static size_t list_searches(const struct tally_campaign_config *config,
                            const struct tally_preset **ret_presets)
{
    size_t n = 0;
    for (size_t i = 0; i < TALLY_N_PRESETS; i++) {
        if (has_search(config, &TALLY_PRESETS[i])) {
            if (ret_presets != NULL) {
                ret_presets[n] = &TALLY_PRESETS[i];
            }
            n++;
        }
    }
    return n;
}

/* Lists the rows without runs, algorithm by algorithm. The step sizes of tuned rows are set
 * later. */
static size_t list_rows(const struct tally_campaign_config *config,
                        struct tally_campaign_row *ret_rows)
{
    size_t n = 0;
    for (size_t i = 0; i < TALLY_N_PRESETS; i++) {
        const struct tally_preset *preset = &TALLY_PRESETS[i];
        if (!tally_preset_is_for(preset, config->problem.kind)) {
            continue;
        }
        const struct tally_campaign_row row = {
            .preset = preset, .step_size = tally_preset_step_size(preset), .planned_regret = NAN};
        if (is_wanted(config, preset->name)) {
            ret_rows[n++] = row;
        }
        if (has_search(config, preset)) {
            ret_rows[n] = row;
            ret_rows[n++].tuned = true;
        }
    }
    return n;
}

static struct tally_runner_item item_of(const struct tally_campaign *campaign, size_t row,
                                        size_t seed)
{
    return (struct tally_runner_item){.preset = campaign->rows[row].preset,
                                      .problem = &campaign->config.problem,
                                      .step_size = campaign->rows[row].step_size,
                                      .seed = seed,
                                      .place = &campaign->rows[row].runs[seed]};
}

static double planned_cost(const struct tally_campaign *campaign)
{
    double cost = 0;
    for (size_t i = 0; i < campaign->n_rows; i++) {
        const struct tally_campaign_row *row = &campaign->rows[i];
        const struct tally_runner_item item = item_of(campaign, i, 0);
        cost += (double)campaign->config.runner.n_seeds * tally_runner_cost(&item);
        if (row->tuned) {
            cost +=
                tally_search_cost(&campaign->config.problem, row->preset, campaign->n_search_seeds);
        }
    }
    return cost;
}

static enum tally_status run_searches(struct tally_campaign *campaign, struct tally_runner *runner,
                                      struct tally_error *err)
{
    const size_t n = list_searches(&campaign->config, NULL);
    const struct tally_preset **presets = calloc(n + 1, sizeof(struct tally_preset *));
    campaign->searches = calloc(n + 1, sizeof *campaign->searches);
    if (presets == NULL || campaign->searches == NULL) {
        free(presets);
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %zu searches", n);
    }
    list_searches(&campaign->config, presets);
    enum tally_status status = tally_search_run(runner, &campaign->config.problem, presets, n,
                                                campaign->n_search_seeds, campaign->searches, err);
    free(presets);
    if (status != TALLY_OK) {
        return status;
    }
    campaign->n_searches = n;
    for (size_t i = 0, s = 0; i < campaign->n_rows; i++) {
        if (campaign->rows[i].tuned) { /* rows and searches are in the same order */
            campaign->rows[i].step_size =
                campaign->searches[s].trials[campaign->searches[s].best].step_size;
            s++;
        }
    }
    return TALLY_OK;
}

static enum tally_status run_rows(struct tally_campaign *campaign, struct tally_runner *runner,
                                  struct tally_error *err)
{
    const size_t n_seeds = campaign->config.runner.n_seeds, n = campaign->n_rows * n_seeds;
    struct tally_runner_item *items = calloc(n > 0 ? n : 1, sizeof *items);
    if (items == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %zu runs", n);
    }
    for (size_t i = 0; i < n; i++) {
        items[i] = item_of(campaign, i / n_seeds, i % n_seeds);
    }
    enum tally_status status = tally_runner_run(runner, items, n, "runs", err);
    free(items);
    return status;
}

static void plan_rows(struct tally_campaign *campaign)
{
    for (size_t i = 0; i < campaign->n_rows; i++) {
        struct tally_campaign_row *row = &campaign->rows[i];
        const struct tally_job_spec spec =
            tally_preset_job(row->preset, &campaign->config.problem, row->step_size, 0);
        row->planned_regret = tally_forecast_regret(&spec);
    }
}

static enum tally_status make_rows(struct tally_campaign *campaign, struct tally_error *err)
{
    const size_t n_seeds = campaign->config.runner.n_seeds;
    campaign->rows = calloc(2 * TALLY_N_PRESETS, sizeof *campaign->rows);
    bool ok = campaign->rows != NULL;
    if (ok) {
        campaign->n_rows = list_rows(&campaign->config, campaign->rows);
    }
    for (size_t i = 0; ok && i < campaign->n_rows; i++) {
        campaign->rows[i].runs = calloc(n_seeds, sizeof *campaign->rows[i].runs);
        ok = campaign->rows[i].runs != NULL;
    }
    return ok ? TALLY_OK : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the rows");
}

enum tally_status tally_campaign_run(const struct tally_campaign_config *config,
                                     struct tally_campaign *ret_campaign, struct tally_error *err)
{
    struct tally_campaign campaign = {.config = *config, .n_search_seeds = config->runner.n_seeds};
    struct tally_runner *runner = NULL;
    if (config->problem.kind == TALLY_PROBLEM_MNIST &&
        campaign.n_search_seeds > MNIST_SEARCH_SEEDS) {
        campaign.n_search_seeds = MNIST_SEARCH_SEEDS;
    }
    enum tally_status status = check_names(config, err);
    if (status == TALLY_OK) {
        status = make_rows(&campaign, err);
    }
    if (status == TALLY_OK) {
        status = tally_runner_new(&config->runner, planned_cost(&campaign), &runner, err);
    }
    if (status == TALLY_OK) {
        status = run_searches(&campaign, runner, err);
    }
    if (status == TALLY_OK) {
        plan_rows(&campaign);
        status = run_rows(&campaign, runner, err);
    }
    tally_runner_free(runner);
    if (status != TALLY_OK) {
        tally_campaign_fini(&campaign);
        return status;
    }
    *ret_campaign = campaign;
    return TALLY_OK;
}

void tally_campaign_fini(struct tally_campaign *campaign)
{
    for (size_t i = 0; i < campaign->n_rows; i++) {
        for (size_t seed = 0;
             campaign->rows[i].runs != NULL && seed < campaign->config.runner.n_seeds; seed++) {
            tally_run_fini(&campaign->rows[i].runs[seed]);
        }
        free(campaign->rows[i].runs);
    }
    for (size_t i = 0; i < campaign->n_searches; i++) {
        tally_search_fini(&campaign->searches[i]);
    }
    free(campaign->rows);
    free(campaign->searches);
    *campaign = (struct tally_campaign){0};
}
