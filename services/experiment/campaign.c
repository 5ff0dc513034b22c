#include "services/experiment/campaign.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/algorithms/calm.h"
#include "services/algorithms/calm/calm_plan.h"
#include "services/base/text.h"

/* The cumulative regret R(T) predicted for a valid spec. NaN for other algorithms, and for CALM
 * without a budget or with constants to estimate. */
static double tally_forecast_regret(const struct tally_job_spec *spec);

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

static double tally_forecast_regret(const struct tally_job_spec *spec)
{
    const struct tally_setting setting = tally_job_spec_setting(spec);
    if (tally_job_spec_algorithm(spec) != &TALLY_CALM || !calm_is_planned(&setting)) {
        return NAN;
    }
    struct tally_calm_schedule schedule;
    struct tally_calm_forecast forecast;
    calm_make_schedule(&setting, &schedule);
    calm_forecast(&setting, &schedule, &forecast);
    return forecast.regret;
}

struct tally_forecast_limits tally_forecast_limits_of(const struct tally_job_spec *spec)
{
    const struct tally_setting setting = tally_job_spec_setting(spec);
    const struct tally_calm_constants constants = calm_known_constants(&setting);
    const struct tally_calm_budget budget = {.uplink_bits = (double)spec->budget.uplink_bits,
                                             .downlink_bits = (double)spec->budget.downlink_bits};
    return (struct tally_forecast_limits){.shared_regret = tally_calm_shared_regret(&constants),
                                          .ideal_regret =
                                              tally_calm_ideal_regret(&constants, &budget)};
}

struct tally_json *tally_report_checked(struct tally_json *json, bool is_whole)
{
    if (!is_whole) {
        tally_json_free(json);
        return NULL;
    }
    return json;
}

struct tally_json *tally_report_bits(const struct tally_run_bits *bits)
{
    struct tally_json *json = tally_json_object();
    return tally_report_checked(
        json, tally_json_set_real(json, "formula", bits->formula) &&
                  tally_json_set_real(json, "payload", bits->payload) &&
                  tally_json_set_real(json, "control", bits->control) &&
                  tally_json_set_real(json, "entropy_payload", bits->entropy_payload));
}

static struct tally_json *pair_json(const char *key_a, double a, const char *key_b, double b)
{
    struct tally_json *json = tally_json_object();
    return tally_report_checked(json, tally_json_set_real(json, key_a, a) &&
                                          tally_json_set_real(json, key_b, b));
}

struct tally_json *tally_report_regret(const struct tally_summary *regret)
{
    return pair_json("mean", regret->mean, "std", regret->std);
}

static struct tally_json *row_json(const struct tally_campaign_row *row, size_t n_seeds)
{
    const struct tally_summary regret = tally_summary_of_regret(row->runs, n_seeds);
    const struct tally_mean_bits bits = tally_summary_of_bits(row->runs, n_seeds);
    const struct tally_paper_bits *paper = &row->preset->paper;
    struct tally_json *json = tally_json_object();
    bool ok = tally_json_set_text(json, "algorithm", row->preset->algorithm->name) &&
              tally_json_set_text(json, "preset", tally_campaign_row_name(row)) &&
              tally_json_set_real(json, "step_size", row->step_size) &&
              tally_json_set_bool(json, "tuned", row->tuned) &&
              tally_json_set(json, "regret", tally_report_regret(&regret)) &&
              tally_json_set_real(json, "planned_regret", row->planned_regret) &&
              tally_json_set(json, "uplink", tally_report_bits(&bits.uplink)) &&
              tally_json_set(json, "downlink", tally_report_bits(&bits.downlink)) &&
              tally_json_set(json, "paper",
                             pair_json("uplink", paper->uplink, "downlink", paper->downlink));
    return tally_report_checked(json, ok);
}

struct tally_json *tally_report_seeds(int64_t first, size_t n)
{
    struct tally_json *seeds = tally_json_array();
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++) {
        ok = tally_json_append_integer(seeds, first + (int64_t)i);
    }
    return tally_report_checked(seeds, ok);
}

struct tally_json *tally_report_json(const struct tally_campaign *campaign)
{
    const struct tally_runner_config *runner = &campaign->config.runner;
    struct tally_json *json = tally_json_object(), *rows = tally_json_array();
    bool ok =
        tally_json_set_text(json, "experiment",
                            tally_problem_experiment(&campaign->config.problem)) &&
        tally_json_set(json, "seeds", tally_report_seeds(runner->first_seed, runner->n_seeds));
    for (size_t i = 0; ok && i < campaign->n_rows; i++) {
        ok = tally_json_append(rows, row_json(&campaign->rows[i], runner->n_seeds));
    }
    ok = tally_json_set(json, "rows", rows) && ok;
    return tally_report_checked(json, ok);
}

enum tally_status tally_report_rows_csv(const struct tally_campaign *campaign,
                                        struct tally_buffer *out)
{
    const size_t n_seeds = campaign->config.runner.n_seeds;
    struct tally_text text = {out, TALLY_OK};
    tally_text_put(&text, "algorithm,preset,step_size,tuned,regret_mean,regret_std,"
                          "uplink_formula,uplink_payload,uplink_entropy_payload,"
                          "downlink_formula,downlink_payload,downlink_entropy_payload,"
                          "paper_uplink,paper_downlink,uplink_control,downlink_control,"
                          "uplink_bits,downlink_bits,planned_regret\n");
    for (size_t i = 0; i < campaign->n_rows; i++) {
        const struct tally_campaign_row *row = &campaign->rows[i];
        const struct tally_summary regret = tally_summary_of_regret(row->runs, n_seeds);
        const struct tally_mean_bits bits = tally_summary_of_bits(row->runs, n_seeds);
        const struct tally_bit_pair counted = tally_preset_counted_bits(row->preset, &bits);
        tally_text_printf(
            &text, "%s,%s,%.12g,%d,%.12g,%.12g,%.12g,%.12g,%.12g,%.12g,%.12g,%.12g,%.12g,%.12g",
            row->preset->algorithm->name, tally_campaign_row_name(row), row->step_size, row->tuned,
            regret.mean, regret.std, bits.uplink.formula, bits.uplink.payload,
            bits.uplink.entropy_payload, bits.downlink.formula, bits.downlink.payload,
            bits.downlink.entropy_payload, row->preset->paper.uplink, row->preset->paper.downlink);
        tally_text_printf(&text, ",%.12g,%.12g,%.12g,%.12g", bits.uplink.control,
                          bits.downlink.control, counted.uplink, counted.downlink);
        tally_text_printf(&text, isnan(row->planned_regret) ? ",\n" : ",%.12g\n",
                          row->planned_regret);
    }
    return text.status;
}

enum tally_status tally_report_grids_csv(const struct tally_campaign *campaign,
                                         struct tally_buffer *out)
{
    struct tally_text text = {out, TALLY_OK};
    tally_text_put(&text, "algorithm,step_size,regret_mean,regret_std,best\n");
    for (size_t i = 0; i < campaign->n_searches; i++) {
        const struct tally_search *search = &campaign->searches[i];
        for (size_t k = 0; k < search->n_trials; k++) {
            const struct tally_trial *trial = &search->trials[k];
            tally_text_printf(&text, "%s,%.12g,%.12g,%.12g,%d\n", search->preset->algorithm->name,
                              trial->step_size, trial->regret.mean, trial->regret.std,
                              k == search->best);
        }
    }
    return text.status;
}
