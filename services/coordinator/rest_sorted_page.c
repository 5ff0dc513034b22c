#include "services/coordinator/rest_sorted_page.h"

#include <stdlib.h>

/* Rows of one step: half a millisecond. */
enum { ROWS_AT_ONCE = 64 };

void sorted_page_fini(struct sorted_page *page)
{
    tally_buffer_fini(&page->places);
}

static enum tally_status look_at(void *context, const struct tally_store_job *row,
                                 struct tally_error *err)
{
    struct sorted_page *page = context;
    struct job_place place;
    page->n_looked_at++;
    page->last_key = row->key;
    if (page->n_looked_at > JOBS_LOOKED_AT) {
        return tally_fail(
            err, TALLY_OUT_OF_RANGE, "sort",
            "there are more than %d jobs to sort: ask for those of one status, or for "
            "the order -created, which has no limit",
            JOBS_LOOKED_AT);
    }
    if (!job_filter_passes(page->filter, row)) {
        return TALLY_OK;
    }
    job_order_place(&page->order, row, &place);
    if (page->has_after && job_order_compare(&page->order, &place, &page->after) <= 0) {
        return TALLY_OK;
    }
    const enum tally_status status = tally_buffer_append(&page->places, &place, sizeof place);
    return status == TALLY_OK ? status : tally_fail(err, status, NULL, "no memory for the list");
}

static int compare(const void *a, const void *b, void *order)
{
    return job_order_compare(order, a, b);
}

/* Sorts the places so far, and drops those behind the page. */
static void keep_first(struct sorted_page *page)
{
    const size_t n = page->places.size / sizeof(struct job_place);
    if (n > 0) {
        qsort_r(page->places.data, n, sizeof(struct job_place), compare, &page->order);
    }
    if (n > (size_t)page->limit) {
        page->has_more = true;
        page->places.size = (size_t)page->limit * sizeof(struct job_place);
    }
}

enum tally_status sorted_page_look(struct sorted_page *page, struct tally_store *store,
                                   bool *ret_is_done, struct tally_error *err)
{
    const int64_t before_key = page->n_looked_at > 0 ? page->last_key : INT64_MAX;
    const int64_t looked_at = page->n_looked_at;
    const enum tally_status status = store->ops->job_list(store, page->filter->status, before_key,
                                                          ROWS_AT_ONCE, look_at, page, err);
    const bool is_done = page->n_looked_at - looked_at < ROWS_AT_ONCE;
    const size_t n = page->places.size / sizeof(struct job_place);
    if (status == TALLY_OK && (is_done || n > 2 * (size_t)page->limit + ROWS_AT_ONCE)) {
        keep_first(page); /* all sorts together cost no more than one of all places would */
    }
    *ret_is_done = is_done;
    return status;
}
