/* suites: all of tally-test-plugins. */
#ifndef TALLY_TESTS_UNIT_SERVICES_PLUGINS_SUITES_H
#define TALLY_TESTS_UNIT_SERVICES_PLUGINS_SUITES_H

#include "tests/harness.h"

extern const struct tally_suite plugins_instance_suite;
extern const struct tally_suite plugins_objective_suite;
extern const struct tally_suite plugins_process_suite;
extern const struct tally_suite plugins_set_suite;

#endif
