/* suites: all of tally-test-document. */
#ifndef TALLY_TESTS_UNIT_SERVICES_DOCUMENT_SUITES_H
#define TALLY_TESTS_UNIT_SERVICES_DOCUMENT_SUITES_H

#include "tests/harness.h"

extern const struct tally_suite document_data_suite;
extern const struct tally_suite document_detail_suite;
extern const struct tally_suite document_document_suite;
extern const struct tally_suite document_plugin_suite;

#endif
