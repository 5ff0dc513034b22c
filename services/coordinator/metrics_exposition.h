/* metrics_exposition: writes the text format 0.0.4 of Prometheus.
 *
 *   # HELP tally_job_regret Cumulative regret of the job.
 *   # TYPE tally_job_regret gauge
 *   tally_job_regret{job="45c4fb33c7c3"} 493.10252166338705
 *
 * All samples of a family follow its two lines, so a caller writes family by family. Names are
 * constants of ours; label values may hold anything: quotes, backslashes and line ends are escaped,
 * bytes that are not UTF-8 become U+FFFD (one of them would void the whole scrape). */
#ifndef TALLY_SERVICES_COORDINATOR_METRICS_EXPOSITION_H
#define TALLY_SERVICES_COORDINATOR_METRICS_EXPOSITION_H

#include <stdint.h>

#include "codec/buffer.h"
#include "codec/error.h"
#include "services/coordinator/call_counts.h"

struct exposition {
    struct tally_buffer *out;
    enum tally_status status; /* NO_MEMORY or TOO_LARGE after something did not fit; nothing more is
                                 written then */
};

struct label {
    const char *name, *value;
};

/* Arguments of the functions below: the labels of one sample; at least one. */
#define EXPOSITION_LABELS(...) ((const struct label[]){__VA_ARGS__, {NULL, NULL}})

enum exposition_type { EXPOSITION_COUNTER, EXPOSITION_GAUGE, EXPOSITION_HISTOGRAM };

/* HELP and TYPE. `help` is a constant of ours without backslashes and line ends. */
void exposition_family(struct exposition *exposition, const char *name, enum exposition_type type,
                       const char *help);
/* One sample; `labels` may be NULL. A real has 6, 15, 16 or 17 digits, the fewest that read back as
 * the same value, or is NaN, +Inf. */
void exposition_unsigned(struct exposition *exposition, const char *name,
                         const struct label *labels, uint64_t value);
void exposition_real(struct exposition *exposition, const char *name, const struct label *labels,
                     double value);

/* A whole family: one sample without labels, or n samples that differ in the value of one label. */
void exposition_one(struct exposition *exposition, const char *name, enum exposition_type type,
                    const char *help, uint64_t value);
void exposition_each(struct exposition *exposition, const char *name, enum exposition_type type,
                     const char *help, const char *label, const char *const *label_values,
                     const uint64_t *values, int n);

/* NAME_bucket, NAME_sum and NAME_count. `labels`: at most three, or NULL. */
void exposition_histogram(struct exposition *exposition, const char *name,
                          const struct label *labels, const struct histogram *histogram);

#endif
