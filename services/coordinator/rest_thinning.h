/* rest_thinning: a job's rounds as a bounded list for charts, thinned out so that extremes survive.
 *
 * Rounds are added in order. The list keeps all of them up to SERIES_MAX_ROWS; when it is full, the
 * rounds are divided into buckets of equal width, and each bucket keeps its rows with the least and
 * greatest norm and the least and greatest loss (the first and the last row of all also stay).
 * Later rounds are all kept until the list is full again; the width then becomes a multiple of the
 * old one. An extreme of a wide bucket is also one of the narrow bucket that it lies in, so rows
 * dropped earlier do not matter: the result is that of thinning all rounds. Cost: O(1) per round,
 * amortised; a few MB per series whatever the job's length.
 *
 * Running totals are those after the row's round and are exact, because every round was added.
 *
 * Metrics do not decide which rows stay. Their values are stored beside the rows, so that a job
 * without metrics pays nothing for them. */
#ifndef TALLY_SERVICES_COORDINATOR_REST_THINNING_H
#define TALLY_SERVICES_COORDINATOR_REST_THINNING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/error.h"
#include "codec/record.h"

enum {
    SERIES_MIN_POINTS = 10,    /* room for first, last and two buckets */
    SERIES_MAX_POINTS = 10000, /* up to this many rounds need no thinning */
    SERIES_MAX_ROWS = 12000
};

/* Totals of a job after a round. */
struct series_totals {
    double cumulative_regret;
    struct tally_ledger bits;
};

struct series_row {
    int64_t round, time_step, iterate, stage, samples;
    double norm, loss;
    bool passed, cut;
    size_t slot; /* of its metrics */
    int64_t closed_ms;
    struct series_totals totals;
};

enum {
    SERIES_METRIC_VALUES = 3, /* mean, min, max */
    SERIES_METRICS_MOST = TALLY_JOB_METRICS_MOST
};

/* The first SERIES_METRICS_MOST different names of a job's rounds; others are left out. */
struct series_metrics {
    char names[SERIES_METRICS_MOST][TALLY_METRIC_NAME_CAPACITY]; /* in the order they came */
    int n_names;
    double *values; /* double[capacity][n_names][SERIES_METRIC_VALUES] by slot, NaN where a round
                     * lacks a metric; NULL if n_names is 0 */
};

struct series {
    struct series_row *rows; /* ascending by round */
    size_t n_rows, capacity;
    int64_t n_rounds; /* added */
    int64_t width;    /* rounds per bucket of the thinned part; 0 = nothing was thinned */
    struct series_totals totals;  /* after the last round */
    uint64_t last_telemetry_bits; /* of the last round alone */
    struct series_metrics metrics;
};

/* A zeroed struct is an empty series. */
void series_fini(struct series *series);

/* Adds a record to running totals; the regret is replaced. */
void series_totals_add(struct series_totals *totals, const struct tally_round_record *record);
struct series_totals series_totals_of(const struct tally_progress *progress);

/* Adds a round. Errors: DATA_LOSS (its number is not past the last one, or below 1), NO_MEMORY; the
 * series is unchanged then. */
enum tally_status series_add(struct series *series, const struct tally_round_record *record,
                             struct tally_error *err);
/* Takes the last round's record again, to which an evaluation may have been added since. Errors:
 * NO_MEMORY; the series is unchanged then. */
enum tally_status series_renew(struct series *series, const struct tally_round_record *record,
                               struct tally_error *err);
/* The last round added; 0 = none. */
int64_t series_last_round(const struct series *series);
/* Writes at most n_max rows, n_max in [SERIES_MIN_POINTS, SERIES_MAX_POINTS], and returns how many:
 * all rounds if there are no more. */
size_t series_thin(const struct series *series, size_t n_max, struct series_row *ret_rows);
/* Mean, min and max of the metric `name`, an index, in a row that series_thin() wrote; NaN = none.
 * Borrowed until the series changes. */
const double *series_metric(const struct series *series, const struct series_row *row, int name);
/* The newest kept row whose round is <= round; NULL = none. */
const struct series_row *series_at_or_before(const struct series *series, int64_t round);

#endif
