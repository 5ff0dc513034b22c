#include "services/experiment/plot.h"

#include <math.h>
#include <stdio.h>

#include "services/base/text.h"

enum { N_CURVE_POINTS = 200 };

struct style {
    const struct tally_algorithm *algorithm;
    const char *title, *colour;
    bool is_compressed;
};

static const struct style STYLES[] = {
    {&TALLY_MINIBATCH_SGD, "Minibatch-SGD", "#0072b2", false},
    {&TALLY_FEDAVG, "FedAvg", "#e69f00", false},
    {&TALLY_FEDPAQ, "FedPAQ", "#009e73", false},
    {&TALLY_FEDCOM, "FedCOM", "#cc79a7", false},
    {&TALLY_CEAL, "CEAL", "#d55e00", false},
    {&TALLY_CALM, "CALM", "#117733", false},
    {&TALLY_FEDAVG, "FedAvg, compressed", "#6a3d9a", true},
};
enum { N_STYLES = sizeof STYLES / sizeof STYLES[0] };

static const struct style *style_of(const struct tally_preset *preset)
{
    static const struct style other = {NULL, "other", "#000000", false};
    for (size_t i = 0; i < N_STYLES; i++) {
        if (STYLES[i].algorithm == preset->algorithm &&
            STYLES[i].is_compressed == tally_preset_is_compressed(preset)) {
            return &STYLES[i];
        }
    }
    return &other;
}

static double final_regret(const struct tally_campaign *campaign, size_t row)
{
    return tally_summary_of_regret(campaign->rows[row].runs, campaign->config.runner.n_seeds).mean;
}

static bool has_presets(const struct tally_algorithm *algorithm)
{
    return algorithm == &TALLY_CEAL || algorithm == &TALLY_CALM;
}

/* Shows CEAL's presets with a fixed step size or, if there are none, all rows except the tuned
 * ones. */
static bool shows_ceal(const struct tally_campaign *campaign, const struct tally_campaign_row *row)
{
    bool any_fixed = false;
    for (size_t i = 0; i < campaign->n_rows; i++) {
        const struct tally_preset *preset = campaign->rows[i].preset;
        any_fixed = any_fixed || (preset->algorithm == &TALLY_CEAL && preset->grid.factor <= 0);
    }
    return any_fixed ? row->preset->grid.factor <= 0 : !row->tuned;
}

bool tally_plot_shows(const struct tally_campaign *campaign, size_t row)
{
    const struct tally_campaign_row *rows = campaign->rows;
    const double regret = final_regret(campaign, row);
    if (!isfinite(regret)) {
        return false;
    }
    if (rows[row].preset->algorithm == &TALLY_CEAL) {
        return shows_ceal(campaign, &rows[row]);
    }
    if (rows[row].preset->algorithm == &TALLY_CALM) {
        return true;
    }
    for (size_t i = 0; i < campaign->n_rows; i++) {
        const double other = final_regret(campaign, i);
        if (i != row && style_of(rows[i].preset) == style_of(rows[row].preset) &&
            (other < regret || (other <= regret && i < row))) {
            return false;
        }
    }
    return true;
}

/* How a row is drawn. A preset of CEAL and one of CALM may share a name and need different
 * looks. */
struct look {
    const char *colour;
    int dashes, filled, hollow; /* gnuplot's numbers */
};

static struct look look_of(const struct tally_campaign *campaign, size_t row)
{
    static const char *const ceal_colours[] = {"#d55e00", "#000000", "#56b4e9", "#999999"};
    static const char *const calm_colours[] = {"#117733", "#882255", "#332288", "#999933"};
    const struct tally_algorithm *algorithm = campaign->rows[row].preset->algorithm;
    const struct style *style = style_of(campaign->rows[row].preset);
    struct look look = {.colour = style->colour};
    int n = style->algorithm != NULL ? (int)(style - STYLES) : 0;
    if (has_presets(algorithm)) {
        int n_before = 0;
        for (size_t i = 0; i < row; i++) {
            n_before +=
                campaign->rows[i].preset->algorithm == algorithm && tally_plot_shows(campaign, i);
        }
        look.colour = (algorithm == &TALLY_CEAL ? ceal_colours : calm_colours)[n_before % 4];
        look.dashes = 1;
        n += n_before;
    } else {
        look.dashes = 2 + n;
    }
    look.hollow = 4 + 2 * (n % 6); /* 4, 6, ... 14: square, circle, triangles, diamond, pentagon */
    look.filled = look.hollow + 1;
    return look;
}

/* "FedAvg, step 0.0134", "CEAL paper_bits" */
static void put_label(const struct tally_campaign_row *row, struct tally_text *text)
{
    if (has_presets(row->preset->algorithm)) {
        tally_text_printf(text, "%s %s", style_of(row->preset)->title,
                          tally_campaign_row_name(row));
    } else {
        tally_text_printf(text, "%s, step %.3g", style_of(row->preset)->title, row->step_size);
    }
}

enum tally_status tally_plot_curves_csv(const struct tally_campaign *campaign,
                                        struct tally_buffer *out)
{
    const struct tally_job_spec job = tally_problem_job(&campaign->config.problem);
    struct tally_text text = {out, TALLY_OK};
    tally_text_put(&text, "time_step");
    for (size_t i = 0; i < campaign->n_rows; i++) {
        const char *algorithm = campaign->rows[i].preset->algorithm->name;
        const char *name = tally_campaign_row_name(&campaign->rows[i]);
        tally_text_printf(&text, ",%s %s mean,%s %s std", algorithm, name, algorithm, name);
    }
    for (int point = 0; point <= N_CURVE_POINTS; point++) {
        const double time_step = (double)job.horizon * point / N_CURVE_POINTS;
        tally_text_printf(&text, "\n%.9g", time_step);
        for (size_t i = 0; i < campaign->n_rows; i++) {
            const struct tally_summary regret = tally_summary_of_regret_at(
                campaign->rows[i].runs, campaign->config.runner.n_seeds, time_step);
            tally_text_printf(&text, isfinite(regret.mean) ? ",%.9g,%.9g" : ",,", regret.mean,
                              regret.std);
        }
    }
    tally_text_put(&text, "\n");
    return text.status;
}

static void put_title(const struct tally_campaign *campaign, struct tally_text *text)
{
    const struct tally_problem *problem = &campaign->config.problem;
    const char *reading = tally_problem_reading(problem);
    const long long first = campaign->config.runner.first_seed;
    const long long last = first + (long long)campaign->config.runner.n_seeds - 1;
    tally_text_put(text, tally_problem_experiment(problem));
    if (reading != NULL) {
        tally_text_printf(text, ", %s reading, start radius %g", reading, problem->radius);
    }
    tally_text_printf(text, ", seeds %lld to %lld", first, last);
}

/* One element of a plot command, for one row. */
typedef void put_row_fn(const struct tally_campaign *campaign, size_t row, struct tally_text *text);

/* Writes the elements of all rows that are shown. *lead is written before the next one. */
static void put_rows(const struct tally_campaign *campaign, put_row_fn *put, const char **lead,
                     struct tally_text *text)
{
    for (size_t i = 0; i < campaign->n_rows; i++) {
        if (tally_plot_shows(campaign, i)) {
            tally_text_put(text, *lead);
            put(campaign, i, text);
            *lead = ", \\\n     ";
        }
    }
}

static void put_titled(const struct tally_campaign *campaign, size_t row, struct tally_text *text)
{
    tally_text_put(text, " title \"");
    put_label(&campaign->rows[row], text);
    tally_text_put(text, "\"");
}

static void put_band(const struct tally_campaign *campaign, size_t row, struct tally_text *text)
{
    const size_t mean = 2 + 2 * row;
    tally_text_printf(
        text,
        "\"curves.csv\" skip 1 using 1:($%zu-$%zu):($%zu+$%zu) with filledcurves fc rgb \"%s\" "
        "fs transparent solid 0.15 noborder notitle",
        mean, mean + 1, mean, mean + 1, look_of(campaign, row).colour);
}

static void put_line(const struct tally_campaign *campaign, size_t row, struct tally_text *text)
{
    const struct look look = look_of(campaign, row);
    tally_text_printf(text,
                      "\"curves.csv\" skip 1 using 1:%zu with lines lw %d dt %d lc rgb \"%s\"",
                      2 + 2 * row, look.dashes == 1 ? 4 : 3, look.dashes, look.colour);
    put_titled(campaign, row, text);
}

static void put_hollow(const struct tally_campaign *campaign, size_t row, struct tally_text *text)
{
    const struct look look = look_of(campaign, row);
    tally_text_printf(text,
                      "\"rows.csv\" skip 1 every ::%zu::%zu using ($9+$12+$15+$16):5 with points "
                      "pt %d ps 1.6 lw 1.5 lc rgb \"%s\" notitle",
                      row, row, look.hollow, look.colour);
}

static void put_filled(const struct tally_campaign *campaign, size_t row, struct tally_text *text)
{
    const struct look look = look_of(campaign, row);
    tally_text_printf(text,
                      "\"rows.csv\" skip 1 every ::%zu::%zu using ($17+$18):5:6 with yerrorbars "
                      "pt %d ps 1.6 lw 1.5 lc rgb \"%s\"",
                      row, row, look.filled, look.colour);
    put_titled(campaign, row, text);
}

/* Draws the plot on one kind of terminal: first the lower layer, then the upper one. */
static void put_plot(const struct tally_campaign *campaign, const char *terminal, put_row_fn *below,
                     put_row_fn *above, struct tally_text *text)
{
    const char *lead = "plot ";
    tally_text_put(text, terminal);
    put_rows(campaign, below, &lead, text);
    put_rows(campaign, above, &lead, text);
    tally_text_put(text, "\n");
}

static enum tally_status write_script(const struct tally_campaign *campaign, const char *name,
                                      const char *axes, put_row_fn *below, put_row_fn *above,
                                      struct tally_buffer *out)
{
    struct tally_text text = {out, TALLY_OK};
    char terminal[256];
    tally_text_put(&text, "set encoding utf8\nset datafile separator comma\nset title \"");
    put_title(campaign, &text);
    tally_text_printf(&text,
                      "\"\n"
                      "set border 3 lw 1 lc rgb \"#444444\"\n"
                      "set tics nomirror out textcolor rgb \"#222222\"\n"
                      "set grid lc rgb \"#dddddd\" lw 1\n%s",
                      axes);
    snprintf(terminal, sizeof terminal,
             "set terminal svg size 1060,520 font \"sans-serif,15\" background \"white\" "
             "noenhanced\nset output \"%s.svg\"\n",
             name);
    put_plot(campaign, terminal, below, above, &text);
    snprintf(terminal, sizeof terminal,
             "set terminal pngcairo size 1060,520 font \"sans,15\" background \"white\" "
             "noenhanced\nset output \"%s.png\"\n",
             name);
    put_plot(campaign, terminal, below, above, &text);
    tally_text_put(&text, "unset output\n");
    return text.status;
}

enum tally_status tally_plot_regret_script(const struct tally_campaign *campaign,
                                           struct tally_buffer *out)
{
    return write_script(
        campaign, "regret",
        "set xlabel \"time step\"\n"
        "set ylabel \"cumulative regret, mean and std\"\n"
        "set yrange [0:*]\nset rmargin 33\nset key outside right top reverse Left samplen 3\n",
        put_band, put_line, out);
}

enum tally_status tally_plot_bits_script(const struct tally_campaign *campaign,
                                         struct tally_buffer *out)
{
    return write_script(campaign, "bits",
                        "set xlabel \"bits up per client, and down (hollow: entropy)\"\n"
                        "set ylabel \"cumulative regret at the horizon\"\n"
                        "set logscale x\nset yrange [0:*]\n"
                        "set xtics format \"%.0s%c\"\n"
                        "set rmargin 33\nset key outside right top reverse Left samplen 1\n",
                        put_hollow, put_filled, out);
}
