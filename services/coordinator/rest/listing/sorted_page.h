/* sorted_page: a page of a list in a different order than that of the store.
 *
 * The store gives jobs newest first. For any other order, all rows that pass the filter are
 * examined and their places sorted, without reading documents. Their number is limited, so that a
 * request takes a few milliseconds however many jobs there are. */
#ifndef TALLY_SERVICES_COORDINATOR_REST_LISTING_SORTED_PAGE_H
#define TALLY_SERVICES_COORDINATOR_REST_LISTING_SORTED_PAGE_H

#include "codec/base/buffer.h"
#include "services/coordinator/rest/listing/job_filter.h"
#include "services/coordinator/rest/listing/job_order.h"

/* Rows that one request examines. */
enum { JOBS_LOOKED_AT = 10000 };

/* Appends to *ret_places a struct job_place for each of the first `limit` jobs that pass the filter
 * and stand behind `after` (NULL = all), in order; *ret_more = more jobs follow. Errors:
 * OUT_OF_RANGE (more than JOBS_LOOKED_AT jobs have the status of the filter), with field "sort";
 * those of job_list; NO_MEMORY. */
enum tally_status sorted_page_find(struct tally_store *store, const struct job_filter *filter,
                                   const struct job_order *order, const struct job_place *after,
                                   int64_t limit, struct tally_buffer *ret_places, bool *ret_more,
                                   struct tally_error *err);

#endif
