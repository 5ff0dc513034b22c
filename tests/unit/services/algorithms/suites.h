/* suites: all of tally-test-algorithms. */
#ifndef TALLY_TESTS_UNIT_SERVICES_ALGORITHMS_SUITES_H
#define TALLY_TESTS_UNIT_SERVICES_ALGORITHMS_SUITES_H

#include "tests/harness.h"

extern const struct tally_suite algorithms_baseline_suite;
extern const struct tally_suite algorithms_ceal_suite;
extern const struct tally_suite algorithms_ceal_opening_suite;
extern const struct tally_suite algorithms_message_suite;

#endif
