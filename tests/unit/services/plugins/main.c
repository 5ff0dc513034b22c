#include "tests/unit/services/plugins/suites.h"

const struct tally_suite *const TALLY_SUITES[] = {
    &plugins_instance_suite,
    &plugins_objective_suite,
    &plugins_process_suite,
    &plugins_set_suite,
    NULL,
};
