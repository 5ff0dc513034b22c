/* walk: all jobs of a store, page by page, for programs that go through everything. */
#ifndef TALLY_STORAGE_WALK_H
#define TALLY_STORAGE_WALK_H

#include "storage/store.h"

/* Newest first. Unlike in the callbacks of store.h, no walk is going on while `each` runs: it may
 * read and write as it likes, but not delete or insert jobs. Errors: NO_MEMORY, those of job_list,
 * what `each` returns. */
enum tally_status tally_store_walk_jobs(struct tally_store *store, tally_store_job_fn *each,
                                        void *context, struct tally_error *err);

#endif
