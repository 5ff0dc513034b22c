/* series: the thinned-out rounds (thinning.h) of the most recently requested jobs. */
#ifndef TALLY_SERVICES_COORDINATOR_REST_SERIES_H
#define TALLY_SERVICES_COORDINATOR_REST_SERIES_H

#include "services/coordinator/rest/thinning/thinning.h"
#include "storage/store.h"

struct series_cache;
struct tally_coordinator;

/* All stored rounds of a job, cached for the next request. Borrowed until the next call. Errors:
 * STORE, DATA_LOSS, NO_MEMORY. */
enum tally_status read_series(struct tally_coordinator *coordinator,
                              const struct tally_store_job *row, const struct series **ret_series,
                              struct tally_error *err);
/* NULL is allowed. */
void series_cache_free(struct series_cache *cache);

#endif
