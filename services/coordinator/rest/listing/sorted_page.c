#include "services/coordinator/rest/listing/sorted_page.h"

#include <stdlib.h>

/* The places that were found so far. */
struct search {
    const struct job_filter *filter;
    const struct job_order *order;
    const struct job_place *after;
    struct tally_buffer *places;
    int64_t n_looked_at, last_key;
};

/* Rows per request to the store, which may hold all of them in memory. */
enum { ROWS_AT_ONCE = 1000 };

static enum tally_status look_at(void *context, const struct tally_store_job *row,
                                 struct tally_error *err)
{
    struct search *search = context;
    struct job_place place;
    search->n_looked_at++;
    search->last_key = row->key;
    if (search->n_looked_at > JOBS_LOOKED_AT) {
        return tally_fail(
            err, TALLY_OUT_OF_RANGE, "sort",
            "there are more than %d jobs to sort: ask for those of one status, or for "
            "the order -created, which has no limit",
            JOBS_LOOKED_AT);
    }
    if (!job_filter_passes(search->filter, row)) {
        return TALLY_OK;
    }
    job_order_place(search->order, row, &place);
    if (search->after != NULL && job_order_compare(search->order, &place, search->after) <= 0) {
        return TALLY_OK;
    }
    const enum tally_status status = tally_buffer_append(search->places, &place, sizeof place);
    return status == TALLY_OK ? status : tally_fail(err, status, NULL, "no memory for the list");
}

static int compare(const void *a, const void *b, void *order)
{
    return job_order_compare(order, a, b);
}

enum tally_status sorted_page_find(struct tally_store *store, const struct job_filter *filter,
                                   const struct job_order *order, const struct job_place *after,
                                   int64_t limit, struct tally_buffer *ret_places, bool *ret_more,
                                   struct tally_error *err)
{
    struct search search = {.filter = filter,
                            .order = order,
                            .after = after,
                            .places = ret_places,
                            .last_key = INT64_MAX};
    enum tally_status status = TALLY_OK;
    int64_t looked_at;
    do {
        looked_at = search.n_looked_at;
        status = store->ops->job_list(store, filter->status, search.last_key, ROWS_AT_ONCE, look_at,
                                      &search, err);
    } while (status == TALLY_OK && search.n_looked_at - looked_at == ROWS_AT_ONCE);
    if (status != TALLY_OK) {
        return status;
    }
    struct job_order by = *order;
    const size_t n = ret_places->size / sizeof(struct job_place);
    if (n > 0) {
        qsort_r(ret_places->data, n, sizeof(struct job_place), compare, &by);
    }
    *ret_more = n > (size_t)limit;
    if (*ret_more) {
        ret_places->size = (size_t)limit * sizeof(struct job_place);
    }
    return TALLY_OK;
}
