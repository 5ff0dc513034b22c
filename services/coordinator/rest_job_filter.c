#include "services/coordinator/rest_job_filter.h"

#include <string.h>

bool job_filter_passes(const struct job_filter *filter, const struct tally_store_job *row)
{
    bool passes = filter->name == NULL || strcmp(filter->name, row->name) == 0;
    for (size_t i = 0; passes && i < filter->n_labels; i++) {
        passes = tally_labels_match(row->labels, &filter->labels[i]);
    }
    return passes;
}

bool job_filter_is_selective(const struct job_filter *filter)
{
    return filter->name != NULL || filter->n_labels > 0;
}
