#include "services/experiment/campaign_report.h"

#include <math.h>

#include "services/base/text.h"

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
        const struct tally_bit_pair counted =
            tally_summary_counted_bits(row->preset->algorithm, &bits);
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
