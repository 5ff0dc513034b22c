#include "services/experiment/logistic.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/base/text.h"
#include "services/base/text_table.h"
#include "services/experiment/reproduction.h"

static const double LEAST_GAP = 1e-13; /* a smaller gap is rounding error */

const double TALLY_LOGISTIC_GAPS[TALLY_LOGISTIC_LEVELS] = {1e-1, 1e-2, 1e-4, 1e-6};

/* ---- Which rows run. */

static bool is_wanted(const void *only, const char *name, bool is_tuned)
{
    (void)is_tuned;
    return only == NULL || tally_word_list_has(only, name, strcspn(name, " "));
}

static enum tally_status check_names(const char *only, struct tally_error *err)
{
    static const char sets[] = "wine,heart_scale,digits,fashion";
    size_t n;
    for (const char *at; (at = tally_word_list_next(&only, &n)) != NULL;) {
        if (!tally_word_list_has(sets, at, n)) {
            return tally_fail(err, TALLY_INVALID_ARGUMENT, "set",
                              "unknown set \"%.*s\"; choose wine, heart_scale, digits or fashion",
                              (int)(n < 60 ? n : 60), at);
        }
    }
    return TALLY_OK;
}

/* Reads "SET GRADIENTS METHOD". */
static void name_row(const struct tally_sweep_row *sweep_row, struct tally_logistic_row *row)
{
    row->row = sweep_row;
    row->method = strrchr(sweep_row->name, ' ') + 1;
    sscanf(sweep_row->name, "%31s %15s", row->set, row->gradients);
}

enum tally_status tally_logistic_read(const char *only, int64_t seed,
                                      struct tally_logistic *ret_logistic, struct tally_error *err)
{
    struct tally_logistic logistic = {.n_sets = 0};
    enum tally_status status = check_names(only, err);
    if (status == TALLY_OK) {
        status =
            tally_reproduction_load("logistic", is_wanted, only, seed, 1, &logistic.sweep, err);
    }
    if (status == TALLY_OK) {
        logistic.n_rows = logistic.sweep.n_rows;
        logistic.rows = calloc(logistic.n_rows, sizeof *logistic.rows);
        status = logistic.rows != NULL
                     ? TALLY_OK
                     : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the rows");
    }
    for (size_t i = 0; status == TALLY_OK && i < logistic.n_rows; i++) {
        name_row(&logistic.sweep.rows[i], &logistic.rows[i]);
        logistic.n_sets += i == 0 || strcmp(logistic.rows[i].set, logistic.rows[i - 1].set) != 0;
    }
    if (status != TALLY_OK) {
        tally_logistic_fini(&logistic);
        return status;
    }
    logistic.rows_per_set = logistic.n_rows / logistic.n_sets;
    *ret_logistic = logistic;
    return TALLY_OK;
}

void tally_logistic_fini(struct tally_logistic *logistic)
{
    tally_sweep_fini(&logistic->sweep);
    free(logistic->rows);
    *logistic = (struct tally_logistic){0};
}

/* ---- Prices. */

/* A gap of a run, relative to that of the row at 0. */
static double relative_gap(const struct tally_logistic_row *row, const struct tally_run_gap *point)
{
    const double gap = point->gap / row->row->zero_gap;
    return gap < LEAST_GAP ? LEAST_GAP : gap;
}

/* The last gap of a trial; `otherwise` if the run diverged before its first. */
static double last_gap(const struct tally_logistic_row *row, const struct tally_sweep_trial *trial,
                       double otherwise)
{
    const struct tally_run *run = &trial->runs[0];
    return run->n_gaps > 0 ? relative_gap(row, &run->gaps[run->n_gaps - 1]) : otherwise;
}

/* The first point of the run whose gap is at most `gap`; NULL if there is none. */
static const struct tally_run_gap *reach(const struct tally_logistic_row *row,
                                         const struct tally_run *run, double gap)
{
    size_t i = 0;
    while (i < run->n_gaps && !(relative_gap(row, &run->gaps[i]) <= gap)) {
        i++;
    }
    return i < run->n_gaps ? &run->gaps[i] : NULL;
}

static void price_row(struct tally_logistic_row *row)
{
    double least = INFINITY;
    for (size_t k = 0; k < row->row->n_trials; k++) {
        const struct tally_sweep_trial *trial = &row->row->trials[k];
        const double last = last_gap(row, trial, INFINITY);
        if (row->best == NULL || last < least) {
            row->best = trial;
            least = last;
        }
        for (size_t level = 0; level < TALLY_LOGISTIC_LEVELS; level++) {
            struct tally_logistic_price *price = &row->prices[level];
            const struct tally_run_gap *at =
                reach(row, &trial->runs[0], TALLY_LOGISTIC_GAPS[level]);
            if (at != NULL && (price->trial == NULL || at->uplink < price->uplink)) {
                *price = (struct tally_logistic_price){trial, at->uplink, at->downlink};
            }
        }
    }
    for (size_t level = 0; level < TALLY_LOGISTIC_LEVELS; level++) {
        row->best = row->prices[level].trial != NULL ? row->prices[level].trial : row->best;
    }
}

enum tally_status tally_logistic_run(struct tally_logistic *logistic,
                                     const struct tally_sweep_config *config,
                                     struct tally_error *err)
{
    const enum tally_status status = tally_sweep_run(&logistic->sweep, config, err);
    for (size_t i = 0; status == TALLY_OK && i < logistic->n_rows; i++) {
        price_row(&logistic->rows[i]);
    }
    return status;
}

/* Whether the best step size is the smallest or the largest that was run, so that one beyond may be
 * better. */
static bool is_at_edge(const struct tally_logistic_row *row)
{
    return row->best == &row->row->trials[0] ||
           row->best == &row->row->trials[row->row->n_trials - 1];
}

/* ---- Results. */

static void add_row(const struct tally_logistic_row *row, struct tally_text_table *table)
{
    tally_text_table_printf(table, "%s\t%s\t%.3g%s", row->gradients, row->method,
                            tally_reproduction_step_size(row->best) *
                                row->row->curvature.smoothness,
                            is_at_edge(row) ? "*" : "");
    for (size_t level = 0; level < TALLY_LOGISTIC_LEVELS; level++) {
        const struct tally_logistic_price *price = &row->prices[level];
        tally_text_table_printf(table, price->trial != NULL ? "%.0f\t%.0f" : "-\t-", price->uplink,
                                price->downlink);
    }
    tally_text_table_printf(table, "%.1e", last_gap(row, row->best, (double)NAN));
}

static size_t dim_of(const struct tally_logistic_row *row)
{
    struct tally_job_spec *spec = tally_sweep_trial_spec(row->best);
    const size_t dim = spec != NULL ? tally_objective_spec_dim(&spec->objective) : 0;
    free(spec);
    return dim;
}

/* Appends the rows of a set, the first of which is given. */
static enum tally_status put_set(const struct tally_logistic_row *rows, size_t n,
                                 struct tally_buffer *out)
{
    struct tally_text text = {out, TALLY_OK};
    struct tally_text_table table;
    tally_text_printf(&text, "%s, d = %zu, beta = %.3g, alpha = %.3g\n\n", rows->set, dim_of(rows),
                      rows->row->curvature.smoothness, rows->row->curvature.strong_convexity);
    tally_text_table_init(&table, "llrrrrrrrrrr",
                          ",,,0.1,,0.01,,1e-4,,1e-6,,final,"
                          "gradients,algorithm,step x beta,up,down,up,down,up,down,up,down,gap");
    for (size_t i = 0; i < n; i++) {
        add_row(&rows[i], &table);
    }
    const enum tally_status status = tally_text_table_end(&table, out);
    tally_text_put(&text, "\n");
    return status != TALLY_OK ? status : text.status;
}

enum tally_status tally_logistic_table(const struct tally_logistic *logistic,
                                       struct tally_buffer *out)
{
    struct tally_text text = {out, TALLY_OK};
    tally_text_printf(&text, "logistic, 20 clients, seed %lld\n\n",
                      (long long)logistic->sweep.first_seed);
    for (size_t i = 0; text.status == TALLY_OK && i < logistic->n_sets; i++) {
        text.status =
            put_set(&logistic->rows[i * logistic->rows_per_set], logistic->rows_per_set, out);
    }
    tally_text_put(&text,
                   "Fewest bits until f(x) - f(x*) is that part of f(0) - f(x*), over all step "
                   "sizes: decodable\nbits of one client's messages up; of all broadcasts and "
                   "control bits down; -: not reached.\nstep x beta, final gap: at the step size "
                   "that is best for the smallest gap reached; *: the grid\nends there.\n");
    return text.status;
}

static struct tally_json *sets_of(const struct tally_logistic *logistic)
{
    struct tally_json *sets = tally_json_array();
    bool ok = sets != NULL;
    for (size_t i = 0; ok && i < logistic->n_sets; i++) {
        const struct tally_logistic_row *row = &logistic->rows[i * logistic->rows_per_set];
        const struct tally_curvature *curvature = &row->row->curvature;
        struct tally_json *object = tally_json_object();
        ok = object != NULL && tally_json_set_text(object, "name", row->set) &&
             tally_json_set_integer(object, "dim", (int64_t)dim_of(row)) &&
             tally_json_set_real(object, "smoothness", curvature->smoothness) &&
             tally_json_set_real(object, "strong_convexity", curvature->strong_convexity) &&
             tally_json_set_real(object, "start_gap", row->row->zero_gap);
        ok = tally_json_append(sets, object) && ok;
    }
    return tally_json_if_complete(sets, ok);
}

static struct tally_json *prices_of(const struct tally_logistic_row *row)
{
    struct tally_json *prices = tally_json_array();
    bool ok = prices != NULL;
    for (size_t level = 0; ok && level < TALLY_LOGISTIC_LEVELS; level++) {
        const struct tally_logistic_price *price = &row->prices[level];
        if (price->trial == NULL) {
            continue;
        }
        struct tally_json *object = tally_json_object();
        ok = object != NULL && tally_json_set_real(object, "gap", TALLY_LOGISTIC_GAPS[level]) &&
             tally_json_set_real(object, "step_size", tally_reproduction_step_size(price->trial)) &&
             tally_json_set_real(object, "uplink_bits", price->uplink) &&
             tally_json_set_real(object, "downlink_bits", price->downlink);
        ok = tally_json_append(prices, object) && ok;
    }
    return tally_json_if_complete(prices, ok);
}

static struct tally_json *rows_of(const struct tally_logistic *logistic)
{
    struct tally_json *rows = tally_json_array();
    bool ok = rows != NULL;
    for (size_t i = 0; ok && i < logistic->n_rows; i++) {
        const struct tally_logistic_row *row = &logistic->rows[i];
        struct tally_json *object = tally_json_object();
        ok = object != NULL && tally_json_set_text(object, "set", row->set) &&
             tally_json_set_text(object, "gradients", row->gradients) &&
             tally_json_set_text(object, "algorithm", row->method) &&
             tally_json_set_real(object, "step_size", tally_reproduction_step_size(row->best)) &&
             tally_json_set_bool(object, "at_edge", is_at_edge(row)) &&
             tally_json_set_real(object, "final_gap", last_gap(row, row->best, (double)NAN)) &&
             tally_json_set(object, "prices", prices_of(row));
        ok = tally_json_append(rows, object) && ok;
    }
    return tally_json_if_complete(rows, ok);
}

struct tally_json *tally_logistic_json(const struct tally_logistic *logistic)
{
    struct tally_json *result = tally_json_object();
    const bool ok = result != NULL && tally_json_set_text(result, "experiment", "logistic") &&
                    tally_json_set_integer(result, "seed", logistic->sweep.first_seed) &&
                    tally_json_set_integer(result, "clients", 20) &&
                    tally_json_set(result, "sets", sets_of(logistic)) &&
                    tally_json_set(result, "rows", rows_of(logistic));
    return tally_json_if_complete(result, ok);
}

enum tally_status tally_logistic_curves_csv(const struct tally_logistic *logistic,
                                            struct tally_buffer *out)
{
    struct tally_text text = {out, TALLY_OK};
    tally_text_put(&text, "set,gradients,algorithm,step_size,round,uplink_bits,downlink_bits,gap");
    for (size_t i = 0; i < logistic->n_rows; i++) {
        const struct tally_logistic_row *row = &logistic->rows[i];
        tally_text_put(&text, i == 0 ? "\n" : "\n\n"); /* two blank lines: gnuplot's `index` */
        const struct tally_run *run = &row->best->runs[0];
        for (size_t k = 0; k < run->n_gaps; k++) {
            const struct tally_run_gap *point = &run->gaps[k];
            tally_text_printf(&text, "%s,%s,%s,%.9g,%lld,%.9g,%.9g,%.6g\n", row->set,
                              row->gradients, row->method, tally_reproduction_step_size(row->best),
                              (long long)point->round, point->uplink, point->downlink,
                              relative_gap(row, point));
        }
    }
    return text.status;
}

/* The panels of one picture. */
static void put_panels(const struct tally_logistic *logistic, struct tally_text *text)
{
    static const char *const colours[] = {"#0072b2", "#e69f00", "#009e73", "#cc79a7",
                                          "#d55e00", "#000000", "#6a3d9a"};
    const size_t n_panels = 2 * logistic->n_sets, n = logistic->n_rows / n_panels;
    tally_text_printf(text, "set multiplot layout %zu,2\n", logistic->n_sets);
    for (size_t panel = 0; panel < n_panels; panel++) {
        const struct tally_logistic_row *rows = &logistic->rows[panel * n];
        tally_text_printf(text, "set title \"%s, %s gradients\"\nplot ", rows->set,
                          rows->gradients);
        for (size_t i = 0; i < n; i++) {
            tally_text_printf(text,
                              "%s\"logistic-curves.csv\" skip 1 index %zu using 6:8 with lines lw "
                              "2 dt %zu lc rgb \"%s\" title \"%s\"",
                              i > 0 ? ", \\\n     " : "", panel * n + i, i + 1, colours[i % 7],
                              rows[i].method);
        }
        tally_text_put(text, "\n");
    }
    tally_text_put(text, "unset multiplot\n");
}

enum tally_status tally_logistic_script(const struct tally_logistic *logistic,
                                        struct tally_buffer *out)
{
    static const char *const terminals[] = {"svg", "pngcairo"}, *const files[] = {"svg", "png"};
    struct tally_text text = {out, TALLY_OK};
    tally_text_put(&text, "set encoding utf8\nset datafile separator comma\n"
                          "set border 3 lw 1 lc rgb \"#444444\"\n"
                          "set tics nomirror out textcolor rgb \"#222222\"\n"
                          "set grid lc rgb \"#dddddd\" lw 1\n"
                          "set logscale xy\nset format x \"%.0s%c\"\nset format y \"%.0e\"\n"
                          "set yrange [1e-8:2]\n"
                          "set xlabel \"bits up per client\"\n"
                          "set ylabel \"relative gap f(x) - f(x*)\"\n"
                          "set key left bottom reverse Left samplen 2\n");
    for (size_t t = 0; t < 2; t++) {
        tally_text_printf(&text,
                          "set terminal %s size 1060,%zu font \"sans,12\" background \"white\" "
                          "noenhanced\nset output \"logistic.%s\"\n",
                          terminals[t], 330 * logistic->n_sets, files[t]);
        put_panels(logistic, &text);
    }
    tally_text_put(&text, "unset output\n");
    return text.status;
}
