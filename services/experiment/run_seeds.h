/* run_seeds: parses a range of seeds: "101-110", or "7" for one seed. */
#ifndef TALLY_SERVICES_EXPERIMENT_RUN_SEEDS_H
#define TALLY_SERVICES_EXPERIMENT_RUN_SEEDS_H

#include <stddef.h>
#include <stdint.h>

#include "codec/error.h"

enum { TALLY_MAX_SEEDS = 10000 };

/* Errors: INVALID_ARGUMENT (not a range), OUT_OF_RANGE (a seed above 2^53 - 1, the end before the
 * start, more than TALLY_MAX_SEEDS). */
enum tally_status tally_seeds_parse(const char *text, int64_t *ret_first, size_t *ret_n,
                                    struct tally_error *err);

#endif
