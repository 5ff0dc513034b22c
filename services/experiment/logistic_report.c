#include "services/experiment/logistic_report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "services/base/text.h"
#include "services/base/text_table.h"

static const char *gradients_of(const struct tally_logistic_row *row)
{
    return row->is_exact ? "exact" : "stochastic";
}

/* NaN if the best run diverged before its first point. */
static double final_gap(const struct tally_logistic_row *row)
{
    const struct tally_logistic_curve *best = row->best;
    return best->n_points > 0 ? best->points[best->n_points - 1].gap : (double)NAN;
}

static void add_row(const struct tally_logistic_set *set, const struct tally_logistic_row *row,
                    struct tally_text_table *table)
{
    tally_text_table_printf(table, "%s\t%s\t%.3g%s", gradients_of(row), row->method,
                            row->best->step_size * set->smoothness,
                            tally_logistic_is_at_edge(row) ? "*" : "");
    for (size_t level = 0; level < TALLY_LOGISTIC_LEVELS; level++) {
        const struct tally_logistic_price *price = &row->prices[level];
        tally_text_table_printf(table, price->curve != NULL ? "%.0f\t%.0f" : "-\t-", price->uplink,
                                price->downlink);
    }
    tally_text_table_printf(table, "%.1e", final_gap(row));
}

static enum tally_status put_set(const struct tally_logistic *logistic,
                                 const struct tally_logistic_set *set, struct tally_buffer *out)
{
    struct tally_text text = {out, TALLY_OK};
    struct tally_text_table table;
    tally_text_printf(&text, "%s, d = %zu, beta = %.3g, alpha = %.3g\n\n", set->name, set->dim,
                      set->smoothness, set->strong_convexity);
    tally_text_table_init(&table, "llrrrrrrrrrr",
                          ",,,0.1,,0.01,,1e-4,,1e-6,,final,"
                          "gradients,algorithm,step x beta,up,down,up,down,up,down,up,down,gap");
    for (size_t i = 0; i < logistic->n_rows; i++) {
        if (strcmp(logistic->rows[i].set, set->name) == 0) {
            add_row(set, &logistic->rows[i], &table);
        }
    }
    const enum tally_status status = tally_text_table_end(&table, out);
    tally_text_put(&text, "\n");
    return status != TALLY_OK ? status : text.status;
}

enum tally_status tally_logistic_table(const struct tally_logistic *logistic,
                                       struct tally_buffer *out)
{
    struct tally_text text = {out, TALLY_OK};
    tally_text_printf(&text, "logistic, 20 clients, seed %lld\n\n", (long long)logistic->seed);
    for (size_t i = 0; text.status == TALLY_OK && i < logistic->n_sets; i++) {
        text.status = put_set(logistic, &logistic->sets[i], out);
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
        const struct tally_logistic_set *set = &logistic->sets[i];
        struct tally_json *object = tally_json_object();
        ok = object != NULL && tally_json_set_text(object, "name", set->name) &&
             tally_json_set_integer(object, "dim", (int64_t)set->dim) &&
             tally_json_set_real(object, "smoothness", set->smoothness) &&
             tally_json_set_real(object, "strong_convexity", set->strong_convexity) &&
             tally_json_set_real(object, "start_gap", set->start_gap);
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
        if (price->curve == NULL) {
            continue;
        }
        struct tally_json *object = tally_json_object();
        ok = object != NULL && tally_json_set_real(object, "gap", TALLY_LOGISTIC_GAPS[level]) &&
             tally_json_set_real(object, "step_size", price->curve->step_size) &&
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
             tally_json_set_text(object, "gradients", gradients_of(row)) &&
             tally_json_set_text(object, "algorithm", row->method) &&
             tally_json_set_real(object, "step_size", row->best->step_size) &&
             tally_json_set_bool(object, "at_edge", tally_logistic_is_at_edge(row)) &&
             tally_json_set_real(object, "final_gap", final_gap(row)) &&
             tally_json_set(object, "prices", prices_of(row));
        ok = tally_json_append(rows, object) && ok;
    }
    return tally_json_if_complete(rows, ok);
}

struct tally_json *tally_logistic_json(const struct tally_logistic *logistic)
{
    struct tally_json *result = tally_json_object();
    const bool ok = result != NULL && tally_json_set_text(result, "experiment", "logistic") &&
                    tally_json_set_integer(result, "seed", logistic->seed) &&
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
        for (size_t k = 0; k < row->best->n_points; k++) {
            const struct tally_logistic_point *point = &row->best->points[k];
            tally_text_printf(&text, "%s,%s,%s,%.9g,%lld,%.9g,%.9g,%.6g\n", row->set,
                              gradients_of(row), row->method, row->best->step_size,
                              (long long)point->round, point->uplink, point->downlink, point->gap);
        }
    }
    return text.status;
}

/* The panels of one picture. */
static void put_panels(const struct tally_logistic *logistic, struct tally_text *text)
{
    static const char *const colours[] = {"#0072b2", "#e69f00", "#009e73",
                                          "#cc79a7", "#d55e00", "#000000"};
    const size_t n_panels = 2 * logistic->n_sets, n = logistic->n_rows / n_panels;
    tally_text_printf(text, "set multiplot layout %zu,2\n", logistic->n_sets);
    for (size_t panel = 0; panel < n_panels; panel++) {
        const struct tally_logistic_row *rows = &logistic->rows[panel * n];
        tally_text_printf(text, "set title \"%s, %s gradients\"\nplot ", rows->set,
                          gradients_of(rows));
        for (size_t i = 0; i < n; i++) {
            tally_text_printf(text,
                              "%s\"logistic-curves.csv\" skip 1 index %zu using 6:8 with lines lw "
                              "2 dt %zu lc rgb \"%s\" title \"%s\"",
                              i > 0 ? ", \\\n     " : "", panel * n + i, i + 1, colours[i % 6],
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
