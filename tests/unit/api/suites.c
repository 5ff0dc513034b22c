#include "tests/unit/api/suites.h"

#include <stddef.h>

const struct tally_suite *const TALLY_SUITES[] = {&TALLY_SUITE_API_UTF8,
                                                  &TALLY_SUITE_API_JSON,
                                                  &TALLY_SUITE_API_JSON_FIELDS,
                                                  &TALLY_SUITE_API_PROBLEM,
                                                  &TALLY_SUITE_API_SHA256,
                                                  &TALLY_SUITE_API_WORKER_MESSAGES,
                                                  &TALLY_SUITE_API_HTTP_CONNECTIONS,
                                                  &TALLY_SUITE_API_HTTP_UPLOADS,
                                                  &TALLY_SUITE_API_HTTP_SERVER,
                                                  &TALLY_SUITE_API_HTTP_STREAM,
                                                  &TALLY_SUITE_API_HTTP_TLS,
                                                  &TALLY_SUITE_API_HTTP_CLIENT,
                                                  &TALLY_SUITE_API_HTTP_FORWARD,
                                                  NULL};
