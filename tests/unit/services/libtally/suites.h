/* suites: all of tally-test-libtally, one per part of services/libtally/tally.h. */
#ifndef TALLY_TESTS_UNIT_SERVICES_LIBTALLY_SUITES_H
#define TALLY_TESTS_UNIT_SERVICES_LIBTALLY_SUITES_H

#include "tests/harness.h"

extern const struct tally_suite libtally_codec_suite;
extern const struct tally_suite libtally_data_suite;
extern const struct tally_suite libtally_worker_suite;

#endif
