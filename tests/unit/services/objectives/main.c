#include "tests/unit/services/objectives/suites.h"

const struct tally_suite *const TALLY_SUITES[] = {
    &objectives_dataset_suite,
    &objectives_domain_suite,
    &objectives_eigenvalues_suite,
    &objectives_hostile_data_suite,
    &objectives_idx_suite,
    &objectives_kinds_suite,
    &objectives_least_squares_suite,
    &objectives_npy_suite,
    &objectives_number_suite,
    &objectives_objective_suite,
    &objectives_open_below_suite,
    &objectives_quadratic_suite,
    &objectives_sharding_suite,
    &objectives_softmax_losses_suite,
    &objectives_softmax_regression_suite,
    NULL,
};
