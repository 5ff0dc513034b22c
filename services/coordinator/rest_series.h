/* rest_series: the thinned-out rounds (rest_thinning.h) of the most recently requested jobs. */
#ifndef TALLY_SERVICES_COORDINATOR_REST_SERIES_H
#define TALLY_SERVICES_COORDINATOR_REST_SERIES_H

#include "services/coordinator/rest_thinning.h"
#include "storage/store.h"

struct series_cache;
struct tally_coordinator;

/* A job's series, which stays in the cache while someone uses it. Zeroed = none. */
struct series_use {
    struct series_cache *cache;
    int entry;
    const struct series *series; /* NULL = none */
    bool is_renewed;             /* its last round was read again */
};

/* Reads some more rounds of the job into its series, cached for the next request. *ret_is_done =
 * the series has all rounds that the row counts. If all entries of the cache are in use, it does
 * nothing: call it again later. Errors: STORE, DATA_LOSS, NO_MEMORY. */
enum tally_status series_read(struct tally_coordinator *coordinator,
                              const struct tally_store_job *row, struct series_use *use,
                              bool *ret_is_done, struct tally_error *err);
void series_release(struct series_use *use);
/* NULL is allowed. */
void series_cache_free(struct series_cache *cache);

#endif
