#include "services/experiment/campaigns/plot.h"

#include <math.h>

enum { N_CURVE_POINTS = 200 };

struct style {
    const struct tally_algorithm *algorithm;
    const char *title, *colour;
};

static const struct style STYLES[] = {
    {&TALLY_MINIBATCH_SGD, "Minibatch-SGD", "#0072b2"},
    {&TALLY_FEDAVG, "FedAvg", "#e69f00"},
    {&TALLY_FEDPAQ, "FedPAQ", "#009e73"},
    {&TALLY_FEDCOM, "FedCOM", "#cc79a7"},
    {&TALLY_CEAL, "CEAL", "#d55e00"},
};
enum { N_STYLES = sizeof STYLES / sizeof STYLES[0] };

static const struct style *style_of(const struct tally_algorithm *algorithm)
{
    static const struct style other = {NULL, "other", "#000000"};
    for (size_t i = 0; i < N_STYLES; i++) {
        if (STYLES[i].algorithm == algorithm) {
            return &STYLES[i];
        }
    }
    return &other;
}

const char *tally_plot_title(const struct tally_algorithm *algorithm)
{
    return style_of(algorithm)->title;
}

const char *tally_plot_colour(const struct tally_algorithm *algorithm)
{
    return style_of(algorithm)->colour;
}

static double final_regret(const struct tally_campaign *campaign, size_t row)
{
    return tally_summary_of_regret(campaign->rows[row].runs, campaign->config.runner.n_seeds).mean;
}

/* Of CEAL's presets those whose constants were chosen for something, if there are any. */
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
    for (size_t i = 0; i < campaign->n_rows; i++) {
        const double other = final_regret(campaign, i);
        if (i != row && rows[i].preset->algorithm == rows[row].preset->algorithm &&
            (other < regret || (other <= regret && i < row))) {
            return false;
        }
    }
    return true;
}

/* How a row is drawn. CEAL's presets share its name and need looks of their own. */
struct look {
    const char *colour;
    int dashes, filled, hollow; /* gnuplot's numbers */
};

static struct look look_of(const struct tally_campaign *campaign, size_t row)
{
    static const char *const colours[] = {"#d55e00", "#000000", "#56b4e9"};
    const struct tally_algorithm *algorithm = campaign->rows[row].preset->algorithm;
    const struct style *style = style_of(algorithm);
    struct look look = {.colour = style->colour};
    int n = style->algorithm != NULL ? (int)(style - STYLES) : 0;
    if (algorithm == &TALLY_CEAL) {
        int n_before = 0;
        for (size_t i = 0; i < row; i++) {
            n_before +=
                campaign->rows[i].preset->algorithm == algorithm && tally_plot_shows(campaign, i);
        }
        look.colour = colours[n_before % 3];
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
static enum tally_status print_label(const struct tally_campaign_row *row, struct tally_buffer *out)
{
    return row->preset->algorithm == &TALLY_CEAL
               ? tally_buffer_printf(out, "CEAL %s", tally_campaign_row_name(row))
               : tally_buffer_printf(out, "%s, step %.3g", tally_plot_title(row->preset->algorithm),
                                     row->step_size);
}

static enum tally_status print_curve_point(const struct tally_summary *regret,
                                           struct tally_buffer *out)
{
    return isfinite(regret->mean)
               ? tally_buffer_printf(out, ",%.9g,%.9g", regret->mean, regret->std)
               : tally_buffer_append_text(out, ",,");
}

enum tally_status tally_plot_curves_csv(const struct tally_campaign *campaign,
                                        struct tally_buffer *out)
{
    const struct tally_job_spec job = tally_problem_job(&campaign->config.problem);
    enum tally_status status = tally_buffer_append_text(out, "time_step");
    for (size_t i = 0; status == TALLY_OK && i < campaign->n_rows; i++) {
        const char *algorithm = campaign->rows[i].preset->algorithm->name;
        const char *name = tally_campaign_row_name(&campaign->rows[i]);
        status =
            tally_buffer_printf(out, ",%s %s mean,%s %s std", algorithm, name, algorithm, name);
    }
    for (int point = 0; status == TALLY_OK && point <= N_CURVE_POINTS; point++) {
        const double time_step = (double)job.horizon * point / N_CURVE_POINTS;
        status = tally_buffer_printf(out, "\n%.9g", time_step);
        for (size_t i = 0; status == TALLY_OK && i < campaign->n_rows; i++) {
            const struct tally_summary regret = tally_summary_of_regret_at(
                campaign->rows[i].runs, campaign->config.runner.n_seeds, time_step);
            status = print_curve_point(&regret, out);
        }
    }
    return status == TALLY_OK ? tally_buffer_append_text(out, "\n") : status;
}

enum tally_status tally_plot_begin(struct tally_buffer *out, const char *title)
{
    return tally_buffer_printf(out,
                               "set encoding utf8\n"
                               "set datafile separator comma\n"
                               "set title \"%s\"\n"
                               "set border 3 lw 1 lc rgb \"#444444\"\n"
                               "set tics nomirror out textcolor rgb \"#222222\"\n"
                               "set grid lc rgb \"#dddddd\" lw 1\n",
                               title);
}

enum tally_status tally_plot_end(struct tally_buffer *out, const char *name, int width, int height,
                                 const char *plot)
{
    return tally_buffer_printf(
        out,
        "set terminal svg size %d,%d font \"sans-serif,15\" background \"white\" noenhanced\n"
        "set output \"%s.svg\"\n%s"
        "set terminal pngcairo size %d,%d font \"sans,15\" background \"white\" noenhanced\n"
        "set output \"%s.png\"\n%s"
        "unset output\n",
        width, height, name, plot, width, height, name, plot);
}

static enum tally_status print_title(const struct tally_campaign *campaign,
                                     struct tally_buffer *out)
{
    const struct tally_problem *problem = &campaign->config.problem;
    const char *reading = tally_problem_reading(problem);
    const long long first = campaign->config.runner.first_seed;
    const long long last = first + (long long)campaign->config.runner.n_seeds - 1;
    enum tally_status status = tally_buffer_printf(out, "%s", tally_problem_experiment(problem));
    if (status == TALLY_OK && reading != NULL) {
        status =
            tally_buffer_printf(out, ", %s reading, start radius %g", reading, problem->radius);
    }
    if (status == TALLY_OK) {
        status = tally_buffer_printf(out, ", seeds %lld to %lld", first, last);
    }
    return status == TALLY_OK ? tally_buffer_append(out, "", 1) : status;
}

/* One element of a plot command, for one row. */
typedef enum tally_status print_row_fn(const struct tally_campaign *campaign, size_t row,
                                       struct tally_buffer *out);

/* The elements of all rows that are shown; *lead goes before the next one. */
static enum tally_status print_rows(const struct tally_campaign *campaign, print_row_fn *print,
                                    const char **lead, struct tally_buffer *out)
{
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; status == TALLY_OK && i < campaign->n_rows; i++) {
        if (tally_plot_shows(campaign, i)) {
            status = tally_buffer_append_text(out, *lead);
            status = status == TALLY_OK ? print(campaign, i, out) : status;
            *lead = ", \\\n     ";
        }
    }
    return status;
}

static enum tally_status print_titled(const struct tally_campaign *campaign, size_t row,
                                      struct tally_buffer *out)
{
    enum tally_status status = tally_buffer_append_text(out, " title \"");
    if (status == TALLY_OK) {
        status = print_label(&campaign->rows[row], out);
    }
    return status == TALLY_OK ? tally_buffer_append_text(out, "\"") : status;
}

static enum tally_status print_band(const struct tally_campaign *campaign, size_t row,
                                    struct tally_buffer *out)
{
    const size_t mean = 2 + 2 * row;
    return tally_buffer_printf(
        out,
        "\"curves.csv\" skip 1 using 1:($%zu-$%zu):($%zu+$%zu) with filledcurves fc rgb \"%s\" "
        "fs transparent solid 0.15 noborder notitle",
        mean, mean + 1, mean, mean + 1, look_of(campaign, row).colour);
}

static enum tally_status print_line(const struct tally_campaign *campaign, size_t row,
                                    struct tally_buffer *out)
{
    const struct look look = look_of(campaign, row);
    enum tally_status status = tally_buffer_printf(
        out, "\"curves.csv\" skip 1 using 1:%zu with lines lw %d dt %d lc rgb \"%s\"", 2 + 2 * row,
        look.dashes == 1 ? 4 : 3, look.dashes, look.colour);
    return status == TALLY_OK ? print_titled(campaign, row, out) : status;
}

static enum tally_status print_hollow(const struct tally_campaign *campaign, size_t row,
                                      struct tally_buffer *out)
{
    const struct look look = look_of(campaign, row);
    return tally_buffer_printf(out,
                               "\"rows.csv\" skip 1 every ::%zu::%zu using ($9+$12):5 with points "
                               "pt %d ps 1.6 lw 1.5 lc rgb \"%s\" notitle",
                               row, row, look.hollow, look.colour);
}

static enum tally_status print_filled(const struct tally_campaign *campaign, size_t row,
                                      struct tally_buffer *out)
{
    const struct look look = look_of(campaign, row);
    enum tally_status status = tally_buffer_printf(
        out,
        "\"rows.csv\" skip 1 every ::%zu::%zu using ($7+$10):5:6 with yerrorbars pt %d ps 1.6 "
        "lw 1.5 lc rgb \"%s\"",
        row, row, look.filled, look.colour);
    return status == TALLY_OK ? print_titled(campaign, row, out) : status;
}

/* The whole command, with its NUL: first what lies below, then what lies above. */
static enum tally_status print_plot(const struct tally_campaign *campaign, print_row_fn *below,
                                    print_row_fn *above, struct tally_buffer *out)
{
    const char *lead = "plot ";
    enum tally_status status = print_rows(campaign, below, &lead, out);
    if (status == TALLY_OK) {
        status = print_rows(campaign, above, &lead, out);
    }
    return status == TALLY_OK ? tally_buffer_append(out, "\n", 2) : status;
}

static enum tally_status print_script(const struct tally_campaign *campaign, const char *name,
                                      const char *axes, print_row_fn *below, print_row_fn *above,
                                      struct tally_buffer *out)
{
    struct tally_buffer title = {0}, plot = {0};
    enum tally_status status = print_title(campaign, &title);
    if (status == TALLY_OK) {
        status = print_plot(campaign, below, above, &plot);
    }
    if (status == TALLY_OK) {
        status = tally_plot_begin(out, (const char *)title.data);
    }
    if (status == TALLY_OK) {
        status = tally_buffer_append_text(out, axes);
    }
    if (status == TALLY_OK) {
        status = tally_plot_end(out, name, 1060, 520, (const char *)plot.data);
    }
    tally_buffer_fini(&title);
    tally_buffer_fini(&plot);
    return status;
}

enum tally_status tally_plot_regret_script(const struct tally_campaign *campaign,
                                           struct tally_buffer *out)
{
    return print_script(
        campaign, "regret",
        "set xlabel \"time step\"\n"
        "set ylabel \"cumulative regret, mean and std\"\n"
        "set yrange [0:*]\nset rmargin 33\nset key outside right top reverse Left samplen 3\n",
        print_band, print_line, out);
}

enum tally_status tally_plot_bits_script(const struct tally_campaign *campaign,
                                         struct tally_buffer *out)
{
    return print_script(campaign, "bits",
                        "set xlabel \"bits up per client + bits down (filled: formula, hollow: "
                        "entropy)\"\n"
                        "set ylabel \"cumulative regret at the horizon\"\n"
                        "set logscale x\nset yrange [0:*]\n"
                        "set xtics format \"%.0s%c\"\n"
                        "set rmargin 33\nset key outside right top reverse Left samplen 1\n",
                        print_hollow, print_filled, out);
}
