#include "services/cli/reproduce_table.h"

#include <math.h>

#include "services/base/text.h"
#include "services/base/text_table.h"

/* Large numbers of bits are rounded to whole bits. */
static void add_bits(struct tally_text_table *table, double bits)
{
    tally_text_table_printf(table, bits < 10000 && bits != floor(bits) ? "%.1f" : "%.0f", bits);
}

static void add_pair(struct tally_text_table *table, double up, double down)
{
    add_bits(table, up);
    add_bits(table, down);
}

static void add_name(struct tally_text_table *table, const struct tally_campaign_row *row)
{
    tally_text_table_add(table, row->preset->algorithm->name);
    tally_text_table_add(table, tally_campaign_row_name(row));
}

static void add_result(struct tally_text_table *table, const struct tally_campaign_row *row,
                       size_t n_seeds)
{
    const struct tally_summary regret = tally_summary_of_regret(row->runs, n_seeds);
    const struct tally_mean_bits bits = tally_summary_of_bits(row->runs, n_seeds);
    const struct tally_bit_pair counted = tally_summary_counted_bits(row->preset->algorithm, &bits);
    const struct tally_paper_bits *paper = &row->preset->paper;
    add_name(table, row);
    tally_text_table_printf(table, "%.4g", row->step_size);
    tally_text_table_printf(table, isfinite(regret.mean) ? "%.1f\t%.1f" : "diverged\t-",
                            regret.mean, regret.std);
    tally_text_table_printf(table, isfinite(row->planned_regret) ? "%.1f" : "-",
                            row->planned_regret);
    add_pair(table, counted.uplink, counted.downlink);
    add_pair(table, paper->uplink, paper->downlink);
    tally_text_table_printf(table, "%.3f\t%.3f", counted.uplink / paper->uplink,
                            counted.downlink / paper->downlink);
}

static void add_coded(struct tally_text_table *table, const struct tally_campaign_row *row,
                      size_t n_seeds)
{
    const struct tally_mean_bits bits = tally_summary_of_bits(row->runs, n_seeds);
    add_name(table, row);
    add_pair(table, bits.uplink.payload, bits.downlink.payload);
    add_pair(table, bits.uplink.control, bits.downlink.control);
    add_pair(table, bits.uplink.entropy_payload, bits.downlink.entropy_payload);
}

/* Two tables, because one with all columns would be wider than most terminals. */
static const struct part {
    const char *alignment; /* one letter per column */
    const char *headings;  /* two lines of them, cells separated by commas */
    void (*add_row)(struct tally_text_table *table, const struct tally_campaign_row *row,
                    size_t n_seeds);
} PARTS[] = {
    {"llrrrrrrrrrr",
     ",,,regret,,,bits,,paper,,ratio,,"
     "algorithm,preset,step size,mean,+- std,planned,up,down,up,down,up,down",
     add_result},
    {"llrrrrrr",
     ",,payload bits,,control bits,,entropy (est.),,"
     "algorithm,preset,up,down,up,down,up,down",
     add_coded},
};
enum { N_PARTS = sizeof PARTS / sizeof PARTS[0] };

static enum tally_status render_part(const struct part *part, const struct tally_campaign *campaign,
                                     struct tally_buffer *out)
{
    struct tally_text_table table;
    tally_text_table_init(&table, part->alignment, part->headings);
    for (size_t i = 0; i < campaign->n_rows; i++) {
        part->add_row(&table, &campaign->rows[i], campaign->config.runner.n_seeds);
    }
    const enum tally_status status = tally_text_table_end(&table, out);
    return status == TALLY_OK ? tally_buffer_append_text(out, "\n") : status;
}

static void put_title(const struct tally_campaign *campaign, struct tally_text *text)
{
    const struct tally_problem *problem = &campaign->config.problem;
    const struct tally_runner_config *runner = &campaign->config.runner;
    const long long first = runner->first_seed, last = first + (long long)runner->n_seeds - 1;
    tally_text_put(text, tally_problem_experiment(problem));
    if (tally_problem_reading(problem) != NULL) {
        tally_text_printf(text, ", %s reading, start radius %g", tally_problem_reading(problem),
                          problem->radius);
    }
    tally_text_printf(text, ", seeds %lld-%lld\n\n", first, last);
}

enum tally_status tally_reproduce_table_render(const struct tally_campaign *campaign,
                                               struct tally_buffer *out)
{
    struct tally_text text = {out, TALLY_OK};
    put_title(campaign, &text);
    for (size_t i = 0; text.status == TALLY_OK && i < N_PARTS; i++) {
        text.status = render_part(&PARTS[i], campaign, out);
    }
    tally_text_put(&text, "Bits are per client up and per broadcast down, over a whole job; means "
                          "over the runs.\n"
                          "bits: formula bits, as the paper counts; of calm those sent, payload "
                          "and control.\n"
                          "ratio: bits to the paper's, of ceal where the paper has no such "
                          "algorithm.\n"
                          "planned: the regret that calm's recursion expects before the job "
                          "starts.\n"
                          "entropy (est.): zero-order entropy of each message's levels, an "
                          "estimate of the best coder.\n");
    return text.status;
}

enum { TRIALS_PER_LINE = 5 }; /* 22 characters each at most */

static const char *edge_note(const struct tally_search *search)
{
    if (search->edge != TALLY_EDGE_NONE) {
        return "    (still at the edge of the grid)\n";
    }
    return search->widened_low    ? "    (grid extended downwards: the best was at its edge)\n"
           : search->widened_high ? "    (grid extended upwards: the best was at its edge)\n"
                                  : "";
}

static void put_search(const struct tally_search *search, struct tally_text *text)
{
    tally_text_printf(text, "  %s\n   ", search->preset->algorithm->name);
    for (size_t k = 0; k < search->n_trials; k++) {
        const struct tally_trial *trial = &search->trials[k];
        const char *mark = k == search->best ? "*" : "";
        if (isfinite(trial->regret.mean)) {
            tally_text_printf(text, " %s%.3g: %.4g%s", mark, trial->step_size, trial->regret.mean,
                              mark);
        } else {
            tally_text_printf(text, " %.3g: diverged", trial->step_size);
        }
        if (k + 1 < search->n_trials) {
            tally_text_put(text, k % TRIALS_PER_LINE == TRIALS_PER_LINE - 1 ? ",\n   " : ",");
        }
    }
    tally_text_printf(text, "\n%s", edge_note(search));
}

enum tally_status tally_reproduce_grids_render(const struct tally_campaign *campaign,
                                               struct tally_buffer *out)
{
    const long long first = campaign->config.runner.first_seed;
    struct tally_text text = {out, TALLY_OK};
    if (campaign->n_searches > 0) {
        tally_text_printf(&text,
                          "Grid of step sizes, mean regret over seeds %lld-%lld, best "
                          "between asterisks:\n",
                          first, first + (long long)campaign->n_search_seeds - 1);
    }
    for (size_t i = 0; i < campaign->n_searches; i++) {
        put_search(&campaign->searches[i], &text);
    }
    return text.status;
}
