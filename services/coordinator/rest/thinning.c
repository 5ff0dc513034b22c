#include "services/coordinator/rest/thinning.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

enum { EXTREMES = 4, FIRST_CAPACITY = 64 };

void series_fini(struct series *series)
{
    free(series->rows);
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

/* The least width with which `last` rounds give at most n_max rows, and that does not cut through
 * the buckets of `width`. */
static int64_t width_for(int64_t last, size_t n_max, int64_t width)
{
    const int64_t n_buckets = ((int64_t)n_max - 2) / EXTREMES;
    const int64_t unit = width > 0 ? width : 1;
    const int64_t needed = (last - 1) / n_buckets + 1;
    return ((needed - 1) / unit + 1) * unit;
}

/* A number beats none: a loss that is NaN must not hide the others. */
static bool is_less(double a, double b)
{
    return a < b || (isnan(b) && !isnan(a));
}
static bool is_greater(double a, double b)
{
    return a > b || (isnan(b) && !isnan(a));
}

/* Copies what is kept of one bucket, and the ends of the list; returns how many rows. `ret_kept`
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

/* Makes room for one more row. */
static enum tally_status make_room(struct series *series)
{
    if (series->n_rows < series->capacity) {
        return TALLY_OK;
    }
    if (series->capacity == SERIES_MAX_ROWS) {
        series->width = width_for(series_last_round(series), SERIES_MAX_ROWS / 2, series->width);
        series->n_rows = thin(series->rows, series->n_rows, series->width, series->rows);
        return TALLY_OK;
    }
    size_t capacity = series->capacity == 0 ? FIRST_CAPACITY : 2 * series->capacity;
    capacity = capacity < SERIES_MAX_ROWS ? capacity : SERIES_MAX_ROWS;
    struct series_row *rows = realloc(series->rows, capacity * sizeof *rows);
    if (rows == NULL) {
        return TALLY_NO_MEMORY;
    }
    series->rows = rows;
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
    if (status != TALLY_OK) {
        return tally_fail(err, status, NULL, "no memory for the rounds");
    }
    series_totals_add(&series->totals, record);
    series->n_rounds++;
    series->rows[series->n_rows++] = (struct series_row){.round = record->round,
                                                         .time_step = record->time_step,
                                                         .iterate = record->iterate,
                                                         .stage = record->stage,
                                                         .samples = record->samples,
                                                         .norm = record->norm,
                                                         .loss = record->loss,
                                                         .passed = record->passed,
                                                         .cut = record->cut,
                                                         .totals = series->totals};
    return TALLY_OK;
}

size_t series_thin(const struct series *series, size_t n_max, struct series_row *ret_rows)
{
    assert(n_max >= SERIES_MIN_POINTS && n_max <= SERIES_MAX_POINTS);
    const int64_t width = series->n_rows <= n_max
                              ? 1 /* a bucket for each: all stay */
                              : width_for(series_last_round(series), n_max, series->width);
    return thin(series->rows, series->n_rows, width, ret_rows);
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
