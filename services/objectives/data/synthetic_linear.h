/* synthetic_linear: the data of [1]'s first experiment, drawn from the job's seed (data.h). */
#ifndef TALLY_SERVICES_OBJECTIVES_DATA_SYNTHETIC_LINEAR_H
#define TALLY_SERVICES_OBJECTIVES_DATA_SYNTHETIC_LINEAR_H

#include "services/objectives/data/dataset.h"

/* The points in the order of the sharding permutation. Errors: NO_MEMORY. */
enum tally_status tally_synthetic_linear_make(const struct tally_synthetic_linear *data,
                                              uint32_t clients, struct tally_rng_key key,
                                              struct tally_dataset **ret, struct tally_error *err);

#endif
