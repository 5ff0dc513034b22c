#include "storage/walk.h"

#include <stdlib.h>

/* A job's row is about a kilobyte. */
enum { JOBS_PER_PAGE = 256 };

struct page {
    struct tally_store_job *jobs;
    size_t n;
};

static enum tally_status keep(void *context, const struct tally_store_job *job,
                              struct tally_error *err)
{
    (void)err;
    struct page *page = context;
    page->jobs[page->n++] = *job;
    return TALLY_OK;
}

enum tally_status tally_store_walk_jobs(struct tally_store *store, tally_store_job_fn *each,
                                        void *context, struct tally_error *err)
{
    struct page page = {.jobs = calloc(JOBS_PER_PAGE, sizeof *page.jobs)};
    if (page.jobs == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a page of jobs");
    }
    int64_t before_key = INT64_MAX;
    enum tally_status status = TALLY_OK;
    do {
        page.n = 0;
        status = store->ops->job_list(store, -1, before_key, JOBS_PER_PAGE, keep, &page, err);
        for (size_t i = 0; i < page.n && status == TALLY_OK; i++) {
            status = each(context, &page.jobs[i], err);
            before_key = page.jobs[i].key;
        }
    } while (status == TALLY_OK && page.n == JOBS_PER_PAGE);
    free(page.jobs);
    return status;
}
