/* series: a job's rounds, thinned out for charts.
 *
 * The most recently requested series are kept and extended from the store, so that a job of 100,000
 * rounds is read in full only once, not whenever its chart is viewed. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/coordinator/base/rooms.h"
#include "services/coordinator/jobs/live_jobs.h"
#include "services/coordinator/rest/handlers.h"
#include "services/coordinator/rest/series.h"
#include "services/coordinator/rest/thinning/thinning.h"

enum { DEFAULT_POINTS = 1000, CACHED_SERIES = 16 /* at most 31 MB */ };

struct series_cache {
    struct {
        char job_id[TALLY_JOB_ID_CAPACITY]; /* "" = free */
        struct series series;
        uint64_t used; /* lowest = least recently used */
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

/* The job's series as read so far, or an empty one that replaces the least recently used. */
static struct series *cached_series(struct series_cache *cache, const char *job_id)
{
    size_t oldest = 0;
    for (size_t i = 0; i < CACHED_SERIES; i++) {
        if (strcmp(cache->entries[i].job_id, job_id) == 0) {
            cache->entries[i].used = ++cache->n_uses;
            return &cache->entries[i].series;
        }
        if (cache->entries[i].used < cache->entries[oldest].used) {
            oldest = i;
        }
    }
    series_fini(&cache->entries[oldest].series);
    snprintf(cache->entries[oldest].job_id, TALLY_JOB_ID_CAPACITY, "%s", job_id);
    cache->entries[oldest].used = ++cache->n_uses;
    return &cache->entries[oldest].series;
}

static enum tally_status add_round(void *context, const struct tally_round_record *record,
                                   struct tally_error *err)
{
    return series_add(context, record, err);
}

enum tally_status read_series(struct tally_coordinator *coordinator,
                              const struct tally_store_job *row, const struct series **ret_series,
                              struct tally_error *err)
{
    if (coordinator->series == NULL) {
        coordinator->series = calloc(1, sizeof *coordinator->series);
    }
    if (coordinator->series == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the series");
    }
    struct series *series = cached_series(coordinator->series, row->id);
    struct tally_store *store = coordinator->store;
    enum tally_status status = store->ops->round_list(store, row->key, series_last_round(series),
                                                      INT64_MAX, add_round, series, err);
    if (status == TALLY_OK) {
        *ret_series = series;
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
                                     ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 "]",
                                     bits->uplink.formula_bits, bits->uplink.payload_bits,
                                     bits->downlink.formula_bits, bits->downlink.payload_bits,
                                     bits->uplink.messages, bits->downlink.messages,
                                     bits->control_bits, bits->telemetry_bits);
    }
    return status;
}

/* "mean": [0.5,null], */
static enum tally_status append_values(struct tally_buffer *out, const struct series *series,
                                       const struct series_row *rows, size_t n, int name, int value)
{
    static const char *const MEMBERS[SERIES_METRIC_VALUES] = {"mean", "min", "max"};
    enum tally_status status =
        tally_buffer_printf(out, "%s\"%s\": [", value > 0 ? ", " : "", MEMBERS[value]);
    for (size_t i = 0; status == TALLY_OK && i < n; i++) {
        const double number = series_metric(series, &rows[i], name)[value];
        status = isfinite(number) ? tally_buffer_printf(out, "%s%.17g", i > 0 ? "," : "", number)
                                  : tally_buffer_append_text(out, i > 0 ? ",null" : "null");
    }
    return status == TALLY_OK ? tally_buffer_append_text(out, "]") : status;
}

/* Appends lists with one value for each row; no member for a job without metrics. Names need no
 * escapes. */
static enum tally_status append_metrics(struct tally_buffer *out, const struct series *series,
                                        const struct series_row *rows, size_t n)
{
    const struct series_metrics *metrics = &series->metrics;
    if (metrics->n_names == 0) {
        return TALLY_OK;
    }
    enum tally_status status = tally_buffer_append_text(out, ",\n\"metrics\": {");
    for (int name = 0; status == TALLY_OK && name < metrics->n_names; name++) {
        status =
            tally_buffer_printf(out, "%s\"%s\": {", name > 0 ? ",\n" : "", metrics->names[name]);
        for (int value = 0; status == TALLY_OK && value < SERIES_METRIC_VALUES; value++) {
            status = append_values(out, series, rows, n, name, value);
        }
        if (status == TALLY_OK) {
            status = tally_buffer_append_text(out, "}");
        }
    }
    return status == TALLY_OK ? tally_buffer_append_text(out, "}") : status;
}

/* Writes text, because 10,000 rows would be 180,000 JSON values. Ids and status names need no
 * escapes. */
static enum tally_status append_answer(struct tally_buffer *out, const struct tally_store_job *row,
                                       const struct series *series, const struct series_row *rows,
                                       size_t n)
{
    enum tally_status status = tally_buffer_printf(
        out,
        "{\"job_id\": \"%s\", \"status\": \"%s\", \"rounds\": %" PRId64 ", \"reduced\": %s,\n"
        "\"columns\": [\"round\",\"time_step\",\"iterate\",\"stage\",\"samples\",\"norm\","
        "\"passed\",\"cut\",\"loss\",\"cumulative_regret\",\"uplink_formula\",\"uplink_payload\","
        "\"downlink_formula\",\"downlink_payload\",\"uplink_messages\",\"downlink_messages\","
        "\"control\",\"telemetry\"],\n\"rows\": [",
        row->id, tally_job_status_name(row->status), series->n_rounds,
        (int64_t)n < series->n_rounds ? "true" : "false");
    for (size_t i = 0; status == TALLY_OK && i < n; i++) {
        status = append_row(out, &rows[i], i == 0);
    }
    if (status == TALLY_OK) {
        status = tally_buffer_append_text(out, "]");
    }
    if (status == TALLY_OK) {
        status = append_metrics(out, series, rows, n);
    }
    return status == TALLY_OK ? tally_buffer_append_text(out, "}\n") : status;
}

enum tally_status get_series(struct tally_coordinator *coordinator, struct call *call,
                             struct tally_error *err)
{
    struct tally_store_job row;
    const struct series *series = NULL;
    struct series_row *rows = NULL;
    int64_t points;
    enum tally_status status = read_query_integer(call, "points", SERIES_MIN_POINTS,
                                                  SERIES_MAX_POINTS, DEFAULT_POINTS, &points, err);
    if (status == TALLY_OK) {
        status = read_row(coordinator, call->params[0], &row, err);
    }
    if (status == TALLY_OK) {
        status = read_series(coordinator, &row, &series, err);
    }
    if (status == TALLY_OK) {
        rows = malloc((size_t)points * sizeof *rows);
        status = rows != NULL ? TALLY_OK : TALLY_NO_MEMORY;
    }
    if (status == TALLY_OK) {
        const size_t n = series_thin(series, (size_t)points, rows);
        status = append_answer(&call->body, &row, series, rows, n);
    }
    free(rows);
    return answer_bytes(call, status, "application/json", err);
}
