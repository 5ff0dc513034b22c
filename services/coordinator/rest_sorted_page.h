/* rest_sorted_page: a page of a list in a different order than that of the store.
 *
 * The store gives jobs newest first. For any other order, all rows that pass the filter are
 * examined, without reading documents, and the places of the first ones are kept. Their number is
 * limited, so that a request takes some ten milliseconds however many jobs there are; the rows are
 * examined in steps, between which the loop does other work. */
#ifndef TALLY_SERVICES_COORDINATOR_REST_SORTED_PAGE_H
#define TALLY_SERVICES_COORDINATOR_REST_SORTED_PAGE_H

#include "codec/buffer.h"
#include "services/coordinator/rest_job_filter.h"
#include "services/coordinator/rest_job_order.h"

/* Rows that one request examines. */
enum { JOBS_LOOKED_AT = 10000 };

/* begin: zeroed, with the members up to `limit`. */
struct sorted_page {
    const struct job_filter *filter; /* borrowed */
    struct job_order order;
    bool has_after; /* only jobs behind `after` */
    struct job_place after;
    int64_t limit;              /* of places */
    struct tally_buffer places; /* struct job_place, once all rows have been examined: in order */
    bool has_more;              /* more jobs follow */
    int64_t n_looked_at, last_key;
};

void sorted_page_fini(struct sorted_page *page);
/* Examines some more rows; *ret_is_done = there are no others. Errors: OUT_OF_RANGE (more than
 * JOBS_LOOKED_AT jobs have the status of the filter), with field "sort"; those of job_list;
 * NO_MEMORY. */
enum tally_status sorted_page_look(struct sorted_page *page, struct tally_store *store,
                                   bool *ret_is_done, struct tally_error *err);

#endif
