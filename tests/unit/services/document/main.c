#include "tests/unit/services/document/suites.h"

const struct tally_suite *const TALLY_SUITES[] = {
    &document_data_suite,
    &document_detail_suite,
    &document_document_suite,
    &document_plugin_suite,
    NULL,
};
