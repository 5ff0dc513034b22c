/* sweep_page: the result of a sweep as one HTML page, which needs no other file and has no scripts.
 *
 * Its charts are inline SVG: the picture of `axes`, and the mean regret of the best rows over time.
 * A line joins rows that differ only in the member on the x axis. Colours are those of Okabe and
 * Ito, which colour-blind readers can tell apart. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/base/text.h"
#include "services/experiment/sweep.h"

enum {
    WIDTH = 720,
    HEIGHT = 400,
    LEFT = 80,
    RIGHT = 20,
    TOP = 16,
    BOTTOM = 48,
    COLOURS = 7,
    GROUPS_MOST = 7, /* of lines; with more groups there are only points */
    CURVES_MOST = 7,
    CURVE_STEPS = 64, /* of a mean curve */
    TEXT_CAPACITY = 256
};

static const char *const COLOUR[COLOURS] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                            "#e69f00", "#56b4e9", "#7f7f7f"};

static const char STYLE[] =
    "<style>\n"
    "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:60em;padding:0 1em;"
    "color:#222;background:#fff}\n"
    "table{border-collapse:collapse;display:block;overflow-x:auto}\n"
    "th,td{padding:.25em .7em;border-bottom:1px solid #ccc;text-align:left;white-space:nowrap}\n"
    "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}\n"
    "tr.best{font-weight:600;background:#eaf4fb}\ntr.reference{color:#666;font-style:italic}\n"
    "pre{background:#f5f5f5;padding:1em;overflow-x:auto}\nsvg{max-width:100%;height:auto}\n"
    "svg text{font:12px system-ui,sans-serif;fill:currentColor}\n"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}"
    "th,td{border-color:#444}tr.best{background:#1d3442}pre{background:#242424}"
    "tr.reference{color:#999}}\n"
    "</style>\n";

/* Text within an element or a quoted attribute. */
static void put_escaped(struct tally_text *text, const char *plain)
{
    for (const char *at = plain; *at != '\0'; at++) {
        switch (*at) {
        case '<':
            tally_text_put(text, "&lt;");
            break;
        case '>':
            tally_text_put(text, "&gt;");
            break;
        case '&':
            tally_text_put(text, "&amp;");
            break;
        case '"':
            tally_text_put(text, "&quot;");
            break;
        default:
            tally_text_put_bytes(text, at, 1);
        }
    }
}

/* ---- Scales. */

/* Maps values to pixels. */
struct scale {
    double min, max; /* of the logarithm if is_log */
    double from, to; /* pixels */
    bool is_log, is_empty;
};

static struct scale scale_new(bool is_log, double from, double to)
{
    return (struct scale){INFINITY, -INFINITY, from, to, is_log, true};
}

static void scale_take(struct scale *scale, double value)
{
    const double v = scale->is_log ? log10(value) : value;
    if (isfinite(v)) {
        scale->min = fmin(scale->min, v);
        scale->max = fmax(scale->max, v);
        scale->is_empty = false;
    }
}

/* Leaves a margin of a twentieth on both sides. */
static void scale_close(struct scale *scale)
{
    if (scale->is_empty) {
        scale->min = 0;
        scale->max = 1;
    }
    const double width = scale->max - scale->min;
    const double margin = width > 0 ? width / 20 : fmax(fabs(scale->max), 1) / 20;
    scale->min -= margin;
    scale->max += margin;
}

static double scale_at(const struct scale *scale, double value)
{
    const double v = scale->is_log ? log10(value) : value;
    return scale->from + (v - scale->min) / (scale->max - scale->min) * (scale->to - scale->from);
}

/* The distance of ticks, of which there are three to eight: 1, 2 or 5 times a power of ten. */
static double tick_step(double width)
{
    const double power = pow(10, floor(log10(width / 4)));
    const double mantissa = width / 4 / power;
    return power * (mantissa < 1.5 ? 1 : mantissa < 3.5 ? 2 : mantissa < 7.5 ? 5 : 10);
}

static void put_tick(struct tally_text *text, const struct scale *scale, double value, bool is_x)
{
    const double at = scale_at(scale, value);
    char label[32];
    snprintf(label, sizeof label, "%.4g", fabs(value) < 1e-12 ? 0 : value);
    if (is_x) {
        tally_text_printf(text,
                          "<path d=\"M%.1f %dV%d\" stroke=\"currentColor\" opacity=\".15\"/>"
                          "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
                          at, TOP, HEIGHT - BOTTOM, at, HEIGHT - BOTTOM + 16, label);
    } else {
        tally_text_printf(text,
                          "<path d=\"M%d %.1fH%d\" stroke=\"currentColor\" opacity=\".15\"/>"
                          "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                          LEFT, at, WIDTH - RIGHT, LEFT - 6, at + 4, label);
    }
}

/* Decades on a logarithmic scale, with 2 and 5 in between if there are few. */
static void put_log_ticks(struct tally_text *text, const struct scale *scale, bool is_x)
{
    static const double PARTS[] = {1, 2, 5};
    const double width = scale->max - scale->min;
    const double every = ceil(width / 8);
    for (int k = (int)floor(scale->min); k <= (int)floor(scale->max); k++) {
        const double decade = k;
        for (size_t i = 0; i < (width < 2.5 ? 3 : 1); i++) {
            const double tick = decade + log10(PARTS[i]);
            if (tick >= scale->min && tick <= scale->max && fmod(decade, every) == 0) {
                put_tick(text, scale, PARTS[i] * pow(10, decade), is_x);
            }
        }
    }
}

static void put_ticks(struct tally_text *text, const struct scale *scale, bool is_x)
{
    if (scale->is_log) {
        put_log_ticks(text, scale, is_x);
        return;
    }
    const double step = tick_step(scale->max - scale->min);
    const double first = ceil(scale->min / step);
    for (int k = 0; (first + k) * step <= scale->max; k++) {
        put_tick(text, scale, (first + k) * step, is_x);
    }
}

static void open_chart(struct tally_text *text, const char *x_name, const char *y_name,
                       const struct scale *x, const struct scale *y)
{
    tally_text_printf(text, "<svg viewBox=\"0 0 %d %d\" width=\"%d\" role=\"img\" aria-label=\"",
                      WIDTH, HEIGHT, WIDTH);
    put_escaped(text, y_name);
    tally_text_put(text, " against ");
    put_escaped(text, x_name);
    tally_text_put(text, "\">\n");
    put_ticks(text, x, true);
    put_ticks(text, y, false);
    tally_text_printf(text, "<path d=\"M%d %dV%dH%d\" fill=\"none\" stroke=\"currentColor\"/>\n",
                      LEFT, TOP, HEIGHT - BOTTOM, WIDTH - RIGHT);
    tally_text_printf(text, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">",
                      (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10);
    put_escaped(text, x_name);
    tally_text_printf(text,
                      "</text><text transform=\"translate(16 %d) rotate(-90)\" "
                      "text-anchor=\"middle\">",
                      (TOP + HEIGHT - BOTTOM) / 2);
    put_escaped(text, y_name);
    tally_text_put(text, "</text>\n");
}

/* A legend below the chart. */
static void put_legend(struct tally_text *text, const char *const *labels, size_t n)
{
    tally_text_put(text, "<p>");
    for (size_t i = 0; i < n; i++) {
        tally_text_printf(text, "%s<span style=\"color:%s\">&#9679;</span> ",
                          i > 0 ? " &ensp; " : "", COLOUR[i % COLOURS]);
        put_escaped(text, labels[i]);
    }
    tally_text_put(text, "</p>\n");
}

/* ---- The picture of the rows. */

struct mark {
    double x, y, std;
    size_t row, group;
};

/* What a row has besides the member on the x axis: its name and the other members that vary. */
static void group_name(const struct tally_sweep *sweep, size_t row, const char *x_name,
                       char ret_text[TEXT_CAPACITY])
{
    size_t used = (size_t)snprintf(ret_text, TEXT_CAPACITY, "%s", sweep->rows[row].name);
    for (size_t i = 0; i < sweep->n_varied && used < TEXT_CAPACITY; i++) {
        struct tally_sweep_column column = {.kind = TALLY_SWEEP_MEMBER};
        char cell[64];
        snprintf(column.name, sizeof column.name, "%s", sweep->varied[i]);
        if (strcmp(sweep->varied[i], x_name) != 0) {
            tally_sweep_cell(sweep, row, &column, false, cell, sizeof cell);
            used += (size_t)snprintf(ret_text + used, TEXT_CAPACITY - used, "%s%s=%s",
                                     used > 0 ? " " : "", sweep->varied[i], cell);
        }
    }
}

/* Numbers the groups; *ret_n is above GROUPS_MOST if there are too many, and then all rows are in
 * group 0. */
static void find_groups(const struct tally_sweep *sweep, const char *x_name, struct mark *marks,
                        size_t n, char names[GROUPS_MOST][TEXT_CAPACITY], size_t *ret_n)
{
    size_t n_groups = 0;
    for (size_t i = 0; i < n && n_groups <= GROUPS_MOST; i++) {
        char name[TEXT_CAPACITY];
        size_t group = 0;
        group_name(sweep, marks[i].row, x_name, name);
        while (group < GROUPS_MOST && group < n_groups && strcmp(names[group], name) != 0) {
            group++;
        }
        if (group == n_groups && n_groups++ < GROUPS_MOST) {
            memcpy(names[group], name, sizeof name);
        }
        marks[i].group = group;
    }
    for (size_t i = 0; i < n && n_groups > GROUPS_MOST; i++) {
        marks[i].group = 0;
    }
    *ret_n = n_groups;
}

static int compare_marks(const void *a, const void *b)
{
    const struct mark *left = a, *right = b;
    return left->group != right->group ? (left->group > right->group) - (left->group < right->group)
                                       : (left->x > right->x) - (left->x < right->x);
}

static void put_mark(struct tally_text *text, const struct tally_sweep *sweep,
                     const struct mark *mark, const struct scale *x, const struct scale *y)
{
    const char *colour = COLOUR[mark->group % COLOURS];
    const double at = scale_at(x, mark->x);
    char what[TEXT_CAPACITY];
    if (mark->std > 0 && (!y->is_log || mark->y > mark->std)) {
        tally_text_printf(text, "<path d=\"M%.1f %.1fV%.1f\" stroke=\"%s\"/>", at,
                          scale_at(y, mark->y - mark->std), scale_at(y, mark->y + mark->std),
                          colour);
    }
    tally_sweep_describe(sweep, mark->row, what, sizeof what);
    tally_text_printf(text, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%s\" fill=\"%s\"><title>row %zu ",
                      at, scale_at(y, mark->y), mark->row == sweep->best ? "6" : "3.5", colour,
                      mark->row + 1);
    put_escaped(text, what);
    tally_text_printf(text, ": %.6g</title></circle>\n", mark->y);
}

static void put_lines(struct tally_text *text, const struct mark *marks, size_t n,
                      const struct scale *x, const struct scale *y)
{
    for (size_t i = 0; i < n; i++) {
        const bool is_first = i == 0 || marks[i - 1].group != marks[i].group;
        const bool is_last = i + 1 == n || marks[i + 1].group != marks[i].group;
        tally_text_printf(
            text, is_first ? "<path fill=\"none\" opacity=\".6\" d=\"M%.1f %.1f" : "L%.1f %.1f",
            scale_at(x, marks[i].x), scale_at(y, marks[i].y));
        if (is_last) {
            tally_text_printf(text, "\" stroke=\"%s\"/>\n", COLOUR[marks[i].group % COLOURS]);
        }
    }
}

static void put_references(struct tally_text *text, const struct tally_sweep *sweep,
                           const struct tally_sweep_picture *picture, const struct scale *x,
                           const struct scale *y)
{
    const struct tally_json *reference;
    for (size_t i = 0; (reference = tally_sweep_reference_row(sweep, i)) != NULL; i++) {
        const double at_x = scale_at(x, tally_sweep_reference_value(reference, picture->x.name));
        const double at_y = scale_at(y, tally_sweep_reference_value(reference, picture->y.name));
        if (isfinite(at_x) && isfinite(at_y)) {
            tally_text_printf(text,
                              "<path d=\"M%.1f %.1fl6 6l-6 6l-6 -6z\" fill=\"none\" "
                              "stroke=\"currentColor\"/><text x=\"%.1f\" y=\"%.1f\">",
                              at_x, at_y - 6, at_x + 9, at_y + 4);
            put_escaped(text, tally_json_get_text(reference, "name"));
            tally_text_put(text, "</text>\n");
        }
    }
}

static void take_references(const struct tally_sweep *sweep,
                            const struct tally_sweep_picture *picture, struct scale *x,
                            struct scale *y)
{
    const struct tally_json *reference;
    for (size_t i = 0; (reference = tally_sweep_reference_row(sweep, i)) != NULL; i++) {
        const double at_x = tally_sweep_reference_value(reference, picture->x.name);
        const double at_y = tally_sweep_reference_value(reference, picture->y.name);
        if (isfinite(at_x) && isfinite(at_y)) {
            scale_take(x, at_x);
            scale_take(y, at_y);
        }
    }
}

static size_t make_marks(const struct tally_sweep *sweep, const struct tally_sweep_picture *picture,
                         struct mark *marks)
{
    size_t n = 0;
    for (size_t i = 0; i < sweep->n_rows; i++) {
        const struct tally_sweep_trial *trial = tally_sweep_trial_of(sweep, i);
        const double x = tally_sweep_summary(trial, &picture->x).mean;
        const struct tally_summary y = tally_sweep_summary(trial, &picture->y);
        if (isfinite(x) && isfinite(y.mean)) {
            marks[n++] = (struct mark){x, y.mean, isfinite(y.std) ? y.std : 0, i, 0};
        }
    }
    return n;
}

static void put_picture(struct tally_text *text, const struct tally_sweep *sweep)
{
    struct tally_sweep_picture picture;
    char names[GROUPS_MOST][TEXT_CAPACITY];
    const char *labels[GROUPS_MOST];
    size_t n_groups = 0;
    struct mark *marks = calloc(sweep->n_rows, sizeof *marks);
    if (marks == NULL) {
        text->status = TALLY_NO_MEMORY;
        return;
    }
    tally_sweep_choose_axes(sweep, &picture);
    struct scale x = scale_new(picture.x_log, LEFT, WIDTH - RIGHT);
    struct scale y = scale_new(picture.y_log, HEIGHT - BOTTOM, TOP);
    const size_t n = make_marks(sweep, &picture, marks);
    for (size_t i = 0; i < n; i++) {
        scale_take(&x, marks[i].x);
        scale_take(&y, marks[i].y + marks[i].std);
        scale_take(&y,
                   y.is_log && marks[i].y <= marks[i].std ? marks[i].y : marks[i].y - marks[i].std);
    }
    take_references(sweep, &picture, &x, &y);
    scale_close(&x);
    scale_close(&y);
    find_groups(sweep, picture.x.name, marks, n, names, &n_groups);
    qsort(marks, n, sizeof *marks, compare_marks);
    open_chart(text, picture.x.name, picture.y.name, &x, &y);
    if (n_groups <= GROUPS_MOST && picture.x.kind == TALLY_SWEEP_MEMBER) {
        put_lines(text, marks, n, &x, &y);
    }
    for (size_t i = 0; i < n; i++) {
        put_mark(text, sweep, &marks[i], &x, &y);
    }
    put_references(text, sweep, &picture, &x, &y);
    tally_text_put(text, "</svg>\n");
    for (size_t i = 0; i < n_groups && n_groups <= GROUPS_MOST; i++) {
        labels[i] = names[i];
    }
    if (n_groups > 1 && n_groups <= GROUPS_MOST) {
        put_legend(text, labels, n_groups);
    }
    free(marks);
}

/* ---- The curves. */

/* The best rows of the last stage, the best first. Returns their number. */
static size_t choose_rows(const struct tally_sweep *sweep, size_t ret_rows[CURVES_MOST])
{
    size_t n = 0;
    for (size_t i = 0; i < sweep->n_rows; i++) {
        const double mean = tally_sweep_summary(tally_sweep_trial_of(sweep, i), &sweep->by).mean;
        if (sweep->rows[i].stage != sweep->rows[sweep->best].stage || !isfinite(mean)) {
            continue;
        }
        size_t at = n < CURVES_MOST ? n : CURVES_MOST;
        while (at > 0 &&
               tally_sweep_is_better(
                   sweep, mean,
                   tally_sweep_summary(tally_sweep_trial_of(sweep, ret_rows[at - 1]), &sweep->by)
                       .mean)) {
            at--;
        }
        if (at < CURVES_MOST) {
            const size_t moved = (n < CURVES_MOST ? n : CURVES_MOST - 1) - at;
            memmove(ret_rows + at + 1, ret_rows + at, moved * sizeof *ret_rows);
            ret_rows[at] = i;
            n += n < CURVES_MOST;
        }
    }
    return n;
}

static double end_of(const struct tally_sweep_trial *trial)
{
    double end = 0;
    for (size_t i = 0; i < trial->n_runs; i++) {
        const struct tally_run *run = &trial->runs[i];
        end = fmax(end, run->curve[run->n_points - 1].time_step);
    }
    return end;
}

static double regret_at(const struct tally_sweep_trial *trial, int step)
{
    return tally_summary_of_regret_at(trial->runs, trial->n_runs,
                                      end_of(trial) * step / CURVE_STEPS)
        .mean;
}

static void put_curve(struct tally_text *text, const struct tally_sweep_trial *trial,
                      const char *colour, const struct scale *x, const struct scale *y)
{
    tally_text_put(text, "<path fill=\"none\" stroke-width=\"1.5\" d=\"");
    for (int step = 0; step <= CURVE_STEPS; step++) {
        const double regret = regret_at(trial, step);
        if (!isfinite(regret)) {
            break;
        }
        tally_text_printf(text, "%s%.1f %.1f", step == 0 ? "M" : "L",
                          scale_at(x, end_of(trial) * step / CURVE_STEPS), scale_at(y, regret));
    }
    tally_text_printf(text, "\" stroke=\"%s\"/>\n", colour);
}

static void put_curves(struct tally_text *text, const struct tally_sweep *sweep)
{
    size_t rows[CURVES_MOST];
    char names[CURVES_MOST][TEXT_CAPACITY];
    const char *labels[CURVES_MOST];
    const size_t n = choose_rows(sweep, rows);
    struct scale x = scale_new(false, LEFT, WIDTH - RIGHT);
    struct scale y = scale_new(false, HEIGHT - BOTTOM, TOP);
    for (size_t i = 0; i < n; i++) {
        const struct tally_sweep_trial *trial = tally_sweep_trial_of(sweep, rows[i]);
        for (int step = 0; step <= CURVE_STEPS; step++) {
            scale_take(&x, end_of(trial) * step / CURVE_STEPS);
            scale_take(&y, regret_at(trial, step));
        }
        group_name(sweep, rows[i], "", names[i]);
        labels[i] = names[i][0] != '\0' ? names[i] : "the job";
    }
    if (y.is_empty || !(y.max > y.min)) {
        return; /* there is no regret */
    }
    scale_close(&x);
    scale_close(&y);
    tally_text_put(text, "<h2>Regret over time</h2>\n");
    open_chart(text, "time step", "mean regret", &x, &y);
    for (size_t i = 0; i < n; i++) {
        put_curve(text, tally_sweep_trial_of(sweep, rows[i]), COLOUR[i % COLOURS], &x, &y);
    }
    tally_text_put(text, "</svg>\n");
    put_legend(text, labels, n);
}

/* ---- The table and the page. */

static void put_cell(struct tally_text *text, const char *cell, bool is_number)
{
    tally_text_put(text, is_number ? "<td class=\"n\">" : "<td>");
    put_escaped(text, cell);
    tally_text_put(text, "</td>");
}

static void put_row(struct tally_text *text, const struct tally_sweep *sweep, size_t row,
                    const struct tally_sweep_column *columns, size_t n)
{
    char cell[TEXT_CAPACITY], spread[64];
    tally_text_printf(text, "<tr%s><td class=\"n\">%zu</td>",
                      row == sweep->best ? " class=\"best\"" : "", row + 1);
    put_cell(text, sweep->rows[row].name, false);
    for (size_t i = 0; i < n; i++) {
        const bool is_text =
            columns[i].kind == TALLY_SWEEP_MEMBER &&
            isnan(tally_sweep_summary(tally_sweep_trial_of(sweep, row), &columns[i]).mean);
        tally_sweep_cell(sweep, row, &columns[i], false, cell, sizeof cell);
        if (tally_sweep_spreads(sweep, &columns[i])) {
            const size_t used = strlen(cell);
            tally_sweep_cell(sweep, row, &columns[i], true, spread, sizeof spread);
            if (strcmp(spread, "-") != 0 && strcmp(spread, "0") != 0) {
                snprintf(cell + used, sizeof cell - used, " ± %s", spread);
            }
        }
        put_cell(text, cell, !is_text);
    }
    tally_text_put(text, "</tr>\n");
}

static void put_reference(struct tally_text *text, const struct tally_json *reference,
                          const struct tally_sweep_column *columns, size_t n)
{
    tally_text_put(text, "<tr class=\"reference\"><td></td>");
    put_cell(text, tally_json_get_text(reference, "name"), false);
    for (size_t i = 0; i < n; i++) {
        char cell[64];
        tally_sweep_format(tally_sweep_reference_value(reference, columns[i].name), cell,
                           sizeof cell);
        put_cell(text, cell, true);
    }
    tally_text_put(text, "</tr>\n");
}

static void put_table(struct tally_text *text, const struct tally_sweep *sweep)
{
    struct tally_sweep_column columns[TALLY_SWEEP_COLUMNS_MOST];
    const size_t n = tally_sweep_columns(sweep, columns);
    tally_text_put(text, "<table>\n<tr><th>row</th><th></th>");
    for (size_t i = 0; i < n; i++) {
        tally_text_put(text, "<th>");
        put_escaped(text, columns[i].name);
        tally_text_put(text, "</th>");
    }
    tally_text_put(text, "</tr>\n");
    for (size_t i = 0; i < sweep->n_rows; i++) {
        put_row(text, sweep, i, columns, n);
    }
    const struct tally_json *reference;
    for (size_t i = 0; (reference = tally_sweep_reference_row(sweep, i)) != NULL; i++) {
        put_reference(text, reference, columns, n);
    }
    tally_text_put(text, "</table>\n");
}

static void put_best(struct tally_text *text, const struct tally_sweep *sweep)
{
    struct tally_buffer document = {0};
    struct tally_json *job = tally_sweep_job(sweep, sweep->best);
    enum tally_status status = job != NULL ? tally_json_dump(job, 2, &document) : TALLY_NO_MEMORY;
    if (status == TALLY_OK) {
        status = tally_buffer_append(&document, "", 1);
    }
    tally_json_free(job);
    if (status == TALLY_OK) {
        tally_text_printf(text, "<h2>The best job: row %zu, by %s</h2>\n<pre>", sweep->best + 1,
                          sweep->by.name);
        put_escaped(text, (const char *)document.data);
        tally_text_put(text, "</pre>\n");
    } else if (text->status == TALLY_OK) {
        text->status = status;
    }
    tally_buffer_fini(&document);
}

enum tally_status tally_sweep_page(const struct tally_sweep *sweep, struct tally_buffer *out)
{
    struct tally_text text = {out, TALLY_OK};
    const char *title = sweep->name[0] != '\0' ? sweep->name : "Sweep";
    tally_text_put(&text, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                          "<meta name=\"viewport\" content=\"width=device-width\">\n<title>");
    put_escaped(&text, title);
    tally_text_put(&text, "</title>\n");
    tally_text_put(&text, STYLE);
    tally_text_put(&text, "</head>\n<body>\n<h1>");
    put_escaped(&text, title);
    tally_text_put(&text, "</h1>\n");
    put_table(&text, sweep);
    if (sweep->n_seeds > 1) {
        tally_text_printf(&text,
                          "<p>Means over %zu seeds, %lld to %lld; ± is the standard deviation of "
                          "one run.</p>\n",
                          sweep->n_seeds, (long long)sweep->first_seed,
                          (long long)sweep->first_seed + (long long)sweep->n_seeds - 1);
    }
    put_picture(&text, sweep);
    put_curves(&text, sweep);
    put_best(&text, sweep);
    tally_text_put(&text, "</body>\n</html>\n");
    return text.status;
}
