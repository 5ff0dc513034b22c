/* suites: all of tally-test-dashboard. */
#ifndef TALLY_TESTS_UNIT_SERVICES_DASHBOARD_SUITES_H
#define TALLY_TESTS_UNIT_SERVICES_DASHBOARD_SUITES_H

#include "tests/harness.h"

extern const struct tally_suite dashboard_assets_suite;

#endif
