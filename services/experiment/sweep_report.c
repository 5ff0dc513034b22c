/* sweep_report: the result of a sweep as a table, JSON, CSV and a gnuplot script. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/base/text.h"
#include "services/base/text_table.h"
#include "services/experiment/sweep.h"

enum { CELL_CAPACITY = 256 };

/* ---- Columns. */

static void add_column(struct tally_sweep_column *columns, size_t *n,
                       struct tally_sweep_column column)
{
    for (size_t i = 0; i < *n; i++) {
        if (columns[i].kind == column.kind && strcmp(columns[i].name, column.name) == 0) {
            return;
        }
    }
    if (*n < TALLY_SWEEP_COLUMNS_MOST) {
        columns[(*n)++] = column;
    }
}

/* Whether a run has bits besides messages. */
static bool has_control(const struct tally_sweep *sweep)
{
    for (size_t i = 0; i < sweep->n_rows; i++) {
        const struct tally_sweep_trial *trial = tally_sweep_trial_of(sweep, i);
        if (trial->n_runs > 0 && trial->runs[0].control_bits > 0) {
            return true;
        }
    }
    return false;
}

/* Adds the metrics that the first run of any row has. */
static void add_metrics(const struct tally_sweep *sweep, struct tally_sweep_column *columns,
                        size_t *n)
{
    for (size_t i = 0; i < sweep->n_rows; i++) {
        const struct tally_sweep_trial *trial = tally_sweep_trial_of(sweep, i);
        const char *at = trial->n_runs > 0 ? trial->runs[0].metrics : NULL;
        struct tally_metric_summary summary;
        while (at != NULL && tally_metrics_next(&at, &summary)) {
            char name[TALLY_SWEEP_PATH_CAPACITY];
            snprintf(name, sizeof name, "metrics.%s", summary.name);
            add_column(columns, n, tally_sweep_column_of(name));
        }
    }
}

size_t tally_sweep_columns(const struct tally_sweep *sweep,
                           struct tally_sweep_column ret_columns[TALLY_SWEEP_COLUMNS_MOST])
{
    size_t n = 0;
    if (sweep->n_columns > 0) {
        memcpy(ret_columns, sweep->columns, sweep->n_columns * sizeof *ret_columns);
        return sweep->n_columns;
    }
    for (size_t i = 0; i < sweep->n_varied && n < TALLY_SWEEP_COLUMNS_MOST / 2; i++) {
        add_column(ret_columns, &n, tally_sweep_column_of(sweep->varied[i]));
    }
    if (sweep->halving.stages > 0) {
        add_column(ret_columns, &n,
                   (struct tally_sweep_column){.name = "stage", .kind = TALLY_SWEEP_STAGE});
    }
    add_column(ret_columns, &n, sweep->by);
    add_column(ret_columns, &n, tally_sweep_column_of("uplink_bits"));
    add_column(ret_columns, &n, tally_sweep_column_of("downlink_bits"));
    if (has_control(sweep)) {
        add_column(ret_columns, &n, tally_sweep_column_of("control_bits"));
    }
    add_metrics(sweep, ret_columns, &n);
    return n;
}

/* Every result and metric, for the files. */
static size_t all_results(const struct tally_sweep *sweep,
                          struct tally_sweep_column ret_columns[TALLY_SWEEP_COLUMNS_MOST])
{
    size_t n = 0;
    for (size_t i = 0; i < TALLY_N_SWEEP_RESULTS; i++) {
        add_column(ret_columns, &n, tally_sweep_column_of(TALLY_SWEEP_RESULTS[i].name));
    }
    add_metrics(sweep, ret_columns, &n);
    return n;
}

/* Whether the runs of a row differ in the column. */
bool tally_sweep_spreads(const struct tally_sweep *sweep, const struct tally_sweep_column *column)
{
    for (size_t i = 0; column->kind != TALLY_SWEEP_MEMBER && i < sweep->n_rows; i++) {
        const double std = tally_sweep_summary(tally_sweep_trial_of(sweep, i), column).std;
        if (isfinite(std) && std > 0) {
            return true;
        }
    }
    return false;
}

static bool has_names(const struct tally_sweep *sweep)
{
    for (size_t i = 0; i < sweep->n_rows; i++) {
        if (sweep->rows[i].name[0] != '\0') {
            return true;
        }
    }
    return false;
}

void tally_sweep_format(double value, char *ret_text, size_t capacity)
{
    if (isnan(value)) {
        snprintf(ret_text, capacity, "-");
    } else if (isinf(value)) {
        snprintf(ret_text, capacity, "diverged");
    } else {
        snprintf(ret_text, capacity, fabs(value) >= 10000 && fabs(value) < 1e15 ? "%.0f" : "%.5g",
                 value);
    }
}

/* The value of a member as it was set, else with its default, as text: texts without quotes. */
static void format_member(const struct tally_sweep_trial *trial, const char *path, char *ret_text,
                          size_t capacity)
{
    struct tally_json *document = tally_sweep_trial_document(trial), *complete = NULL;
    const struct tally_json *value = tally_sweep_member(document, path);
    if (value == NULL) {
        complete = tally_sweep_trial_complete(trial);
        value = tally_sweep_member(complete, path);
    }
    struct tally_buffer text = {0};
    snprintf(ret_text, capacity, "%s", value == NULL ? "-" : "");
    if (value != NULL && tally_json_as_text(value) != NULL) {
        snprintf(ret_text, capacity, "%s", tally_json_as_text(value));
    } else if (value != NULL && tally_json_dump(value, 0, &text) == TALLY_OK) {
        snprintf(ret_text, capacity, "%.*s", (int)text.size, (const char *)text.data);
    }
    tally_buffer_fini(&text);
    tally_json_free(document);
    tally_json_free(complete);
}

void tally_sweep_cell(const struct tally_sweep *sweep, size_t row,
                      const struct tally_sweep_column *column, bool is_spread, char *ret_text,
                      size_t capacity)
{
    const struct tally_sweep_trial *trial = tally_sweep_trial_of(sweep, row);
    if (column->kind == TALLY_SWEEP_MEMBER) {
        const double number = tally_sweep_summary(trial, column).mean;
        if (isfinite(number)) {
            snprintf(ret_text, capacity, "%.6g", number);
        } else {
            format_member(trial, column->name, ret_text, capacity);
        }
    } else if (column->kind == TALLY_SWEEP_STAGE) {
        snprintf(ret_text, capacity, "%lld/%lld", (long long)sweep->rows[row].stage,
                 (long long)sweep->halving.stages);
    } else {
        const struct tally_summary summary = tally_sweep_summary(trial, column);
        const double value = is_spread ? summary.std : summary.mean;
        if (is_spread && !isfinite(summary.mean)) {
            snprintf(ret_text, capacity, "-");
        } else {
            tally_sweep_format(value, ret_text, capacity);
        }
    }
}

const struct tally_json *tally_sweep_reference_row(const struct tally_sweep *sweep, size_t index)
{
    const struct tally_json *rows = tally_json_get(sweep->source, "reference_rows");
    return rows != NULL && index < tally_json_size(rows) ? tally_json_at(rows, index) : NULL;
}

double tally_sweep_reference_value(const struct tally_json *row, const char *name)
{
    return tally_json_get_real(tally_json_get(row, "values"), name, NAN);
}

/* ---- The table. */

struct layout {
    struct tally_sweep_column columns[TALLY_SWEEP_COLUMNS_MOST];
    bool spreads[TALLY_SWEEP_COLUMNS_MOST];
    size_t n;
    bool has_names;
    char alignment[2 * TALLY_SWEEP_COLUMNS_MOST + 3];
};

static void make_layout(const struct tally_sweep *sweep, struct layout *layout)
{
    char *at = layout->alignment;
    layout->n = tally_sweep_columns(sweep, layout->columns);
    layout->has_names = has_names(sweep);
    at += snprintf(at, 3, "%s", layout->has_names ? "ll" : "l");
    for (size_t i = 0; i < layout->n; i++) {
        const struct tally_sweep_column *column = &layout->columns[i];
        const bool is_number = /* as far as the first row shows */
            column->kind != TALLY_SWEEP_MEMBER ||
            isfinite(tally_sweep_summary(tally_sweep_trial_of(sweep, 0), column).mean);
        layout->spreads[i] = tally_sweep_spreads(sweep, column);
        at += snprintf(at, 3, "%s%s", is_number ? "r" : "l", layout->spreads[i] ? "r" : "");
    }
}

static void put_heads(const struct layout *layout, struct tally_text_table *table)
{
    tally_text_table_add(table, "row");
    if (layout->has_names) {
        tally_text_table_add(table, "name");
    }
    for (size_t i = 0; i < layout->n; i++) {
        tally_text_table_add(table, layout->columns[i].name);
        if (layout->spreads[i]) {
            tally_text_table_add(table, "+-");
        }
    }
}

static void put_row(const struct tally_sweep *sweep, size_t row, const struct layout *layout,
                    struct tally_text_table *table)
{
    char cell[CELL_CAPACITY];
    snprintf(cell, sizeof cell, "%zu%s", row + 1,
             row == sweep->best && sweep->n_rows > 1 ? "*" : "");
    tally_text_table_add(table, cell);
    if (layout->has_names) {
        tally_text_table_add(table, sweep->rows[row].name);
    }
    for (size_t i = 0; i < layout->n; i++) {
        tally_sweep_cell(sweep, row, &layout->columns[i], false, cell, sizeof cell);
        tally_text_table_add(table, cell);
        if (layout->spreads[i]) {
            tally_sweep_cell(sweep, row, &layout->columns[i], true, cell, sizeof cell);
            tally_text_table_add(table, cell);
        }
    }
}

/* If the rows have no names, the name of a reference row is in the place of its number. */
static void put_reference(const struct tally_json *reference, const struct layout *layout,
                          struct tally_text_table *table)
{
    char cell[CELL_CAPACITY];
    if (layout->has_names) {
        tally_text_table_add(table, "-");
    }
    tally_text_table_add(table, tally_json_get_text(reference, "name"));
    for (size_t i = 0; i < layout->n; i++) {
        tally_sweep_format(tally_sweep_reference_value(reference, layout->columns[i].name), cell,
                           sizeof cell);
        tally_text_table_add(table, cell);
        if (layout->spreads[i]) {
            tally_text_table_add(table, "");
        }
    }
}

static void put_notes(const struct tally_sweep *sweep, struct tally_text *text)
{
    char best[CELL_CAPACITY];
    tally_sweep_describe(sweep, sweep->best, best, sizeof best);
    if (sweep->n_rows > 1) {
        tally_text_printf(
            text, "* the best by %s%s%s%s%s%s\n", sweep->by.name, best[0] != '\0' ? ": " : "", best,
            sweep->rows[sweep->best].name[0] != '\0' ? " (" : "", sweep->rows[sweep->best].name,
            sweep->rows[sweep->best].name[0] != '\0' ? ")" : "");
    }
    for (size_t i = 0; i < sweep->n_rows; i++) {
        const struct tally_sweep_row *row = &sweep->rows[i];
        if (row->tune != NULL && row->at_edge && row->trials[0].exponent != 0) {
            tally_text_printf(text, "row %zu: the best of its grid is at an end of it\n", i + 1);
        }
    }
    if (sweep->n_seeds > 1) {
        tally_text_printf(text,
                          "Means over %zu seeds, %lld-%lld; +- is the standard deviation of one "
                          "run.\n",
                          sweep->n_seeds, (long long)sweep->first_seed,
                          (long long)sweep->first_seed + (long long)sweep->n_seeds - 1);
    }
}

enum tally_status tally_sweep_table(const struct tally_sweep *sweep, struct tally_buffer *out)
{
    struct layout layout;
    struct tally_text_table table;
    const struct tally_json *reference;
    make_layout(sweep, &layout);
    tally_text_table_init(&table, layout.alignment, "");
    put_heads(&layout, &table);
    for (size_t i = 0; i < sweep->n_rows; i++) {
        put_row(sweep, i, &layout, &table);
    }
    for (size_t i = 0; (reference = tally_sweep_reference_row(sweep, i)) != NULL; i++) {
        put_reference(reference, &layout, &table);
    }
    struct tally_text text = {out, tally_text_table_end(&table, out)};
    put_notes(sweep, &text);
    return text.status;
}

/* ---- JSON. */

static bool set_summary(struct tally_json *object, const struct tally_sweep_trial *trial,
                        const struct tally_sweep_column *column, const char *key)
{
    const struct tally_summary summary = tally_sweep_summary(trial, column);
    double min = INFINITY, max = -INFINITY;
    for (size_t i = 0; i < trial->n_runs; i++) {
        const double value = tally_sweep_value(&trial->runs[i], column);
        min = fmin(min, value);
        max = fmax(max, value);
    }
    struct tally_json *member = tally_json_object();
    const bool ok = tally_json_set_real(member, "mean", summary.mean) &&
                    tally_json_set_real(member, "std", summary.std) &&
                    tally_json_set_real(member, "min", min) &&
                    tally_json_set_real(member, "max", max);
    return tally_json_set(object, key, tally_json_if_complete(member, ok));
}

/* The members that vary, as this trial has them. */
static struct tally_json *members_of(const struct tally_sweep *sweep,
                                     const struct tally_sweep_trial *trial)
{
    struct tally_json *document = tally_sweep_trial_document(trial);
    struct tally_json *members = tally_json_object();
    bool ok = members != NULL && document != NULL;
    for (size_t i = 0; ok && i < sweep->n_varied; i++) {
        const struct tally_json *value = tally_sweep_member(document, sweep->varied[i]);
        ok = value == NULL || tally_json_set(members, sweep->varied[i], tally_json_copy(value));
    }
    tally_json_free(document);
    return tally_json_if_complete(members, ok);
}

static struct tally_json *results_of(const struct tally_sweep *sweep,
                                     const struct tally_sweep_trial *trial, bool is_metric)
{
    struct tally_sweep_column columns[TALLY_SWEEP_COLUMNS_MOST];
    const size_t n = all_results(sweep, columns);
    struct tally_json *results = tally_json_object();
    bool ok = results != NULL;
    for (size_t i = 0; ok && i < n; i++) {
        const size_t skipped = is_metric ? sizeof "metrics." - 1 : 0;
        ok = (columns[i].kind == TALLY_SWEEP_METRIC) != is_metric ||
             set_summary(results, trial, &columns[i], columns[i].name + skipped);
    }
    return tally_json_if_complete(results, ok);
}

static struct tally_json *trials_json(const struct tally_sweep *sweep,
                                      const struct tally_sweep_row *row)
{
    struct tally_json *trials = tally_json_array();
    bool ok = trials != NULL;
    for (size_t i = 0; ok && i < row->n_trials; i++) {
        struct tally_json *trial = tally_json_object();
        ok = tally_json_set(trial, "members", members_of(sweep, &row->trials[i])) &&
             set_summary(trial, &row->trials[i], &sweep->by, sweep->by.name) &&
             tally_json_set_bool(trial, "best", i == row->best);
        ok = tally_json_append(trials, tally_json_if_complete(trial, ok)) && ok;
    }
    return tally_json_if_complete(trials, ok);
}

static struct tally_json *row_json(const struct tally_sweep *sweep, size_t index)
{
    const struct tally_sweep_row *row = &sweep->rows[index];
    const struct tally_sweep_trial *trial = tally_sweep_trial_of(sweep, index);
    struct tally_json *object = tally_json_object();
    bool ok = tally_json_set_integer(object, "row", (int64_t)index + 1) &&
              tally_json_set_text(object, "name", row->name) &&
              tally_json_set(object, "members", members_of(sweep, trial)) &&
              tally_json_set_integer(object, "runs", (int64_t)trial->n_runs) &&
              tally_json_set(object, "results", results_of(sweep, trial, false)) &&
              tally_json_set(object, "metrics", results_of(sweep, trial, true));
    if (ok && sweep->halving.stages > 0) {
        ok = tally_json_set_integer(object, "stage", row->stage);
    }
    if (ok && row->tune != NULL) {
        ok = tally_json_set(object, "trials", trials_json(sweep, row)) &&
             tally_json_set_bool(object, "at_edge", row->at_edge) &&
             tally_json_set_bool(object, "widened", row->widened);
    }
    return tally_json_if_complete(object, ok);
}

static struct tally_json *rows_json(const struct tally_sweep *sweep)
{
    struct tally_json *rows = tally_json_array();
    bool ok = rows != NULL;
    for (size_t i = 0; ok && i < sweep->n_rows; i++) {
        ok = tally_json_append(rows, row_json(sweep, i));
    }
    return tally_json_if_complete(rows, ok);
}

static struct tally_json *seeds_json(const struct tally_sweep *sweep)
{
    struct tally_json *seeds = tally_json_array();
    bool ok = seeds != NULL;
    for (size_t i = 0; ok && sweep->has_seeds && i < sweep->n_seeds; i++) {
        ok = tally_json_append_integer(seeds, sweep->first_seed + (int64_t)i);
    }
    return tally_json_if_complete(seeds, ok);
}

struct tally_json *tally_sweep_json(const struct tally_sweep *sweep)
{
    const struct tally_json *references = tally_json_get(sweep->source, "reference_rows");
    struct tally_json *object = tally_json_object(), *best = tally_json_object();
    bool ok = tally_json_set_integer(best, "row", (int64_t)sweep->best + 1) &&
              tally_json_set(best, "document", tally_sweep_job(sweep, sweep->best));
    best = tally_json_if_complete(best, ok);
    ok = tally_json_set_text(object, "name", sweep->name) &&
         tally_json_set(object, "seeds", seeds_json(sweep)) &&
         tally_json_set_text(object, "by", sweep->by.name) &&
         tally_json_set(object, "rows", rows_json(sweep));
    if (references != NULL) {
        ok = tally_json_set(object, "reference_rows", tally_json_copy(references)) && ok;
    }
    ok = tally_json_set(object, "best", best) && ok;
    return tally_json_if_complete(object, ok);
}

/* ---- CSV. */

/* In quotes if necessary. */
static void put_quoted(struct tally_text *text, const char *cell)
{
    if (strpbrk(cell, ",\"\r\n") == NULL) {
        tally_text_put(text, cell);
        return;
    }
    tally_text_put(text, "\"");
    for (const char *at = cell; *at != '\0'; at++) {
        tally_text_put(text, *at == '"' ? "\"" : "");
        tally_text_put_bytes(text, at, 1);
    }
    tally_text_put(text, "\"");
}

static void put_real(struct tally_text *text, double value)
{
    if (isfinite(value)) {
        tally_text_printf(text, ",%.12g", value);
    } else {
        tally_text_put(text, isinf(value) ? ",inf" : ",");
    }
}

static void put_members(const struct tally_sweep *sweep, size_t row, struct tally_text *text)
{
    for (size_t i = 0; i < sweep->n_varied; i++) {
        char cell[CELL_CAPACITY];
        format_member(tally_sweep_trial_of(sweep, row), sweep->varied[i], cell, sizeof cell);
        tally_text_put(text, ",");
        put_quoted(text, strcmp(cell, "-") == 0 ? "" : cell);
    }
}

static void put_csv_head(const struct tally_sweep *sweep, const char *more, struct tally_text *text)
{
    tally_text_put(text, "row,name");
    for (size_t i = 0; i < sweep->n_varied; i++) {
        tally_text_put(text, ",");
        put_quoted(text, sweep->varied[i]);
    }
    tally_text_put(text, more);
}

/* What the head begins with. */
static void put_csv_row(const struct tally_sweep *sweep, size_t row, struct tally_text *text)
{
    tally_text_printf(text, "%zu,", row + 1);
    put_quoted(text, sweep->rows[row].name);
    put_members(sweep, row, text);
}

enum tally_status tally_sweep_rows_csv(const struct tally_sweep *sweep, struct tally_buffer *out)
{
    struct tally_sweep_column columns[TALLY_SWEEP_COLUMNS_MOST];
    const size_t n = all_results(sweep, columns);
    struct tally_text text = {out, TALLY_OK};
    put_csv_head(sweep, ",stage,runs", &text);
    for (size_t i = 0; i < n; i++) {
        tally_text_printf(&text, ",%s_mean,%s_std", columns[i].name, columns[i].name);
    }
    tally_text_put(&text, ",best\n");
    for (size_t row = 0; row < sweep->n_rows; row++) {
        const struct tally_sweep_trial *trial = tally_sweep_trial_of(sweep, row);
        put_csv_row(sweep, row, &text);
        tally_text_printf(&text, ",%lld,%zu", (long long)sweep->rows[row].stage, trial->n_runs);
        for (size_t i = 0; i < n; i++) {
            const struct tally_summary summary = tally_sweep_summary(trial, &columns[i]);
            put_real(&text, summary.mean);
            put_real(&text, summary.std);
        }
        tally_text_printf(&text, ",%d\n", row == sweep->best);
    }
    return text.status;
}

enum tally_status tally_sweep_runs_csv(const struct tally_sweep *sweep, struct tally_buffer *out)
{
    struct tally_sweep_column columns[TALLY_SWEEP_COLUMNS_MOST];
    const size_t n = all_results(sweep, columns);
    struct tally_text text = {out, TALLY_OK};
    put_csv_head(sweep, ",seed", &text);
    for (size_t i = 0; i < n; i++) {
        tally_text_printf(&text, ",%s", columns[i].name);
    }
    tally_text_put(&text, "\n");
    for (size_t row = 0; row < sweep->n_rows; row++) {
        const struct tally_sweep_trial *trial = tally_sweep_trial_of(sweep, row);
        struct tally_buffer head = {0};
        struct tally_text head_text = {&head, TALLY_OK};
        put_csv_row(sweep, row, &head_text);
        text.status = text.status == TALLY_OK ? head_text.status : text.status;
        for (size_t seed = 0; seed < trial->n_runs && text.status == TALLY_OK; seed++) {
            tally_text_printf(&text, "%.*s,%lld", (int)head.size, (const char *)head.data,
                              (long long)(trial->seed + (int64_t)seed));
            for (size_t i = 0; i < n; i++) {
                put_real(&text, tally_sweep_value(&trial->runs[seed], &columns[i]));
            }
            tally_text_put(&text, "\n");
        }
        tally_buffer_fini(&head);
    }
    return text.status;
}

/* ---- The picture. */

/* Whether a logarithmic scale shows the values better. */
static bool chooses_log(const struct tally_sweep *sweep, const struct tally_sweep_column *column,
                        int scale)
{
    double min = INFINITY, max = -INFINITY;
    for (size_t i = 0; i < sweep->n_rows; i++) {
        const double value = tally_sweep_summary(tally_sweep_trial_of(sweep, i), column).mean;
        if (isfinite(value)) {
            min = fmin(min, value);
            max = fmax(max, value);
        }
    }
    return min > 0 &&
           (scale == TALLY_SWEEP_SCALE_LOG || (scale == TALLY_SWEEP_SCALE_AUTO && max > 20 * min));
}

static int compare_values(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* The number of different values of a member that is a number in every row; 0 if it is not, or if
 * memory runs out. */
static size_t count_values(const struct tally_sweep *sweep, const struct tally_sweep_column *column)
{
    double *values = malloc(sweep->n_rows * sizeof *values);
    bool are_numbers = values != NULL;
    size_t n = 0;
    for (size_t i = 0; are_numbers && i < sweep->n_rows; i++) {
        values[i] = tally_sweep_summary(tally_sweep_trial_of(sweep, i), column).mean;
        are_numbers = !isnan(values[i]);
    }
    if (are_numbers) {
        qsort(values, sweep->n_rows, sizeof *values, compare_values);
    }
    for (size_t i = 0; are_numbers && i < sweep->n_rows; i++) {
        n += i == 0 || values[i] != values[i - 1];
    }
    free(values);
    return n;
}

void tally_sweep_choose_axes(const struct tally_sweep *sweep, struct tally_sweep_picture *ret)
{
    size_t most = 1;
    *ret = (struct tally_sweep_picture){.x = tally_sweep_column_of("bits"), .y = sweep->by};
    for (size_t i = 0; i < sweep->n_varied && sweep->axes.x[0] == '\0'; i++) {
        const struct tally_sweep_column column = tally_sweep_column_of(sweep->varied[i]);
        const size_t n = count_values(sweep, &column);
        if (n > most) {
            ret->x = column;
            most = n;
        }
    }
    if (sweep->axes.x[0] != '\0') {
        ret->x = tally_sweep_column_of(sweep->axes.x);
    }
    if (sweep->axes.y[0] != '\0') {
        ret->y = tally_sweep_column_of(sweep->axes.y);
    }
    ret->x_log = chooses_log(sweep, &ret->x, sweep->axes.x_scale);
    ret->y_log = chooses_log(sweep, &ret->y, sweep->axes.y_scale);
}

/* A text within double quotes of a script: without what gnuplot would interpret. */
static void put_literal(struct tally_text *text, const char *literal)
{
    tally_text_put(text, "\"");
    for (const char *at = literal; *at != '\0'; at++) {
        const unsigned char c = (unsigned char)*at;
        const bool is_special = c < 0x20 || c == '"' || c == '\\' || c == '`' || c == '$';
        tally_text_put_bytes(text, is_special ? " " : at, 1);
    }
    tally_text_put(text, "\"");
}

/* Returns whether there is a reference row. */
static bool put_data(const struct tally_sweep *sweep, const struct tally_sweep_picture *picture,
                     struct tally_text *text)
{
    bool has_reference = false;
    tally_text_put(text, "$rows << END\n");
    for (size_t i = 0; i < sweep->n_rows; i++) {
        const struct tally_sweep_trial *trial = tally_sweep_trial_of(sweep, i);
        const struct tally_summary x = tally_sweep_summary(trial, &picture->x);
        const struct tally_summary y = tally_sweep_summary(trial, &picture->y);
        if (isfinite(x.mean) && isfinite(y.mean)) {
            tally_text_printf(text, "%.12g %.12g %.12g\n", x.mean, y.mean,
                              isfinite(y.std) ? y.std : 0);
        }
    }
    tally_text_put(text, "END\n$reference << END\n");
    const struct tally_json *reference;
    for (size_t i = 0; (reference = tally_sweep_reference_row(sweep, i)) != NULL; i++) {
        const double x = tally_sweep_reference_value(reference, picture->x.name);
        const double y = tally_sweep_reference_value(reference, picture->y.name);
        if (isfinite(x) && isfinite(y)) {
            tally_text_printf(text, "%.12g %.12g ", x, y);
            put_literal(text, tally_json_get_text(reference, "name"));
            tally_text_put(text, "\n");
            has_reference = true;
        }
    }
    tally_text_put(text, "END\n");
    return has_reference;
}

enum tally_status tally_sweep_script(const struct tally_sweep *sweep, struct tally_buffer *out)
{
    struct tally_sweep_picture picture;
    struct tally_text text = {out, TALLY_OK};
    tally_sweep_choose_axes(sweep, &picture);
    const bool has_reference = put_data(sweep, &picture, &text);
    tally_text_printf(
        &text,
        "set encoding utf8\n%s%sset grid\nset key outside bottom center horizontal\nset xlabel ",
        picture.x_log ? "set logscale x\n" : "", picture.y_log ? "set logscale y\n" : "");
    put_literal(&text, picture.x.name);
    tally_text_put(&text, " noenhanced\nset ylabel ");
    put_literal(&text, picture.y.name);
    tally_text_put(&text, " noenhanced\nset title ");
    put_literal(&text, sweep->name);
    tally_text_printf(
        &text,
        " noenhanced\n"
        "do for [kind in \"svg png\"] {\n"
        "    set terminal (kind) size 800,500\n"
        "    set output \"sweep.\".kind\n"
        "    plot $rows using 1:2:3 with yerrorbars lc rgb \"#0072b2\" pt 7 "
        "title \"rows, mean and standard deviation\"%s\n"
        "}\n",
        has_reference
            ? ", \\\n        $reference using 1:2:3 with labels point pt 9 offset 1,0 left "
              "noenhanced title \"reference\""
            : "");
    return text.status;
}

/* ---- The members of the document. */

static const char *type_name(const struct tally_field *field)
{
    static const char *const NAMES[] = {[TALLY_FIELD_BOOL] = "boolean",
                                        [TALLY_FIELD_INTEGER] = "integer",
                                        [TALLY_FIELD_REAL] = "number",
                                        [TALLY_FIELD_TEXT] = "text",
                                        [TALLY_FIELD_CHOICE] = "text"};
    return NAMES[field->kind];
}

static void put_limits(struct tally_text *text, const struct tally_field *field)
{
    switch (field->kind) {
    case TALLY_FIELD_BOOL:
        return;
    case TALLY_FIELD_INTEGER:
    case TALLY_FIELD_REAL:
        tally_text_printf(text, ", %c%.16g, %.16g]", field->min_exclusive ? '(' : '[', field->min,
                          field->max);
        return;
    case TALLY_FIELD_TEXT:
        tally_text_printf(text, ", at most %zu bytes", field->capacity - 1);
        return;
    case TALLY_FIELD_CHOICE:
        for (size_t i = 0; field->choices[i] != NULL; i++) {
            tally_text_printf(text, "%s%s", i > 0 ? ", " : ": ", field->choices[i]);
        }
    }
}

/* Nothing where the default is none. */
static void put_default(struct tally_text *text, const struct tally_field *field,
                        const void *defaults)
{
    const void *member = defaults != NULL ? (const char *)defaults + field->offset : NULL;
    if (field->required) {
        tally_text_put(text, "; required");
    } else if (member == NULL || field->kind == TALLY_FIELD_TEXT) {
        return;
    } else if (field->kind == TALLY_FIELD_BOOL) {
        tally_text_put(text, *(const bool *)member ? "; default true" : "; default false");
    } else if (field->kind == TALLY_FIELD_CHOICE) {
        tally_text_printf(text, "; default %s", field->choices[*(const int *)member]);
    } else {
        const double value = field->kind == TALLY_FIELD_REAL ? *(const double *)member
                                                             : (double)*(const int64_t *)member;
        if (value >= field->min) {
            tally_text_printf(text, "; default %.16g", value);
        }
    }
}

static void put_part(struct tally_text *text, const struct tally_sweep_part *part)
{
    for (size_t i = 0; part->others != NULL && part->others[i][0] != NULL; i++) {
        const char *const *other = part->others[i];
        tally_text_printf(text, "  %s (%s)\n      %s\n", other[0], other[1], other[2]);
    }
    for (size_t i = 0; i < part->n_fields; i++) {
        const struct tally_field *field = &part->fields[i];
        tally_text_printf(text, "  %s (%s", field->name, type_name(field));
        put_limits(text, field);
        put_default(text, field, part->defaults);
        tally_text_printf(text, ")\n      %s\n", field->doc);
    }
}

enum tally_status tally_sweep_members(struct tally_buffer *out)
{
    struct tally_text text = {out, TALLY_OK};
    for (size_t i = 0; i < TALLY_N_SWEEP_PARTS; i++) {
        const struct tally_sweep_part *part = &TALLY_SWEEP_PARTS[i];
        tally_text_printf(&text, "%s%s:%s%s\n", i > 0 ? "\n" : "",
                          part->name[0] != '\0' ? part->name : "The document",
                          part->doc[0] != '\0' ? " " : "", part->doc);
        put_part(&text, part);
    }
    tally_text_put(&text, "\nResults:\n");
    for (size_t i = 0; i < TALLY_N_SWEEP_RESULTS; i++) {
        tally_text_printf(&text, "  %-22s%s\n", TALLY_SWEEP_RESULTS[i].name,
                          TALLY_SWEEP_RESULTS[i].doc);
    }
    tally_text_printf(&text, "  %-22s%s\n", "metrics.NAME",
                      "a metric of the job, mean over the clients of the last round that had it");
    return text.status;
}
