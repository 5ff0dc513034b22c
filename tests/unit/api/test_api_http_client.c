#include "tests/unit/api/suites.h"
static const struct tally_test TESTS[] = {{"none", NULL}};
TALLY_SUITE(TALLY_SUITE_API_HTTP_CLIENT, "api_http_client", TESTS);
