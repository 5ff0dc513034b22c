#include "tests/statistical/suites.h"

const struct tally_suite *const TALLY_SUITES[] = {
    &statistical_entropy_suite,
    &statistical_qsgd_suite,
    &statistical_quantizer_suite,
    &statistical_rng_suite,
    NULL,
};
