/* suites: what tally-test-api runs. */
#ifndef TALLY_TESTS_UNIT_API_SUITES_H
#define TALLY_TESTS_UNIT_API_SUITES_H

#include "tests/harness.h"

extern const struct tally_suite TALLY_SUITE_API_UTF8;
extern const struct tally_suite TALLY_SUITE_API_JSON;
extern const struct tally_suite TALLY_SUITE_API_JSON_FIELDS;
extern const struct tally_suite TALLY_SUITE_API_PROBLEM;
extern const struct tally_suite TALLY_SUITE_API_SHA256;
extern const struct tally_suite TALLY_SUITE_API_WORKER_MESSAGES;
extern const struct tally_suite TALLY_SUITE_API_HTTP_CONNECTIONS;
extern const struct tally_suite TALLY_SUITE_API_HTTP_UPLOADS;
extern const struct tally_suite TALLY_SUITE_API_HTTP_SERVER;
extern const struct tally_suite TALLY_SUITE_API_HTTP_STREAM;
extern const struct tally_suite TALLY_SUITE_API_HTTP_TLS;
extern const struct tally_suite TALLY_SUITE_API_HTTP_CLIENT;
extern const struct tally_suite TALLY_SUITE_API_HTTP_FORWARD;

#endif
