/* suites: all of tally-test-objectives. */
#ifndef TALLY_TESTS_UNIT_SERVICES_OBJECTIVES_SUITES_H
#define TALLY_TESTS_UNIT_SERVICES_OBJECTIVES_SUITES_H

#include "tests/harness.h"

extern const struct tally_suite objectives_dataset_suite;
extern const struct tally_suite objectives_domain_suite;
extern const struct tally_suite objectives_eigenvalues_suite;
extern const struct tally_suite objectives_hostile_data_suite;
extern const struct tally_suite objectives_idx_suite;
extern const struct tally_suite objectives_kinds_suite;
extern const struct tally_suite objectives_least_squares_suite;
extern const struct tally_suite objectives_npy_suite;
extern const struct tally_suite objectives_number_suite;
extern const struct tally_suite objectives_objective_suite;
extern const struct tally_suite objectives_open_below_suite;
extern const struct tally_suite objectives_quadratic_suite;
extern const struct tally_suite objectives_sharding_suite;
extern const struct tally_suite objectives_softmax_losses_suite;
extern const struct tally_suite objectives_softmax_regression_suite;

#endif
