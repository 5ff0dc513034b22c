/* job_metrics: the named numbers that the clients report in the open round, and their summary.
 *
 * Values are kept per client and combined in client order when the round closes, so the mean does
 * not depend on the order of arrival. Metrics never change a job, so a value that is not finite is
 * dropped, and the update is accepted without it. Clients count alike, or by a weight that is given
 * with their metrics; one whose weight is unknown then counts as the mean of the others. Names are
 * kept in the order in which they arrive and sorted in the summary. The values of the last closed
 * round that has any are kept for queries about single clients. The memory, twice
 * double[cohort][TALLY_METRICS_MOST], is allocated for the first update that has a metric, because
 * most jobs have none. */
#ifndef TALLY_SERVICES_JOB_JOB_METRICS_H
#define TALLY_SERVICES_JOB_JOB_METRICS_H

#include "codec/error.h"
#include "codec/record.h"

/* What the clients reported in one round. */
struct job_metric_values {
    char names[TALLY_METRICS_MOST][TALLY_METRIC_NAME_CAPACITY];
    int n_names;
    double *values;    /* [cohort][TALLY_METRICS_MOST]; NaN = not reported; NULL = none so far */
    uint32_t *weights; /* [cohort] if they are weighted; 0 = unknown */
};

struct job_metrics {
    struct job_metric_values open;   /* of the open round */
    struct job_metric_values closed; /* of the last closed round that has any */
    int64_t closed_round;            /* 0 = there is none */
    uint32_t clients;                /* of a round: each has a place in the cohort */
    bool is_weighted;                /* set before the first check */
};

void job_metrics_fini(struct job_metrics *metrics);
/* Clears the values of the open round. */
void job_metrics_clear(struct job_metrics *metrics);
/* Checks n metrics of one client, and makes room for them. Changes nothing visible. Errors:
 * MALFORMED (the field is "metrics"), NO_MEMORY. */
enum tally_status job_metrics_check(struct job_metrics *metrics, uint32_t cohort,
                                    const struct tally_metric *reported, size_t n,
                                    struct tally_error *err);
/* Keeps metrics that passed the check, of the client at that place in the cohort. `weight` counts
 * if they are weighted; 0 = unknown. */
void job_metrics_take(struct job_metrics *metrics, uint32_t client_place, uint32_t weight,
                      const struct tally_metric *reported, size_t n);
/* Writes the summary of the open round (record.h). */
void job_metrics_summarize(const struct job_metrics *metrics,
                           char ret_text[TALLY_METRICS_CAPACITY]);
/* Closes the round: writes its summary (record.h), and keeps the values if there are any. */
void job_metrics_close(struct job_metrics *metrics, int64_t round,
                       char ret_text[TALLY_METRICS_CAPACITY]);
/* Restores the metrics that a client reported in `round`, the last closed round that has any.
 * Errors: those of job_metrics_check(). */
enum tally_status job_metrics_restore(struct job_metrics *metrics, uint32_t cohort, int64_t round,
                                      uint32_t client_place, const struct tally_metric *reported,
                                      size_t n, struct tally_error *err);
/* The metrics that the client reported in closed_round, ascending by name. Returns their number. */
size_t job_metrics_of_client(const struct job_metrics *metrics, uint32_t client_place,
                             struct tally_metric ret_metrics[TALLY_METRICS_MOST]);
/* The number of bits that n metrics count as: 64 per value, 8 per byte of its name; those that are
 * dropped count as none. */
uint64_t job_metrics_bits(const struct tally_metric *reported, size_t n);

#endif
