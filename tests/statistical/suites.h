/* suites: all of tally-test-statistical. */
#ifndef TALLY_TESTS_STATISTICAL_SUITES_H
#define TALLY_TESTS_STATISTICAL_SUITES_H

#include "tests/harness.h"

extern const struct tally_suite statistical_entropy_suite;
extern const struct tally_suite statistical_qsgd_suite;
extern const struct tally_suite statistical_quantizer_suite;
extern const struct tally_suite statistical_rng_suite;

#endif
