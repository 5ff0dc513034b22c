/* metrics: the named numbers that the clients report in the open round, and their summary.
 *
 * Values are kept per client and combined in client order when the round closes, so the mean does
 * not depend on the order of arrival. Names are kept in the order in which they arrive and sorted
 * in the summary. The memory, double[clients][TALLY_METRICS_MOST], is made for the first update
 * that has a metric: most jobs have none. */
#ifndef TALLY_SERVICES_JOB_ENGINE_METRICS_H
#define TALLY_SERVICES_JOB_ENGINE_METRICS_H

#include "codec/base/error.h"
#include "codec/base/record.h"

struct job_metrics {
    char names[TALLY_METRICS_MOST][TALLY_METRIC_NAME_CAPACITY];
    int n_names;    /* in the open round */
    double *values; /* [clients][TALLY_METRICS_MOST]; NaN = not reported; NULL = none ever */
    uint32_t clients;
};

void job_metrics_fini(struct job_metrics *metrics);
/* Forgets what was reported: a round opens. */
void job_metrics_clear(struct job_metrics *metrics);
/* Checks n metrics of one client, and makes room for them. Changes nothing visible. Errors:
 * MALFORMED (the field is "metrics"), NO_MEMORY. */
enum tally_status job_metrics_check(struct job_metrics *metrics, uint32_t clients,
                                    const struct tally_metric *reported, size_t n,
                                    struct tally_error *err);
/* Keeps metrics that passed the check. */
void job_metrics_take(struct job_metrics *metrics, uint32_t client,
                      const struct tally_metric *reported, size_t n);
/* Writes the summary of the round (record.h). */
void job_metrics_write(const struct job_metrics *metrics, char ret_text[TALLY_METRICS_CAPACITY]);
/* What n metrics count: 64 bits a value, 8 a byte of its name. */
uint64_t job_metrics_bits(const struct tally_metric *reported, size_t n);

#endif
