#include "tests/unit/services/libtally/suites.h"

const struct tally_suite *const TALLY_SUITES[] = {&libtally_codec_suite, &libtally_data_suite,
                                                  &libtally_worker_suite, NULL};
