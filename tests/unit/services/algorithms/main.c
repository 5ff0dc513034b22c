#include "tests/unit/services/algorithms/suites.h"

const struct tally_suite *const TALLY_SUITES[] = {
    &algorithms_baseline_suite,
    &algorithms_ceal_suite,
    &algorithms_ceal_opening_suite,
    &algorithms_message_suite,
    NULL,
};
