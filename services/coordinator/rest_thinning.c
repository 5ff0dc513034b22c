#include "services/coordinator/rest_thinning.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { EXTREMES = 4, FIRST_CAPACITY = 64 };

void series_fini(struct series *series)
{
    free(series->rows);
    free(series->metrics.values);
    *series = (struct series){0};
}

void series_totals_add(struct series_totals *totals, const struct tally_round_record *record)
{
    totals->cumulative_regret = record->cumulative_regret;
    tally_ledger_add(&totals->bits, &record->bits);
}

struct series_totals series_totals_of(const struct tally_progress *progress)
{
    return (struct series_totals){progress->cumulative_regret, progress->bits};
}

int64_t series_last_round(const struct series *series)
{
    return series->n_rows > 0 ? series->rows[series->n_rows - 1].round : 0;
}

/* The least width with which `last` rounds give at most n_max rows; a multiple of `width`, so that
 * no bucket is cut. */
static int64_t width_for(int64_t last, size_t n_max, int64_t width)
{
    const int64_t n_buckets = ((int64_t)n_max - 2) / EXTREMES;
    const int64_t unit = width > 0 ? width : 1;
    const int64_t needed = (last - 1) / n_buckets + 1;
    return ((needed - 1) / unit + 1) * unit;
}

/* Any number is preferred to NaN: a NaN loss must not hide the others. */
static bool is_less(double a, double b)
{
    return a < b || (isnan(b) && !isnan(a));
}
static bool is_greater(double a, double b)
{
    return a > b || (isnan(b) && !isnan(a));
}

/* Copies the rows to keep of one bucket, and the ends of the list; returns their number. `ret_kept`
 * may be `rows` itself or lie in front of it. */
static size_t keep_extremes(const struct series_row *rows, size_t n, bool is_first, bool is_last,
                            struct series_row *ret_kept)
{
    size_t least_norm = 0, greatest_norm = 0, least_loss = 0, greatest_loss = 0;
    for (size_t i = 1; i < n; i++) {
        least_norm = is_less(rows[i].norm, rows[least_norm].norm) ? i : least_norm;
        greatest_norm = is_greater(rows[i].norm, rows[greatest_norm].norm) ? i : greatest_norm;
        least_loss = is_less(rows[i].loss, rows[least_loss].loss) ? i : least_loss;
        greatest_loss = is_greater(rows[i].loss, rows[greatest_loss].loss) ? i : greatest_loss;
    }
    size_t n_kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (i == least_norm || i == greatest_norm || i == least_loss || i == greatest_loss ||
            (is_first && i == 0) || (is_last && i + 1 == n)) {
            ret_kept[n_kept++] = rows[i];
        }
    }
    return n_kept;
}

/* Thins `rows` with buckets of `width` rounds; `ret_rows` may be `rows`. */
static size_t thin(const struct series_row *rows, size_t n, int64_t width,
                   struct series_row *ret_rows)
{
    size_t n_kept = 0;
    for (size_t start = 0, end; start < n; start = end) {
        const int64_t bucket = (rows[start].round - 1) / width;
        for (end = start + 1; end < n && (rows[end].round - 1) / width == bucket;) {
            end++;
        }
        n_kept += keep_extremes(rows + start, end - start, start == 0, end == n, ret_rows + n_kept);
    }
    return n_kept;
}

/* The values of a slot in a layout for n_names names. */
static double *values_at(double *values, int n_names, size_t slot)
{
    return values + slot * (size_t)n_names * SERIES_METRIC_VALUES;
}

/* The index of a name; n_names if it is not there. */
static int find_name(const struct series_metrics *metrics, const char *name)
{
    int i = 0;
    while (i < metrics->n_names && strcmp(metrics->names[i], name) != 0) {
        i++;
    }
    return i;
}

/* Lays the values of all rows out for n_names names, at least as many as now, and `capacity` rows.
 */
static enum tally_status lay_out(struct series *series, int n_names, size_t capacity)
{
    struct series_metrics *metrics = &series->metrics;
    const size_t n_values = capacity * (size_t)n_names * SERIES_METRIC_VALUES;
    if (n_values == 0) {
        return TALLY_OK;
    }
    double *values = malloc(n_values * sizeof *values);
    if (values == NULL) {
        return TALLY_NO_MEMORY;
    }
    for (size_t i = 0; i < n_values; i++) {
        values[i] = NAN;
    }
    const size_t old_bytes = (size_t)metrics->n_names * SERIES_METRIC_VALUES * sizeof *values;
    for (size_t slot = 0; metrics->values != NULL && slot < series->n_rows; slot++) {
        memcpy(values_at(values, n_names, slot), values_at(metrics->values, metrics->n_names, slot),
               old_bytes);
    }
    free(metrics->values);
    metrics->values = values;
    return TALLY_OK;
}

/* Adds names that the series does not have yet, if there is room. */
static enum tally_status add_names(struct series *series, const char *summaries)
{
    struct series_metrics *metrics = &series->metrics;
    struct tally_metric_summary summary;
    while (tally_metrics_next(&summaries, &summary)) {
        if (metrics->n_names == SERIES_METRICS_MOST ||
            find_name(metrics, summary.name) < metrics->n_names) {
            continue;
        }
        enum tally_status status = lay_out(series, metrics->n_names + 1, series->capacity);
        if (status != TALLY_OK) {
            return status;
        }
        memcpy(metrics->names[metrics->n_names++], summary.name, sizeof summary.name);
    }
    return TALLY_OK;
}

static void put_values(struct series_metrics *metrics, size_t slot, const char *summaries)
{
    struct tally_metric_summary summary;
    double *values = values_at(metrics->values, metrics->n_names, slot);
    for (int i = 0; i < metrics->n_names * SERIES_METRIC_VALUES; i++) {
        values[i] = NAN;
    }
    while (tally_metrics_next(&summaries, &summary)) {
        const int name = find_name(metrics, summary.name);
        if (name < metrics->n_names) {
            double *at = values + name * SERIES_METRIC_VALUES;
            at[0] = summary.mean;
            at[1] = summary.min;
            at[2] = summary.max;
        }
    }
}

/* Moves the values of the rows that stayed to the front; none moves towards the end. */
static void close_gaps(struct series *series)
{
    const int n_names = series->metrics.n_names;
    const size_t bytes = (size_t)n_names * SERIES_METRIC_VALUES * sizeof(double);
    for (size_t i = 0; i < series->n_rows; i++) {
        if (bytes > 0) {
            memmove(values_at(series->metrics.values, n_names, i),
                    values_at(series->metrics.values, n_names, series->rows[i].slot), bytes);
        }
        series->rows[i].slot = i;
    }
}

/* Makes room for one more row. */
static enum tally_status make_room(struct series *series)
{
    if (series->n_rows < series->capacity) {
        return TALLY_OK;
    }
    if (series->capacity == SERIES_MAX_ROWS) {
        series->width = width_for(series_last_round(series), SERIES_MAX_ROWS / 2, series->width);
        series->n_rows = thin(series->rows, series->n_rows, series->width, series->rows);
        close_gaps(series);
        return TALLY_OK;
    }
    size_t capacity = series->capacity == 0 ? FIRST_CAPACITY : 2 * series->capacity;
    capacity = capacity < SERIES_MAX_ROWS ? capacity : SERIES_MAX_ROWS;
    struct series_row *rows = realloc(series->rows, capacity * sizeof *rows);
    if (rows == NULL) {
        return TALLY_NO_MEMORY;
    }
    series->rows = rows;
    enum tally_status status = lay_out(series, series->metrics.n_names, capacity);
    if (status != TALLY_OK) {
        return status;
    }
    series->capacity = capacity;
    return TALLY_OK;
}

enum tally_status series_add(struct series *series, const struct tally_round_record *record,
                             struct tally_error *err)
{
    if (record->round <= series_last_round(series)) {
        return tally_fail(err, TALLY_DATA_LOSS, "round", "round %lld after round %lld",
                          (long long)record->round, (long long)series_last_round(series));
    }
    enum tally_status status = make_room(series);
    if (status == TALLY_OK) {
        status = add_names(series, record->metrics);
    }
    if (status != TALLY_OK) {
        return tally_fail(err, status, NULL, "no memory for the rounds");
    }
    if (series->metrics.n_names > 0) {
        put_values(&series->metrics, series->n_rows, record->metrics);
    }
    series_totals_add(&series->totals, record);
    series->last_telemetry_bits = record->bits.telemetry_bits;
    series->n_rounds++;
    const size_t slot = series->n_rows++;
    series->rows[slot] = (struct series_row){.round = record->round,
                                             .slot = slot,
                                             .time_step = record->time_step,
                                             .iterate = record->iterate,
                                             .stage = record->stage,
                                             .samples = record->samples,
                                             .norm = record->norm,
                                             .loss = record->loss,
                                             .passed = record->passed,
                                             .cut = record->cut,
                                             .closed_ms = record->closed_ms,
                                             .totals = series->totals};
    return TALLY_OK;
}

enum tally_status series_renew(struct series *series, const struct tally_round_record *record,
                               struct tally_error *err)
{
    assert(record->round == series_last_round(series));
    if (add_names(series, record->metrics) != TALLY_OK) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the rounds");
    }
    struct series_row *last = &series->rows[series->n_rows - 1];
    if (series->metrics.n_names > 0) {
        put_values(&series->metrics, last->slot, record->metrics);
    }
    series->totals.bits.telemetry_bits += record->bits.telemetry_bits - series->last_telemetry_bits;
    series->last_telemetry_bits = record->bits.telemetry_bits;
    last->totals = series->totals;
    return TALLY_OK;
}

size_t series_thin(const struct series *series, size_t n_max, struct series_row *ret_rows)
{
    assert(n_max >= SERIES_MIN_POINTS && n_max <= SERIES_MAX_POINTS);
    const int64_t width = series->n_rows <= n_max
                              ? 1 /* one bucket per round: all rows stay */
                              : width_for(series_last_round(series), n_max, series->width);
    return thin(series->rows, series->n_rows, width, ret_rows);
}

const double *series_metric(const struct series *series, const struct series_row *row, int name)
{
    return values_at(series->metrics.values, series->metrics.n_names, row->slot) +
           name * SERIES_METRIC_VALUES;
}

const struct series_row *series_at_or_before(const struct series *series, int64_t round)
{
    size_t low = 0, high = series->n_rows; /* rows[low - 1] is not past it, rows[high] is */
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (series->rows[middle].round <= round) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low > 0 ? &series->rows[low - 1] : NULL;
}
