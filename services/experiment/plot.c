#include "services/experiment/plot.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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

static const struct style *style_of(const struct tally_reproduction_row *row)
{
    static const struct style other = {NULL, "other", "#000000", false};
    for (size_t i = 0; i < N_STYLES; i++) {
        if (STYLES[i].algorithm == row->algorithm &&
            STYLES[i].is_compressed == row->trial->is_compressed) {
            return &STYLES[i];
        }
    }
    return &other;
}

static bool has_presets(const struct tally_algorithm *algorithm)
{
    return algorithm == &TALLY_CEAL || algorithm == &TALLY_CALM;
}

/* A preset whose step size was searched for: neither that of [1] nor the best of a grid. */
static bool is_found(const struct tally_reproduction_row *row)
{
    return !row->tuned && strcmp(row->preset, "paper") != 0;
}

/* Shows CEAL's presets that were searched for or, if there are none, all rows except the tuned
 * ones. */
static bool shows_ceal(const struct tally_reproduction *table,
                       const struct tally_reproduction_row *row)
{
    bool any_found = false;
    for (size_t i = 0; i < table->sweep->n_rows; i++) {
        const struct tally_reproduction_row *other = &table->rows[i];
        any_found = any_found || (other->algorithm == &TALLY_CEAL && is_found(other));
    }
    return any_found ? is_found(row) : !row->tuned;
}

bool tally_plot_shows(const struct tally_reproduction *table, size_t row)
{
    const struct tally_reproduction_row *rows = table->rows;
    const double regret = rows[row].regret.mean;
    if (!isfinite(regret)) {
        return false;
    }
    if (rows[row].algorithm == &TALLY_CEAL) {
        return shows_ceal(table, &rows[row]);
    }
    if (rows[row].algorithm == &TALLY_CALM) {
        return true;
    }
    for (size_t i = 0; i < table->sweep->n_rows; i++) {
        const double other = rows[i].regret.mean;
        if (i != row && style_of(&rows[i]) == style_of(&rows[row]) &&
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

static struct look look_of(const struct tally_reproduction *table, size_t row)
{
    static const char *const ceal_colours[] = {"#d55e00", "#000000", "#56b4e9", "#999999"};
    static const char *const calm_colours[] = {"#117733", "#882255", "#332288", "#999933"};
    const struct tally_algorithm *algorithm = table->rows[row].algorithm;
    const struct style *style = style_of(&table->rows[row]);
    struct look look = {.colour = style->colour};
    int n = style->algorithm != NULL ? (int)(style - STYLES) : 0;
    if (has_presets(algorithm)) {
        int n_before = 0;
        for (size_t i = 0; i < row; i++) {
            n_before += table->rows[i].algorithm == algorithm && tally_plot_shows(table, i);
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
static void put_label(const struct tally_reproduction_row *row, struct tally_text *text)
{
    if (has_presets(row->algorithm)) {
        tally_text_printf(text, "%s %s", style_of(row)->title, row->preset);
    } else {
        tally_text_printf(text, "%s, step %.3g", style_of(row)->title, row->step_size);
    }
}

enum tally_status tally_plot_curves_csv(const struct tally_reproduction *table,
                                        struct tally_buffer *out)
{
    const double horizon = (double)table->rows[0].trial->horizon;
    struct tally_text text = {out, TALLY_OK};
    tally_text_put(&text, "time_step");
    for (size_t i = 0; i < table->sweep->n_rows; i++) {
        const char *algorithm = table->rows[i].algorithm->name, *name = table->rows[i].preset;
        tally_text_printf(&text, ",%s %s mean,%s %s std", algorithm, name, algorithm, name);
    }
    for (int point = 0; point <= N_CURVE_POINTS; point++) {
        const double time_step = horizon * point / N_CURVE_POINTS;
        tally_text_printf(&text, "\n%.9g", time_step);
        for (size_t i = 0; i < table->sweep->n_rows; i++) {
            const struct tally_sweep_trial *trial = table->rows[i].trial;
            const struct tally_summary regret =
                tally_summary_of_regret_at(trial->runs, trial->n_runs, time_step);
            tally_text_printf(&text, isfinite(regret.mean) ? ",%.9g,%.9g" : ",,", regret.mean,
                              regret.std);
        }
    }
    tally_text_put(&text, "\n");
    return text.status;
}

/* One element of a plot command, for one row. */
typedef void put_row_fn(const struct tally_reproduction *table, size_t row,
                        struct tally_text *text);

/* Writes the elements of all rows that are shown. *lead is written before the next one. */
static void put_rows(const struct tally_reproduction *table, put_row_fn *put, const char **lead,
                     struct tally_text *text)
{
    for (size_t i = 0; i < table->sweep->n_rows; i++) {
        if (tally_plot_shows(table, i)) {
            tally_text_put(text, *lead);
            put(table, i, text);
            *lead = ", \\\n     ";
        }
    }
}

static void put_titled(const struct tally_reproduction *table, size_t row, struct tally_text *text)
{
    tally_text_put(text, " title \"");
    put_label(&table->rows[row], text);
    tally_text_put(text, "\"");
}

static void put_band(const struct tally_reproduction *table, size_t row, struct tally_text *text)
{
    const size_t mean = 2 + 2 * row;
    tally_text_printf(
        text,
        "\"curves.csv\" skip 1 using 1:($%zu-$%zu):($%zu+$%zu) with filledcurves fc rgb \"%s\" "
        "fs transparent solid 0.15 noborder notitle",
        mean, mean + 1, mean, mean + 1, look_of(table, row).colour);
}

static void put_line(const struct tally_reproduction *table, size_t row, struct tally_text *text)
{
    const struct look look = look_of(table, row);
    tally_text_printf(text,
                      "\"curves.csv\" skip 1 using 1:%zu with lines lw %d dt %d lc rgb \"%s\"",
                      2 + 2 * row, look.dashes == 1 ? 4 : 3, look.dashes, look.colour);
    put_titled(table, row, text);
}

static void put_hollow(const struct tally_reproduction *table, size_t row, struct tally_text *text)
{
    const struct look look = look_of(table, row);
    tally_text_printf(text,
                      "\"rows.csv\" skip 1 every ::%zu::%zu using ($9+$12+$15+$16):5 with points "
                      "pt %d ps 1.6 lw 1.5 lc rgb \"%s\" notitle",
                      row, row, look.hollow, look.colour);
}

static void put_filled(const struct tally_reproduction *table, size_t row, struct tally_text *text)
{
    const struct look look = look_of(table, row);
    tally_text_printf(text,
                      "\"rows.csv\" skip 1 every ::%zu::%zu using ($17+$18):5:6 with yerrorbars "
                      "pt %d ps 1.6 lw 1.5 lc rgb \"%s\"",
                      row, row, look.filled, look.colour);
    put_titled(table, row, text);
}

/* Draws the plot on one kind of terminal: first the lower layer, then the upper one. */
static void put_plot(const struct tally_reproduction *table, const char *terminal,
                     put_row_fn *below, put_row_fn *above, struct tally_text *text)
{
    const char *lead = "plot ";
    tally_text_put(text, terminal);
    put_rows(table, below, &lead, text);
    put_rows(table, above, &lead, text);
    tally_text_put(text, "\n");
}

static enum tally_status write_script(const struct tally_reproduction *table, const char *name,
                                      const char *axes, put_row_fn *below, put_row_fn *above,
                                      struct tally_buffer *out)
{
    struct tally_text text = {out, TALLY_OK};
    char terminal[256], title[256];
    tally_reproduction_title(table->sweep, " to ", title, sizeof title);
    tally_text_put(&text, "set encoding utf8\nset datafile separator comma\nset title \"");
    tally_text_put(&text, title);
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
    put_plot(table, terminal, below, above, &text);
    snprintf(terminal, sizeof terminal,
             "set terminal pngcairo size 1060,520 font \"sans,15\" background \"white\" "
             "noenhanced\nset output \"%s.png\"\n",
             name);
    put_plot(table, terminal, below, above, &text);
    tally_text_put(&text, "unset output\n");
    return text.status;
}

enum tally_status tally_plot_regret_script(const struct tally_reproduction *table,
                                           struct tally_buffer *out)
{
    return write_script(
        table, "regret",
        "set xlabel \"time step\"\n"
        "set ylabel \"cumulative regret, mean and std\"\n"
        "set yrange [0:*]\nset rmargin 33\nset key outside right top reverse Left samplen 3\n",
        put_band, put_line, out);
}

enum tally_status tally_plot_bits_script(const struct tally_reproduction *table,
                                         struct tally_buffer *out)
{
    return write_script(table, "bits",
                        "set xlabel \"bits up per client, and down (hollow: entropy)\"\n"
                        "set ylabel \"cumulative regret at the horizon\"\n"
                        "set logscale x\nset yrange [0:*]\n"
                        "set xtics format \"%.0s%c\"\n"
                        "set rmargin 33\nset key outside right top reverse Left samplen 1\n",
                        put_hollow, put_filled, out);
}
