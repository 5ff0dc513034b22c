/* rest_job_filter: which jobs a list contains. Pure. */
#ifndef TALLY_SERVICES_COORDINATOR_REST_JOB_FILTER_H
#define TALLY_SERVICES_COORDINATOR_REST_JOB_FILTER_H

#include <stdbool.h>
#include <stddef.h>

#include "services/base/labels.h"
#include "storage/store.h"

/* Conditions, all of which must hold. */
struct job_filter {
    int status;       /* enum tally_job_status; -1 = any */
    const char *name; /* exactly; NULL = any; borrowed */
    struct tally_label_filter labels[TALLY_LABELS_MOST];
    size_t n_labels;
};

/* Whether a row that the store has already selected by its status meets the other conditions. */
bool job_filter_passes(const struct job_filter *filter, const struct tally_store_job *row);
/* Whether the filter has conditions besides the status. */
bool job_filter_is_selective(const struct job_filter *filter);

#endif
