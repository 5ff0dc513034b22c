#include "tests/unit/services/coordinator/suites.h"

const struct tally_suite *const TALLY_SUITES[] = {
    &coordinator_exposition_suite,
    &coordinator_series_suite,
    NULL,
};
