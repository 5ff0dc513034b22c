#include "tests/unit/services/dashboard/suites.h"

const struct tally_suite *const TALLY_SUITES[] = {
    &dashboard_assets_suite,
    NULL,
};
