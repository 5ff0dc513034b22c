#include "tests/unit/services/objectives/suites.h"

const struct tally_suite *const TALLY_SUITES[] = {
    &objectives_least_squares_suite,
    &objectives_objective_suite,
    &objectives_sharding_suite,
    NULL,
};
