#include "services/job/job_metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codec/numeric/wide_sum.h"

static const uint64_t VALUE_BITS = 64; /* a float64 */
static const uint64_t NAME_BITS = 8;   /* a byte of a name */

void job_metrics_fini(struct job_metrics *metrics)
{
    free(metrics->open.values);
    free(metrics->closed.values);
    free(metrics->open.weights);
    free(metrics->closed.weights);
    *metrics = (struct job_metrics){0};
}

static void forget(struct job_metric_values *values, uint32_t cohort)
{
    values->n_names = 0;
    for (size_t i = 0; values->values != NULL && i < cohort * (size_t)TALLY_METRICS_MOST; i++) {
        values->values[i] = NAN;
    }
}

void job_metrics_clear(struct job_metrics *metrics)
{
    forget(&metrics->open, metrics->clients);
}

/* The place of a name; n_names if it is not there. */
static int find(const struct job_metric_values *values, const char *name)
{
    int i = 0;
    while (i < values->n_names && strcmp(values->names[i], name) != 0) {
        i++;
    }
    return i;
}

static bool is_repeated(const struct tally_metric *reported, size_t i)
{
    for (size_t k = 0; k < i; k++) {
        if (strcmp(reported[k].name, reported[i].name) == 0) {
            return true;
        }
    }
    return false;
}

static enum tally_status check_one(const struct tally_metric *reported, size_t i,
                                   struct tally_error *err)
{
    const char *name = reported[i].name;
    if (!tally_metric_is_name(name)) {
        return tally_fail(err, TALLY_MALFORMED, "metrics",
                          "\"%s\" is not a name of a metric: [a-z][a-z0-9_]{0,31}", name);
    }
    return is_repeated(reported, i)
               ? tally_fail(err, TALLY_MALFORMED, "metrics", "metric %s appears twice", name)
               : TALLY_OK;
}

static enum tally_status make_room(struct job_metrics *metrics, uint32_t cohort,
                                   struct tally_error *err)
{
    if (metrics->open.values != NULL) {
        return TALLY_OK;
    }
    const size_t n_bytes = cohort * (size_t)TALLY_METRICS_MOST * sizeof(double);
    const size_t n_weights = metrics->is_weighted ? cohort : 0;
    double *open = malloc(n_bytes), *closed = malloc(n_bytes);
    uint32_t *weights = calloc(n_weights + 1, sizeof *weights);
    uint32_t *closed_weights = calloc(n_weights + 1, sizeof *weights);
    if (open == NULL || closed == NULL || weights == NULL || closed_weights == NULL) {
        free(open);
        free(closed);
        free(weights);
        free(closed_weights);
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the metrics of %u clients",
                          cohort);
    }
    metrics->open.values = open;
    metrics->closed.values = closed;
    metrics->open.weights = weights;
    metrics->closed.weights = closed_weights;
    metrics->clients = cohort;
    forget(&metrics->open, cohort);
    forget(&metrics->closed, cohort);
    return TALLY_OK;
}

enum tally_status job_metrics_check(struct job_metrics *metrics, uint32_t cohort,
                                    const struct tally_metric *reported, size_t n,
                                    struct tally_error *err)
{
    if (n > TALLY_METRICS_MOST) {
        return tally_fail(err, TALLY_MALFORMED, "metrics", "%zu metrics, at most %d", n,
                          TALLY_METRICS_MOST);
    }
    int n_names = metrics->open.n_names;
    for (size_t i = 0; i < n; i++) {
        enum tally_status status = check_one(reported, i, err);
        if (status != TALLY_OK) {
            return status;
        }
        n_names += isfinite(reported[i].value) &&
                   find(&metrics->open, reported[i].name) == metrics->open.n_names;
    }
    if (n_names > TALLY_METRICS_MOST) {
        return tally_fail(err, TALLY_MALFORMED, "metrics",
                          "with these metrics the round has %d different names, at most %d",
                          n_names, TALLY_METRICS_MOST);
    }
    return n > 0 ? make_room(metrics, cohort, err) : TALLY_OK;
}

void job_metrics_take(struct job_metrics *metrics, uint32_t client_place, uint32_t weight,
                      const struct tally_metric *reported, size_t n)
{
    struct job_metric_values *open = &metrics->open;
    if (metrics->is_weighted && n > 0) {
        open->weights[client_place] = weight;
    }
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(reported[i].value)) {
            continue;
        }
        const int place = find(open, reported[i].name);
        if (place == open->n_names) {
            memcpy(open->names[place], reported[i].name, sizeof open->names[place]);
            open->n_names++;
        }
        open->values[client_place * (size_t)TALLY_METRICS_MOST + (size_t)place] = reported[i].value;
    }
}

/* The sum of one name's values, from `first` on, in client order, each divided by `divisor`. */
static double sum_of(const struct job_metrics *metrics, const double *first, double divisor)
{
    double sum = 0;
    for (uint32_t m = 0; m < metrics->clients; m++) {
        const double value = first[m * (size_t)TALLY_METRICS_MOST];
        sum += isnan(value) ? 0 : value / divisor;
    }
    return sum;
}

/* The mean of one name's values, from `first` on, by the weights of the clients that have it. */
static double weighted_mean(const struct job_metrics *metrics, const double *first)
{
    const uint32_t *weights = metrics->open.weights;
    double known = 0, n_known = 0, total = 0;
    struct tally_wide_sum sum = {0};
    for (uint32_t m = 0; m < metrics->clients; m++) {
        const bool counts = !isnan(first[m * (size_t)TALLY_METRICS_MOST]) && weights[m] > 0;
        known += counts ? weights[m] : 0;
        n_known += counts;
    }
    const double usual = n_known > 0 ? known / n_known : 1;
    for (uint32_t m = 0; m < metrics->clients; m++) {
        const double value = first[m * (size_t)TALLY_METRICS_MOST];
        const double weight = weights[m] > 0 ? weights[m] : usual;
        if (!isnan(value)) {
            tally_wide_sum_add(&sum, weight, value);
            total += weight;
        }
    }
    return tally_wide_sum_mean(&sum, total);
}

static struct tally_metric_summary summary_of(const struct job_metrics *metrics, int place)
{
    struct tally_metric_summary summary = {.min = INFINITY, .max = -INFINITY};
    const double *first = metrics->open.values + place;
    int64_t n = 0;
    for (uint32_t m = 0; m < metrics->clients; m++) {
        const double value = first[m * (size_t)TALLY_METRICS_MOST];
        if (!isnan(value)) {
            n++;
            summary.min = value < summary.min ? value : summary.min;
            summary.max = value > summary.max ? value : summary.max;
        }
    }
    if (metrics->is_weighted) {
        summary.mean = fmin(fmax(weighted_mean(metrics, first), summary.min), summary.max);
    } else {
        const double sum = sum_of(metrics, first, 1);
        /* The mean of finite values is finite, even if their sum is not. */
        summary.mean =
            isfinite(sum) ? sum / (double)n
                          : fmin(fmax(sum_of(metrics, first, (double)n), summary.min), summary.max);
    }
    memcpy(summary.name, metrics->open.names[place], sizeof summary.name);
    return summary;
}

/* The least name above `last`; -1 = none. */
static int next_name(const struct job_metric_values *values, const char *last)
{
    int least = -1;
    for (int i = 0; i < values->n_names; i++) {
        if (strcmp(values->names[i], last) > 0 &&
            (least < 0 || strcmp(values->names[i], values->names[least]) < 0)) {
            least = i;
        }
    }
    return least;
}

static void exchange(struct job_metrics *metrics)
{
    const struct job_metric_values closed = metrics->closed;
    metrics->closed = metrics->open;
    metrics->open = closed;
}

void job_metrics_summarize(const struct job_metrics *metrics, char ret_text[TALLY_METRICS_CAPACITY])
{
    const char *last = "";
    memset(ret_text, 0, TALLY_METRICS_CAPACITY);
    for (int place; (place = next_name(&metrics->open, last)) >= 0;
         last = metrics->open.names[place]) {
        const struct tally_metric_summary summary = summary_of(metrics, place);
        tally_metrics_append(ret_text, &summary);
    }
}

void job_metrics_close(struct job_metrics *metrics, int64_t round,
                       char ret_text[TALLY_METRICS_CAPACITY])
{
    job_metrics_summarize(metrics, ret_text);
    if (metrics->open.n_names > 0) {
        exchange(metrics);
        metrics->closed_round = round;
        job_metrics_clear(metrics);
    }
}

enum tally_status job_metrics_restore(struct job_metrics *metrics, uint32_t cohort, int64_t round,
                                      uint32_t client_place, const struct tally_metric *reported,
                                      size_t n, struct tally_error *err)
{
    exchange(metrics);
    enum tally_status status = job_metrics_check(metrics, cohort, reported, n, err);
    if (status == TALLY_OK) {
        job_metrics_take(metrics, client_place, 0, reported, n);
        metrics->closed_round = round;
    }
    exchange(metrics);
    return status;
}

size_t job_metrics_of_client(const struct job_metrics *metrics, uint32_t client_place,
                             struct tally_metric ret_metrics[TALLY_METRICS_MOST])
{
    const struct job_metric_values *closed = &metrics->closed;
    const char *last = "";
    size_t n = 0;
    for (int place; (place = next_name(closed, last)) >= 0; last = closed->names[place]) {
        const double value =
            closed->values[client_place * (size_t)TALLY_METRICS_MOST + (size_t)place];
        if (!isnan(value)) {
            memcpy(ret_metrics[n].name, closed->names[place], sizeof ret_metrics[n].name);
            ret_metrics[n++].value = value;
        }
    }
    return n;
}

uint64_t job_metrics_bits(const struct tally_metric *reported, size_t n)
{
    uint64_t bits = 0;
    for (size_t i = 0; i < n; i++) {
        bits += isfinite(reported[i].value) ? VALUE_BITS + NAME_BITS * strlen(reported[i].name) : 0;
    }
    return bits;
}
