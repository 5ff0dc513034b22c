/* rest_series: a job's rounds, thinned out for charts.
 *
 * The most recently requested series are kept and extended from the store, so that a job of 100,000
 * rounds is read in full only once, not whenever its chart is viewed. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/base/alloc.h"
#include "services/coordinator/coordinator.h"
#include "services/coordinator/jobs_live.h"
#include "services/coordinator/rest_routes.h"
#include "services/coordinator/rest_series.h"
#include "services/coordinator/rest_thinning.h"

enum { DEFAULT_POINTS = 1000, CACHED_SERIES = 16 /* at most 31 MB */ };
/* In one piece: rounds that are read, rows and numbers that are written. About 0.3 ms. */
enum { PIECE_ROUNDS = 32, PIECE_ROWS = 32, PIECE_NUMBERS = 512 };

struct series_cache {
    struct {
        char job_id[TALLY_JOB_ID_CAPACITY]; /* "" = free */
        struct series series;
        uint64_t used; /* lowest = least recently used */
        int n_users;   /* of series_use */
    } entries[CACHED_SERIES];
    uint64_t n_uses;
};

void series_cache_free(struct series_cache *cache)
{
    for (size_t i = 0; cache != NULL && i < CACHED_SERIES; i++) {
        series_fini(&cache->entries[i].series);
    }
    free(cache);
}

/* The entry of the job's series as read so far, or of an empty one that replaces the least recently
 * used; -1 = all are in use. */
static int find_entry(struct series_cache *cache, const char *job_id)
{
    int oldest = -1;
    for (int i = 0; i < CACHED_SERIES; i++) {
        if (strcmp(cache->entries[i].job_id, job_id) == 0) {
            return i;
        }
        if (cache->entries[i].n_users == 0 &&
            (oldest < 0 || cache->entries[i].used < cache->entries[oldest].used)) {
            oldest = i;
        }
    }
    if (oldest >= 0) {
        series_fini(&cache->entries[oldest].series);
        snprintf(cache->entries[oldest].job_id, TALLY_JOB_ID_CAPACITY, "%s", job_id);
    }
    return oldest;
}

static enum tally_status add_round(void *context, const struct tally_round_record *record,
                                   struct tally_error *err)
{
    struct series *series = context;
    return record->round == series_last_round(series) ? series_renew(series, record, err)
                                                      : series_add(series, record, err);
}

/* Takes an entry, if one is free. */
static void take_entry(struct tally_coordinator *coordinator, const char *job_id,
                       struct series_use *use)
{
    if (coordinator->series == NULL) {
        coordinator->series = tally_xcalloc(1, sizeof *coordinator->series);
    }
    struct series_cache *cache = coordinator->series;
    const int entry = find_entry(cache, job_id);
    if (entry >= 0) {
        cache->entries[entry].n_users++;
        cache->entries[entry].used = ++cache->n_uses;
        *use = (struct series_use){cache, entry, &cache->entries[entry].series, false};
    }
}

void series_release(struct series_use *use)
{
    if (use->series != NULL) {
        use->cache->entries[use->entry].n_users--;
        *use = (struct series_use){.series = NULL};
    }
}

enum tally_status series_read(struct tally_coordinator *coordinator,
                              const struct tally_store_job *row, struct series_use *use,
                              bool *ret_is_done, struct tally_error *err)
{
    struct tally_store *store = coordinator->store;
    *ret_is_done = false;
    if (use->series == NULL) {
        take_entry(coordinator, row->id, use);
    }
    if (use->series == NULL) {
        return TALLY_OK;
    }
    struct series *series = &use->cache->entries[use->entry].series;
    const int64_t last = series_last_round(series);
    enum tally_status status = TALLY_OK;
    if (last < row->progress.round || !use->is_renewed) {
        const int64_t after = use->is_renewed || last == 0 ? last : last - 1;
        status =
            store->ops->round_list(store, row->key, after, PIECE_ROUNDS, add_round, series, err);
        use->is_renewed = true;
    }
    *ret_is_done = series_last_round(series) >= row->progress.round;
    if (status == TALLY_OK && !*ret_is_done && series_last_round(series) == last) {
        struct tally_store_job now; /* the job may have been deleted meanwhile */
        status = jobs_read_row(coordinator, row->id, &now, err);
        if (status == TALLY_OK) {
            status = tally_fail(err, TALLY_DATA_LOSS, NULL, "no round after %lld of %lld",
                                (long long)last, (long long)row->progress.round);
        }
    }
    return status;
}

/* ",x" with the digits that read back as the same double; JSON has no NaN and no infinity. */
static enum tally_status append_real(struct tally_buffer *out, double value)
{
    return isfinite(value) ? tally_buffer_printf(out, ",%.17g", value)
                           : tally_buffer_append_text(out, ",null");
}

static enum tally_status append_row(struct tally_buffer *out, const struct series_row *row,
                                    bool is_first)
{
    const struct tally_ledger *bits = &row->totals.bits;
    enum tally_status status = tally_buffer_printf(
        out, "%s[%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64, is_first ? "" : ",\n",
        row->round, row->time_step, row->iterate, row->stage, row->samples);
    if (status == TALLY_OK) {
        status = append_real(out, row->norm);
    }
    if (status == TALLY_OK) {
        status = tally_buffer_printf(out, ",%s,%s", row->passed ? "true" : "false",
                                     row->cut ? "true" : "false");
    }
    if (status == TALLY_OK) {
        status = append_real(out, row->loss);
    }
    if (status == TALLY_OK) {
        status = append_real(out, row->totals.cumulative_regret);
    }
    if (status == TALLY_OK) {
        status = tally_buffer_printf(out,
                                     ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
                                     ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRId64 "]",
                                     bits->uplink.formula_bits, bits->uplink.payload_bits,
                                     bits->downlink.formula_bits, bits->downlink.payload_bits,
                                     bits->uplink.messages, bits->downlink.messages,
                                     bits->control_bits, bits->telemetry_bits, row->closed_ms);
    }
    return status;
}

/* A response while it is made. */
struct series_pieces {
    struct response_pieces pieces; /* must be first */
    struct tally_coordinator *coordinator;
    struct tally_store_job row;
    int64_t points;
    struct series_use use; /* until the rows are taken, because the series may then change */
    int64_t n_rounds;      /* of the series */
    struct series_row *rows;
    size_t n; /* rows */
    int n_names;
    char names[SERIES_METRICS_MOST][TALLY_METRIC_NAME_CAPACITY];
    double *values;   /* double[n_names][SERIES_METRIC_VALUES][n] */
    size_t n_written; /* rows, then the numbers in `values` */
};

static void free_series(struct response_pieces *pieces)
{
    struct series_pieces *made = (struct series_pieces *)pieces;
    series_release(&made->use);
    free(made->rows);
    free(made->values);
    free(made);
}

/* Copies the metrics of the rows. */
static enum tally_status take_values(struct series_pieces *made, const struct series *series)
{
    made->n_names = series->metrics.n_names;
    memcpy(made->names, series->metrics.names, sizeof made->names);
    if (made->n_names == 0) {
        return TALLY_OK;
    }
    made->values =
        malloc((size_t)made->n_names * SERIES_METRIC_VALUES * made->n * sizeof *made->values);
    double *at = made->values;
    for (int name = 0; at != NULL && name < made->n_names; name++) {
        for (int value = 0; value < SERIES_METRIC_VALUES; value++) {
            for (size_t i = 0; i < made->n; i++) {
                *at++ = series_metric(series, &made->rows[i], name)[value];
            }
        }
    }
    return at != NULL ? TALLY_OK : TALLY_NO_MEMORY;
}

/* Takes the rows from the complete series, and writes what comes before them. The response is text,
 * because 10,000 rows would be 180,000 JSON values. Ids and status names need no escapes. */
static enum tally_status begin_rows(struct series_pieces *made, struct tally_buffer *out)
{
    const struct series *series = made->use.series;
    made->rows = malloc((size_t)made->points * sizeof *made->rows);
    if (made->rows == NULL) {
        return TALLY_NO_MEMORY;
    }
    made->n = series_thin(series, (size_t)made->points, made->rows);
    made->n_rounds = series->n_rounds;
    enum tally_status status = made->n > 0 ? take_values(made, series) : TALLY_OK;
    made->pieces.n_bytes = (size_t)made->points * sizeof *made->rows +
                           (size_t)made->n_names * SERIES_METRIC_VALUES * made->n * sizeof(double);
    series_release(&made->use);
    if (status != TALLY_OK) {
        return status;
    }
    return tally_buffer_printf(
        out,
        "{\"job_id\": \"%s\", \"status\": \"%s\", \"rounds\": %" PRId64 ", \"reduced\": %s,\n"
        "\"columns\": [\"round\",\"time_step\",\"iterate\",\"stage\",\"samples\",\"norm\","
        "\"passed\",\"cut\",\"loss\",\"cumulative_regret\",\"uplink_formula\",\"uplink_payload\","
        "\"downlink_formula\",\"downlink_payload\",\"uplink_messages\",\"downlink_messages\","
        "\"control\",\"telemetry\",\"closed_ms\"],\n\"rows\": [",
        made->row.id, tally_job_status_name(made->row.status), made->n_rounds,
        (int64_t)made->n < made->n_rounds ? "true" : "false");
}

/* Writes the next number of the metrics, with what stands before and after it:
 *
 *     "metrics": {"accuracy": {"mean": [0.5,null], "min": [0.5,null], "max": [0.5,null]}}
 *
 * Names need no escapes. */
static enum tally_status append_number(const struct series_pieces *made, size_t at,
                                       struct tally_buffer *out)
{
    static const char *const MEMBERS[SERIES_METRIC_VALUES] = {"mean", "min", "max"};
    const size_t i = at % made->n, value = at / made->n % SERIES_METRIC_VALUES;
    const size_t name = at / made->n / SERIES_METRIC_VALUES;
    enum tally_status status = TALLY_OK;
    if (i == 0 && value == 0) {
        status = tally_buffer_printf(out, "%s\"%s\": {", name > 0 ? ",\n" : "", made->names[name]);
    }
    if (status == TALLY_OK && i == 0) {
        status = tally_buffer_printf(out, "%s\"%s\": [", value > 0 ? ", " : "", MEMBERS[value]);
    }
    const double number = made->values[at];
    if (status == TALLY_OK) {
        status = isfinite(number) ? tally_buffer_printf(out, "%s%.17g", i > 0 ? "," : "", number)
                                  : tally_buffer_append_text(out, i > 0 ? ",null" : "null");
    }
    if (status == TALLY_OK && i + 1 == made->n) {
        status = tally_buffer_append_text(out, value + 1 == SERIES_METRIC_VALUES ? "]}" : "]");
    }
    return status;
}

/* Writes the next rows or numbers. */
static enum tally_status append_more(struct series_pieces *made, struct tally_buffer *out)
{
    enum tally_status status = TALLY_OK;
    for (int i = 0; status == TALLY_OK && i < PIECE_ROWS && made->n_written < made->n; i++) {
        status = append_row(out, &made->rows[made->n_written], made->n_written == 0);
        made->n_written++;
        if (status == TALLY_OK && made->n_written == made->n && made->n_names > 0) {
            return tally_buffer_append_text(out, "],\n\"metrics\": {");
        }
    }
    const size_t n_numbers = (size_t)made->n_names * SERIES_METRIC_VALUES * made->n;
    for (int i = 0; status == TALLY_OK && i < PIECE_NUMBERS && made->n_written >= made->n &&
                    made->n_written < made->n + n_numbers;
         i++) {
        status = append_number(made, made->n_written++ - made->n, out);
    }
    return status;
}

static enum tally_status write_series(struct call *call, struct tally_error *err)
{
    struct series_pieces *made = (struct series_pieces *)call->pieces;
    enum tally_status status = TALLY_OK;
    if (made->rows == NULL) {
        bool is_read;
        status = series_read(made->coordinator, &made->row, &made->use, &is_read, err);
        if (status != TALLY_OK || !is_read) {
            return status;
        }
        status = begin_rows(made, &call->body);
    } else {
        status = append_more(made, &call->body);
    }
    const size_t n_numbers = (size_t)made->n_names * SERIES_METRIC_VALUES * made->n;
    if (status == TALLY_OK && made->n_written < made->n + n_numbers) {
        return TALLY_OK;
    }
    if (status == TALLY_OK) {
        status = tally_buffer_append_text(&call->body, n_numbers > 0 ? "}}\n" : "]}\n");
    }
    return call_answer_bytes(call, status, "application/json", err);
}

enum tally_status rest_get_series(struct tally_coordinator *coordinator, struct call *call,
                                  struct tally_error *err)
{
    struct series_pieces *made = tally_xcalloc(1, sizeof *made);
    made->pieces = (struct response_pieces){write_series, free_series, 0};
    made->coordinator = coordinator;
    call->pieces = &made->pieces;
    enum tally_status status = call_read_query_integer(
        call, "points", SERIES_MIN_POINTS, SERIES_MAX_POINTS, DEFAULT_POINTS, &made->points, err);
    if (status == TALLY_OK) {
        status = jobs_read_row(coordinator, call->params[0], &made->row, err);
    }
    return status == TALLY_OK ? write_series(call, err) : status;
}
